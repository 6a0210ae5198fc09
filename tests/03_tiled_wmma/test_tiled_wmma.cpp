// Chapter 3: the fused kernel, phase by phase and whole: right on every tile size, with the traffic that it promises.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "common/attention/half.hpp"
#include "tests/support/forward_properties.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

/// The scaled scores of key `key` are about `spike`, all others about `base`, in every row and head.
Input spike_at(std::int64_t key, float spike, float base, const Shape& shape, std::uint64_t seed) {
  Input spiked = input("normal", shape, seed);
  Problem& problem = spiked.problem;
  const float g = std::sqrt(std::max(std::abs(spike), std::abs(base)) / problem.scale);
  for (std::int64_t b = 0; b < shape.B; ++b) {
    for (std::int64_t h = 0; h < shape.H; ++h) {
      for (std::int64_t i = 0; i < shape.Nq; ++i) problem.Q(b, h, i, 0) = g;
      for (std::int64_t j = 0; j < shape.Nk; ++j)
        problem.K(b, h, j, 0) = (j == key ? spike : base) / (problem.scale * g);
    }
  }
  spiked.kind.clear();
  spiked.name += fmt::format(", scores of key {} about {}, others about {}", key, spike, base);
  return spiked;
}

/// Every third row of Q has an infinite element where all keys are negative: its scores are all -inf. Such a row has
/// O = 0 and an LSE of -inf, and the rows beside it take no notice.
void expect_rows_without_scores(const std::string& cause, const std::string& diagnosis) {
  const std::int64_t Nq = 70, Nk = 100, d = 64;
  Input given = input("normal", {1, 1, 1, Nq, Nk, d}, 97);
  for (std::int64_t j = 0; j < Nk; ++j) given.problem.K(0, 0, j, 0) = -1;
  const AttentionResult before = expect_right(given);
  for (std::int64_t i = 0; i < Nq; i += 3) {
    for (std::int64_t c = 0; c < d; ++c) given.problem.Q(0, 0, i, c) = 0;
    given.problem.Q(0, 0, i, 0) = std::numeric_limits<float>::infinity();
  }
  const AttentionResult after = attention(given, Tiles{});
  for (std::int64_t i = 0; i < Nq; ++i) {
    const bool none = i % 3 == 0;
    for (std::int64_t c = 0; c < d; ++c) {
      const float is = after.O(0, 0, i, c), wanted = none ? 0 : before.O(0, 0, i, c);
      expect(is == wanted,
             fmt::format("O of row {}, column {} is {}, expected {}: with Nq={}, Nk={}, d={} all scores of every third "
                         "row are -inf, from row 0 on",
                         i, c, is, wanted, Nq, Nk, d),
             none && std::isnan(is) ? cause : "", none && std::isnan(is) ? diagnosis : "unknown");
    }
    const float lse = after.lse(0, 0, i, 0);
    expect(!none || lse == -std::numeric_limits<float>::infinity(),
           fmt::format("the LSE of row {} is {}, expected -inf: all scores of that row are -inf", i, lse),
           std::isnan(lse) ? cause : "", std::isnan(lse) ? diagnosis : "unknown");
  }
}

/// Another 64 keys cost no wavefront more than shared memory needs for its loads, and for its stores no more than
/// those of S: a fragment's four rows of eight floats overlap in half of the banks (question 4 of Part 2).
void expect_no_conflicts(const std::string& way, std::int64_t d, const std::string& cause) {
  require_counters();
  const Tiles tiles = usual_tiles(d);
  const auto conflicts = [&](const worker::Reply& reply) {
    return counter(reply, "shared." + way + "_wavefronts") - counter(reply, "shared." + way + "_ideal");
  };
  const double more = growth_of(conflicts, "normal", d, tiles),
               allowed = way == "store" ? double(tiles.Br * 64) / 32 : 0;
  expect(
      more <= allowed,
      fmt::format(
          "with d={} another 64 keys cost {} wavefronts of shared memory's {}s beyond those without bank conflicts{}",
          d, more, way, allowed > 0 ? fmt::format("; the stores of S may cost {}", allowed) : ""),
      cause, "bank-conflicts");
}

}  // namespace

