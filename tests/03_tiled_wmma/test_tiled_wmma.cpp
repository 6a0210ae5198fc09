// Chapter 3: the fused kernel, phase by phase and whole: right on every tile size, with the traffic that it promises.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "common/attention/half.hpp"
#include "tests/support/kernel_stage.hpp"
#include "tests/support/subject.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

/// Sizes of the tiles, and how many warps split the keys of one.
struct Tiles {
  int Br = 64, Bc = 64, warps = 4;

  Numbers numbers() const { return {{"Br", Br}, {"Bc", Bc}, {"warps", warps}}; }
};
constexpr Tiles all_tiles[] = {{64, 64, 4}, {32, 64, 4}, {32, 64, 2}, {32, 32, 2}, {32, 32, 1}, {64, 128, 4}};
bool built(const Tiles& tiles, std::int64_t d) {
  return tiles.Bc <= 64 || d <= 64;
}

AttentionResult expect_tiled(const Input& given, const Tiles& tiles = {}) {
  return expect_attention(given.problem, fmt::format("{}, {} warps", given.name, tiles.warps), tiles.numbers());
}

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
  spiked.name += fmt::format(", scores of key {} about {}, others about {}", key, spike, base);
  return spiked;
}

/// The LSE alone, against the oracle.
void expect_lse(const Input& given, const Tiles& tiles = {}) {
  expect_lse(given, tiles.numbers(), {tiles.Br, tiles.Bc, tiles.warps});
}

/// Every third row of Q has an infinite element where all keys are negative: its scores are all -inf. Such a row has
/// O = 0 and an LSE of -inf, and the rows beside it take no notice.
void expect_rows_without_scores(const std::string& cause, const std::string& diagnosis) {
  const std::int64_t Nq = 70, Nk = 100, d = 64;
  Input given = input("normal", {1, 1, 1, Nq, Nk, d}, 97);
  for (std::int64_t j = 0; j < Nk; ++j) given.problem.K(0, 0, j, 0) = -1;
  const AttentionResult before = expect_tiled(given);
  for (std::int64_t i = 0; i < Nq; i += 3) {
    for (std::int64_t c = 0; c < d; ++c) given.problem.Q(0, 0, i, c) = 0;
    given.problem.Q(0, 0, i, 0) = std::numeric_limits<float>::infinity();
  }
  const AttentionResult after = attention(given.problem, Tiles{}.numbers());
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
           fmt::format("the LSE of row {} is {}; all scores of that row are -inf, and so is its LSE", i, lse),
           std::isnan(lse) ? cause : "", std::isnan(lse) ? diagnosis : "unknown");
  }
}

/// Another K/V tile costs no wavefront more than shared memory needs for its loads, and for its stores no more than
/// those of S: a fragment's four rows of eight floats overlap in half of the banks (the lesson's question 9).
void expect_no_conflicts(const std::string& way, std::int64_t d, const std::string& cause) {
  require_counters();
  const Tiles tiles;
  const auto conflicts = [&](std::int64_t Nk) {
    const worker::Reply reply = attention(input("normal", {1, 1, 1, 64, Nk, d}, 95).problem, tiles.numbers()).reply;
    return counter(reply, "shared." + way + "_wavefronts") - counter(reply, "shared." + way + "_ideal");
  };
  const double more = conflicts(128) - conflicts(64), allowed = way == "store" ? tiles.Br * tiles.Bc / 32 : 0;
  expect(more <= allowed,
         fmt::format("with d={} each further K/V tile costs {} wavefronts more than shared memory needs for its {}s{}",
                     d, more, way, allowed > 0 ? fmt::format("; those of S may take {}", allowed) : ""),
         cause, "bank-conflicts");
}

std::string shown(float value) {
  return std::isnan(value) ? "NaN" : fmt::format("{}", value);
}

std::int64_t tiles_of(std::int64_t rows, std::int64_t tile) {
  return (rows + tile - 1) / tile;
}

}  // namespace

// ---- 3.6 load_tile ----

