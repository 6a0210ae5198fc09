// Chapter 4: the Q split, phase by phase and as a whole, and its three kernels.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <numbers>
#include <tuple>
#include <utility>
#include <vector>

#include "common/attention/half.hpp"
#include "tests/support/forward_properties.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

/// Scores that rise every 32 keys, in row i by (i % 32 + 1)·rise/32: each row needs a different factor. V falls, so
/// that a missing rescaling shows.
Input rising_rows(float rise, const Shape& shape, std::uint64_t seed) {
  Input given = input("normal", shape, seed);
  add_to_scores(
      given, [=](std::int64_t i) { return rise * float(i % 32 + 1) / 32; },
      [](std::int64_t j) { return float(j / 32); });
  for (std::int64_t h = 0; h < shape.H; ++h)
    for (std::int64_t j = 0; j < std::min<std::int64_t>(shape.Nk, 64); ++j)
      for (std::int64_t c = 0; c < shape.d; ++c) given.problem.V(0, h, j, c) += 4;
  given.name += fmt::format(", scores of row i rise by (i % 32 + 1)/32 of {} every 32 keys", rise);
  return given;
}

}  // namespace

// ---- 4.1 work_of ----

TEST_CASE("every query of every head belongs to one warp", "[4.1]") {
  // An element that two warps write is reported; an element that no warp writes still holds its NaN.
  for (const std::int64_t Nq : {1, 31, 32, 33, 65, 127, 128, 129, 200}) {
    for (const Tiles& tiles : all_tiles(32)) expect_right(input("value mean", {1, 3, 3, Nq, 40, 32}, 30), tiles);
  }
  expect_right(input("value mean", {3, 2, 2, 70, 33, 64}, 31), {32, 32});
  expect_right(input("value mean", {2, 1, 1, 140, 20, 128}, 32), {64, 64});
  expect_every_kind_in_this_part();
}

TEST_CASE("each block takes one tile of one head's queries", "[4.1]") {
  // With one key O is its V, exactly: heads that are confused show, whatever Nq and Nk are.
  for (const auto& [B, H, Nq] : {std::tuple{1, 5, 100}, {4, 1, 33}, {2, 3, 64}}) {
    Input one = input("normal", {B, H, H, Nq, 1, 32}, 33);
    for (std::int64_t b = 0; b < B; ++b)
      for (std::int64_t h = 0; h < H; ++h)
        for (std::int64_t c = 0; c < 32; ++c) one.problem.V(b, h, 0, c) = float(b * H + h + 1);
    one.name += ", V of each head its number from 1 on";
    expect_right(one, {32, 32});
    expect_right(one);
  }
}

TEST_CASE("a warp has at most 32 rows, and Nq may exceed 32 bits", "[4.1]") {
  struct Case {
    std::int64_t block, warp, q_tiles, Nq, head, first_query, rows;  ///< where Br = 128
  };
  constexpr std::int64_t tiles = 1 << 26;
  for (const Case& p : {Case{3, 2, 2, 200, 1, 192, 8},
                        {3, 1, 2, 200, 1, 160, 32},
                        {0, 0, tiles, 128 * tiles, 0, 0, 32},
                        {tiles / 2 + 3, 2, tiles, 128 * tiles, 0, 64 * tiles + 448, 32},
                        {2 * tiles - 1, 3, tiles, 128 * tiles - 40, 1, 128 * tiles - 32, -8}}) {
    worker::Call request("work");
    request.number("block", double(p.block)).number("warp", double(p.warp));
    request.number("q_tiles", double(p.q_tiles)).number("Nq", double(p.Nq));
    request.output<std::int64_t>("work", 3);
    const auto got = call(request).output<std::int64_t>("work");
    const std::string what =
        fmt::format("block {}, warp {}, {} tiles of 128 queries a head, Nq = {}: ", p.block, p.warp, p.q_tiles, p.Nq);
    expect(got[0] == p.head, what + fmt::format("head {}, not {}", got[0], p.head));
    expect(got[1] == p.first_query, what + fmt::format("first query {}, not {}", got[1], p.first_query),
           "the first query is multiplied as an int, which ends at 2^31: queries are numbers of 64 bits",
           (got[1] - p.first_query) % (std::int64_t(1) << 32) == 0 ? "first-query-of-32-bits" : judge::kUnknown);
    expect(p.rows > 0 ? got[2] == p.rows : got[2] <= 0, what + fmt::format("{} rows, not {}", got[2], p.rows),
           "a warp has 32 rows of a tile for itself, however many follow",
           p.rows == 32 && got[2] > 32 ? "rows-of-the-next-warps" : judge::kUnknown);
  }
}