// ---- 3.6 load_tile ----

TEST_CASE("ragged tails are computed correctly", "[3.6]") {
  expect_ragged_tails();
  expect_every_kind_in_this_part();
}

const Claims of_3_6 = {
    {"[3.6]", "data past the last key never reaches O", [] { expect_nothing_past_the_end(); }},
    {"[3.6]", "tiles are read 16 bytes per thread", [] { expect_wide_tiles("load"); }},
    {"[3.6]", "rows past the end are not read", [] { expect_moves({.in = "load"}); }},
};

// ---- 3.7 multiply_QK ----

const Claims of_3_7 = {
    {"[3.7]", "fused attention agrees with the oracle", [] { expect_every_kind(); }},
    {"[3.7]", "all columns and all keys contribute", [] { expect_every_column(); }},
};

TEST_CASE("a warp may have more than 16 keys", "[3.7]") {
  for (const Tiles& tiles : {Tiles{32, 64, 2}, {64, 128, 4}, {32, 32, 1}})
    expect_right(input("one hot", {1, 1, 1, 40, 140, 64}, 43), tiles);
}

// ---- 3.8 row_maxima ----

TEST_CASE("each row has its own maximum", "[3.8]") {
  expect_row_maxima();
  expect_every_kind_in_this_part();
}

TEST_CASE("the row maximum covers all of a warp's keys", "[3.8]") {
  // Far above the others, which are far above 0: a P relative to a smaller maximum is infinite in fp16.
  for (const std::int64_t key : {0, 7, 15, 16, 31, 50, 63}) {
    expect_right(spike_at(key, 60, 20, {1, 1, 1, 40, 64, 64}, 45));
    expect_right(spike_at(key, 60, 20, {1, 1, 1, 33, 64, 32}, 46), {32, 64, 2});
  }
}

TEST_CASE("negative scores need a maximum of -inf to start from", "[3.8]") {
  expect_right(input("negative logits", {1, 1, 1, 64, 128, 64}, 57));
  expect_right(input("negative logits", {1, 1, 1, 64, 70, 64}, 58), {32, 32});
}

TEST_CASE("missing keys are masked", "[3.8]") {
  // In the last tile one key is missing; then all keys of three warps, of two, of one; then all but a few.
  for (const std::int64_t Nk : {63, 80, 96, 112, 65, 5, 1}) {
    expect_right(input("normal", {1, 1, 1, 40, Nk, 64}, 48));
    expect_right(input("negative logits", {1, 1, 1, 40, Nk, 64}, 47));
  }
}

TEST_CASE("a scale of any sign", "[3.8]") {
  expect_any_scale();
}

TEST_CASE("a lane reads scores as float4", "[3.8]") {
  expect_no_conflicts(
      "load", 64,
      "your code reads the scores one at a time, so lanes with different rows access the same banks; it "
      "must read four at a time with float4_at()");
}

// ---- 3.9 exponentiate ----

TEST_CASE("a maximum that rises in the last tile", "[3.9]") {
  expect_rising_maximum();
  expect_every_kind_in_this_part();
}

TEST_CASE("the maximum may be among any warp's keys", "[3.9]") {
  // Far above the others, which are far above 0: a P relative to a smaller maximum is infinite in fp16.
  for (const std::int64_t key : {64 + 50, 64 + 47, 64 + 30, 64 + 10, 60, 40, 20, 3}) {
    expect_right(spike_at(key, 60, 20, {1, 1, 1, 40, 128, 64}, 53));
    expect_right(spike_at(key, 60, 20, {1, 1, 1, 33, 128, 32}, 54), {32, 64, 2});
  }
}

TEST_CASE("large logits stay finite", "[3.9]") {
  expect_finite();
}

TEST_CASE("a row whose scores are all -inf gets a P of 0", "[3.9]") {
  expect_rows_without_scores(
      "your code computes -inf - (-inf), which is NaN, in that row; it must subtract 0 if the new m is -inf",
      "masked-row-nan");
}

TEST_CASE("probabilities keep their precision", "[3.9]") {
  expect_precise_P();
}

