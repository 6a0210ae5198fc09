// Chapter 4: the queries split over the warps, phase by phase and whole; its three kernels.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <tuple>

#include "common/attention/half.hpp"
#include "tests/support/kernel_stage.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

/// Sizes of the tiles; a warp has 32 queries.
struct Tiles {
  int Br = 128, Bc = 64;

  int warps() const { return Br / 32; }
  Numbers numbers() const { return {{"Br", Br}, {"Bc", Bc}, {"warps", warps()}}; }
  std::string text() const { return fmt::format("Br={}, Bc={}, {} warps", Br, Bc, warps()); }
};
constexpr Tiles all_tiles[] = {{128, 64}, {128, 32}, {64, 64}, {32, 32}};
constexpr std::int64_t head_dims[] = {32, 64, 128};

/// A lane takes so many keys of its row at a time, and m lags behind by at most 8 in units of log2.
judge::LaneRows lane_rows(std::int64_t d, const Tiles& tiles) {
  return {d <= 64 ? 32 : tiles.Bc, 8 * 0.69314718F};
}

AttentionResult expect_split(const Input& given, const Tiles& tiles = {}) {
  return expect_attention(given.problem, fmt::format("{}, {} warps", given.name, tiles.warps()), tiles.numbers(),
                          lane_rows(given.problem.shape.d, tiles));
}

/// The LSE alone, against the oracle.
void expect_lse(const Input& given, const Tiles& tiles = {}) {
  expect_lse(given, tiles.numbers(), {tiles.Br, tiles.Bc, 0, lane_rows(given.problem.shape.d, tiles)});
}

/// Scores that rise from one 32 keys to the next, in row i by (i % 32 + 1)·rise/32: each row needs its own factor. V
/// falls, so that what is not rescaled shows.
Input own_rises(float rise, const Shape& shape, std::uint64_t seed) {
  Input given = input("normal", shape, seed);
  add_to_scores(
      given.problem, [=](std::int64_t i) { return rise * float(i % 32 + 1) / 32; },
      [](std::int64_t j) { return float(j / 32); });
  for (std::int64_t h = 0; h < shape.H; ++h)
    for (std::int64_t j = 0; j < std::min<std::int64_t>(shape.Nk, 64); ++j)
      for (std::int64_t c = 0; c < shape.d; ++c) given.problem.V(0, h, j, c) += 4;
  given.name += fmt::format(", scores of row i rise by (i % 32 + 1)/32 of {} every 32 keys", rise);
  return given;
}

std::int64_t tiles_of(std::int64_t rows, std::int64_t tile) {
  return (rows + tile - 1) / tile;
}

/// What a counter of the stage grows by when Nk grows from 128 to 192: for one block's Br queries and 64 more keys.
template <class Count>
double growth(const std::string& kind, std::int64_t d, const Tiles& tiles, const Count& count) {
  const auto at = [&](std::int64_t Nk) {
    return count(attention(input(kind, {1, 1, 1, tiles.Br, Nk, d}, 7).problem, tiles.numbers()).reply);
  };
  const double before = at(128);
  return at(192) - before;
}

}  // namespace

// ---- 4.1 work_of ----

TEST_CASE("every query of every head belongs to one warp", "[4.1]") {
  // What two warps write is reported as written twice, what no warp writes still holds its NaN.
  for (const std::int64_t Nq : {1, 31, 32, 33, 65, 127, 128, 129, 200}) {
    for (const Tiles& tiles : all_tiles) expect_split(input("value mean", {1, 3, 3, Nq, 40, 32}, 30), tiles);
  }
  expect_split(input("value mean", {3, 2, 2, 70, 33, 64}, 31), {32, 32});
  expect_split(input("value mean", {2, 1, 1, 140, 20, 128}, 32), {64, 64});
}

TEST_CASE("each block takes one tile of one head's queries", "[4.1]") {
  // With one key O is its V, exactly: heads that are confused show, whatever Nq and Nk are.
  for (const auto& [B, H, Nq] : {std::tuple{1, 5, 100}, {4, 1, 33}, {2, 3, 64}}) {
    Input one = input("normal", {B, H, H, Nq, 1, 32}, 33);
    for (std::int64_t b = 0; b < B; ++b)
      for (std::int64_t h = 0; h < H; ++h)
        for (std::int64_t c = 0; c < 32; ++c) one.problem.V(b, h, 0, c) = float(b * H + h + 1);
    one.name += ", V of each head its number from 1 on";
    expect_split(one, {32, 32});
    expect_split(one);
  }
}

// ---- 4.2 multiply_QK ----

TEST_CASE("Q split agrees with the oracle", "[4.2]") {
  std::uint64_t seed = 10;
  for (const InputKind& kind : input_kinds()) {
    expect_split(input(kind.name, {1, 2, 2, 70, 133, 64}, ++seed));
    expect_split(input(kind.name, {1, 1, 1, 40, 90, 128}, ++seed), {32, 32});
    expect_split(input(kind.name, {2, 1, 1, 90, 64, 32}, ++seed), {64, 64});
  }
}