// ---- 4.2 multiply_QK ----

const Claims of_4_2 = {
    {"[4.2]", "Q split agrees with the oracle", [] { expect_every_kind(); }},
    {"[4.2]", "all columns and all keys contribute", [] { expect_every_column(); }},
};

TEST_CASE("S is stored and read without bank conflicts", "[4.2]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    for (const char* way : {"load", "store"}) {
      const auto conflicts = [&](const worker::Reply& reply) {
        return counter(reply, fmt::format("shared.{}_wavefronts", way)) -
               counter(reply, fmt::format("shared.{}_ideal", way));
      };
      const double more = growth_of(conflicts, "falling maximum", d, usual_tiles(d));
      expect(
          more == 0,
          fmt::format(
              "with d={} another 64 keys cost {} wavefronts of shared memory's {}s beyond those without bank conflicts",
              d, more, way),
          "your code has bank conflicts; S must be stored transposed, in rows of 32 + pad_accumulator floats",
          "bank-conflicts");
    }
  }
}

TEST_CASE("Q is not reloaded when registers hold it", "[4.2]") {
  require_counters();
  // For 32 queries and 64 keys: K and V by fragments of 512 bytes, four wavefronts of 128 bytes each, S and P once. At
  // d = 128 the two parts of Q besides, for each step and each 16 columns.
  for (const std::int64_t d : head_dims()) {
    const Tiles tiles = nearest_tiles(d, {64, 64});
    const double K = 4 * 4 * (double(d) / 16), S = 64, P = 32,
                 Q = d <= 64 ? 0 : 64.0 / double(tiles.Bc) * 4 * 2 * (double(d) / 16);
    const double expected = double(tiles.warps) * (2 * K + S + P + Q);
    const double got = growth("shared.load_wavefronts", d, tiles, "falling maximum");
    expect(
        got == expected,
        fmt::format(
            "with d={} another 64 keys cost {} warps {} wavefronts of shared memory's loads, expected {}: K {}, V {}, "
            "S {}, P {} and Q {} per warp",
            d, tiles.warps, got, expected, K, K, S, P, Q),
        d <= 64 ? "your code loads Q in every step; it must use fragments.Q, which holds it"
                : "your code must load each fragment of Q exactly once per step",
        "Q-loaded-again");
  }
}

// ---- 4.3 online_softmax ----

TEST_CASE("a maximum that rises in the last tile", "[4.3]") {
  expect_rising_maximum();
  expect_every_kind_in_this_part();
}

const Claims of_4_3 = {
    {"[4.3]", "each row has its own maximum", [] { expect_row_maxima(); }},
    {"[4.3]", "large logits stay finite", [] { expect_finite(); }},
};

TEST_CASE("negative scores need a maximum of -inf to start from", "[4.3]") {
  expect_right(input("negative logits", {1, 1, 1, 64, 128, 64}, 58));
  expect_right(input("negative logits", {1, 1, 1, 64, 70, 64}, 59), {32, 32});
}

TEST_CASE("a scale of any sign", "[4.3]") {
  expect_any_scale();
}

