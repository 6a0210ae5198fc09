// Chapter 5: the causal mask without its work: which tiles are read, which are masked, and in which order.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "common/attention/element.hpp"
#include "tests/support/kernel_stage.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

/// Sizes of the tiles; a warp has 32 queries.
struct Tiles {
  int Br = 128, Bc = 64;

  int warps() const { return Br / 32; }
  Numbers numbers() const { return {{"Br", Br}, {"Bc", Bc}, {"warps", warps()}}; }
};
constexpr Tiles all_tiles[] = {{128, 64}, {128, 32}, {64, 64}, {32, 32}};
constexpr std::int64_t head_dims[] = {32, 64, 128};

/// Lengths of Q and K: one query, one key, ragged tails, square, more queries than keys.
struct Lengths {
  std::int64_t Nq, Nk;
};
constexpr Lengths all_lengths[] = {{1, 1},   {1, 239},   {113, 203}, {128, 217},   {512, 256},
                                   {239, 1}, {257, 257}, {799, 3},   {1023, 1024}, {1024, 1023}};

/// A lane takes so many keys of its row at a time, and m lags behind by at most 8 in units of log2.
judge::LaneRows lane_rows(std::int64_t d, const Tiles& tiles) {
  return {d <= 64 ? 32 : tiles.Bc, 8 * 0.69314718F};
}

AttentionResult expect_right(const Input& given, const Tiles& tiles = {}) {
  return expect_attention(given.problem, fmt::format("{}, {} warps", given.name, tiles.warps()), tiles.numbers(),
                          lane_rows(given.problem.shape.d, tiles));
}

Input causal_input(const std::string& kind, const Shape& shape, std::uint64_t seed) {
  return input(kind, shape, seed, true);
}

std::int64_t tiles_of(std::int64_t rows, std::int64_t tile) {
  return (rows + tile - 1) / tile;
}

// ---- Which tiles: the formulas of the lesson ----

/// How many tiles of keys the queries of tile `t` see: up to the one with the last key of its last query.
std::int64_t tiles_seen(const Shape& s, const Tiles& tiles, std::int64_t t) {
  const std::int64_t last_query = std::min((t + 1) * tiles.Br, s.Nq) - 1;
  return tiles_of(visible_keys(last_query, s.Nq, s.Nk, true), tiles.Bc);
}
/// How many of them, from the first on, need no mask: those of which the tile's first query sees every key.
std::int64_t tiles_below(const Shape& s, const Tiles& tiles, std::int64_t t) {
  return visible_keys(t * tiles.Br, s.Nq, s.Nk, true) / tiles.Bc;
}
/// The sum over the query tiles of all heads.
template <class Count>
std::int64_t over_query_tiles(const Shape& s, const Tiles& tiles, const Count& count) {
  std::int64_t sum = 0;
  for (std::int64_t t = 0; t < tiles_of(s.Nq, tiles.Br); ++t) sum += count(t);
  return s.B * s.H * sum;
}

/// Tiles 0 to n - 1 as bits, and back as text.
std::int64_t first_tiles(std::int64_t n) {
  return n >= 63 ? -1 : (std::int64_t(1) << n) - 1;
}
std::string tiles_text(std::int64_t set) {
  std::string text;
  for (int j = 0; j < 64; ++j)
    if (set >> j & 1) text += fmt::format("{}{}", text.empty() ? "" : ", ", j);
  return text.empty() ? "none" : text;
}

