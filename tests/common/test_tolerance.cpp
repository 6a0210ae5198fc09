// The error bounds: wide enough for every correct implementation, narrow enough to expose rounding too early.
// notes/numerics.md quotes the tables that these tests print with -s.

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <functional>
#include <limits>

#include "common/attention/element.hpp"
#include "common/attention/half.hpp"
#include "common/attention/inputs.hpp"
#include "common/attention/tolerance.hpp"
#include "tests/common/error_ratio.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

struct Result {
  std::vector<float> O, lse;
};
struct Comparison {
  Ratio O, lse;
  void include(const Comparison& other) {
    O.include(other.O);
    lse.include(other.lse);
  }
};

/// A problem with the oracle's results.
struct Case {
  Problem problem;
  Precision precision;
  Forward oracle;
  Bounds O_bounds, lse_bounds_;

  explicit Case(Problem problem_, Precision precision_ = float32_precision())
      : problem(std::move(problem_)),
        precision(precision_),
        oracle(forward_oracle(problem)),
        O_bounds(output_bounds(oracle, problem, precision)),
        lse_bounds_(lse_bounds(oracle, problem, precision)) {}

  Comparison compare_with(const Result& result) const {
    return {compare(result.O, oracle.O, O_bounds), compare(result.lse, oracle.lse, lse_bounds_)};
  }
};

/// Where a float32 stage rounds; a correct one does not round.
struct Roundings {
  Rounding S = keep, P = keep, l = keep, O = keep, output = keep;
  float masked = -infinity;  ///< the score of a key that is not visible
  float first_m = -infinity;
  bool rescale_l = true, rescale_O = true;
};

/// S, P and O as three matrices, all in float32: chapter 1.
Result naive_attention(const Problem& problem) {
  const auto [B, H, Hkv, Nq, Nk, d] = problem.shape;
  Result result{std::vector<float>(B * H * Nq * d), std::vector<float>(B * H * Nq, -infinity)};
  std::vector<float> P(Nk);
  for (std::int64_t row = 0; row < B * H * Nq; ++row) {
    const std::int64_t head = row / Nq, n = visible_keys(row % Nq, Nq, Nk, problem.causal());
    if (n == 0) continue;
    float m = -infinity, l = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      float s = 0;
      for (std::int64_t c = 0; c < d; ++c)
        s += problem.Q.values[row * d + c] * problem.K.values[(head * Nk + j) * d + c];
      P[j] = s * problem.scale;
      m = std::max(m, P[j]);
    }
    for (std::int64_t j = 0; j < n; ++j) l += P[j] = std::exp(P[j] - m);
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t c = 0; c < d; ++c)
        result.O[row * d + c] += P[j] / l * problem.V.values[(head * Nk + j) * d + c];
    result.lse[row] = m + std::log(l);
  }
  return result;
}

/// Online softmax over tiles of `Bc` keys, in float32; with `base2` as kernels do it: exp2 with scale·log2(e) folded
/// in.
Result online_attention(const Problem& problem, std::int64_t Bc, bool base2, const Roundings& at = {}) {
  const auto [B, H, Hkv, Nq, Nk, d] = problem.shape;
  Result result{std::vector<float>(B * H * Nq * d), std::vector<float>(B * H * Nq, -infinity)};
  const float factor = base2 ? problem.scale * 1.44269504088896340736f : problem.scale;
  const auto exponential = [&](float x) { return base2 ? std::exp2(x) : std::exp(x); };
  std::vector<float> P(Bc), O(d);
  for (std::int64_t row = 0; row < B * H * Nq; ++row) {
    const std::int64_t head = row / Nq, n = visible_keys(row % Nq, Nq, Nk, problem.causal());
    float m = at.first_m, l = 0;
    std::fill(O.begin(), O.end(), 0.0f);
    for (std::int64_t first = 0; first < Nk; first += Bc) {
      const std::int64_t keys = std::min(Bc, Nk - first);
      float m_new = m;
      for (std::int64_t j = 0; j < keys; ++j) {
        float s = 0;
        for (std::int64_t c = 0; c < d; ++c)
          s += problem.Q.values[row * d + c] * problem.K.values[(head * Nk + first + j) * d + c];
        P[j] = first + j < n ? at.S(s * factor) : at.masked;
        m_new = std::max(m_new, P[j]);
      }
      const float m_safe = m_new == -infinity ? 0 : m_new;
      const float rescale = exponential(m - m_safe);
      if (at.rescale_l) l *= rescale;
      if (at.rescale_O)
        for (float& value : O) value *= rescale;
      for (std::int64_t j = 0; j < keys; ++j) {
        const float p = exponential(P[j] - m_safe), p_rounded = at.P(p);
        l = at.l(l + p);
        for (std::int64_t c = 0; c < d; ++c)
          O[c] = at.O(O[c] + p_rounded * problem.V.values[(head * Nk + first + j) * d + c]);
      }
      m = m_new;
    }
    if (l == 0) continue;
    for (std::int64_t c = 0; c < d; ++c) result.O[row * d + c] = at.output(O[c] / l);
    result.lse[row] = base2 ? (m + std::log2(l)) * 0.693147180559945309417f : m + std::log(l);
  }
  return result;
}

