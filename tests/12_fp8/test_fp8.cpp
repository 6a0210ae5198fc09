// Chapter 12: the kernels that round to e4m3 and the kernel that multiplies, phase by phase and as a whole.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <numbers>

#include "common/attention/element.hpp"
#include "common/attention/half.hpp"
#include "tests/support/context.hpp"
#include "tests/support/forward_properties.hpp"
#include "tests/support/matmul.hpp"
#include "tests/support/warp_specialised.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

/// Tile sizes for both head dimensions, and for d = 64 only.
const Tiles two{128, 128, 12}, three{192, 128, 16};
/// Multiply-adds compute one exponential in four.
const Tiles by_fma{128, 128, 12, {{"fma", 4}}};
constexpr std::int64_t rows_of_block = 128;

/// Multiplies rows [first, first + 128) of a tensor, in every head, by a factor.
void scale_block(Tensor<float>& tensor, std::int64_t block, float factor) {
  const std::int64_t heads = tensor.sizes[0] * tensor.sizes[1], N = tensor.sizes[2], d = tensor.sizes[3];
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t row = rows_of_block * block; row < std::min(N, rows_of_block * (block + 1)); ++row)
      for (std::int64_t c = 0; c < d; ++c) tensor.values[std::size_t((head * N + row) * d + c)] *= factor;
}

// ---- The kernels that round ----

