// The simulator's results for the zoo, as JSON on standard output, for compare_with_gpu: the counters of every launch
// of the compared kernels, and the kinds of reports for each planted mistake and each correct kernel.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/simt/simulator.hpp"
#include "tests/simt/cases.hpp"

namespace {

using nlohmann::json;

/// The kernels of right.cu that add cp.async and atomics to the comparison.
const std::set<std::string> kComparedToo = {"async two stages", "async zero fill", "histogram in global memory",
                                            "histogram in shared memory"};

json counters_json(const simt::Counters& c) {
  return {{"global.load_requests", c.global.load_requests},
          {"global.load_sectors", c.global.load_sectors},
          {"global.store_requests", c.global.store_requests},
          {"global.store_sectors", c.global.store_sectors},
          {"global.async_requests", c.global.async_requests},
          {"global.async_sectors", c.global.async_sectors},
          {"global.atomic_requests", c.global.atomic_requests},
          {"global.atomic_sectors", c.global.atomic_sectors},
          {"shared.load_instructions", c.shared.load_instructions},
          {"shared.store_instructions", c.shared.store_instructions},
          {"shared.matrix_loads", c.shared.matrix_loads},
          {"shared.load_wavefronts", c.shared.load_wavefronts},
          {"shared.store_wavefronts", c.shared.store_wavefronts},
          {"shared.atomic_instructions", c.shared.atomic_instructions},
          {"tensor_instructions", c.tensor_instructions},
          {"async_instructions", c.async_instructions},
          {"bulk_loads", c.bulk_loads},
          {"bulk_stores", c.bulk_stores},
          {"bulk_reductions", c.bulk_reductions},
          {"bulk_requests", c.bulk_requests},
          {"global.bulk_load_bytes", c.global.bulk_load_bytes},
          {"global.bulk_store_bytes", c.global.bulk_store_bytes},
          {"global.bulk_reduce_bytes", c.global.bulk_reduce_bytes},
          {"global.bulk_reduce_sectors", c.global.bulk_reduce_sectors},
          {"wgmma_instructions", c.wgmma_instructions},
          {"wgmma_wavefronts", c.wgmma_wavefronts}};
}

/// The case's launches, each with its counters.
json counted(const zoo::Case& c) {
  simt::clear_launches();
  c.run();
  json launches = json::array();
  for (const simt::Launch& launch : simt::launches()) {
    launches.push_back({{"kernel", launch.kernel}, {"counters", counters_json(launch.counters)}});
  }
  return {{"name", c.name}, {"launches", launches}};
}

/// The kinds of the case's reports, each kind once.
json judged(const zoo::Case& c) {
  simt::clear_launches();
  std::set<std::string> kinds;
  try {
    c.run();
  } catch (const std::exception& error) {
    for (const simt::Report& report : simt::last_launch().reports) kinds.insert(simt::name(report.mistake));
    // A missing or unobserved write to an output is detected when the output is downloaded, after the launch.
    const std::string text = error.what();
    for (const auto mistake : {simt::Mistake::never_written, simt::Mistake::unseen_store})
      if (text.find(simt::name(mistake)) != std::string::npos) kinds.insert(simt::name(mistake));
    if (kinds.empty()) kinds.insert(text);
  }
  return {{"name", c.name}, {"reports", kinds}};
}

}  // namespace

int main() {
  if (!simt::instrumented()) {
    std::fprintf(stderr, "simt_counts: the kernels are compiled without the simulator's instrumentation\n");
    return 3;
  }
  json compared = json::array(), mistakes = json::array(), right = json::array();
  using Group = std::pair<const char*, std::span<const zoo::Case>>;
  const char *instructions = "instructions below WMMA", *hopper = "Hopper's";
  const auto add = [](json& to, const char* kind, json entry) {
    entry["kind"] = kind;
    to.push_back(std::move(entry));
  };
  for (const auto& [kind, cases] :
       {Group{"counted", zoo::counted_cases()}, Group{instructions, zoo::instruction_cases()},
        Group{"the book's", zoo::compared_cases()}, Group{hopper, zoo::hopper_cases()},
        Group{hopper, zoo::line_cases()}, Group{hopper, zoo::hopper_attention()}, Group{"right", zoo::right_cases()}}) {
    const bool all = cases.data() != zoo::right_cases().data();
    for (const zoo::Case& c : cases) {
      if (all || kComparedToo.contains(c.name)) add(compared, kind, counted(c));
    }
  }
  for (const auto& [kind, cases] :
       {Group{"races", zoo::race_cases()}, Group{"wrong accesses", zoo::memory_cases()},
        Group{"threads that do not come together", zoo::warp_cases()}, Group{instructions, zoo::instruction_mistakes()},
        Group{hopper, zoo::hopper_mistakes()}, Group{hopper, zoo::line_mistakes()}}) {
    for (const zoo::Case& c : cases) add(mistakes, kind, judged(c));
  }
  for (const auto& [kind, cases] : {Group{"right", zoo::right_cases()}, Group{instructions, zoo::instruction_cases()},
                                    Group{hopper, zoo::hopper_cases()}, Group{hopper, zoo::line_cases()}}) {
    for (const zoo::Case& c : cases) add(right, kind, judged(c));
  }
  std::printf("%s\n", json({{"compared", compared}, {"mistakes", mistakes}, {"right", right}}).dump(1).c_str());
}