/// With the mask: causal or none.
std::vector<std::pair<Shape, bool>> shapes() {
  return {
      {{1, 1, 1, 64, 64, 32}, false},   {{1, 2, 2, 70, 70, 64}, true},   {{1, 1, 1, 20, 1000, 64}, false},
      {{1, 1, 1, 20, 1000, 128}, true}, {{1, 1, 1, 37, 333, 32}, true},  {{2, 1, 1, 133, 77, 64}, true},
      {{1, 1, 1, 1, 1, 64}, false},     {{1, 1, 1, 1, 1000, 32}, false}, {{1, 1, 1, 50, 1, 64}, false},
      {{1, 1, 1, 50, 200, 1}, false},   {{1, 1, 1, 50, 200, 3}, true},   {{3, 2, 2, 17, 65, 64}, false},
      {{1, 1, 1, 10, 4000, 64}, false},
  };
}

std::vector<std::function<Result(const Problem&)>> correct_implementations() {
  return {
      naive_attention,
      [](const Problem& p) { return online_attention(p, 1, false); },
      [](const Problem& p) { return online_attention(p, 1, true); },
      [](const Problem& p) { return online_attention(p, 16, true); },
      [](const Problem& p) { return online_attention(p, 64, false); },
      [](const Problem& p) { return online_attention(p, p.shape.Nk, true); },
  };
}

// At most 80 columns: Catch2 wraps longer lines.
std::string table_row(const std::string& name, const Comparison& worst) {
  return fmt::format("{:<38} {:>8.3g} {:>8.3g} {:>8.3g} {:>8.3g}\n", name, worst.O.element, worst.O.rms,
                     worst.lse.element, worst.lse.rms);
}
std::string table_head() {
  return fmt::format("\n{:<38} {:>8} {:>8} {:>8} {:>8}\n", "largest error / bound", "O max", "O rms", "LSE max",
                     "LSE rms");
}

/// Attention with the roundings of a tensor-core kernel, untiled: dot products by `dot`, P and O rounded to 16 bits or
/// fewer.
Result mixed_attention(const Problem& problem, const Rounding& round_P, const Rounding& round_O,
                       decltype(&tensor_core_dot) dot = tensor_core_dot) {
  const auto [B, H, Hkv, Nq, Nk, d] = problem.shape;
  Result result{std::vector<float>(B * H * Nq * d), std::vector<float>(B * H * Nq, -infinity)};
  const float factor = problem.scale * 1.44269504088896340736f;
  for (std::int64_t row = 0; row < B * H * Nq; ++row) {
    const std::int64_t head = row / Nq, n = visible_keys(row % Nq, Nq, Nk, problem.causal());
    if (n == 0) continue;
    std::vector<float> P(n), V(n);
    float m = -infinity, l = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      const float *Q = &problem.Q.values[row * d], *K = &problem.K.values[(head * Nk + j) * d];
      P[j] = factor * dot({Q, Q + d}, {K, K + d});
      m = std::max(m, P[j]);
    }
    for (float& p : P) {
      p = std::exp2(p - m);
      l += p;
      p = round_P(p);
    }
    for (std::int64_t c = 0; c < d; ++c) {
      for (std::int64_t j = 0; j < n; ++j) V[j] = problem.V.values[(head * Nk + j) * d + c];
      result.O[row * d + c] = round_O(dot(P, V) / l);
    }
    result.lse[row] = (m + std::log2(l)) * 0.693147180559945309417f;
  }
  return result;
}

