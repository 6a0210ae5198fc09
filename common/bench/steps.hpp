// The steps that led to a chapter's kernel: the solution with its later steps taken back, one after the other, so that
// each can be timed. Described as tests/steps/NN_name.toml, by what is replaced, as wrong solutions are:
//
//   mask = "none"
//   [[step]]                                   # the first one: nothing before it
//   title = "first version"
//   [[step]]
//   title = "rows padded by 16 bytes"
//   [[step.without]]                           # what stands in place of it before
//   file = "tiled_wmma.cu"
//   find = "pad_half = 8"
//   replace = "pad_half = 0"
//
// A variant is the solution without the steps after it; the last one is the solution. Where the worker's operation
// "bench" has a number that chooses an earlier kernel, a step may name that in place of replacing text:
//
//   [[step.number]]
//   name = "kernel"
//   value = 1
//
// and a kernel that is built for one head dimension only says so in its step: head_dim = 64.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/book/manifest.hpp"

namespace workbook::bench {

struct Variant {
  std::string chapter;  ///< "03_tiled_wmma"
  std::string title;    ///< of its last step
  int number = 0;       ///< from 1 on
  Mask mask;
  int head_dim = 0;                       ///< the only one that it is timed with; 0: any
  std::map<std::string, double> numbers;  ///< sent with the call
  std::filesystem::path folder;           ///< holds the chapter's files as they are in this variant, and maybe others
};

/// The variants of a chapter, their files written below `folder`; none if the chapter has no file of steps.
/// book::ManifestError with FILE:LINE for a missing or unknown key, and for a text that does not stand exactly once in
/// the solution as the steps after it have left it.
std::vector<Variant> load_variants(const book::Book& book, const book::Chapter& chapter,
                                   const std::filesystem::path& folder);

}  // namespace workbook::bench
