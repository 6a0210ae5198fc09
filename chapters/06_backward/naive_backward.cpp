// Chapter 6, the naive backward: the formulas for one head, and the given function that applies them to every head.
//
// Source: Dao 2023, section 3.1.2; Dao et al. 2022, appendix B.2.
// Test it: ./workbook test 6
#include "naive_backward.hpp"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

#include "common/cuda/operations.hpp"
#include "common/cuda/todo.hpp"

namespace ch06 {

void head_gradients(const Head& head) {
  const auto& [Q, K, V, O, dO, lse, P, dS, dQ, dK, dV, scale, causal] = head;
  // TODO(6.1) For each row of P: D, then P, dP and dS of each key. Then the three matmuls: dV and dK sum over the
  // queries, dQ sums over the keys (about 33 lines).
  // BEGIN 6.1
  WORKBOOK_TODO(6.1);
  // END 6.1
}

namespace {

/// Throws Refused if P and dS do not fit in the free memory.
void check_memory(const workbook::Shape& shape) {
  // In double, because the number of elements may exceed 64 bits.
  const double scores = double(shape.B) * double(shape.H) * double(shape.Nq) * double(shape.Nk);
  const double needed = 2 * scores * sizeof(float);
  const double available = double(workbook::cuda::available_memory());
  if (needed <= available) return;

  const double GiB = 1 << 30;
  char message[256];
  std::snprintf(message, sizeof message,
                "P and dS would take %.1f GiB, and %.1f GiB are free. The naive backward stores O(Nq·Nk) per head; "
                "the kernels of chapter 6 compute the same with memory that grows like N",
                needed / GiB, available / GiB);
  throw workbook::cuda::Refused(message);
}

}  // namespace

void naive_backward(const workbook::GradientCall& call) {
  check_memory(call.shape);
  const std::int64_t heads = call.shape.B * call.shape.H, Nq = call.shape.Nq, Nk = call.shape.Nk, d = call.shape.d;
  constexpr float unset = std::numeric_limits<float>::quiet_NaN();  // makes elements that are never set visible
  std::vector<float> P_values(std::size_t(heads * Nq * Nk), unset), dS_values(P_values.size(), unset);
  const std::span<float> P_all(P_values), dS_all(dS_values);
  for (std::int64_t n = 0; n < heads; ++n) {
    const auto query_rows = [&](const char* name, auto all) { return workbook::head(name, all, 0, n, heads, Nq, d); };
    const auto key_rows = [&](const char* name, auto all) { return workbook::head(name, all, 0, n, heads, Nk, d); };
    head_gradients({.Q = query_rows("Q", call.Q),
                    .K = key_rows("K", call.K),
                    .V = key_rows("V", call.V),
                    .O = query_rows("O", call.O),
                    .dO = query_rows("dO", call.dO),
                    .lse = call.lse.subspan(n * Nq, Nq),
                    .P = workbook::head("P", P_all, 0, n, heads, Nq, Nk),
                    .dS = workbook::head("dS", dS_all, 0, n, heads, Nq, Nk),
                    .dQ = query_rows("dQ", call.dQ),
                    .dK = key_rows("dK", call.dK),
                    .dV = key_rows("dV", call.dV),
                    .scale = call.scale,
                    .causal = call.causal()});
  }
}

}  // namespace ch06