TEST_CASE("ragged tails are part of the answer", "[3.6]") {
  for (const auto& [Nq, Nk] : {std::pair{1, 1}, {1, 33}, {33, 1}, {65, 95}, {31, 97}, {70, 133}}) {
    expect_tiled(input("late spike", {1, 2, 2, Nq, Nk, 64}, 1), {32, 32, 2});
    expect_tiled(input("late spike", {1, 1, 1, Nq, Nk, 32}, 2));
    expect_tiled(input("late spike", {1, 1, 1, Nq, Nk, 128}, 3), {32, 64, 2});
  }
}

TEST_CASE("what lies behind the last key never reaches O", "[3.6]") {
  const std::int64_t tile = 64;
  for (const auto& [Nq, Nk] : {std::pair{5, 70}, {70, 5}}) {
    const Problem problem = input("value mean", {1, 1, 1, Nq, Nk, 64}, 4).problem;
    const Padded zeros = attention_padded(problem, Tiles{}.numbers(), tile, 0);
    for (const float behind : {1000.0f, std::numeric_limits<float>::quiet_NaN()}) {
      const Padded other = attention_padded(problem, Tiles{}.numbers(), tile, behind);
      for (std::size_t at = 0; at < zeros.O.size(); ++at) {
        expect(
            other.O[at] == zeros.O[at],
            fmt::format("with Nq={}, Nk={}, row {}, column {} of O is {} when memory behind the last row of Q, K and "
                        "V holds zeros, and {} when it holds {}",
                        Nq, Nk, at / 64, at % 64, shown(half_to_float(zeros.O[at])), shown(half_to_float(other.O[at])),
                        shown(behind)),
            "rows of a tile that do not exist hold what lies behind the tensor: they must be zeros, for 0 · NaN is "
            "NaN",
            "tail-not-zeroed");
      }
      expect(other.lse == zeros.lse, "the LSE depends on what lies behind the last row of Q, K and V",
             "rows of a tile that do not exist must be zeros", "tail-not-zeroed");
    }
  }
}

TEST_CASE("tiles are read 16 bytes a thread", "[3.6]") {
  require_counters();
  for (const std::int64_t d : {32, 64, 128}) {
    const std::int64_t Nq = 128, Nk = 192;
    const AttentionResult result = attention(input("normal", {1, 1, 1, Nq, Nk, d}, 5).problem);
    expect_wide(result.reply, "Q", "load", double(Nq * d * 2), fmt::format("Q is read once, d={}", d));
    for (const char* tensor : {"K", "V"}) {
      expect_wide(result.reply, tensor, "load", double(2 * Nk * d * 2),
                  fmt::format("{} is read for each of 2 query tiles, d={}", tensor, d));
    }
  }
}

// ---- 3.7 multiply_QK ----

TEST_CASE("fused attention agrees with the oracle", "[3.7]") {
  std::uint64_t seed = 10;
  for (const InputKind& kind : input_kinds()) {
    expect_tiled(input(kind.name, {1, 2, 2, 70, 133, 64}, ++seed));
    expect_tiled(input(kind.name, {1, 1, 1, 40, 90, 128}, ++seed), {32, 32, 2});
    expect_tiled(input(kind.name, {2, 1, 1, 90, 64, 32}, ++seed), {32, 64, 4});
  }
}

TEST_CASE("every part of d and every key counts", "[3.7]") {
  // Q and K are zero but for 16 columns: the scores are those of these columns alone.
  for (const std::int64_t d : {32, 64, 128}) {
    for (std::int64_t first = 0; first < d; first += 16) {
      expect_tiled(with_columns(input("normal", {1, 1, 1, 32, 64, d}, 40), first, 16), {32, 64, 4});
    }
  }
  expect_tiled(input("one hot", {1, 1, 1, 64, 192, 64}, 41));
  expect_tiled(input("one hot", {1, 1, 1, 64, 192, 64}, 42), {32, 32, 2});
}

TEST_CASE("a warp may have more than 16 keys", "[3.7]") {
  for (const Tiles& tiles : {Tiles{32, 64, 2}, {64, 128, 4}, {32, 32, 1}})
    expect_tiled(input("one hot", {1, 1, 1, 40, 140, 64}, 43), tiles);
}

