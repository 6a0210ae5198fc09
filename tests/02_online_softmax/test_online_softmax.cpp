// Chapter 2: the running state, the merge, and attention tile by tile in memory that does not grow with N.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "common/worker/sanitizers.hpp"
#include "tests/support/forward_properties.hpp"
#include "tests/support/outcome.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// (m, l) as one tensor.
Tensor<double> state_tensor(double m, double l) {
  Tensor<double> state({1, 1, 1, 2});
  state.values = {m, l};
  return state;
}

/// m is a maximum of floats: exact. l is a sum of n terms that were rescaled: the LSE's bound, relative.
Bounds state_bounds(const Tensor<double>& scores, double l) {
  const Bounds lse = row_lse_bounds(scores);
  Bounds bounds;
  bounds.element = state_tensor(0, 0);
  bounds.element.values[1] = lse.element.values[0] * l;
  bounds.rms = bounds.element.values[1];
  bounds.origin = lse.origin;
  return bounds;
}

judge::Layout state_layout() {
  judge::Layout layout;
  layout.tensor = "state (column 0 is m, column 1 is l)";
  layout.parts = {{"m", 0}, {"l", 1}};
  layout.axes[0] = layout.axes[1] = layout.axes[2] = "";
  return layout;
}

/// Exercise 2.1 on the row x in blocks, in float64 over the whole row.
Expectation state_of(const std::vector<float>& x, std::int64_t block, const std::string& kind) {
  double m = minus_infinity, l = 0;
  for (const float s : x) m = std::max(m, double(s));
  if (m != minus_infinity) {
    for (const float s : x) l += std::exp(s - m);
  }
  Tensor<double> scores({1, 1, 1, std::int64_t(x.size())});
  std::copy(x.begin(), x.end(), scores.values.begin());
  Bounds bounds = state_bounds(scores, l);
  if (l == 0) bounds.element.values[1] = bounds.rms = 0;
  return {state_tensor(m, l), bounds, state_layout(),
          fmt::format("{} scores, blocks of {}, {}", x.size(), block, kind)};
}

/// The code's state against it.
void expect_state(const std::vector<float>& x, std::int64_t block, const std::string& kind) {
  worker::Call request("online_softmax");
  request.number("block", double(block)).input("x", x).output<float>("state", 2);
  const worker::Reply reply = call(request);
  current_observation().numbers["n"] = double(x.size());
  expect_close(tensor(reply, "state", {1, 1, 1, 2}), state_of(x, block, kind));
}

std::vector<float> normal_row(std::size_t n, std::uint64_t seed, float spread = 1, float shift = 0) {
  std::vector<float> x = normal_values(n, seed);
  for (float& s : x) s = s * spread + shift;
  return x;
}

/// A partial state over scores x (n) and values V (n, d): what exercise 2.2 merges.
struct Part {
  float m = minus_infinity, l = 0;
  std::vector<float> O;
};

Part part_of(std::span<const float> x, std::span<const float> V, std::int64_t d) {
  double m = minus_infinity, l = 0;
  for (const float s : x) m = std::max(m, double(s));
  std::vector<double> O(std::size_t(d), 0);
  for (std::size_t j = 0; j < x.size() && m != minus_infinity; ++j) {
    const double p = std::exp(x[j] - m);
    l += p;
    for (std::size_t c = 0; c < O.size(); ++c) O[c] += p * V[j * O.size() + c];
  }
  return {float(m), float(l), {O.begin(), O.end()}};
}

/// Exercise 2.2 as the reader wrote it.
Part merged(const Part& a, const Part& b) {
  const std::int64_t d = std::int64_t(a.O.size());
  std::vector<float> O = a.O;
  O.insert(O.end(), b.O.begin(), b.O.end());
  const std::vector<float> m{a.m, b.m}, l{a.l, b.l};
  worker::Call request("merge");
  request.number("d", double(d)).input("m", m).input("l", l).input("O", O);
  request.output<float>("m_out", 1).output<float>("l_out", 1).output<float>("O_out", std::size_t(d));
  const worker::Reply reply = call(request);
  return {reply.output<float>("m_out")[0], reply.output<float>("l_out")[0], reply.output<float>("O_out")};
}

