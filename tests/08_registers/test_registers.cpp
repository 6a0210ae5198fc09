// Chapter 8: the kernel in registers, phase by phase and whole.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "common/attention/element.hpp"
#include "tests/support/context.hpp"
#include "tests/support/kernel_stage.hpp"
#include "tests/support/ragged.hpp"

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
constexpr Tiles all_tiles[] = {{128, 64}, {32, 32}};
constexpr std::int64_t head_dims[] = {32, 64, 128};

/// A row takes Bc keys at a time, and m lags behind by at most 8 in units of log2.
judge::LaneRows lane_rows(const Tiles& tiles) {
  return {tiles.Bc, 8 * judge::ln_2};
}

AttentionResult expect_right(const Input& given, const Tiles& tiles = {}, const std::string& element = "") {
  return expect_attention(given.problem, fmt::format("{}, {} warps", given.name, tiles.warps()), tiles.numbers(),
                          lane_rows(tiles), element);
}

const std::string bf16 = "bfloat16";  // the chapter's second stage; its first is for fp16

/// The LSE alone, against the oracle.
void expect_lse(const Input& given, const Tiles& tiles = {}) {
  expect_lse(given, tiles.numbers(), {tiles.Br, tiles.Bc, 0, lane_rows(tiles)});
}

std::int64_t tiles_of(std::int64_t rows, std::int64_t tile) {
  return (rows + tile - 1) / tile;
}

/// How many tiles of keys the queries of tile `t` see.
std::int64_t tiles_seen(const Problem& problem, const Tiles& tiles, std::int64_t t) {
  const Shape& s = problem.shape;
  const std::int64_t last_query = std::min((t + 1) * tiles.Br, s.Nq) - 1;
  return tiles_of(visible_keys(last_query, s.Nq, s.Nk, problem.causal()), tiles.Bc);
}
/// The sum over the query tiles of all heads.
template <class Count>
std::int64_t over_query_tiles(const Shape& s, const Tiles& tiles, const Count& count) {
  std::int64_t sum = 0;
  for (std::int64_t t = 0; t < tiles_of(s.Nq, tiles.Br); ++t) sum += count(t);
  return s.B * s.H * sum;
}

/// What a counter of the stage grows by when Nk grows from 128 to 192: for one block's Br queries and 64 more keys.
double growth(const std::string& name, std::int64_t d, const Tiles& tiles, const std::string& kind = "normal") {
  const auto at = [&](std::int64_t Nk) {
    return counter(attention(input(kind, {1, 1, 1, tiles.Br, Nk, d}, 7).problem, tiles.numbers()).reply, name);
  };
  const double before = at(128);
  return at(192) - before;
}

// ---- 8.1 ----

struct Place {
  std::int64_t row, column;
  friend bool operator==(const Place&, const Place&) = default;
};

/// One of the three matrices: where a lane's elements lie by the manual, and known ways to get that wrong.
struct Matrix {
  const char* name;
  int first, elements;  ///< in the table of the operation "places"
  Place (*right)(int lane, int element);
  Place (*halves_exchanged)(int lane, int element);  ///< parts in the wrong order
};
const Matrix matrices[] = {
    {"A", 0, 8,
     [](int lane, int e) {
       return Place{lane / 4 + e / 2 % 2 * 8, lane % 4 * 2 + e % 2 + e / 4 * 8};
     },
     [](int lane, int e) {
       return Place{lane / 4 + e / 4 * 8, lane % 4 * 2 + e % 2 + e / 2 % 2 * 8};
     }},
    {"B", 8, 4,
     [](int lane, int e) {
       return Place{lane % 4 * 2 + e % 2 + e / 2 * 8, lane / 4};
     },
     [](int lane, int e) {
       return Place{lane % 4 * 2 + e / 2 + e % 2 * 8, lane / 4};
     }},
    {"D", 12, 4,
     [](int lane, int e) {
       return Place{lane / 4 + e / 2 * 8, lane % 4 * 2 + e % 2};
     },
     [](int lane, int e) {
       return Place{lane / 4 + e % 2 * 8, lane % 4 * 2 + e / 2};
     }},
};

