// Hopper's instructions on the simulator. Correct kernels give correct results without reports in every order; planted
// mistakes are reported at their lines; and an attention kernel that uses all instructions is correct against the
// oracle, with the counters that follow from its shape.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <span>

#include "common/simt/clocks.hpp"
#include "common/simt/simulator.hpp"
#include "tests/simt/half_problem.hpp"
#include "tests/simt/planted.hpp"
#include "tests/simt/warp_specialised.hpp"

using namespace workbook;

namespace {

using simt::Mistake;
using zoo::require_instrumentation;

/// Restores the options at the end of a test.
struct KeepOptions {
  ~KeepOptions() { simt::options() = simt::Options(); }
};

}  // namespace

TEST_CASE(
    "right kernels of Hopper's instructions give the right answer and no report, in 50 shuffled orders and others") {
  const KeepOptions keep;
  for (int seed = -2; seed < 50; ++seed) {
    simt::options().order = seed == -2   ? simt::Order::natural
                            : seed == -1 ? simt::Order::reversed
                                         : simt::Order::shuffled;
    simt::options().seed = std::uint64_t(std::max(seed, 0));
    for (const auto& cases : {zoo::hopper_cases(), zoo::line_cases()}) {
      for (const zoo::Case& c : cases) {
        INFO(c.name << ", seed " << seed);
        simt::clear_launches();
        CHECK_NOTHROW(c.run());
        CHECK(simt::last_launch().reports.empty());
      }
    }
  }
  CHECK(zoo::hopper_cases().size() + zoo::line_cases().size() >= 40);
}

TEST_CASE("right kernels of Hopper's instructions run with observation switched off") {
  const KeepOptions keep;
  simt::options().count = simt::options().detect = false;
  for (const auto& cases : {zoo::hopper_cases(), zoo::line_cases()}) {
    for (const zoo::Case& c : cases) {
      INFO(c.name);
      CHECK_NOTHROW(c.run());
    }
  }
}

TEST_CASE("every planted mistake with Hopper's instructions is reported at its line") {
  require_instrumentation();
  const KeepOptions keep;
  simt::options().order = GENERATE(simt::Order::natural, simt::Order::reversed, simt::Order::shuffled);
  CHECK(zoo::hopper_mistakes().size() >= 40);
  check_planted(zoo::hopper_mistakes(), "mistakes_hopper.cu", /*alone=*/false);
  CHECK(zoo::line_mistakes().size() >= 25);
  check_planted(zoo::line_mistakes(), "mistakes_hopper_lines.cu", /*alone=*/false);
}

TEST_CASE("reports on Hopper's instructions name the waiting threads, the barrier and the fix") {
  require_instrumentation();
  const KeepOptions keep;
  const auto report_of = [](const std::string& name) {
    simt::clear_launches();
    for (const auto& cases : {zoo::hopper_mistakes(), zoo::line_mistakes()}) {
      for (const zoo::Case& c : cases)
        if (c.name == name) CHECK_THROWS(c.run());
    }
    REQUIRE(!simt::last_launch().reports.empty());
    return simt::last_launch().reports;
  };
  const auto says = [](const std::vector<simt::Report>& reports, const char* words) {
    return simt::text(reports).find(words) != std::string::npos;
  };
  CHECK(says(report_of("stage_never_released"), "empty[0], phase 0 (parity 0): 0 of 2 arrivals"));
  CHECK(says(report_of("stage_never_released"), "full[0], phase 1 (parity 1): 0 of 1 arrivals"));
  CHECK(says(report_of("stage_of_the_next_tile"), "another copy fills this location; the data of tile[0]["));
  CHECK(says(report_of("one_warp_counted"), "completed after 1 arrival, of warp"));
  CHECK(says(report_of("too_many_bytes"), "128 of the 1152 transaction bytes"));
  CHECK(says(report_of("named_too_few_come"), "barrier 1: 32 of 64 threads have arrived, of warp 0 ("));
  CHECK(says(report_of("named_too_few_come"), "; warp 1 has ended"));
  CHECK(says(report_of("wait_on_the_wrong_barrier"), "this thread has not waited for V_full"));
  CHECK(says(report_of("parity_of_the_phase_before"), "the phase before the first (parity 1)"));
  CHECK(says(report_of("product_waits_for_too_few"), "wgmma_wait_group<0>"));
  CHECK(says(report_of("product_not_committed"), "no wgmma_commit_group has committed it"));
  CHECK(says(report_of("product_wrong_swizzle"), "TMA used the 128-byte swizzle"));
  CHECK(says(report_of("registers_never_given_back"), "0 registers are free"));
  CHECK(says(report_of("line_odd_size"), "a bulk copy of 120 bytes; the size must be a multiple of 16"));
  CHECK(says(report_of("line_odd_source"), "numbers (global)"));
  CHECK(says(report_of("line_past_the_tensor"), "64 bytes past the end of numbers"));
  CHECK(says(report_of("line_into_the_next_member"), "272 bytes, starts in numbers and ends in guard"));
  CHECK(says(report_of("line_swapped"), "pass the destination first"));
  CHECK(says(report_of("line_not_waited_for"), "mbarrier_wait_parity(full[0], 0)"));
  CHECK(says(report_of("sum_read_too_early"),
             "cp_async_bulk_wait_group_read only waits until shared memory has been read"));
  CHECK(says(report_of("sum_buffer_released_before_the_wait"), "until the thread that issued the store has waited"));
  CHECK(says(report_of("line_not_expected"), "completes while 128 unexpected bytes are still in flight"));
  CHECK(says(report_of("sum_read_too_early"), "call cp_async_bulk_wait_group<0>()"));
  CHECK(says(report_of("sum_released_early"), "after a __threadfence()"));
  CHECK(says(report_of("own_wrong_stride"), "512 bytes apart"));
  CHECK(says(report_of("own_wrong_leading"), "sections of 64 columns start 128 bytes apart"));
}

