// Counters against independent figures: from Nsight Compute on an H200 where marked "GPU", otherwise derived by hand.
// The counters depend neither on the number of threads nor on the order of lanes and warps.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "common/simt/simulator.hpp"
#include "tests/simt/cases.hpp"
#include "tests/simt/two_tensors.hpp"

namespace {

simt::Launch run(const char* name) {
  simt::clear_launches();
  for (const auto& cases : {zoo::counted_cases(), zoo::instruction_cases(), zoo::right_cases()}) {
    for (const zoo::Case& c : cases) {
      if (std::strcmp(c.name, name) == 0) c.run();
    }
  }
  REQUIRE(simt::launches().size() == 1);
  return simt::last_launch();
}

/// Requests and sectors of loads and stores.
void check_global(const char* name, std::uint64_t load_requests, std::uint64_t load_sectors,
                  std::uint64_t store_requests, std::uint64_t store_sectors) {
  INFO(name);
  const simt::Launch launch = run(name);
  CHECK(launch.counters.global.load_requests == load_requests);
  CHECK(launch.counters.global.load_sectors == load_sectors);
  CHECK(launch.counters.global.store_requests == store_requests);
  CHECK(launch.counters.global.store_sectors == store_sectors);
}

}  // namespace

#define NEEDS_INSTRUMENTATION \
  if (!simt::instrumented()) SKIP("kernel files are compiled without the instrumentation")

TEST_CASE("global requests and sectors") {
  NEEDS_INSTRUMENTATION;
  // 1024 float4: 32 warps, 512 bytes each.
  check_global("copy float4", 32, 512, 32, 512);
  check_global("copy by memcpy", 32, 512, 32, 512);
  check_global("zeros by memset", 0, 0, 32, 512);
  check_global("sum float4", 32, 512, 32, 128);
  // 4096 floats, or the part of 16384 that a stride reaches: a warp's 32 floats are in 4, 8, 32 and 32 sectors.
  check_global("stride 1", 128, 512, 128, 512);
  check_global("stride 2", 128, 1024, 128, 512);
  check_global("stride 8", 64, 2048, 64, 256);
  check_global("stride 32", 16, 512, 16, 64);
  check_global("read-modify-write", 2, 8, 2, 8);
  check_global("dynamic shared", 4, 16, 4, 16);
  check_global("transpose 32", 512, 2048, 512, 2048);
  check_global("naive GEMM 64", 16384, 40960, 128, 512);         // GPU
  check_global("attention 256", 1152, 18432, 1024, 4096);        // GPU
  check_global("attention 256 causal", 768, 12288, 1024, 4096);  // GPU
}

TEST_CASE("bank conflicts of a transpose") {
  NEEDS_INSTRUMENTATION;
  const simt::SharedCounters conflicts = run("transpose 32").counters.shared,
                             none = run("transpose 33").counters.shared;
  CHECK(conflicts.load_wavefronts == 16384);  // GPU: a column of 32 words is in one bank
  CHECK(none.load_wavefronts == 512);         // GPU
  CHECK(conflicts.load_ideal == 512);
  CHECK(conflicts.load_instructions == 512);
  CHECK(conflicts.store_wavefronts == 512);
}

TEST_CASE("attention's shared memory and tensor instructions") {
  NEEDS_INSTRUMENTATION;
  const simt::Counters c = run("attention 256").counters;
  CHECK(c.shared.matrix_loads == 8192);  // GPU
  CHECK(c.tensor_instructions == 8192);  // GPU
  CHECK(c.multiply_calls == 4096);
  CHECK(c.shared.load_instructions == 16384);   // GPU
  CHECK(c.shared.store_instructions == 18656);  // GPU
  // 4 for each of 8192 LDSM and of 2048 accumulator loads, 1 for each of 14336 others. GPU: 55298 to 55316.
  CHECK(c.shared.load_wavefronts == 55296);
  // 4 for each of 4096 accumulator stores and of 1152 16-byte stores, 1 for each of 13408 others.
  CHECK(c.shared.store_wavefronts == 34400);  // GPU
  CHECK(c.block_barriers == 8 * 2 * 4);       // blocks, two for each of four K/V tiles
  CHECK(c.shuffles == 8 * 4 * 4 * 16 * 10);   // blocks, warps, tiles, rows, ten per row
}