/// What each block of a launch did, in the order of the blocks' numbers.
struct Block {
  std::int64_t head, query_tile;                ///< -1 if it read no query
  std::int64_t K_tiles, V_tiles, masked_tiles;  ///< tile j as bit j
};
std::vector<Block> blocks_of(const Problem& problem, const Tiles& tiles) {
  const Shape& s = problem.shape;
  const auto count = std::size_t(tiles_of(s.Nq, tiles.Br) * s.B * s.H);
  worker::Call request("blocks");
  request.number("B", double(s.B)).number("H", double(s.H)).number("Hkv", double(s.Hkv));
  request.number("Nq", double(s.Nq)).number("Nk", double(s.Nk)).number("d", double(s.d));
  request.number("scale", problem.scale).number("mask", problem.mask.kind);
  for (const auto& [name, value] : tiles.numbers()) request.number(name, value);
  const auto Q = to_codes(problem.Q.values, "float16"), K_codes = to_codes(problem.K.values, "float16"),
             V_codes = to_codes(problem.V.values, "float16");
  request.input("Q", Q).input("K", K_codes).input("V", V_codes);
  request.output<std::uint16_t>("O", std::size_t(s.q_size())).output<float>("lse", std::size_t(s.lse_size()));
  for (const char* name : {"first_row", "K_tiles", "V_tiles", "masked_tiles"})
    request.output<std::int64_t>(name, count);
  const worker::Reply reply = call(request);
  const auto first_row = reply.output<std::int64_t>("first_row"), K = reply.output<std::int64_t>("K_tiles"),
             V = reply.output<std::int64_t>("V_tiles"), masked = reply.output<std::int64_t>("masked_tiles");
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < count; ++i) {
    const bool idle = first_row[i] < 0;
    blocks.push_back(
        {idle ? -1 : first_row[i] / s.Nq, idle ? -1 : first_row[i] % s.Nq / tiles.Br, K[i], V[i], masked[i]});
  }
  return blocks;
}

/// "query tile 2 (queries 128 to 191)", for messages.
std::string query_tile_text(const Shape& s, const Tiles& tiles, std::int64_t t) {
  return fmt::format("query tile {} (queries {} to {}; Nq={}, Nk={}, Br={}, Bc={})", t, t * tiles.Br,
                     std::min((t + 1) * tiles.Br, s.Nq) - 1, s.Nq, s.Nk, tiles.Br, tiles.Bc);
}

constexpr Lengths boundary_lengths[] = {{256, 256}, {200, 333}, {333, 200}, {130, 1000}};

}  // namespace

// ---- 5.1 key_tiles ----

TEST_CASE("causal reads only tiles on or below the diagonal", "[5.1]") {
  require_counters();
  for (const auto& [Nq, Nk] : boundary_lengths) {
    for (const Tiles& tiles : all_tiles) {
      const Input given = causal_input("normal", {1, 1, 1, Nq, Nk, 64}, 1);
      const Shape& s = given.problem.shape;
      for (const Block& block : blocks_of(given.problem, tiles)) {
        if (block.query_tile < 0) continue;
        const std::int64_t seen = tiles_seen(s, tiles, block.query_tile), all = first_tiles(seen);
        for (const auto& [name, read] : {std::pair{"K", block.K_tiles}, {"V", block.V_tiles}}) {
          expect((read & ~all) == 0,
                 fmt::format("{} sees the first {} tiles of keys, and read also {} of {}",
                             query_tile_text(s, tiles, block.query_tile), seen, tiles_text(read & ~all), name),
                 "tiles above the diagonal are read and masked, in place of being left out: the range ends at the last "
                 "key of the tile's last query",
                 "tiles-above-diagonal");
        }
      }
    }
  }
}

TEST_CASE("causal reads every tile that some query sees", "[5.1]") {
  // The last key that a query sees counts most.
  for (const auto& [Nq, Nk] :
       {Lengths{234, 384}, {191, 256}, {129, 129}, {65, 97}, {97, 65}, {33, 200}, {200, 33}, {70, 133}, {1, 1}}) {
    for (const Tiles& tiles : all_tiles) expect_right(causal_input("rising maximum", {1, 1, 1, Nq, Nk, 64}, 2), tiles);
  }
  for (const std::int64_t d : {32, 128}) expect_right(causal_input("rising maximum", {1, 1, 1, 129, 193, d}, 3));
}

