// Chapter 5, the causal mask: which tiles are read and masked, and the order of the blocks.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "common/attention/element.hpp"
#include "tests/support/forward_properties.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

/// Lengths of Q and K.
struct Lengths {
  std::int64_t Nq, Nk;
};

Input causal_input(const std::string& kind, const Shape& shape, std::uint64_t seed) {
  return input(kind, shape, seed, true);
}

/// The number of K/V tiles, from the first on, that Q tile `t` computes without a mask: its first query sees all of
/// their keys.
std::int64_t tiles_below(const Shape& s, const Tiles& tiles, std::int64_t t) {
  return visible_keys(t * tiles.Br, s.Nq, s.Nk, true) / tiles.Bc;
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

/// What each block of a launch read and masked, in the order of the block indices.
struct Block {
  std::int64_t head, q_tile;                    ///< -1 if it read no query
  std::int64_t K_tiles, V_tiles, masked_tiles;  ///< tile j as bit j
};
std::vector<Block> blocks_of(const Problem& problem, const Tiles& tiles) {
  const Shape& s = problem.shape;
  const auto count = std::size_t(tiles_of(s.Nq, tiles.Br) * s.B * s.H);
  const auto send = [&](const worker::Call& asked) {
    worker::Call request = asked;
    for (const char* name : {"first_row", "K_tiles", "V_tiles", "masked_tiles"})
      request.output<std::int64_t>(name, count);
    return call(request);
  };
  const worker::Reply reply = worker::forward(encoded(problem, float16), tiles.numbers(), send, "blocks").reply;
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

/// "Q tile 2 (queries 128 to 191)", for messages.
std::string q_tile_text(const Shape& s, const Tiles& tiles, std::int64_t t) {
  return fmt::format("Q tile {} (queries {} to {}; Nq={}, Nk={}, Br={}, Bc={})", t, t * tiles.Br,
                     std::min((t + 1) * tiles.Br, s.Nq) - 1, s.Nq, s.Nk, tiles.Br, tiles.Bc);
}

constexpr Lengths boundary_lengths[] = {{256, 256}, {200, 333}, {333, 200}, {130, 1000}};

}  // namespace

// ---- 5.1 kv_tiles ----

TEST_CASE("causal reads only tiles on or below the diagonal", "[5.1]") {
  require_counters();
  for (const auto& [Nq, Nk] : boundary_lengths) {
    for (const Tiles& tiles : all_tiles(64)) {
      const Input given = causal_input("normal", {1, 1, 1, Nq, Nk, 64}, 1);
      const Shape& s = given.problem.shape;
      for (const Block& block : blocks_of(given.problem, tiles)) {
        if (block.q_tile < 0) continue;
        const std::int64_t seen = visited_tiles(given.problem, tiles, block.q_tile), all = first_tiles(seen);
        for (const auto& [name, read] : {std::pair{"K", block.K_tiles}, {"V", block.V_tiles}}) {
          expect(
              (read & ~all) == 0,
              fmt::format("{} needs the first {} K/V tiles, and your code also reads {} of {}",
                          q_tile_text(s, tiles, block.q_tile), seen, tiles_text(read & ~all), name),
              "your code reads and masks tiles above the diagonal; it must skip them: the range must end at the last "
              "visible key of the Q tile's last query",
              "tiles-above-diagonal");
        }
      }
    }
  }
}

TEST_CASE("causal reads every tile with a visible key", "[5.1]") {
  // The last visible key of each query has the largest weight.
  for (const auto& [Nq, Nk] :
       {Lengths{234, 384}, {191, 256}, {129, 129}, {65, 97}, {97, 65}, {33, 200}, {200, 33}, {70, 133}, {1, 1}}) {
    for (const Tiles& tiles : all_tiles(64))
      expect_right(causal_input("rising maximum", {1, 1, 1, Nq, Nk, 64}, 2), tiles);
  }
  for (const std::int64_t d : {32, 128}) expect_right(causal_input("rising maximum", {1, 1, 1, 129, 193, d}, 3));
  expect_every_kind_in_this_part();
}

TEST_CASE("the mask is aligned at the bottom right", "[5.1]") {
  // The last query sees every key.
  for (const auto& [Nq, Nk] : {Lengths{130, 170}, {170, 130}, {1, 200}, {40, 200}, {200, 40}}) {
    expect_right(causal_input("uniform", {1, 2, 2, Nq, Nk, 64}, 4));
    expect_right(causal_input("value mean", {1, 1, 1, Nq, Nk, 32}, 5), {32, 32});
  }
}

TEST_CASE("without the mask every tile is read, even if Nq and Nk differ", "[5.1]") {
  // The last key has the largest weight in every Q tile, so a range that ends at the diagonal fails in all but the
  // last.
  for (const auto& [Nq, Nk] : {Lengths{200, 333}, {260, 260}, {130, 1000}, {333, 200}, {300, 64}}) {
    for (const Tiles& tiles : all_tiles(64)) expect_right(input("rising maximum", {1, 1, 1, Nq, Nk, 64}, 6), tiles);
  }
  expect_right(input("late spike", {2, 3, 3, 150, 280, 32}, 7), {32, 32});
  expect_right(input("late spike", {1, 2, 2, 300, 200, 128}, 8));
}

// ---- 5.2 mask_boundary ----

TEST_CASE("no query attends to a later key", "[5.2]") {
  expect_right(causal_input("normal", {1, 1, 1, 96, 96, 64}, 12), {32, 32});
  expect_right(causal_input("value mean", {1, 1, 1, 192, 128, 64}, 12));
  for (const std::int64_t query : {0, 31, 32, 63, 64, 98}) {
    expect_no_influence_from_the_future(causal_input("normal", {1, 1, 1, 100, 100, 64}, 10).problem, query,
                                        nearest_tiles(64, {64, 64}).numbers());
    expect_no_influence_from_the_future(causal_input("normal", {1, 1, 1, 100, 140, 32}, 11).problem, query,
                                        usual_tiles(32).numbers());
  }
}

TEST_CASE("every query attends to the key at its position", "[5.2]") {
  for (const auto& [Nq, Nk] : {Lengths{130, 130}, {64, 140}, {140, 64}}) {
    for (const Tiles& tiles : all_tiles(64))
      expect_right(causal_input("rising maximum", {1, 1, 1, Nq, Nk, 64}, 13), tiles);
  }
  expect_every_kind_in_this_part();
}

TEST_CASE("a masked score is -inf at a scale of any sign", "[5.2]") {
  for (const float scale : {0.3f, 0.0f, -0.05f, -0.3f}) {
    for (const Tiles& tiles : {Tiles{128, 64}, {32, 32}}) {
      expect_right(with_scale(causal_input("normal", {1, 1, 1, 100, 128, 64}, 14), scale), tiles);
    }
  }
}

TEST_CASE("only boundary tiles are masked", "[5.2]") {
  require_counters();
  for (const auto& [Nq, Nk] : boundary_lengths) {
    for (const Tiles& tiles : all_tiles(64)) {
      const Input given = causal_input("normal", {1, 1, 1, Nq, Nk, 64}, 15);
      const Shape& s = given.problem.shape;
      for (const Block& block : blocks_of(given.problem, tiles)) {
        const std::int64_t below = tiles_below(s, tiles, block.q_tile);
        const std::int64_t wrongly = block.masked_tiles & first_tiles(below);
        expect(
            wrongly == 0,
            fmt::format(
                "in {} every query attends to all keys of the first {} K/V tiles, but your code applies a mask in {}",
                q_tile_text(s, tiles, block.q_tile), below, tiles_text(wrongly)),
            "your code masks tiles below the diagonal; it must vote whether a row has fewer than `step` visible keys",
            "mask-below-diagonal");
      }
    }
  }
}

TEST_CASE("all boundary tiles are masked, even if there are several", "[5.2]") {
  // With Q = 0 all visible keys have the same weight.
  for (const auto& [Nq, Nk] : {Lengths{256, 256}, {200, 233}, {233, 200}, {100, 150}}) {
    for (const Tiles& tiles : all_tiles(64)) {
      const Input given = causal_input("uniform", {1, 1, 1, Nq, Nk, 64}, 16);
      const AttentionResult result = expect_right(given, tiles);
      if (result.reply.counters.empty()) continue;  // there are no counters on the GPU
      const Shape& s = given.problem.shape;
      const auto masked = [&](std::int64_t t) {
        return visited_tiles(given.problem, tiles, t) - tiles_below(s, tiles, t);
      };
      expect_count(
          result.reply, "note.masked tile", double(over_q_tiles(s, tiles, masked)),
          fmt::format("the tiles that the diagonal crosses, over all Q tiles, with Nq={}, Nk={}, Br={}, "
                      "Bc={}",
                      s.Nq, s.Nk, tiles.Br, tiles.Bc),
          "your code must mask exactly the steps in which a row of the warp has a masked key, and record each by "
          "workbook::cuda::note(\"masked tile\", tile)",
          "masked-tiles");
    }
  }
}

TEST_CASE("ragged tails are computed correctly", "[5.2]") {
  expect_ragged_tails();
}

// ---- 5.3 update_row ----

TEST_CASE("fully masked rows give O = 0 and LSE = -inf, never NaN", "[5.3]") {
  expect_rows_without_keys();
  expect_right(causal_input("large logits", {1, 1, 1, 90, 50, 64}, 21), {32, 32});
  expect_right(causal_input("negative logits", {1, 1, 1, 90, 50, 64}, 22), {64, 64});
}

TEST_CASE("a row without visible keys in a tile keeps m, l and O", "[5.3]") {
  // The first 32 of 128 queries see none of the last keys that their block reads.
  for (const char* kind : {"normal", "falling maximum", "negative logits"}) {
    for (const Tiles& tiles : all_tiles(64)) expect_right(causal_input(kind, {1, 1, 1, 128, 192, 64}, 23), tiles);
    expect_right(causal_input(kind, {1, 1, 1, 128, 192, 128}, 24), {128, 32});
  }
}

TEST_CASE("scores of -inf give a P of 0", "[5.3]") {
  // Each row begins with 64 scores of -inf. Scores of about -60000 must give the same result: their P is 0 too.
  const std::int64_t Nq = 40, Nk = 150, d = 64;
  Input given = causal_input("value mean", {1, 1, 1, Nq, Nk, d}, 32);
  for (std::int64_t i = 0; i < Nq; ++i) given.problem.Q(0, 0, i, 0) = 8;
  const auto with = [&](float first_of_K) {
    for (std::int64_t j = 0; j < 64; ++j) given.problem.K(0, 0, j, 0) = first_of_K;
    return attention(given, small_tiles(d));
  };
  const AttentionResult below = with(-60000), none = with(-std::numeric_limits<float>::infinity());
  const bool lse_is_right = none.lse.values == below.lse.values;
  for (std::size_t at = 0; at < none.O.values.size(); ++at) {
    const float is = none.O.values[at], wanted = below.O.values[at];
    const bool known = lse_is_right && !std::isfinite(is) && std::isfinite(wanted);
    expect(is == wanted,
           fmt::format(
               "O of row {}, column {} is {} if the scores of the first 64 keys are -inf, and {} if they are about "
               "-60000; their P is 0 in both cases, so O must be equal{}",
               std::int64_t(at) / d, std::int64_t(at) % d, is, wanted, lse_is_right ? ", as the LSE is" : ""),
           known ? "in a row without a visible key so far, your P or factor is ±∞ or NaN; P must be 0, and the factor "
                   "finite"
                 : "",
           known ? "infinite-P" : "unknown");
  }
  expect(lse_is_right,
         "the LSE changes if the scores of the first 64 keys are -inf instead of about -60000; it must not");
}

TEST_CASE("a maximum that rises in the last tile", "[5.3]") {
  expect_rising_maximum();
  for (const std::int64_t d : head_dims())
    expect_right(causal_input("late spike", {1, 1, 1, 70, 100, d}, 27), {64, 64});
  expect_every_kind_in_this_part();
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
  // After a row's first keys, normal scores rise by less than slack. So 64 more keys below the diagonal cost no
  // shuffle: every factor is 1.
  for (const std::int64_t d : head_dims()) {
    for (const Tiles& tiles : {usual_tiles(d), small_tiles(d)}) {
      const double more = growth("shuffles", d, tiles);
      // An m that follows every score gives correct results. If the results are wrong, the factors differ from 1 for
      // another reason.
      const Input many = input("normal", {1, 1, 1, tiles.Br, 192, d}, 7);
      const bool only_follows = more == 0 || is_right(many.problem, attention(many, tiles));
      expect(more == 0,
             fmt::format(
                 "with d={}, Br={} and normal scores another 64 keys cost {} shuffles, expected 0: O was rescaled{}", d,
                 tiles.Br, more, only_follows ? "" : ", and O or the LSE is wrong"),
             m_follows_too_early, only_follows ? "slack-ignored" : "");
    }
  }
}

// ---- 5.4 work_of ----

TEST_CASE("every Q tile of every head is computed once", "[5.4]") {
  for (const std::int64_t H : {1, 7, 8, 9, 19})
    expect_right(causal_input("value mean", {1, H, H, 70, 40, 32}, 30), {32, 32});
  expect_right(causal_input("value mean", {3, 3, 3, 65, 80, 32}, 31), {32, 32});
  expect_every_kind_in_this_part();
}

TEST_CASE("the longest blocks start first", "[5.4]") {
  require_counters();
  const Tiles tiles = nearest_tiles(32, {32, 32});
  for (const std::int64_t H : {3, 8, 19}) {
    const Input given = causal_input("normal", {1, H, H, 150, 150, 32}, 32);
    const std::vector<Block> blocks = blocks_of(given.problem, tiles);
    const std::int64_t full_group = 8 * tiles_of(150, tiles.Br);
    for (std::size_t i = 1; i < blocks.size(); ++i) {
      if (std::int64_t(i) % full_group == 0) continue;  // the next group of heads begins
      const std::int64_t before = std::popcount(std::uint64_t(blocks[i - 1].K_tiles)),
                         now = std::popcount(std::uint64_t(blocks[i].K_tiles));
      expect(
          now <= before,
          fmt::format("with {} heads block {} reads {} K/V tiles, but block {}, which starts before it, reads only {}",
                      H, i, now, i - 1, before),
          "your code must start the last Q tiles of a group of heads first, since they have the most visible keys",
          "launch-order");
    }
  }
}

TEST_CASE("heads are launched in groups of eight", "[5.4]") {
  require_counters();
  const Tiles tiles = nearest_tiles(32, {32, 32});
  for (const std::int64_t H : {8, 19}) {
    const Input given = causal_input("normal", {1, H, H, 100, 100, 32}, 33);
    const std::vector<Block> blocks = blocks_of(given.problem, tiles);
    const std::int64_t q_tiles = tiles_of(100, tiles.Br);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const std::int64_t group = std::int64_t(i) / (8 * q_tiles), last = std::min(8 * group + 8, H) - 1;
      expect(blocks[i].head / 8 == group,
             fmt::format(
                 "with {} heads of {} Q tiles, block {} computes head {}; blocks {} to {} must compute heads {} to {}",
                 H, q_tiles, i, blocks[i].head, 8 * group * q_tiles, (last + 1) * q_tiles - 1, 8 * group, last),
             "your code must form groups of `heads_per_group` heads and launch them group by group", "heads-together");
    }
  }
}