void expect_places() {
  worker::Call request("places");
  request.output<std::int32_t>("rows", 512).output<std::int32_t>("columns", 512);
  const worker::Reply reply = call(request);
  const auto rows = reply.output<std::int32_t>("rows"), columns = reply.output<std::int32_t>("columns");
  for (const Matrix& matrix : matrices) {
    const auto got = [&](int lane, int e) {
      const auto i = std::size_t(16 * lane + matrix.first + e);
      return Place{rows[i], columns[i]};
    };
    const auto all = [&](const auto& place) {
      for (int lane = 0; lane < 32; ++lane)
        for (int e = 0; e < matrix.elements; ++e)
          if (got(lane, e) != place(lane, e)) return false;
      return true;
    };
    if (all(matrix.right)) continue;
    const bool transposed = all([&](int lane, int e) {
      const Place p = matrix.right(lane, e);
      return Place{p.column, p.row};
    });
    const bool turned = all([&](int lane, int e) {
      const Place p = matrix.right(lane, e);
      return Place{p.row / 8 * 8 + p.column % 8, p.column / 8 * 8 + p.row % 8};
    });
    const bool exchanged = all(matrix.halves_exchanged);
    const bool apart = all([&](int lane, int e) {
      Place p = matrix.right(lane, e);
      std::int64_t& along = matrix.name[0] == 'B' ? p.row : p.column;  // the two neighbours, 4 apart
      along = along / 8 * 8 + along % 8 / 2 + along % 2 * 4;
      return p;
    });
    int lane = 0, e = 0;
    while (got(lane, e) == matrix.right(lane, e)) {
      if (++e == matrix.elements) ++lane, e = 0;
    }
    const Place is = got(lane, e), wanted = matrix.right(lane, e);
    expect(false,
           fmt::format("element {} of {} in lane {} is said to lie in row {}, column {}: it lies in row {}, column {}",
                       e, matrix.name, lane, is.row, is.column, wanted.row, wanted.column),
           transposed  ? "row and column are exchanged"
           : turned    ? "row and column are exchanged within each part: in A and D a quad has a row, in B a column"
           : exchanged ? "the elements go through the parts in another order"
           : apart ? "a lane's two elements of a part lie four apart: they are neighbours, lane % 4 * 2 and the next"
                   : "",
           transposed || turned ? "places-transposed"
           : exchanged          ? "places-order"
           : apart              ? "places-apart"
                                : "unknown");
  }
  expect(true, "");
}

}  // namespace

// ---- 8.1 places ----

TEST_CASE("each lane's elements lie where the manual says", "[8.1]") {
  expect_places();
}

TEST_CASE("one mma multiplies what the places name", "[8.1]") {
  Tensor<float> A({1, 1, 16, 16}), B({1, 1, 16, 8});
  A.values = from_codes(to_codes(normal_values(256, 1), "float16"), "float16");
  B.values = from_codes(to_codes(normal_values(128, 2), "float16"), "float16");
  const std::vector<std::uint16_t> A_codes = to_codes(A.values, "float16"), B_codes = to_codes(B.values, "float16");
  worker::Call request("multiply");
  request.input("A", A_codes).input("B", B_codes).output<float>("C", 128);
  const Tensor<float> C = tensor(call(request), "C", {1, 1, 16, 8});
  Tensor<double> expected({1, 1, 16, 8}), size({1, 1, 16, 8});
  for (std::int64_t i = 0; i < 16; ++i)
    for (std::int64_t j = 0; j < 8; ++j)
      for (std::int64_t k = 0; k < 16; ++k) {
        const double product = double(A(0, 0, i, k)) * B(0, 0, k, j);
        expected(0, 0, i, j) += product;
        size(0, 0, i, j) += std::abs(product);
      }
  judge::Layout layout;
  layout.tensor = "C";
  layout.axes[0] = layout.axes[1] = "";
  expect_close(C, {expected, product_bounds(size, 16), layout, {}, "C = A B, normal A and B, seeds 1 and 2"});
}

