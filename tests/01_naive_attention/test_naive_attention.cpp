// Chapter 1: S = scale·QKᵀ, P = softmax(S), O = PV, each step alone, then all three.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "common/worker/sanitizers.hpp"
#include "tests/support/forward_properties.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// One head of Q, K and V.
Problem one_head(const std::string& kind, std::int64_t Nq, std::int64_t Nk, std::int64_t d, bool causal = false,
                 float scale = 0, std::uint64_t seed = 1) {
  return make_input(kind, {{1, 1, 1, Nq, Nk, d}, causal, scale, seed});
}

judge::Layout layout_of(const std::string& tensor, const std::string& column) {
  judge::Layout layout;
  layout.tensor = tensor;
  layout.axes[0] = layout.axes[1] = "";
  layout.axes[2] = "query";
  layout.axes[3] = column;
  return layout;
}

/// Exercise 1.1 against scale·QKᵀ in float64.
void expect_scores(const Problem& problem, const std::string& kind) {
  const Shape& s = problem.shape;
  worker::Call request("scaled_scores");
  request.number("Nq", double(s.Nq)).number("Nk", double(s.Nk)).number("d", double(s.d));
  request.number("scale", problem.scale).number("causal", problem.causal());
  request.input("Q", problem.Q.values).input("K", problem.K.values).output<float>("S", std::size_t(s.Nq * s.Nk));
  const worker::Reply reply = call(request);

  Tensor<double> expected({1, 1, s.Nq, s.Nk}), size({1, 1, s.Nq, s.Nk});
  for (std::int64_t i = 0; i < s.Nq; ++i) {
    for (std::int64_t j = 0; j < s.Nk; ++j) {
      for (std::int64_t c = 0; c < s.d; ++c) {
        const double product = double(problem.scale) * problem.Q(0, 0, i, c) * problem.K(0, 0, j, c);
        expected(0, 0, i, j) += product;
        size(0, 0, i, j) += std::abs(product);
      }
    }
  }
  Bounds bounds = score_bounds(size, s.d);
  for (std::int64_t i = 0; i < s.Nq; ++i) {
    for (std::int64_t j = visible_keys(i, s.Nq, s.Nk, problem.causal()); j < s.Nk; ++j) {
      expected(0, 0, i, j) = -infinity;
      bounds.element(0, 0, i, j) = 0;
    }
  }
  expect_close(tensor(reply, "S", {1, 1, s.Nq, s.Nk}),
               {expected, bounds, layout_of("S", "key"), describe(problem, kind)});
}

/// Scores (Nq, Nk) for exercise 1.2: unit normal times `spread`, plus `shift`; row 0 fully masked if `masked`, and half
/// of row 1.
Tensor<float> scores(std::int64_t Nq, std::int64_t Nk, float spread, float shift, bool masked, std::uint64_t seed) {
  Tensor<float> S({1, 1, Nq, Nk});
  S.values = normal_values(S.values.size(), seed);
  for (float& s : S.values) s = s * spread + shift;
  if (masked) {
    const float minus_infinity = -std::numeric_limits<float>::infinity();
    for (std::int64_t j = 0; j < Nk; ++j) S(0, 0, 0, j) = minus_infinity;
    for (std::int64_t j = Nk / 2; j < Nk && Nq > 1; ++j) S(0, 0, 1, j) = minus_infinity;
  }
  return S;
}

struct Softmax {
  Tensor<float> S, P, lse;
  Tensor<double> expected_P, expected_lse;
  std::string input;
};

/// Exercise 1.2 on `S`, and what float64 gives.
Softmax softmax(const Tensor<float>& S, const std::string& kind) {
  const std::int64_t Nq = S.sizes[2], Nk = S.sizes[3];
  worker::Call request("softmax_rows");
  request.number("Nq", double(Nq)).number("Nk", double(Nk)).input("S", S.values);
  request.output<float>("P", std::size_t(Nq * Nk)).output<float>("lse", std::size_t(Nq));
  const worker::Reply reply = call(request);

  Softmax result{S,
                 tensor(reply, "P", {1, 1, Nq, Nk}),
                 tensor(reply, "lse", {1, 1, Nq, 1}),
                 Tensor<double>({1, 1, Nq, Nk}),
                 Tensor<double>({1, 1, Nq, 1}),
                 fmt::format("Nq={}, Nk={}, {}", Nq, Nk, kind)};
  for (std::int64_t i = 0; i < Nq; ++i) {
    double m = -infinity, l = 0;
    for (std::int64_t j = 0; j < Nk; ++j) m = std::max(m, double(S(0, 0, i, j)));
    result.expected_lse(0, 0, i, 0) = -infinity;
    if (m == -infinity) continue;  // P stays 0
    for (std::int64_t j = 0; j < Nk; ++j) l += std::exp(S(0, 0, i, j) - m);
    for (std::int64_t j = 0; j < Nk; ++j) result.expected_P(0, 0, i, j) = std::exp(S(0, 0, i, j) - m) / l;
    result.expected_lse(0, 0, i, 0) = m + std::log(l);
  }
  return result;
}