// ---- 5.5 the kernel's body ----

TEST_CASE("both schedules agree with the oracle", "[5.5]") {
  // The simulator reports tiles that are read before their copy is complete or overwritten while they are read.
  for (const std::int64_t d : head_dims()) {
    for (const Tiles& tiles : {Tiles{128, 32}, Tiles{64, 64}}) {
      for (const auto& [Nq, Nk] : {Lengths{1, 1}, {100, 200}, {200, 70}})
        expect_right(causal_input("rising maximum", {1, 2, 2, Nq, Nk, d}, 55), tiles);
      expect_right(input("rising maximum", {1, 1, 1, 70, 150, d}, 56), tiles);
    }
  }
  expect_every_kind_in_this_part();
}

TEST_CASE("one barrier per tile with two buffers, two with one", "[5.5]") {
  require_counters();
  for (const std::int64_t d : {64, 128}) {
    for (const auto& [Nq, Nk] : {Lengths{200, 333}, {333, 200}}) {
      for (const Tiles& tiles : {usual_tiles(d), nearest_tiles(d, {64, 64})}) {
        const Input given = causal_input("normal", {1, 1, 1, Nq, Nk, d}, 57);
        const Shape& s = given.problem.shape;
        const std::int64_t seen =
            over_q_tiles(s, tiles, [&](std::int64_t t) { return visited_tiles(given.problem, tiles, t); });
        const int waits = d == 128 ? 2 : 1;
        expect_count(
            attention(given.problem, tiles.numbers()).reply, "block_barriers", double(waits * seen),
            fmt::format("{} per K/V tile that a Q tile needs, {} such pairs of tiles: d={}, Nq={}, Nk={}, Br={}, "
                        "Bc={}",
                        waits, seen, d, Nq, Nk, tiles.Br, tiles.Bc),
            "your code has a __syncthreads() that protects nothing, or lacks one", "barriers");
      }
    }
  }
}