TEST_CASE("every part of d and every key counts", "[4.2]") {
  // Q and K are zero but for 16 columns: the scores are those of these columns alone.
  for (const std::int64_t d : head_dims) {
    for (std::int64_t first = 0; first < d; first += 16) {
      expect_split(with_columns(input("normal", {1, 1, 1, 32, 64, d}, 40), first, 16), {32, 32});
    }
  }
  for (const Tiles& tiles : all_tiles) expect_split(input("one hot", {1, 1, 1, 64, 192, 64}, 41), tiles);
}

TEST_CASE("S is stored and read without bank conflicts", "[4.2]") {
  require_counters();
  for (const std::int64_t d : head_dims) {
    for (const char* way : {"load", "store"}) {
      const double conflicts = growth("falling maximum", d, {}, [&](const worker::Reply& reply) {
        return counter(reply, fmt::format("shared.{}_wavefronts", way)) -
               counter(reply, fmt::format("shared.{}_ideal", way));
      });
      expect(conflicts == 0,
             fmt::format("with d={} another 64 keys cost {} wavefronts more than shared memory needs for its {}s", d,
                         conflicts, way),
             "what is accessed together lies in the same banks: S is stored transposed, with 32 + pad_product columns",
             "bank-conflicts");
    }
  }
}

TEST_CASE("Q is not loaded again where registers keep it", "[4.2]") {
  require_counters();
  // For 32 queries and 64 keys: K and V by fragments of 512 bytes, four wavefronts of 128 bytes each, S and P once. At
  // d = 128 the two parts of Q besides, for each step and each 16 columns.
  for (const std::int64_t d : head_dims) {
    const double K = 4 * 4 * (double(d) / 16), S = 64, P = 32, Q = d <= 64 ? 0 : 4 * 2 * (double(d) / 16);
    const double got = growth("falling maximum", d, {64, 64},
                              [](const worker::Reply& reply) { return counter(reply, "shared.load_wavefronts"); });
    expect(
        got == 2 * (2 * K + S + P + Q),
        fmt::format("with d={} another 64 keys cost 2 warps {} wavefronts of shared memory's loads; {} are expected: "
                    "K {}, V {}, S {}, P {} and Q {} for each",
                    d, got, 2 * (2 * K + S + P + Q), K, K, S, P, Q),
        d <= 64 ? "Q is loaded in every step, though fragments.Q holds it"
                : "Q is loaded more or less than once a step",
        "Q-loaded-again");
  }
}

// ---- 4.3 online_softmax ----

TEST_CASE("a maximum that rises in the last tile", "[4.3]") {
  expect_split(input("rising maximum", {1, 1, 1, 64, 128, 64}, 50), {32, 32});
  expect_split(input("rising maximum", {1, 1, 1, 64, 200, 64}, 51));
  expect_split(input("rising maximum", {1, 1, 1, 64, 200, 128}, 52));
  expect_split(input("falling maximum", {1, 1, 1, 64, 200, 64}, 53));
}

TEST_CASE("each row has its own maximum", "[4.3]") {
  // The scores of neighbouring rows lie far apart: relative to another row's maximum they are all 0, or infinite.
  for (const std::int64_t d : {64, 128}) {
    Input apart = input("normal", {1, 1, 1, 64, 100, d}, 54);
    add_to_scores(
        apart.problem, [](std::int64_t i) { return 7 * (i % 32 - 16); }, [](std::int64_t) { return 1; });
    apart.name += ", scores of row i about 7·(i % 32 − 16)";
    expect_split(apart, {64, 64});
  }
}

TEST_CASE("large logits stay finite", "[4.3]") {
  expect_split(with_zeros(input("large logits", {1, 1, 1, 64, 128, 64}, 55)));
  expect_split(input("large logits", {1, 1, 1, 64, 128, 64}, 55));
  expect_split(input("large logits", {1, 1, 1, 64, 90, 128}, 56), {32, 32});
  // A maximum that follows each tile down would rescale by more than a float holds.
  Input falling = input("normal", {1, 1, 1, 40, 200, 64}, 57);
  add_to_scores(
      falling.problem, [](std::int64_t i) { return i % 2 == 0 ? 0 : 10; },
      [](std::int64_t j) { return j == 3 ? 0 : -15; });
  falling.name += ", scores of every second row about -150 but for key 3";
  expect_split(falling);
}

TEST_CASE("negative scores need a maximum of -inf to start from", "[4.3]") {
  expect_split(input("negative logits", {1, 1, 1, 64, 128, 64}, 58));
  expect_split(input("negative logits", {1, 1, 1, 64, 70, 64}, 59), {32, 32});
}