/// P and the LSE, of which the test may be about one.
void expect_softmax(const Softmax& result, bool P_decides, bool lse_decides) {
  const Tensor<double> S = widened(result.S);
  expect_all_close(
      {{result.P,
        {result.expected_P, softmax_bounds(S, result.expected_P), layout_of("P", "key"), result.input},
        P_decides},
       {result.lse, {result.expected_lse, row_lse_bounds(S), layout_of("lse", ""), result.input}, lse_decides}});
}
void expect_P(const Softmax& result) {
  expect_softmax(result, true, false);
}
void expect_lse(const Softmax& result) {
  expect_softmax(result, false, true);
}

/// P of the problem in float, unmasked, rows summing to one.
Tensor<float> weights_of(const Problem& problem) {
  const auto [B, H, Hkv, Nq, Nk, d] = problem.shape;
  Tensor<float> P({1, 1, Nq, Nk});
  for (std::int64_t i = 0; i < Nq; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < Nk; ++j) {
      double dot = 0;
      for (std::int64_t c = 0; c < d; ++c) dot += double(problem.Q(0, 0, i, c)) * problem.K(0, 0, j, c);
      P(0, 0, i, j) = float(std::exp(problem.scale * dot));
      sum += P(0, 0, i, j);
    }
    for (std::int64_t j = 0; j < Nk; ++j) P(0, 0, i, j) = float(P(0, 0, i, j) / sum);
  }
  return P;
}

/// Exercise 1.3 on P and the problem's V, against P V in float64.
void expect_matmul(const Tensor<float>& P, const Problem& problem, const std::string& kind) {
  const auto [B, H, Hkv, Nq, Nk, d] = problem.shape;
  worker::Call request("weighted_values");
  request.number("Nq", Nq).number("Nk", Nk).number("d", d).input("P", P.values).input("V", problem.V.values);
  request.output<float>("O", std::size_t(Nq * d));
  const worker::Reply reply = call(request);

  Tensor<double> expected({1, 1, Nq, d}), size({1, 1, Nq, d});
  for (std::int64_t i = 0; i < Nq; ++i) {
    for (std::int64_t j = 0; j < Nk; ++j) {
      for (std::int64_t c = 0; c < d; ++c) {
        const double product = double(P(0, 0, i, j)) * problem.V(0, 0, j, c);
        expected(0, 0, i, c) += product;
        size(0, 0, i, c) += std::abs(product);
      }
    }
  }
  expect_close(tensor(reply, "O", {1, 1, Nq, d}),
               {expected, product_bounds(size, Nk), layout_of("O", "column"), describe(problem, kind)});
}

}  // namespace

TEST_CASE("scores are scaled once", "[1.1]") {
  // First a scale other than 1/√d: with 1/√d, 1/d and the scale squared are the same number.
  expect_scores(one_head("normal", 20, 33, 32, false, 0.3f), "normal");
  expect_scores(one_head("normal", 37, 37, 64), "normal");
}

TEST_CASE("scores compare every query with every key", "[1.1]") {
  for (const std::int64_t d : {1, 3, 64, 128}) expect_scores(one_head("normal", 13, 29, d), "normal");
  expect_scores(one_head("normal", 1, 1, 32), "normal");
  expect_scores(one_head("normal", 64, 64, 64), "normal");  // square: a swapped index is in range
  expect_every_kind_in_this_part();
}

TEST_CASE("masked scores are -inf", "[1.1]") {
  for (const auto& [Nq, Nk] : {std::pair{29, 29}, {13, 29}, {29, 13}, {1, 17}, {17, 1}}) {
    expect_scores(one_head("normal", Nq, Nk, 32, true), "normal");
  }
}

