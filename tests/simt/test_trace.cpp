// The record of a launch with Options::trace: counters by line that add up to the totals, the worst access, and the
// waits.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "common/cuda/trace_record.hpp"
#include "common/simt/simulator.hpp"
#include "tests/simt/cases.hpp"

namespace {

struct Tracing {
  Tracing() { simt::options().trace = true; }
  ~Tracing() { simt::options().trace = false; }
};

const simt::Launch& traced(const char* name) {
  const Tracing tracing;
  simt::clear_launches();
  for (const auto& cases : {zoo::counted_cases(), zoo::instruction_cases(), zoo::right_cases()}) {
    for (const zoo::Case& c : cases) {
      if (std::strcmp(c.name, name) == 0) c.run();
    }
  }
  REQUIRE(simt::launches().size() == 1);
  return simt::last_launch();
}

/// The counters of all lines of a launch, summed.
std::map<std::string, std::uint64_t> sums(const simt::Launch& launch) {
  std::map<std::string, std::uint64_t> all;
  for (const simt::TracedLine& line : launch.lines) {
    workbook::cuda::visit_counters(line.counters,
                                   [&](const std::string& name, std::uint64_t count) { all[name] += count; });
  }
  return all;
}

/// Memory accesses and MMA are recorded by line; barriers and shuffles are not.
void expect_sums(const simt::Launch& launch) {
  const auto by_line = sums(launch);
  workbook::cuda::visit_counters(launch.counters, [&](const std::string& name, std::uint64_t count) {
    const bool memory = name.starts_with("global.") || name.starts_with("shared.") || name.starts_with("bulk_") ||
                        name == "tensor_instructions" || name == "multiply_calls" || name == "async_instructions";
    if (!memory) return;
    INFO(launch.kernel << ": " << name);
    CHECK((by_line.contains(name) ? by_line.at(name) : 0) == count);
  });
}

}  // namespace

TEST_CASE("a kernel's counters by line add up to the launch's counters") {
  if (!simt::instrumented()) SKIP("accesses are not counted here");
  for (const char* name : {"transpose 32", "transpose 33", "attention 256 causal", "cp.async in four groups"}) {
    const simt::Launch& launch = traced(name);
    CHECK(launch.lines.size() >= 2);
    expect_sums(launch);
  }
}

TEST_CASE("without the option nothing is recorded by line") {
  if (!simt::instrumented()) SKIP("accesses are not counted here");
  traced("transpose 32");
  for (const zoo::Case& c : zoo::counted_cases()) {
    if (std::strcmp(c.name, "transpose 32") == 0) c.run();
  }
  CHECK(simt::last_launch().lines.empty());
  CHECK(simt::last_launch().waits.empty());
}

TEST_CASE("the worst access of a line holds its lanes, bank and wavefronts") {
  if (!simt::instrumented()) SKIP("accesses are not counted here");
  const simt::Launch& launch = traced("transpose 32");
  // A column of a tile with 32 floats per row is in one bank.
  const auto worst = std::ranges::find_if(launch.lines, [](const simt::TracedLine& line) { return bool(line.worst); });
  REQUIRE(worst != launch.lines.end());
  CHECK(worst->source.file.ends_with("counted.cu"));
  CHECK(worst->counters.shared.load_wavefronts == 32 * worst->counters.shared.load_ideal);
  const simt::WorstAccess& access = *worst->worst;
  CHECK(access.wavefronts == 32);
  CHECK(access.ideal == 1);
  CHECK(access.lanes.size() == 32);
  CHECK(access.in_bank.size() == 32);
  CHECK(std::set<int>(access.banks.begin(), access.banks.end()) == std::set<int>{access.bank});
  CHECK(access.places[0].starts_with("tile"));
  CHECK(access.places[0] != access.places[31]);
  // With padding there are no conflicts.
  for (const simt::TracedLine& line : traced("transpose 33").lines) CHECK_FALSE(line.worst);
}

TEST_CASE("every warp of block 0 waits at every barrier") {
  if (!simt::instrumented()) SKIP("accesses are not counted here");
  const simt::Launch& launch = traced("transpose 32");
  REQUIRE(launch.waits.size() == 8);  // 256 threads, one barrier
  std::set<int> warps;
  for (const simt::Wait& wait : launch.waits) {
    warps.insert(wait.warp);
    CHECK(wait.what == "__syncthreads");
    CHECK(wait.source.file.ends_with("counted.cu"));
    CHECK(wait.source.line == launch.waits[0].source.line);
    CHECK(wait.begin < wait.end);
    CHECK(wait.end == 8);
    CHECK(wait.interval == 0);
  }
  CHECK(warps.size() == 8);
}
