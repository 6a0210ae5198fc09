// Chapter 11: the warp-specialised kernel, phase by phase and whole.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "common/attention/element.hpp"
#include "tests/support/forward_properties.hpp"
#include "tests/support/matmul.hpp"
#include "tests/support/warp_specialised.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

/// Built for both d.
const Tiles small{128, 64, 12};
/// The chapter's tiles for d, with a version of the kernel (wgmma.hpp).
Tiles chapter_tiles(std::int64_t d, int step = 6) {
  return usual_tiles(d, step == 6 ? Numbers{} : Numbers{{"step", double(step)}});
}

// ---- 11.1 ----

struct Coordinates {
  std::int64_t row, column;
  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};
Coordinates coordinates_in_D(int thread, int e) {
  return {thread / 32 * 16 + thread % 32 / 4 + e / 2 % 2 * 8, e / 4 * 8 + thread % 4 * 2 + e % 2};
}

void expect_accumulator_layout() {
  worker::Call request("accumulator_layout");
  request.output<std::int32_t>("rows", 128 * 32).output<std::int32_t>("columns", 128 * 32);
  const worker::Reply reply = call(request);
  const auto rows = reply.output<std::int32_t>("rows"), columns = reply.output<std::int32_t>("columns");
  const auto got = [&](int thread, int e) {
    const auto i = std::size_t(32 * thread + e);
    return Coordinates{rows[i], columns[i]};
  };
  const auto all = [&](const auto& layout) {
    for (int thread = 0; thread < 128; ++thread)
      for (int e = 0; e < 32; ++e)
        if (got(thread, e) != layout(thread, e)) return false;
    return true;
  };
  if (all(coordinates_in_D)) return expect(true, "");
  const bool one_warp = all([](int thread, int e) { return coordinates_in_D(thread % 32, e); });
  const bool order = all([](int thread, int e) {
    return Coordinates{thread / 32 * 16 + thread % 32 / 4 + e % 2 * 8, e / 4 * 8 + thread % 4 * 2 + e / 2 % 2};
  });
  const bool transposed = all([](int thread, int e) {
    const Coordinates right = coordinates_in_D(thread, e);
    return Coordinates{right.column, right.row};
  });
  int thread = 0, e = 0;
  while (got(thread, e) == coordinates_in_D(thread, e))
    if (++e == 32) ++thread, e = 0;
  const Coordinates is = got(thread, e), wanted = coordinates_in_D(thread, e);
  expect(false,
         fmt::format("the position of element {} of D in thread {} is row {}, column {}, expected row {}, column {}", e,
                     thread, is.row, is.column, wanted.row, wanted.column),
         one_warp ? "your code assigns rows 0 to 15 to every warp; the rows of warp w must begin at 16w"
         : order  ? "your code puts a lane's elements 0 and 1 in different rows; they must be adjacent columns of a "
                    "row, and elements 2 and 3 the same columns 8 rows below"
         : transposed ? "your code exchanges row and column; a quad must hold a row of D"
                      : "",
         one_warp     ? "places-one-warp"
         : order      ? "places-order"
         : transposed ? "places-transposed"
                      : "unknown");
}

/// One of the warm-up's matmuls: A Bᵀ, or A B if `MN_major`.
void expect_matmul(bool MN_major, std::int64_t d) {
  const Tensor<float> A = half_tensor({1, 1, 64, MN_major ? 64 : d}, 1), B = half_tensor({1, 1, 64, d}, 2);
  Matmul{MN_major ? "multiply_MN_major" : "multiply_K_major", !MN_major, A, B, {{"d", double(d)}}}.expect_right(
      fmt::format("C = A {}, normal A and B, d={}", MN_major ? "B" : "Bᵀ", d));
}

/// More Q tiles than persistent thread blocks. With three K/V tiles, consecutive Q tiles start at different stages.
void expect_many_tiles_of_queries() {
  for (const int lane_seed : {0, 1, 2})
    expect_right(input("normal", {140, 1, 1, 20, 150, 64}, 16, lane_seed == 1), small, {}, lane_seed);
}

}  // namespace

// ---- 11.1 operands ----

TEST_CASE("each thread's elements of D match the PTX layout", "[11.1]") {
  expect_accumulator_layout();
}

TEST_CASE("a warpgroup multiplies K-major operands", "[11.1]") {
  for (const std::int64_t d : head_dims()) expect_matmul(false, d);
}

