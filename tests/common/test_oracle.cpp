// The float64 oracle against other forms of the formulas and against properties of all attention, and its gradients
// against central differences.

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>

#include "common/attention/oracle.hpp"
#include "tests/common/error_ratio.hpp"

using namespace workbook;
using namespace workbook::test;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return a.size() == b.size() ? largest : infinity;
}

std::array<std::int64_t, 4> output_sizes(const Shape& shape) {
  return {shape.B, shape.H, shape.Nq, shape.d};
}

}  // namespace

TEST_CASE("two keys, worked by hand") {
  Problem problem = make_input("normal", {.shape = {1, 1, 1, 1, 2, 1}, .scale = 0.5f});
  problem.Q.values = {2};
  problem.K.values = {1, 3};
  problem.V.values = {10, -6};
  // Scores 1 and 3: P = (1, e²)/(1 + e²).
  const double P1 = std::exp(2.0) / (1 + std::exp(2.0)), P0 = 1 - P1;
  const Forward forward = forward_oracle(problem);
  CHECK_THAT(forward.O.values[0], WithinRel(10 * P0 - 6 * P1, 1e-14));
  CHECK_THAT(forward.lse.values[0], WithinRel(std::log(std::exp(1.0) + std::exp(3.0)), 1e-14));
  CHECK(forward.score_size.values[0] == 3);
  CHECK(forward.score_spread.values[0] == 3);  // max - min is 2, but |max| is 3
  CHECK_THAT(forward.O_size.values[0], WithinRel(10 * P0 + 6 * P1, 1e-14));
  CHECK_THAT(forward.O_quadratic.values[0], WithinRel(std::hypot(10 * P0, 6 * P1), 1e-14));
  CHECK_THAT(forward.O_spread.values[0], WithinRel(2 * 16 * P0 * P1, 1e-14));
  CHECK_THAT(forward.O_spread_quadratic.values[0], WithinRel(std::sqrt(2.0) * 16 * P0 * P1, 1e-14));
  CHECK_THAT(forward.P_quadratic.values[0], WithinRel(std::hypot(P0, P1), 1e-14));

  // dO = 1: dP = V, D = O, dS = P(V - O).
  const double O = forward.O.values[0], dS0 = P0 * (10 - O), dS1 = P1 * (-6 - O);
  const Gradients gradients = backward_oracle(problem, Tensor<double>({1, 1, 1, 1}, 1.0));
  CHECK_THAT(gradients.dQ.values[0], WithinRel(0.5 * (dS0 * 1 + dS1 * 3), 1e-13));
  CHECK_THAT(gradients.dK.values[0], WithinRel(0.5 * dS0 * 2, 1e-13));
  CHECK_THAT(gradients.dK.values[1], WithinRel(0.5 * dS1 * 2, 1e-13));
  CHECK_THAT(gradients.dV.values[0], WithinRel(P0, 1e-14));
  CHECK_THAT(gradients.dV.values[1], WithinRel(P1, 1e-14));
}

TEST_CASE("the oracle equals the formulas written out in long double") {
  for (const bool causal : {false, true}) {
    const Shape shape{2, 3, 3, 11, 17, 5};
    const Problem problem = make_input("normal", {shape, causal, 0.7f, 3});
    const Forward forward = forward_oracle(problem);
    double worst = 0;
    for (std::int64_t b = 0; b < shape.B; ++b)
      for (std::int64_t h = 0; h < shape.H; ++h)
        for (std::int64_t i = 0; i < shape.Nq; ++i) {
          long double l = 0;
          std::vector<long double> O(shape.d);
          for (std::int64_t j = 0; j < shape.Nk; ++j) {
            if (causal && j > i + (shape.Nk - shape.Nq)) continue;
            long double s = 0;
            for (std::int64_t c = 0; c < shape.d; ++c)
              s += (long double)(problem.Q(b, h, i, c)) * problem.K(b, h, j, c);
            const long double p = std::exp(s * problem.scale);  // scores are small: no maximum needed
            l += p;
            for (std::int64_t c = 0; c < shape.d; ++c) O[c] += p * problem.V(b, h, j, c);
          }
          worst = std::max(worst, std::abs(double(std::log(l)) - forward.lse(b, h, i, 0)));
          for (std::int64_t c = 0; c < shape.d; ++c)
            worst = std::max(worst, std::abs(double(O[c] / l) - forward.O(b, h, i, c)));
        }
    CHECK(worst < 1e-14);
  }
}