TEST_CASE("a warp-specialised attention kernel is right against the oracle, ragged, causal or not, in several orders") {
  const KeepOptions keep;
  const auto [Nq, Nk, d, causal] = GENERATE(table<int, int, int, bool>(
      {{100, 100, 64, false}, {200, 330, 64, true}, {33, 500, 128, false}, {300, 250, 128, true}, {1, 1, 64, false}}));
  const zoo::HalfProblem half("normal", {1, 2, 2, Nq, Nk, d}, causal);
  zoo::HostResult first;
  for (int order = 0; order < 4; ++order) {
    simt::options().order = simt::Order(std::min(order, 2));
    simt::options().seed = std::uint64_t(order);
    INFO("Nq " << Nq << ", Nk " << Nk << ", d " << d << ", causal " << causal << ", order " << order);
    const zoo::HostResult result = zoo::warp_specialised(half.call);
    CHECK(simt::last_launch().reports.empty());
    if (order == 0) {
      first = result;
      CHECK(half.wrong(result) == "");
    } else {
      CHECK(result.O == first.O);
      CHECK(result.lse == first.lse);
    }
  }
}

TEST_CASE("each core that runs blocks takes no more addresses than a worker has for it") {
  const KeepOptions keep;
  const auto mapped = [] {
    std::ifstream statm("/proc/self/statm");
    std::uint64_t pages = 0;
    statm >> pages;
    return pages * 4096;
  };
  simt::options().workers = 12;
  const zoo::HalfProblem half("normal", {1, 24, 24, 192, 128, 64});
  const std::uint64_t before = mapped();
  zoo::warp_specialised(half.call);
  CHECK(mapped() - before <= 12 * (std::uint64_t(1) << 28));  // usual_memory (common/worker/worker.cpp)
}

