// Chapter 5, the lab: one warp per 32 queries, one lane per query, without shared memory. All lanes read the same key
// at a time, and a lane uses the key only if its query attends to it. The kernel is slow, but short.
//
// Trace it: ./workbook trace 5 --operation lab --causal --seq 130 --heads 2
// Test it: ./workbook test 5.6
#include "lab.hpp"

#include "common/cuda/dispatch.hpp"

namespace ch05 {
namespace {

constexpr int d = 64, lanes = 32;

/// A chunk of 16 bytes: eight halves, as floats.
struct Chunk {
  float x[8];
};
__device__ Chunk load_chunk(const half* __restrict__ source) {
  const uint4 bits = *reinterpret_cast<const uint4*>(source);
  Chunk chunk;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const float2 pair = __half22float2(reinterpret_cast<const half2*>(&bits)[e]);
    chunk.x[2 * e] = pair.x, chunk.x[2 * e + 1] = pair.y;
  }
  return chunk;
}

/// One block per 32 queries of a head; query i attends to the keys j <= i + diagonal. scale includes log2(e).
__global__ void __launch_bounds__(lanes)
    lab_kernel(const half* __restrict__ Q, const half* __restrict__ K,  // (heads, Nq, d), (heads, Nk, d)
               const half* __restrict__ V, half* __restrict__ O,        // (heads, Nk, d), (heads, Nq, d)
               float* __restrict__ lse,                                 // (heads, Nq)
               std::int64_t Nq, std::int64_t Nk, float scale) {
  const std::int64_t tiles = (Nq + lanes - 1) / lanes, head = blockIdx.x / tiles;
  const std::int64_t first_query = blockIdx.x % tiles * lanes, query = first_query + threadIdx.x;
  const std::int64_t diagonal = Nk - Nq;
  const bool exists = query < Nq;
  Q += (head * Nq + query) * d, O += (head * Nq + query) * d, K += head * Nk * d, V += head * Nk * d;

  float q[d], o[d], m = -INFINITY, l = 0;
#pragma unroll
  for (int c = 0; c < d; c += 8) {
    const Chunk chunk = exists ? load_chunk(&Q[c]) : Chunk{};
#pragma unroll
    for (int e = 0; e < 8; ++e) q[c + e] = chunk.x[e] * scale, o[c + e] = 0;
  }
  // TODO(5.6) On a GPU the output is usually correct, but some blocks read past the end of K and V. Find out which
  // blocks, fix the number of keys, and remove the line with WORKBOOK_FIX (about 1 line).
  // BEGIN 5.6
  WORKBOOK_FIX(5.6);
  const std::int64_t keys = first_query + lanes + diagonal;  // visible to one of the queries; none if negative
  // END 5.6
  for (std::int64_t key = 0; key < keys; ++key) {
    float s = 0;
#pragma unroll
    for (int c = 0; c < d; c += 8) {
      const Chunk k = load_chunk(&K[key * d + c]);
#pragma unroll
      for (int e = 0; e < 8; ++e) s += q[c + e] * k.x[e];
    }
    if (key > query + diagonal) continue;                                      // masked: the score is not used
    const float m_new = fmaxf(m, s), m_safe = m_new == -INFINITY ? 0 : m_new;  // the score may have overflowed
    const float factor = workbook::cuda::exp2_ftz(m - m_safe), p = workbook::cuda::exp2_ftz(s - m_safe);
    m = m_new;
    l = l * factor + p;
#pragma unroll
    for (int c = 0; c < d; c += 8) {
      const Chunk v = load_chunk(&V[key * d + c]);
#pragma unroll
      for (int e = 0; e < 8; ++e) o[c + e] = o[c + e] * factor + p * v.x[e];
    }
  }
  if (!exists) return;
  const float inverse = l == 0 ? 0 : 1 / l;
#pragma unroll
  for (int c = 0; c < d; c += 2)
    *reinterpret_cast<half2*>(&O[c]) = __floats2half2_rn(o[c] * inverse, o[c + 1] * inverse);
  lse[head * Nq + query] = (m + log2f(l)) * 0.6931471805599453f;
}

}  // namespace

void lab(const workbook::cuda::ForwardCall<half>& call) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const dim3 grid = workbook::cuda::grid_of((Nq + lanes - 1) / lanes * B * H, "B·H·⌈Nq/32⌉");
  workbook::cuda::launch(lab_kernel, grid, dim3(lanes), 0, call.Q, call.K, call.V, call.O, call.lse, Nq, Nk,
                         call.scale * 1.4426950408889634f);
}

}  // namespace ch05