float value_of(std::uint8_t code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  if ((code & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude =
      exponent == 0 ? std::ldexp(float(fraction), -9) : std::ldexp(float(8 + fraction), exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}

struct RoundedTensor {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  worker::Reply reply;
};
/// Rounds x (1, heads, N, d), fp16 values. The test ends if the code under test returns no scale.
RoundedTensor rounded(const Tensor<float>& x, bool transposed = false, bool rotated = false) {
  const std::int64_t heads = x.sizes[1], N = x.sizes[2], d = x.sizes[3], blocks = tiles_of(N, rows_of_block);
  const std::vector<std::uint16_t> given = to_codes(x.values, float16);
  worker::Call request("rounded");
  request.number("heads", double(heads)).number("N", double(N)).number("d", double(d));
  request.number("rotated", rotated).number("transposed", transposed).input("x", given);
  request.output<std::uint8_t>("codes", std::size_t(heads * d * (transposed ? blocks * rows_of_block : N)));
  request.output<float>("scales", std::size_t(heads * blocks));
  worker::Reply reply = call(request);
  return {reply.output<std::uint8_t>("codes"), reply.output<float>("scales"), reply};
}

float largest_of(const Tensor<float>& x, std::int64_t head, std::int64_t block) {
  float largest = 0;
  for (std::int64_t row = rows_of_block * block; row < std::min(x.sizes[2], rows_of_block * (block + 1)); ++row)
    for (std::int64_t c = 0; c < x.sizes[3]; ++c) largest = std::fmax(largest, std::abs(x(0, head, row, c)));
  return largest;
}

/// Compares every block's scale with the scale of its largest magnitude.
void expect_scales(const Tensor<float>& x, const std::vector<float>& scales, const std::string& what) {
  const std::int64_t blocks = tiles_of(x.sizes[2], rows_of_block);
  for (std::int64_t at = 0; at < std::int64_t(scales.size()); ++at) {
    const float largest = largest_of(x, at / blocks, at % blocks), expected = float8_scale(largest);
    const float is = scales[std::size_t(at)];
    const bool small = is < expected, power = std::ilogb(is) == std::log2(is);
    expect(is == expected,
           fmt::format("{}: the largest magnitude of block {} of head {} is {}; its scale is {}, expected {}", what,
                       at % blocks, at / blocks, largest, is, expected),
           !power  ? "your scale is not a power of two; it must be, so that dividing by it is exact"
           : small ? "your scale is too small for the block's largest magnitude; it must be the smallest power of two "
                     "with largest / scale <= 448, and all elements of the block must be compared"
                   : "your scale is too large; it must be the smallest power of two with largest / scale <= 448, or "
                     "small numbers lose bits",
           !power  ? "scale-no-power"
           : small ? "scale-too-small"
                   : "scale-too-large");
  }
}

}  // namespace

// ---- 12.1 scales ----

TEST_CASE("the scale is the smallest power of two that fits", "[12.1]") {
  const float sizes[] = {448, 449, 450, 500, 896, 900, 1, 1.75f, 1.751f, 3, 0x1p-24f, 0x1.cp-14f, 65504, 0};
  Tensor<float> x({1, 1, rows_of_block * std::ssize(sizes), 64});
  for (std::int64_t block = 0; block < std::ssize(sizes); ++block)
    x(0, 0, rows_of_block * block, 0) = block % 2 == 0 ? sizes[block] : -sizes[block];
  x.values = from_codes(to_codes(x.values, float16), float16);
  expect_scales(x, rounded(x).scales, "one number, of either sign, in a block of zeros");
}

TEST_CASE("every element of a block can set its scale", "[12.1]") {
  for (const std::int64_t d : head_dims()) {
    Tensor<float> x({1, 1, 16 * rows_of_block, d}, 1.0f);
    for (std::int64_t block = 0; block < 16; ++block)
      x(0, 0, rows_of_block * block + block * 37 % 128, block * 29 % d) = 1000;
    expect_scales(x, rounded(x).scales, fmt::format("ones and one 1000, somewhere, d={}", d));
  }
  expect_every_kind_in_this_part();
}

TEST_CASE("a block ends with the last row of its head", "[12.1]") {
  for (const std::int64_t d : head_dims()) {
    Tensor<float> x = half_tensor({1, 3, 130, d}, 5);
    for (std::int64_t c = 0; c < d; ++c) x(0, 1, 0, c) = 900, x(0, 1, 129, c) = x(0, 0, 129, c) / 64;
    x.values = from_codes(to_codes(x.values, float16), float16);
    const RoundedTensor got = rounded(x);
    expect_scales(x, got.scales, fmt::format("three heads of 130 rows, d={}", d));
    const Tensor<float> expected = rounded_in_blocks(x);
    for (std::size_t at = 0; at < got.codes.size(); ++at) {
      const float scale = got.scales[at / std::size_t(130 * d) * 2 + (at / std::size_t(d) % 130 >= 128 ? 1 : 0)];
      expect(value_of(got.codes[at]) * scale == expected.values[at],
             fmt::format("d={}: element {} is {}, the value of its code is {} · {}, expected {}", d, at, x.values[at],
                         value_of(got.codes[at]), scale, expected.values[at]));
    }
  }
}

// ---- 12.2 the order of keys ----

std::int64_t key_at(std::int64_t k) {
  return k / 16 * 16 + k / 2 % 2 * 8 + k / 4 % 4 * 2 + k % 2;
}

TEST_CASE("each k has a key that its lane holds", "[12.2]") {
  worker::Call request("key_order");
  request.output<std::int32_t>("keys", std::size_t(rows_of_block));
  const std::vector<std::int32_t> keys = call(request).output<std::int32_t>("keys");
  for (std::int64_t k = 0; k < rows_of_block; ++k)
    expect(keys[std::size_t(k)] == key_at(k),
           fmt::format("the key at k = {} is {}: lane {} of a quad holds k = {} of A, expected key {}", k,
                       keys[std::size_t(k)], k / 4 % 4, k, key_at(k)));
}

TEST_CASE("P is multiplied with the right keys", "[12.2]") {
  expect_right(input("one hot", {1, 1, 1, 40, 140, 64}, 30), two);
  expect_right(input("late spike", {1, 1, 1, 40, 100, 128}, 31), two);
  expect_every_kind_in_this_part();
}

TEST_CASE("rows of P are not exchanged", "[12.2]") {
  // V is 1 in the first columns for even keys only. Some queries attend to even keys, the others to odd ones.
  Input given = input("uniform", {1, 1, 1, 64, 128, 64}, 32);
  add_to_scores(
      given, [](std::int64_t i) { return i % 16 < 8 ? 4 : -4; }, [](std::int64_t j) { return j % 2 == 0 ? 1 : -1; });
  given.name += ", queries 0 to 7 of 16 attend to even keys, the others to odd ones";
  expect_right(given, two);
}

// ---- 12.3 V transposed ----

TEST_CASE("V is transposed, its keys in the order of P", "[12.3]") {
  for (const std::int64_t d : head_dims()) {
    const std::int64_t heads = 2, N = 200, keys = 256;
    const Tensor<float> x = half_tensor({1, heads, N, d}, 6), expected = rounded_in_blocks(x);
    const RoundedTensor got = rounded(x, true);
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t c = 0; c < d; ++c) {
        for (std::int64_t k = 0; k < keys; ++k) {
          const std::int64_t key = k / 128 * 128 + key_at(k % 128);
          const float wanted = key < N ? expected(0, head, key, c) : 0,
                      is = value_of(got.codes[std::size_t((head * d + c) * keys + k)]) *
                           got.scales[std::size_t(head * 2 + k / 128)];
          if (is == wanted) continue;
          expect(false, fmt::format("d={}, head {}, column {}, index {}: the value is {}, expected {}, V's key {}{}", d,
                                    head, c, k, is, wanted, key, key < N ? "" : ", which does not exist"));
        }
      }
    }
    expect(true, "");
  }
  expect_every_kind_in_this_part();
}

