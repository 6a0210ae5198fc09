#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "common/attention/half.hpp"
#include "common/attention/inputs.hpp"
#include "common/judge/attention_model.hpp"
#include "common/judge/compare.hpp"
#include "common/judge/diagnosis.hpp"
#include "tests/01_naive_attention/mistakes.hpp"
#include "tests/02_online_softmax/mistakes.hpp"
#include "tests/03_tiled_wmma/mistakes.hpp"
#include "tests/judge/named_mistakes.hpp"

using namespace workbook;
using namespace workbook::judge;
using namespace workbook::test::ch01;
using namespace workbook::test::ch02;
using namespace workbook::test::ch03;

namespace {

constexpr int chapter = 5;  // knows all mistakes of the forward pass, its own and those of the chapters before it

struct Setup {
  std::string kind = "normal";
  Shape shape;
  bool causal = false;
  std::int64_t Br = 0, Bc = 0;
  float scale = 0;
  std::int64_t key_warps = 0;
  LaneRows lane_rows = {};
  bool zeros = false;  ///< every second query is 0, and so are its scores

  Tiling tiling() const { return {Br, Bc, key_warps, lane_rows}; }
  Problem problem() const {
    Problem problem = make_input(kind, {.shape = shape, .mask = causal, .scale = std::abs(scale), .seed = 3});
    if (scale < 0) problem.scale = scale;
    for (Index row = 0; row < shape.B * shape.H * shape.Nq && zeros; row += 2)
      std::fill_n(problem.Q.values.begin() + row * shape.d, shape.d, 0.0F);
    return problem;
  }
  std::string name() const {
    return fmt::format("{}, B={} H={} Nq={} Nk={} d={} causal={} Br={} Bc={} scale={} key_warps={} step={}", kind,
                       shape.B, shape.H, shape.Nq, shape.Nk, shape.d, causal, Br, Bc, scale, key_warps, lane_rows.step);
  }
};

Case output_case(const Setup& setup, const Precision& precision = float32_precision()) {
  const Problem problem = setup.problem();
  const Forward oracle = forward_oracle(problem);
  return {"O: " + setup.name(), oracle.O, output_bounds(oracle, problem, precision),
          output_mistakes(chapter, problem, setup.tiling(), precision)};
}

Case lse_case(const Setup& setup, const Precision& precision = float32_precision()) {
  const Problem problem = setup.problem();
  const Forward oracle = forward_oracle(problem);
  return {"lse: " + setup.name(), oracle.lse, lse_bounds(oracle, problem, precision),
          lse_mistakes(chapter, problem, setup.tiling(), precision)};
}

constexpr Shape small{.B = 1, .H = 2, .Hkv = 2, .Nq = 40, .Nk = 40, .d = 32};
constexpr Shape long_keys{.B = 1, .H = 1, .Hkv = 1, .Nq = 24, .Nk = 50, .d = 32};
constexpr Shape long_queries{.B = 1, .H = 1, .Hkv = 1, .Nq = 50, .Nk = 24, .d = 32};
constexpr Shape batches{.B = 2, .H = 3, .Hkv = 3, .Nq = 20, .Nk = 20, .d = 16};
constexpr Shape exact_tiles{.B = 1, .H = 1, .Hkv = 1, .Nq = 32, .Nk = 48, .d = 32};

/// Stages of half precision whose warps split the keys of a tile.
std::vector<Setup> kernel_setups() {
  std::vector<Setup> result;
  for (const char* kind : {"normal", "value mean", "rising maximum", "large logits", "late spike"})
    for (const std::int64_t key_warps : {2, 4})
      result.push_back({.kind = kind,
                        .shape = {.B = 1, .H = 1, .Hkv = 1, .Nq = 40, .Nk = 100, .d = 32},
                        .Br = 32,
                        .Bc = key_warps * 16,
                        .key_warps = key_warps});
  // Lanes that own rows, whose maximum may be smaller than the current one.
  for (const char* kind : {"normal", "value mean", "rising maximum", "large logits", "late spike"})
    for (const std::int64_t Bc : {32, 64})
      result.push_back({.kind = kind,
                        .shape = {.B = 1, .H = 1, .Hkv = 1, .Nq = 40, .Nk = 100, .d = 32},
                        .Br = 32,
                        .Bc = Bc,
                        .lane_rows = {.step = 32, .slack = 5.5F}});
  // The same with a causal mask, whose diagonal crosses several tiles.
  for (const char* kind : {"normal", "rising maximum"})
    for (const Shape& shape : {Shape{.B = 1, .H = 1, .Hkv = 1, .Nq = 70, .Nk = 100, .d = 32},
                               Shape{.B = 1, .H = 1, .Hkv = 1, .Nq = 100, .Nk = 70, .d = 32}})
      result.push_back(
          {.kind = kind, .shape = shape, .causal = true, .Br = 64, .Bc = 32, .lane_rows = {.step = 32, .slack = 5.5F}});
  return result;
}

std::vector<Setup> setups() {
  std::vector<Setup> result;
  for (const bool tiled : {false, true})
    for (const bool causal : {false, true})
      for (const Shape& shape : {small, long_keys, long_queries, batches, exact_tiles})
        result.push_back({"normal", shape, causal, tiled ? 16 : 0, tiled ? 16 : 0});
  for (const char* kind : {"value mean", "rising maximum", "falling maximum", "large logits", "one hot", "uniform",
                           "late spike", "negative logits"})
    for (const std::int64_t tile : {0, 16}) result.push_back({kind, small, false, tile, tile});
  result.push_back({.kind = "large logits", .shape = small, .zeros = true});
  result.push_back({"rising maximum", small, true, 16, 16});
  result.push_back({"normal", small, false, 16, 16, 0.3F});
  result.push_back({"normal", small, true, 16, 16, -0.3F});
  // The last query of the first Q tile is the only one to see the first key of a tile.
  result.push_back({"normal", {.B = 1, .H = 1, .Hkv = 1, .Nq = 47, .Nk = 64, .d = 32}, true, 32, 16});
  return result;
}

// ---- Attention written once more, directly, for outputs that do not come from the tables ----

using Matrix2 = std::vector<std::vector<float>>;

/// What one head gives: scores, then a function of a row of scores that gives O and the LSE.
struct Naive {
  Tensor<float> O, lse;
};

struct RowResult {
  std::vector<float> O;
  float lse;
};

/// Calls row(scores, V) for every query; `visible(i, j)` and `scale` as given. Masked scores are -inf.
Naive naive(const Problem& problem, float scale, const std::function<bool(std::int64_t, std::int64_t)>& visible,
            const std::function<RowResult(const std::vector<float>&, const Matrix2&)>& row) {
  const auto [B, H, Hkv, Nq, Nk, d] = problem.shape;
  Naive result{Tensor<float>({B, H, Nq, d}), Tensor<float>({B, H, Nq, 1})};
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t h = 0; h < H; ++h) {
      Matrix2 V;
      for (std::int64_t j = 0; j < Nk; ++j) {
        const float* first = &problem.V.values[problem.V.index(b, h, j, 0)];
        V.emplace_back(first, first + d);
      }
      for (std::int64_t i = 0; i < Nq; ++i) {
        std::vector<float> scores(std::size_t(Nk), -INFINITY);
        for (std::int64_t j = 0; j < Nk; ++j) {
          if (!visible(i, j)) continue;
          float sum = 0;
          for (std::int64_t c = 0; c < d; ++c) sum += problem.Q(b, h, i, c) * problem.K(b, h, j, c);
          scores[std::size_t(j)] = sum * scale;
        }
        const RowResult one = row(scores, V);
        std::copy(one.O.begin(), one.O.end(), &result.O(b, h, i, 0));
        result.lse(b, h, i, 0) = one.lse;
      }
    }
  return result;
}