TEST_CASE("a scale of any sign", "[4.3]") {
  for (const float scale : {0.3f, 0.05f, 0.0f, -0.05f, -0.3f}) {
    for (const std::int64_t Nk : {64, 70, 100}) {
      Input scaled = input("normal", {1, 1, 1, 40, Nk, 64}, 60);
      scaled.problem.scale = scale;
      scaled.name += fmt::format(", scale {}", scale);
      if (scale <= 0 && Nk > 64) {
        const std::vector<float> O = attention(scaled.problem, Tiles{64, 64}.numbers()).O.values;
        expect(
            !std::ranges::all_of(O, [](float x) { return std::isnan(x); }),
            fmt::format("with Nk={} and a scale of {} every element of O is NaN; with Nk=64, or a positive scale, none "
                        "was",
                        Nk, scale),
            "the −∞ of keys that do not exist is multiplied by the scale: with one of 0 that is NaN, with a negative "
            "one +∞",
            "mask-scaled");
      }
      expect_split(scaled, {64, 64});
    }
  }
}

TEST_CASE("probabilities keep their precision", "[4.3]") {
  // P in fp16, and nothing coarser: P rounded to bfloat16 is off by more than the bounds in the root mean square. With
  // three keys an l that is summed from the rounded P is off in the LSE.
  expect_split(input("normal", {1, 1, 1, 64, 512, 64}, 61), {64, 64});
  expect_split(input("value mean", {1, 1, 1, 64, 512, 64}, 62), {64, 64});
  expect_split(input("normal", {1, 1, 1, 64, 3, 32}, 63), {64, 64});
}

// ---- 4.4 rescale_O ----

TEST_CASE("O and l are rescaled by the same factor", "[4.4]") {
  // With a V of ones O is one, whatever the weights are.
  for (const char* kind : {"rising maximum", "falling maximum", "large logits"}) {
    for (const Tiles& tiles : {Tiles{}, {32, 32}}) {
      expect_split(with_V_of_ones(input(kind, {1, 1, 1, 64, 200, 64}, 70)), tiles);
    }
  }
}

TEST_CASE("each row of O is rescaled by its own factor", "[4.4]") {
  for (const std::int64_t d : head_dims) {
    for (const Tiles& tiles : {Tiles{}, {32, 32}}) expect_split(own_rises(20, {1, 1, 1, 64, 128, d}, 71), tiles);
  }
  // Only one row of a warp rises, the others keep their maximum.
  for (const std::int64_t row : {0, 13, 16, 31}) {
    Input one_row = input("value mean", {1, 1, 1, 32, 96, 64}, 72);
    add_to_scores(
        one_row.problem, [=](std::int64_t i) { return i == row ? 5 : 0; },
        [](std::int64_t j) { return j == 0 ? 6 : j / 64 * 6; });
    one_row.name += fmt::format(", only row {} rises, by 30 at key 64", row);
    expect_split(one_row, {32, 32});
  }
}

TEST_CASE("O is not rescaled when no maximum moves", "[4.4]") {
  require_counters();
  for (const std::int64_t d : head_dims) {
    const double shuffles =
        growth("falling maximum", d, {}, [](const worker::Reply& reply) { return counter(reply, "shuffles"); });
    expect(shuffles == 0,
           fmt::format("with d={} another 64 keys cost {} shuffles, though no maximum moves", d, shuffles),
           "O is rescaled without asking first whether a factor differs from 1", "no-vote");
  }
}

// ---- 4.5 accumulate_PV ----

TEST_CASE("every key's value reaches O", "[4.5]") {
  // V is small but for 16 keys.
  for (const std::int64_t d : head_dims) {
    const std::int64_t Nk = 128;
    for (std::int64_t first = 0; first < Nk; first += 16) {
      Input some = input("normal", {1, 1, 1, 64, Nk, d}, 80);
      for (std::int64_t j = 0; j < Nk; ++j) {
        for (std::int64_t c = 0; c < d; ++c) {
          float& value = some.problem.V(0, 0, j, c);
          value = j >= first && j < first + 16 ? value + 8 : value / 8;
        }
      }
      some.name += fmt::format(", V small but for keys {} to {}", first, first + 15);
      expect_split(some, {64, 64});
    }
  }
  for (const Tiles& tiles : all_tiles) expect_split(input("one hot", {1, 1, 1, 40, 140, 64}, 81), tiles);
}

TEST_CASE("sums keep their precision over many tiles", "[4.5]") {
  // 64 steps: an O rounded to fp16 in each is off by more than the bounds in the root mean square.
  expect_split(input("value mean", {1, 1, 1, 32, 2048, 64}, 82), {32, 32});
}

TEST_CASE("S, P and O of a warp do not race", "[4.5]") {
  // The simulator reports races. Lanes in several orders, so that on a GPU's whim nothing depends.
  for (const std::int64_t d : head_dims) {
    for (const int lane_seed : {0, 1, 2}) {
      Input given = input("rising maximum", {1, 1, 1, 70, 150, d}, 83);
      Numbers numbers = Tiles{64, 64}.numbers();
      numbers["lane_seed"] = lane_seed;
      given.name += fmt::format(", lanes in the order of seed {}", lane_seed);
      expect_attention(given.problem, given.name, numbers, lane_rows(d, {64, 64}));
    }
  }
}

