// What block 0 of a launch does between its barriers, as lanes of work over the intervals: the same for the drawings,
// the web pages and the trace's page.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/judge/trace_launch.hpp"

namespace workbook::judge {

/// A stretch of the timeline, from one interval to another.
struct TimelineBar {
  std::size_t first, last;
  std::string text;  ///< "K 1: 8 KiB", the tile with which it begins; or a number of instructions or wavefronts
};
struct TimelineLane {
  enum class Kind { copied, loaded, stored, products, shared, shuffles };
  std::string name;  ///< "K, copied"
  Kind kind;
  std::vector<TimelineBar> bars;
};
const char* name(TimelineLane::Kind kind);

/// All lanes, also those that have no bars.
std::vector<TimelineLane> timeline_of(const TracedLaunch& launch);

}  // namespace workbook::judge