bool all_visible(std::int64_t, std::int64_t) {
  return true;
}

/// What an online softmax may do wrong, each written out below.
enum class Slip {
  nothing,
  l_not_rescaled,
  O_not_rescaled,
  wrong_sign,
  divided_every_tile,
  no_division,
  tile_maximum,
  tile_maximum_for_P,
  starts_at_0,
  last_tile_dropped,
  base_2,
  P_bf16,
};

RowResult online(const std::vector<float>& S, const Matrix2& V, std::size_t tile, Slip slip) {
  const std::size_t d = V[0].size();
  float m = slip == Slip::starts_at_0 ? 0 : -INFINITY, l = 0;
  std::vector<float> O(d, 0.0F);
  std::size_t end = S.size();
  if (slip == Slip::last_tile_dropped) end = (end - 1) / tile * tile;
  for (std::size_t first = 0; first < end; first += tile) {
    const std::size_t last = std::min(end, first + tile);
    float here = -INFINITY;
    for (std::size_t j = first; j < last; ++j) here = std::fmax(here, S[j]);
    const float now = slip == Slip::tile_maximum ? here : std::fmax(m, here), shift = now == -INFINITY ? 0 : now;
    float rescale = std::exp(m - shift);
    if (slip == Slip::base_2) rescale = std::pow(2.0F, m - shift);
    if (slip == Slip::wrong_sign && m != -INFINITY) rescale = std::exp(shift - m);
    if (slip != Slip::l_not_rescaled) l *= rescale;
    if (slip != Slip::O_not_rescaled)
      for (float& x : O) x *= rescale;
    for (std::size_t j = first; j < last; ++j) {
      float p = std::exp(S[j] - (slip == Slip::tile_maximum_for_P && here > -INFINITY ? here : shift));
      if (slip == Slip::base_2) p = std::pow(2.0F, S[j] - shift);
      l += p;
      if (slip == Slip::P_bf16) p = bfloat16_to_float(float_to_bfloat16(p));
      for (std::size_t c = 0; c < d; ++c) O[c] += p * V[j][c];
    }
    if (slip == Slip::divided_every_tile)
      for (float& x : O) x /= l;
    m = now;
  }
  for (float& x : O) {
    if (l == 0)
      x = 0;
    else if (slip != Slip::no_division && slip != Slip::divided_every_tile)
      x /= l;
  }
  return {O, m + std::log(l)};
}