TEST_CASE("words are stored without bank conflicts", "[12.3]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    const worker::Reply reply = rounded(half_tensor({1, 1, 128, d}, 7), true).reply;
    expect_no_bank_conflicts(reply);
    expect_count(
        reply, "codes.store_requests", double(d), fmt::format("one warp stores the 128 keys of a column, d={}", d),
        "the lanes of a warp store to different columns; they must store the 32 words of one column", "uncoalesced");
    expect_count(reply, "block_barriers", 2, fmt::format("one barrier for the maximum, one for the words, d={}", d),
                 "your code synchronises the thread block more often than needed; it must do so once for the maximum "
                 "and once for the words",
                 "barriers");
  }
}

// ---- 12.4 S and its scales ----

TEST_CASE("S sums over every 32 columns of Q and K", "[12.4]") {
  expect_every_column(32);
}

TEST_CASE("each tile of K has its own scale", "[12.4]") {
  Input given = input("normal", {1, 2, 2, 64, 384, 64}, 21);
  scale_block(given.problem.K, 0, 0.25f);
  scale_block(given.problem.K, 2, 4);
  given.kind.clear();
  given.name += ", K smaller in the first 128 keys and larger in the last";
  expect_right(given, two);
}

TEST_CASE("each block of Q has its own scale", "[12.4]") {
  for (const Tiles& tiles : {two, three}) {
    Input given = input("normal", {1, 2, 2, 300, 100, 64}, 22);
    scale_block(given.problem.Q, 1, 8);
    given.name += ", Q larger in rows 128 to 255";
    expect_right(given, tiles);
  }
  expect_right(input("normal", {1, 1, 1, 100, 100, 64}, 23), three);  // a consumer without queries
  expect_every_kind_in_this_part();
}

TEST_CASE("S takes one wgmma for each 32 columns", "[12.4]") {
  require_counters();
  for (const std::int64_t d : head_dims()) expect_wgmma(d, two, 32, "S");
}

// ---- 12.5 P and its offset ----

TEST_CASE("the LSE is a natural logarithm over all keys", "[12.5]") {
  for (const char* kind : {"normal", "large logits", "negative logits", "uniform"})
    expect_lse(input(kind, {1, 1, 1, 70, 200, 64}, 40), two);
}

/// The last key has the score 0 and V = 0; all others have the score `low` and V = 1.
Input one_above(float low, std::int64_t Nk) {
  Input given = input("uniform", {1, 1, 1, 64, Nk, 64}, 41);
  add_to_scores(
      given, [](std::int64_t) { return 1; }, [=](std::int64_t j) { return j == Nk - 1 ? 0.0f : low; });
  for (std::int64_t j = 0; j < Nk; ++j)
    for (std::int64_t c = 0; c < 64; ++c) given.problem.V(0, 0, j, c) = j == Nk - 1 ? 0 : 1;
  given.name += fmt::format(", one key above all others by {}", -low);
  return given;
}

