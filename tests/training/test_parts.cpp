// Every part's backward pass against central differences, and its forward pass against its definition.
#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "common/attention/oracle.hpp"
#include "common/training/attention_core.hpp"
#include "common/training/parts.hpp"
#include "common/training/product.hpp"
#include "tests/training/differences.hpp"

using namespace workbook;
using namespace workbook::training;

namespace {

using Doubles = std::vector<double>;
using Span = std::span<double>;
using Input = std::span<const double>;

Problem attention_problem(std::int64_t Nq, std::int64_t Nk, bool causal, std::int64_t Hkv = 3) {
  return make_input("normal", {{2, 3, Hkv, Nq, Nk, 5}, causal, 0, 7});
}

Doubles widened(const Tensor<float>& tensor) {
  return {tensor.values.begin(), tensor.values.end()};
}

struct Attended {
  Doubles O, lse;
};
Attended attend(const Problem& problem, const Doubles& Q, const Doubles& K, const Doubles& V) {
  Attended result{Doubles(Q.size()), Doubles(std::size_t(problem.shape.lse_size()))};
  PlainAttention<double>(Storage::fp32).forward({problem, Q, K, V, result.O, result.lse});
  return result;
}

}  // namespace

TEST_CASE("a matmul equals its definition for all sizes, transposed or not, accumulated or not") {
  for (const auto& [M, N, K] : {std::tuple{1, 1, 1}, {4, 8, 3}, {7, 19, 5}, {130, 65, 200}}) {
    const Doubles A = normal_doubles(std::size_t(M * K), 1), B = normal_doubles(std::size_t(K * N), 2),
                  before = normal_doubles(std::size_t(M * N), 3);
    Doubles A_transposed(A.size()), B_transposed(B.size());
    for (int i = 0; i < M; ++i)
      for (int k = 0; k < K; ++k) A_transposed[std::size_t(k * M + i)] = A[std::size_t(i * K + k)];
    for (int k = 0; k < K; ++k)
      for (int j = 0; j < N; ++j) B_transposed[std::size_t(j * K + k)] = B[std::size_t(k * N + j)];
    for (const bool transpose_A : {false, true})
      for (const bool transpose_B : {false, true})
        for (const Into into : {Into::overwrite, Into::add}) {
          Doubles C = before;
          double worst = 0;
          multiply(C.data(), transpose_A ? matrix(A_transposed.data(), K, M).transposed() : matrix(A.data(), M, K),
                   transpose_B ? matrix(B_transposed.data(), N, K).transposed() : matrix(B.data(), K, N), into);
          for (int i = 0; i < M; ++i)
            for (int j = 0; j < N; ++j) {
              double expected = 0;  // in the order that product.hpp promises
              for (int k = 0; k < K; ++k) expected += A[std::size_t(i * K + k)] * B[std::size_t(k * N + j)];
              if (into == Into::add) expected = before[std::size_t(i * N + j)] + expected;
              worst = std::max(worst, std::abs(C[std::size_t(i * N + j)] - expected));
            }
          INFO("(" << M << ", " << N << ", " << K << ")");
          CHECK(worst <= 1e-13 * K);
        }
  }
}

TEST_CASE("a matmul does not depend on the number of cores") {
  const std::vector<float> A = normal_values(300 * 200, 1), B = normal_values(200 * 100, 2);
  std::vector<float> one(300 * 100), all(one.size());
  multiply(one.data(), 100, matrix(A.data(), 300, 200), matrix(B.data(), 200, 100), Into::overwrite, false);
  multiply(all.data(), 100, matrix(A.data(), 300, 200), matrix(B.data(), 200, 100), Into::overwrite, true);
  CHECK(one == all);
}

TEST_CASE("embedding: forward, and backward against differences") {
  const std::int64_t context = 3, width = 4;
  const std::vector<std::uint8_t> bytes{7, 255, 7, 0, 7, 9};  // two sequences; one byte occurs three times
  Doubles embedding = normal_doubles(256 * 4, 1), positions = normal_doubles(12, 2);
  const Doubles dx = normal_doubles(24, 3);
  const auto forward = [&] {
    Doubles x(24);
    embed<double>(bytes, embedding, positions, x, context, width);
    return x;
  };
  CHECK(forward()[5 * 4 + 1] == embedding[9 * 4 + 1] + positions[2 * 4 + 1]);
  Doubles d_embedding(embedding.size()), d_positions(positions.size());
  embed_backward<double>(bytes, dx, d_embedding, d_positions, context, width);
  expect_gradient("embedding", embedding, d_embedding, [&] { return dot(forward(), dx); });
  expect_gradient("positions", positions, d_positions, [&] { return dot(forward(), dx); });
}