TEST_CASE("the mask is aligned at the bottom right", "[5.1]") {
  // The last query sees every key.
  for (const auto& [Nq, Nk] : {Lengths{130, 170}, {170, 130}, {1, 200}, {40, 200}, {200, 40}}) {
    expect_right(causal_input("uniform", {1, 2, 2, Nq, Nk, 64}, 4));
    expect_right(causal_input("value mean", {1, 1, 1, Nq, Nk, 32}, 5), {32, 32});
  }
}

TEST_CASE("without the mask every tile is read, also where Nk and Nq differ", "[5.1]") {
  // The last key counts most, in every tile of queries: a range that ends at the diagonal shows in all but the last.
  for (const auto& [Nq, Nk] : {Lengths{200, 333}, {260, 260}, {130, 1000}, {333, 200}, {300, 64}}) {
    for (const Tiles& tiles : all_tiles) expect_right(input("rising maximum", {1, 1, 1, Nq, Nk, 64}, 6), tiles);
  }
  expect_right(input("late spike", {2, 3, 3, 150, 280, 32}, 7), {32, 32});
  expect_right(input("late spike", {1, 2, 2, 300, 200, 128}, 8));
}

// ---- 5.2 mask_boundary ----

TEST_CASE("no query sees a key behind it", "[5.2]") {
  expect_right(causal_input("normal", {1, 1, 1, 96, 96, 64}, 12), {32, 32});
  expect_right(causal_input("value mean", {1, 1, 1, 192, 128, 64}, 12));
  for (const std::int64_t query : {0, 31, 32, 63, 64, 98}) {
    expect_no_influence_from_the_future(causal_input("normal", {1, 1, 1, 100, 100, 64}, 10).problem, query,
                                        Tiles{64, 64}.numbers());
    expect_no_influence_from_the_future(causal_input("normal", {1, 1, 1, 100, 140, 32}, 11).problem, query,
                                        Tiles{}.numbers());
  }
}

TEST_CASE("every query sees the key at its own position", "[5.2]") {
  for (const auto& [Nq, Nk] : {Lengths{130, 130}, {64, 140}, {140, 64}}) {
    for (const Tiles& tiles : all_tiles) expect_right(causal_input("rising maximum", {1, 1, 1, Nq, Nk, 64}, 13), tiles);
  }
}

TEST_CASE("a masked score is -inf at a scale of any sign", "[5.2]") {
  for (const float scale : {0.3f, 0.0f, -0.05f, -0.3f}) {
    for (const Tiles& tiles : {Tiles{128, 64}, {32, 32}}) {
      Input scaled = causal_input("normal", {1, 1, 1, 100, 128, 64}, 14);
      scaled.problem.scale = scale;
      scaled.name += fmt::format(", scale {}", scale);
      expect_right(scaled, tiles);
    }
  }
}

TEST_CASE("only boundary tiles are masked", "[5.2]") {
  require_counters();
  for (const auto& [Nq, Nk] : boundary_lengths) {
    for (const Tiles& tiles : all_tiles) {
      const Input given = causal_input("normal", {1, 1, 1, Nq, Nk, 64}, 15);
      const Shape& s = given.problem.shape;
      for (const Block& block : blocks_of(given.problem, tiles)) {
        const std::int64_t below = tiles_below(s, tiles, block.query_tile);
        const std::int64_t wrongly = block.masked_tiles & first_tiles(below);
        expect(wrongly == 0,
               fmt::format("in {} every query sees all keys of the first {} tiles, but a mask is applied in {}",
                           query_tile_text(s, tiles, block.query_tile), below, tiles_text(wrongly)),
               "tiles below the diagonal need no mask: ask whether any lane of the warp sees fewer keys than there are",
               "mask-below-diagonal");
      }
    }
  }
}