Tensor<float> as_tensor(const Part& part) {
  Tensor<float> all({1, 1, 1, 2 + std::int64_t(part.O.size())});
  all.values = {part.m, part.l};
  all.values.insert(all.values.end(), part.O.begin(), part.O.end());
  return all;
}

/// One merge of two parts, a row of m, l and O: what came back, and what is expected of it.
struct Merged {
  Tensor<float> got;
  Tensor<double> expected;
  Bounds bounds;
};

/// m exact; l and O within the roundings of two exps, two products and a sum, each of which is of a number of either
/// part.
Merged judged_merge(const Part& a, const Part& b) {
  const double u = std::ldexp(1.0, -24), m = std::max(a.m, b.m);
  const auto factor = [&](const Part& part) { return part.m == minus_infinity ? 0.0 : std::exp(part.m - m); };
  const double spread = a.m == minus_infinity || b.m == minus_infinity ? 0 : std::abs(double(a.m) - b.m);
  const double relative = (6 + spread) * u;
  Tensor<double> expected({1, 1, 1, 2 + std::int64_t(a.O.size())});
  Bounds bounds;
  bounds.element = Tensor<double>(expected.sizes);
  expected.values[0] = m;
  double squares = 0;
  for (std::size_t i = 1; i < expected.values.size(); ++i) {
    const double from_a = (i == 1 ? a.l : a.O[i - 2]) * factor(a), from_b = (i == 1 ? b.l : b.O[i - 2]) * factor(b);
    expected.values[i] = from_a + from_b;
    bounds.element.values[i] = relative * (std::abs(from_a) + std::abs(from_b));
    squares += bounds.element.values[i] * bounds.element.values[i];
  }
  bounds.rms = std::sqrt(squares / double(expected.values.size()));
  return {as_tensor(merged(a, b)), expected, bounds};
}

template <class T>
Tensor<T> two_rows(const Tensor<T>& first, const Tensor<T>& second) {
  Tensor<T> both({1, 1, 2, first.sizes[3]});
  both.values = first.values;
  both.values.insert(both.values.end(), second.values.begin(), second.values.end());
  return both;
}

/// The merge of a and b, and that of b and a: one alone does not tell a maximum that ignores a state from one that is
/// the smaller.
void expect_merge(const Part& a, const Part& b, const std::string& kind) {
  const Merged first = judged_merge(a, b), second = judged_merge(b, a);
  judge::Layout layout;
  layout.tensor = "merged state (row 0: a and b, row 1: b and a; column 0 is m, 1 is l, from 2 on O)";
  layout.parts = {{"m", 0}, {"l", 1}, {"O", 2}};
  layout.axes[0] = layout.axes[1] = "";
  const Bounds bounds{two_rows(first.bounds.element, second.bounds.element), first.bounds.rms,
                      "float32 rounding of two exps, two multiplications and a sum"};
  expect_close(two_rows(first.got, second.got), {two_rows(first.expected, second.expected), bounds, layout, kind});
}

void expect_tiled(const Problem& problem, const std::string& kind, std::int64_t Br, std::int64_t Bc) {
  expect_attention(problem, kind, {{"Br", double(Br)}, {"Bc", double(Bc)}});
}

}  // namespace

TEST_CASE("the state does not depend on the block size", "[2.1]") {
  const std::vector<float> x = normal_row(100, 1);
  for (const std::int64_t block : {1, 3, 16, 64, 100, 1000}) expect_state(x, block, "unit normal scores");
  expect_state({2.5f}, 4, "one score");
}