TEST_CASE("a lane stores P in 16-byte vectors", "[3.9]") {
  expect_no_conflicts(
      "store", 64,
      "your code stores P one element at a time, so lanes with different rows access the same banks; it "
      "must store eight at a time with store_rounded()");
}

// ---- 3.10 accumulate_PV ----

TEST_CASE("every warp's keys reach O", "[3.10]") {
  // V is small but for the keys of one warp in one tile.
  expect_every_kind_in_this_part();
  for (const Tiles& wish : {Tiles{64, 64, 4}, {32, 64, 2}}) {
    const Tiles tiles = nearest_tiles(64, wish);
    const std::int64_t width = tiles.Bc / tiles.warps;
    for (std::int64_t first = 0; first < 2 * tiles.Bc; first += width)
      expect_right(with_values_of(input("normal", {1, 1, 1, 40, 2 * tiles.Bc, 64}, 70), first, width), tiles);
  }
}

TEST_CASE("O and l are rescaled by the same factor", "[3.10]") {
  // With a V of ones O is one, whatever the weights are.
  for (const char* kind : {"rising maximum", "falling maximum", "large logits"}) {
    for (const Tiles& tiles : {Tiles{64, 64, 4}, {32, 32, 2}}) {
      expect_right(with_V_of_ones(input(kind, {1, 1, 1, 64, 200, 64}, 71)), tiles);
    }
  }
}

TEST_CASE("every column of V reaches its column of O", "[3.10]") {
  for (const std::int64_t d : head_dims())
    for (const Tiles& tiles : all_tiles(d)) expect_right(input("one hot", {1, 1, 1, 40, 140, d}, 72), tiles);
}

TEST_CASE("sums keep their precision over many tiles", "[3.10]") {
  expect_precise_sums();
}

// ---- 3.11 write_output ----

TEST_CASE("the LSE is a natural logarithm over all keys", "[3.11]") {
  expect_lse_over_all_keys();
}

TEST_CASE("every element of O is written once, and nothing else", "[3.11]") {
  expect_every_element_written();
  expect_every_kind_in_this_part();
}

const Claims of_3_11 = {
    {"[3.11]", "O is written 16 bytes per thread", [] { expect_wide_O(); }},
    {"[3.11]", "a row whose scores are all -inf gets O = 0",
     [] {
       expect_rows_without_scores(
           "your code divides by an l of 0 in that row, which gives NaN; it must write zeros there",
           "masked-row-divided");
     }},
};

TEST_CASE("O is divided by l in fp32", "[3.11]") {
  // With Q = 0 every P is 1 and l is Nk, exactly; with integers in V their sum is exact too. Then O is the fp16
  // nearest to sum / Nk.
  for (const std::int64_t Nk : {3, 7, 11, 100}) {
    Input given = input("normal", {1, 1, 1, 33, Nk, 64}, 84);
    std::ranges::fill(given.problem.Q.values, 0.0f);
    for (std::int64_t j = 0; j < Nk; ++j)
      for (std::int64_t c = 0; c < 64; ++c) given.problem.V(0, 0, j, c) = float((j * 5 + c * 3) % 17 - 8);
    const AttentionResult result = attention(given, Tiles{});
    const float l = half_to_float(float_to_half(1 / float(Nk)));
    for (std::int64_t c = 0; c < 64; ++c) {
      double sum = 0;
      for (std::int64_t j = 0; j < Nk; ++j) sum += given.problem.V(0, 0, j, c);
      const float wanted = half_to_float(float_to_half(float(sum / double(Nk)))), is = result.O(0, 0, 0, c);
      const bool inverse_rounded = is == half_to_float(float_to_half(float(sum) * l));
      expect(is == wanted,
             fmt::format("with Q = 0, Nk={} and whole numbers in V, O of row 0, column {} is {}; the fp16 nearest to "
                         "{} / {} is {}",
                         Nk, c, is, sum, Nk, wanted),
             inverse_rounded
                 ? "your code rounds 1 / l to fp16; it must compute O / l in float and round only the result"
                 : "",
             inverse_rounded ? "inverse-rounded" : "unknown");
    }
  }
}