// ---- 3.8 row_maxima ----

TEST_CASE("each row has its own maximum", "[3.8]") {
  // The scores of neighbouring rows lie far apart: relative to another row's maximum they are all 0, or infinite.
  for (const Tiles& tiles : {Tiles{}, {32, 64, 2}}) {
    Input apart = input("normal", {1, 1, 1, 64, 100, 64}, 44);
    add_to_scores(
        apart.problem, [](std::int64_t i) { return 7 * (i % 32 - 16); }, [](std::int64_t) { return 1; });
    apart.name += ", scores of row i about 7·(i % 32 − 16)";
    expect_tiled(apart, tiles);
  }
}

TEST_CASE("the maximum is that of all of a warp's keys", "[3.8]") {
  // Far above the others, which are far above 0: a P relative to a smaller maximum is infinite in fp16.
  for (const std::int64_t key : {0, 7, 15, 16, 31, 50, 63}) {
    expect_tiled(spike_at(key, 60, 20, {1, 1, 1, 40, 64, 64}, 45));
    expect_tiled(spike_at(key, 60, 20, {1, 1, 1, 33, 64, 32}, 46), {32, 64, 2});
  }
}

TEST_CASE("negative scores need a maximum of -inf to start from", "[3.8]") {
  expect_tiled(input("negative logits", {1, 1, 1, 64, 128, 64}, 57));
  expect_tiled(input("negative logits", {1, 1, 1, 64, 70, 64}, 58), {32, 32, 2});
}

TEST_CASE("keys that do not exist count nothing", "[3.8]") {
  // In the last tile one key is missing; then all keys of three warps, of two, of one; then all but a few.
  for (const std::int64_t Nk : {63, 80, 96, 112, 65, 5, 1}) {
    expect_tiled(input("normal", {1, 1, 1, 40, Nk, 64}, 48));
    expect_tiled(input("negative logits", {1, 1, 1, 40, Nk, 64}, 47));
  }
}

TEST_CASE("a scale of any sign", "[3.8]") {
  for (const float scale : {0.3f, 0.05f, 0.0f, -0.05f, -0.3f}) {
    for (const std::int64_t Nk : {64, 100}) {
      Input scaled = input("normal", {1, 1, 1, 40, Nk, 64}, 59);
      scaled.problem.scale = scale;
      scaled.name += fmt::format(", scale {}", scale);
      if (scale <= 0 && Nk > 64) {
        const std::vector<float> O = attention(scaled.problem, Tiles{}.numbers()).O.values;
        expect(
            !std::ranges::all_of(O, [](float x) { return std::isnan(x); }),
            fmt::format("with Nk={} and a scale of {} every element of O is NaN; with Nk=64, or a positive scale, none "
                        "was",
                        Nk, scale),
            "the −∞ of keys that do not exist is multiplied by the scale: with one of 0 that is NaN, with a negative "
            "one +∞",
            "mask-scaled");
      }
      expect_tiled(scaled);
    }
  }
}

TEST_CASE("a lane reads four scores at a time", "[3.8]") {
  expect_no_conflicts("load", 64,
                      "the scores are read one by one: lanes with different rows then want the same banks, which the "
                      "padding prevents only for 16 bytes at a time; read four with four_at()");
}

// ---- 3.9 exponentiate ----

TEST_CASE("a maximum that rises in the last tile", "[3.9]") {
  expect_tiled(input("rising maximum", {1, 1, 1, 64, 128, 64}, 50), {32, 32, 2});
  expect_tiled(input("rising maximum", {1, 1, 1, 64, 200, 64}, 51));
  expect_tiled(input("falling maximum", {1, 1, 1, 64, 200, 64}, 52));
}

TEST_CASE("the maximum may lie in any warp's keys", "[3.9]") {
  // Far above the others, which are far above 0: a P relative to a smaller maximum is infinite in fp16.
  for (const std::int64_t key : {64 + 50, 64 + 47, 64 + 30, 64 + 10, 60, 40, 20, 3}) {
    expect_tiled(spike_at(key, 60, 20, {1, 1, 1, 40, 128, 64}, 53));
    expect_tiled(spike_at(key, 60, 20, {1, 1, 1, 33, 128, 32}, 54), {32, 64, 2});
  }
}