Problem rounded(Problem problem, const Rounding& round) {
  for (Tensor<float>* tensor : {&problem.Q, &problem.K, &problem.V})
    for (float& value : tensor->values) value = round(value);
  return problem;
}

}  // namespace

TEST_CASE("the bounds hold for correct float32 code") {
  std::string table = table_head();
  Comparison worst_of_all;
  for (const InputKind& kind : input_kinds()) {
    Comparison worst;
    for (const auto& [shape, causal] : shapes())
      for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        const Case c(make_input(kind.name, {shape, causal, 0, seed}));
        for (const auto& implementation : correct_implementations())
          worst.include(c.compare_with(implementation(c.problem)));
      }
    table += table_row(kind.name, worst);
    worst_of_all.include(worst);
  }
  table += table_row("all", worst_of_all);
  INFO(table);
  const double worst = std::max(worst_of_all.O.worst(), worst_of_all.lse.worst());
  CHECK((0.05 < worst && worst < 1));  // they hold, and are not needlessly wide
}

TEST_CASE("a float32 stage that rounds too early is outside the bounds") {
  struct Mutant {
    std::string name;
    Roundings at;
    std::string kind = "normal";
  };
  const std::vector<Mutant> mutants{
      {"S rounded to fp16", {.S = to_fp16}},
      {"S rounded to bf16", {.S = to_bf16}},
      {"P rounded to fp16", {.P = to_fp16}},
      {"P rounded to bf16", {.P = to_bf16}},
      {"l accumulated in fp16", {.l = to_fp16}},
      {"l accumulated in bf16", {.l = to_bf16}},
      {"O accumulated in fp16", {.O = to_fp16}},
      {"O accumulated in bf16", {.O = to_bf16}},
      {"O stored as fp16", {.output = to_fp16}},
      {"O stored as bf16", {.output = to_bf16}},
      {"l not rescaled, rising maximum", {.rescale_l = false}, "rising maximum"},
      {"O not rescaled, rising maximum", {.rescale_O = false}, "rising maximum"},
      {"m starts at 0, negative logits", {.first_m = 0}, "negative logits"},
  };
  std::string table = table_head();
  for (const std::int64_t N : {64, 200, 1000})
    for (const Mutant& mutant : mutants) {
      const Case c(make_input(mutant.kind, {.shape = {1, 1, 1, std::min<std::int64_t>(N, 100), N, 64}}));
      const Comparison result = c.compare_with(online_attention(c.problem, 16, false, mutant.at));
      table += table_row(fmt::format("{}, N={}", mutant.name, N), result);
      if (result.O.worst() <= 1 && result.lse.worst() <= 1) FAIL_CHECK(mutant.name << " survives at N=" << N << table);
    }
  INFO(table);
  CHECK(!table.empty());  // with -s, Catch2 prints the table
}

TEST_CASE("the bounds hold for tensor cores that truncate, and a coarser P is outside them") {
  std::string table = table_head();
  for (const bool fp16 : {true, false}) {
    const Rounding& round = fp16 ? to_fp16 : to_bf16;
    const Precision precision = fp16 ? float16_precision() : bfloat16_precision();
    Comparison worst;
    for (const InputKind& kind : input_kinds())
      for (const auto& [shape, causal] : shapes()) {
        if (shape.Nk > 1000) continue;
        const Case c(rounded(make_input(kind.name, {shape, causal}), round), precision);
        worst.include(c.compare_with(mixed_attention(c.problem, round, round)));
      }
    table += table_row(name(precision.element), worst);
    CHECK(worst.O.worst() < 1);
    CHECK(worst.lse.worst() < 1);

    for (const std::int64_t N : {64, 200, 1000}) {
      const Case c(rounded(make_input("normal", {.shape = {1, 1, 1, 100, N, 64}}), round), precision);
      const auto coarser = [&](float p) {  // three bits fewer, as bf16 has three fewer than fp16
        const float ulp = std::ldexp(1.0f, std::ilogb(p) - (fp16 ? 7 : 4));
        return p == 0 ? p : std::nearbyint(p / ulp) * ulp;
      };
      const Comparison result = c.compare_with(mixed_attention(c.problem, coarser, round));
      table += table_row(fmt::format("{}, P with 3 bits fewer, N={}", name(precision.element), N), result);
      if (result.O.worst() <= 1) FAIL_CHECK("survives" << table);
    }
  }
  INFO(table);
  CHECK(!table.empty());
}

