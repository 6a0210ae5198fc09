// Chapter 10: mbarriers, TMA loads of tiles, the ring, and the kernel.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <limits>

#include "common/attention/element.hpp"
#include "tests/support/forward_properties.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

/// One consumer warp with 32 queries, and the producer warp. Built for every d.
const Tiles small{32, 32, 1};

/// The thread blocks of a call, and the sum of their K/V tiles.
struct Work {
  std::int64_t blocks = 0, tiles = 0;
};
Work work_of(const Problem& problem, const Tiles& tiles) {
  Work work;
  const Shape& s = problem.shape;
  for (std::int64_t t = 0; t < tiles_of(s.Nq, tiles.Br); ++t) {
    work.blocks += s.B * s.H;
    work.tiles += s.B * s.H * visited_tiles(problem, tiles, t);
  }
  return work;
}

/// Fails the test unless got equals wanted, element by element.
void expect_equal(const std::vector<float>& got, const std::function<float(std::size_t)>& wanted,
                  const std::function<std::string(std::size_t)>& place) {
  for (std::size_t i = 0; i < got.size(); ++i)
    if (const float must = wanted(i); got[i] != must)
      expect(false, fmt::format("{} is {}, expected {}", place(i), got[i], must));
  expect(true, "");
}

// ---- 10.1 ----

worker::Reply expect_handed_over(int rounds, int lane_seed = 0) {  // 0: the usual order of the lanes
  std::vector<float> from(std::size_t(32 * rounds));
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = float(i);
  worker::Call request("hand_over");
  request.input("from", from).output<float>("to", from.size());
  if (lane_seed != 0) request.number("lane_seed", lane_seed);
  worker::Reply reply = call(request);
  expect_equal(
      reply.output<float>("to"), [](std::size_t i) { return float(i / 32 * 32 + 31 - i % 32); },
      [](std::size_t i) { return fmt::format("element {} of row {}", i % 32, i / 32); });
  return reply;
}

// ---- 10.2, 10.3 ----

/// A tensor (heads, N, d) of integers from 1 to 2039, which fp16 holds exactly; and one tile of it.
struct OneTile {
  std::int64_t heads, N, d, first_row, head;

  /// Any 2039 consecutive elements differ.
  float element(std::int64_t h, std::int64_t row, std::int64_t column) const {
    return float(((h * N + row) * d + column) % 2039 + 1);
  }
  float at(std::int64_t row, std::int64_t column) const {
    const std::int64_t i = first_row + row;
    return i < N ? element(head, i, column) : 0;
  }
  std::string text() const {
    return fmt::format("rows {} to {} of head {} of a tensor ({}, {}, {})", first_row, first_row + 31, head, heads, N,
                       d);
  }
  worker::Reply run() const {
    std::vector<float> values;
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < N; ++i)
        for (std::int64_t c = 0; c < d; ++c) values.push_back(element(h, i, c));
    const std::vector<std::uint16_t> codes = to_codes(values, float16);
    worker::Call request("one_tile");
    request.number("heads", double(heads)).number("N", double(N)).number("d", double(d));
    request.number("first_row", double(first_row)).number("head", double(head));
    request.input("tensor", codes).output<std::uint16_t>("memory", std::size_t(32 * d));
    request.output<std::uint16_t>("tile", std::size_t(32 * d));
    return call(request);
  }
};
constexpr OneTile one_tiles[] = {{1, 32, 64, 0, 0}, {2, 40, 64, 0, 1}, {2, 80, 32, 32, 1}, {3, 64, 128, 32, 1}};
constexpr OneTile ragged_tiles[] = {{2, 40, 64, 32, 0}, {2, 45, 32, 32, 0}, {2, 33, 128, 32, 0}};