TEST_CASE("a fully masked row gives O = 0 and LSE = -inf, and no gradient") {
  const Shape shape{1, 2, 2, 6, 4, 3};  // queries 0 and 1 see no key
  const Problem problem = make_input("normal", {shape, true});
  const Forward forward = forward_oracle(problem);
  Tensor<double> dO = normal_tensor(output_sizes(shape), 5);
  const Gradients gradients = backward_oracle(problem, dO);
  for (std::int64_t h = 0; h < 2; ++h)
    for (std::int64_t i = 0; i < 6; ++i) {
      CHECK((forward.lse(0, h, i, 0) == -infinity) == (i < 2));
      for (std::int64_t c = 0; c < 3; ++c) {
        CHECK((forward.O(0, h, i, c) == 0) == (i < 2));
        CHECK((gradients.dQ(0, h, i, c) == 0) == (i < 3));  // query 2 sees one key: P = 1 whatever the score
        if (i < 2) dO(0, h, i, c) = 1e6;
      }
    }
  const Gradients others = backward_oracle(problem, dO);
  CHECK(others.dK.values == gradients.dK.values);
  CHECK(others.dV.values == gradients.dV.values);
}

TEST_CASE("a key that only the last query attends to has only that query's gradient") {
  const Problem problem = make_input("normal", {{1, 1, 1, 3, 1, 2}, true});
  Tensor<double> dO({1, 1, 3, 2});
  dO.values = {1, 2, 3, 4, 5, 6};
  const Gradients gradients = backward_oracle(problem, dO);
  CHECK(gradients.dV.values == std::vector<double>{5, 6});  // P = 1
  CHECK(gradients.dQ.values == std::vector<double>(6));     // one key: its weight is 1 whatever the score
  CHECK(gradients.dK.values == std::vector<double>(2));
}

TEST_CASE("causal attention of a row is attention over the keys that it attends to") {
  const Shape shape{1, 1, 1, 7, 12, 8};
  const Problem causal = make_input("normal", {shape, true});
  const Forward all = forward_oracle(causal);
  for (std::int64_t i = 0; i < shape.Nq; ++i) {
    const std::int64_t n = i + 6;
    Problem row = make_input("normal", {{1, 1, 1, 1, n, 8}});
    std::copy_n(&causal.Q.values[i * 8], 8, row.Q.values.begin());
    std::copy_n(causal.K.values.begin(), n * 8, row.K.values.begin());
    std::copy_n(causal.V.values.begin(), n * 8, row.V.values.begin());
    const Forward one = forward_oracle(row);
    CHECK(one.lse.values[0] == all.lse.values[i]);
    CHECK(std::equal(one.O.values.begin(), one.O.values.end(), &all.O.values[i * 8]));
  }
}

TEST_CASE("each row of P sums to 1: where V is 1, so is O") {
  for (const InputKind& kind : input_kinds()) {
    Problem problem = make_input(kind.name, {{1, 2, 2, 20, 50, 32}});
    std::fill(problem.V.values.begin(), problem.V.values.end(), 1.0f);
    const Forward forward = forward_oracle(problem);
    for (const double O : forward.O.values) REQUIRE_THAT(O, WithinAbs(1, 1e-13));
    for (const double spread : forward.O_spread.values) REQUIRE_THAT(spread, WithinAbs(0, 1e-13));
  }
}