TEST_CASE("the maximum may rise in a later block", "[2.1]") {
  std::vector<float> rising = normal_row(96, 2), falling = rising, large = normal_row(96, 3, 40);
  std::sort(rising.begin(), rising.end());
  std::sort(falling.rbegin(), falling.rend());
  for (const std::int64_t block : {1, 16, 40}) {
    expect_state(rising, block, "rising");
    expect_state(falling, block, "falling");
    expect_state(large, block, "scores between about -100 and 100");
  }
}

TEST_CASE("negative scores need a maximum of -inf to start from", "[2.1]") {
  expect_state(normal_row(50, 4, 1, -30), 16, "scores about -30");
  expect_state(normal_row(50, 4, 1, -200), 16, "scores about -200");
}

TEST_CASE("masked blocks change nothing", "[2.1]") {
  const std::vector<float> open = normal_row(48, 5);
  std::vector<float> x = open;
  for (const std::int64_t block : {16, 5}) expect_state(open, block, "no score masked");
  std::fill(x.begin(), x.begin() + 16, minus_infinity);  // a masked block at the beginning
  expect_state(x, 16, "the first block masked");
  std::fill(x.begin() + 32, x.begin() + 48, minus_infinity);  // and one at the end
  expect_state(x, 16, "the first and the last block masked");
  expect_state(x, 5, "the first and the last 16 scores masked");
  expect_state(std::vector<float>(40, minus_infinity), 16, "every score masked");
}

TEST_CASE("merging equals one pass through both parts", "[2.2]") {
  const std::int64_t d = 8;
  for (const float shift : {0.0f, 5.0f, -5.0f, 60.0f, -60.0f}) {
    const std::vector<float> x = normal_row(20, 6), y = normal_row(30, 7, 1, shift), V = normal_row(50 * 8, 8, 1, 2);
    const Part a = part_of(x, std::span(V).first(20 * 8), d), b = part_of(y, std::span(V).subspan(20 * 8), d);
    expect_merge(a, b, fmt::format("second part's scores higher by {}", shift));
  }
}

TEST_CASE("merging partial states is associative", "[2.2]") {
  const std::int64_t d = 8;
  const std::vector<float> V = normal_row(30 * 8, 9, 1, 2);
  std::vector<Part> parts;
  for (int i = 0; i < 3; ++i) {
    parts.push_back(part_of(normal_row(10, 10 + std::uint64_t(i), 1, float(4 * i)),
                            std::span(V).subspan(std::size_t(i) * 80, 80), d));
  }
  // Each merge is correct by itself …
  const Part ab = merged(parts[0], parts[1]), bc = merged(parts[1], parts[2]);
  expect_merge(parts[0], parts[1], "parts 0 and 1");
  expect_merge(parts[1], parts[2], "parts 1 and 2");
  // … and (a b) c = a (b c), up to rounding.
  const Part left = merged(ab, parts[2]), right = merged(parts[0], bc);
  expect(left.m == right.m, fmt::format("m of (ab)c is {}, m of a(bc) is {}; they must be equal", left.m, right.m));
  for (std::size_t c = 0; c < left.O.size(); ++c) {
    const double x = left.O[c] / left.l, y = right.O[c] / right.l;
    expect(std::abs(x - y) <= 1e-5 * (1 + std::abs(x)),
           fmt::format("O / l in column {} is {} for (ab)c and {} for a(bc); they must be equal", c, x, y));
  }
}

TEST_CASE("an empty state changes nothing", "[2.2]") {
  const std::int64_t d = 4;
  const std::vector<float> V = normal_row(10 * 4, 12, 1, 1);
  const Part full = part_of(normal_row(10, 13), V, d), empty{minus_infinity, 0, std::vector<float>(4, 0.0f)};
  expect_merge(full, empty, "the second part is empty");
  expect_merge(empty, full, "the first part is empty");
  expect_merge(empty, empty, "both parts are empty");
}