/// The row and the column of element i of a tile in shared memory.
struct Coordinates {
  std::int64_t row, column;
};
Coordinates coordinates_at(std::int64_t i, std::int64_t d) {
  const std::int64_t columns = std::min<std::int64_t>(d, 64), in_section = i % (32 * columns);
  const std::int64_t row = in_section / columns, slot = in_section % columns / 8;
  const std::int64_t chunk = slot ^ (columns == 64 ? row % 8 : row / 2 % 4);
  return {row, i / (32 * columns) * columns + 8 * chunk + i % 8};
}

void expect_memory(const OneTile& one) {
  const std::vector<float> memory = from_codes(one.run().output<std::uint16_t>("memory"), float16);
  expect_equal(
      memory,
      [&](std::size_t i) {
        const auto [row, column] = coordinates_at(std::int64_t(i), one.d);
        return one.at(row, column);
      },
      [&](std::size_t i) { return fmt::format("{}: element {} of shared memory", one.text(), i); });
}
void expect_tile(const OneTile& one) {
  const std::vector<float> tile = from_codes(one.run().output<std::uint16_t>("tile"), float16);
  expect_equal(
      tile, [&](std::size_t i) { return one.at(std::int64_t(i) / one.d, std::int64_t(i) % one.d); },
      [&](std::size_t i) {
        return fmt::format("{}: row {}, column {} of the tile", one.text(), i / std::size_t(one.d),
                           i % std::size_t(one.d));
      });
}

// ---- 10.4 ----

worker::Reply expect_column_sums(std::int64_t N, int lane_seed = 0) {
  const auto element = [](std::int64_t i, std::int64_t c) { return float((i * 64 + c) % 61); };  // tiles differ
  std::vector<float> values;
  for (std::int64_t i = 0; i < N; ++i)
    for (std::int64_t c = 0; c < 64; ++c) values.push_back(element(i, c));
  const std::vector<std::uint16_t> codes = to_codes(values, float16);
  worker::Call request("sum_columns");
  request.input("tensor", codes).output<float>("sums", 64);
  if (lane_seed != 0) request.number("lane_seed", lane_seed);
  worker::Reply reply = call(request);
  expect_equal(
      reply.output<float>("sums"),
      [&](std::size_t c) {
        float sum = 0;
        for (std::int64_t i = 0; i < N; ++i) sum += element(i, std::int64_t(c));
        return sum;
      },
      [&](std::size_t c) { return fmt::format("N={}: the sum of column {}", N, c); });
  return reply;
}

}  // namespace

// ---- 10.1 phases ----

TEST_CASE("every row is handed over once", "[10.1]") {
  for (const int rounds : {1, 2, 3, 7}) expect_handed_over(rounds);
}

TEST_CASE("no row overtakes another, whatever the order of the threads", "[10.1]") {
  for (int lane_seed = 1; lane_seed <= 12; ++lane_seed) expect_handed_over(5, lane_seed);
}

TEST_CASE("a row costs each lane one wait and one arrival", "[10.1]") {
  require_counters();
  const worker::Reply reply = expect_handed_over(6);
  const char* const cause =
      "your code waits or arrives more or less often than once per lane and round; each lane must wait once and arrive "
      "once";
  const double waits = counter(reply, "mbarrier_waits");
  expect(waits == 6 * 64 || waits == 6 * 64 - 32,
         fmt::format(
             "mbarrier_waits is {}, expected 384: 6 rows · 64 threads, or 32 fewer if warp 0 does not wait in round 0",
             waits),
         cause, "mbarriers");
  expect_count(reply, "mbarrier_arrivals", 6 * 64, "6 rows · 64 threads", cause, "mbarriers");
  expect_count(reply, "block_barriers", 1, "one __syncthreads(), after the mbarriers are initialised",
               "your code synchronises the whole thread block in the rounds; only the two mbarriers must order them",
               "barriers");
}

// ---- 10.2 a tile by TMA ----

TEST_CASE("a tile is stored section by section, swizzled", "[10.2]") {
  for (const OneTile& one : one_tiles) expect_memory(one);
}

