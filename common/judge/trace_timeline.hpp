// What block 0 of a launch does over its time, as facts: the same for the lessons' pictures, the web pages and the
// trace's page, which notes/site/figures/timeline.mjs draws.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/judge/trace_launch.hpp"

namespace workbook::judge {

/// A function's name without namespaces and template arguments: "load_tile" of
/// "void ch04::(anonymous namespace)::load_tile<64, 64>(…)".
std::string short_name(const std::string& kernel);

/// {"kernel", "warps", "intervals": N, "lanes": [{"name": "K, copied", "kind": "copied", "bars": [{"first", "last",
/// "text"}]}]}. Bars go from one interval to another; their text is "K 1: 8 KiB", the tile with which they begin, or a
/// number of instructions or wavefronts. Lanes without bars are left out.
nlohmann::ordered_json timeline_facts(const TracedLaunch& launch);

/// {"waits": [{"warp", "what", "begin", "end"}], "flights": [{"what", "barrier", "begin", "end"}]}: in the simulator's
/// order; a GPU may take another, and lengths say nothing. `lines`: also the source line and the interval of a wait.
nlohmann::ordered_json waits_facts(const TracedLaunch& launch, bool lines);

}  // namespace workbook::judge