TEST_CASE("scores near the largest float", "[4.3]") {
  // Up to a scale of 10^26 the scores of fp16 fit a float, so that the m of every step is a number: the lesson says so
  // of 4.3, which has no m_safe. All scores are equal, and so is the LSE, but for log(Nk), which a float does not show
  // beside it. A score is a power of two, so that score · scale is rounded nowhere: an FMA of score · scale - m is 0.
  for (const std::int64_t d : head_dims()) {
    for (const float scale : {1e26f, -1e26f}) {
      for (const std::int64_t Nk : {40, 64}) {
        Input far = with_scale(input("uniform", {1, 1, 1, 40, Nk, d}, 61), scale);
        std::ranges::fill(far.problem.Q.values, 32768.0f);
        std::ranges::fill(far.problem.K.values, -32768.0f);
        const double score = -32768.0 * 32768.0 * double(d) * scale;
        const AttentionResult result = attention(far, {});
        for (const float lse : result.lse.values) {
          // In units of log2 the LSE of scores without their scale is score / scale.
          const bool unscaled = std::abs(lse * std::abs(scale) / score - std::numbers::ln2) < 1e-3;
          const bool another_score = lse > score && lse < -1e6 && !unscaled;
          expect(std::abs(lse / score - 1) < 1e-5,
                 fmt::format("with Q of 32768, K of -32768, d={}, Nk={} and a scale of {} every score and the LSE must "
                             "be {:.4g}; the LSE is {:.4g}",
                             d, Nk, scale, score, lse),
                 another_score ? "your code gives a missing key a finite score, or starts m at a finite number; both "
                                 "must be −∞"
                               : "",
                 another_score ? "finite-mask" : "");
        }
        expect(std::ranges::all_of(result.O.values, [](float x) { return std::isfinite(x); }),
               fmt::format("with scores of {:.4g} O is not finite, though the LSE is right", score));
      }
    }
  }
}

TEST_CASE("probabilities keep their precision", "[4.3]") {
  expect_precise_P();
}

// ---- 4.4 rescale_O ----

TEST_CASE("O and l are rescaled by the same factor", "[4.4]") {
  // With a V of ones O is one, whatever the weights are.
  for (const char* kind : {"rising maximum", "falling maximum", "large logits"}) {
    for (const Tiles& tiles : {Tiles{}, {32, 32}}) {
      expect_right(with_V_of_ones(input(kind, {1, 1, 1, 64, 200, 64}, 70)), tiles);
    }
  }
}

TEST_CASE("each row of O is rescaled by its own factor", "[4.4]") {
  for (const std::int64_t d : head_dims()) {
    for (const Tiles& tiles : {Tiles{}, {32, 32}}) expect_right(rising_rows(20, {1, 1, 1, 64, 128, d}, 71), tiles);
  }
  expect_every_kind_in_this_part();
  // The layout of an accumulator is undocumented: on the simulator each seed has another one.
  for (const int lane_seed : {1, 2, 3})
    expect_right(rising_rows(20, {1, 1, 1, 64, 128, 64}, 71), {32, 32}, {}, lane_seed);
  // Only one row of a warp rises, the others keep their maximum.
  for (const std::int64_t row : {0, 13, 16, 31}) {
    Input one_row = input("value mean", {1, 1, 1, 32, 96, 64}, 72);
    add_to_scores(
        one_row, [=](std::int64_t i) { return i == row ? 5 : 0; },
        [](std::int64_t j) { return j == 0 ? 6 : j / 64 * 6; });
    one_row.name += fmt::format(", only row {} rises, by 30 at key 64", row);
    expect_right(one_row, {32, 32});
  }
}

TEST_CASE("O is not rescaled when no maximum moves", "[4.4]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    const double shuffles = growth("shuffles", d, usual_tiles(d), "falling maximum");
    expect(shuffles == 0,
           fmt::format("with d={} another 64 keys cost {} shuffles, expected 0: no maximum rises", d, shuffles),
           "your code rescales O without a vote; it must return if the factors of all lanes are 1", "no-vote");
  }
}

// ---- 4.5 accumulate_PV ----

TEST_CASE("every key's value reaches O", "[4.5]") {
  expect_every_value();
  expect_every_kind_in_this_part();
}

const Claims of_4_5 = {
    {"[4.5]", "sums keep their precision over many tiles", [] { expect_precise_sums(); }},
    {"[4.5]", "S, P and O of a warp do not race", [] { expect_no_race(); }},
};

// ---- 4.6 write_output ----

TEST_CASE("the LSE is a natural logarithm over all keys", "[4.6]") {
  expect_lse_over_all_keys();
}

TEST_CASE("O is divided by l exactly once", "[4.6]") {
  expect_divided_once();
  expect_every_kind_in_this_part();
}

const Claims of_4_6 = {
    {"[4.6]", "every element of O is written once, and nothing else", [] { expect_every_element_written(); }},
    {"[4.6]", "O is written 16 bytes per thread", [] { expect_wide_O(); }},
};