TEST_CASE("rows past the last one are zeros, not the next head", "[10.2]") {
  for (const OneTile& one : ragged_tiles) expect_memory(one);
  expect_right(input("normal", {1, 2, 2, 40, 100, 64}, 20), usual_tiles(64));  // tiles of 64 rows
}

TEST_CASE("one TMA load copies a tile, and the mbarrier expects its bytes", "[10.2]") {
  require_counters();
  for (const OneTile& one : one_tiles) {
    const worker::Reply reply = one.run();
    expect_count(reply, "bulk_loads", 1, one.text(),
                 "your code loads the tile by more than one TMA load; one load must cover all sections", "copies");
    expect_count(reply, "tensor.bulk_load_bytes", double(32 * one.d * 2), one.text(),
                 "the size of your box differs from the tile's; the box must be the whole tile", "boxes-moved");
    expect_count(reply, "mbarrier_arrivals", 1, one.text(),
                 "your code arrives more or less often than once; the thread that issues the load must arrive once",
                 "mbarriers");
  }
}

// ---- 10.3 where its elements lie ----

TEST_CASE("swizzled finds every chunk where TMA stored it", "[10.3]") {
  for (const OneTile& one : one_tiles) expect_tile(one);
  expect_every_kind_in_this_part();
}

TEST_CASE("ldmatrix and stmatrix have no bank conflicts", "[10.3]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    const worker::Reply reply = attention(input("normal", {1, 1, 1, 32, 96, d}, 30).problem, small.numbers()).reply;
    for (const char* way : {"load", "store"}) {
      const double wavefronts = counter(reply, fmt::format("shared.{}_wavefronts", way)),
                   ideal = counter(reply, fmt::format("shared.{}_ideal", way));
      expect(wavefronts == ideal,
             fmt::format("with d={}, the {}s of shared memory take {} wavefronts, expected {}, without bank conflicts",
                         d, way, wavefronts, ideal),
             "your code places the same chunk of eight consecutive rows in the same banks; the slots must differ by "
             "the swizzle",
             "swizzle-conflicts");
    }
  }
}

// ---- 10.4 the ring ----

TEST_CASE("tiles pass through the ring, round after round", "[10.4]") {
  for (const std::int64_t tiles : {1, 3, 4, 5, 11}) expect_column_sums(16 * tiles);
}

TEST_CASE("no stage is read too early or filled too early, whatever the order", "[10.4]") {
  for (int lane_seed = 1; lane_seed <= 8; ++lane_seed) expect_column_sums(16 * 13, lane_seed);
}

TEST_CASE("a released stage is filled again without waiting for the next one", "[10.4]") {
  // The consumers read the next stage only when the released one is filled again: a late load is a deadlock.
  const std::size_t tiles = 10, size = 16 * 64;  // of two heads
  std::vector<float> values(tiles * size);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = float(i / size + i % 7);
  const std::vector<std::uint16_t> codes = to_codes(values, float16);
  worker::Call request("refill");
  request.input("tensor", codes).output<float>("sums", 64);
  const auto sum = [&](std::size_t column) {
    float all = 0;
    for (std::size_t tile = 0; tile < tiles; ++tile) all += values[tile * size + column];
    return all;
  };
  expect_equal(call(request).output<float>("sums"), sum,
               [](std::size_t column) { return fmt::format("the sum of column {} of the tiles' first rows", column); });
}

TEST_CASE("filling a stage takes one wait and one arrival, releasing it one arrival per warp", "[10.4]") {
  require_counters();
  const int tiles = 10, consumers = 2;
  const worker::Reply reply = expect_column_sums(16 * tiles);
  expect_count(reply, "bulk_loads", tiles, "one TMA load per tile",
               "your code loads a tile more than once or not at all; it must load each tile once", "copies");
  expect_count(reply, "mbarrier_arrivals", tiles * (1 + consumers),
               "per tile: the producer once, and each consumer warp once",
               "several lanes of a warp arrive, or none; exactly one lane per warp must arrive", "mbarriers");
  expect_count(
      reply, "mbarrier_waits", tiles * (1 + 32 * consumers), "per tile: the producer, and all lanes of the consumers",
      "your code waits more or less often than once per tile; each thread must wait once per tile", "mbarriers");
}

