// Chapter 7, the blank page: what stands here is up to you. blank_page.hpp says what it does and what it may cost.
//
// Test it: ./workbook test 7.7
#include "blank_page.hpp"

#include <type_traits>

#include "common/cuda/dispatch.hpp"

namespace ch07 {

// TODO(7.7) Design a kernel, and start it (about 115 lines).
// STUB: void blank_page(const workbook::cuda::ForwardCall<half>& call) {
// STUB:   WORKBOOK_TODO(7.7);
// STUB: }
// BEGIN 7.7
// One answer among many, in as few ideas as possible. A block has four warps and 64 queries; a warp has 16 of them, and
// two lanes share a row, each with every second group of four columns. S, then P, then the product P V of one tile pass
// through a workspace that is the warp's own, so there is no barrier but around the tiles. O stays with the lanes.
namespace {

using namespace nvcuda;

constexpr int d = 64, Br = 64, Bc = 64, warps = 4, rows = 16, side = 16, pad = 8;

struct BlankShared {
  half Q[Br][d + pad], K[Bc][d + pad], V[Bc][d + pad];
  float S[warps][rows][Bc + pad];  // the product P V as well
  half P[warps][rows][Bc + pad];
  SHARED_LAYOUT(BlankShared, (Q, d, d + pad), (K, d, d + pad), (V, d, d + pad), S, P);
};

/// 64 rows of 64 halves into shared memory, zeros where there are no more than `count` rows.
__device__ void load(half (&tile)[Bc][d + pad], const half* __restrict__ source, std::int64_t count) {
  for (int i = threadIdx.x; i < Bc * d / 8; i += 32 * warps) {
    const uint4 zeros = {0, 0, 0, 0};
    reinterpret_cast<uint4*>(tile[i / 8])[i % 8] = i / 8 < count ? reinterpret_cast<const uint4*>(source)[i] : zeros;
  }
}

/// C (16, 64) = A B for a warp, A and B 64 deep, to its workspace. Layout: how B lies in shared memory.
template <class Layout>
__device__ void multiply(float (&C)[rows][Bc + pad], const half* A, const half (&B)[Bc][d + pad]) {
  constexpr bool transposed = std::is_same_v<Layout, wmma::col_major>;
  for (int j = 0; j < Bc; j += side) {
    wmma::fragment<wmma::accumulator, side, side, side, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int c = 0; c < d; c += side) {
      wmma::fragment<wmma::matrix_a, side, side, side, half, wmma::row_major> a;
      wmma::fragment<wmma::matrix_b, side, side, side, half, Layout> b;
      wmma::load_matrix_sync(a, A + c, d + pad);
      wmma::load_matrix_sync(b, transposed ? &B[j][c] : &B[c][j], d + pad);
      wmma::mma_sync(sum, a, b, sum);
    }
    wmma::store_matrix_sync(&C[0][j], sum, Bc + pad, wmma::mem_row_major);
  }
  __syncwarp();  // the lanes read what the warp has stored
}

/// One block for 64 queries of a head. scale holds log2(e).
__global__ void __launch_bounds__(32 * warps)
    blank_page_kernel(const half* __restrict__ Q, const half* __restrict__ K,  // (heads, Nq, d), (heads, Nk, d)
                      const half* __restrict__ V, half* __restrict__ O,        // (heads, Nk, d), (heads, Nq, d)
                      float* __restrict__ lse,                                 // (heads, Nq)
                      std::int64_t Nq, std::int64_t Nk, float scale) {
  auto& smem = workbook::cuda::dynamic_shared<BlankShared>();
  const std::int64_t tiles = (Nq + Br - 1) / Br, head = blockIdx.x / tiles, first_query = blockIdx.x % tiles * Br;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane / 2, group = lane % 2;
  K += head * Nk * d, V += head * Nk * d;
  load(smem.Q, Q + (head * Nq + first_query) * d, Nq - first_query);
  float m = -INFINITY, l = 0;
  float4 O_own[8] = {};  // of row `row`, columns 8k + 4·group to 8k + 4·group + 3
  for (std::int64_t first_key = 0; first_key < Nk; first_key += Bc) {
    __syncthreads();  // nobody reads K and V of the tile before any more
    load(smem.K, K + first_key * d, Nk - first_key);
    load(smem.V, V + first_key * d, Nk - first_key);
    __syncthreads();  // Q, K and V are there for all, for S = Q Kᵀ, (16, 64)
    multiply<wmma::col_major>(smem.S[warp], smem.Q[rows * warp], smem.K);
    float S[8][4], largest = m, sum = 0;
    for (int k = 0; k < 8; ++k) {
      for (int e = 0; e < 4; ++e) {
        const int key = 8 * k + 4 * group + e;
        S[k][e] = first_key + key < Nk ? smem.S[warp][row][key] * scale : -INFINITY;
        largest = fmaxf(largest, S[k][e]);
      }
    }
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));  // of both halves of the row
    const float m_safe = largest == -INFINITY ? 0 : largest;             // all scores overflow to -inf
    const float rescale = workbook::cuda::exp2_ftz(m - m_safe);
    for (int k = 0; k < 8; ++k) {
      for (int e = 0; e < 4; ++e) {
        const float p = workbook::cuda::exp2_ftz(S[k][e] - m_safe);
        sum += p;
        smem.P[warp][row][8 * k + 4 * group + e] = __float2half_rn(p);
      }
    }
    m = largest;
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    l = rescale * l + sum;
    __syncwarp();                                                      // P is there for all lanes, and all have read S
    multiply<wmma::row_major>(smem.S[warp], smem.P[warp][0], smem.V);  // P V, (16, 64)
    for (int k = 0; k < 8; ++k) {
      const float4 part = *reinterpret_cast<const float4*>(&smem.S[warp][row][8 * k + 4 * group]);
      float4& o = O_own[k];
      o = {rescale * o.x + part.x, rescale * o.y + part.y, rescale * o.z + part.z, rescale * o.w + part.w};
    }
    __syncwarp();  // the next S may overwrite it
  }
  const std::int64_t query = first_query + rows * warp + row;
  if (query >= Nq) return;
  const float inverse = l == 0 ? 0 : 1 / l;
  for (int k = 0; k < 8; ++k) {
    uint2 four;
    auto* pairs = reinterpret_cast<half2*>(&four);
    pairs[0] = __floats2half2_rn(O_own[k].x * inverse, O_own[k].y * inverse);
    pairs[1] = __floats2half2_rn(O_own[k].z * inverse, O_own[k].w * inverse);
    reinterpret_cast<uint2*>(O + (head * Nq + query) * d)[2 * k + group] = four;
  }
  if (group == 0) lse[head * Nq + query] = (m + log2f(l)) * 0.6931471805599453f;
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
