// Chapter 3, the plain fused kernel: one thread per row of Q; chapter 2's loop over the K/V tiles.
//
// Source: chapter 2, exercise 2.3.
// Test it: ./workbook test 3.5
#include "plain_fused.hpp"

#include "common/cuda/dispatch.hpp"

namespace ch03 {
namespace {

using workbook::cuda::exp2_ftz;

constexpr int d = 64, rows = 64, tile_keys = 32;  // columns; queries per block, one per thread; keys per tile
constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

/// All threads together load `keys` rows of K or V into shared memory and fill the rest of the tile with zeros.
__device__ void load_tile(float (&tile)[tile_keys][d], const half* __restrict__ source, int keys) {
  for (int i = threadIdx.x; i < tile_keys * d; i += rows)
    tile[i / d][i % d] = i / d < keys ? __half2float(source[i]) : 0.0f;
}

/// One thread block per `rows` queries of a head. scale includes the factor log2(e): all scores are in units of log2.
__global__ void __launch_bounds__(rows)
    plain_fused_kernel(const half* __restrict__ Q, const half* __restrict__ K,  // (heads, Nq, d), (heads, Nk, d)
                       const half* __restrict__ V, half* __restrict__ O,        // (heads, Nk, d), (heads, Nq, d)
                       float* __restrict__ lse,                                 // (heads, Nq)
                       std::int64_t q_tiles, std::int64_t Nq, std::int64_t Nk, float scale) {
  __shared__ float K_tile[tile_keys][d], V_tile[tile_keys][d];
  const std::int64_t head = blockIdx.x / q_tiles, query = blockIdx.x % q_tiles * rows + threadIdx.x;
  const bool exists = query < Nq;  // threads past the last query still load tiles
  Q += (head * Nq + query) * d, O += (head * Nq + query) * d;
  K += head * Nk * d, V += head * Nk * d;
  float q[d], o[d], m = -INFINITY, l = 0;  // this thread's row
#pragma unroll
  for (int c = 0; c < d; ++c) q[c] = exists ? __half2float(Q[c]) * scale : 0.0f, o[c] = 0;
  // TODO(3.5) For each K/V tile: load it and synchronise; compute the row's scores, the new m, m_safe and the rescaling
  // factor; update l and o; synchronise again (about 25 lines).
  // STUB: WORKBOOK_TODO(3.5);
  // STUB: (void)q;
  // BEGIN 3.5
  for (std::int64_t first_key = 0; first_key < Nk; first_key += tile_keys) {
    const int keys = min(std::int64_t(tile_keys), Nk - first_key);
    load_tile(K_tile, K + first_key * d, keys);
    load_tile(V_tile, V + first_key * d, keys);
    __syncthreads();  // both tiles are complete
    float S[tile_keys], m_new = m;
#pragma unroll
    for (int j = 0; j < tile_keys; ++j) {
      float sum = 0;
#pragma unroll
      for (int c = 0; c < d; ++c) sum += q[c] * K_tile[j][c];
      S[j] = j < keys ? sum : -INFINITY;
      m_new = fmaxf(m_new, S[j]);
    }
    const float m_safe = m_new == -INFINITY ? 0 : m_new, rescale = exp2_ftz(m - m_safe);
    l *= rescale;
#pragma unroll
    for (int c = 0; c < d; ++c) o[c] *= rescale;
#pragma unroll
    for (int j = 0; j < tile_keys; ++j) {
      const float P = exp2_ftz(S[j] - m_safe);
      l += P;
#pragma unroll
      for (int c = 0; c < d; ++c) o[c] += P * V_tile[j][c];
    }
    m = m_new;
    __syncthreads();  // all threads have read the tiles: they may be overwritten
  }
  // END 3.5
  if (!exists) return;
  const float inverse = l == 0 ? 0 : 1 / l;
#pragma unroll
  for (int c = 0; c < d; ++c) O[c] = __float2half_rn(o[c] * inverse);
  lse[head * Nq + query] = (m + log2f(l)) * ln_2;
}

}  // namespace

void plain_fused(const workbook::cuda::ForwardCall<half>& call) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const std::int64_t q_tiles = (Nq + rows - 1) / rows;
  workbook::cuda::launch(plain_fused_kernel, workbook::cuda::grid_of(B * H * q_tiles, "B·H·⌈Nq/64⌉"), dim3(rows), 0,
                         call.Q, call.K, call.V, call.O, call.lse, q_tiles, Nq, Nk, call.scale * log2_e);
}

}  // namespace ch03