TEST_CASE("a warpgroup multiplies an MN-major operand", "[11.1]") {
  for (const std::int64_t d : head_dims()) expect_matmul(true, d);
}

// ---- 11.2 the barriers and the producer ----

TEST_CASE("every tile of Q, K and V arrives", "[11.2]") {
  for (const std::int64_t d : head_dims()) expect_right(input("normal", {1, 2, 2, 140, 200, d}, 10), small);
  expect_right(input("one hot", {1, 1, 1, 70, 300, 64}, 11), chapter_tiles(64));
  expect_right(input("late spike", {1, 1, 1, 70, 200, 64}, 12, true), small);
  expect_every_kind_in_this_part();
}

TEST_CASE("a stage is refilled only after every consumer has released it", "[11.2]") {
  // Five tiles in two stages each. The simulator reports what is overwritten too early, in whatever order.
  for (const int lane_seed : {0, 1, 2}) {
    expect_right(input("normal", {1, 1, 1, 128, 300, 64}, 13), small, {}, lane_seed);
    expect_right(input("normal", {1, 1, 1, 40, 300, 64}, 14), chapter_tiles(64, 1), {}, lane_seed);
  }
}

TEST_CASE("the next Q tile continues in the same rings", "[11.2]") {
  expect_many_tiles_of_queries();
}

TEST_CASE("TMA loads each tile once", "[11.2]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    for (const Tiles& tiles : {small, chapter_tiles(d, 1)}) {
      const std::int64_t kv_tiles = 3, row = d * 2;
      const Problem problem = input("normal", {1, 1, 1, tiles.Br, kv_tiles * tiles.Bc, d}, 15).problem;
      const worker::Reply reply = attention(problem, tiles.numbers()).reply;
      const auto expect_bytes = [&](const char* tensor, std::int64_t rows) {
        expect_count(reply, fmt::format("{}.bulk_load_bytes", tensor), double(rows * row),
                     fmt::format("TMA loads {} once, d={}, {}", tensor, d, tiles.text()),
                     "your code loads a tile more than once or not at all; it must load each tile once", "traffic");
      };
      expect_bytes("Q", tiles.Br);
      expect_bytes("K", kv_tiles * tiles.Bc);
      expect_bytes("V", kv_tiles * tiles.Bc);
      expect_count(
          reply, "bulk_loads", double(consumers(tiles) + 2 * kv_tiles),
          fmt::format("TMA loads: one for each consumer's Q, one for each tile of K and V, d={}, {}", d, tiles.text()),
          "your code loads a tile in parts or more than once; one TMA load must cover a tile", "traffic");
    }
  }
}

// ---- 11.3 start_QK ----

TEST_CASE("all columns of Q and K contribute", "[11.3]") {
  expect_every_column();
}

TEST_CASE("each key has its own score", "[11.3]") {
  expect_right(input("one hot", {1, 1, 1, 64, 192, 64}, 21), small);
  expect_right(input("normal", {1, 1, 1, 70, 133, 128}, 22), chapter_tiles(128));
  expect_every_kind_in_this_part();
}

TEST_CASE("S takes one wgmma for each 16 columns", "[11.3]") {
  require_counters();
  for (const std::int64_t d : head_dims()) expect_wgmma(d, small, 16, "S");
}

// ---- 11.4 P and O += P V ----

TEST_CASE("P is multiplied with the right keys", "[11.4]") {
  // One key of 16 has all the weight: V of another is not near.
  expect_right(input("one hot", {1, 1, 1, 40, 140, 64}, 30), small);
  expect_right(input("late spike", {1, 1, 1, 40, 100, 128}, 31), small);
}

TEST_CASE("every key's value reaches O", "[11.4]") {
  expect_every_value();
  expect_every_kind_in_this_part();
}

TEST_CASE("probabilities keep their precision", "[11.4]") {
  expect_right(input("normal", {1, 1, 1, 64, 512, 64}, 33), small);
  expect_right(input("value mean", {1, 1, 1, 64, 300, 128}, 34), small);
}

TEST_CASE("O takes one wgmma for each 16 keys", "[11.4]") {
  require_counters();
  for (const std::int64_t d : head_dims()) expect_wgmma(d, small, 16, "O");
}

// ---- 11.5 write_output ----