// ---- 4.6 write_output ----

TEST_CASE("the LSE is a natural logarithm over all keys", "[4.6]") {
  for (const char* kind : {"normal", "large logits", "negative logits", "uniform"}) {
    expect_lse(input(kind, {1, 2, 2, 70, 133, 64}, 90));
    expect_lse(input(kind, {1, 1, 1, 33, 20, 32}, 91), {32, 32});
  }
}

TEST_CASE("O is divided by l exactly once", "[4.6]") {
  // With a V of ones O is one; without the division it is l, divided twice it is 1 / l.
  for (const std::int64_t d : head_dims) {
    expect_split(with_V_of_ones(input("normal", {1, 1, 1, 40, 90, d}, 92)), {64, 64});
    // Rows whose l differ: each has its own.
    expect_split(with_rows_apart(input("value mean", {1, 1, 1, 64, 90, d}, 93)), {64, 64});
  }
}

TEST_CASE("every element of O is written once, and nothing else", "[4.6]") {
  for (const auto& [Nq, Nk] : {std::pair{1, 3}, {63, 65}, {70, 40}, {129, 64}}) {
    for (const Tiles& tiles : {Tiles{}, {32, 32}}) expect_split(input("value mean", {2, 2, 2, Nq, Nk, 64}, 94), tiles);
    expect_split(input("value mean", {1, 2, 2, Nq, Nk, 128}, 95), {64, 64});
  }
}

TEST_CASE("O is written 16 bytes a thread", "[4.6]") {
  require_counters();
  for (const std::int64_t d : head_dims) {
    const AttentionResult result = attention(input("normal", {1, 2, 2, 128, 64, d}, 96).problem);
    expect_wide(result.reply, "O", "store", double(2 * 128 * d * 2), fmt::format("O is written once, d={}", d));
  }
}

TEST_CASE("O is read eight neighbours a lane", "[4.6]") {
  require_counters();
  // What a block reads of shared memory beside what it reads for every tile: Q, row_index once, and O. Rows that are
  // padded for stores of fragments cost two wavefronts for one when they are read 16 bytes a lane.
  for (const std::int64_t d : head_dims) {
    const auto loads = [&](std::int64_t Nk) {
      const Problem problem = input("falling maximum", {1, 1, 1, 32, Nk, d}, 97).problem;
      return counter(attention(problem, Tiles{32, 32}.numbers()).reply, "shared.load_wavefronts");
    };
    const double once = 2 * loads(32) - loads(64);
    const double O = 2 * double(d), Q = d <= 64 ? double(d) / 16 * 2 * 4 : 0, row_index = 16;
    expect(
        once <= O + Q + row_index,
        fmt::format("with d={} a warp needs {} wavefronts of shared memory's loads beside those of its tiles; {} are "
                    "enough: Q {}, row_index {}, and O, 32 rows of {} floats, {}",
                    d, once, O + Q + row_index, Q, row_index, d, O),
        "O is read from own.O in pieces of fewer than 16 bytes a lane", "narrow-shared-reads");
  }
}

TEST_CASE("1 / l keeps the precision of fp32", "[4.6]") {
  // With Q = 0 every P is 1, and O the mean of V: of whole numbers, the nearest fp16.
  for (const std::int64_t d : head_dims) {
    for (const std::int64_t Nk : {3, 7, 11, 49, 77}) {
      Problem problem = in_element(input("uniform", {1, 1, 1, 33, Nk, d}, 98).problem);
      std::ranges::fill(problem.Q.values, 0.0f);
      for (std::size_t at = 0; at < problem.V.values.size(); ++at) problem.V.values[at] = float((at * 37 + 11) % 61);
      const AttentionResult result = attention(problem, Tiles{32, 32}.numbers());
      expect_written(result.O.values[0], "O");
      for (std::int64_t c = 0; c < d; ++c) {
        double sum = 0;
        for (std::int64_t j = 0; j < Nk; ++j) sum += problem.V(0, 0, j, c);
        const float got = result.O(0, 0, 0, c), wanted = rounded_to_half(float(sum / double(Nk)));
        expect(
            got == wanted,
            fmt::format("with Q = 0 and a V of whole numbers, O is their mean: column {} of {} keys (d={}) is {}, the "
                        "nearest fp16 is {}",
                        c, Nk, d, got, wanted),
            "1 / l is rounded to fp16 before O is multiplied by it, or O twice", "inverse-in-fp16");
      }
    }
  }
}

// ---- 4.7 copy_tile ----

TEST_CASE("ragged tails are part of the answer", "[4.7]") {
  for (const auto& [Nq, Nk] : {std::pair{1, 1}, {1, 33}, {33, 1}, {65, 95}, {31, 97}, {70, 133}}) {
    expect_split(input("late spike", {1, 2, 2, Nq, Nk, 64}, 1), {32, 32});
    expect_split(input("late spike", {1, 1, 1, Nq, Nk, 32}, 2), {64, 64});
    expect_split(input("late spike", {1, 1, 1, Nq, Nk, 128}, 3));
  }
}

