// Tracing: runs a chapter's kernels once on the simulator, which records every launch.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/attention/problem.hpp"
#include "common/judge/plan.hpp"
#include "common/judge/trace_launch.hpp"

namespace workbook::judge {

/// The parameters of the kernels in addition to the problem.
struct TraceRequest {
  std::int64_t Br = 0, Bc = 0;            ///< rows of a tile; 0: the chapter's default
  std::map<std::string, double> numbers;  ///< additional numbers for the chapter's operation
  std::uint64_t seed = 1;                 ///< of the dO that a backward stage receives
  std::optional<Element> element = {};    ///< empty: the chapter's default
  std::string operation = {};  ///< another operation of the chapter for this pass, such as "lab"; empty: its stage
  std::string pass = {};       ///< empty: the chapter's first pass
};

/// The outcome of the run, and its record.
struct Traced {
  std::string result = "ok";  ///< as in run --json
  std::string message;
  Trace trace;
  bool clean() const;  ///< it ran, and the simulator reported no mistake
};

/// The size limit of a record in bytes. A larger record sets Trace::too_large.
inline constexpr std::size_t kMostOfRecord = std::size_t(16) << 20;

/// EnvironmentError if the simulator cannot run or count here.
void require_counts(const Workspace& workspace);

/// Builds the chapter and runs it. Call require_counts() first.
Traced run_traced(const Workspace& workspace, const book::Chapter& chapter, const Tree& tree, const Problem& problem,
                  const TraceRequest& request);

/// The number of rows per tile of a tensor that the launches have used: `requested` if a launch used it, otherwise that
/// of the last launch. 0: no launch is tiled.
std::int64_t tile_rows_taken(const Trace& trace, const std::string& tensor, std::int64_t requested);

}  // namespace workbook::judge