TEST_CASE("large logits stay finite", "[3.9]") {
  expect_tiled(with_zeros(input("large logits", {1, 1, 1, 64, 128, 64}, 55)));
  expect_tiled(input("large logits", {1, 1, 1, 64, 128, 64}, 55));
  expect_tiled(input("large logits", {1, 1, 1, 64, 90, 128}, 56), {32, 32, 2});
  // A maximum that follows each tile down would rescale by more than a float holds, in every second row.
  Input falling = spike_at(3, 0, -150, {1, 1, 1, 40, 200, 64}, 56);
  for (std::int64_t i = 0; i < 40; i += 2) falling.problem.Q(0, 0, i, 0) = 0;
  expect_tiled(falling);
}

TEST_CASE("a row whose scores are all -inf gets a P of 0", "[3.9]") {
  expect_rows_without_scores(
      "m is -inf in that row, and -inf - (-inf) is NaN: P and the factor are to be computed with a finite m",
      "masked-row-nan");
}

TEST_CASE("probabilities keep their precision", "[3.9]") {
  // P in fp16, and nothing coarser: P rounded to bfloat16 is off by more than the bounds in the root mean square. With
  // three keys an l that is summed from the rounded P is off in the LSE.
  expect_tiled(input("normal", {1, 1, 1, 64, 512, 64}, 60));
  expect_tiled(input("value mean", {1, 1, 1, 64, 512, 64}, 61));
  expect_tiled(input("normal", {1, 1, 1, 64, 3, 32}, 62));
}

TEST_CASE("a lane stores eight elements of P at a time", "[3.9]") {
  expect_no_conflicts("store", 64,
                      "P is stored element by element: lanes with different rows then want the same banks, which the "
                      "padding prevents only for 16 bytes at a time; store eight with store_rounded()");
}

// ---- 3.10 accumulate_PV ----

TEST_CASE("every warp's keys reach O", "[3.10]") {
  // V is small but for the keys of one warp in one tile.
  for (const Tiles& tiles : {Tiles{64, 64, 4}, {32, 64, 2}}) {
    const std::int64_t width = tiles.Bc / tiles.warps;
    for (std::int64_t first = 0; first < 2 * tiles.Bc; first += width) {
      Input one_warp = input("normal", {1, 1, 1, 40, 2 * tiles.Bc, 64}, 70);
      for (std::int64_t j = 0; j < one_warp.problem.shape.Nk; ++j) {
        for (std::int64_t c = 0; c < 64; ++c) {
          float& value = one_warp.problem.V(0, 0, j, c);
          value = j >= first && j < first + width ? value + 8 : value / 8;
        }
      }
      one_warp.name += fmt::format(", V small but for keys {} to {}", first, first + width - 1);
      expect_tiled(one_warp, tiles);
    }
  }
}

TEST_CASE("O and l are rescaled by the same factor", "[3.10]") {
  // With a V of ones O is one, whatever the weights are.
  for (const char* kind : {"rising maximum", "falling maximum", "large logits"}) {
    for (const Tiles& tiles : {Tiles{64, 64, 4}, {32, 32, 2}}) {
      expect_tiled(with_V_of_ones(input(kind, {1, 1, 1, 64, 200, 64}, 71)), tiles);
    }
  }
}

TEST_CASE("every column of V reaches its column of O", "[3.10]") {
  for (const std::int64_t d : {32, 64, 128}) {
    for (const Tiles& tiles : all_tiles) {
      if (built(tiles, d)) expect_tiled(input("one hot", {1, 1, 1, 40, 140, d}, 72), tiles);
    }
  }
}

TEST_CASE("sums keep their precision over many tiles", "[3.10]") {
  // 64 tiles: an O rounded to fp16 in each is off by more than the bounds in the root mean square.
  expect_tiled(input("value mean", {1, 1, 1, 32, 2048, 64}, 73), {32, 32, 2});
}