const Claims of_11_5 = {
    {"[11.5]", "the LSE is a natural logarithm over all keys", [] { expect_lse_over_all_keys(); }},
    {"[11.5]", "O is divided by l exactly once", [] { expect_divided_once(); }},
};

TEST_CASE("fully masked rows give O = 0 and LSE = -inf, never NaN", "[11.5]") {
  expect_rows_without_keys();
  expect_every_kind_in_this_part();
}

TEST_CASE("every element of O is written once, and nothing else", "[11.5]") {
  for (const auto& [Nq, Nk] : {std::pair{1, 3}, {63, 65}, {129, 64}}) {
    expect_right(input("value mean", {1, 2, 2, Nq, Nk, 64}, 43), small);
    expect_right(input("normal", {1, 1, 1, Nq, Nk, 128}, 44), small);
  }
}

TEST_CASE("O is stored by TMA", "[11.5]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    const worker::Reply reply = attention(input("normal", {1, 1, 1, 100, 64, d}, 45).problem, small.numbers()).reply;
    expect_count(reply, "O.bulk_store_bytes", double(100 * d * 2),
                 fmt::format("TMA writes the 100 rows that exist, d={}", d),
                 "your code writes O more than once, or not completely; TMA must write each element once", "traffic");
    expect_count(reply, "O.store_bytes", 0, fmt::format("no ordinary stores to O, d={}", d),
                 "your code writes O more than once, or not completely; TMA must write each element once", "traffic");
    expect_count(reply, "bulk_stores", 2, fmt::format("one TMA store per consumer, d={}", d),
                 "your code stores O in parts or more than once; each consumer must issue one TMA store", "traffic");
    expect_count(reply, "block_barriers", 1,
                 fmt::format("all threads of the block synchronise once, after the mbarriers are initialised, d={}", d),
                 "your code synchronises all threads of the thread block; only the 128 threads of a consumer must "
                 "synchronise, at their named barrier",
                 "barriers");
    expect_count(reply, "shared.store_wavefronts", counter(reply, "shared.store_ideal"),
                 fmt::format("wavefronts of the stores to shared memory without bank conflicts, d={}", d),
                 "your code stores the same columns of eight rows in the same banks; it must swizzle O as TMA does",
                 "swizzle-conflicts");
  }
}

// ---- 11.6 in order ----

TEST_CASE("in order, it agrees with the oracle", "[11.6]") {
  for (const int step : {1, 2}) {
    for (const std::int64_t d : head_dims()) {
      expect_right(input("rising maximum", {1, 1, 1, 70, 300, d}, 50), chapter_tiles(d, step));
      expect_right(input("normal", {1, 1, 1, 200, 100, d}, 51, true), chapter_tiles(d, step));
    }
    expect_every_kind_in_this_part({{"step", double(step)}});
  }
}

TEST_CASE("in order, no buffer is accessed too early", "[11.6]") {
  // The simulator reports registers and tiles that are touched too early, whatever the numbers are.
  for (const int lane_seed : {0, 1, 2})
    expect_right(input("normal", {1, 1, 1, 40, 300, 64}, 52), chapter_tiles(64, 1 + lane_seed % 2), {}, lane_seed);
}

TEST_CASE("in order, each tile is waited for once", "[11.6]") {
  require_counters();
  for (const int step : {1, 2}) expect_waits(chapter_tiles(64, step), 64);
}

// ---- 11.7 overlapped ----

TEST_CASE("overlapped, it agrees with the oracle", "[11.7]") {
  for (const std::int64_t d : head_dims()) {
    expect_right(input("rising maximum", {1, 1, 1, 70, 300, d}, 60), chapter_tiles(d, 3));
    expect_right(input("normal", {1, 1, 1, 200, 100, d}, 61, true), chapter_tiles(d, 3));
  }
  expect_right(input("normal", {1, 1, 1, 3, 5, 64}, 62), chapter_tiles(64, 3));
  expect_every_kind_in_this_part({{"step", 3}});
}

TEST_CASE("overlapped, no buffer is accessed too early", "[11.7]") {
  for (const int lane_seed : {0, 1, 2})
    expect_right(input("normal", {1, 1, 1, 40, 300, 64}, 63), chapter_tiles(64, 3), {}, lane_seed);
}

TEST_CASE("overlapped, each tile is waited for once", "[11.7]") {
  require_counters();
  for (const std::int64_t d : head_dims()) expect_waits(chapter_tiles(d, 3), d);
}