TEST_CASE("a warp-specialised kernel's TMA and tensor core counters match its shape") {
  require_instrumentation();
  const KeepOptions keep;
  const zoo::HalfProblem half("normal", {1, 3, 3, 500, 700, 64});
  zoo::warp_specialised(half.call);
  const simt::Counters& c = simt::last_launch().counters;
  // As Nsight Compute counts them on an H200. Three tiles of 192 queries per head; six of 128 keys.
  constexpr std::uint64_t blocks = 3 * 3, kv_tiles = 6, tile = 128 * 64 * 2;
  CHECK(c.bulk_loads == blocks * (3 + 2 * kv_tiles));
  CHECK(c.bulk_stores == blocks * 3);
  CHECK(c.bulk_requests == c.bulk_loads + 2 * c.bulk_stores);
  CHECK(c.global.bulk_load_bytes == blocks * (192 * 64 * 2 + 2 * kv_tiles * tile));
  CHECK(c.global.bulk_store_bytes == 3 * 500 * 64 * 2);
  CHECK(c.wgmma_instructions == blocks * 3 * kv_tiles * (4 + 8) * 4);
  CHECK(c.wgmma_operations == blocks * 3 * kv_tiles * 2 * (64ull * 128 * 64 + 64ull * 64 * 128));
  CHECK(c.wgmma_wavefronts == blocks * 3 * kv_tiles * (4 * (64 + 128) + 8 * 64) / 4);
  CHECK(c.wgmma_partial_waits ==
        blocks * 3 * 4 * (kv_tiles - 1));             // for S, overlapped with O += P V of the previous tile
  CHECK(c.wgmma_after_window == blocks * 3 * 8 * 4);  // the last O += P V of each consumer
  CHECK(c.wgmma_waits_in_window == 0);
  CHECK(c.shuffles_before_arrival == 0);
  CHECK(c.shared.store_instructions == blocks * 3 * 4 * 16);
  CHECK(c.shared.store_wavefronts == c.shared.store_instructions);
}

TEST_CASE("TMA additions are counted in bytes and in sectors") {
  require_instrumentation();
  const KeepOptions keep;
  zoo::added_by_blocks(false);
  const simt::Launch& launch = simt::last_launch();
  constexpr std::uint64_t additions = 24 * 3 * 2, bytes = 512;  // blocks, tiles, halves of a tile
  CHECK(launch.counters.bulk_reductions == additions);
  CHECK(launch.counters.bulk_stores == 0);
  CHECK(launch.counters.bulk_requests == 2 * additions);
  const simt::GlobalCounters& sum = launch.tensor("sum")->counters;
  CHECK(sum.bulk_reduce_bytes == additions * bytes);
  CHECK(sum.bulk_reduce_sectors == additions * bytes / 32);
  CHECK(sum.bulk_store_bytes == 0);
  CHECK(sum.unique_written_sectors == 3 * 2 * bytes / 32);
  CHECK(sum.written_bytes() == additions * bytes);
}

TEST_CASE("the order of TMA additions depends only on the seed; a semaphore fixes it") {
  const KeepOptions keep;
  simt::options().order = simt::Order::shuffled;
  const auto sums = [](std::uint64_t seed, int workers, bool deterministic) {
    simt::options().seed = seed;
    simt::options().workers = workers;
    return zoo::added_by_blocks(deterministic);
  };
  const std::vector<float> first = sums(1, 1, false), ordered = sums(1, 1, true);
  int different = 0;
  for (std::uint64_t seed = 1; seed < 6; ++seed) {
    const std::vector<float> one = sums(seed, 1, false);
    CHECK(one == sums(seed, 2, false));
    different += one != first;
    for (std::size_t i = 0; i < one.size(); ++i) CHECK(std::abs(one[i] - first[i]) <= 3e-6f * first[i]);
    CHECK(sums(seed, 2, true) == ordered);
  }
  CHECK(different == 4);
}

