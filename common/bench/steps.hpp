// The steps that led to a chapter's kernel: the solution with its later steps undone, one after the other, so that each
// can be timed. tests/steps/NN_name.toml describes them by replaced text, as wrong solutions are described:
//
//   mask = "none"
//   [[step]]                                   # the first one
//   title = "first version"
//   [[step]]
//   title = "rows padded by 16 bytes"
//   [[step.without]]                           # the text before this step
//   file = "tiled_wmma.cu"
//   find = "pad_half = 8"
//   replace = "pad_half = 0"
//
// A variant is the solution without the steps after it; the last variant is the solution. If the worker's operation
// "bench" has a number that selects an earlier kernel, a step may name the number instead of replacing text:
//
//   [[step.number]]
//   name = "kernel"
//   value = 1
//
// The step of a kernel that is built for only one head dimension has head_dim = 64.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/book/manifest.hpp"

namespace workbook::bench {

struct Variant {
  std::string chapter;  ///< "03_tiled_wmma"
  std::string title;    ///< the title of its last step
  int number = 0;       ///< from 1 on
  Mask mask;
  int head_dim = 0;                       ///< the only head dimension that is timed; 0: any
  std::map<std::string, double> numbers;  ///< sent with the call
  std::filesystem::path folder;           ///< contains the chapter's files in this variant, and possibly others
};

/// The variants of a chapter, whose files are written below `folder`; none if the chapter has no steps file.
/// book::ManifestError with FILE:LINE for a missing or unknown key, and for a text that does not occur exactly once in
/// the solution without the later steps.
std::vector<Variant> load_variants(const book::Book& book, const book::Chapter& chapter,
                                   const std::filesystem::path& folder);

}  // namespace workbook::bench