TEST_CASE("P keeps its precision down to 2^-14", "[12.5]") {
  // P of most keys is 2^-11: without the offset it would be 0, and so would O. The scores are chosen so that P is a
  // power of two, because equal terms have equal rounding errors.
  const Input given = one_above(-11 * float(std::numbers::ln2), 300);
  const AttentionResult result = attention(given.problem, two.numbers());
  const Problem problem = in_element(given.problem);
  const Forward oracle = forward_oracle(problem);
  for (std::int64_t i = 0; i < 64; ++i) {
    const double is = result.O(0, 0, i, 0), expected = oracle.O(0, 0, i, 0);
    expect(std::abs(is - expected) <= 0x1p-4 * expected + 0x1p-11,
           fmt::format("{}: O of query {} is {}, expected {} within a sixteenth", given.name, i, is, expected),
           is == 0 ? "your code rounds P without the offset, so small P become 0 in E4M3; it must compute 2^8 P" : "",
           is == 0 ? "offset-missing" : "unknown");
  }
}

TEST_CASE("the maximum may grow from tile to tile", "[12.5]") {
  for (const std::int64_t d : head_dims()) expect_right(input("rising maximum", {1, 1, 1, 70, 300, d}, 42), two);
  expect_right(input("falling maximum", {1, 1, 1, 70, 300, 64}, 43), two);
}

TEST_CASE("a row's first key may be in a later tile, with a score far below 0", "[12.5]") {
  // The last tile is processed first, and queries 0 to 63 see none of its keys. Its scores are about -24, the other
  // tile's about -20: exp2 of them with the offset is 0 in e4m3.
  for (const std::int64_t d : head_dims()) {
    Input below = input("value mean", {1, 1, 1, 128, 192, d}, 47, true);
    for (float& q : below.problem.Q.values) q = 1 + q / 4;
    for (std::int64_t j = 0; j < 192; ++j)
      for (std::int64_t c = 0; c < d; ++c)
        below.problem.K(0, 0, j, c) = below.problem.K(0, 0, j, c) / 4 - (j < 128 ? 20 : 24) / std::sqrt(float(d));
    below.name += ", scores about -20 and -24";
    expect_right(below, two);
  }
}

namespace {
/// Ends the test with this cause unless multiply-adds compute one exponential of P in four.
void expect_fewer_exponentials(const char* cause) {
  require_counters();
  const auto counted = [](const Tiles& tiles) {
    return counter(attention(input("normal", {1, 1, 1, 128, 256, 64}, 96), tiles).reply, "exponentials");
  };
  const double all = counted(two), most = counted(by_fma);
  expect(all - most == 128.0 * 256 / 4,
         fmt::format("128 queries, 256 keys: {} exponentials by exp2 without multiply-adds, {} with every fourth by "
                     "multiply-adds, expected {} less",
                     all, most, 128 * 256 / 4),
         cause, "exp2-count");
}
}  // namespace

TEST_CASE("every fourth element of a row has an exponential by multiply-adds", "[12.5]") {
  expect_fewer_exponentials(
      "your code passes exp2_mixed an index other than the element's in its row; element j of a lane's row must have "
      "index j");
}

TEST_CASE("O is divided by l exactly once", "[12.5]") {
  for (const std::int64_t d : head_dims()) {
    expect_right(with_V_of_ones(input("normal", {1, 1, 1, 40, 90, d}, 44)), two);
  }
}

TEST_CASE("fully masked rows give O = 0 and LSE = -inf, never NaN", "[12.5]") {
  expect_rows_without_keys();
  expect_every_kind_in_this_part();
}

// ---- 12.6 parts of O, in units of V's scale ----

TEST_CASE("a part starts from zero and is added to O", "[12.6]") {
  for (const std::int64_t d : head_dims()) {
    expect_right(input("normal", {1, 1, 1, 64, 300, d}, 50), two);
    expect_right(with_rows_apart(input("rising maximum", {1, 1, 1, 64, 300, d}, 52)), two);
  }
  expect_every_kind_in_this_part();
}

TEST_CASE("each tile of V has its own scale", "[12.6]") {
  for (const std::int64_t d : head_dims()) {
    for (const int blocks : {2, 3}) {
      Input given = input("value mean", {1, 1, 1, 64, blocks * 128, d}, 51);
      scale_block(given.problem.V, 0, 16);
      scale_block(given.problem.V, 2, 0.125f);
      given.name += ", V larger in the first 128 keys and smaller in the third";
      expect_right(given, two);
    }
  }
}

TEST_CASE("O takes one wgmma for each 32 keys", "[12.6]") {
  require_counters();
  for (const std::int64_t d : head_dims()) expect_wgmma(d, two, 32, "O");
}

// ---- 12.7 the loop ----