TEST_CASE("what lies behind the last key never reaches O", "[4.7]") {
  for (const auto& [Nq, Nk] : {std::pair{5, 70}, {70, 5}}) {
    const Problem problem = input("value mean", {1, 1, 1, Nq, Nk, 64}, 4).problem;
    expect_nothing_from_behind(problem, Tiles{}.numbers(), 128);
  }
}

TEST_CASE("tiles are copied 16 bytes a thread, without a load", "[4.7]") {
  require_counters();
  for (const std::int64_t d : head_dims) {
    const std::int64_t Nq = 256, Nk = 192;
    const worker::Reply reply = attention(input("normal", {1, 1, 1, Nq, Nk, d}, 5).problem).reply;
    for (const char* tensor : {"Q", "K", "V"}) {
      expect_count(
          reply, fmt::format("{}.load_bytes", tensor), 0,
          fmt::format("{} goes from device to shared memory by cp.async, not through registers, d={}", tensor, d),
          "a tile is read by ordinary loads", "not-asynchronous");
    }
    expect_wide(reply, "Q", "async", double(Nq * d * 2), fmt::format("Q is read once, d={}", d));
    for (const char* tensor : {"K", "V"}) {
      expect_wide(reply, tensor, "async", double(2 * Nk * d * 2),
                  fmt::format("{} is read for each of 2 query tiles, d={}", tensor, d));
    }
  }
}

// ---- 4.8 new_maximum ----

TEST_CASE("m moves only when a score exceeds it by more than slack", "[4.8]") {
  require_counters();
  // Normal scores rise by less than slack, so that no row's factor differs from 1 and no warp rescales.
  for (const std::int64_t d : head_dims) {
    const double shuffles =
        growth("normal", d, {}, [](const worker::Reply& reply) { return counter(reply, "shuffles"); });
    // An m that follows every score spoils no number. Where one is wrong, the factors differ from 1 for that.
    const Problem problem = input("normal", {1, 1, 1, 128, 64, d}, 7).problem;
    const bool only_follows = shuffles == 0 || is_right(problem, attention(problem));
    expect(shuffles == 0,
           fmt::format("with d={} and normal scores another 64 keys cost {} shuffles: O was rescaled{}", d, shuffles,
                       only_follows ? "" : ", and O or the LSE is wrong"),
           m_follows_too_early, only_follows ? "slack-ignored" : "");
  }
}

TEST_CASE("O is rescaled when a score exceeds m by more than slack", "[4.8]") {
  require_counters();
  // Scores that rise by 6.25 every 32 keys, 9 in units of log2: each warp rescales in each step, 16 shuffles a time.
  for (const std::int64_t d : head_dims) {
    const double shuffles = [&] {
      const auto at = [&](std::int64_t Nk) {
        Input rising = input("uniform", {1, 1, 1, 128, Nk, d}, 64);
        add_to_scores(
            rising.problem, [](std::int64_t) { return 6.25; }, [](std::int64_t j) { return double(j / 32); });
        return counter(attention(rising.problem, Tiles{128, 32}.numbers()).reply, "shuffles");
      };
      const double before = at(128);
      return at(192) - before;
    }();
    expect(shuffles == 4 * 2 * 16,
           fmt::format("with d={} and scores that rise by 9 in units of log2 every 32 keys, 64 keys cost {} shuffles; "
                       "{} are expected, 16 for each rescaling of 4 warps",
                       d, shuffles, 4 * 2 * 16),
           "m stays behind by more than `slack`, which is in units of log2 as m is", "slack-too-large");
  }
}

TEST_CASE("P never overflows", "[4.8]") {
  // Scores that rise by 15 every 32 keys: 2^21 relative to the m of the step before, where fp16 ends below 2^16.
  for (const std::int64_t d : head_dims)
    for (const Tiles& tiles : {Tiles{}, {32, 32}}) expect_split(own_rises(15, {1, 1, 1, 64, 160, d}, 65), tiles);
  expect_split(input("large logits", {1, 1, 1, 64, 200, 64}, 66));
}

// ---- 4.9 the loop for d = 128 ----

TEST_CASE("d = 128 agrees with the oracle", "[4.9]") {
  // The simulator reports what is read before its copy has arrived, and what is overwritten while others read it.
  for (const Tiles& tiles : all_tiles) {
    for (const auto& [Nq, Nk] : {std::pair{1, 1}, {70, 64}, {129, 65}, {100, 200}})
      expect_split(input("rising maximum", {1, 2, 2, Nq, Nk, 128}, 120), tiles);
  }
  for (const InputKind& kind : input_kinds()) expect_split(input(kind.name, {1, 1, 1, 70, 133, 128}, 121), {64, 64});
}

