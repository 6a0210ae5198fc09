// The bounds on gradients: wide enough for every correct backward pass, narrow enough to expose rounding too early.
// notes/numerics.md quotes the tables that these tests print with -s.

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <functional>

#include "common/attention/inputs.hpp"
#include "common/attention/positions.hpp"
#include "common/attention/tolerance.hpp"
#include "tests/common/error_ratio.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

constexpr float log2_e = 1.44269504088896340736f;

struct Result {
  std::vector<float> dQ, dK, dV, D, dsink;
};
struct Comparison {
  Ratio dQ, dK, dV, D, dsink;
  void include(const Comparison& other) {
    dQ.include(other.dQ);
    dK.include(other.dK);
    dV.include(other.dV);
    D.include(other.D);
    dsink.include(other.dsink);
  }
  double worst() const { return std::max({dQ.worst(), dK.worst(), dV.worst(), D.worst()}); }
  double worst_gradient() const { return std::max({dQ.worst(), dK.worst(), dV.worst()}); }
};

/// A backward problem with the oracle's results. All inputs are rounded as a stage stores them.
struct Case {
  Problem problem;
  Tensor<double> dO;
  Saved saved;
  Gradients oracle;
  GradientBounds bounds;
  Tensor<double> D;

  Case(Problem problem_, const Precision& precision, const Rounding& stored, std::uint64_t seed = 7)
      : problem(std::move(problem_)) {
    const Shape& shape = problem.shape;
    for (Tensor<float>* tensor : {&problem.Q, &problem.K, &problem.V})
      for (float& value : tensor->values) value = stored(value);
    Forward forward = forward_oracle(problem);
    saved = {std::move(forward.O), std::move(forward.lse)};
    for (double& value : saved.O.values) value = stored(float(value));
    for (double& value : saved.lse.values) value = float(value);
    dO = Tensor<double>({shape.B, shape.H, shape.Nq, shape.d});
    const std::vector<float> normal = normal_values(dO.values.size(), seed);
    for (std::size_t i = 0; i < normal.size(); ++i) dO.values[i] = stored(normal[i]);
    oracle = backward_oracle(problem, dO, saved);
    bounds = gradient_bounds(oracle, problem, dO, saved, precision);
    D = Tensor<double>(saved.lse.sizes);
    for (std::size_t i = 0; i < dO.values.size(); ++i) D.values[i / shape.d] += dO.values[i] * saved.O.values[i];
  }
  Comparison compare_with(const Result& result) const {
    return {compare(result.dQ, oracle.dQ, bounds.dQ), compare(result.dK, oracle.dK, bounds.dK),
            compare(result.dV, oracle.dV, bounds.dV), compare(result.D, D, bounds.D),
            result.dsink.empty() ? Ratio() : compare(result.dsink, oracle.dsink, bounds.dsink)};
  }
};

using Dot = float (*)(const std::vector<float>&, const std::vector<float>&);