TEST_CASE("overlapped, it agrees with the oracle", "[12.7]") {
  for (const std::int64_t d : head_dims()) {
    expect_right(input("rising maximum", {1, 1, 1, 70, 400, d}, 60), two);
    expect_right(input("normal", {1, 1, 1, 200, 150, d}, 61, true), two);
  }
  expect_right(input("normal", {1, 1, 1, 3, 5, 64}, 62), three);
  expect_every_kind_in_this_part();
}

TEST_CASE("overlapped, no buffer is accessed too early", "[12.7]") {
  // The simulator reports registers and tiles that are accessed too early, whatever the values are.
  for (const int lane_seed : {0, 1, 2}) {
    expect_right(input("normal", {1, 1, 1, 40, 520, 64}, 63), two, {}, lane_seed);
    expect_right(input("normal", {1, 1, 1, 140, 300, 64}, 64), three, {}, lane_seed);
  }
}

TEST_CASE("overlapped, each softmax but the first overlaps with a matmul", "[12.7]") {
  require_counters();
  expect_partial_waits(two, 64);
}

TEST_CASE("overlapped, each tile is waited for once", "[12.7]") {
  require_counters();
  for (const Tiles& tiles : {two, three}) {
    expect_waits(tiles, 64);
    expect_ping_pong(tiles, 64, 32);
  }
}

/// Scores that rise, and values that grow and shrink, from tile to tile, by different amounts.
Input in_steps() {
  Input steps = input("uniform", {1, 1, 1, 64, 5 * 128, 64}, 66);
  add_to_scores(
      steps, [](std::int64_t i) { return 0.25f + float(i % 8) / 8; },
      [](std::int64_t j) {
        constexpr float heights[] = {6, 5, 3, 2, 0};  // the last tile comes first
        return heights[j / 128];
      });
  for (float& value : steps.problem.V.values) value = 3 + value / 2;
  for (const auto& [block, factor] : {std::pair{0, 1.0f}, {1, 4.0f}, {2, 2.0f}, {3, 8.0f}, {4, 4.0f}})
    scale_block(steps.problem.V, block, factor);
  steps.name += ", scores rise by 1 to 2 from tile to tile, and V's scale changes";
  return steps;
}

TEST_CASE("O is rescaled by the factor of its own tile", "[12.7]") {
  expect_right(in_steps(), two);
}

// ---- 12.8 a rotation ----

bool flips_sign(std::int64_t column) {
  const std::uint64_t signs = column < 64 ? 0xb5c0fbcfec4d3b2f : 0x59f111f1923f82a4;
  return signs >> column % 64 & 1;
}
/// Every row times its signs and the Hadamard matrix, in float64.
Tensor<double> rotated_exactly(const Tensor<float>& x) {
  const std::int64_t d = x.sizes[3];
  Tensor<double> result = widened(x);
  for (std::size_t row = 0; row < result.values.size(); row += std::size_t(d)) {
    double* const y = &result.values[row];
    for (std::int64_t c = 0; c < d; ++c)
      if (flips_sign(c)) y[c] = -y[c];
    for (std::int64_t distance = 1; distance < d; distance *= 2)
      for (std::int64_t c = 0; c < d; ++c) {
        if (c & distance) continue;
        const double sum = y[c] + y[c + distance], difference = y[c] - y[c + distance];
        y[c] = sum, y[c + distance] = difference;
      }
  }
  return result;
}