TEST_CASE("each Q tile copies each K/V tile that it needs once", "[5.5]") {
  require_counters();
  for (const std::int64_t d : {64, 128}) {
    for (const auto& [Nq, Nk] : {Lengths{200, 150}, {300, 90}}) {
      const Tiles tiles = usual_tiles(d);
      const Input given = causal_input("normal", {1, 1, 1, Nq, Nk, d}, 58);
      const Shape& s = given.problem.shape;
      const worker::Reply reply = attention(given.problem, tiles.numbers()).reply;
      const auto keys = [&](std::int64_t t) {
        return std::min(visited_tiles(given.problem, tiles, t) * tiles.Bc, s.Nk);
      };
      for (const char* tensor : {"K", "V"}) {
        expect_count(reply, fmt::format("{}.async_bytes", tensor), double(over_q_tiles(s, tiles, keys) * d * 2),
                     fmt::format("the rows of {} up to the last K/V tile that a Q tile needs: d={}, Nq={}, Nk={}",
                                 tensor, d, Nq, Nk),
                     "your code must copy each K/V tile that a Q tile needs exactly once, and no other tile",
                     "traffic");
      }
      expect_count(reply, "Q.async_bytes", double(Nq * d * 2), fmt::format("Q once: d={}, Nq={}, Nk={}", d, Nq, Nk),
                   "your code must copy Q exactly once", "traffic");
    }
  }
}