Naive online_attention(const Problem& problem, std::size_t tile, Slip slip) {
  const auto visible = [&](std::int64_t i, std::int64_t j) {
    return j < visible_keys(i, problem.shape.Nq, problem.shape.Nk, problem.causal());
  };
  return naive(problem, problem.scale, visible, [=](const auto& S, const auto& V) { return online(S, V, tile, slip); });
}

RowResult right_row(const std::vector<float>& S, const Matrix2& V) {
  return online(S, V, S.size(), Slip::nothing);
}

Tensor<float> tensor_of(std::array<std::int64_t, 4> sizes, std::uint64_t seed) {
  Tensor<float> result(sizes);
  result.values = normal_values(result.values.size(), seed);
  return result;
}

/// The parts' own cases: expected from the oracle's formulas, in double.
Tensor<float> scores_with_masked_rows(std::int64_t rows, std::int64_t keys, float size) {
  Tensor<float> S = tensor_of({1, 1, rows, keys}, 5);
  for (float& x : S.values) x *= size;
  for (std::int64_t i = 0; i < rows; i += 5)
    for (std::int64_t j = i == 0 ? 0 : keys - 3; j < keys; ++j) S(0, 0, i, j) = -INFINITY;
  return S;
}

Tensor<double> right_softmax(const Tensor<float>& S) {
  Tensor<double> P(S.sizes);
  for (std::int64_t i = 0; i < S.sizes[2]; ++i) {
    double m = -infinity, l = 0;
    for (std::int64_t j = 0; j < S.sizes[3]; ++j) m = std::max<double>(m, S(0, 0, i, j));
    for (std::int64_t j = 0; j < S.sizes[3] && m > -infinity; ++j) l += P(0, 0, i, j) = std::exp(S(0, 0, i, j) - m);
    for (std::int64_t j = 0; j < S.sizes[3] && l > 0; ++j) P(0, 0, i, j) /= l;
  }
  return P;
}

Tensor<double> right_lse(const Tensor<float>& S) {
  Tensor<double> lse({1, 1, S.sizes[2], 1});
  for (std::int64_t i = 0; i < S.sizes[2]; ++i) {
    double m = -infinity, l = 0;
    for (std::int64_t j = 0; j < S.sizes[3]; ++j) m = std::max<double>(m, S(0, 0, i, j));
    for (std::int64_t j = 0; j < S.sizes[3] && m > -infinity; ++j) l += std::exp(S(0, 0, i, j) - m);
    lse(0, 0, i, 0) = m == -infinity ? m : m + std::log(l);
  }
  return lse;
}

Case score_case(const Setup& setup) {
  const Problem problem = setup.problem();
  const auto [B, H, Hkv, Nq, Nk, d] = problem.shape;
  Tensor<double> S({1, 1, Nq, Nk}, -infinity), sizes({1, 1, Nq, Nk});
  for (std::int64_t i = 0; i < Nq; ++i)
    for (std::int64_t j = 0; j < visible_keys(i, Nq, Nk, problem.causal()); ++j) {
      S(0, 0, i, j) = 0;
      for (std::int64_t c = 0; c < d; ++c) {
        const double term = double(problem.scale) * problem.Q(0, 0, i, c) * problem.K(0, 0, j, c);
        S(0, 0, i, j) += term;
        sizes(0, 0, i, j) += std::abs(term);
      }
    }
  return {"S: " + setup.name(), S, score_bounds(sizes, d), score_mistakes(problem)};
}