TEST_CASE("a rotation mixes all columns of a row", "[12.8]") {
  for (const std::int64_t d : head_dims()) {
    const std::int64_t N = 40;
    Tensor<float> one({1, 1, N, d});
    std::fill_n(one.values.begin(), d, 1.0F);
    const RoundedTensor of_one = rounded(one, false, true);
    for (auto at = std::size_t(d); at < of_one.codes.size(); ++at)
      expect(value_of(of_one.codes[at]) == 0,
             fmt::format("d={}: row 0 holds ones, the others zeros, but row {} is {} in column {} after the rotation",
                         d, std::int64_t(at) / d, value_of(of_one.codes[at]), std::int64_t(at) % d),
             "your code mixes different rows; only the d / 8 lanes that share a row must participate in the steps "
             "between lanes",
             "rows-rotated-together");
    Tensor<float> x = half_tensor({1, 1, N, d}, 70);
    for (std::int64_t row = 0; row < 8; ++row)  // one column per row: column 9 · row is spread over all
      for (std::int64_t c = 0; c < d; ++c) x(0, 0, row, c) = c == 9 * row % d ? 1 : 0;
    const RoundedTensor got = rounded(x, false, true);
    const Tensor<double> expected = rotated_exactly(x);
    for (std::size_t at = 0; at < got.codes.size(); ++at) {
      const double is = double(value_of(got.codes[at])) * got.scales[0], wanted = expected.values[at];
      const double allowed = std::max(0x1p-4 * std::abs(wanted), 0x1p-10 * got.scales[0]) + 1e-4;  // by rounding
      expect(std::abs(is - wanted) <= allowed,
             fmt::format("d={}: row {}, column {} is {} after the rotation, expected {}", d, std::int64_t(at) / d,
                         std::int64_t(at) % d, is, wanted));
    }
  }
}

/// The root mean square error of O against the oracle.
double rms_error(const AttentionResult& got, const Forward& oracle) {
  double squares = 0;
  for (std::size_t at = 0; at < got.O.values.size(); ++at)
    squares += std::pow(double(got.O.values[at]) - oracle.O.values[at], 2);
  return std::sqrt(squares / double(got.O.values.size()));
}
AttentionResult with_rotation(const Problem& problem, bool rotate) {
  Numbers numbers = two.numbers();
  if (rotate) numbers["rotate"] = 1;
  return attention(problem, numbers);
}
/// The error of scores against those of Q and K in fp16. With one key the LSE is that key's score.
struct ScoreError {
  double rms, bound;  ///< the lesson's bound: scale · u · √(2/3) · ‖q∘k‖, u = 1/16
};
ScoreError score_error(const Problem& problem, bool rotate) {
  const AttentionResult got = with_rotation(problem, rotate);
  const Forward oracle = forward_oracle(problem);
  const Shape& s = problem.shape;
  double squares = 0, allowed = 0;
  for (std::int64_t head = 0; head < s.H; ++head) {
    for (std::int64_t i = 0; i < s.Nq; ++i) {
      squares += std::pow(got.lse(0, head, i, 0) - oracle.lse(0, head, i, 0), 2);
      for (std::int64_t c = 0; c < s.d; ++c)
        allowed += std::pow(problem.scale / 16 * problem.Q(0, head, i, c) * problem.K(0, head, 0, c), 2) * 2 / 3;
    }
  }
  const auto count = double(oracle.lse.values.size());
  return {std::sqrt(squares / count), std::sqrt(allowed / count)};
}
/// 128 queries and one key in each of 8 heads, unit normal, one column of Q and K `factor` times as large.
Problem with_outliers(std::int64_t d, float factor, std::uint64_t seed) {
  Problem problem = input("normal", {1, 8, 8, 128, 1, d}, seed).problem;
  for (Tensor<float>* tensor : {&problem.Q, &problem.K})
    for (std::size_t at = 5; at < tensor->values.size(); at += std::size_t(d)) tensor->values[at] *= factor;
  return rounded_to(problem, float16);
}

TEST_CASE("a rotation changes scores only by rounding", "[12.8]") {
  for (const std::int64_t d : head_dims()) {
    const Problem problem = rounded_to(input("normal", {1, 1, 1, 100, 200, d}, 71).problem, float16);
    const double error = rms_error(with_rotation(problem, true), forward_oracle(problem));
    expect(error < 0.02,
           fmt::format("with rotate = 1, the error of O is {} (root mean square) against the same Q, K and V in "
                       "float64, d={}, expected less than 0.02, from rounding",
                       error, d),
           "the dot product of two rotated rows is not d times that of the rows; your rotation must be orthogonal up "
           "to the factor d",
           "not-orthogonal");
  }
}

TEST_CASE("a rotation reduces the error of an outlier", "[12.8]") {
  for (const std::int64_t d : head_dims()) {
    const Problem problem = with_outliers(d, 8, 72);
    const double plain = score_error(problem, false).rms, rotated = score_error(problem, true).rms;
    // An error far above the one without a rotation is another mistake.
    const bool no_gain = rotated < 1.5 * plain;
    expect(
        rotated < 0.5 * plain,
        fmt::format("one column of Q and K is 8 times as large: the error of the scores is {} without and {} with a "
                    "rotation (root mean square), d={}, expected less than half",
                    plain, rotated, d),
        no_gain ? "your rotation does not spread the outlier over all columns; it must mix all d columns of a row" : "",
        no_gain ? "outlier-not-spread" : "unknown");
  }
}

