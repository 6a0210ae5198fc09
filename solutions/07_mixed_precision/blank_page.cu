// Chapter 7, the blank page: a kernel of your own design. blank_page.hpp gives its function and its limits.
//
// Test it: ./workbook test 7.7
#include "blank_page.hpp"

#include <type_traits>

#include "common/cuda/dispatch.hpp"

namespace ch07 {

// TODO(7.7) Design a kernel, and launch it (about 115 lines).
// STUB: void blank_page(const workbook::cuda::ForwardCall<half>& call) {
// STUB:   WORKBOOK_TODO(7.7);
// STUB: }
// BEGIN 7.7
// One answer among many, with as few ideas as possible. A block has four warps and 64 queries; a warp has 16 of them.
// Two lanes share a row, each with every second group of four columns. S, then P, then PV of one tile go through a
// workspace that each warp has for itself, so the only block-wide barriers are around the tiles. O is in registers.
namespace {

using namespace nvcuda;

constexpr int d = 64, Br = 64, Bc = 64, warps = 4, warp_rows = 16, wmma_size = 16, pad = 8;

struct BlankShared {
  half Q[Br][d + pad], K[Bc][d + pad], V[Bc][d + pad];
  float S[warps][warp_rows][Bc + pad];  // also holds PV
  half P[warps][warp_rows][Bc + pad];
  SHARED_LAYOUT(BlankShared, (Q, d, d + pad), (K, d, d + pad), (V, d, d + pad), S, P);
};

/// Loads 64 rows of 64 halves into shared memory; rows from `valid_rows` on become 0.
__device__ void load(half (&tile)[Bc][d + pad], const half* __restrict__ source, std::int64_t valid_rows) {
  for (int i = threadIdx.x; i < Bc * d / 8; i += 32 * warps) {
    const uint4 zeros = {0, 0, 0, 0};
    reinterpret_cast<uint4*>(tile[i / 8])[i % 8] =
        i / 8 < valid_rows ? reinterpret_cast<const uint4*>(source)[i] : zeros;
  }
}

/// C (16, 64) = A B for one warp, with A (16, 64), B (64, 64) and C in shared memory. Layout is B's layout there.
template <class Layout>
__device__ void matmul(float (&C)[warp_rows][Bc + pad], const half* A, const half (&B)[Bc][d + pad]) {
  constexpr bool transposed = std::is_same_v<Layout, wmma::col_major>;
  for (int j = 0; j < Bc; j += wmma_size) {
    wmma::fragment<wmma::accumulator, wmma_size, wmma_size, wmma_size, float> accumulator;
    wmma::fill_fragment(accumulator, 0.0f);
    for (int c = 0; c < d; c += wmma_size) {
      wmma::fragment<wmma::matrix_a, wmma_size, wmma_size, wmma_size, half, wmma::row_major> a;
      wmma::fragment<wmma::matrix_b, wmma_size, wmma_size, wmma_size, half, Layout> b;
      wmma::load_matrix_sync(a, A + c, d + pad);
      wmma::load_matrix_sync(b, transposed ? &B[j][c] : &B[c][j], d + pad);
      wmma::mma_sync(accumulator, a, b, accumulator);
    }
    wmma::store_matrix_sync(&C[0][j], accumulator, Bc + pad, wmma::mem_row_major);
  }
  __syncwarp();  // C is visible to all lanes
}

/// One thread block per 64 queries of a head. scale includes log2(e).
__global__ void __launch_bounds__(32 * warps)
    blank_page_kernel(const half* __restrict__ Q, const half* __restrict__ K,  // (heads, Nq, d), (heads, Nk, d)
                      const half* __restrict__ V, half* __restrict__ O,        // (heads, Nk, d), (heads, Nq, d)
                      float* __restrict__ lse,                                 // (heads, Nq)
                      std::int64_t Nq, std::int64_t Nk, float scale) {
  auto& smem = workbook::cuda::dynamic_shared<BlankShared>();
  const std::int64_t tiles = (Nq + Br - 1) / Br, head = blockIdx.x / tiles, first_query = blockIdx.x % tiles * Br;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane / 2, column_group = lane % 2;
  K += head * Nk * d, V += head * Nk * d;
  load(smem.Q, Q + (head * Nq + first_query) * d, Nq - first_query);
  float m = -INFINITY, l = 0;
  float4 O_row[8] = {};  // element k: row `row`, columns 8k + 4·column_group to 8k + 4·column_group + 3
  for (std::int64_t first_key = 0; first_key < Nk; first_key += Bc) {
    __syncthreads();  // no warp reads the previous K and V any more
    load(smem.K, K + first_key * d, Nk - first_key);
    load(smem.V, V + first_key * d, Nk - first_key);
    __syncthreads();  // Q, K and V are visible to all warps; next: S = Q Kᵀ, (16, 64)
    matmul<wmma::col_major>(smem.S[warp], smem.Q[warp_rows * warp], smem.K);
    float S[8][4], largest = m, sum = 0;
    for (int k = 0; k < 8; ++k) {
      for (int e = 0; e < 4; ++e) {
        const int key = 8 * k + 4 * column_group + e;
        S[k][e] = first_key + key < Nk ? smem.S[warp][row][key] * scale : -INFINITY;
        largest = fmaxf(largest, S[k][e]);
      }
    }
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));  // over both lanes of the row
    const float m_safe = largest == -INFINITY ? 0 : largest;             // if all scores overflow to -inf
    const float rescale = workbook::cuda::exp2_ftz(m - m_safe);
    for (int k = 0; k < 8; ++k) {
      for (int e = 0; e < 4; ++e) {
        const float p = workbook::cuda::exp2_ftz(S[k][e] - m_safe);
        sum += p;
        smem.P[warp][row][8 * k + 4 * column_group + e] = __float2half_rn(p);
      }
    }
    m = largest;
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    l = rescale * l + sum;
    __syncwarp();                                                    // P is visible to all lanes, and all have read S
    matmul<wmma::row_major>(smem.S[warp], smem.P[warp][0], smem.V);  // P V, (16, 64)
    for (int k = 0; k < 8; ++k) {
      const float4 PV = *reinterpret_cast<const float4*>(&smem.S[warp][row][8 * k + 4 * column_group]);
      float4& o = O_row[k];
      o = {rescale * o.x + PV.x, rescale * o.y + PV.y, rescale * o.z + PV.z, rescale * o.w + PV.w};
    }
    __syncwarp();  // all lanes have read PV; the next S may overwrite it
  }
  const std::int64_t query = first_query + warp_rows * warp + row;
  if (query >= Nq) return;
  const float inverse = l == 0 ? 0 : 1 / l;
  for (int k = 0; k < 8; ++k) {
    uint2 packed;
    auto* pairs = reinterpret_cast<half2*>(&packed);
    pairs[0] = __floats2half2_rn(O_row[k].x * inverse, O_row[k].y * inverse);
    pairs[1] = __floats2half2_rn(O_row[k].z * inverse, O_row[k].w * inverse);
    reinterpret_cast<uint2*>(O + (head * Nq + query) * d)[2 * k + column_group] = packed;
  }
  if (column_group == 0) lse[head * Nq + query] = (m + log2f(l)) * 0.6931471805599453f;
}

}  // namespace

void blank_page(const workbook::cuda::ForwardCall<half>& call) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const dim3 grid = workbook::cuda::grid_of((Nq + Br - 1) / Br * B * H, "B·H·⌈Nq/64⌉");
  workbook::cuda::launch(blank_page_kernel, grid, dim3(32 * warps), sizeof(BlankShared), call.Q, call.K, call.V, call.O,
                         call.lse, Nq, Nk, call.scale * 1.4426950408889634f);
}
// END 7.7

}  // namespace ch07