Case softmax_case(const Tensor<float>& S, const std::string& name) {
  const Tensor<double> P = right_softmax(S);
  return {"P: " + name, P, softmax_bounds(to_double(S), P), softmax_mistakes(S)};
}

Case row_lse_case(const Tensor<float>& S, const std::string& name) {
  return {"row lse: " + name, right_lse(S), row_lse_bounds(to_double(S)), row_lse_mistakes(S)};
}

Case product_case(std::int64_t Nq, std::int64_t Nk, std::int64_t d, bool with_zeros = false) {
  Tensor<float> P = to_float(right_softmax(tensor_of({1, 1, Nq, Nk}, 7)));
  const Tensor<float> V = tensor_of({1, 1, Nk, d}, 8);
  for (std::size_t i = 0; i < P.values.size() && with_zeros; i += 3) P.values[i] = 0;
  Tensor<double> O({1, 1, Nq, d}), sizes({1, 1, Nq, d});
  for (std::int64_t i = 0; i < Nq; ++i)
    for (std::int64_t j = 0; j < Nk; ++j)
      for (std::int64_t c = 0; c < d; ++c) {
        const double term = double(P(0, 0, i, j)) * V(0, 0, j, c);
        O(0, 0, i, c) += term;
        sizes(0, 0, i, c) += std::abs(term);
      }
  return {"PV", O, product_bounds(sizes, Nk), product_mistakes(P, V)};
}

Bounds simple_bounds(const Tensor<double>& expected);

Case transposed_product_case() {
  const Tensor<float> A = tensor_of({1, 1, 16, 16}, 9), B = tensor_of({1, 1, 16, 16}, 10);
  Tensor<double> C({1, 1, 16, 16});
  for (std::int64_t i = 0; i < 16; ++i)
    for (std::int64_t j = 0; j < 16; ++j)
      for (std::int64_t k = 0; k < 16; ++k) C(0, 0, i, j) += double(A(0, 0, i, k)) * B(0, 0, j, k);
  return {"A·Bᵀ", C, simple_bounds(C), product_mistakes(A, B, 16)};
}

Case transpose_case(std::int64_t rows, std::int64_t columns) {
  const Tensor<float> matrix = tensor_of({1, 1, rows, columns}, 11);
  Tensor<double> result({1, 1, columns, rows});
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) result(0, 0, j, i) = matrix(0, 0, i, j);
  return {"transpose", result, simple_bounds(result), transpose_mistakes(matrix, 32)};
}

/// Bounds of a few units in the last place, for parts that tolerance.hpp has none for.
Bounds simple_bounds(const Tensor<double>& expected) {
  Bounds bounds{Tensor<double>(expected.sizes), 0, "float32 rounding"};
  double squares = 0;
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const double x = expected.values[i];
    bounds.element.values[i] = std::isfinite(x) ? 2e-6 * std::abs(x) : 0;
    squares += bounds.element.values[i] * bounds.element.values[i];
  }
  bounds.rms = std::sqrt(squares / double(expected.values.size()));
  return bounds;
}

Case state_case(std::vector<float> x, std::int64_t block, const std::string& name) {
  double m = -infinity, l = 0;
  for (float score : x) m = std::max<double>(m, score);
  for (float score : x) l += m == -infinity ? 0 : std::exp(score - m);
  Tensor<double> expected({1, 1, 1, 2});
  expected.values = {m, l};
  return {"state: " + name, expected, simple_bounds(expected), state_mistakes(x, block)};
}

Case merge_case(std::array<float, 2> m, std::array<float, 2> l, const std::string& name) {
  const std::vector<float> O = {0.5F, -1.25F, 2.0F, 0.75F, 1.5F, -0.25F, 3.0F, 1.0F};
  const double largest = std::max(m[0], m[1]);
  const auto weight = [&](std::size_t k) { return std::isinf(m[k]) ? 0 : std::exp(m[k] - largest); };
  Tensor<double> expected({1, 1, 1, 6});
  expected.values = {largest, weight(0) * l[0] + weight(1) * l[1]};
  for (std::size_t c = 0; c < 4; ++c) expected.values.push_back(weight(0) * O[c] + weight(1) * O[4 + c]);
  return {"merge: " + name, expected, simple_bounds(expected), merge_mistakes(m, l, O)};
}

/// A row of scores that rises, so that every block raises the maximum.
std::vector<float> rising(std::int64_t n, float first, float step) {
  std::vector<float> x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(first + step * float(i) + float(0.3 * noise(std::size_t(i))));
  return x;
}

}  // namespace