// ---- 12.9 exp2 by multiply-adds ----

std::vector<float> exponentials(const std::vector<float>& x) {
  worker::Call request("exponentials");
  request.input("x", x);
  request.output<float>("y", x.size());
  return call(request).output<float>("y");
}

TEST_CASE("exp2 by multiply-adds is accurate to 2^-18", "[12.9]") {
  std::vector<float> x;
  for (int i = -125 * 16; i <= 125 * 16; ++i) x.push_back(float(i) / 16 + 0.003f);
  const std::vector<float> y = exponentials(x);
  for (std::size_t i = 0; i < x.size(); ++i)
    expect(std::abs(y[i] / std::exp2(double(x[i])) - 1) <= 0x1p-18,
           fmt::format("2^{} is {}, expected {} with a relative error of at most 2^-18", x[i], y[i],
                       std::exp2(double(x[i]))));
}

TEST_CASE("exp2 by multiply-adds handles NaN and x below -126", "[12.9]") {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {-125.5f, -127, -130.5f, -1000, -1e10f, -infinity}, y = exponentials(x);
  // If x above -126 is wrong too, this cause does not apply.
  const bool right_above = std::abs(y[0] / std::exp2(-125.5) - 1) <= 0x1p-18;
  for (std::size_t i = 1; i < x.size(); ++i)
    expect(y[i] >= 0 && y[i] <= 0x1.001p-126f, fmt::format("2^{} is {}, expected at most 2^-126", x[i], y[i]),
           right_above ? "your code does not replace x below -126, so n exceeds the range of the exponent field; it "
                         "must use -126 there"
                       : "",
           right_above ? "below-the-exponent" : "unknown");
  const float of_nan = exponentials({nan})[0];
  expect(std::isnan(of_nan), fmt::format("2^NaN is {}, expected NaN", of_nan),
         "your code loses a NaN, as fmaxf does, or an addition of bit patterns; NaN must remain NaN", "nan-hidden");
}

TEST_CASE("one exponential in four is computed by multiply-adds", "[12.9]") {
  for (const std::int64_t d : head_dims()) expect_right(input("normal", {1, 1, 1, 64, 300, d}, 95), by_fma);
  expect_every_kind_in_this_part(by_fma.variant);
  expect_fewer_exponentials("your exp2_by_fma calls exp2; it must compute 2^x by multiply-adds");
}

// ---- The whole chapter ----

TEST_CASE("fp8 agrees with the oracle", "[whole]") {
  expect_every_kind();
  for (const bool causal : {false, true})
    for (const std::int64_t d : head_dims()) expect_right(input("normal", {2, 3, 3, 200, 150, d}, 140, causal));
  expect_right(input("normal", {1, 1, 1, 40, 150, 64}, 141), by_fma);
  expect_any_scale();
}

const Claims of_the_whole = {
    {"[whole]", "any two lengths agree with the oracle", [] { expect_any_two_lengths(); }},
    {"[whole]", "the result does not depend on Br or the number of warps", [] { expect_tiles_do_not_matter(); }},
};

TEST_CASE("a fully masked row is 0 with multiply-adds and any scale of V", "[whole]") {
  // Exponentials by multiply-adds are at least 2^-126, so l of a fully masked row is 2^-121; V's scale is 2^7.
  Input given = input("uniform", {1, 1, 1, 128, 64, 64}, 142, true);
  scale_block(given.problem.V, 0, 16384);
  given.name += ", V * 16384";
  expect_right(given, by_fma);
}

TEST_CASE("O of a long row keeps its precision", "[whole]") {
  // Every key has the same weight and the value 1.125. P is 256 and V's code 288: a tensor-core sum over more than 1820
  // keys would truncate the last bit of each term.
  const std::int64_t Nk = 4096;
  Input given = input("uniform", {1, 1, 1, 64, Nk, 64}, 93);
  std::fill(given.problem.Q.values.begin(), given.problem.Q.values.end(), 0.0f);
  std::fill(given.problem.V.values.begin(), given.problem.V.values.end(), 1.125f);
  const AttentionResult result = attention(given, two);
  for (std::int64_t i = 0; i < 64; ++i)
    expect(std::abs(result.O(0, 0, i, 0) - 1.125f) <= 0x1p-9f,
           fmt::format("{} keys of equal weight, each with the value 1.125: O of query {} is {}, expected 1.125", Nk, i,
                       result.O(0, 0, i, 0)));
}