TEST_CASE("each lane reads eight adjacent elements of O", "[4.6]") {
  require_counters();
  // The shared-memory loads of a block that do not depend on the number of tiles: Q, row_index once, and O. Rows padded
  // for fragment stores take two wavefronts instead of one when each lane reads 16 bytes.
  for (const std::int64_t d : head_dims()) {
    const auto loads = [&](std::int64_t Nk) {
      const Input given = input("falling maximum", {1, 1, 1, 32, Nk, d}, 97);
      return counter(attention(given, {32, 32}).reply, "shared.load_wavefronts");
    };
    const double once = 2 * loads(32) - loads(64);
    const double O = 2 * double(d), Q = d <= 64 ? double(d) / 16 * 2 * 4 : 0, row_index = 16;
    expect(once <= O + Q + row_index,
           fmt::format("with d={} a warp needs {} wavefronts of shared memory's loads beside those of its K/V tiles, "
                       "expected at most {}: Q {}, row_index {}, and O, 32 rows of {} floats, {}",
                       d, once, O + Q + row_index, Q, row_index, d, O),
           "your code reads fewer than 16 bytes of workspace.O per access; each lane must read two float4",
           "narrow-shared-reads");
  }
}

TEST_CASE("1 / l keeps the precision of fp32", "[4.6]") {
  // With Q = 0 every P is 1, and O the mean of V: of whole numbers, the nearest fp16.
  for (const std::int64_t d : head_dims()) {
    for (const std::int64_t Nk : {3, 7, 11, 49, 77}) {
      Problem problem = in_element(input("uniform", {1, 1, 1, 33, Nk, d}, 98).problem);
      std::ranges::fill(problem.Q.values, 0.0f);
      for (std::size_t at = 0; at < problem.V.values.size(); ++at) problem.V.values[at] = float((at * 37 + 11) % 61);
      const AttentionResult result = attention(problem, small_tiles(d).numbers());
      expect_written(result.O.values[0], "O");
      for (std::int64_t c = 0; c < d; ++c) {
        double sum = 0;
        for (std::int64_t j = 0; j < Nk; ++j) sum += problem.V(0, 0, j, c);
        const float got = result.O(0, 0, 0, c), wanted = rounded_to_half(float(sum / double(Nk)));
        expect(got == wanted,
               fmt::format("with Q = 0 and a V of whole numbers, O is their mean: column {} of {} keys (d={}) is {}, "
                           "expected {}, the nearest fp16",
                           c, Nk, d, got, wanted),
               "your code rounds 1 / l to fp16, or rounds O twice; it must round only the result", "inverse-in-fp16");
      }
    }
  }
}

// ---- 4.7 copy_tile ----

TEST_CASE("ragged tails are computed correctly", "[4.7]") {
  // Equal lengths first, to separate mistakes that show only with unequal ones.
  expect_right(input("late spike", {1, 1, 1, 70, 70, 32}, 70));
  expect_ragged_tails();
  expect_every_kind_in_this_part();
}

const Claims of_4_7 = {
    {"[4.7]", "data past the last key never reaches O", [] { expect_nothing_past_the_end(); }},
    {"[4.7]", "tiles are copied by cp.async, 16 bytes per thread", [] { expect_wide_tiles("async"); }},
};

// ---- 4.8 new_maximum ----

TEST_CASE("m moves only when a score exceeds it by more than slack", "[4.8]") {
  require_counters();
  // Normal scores rise by less than slack, so that no row's factor differs from 1 and no warp rescales.
  for (const std::int64_t d : head_dims()) {
    const Tiles tiles = usual_tiles(d);
    const double shuffles = growth("shuffles", d, tiles);
    // An m that follows every score spoils no number. Where one is wrong, the factors differ from 1 for that.
    const Input given = input("normal", {1, 1, 1, tiles.Br, 64, d}, 7);
    const bool only_follows = shuffles == 0 || is_right(given.problem, attention(given, tiles));
    expect(shuffles == 0,
           fmt::format("with d={} and normal scores another 64 keys cost {} shuffles, expected 0: O was rescaled{}", d,
                       shuffles, only_follows ? "" : ", and O or the LSE is wrong"),
           m_follows_too_early, only_follows ? "slack-ignored" : "");
  }
}