// ---- 8.2 swizzled tiles and ldmatrix ----

TEST_CASE("tiles come back from swizzled rows as they were", "[8.2]") {
  // One of 16 columns at a time, so that a chunk from another place shows.
  for (const std::int64_t d : head_dims) {
    expect_right(input("value mean", {1, 1, 1, 32, 32, d}, 10), {32, 32});
    expect_right(input("one hot", {1, 1, 1, 40, 64, d}, 11), {32, 32});
  }
  expect_right(input("normal", {1, 2, 2, 70, 133, 64}, 12));
}

TEST_CASE("each chunk of a row has a place of its own", "[8.2]") {
  // Two chunks in one place are a race, and their old place is never written: the simulator reports both.
  for (const std::int64_t d : head_dims)
    for (const Tiles& tiles : {Tiles{}, {32, 32}}) expect_right(input("normal", {1, 1, 1, 32, 64, d}, 13), tiles);
}

TEST_CASE("cp.async and ldmatrix meet no bank conflict", "[8.2]") {
  require_counters();
  for (const std::int64_t d : head_dims) {
    for (const Tiles& tiles : all_tiles) {
      const Problem problem = input("normal", {1, 1, 1, tiles.Br, 192, d}, 14).problem;
      for (const auto& [element, way] :
           {std::pair{"float16", "load"}, {"float16", "store"}, {"bfloat16", "load"}, {"bfloat16", "store"}}) {
        const worker::Reply reply = attention(problem, tiles.numbers(), element).reply;
        const double wavefronts = counter(reply, fmt::format("shared.{}_wavefronts", way)),
                     ideal = counter(reply, fmt::format("shared.{}_ideal", way));
        expect(wavefronts == ideal,
               fmt::format("with d={}, {}, {} the {}s of shared memory take {} wavefronts, {} without bank conflicts",
                           d, tiles.text(), element, way, wavefronts, ideal),
               d < 64
                   ? "the same chunk of eight rows lies in the same banks: two rows lie side by side in them, so the "
                     "exclusive or must differ from pair to pair"
                   : "the same chunk of eight rows lies in the same banks: the exclusive or must differ from row to "
                     "row",
               "swizzle-conflicts");
      }
    }
  }
}

// ---- 8.3 multiply_QK ----

TEST_CASE("every 16 columns of Q and K count", "[8.3]") {
  // Q and K are zero but for 16 columns: the scores are those of these columns alone.
  for (const std::int64_t d : head_dims) {
    for (std::int64_t first = 0; first < d; first += 16) {
      expect_right(with_columns(input("normal", {1, 1, 1, 32, 64, d}, 20), first, 16), {32, 32});
    }
  }
}

TEST_CASE("every key has a score of its own", "[8.3]") {
  for (const Tiles& tiles : all_tiles) {
    expect_right(input("one hot", {1, 1, 1, 64, 192, 64}, 21), tiles);
    expect_right(input("normal", {1, 2, 2, 70, 133, 128}, 22), tiles);
    expect_right(input("normal", {1, 2, 2, 70, 133, 32}, 23), tiles);
  }
}

TEST_CASE("Q, K and V are loaded once for 32 rows", "[8.3]") {
  require_counters();
  // An ldmatrix_x4 brings 16 x 16 elements.
  for (const std::int64_t d : head_dims) {
    for (const Tiles& tiles : all_tiles) {
      const double KV = 2 * (64.0 / 16) * (double(d) / 16), Q = d <= 64 ? 0 : 64.0 / tiles.Bc * 2 * (double(d) / 16),
                   expected = tiles.warps() * (KV + Q);
      const double got = growth("shared.matrix_loads", d, tiles);
      expect(got == expected,
             fmt::format("with d={}, {} another 64 keys cost {} ldmatrix, expected {}: each warp loads each 16x16 part "
                         "of K and V once{}",
                         d, tiles.text(), got, expected, Q > 0 ? ", and Q once a tile" : ""),
             "a part of Q, K or V is loaded more often than once, or with fewer than four matrices at a time",
             "matrix-loads");
      const double products = growth("tensor_instructions", d, tiles),
                   needed = tiles.warps() * 2 * 2 * (64.0 / 8) * (double(d) / 16);
      expect(products == needed,
             fmt::format("with d={}, {} another 64 keys cost {} mma, expected {}", d, tiles.text(), products, needed),
             "some products are computed more or less often than once", "products");
    }
  }
}