// ---- 3.11 write_output ----

TEST_CASE("the LSE is a natural logarithm over all keys", "[3.11]") {
  for (const char* kind : {"normal", "large logits", "negative logits", "uniform"}) {
    expect_lse(input(kind, {1, 2, 2, 70, 133, 64}, 80));
    expect_lse(input(kind, {1, 1, 1, 33, 20, 32}, 81), {32, 32, 2});
  }
}

TEST_CASE("every element of O is written once, and nothing else", "[3.11]") {
  for (const auto& [Nq, Nk] : {std::pair{1, 3}, {63, 65}, {70, 40}, {129, 64}}) {
    for (const Tiles& tiles : {Tiles{64, 64, 4}, {32, 32, 2}})
      expect_tiled(input("value mean", {2, 2, 2, Nq, Nk, 64}, 82), tiles);
  }
}

TEST_CASE("O is written 16 bytes a thread", "[3.11]") {
  require_counters();
  for (const std::int64_t d : {32, 64, 128}) {
    const AttentionResult result = attention(input("normal", {1, 2, 2, 128, 64, d}, 83).problem);
    expect_wide(result.reply, "O", "store", double(2 * 128 * d * 2), fmt::format("O is written once, d={}", d));
  }
}

TEST_CASE("a row whose scores are all -inf is divided by no l", "[3.11]") {
  expect_rows_without_scores("l is 0 in that row, and O is divided by it: 0 · (1 / 0) is NaN", "masked-row-divided");
}

TEST_CASE("O is divided by l in fp32", "[3.11]") {
  // With Q = 0 every P is 1 and l is Nk, exactly; with whole numbers in V their sum is exact too. Then O is the fp16
  // that lies nearest to sum / Nk.
  for (const std::int64_t Nk : {3, 7, 11, 100}) {
    Input given = input("normal", {1, 1, 1, 33, Nk, 64}, 84);
    std::ranges::fill(given.problem.Q.values, 0.0f);
    for (std::int64_t j = 0; j < Nk; ++j)
      for (std::int64_t c = 0; c < 64; ++c) given.problem.V(0, 0, j, c) = float((j * 5 + c * 3) % 17 - 8);
    const AttentionResult result = attention(given.problem, Tiles{}.numbers());
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
             inverse_rounded ? "1 / l is rounded to fp16 before O is multiplied by it" : "",
             inverse_rounded ? "inverse-rounded" : "unknown");
    }
  }
}

// ---- 3.12 the loop over the tiles of keys ----

TEST_CASE("every key of every tile counts once", "[3.12]") {
  for (const std::int64_t Nk : {192, 140, 64, 128, 65, 63, 1, 256}) {
    expect_tiled(input("value mean", {1, 1, 1, 40, Nk, 64}, 85));
    expect_tiled(input("rising maximum", {1, 2, 2, 70, Nk, 64}, 86), {32, 32, 2});
  }
  for (const std::int64_t d : {32, 128}) expect_tiled(input("one hot", {2, 1, 1, 130, 150, d}, 87), {32, 64, 4});
}

TEST_CASE("each tile of keys is read once for a tile of queries", "[3.12]") {
  require_counters();
  for (const Tiles& tiles : {Tiles{64, 64, 4}, {32, 32, 2}}) {
    const std::int64_t Nq = 128, Nk = 192, d = 64, query_tiles = tiles_of(Nq, tiles.Br);
    const AttentionResult result = attention(input("normal", {1, 1, 1, Nq, Nk, d}, 88).problem, tiles.numbers());
    expect_wide(result.reply, "Q", "load", double(Nq * d * 2), fmt::format("Q is read once, Br={}", tiles.Br));
    for (const char* tensor : {"K", "V"}) {
      expect_wide(result.reply, tensor, "load", double(query_tiles * Nk * d * 2),
                  fmt::format("{} is read for each of {} query tiles", tensor, query_tiles));
    }
  }
}