TEST_CASE("RMS normalisation: forward, and backward against differences") {
  const std::int64_t width = 6;
  Doubles x = normal_doubles(5 * 6, 1, 0.7), gain = normal_doubles(6, 2);
  const Doubles dy = normal_doubles(30, 3), before = normal_doubles(30, 4);
  Doubles inverse_r(5);
  const auto forward = [&] {
    Doubles y(30), kept(5);
    rms_norm<double>(x, gain, y, kept, width);
    inverse_r = kept;
    return y;
  };
  const Doubles y = forward();
  double squares = 0;
  for (int c = 0; c < 6; ++c) squares += x[6 + std::size_t(c)] * x[6 + std::size_t(c)];
  CHECK(std::abs(y[8] - gain[2] * x[8] / std::sqrt(squares / 6 + 1e-5)) < 1e-14);
  // dx is added to the residual connection's gradient.
  Doubles dx = before, d_gain(6);
  rms_norm_backward<double>(x, gain, inverse_r, dy, dx, d_gain, width);
  for (std::size_t i = 0; i < dx.size(); ++i) dx[i] -= before[i];
  expect_gradient("x", x, dx, [&] { return dot(forward(), dy); });
  expect_gradient("gain", gain, d_gain, [&] { return dot(forward(), dy); });
}

TEST_CASE("GELU: forward, and backward against differences") {
  Doubles x = normal_doubles(64, 1, 2);
  const Doubles dy = normal_doubles(64, 2);
  const auto forward = [&] {
    Doubles y(x.size());
    gelu<double>(x, y);
    return y;
  };
  CHECK(std::abs(forward()[0] - x[0] * 0.5 * std::erfc(-x[0] / std::sqrt(2.0))) < 1e-14);
  Doubles dx = dy;  // in place
  gelu_backward<double>(x, dx, dx);
  expect_gradient("x", x, dx, [&] { return dot(forward(), dy); });
}

TEST_CASE("cross-entropy: forward, and backward against differences") {
  Doubles logits = normal_doubles(3 * 256, 1, 2);
  const std::vector<std::uint8_t> targets{0, 255, 17};
  double sum = 0;
  for (int j = 0; j < 256; ++j) sum += std::exp(logits[256 + std::size_t(j)]);
  const std::vector<std::uint8_t> second{255};
  CHECK(std::abs(cross_entropy<double>(Input(logits).subspan(256, 256), second) - (std::log(sum) - logits[511])) <
        1e-12);
  Doubles d_logits(logits.size());
  cross_entropy_backward<double>(logits, targets, 8.0 / 3, d_logits);  // a scale of 8
  expect_gradient("logits", logits, d_logits, [&] { return 8 * cross_entropy<double>(logits, targets); });
  // Large logits neither overflow nor lose the loss.
  for (double& logit : logits) logit *= 1e4;
  CHECK(std::isfinite(cross_entropy<double>(logits, targets)));
}

TEST_CASE("attention agrees with the oracle, forward and backward, causal or not, heads sharing K and V or not") {
  for (const auto& [Nq, Nk, Hkv] : {std::tuple{6, 6, 3}, {4, 9, 3}, {9, 4, 3}, {5, 8, 1}})
    for (const bool causal : {false, true}) {
      const Problem problem = attention_problem(Nq, Nk, causal, Hkv);
      const Doubles Q = widened(problem.Q), K = widened(problem.K), V = widened(problem.V);
      const Attended got = attend(problem, Q, K, V);
      const Forward oracle = forward_oracle(problem);
      for (std::size_t i = 0; i < got.O.size(); ++i) CHECK(std::abs(got.O[i] - oracle.O.values[i]) < 1e-13);
      for (std::size_t i = 0; i < got.lse.size(); ++i) {
        const double expected = oracle.lse.values[i];  // -inf for a fully masked row
        CHECK((got.lse[i] == expected || std::abs(got.lse[i] - expected) < 1e-13));
      }
      Tensor<double> dO({2, 3, Nq, 5});
      dO.values = normal_doubles(dO.values.size(), 8);
      Doubles dQ(Q.size()), dK(K.size()), dV(V.size());
      PlainAttention<double>(Storage::fp32).backward({problem, Q, K, V, got.O, dO.values, got.lse, dQ, dK, dV});
      const Gradients expected = backward_oracle(problem, dO);
      for (std::size_t i = 0; i < dQ.size(); ++i) CHECK(std::abs(dQ[i] - expected.dQ.values[i]) < 1e-12);
      for (std::size_t i = 0; i < dK.size(); ++i) CHECK(std::abs(dK[i] - expected.dK.values[i]) < 1e-12);
      for (std::size_t i = 0; i < dV.size(); ++i) CHECK(std::abs(dV[i] - expected.dV.values[i]) < 1e-12);
    }
}

TEST_CASE("attention: backward pass against differences") {
  const Problem problem = attention_problem(5, 7, true);
  Doubles Q = widened(problem.Q), K = widened(problem.K), V = widened(problem.V);
  const Doubles dO = normal_doubles(Q.size(), 8);
  const Attended forward = attend(problem, Q, K, V);
  Doubles dQ(Q.size()), dK(K.size()), dV(V.size());
  PlainAttention<double>(Storage::fp32).backward({problem, Q, K, V, forward.O, dO, forward.lse, dQ, dK, dV});
  const auto loss = [&] { return dot(attend(problem, Q, K, V).O, dO); };
  expect_gradient("Q", Q, dQ, loss);
  expect_gradient("K", K, dK, loss);
  expect_gradient("V", V, dV, loss);
}
