// Chapter 4, the lab: one warp with 32 queries, without tensor cores. A lane computes S for one key, the softmax of
// one row, and two columns of O, so every intermediate result goes through shared memory.
//
// Trace it: ./workbook trace 4 --operation lab --seq 128 --heads 1 --lines
// Test it: ./workbook test 4.10
#include "lab.hpp"

#include "common/cuda/dispatch.hpp"

namespace ch04 {
namespace {

constexpr int d = 64, lanes = 32, Br = lanes, Bc = lanes, pad = 8;  // 16 bytes of padding for 16-byte accesses

// TODO(4.10) The results are correct, but accesses to one array take sixteen times the wavefronts that they should.
// Find the array, change the length of its rows, and remove the line with WORKBOOK_FIX (about 2 lines).
// BEGIN 4.10
WORKBOOK_FIX(4.10);
struct LabShared {
  half Q[Br][d + pad], K[Bc][d + pad], V[Bc][d + pad];
  float S[Br][Bc + 1];  // a column of 32 floats is in 32 banks
  half P[Br][Bc];       // half as wide as S
  float factor[Br];
  SHARED_LAYOUT(LabShared, (Q, d, d + pad), (K, d, d + pad), (V, d, d + pad), (S, Bc, Bc + 1), P,
                factor);
};
// END 4.10

/// Loads 32 rows of 64 halves into shared memory; rows from `count` on become zeros.
__device__ void load(half (&tile)[lanes][d + pad], const half* __restrict__ source, std::int64_t count) {
  for (int i = threadIdx.x; i < lanes * d / 8; i += lanes) {
    const uint4 zeros = {0, 0, 0, 0};
    reinterpret_cast<uint4*>(tile[i / 8])[i % 8] = i / 8 < count ? reinterpret_cast<const uint4*>(source)[i] : zeros;
  }
}

/// Q·K of one query and one key in shared memory, read 16 bytes at a time.
__device__ float dot(const half (&Q)[d + pad], const half (&K)[d + pad]) {
  float sum = 0;
  for (int c = 0; c < d; c += 8) {
    const uint4 Q_chunk = *reinterpret_cast<const uint4*>(&Q[c]), K_chunk = *reinterpret_cast<const uint4*>(&K[c]);
    for (int e = 0; e < 4; ++e) {
      const float2 q = __half22float2(reinterpret_cast<const half2*>(&Q_chunk)[e]),
                   k = __half22float2(reinterpret_cast<const half2*>(&K_chunk)[e]);
      sum += q.x * k.x + q.y * k.y;
    }
  }
  return sum;
}

/// One block per 32 queries of a head. scale includes log2(e).
__global__ void __launch_bounds__(lanes)
    lab_kernel(const half* __restrict__ Q, const half* __restrict__ K,  // (heads, Nq, d), (heads, Nk, d)
               const half* __restrict__ V, half* __restrict__ O,        // (heads, Nk, d), (heads, Nq, d)
               float* __restrict__ lse,                                 // (heads, Nq)
               std::int64_t Nq, std::int64_t Nk, float scale) {
  auto& smem = workbook::cuda::dynamic_shared<LabShared>();
  const std::int64_t tiles = (Nq + Br - 1) / Br, head = blockIdx.x / tiles, first_query = blockIdx.x % tiles * Br;
  const int lane = threadIdx.x;
  K += head * Nk * d, V += head * Nk * d;
  load(smem.Q, Q + (head * Nq + first_query) * d, Nq - first_query);
  float m = -INFINITY, l = 0;  // of row `lane`
  float2 o[Br] = {};           // of all rows, columns 2·lane and 2·lane + 1
  for (std::int64_t first_key = 0; first_key < Nk; first_key += Bc) {
    __syncwarp();  // all lanes have read the previous tile
    load(smem.K, K + first_key * d, Nk - first_key);
    load(smem.V, V + first_key * d, Nk - first_key);
    __syncwarp();  // Q, K and V are visible to all lanes
    for (int i = 0; i < Br; ++i)
      smem.S[i][lane] = first_key + lane < Nk ? dot(smem.Q[i], smem.K[lane]) * scale : -INFINITY;
    __syncwarp();  // S is visible to all lanes: from here on a lane has one row
    float largest = m, sum = 0;
    for (int j = 0; j < Bc; ++j) largest = fmaxf(largest, smem.S[lane][j]);
    const float m_safe = largest == -INFINITY ? 0 : largest;  // all scores may have overflowed
    for (int j = 0; j < Bc; ++j) {
      const float p = workbook::cuda::exp2_ftz(smem.S[lane][j] - m_safe);
      sum += p;
      smem.P[lane][j] = __float2half_rn(p);
    }
    smem.factor[lane] = workbook::cuda::exp2_ftz(m - m_safe);
    l = l * smem.factor[lane] + sum;
    m = largest;
    __syncwarp();  // P and the factors are visible to all lanes: from here on a lane has two columns
#pragma unroll
    for (int i = 0; i < Br; ++i) {  // unrolled, so that o stays in registers
      o[i] = {o[i].x * smem.factor[i], o[i].y * smem.factor[i]};
#pragma unroll 2
      for (int j = 0; j < Bc; ++j) {
        const float p = __half2float(smem.P[i][j]);
        const float2 v = __half22float2(*reinterpret_cast<const half2*>(&smem.V[j][2 * lane]));
        o[i] = {o[i].x + p * v.x, o[i].y + p * v.y};
      }
    }
  }
  __syncwarp();  // all lanes have read the factors
  smem.factor[lane] = l == 0 ? 0.0f : 1 / l;
  __syncwarp();  // the factors, now 1 / l, are visible to all lanes
  const std::int64_t rows = Nq - first_query < Br ? Nq - first_query : Br;
#pragma unroll
  for (int i = 0; i < Br; ++i) {
    const half2 pair = __floats2half2_rn(o[i].x * smem.factor[i], o[i].y * smem.factor[i]);
    if (i < rows) *reinterpret_cast<half2*>(&O[(head * Nq + first_query + i) * d + 2 * lane]) = pair;
  }
  if (lane < rows) lse[head * Nq + first_query + lane] = (m + log2f(l)) * 0.6931471805599453f;
}

}  // namespace

void lab(const workbook::cuda::ForwardCall<half>& call) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const dim3 grid = workbook::cuda::grid_of((Nq + Br - 1) / Br * B * H, "B·H·⌈Nq/32⌉");
  workbook::cuda::launch(lab_kernel, grid, dim3(lanes), sizeof(LabShared), call.Q, call.K, call.V, call.O, call.lse, Nq,
                         Nk, call.scale * 1.4426950408889634f);
}

}  // namespace ch04