float float_dot(const std::vector<float>& a, const std::vector<float>& b) {
  float sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
/// The sum in the order of sixteen lanes.
float strided_dot(const std::vector<float>& a, const std::vector<float>& b) {
  std::array<float, 16> sums{};
  for (std::size_t i = 0; i < a.size(); ++i) sums[i % 16] += a[i] * b[i];
  for (int step = 8; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) sums[i] += sums[i + step];
  return sums[0];
}

/// How a backward pass computes, and where it rounds. A correct one in float does not round; one for tensor cores
/// rounds P and dS before the matmuls, and the gradients.
struct Stage {
  bool base2 = false;
  Dot product = float_dot;
  Rounding P = keep, dS = keep, gradient = keep;
  // Mistakes.
  Rounding D = keep, dP = keep, S = keep, P_of_dS = keep;
  bool scale_twice = false;
};
Stage float32_stage() {
  return {};
}
Stage float16_stage() {
  return {.base2 = true, .product = tensor_core_dot, .P = to_fp16, .dS = to_fp16, .gradient = to_fp16};
}

/// The modified score of row i, numbered over all heads, with key j, and its derivative.
struct Changed {
  float score, derivative;
};
Changed changed(const Problem& p, std::int64_t i, std::int64_t j, float score) {
  const float cap = p.mask.softcap, distance = float(p.mask.added(p.shape, i, j));
  if (cap <= 0) return {score + distance, 1};
  const float tanh = 1 - 2 / (1 + std::exp(2 * (score / cap)));
  return {cap * tanh + distance, 1 - tanh * tanh};
}

Result backward(const Case& at, const Stage& stage) {
  Problem p = at.problem;
  const auto [B, H, Hkv, Nq, Nk, d] = p.shape;
  if (p.mask.rope) {  // rotated in float, then rounded as gradients are
    rotate_rows(p.Q.values, p, Nq), rotate_rows(p.K.values, p, Nk);
    for (auto* values : {&p.Q.values, &p.K.values})
      for (float& value : *values) value = stage.gradient(value);
  }
  const auto stored = [&](float gradient) { return p.mask.rope ? gradient : stage.gradient(gradient); };
  Result result{std::vector<float>(B * H * Nq * d), std::vector<float>(B * H * Nk * d),
                std::vector<float>(B * H * Nk * d), std::vector<float>(B * H * Nq),
                std::vector<float>(p.mask.sink.size())};
  const auto row = [d = d](const auto& values, std::int64_t i) {
    return std::vector<float>(values.begin() + i * d, values.begin() + (i + 1) * d);
  };
  for (std::int64_t head = 0; head < B * H; ++head) {
    std::vector<std::vector<float>> P(Nk, std::vector<float>(Nq)), dS = P;  // by keys
    for (std::int64_t query = 0; query < Nq; ++query) {
      const std::int64_t i = head * Nq + query;
      const std::vector<float> Q_i = row(p.Q.values, i), dO_i = row(at.dO.values, i);
      result.D[i] = stage.product == tensor_core_dot ? float_dot(dO_i, row(at.saved.O.values, i))
                                                     : stage.product(dO_i, row(at.saved.O.values, i));
      const float D = stage.D(result.D[i]);
      const auto lse = float(at.saved.lse.values[i]);
      if (!p.mask.sink.empty()) result.dsink[head % H] -= std::exp(p.mask.sink[head % H] - lse) * D;
      p.mask.for_keys(p.shape, i, [&](std::int64_t j) {
        const std::vector<float> K_j = row(p.K.values, head * Nk + j), V_j = row(p.V.values, head * Nk + j);
        const float dot = stage.S(stage.product(Q_i, K_j));
        const bool as_it_is = !p.mask.alibi && p.mask.softcap <= 0;
        const auto [score, derivative] = as_it_is ? Changed{dot * p.scale, 1} : changed(p, i, j, dot * p.scale);
        const float in_base2 = as_it_is ? dot * (p.scale * log2_e) : score * log2_e;
        const float exact = stage.base2 ? std::exp2(in_base2 - lse * log2_e) : std::exp(score - lse);
        const float keep = float(kept(p, i, j));
        P[j][query] = stage.P(exact) * keep;
        dS[j][query] = stage.dS(stage.P_of_dS(exact) * (keep * stage.dP(stage.product(dO_i, V_j)) - D) * derivative);
      });
    }
    const auto column = [&, d = d](const auto& values, std::int64_t first, std::int64_t c, std::int64_t n) {
      std::vector<float> result_column(n);
      for (std::int64_t k = 0; k < n; ++k) result_column[k] = float(values[(first + k) * d + c]);
      return result_column;
    };
    for (std::int64_t c = 0; c < d; ++c) {
      const std::vector<float> Q_c = column(p.Q.values, head * Nq, c, Nq),
                               dO_c = column(at.dO.values, head * Nq, c, Nq),
                               K_c = column(p.K.values, head * Nk, c, Nk);
      for (std::int64_t j = 0; j < Nk; ++j) {
        result.dK[(head * Nk + j) * d + c] = stored(p.scale * stage.product(dS[j], Q_c));
        result.dV[(head * Nk + j) * d + c] = stage.gradient(stage.product(P[j], dO_c));
      }
      for (std::int64_t query = 0; query < Nq; ++query) {
        std::vector<float> dS_i(Nk);
        for (std::int64_t j = 0; j < Nk; ++j) dS_i[j] = dS[j][query];
        result.dQ[(head * Nq + query) * d + c] = stored(p.scale * stage.product(dS_i, K_c));
      }
    }
  }
  if (p.mask.rope) {
    rotate_rows(result.dQ, p, Nq, /*back=*/true), rotate_rows(result.dK, p, Nk, /*back=*/true);
    for (auto* values : {&result.dQ, &result.dK})
      for (float& value : *values) value = stage.gradient(value);
  }
  return result;
}

/// V and K with nonzero means: then D, dP and the sum over keys that an error of D affects are large.
Problem with_means(const Shape& shape, float K_mean, float V_mean, std::uint64_t seed = 1) {
  Problem problem = make_input("normal", {.shape = shape, .seed = seed});
  for (float& value : problem.K.values) value += K_mean;
  for (float& value : problem.V.values) value += V_mean;
  return problem;
}

/// With the mask: causal or none.
std::vector<std::pair<Shape, bool>> shapes() {
  return {
      {{1, 1, 1, 64, 64, 32}, false},  {{1, 2, 2, 40, 40, 64}, true},  {{1, 1, 1, 20, 300, 64}, false},
      {{1, 1, 1, 20, 300, 128}, true}, {{1, 1, 1, 37, 133, 32}, true}, {{2, 1, 1, 93, 37, 64}, true},
      {{1, 1, 1, 1, 1, 64}, false},    {{1, 1, 1, 1, 239, 32}, false}, {{1, 1, 1, 150, 3, 64}, false},
      {{1, 1, 1, 30, 70, 1}, false},   {{1, 1, 1, 400, 10, 32}, true},
  };
}

// At most 80 columns: Catch2 wraps longer lines.
std::string table_row(const std::string& name, const Comparison& worst) {
  return fmt::format("{:<32} {:>7.2g} {:>7.2g} {:>7.2g} {:>7.2g} {:>7.2g}\n", name, worst.dQ.worst(), worst.dK.worst(),
                     worst.dV.worst(), std::max({worst.dQ.rms, worst.dK.rms, worst.dV.rms}), worst.D.worst());
}
std::string table_head() {
  return fmt::format("\n{:<32} {:>7} {:>7} {:>7} {:>7} {:>7}\n", "largest error / bound", "dQ", "dK", "dV", "rms", "D");
}

/// On every kind of input, correct stages stay within the bounds, and the bounds are not needlessly wide.
void check_all_kinds(const Precision& precision, const Rounding& stored, const std::vector<Stage>& stages) {
  std::string table = table_head();
  Comparison worst_of_all;
  for (const InputKind& kind : input_kinds()) {
    Comparison worst;
    for (const auto& [shape, causal] : shapes()) {
      const Case at(make_input(kind.name, {shape, causal}), precision, stored);
      for (const Stage& stage : stages) worst.include(at.compare_with(backward(at, stage)));
    }
    table += table_row(kind.name, worst);
    worst_of_all.include(worst);
  }
  table += table_row("all", worst_of_all);
  INFO(table);
  CHECK((0.05 < worst_of_all.worst() && worst_of_all.worst() < 1));
}

}  // namespace