// ---- 8.4 online_softmax ----

TEST_CASE("a maximum that rises in the last tile", "[8.4]") {
  expect_right(input("rising maximum", {1, 1, 1, 64, 128, 64}, 30), {32, 32});
  expect_right(input("rising maximum", {1, 1, 1, 64, 200, 32}, 31));
  expect_right(input("rising maximum", {1, 1, 1, 64, 200, 128}, 32));
  expect_right(input("falling maximum", {1, 1, 1, 64, 200, 64}, 33));
}

TEST_CASE("a row's maximum may lie in any lane of its quad", "[8.4]") {
  // One key towers over the others: the lane that has it changes with the key.
  for (const std::int64_t key : {0, 1, 2, 4, 6, 7, 9, 12}) {
    Input one = input("normal", {1, 1, 1, 32, 32, 64}, 34);
    add_to_scores(
        one.problem, [](std::int64_t i) { return 4 + i % 5; }, [=](std::int64_t j) { return j == key ? 8 : 0; });
    one.name += fmt::format(", the scores of key {} about 32 to 64 higher", key);
    expect_right(one, {32, 32});
  }
}

TEST_CASE("each row has its own maximum", "[8.4]") {
  // The scores of neighbouring rows lie far apart: relative to another row's maximum they are all 0, or infinite.
  for (const std::int64_t d : {64, 128}) {
    Input apart = input("normal", {1, 1, 1, 64, 100, d}, 35);
    add_to_scores(
        apart.problem, [](std::int64_t i) { return 7 * (i % 32 - 16); }, [](std::int64_t) { return 1; });
    apart.name += ", scores of row i about 7·(i % 32 − 16)";
    expect_right(apart, {32, 32});
  }
}

TEST_CASE("a maximum costs two shuffles", "[8.4]") {
  require_counters();
  for (const std::int64_t d : head_dims) {
    const double shuffles = growth("shuffles", d, {});
    expect(
        shuffles == 4 * 4 * 2,
        fmt::format("with d={} another 64 keys cost {} shuffles; 32 are enough: two for each of the 4 rows of a lane, "
                    "in each of 4 warps",
                    d, shuffles),
        "a row's maximum needs two shuffles within its quad, and its sum none before the end", "shuffles");
  }
}

TEST_CASE("m moves only when a score exceeds it by more than slack", "[8.4]") {
  // The scores rise by this much from the first tile to the second: 5 is about 7 in units of log2, 7 about 10.
  for (const auto& [rise, rescaled] : {std::pair{5, 1}, {7, 2}}) {
    for (const std::int64_t d : head_dims) {
      Input rising = input("uniform", {1, 1, 1, 32, 64, d}, 36);
      add_to_scores(
          rising.problem, [](std::int64_t) { return 1; }, [=](std::int64_t j) { return j < 32 ? 0 : rise; });
      rising.name += fmt::format(", scores rise by {} at key 32", rise);
      const AttentionResult result = expect_right(rising, {32, 32});
      if (result.reply.counters.empty()) continue;  // nothing counts on the GPU
      const double tiles = counter(result.reply, "note.rescaled tile");
      expect(tiles == rescaled,
             fmt::format("with d={} and scores that rise by {} at the second tile O is rescaled in {} of 2 tiles, "
                         "expected {} (in the first, m leaves -inf)",
                         d, rise, tiles, rescaled),
             tiles > rescaled ? m_follows_too_early : "m stays behind by more than `slack`", "slack-ignored");
    }
  }
}