TEST_CASE("the bounds hold for e4m3 and sums of 13 bits, and a coarser P is outside them") {
  const auto e4m3 = [](float p) { return rounded_to_e4m3(p * 256) / 256; };
  std::string table = table_head();
  Comparison worst;
  for (const InputKind& kind : input_kinds())
    for (const auto& [shape, causal] : shapes()) {
      if (shape.Nk > 1000) continue;
      const Case c(rounded_to(make_input(kind.name, {shape, causal}), float8), float8_precision());
      worst.include(c.compare_with(mixed_attention(c.problem, e4m3, to_fp16, float8_dot)));
    }
  table += table_row("float8", worst);
  CHECK(worst.O.worst() < 1);
  CHECK(worst.lse.worst() < 1);
  CHECK(worst.O.worst() > 0.05);  // not needlessly wide

  for (const std::int64_t N : {64, 200}) {
    const Case c(rounded_to(make_input("value mean", {.shape = {1, 1, 1, 100, N, 64}}), float8), float8_precision());
    const auto coarser = [](float p) { return p == 0 ? p : std::ldexp(1.0f, std::ilogb(p)); };  // no mantissa
    const Comparison result = c.compare_with(mixed_attention(c.problem, coarser, to_fp16, float8_dot));
    table += table_row(fmt::format("float8, P with 3 bits fewer, N={}", N), result);
    if (result.O.worst() <= 1) FAIL_CHECK("survives" << table);
  }
  INFO(table);
  CHECK(!table.empty());
}

TEST_CASE("a fully masked row has bound 0, so only O = 0 and LSE = -inf are accepted") {
  const Case c(make_input("normal", {.shape = {1, 1, 1, 8, 5, 32}, .mask = true}));
  for (std::int64_t row = 0; row < 8; ++row) {
    const bool masked = row < 3;
    CHECK((c.lse_bounds_.element.values[row] == 0) == masked);
    for (std::int64_t column = 0; column < 32; ++column)
      CHECK((c.O_bounds.element.values[row * 32 + column] == 0) == masked);
  }
  // A large negative number instead of -inf gives masked rows the mean of V.
  const Comparison finite = c.compare_with(online_attention(c.problem, 4, false, {.masked = -1e9f}));
  CHECK(finite.O.element == infinity);
  CHECK(finite.lse.element == infinity);
}

TEST_CASE("a non-finite expected value has bound 0, and the other bounds are finite") {
  Problem problem = make_input("normal", {.shape = {1, 1, 1, 4, 6, 32}});
  problem.Q(0, 0, 2, 5) = std::numeric_limits<float>::quiet_NaN();
  problem.V(0, 0, 3, 7) = infinity;
  const Case c(problem);
  CHECK(std::isnan(c.oracle.O(0, 0, 2, 0)));
  CHECK(c.O_bounds.element(0, 0, 2, 0) == 0);
  CHECK(c.lse_bounds_.element(0, 0, 2, 0) == 0);
  CHECK(std::isinf(c.oracle.O(0, 0, 0, 7)));
  CHECK(c.O_bounds.element(0, 0, 0, 7) == 0);
  CHECK(c.O_bounds.element(0, 0, 0, 6) > 0);
  CHECK(std::isfinite(c.O_bounds.rms));
  CHECK(std::isfinite(c.lse_bounds_.rms));
}

