// Chapter 4, the ladder: chapter 3's kernel with the partial O of the warps combined once, not in every tile.
#include "ladder.hpp"

namespace ch04 {
namespace {

using namespace nvcuda;
using workbook::cuda::dynamic_shared, workbook::cuda::exp2_ftz;

constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;
constexpr int d = 64, Br = 64, Bc = 64, warps = 4, width = Bc / warps;  // width: the keys of a warp
constexpr int pad_half = 16 / sizeof(half), pad_float = 16 / sizeof(float), pad_product = 32 / sizeof(float);
using Accumulator = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

struct LadderShared {
  half Q[Br][d + pad_half], K[Bc][d + pad_half], V[Bc][d + pad_half];
  union {
    struct {
      float S[warps][Br][width + pad_float];
      half P[warps][Br][width + pad_half];
    } loop;
    float O_part[warps][Br][d + pad_product];  // after the loop
  };
  float m_part[warps][Br], l_part[warps][Br], row_index[16][16];
  SHARED_LAYOUT(LadderShared, (Q, d), (K, d), (V, d), loop, O_part, m_part, l_part, row_index);
};

/// As chapter 3's.
__device__ void load_tile(half (&tile)[64][d + pad_half], const half* __restrict__ source, int rows) {
  const int first_row = threadIdx.x / (d / 8), chunk = threadIdx.x % (d / 8);
#pragma unroll
  for (int i = 0; i < 64; i += 32 * warps / (d / 8)) {
    const int row = first_row + i;
    uint4 eight = {0, 0, 0, 0};
    if (row < rows) eight = reinterpret_cast<const uint4*>(source)[row * (d / 8) + chunk];
    reinterpret_cast<uint4*>(tile[row])[chunk] = eight;
  }
}

template <Rung rung>
__global__ void __launch_bounds__(32 * warps, 2)
    split_keys(const half* __restrict__ Q, const half* __restrict__ K, const half* __restrict__ V, half* __restrict__ O,
               float* __restrict__ lse, std::int64_t Nq, std::int64_t Nk, int query_tiles, float scale) {
  auto& smem = dynamic_shared<LadderShared>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first_key = warp * width;
  const bool whole_head = rung == Rung::combined_once;
  const std::int64_t head = whole_head ? blockIdx.x : blockIdx.x / query_tiles;
  const int first_tile = whole_head ? 0 : blockIdx.x % query_tiles,
            end_tile = whole_head ? query_tiles : first_tile + 1;
  Q += head * Nq * d, K += head * Nk * d, V += head * Nk * d, O += head * Nq * d, lse += head * Nq;
  for (int i = threadIdx.x; i < 256; i += 32 * warps) smem.row_index[i / 16][i % 16] = float(i / 16);

  for (std::int64_t first_query = std::int64_t(first_tile) * Br; first_query < std::int64_t(end_tile) * Br;
       first_query += Br) {
    const int queries = min(std::int64_t(Br), Nq - first_query);
    load_tile(smem.Q, Q + first_query * d, queries);
    Accumulator O_part[Br / 16][d / 16];  // of this warp's keys
    for (auto& tiles : O_part)
      for (Accumulator& tile : tiles) wmma::fill_fragment(tile, 0.0f);
    float m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0}, rescale[2];  // rows lane and lane + 32, of this warp's keys

    for (std::int64_t first = 0; first < Nk; first += Bc) {
      const int keys = min(std::int64_t(Bc), Nk - first);
      load_tile(smem.K, K + first * d, keys);
      load_tile(smem.V, V + first * d, keys);
      __syncthreads();  // K and V are there
      Accumulator S[Br / 16];
      for (Accumulator& tile : S) wmma::fill_fragment(tile, 0.0f);
#pragma unroll
      for (int c = 0; c < d; c += 16) {
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> K_part;
        wmma::load_matrix_sync(K_part, &smem.K[first_key][c], d + pad_half);
        for (int i = 0; i < Br / 16; ++i) {
          wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> Q_part;
          wmma::load_matrix_sync(Q_part, &smem.Q[16 * i][c], d + pad_half);
          wmma::mma_sync(S[i], Q_part, K_part, S[i]);
        }
      }
      for (int i = 0; i < Br / 16; ++i)
        wmma::store_matrix_sync(&smem.loop.S[warp][16 * i][0], S[i], width + pad_float, wmma::mem_row_major);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = lane + 32 * i;
        float P[width], m_new = m[i];
        for (int j = 0; j < width / 4; ++j) {
          const float4 four = reinterpret_cast<const float4*>(smem.loop.S[warp][row])[j];
          P[4 * j] = four.x * scale, P[4 * j + 1] = four.y * scale, P[4 * j + 2] = four.z * scale;
          P[4 * j + 3] = four.w * scale;
        }
        if (keys < Bc)
          for (int j = 0; j < width; ++j) P[j] = first_key + j < keys ? P[j] : -INFINITY;
        for (float score : P) m_new = fmaxf(m_new, score);
        const float m_safe = m_new == -INFINITY ? 0 : m_new;
        rescale[i] = exp2_ftz(m[i] - m_safe), m[i] = m_new, l[i] *= rescale[i];
        for (float& score : P) l[i] += score = exp2_ftz(score - m_safe);
        for (int j = 0; j < width; j += 8) {
          uint4 eight;
          for (int k = 0; k < 4; ++k)
            reinterpret_cast<half2*>(&eight)[k] = __floats2half2_rn(P[j + 2 * k], P[j + 2 * k + 1]);
          reinterpret_cast<uint4*>(smem.loop.P[warp][row])[j / 8] = eight;
        }
      }
      __syncwarp();
      if (__any_sync(0xffffffff, rescale[0] != 1 || rescale[1] != 1)) {
        Accumulator row;
        wmma::load_matrix_sync(row, &smem.row_index[0][0], 16, wmma::mem_row_major);
#pragma unroll
        for (int i = 0; i < Br / 16; ++i)
          for (int e = 0; e < row.num_elements; ++e) {
            const float factor = __shfl_sync(0xffffffff, rescale[i / 2], 16 * (i % 2) + int(row.x[e]));
            for (Accumulator& tile : O_part[i]) tile.x[e] *= factor;
          }
      }
#pragma unroll
      for (int i = 0; i < Br / 16; ++i) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> P;
        wmma::load_matrix_sync(P, &smem.loop.P[warp][16 * i][0], width + pad_half);
        for (int c = 0; c < d / 16; ++c) {
          wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> V_part;
          wmma::load_matrix_sync(V_part, &smem.V[first_key][16 * c], d + pad_half);
          wmma::mma_sync(O_part[i][c], P, V_part, O_part[i][c]);
        }
      }
      __syncthreads();  // all warps have read K and V
    }