TEST_CASE("the order of the keys does not matter") {
  const Shape shape{1, 1, 1, 9, 40, 16};
  const Problem problem = make_input("normal", {shape});
  Problem reversed = problem;
  for (std::int64_t j = 0; j < shape.Nk; ++j)
    for (std::int64_t c = 0; c < shape.d; ++c) {
      reversed.K(0, 0, j, c) = problem.K(0, 0, shape.Nk - 1 - j, c);
      reversed.V(0, 0, j, c) = problem.V(0, 0, shape.Nk - 1 - j, c);
    }
  const Forward a = forward_oracle(problem), b = forward_oracle(reversed);
  CHECK(largest_difference(a.O.values, b.O.values) < 1e-14);
  CHECK(largest_difference(a.lse.values, b.lse.values) < 1e-14);
  CHECK(largest_difference(a.O_quadratic.values, b.O_quadratic.values) < 1e-14);
}

TEST_CASE("the result does not depend on the number of threads") {
  const Shape shape{2, 2, 2, 37, 53, 19};
  const Problem problem = make_input("normal", {shape, true});
  const Tensor<double> dO = normal_tensor(output_sizes(shape), 9);
  const Forward one = forward_oracle(problem, 1);
  const Gradients one_back = backward_oracle(problem, dO, 1);
  for (const unsigned threads : {0u, 2u, 7u, 500u}) {
    const Forward many = forward_oracle(problem, threads);
    const Gradients many_back = backward_oracle(problem, dO, threads);
    CHECK(many.O.values == one.O.values);
    CHECK(many.lse.values == one.lse.values);
    CHECK(many.O_quadratic.values == one.O_quadratic.values);
    CHECK(many_back.dQ.values == one_back.dQ.values);
    CHECK(many_back.dK.values == one_back.dK.values);
    CHECK(many_back.dV.values == one_back.dV.values);
  }
}

TEST_CASE("adding one vector to all keys shifts the LSE and not O: the rows of dK sum to 0") {
  const Shape shape{1, 1, 1, 12, 30, 8};
  const Problem problem = make_input("normal", {shape});
  const Gradients gradients = backward_oracle(problem, normal_tensor(output_sizes(shape), 2));
  for (std::int64_t c = 0; c < shape.d; ++c) {
    double sum = 0;
    for (std::int64_t j = 0; j < shape.Nk; ++j) sum += gradients.dK(0, 0, j, c);
    CHECK_THAT(sum, WithinAbs(0, 1e-13));
  }
}