TEST_CASE("cp.async, zero fill and all") {
  NEEDS_INSTRUMENTATION;
  // Two warps, four tiles of 256 floats; no ordinary loads.
  const simt::Counters stages = run("async two stages").counters;
  CHECK(stages.async_instructions == 8);
  CHECK(stages.global.async_requests == 8);
  CHECK(stages.global.async_sectors == 128);
  CHECK(stages.global.async_bytes == 4096);
  CHECK(stages.global.load_requests == 0);
  CHECK(stages.shared.store_instructions == 0);
  // 50 floats of 128: 13 lanes read, one of them half of its bytes; the other lanes fill with zeros.
  const simt::Counters filled = run("async zero fill").counters;
  CHECK(filled.async_instructions == 1);
  CHECK(filled.global.async_requests == 1);
  CHECK(filled.global.async_bytes == 200);
  CHECK(filled.global.async_sectors == 7);
}

TEST_CASE("ldmatrix and stmatrix: one instruction each, a wavefront for each 8x8 matrix") {
  NEEDS_INSTRUMENTATION;
  for (const char* trans : {"", " trans"}) {
    for (const std::uint64_t n : {1, 2, 4}) {
      const std::string suffix = " x" + std::to_string(n) + trans;
      INFO(suffix);
      const simt::SharedCounters loads = run(("ldmatrix" + suffix).c_str()).counters.shared;
      CHECK(loads.matrix_loads == 1);
      CHECK(loads.load_instructions == 0);
      CHECK(loads.load_wavefronts == n);
      CHECK(loads.load_ideal == n);
      CHECK(loads.store_instructions == 2 * n);  // the tile, 32 halves at a time
      const simt::SharedCounters stores = run(("stmatrix" + suffix).c_str()).counters.shared;
      CHECK(stores.matrix_loads == 1);
      CHECK(stores.load_instructions == 2 * n);
      CHECK(stores.store_instructions == 2 * n);  // the tile; GPU: STSM does not count
      CHECK(stores.matrix_stores == 1);
      CHECK(stores.store_wavefronts == 2 * n + n);
      CHECK(stores.store_ideal == 2 * n + n);
    }
  }
}

TEST_CASE("bank conflicts among the rows of a matrix") {
  NEEDS_INSTRUMENTATION;
  // Eight rows of four banks each: rows that start 128 bytes apart share their banks.
  for (const auto& [bytes, each] : {std::pair(16, 1), {32, 2}, {48, 1}, {64, 4}, {128, 8}, {144, 1}}) {
    INFO(bytes << " bytes apart");
    const simt::SharedCounters c =
        run(("matrix rows " + std::to_string(bytes) + " bytes apart").c_str()).counters.shared;
    CHECK(c.load_wavefronts == std::uint64_t(4 * each));
    CHECK(c.load_ideal == 4);
    CHECK(c.store_wavefronts == std::uint64_t(2 * 4 * each));  // the 16-byte stores that fill the rows, and stmatrix
    CHECK(c.store_ideal == 2 * 4);
  }
  const simt::SharedCounters one = run("ldmatrix of one row").counters.shared;
  CHECK(one.load_wavefronts == 4);
}