TEST_CASE("tiled attention agrees with the oracle", "[2.3]") {
  for (const InputKind& kind : input_kinds()) {
    for (const bool causal : {false, true}) {
      expect_tiled(make_input(kind.name, {{1, 2, 2, 128, 128, 32}, causal, 0, 1}), kind.name, 32, 32);
      expect_tiled(make_input(kind.name, {{1, 1, 1, 90, 150, 64}, causal, 0, 2}), kind.name, 32, 64);
      expect_tiled(make_input(kind.name, {{1, 1, 1, 150, 90, 32}, causal, 0, 3}), kind.name, 64, 16);
    }
  }
  expect_every_kind_in_this_part();
}

TEST_CASE("the answer does not depend on the tile size", "[2.3]") {
  const Problem problem = make_input("value mean", {{1, 1, 1, 70, 110, 64}, false, 0, 4});
  for (const std::int64_t Br : {1, 16, 70, 128}) {
    for (const std::int64_t Bc : {1, 7, 32, 110, 256}) expect_tiled(problem, "value mean", Br, Bc);
  }
}

TEST_CASE("ragged tails are computed correctly", "[2.3]") {
  for (const auto& [Nq, Nk] : {std::pair{65, 95}, {31, 97}, {1, 33}, {33, 1}, {1, 1}}) {
    for (const bool causal : {false, true}) {
      expect_tiled(make_input("late spike", {{1, 1, 1, Nq, Nk, 32}, causal, 0, 5}), "late spike", 32, 32);
    }
  }
}

TEST_CASE("a maximum that rises in the last tile", "[2.3]") {
  expect_tiled(make_input("rising maximum", {{1, 1, 1, 64, 128, 64}, false, 0, 6}), "rising maximum", 32, 32);
  expect_tiled(make_input("rising maximum", {{1, 1, 1, 64, 100, 64}, false, 0, 6}), "rising maximum", 64, 16);
}

TEST_CASE("large logits stay finite", "[2.3]") {
  expect_tiled(make_input("large logits", {{1, 1, 1, 64, 128, 64}, false, 0, 7}), "large logits", 32, 32);
  expect_tiled(make_input("negative logits", {{1, 1, 1, 64, 128, 64}, false, 0, 7}), "negative logits", 32, 32);
}

TEST_CASE("rows without a visible key give O = 0 and LSE = -inf", "[2.3]") {
  expect_tiled(make_input("value mean", {{1, 1, 1, 80, 40, 32}, true, 0, 8}), "value mean", 16, 16);
  expect_tiled(make_input("value mean", {{1, 2, 2, 50, 1, 32}, true, 0, 9}), "value mean", 32, 32);
}

TEST_CASE("masked scores are -inf whatever the scale is", "[2.3]") {
  // The scale is a factor of the dot product alone: times a negative number −∞ would be +∞, and times 0 NaN.
  for (const float scale : {-0.5f, 0.0f}) {
    Problem problem = make_input("value mean", {{1, 1, 1, 50, 70, 32}, true, 0, 15});
    problem.scale = scale;
    expect_tiled(problem, "value mean", 16, 16);
  }
}

TEST_CASE("a tile without a visible key changes nothing", "[2.3]") {
  // With Br = 64 and Bc = 8 the first rows of a Q tile see no key of the last K/V tiles, and with Nq > Nk the first
  // rows see no key at all.
  expect_tiled(make_input("value mean", {{1, 1, 1, 64, 64, 32}, true, 0, 16}), "value mean", 64, 8);
  expect_tiled(make_input("value mean", {{2, 1, 1, 90, 64, 32}, true, 0, 17}), "value mean", 64, 8);
}