TEST_CASE("all boundary tiles are masked, also when there are several", "[5.2]") {
  // With Q = 0 every key that is seen counts the same.
  for (const auto& [Nq, Nk] : {Lengths{256, 256}, {200, 233}, {233, 200}, {100, 150}}) {
    for (const Tiles& tiles : all_tiles) {
      const Input given = causal_input("uniform", {1, 1, 1, Nq, Nk, 64}, 16);
      const AttentionResult result = expect_right(given, tiles);
      if (result.reply.counters.empty()) continue;  // nothing counts on the GPU
      const Shape& s = given.problem.shape;
      const auto masked = [&](std::int64_t t) { return tiles_seen(s, tiles, t) - tiles_below(s, tiles, t); };
      expect_count(result.reply, "note.masked tile", double(over_query_tiles(s, tiles, masked)),
                   fmt::format("the tiles that the diagonal crosses, over all query tiles, with Nq={}, Nk={}, Br={}, "
                               "Bc={}",
                               s.Nq, s.Nk, tiles.Br, tiles.Bc),
                   "where a mask is applied, workbook::cuda::note(\"masked tile\", tile) says so, and nowhere else",
                   "masked-tiles");
    }
  }
}

TEST_CASE("ragged tails are part of the answer", "[5.2]") {
  for (const auto& [Nq, Nk] : {Lengths{1, 33}, {33, 1}, {65, 95}, {31, 97}, {70, 133}}) {
    for (const bool causal : {true, false}) {
      expect_right(input("value mean", {1, 2, 2, Nq, Nk, 64}, 17, causal), {32, 32});
      expect_right(input("late spike", {1, 1, 1, Nq, Nk, 128}, 18, causal));
    }
  }
}

// ---- 5.3 update_row ----

TEST_CASE("rows without keys give zero and -inf, never NaN", "[5.3]") {
  for (const auto& [Nq, Nk] : {Lengths{239, 1}, {100, 30}, {40, 39}, {200, 129}}) {
    for (const std::int64_t d : head_dims) {
      const Input given = causal_input("value mean", {1, 1, 1, Nq, Nk, d}, 20);
      const AttentionResult result = expect_right(given);
      for (std::int64_t i = 0; i < Nq - Nk; ++i) {
        expect(result.lse(0, 0, i, 0) == -std::numeric_limits<float>::infinity() && result.O(0, 0, i, 0) == 0,
               fmt::format("query {} sees no key, and has O = {} and LSE = {}: they must be 0 and -inf", i,
                           result.O(0, 0, i, 0), result.lse(0, 0, i, 0)),
               "", "row-without-keys");
      }
    }
  }
  expect_right(causal_input("large logits", {1, 1, 1, 90, 50, 64}, 21), {32, 32});
  expect_right(causal_input("negative logits", {1, 1, 1, 90, 50, 64}, 22), {64, 64});
}

TEST_CASE("a row that sees no key of a tile keeps what it has", "[5.3]") {
  // Of 128 queries the first 32 see none of the last keys that their block goes through.
  for (const char* kind : {"normal", "falling maximum", "negative logits"}) {
    for (const Tiles& tiles : all_tiles) expect_right(causal_input(kind, {1, 1, 1, 128, 192, 64}, 23), tiles);
    expect_right(causal_input(kind, {1, 1, 1, 128, 192, 128}, 24), {128, 32});
  }
}

TEST_CASE("a maximum that rises in the last tile", "[5.3]") {
  for (const std::int64_t d : head_dims) {
    expect_right(causal_input("rising maximum", {1, 1, 1, 130, 200, d}, 25));
    expect_right(causal_input("rising maximum", {1, 1, 1, 70, 100, d}, 26), {32, 32});
    expect_right(causal_input("late spike", {1, 1, 1, 70, 100, d}, 27), {64, 64});
  }
}

TEST_CASE("large logits stay finite", "[5.3]") {
  expect_right(with_zeros(causal_input("large logits", {1, 1, 1, 100, 130, 64}, 28)));
  for (const char* kind : {"large logits", "negative logits"}) {
    expect_right(causal_input(kind, {1, 1, 1, 100, 130, 64}, 28));
    expect_right(causal_input(kind, {1, 1, 1, 100, 130, 128}, 29), {32, 32});
  }
}