TEST_CASE("the bounds of the gradients hold for correct float32 code") {
  Stage other = float32_stage();
  other.base2 = true;
  other.product = strided_dot;
  check_all_kinds(float32_precision(), keep, {float32_stage(), other});
}

TEST_CASE("the bounds of the gradients hold with every score modification") {
  Mask hard = Mask::causal, soft = Mask::within(30, 5), distance = Mask::none;
  hard.softcap = 1.5F, hard.sink = {0.5F, 3};
  soft.softcap = 20, soft.alibi = true, soft.sink = {-2, 1};
  distance.alibi = true;
  Mask rotated = Mask::causal, dropped = Mask::none;
  rotated.rope = true;
  dropped = rotated, dropped.dropped = 60;
  Stage other = float32_stage();
  other.base2 = true, other.product = strided_dot;
  Comparison in_float, in_half;
  for (const InputKind& kind : input_kinds())
    for (const Mask& mask : {hard, soft, distance, rotated, dropped})
      for (const Shape& shape : {Shape{1, 2, 2, 40, 70, 64}, Shape{2, 2, 2, 70, 40, 32}}) {
        const Problem problem = make_input(kind.name, {shape, mask});
        const Case exact(problem, float32_precision(), keep), half(problem, float16_precision(), to_fp16);
        for (const Stage& stage : {float32_stage(), other})
          in_float.include(exact.compare_with(backward(exact, stage)));
        in_half.include(half.compare_with(backward(half, float16_stage())));
      }
  for (const auto& [name, worst] : {std::pair{"float32", in_float}, {"float16", in_half}}) {
    INFO(table_head() << table_row(name, worst) << "dsink: " << worst.dsink.worst());
    CHECK((0.05 < worst.worst() && worst.worst() < 1));
    CHECK((0.01 < worst.dsink.worst() && worst.dsink.worst() < 1));
  }
}

