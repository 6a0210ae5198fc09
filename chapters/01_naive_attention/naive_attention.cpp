// Chapter 1, naive attention: the three steps, and the given function that runs them for every head.
//
// Source: Vaswani et al. 2017, section 3.2.1, equation (1); Dao et al. 2022, section 2.2, Algorithm 0.
// Test it: ./workbook test 1
#include "naive_attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

#include "common/cuda/operations.hpp"
#include "common/cuda/todo.hpp"

namespace ch01 {

void scaled_scores(Matrix<const float> Q, Matrix<const float> K, Matrix<float> S, float scale, bool causal) {
  // TODO(1.1) Fill S: the dot product of query i and key j, times scale; -inf if query i does not attend to
  // key j (about 10 lines).
  // BEGIN 1.1
  WORKBOOK_TODO(1.1);
  // END 1.1
}

void softmax_rows(Matrix<const float> S, Matrix<float> P, std::span<float> lse) {
  // TODO(1.2) For each row of S: its maximum m, the sum l of exp(s - m), P = exp(s - m) / l, and the LSE from m and l.
  // A fully masked row gives P = 0 and an LSE of -inf (about 13 lines).
  // BEGIN 1.2
  WORKBOOK_TODO(1.2);
  // END 1.2
}

void weighted_values(Matrix<const float> P, Matrix<const float> V, Matrix<float> O) {
  // TODO(1.3) Fill O: row i is the sum of the rows of V, where row j has the weight P(i, j) (about 8 lines).
  // BEGIN 1.3
  WORKBOOK_TODO(1.3);
  // END 1.3
}

namespace {

/// Throws Refused if S and P do not fit in the free memory.
void check_memory(const workbook::Shape& shape) {
  // In double, because the size may exceed 64 bits. It is exact up to 2^53 bytes, far more than any machine has.
  const double scores = double(shape.B) * double(shape.H) * double(shape.Nq) * double(shape.Nk);
  const double needed = 2 * scores * sizeof(float);
  const double available = double(workbook::cuda::available_memory());
  if (needed <= available) return;

  const double GiB = 1 << 30;
  char message[256];
  std::snprintf(message, sizeof message,
                "S and P would take %.1f GiB, and %.1f GiB are free. Chapter 1 stores all scores, O(Nq·Nk) per head; "
                "chapter 2 computes the same in memory that does not grow with N",
                needed / GiB, available / GiB);
  throw workbook::cuda::Refused(message);
}

}  // namespace

void attention(const workbook::AttentionCall& call) {
  check_memory(call.shape);
  const std::int64_t heads = call.shape.B * call.shape.H, Nq = call.shape.Nq, Nk = call.shape.Nk, d = call.shape.d;
  std::vector<float> S_values(std::size_t(heads * Nq * Nk)), P_values(S_values.size());
  const std::span<float> S_all(S_values), P_all(P_values);

  const auto Q = [&](std::int64_t n) { return workbook::head("Q", call.Q, 0, n, heads, Nq, d); };
  const auto K = [&](std::int64_t n) { return workbook::head("K", call.K, 0, call.shape.kv_head(n), heads, Nk, d); };
  const auto V = [&](std::int64_t n) { return workbook::head("V", call.V, 0, call.shape.kv_head(n), heads, Nk, d); };
  const auto O = [&](std::int64_t n) { return workbook::head("O", call.O, 0, n, heads, Nq, d); };
  const auto S = [&](std::int64_t n) { return workbook::head("S", S_all, 0, n, heads, Nq, Nk); };
  const auto P = [&](std::int64_t n) { return workbook::head("P", P_all, 0, n, heads, Nq, Nk); };

  // Three loops over all heads, like three GPU kernels: each reads what the previous one has written.
  for (std::int64_t n = 0; n < heads; ++n) scaled_scores(Q(n), K(n), S(n), call.scale, call.causal());
  for (std::int64_t n = 0; n < heads; ++n) softmax_rows(S(n), P(n), call.lse.subspan(n * Nq, Nq));
  for (std::int64_t n = 0; n < heads; ++n) weighted_values(P(n), V(n), O(n));
}

}  // namespace ch01