TEST_CASE("d = 128 waits twice a tile", "[4.9]") {
  require_counters();
  for (const Tiles& tiles : all_tiles) {
    for (const std::int64_t Nk : {1, 64, 150}) {
      const std::int64_t Nq = 200, query_tiles = tiles_of(Nq, tiles.Br), key_tiles = tiles_of(Nk, tiles.Bc);
      const worker::Reply reply =
          attention(input("normal", {1, 1, 1, Nq, Nk, 128}, 122).problem, tiles.numbers()).reply;
      expect_count(
          reply, "block_barriers", double(query_tiles * 2 * key_tiles),
          fmt::format("{} query tiles · 2 a K/V tile · {} K/V tiles, d=128, {}", query_tiles, key_tiles, tiles.text()),
          "there is a __syncthreads() that protects nothing, or one too few", "barriers");
    }
  }
}

TEST_CASE("d = 128 copies each tile once", "[4.9]") {
  require_counters();
  const std::int64_t Nq = 200, Nk = 150, d = 128;
  for (const Tiles& tiles : all_tiles) {
    const worker::Reply reply = attention(input("normal", {1, 1, 1, Nq, Nk, d}, 123).problem, tiles.numbers()).reply;
    for (const char* tensor : {"K", "V"}) {
      expect_count(
          reply, fmt::format("{}.async_bytes", tensor), double(tiles_of(Nq, tiles.Br) * Nk * d * 2),
          fmt::format("{} is read once for each of {} query tiles, {}", tensor, tiles_of(Nq, tiles.Br), tiles.text()),
          "a tile is copied more or less often than once", "traffic");
    }
  }
}

// ---- The whole chapter ----

TEST_CASE("Q split agrees with chapter 3", "[whole]") {
  for (const std::int64_t d : {64, 128}) {
    for (const char* kind : {"normal", "rising maximum", "value mean"}) {
      const Input given = input(kind, {1, 2, 2, 100, 140, d}, 100);
      const Problem problem = in_element(given.problem);
      const AttentionResult split = expect_split(given);
      const AttentionResult before = previous_attention(problem);
      // Each is within these bounds of the oracle.
      Bounds bounds = output_bounds(forward_oracle(problem), problem, precision());
      for (double& bound : bounds.element.values) bound *= 2;
      bounds.rms *= 2;
      judge::Layout layout;
      layout.tensor = "O (expected: chapter 3's)";
      layout.Br = 128;
      layout.Bc = 64;
      expect_close(split.O, {widened(before.O), bounds, layout,
                             output_mistakes(problem, {128, 64, 0, lane_rows(d, {})}), describe(problem, given.name)});
    }
  }
}

TEST_CASE("the answer does not depend on Br, Bc or the number of warps", "[whole]") {
  for (const std::int64_t d : head_dims) {
    for (const Tiles& tiles : all_tiles) {
      for (const char* kind : {"rising maximum", "large logits"})
        expect_split(input(kind, {1, 2, 2, 70, 133, d}, 101), tiles);
    }
  }
}

TEST_CASE("any two lengths agree with the oracle", "[whole]") {
  constexpr std::pair<std::int64_t, std::int64_t> lengths[] = {
      {1, 1}, {1, 239}, {113, 203}, {128, 217}, {239, 1}, {257, 257}, {512, 256}, {799, 3}, {1023, 1024}, {1024, 1023}};
  for (const auto& [Nq, Nk] : lengths) expect_split(input("normal", {1, 1, 1, Nq, Nk, 64}, 102));
  for (const std::int64_t d : {32, 128}) {
    for (const auto& [Nq, Nk] : {lengths[1], lengths[2], lengths[5], lengths[7]})
      expect_split(input("normal", {1, 1, 1, Nq, Nk, d}, 103), {64, 64});
  }
}

TEST_CASE("a row's answer depends on no other row of Q", "[whole]") {
  // All but one row become something else, NaN at last: a maximum or a factor of theirs must not reach it.
  const std::int64_t Nq = 130, d = 64;
  const Problem problem = input("rising maximum", {1, 1, 1, Nq, 100, d}, 104).problem;
  const AttentionResult before = attention(problem);
  expect_written(before.O.values[0], "O");
  for (const std::int64_t row : {0, 17, 47, 129}) {
    for (const float factor : {-3.0f, std::numeric_limits<float>::quiet_NaN()}) {
      Problem others = problem;
      for (std::int64_t i = 0; i < Nq; ++i)
        for (std::int64_t c = 0; c < d; ++c) others.Q(0, 0, i, c) *= i == row ? 1 : factor;
      const AttentionResult after = attention(others);
      for (std::int64_t c = 0; c < d; ++c) {
        const float is = after.O(0, 0, row, c), was = before.O(0, 0, row, c);
        expect(is == was,
               fmt::format("O of row {}, column {} is {} when the other rows of Q are multiplied by {}, and was {}",
                           row, c, is, factor, was),
               "a maximum, a sum or a factor of one row reaches another", "rows-mixed");
      }
    }
  }
}

TEST_CASE("the number of workers and the order of lanes change nothing", "[whole]") {
  const Problem problem = input("rising maximum", {1, 3, 3, 70, 100, 64}, 105).problem;
  expect_order_changes_nothing(problem, Tiles{}.numbers());
}