TEST_CASE("the bounds of the gradients allow a P that is flushed to 0 beside a large dP") {
  Problem problem = make_input("normal", {.shape = {1, 1, 1, 1, 2, 64}});
  for (float& value : problem.V.values) value *= 1000;
  std::ranges::fill(problem.K.values, 0.f);
  problem.Q.values[0] = 8, problem.K.values[64] = -11 / problem.scale;  // the second score is -88
  const Case at(problem, bfloat16_precision(), to_bf16);
  Stage flushed{.P_of_dS = [](float P) { return P < 0x1p-126F ? 0 : P; }};
  flushed.dS = flushed.gradient = flushed.P = to_bf16;
  const Comparison result = at.compare_with(backward(at, flushed));
  CHECK((0.05 < result.dK.worst() && result.worst_gradient() < 1));
}

TEST_CASE("a float32 backward that rounds too early is outside the bounds of the gradients") {
  struct Mutant {
    std::string name;
    Stage stage;
  };
  const std::vector<Mutant> mutants{{"S rounded to fp16", {.S = to_fp16}},
                                    {"P rounded to fp16", {.P = to_fp16}},
                                    {"dP rounded to fp16", {.dP = to_fp16}},
                                    {"D rounded to fp16", {.D = to_fp16}},
                                    {"dS rounded to fp16", {.dS = to_fp16}},
                                    {"P of dS rounded to fp16", {.P_of_dS = to_fp16}},
                                    {"gradients rounded to fp16", {.gradient = to_fp16}}};
  std::string table = table_head();
  for (const std::int64_t N : {64, 200}) {
    const Case at(make_input("normal", {.shape = {1, 1, 1, N, N, 64}}), float32_precision(), keep);
    for (const Mutant& mutant : mutants) {
      const Comparison result = at.compare_with(backward(at, mutant.stage));
      table += table_row(fmt::format("{}, N={}", mutant.name, N), result);
      if (result.worst_gradient() <= 1) FAIL_CHECK(mutant.name << " survives at N=" << N << table);
    }
  }
  INFO(table);
  CHECK(!table.empty());  // with -s, Catch2 prints the table
}

TEST_CASE("the bounds of the gradients hold for tensor cores that truncate") {
  check_all_kinds(float16_precision(), to_fp16, {float16_stage()});
}