TEST_CASE("every known mistake in O is named") {
  std::vector<Case> cases;
  for (const Setup& setup : setups()) cases.push_back(output_case(setup));
  // These always give the numbers of others: of l-overwritten, of masked-row-nan, of finite-mask and of m-starts-at-0.
  check_all_named(
      cases, {"divided-by-last-tile", "equal-weights", "m-starts-at-1e9", "masked-row-divided", "padding-in-maximum"});
}

TEST_CASE("every known mistake of a kernel whose warps split the keys is named") {
  const auto check = [](const std::vector<Case>& cases, const std::vector<std::string>& ids) {
    std::set<std::string> named;
    for (const Case& test_case : cases) named.merge(check_case(test_case));
    for (const std::string& id : ids) {
      INFO(id);
      CHECK(named.contains(id));
    }
  };
  std::vector<Case> O, lse;
  for (const Setup& setup : kernel_setups()) {
    O.push_back(output_case(setup, float16_precision()));
    lse.push_back(lse_case(setup, float16_precision()));
  }
  check(O, {"K-fragments-row-major", "V-fragments-col-major", "QK-first-fragment", "QK-last-fragment", "no-scale",
            "exp-of-base-2", "warp-own-maximum", "warp-maximum-ignored", "warp-sum-alone", "warp-sum-dropped",
            "warp-product-alone", "warp-product-dropped", "mask-where-whole-warp-needs-it", "reset-at-boundary",
            "masked-tiles-scaled-twice", "masked-tiles-not-scaled"});
  check(lse, {"K-fragments-row-major", "QK-last-fragment", "no-scale", "exp-of-base-2", "lse-e-of-base-2",
              "warp-own-maximum", "warp-sum-alone", "warp-sum-dropped", "l-of-rounded-P"});
}

TEST_CASE("every known mistake in the LSE is named") {
  std::vector<Case> cases;
  for (const Setup& setup : setups()) cases.push_back(lse_case(setup));
  // The LSE of l-not-rescaled, of m-starts-at-0, and of rescaled-too-late.
  check_all_named(cases, {"not-rescaled", "padding-in-maximum", "l-and-sum-rescaled"});
}

TEST_CASE("every known mistake in the parts of the forward pass is named") {
  std::vector<Case> scores, softmaxes, lses, products, states, merges;
  const Shape square{.B = 1, .H = 1, .Hkv = 1, .Nq = 30, .Nk = 30, .d = 32};
  for (const Shape& shape : {square, long_keys, long_queries})
    for (const bool causal : {false, true}) scores.push_back(score_case({"normal", shape, causal}));
  scores.push_back(score_case({"normal", square, false, 0, 0, 0.3F}));
  check_all_named(scores, {});

  Tensor<float> low = scores_with_masked_rows(12, 20, 1);
  for (float& x : low.values) x -= 120;
  Tensor<float> falling = tensor_of({1, 1, 12, 12}, 9);
  for (std::int64_t i = 0; i < 12; ++i)
    for (std::int64_t j = 0; j < 12; ++j) falling(0, 0, i, j) -= float(20 * i);
  Tensor<float> causal = tensor_of({1, 1, 12, 12}, 10);
  for (std::int64_t i = 0; i < 12; ++i)
    for (std::int64_t j = i + 1; j < 12; ++j) causal(0, 0, i, j) = float(-infinity);
  const std::vector<std::pair<std::string, Tensor<float>>> rows = {{"causal", causal},
                                                                   {"plain", tensor_of({1, 1, 12, 20}, 4)},
                                                                   {"masked", scores_with_masked_rows(12, 20, 1)},
                                                                   {"large", scores_with_masked_rows(12, 20, 60)},
                                                                   {"low", low},
                                                                   {"falling", falling}};
  for (const auto& [name, S] : rows) {
    softmaxes.push_back(softmax_case(S, name));
    lses.push_back(row_lse_case(S, name));
  }
  check_all_named(softmaxes, {"equal-weights", "masked-row-divided"});
  check_all_named(lses, {"l-without-max"});  // gives the LSE of a maximum that only P lacks

  check_all_named({product_case(20, 20, 16), product_case(12, 31, 16), product_case(20, 20, 16, true)}, {});
  check_all_named({transposed_product_case()}, {});
  check_all_named({transpose_case(64, 32), transpose_case(33, 70)}, {});

  const std::vector<float> empty(10, -INFINITY);
  std::vector<float> begins_masked = rising(24, -1, 0.1F);
  std::fill_n(begins_masked.begin(), 8, -INFINITY);
  check_all_named({state_case(rising(22, -1, 0.2F), 8, "rising"), state_case(rising(22, 5, -0.2F), 8, "falling"),
                   state_case(rising(24, -1, 0.1F), 8, "whole blocks"), state_case(rising(22, -120, 0.2F), 8, "low"),
                   state_case(rising(22, 80, 1), 8, "high"), state_case(empty, 4, "empty"),
                   state_case(begins_masked, 8, "begins masked")},
                  {"sum-rescaled"});

  check_all_named(
      {merge_case({0.5F, 1.25F}, {3, 4}, "second larger"), merge_case({1.25F, 0.5F}, {3, 4}, "first larger"),
       merge_case({-INFINITY, -INFINITY}, {0, 0}, "both empty")},
      {"merge-smaller-maximum"});  // one of the two is always the smaller: what two merges tell, one does not
}