TEST_CASE("11 of 13 mistakes in the warp-specialised kernel are reported, one changes results, one is harmless") {
  require_instrumentation();
  const KeepOptions keep;
  const zoo::HalfProblem half("normal", {1, 1, 1, 192, 500, 128});
  const auto named = [](zoo::Planted planted) -> std::vector<Mistake> {
    using enum zoo::Planted;
    switch (planted) {
      case no_proxy_fence:
        return {Mistake::missing_proxy_fence};
      case no_wgmma_fence:
        return {Mistake::wgmma_order};
      case no_wait_for_S:
      case no_wait_for_O:
        return {Mistake::pending_registers};
      case tiles_at_512:
      case section_forgotten:
        return {Mistake::descriptor};
      case no_barrier_before_store:
        return {Mistake::read_after_write, Mistake::write_after_read};
      case no_wait_for_store:
        return {Mistake::unfinished_store};
      case no_init_fence:
        return {Mistake::barrier_misuse};
      case wrong_parity_hangs:
        return {Mistake::wrong_phase, Mistake::unfinished_copy, Mistake::deadlock};
      case one_stage_hangs:
        return {Mistake::deadlock};
      default:
        return {};
    }
  };
  for (int i = 1; i < zoo::kPlanted; ++i) {
    const auto planted = zoo::Planted(i);
    INFO(zoo::name(planted));
    simt::clear_launches();
    if (planted == zoo::Planted::O_not_swizzled) {
      // The simulator does not model where O's elements must be before TMA stores them: only the result is wrong.
      const zoo::HostResult result = zoo::warp_specialised(half.call, planted);
      CHECK(half.wrong(result) != "");
      continue;
    }
    if (planted == zoo::Planted::K_released_early) {
      // Not a race in this kernel, because of the producer's order. It loads the next K tile after it has waited for
      // the release of the previous V tile. That release follows the wait for O, which follows the wgmma that reads K.
      CHECK(half.wrong(zoo::warp_specialised(half.call, planted)) == "");
      CHECK(simt::last_launch().reports.empty());
      continue;
    }
    CHECK_THROWS(zoo::warp_specialised(half.call, planted));
    const std::vector<simt::Report>& reports = simt::last_launch().reports;
    INFO(simt::text(reports));
    const std::vector<Mistake> wanted = named(planted);
    CHECK(std::any_of(reports.begin(), reports.end(), [&](const simt::Report& r) {
      return std::find(wanted.begin(), wanted.end(), r.mistake) != wanted.end();
    }));
  }
}

TEST_CASE("a barrier merges the knowledge of all arriving threads, even if its memory is reused") {
  simt::Gathering gathering;
  constexpr unsigned count = 100;
  for (unsigned i = 0; i < count; ++i) {
    const auto knows = std::make_shared<simt::Knowledge>();  // the next one is likely to reuse its memory
    knows->known[simt::Agent(1 + i)] = i + 1;
    gathering.add(knows, 0, 1, 0);
  }
  const simt::KnowledgePointer all = gathering.take();
  for (unsigned i = 0; i < count; ++i) CHECK(all->known[1 + i] == i + 1);
}

TEST_CASE("every kind of mistake has a unique name that identifies it") {
  for (int i = 0; i <= int(simt::kLastMistake); ++i) {
    CHECK(simt::mistake_named(simt::name(Mistake(i))) == Mistake(i));
  }
}

TEST_CASE("a trace of a warp-specialised kernel has TMA's bytes by line, and the warps waiting at each mbarrier") {
  require_instrumentation();
  const KeepOptions keep;
  simt::options().trace = true;
  const zoo::HalfProblem half("normal", {1, 1, 1, 150, 300, 64});  // one block
  zoo::warp_specialised(half.call);
  const simt::Launch& launch = simt::last_launch();
  simt::GlobalCounters by_line;
  for (const simt::TracedLine& line : launch.lines) by_line += line.counters.global;
  CHECK(launch.counters.global.bulk_load_bytes > 0);
  CHECK(by_line == launch.counters.global);
  const auto waits = [&](const char* words) {
    return std::ranges::count_if(launch.waits, [&](const simt::Wait& wait) {
      return wait.source.line > 0 && wait.begin < wait.end && wait.what.find(words) != std::string::npos;
    });
  };
  CHECK(waits("parity") > 0);
  CHECK(waits("__syncthreads") > 0);
  // All boxes that TMA was asked to load are complete, including boxes that extend past the end.
  for (const auto& [name, tensor] : launch.intervals.back().tensors) {
    INFO(name);
    CHECK(tensor.arrived_bytes == tensor.counters.bulk_load_bytes);
  }
  // The arrival of a tile ends an interval, as the block's barriers do.
  CHECK(launch.intervals.size() > launch.counters.block_barriers + 1);
  // Each load is in flight for some time and signals its mbarrier; its stage is not filled again meanwhile.
  CHECK(launch.flights.size() == launch.counters.bulk_loads);
  std::map<std::string, std::uint32_t> free_from;
  for (const simt::Flight& flight : launch.flights) {
    INFO(flight.what << " to " << flight.barrier);
    CHECK(flight.begin <= flight.end);
    CHECK(flight.interval <= flight.last_interval);
    CHECK(flight.barrier.find("_full") != std::string::npos);
    if (!flight.what.starts_with("Q")) {
      CHECK(free_from[flight.barrier] <= flight.begin);
      free_from[flight.barrier] = flight.end;
    }
  }
}