TEST_CASE("a matmul by mma: instructions, and wavefronts by row layout") {
  NEEDS_INSTRUMENTATION;
  // Two blocks of four warps; K = 256 is 16 steps. In each step a warp loads A once and B four times, all by x4, and
  // executes eight mma.
  constexpr std::uint64_t warps = 2 * 4, steps = 16, loads = warps * steps * 5, products = warps * steps * 8;
  const auto check = [&](const char* name, std::uint64_t wavefronts_of_a_matrix) {
    INFO(name);
    const simt::Counters c = run(name).counters;
    CHECK(c.shared.matrix_loads == loads);
    CHECK(c.shared.load_instructions == 0);
    CHECK(c.shared.store_instructions == 0);
    CHECK(c.shared.load_ideal == 4 * loads);
    CHECK(c.shared.load_wavefronts == 4 * loads * wavefronts_of_a_matrix);
    CHECK(c.tensor_instructions == products);
    CHECK(c.multiply_calls == products);
    // 64x64 elements of A and of B at a time, 16 bytes per lane: four tiles, each by 16 instructions of 16 sectors.
    CHECK(c.async_instructions == 2 * 2 * 4 * 16);
    CHECK(c.global.async_sectors == 2 * 2 * 4 * 16 * 16);
    CHECK(c.global.async_bytes == 2 * 2 * 4 * 64 * 64 * 2);
    CHECK(c.global.load_requests == 0);
    CHECK(c.global.store_requests == warps * 8 * 2);
    CHECK(c.global.store_sectors == 128 * 64 * 4 / 32);
    CHECK(c.block_barriers == 2 * 4);
  };
  check("mma tiles, plain rows", 8);
  check("mma tiles, padded rows", 1);
  check("mma tiles, swizzled rows", 1);
  check("mma tiles, three stages", 1);
  check("mma tiles, three stages, trans", 1);
  check("mma tiles, bf16, trans, plain rows", 8);
  // 36 of the second block's 64 rows exist: 28 are neither read nor written.
  const simt::Counters ragged = run("mma tiles, bf16, 100 rows").counters;
  CHECK(ragged.tensor_instructions == products);
  CHECK(ragged.global.async_bytes == (100 + 2 * 64) * 256 * 2);
  CHECK(ragged.async_instructions == 2 * 2 * 4 * 16);
  CHECK(ragged.global.async_requests == 2 * 2 * 4 * 16 - 4 * 7);
  CHECK(ragged.global.store_sectors == 100 * 64 * 4 / 32);
}

TEST_CASE("one tensor instruction for each mma") {
  NEEDS_INSTRUMENTATION;
  for (const char* name : {"mma m16n8k16 half", "mma m16n8k16 bf16", "mma m16n8k8 tf32"}) {
    INFO(name);
    CHECK(run(name).counters.tensor_instructions == 1);
  }
  CHECK(run("mma of mma, half").counters.tensor_instructions == 3);
  CHECK(run("mma of mma, half").counters.shared.matrix_loads == 3);
}

TEST_CASE("warp functions are counted") {
  NEEDS_INSTRUMENTATION;
  CHECK(run("votes").counters.votes == 3);
  CHECK(run("groups of four").counters.shuffles == 2 * 2);
  CHECK(run("warp-synchronous reduction").counters.warp_barriers == 1 + 5 * 2);
  CHECK(run("pairs of warps exchange").counters.named_barriers == 2 * 3 * 2);
  CHECK(run("pairs of warps exchange").counters.block_barriers == 0);
  CHECK(run("tree reduction").counters.block_barriers == 7 + 1);
  const simt::Counters histogram = run("histogram in global memory").counters;
  CHECK(histogram.global.atomic_requests == 8);
  CHECK(histogram.global.atomic_sectors == 32);  // GPU: each of the eight bins, in one sector, four times per warp
  CHECK(run("histogram in shared memory").counters.shared.atomic_instructions == 2);
}