TEST_CASE("mistakes made by another program are named") {
  const std::map<Slip, std::string> slips = {{Slip::l_not_rescaled, "l-not-rescaled"},
                                             {Slip::O_not_rescaled, "O-not-rescaled"},
                                             {Slip::wrong_sign, "rescale-wrong-sign"},
                                             {Slip::divided_every_tile, "divided-every-tile"},
                                             {Slip::no_division, "no-final-division"},
                                             {Slip::tile_maximum_for_P, "tile-maximum"},
                                             {Slip::last_tile_dropped, "ragged-tile-dropped"},
                                             {Slip::base_2, "exp-base-2"},
                                             {Slip::P_bf16, "P-rounded-bf16"}};
  for (const bool causal : {false, true})
    for (const auto& [slip, id] : slips) {
      const Setup setup{"rising maximum", {.B = 1, .H = 2, .Hkv = 2, .Nq = 50, .Nk = 50, .d = 64}, causal, 16, 16};
      CHECK(output_case(setup).id(online_attention(setup.problem(), 16, slip).O) == id);
    }
  // Where every tile has a visible key, a maximum of the last tile alone gives the right numbers.
  const Setup tiles_masked{"normal", small, true, 16, 8};
  CHECK(lse_case(tiles_masked).id(online_attention(tiles_masked.problem(), 8, Slip::tile_maximum).lse) ==
        "tile-maximum");

  const Setup low{"negative logits", small, false, 16, 16};
  CHECK(output_case(low).id(online_attention(low.problem(), 16, Slip::starts_at_0).O) == "m-starts-at-0");

  const Setup plain{"normal", small, true};
  const Problem problem = plain.problem();
  const auto seen = [](std::int64_t extra) {
    return [extra](std::int64_t i, std::int64_t j) { return j <= i + extra; };
  };
  const Case O = output_case(plain), lse = lse_case(plain);
  CHECK(O.id(naive(problem, 1, seen(0), right_row).O) == "no-scale");
  CHECK(lse.id(naive(problem, 1, seen(0), right_row).lse) == "no-scale");
  CHECK(O.id(naive(problem, problem.scale, seen(1), right_row).O) == "mask-one-too-many");
  CHECK(lse.id(naive(problem, problem.scale, seen(1), right_row).lse) == "mask-one-too-many");
  CHECK(O.id(naive(problem, problem.scale, seen(-1), right_row).O) == "mask-one-too-few");
  CHECK(O.id(naive(problem, problem.scale, all_visible, right_row).O) == "no-mask");
  CHECK(O.id(Tensor<float>(problem.Q.sizes, unwritten_value)) == "not-written");
  CHECK(O.id(Tensor<float>(problem.Q.sizes, NAN)) == "none");  // computed NaN has many possible causes
  CHECK(O.id(Tensor<float>(problem.Q.sizes, 0)) == "all-zeros");
  const Setup masked{"normal", long_queries, true};
  const auto finite = [](std::vector<float> S, const Matrix2& V) {
    for (float& x : S) x = std::fmax(x, -1e9F);
    return right_row(S, V);
  };
  const auto bottom_right = [](std::int64_t i, std::int64_t j) { return j <= i + 24 - 50; };
  const Naive result = naive(masked.problem(), masked.problem().scale, bottom_right, finite);
  CHECK(output_case(masked).id(result.O) == "finite-mask");
  CHECK(lse_case(masked).id(result.lse) == "finite-mask");

  const Setup large{"large logits", small}, partly{.kind = "large logits", .shape = small, .zeros = true};
  const auto without_maximum = [](const std::vector<float>& S, const Matrix2& V) {
    RowResult row{std::vector<float>(V[0].size(), 0.0F), 0};
    std::vector<float> P;
    for (float x : S) row.lse += P.emplace_back(std::exp(x));
    for (std::size_t j = 0; j < S.size(); ++j)
      for (std::size_t c = 0; c < V[0].size(); ++c) row.O[c] += P[j] / row.lse * V[j][c];
    return row;
  };
  const Naive overflowed = naive(large.problem(), large.problem().scale, all_visible, without_maximum);
  CHECK(output_case(large).id(overflowed.O) == "no-max-subtraction");
  CHECK(lse_case(large).id(overflowed.lse) == "no-max-subtraction");
  CHECK(output_case(partly).id(naive(partly.problem(), partly.problem().scale, all_visible, without_maximum).O) ==
        "no-max-subtraction");
}