TEST_CASE("future positions have zero influence", "[whole]") {
  // A future key changes the scale of its block of K and V, so the queries here see no key of its block.
  expect_no_influence_from_the_future(input("value mean", {1, 1, 1, 256, 256, 64}, 154, true).problem, 127,
                                      two.numbers());
}

const Claims of_the_whole_2 = {
    {"[whole]", "the result of a block of Q depends on no other block", [] { expect_rows_independent(rows_of_block); }},
    {"[whole]", "data past the last key never reaches O", [] { expect_nothing_past_the_end(); }},
    {"[whole]", "results do not depend on workers or lane order", [] { expect_order_changes_nothing(); }},
    {"[whole]", "20 runs in different orders give one result", [] { expect_repeatable(20, /*in_other_orders=*/true); }},
};

TEST_CASE("TMA loads the codes, half as many bytes as fp16", "[whole]") {
  require_counters();
  const std::int64_t Nq = 200, Nk = 300, d = 64;
  const worker::Reply reply = attention(input("normal", {1, 1, 1, Nq, Nk, d}, 160).problem, two.numbers()).reply;
  const auto expect_bytes = [&](const std::string& name, std::int64_t expected, const std::string& why) {
    expect_count(reply, name, double(expected), why,
                 "your code moves a tensor more or less often than needed; it must move each tile once", "traffic");
  };
  for (const char* tensor : {"Q", "K", "V"})
    expect_bytes(fmt::format("{}.load_bytes", tensor), (tensor[0] == 'Q' ? Nq : Nk) * d * 2,
                 fmt::format("{} in fp16 is read once, by the kernel that rounds", tensor));
  expect_bytes("Q codes.bulk_load_bytes", 2 * 128 * d, "whole tiles of Q, once each");
  expect_bytes("K codes.bulk_load_bytes", 2 * 3 * 128 * d, "whole tiles of K, once per Q tile");
  expect_bytes("V codes.bulk_load_bytes", 2 * 3 * 128 * d, "whole tiles of V, once per Q tile");
  expect_bytes("O.bulk_store_bytes", Nq * d * 2, "O is written once");
  expect_bytes("lse.store_bytes", Nq * 4, "the LSE is written once");
}

TEST_CASE("score errors stay within the lesson's bound", "[whole]") {
  for (const std::int64_t d : head_dims()) {
    for (const float factor : {1.0f, 8.0f}) {
      const ScoreError error = score_error(with_outliers(d, factor, 161), false);
      expect(error.rms > error.bound / 4 && error.rms <= error.bound,
             fmt::format("the error of the scores is {} (root mean square), the lesson's bound is {}: d={}, one column "
                         "of Q and K is multiplied by {}",
                         error.rms, error.bound, d, factor),
             "something other than Q and K is rounded, or they are not rounded; the scores' error must come from "
             "rounding Q and K",
             "score-error");
    }
  }
}

TEST_CASE("O is off by a few hundredths of its size, rotated or not", "[whole]") {
  for (const std::int64_t d : head_dims()) {
    const Problem problem = rounded_to(input("normal", {1, 1, 1, 128, 256, d}, 162).problem, float16);
    const Forward oracle = forward_oracle(problem);
    double size = 0;
    for (const double x : oracle.O.values) size += x * x;
    for (const bool rotate : {false, true}) {
      const double error =
          rms_error(with_rotation(problem, rotate), oracle) / std::sqrt(size / double(oracle.O.values.size()));
      expect(error > 0.01 && error < 0.08,
             fmt::format("the relative error of O is {} (root mean square), d={}{}, expected 0.01 to 0.08", error, d,
                         rotate ? ", rotated" : ""),
             "the relative error of O does not match that of rounding to E4M3, a few hundredths; Q, K, P and V must be "
             "rounded once each",
             "accuracy");
    }
  }
}