TEST_CASE("an fp16 backward that rounds too early is outside the bounds, where its inputs let it show") {
  const auto with = [](const std::function<void(Stage&)>& change) {
    Stage stage = float16_stage();
    change(stage);
    return stage;
  };
  struct Mutant {
    std::string name;
    Stage stage;
    bool dies;  ///< on the inputs with means: the others are no larger than what is allowed
  };
  const std::vector<Mutant> mutants{
      {"D rounded to fp16", with([](Stage& s) { s.D = to_fp16; }), true},
      {"dP rounded to fp16", with([](Stage& s) { s.dP = to_fp16; }), true},
      {"P and dS rounded to bf16", with([](Stage& s) { s.P = s.dS = to_bf16; }), true},
      {"S rounded to fp16", with([](Stage& s) { s.S = to_fp16; }), false},
      {"P of dS rounded to fp16", with([](Stage& s) { s.P_of_dS = to_fp16; }), false},
  };
  std::string table = table_head();
  for (const std::int64_t N : {64, 200}) {
    const Shape shape{1, 1, 1, N, N, 64};
    for (const auto& [inputs, problem] : {std::pair{"normal", make_input("normal", {.shape = shape})},
                                          {"K + 1, V + 3", with_means(shape, 1, 3)},
                                          {"K + 2, V + 10", with_means(shape, 2, 10)}}) {
      const Case at(problem, float16_precision(), to_fp16);
      const Comparison correct = at.compare_with(backward(at, float16_stage()));
      table += table_row(fmt::format("{}, N={}: correct", inputs, N), correct);
      CHECK(correct.worst() < 1);
      for (const Mutant& mutant : mutants) {
        const Comparison result = at.compare_with(backward(at, mutant.stage));
        table += table_row("  " + mutant.name, result);
        if (mutant.dies && inputs != std::string("normal") && result.worst_gradient() <= 1)
          FAIL_CHECK(mutant.name << " survives at N=" << N << table);
      }
    }
  }
  INFO(table);
  CHECK(!table.empty());
}

TEST_CASE("a gradient without an unmasked pair has bound 0, so only 0 is accepted") {
  const Case rows(make_input("normal", {.shape = {1, 1, 1, 8, 5, 32}, .mask = true}), float16_precision(), to_fp16);
  for (std::int64_t i = 0; i < 8 * 32; ++i) CHECK((rows.bounds.dQ.element.values[i] == 0) == (i / 32 < 3));
  for (const double bound : rows.bounds.dK.element.values) CHECK(bound > 0);
  Result result = backward(rows, float16_stage());
  CHECK(rows.compare_with(result).worst() < 1);
  result.dQ[32 + 5] = 1e-30f;
  CHECK(rows.compare_with(result).dQ.element == infinity);
}

TEST_CASE("the gradients from a stored O and LSE are the gradients, up to their rounding") {
  for (const bool causal : {false, true}) {
    const Problem problem = make_input("normal", {.shape = {1, 2, 2, 21, 17, 32}, .mask = causal});
    const Case at(problem, float32_precision(), keep);
    const Gradients exact = backward_oracle(at.problem, at.dO);
    const auto distance = [](const Tensor<double>& a, const Tensor<double>& b) {
      double largest = 0;
      for (std::size_t i = 0; i < a.values.size(); ++i)
        largest = std::max(largest, std::abs(a.values[i] - b.values[i]));
      return largest;
    };
    CHECK(distance(at.oracle.dQ, exact.dQ) < 1e-5);
    CHECK(distance(at.oracle.dK, exact.dK) < 1e-5);
    CHECK(distance(at.oracle.dV, exact.dV) < 1e-5);
    CHECK(distance(at.oracle.dQ, exact.dQ) > 0);  // O and the LSE were rounded to float
  }
  Problem problem = make_input("normal", {.shape = {1, 1, 1, 4, 6, 32}});
  const Tensor<double> dO({1, 1, 4, 32});
  CHECK_THROWS_AS(backward_oracle(problem, dO, Saved{Tensor<double>({1, 1, 4, 32}), Tensor<double>({1, 1, 6, 1})}),
                  InputError);
  CHECK_THROWS_AS(backward_oracle(problem, dO, Saved{Tensor<double>({1, 1, 6, 32}), Tensor<double>({1, 1, 4, 1})}),
                  InputError);
}