TEST_CASE("large logits stay finite", "[8.4]") {
  expect_right(with_zeros(input("large logits", {1, 1, 1, 64, 128, 64}, 37)));
  expect_right(input("large logits", {1, 1, 1, 64, 128, 64}, 37));
  expect_right(input("large logits", {1, 1, 1, 64, 90, 128}, 38), {32, 32});
  expect_right(input("negative logits", {1, 1, 1, 64, 70, 64}, 39), {32, 32});
}

TEST_CASE("rows without keys give zero and -inf, never NaN", "[8.4]") {
  for (const auto& [Nq, Nk] : {std::pair{100, 30}, {40, 39}, {200, 129}}) {
    for (const std::int64_t d : head_dims) {
      const AttentionResult result = expect_right(input("value mean", {1, 1, 1, Nq, Nk, d}, 40, true));
      for (std::int64_t i = 0; i < Nq - Nk; ++i) {
        expect(result.lse(0, 0, i, 0) == -std::numeric_limits<float>::infinity() && result.O(0, 0, i, 0) == 0,
               fmt::format("query {} sees no key, and has O = {} and LSE = {}: they must be 0 and -inf", i,
                           result.O(0, 0, i, 0), result.lse(0, 0, i, 0)),
               "", "row-without-keys");
      }
    }
  }
}

TEST_CASE("a scale of any sign", "[8.4]") {
  for (const float scale : {0.5f, 0.3f, 0.0f, -0.05f, -0.3f}) {
    for (const std::int64_t Nk : {64, 100}) {
      Input scaled = input("normal", {1, 1, 1, 40, Nk, 64}, 41, Nk == 64);
      scaled.problem.scale = scale;
      scaled.name += fmt::format(", scale {}", scale);
      expect_right(scaled, {32, 32});
    }
  }
}

TEST_CASE("probabilities keep their precision", "[8.5]") {
  expect_right(input("normal", {1, 1, 1, 64, 512, 64}, 42), {32, 32});
  expect_right(input("value mean", {1, 1, 1, 64, 512, 64}, 43), {32, 32});
  expect_right(input("normal", {1, 1, 1, 64, 3, 32}, 44), {32, 32});
}

// ---- 8.5 accumulate_PV ----

TEST_CASE("every key's value reaches O", "[8.5]") {
  // V is small but for 16 keys.
  for (const std::int64_t d : head_dims) {
    const std::int64_t Nk = 64;
    for (std::int64_t first = 0; first < Nk; first += 16) {
      Input some = input("normal", {1, 1, 1, 64, Nk, d}, 50);
      for (std::int64_t j = 0; j < Nk; ++j) {
        for (std::int64_t c = 0; c < d; ++c) {
          float& value = some.problem.V(0, 0, j, c);
          value = j >= first && j < first + 16 ? value + 8 : value / 8;
        }
      }
      some.name += fmt::format(", V small but for keys {} to {}", first, first + 15);
      expect_right(some, {32, 32});
    }
  }
}

TEST_CASE("P reaches the keys that it belongs to", "[8.5]") {
  // One key of 16 has all the weight: V of another is not near.
  for (const Tiles& tiles : all_tiles) expect_right(input("one hot", {1, 1, 1, 40, 140, 64}, 51), tiles);
  for (const std::int64_t d : {32, 128}) expect_right(input("late spike", {1, 1, 1, 40, 100, d}, 52), {32, 32});
}

TEST_CASE("sums keep their precision over many tiles", "[8.5]") {
  expect_right(input("value mean", {1, 1, 1, 32, 2048, 64}, 53), {32, 32});
}

// ---- 8.6 write_output ----

TEST_CASE("the LSE is a natural logarithm over all keys", "[8.6]") {
  for (const char* kind : {"normal", "large logits", "negative logits", "uniform"}) {
    expect_lse(input(kind, {1, 2, 2, 70, 133, 64}, 60));
    expect_lse(input(kind, {1, 1, 1, 33, 20, 32}, 61), {32, 32});
  }
}

TEST_CASE("O is divided by l exactly once", "[8.6]") {
  // With a V of ones O is one; without the division it is l, divided twice it is 1 / l.
  for (const std::int64_t d : head_dims) {
    expect_right(with_V_of_ones(input("normal", {1, 1, 1, 40, 90, d}, 62)), {32, 32});
    // Rows whose l differ: each has its own.
    expect_right(with_rows_apart(input("value mean", {1, 1, 1, 64, 90, d}, 63)), {32, 32});
  }
}