TEST_CASE("overlapped, both matmuls of a tile are in one issue window", "[11.7]") {
  require_counters();
  expect_ping_pong(chapter_tiles(64, 4), 64, 16);
  expect_ping_pong(small, 64, 16, 2);
}

TEST_CASE("overlapped, each softmax but the first overlaps with a matmul", "[11.7]") {
  require_counters();
  expect_partial_waits(chapter_tiles(64, 3), 64);
}

TEST_CASE("overlapped, one Q tile follows another", "[11.7]") {
  expect_many_tiles_of_queries();
}

TEST_CASE("O is rescaled by the factor of its own tile", "[11.7]") {
  // Scores that rise from tile to tile by different amounts: each factor is another one.
  for (const Tiles& tiles : {chapter_tiles(64, 3), small}) {
    Input steps = input("uniform", {1, 1, 1, 64, 5 * tiles.Bc, 64}, 64);
    add_to_scores(
        steps, [](std::int64_t) { return 1; },
        [=](std::int64_t j) {
          constexpr int heights[] = {30, 21, 14, 7, 0};  // the last tile comes first
          return heights[j / tiles.Bc];
        });
    steps.name += ", scores rise by 7 to 9 from tile to tile";
    expect_right(steps, tiles);
  }
}

// ---- 11.8 ping-pong ----

TEST_CASE("with ping-pong, it agrees with the oracle", "[11.8]") {
  for (const int lane_seed : {0, 1, 2}) {
    expect_right(input("rising maximum", {1, 1, 1, 140, 300, 64}, 70), chapter_tiles(64, 4), {}, lane_seed);
    expect_right(input("rising maximum", {1, 1, 1, 70, 150, 128}, 71), small, {}, lane_seed);
  }
  expect_every_kind_in_this_part();
}

TEST_CASE("each consumer has one issue window per tile", "[11.8]") {
  require_counters();
  expect_ping_pong(chapter_tiles(64, 4), 64, 16);
  expect_ping_pong(small, 64, 16, 2);
}

// ---- The whole chapter ----

TEST_CASE("wgmma agrees with the oracle", "[whole]") {
  expect_every_kind();
  for (const bool causal : {false, true})
    for (const std::int64_t d : head_dims()) expect_right(input("normal", {2, 3, 3, 200, 150, d}, 140, causal));
  expect_any_scale();
}

const Claims of_the_whole = {
    {"[whole]", "bf16 agrees with the oracle", [] { expect_element(bfloat16); }},
    {"[whole]", "any two lengths agree with the oracle", [] { expect_any_two_lengths(); }},
};

TEST_CASE("every version gives the same answer", "[whole]") {
  for (const std::int64_t d : head_dims())
    for (const int step : {1, 2, 3, 4, 5, 6}) {
      expect_right(input("rising maximum", {1, 1, 1, 129, 200, d}, 150), chapter_tiles(d, step));
      // The first consumer's rows see a third of the block's tiles: it skips the others.
      expect_right(input("normal", {1, 1, 1, 192, 192, d}, 158, true), chapter_tiles(d, step));
    }
}

TEST_CASE("a persistent block processes one Q tile after another", "[whole]") {
  expect_many_tiles_of_queries();
  for (const std::int64_t d : head_dims())
    expect_right(input("rising maximum", {1, 70, 70, 200, 100, d}, 159), chapter_tiles(d));
}

TEST_CASE("a consumer waits for the tiles that it skips", "[whole]") {
  require_counters();
  // The last of two K/V tiles is masked for all rows of the first consumer. An early arrival at V_empty would be an
  // error only in rare execution orders, so waits are counted.
  const Tiles tiles = chapter_tiles(64, 3);
  const Problem problem = input("normal", {1, 1, 1, tiles.Br, tiles.Br, 64}, 161, true).problem;
  const double kv_tiles = double(tiles_of(tiles.Br, tiles.Bc)), threads = 128.0 * double(consumers(tiles));
  expect_count(attention(problem, tiles.numbers()).reply, "mbarrier_waits", threads * (1 + 2 * kv_tiles) + 2 * kv_tiles,
               fmt::format("each thread of a consumer waits for Q once, and for K and V of each of {} tiles; the "
                           "producer for each stage; {}",
                           kv_tiles, tiles.text()),
               "your consumers wait for a skipped K/V tile more or less often than once; they must wait for it once "
               "before they release it",
               "waits");
}