    for (int i = 0; i < Br / 16; ++i)  // the merge of exercise 2.2, for four states
      for (int c = 0; c < d / 16; ++c)
        wmma::store_matrix_sync(&smem.O_part[warp][16 * i][16 * c], O_part[i][c], d + pad_product, wmma::mem_row_major);
    for (int i = 0; i < 2; ++i) smem.m_part[warp][lane + 32 * i] = m[i], smem.l_part[warp][lane + 32 * i] = l[i];
    __syncthreads();  // all parts are there
    for (int i = threadIdx.x; i < queries * (d / 2); i += 32 * warps) {
      const int row = i / (d / 2), pair = i % (d / 2);
      float m_all = -INFINITY, l_all = 0, x = 0, y = 0;
      for (int w = 0; w < warps; ++w) m_all = fmaxf(m_all, smem.m_part[w][row]);
      for (int w = 0; w < warps; ++w) {
        const float factor = exp2_ftz(smem.m_part[w][row] - m_all);
        const float2 two = reinterpret_cast<const float2*>(smem.O_part[w][row])[pair];
        l_all += factor * smem.l_part[w][row], x += factor * two.x, y += factor * two.y;
      }
      reinterpret_cast<half2*>(O + (first_query + row) * d)[pair] = __floats2half2_rn(x / l_all, y / l_all);
      if (pair == 0) lse[first_query + row] = (m_all + log2f(l_all)) * ln_2;
    }
    __syncthreads();  // all parts have been read: the next tile of queries may overwrite them
  }
}

template <Rung rung>
void start(const ForwardCall<half>& call) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const std::int64_t query_tiles = (Nq + Br - 1) / Br;
  workbook::cuda::launch(split_keys<rung>, dim3(B * H * (rung == Rung::combined_once ? 1 : query_tiles)),
                         dim3(32 * warps), sizeof(LadderShared), call.Q, call.K, call.V, call.O, call.lse, Nq, Nk,
                         query_tiles, call.scale * log2_e);
}

}  // namespace

void ladder(const ForwardCall<half>& call, Rung rung) {
  rung == Rung::combined_once ? start<Rung::combined_once>(call) : start<Rung::query_tile_grid>(call);
}

std::size_t ladder_shared_bytes() {
  return sizeof(LadderShared);
}

}  // namespace ch04