TEST_CASE("wavefronts and sectors by the pattern of addresses") {
  NEEDS_INSTRUMENTATION;
  struct Pattern {
    const char* name;
    int (*element)(int lane);  ///< negative: the lane is inactive
    std::uint64_t reads_8, reads_16, writes_8, writes_16, additions;
  };
  // All figures are an H200's: wavefronts of LDS.64, LDS.128, STS.64 and STS.128, and sectors of RED on 4 bytes.
  const Pattern patterns[] = {
      {"all the same", [](int) { return 0; }, 1, 2, 2, 4, 32},
      {"each its own", [](int i) { return i; }, 2, 4, 2, 4, 4},
      {"pairs", [](int i) { return i / 2; }, 1, 2, 2, 4, 4},
      {"groups of 4", [](int i) { return i / 4; }, 1, 2, 2, 4, 4},
      {"groups of 8", [](int i) { return i / 8; }, 1, 2, 2, 4, 8},
      {"halves", [](int i) { return i / 16; }, 1, 2, 2, 4, 16},
      {"i % 2", [](int i) { return i % 2; }, 1, 2, 2, 4, 16},
      {"i % 4", [](int i) { return i % 4; }, 2, 4, 2, 4, 8},
      {"i % 8", [](int i) { return i % 8; }, 2, 4, 2, 4, 4},
      {"as lane ^ 2", [](int i) { return (i & 1) | i >> 2 << 1; }, 1, 2, 2, 4, 4},
      {"as lane ^ 4", [](int i) { return (i & 3) | i >> 3 << 2; }, 2, 4, 2, 4, 4},
      {"pairs in one half", [](int i) { return i < 16 ? i / 2 : i; }, 2, 4, 2, 4, 4},
      {"pairs in one quarter", [](int i) { return i < 8 ? i / 2 : i; }, 2, 4, 2, 4, 5},
      {"pairs, then as lane ^ 2", [](int i) { return i < 16 ? i / 2 : 16 + ((i & 1) | i >> 2 << 1); }, 2, 4, 2, 4, 4},
      {"eight apart", [](int i) { return 8 * i; }, 16, 32, 16, 32, 32},
      {"pairs eight apart", [](int i) { return i / 2 * 8; }, 8, 16, 8, 16, 32},
      {"two apart", [](int i) { return 2 * i; }, 4, 8, 4, 8, 8},
      {"pairs 17 apart", [](int i) { return i / 2 * 17; }, 1, 2, 2, 4, 32},
      {"groups of 4, eight apart", [](int i) { return i / 4 * 8; }, 4, 8, 4, 8, 32},
      {"lanes 0 to 15", [](int i) { return i < 16 ? i : -1; }, 1, 2, 1, 2, 2},
      {"lane 0", [](int i) { return i == 0 ? 0 : -1; }, 1, 1, 1, 1, 1},
      {"every other lane", [](int i) { return i % 2 == 0 ? i : -1; }, 2, 4, 2, 4, 4},
      {"every other lane, close", [](int i) { return i % 2 == 0 ? i / 2 : -1; }, 1, 2, 2, 4, 2},
      {"lanes 0 and 31", [](int i) { return i == 0 || i == 31 ? i : -1; }, 1, 2, 2, 2, 2},
      {"lanes 0 and 8", [](int i) { return i == 0 || i == 8 ? i : -1; }, 1, 2, 1, 2, 2},
      {"lanes 0 to 15 the same", [](int i) { return i < 16 ? 0 : -1; }, 1, 1, 1, 2, 16},
      {"pairs but one lane", [](int i) { return i == 31 ? 31 : i / 2; }, 3, 5, 3, 5, 5},
      {"i % 8 * 9", [](int i) { return i % 8 * 9; }, 2, 4, 2, 4, 32},
  };
  simt::options().throw_on_mistakes = false;  // several lanes write the same element
  for (const Pattern& pattern : patterns) {
    INFO(pattern.name);
    std::vector<int> elements(32);
    for (int lane = 0; lane < 32; ++lane) elements[std::size_t(lane)] = pattern.element(lane);
    const auto counters = [](auto kernel, auto... arguments) {
      kernel(arguments...);
      return simt::last_launch().counters;
    };
    const std::span<const int> span(elements);
    CHECK(counters(zoo::read_by_pattern, 8, span).shared.load_wavefronts == pattern.reads_8);
    CHECK(counters(zoo::read_by_pattern, 16, span).shared.load_wavefronts == pattern.reads_16);
    CHECK(counters(zoo::write_by_pattern, 8, span).shared.store_wavefronts == pattern.writes_8);
    CHECK(counters(zoo::write_by_pattern, 16, span).shared.store_wavefronts == pattern.writes_16);
    CHECK(counters(zoo::add_by_pattern, span).global.atomic_sectors == pattern.additions);
  }
  simt::options() = simt::Options();
}