TEST_CASE("200 runs are equal to the last bit", "[whole]") {
  const Problem problem = input("rising maximum", {1, 1, 1, 40, 70, 64}, 106).problem;
  const Numbers numbers = Tiles{64, 64}.numbers();
  const AttentionResult first = attention(problem, numbers);
  expect_written(first.O.values[0], "O");
  for (int run = 2; run <= 200; ++run) {
    const AttentionResult again = attention(problem, numbers);
    expect(again.O.values == first.O.values && again.lse.values == first.lse.values,
           fmt::format("O or the LSE of run {} is not that of the first", run),
           "something is read before it is written, or while it is", "not-repeatable");
  }
}

TEST_CASE("more heads than a grid has rows", "[whole]") {
  expect_every_head(Tiles{32, 32}.numbers());
}

TEST_CASE("Q is read once, O and LSE are written once, K and V are read once per query tile", "[whole]") {
  require_counters();
  for (const Tiles& tiles : all_tiles) {
    const std::int64_t heads = 2, Nq = 200, Nk = 150, d = 64, query_tiles = tiles_of(Nq, tiles.Br);
    const worker::Reply reply =
        attention(input("normal", {1, heads, heads, Nq, Nk, d}, 107).problem, tiles.numbers()).reply;
    const double row = double(d) * 2 / 32;  // sectors
    const auto expect_sectors = [&](const std::string& name, double expected, const std::string& why) {
      expect_count(reply, name, expected, fmt::format("{}, {}", why, tiles.text()),
                   "a tensor is moved more or less often than it must be", "traffic");
    };
    expect_products(counter(reply, "tensor_instructions"), {1, heads, heads, Nq, Nk, d}, false, 2,
                    fmt::format("S and O, {}", tiles.text()));
    expect_sectors("Q.async_sectors", heads * Nq * row, "Q is read once");
    for (const char* tensor : {"K", "V"}) {
      expect_sectors(fmt::format("{}.async_sectors", tensor), query_tiles * heads * Nk * row,
                     fmt::format("{} is read once for each of ⌈Nq/Br⌉ = {} query tiles", tensor, query_tiles));
    }
    expect_sectors("O.store_sectors", heads * Nq * row, "O is written once");
    expect_sectors("lse.store_sectors", double(heads * Nq * 4) / 32, "the LSE is written once");
    expect_sectors("global.async_sectors", heads * row * double(Nq + 2 * query_tiles * Nk), "nothing else is copied");
    expect_sectors("global.load_sectors", 0, "nothing is read but by copies");
    expect_sectors("global.store_sectors", heads * Nq * row + double(heads * Nq * 4) / 32, "nothing else is written");
  }
}

TEST_CASE("one barrier a tile for d up to 64, two for d = 128", "[whole]") {
  require_counters();
  for (const std::int64_t d : head_dims) {
    for (const Tiles& tiles : all_tiles) {
      const std::int64_t heads = 2, Nq = 200, Nk = 150, each = d <= 64 ? 1 : 2;
      const Problem problem = input("normal", {1, heads, heads, Nq, Nk, d}, 108).problem;
      const worker::Reply reply = attention(problem, tiles.numbers()).reply;
      const std::int64_t query_tiles = tiles_of(Nq, tiles.Br), key_tiles = tiles_of(Nk, tiles.Bc);
      expect_count(reply, "block_barriers", double(heads * query_tiles * each * key_tiles),
                   fmt::format("{} heads · {} query tiles · {} a K/V tile · {} K/V tiles, d={}, {}", heads, query_tiles,
                               each, key_tiles, d, tiles.text()),
                   "there is a __syncthreads() that protects nothing, or one too few", "barriers");
      if (tiles.Br != 64) continue;
      // Chapter 3, with tiles of the same size, has three for each and one more for a query tile.
      const double before = counter(previous_attention(in_element(problem)).reply, "block_barriers");
      expect(counter(reply, "block_barriers") < before * double(each) / 3,
             fmt::format("with d={} and tiles of 64 × 64 there are {} barriers, in chapter 3 {}", d,
                         counter(reply, "block_barriers"), before),
             "warps wait for each other more often than K and V make them", "barriers");
    }
  }
}