TEST_CASE("O is rescaled when a score exceeds m by more than slack", "[4.8]") {
  require_counters();
  // Scores that rise by 6.25 every 32 keys, 9 in units of log2: each warp rescales in each step, 16 shuffles a time.
  for (const std::int64_t d : head_dims()) {
    const Tiles tiles = nearest_tiles(d, {128, 32});
    const auto shuffles = [&](std::int64_t Nk) {
      Input rising = input("uniform", {1, 1, 1, tiles.Br, Nk, d}, 64);
      add_to_scores(
          rising, [](std::int64_t) { return 6.25; }, [](std::int64_t j) { return double(j / 32); });
      return counter(attention(rising, tiles).reply, "shuffles");
    };
    const double got = shuffles(192) - shuffles(128), expected = double(tiles.warps * 2 * 16);
    expect(got == expected,
           fmt::format("with d={} and scores that rise by 9 in units of log2 every 32 keys, 64 keys cost {} shuffles, "
                       "expected {}: 16 for each rescaling of {} warps",
                       d, got, expected, tiles.warps),
           "your code lets a score exceed m by more than `slack`; `slack` is in units of log2, like m",
           "slack-too-large");
  }
}

TEST_CASE("P never overflows", "[4.8]") {
  // Scores that rise by 15 every 32 keys: 2^21 relative to the m of the step before, where fp16 ends below 2^16.
  for (const std::int64_t d : head_dims())
    for (const Tiles& tiles : {Tiles{}, {32, 32}}) expect_right(rising_rows(15, {1, 1, 1, 64, 160, d}, 65), tiles);
  expect_right(input("large logits", {1, 1, 1, 64, 200, 64}, 66));
  expect_every_kind_in_this_part();
}

// ---- 4.9 the loop for d = 128 ----

TEST_CASE("d = 128 agrees with the oracle", "[4.9]") {
  // The simulator reports what is read before its copy has arrived, and what is overwritten while others read it.
  const auto expect_sizes = [](const std::vector<std::pair<int, int>>& sizes) {
    for (const Tiles& tiles : all_tiles(128))
      for (const auto& [Nq, Nk] : sizes) expect_right(input("rising maximum", {1, 2, 2, Nq, Nk, 128}, 120), tiles);
  };
  expect_sizes({{1, 1}});
  // Of several tiles first scores of which every key's counts: with a maximum that rises, whatever is wrong with the
  // last tile's K looks as if the tile were left out.
  expect_right(input("normal", {1, 1, 1, 70, 200, 128}, 119));
  expect_sizes({{70, 64}, {129, 65}, {100, 200}});
  for (const InputKind& kind : input_kinds()) expect_right(input(kind.name, {1, 1, 1, 70, 133, 128}, 121), {64, 64});
  for (const float scale : {-0.2f, 0.0f}) expect_right(with_scale(input("normal", {1, 1, 1, 40, 70, 128}, 124), scale));
}

TEST_CASE("d = 128 has two barriers per tile", "[4.9]") {
  require_counters();
  for (const Tiles& tiles : all_tiles(128)) {
    for (const std::int64_t Nk : {1, 64, 150}) {
      const std::int64_t Nq = 200, q_tiles = tiles_of(Nq, tiles.Br), kv_tiles = tiles_of(Nk, tiles.Bc);
      const worker::Reply reply =
          attention(input("normal", {1, 1, 1, Nq, Nk, 128}, 122).problem, tiles.numbers()).reply;
      expect_count(reply, "block_barriers", double(q_tiles * 2 * kv_tiles),
                   fmt::format("{} Q tiles · 2 · {} K/V tiles, d=128, {}", q_tiles, kv_tiles, tiles.text()),
                   "your code has a __syncthreads() that protects nothing, or lacks one", "barriers");
    }
  }
}

TEST_CASE("d = 128 copies each tile once", "[4.9]") {
  require_counters();
  const std::int64_t Nq = 200, Nk = 150, d = 128;
  for (const Tiles& tiles : all_tiles(d)) {
    const worker::Reply reply = attention(input("normal", {1, 1, 1, Nq, Nk, d}, 123).problem, tiles.numbers()).reply;
    for (const char* tensor : {"K", "V"}) {
      expect_count(
          reply, fmt::format("{}.async_bytes", tensor), double(tiles_of(Nq, tiles.Br) * Nk * d * 2),
          fmt::format("{} is read once for each of {} Q tiles, {}", tensor, tiles_of(Nq, tiles.Br), tiles.text()),
          "your code must copy each K/V tile exactly once per Q tile", "traffic");
    }
  }
}

