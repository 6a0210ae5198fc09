// Measures: builds and runs the stages, and queries the device, PyTorch and the profiler. Prints nothing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/bench/results.hpp"
#include "common/book/manifest.hpp"
#include "common/judge/workspace.hpp"

namespace workbook::bench {

/// What is to be measured.
struct MeasureRequest {
  std::vector<std::string> chapters;  ///< numbers or names; empty: all
  bool only = false;                  ///< without the earlier chapters
  bool own = false;                   ///< the reader's stages instead of the book's
  std::vector<std::int64_t> lengths;  ///< N; empty: 256 … 16384 on a GPU, 128 … 1024 elsewhere
  std::vector<std::int64_t> head_dims{64, 128};
  std::int64_t batch = 0, heads = 0;  ///< B and H on a GPU; 0: those of usual_shape()
  std::int64_t group = 1;             ///< query heads per K/V head, a divisor of H
  std::int64_t queries = 0;           ///< Nq; 0: N
  bool decoding = false;              ///< the shapes of decoding_shapes() instead of these; `queries` is then 1
  std::string pass = "both";          ///< or "forward", "backward"
  std::vector<Mask> masks;            ///< empty: all
  /// Only stages for these elements. If a chapter has several, they are timed one after the other at every shape.
  /// Empty: each chapter's own.
  std::vector<Element> elements = {};
  /// Selects a variant of a stage, if it has one, which is timed alternately with the stage itself; empty: none.
  std::map<std::string, double> numbers = {};
  double budget = 0.2;  ///< seconds for the timed calls of one shape
  bool peers = false, profile = false, steps = false;
  std::vector<std::string> libraries;  ///< additional peers: shared libraries with peers.py's interface
  std::string flash_attention_3;       ///< a checkout of its repository: it is another peer; empty: none
  std::string command;                 ///< the command line, for the results
};

/// The named chapters and, unless `only`, all earlier ones. If none is named: all chapters, or with `decoding` those
/// for decoding. InputError for an unknown chapter.
std::vector<const book::Chapter*> wanted_chapters(const judge::Workspace& workspace, const MeasureRequest& request);

/// For a request with FlashAttention-3: InputError if the folder is no complete checkout, EnvironmentError without
/// nvcc.
void check_flash_attention_3(const judge::Workspace& workspace, const std::filesystem::path& checkout);

/// Decoding steps, with one query per head, 8 K/V heads and groups of 1, 4 and 8. The caches: about 4, 64 and 512 MiB,
/// and one request of 65536 keys. Each contiguous, and in pages of 64, 16 and 1 keys.
std::vector<Shape> decoding_shapes(std::int64_t d);

/// One timed version of a chapter: its stage for an element, or a variant of the stage.
struct Version {
  std::string name;  ///< "08_registers", or "08_registers, bfloat16"
  Element element;
  std::map<std::string, double> numbers;
};
/// The requested versions, the chapter's own element first, each without and with the numbers of the request; none if
/// the backend has no stage for these elements.
std::vector<Version> versions_of(const book::Chapter& chapter, Backend backend, const MeasureRequest& request);

/// Measures everything that this machine allows; Results::skipped lists the rest.
Results measure(const judge::Workspace& workspace, const MeasureRequest& request);

}  // namespace workbook::bench
