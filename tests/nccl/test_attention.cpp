// Chapter 22's attention, which has no lesson yet: R ranks agree with the oracle of one, and send what the formula
// says.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "common/attention/half.hpp"
#include "common/attention/inputs.hpp"
#include "common/judge/compare.hpp"
#include "common/nccl/ranks.hpp"
#include "common/simt/simulator.hpp"
#include "tests/nccl/ring_attention.hpp"

using namespace workbook;

namespace {

Problem input(const std::string& kind, const Shape& shape, bool causal, std::uint64_t seed) {
  Problem problem = make_input(kind, {.shape = shape, .mask = causal ? Mask::causal : Mask::none, .seed = seed});
  for (Tensor<float>* tensor : problem.tensors())
    for (float& value : tensor->values) value = rounded_to_half(value);
  return problem;
}

void expect_right(const Problem& problem, int ranks) {
  INFO("ranks " << ranks << ", Nq " << problem.shape.Nq << ", Nk " << problem.shape.Nk << ", d " << problem.shape.d);
  const rings::Output output = rings::ring_attention(problem, 32, 32, 1, ranks);
  const Forward oracle = forward_oracle(problem);
  const Precision precision = float16_precision();
  const auto O = judge::compare_finite(output.O, oracle.O, output_bounds(oracle, problem, precision), {.tensor = "O"});
  const auto lse =
      judge::compare_finite(output.lse, oracle.lse, lse_bounds(oracle, problem, precision), {.tensor = "lse"});
  INFO(O.text);
  INFO(lse.text);
  CHECK((O.close && lse.close));
}

void expect_right_gradients(const Problem& problem, int ranks) {
  INFO("ranks " << ranks << ", N " << problem.shape.Nq << ", d " << problem.shape.d << ", H " << problem.shape.H
                << ", Hkv " << problem.shape.Hkv);
  const Forward forward = forward_oracle(problem);
  Tensor<float> O(problem.Q.sizes), dO(problem.Q.sizes), lse(forward.lse.sizes);
  const std::vector<float> noise = normal_values(dO.values.size(), 9);
  Saved saved{Tensor<double>(O.sizes), Tensor<double>(lse.sizes)};
  for (std::size_t i = 0; i < noise.size(); ++i) {
    dO.values[i] = rounded_to_half(noise[i]);
    saved.O.values[i] = O.values[i] = rounded_to_half(float(forward.O.values[i]));
  }
  for (std::size_t i = 0; i < lse.values.size(); ++i)
    saved.lse.values[i] = lse.values[i] = float(forward.lse.values[i]);
  const rings::Gradients got = rings::ring_backward(problem, O, lse, dO, ranks);
  Tensor<double> dO_exact(dO.sizes);
  dO_exact.values.assign(dO.values.begin(), dO.values.end());
  const workbook::Gradients oracle = backward_oracle(problem, dO_exact, saved);
  const GradientBounds bounds = gradient_bounds(oracle, problem, dO_exact, saved, float16_precision());
  const auto check = [](const Tensor<float>& tensor, const Tensor<double>& expected, const Bounds& bound,
                        const char* name) {
    const judge::Comparison comparison = judge::compare_finite(tensor, expected, bound, {.tensor = name});
    INFO(comparison.text);
    CHECK(comparison.close);
  };
  check(got.dQ, oracle.dQ, bounds.dQ, "dQ");
  check(got.dK, oracle.dK, bounds.dK, "dK");
  check(got.dV, oracle.dV, bounds.dV, "dV");
}

}  // namespace

TEST_CASE("the gradients of ranks in a ring agree with the oracle") {
  const bool causal = GENERATE(false, true);
  const int ranks = GENERATE(1, 2, 3, 4);
  expect_right_gradients(input("value mean", {1, 2, 2, 300, 300, 64}, causal, 6), ranks);
  expect_right_gradients(input("normal", {2, 4, 1, 77, 77, 64}, causal, 7), ranks);
  expect_right_gradients(input("normal", {1, 2, 1, 260, 260, 128}, causal, 8), ranks);
}
TEST_CASE("ranks in a ring agree with the oracle") {
  const bool causal = GENERATE(false, true);
  const int ranks = GENERATE(1, 2, 3, 4, 8);
  expect_right(input("rising maximum", {1, 2, 2, 128, 128, 64}, causal, 1), ranks);
  expect_right(input("value mean", {2, 4, 2, 100, 100, 64}, causal, 2), ranks);
  expect_right(input("large logits", {1, 2, 1, 77, 77, 128}, causal, 3), ranks);
}
TEST_CASE("ranks may have few rows, or none") {
  const bool causal = GENERATE(false, true);
  const int ranks = GENERATE(2, 5, 8);
  for (const auto& [Nq, Nk] : {std::pair{1, 1}, {3, 3}, {17, 17}, {1, 90}, {40, 90}, {90, 40}, {5, 1}})
    expect_right(input("value mean", {1, 2, 2, Nq, Nk, 64}, causal, 4), ranks);
}
TEST_CASE("the sums of dK and dV are sent R times, in fp32") {
  const int ranks = GENERATE(2, 3);
  const Problem problem = input("normal", {1, 2, 1, 384, 384, 64}, true, 10);
  const Tensor<float> zeros(problem.Q.sizes), lse({1, 2, 384, 1});
  rings::ring_backward(problem, zeros, lse, zeros, ranks);
  std::size_t sent = 0;
  for (const nccl::Transfer& transfer : nccl::transfers()) sent += transfer.bytes;
  CHECK(sent == std::size_t(384 * 64 * (4 * (ranks - 1) + 8 * ranks)));
}
TEST_CASE("each shard of K and V is sent R - 1 times") {
  const int ranks = GENERATE(2, 4);
  const Shape shape{2, 4, 2, 128, 128, 64};
  rings::ring_attention(input("normal", shape, true, 5), 32, 32, 1, ranks);
  std::size_t sent = 0;
  for (const nccl::Transfer& transfer : nccl::transfers()) sent += transfer.bytes;
  CHECK(sent == std::size_t(4 * (ranks - 1) * shape.B * shape.Hkv * shape.Nk * shape.d));
}