TEST_CASE("every element of O is written once, and nothing else", "[8.6]") {
  for (const auto& [Nq, Nk] : {std::pair{1, 3}, {63, 65}, {70, 40}, {129, 64}}) {
    for (const Tiles& tiles : {Tiles{}, {32, 32}}) expect_right(input("value mean", {2, 2, 2, Nq, Nk, 64}, 64), tiles);
    expect_right(input("value mean", {1, 2, 2, Nq, Nk, 128}, 65), {32, 32});
  }
}

TEST_CASE("O is written 16 bytes a lane", "[8.6]") {
  require_counters();
  for (const std::int64_t d : head_dims) {
    const AttentionResult result = attention(input("normal", {1, 2, 2, 128, 64, d}, 66).problem);
    expect_wide(result.reply, "O", "store", double(2 * 128 * d * 2), fmt::format("O is written once, d={}", d));
  }
}

// ---- 8.7 the pipeline ----

TEST_CASE("ragged tails are part of the answer", "[8.7]") {
  for (const auto& [Nq, Nk] : {std::pair{1, 1}, {1, 33}, {33, 1}, {65, 95}, {31, 97}, {70, 133}}) {
    expect_right(input("late spike", {1, 2, 2, Nq, Nk, 64}, 70), {32, 32});
    expect_right(input("late spike", {1, 1, 1, Nq, Nk, 32}, 71, true), {32, 32});
    expect_right(input("late spike", {1, 1, 1, Nq, Nk, 128}, 72, true));
  }
}

TEST_CASE("what lies behind the last key never reaches O", "[8.7]") {
  for (const auto& [Nq, Nk] : {std::pair{5, 70}, {70, 5}}) {
    const Problem problem = input("value mean", {1, 1, 1, Nq, Nk, 64}, 73).problem;
    expect_nothing_from_behind(problem, Tiles{}.numbers(), 128);
  }
}

TEST_CASE("the stages do not race, whatever the order of the lanes", "[8.7]") {
  // The simulator reports races. Lanes in several orders, so that nothing depends on a GPU's whim.
  for (const std::int64_t d : head_dims) {
    for (const int lane_seed : {0, 1, 2}) {
      Input given = input("rising maximum", {1, 1, 1, 70, 150, d}, 74);
      Numbers numbers = Tiles{}.numbers();
      numbers["lane_seed"] = lane_seed;
      given.name += fmt::format(", lanes in the order of seed {}", lane_seed);
      expect_attention(given.problem, given.name, numbers, lane_rows({}));
    }
  }
}

TEST_CASE("one barrier a tile", "[8.7]") {
  require_counters();
  for (const std::int64_t d : head_dims) {
    for (const Tiles& tiles : all_tiles) {
      const std::int64_t heads = 2, Nq = 200, Nk = 150;
      const worker::Reply reply =
          attention(input("normal", {1, heads, heads, Nq, Nk, d}, 75).problem, tiles.numbers()).reply;
      const std::int64_t query_tiles = tiles_of(Nq, tiles.Br), key_tiles = tiles_of(Nk, tiles.Bc);
      expect_count(reply, "block_barriers", double(heads * query_tiles * key_tiles),
                   fmt::format("{} heads · {} query tiles · {} K/V tiles, d={}, {}", heads, query_tiles, key_tiles, d,
                               tiles.text()),
                   "there is a __syncthreads() that protects nothing, or one too few", "barriers");
    }
  }
}

TEST_CASE("tiles are copied 16 bytes a thread, without a load", "[8.7]") {
  require_counters();
  for (const std::int64_t d : head_dims) {
    const std::int64_t Nq = 256, Nk = 192;
    const worker::Reply reply = attention(input("normal", {1, 1, 1, Nq, Nk, d}, 76).problem).reply;
    expect_wide(reply, "Q", "async", double(Nq * d * 2), fmt::format("Q is read once, d={}", d));
    for (const char* tensor : {"K", "V"}) {
      expect_wide(reply, tensor, "async", double(2 * Nk * d * 2),
                  fmt::format("{} is read for each of 2 query tiles, d={}", tensor, d));
    }
  }
}