TEST_CASE("the gradients equal central differences") {
  // The loss is Σ dO∘O. Inputs are multiples of 2^-8 and the steps multiples of 2^-9, so that every perturbed input is
  // a float exactly; four points leave an error of the order of the step to the fourth power.
  struct Case {
    Shape shape;
    Mask mask;
    std::string kind;
  };
  Mask capped = Mask::causal, everything = Mask::within(3, 1), packed = Mask::causal;
  capped.softcap = 1.5;
  everything.softcap = 2, everything.alibi = true, everything.sink = {0.5f, -1.25f};
  packed.lengths = {4, 0, 5}, packed.sink = {1};
  Mask rotated = Mask::causal, dropped = Mask::none;
  rotated.rope = true, dropped = rotated, dropped.dropped = 80, dropped.seed = 3;
  for (const Case& test :
       {Case{{1, 2, 2, 5, 7, 4}, false, "normal"}, Case{{2, 1, 1, 7, 7, 3}, true, "normal"},
        Case{{1, 1, 1, 8, 5, 2}, true, "value mean"}, Case{{1, 1, 1, 3, 10, 1}, false, "normal"},
        Case{{1, 1, 1, 10, 33, 32}, true, "normal"}, Case{{1, 1, 1, 8, 9, 16}, capped, "normal"},
        Case{{2, 2, 2, 9, 7, 8}, everything, "normal"}, Case{{1, 1, 1, 9, 9, 8}, packed, "normal"},
        Case{{1, 2, 1, 8, 9, 16}, rotated, "normal"}, Case{{2, 2, 2, 9, 12, 8}, dropped, "normal"}}) {
    Problem problem = make_input(test.kind, {test.shape, test.mask});
    const auto coarsen = [](Tensor<float>& tensor) {
      for (float& value : tensor.values) value = std::round(value * 0x1p8f) * 0x1p-8f;
    };
    coarsen(problem.Q);
    coarsen(problem.K);
    coarsen(problem.V);
    const Tensor<double> dO = normal_tensor(output_sizes(test.shape), 11);
    const Gradients gradients = backward_oracle(problem, dO);

    const auto loss = [&](const Problem& at) {
      const Forward forward = forward_oracle(at, 1);
      double sum = 0;
      for (std::size_t i = 0; i < dO.values.size(); ++i) sum += dO.values[i] * forward.O.values[i];
      return sum;
    };
    const std::vector<const std::vector<double>*> all{&gradients.dQ.values, &gradients.dK.values, &gradients.dV.values,
                                                      &gradients.dsink.values};
    for (const int which : {0, 1, 2, 3})
      for (std::uint64_t seed = 1; seed <= (test.mask.sink.empty() && which == 3 ? 0 : 4); ++seed) {
        const auto values_of = [&](Problem& p) -> std::vector<float>& {
          return which == 0 ? p.Q.values : which == 1 ? p.K.values : which == 2 ? p.V.values : p.mask.sink;
        };
        const std::vector<double>& gradient = *all[std::size_t(which)];
        std::vector<float> direction = normal_values(gradient.size(), 100 + seed);
        for (float& value : direction) value = std::round(value * 4) / 4;
        const double step = 0x1p-9;
        const auto loss_at = [&](int steps) {
          Problem moved = problem;
          for (std::size_t i = 0; i < gradient.size(); ++i) values_of(moved)[i] += float(steps * step) * direction[i];
          return loss(moved);
        };
        const double difference = (8 * (loss_at(1) - loss_at(-1)) - (loss_at(2) - loss_at(-2))) / (12 * step);
        double expected = 0, size = 0;
        for (std::size_t i = 0; i < gradient.size(); ++i) {
          expected += gradient[i] * direction[i];
          size += std::abs(gradient[i] * direction[i]);
        }
        INFO("tensor " << which << ", direction " << seed << ", Nq=" << test.shape.Nq << ", d=" << test.shape.d);
        CHECK_THAT(difference, WithinAbs(expected, 1e-7 * size + 1e-12));
        CHECK_THAT(difference, WithinRel(expected, 1e-6));
      }
  }
}

TEST_CASE("large logits overflow nothing") {
  const Shape shape{1, 1, 1, 20, 40, 16};
  const Problem problem = make_input("large logits", {shape});
  const Forward forward = forward_oracle(problem);
  const Gradients gradients = backward_oracle(problem, normal_tensor(output_sizes(shape), 2));
  for (const auto* values : {&forward.O.values, &forward.lse.values, &gradients.dQ.values, &gradients.dK.values})
    for (const double value : *values) REQUIRE(std::isfinite(value));
}

TEST_CASE("a NaN in one row of Q stays in that row") {
  Problem problem = make_input("normal", {{1, 1, 1, 4, 6, 8}});
  problem.Q(0, 0, 1, 3) = std::numeric_limits<float>::quiet_NaN();
  const Forward forward = forward_oracle(problem);
  for (std::int64_t i = 0; i < 4; ++i) {
    CHECK(std::isnan(forward.O(0, 0, i, 0)) == (i == 1));
    CHECK(std::isnan(forward.lse(0, 0, i, 0)) == (i == 1));
  }
}

TEST_CASE("tensors that do not fit the shape are refused") {
  Problem problem = make_input("normal", {{1, 1, 1, 4, 6, 8}});
  problem.K = Tensor<float>({1, 1, 5, 8});
  CHECK_THROWS_AS(forward_oracle(problem), InputError);
  problem = make_input("normal", {{1, 1, 1, 4, 6, 8}});
  problem.V.values.pop_back();
  CHECK_THROWS_AS(forward_oracle(problem), InputError);
  problem = make_input("normal", {{1, 1, 1, 4, 6, 8}});
  CHECK_THROWS_AS(backward_oracle(problem, Tensor<double>({1, 1, 6, 8})), InputError);
}