TEST_CASE("from an answer that is nothing but NaN no cause is concluded") {
  const Setup large{"large logits", small};
  const Case O = output_case(large), lse = lse_case(large);
  const Tensor<float> O_nan(O.expected.sizes, NAN), lse_nan(lse.expected.sizes, NAN);
  const Tensor<float> O_right = to_float(O.expected), lse_right = to_float(lse.expected);
  Tensor<float> lse_infinite(lse.expected.sizes, infinity);
  const auto answered = [](const Case& of, const Tensor<float>& got, bool right) {
    return Answered{&got, &of.expected, &of.bounds, &of.mistakes, right};
  };
  REQUIRE(O.id(O_nan) == "no-max-subtraction");  // as one of several tensors it might be
  CHECK_FALSE(judge::diagnose({answered(O, O_nan, false)}));
  CHECK_FALSE(judge::diagnose({answered(O, O_nan, false), answered(lse, lse_nan, false)}));
  CHECK_FALSE(judge::diagnose({answered(O, O_right, true), answered(lse, lse_right, true)}));
  // What is no NaN tells it.
  const auto found = judge::diagnose({answered(O, O_nan, false), answered(lse, lse_infinite, false)});
  REQUIRE(found);
  CHECK(found->id == "no-max-subtraction");
}

TEST_CASE("the model takes the last keys first where a stage does") {
  const Problem problem = make_input("rising maximum", {.shape = {1, 1, 1, 8, 48, 16}, .seed = 3});
  Problem turned = problem;
  for (Tensor<float>* tensor : {&turned.K, &turned.V})
    for (Index j = 0; j < 48; ++j)
      for (Index c = 0; c < 16; ++c)
        (*tensor)(0, 0, j, c) = (tensor == &turned.K ? problem.K : problem.V)(0, 0, 47 - j, c);
  const auto not_rescaled = [](const Problem& of, bool last_first) {
    AttentionModel model(of, {16, 16, 0, {.step = 16, .last_first = last_first}}, float32_precision());
    model.after_factors([](Row& row) { row.O_factor = 1; });
    return model.O();
  };
  const auto difference = [](const Tensor<double>& a, const Tensor<double>& b) {
    double largest = 0;
    for (std::size_t i = 0; i < a.values.size(); ++i) largest = std::max(largest, std::abs(a.values[i] - b.values[i]));
    return largest;
  };
  const Tensor<double> last_first = not_rescaled(problem, true);
  CHECK(difference(last_first, not_rescaled(turned, false)) < 1e-4);
  CHECK(difference(last_first, not_rescaled(problem, false)) > 0.1);
}

TEST_CASE("a right output is never diagnosed") {
  for (const Setup& setup : setups()) {
    INFO(setup.name());
    const Case O = output_case(setup), lse = lse_case(setup);
    CHECK_FALSE(O.diagnose(to_float(O.expected)));
    CHECK_FALSE(lse.diagnose(to_float(lse.expected)));
    for (const std::size_t tile : {16, 1000}) {
      const Naive right = online_attention(setup.problem(), tile, Slip::nothing);
      CHECK_FALSE(O.diagnose(right.O));
      CHECK_FALSE(lse.diagnose(right.lse));
    }
  }
}

TEST_CASE("an output that no known mistake gives is not diagnosed") {
  for (const Setup& setup : setups()) {
    INFO(setup.name());
    Case O = output_case(setup);
    O.mistakes = remembered(std::move(O.mistakes));
    const Tensor<float> right = to_float(O.expected);
    CHECK(O.id(tensor_of(right.sizes, 99)) == "none");

    Tensor<float> scaled = right, noisy = right, patched = right, reversed = right;
    for (float& x : scaled.values) x *= 1.03F;
    for (std::size_t i = 0; i < noisy.values.size(); ++i)
      noisy.values[i] += float(20 * noise(i) * O.bounds.element.values[i]);
    patched.values[patched.values.size() / 2] += 1;
    std::ranges::reverse(reversed.values);
    CHECK(O.id(scaled) == "none");
    CHECK(O.id(noisy) == "none");
    CHECK(O.id(patched) == "none");
    CHECK(O.id(reversed) == "none");
  }
}