// ---- The whole chapter ----

TEST_CASE("registers agrees with the oracle", "[whole]") {
  std::uint64_t seed = 100;
  for (const InputKind& kind : input_kinds()) {
    for (const bool causal : {false, true}) {
      expect_right(input(kind.name, {1, 2, 2, 70, 133, 64}, ++seed, causal));
      expect_right(input(kind.name, {1, 1, 1, 40, 90, 128}, ++seed, causal), {32, 32});
      expect_right(input(kind.name, {2, 1, 1, 90, 64, 32}, ++seed, causal), {32, 32});
    }
  }
}

TEST_CASE("bf16 agrees with the oracle", "[whole]") {
  for (const bool causal : {false, true}) {
    for (const std::int64_t d : head_dims) {
      expect_right(input("normal", {1, 2, 2, 70, 133, d}, 130, causal), {}, bf16);
      expect_right(input("rising maximum", {1, 1, 1, 133, 70, d}, 131, causal), {32, 32}, bf16);
    }
    expect_right(input("large logits", {1, 1, 1, 64, 128, 64}, 132, causal), {}, bf16);
    expect_right(input("one hot", {1, 1, 1, 40, 140, 64}, 133, causal), {}, bf16);
  }
}

TEST_CASE("any two lengths agree with the oracle", "[whole]") {
  // Some of them: tests/cuda/test_any_lengths.cpp has them all.
  const std::int64_t most = context().backend == Backend::cuda ? kAnyProduct : 65 * 1023 * 64;
  for_ragged(17, most, [](const Shape& shape, bool causal, std::uint64_t number) {
    const Input given = input("normal", shape, 140 + number, causal);
    const bool large = number / 6 % 2 == 0;  // every second pair of lengths
    expect_right(given, large ? Tiles{} : Tiles{32, 32});
    expect_right(given, large ? Tiles{32, 32} : Tiles{}, bf16);
  });
}

TEST_CASE("the answer does not depend on Br, Bc or the number of warps", "[whole]") {
  for (const std::int64_t d : head_dims) {
    for (const Tiles& tiles : all_tiles) {
      expect_right(input("rising maximum", {1, 2, 2, 70, 133, d}, 150), tiles);
      expect_right(input("large logits", {1, 1, 1, 140, 90, d}, 151, true), tiles);
    }
  }
}

TEST_CASE("future positions have zero influence", "[whole]") {
  for (const std::int64_t d : head_dims) {
    for (const std::int64_t query : {0, 77, 128})
      expect_no_influence_from_the_future(input("value mean", {1, 1, 1, 160, 200, d}, 152, true).problem, query,
                                          Tiles{}.numbers());
  }
}

TEST_CASE("a row's answer depends on no other row of Q", "[whole]") {
  // All but one row become something else, NaN at last: a maximum or a factor of theirs must not reach it.
  const std::int64_t Nq = 130, d = 64;
  const Problem problem = input("rising maximum", {1, 1, 1, Nq, 100, d}, 153).problem;
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
  const Problem problem = input("rising maximum", {1, 3, 3, 70, 100, 64}, 154, true).problem;
  expect_order_changes_nothing(problem, Tiles{}.numbers());
}

TEST_CASE("200 runs are equal to the last bit", "[whole]") {
  // tests/cuda/test_any_lengths.cpp does it with blocks on all of a GPU, and for bf16.
  const Problem problem = input("rising maximum", {1, 1, 1, 40, 70, 64}, 155).problem;
  const Numbers numbers = Tiles{}.numbers();
  const AttentionResult first = attention(problem, numbers);
  expect_written(first.O.values[0], "O");
  for (int run = 2; run <= 200; ++run) {
    const AttentionResult again = attention(problem, numbers);
    expect(again.O.values == first.O.values && again.lse.values == first.lse.values,
           fmt::format("O or the LSE of run {} is not that of the first", run),
           "something is read before it is written, or while it is", "not-repeatable");
  }
}