TEST_CASE("three barriers for a pair of tiles, one more for a query tile", "[3.12]") {
  require_counters();
  for (const Tiles& tiles : {Tiles{64, 64, 4}, {32, 32, 2}}) {
    const std::int64_t heads = 2, Nq = 100, Nk = 150;
    const AttentionResult result =
        attention(input("normal", {1, heads, heads, Nq, Nk, 64}, 94).problem, tiles.numbers());
    const std::int64_t query_tiles = tiles_of(Nq, tiles.Br), key_tiles = tiles_of(Nk, tiles.Bc);
    expect_count(result.reply, "block_barriers", double(heads * query_tiles * (3 * key_tiles + 1)),
                 fmt::format("{} heads · {} query tiles · (3 · {} K/V tiles + 1)", heads, query_tiles, key_tiles),
                 "there is a __syncthreads() that protects nothing, or one too few", "barriers");
  }
}

// ---- The whole chapter ----

TEST_CASE("fused attention agrees with chapter 2", "[whole]") {
  for (const char* kind : {"normal", "rising maximum", "value mean"}) {
    const Input given = input(kind, {1, 2, 2, 100, 140, 64}, 90);
    const Problem problem = in_element(given.problem);
    const AttentionResult fused = expect_tiled(given);
    const AttentionResult before = previous_attention(problem, {{"Br", 32}, {"Bc", 32}});
    // Each is within its own bounds of the oracle; chapter 2's, in float, are far below these.
    const Forward oracle = forward_oracle(problem);
    Bounds bounds = output_bounds(oracle, problem, precision());
    const Bounds before_bounds = output_bounds(oracle, problem, float32_precision());
    for (std::size_t i = 0; i < bounds.element.values.size(); ++i)
      bounds.element.values[i] += before_bounds.element.values[i];
    bounds.rms += before_bounds.rms;
    judge::Layout layout;
    layout.tensor = "O (expected: chapter 2's)";
    layout.Br = layout.Bc = 64;
    expect_close(fused.O, {widened(before.O), bounds, layout, output_mistakes(problem, {64, 64, 4}),
                           describe(problem, given.name)});
  }
}

TEST_CASE("the answer does not depend on the tile size", "[whole]") {
  for (const std::int64_t d : {32, 64, 128}) {
    for (const Tiles& tiles : all_tiles) {
      if (!built(tiles, d)) continue;
      for (const char* kind : {"rising maximum", "large logits"})
        expect_tiled(input(kind, {1, 2, 2, 70, 133, d}, 91), tiles);
    }
  }
}

TEST_CASE("any shape agrees with the oracle", "[whole]") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const std::vector<float> random = normal_values(8, 1000 + seed);
    const auto draw = [&](std::size_t which, std::int64_t most) {  // 1 … most, from the seed
      return 1 + std::int64_t(std::abs(random[which]) * 1e4f) % most;
    };
    const std::int64_t d = 16ll << draw(0, 3);
    const Shape shape{draw(1, 2), draw(2, 3), 0, draw(3, 150), draw(4, 200), d};
    const Tiles tiles = all_tiles[draw(5, built(all_tiles[5], d) ? 6 : 5) - 1];
    expect_tiled(input("normal", {shape.B, shape.H, shape.H, shape.Nq, shape.Nk, d}, seed), tiles);
  }
}

TEST_CASE("a row's answer depends on no other row of Q", "[whole]") {
  // All but one row become something else, NaN at last: nothing of theirs may reach it, from its tile or from another.
  const std::int64_t Nq = 130, d = 64;
  const Problem problem = input("rising maximum", {1, 1, 1, Nq, 100, d}, 98).problem;
  const AttentionResult before = attention(problem, Tiles{}.numbers());
  for (const std::int64_t row : {0, 47, 81, 129}) {
    for (const float factor : {-3.0f, std::numeric_limits<float>::quiet_NaN()}) {
      Problem others = problem;
      for (std::int64_t i = 0; i < Nq; ++i)
        for (std::int64_t c = 0; c < d; ++c) others.Q(0, 0, i, c) *= i == row ? 1 : factor;
      const AttentionResult after = attention(others, Tiles{}.numbers());
      for (std::int64_t c = 0; c < d; ++c) {
        const float is = after.O(0, 0, row, c), was = before.O(0, 0, row, c);
        expect(is == was,
               fmt::format("O of row {}, column {} is {} when the other rows of Q are multiplied by {}, and was {}",
                           row, c, is, factor, was),
               "a maximum, a sum, a factor or an O of one row reaches another, perhaps from the tile of queries before",
               "rows-mixed");
      }
    }
  }
}

