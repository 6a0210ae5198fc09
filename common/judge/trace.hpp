// Tracing: one run of a chapter's kernels on the simulator, which records every launch.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/attention/problem.hpp"
#include "common/judge/plan.hpp"
#include "common/judge/trace_launch.hpp"

namespace workbook::judge {

/// What the kernels are told beside the problem.
struct TraceRequest {
  std::int64_t Br = 0, Bc = 0;            ///< rows of a tile; 0: as the chapter has them
  std::map<std::string, double> numbers;  ///< for the chapter's operation beside the usual ones
  std::uint64_t seed = 1;                 ///< of the dO that a backward stage is given
  std::optional<Element> element = {};    ///< nothing: the chapter's own
  std::string operation = {};             ///< another of the chapter's, of that pass: "lab"; empty: its stage
  std::string pass = {};                  ///< empty: the chapter's first
};

/// How the run ended, and what it did.
struct Traced {
  std::string result = "ok";  ///< as in run --json
  std::string message;
  Trace trace;
  bool clean() const;  ///< it ran, and the simulator has nothing to report
};

/// The most bytes of a record: what needs more says so in Trace::too_large.
inline constexpr std::size_t kMostOfRecord = std::size_t(16) << 20;

/// EnvironmentError where kernels cannot be counted.
void require_counts(const Workspace& workspace);

/// Builds the chapter and runs it. require_counts() first.
Traced run_traced(const Workspace& workspace, const book::Chapter& chapter, const Tree& tree, const Problem& problem,
                  const TraceRequest& request);

/// The rows of a tile of Q and K that the launches have taken: of the first launch whose tile has `asked` rows, else of
/// the last. 0: none of them is tiled.
std::int64_t tile_rows_taken(const Trace& trace, const std::string& tensor, std::int64_t asked);

}  // namespace workbook::judge