// ---- 10.5 the block's barriers ----

TEST_CASE("every phase ends, and none ends too early", "[10.5]") {
  // Five tiles of K and five of V: more than two rounds of the four stages.
  for (const std::int64_t d : head_dims()) {
    const Tiles tiles = usual_tiles(d);
    expect_right(input("normal", {1, 1, 1, 40, 5 * tiles.Bc, d}, 50), tiles);
  }
  expect_right(input("normal", {1, 1, 1, 32, 200, 64}, 51), small);
  expect_every_kind_in_this_part();
}

TEST_CASE("one __syncthreads, after the mbarriers are initialised", "[10.5]") {
  require_counters();
  const Problem problem = input("normal", {1, 2, 2, 70, 100, 64}, 52).problem;
  expect_count(
      attention(problem, small.numbers()).reply, "block_barriers", double(work_of(problem, small).blocks),
      "one __syncthreads() per thread block",
      "your code synchronises the whole thread block again; only after the initialisation must all threads synchronise",
      "barriers");
}

// ---- 10.6 the producer ----

TEST_CASE("each tile is loaded once, up to the last visible one", "[10.6]") {
  require_counters();
  for (const bool causal : {false, true}) {
    for (const auto& [Nq, Nk] : {std::pair{70, 150}, {100, 40}}) {
      const Problem problem = input("normal", {1, 2, 2, Nq, Nk, 64}, 60, causal).problem;
      const worker::Reply reply = attention(problem, small.numbers()).reply;
      const auto [blocks, tiles] = work_of(problem, small);
      const double Q_bytes = 32 * 64 * 2, KV_bytes = small.Bc * 64 * 2;
      const auto expect_bytes = [&](const char* tensor, double bytes, const char* why) {
        expect_count(reply, fmt::format("{}.bulk_load_bytes", tensor), bytes,
                     fmt::format("{}, {}", why, text(problem, small)),
                     "your code loads a tile more than once, not at all, from another tensor, or past the last one; it "
                     "must load "
                     "each tile once",
                     "boxes-moved");
      };
      expect_bytes("Q", double(blocks) * Q_bytes, "one tile of Q per warp");
      expect_bytes("K", double(tiles) * KV_bytes, "the tiles of K that each block needs");
      expect_bytes("V", double(tiles) * KV_bytes, "the tiles of V that each block needs");
      expect_count(reply, "bulk_loads", double(blocks + 2 * tiles), "one TMA load per tile, " + text(problem, small),
                   "your code loads a tile by more than one TMA load; it must issue one per tile", "copies");
    }
  }
}

TEST_CASE("K and V are loaded in the order in which they are used", "[10.6]") {
  // One hot: exchanged tiles of K change O. Value mean: exchanged tiles of V do.
  for (const std::int64_t d : head_dims()) {
    expect_right(input("one hot", {1, 1, 1, 32, 150, d}, 61), small);
    expect_right(input("value mean", {1, 1, 1, 32, 150, d}, 62), small);
  }
  expect_every_kind_in_this_part();
}

TEST_CASE("each warp gets its own rows of Q, each head its own tensors", "[10.6]") {
  expect_right(input("value mean", {1, 1, 1, 230, 64, 64}, 63), Tiles{});
  expect_right(input("value mean", {1, 1, 1, 100, 40, 128}, 64), Tiles{});
  expect_right(input("value mean", {2, 2, 2, 70, 33, 32}, 65), small);
}

// ---- 10.7 the consumers ----

TEST_CASE("ragged tails are computed correctly", "[10.7]") {
  expect_ragged_tails();
  expect_every_kind_in_this_part();
}