TEST_CASE("every GPU gets tiles that fit it", "[whole]") {
  // What a block may have on a T4, on an RTX 30, 40 or 50, on an A100, on an H100.
  for (const int kilobytes : {64, 99, 163, 227}) {
    for (const std::int64_t d : {32, 64, 128}) {
      const Input given = input("late spike", {1, 1, 1, 70, 133, d}, 99);
      expect_attention(given.problem, fmt::format("{}, blocks of {} KB", given.name, kilobytes),
                       {{"shared_limit", kilobytes * 1024}});
    }
  }
}

TEST_CASE("the number of workers and the order of lanes change nothing", "[whole]") {
  const Problem problem = input("rising maximum", {1, 3, 3, 70, 100, 64}, 92).problem;
  expect_order_changes_nothing(problem, Tiles{}.numbers());
}

TEST_CASE("more heads than a grid has rows", "[whole]") {
  expect_every_head(Tiles{32, 32, 2}.numbers());
}

TEST_CASE("Q is read once, O and LSE are written once, K and V are read once per query tile", "[whole]") {
  require_counters();
  for (const Tiles& tiles : {Tiles{64, 64, 4}, {32, 64, 2}, {32, 32, 2}}) {
    const std::int64_t heads = 2, Nq = 200, Nk = 150, d = 64, query_tiles = tiles_of(Nq, tiles.Br);
    const AttentionResult result =
        attention(input("normal", {1, heads, heads, Nq, Nk, d}, 93).problem, tiles.numbers());
    const double row = double(d) * 2 / 32;  // sectors
    const auto expect_sectors = [&](const std::string& name, double expected, const std::string& why) {
      expect_count(result.reply, name, expected, fmt::format("{}, Br={}, Bc={}", why, tiles.Br, tiles.Bc),
                   "a tensor is moved more or less often than it must be", "traffic");
    };
    expect_sectors("Q.load_sectors", heads * Nq * row, "Q is read once");
    for (const char* tensor : {"K", "V"}) {
      expect_sectors(fmt::format("{}.load_sectors", tensor), query_tiles * heads * Nk * row,
                     fmt::format("{} is read once for each of ⌈Nq/Br⌉ = {} query tiles", tensor, query_tiles));
    }
    expect_sectors("O.store_sectors", heads * Nq * row, "O is written once");
    expect_sectors("lse.store_sectors", double(heads * Nq * 4) / 32, "the LSE is written once");
    expect_sectors("global.load_sectors", heads * row * (Nq + 2 * query_tiles * Nk), "nothing else is read");
    expect_sectors("global.store_sectors", heads * Nq * row + double(heads * Nq * 4) / 32, "nothing else is written");
    expect_products(counter(result.reply, "tensor_instructions"), {1, heads, heads, Nq, Nk, d}, false, 2,
                    fmt::format("S and O, Br={}, Bc={}", tiles.Br, tiles.Bc));
  }
}

TEST_CASE("another K/V tile costs no bank conflicts but those of S", "[whole]") {
  // With d = 32 the eight lanes that store 128 bytes of a tile cover two rows, and these overlap in four banks.
  for (const std::int64_t d : {64, 128}) {
    for (const char* way : {"load", "store"})
      expect_no_conflicts(
          way, d,
          "lanes with different rows want the same banks: look at the padding, and at whether each row is "
          "read and written 16 bytes at a time (./workbook trace 3 --lines shows what each line costs)");
  }
}

TEST_CASE("extra memory does not grow with N", "[whole]") {
  expect_no_extra_memory(96, false, "S or P");
}