TEST_CASE("warps exchange nothing through shared memory but K and V", "[whole]") {
  require_counters();
  // For 32 queries and Bc keys a warp reads the tiles of K and V by fragments of 512 bytes, four wavefronts of 128
  // bytes each, and stores and reads its own S (32 floats a key) and P (16 words a key). With d = 128 Q is read again.
  for (const std::int64_t d : head_dims) {
    for (const Tiles& tiles : all_tiles) {
      const double keys = 64, steps = keys / tiles.Bc, warps = tiles.warps();
      const double K = 4 * (keys / 16) * (double(d) / 16), S = keys, P = keys / 2;
      const double Q = d <= 64 ? 0 : steps * 4 * 2 * (double(d) / 16);
      const auto expect_most = [&](const std::string& way, double most, const std::string& why) {
        const double got = growth("falling maximum", d, tiles, [&](const worker::Reply& reply) {
          return counter(reply, "shared." + way + "_wavefronts");
        });
        expect(got <= most,
               fmt::format("with d={}, {} another 64 keys cost {} wavefronts of shared memory's {}s; {} are enough: {}",
                           d, tiles.text(), got, way, most, why),
               "warps put something into shared memory beside S and P of their own rows, or banks conflict",
               "shared-traffic");
      };
      expect_most("load", warps * (2 * K + S + P + Q), "K, V, and each warp's own S and P");
      expect_most("store", warps * (S + P), "each warp's own S and P");
    }
  }
  // And chapter 3 takes three times as many, at the usual sizes of both.
  const auto wavefronts = [](const worker::Reply& reply) {
    return counter(reply, "shared.load_wavefronts") + counter(reply, "shared.store_wavefronts");
  };
  const Problem problem = in_element(input("normal", {1, 1, 1, 128, 512, 64}, 109).problem);
  const double now = wavefronts(attention(problem).reply), before = wavefronts(previous_attention(problem).reply);
  expect(3 * now < before,
         fmt::format("with Nq=128, Nk=512, d=64 there are {} wavefronts, in chapter 3 {}: less than a third of that is "
                     "expected",
                     now, before),
         "warps put something into shared memory beside S and P of their own rows", "shared-traffic");
}

TEST_CASE("extra memory does not grow with N", "[whole]") {
  expect_no_extra_memory(110, false, "S or P");
}

/// Kernels 1 and 2 keep m at the maximum, and take 32 keys at a time for every d.
constexpr Tiles tiles_before[] = {{128, 64}, {32, 32}};

TEST_CASE("kernels 1 and 2 agree with the oracle", "[whole]") {
  for (const int kernel : {1, 2}) {
    for (const Tiles& tiles : tiles_before) {
      Numbers numbers = tiles.numbers();
      numbers["kernel"] = kernel;
      for (const std::int64_t d : head_dims) {
        for (const auto& [Nq, Nk] : {std::pair{100, 150}, {64, 64}, {1, 70}, {130, 3}}) {
          for (const char* kind : {"rising maximum", "value mean"}) {
            const Input given = input(kind, {1, 2, 2, Nq, Nk, d}, 111);
            expect_attention(given.problem, fmt::format("{}, kernel {}", given.name, kernel), numbers, {32, 0});
          }
        }
      }
    }
  }
}

TEST_CASE("kernel 1 waits twice a tile and reads by loads, kernel 2 once and by copies", "[whole]") {
  require_counters();
  for (const std::int64_t d : head_dims) {
    for (const int kernel : {1, 2}) {
      const worker::Reply reply =
          attention(input("normal", {1, 2, 2, 200, 150, d}, 112).problem, {{"kernel", kernel}, {"Bc", 64}}).reply;
      expect_count(
          reply, "block_barriers", 2 * 2 * (kernel == 1 ? 2 : 1) * 3,
          fmt::format("2 heads · 2 query tiles · {} · 3 K/V tiles, kernel {}, d={}", kernel == 1 ? 2 : 1, kernel, d),
          "the kernel is not as it was given", "barriers");
      for (const char* tensor : {"K", "V"}) {
        expect_count(reply, fmt::format("{}.{}_bytes", tensor, kernel == 1 ? "load" : "async"),
                     double(2 * 2 * 150 * d * 2),
                     fmt::format("{} is read once for each of 2 query tiles, kernel {}, d={}", tensor, kernel, d),
                     "a tensor is moved more or less often than it must be", "traffic");
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
          rising.problem, [](std::int64_t) { return 1; }, [](std::int64_t j) { return double(j / 32); });
      return counter(attention(rising.problem, {{"kernel", kernel}, {"Br", 32}, {"Bc", 32}, {"warps", 1}}).reply,
                     "shuffles");
    };
    const double expected = kernel == 0 ? 0 : 2 * 16, got = shuffles(128) - shuffles(64);
    expect(
        got == expected,
        fmt::format("with scores that rise by 1 every 32 keys, 64 keys cost {} shuffles in kernel {}; {} are expected",
                    got, kernel == 0 ? 3 : kernel, expected),
        "m moves at other times than it should", "slack-ignored");
  }
}

TEST_CASE("every size of shared memory has tiles that fit", "[whole]") {
  // What a block may have on a T4, on RTX cards, on an A100, on an H100.
  for (const std::int64_t KiB : {64, 99, 163, 227}) {
    for (const int kernel : {1, 2, 0}) {
      for (const std::int64_t d : head_dims) {
        const Input given = input("normal", {1, 1, 1, 140, 100, d}, 114);
        expect_attention(given.problem, fmt::format("{}, kernel {}, {} KiB", given.name, kernel == 0 ? 3 : kernel, KiB),
                         {{"kernel", kernel}, {"shared_limit", double(KiB * 1024)}});
      }
    }
  }
}
