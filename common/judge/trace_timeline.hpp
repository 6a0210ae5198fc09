// The timeline of block 0 of a launch as data. The lessons' pictures, the web pages and the trace's page share it;
// notes/site/figures/timeline.mjs draws it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/judge/trace_launch.hpp"

namespace workbook::judge {

/// A function's name without namespaces and template arguments: "load_tile" of
/// "void ch04::(anonymous namespace)::load_tile<64, 64>(…)".
std::string short_name(const std::string& kernel);

/// {"kernel", "warps", "intervals": N, "lanes": [{"name": "K, copied", "kind": "copied", "bars": [{"first", "last",
/// "text"}]}]}. A bar extends over intervals. Its text is "K 1: 8 KiB", with its first tile, or a number of
/// instructions or wavefronts. Lanes without bars are omitted.
nlohmann::ordered_json timeline_facts(const TracedLaunch& launch);

/// {"waits": [{"warp", "what", "begin", "end"}], "flights": [{"what", "barrier", "begin", "end"}]}: in the simulator's
/// order. The order on a GPU may differ, and lengths have no meaning. `lines`: adds the source line and the interval of
/// a wait.
nlohmann::ordered_json waits_facts(const TracedLaunch& launch, bool lines);

}  // namespace workbook::judge