TEST_CASE("two mistakes at once are not taken for one of them") {
  const Setup setup{"rising maximum", small, true, 16, 16};
  const Problem problem = setup.problem();
  const auto unmasked_and_undivided = [](const auto& S, const auto& V) { return online(S, V, 16, Slip::no_division); };
  CHECK(output_case(setup).id(naive(problem, problem.scale, all_visible, unmasked_and_undivided).O) == "none");
}

TEST_CASE("mistakes that give the same numbers are named together") {
  const Setup setup{"normal", small, false, 16, 16};
  const Case O = output_case(setup);
  const auto diagnosis = O.diagnose(naive(setup.problem(), 1 / 32.0F, all_visible, right_row).O);
  REQUIRE(diagnosis);
  CHECK(diagnosis->id == "scale-twice");
  CHECK(diagnosis->also == std::vector<std::string>{"scale-one-over-d"});
  CHECK(diagnosis->sentence == "the scale is applied twice, or the scale is 1/d instead of 1/√d");
  CHECK(diagnosis->difference < 1e-5);
}

TEST_CASE("in a stage of half precision, P that is rounded to bf16 is told from its own roundings") {
  const Setup setup{"normal", {.B = 1, .H = 2, .Hkv = 2, .Nq = 64, .Nk = 100, .d = 64}, false, 32, 32};
  const Case O = output_case(setup, float16_precision());
  const auto half = [](Tensor<float> tensor) {
    for (float& x : tensor.values) x = half_to_float(float_to_half(x));
    return tensor;
  };
  CHECK(O.id(half(online_attention(setup.problem(), 32, Slip::nothing).O)) == "none");
  CHECK(O.id(half(online_attention(setup.problem(), 32, Slip::P_bf16).O)) == "P-rounded-bf16");
}

TEST_CASE("the attention model is right as it is made, with heads that share K and V too") {
  const Setup shared{"normal", {.B = 2, .H = 4, .Hkv = 2, .Nq = 20, .Nk = 30, .d = 32}, true, 16, 16};
  for (const Precision& precision : {float32_precision(), float16_precision()})
    for (const std::vector<Setup>& list : {setups(), kernel_setups(), {shared}})
      for (const Setup& setup : list) {
        INFO(setup.name());
        const AttentionModel model(setup.problem(), setup.tiling(), precision);
        CHECK_FALSE(output_case(setup, precision).exposes(model.O()));
        CHECK_FALSE(lse_case(setup, precision).exposes(model.LSE()));
      }
}

TEST_CASE("a chapter knows its own mistakes and those of the chapters that it uses") {
  const Setup lanes{.shape = small, .Br = 32, .Bc = 32, .lane_rows = {.step = 32, .slack = 5.5F}};
  const auto knows = [&](int number, const std::string& id) {
    const auto mistakes = output_mistakes(number, lanes.problem(), lanes.tiling(), float16_precision());
    return std::ranges::count(mistakes, id, &Mistake::id) > 0;
  };
  CHECK(knows(1, "no-scale"));
  CHECK_FALSE(knows(1, "O-not-rescaled"));
  CHECK(knows(2, "O-not-rescaled"));
  CHECK_FALSE(knows(3, "PV-first-keys"));
  for (const int number : {4, 5, 6, 7}) {
    CHECK(knows(number, "no-scale"));
    CHECK(knows(number, "PV-first-keys"));
  }
  CHECK_FALSE(knows(99, "no-scale"));
}

TEST_CASE("mistakes that would take too long are not tried") {
  const Tensor<float> got({1, 1, 1, 2}, 1);
  const Tensor<double> expected({1, 1, 1, 2}, 0);
  const Bounds bounds{Tensor<double>({1, 1, 1, 2}, 0.1), 0.1, ""};
  int computed = 0;
  const auto ones = [&] {
    ++computed;
    return Tensor<double>({1, 1, 1, 2}, 1);
  };
  const auto diagnosis = diagnose(got, expected, bounds, {{"slow", "slow", ones, 1e10}, {"quick", "quick", ones, 10}});
  REQUIRE(diagnosis);
  CHECK(diagnosis->id == "quick");
  CHECK(computed == 1);
}
