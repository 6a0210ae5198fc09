// Chapter 8, the lab: one warp per 32 queries, one lane per query. cp.async copies the K/V tiles, one group per tile,
// alternately to two stages. The kernel is slow, but short enough to read in one go.
//
// See it: ./workbook trace 8 --operation lab --seq 100 --heads 1
// Test it: ./workbook test 8.8
#include "lab.hpp"

#include "common/cuda/dispatch.hpp"

namespace ch08 {
namespace {

using workbook::cuda::cp_async_16, workbook::cuda::cp_async_commit_group, workbook::cuda::cp_async_wait_group;
using workbook::cuda::exp2_ftz;

constexpr int d = 64, lanes = 32, Bc = 16, stages = 2;

struct LabShared {
  half K[stages][Bc][d], V[stages][Bc][d];  // all lanes read the same row: no padding, no swizzle
  SHARED_LAYOUT(LabShared, K, V);
};

/// A query, and its row's O, m and l, in this lane's registers.
struct Row {
  float q[d], o[d] = {}, m = -INFINITY, l = 0;
};

/// Eight halves, 16 bytes, of device or shared memory, as floats.
struct Vector {
  float x[8];
};
__device__ Vector load_vector(const half* source) {
  const uint4 bits = *reinterpret_cast<const uint4*>(source);
  Vector vector;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const float2 pair = __half22float2(reinterpret_cast<const half2*>(&bits)[e]);
    vector.x[2 * e] = pair.x, vector.x[2 * e + 1] = pair.y;
  }
  return vector;
}

/// Updates this lane's row by the first `keys` keys of a tile.
__device__ void attend(Row& row, const half (&K)[Bc][d], const half (&V)[Bc][d], int keys) {
  for (int j = 0; j < keys; ++j) {
    float s = 0;
#pragma unroll
    for (int c = 0; c < d; c += 8) {
      const Vector k = load_vector(&K[j][c]);
#pragma unroll
      for (int e = 0; e < 8; ++e) s += row.q[c + e] * k.x[e];
    }
    const float m_new = fmaxf(row.m, s), m_safe = m_new == -INFINITY ? 0 : m_new;  // the score may have overflowed
    const float factor = exp2_ftz(row.m - m_safe), p = exp2_ftz(s - m_safe);
    row.m = m_new;
    row.l = row.l * factor + p;
#pragma unroll
    for (int c = 0; c < d; c += 8) {
      const Vector v = load_vector(&V[j][c]);
#pragma unroll
      for (int e = 0; e < 8; ++e) row.o[c + e] = row.o[c + e] * factor + p * v.x[e];
    }
  }
}

/// One thread block per 32 queries of a head. scale includes log2(e).
__global__ void __launch_bounds__(lanes)
    lab_kernel(const half* __restrict__ Q, const half* __restrict__ K,  // (heads, Nq, d), (heads, Nk, d)
               const half* __restrict__ V, half* __restrict__ O,        // (heads, Nk, d), (heads, Nq, d)
               float* __restrict__ lse,                                 // (heads, Nq)
               std::int64_t Nq, std::int64_t Nk, float scale) {
  auto& smem = workbook::cuda::dynamic_shared<LabShared>();
  const std::int64_t q_tiles = (Nq + lanes - 1) / lanes, head = blockIdx.x / q_tiles;
  const std::int64_t query = blockIdx.x % q_tiles * lanes + threadIdx.x;
  const bool exists = query < Nq;
  Q += (head * Nq + query) * d, O += (head * Nq + query) * d, K += head * Nk * d, V += head * Nk * d;
  const int tiles = int((Nk + Bc - 1) / Bc);
  const auto keys_in_tile = [&](int j) { return int(min(std::int64_t(Bc), Nk - std::int64_t(j) * Bc)); };
  // Starts the copies of K_j and V_j, (Bc, d) each, to stage j % stages, and ends the group, which is empty if there is
  // no tile j.
  const auto load_KV = [&](int j) {
    for (int i = threadIdx.x; j < tiles && i < keys_in_tile(j) * d / 8; i += lanes) {
      const std::int64_t offset = std::int64_t(j) * Bc * d + 8 * i;
      cp_async_16(&smem.K[j % stages][i / (d / 8)][i % (d / 8) * 8], K + offset, 16);
      cp_async_16(&smem.V[j % stages][i / (d / 8)][i % (d / 8) * 8], V + offset, 16);
    }
    cp_async_commit_group();
  };

  load_KV(0);
  load_KV(1);
  Row row;
#pragma unroll
  for (int c = 0; c < d; c += 8) {
    const Vector vector = exists ? load_vector(&Q[c]) : Vector{};
#pragma unroll
    for (int e = 0; e < 8; ++e) row.q[c + e] = vector.x[e] * scale;
  }
  for (int j = 0; j < tiles; ++j) {
    cp_async_wait_group<1>();  // at most this lane's copies of tile j + 1 are in flight
    __syncwarp();              // K_j and V_j are visible to all lanes
    // TODO(8.8) These lines are correct only if every copy is slow. Fix them, with the two stages that there are, and
    // remove the line with WORKBOOK_FIX (about 2 lines).
    // BEGIN 8.8
    WORKBOOK_FIX(8.8);
    load_KV(j + 2);  // as early as possible
    attend(row, smem.K[j % stages], smem.V[j % stages], keys_in_tile(j));
    // END 8.8
  }
  if (!exists) return;
  const float inverse = row.l == 0 ? 0 : 1 / row.l;
#pragma unroll
  for (int c = 0; c < d; c += 2)
    *reinterpret_cast<half2*>(&O[c]) = __floats2half2_rn(row.o[c] * inverse, row.o[c + 1] * inverse);
  lse[head * Nq + query] = (row.m + log2f(row.l)) * 0.6931471805599453f;
}

}  // namespace

void lab(const workbook::cuda::ForwardCall<half>& call) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const dim3 grid = workbook::cuda::grid_of((Nq + lanes - 1) / lanes * B * H, "B·H·⌈Nq/32⌉");
  workbook::cuda::launch(lab_kernel, grid, dim3(lanes), sizeof(LabShared), call.Q, call.K, call.V, call.O, call.lse, Nq,
                         Nk, call.scale * 1.4426950408889634f);
}

}  // namespace ch08