TEST_CASE("m moves only when a score exceeds it by more than slack", "[5.3]") {
  require_counters();
  // Normal scores rise by less than slack after a row's first keys: what 64 more keys below the diagonal cost is no
  // shuffle, for no factor differs from 1.
  for (const std::int64_t d : head_dims) {
    for (const Tiles& tiles : {Tiles{}, {32, 32}}) {
      const auto problem = [&](std::int64_t Nk) { return input("normal", {1, 1, 1, tiles.Br, Nk, d}, 34).problem; };
      const AttentionResult few = attention(problem(128), tiles.numbers()),
                            many = attention(problem(192), tiles.numbers());
      const double more = counter(many.reply, "shuffles") - counter(few.reply, "shuffles");
      // An m that follows every score spoils no number. Where one is wrong, the factors differ from 1 for that.
      const bool only_follows = more == 0 || is_right(problem(192), many);
      expect(more == 0,
             fmt::format("with d={}, Br={} and normal scores another 64 keys cost {} shuffles: O was rescaled{}", d,
                         tiles.Br, more, only_follows ? "" : ", and O or the LSE is wrong"),
             m_follows_too_early, only_follows ? "slack-ignored" : "");
    }
  }
}

// ---- 5.4 work_of ----

TEST_CASE("every tile of queries of every head is done once", "[5.4]") {
  for (const std::int64_t H : {1, 7, 8, 9, 19})
    expect_right(causal_input("value mean", {1, H, H, 70, 40, 32}, 30), {32, 32});
  expect_right(causal_input("value mean", {3, 3, 3, 65, 80, 32}, 31), {32, 32});
}

TEST_CASE("the longest blocks start first", "[5.4]") {
  require_counters();
  const Tiles tiles{32, 32};
  for (const std::int64_t H : {3, 8, 19}) {
    const Input given = causal_input("normal", {1, H, H, 150, 150, 32}, 32);
    const std::vector<Block> blocks = blocks_of(given.problem, tiles);
    const std::int64_t full_group = 8 * tiles_of(150, tiles.Br);
    for (std::size_t i = 1; i < blocks.size(); ++i) {
      if (std::int64_t(i) % full_group == 0) continue;  // other heads begin
      const std::int64_t before = std::popcount(std::uint64_t(blocks[i - 1].K_tiles)),
                         now = std::popcount(std::uint64_t(blocks[i].K_tiles));
      expect(now <= before,
             fmt::format("with {} heads block {} goes through {} tiles of keys and block {}, which starts before it, "
                         "through {}",
                         H, i, now, i - 1, before),
             "within a group of heads the blocks with the last queries, which see most, have the lowest numbers",
             "launch-order");
    }
  }
}

TEST_CASE("at most eight heads run at a time", "[5.4]") {
  require_counters();
  const Tiles tiles{32, 32};
  for (const std::int64_t H : {8, 19}) {
    const Input given = causal_input("normal", {1, H, H, 100, 100, 32}, 33);
    const std::vector<Block> blocks = blocks_of(given.problem, tiles);
    const std::int64_t query_tiles = tiles_of(100, tiles.Br);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const std::int64_t group = std::int64_t(i) / (8 * query_tiles), last = std::min(8 * group + 8, H) - 1;
      expect(blocks[i].head / 8 == group,
             fmt::format("with {} heads of {} query tiles, block {} has head {}; blocks {} to {} belong to heads {} to "
                         "{}",
                         H, query_tiles, i, blocks[i].head, 8 * group * query_tiles, (last + 1) * query_tiles - 1,
                         8 * group, last),
             "heads go in groups of heads_together, and a group's blocks are all started before the next group's",
             "heads-together");
    }
  }
}

// ---- 5.5 the kernel's body ----