TEST_CASE("the stages do not race, whatever the order of threads and copies", "[10.7]") {
  for (const std::int64_t d : head_dims())
    for (const int lane_seed : {0, 1, 2, 3})
      expect_right(input("rising maximum", {1, 1, 1, 40, 150, d}, 73), small, {}, lane_seed);
  // Seven consumers, which release a stage in any order.
  for (const int lane_seed : {4, 5}) expect_right(input("normal", {1, 1, 1, 224, 330, 64}, 74), Tiles{}, {}, lane_seed);
}

TEST_CASE("two waits per K/V tile, and one arrival per warp for each", "[10.7]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    const Problem problem = input("normal", {1, 1, 1, 70, 170, d}, 75, true).problem;
    for (const Tiles& tiles : {small, usual_tiles(d)}) {
      const worker::Reply reply = attention(problem, tiles.numbers()).reply;
      const auto [blocks, seen] = work_of(problem, tiles);
      const std::int64_t warps = tiles.warps;
      expect_count(reply, "mbarrier_waits", double(2 * seen + blocks * warps * 32 + 2 * seen * warps * 32),
                   "the producer once per tile; each lane of a consumer for Q, and for K and V of each tile, " +
                       text(problem, tiles),
                   "your code waits more or less often than once per tile; each thread must wait once for each tile",
                   "mbarriers");
      expect_count(
          reply, "mbarrier_arrivals", double(blocks * warps + 2 * seen + 2 * seen * warps),
          "the producer once per load; each warp once per stage, " + text(problem, tiles),
          "your code releases a stage more or less often than once per tile; each warp must release each tile once",
          "mbarriers");
      expect_early_release(reply, text(problem, tiles));
      // Every warp computes both tiles, and waits for two loads at once only at first: for Q and K_0.
      const Problem unmasked = input("normal", {1, 1, 1, tiles.Br, 2 * tiles.Bc, d}, 77).problem;
      expect_waits_apart(attention(unmasked, tiles.numbers()).reply, double(warps),
                         "each warp once, for Q, " + text(unmasked, tiles));
    }
  }
}

TEST_CASE("Q, K and V are loaded once for 32 rows", "[10.7]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    const Problem problem = input("normal", {1, 1, 1, 32, 96, d}, 76).problem;
    const double KV = 2 * (96.0 / 16) * (double(d) / 16), Q = 2 * (double(d) / 16) * (d <= 64 ? 1 : 3);
    expect_count(attention(problem, small.numbers()).reply, "shared.matrix_loads", KV + Q,
                 fmt::format("K and V once, Q once{}, 16 × 16 each, d={}", d <= 64 ? "" : " per tile", d),
                 "your code loads a part of Q, K or V more than once; it must load each part once", "matrix-loads");
  }
}

// ---- 10.8 O by TMA ----

TEST_CASE("every element of O is written once, and nothing else", "[10.8]") {
  for (const auto& [Nq, Nk] : {std::pair{1, 3}, {63, 33}, {33, 65}})
    for (const std::int64_t d : head_dims()) expect_right(input("value mean", {1, 2, 2, Nq, Nk, d}, 80), small);
  expect_right(input("value mean", {1, 2, 2, 240, 33, 64}, 81), Tiles{});
  expect_every_kind_in_this_part();
}

TEST_CASE("O overwrites Q without a race, whatever the order of threads and copies", "[10.8]") {
  for (const std::int64_t d : head_dims()) {
    for (const int lane_seed : {0, 1, 2, 3}) {
      expect_right(input("normal", {1, 1, 1, 40, 33, d}, 82), small, {}, lane_seed);
      // Fully masked queries: no matmul separates the load of Q from the store of O.
      expect_right(input("normal", {1, 1, 1, 40, 5, d}, 84, true), small, {}, lane_seed);
    }
  }
}