TEST_CASE("probabilities keep their precision", "[2.3]") {
  // Everything is in float: P rounded to bfloat16 exceeds the bounds, most of all in the root mean square.
  expect_tiled(make_input("normal", {{1, 1, 1, 64, 512, 64}, false, 0, 10}), "normal", 64, 64);
  expect_tiled(make_input("value mean", {{1, 1, 1, 64, 512, 64}, false, 0, 11}), "value mean", 64, 64);
}

TEST_CASE("tiled attention agrees with chapter 1", "[whole]") {
  for (const bool causal : {false, true}) {
    const Problem problem = make_input("rising maximum", {{2, 2, 2, 100, 140, 64}, causal, 0, 12});
    const AttentionResult tiled = expect_attention(problem, "rising maximum", {{"Br", 32}, {"Bc", 32}});
    const AttentionResult naive = previous_attention(problem);
    // Each is within its bounds of the oracle, so the two are within twice that of each other.
    const Forward oracle = forward_oracle(problem);
    Bounds bounds = output_bounds(oracle, problem, float32_precision());
    for (double& bound : bounds.element.values) bound *= 2;
    bounds.rms *= 2;
    judge::Layout layout;
    layout.tensor = "O (expected: chapter 1's)";
    layout.Br = layout.Bc = 32;
    expect_close(tiled.O, {widened(naive.O), bounds, layout, describe(problem, "rising maximum")});
  }
  expect_every_kind_in_this_part();
}

TEST_CASE("states of two halves merge to the state of the row", "[whole]") {
  // 2.1 and 2.2 together: m and l of a row do not depend on where it is split.
  std::vector<float> rising = normal_row(60, 20, 2);
  std::sort(rising.begin(), rising.end());
  std::vector<float> falling(rising.rbegin(), rising.rend()), half_masked = rising;
  std::fill(half_masked.begin() + 30, half_masked.end(), minus_infinity);
  for (const std::vector<float>& x : {rising, falling, half_masked}) {
    std::vector<Part> halves;
    for (const std::span<const float> half : {std::span(x).first(30), std::span(x).subspan(30)}) {
      worker::Call request("online_softmax");
      request.number("block", 7).input("x", half).output<float>("state", 2);
      const std::vector<float> state = call(request).output<float>("state");
      halves.push_back({state[0], state[1], {state[1]}});  // with V = 1, O is l
    }
    const Part whole = merged(halves[0], halves[1]);
    const Part expected = part_of(x, std::vector<float>(60, 1.0f), 1);
    expect(whole.m == expected.m,
           fmt::format("m of the merged state is {1}, expected {0}, the row's maximum", expected.m, whole.m));
    for (const float got : {whole.l, whole.O[0]}) {
      expect(std::abs(got - expected.l) <= 60 * 6e-8 * expected.l,
             fmt::format("l of the merged state is {1}, expected {0}", expected.l, got));
    }
  }
}

TEST_CASE("future positions have zero influence", "[whole]") {
  const Problem problem = make_input("normal", {{1, 2, 2, 96, 96, 32}, true, 0, 13});
  expect_no_influence_from_the_future(problem, 49, {{"Br", 32}, {"Bc", 16}});
}

TEST_CASE("extra memory does not grow with N", "[whole]") {
  if (!worker::kCountsMemory) SKIP("a sanitizer build does not limit memory");
  // A tile of S, and a few numbers per row. One row of S would take 1 MiB, or half in 16 bits, more than the stack and
  // the static memory could hide.
  constexpr std::int64_t d = 8, N = 262144;
  allow_memory((32 * 32 + 32 * (d + 8)) * 4,
               {"extra-memory", "your code allocates a workspace with Nk columns; it must have Bc", ""});
  for (const auto& [Nq, Nk] : {std::pair(std::int64_t(4), N), std::pair(N, std::int64_t(4))}) {
    // Code that stores what it cannot compute in this memory is wrong here, though it is right for small N.
    expect_tiled(make_input("normal", {{1, 1, 1, Nq, Nk, d}, false, 0, 14}), "normal", 32, 32);
  }
}