TEST_CASE("both schedules agree with the oracle", "[5.5]") {
  // The simulator reports what is read before its copy has arrived, and what is overwritten while others read it.
  for (const std::int64_t d : head_dims) {
    for (const Tiles& tiles : {Tiles{128, 32}, Tiles{64, 64}}) {
      for (const auto& [Nq, Nk] : {Lengths{1, 1}, {100, 200}, {200, 70}})
        expect_right(causal_input("rising maximum", {1, 2, 2, Nq, Nk, d}, 55), tiles);
      expect_right(input("rising maximum", {1, 1, 1, 70, 150, d}, 56), tiles);
    }
  }
}

TEST_CASE("a block waits once a tile, and twice where there is one place", "[5.5]") {
  require_counters();
  for (const std::int64_t d : {64, 128}) {
    for (const auto& [Nq, Nk] : {Lengths{200, 333}, {333, 200}}) {
      for (const Tiles& tiles : {Tiles{128, 64}, Tiles{64, 64}}) {
        const Input given = causal_input("normal", {1, 1, 1, Nq, Nk, d}, 57);
        const Shape& s = given.problem.shape;
        const std::int64_t seen = over_query_tiles(s, tiles, [&](std::int64_t t) { return tiles_seen(s, tiles, t); });
        const int waits = d == 128 ? 2 : 1;
        expect_count(attention(given.problem, tiles.numbers()).reply, "block_barriers", double(waits * seen),
                     fmt::format("{} a K/V tile that a query tile sees, and {} such pairs: d={}, Nq={}, Nk={}, Br={}, "
                                 "Bc={}",
                                 waits, seen, d, Nq, Nk, tiles.Br, tiles.Bc),
                     "there is a __syncthreads() that protects nothing, or one too few", "barriers");
      }
    }
  }
}

TEST_CASE("a tile is copied once for each query tile that sees it, and none for one that sees no key", "[5.5]") {
  require_counters();
  for (const std::int64_t d : {64, 128}) {
    for (const auto& [Nq, Nk] : {Lengths{200, 150}, {300, 90}}) {
      const Tiles tiles{128, 64};
      const Input given = causal_input("normal", {1, 1, 1, Nq, Nk, d}, 58);
      const Shape& s = given.problem.shape;
      const worker::Reply reply = attention(given.problem, tiles.numbers()).reply;
      const auto keys = [&](std::int64_t t) { return std::min(tiles_seen(s, tiles, t) * tiles.Bc, s.Nk); };
      for (const char* tensor : {"K", "V"}) {
        expect_count(reply, fmt::format("{}.async_bytes", tensor), double(over_query_tiles(s, tiles, keys) * d * 2),
                     fmt::format("of {} the rows up to the last tile that a query tile sees: d={}, Nq={}, Nk={}",
                                 tensor, d, Nq, Nk),
                     "a tile is copied more or less often than once", "traffic");
      }
      expect_count(reply, "Q.async_bytes", double(Nq * d * 2), fmt::format("Q once: d={}, Nq={}, Nk={}", d, Nq, Nk),
                   "Q is copied more or less often than once", "traffic");
    }
  }
}

// ---- The whole chapter ----

TEST_CASE("causal agrees with the oracle", "[whole]") {
  for (const auto& [Nq, Nk] : all_lengths) expect_right(causal_input("normal", {1, 1, 1, Nq, Nk, 64}, 40));
  for (const InputKind& kind : input_kinds()) {
    expect_right(causal_input(kind.name, {1, 2, 2, 70, 133, 64}, 41), {32, 32});
    expect_right(causal_input(kind.name, {2, 1, 1, 133, 70, 32}, 42));
    expect_right(causal_input(kind.name, {1, 1, 1, 140, 150, 128}, 43), {64, 64});
  }
}