TEST_CASE("the bounds of the parts of a forward pass hold in float32") {
  std::string table = fmt::format("\n{:<38} {:>8} {:>8}\n", "largest error / bound", "max", "rms");
  std::array<Ratio, 4> worst;
  for (const InputKind& kind : input_kinds())
    for (const std::int64_t N : {1, 7, 200, 1000}) {
      const std::int64_t rows = 30, d = 64;
      const Problem problem = make_input(kind.name, {.shape = {1, 1, 1, rows, N, d}});

      // S, in float and in double.
      Tensor<double> S({1, 1, rows, N}), S_sizes({1, 1, rows, N});
      std::vector<float> S_float(rows * N);
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < N; ++j) {
          float sum = 0;
          for (std::int64_t c = 0; c < d; ++c) {
            const float q = problem.Q(0, 0, i, c), k = problem.K(0, 0, j, c);
            sum += q * k;
            S(0, 0, i, j) += double(problem.scale) * q * k;
            S_sizes(0, 0, i, j) += std::abs(double(problem.scale) * q * k);
          }
          S_float[i * N + j] = sum * problem.scale;
        }
      worst[0].include(compare(S_float, S, score_bounds(S_sizes, d)));

      // P and the LSE of the float scores, some of them masked; O = P·V of the float P.
      Tensor<double> scores({1, 1, rows, N}), P({1, 1, rows, N}), lse({1, 1, rows, 1}), O({1, 1, rows, d}),
          O_sizes({1, 1, rows, d});
      std::vector<float> P_float(rows * N), lse_float(rows), O_float(rows * d);
      for (std::int64_t i = 0; i < rows; ++i) {
        float m = -infinity, l = 0;
        double m_exact = -infinity, l_exact = 0;
        for (std::int64_t j = 0; j < N; ++j) {
          if ((i + j) % 5 == 4) S_float[i * N + j] = -infinity;
          scores(0, 0, i, j) = S_float[i * N + j];
          m_exact = m = std::max(m, S_float[i * N + j]);
        }
        const bool masked = m == -infinity;
        if (masked) m_exact = m = 0;
        for (std::int64_t j = 0; j < N; ++j) {
          l += P_float[i * N + j] = std::exp(S_float[i * N + j] - m);
          l_exact += P(0, 0, i, j) = std::exp(scores(0, 0, i, j) - m_exact);
        }
        for (std::int64_t j = 0; j < N && !masked; ++j) {
          P_float[i * N + j] /= l;
          P(0, 0, i, j) /= l_exact;
        }
        lse_float[i] = m + std::log(l);
        lse(0, 0, i, 0) = m_exact + std::log(l_exact);
        for (std::int64_t c = 0; c < d; ++c)
          for (std::int64_t j = 0; j < N; ++j) {
            O_float[i * d + c] += P_float[i * N + j] * problem.V(0, 0, j, c);
            O(0, 0, i, c) += double(P_float[i * N + j]) * problem.V(0, 0, j, c);
            O_sizes(0, 0, i, c) += std::abs(double(P_float[i * N + j]) * problem.V(0, 0, j, c));
          }
      }
      worst[1].include(compare(P_float, P, softmax_bounds(scores, P)));
      worst[2].include(compare(lse_float, lse, row_lse_bounds(scores)));
      worst[3].include(compare(O_float, O, product_bounds(O_sizes, N)));
    }
  const std::array<std::string, 4> names{"S = scale QK^T", "P = softmax(S)", "LSE of a row", "O = PV"};
  for (int part = 0; part < 4; ++part) {
    table += fmt::format("{:<38} {:>8.3g} {:>8.3g}\n", names[part], worst[part].element, worst[part].rms);
    CHECK(worst[part].worst() < 1);
    CHECK(worst[part].worst() > 0.02);
  }
  INFO(table);
  CHECK(!table.empty());
}

TEST_CASE("the maximum and the root mean square each find errors that the other does not") {
  const Case c(make_input("normal", {.shape = {1, 1, 1, 1000, 64, 32}}));
  const auto with_errors = [&](auto share_of_bound) {
    std::vector<float> O;
    for (std::size_t i = 0; i < c.oracle.O.values.size(); ++i)
      O.push_back(float(c.oracle.O.values[i] + share_of_bound(i) * c.O_bounds.element.values[i]));
    return compare(O, c.oracle.O, c.O_bounds);
  };
  const Ratio one_element = with_errors([](std::size_t i) { return i == 1234 ? 3.0 : 0.0; });
  CHECK(one_element.element > 1);
  CHECK(one_element.rms < 1);
  const Ratio everywhere = with_errors([](std::size_t) { return 0.6; });
  CHECK(everywhere.element < 1);
  CHECK(everywhere.rms > 1);
}

TEST_CASE("the bounds give their origin") {
  const Case c(make_input("normal", {.shape = {1, 1, 1, 3, 200, 64}}));
  CHECK(c.O_bounds.origin == "float32 rounding of S, P and O, N=200, d=64");
  CHECK(c.lse_bounds_.origin == "float32 rounding of S, l and the LSE, N=200, d=64");
}