// ---- 3.12 the loop over the tiles of keys ----

TEST_CASE("every key of every tile contributes once", "[3.12]") {
  for (const std::int64_t Nk : {192, 140, 64, 128, 65, 63, 1, 256}) {
    expect_right(input("value mean", {1, 1, 1, 40, Nk, 64}, 85));
    expect_right(input("rising maximum", {1, 2, 2, 70, Nk, 64}, 86), {32, 32, 2});
  }
  for (const std::int64_t d : {32, 128}) expect_right(input("one hot", {2, 1, 1, 130, 150, d}, 87), {32, 64, 4});
  expect_every_kind_in_this_part();
}

TEST_CASE("each K/V tile is read once per Q tile", "[3.12]") {
  require_counters();
  for (const Tiles& tiles : {usual_tiles(64), small_tiles(64)}) {
    const std::int64_t Nq = 128, Nk = 192, d = 64, q_tiles = tiles_of(Nq, tiles.Br);
    const AttentionResult result = attention(input("normal", {1, 1, 1, Nq, Nk, d}, 88).problem, tiles.numbers());
    expect_wide(result.reply, "Q", "load", double(Nq * d * 2), fmt::format("Q is read once, Br={}", tiles.Br));
    for (const char* tensor : {"K", "V"}) {
      expect_wide(result.reply, tensor, "load", double(q_tiles * Nk * d * 2),
                  fmt::format("{} is read once for each of {} Q tiles", tensor, q_tiles));
    }
  }
}

TEST_CASE("three barriers per K/V tile, one more per Q tile", "[3.12]") {
  require_counters();
  for (const Tiles& tiles : {usual_tiles(64), small_tiles(64)}) {
    const std::int64_t heads = 2, Nq = 100, Nk = 150;
    const AttentionResult result =
        attention(input("normal", {1, heads, heads, Nq, Nk, 64}, 94).problem, tiles.numbers());
    const std::int64_t q_tiles = tiles_of(Nq, tiles.Br), kv_tiles = tiles_of(Nk, tiles.Bc);
    expect_count(result.reply, "block_barriers", double(heads * q_tiles * (3 * kv_tiles + 1)),
                 fmt::format("{} heads · {} Q tiles · (3 · {} K/V tiles + 1)", heads, q_tiles, kv_tiles),
                 "your code has a __syncthreads() that protects nothing, or lacks one", "barriers");
  }
}

// ---- The whole chapter ----

const Claims of_the_whole = {
    {"[whole]", "fused attention agrees with chapter 2", [] { expect_agrees_with_previous(); }},
    {"[whole]", "the answer does not depend on the tile size", [] { expect_tiles_do_not_matter(); }},
};

TEST_CASE("any shape agrees with the oracle", "[whole]") {
  expect_any_two_lengths();
  expect_every_kind();
}

const Claims of_the_whole_2 = {
    {"[whole]", "a row's answer depends on no other row of Q", [] { expect_rows_independent(); }},
    {"[whole]", "every GPU gets tiles that fit", [] { expect_tiles_for_every_size(); }},
    {"[whole]", "results do not depend on workers or lane order", [] { expect_order_changes_nothing(); }},
    {"[whole]", "more heads than gridDim.y allows", [] { expect_every_head(); }},
    {"[whole]", "offsets may exceed 32 bits", [] { expect_offsets_beyond_32_bits(); }},
    {"[whole]", "Q is read once, O and LSE are written once, K and V are read once per Q tile",
     [] { expect_moves({.in = "load"}); }},
};

TEST_CASE("another K/V tile costs no bank conflicts but those of S", "[whole]") {
  // With d = 32 the eight lanes that store 128 bytes of a tile cover two rows, and these overlap in four banks.
  for (const std::int64_t d : {64, 128}) {
    for (const char* way : {"load", "store"})
      expect_no_conflicts(
          way, d,
          "lanes with different rows access the same banks: check the padding, and that each row is "
          "read and written 16 bytes at a time (./workbook trace 3 --lines shows what each line costs)");
  }
}

TEST_CASE("extra memory does not grow with N", "[whole]") {
  expect_no_extra_memory();
}