TEST_CASE("without the mask it agrees with chapter 4", "[whole]") {
  for (const auto& [Nq, Nk] : {Lengths{100, 140}, {140, 33}}) {
    const Input given = input("rising maximum", {1, 2, 2, Nq, Nk, 64}, 44);
    const Problem problem = in_element(given.problem);
    const AttentionResult now = expect_right(given), before = previous_attention(problem, Tiles{}.numbers());
    // Each is within its own bounds of the oracle.
    Bounds bounds = output_bounds(forward_oracle(problem), problem, precision());
    for (double& bound : bounds.element.values) bound *= 2;
    bounds.rms *= 2;
    judge::Layout layout;
    layout.tensor = "O (expected: chapter 4's)";
    layout.Br = 128;
    layout.Bc = 64;
    expect_close(now.O, {widened(before.O), bounds, layout, output_mistakes(problem, {128, 64, 0, lane_rows(64, {})}),
                         describe(problem, given.name)});
  }
}

TEST_CASE("the answer does not depend on Br, Bc or the number of warps", "[whole]") {
  for (const std::int64_t d : head_dims) {
    for (const Tiles& tiles : all_tiles) {
      expect_right(causal_input("rising maximum", {1, 2, 2, 113, 203, d}, 45), tiles);
      expect_right(causal_input("large logits", {1, 1, 1, 140, 90, d}, 46), tiles);
    }
  }
}

TEST_CASE("future positions have zero influence", "[whole]") {
  // Within the tiles that the diagonal crosses: any finite numbers. Behind them: NaN, in K and in V.
  for (const std::int64_t d : head_dims) {
    for (const std::int64_t query : {0, 77, 128})
      expect_no_influence_from_the_future(causal_input("value mean", {1, 1, 1, 160, 200, d}, 47).problem, query,
                                          Tiles{}.numbers());
    for (const Tiles& tiles : {Tiles{128, 64}, {32, 32}}) {
      const Problem problem = causal_input("value mean", {1, 1, 1, 256, 300, d}, 48).problem;
      const Shape& s = problem.shape;
      const AttentionResult before = attention(problem, tiles.numbers());
      for (const std::int64_t t : {0, 1}) {
        const std::int64_t first = tiles_seen(s, tiles, t) * tiles.Bc, last_query = (t + 1) * tiles.Br - 1;
        if (first >= s.Nk) continue;
        Problem changed = problem;
        for (Tensor<float>* tensor : {&changed.K, &changed.V})
          std::fill(tensor->values.begin() + first * d, tensor->values.end(), std::numeric_limits<float>::quiet_NaN());
        const AttentionResult after = attention(changed, tiles.numbers());
        for (std::int64_t i = 0; i <= last_query; ++i)
          for (std::int64_t c = 0; c < d; ++c)
            expect(
                after.O(0, 0, i, c) == before.O(0, 0, i, c) && after.lse(0, 0, i, 0) == before.lse(0, 0, i, 0),
                fmt::format("column {} of O of query {} was {} and became {} when the tiles of keys behind {} became "
                            "NaN, from key {} on",
                            c, i, before.O(0, 0, i, c), after.O(0, 0, i, c), query_tile_text(s, tiles, t), first),
                "a tile that no query of the block sees is computed: its P is 0, and 0 · NaN is NaN",
                "future-tile-used");
      }
    }
  }
}

TEST_CASE("causal with one query equals full attention", "[whole]") {
  for (const std::int64_t Nk : {1, 64, 239}) {
    for (const Tiles& tiles : all_tiles) {
      const Problem full = in_element(input("normal", {1, 2, 2, 1, Nk, 64}, 49).problem);
      Problem one = full;
      one.mask = true;
      const AttentionResult result = attention(one, tiles.numbers());
      const Forward oracle = forward_oracle(full);
      judge::Layout layout;
      layout.tensor = "O (expected: without the mask)";
      expect_close(result.O, {oracle.O, output_bounds(oracle, full, precision()), layout,
                              output_mistakes(one, {tiles.Br, tiles.Bc, 0, lane_rows(64, tiles)}),
                              describe(one, "normal, seed 49")});
    }
  }
}

TEST_CASE("the number of workers and the order of lanes change nothing", "[whole]") {
  const Problem problem = causal_input("rising maximum", {1, 3, 3, 140, 100, 64}, 50).problem;
  expect_order_changes_nothing(problem, Tiles{}.numbers());
}