TEST_CASE("masked scores are -inf whatever the scale is", "[1.1]") {
  // The scale is a factor of the dot product alone: times a negative number −∞ would be +∞, and times 0 NaN.
  for (const float scale : {-0.5f, 0.0f}) {
    Problem problem = one_head("normal", 13, 29, 32, true);
    problem.scale = scale;
    expect_scores(problem, "normal");
  }
}

TEST_CASE("each row of P sums to one", "[1.2]") {
  const Softmax result = softmax(scores(23, 41, 1, 0, false, 2), "unit normal scores");
  expect_P(result);
  // The property by itself, without the oracle.
  for (std::int64_t i = 0; i < 23; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < 41; ++j) sum += result.P(0, 0, i, j);
    expect(std::abs(sum - 1) < 41 * 6e-8, fmt::format("row {} of P sums to {}", i, sum));
  }
  expect_P(softmax(scores(1, 1, 1, 0, false, 3), "one score"));
  expect_P(softmax(scores(50, 50, 1, 0, false, 4), "unit normal scores"));
  expect_every_kind_in_this_part();
}

TEST_CASE("softmax survives scores of ±100", "[1.2]") {
  // These come first because not all of them overflow: a result that is all NaN does not identify the mistake.
  expect_P(softmax(scores(9, 40, 40, 0, false, 7), "scores between about -100 and 100"));
  expect_P(softmax(scores(9, 40, 1, 100, false, 5), "scores about 100"));
  expect_P(softmax(scores(9, 40, 1, -100, false, 6), "scores about -100"));
}

TEST_CASE("scores far below zero do not underflow", "[1.2]") {
  // Softmax does not change if all scores of a row are shifted by the same number, however far below zero.
  expect_softmax(softmax(scores(9, 40, 1, -200, false, 12), "scores about -200"), true, true);
  expect_softmax(softmax(scores(9, 40, 1, -1e4F, false, 13), "scores about -10000"), true, true);
  // Relative to 0 no row underflows; relative to another row's maximum, all rows but the first do.
  Tensor<float> apart = scores(9, 40, 1, 60, false, 15);
  for (std::int64_t i = 1; i < 9; ++i)
    for (std::int64_t j = 0; j < 40; ++j) apart(0, 0, i, j) -= 110;
  expect_softmax(softmax(apart, "scores about 60 in row 0, about -50 in the others"), true, true);
}

TEST_CASE("a single visible score has P = 1, to the last bit", "[1.2]") {
  Tensor<float> S = scores(12, 17, 1, 0, false, 14);
  for (std::int64_t i = 0; i < 12; ++i)
    for (std::int64_t j = 0; j < 17; ++j)
      if (j != i) S(0, 0, i, j) = float(-infinity);
  const Softmax result = softmax(S, "one visible score in each row");
  expect_P(result);
  for (std::int64_t i = 0; i < 12; ++i)
    expect(result.P(0, 0, i, i) == 1,
           fmt::format("P of the only visible score of row {} is {:.9g}, expected exp(0) / exp(0) = 1", i,
                       result.P(0, 0, i, i)),
           "your code adds something to l, or does not divide by l; it must divide by l itself", "l-plus-epsilon");
}

TEST_CASE("the LSE is the natural logarithm over the row", "[1.2]") {
  expect_lse(softmax(scores(23, 41, 1, 0, false, 8), "unit normal scores"));
  expect_lse(softmax(scores(9, 40, 1, 100, false, 9), "scores about 100"));
  expect_lse(softmax(scores(9, 40, 1, -100, false, 10), "scores about -100"));
}

TEST_CASE("a fully masked row gives P = 0 and LSE = -inf", "[1.2]") {
  const Softmax result = softmax(scores(5, 24, 1, 0, true, 11), "row 0 fully masked, row 1 half");
  expect_softmax(result, true, true);
}