TEST_CASE("tiles are copied during the matmuls", "[5.5]") {
  for (const std::int64_t d : head_dims()) expect_matmuls_beside_copies(d, d == 128 ? 0.5 : 1);
}

// ---- The whole chapter ----

TEST_CASE("causal agrees with the oracle", "[whole]") {
  expect_every_kind();
  expect_any_two_lengths();
}

const Claims of_the_whole = {
    {"[whole]", "without the mask it agrees with chapter 4", [] { expect_agrees_with_previous(); }},
    {"[whole]", "the answer does not depend on Br, Bc or the number of warps", [] { expect_tiles_do_not_matter(); }},
    {"[whole]", "future positions have zero influence", [] { expect_no_future(); }},
};

TEST_CASE("causal with one query equals full attention", "[whole]") {
  for (const std::int64_t Nk : {1, 64, 239}) {
    for (const Tiles& tiles : all_tiles(64)) {
      const Problem full = in_element(input("normal", {1, 2, 2, 1, Nk, 64}, 49).problem);
      Problem one = full;
      one.mask = true;
      const AttentionResult result = attention(one, tiles.numbers());
      const Forward oracle = forward_oracle(full);
      judge::Layout layout;
      layout.tensor = "O (expected: without the mask)";
      expect_close(result.O,
                   {oracle.O, output_bounds(oracle, full, precision()), layout, describe(one, "normal, seed 49")});
    }
  }
}

const Claims of_the_whole_2 = {
    {"[whole]", "results do not depend on workers or lane order", [] { expect_order_changes_nothing(); }},
    {"[whole]", "200 runs are bitwise equal", [] { expect_repeatable(200); }},
    {"[whole]", "more heads than gridDim.y allows", [] { expect_every_head(); }},
    {"[whole]", "offsets may exceed 32 bits", [] { expect_offsets_beyond_32_bits(); }},
    {"[whole]", "K and V are read up to the diagonal, Q once; O and the LSE are written once", [] { expect_moves(); }},
    {"[whole]", "every size of shared memory has tiles that fit", [] { expect_tiles_for_every_size(); }},
    {"[whole]", "extra memory does not grow with N", [] { expect_no_extra_memory("S, P or the mask"); }},
};