TEST_CASE("d = 128 multiplies while it copies", "[4.9]") {
  expect_matmuls_beside_copies(128, 0.5);
}

// ---- The whole chapter ----

const Claims of_the_whole = {
    {"[whole]", "Q split agrees with chapter 3", [] { expect_agrees_with_previous(); }},
    {"[whole]", "the answer does not depend on Br, Bc or the number of warps", [] { expect_tiles_do_not_matter(); }},
};

TEST_CASE("any two lengths agree with the oracle", "[whole]") {
  expect_any_two_lengths();
  expect_every_kind();
}

const Claims of_the_whole_2 = {
    {"[whole]", "a row's answer depends on no other row of Q", [] { expect_rows_independent(); }},
    {"[whole]", "results do not depend on workers or lane order", [] { expect_order_changes_nothing(); }},
    {"[whole]", "200 runs are bitwise equal", [] { expect_repeatable(200); }},
    {"[whole]", "more heads than gridDim.y allows", [] { expect_every_head(); }},
    {"[whole]", "offsets may exceed 32 bits", [] { expect_offsets_beyond_32_bits(); }},
    {"[whole]", "Q is read once, O and LSE are written once, K and V are read once per Q tile", [] { expect_moves(); }},
};

TEST_CASE("one barrier per tile up to d = 64, two at d = 128", "[whole]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    const std::int64_t heads = 2, Nq = 200, Nk = 150, each = d <= 64 ? 1 : 2;
    const Problem problem = input("normal", {1, heads, heads, Nq, Nk, d}, 108).problem;
    for (const Tiles& tiles : all_tiles(d)) {
      const std::int64_t q_tiles = tiles_of(Nq, tiles.Br), kv_tiles = tiles_of(Nk, tiles.Bc);
      expect_count(attention(problem, tiles.numbers()).reply, "block_barriers",
                   double(heads * q_tiles * each * kv_tiles),
                   fmt::format("{} heads · {} Q tiles · {} · {} K/V tiles, d={}, {}", heads, q_tiles, each, kv_tiles, d,
                               tiles.text()),
                   "your code has a __syncthreads() that protects nothing, or lacks one", "barriers");
    }
    // Chapter 3 has three for each pair of tiles, and one more for a tile of queries.
    const Tiles tiles = nearest_tiles(d, {64, 64});
    const double now = counter(attention(problem, tiles.numbers()).reply, "block_barriers"),
                 before = counter(previous_attention(in_element(problem)).reply, "block_barriers");
    expect(
        now < before * double(each) / 3,
        fmt::format("with d={} and {} there are {} barriers; in chapter 3 there are {}", d, tiles.text(), now, before),
        "your code has a barrier that K and V do not need", "barriers");
  }
}

TEST_CASE("warps share only K and V through shared memory", "[whole]") {
  require_counters();
  // For 32 queries and Bc keys a warp reads the tiles of K and V by fragments of 512 bytes, four wavefronts of 128
  // bytes each, and stores and reads its own S (32 floats a key) and P (16 words a key). With d = 128 Q is read again.
  for (const std::int64_t d : head_dims()) {
    for (const Tiles& tiles : all_tiles(d)) {
      const double keys = 64, steps = keys / double(tiles.Bc), warps = double(tiles.warps);
      const double K = 4 * (keys / 16) * (double(d) / 16), S = keys, P = keys / 2;
      const double Q = d <= 64 ? 0 : steps * 4 * 2 * (double(d) / 16);
      const auto expect_most = [&](const std::string& way, double most, const std::string& why) {
        const double got = growth("shared." + way + "_wavefronts", d, tiles, "falling maximum");
        expect(got <= most,
               fmt::format(
                   "with d={}, {} another 64 keys cost {} wavefronts of shared memory's {}s, expected at most {}: {}",
                   d, tiles.text(), got, way, most, why),
               "your warps must store only S and P of their own rows in shared memory, without bank conflicts",
               "shared-traffic");
      };
      expect_most("load", warps * (2 * K + S + P + Q), "K, V, and each warp's own S and P");
      expect_most("store", warps * (S + P), "each warp's own S and P");
    }
  }
  // And chapter 3 takes more than two and a half times as many, at the usual sizes of both, on any GPU.
  const auto wavefronts = [](const worker::Reply& reply) {
    return counter(reply, "shared.load_wavefronts") + counter(reply, "shared.store_wavefronts");
  };
  const Problem problem = in_element(input("normal", {1, 1, 1, 128, 512, 64}, 109).problem);
  const double now = wavefronts(attention(problem).reply), before = wavefronts(previous_attention(problem).reply);
  expect(
      5 * now < 2 * before,
      fmt::format("with Nq=128, Nk=512, d=64 there are {} wavefronts, expected less than two fifths of chapter 3's {}",
                  now, before),
      "your warps must store only S and P of their own rows in shared memory", "shared-traffic");
}