TEST_CASE("a NaN among the scores is not hidden", "[1.2]") {
  Tensor<float> S = scores(4, 24, 1, 0, true, 16);  // row 0 fully masked
  S(0, 0, 1, 3) = S(0, 0, 2, 0) = std::numeric_limits<float>::quiet_NaN();
  for (std::int64_t j = 0; j < 24; ++j) S(0, 0, 3, j) = S(0, 0, 2, 0);
  const Softmax result = softmax(S, "a NaN in row 1 and in row 2, nothing else in row 3");
  for (std::int64_t i = 1; i < 4; ++i) {
    const float P = result.P(0, 0, i, 0);
    expect(std::isnan(P), fmt::format("row {} has a NaN score, and its P of key 0 is {}, expected NaN", i, P),
           P == 0 ? "your code treats a row whose l is NaN as fully masked; only l = 0 must identify a fully masked row"
                  : "",
           P == 0 ? "nan-hidden" : "unknown");
  }
}

TEST_CASE("O is the P-weighted sum of V's rows", "[1.3]") {
  for (const auto& [Nq, Nk, d] : {std::tuple{19, 31, 64}, {31, 31, 32}, {64, 64, 64}, {1, 200, 128}, {7, 1, 3}}) {
    const Problem problem = one_head("value mean", Nq, Nk, d);
    expect_matmul(weights_of(problem), problem, "value mean");
  }
  expect_every_kind_in_this_part();
}

TEST_CASE("keys after a weight of 0 are included", "[1.3]") {
  const Problem problem = one_head("value mean", 19, 31, 32);
  Tensor<float> P = weights_of(problem);
  for (std::int64_t i = 0; i < 19; ++i)
    for (std::int64_t j = i % 3; j < 31; j += 3) P(0, 0, i, j) = 0;
  expect_matmul(P, problem, "value mean, every third weight 0");
}

TEST_CASE("attention agrees with the oracle", "[whole]") {
  for (const InputKind& kind : input_kinds()) {
    for (const bool causal : {false, true}) {
      expect_attention(make_input(kind.name, {{2, 2, 2, 50, 50, 32}, causal, 0, 1}), kind.name);
      expect_attention(make_input(kind.name, {{1, 1, 1, 33, 70, 64}, causal, 0, 2}), kind.name);
      expect_attention(make_input(kind.name, {{1, 1, 1, 70, 33, 64}, causal, 0, 3}), kind.name);
    }
  }
  expect_attention(make_input("normal", {{1, 1, 1, 1, 1, 32}, false, 0, 1}), "normal");
  expect_attention(make_input("normal", {{1, 3, 3, 200, 200, 128}, true, 0.5f, 1}), "normal");
  expect_every_kind_in_this_part();
}

TEST_CASE("future positions have zero influence", "[whole]") {
  expect_no_influence_from_the_future(make_input("normal", {{1, 2, 2, 40, 40, 32}, true, 0, 5}), 20);
}

TEST_CASE("heads do not mix", "[whole]") {
  Problem problem = make_input("normal", {{2, 3, 3, 20, 24, 32}, false, 0, 6});
  const AttentionResult before = attention(problem);
  Problem changed = problem;
  for (std::int64_t n = 0; n < 24; ++n) {
    for (std::int64_t c = 0; c < 32; ++c) changed.K(1, 1, n, c) = changed.V(1, 1, n, c) = 9;
  }
  const AttentionResult after = attention(changed);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 3; ++h) {
      bool same = true;
      for (std::int64_t i = 0; i < 20 * 32; ++i) {
        same = same && after.O(b, h, i / 32, i % 32) == before.O(b, h, i / 32, i % 32);
      }
      const bool touched = b == 1 && h == 1;
      expect(same != touched, fmt::format("K and V of (batch 1, head 1) changed; O of (batch {}, head {}) {}", b, h,
                                          touched ? "did not" : "changed with them"));
    }
  }
}

TEST_CASE("S and P are materialised", "[whole]") {
  // Two matrices of Nq·Nk floats per head, counted to the byte, and perhaps a few rows. Chapter 2 avoids them.
  const Problem problem = make_input("normal", {{1, 2, 2, 96, 160, 32}, false, 0, 7});
  const AttentionResult result = attention(problem);
  expect_written(result.O.values[0], "O");
  const std::int64_t counted = result.reply.extra_bytes, expected = 2 * 2 * 96 * 160 * 4, rows = 4 * 160 * 8;
  if (!worker::kCountsMemory) SKIP("a sanitizer build does not count memory");
  expect(counted >= expected && counted <= expected + rows,
         fmt::format("the stage allocates {1} bytes, expected {0}: S and P of 2 heads, 2·2·96·160 floats", expected,
                     counted),
         "your code allocates memory of its own; the exercises need only S and P", "extra-memory");
}
