// Who waits for whom in block 0 of a launch, step by step: from one moment at which a wait or a copy ends to the next.
// Warps that wait alike are one row. The order is the simulator's; a GPU may take another, and lengths say nothing.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/judge/trace_launch.hpp"

namespace workbook::judge {

struct WaitBar {
  std::size_t first = 0, last = 0;  ///< begins within step `first`, ends with the beginning of step `last`
  std::string text;                 ///< "full[0]"; of a copy "K 3"
  bool before = false;              ///< it has begun before the first step that was asked for
};
struct WaitRow {
  std::string name;  ///< "warps 0-6"; of copies "copies, full[0]", by the barrier at which they end
  bool copies = false;
  std::vector<WaitBar> bars;
};
struct WaitTimeline {
  std::size_t steps = 0;      ///< of the launch
  std::vector<WaitRow> rows;  ///< copies first, then warps
};

/// "full[0]" of "full[0], phase 2 (parity 0): 1 of 1 arrivals"
std::string short_wait(const std::string& what);
/// "0-3, 5"
std::string ranges_text(const std::vector<int>& numbers);

/// Of `count` steps from `first` on: what begins before or ends behind them, and which warps differ there, is left out.
WaitTimeline waits_of(const TracedLaunch& launch, std::size_t first, std::size_t count);

}  // namespace workbook::judge