TEST_CASE("extra memory does not grow with N", "[whole]") {
  expect_no_extra_memory();
}

TEST_CASE("kernels 1 and 2 agree with the oracle", "[whole]") {
  for (const double kernel : {1, 2}) {
    for (const std::int64_t d : head_dims()) {
      for (const Tiles& tiles : all_tiles(d, {{"kernel", kernel}})) {
        for (const auto& [Nq, Nk] : {std::pair{100, 150}, {64, 64}, {1, 70}, {130, 3}})
          for (const char* kind : {"rising maximum", "value mean"})
            expect_right(input(kind, {1, 2, 2, Nq, Nk, d}, 111), tiles);
      }
    }
  }
}

TEST_CASE("kernel 1 has two barriers per tile and loads K and V, kernel 2 has one and copies them", "[whole]") {
  require_counters();
  const std::int64_t heads = 2, Nq = 200, Nk = 150;
  for (const std::int64_t d : head_dims()) {
    for (const int kernel : {1, 2}) {
      const Tiles tiles = usual_tiles(d, {{"kernel", double(kernel)}});
      const worker::Reply reply = attention(input("normal", {1, heads, heads, Nq, Nk, d}, 112), tiles).reply;
      const std::int64_t q_tiles = tiles_of(Nq, tiles.Br), kv_tiles = tiles_of(Nk, tiles.Bc);
      expect_count(reply, "block_barriers", double(heads * q_tiles * (kernel == 1 ? 2 : 1) * kv_tiles),
                   fmt::format("{} heads · {} Q tiles · {} · {} K/V tiles, d={}, {}", heads, q_tiles,
                               kernel == 1 ? 2 : 1, kv_tiles, d, tiles.text()),
                   "the given kernel was changed", "barriers");
      for (const char* tensor : {"K", "V"}) {
        expect_count(reply, fmt::format("{}.{}_bytes", tensor, kernel == 1 ? "load" : "async"),
                     double(heads * q_tiles * Nk * d * 2),
                     fmt::format("{} is read once for each of {} Q tiles, d={}, {}", tensor, q_tiles, d, tiles.text()),
                     "your code must move each tensor as often as the count says", "traffic");
      }
    }
  }
}

TEST_CASE("m follows the maximum in kernels 1 and 2", "[whole]") {
  require_counters();
  // Scores that rise by 1 every 32 keys, less than slack: kernel 3 never rescales, the others in every step.
  for (const int kernel : {1, 2, 0}) {
    const auto shuffles = [&](std::int64_t Nk) {
      Input rising = input("uniform", {1, 1, 1, 32, Nk, 64}, 113);
      add_to_scores(
          rising, [](std::int64_t) { return 1; }, [](std::int64_t j) { return double(j / 32); });
      return counter(attention(rising, small_tiles(64, {{"kernel", double(kernel)}})).reply, "shuffles");
    };
    const double expected = kernel == 0 ? 0 : 2 * 16, got = shuffles(128) - shuffles(64);
    expect(got == expected,
           fmt::format("with scores that rise by 1 every 32 keys, 64 keys cost {} shuffles in kernel {}, expected {}",
                       got, kernel == 0 ? 3 : kernel, expected),
           "m must follow every new maximum in kernels 1 and 2, but in kernel 3 only a score above m + slack",
           "slack-ignored");
  }
}

TEST_CASE("every size of shared memory has tiles that fit", "[whole]") {
  expect_tiles_for_every_size();
}