TEST_CASE("200 runs are equal, bit for bit", "[whole]") {
  const Problem problem = causal_input("normal", {1, 2, 2, 40, 50, 32}, 51).problem;
  const Tiles tiles{32, 32};
  const AttentionResult first = attention(problem, tiles.numbers());
  for (int run = 1; run < 200; ++run) {
    const AttentionResult other = attention(problem, tiles.numbers());
    expect(other.O.values == first.O.values && other.lse.values == first.lse.values,
           fmt::format("run {} of the same call gives another O or LSE", run + 1),
           "two threads write one place, or add to it in an order that nothing fixes", "order-dependent");
  }
}

TEST_CASE("more heads than a grid has rows", "[whole]") {
  expect_every_head(Tiles{32, 32}.numbers(), true);
}

TEST_CASE("K and V are read up to the diagonal, Q once; O and the LSE are written once", "[whole]") {
  require_counters();
  for (const auto& [Nq, Nk] : {Lengths{256, 256}, {200, 333}, {333, 200}, {1, 300}, {300, 1}}) {
    for (const auto& [tiles, d] : {std::pair{Tiles{128, 64}, 64},
                                   {Tiles{128, 32}, 64},
                                   {Tiles{64, 64}, 64},
                                   {Tiles{32, 32}, 32},
                                   {Tiles{128, 64}, 128}}) {
      const Input given = causal_input("normal", {1, 2, 2, Nq, Nk, d}, 52);
      const Shape& s = given.problem.shape;
      const worker::Reply reply = attention(given.problem, tiles.numbers()).reply;
      const double row = double(s.d) * 2;
      const auto expect_bytes = [&](const std::string& name, double expected, const std::string& why) {
        expect_count(reply, name, expected,
                     fmt::format("{}, Nq={}, Nk={}, Br={}, Bc={}", why, s.Nq, s.Nk, tiles.Br, tiles.Bc),
                     "a tensor is moved more or less often than it must be", "traffic");
      };
      expect_products(counter(reply, "tensor_instructions"), s, true, 2,
                      fmt::format("S and O, Nq={}, Nk={}, Br={}, Bc={}", s.Nq, s.Nk, tiles.Br, tiles.Bc));
      const auto keys = [&](std::int64_t t) { return std::min(tiles_seen(s, tiles, t) * tiles.Bc, s.Nk); };
      for (const char* tensor : {"K", "V"}) {
        expect_bytes(fmt::format("{}.tiles", tensor),
                     double(over_query_tiles(s, tiles, [&](std::int64_t t) { return tiles_seen(s, tiles, t); })),
                     fmt::format("each tile of {} on or below the diagonal is read once per query tile", tensor));
        expect_bytes(fmt::format("{}.async_bytes", tensor), double(over_query_tiles(s, tiles, keys)) * row,
                     fmt::format("{} is read up to the last tile that a query tile sees", tensor));
      }
      expect_bytes("Q.async_bytes", double(s.H * s.Nq) * row, "Q is read once");
      expect_bytes("global.load_bytes", 0, "nothing is read but by cp.async");
      expect_bytes("O.store_bytes", double(s.H * s.Nq) * row, "O is written once");
      expect_bytes("lse.store_bytes", double(s.H * s.Nq * 4), "the LSE is written once");
    }
  }
}

TEST_CASE("every size of shared memory has tiles that fit", "[whole]") {
  // What a block may have on a T4, on RTX cards, on an A100, on an H100.
  for (const std::int64_t KiB : {64, 99, 163, 227}) {
    for (const std::int64_t d : head_dims) {
      const Input given = causal_input("normal", {1, 1, 1, 140, 200, d}, 54);
      expect_attention(given.problem, fmt::format("{}, {} KiB", given.name, KiB),
                       {{"shared_limit", double(KiB * 1024)}});
    }
  }
}

TEST_CASE("extra memory does not grow with N", "[whole]") {
  expect_no_extra_memory(53, true, "S, P or the mask");
}