TEST_CASE("Q is read once, K and V up to the diagonal; O and the LSE are written once", "[whole]") {
  require_counters();
  for (const bool causal : {false, true}) {
    for (const auto& [Nq, Nk] : {std::pair{256, 256}, {200, 333}, {333, 200}}) {
      for (const Tiles& tiles : all_tiles) {
        const Problem problem = input("normal", {1, 2, 2, Nq, Nk, 64}, 156, causal).problem;
        const Shape& s = problem.shape;
        const worker::Reply reply = attention(problem, tiles.numbers()).reply;
        const double row = double(s.d) * 2;
        const auto expect_bytes = [&](const std::string& name, double expected, const std::string& why) {
          expect_count(
              reply, name, expected,
              fmt::format("{}, Nq={}, Nk={}, causal={}, {}", why, s.Nq, s.Nk, causal ? "yes" : "no", tiles.text()),
              "a tensor is moved more or less often than it must be", "traffic");
        };
        for (const char* tensor : {"K", "V"}) {
          expect_bytes(
              fmt::format("{}.async_bytes", tensor),
              row * double(over_query_tiles(
                        s, tiles, [&](auto t) { return std::min(tiles_seen(problem, tiles, t) * tiles.Bc, s.Nk); })),
              fmt::format("{} is read up to the last tile that a query tile sees", tensor));
        }
        expect_bytes("Q.async_bytes", double(s.H * s.Nq) * row, "Q is read once");
        expect_bytes("global.load_bytes", 0, "nothing is read but by cp.async");
        expect_bytes("O.store_bytes", double(s.H * s.Nq) * row, "O is written once");
        expect_bytes("lse.store_bytes", double(s.H * s.Nq * 4), "the LSE is written once");
      }
    }
  }
}

TEST_CASE("shared memory holds no S and no P", "[whole]") {
  require_counters();
  // What is stored there: Q, K and V by cp.async, 16 bytes a lane, and O once by stmatrix. Ordinary stores: none. What
  // is loaded: parts of Q, K and V by ldmatrix, and O once, 16 bytes a lane.
  for (const std::int64_t d : head_dims) {
    for (const auto& [tiles, element] : {std::pair{Tiles{}, "float16"}, {{32, 32}, "float16"}, {{}, "bfloat16"}}) {
      const std::int64_t Nk = 192;
      const worker::Reply reply =
          attention(input("rising maximum", {1, 1, 1, tiles.Br, Nk, d}, 157).problem, tiles.numbers(), element).reply;
      const double O_parts = double(tiles.Br * d) / 256, rows_of_16 = double(tiles.Br * d) / 256;
      const auto expect_shared = [&](const std::string& name, double expected, const std::string& why) {
        expect_count(reply, "shared." + name, expected, fmt::format("{}, d={}, {}, {}", why, d, tiles.text(), element),
                     "something else than tiles of Q, K, V and O goes through shared memory", "shared-traffic");
      };
      expect_shared("store_instructions", 0, "no lane stores to shared memory by itself");
      expect_shared("matrix_stores", O_parts, "O is stored once, 16 x 16 an instruction");
      expect_shared("load_instructions", rows_of_16, "O is read once, 16 bytes a lane");
    }
  }
}

TEST_CASE("the tiles fit 64, 99, 163 and 227 KB of shared memory", "[whole]") {
  // What a block may have on Turing, on consumer GPUs, on an A100 and on an H100.
  for (const int limit : {64, 99, 163, 227}) {
    for (const std::int64_t d : head_dims) {
      const Problem problem = in_element(input("normal", {1, 1, 1, 70, 90, d}, 158).problem);
      expect_attention(problem, fmt::format("normal, seed 158, {} KB of shared memory", limit),
                       {{"shared_limit", limit * 1024}});
    }
  }
}

TEST_CASE("extra memory does not grow with N", "[whole]") {
  expect_no_extra_memory(159, true, "S or P");
}