TEST_CASE("O is stored by one TMA store per warp", "[10.8]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    const Problem problem = input("normal", {1, 2, 2, 70, 40, d}, 83).problem;
    const worker::Reply reply = attention(problem, small.numbers()).reply;
    const Work work = work_of(problem, small);
    expect_count(
        reply, "bulk_stores", double(work.blocks), text(problem, small),
        "your code issues more or fewer TMA stores than one per warp; one lane of each warp must issue one store",
        "copies");
    expect_count(reply, "O.bulk_store_bytes", double(2 * 70 * d * 2), "the existing rows of O, " + text(problem, small),
                 "your code writes O more than once or not completely; it must write each element once", "boxes-moved");
    expect_count(reply, "shared.matrix_stores", double(work.blocks * 2 * d / 16), text(problem, small),
                 "your code stores O to shared memory more than once, or not by stmatrix_x4; it must store each 16 × "
                 "16 part once",
                 "shared-traffic");
    expect_count(reply, "O.store_bytes", 0, "no ordinary stores to O, " + text(problem, small),
                 "your code stores O by ordinary stores; it must use one TMA store", "boxes-moved");
  }
}

// ---- The whole chapter ----

TEST_CASE("TMA's kernel agrees with the oracle", "[whole]") {
  expect_every_kind();
  for (const std::int64_t d : head_dims()) expect_right(input("normal", {1, 2, 2, 250, 133, d}, 141, true));
}

const Claims of_the_whole = {
    {"[whole]", "bf16 agrees with the oracle", [] { expect_element(bfloat16); }},
    {"[whole]", "any two lengths agree with the oracle", [] { expect_any_two_lengths(); }},
};

TEST_CASE("the warm-ups give one answer in every order", "[whole]") {
  for (int lane_seed = 0; lane_seed <= 5; ++lane_seed) {
    expect_handed_over(6, lane_seed);
    expect_column_sums(16 * 9, lane_seed);
  }
  for (const OneTile& one : one_tiles) expect_tile(one);
}

const Claims of_the_whole_2 = {
    {"[whole]", "fully masked rows give O = 0 and LSE = -inf, never NaN", [] { expect_rows_without_keys(); }},
    {"[whole]", "a scale of any sign", [] { expect_any_scale(); }},
    {"[whole]", "data past the last key never reaches O", [] { expect_nothing_past_the_end(); }},
    {"[whole]", "future positions have zero influence", [] { expect_no_future(); }},
    {"[whole]", "the number of workers and the order of threads and copies change nothing",
     [] { expect_order_changes_nothing(); }},
    {"[whole]", "50 orders of threads and copies give one answer",
     [] { expect_repeatable(50, /*in_other_orders=*/true); }},
};

TEST_CASE("no thread copies data itself", "[whole]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    const Problem problem = input("normal", {1, 1, 1, 240, 150, d}, 148).problem;
    const Tiles tiles = usual_tiles(d);
    const worker::Reply reply = attention(problem, tiles.numbers()).reply;
    const auto [blocks, seen] = work_of(problem, tiles);
    const auto expect_of = [&](const char* name, double expected, const char* why) {
      expect_count(reply, name, expected, fmt::format("{}, {}", why, text(problem, tiles)),
                   "your code copies tiles by threads or keeps other data in shared memory; TMA must copy the tiles, "
                   "and S and P must stay in registers",
                   "shared-traffic");
    };
    expect_of("global.load_bytes", 0, "threads read nothing from device memory");
    expect_of("global.async_bytes", 0, "no cp.async");
    expect_of("global.store_bytes", 240 * 4, "threads store only the LSE");
    expect_of("shared.load_instructions", 0, "threads read shared memory only by ldmatrix");
    expect_of("shared.store_instructions", 0, "threads write shared memory only by stmatrix");
    expect_of("bulk_loads", double(blocks * tiles.warps + 2 * seen), "one TMA load per tile");
  }
}

const Claims of_the_whole_3 = {
    {"[whole]", "a block fits 99 KB of shared memory", [] { expect_tiles_for_every_size(99); }},
    {"[whole]", "extra memory does not grow with N", [] { expect_no_extra_memory(); }},
};