TEST_CASE("the answer does not depend on Br, Bc or the number of warps", "[whole]") {
  expect_tiles_do_not_matter();
}

TEST_CASE("m moves only when a score exceeds it by more than slack", "[whole]") {
  // The scores rise by this much from the first tile that is processed to the second: 5 is about 7 in units of log2.
  const auto attend = [](const Tiles& tiles, float rise) {
    Input rising = input("uniform", {1, 1, 1, 129, 2 * tiles.Bc, 64}, 153);  // each consumer has a row
    add_to_scores(
        rising, [](std::int64_t) { return 1; }, [=](std::int64_t j) { return j < tiles.Bc ? rise : 0; });
    rising.name += fmt::format(", scores {} higher before key {}", rise, tiles.Bc);
    return expect_right(rising, tiles).reply;
  };
  for (const auto& [step, rise, rescaled] : {std::tuple{5, 5, 0}, {5, 7, 1}, {4, 5, 1}}) {
    const Tiles tiles = chapter_tiles(64, step);
    const worker::Reply falling = attend(tiles, -20), rising = attend(tiles, float(rise));
    if (rising.counters.empty()) continue;  // nothing counts on the GPU
    // In the first tile m leaves -inf, and O, which is 0, may be rescaled or not. Scores that fall move no m after
    // that.
    const double expected = counter(falling, "note.rescaled tile") + rescaled,
                 is = counter(rising, "note.rescaled tile");
    expect(is == expected,
           fmt::format(
               "with {} and scores that rise by {} at the second tile, O is rescaled in {} of 2 tiles, expected {}",
               tiles.text(), rise, is, expected),
           is > expected ? m_follows_too_early
                         : "your code keeps m although a score exceeds it by more than `slack`; it must raise m then",
           "slack-ignored");
  }
}

const Claims of_the_whole_2 = {
    {"[whole]", "future positions have zero influence", [] { expect_no_future(); }},
    {"[whole]", "a row's answer depends on no other row of Q", [] { expect_rows_independent(); }},
    {"[whole]", "data past the last key never reaches O", [] { expect_nothing_past_the_end(); }},
    {"[whole]", "results do not depend on workers or lane order", [] { expect_order_changes_nothing(); }},
    {"[whole]", "50 execution orders give one result", [] { expect_repeatable(50, /*in_other_orders=*/true); }},
    {"[whole]", "Q is read once, K and V up to the diagonal; O and the LSE are written once",
     [] { expect_moves({.in = "bulk_load", .out = "bulk_store", .whole_tiles = true, .least_tiles = 1}); }},
};

TEST_CASE("shared memory holds no S and no P", "[whole]") {
  require_counters();
  // Threads store only O there, once: 4 bytes per lane, or 16 x 16 per stmatrix. The producer also stores the index of
  // the Q tile and one past the last; each consumer warp loads both.
  for (const std::int64_t d : head_dims()) {
    for (const Element element : {float16, bfloat16}) {
      const worker::Reply reply =
          attention(input("rising maximum", {1, 1, 1, 128, 192, d}, 160).problem, small.numbers(), element).reply;
      const auto expect_shared = [&](const std::string& name, double expected, const std::string& why) {
        expect_count(reply, "shared." + name, expected, fmt::format("{}, d={}, {}", why, d, workbook::name(element)),
                     "your code stores or loads something other than tiles of Q, K, V and O in shared memory; S and P "
                     "must stay in registers",
                     "shared-traffic");
      };
      if (const double parts = double(128 * d) / 256; counter(reply, "shared.matrix_stores") == parts)
        expect_shared("store_instructions", 2, "O is stored once, 16 × 16 elements per stmatrix; and two integers");
      else
        expect_shared("store_instructions", double(128 * d * 2) / (32 * 4) + 2,
                      "O is stored once, 4 bytes per lane; and two integers");
      expect_shared("load_instructions", double(2 * 4 * consumers(small)), "a warp loads two integers");
      expect_shared("matrix_loads", 0, "no ldmatrix");
    }
  }
}

TEST_CASE("extra memory does not grow with N", "[whole]") {
  expect_no_extra_memory("S or P", sizeof(std::int32_t));  // the tile counter
}