TEST_CASE("an instruction whose lanes access two tensors is counted for each tensor") {
  NEEDS_INSTRUMENTATION;
  simt::clear_launches();
  zoo::run_two_tensors();
  const simt::Launch& launch = simt::last_launch();
  REQUIRE(launch.tensor("a") != nullptr);
  REQUIRE(launch.tensor("b") != nullptr);
  CHECK(launch.tensor("a")->counters.load_bytes == 8 * 4);
  CHECK(launch.tensor("b")->counters.load_bytes == 24 * 4);
  CHECK(launch.tensor("a")->counters.load_sectors == 1);
  CHECK(launch.tensor("b")->counters.load_sectors == 3);
}

TEST_CASE("traffic by tensor and by tile") {
  NEEDS_INSTRUMENTATION;
  constexpr std::uint64_t kTensor = 2 * 256 * 64 * 2, kTile = 64 * 64 * 2;  // bytes
  const simt::Launch full = run("attention 256");
  REQUIRE(full.tensor("Q") != nullptr);
  CHECK(full.tensor("Q")->counters.load_bytes == kTensor);      // once
  CHECK(full.tensor("K")->counters.load_bytes == 4 * kTensor);  // once for each of four Q tiles
  CHECK(full.tensor("V")->counters.load_bytes == 4 * kTensor);
  CHECK(full.tensor("O")->counters.store_bytes == 2 * kTensor);  // floats, once
  CHECK(full.tensor("K")->counters.unique_read_sectors == kTensor / 32);
  CHECK(full.tensor("O")->counters.unique_written_sectors == 2 * kTensor / 32);
  CHECK(full.tensor("K")->tile_bytes == std::vector<std::uint64_t>(8, 4 * kTile));

  const simt::Launch causal = run("attention 256 causal");
  const simt::TensorTraffic& K = *causal.tensor("K");
  // Tile j of a head is read by Q tile j and all later ones.
  CHECK(K.tile_bytes ==
        std::vector<std::uint64_t>{4 * kTile, 3 * kTile, 2 * kTile, kTile, 4 * kTile, 3 * kTile, 2 * kTile, kTile});
  REQUIRE(K.tiles_of_block.size() == 8);
  CHECK(K.tiles_of_block.at(0) == std::vector<std::uint32_t>{0});
  CHECK(K.tiles_of_block.at(3) == std::vector<std::uint32_t>{0, 1, 2, 3});
  CHECK(K.tiles_of_block.at(5) == std::vector<std::uint32_t>{4, 5});  // Q tile 1 of the second head
}

TEST_CASE("counters do not depend on threads or order") {
  NEEDS_INSTRUMENTATION;
  std::vector<zoo::Case> cases(zoo::counted_cases().begin(), zoo::counted_cases().end());
  cases.insert(cases.end(), zoo::instruction_cases().begin(), zoo::instruction_cases().end());
  for (const zoo::Case& c : cases) {
    INFO(c.name);
    const simt::Launch first = run(c.name);
    for (const int workers : {1, 2, 3}) {
      for (const simt::Order order : {simt::Order::natural, simt::Order::reversed, simt::Order::shuffled}) {
        for (const std::uint64_t seed : {1, 2}) {
          simt::options().workers = workers;
          simt::options().order = order;
          simt::options().seed = seed;
          const simt::Launch again = run(c.name);
          CHECK(again.counters == first.counters);
          REQUIRE(again.tensors.size() == first.tensors.size());
          for (std::size_t i = 0; i < first.tensors.size(); ++i) {
            CHECK(again.tensors[i].counters == first.tensors[i].counters);
            CHECK(again.tensors[i].tile_bytes == first.tensors[i].tile_bytes);
            CHECK(again.tensors[i].tiles_of_block == first.tensors[i].tiles_of_block);
          }
        }
      }
    }
  }
  simt::options() = simt::Options();
}
