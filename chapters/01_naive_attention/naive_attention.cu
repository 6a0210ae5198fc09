// Chapter 1 on a GPU, given: the three kernels S = scale·QKᵀ, P = softmax(S), O = P V.
//
// Source: Dao et al. 2022, section 2.2, Algorithm 0.
// Test it: ./workbook test 1
#include <cstdint>

#include "common/cuda/dispatch.hpp"
#include "naive_attention_gpu.hpp"

namespace ch01 {
namespace {

using namespace nvcuda;
using workbook::cuda::dynamic_shared, workbook::cuda::exp2_ftz;

// The tiles of both matmuls: four warps, each with 16 of the tile's 64 rows. Rows in shared memory are padded by 16
// bytes, so that eight consecutive rows start in eight disjoint groups of four banks.
constexpr int tile = built[0].Br, warps = built[0].warps, threads = 32 * warps;
constexpr int pad_half = 16 / sizeof(half), pad_float = 16 / sizeof(float);
constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

/// The sizes of a call.
struct Sizes {
  std::int64_t Nq, Nk, stride;  // stride: the row length of S and P
  bool causal;
};

using Accumulator = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

/// ⌈n / size⌉: the number of tiles of `size` that cover n.
__host__ __device__ std::int64_t ceil_div(std::int64_t n, int size) {
  return (n + size - 1) / size;
}

/// Loads a tile (64, columns) into shared memory, from rows that are `stride` elements apart. From `from` on the matrix
/// has `rows` rows and `stride_left` elements in each row; elements outside it become zeros.
template <int columns>
__device__ __forceinline__ void load_tile(half (&to)[tile][columns + pad_half], const half* __restrict__ from,
                                          std::int64_t stride, std::int64_t rows, std::int64_t stride_left) {
  const int first_row = threadIdx.x / (columns / 8), chunk = threadIdx.x % (columns / 8);  // of 16 bytes
#pragma unroll
  for (int i = 0; i < tile; i += threads / (columns / 8)) {
    const int row = first_row + i;
    uint4 values = {0, 0, 0, 0};
    if (row < rows && 8 * chunk < stride_left)
      values = reinterpret_cast<const uint4*>(from)[row * (stride / 8) + chunk];
    reinterpret_cast<uint4*>(to[row])[chunk] = values;
  }
}

template <int d>
struct ScoresShared {
  half Q[tile][d + pad_half], K[tile][d + pad_half];
  float S[tile][tile + pad_float];
  SHARED_LAYOUT(ScoresShared, (Q, d), (K, d), (S, tile));
};

/// One block per (64, 64) tile of S = scale·QKᵀ. Masked scores and the columns from Nk to the stride become -inf.
template <int d>
__global__ void __launch_bounds__(threads) scores(const half* __restrict__ Q,  // (heads, Nq, d)
                                                  const half* __restrict__ K,  // (heads, Nk, d)
                                                  float* __restrict__ S,       // (heads, Nq, stride)
                                                  Sizes sizes, float scale) {
  auto& smem = dynamic_shared<ScoresShared<d>>();
  const std::int64_t kv_tiles = ceil_div(sizes.Nk, tile), q_tiles = ceil_div(sizes.Nq, tile);
  const std::int64_t first_key = blockIdx.x % kv_tiles * tile;
  const std::int64_t first_query = blockIdx.x / kv_tiles % q_tiles * tile;
  const std::int64_t head = blockIdx.x / kv_tiles / q_tiles;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first_row = 16 * warp;

  load_tile<d>(smem.Q, Q + (head * sizes.Nq + first_query) * d, d, sizes.Nq - first_query, d);
  load_tile<d>(smem.K, K + (head * sizes.Nk + first_key) * d, d, sizes.Nk - first_key, d);
  __syncthreads();  // both tiles are visible to all warps

  Accumulator scores[tile / 16];  // (16, 64) per warp
#pragma unroll
  for (auto& fragment : scores) wmma::fill_fragment(fragment, 0.0f);
#pragma unroll
  for (int c = 0; c < d; c += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::load_matrix_sync(a, &smem.Q[first_row][c], d + pad_half);
#pragma unroll
    for (int j = 0; j < tile / 16; ++j) {
      wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
      wmma::load_matrix_sync(b, &smem.K[16 * j][c], d + pad_half);
      wmma::mma_sync(scores[j], a, b, scores[j]);
    }
  }
#pragma unroll
  for (int j = 0; j < tile / 16; ++j)
    wmma::store_matrix_sync(&smem.S[first_row][16 * j], scores[j], tile + pad_float, wmma::mem_row_major);
  __syncwarp();  // the warp's stores are visible to all its lanes, which read whole rows

  const int column = lane % (tile / 4) * 4;
#pragma unroll
  for (int i = 0; i < 16; i += 32 / (tile / 4)) {
    const int row = first_row + i + lane / (tile / 4);
    const std::int64_t query = first_query + row, key = first_key + column;
    if (query >= sizes.Nq || key >= sizes.stride) continue;
    const std::int64_t visible = sizes.causal ? query + sizes.Nk - sizes.Nq + 1 : sizes.Nk;  // to this query
    const std::int64_t end = visible < sizes.Nk ? visible : sizes.Nk;
    float4 s = *reinterpret_cast<const float4*>(&smem.S[row][column]);
    s.x = key + 0 < end ? s.x * scale : -INFINITY;
    s.y = key + 1 < end ? s.y * scale : -INFINITY;
    s.z = key + 2 < end ? s.z * scale : -INFINITY;
    s.w = key + 3 < end ? s.w * scale : -INFINITY;
    reinterpret_cast<float4*>(S)[((head * sizes.Nq + query) * sizes.stride + key) / 4] = s;
  }
}

/// Returns the maximum or the sum of `value` over the block to every thread. `partial` has one float per warp.
template <bool maximum>
__device__ float reduce(float value, float* partial) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(0xffffffff, value, distance);
    value = maximum ? fmaxf(value, other) : value + other;
  }
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();  // the partial results of all warps are visible
  value = partial[0];
#pragma unroll
  for (int w = 1; w < warps; ++w) value = maximum ? fmaxf(value, partial[w]) : value + partial[w];
  return value;
}

/// The first `count` scores of a row, cached in shared memory, so that they are read from device memory only once.
template <int count>
struct Row {
  float4 cached[count / 4];
  float maxima[warps], sums[warps];
  SHARED_LAYOUT(Row, cached, maxima, sums);
};

/// One block per row: P = softmax(S), and the LSE. A row without a visible key gives P = 0 and an LSE of -inf. In a row
/// of more than `count` scores, the scores past `count` are read three times.
template <int count>
__global__ void __launch_bounds__(threads) softmax(const float* __restrict__ S,  // (rows, stride)
                                                   half* __restrict__ P,         // (rows, stride)
                                                   float* __restrict__ lse,      // (rows)
                                                   std::int64_t stride) {
  auto& smem = dynamic_shared<Row<count>>();
  const auto* row = reinterpret_cast<const float4*>(S + blockIdx.x * stride);

  float m = -INFINITY;
  for (std::int64_t j = threadIdx.x; j < stride / 4; j += threads) {
    const float4 s = row[j];
    if (j < count / 4) smem.cached[j] = s;
    m = fmaxf(m, fmaxf(fmaxf(s.x, s.y), fmaxf(s.z, s.w)));
  }
  m = reduce<true>(m, smem.maxima);
  const float m_safe = m == -INFINITY ? 0 : m;

  // exp(S - m) of four adjacent scores. A thread rereads only elements that it cached itself, so no barrier is needed.
  const auto exponentials = [&](std::int64_t j) {
    float4 s = j < count / 4 ? smem.cached[j] : row[j];
    s.x = exp2_ftz((s.x - m_safe) * log2_e), s.y = exp2_ftz((s.y - m_safe) * log2_e);
    s.z = exp2_ftz((s.z - m_safe) * log2_e), s.w = exp2_ftz((s.w - m_safe) * log2_e);
    return s;
  };
  float l = 0;
  for (std::int64_t j = threadIdx.x; j < stride / 4; j += threads) {
    const float4 p = exponentials(j);
    if (j < count / 4) smem.cached[j] = p;
    l += (p.x + p.y) + (p.z + p.w);
  }
  l = reduce<false>(l, smem.sums);

  const float factor = l == 0 ? 0 : 1 / l;
  for (std::int64_t j = threadIdx.x; j < stride / 4; j += threads) {
    const float4 p = j < count / 4 ? smem.cached[j] : exponentials(j);
    uint2 rounded;
    auto* pairs = reinterpret_cast<half2*>(&rounded);
    pairs[0] = __floats2half2_rn(p.x * factor, p.y * factor), pairs[1] = __floats2half2_rn(p.z * factor, p.w * factor);
    reinterpret_cast<uint2*>(P + blockIdx.x * stride)[j] = rounded;
  }
  if (threadIdx.x == 0) lse[blockIdx.x] = m + log2f(l) * ln_2;
}

template <int d>
struct OutputShared {
  half P[tile][tile + pad_half], V[tile][d + pad_half];
  float O[tile][d + pad_float];
  SHARED_LAYOUT(OutputShared, (P, tile), (V, d), (O, d));
};

/// One block per (64, d) tile of O = P V.
template <int d>
__global__ void __launch_bounds__(threads) output(const half* __restrict__ P,  // (heads, Nq, stride)
                                                  const half* __restrict__ V,  // (heads, Nk, d)
                                                  half* __restrict__ O,        // (heads, Nq, d)
                                                  Sizes sizes) {
  auto& smem = dynamic_shared<OutputShared<d>>();
  const std::int64_t q_tiles = ceil_div(sizes.Nq, tile);
  const std::int64_t first_query = blockIdx.x % q_tiles * tile, head = blockIdx.x / q_tiles;
  const std::int64_t first_row = head * sizes.Nq + first_query, rows = sizes.Nq - first_query;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_row = 16 * warp;

  Accumulator sums[d / 16];  // (16, d) per warp
#pragma unroll
  for (auto& fragment : sums) wmma::fill_fragment(fragment, 0.0f);
  for (std::int64_t first_key = 0; first_key < sizes.Nk; first_key += tile) {
    load_tile<tile>(smem.P, P + first_row * sizes.stride + first_key, sizes.stride, rows, sizes.stride - first_key);
    load_tile<d>(smem.V, V + (head * sizes.Nk + first_key) * d, d, sizes.Nk - first_key, d);
    __syncthreads();  // both tiles are visible to all warps
#pragma unroll
    for (int j = 0; j < tile; j += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
      wmma::load_matrix_sync(a, &smem.P[warp_row][j], tile + pad_half);
#pragma unroll
      for (int c = 0; c < d / 16; ++c) {
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
        wmma::load_matrix_sync(b, &smem.V[j][16 * c], d + pad_half);
        wmma::mma_sync(sums[c], a, b, sums[c]);
      }
    }
    __syncthreads();  // both tiles have been read and may be overwritten
  }
#pragma unroll
  for (int c = 0; c < d / 16; ++c)
    wmma::store_matrix_sync(&smem.O[warp_row][16 * c], sums[c], d + pad_float, wmma::mem_row_major);
  __syncwarp();  // the warp's stores are visible to all its lanes, which read whole rows

  const int chunk = lane % (d / 8);
#pragma unroll
  for (int i = 0; i < 16; i += 32 / (d / 8)) {
    const int row = warp_row + i + lane / (d / 8);
    if (row >= rows) break;
    const auto* values = reinterpret_cast<const float4*>(&smem.O[row][8 * chunk]);
    const float4 a = values[0], b = values[1];
    uint4 rounded;
    auto* pairs = reinterpret_cast<half2*>(&rounded);
    pairs[0] = __floats2half2_rn(a.x, a.y), pairs[1] = __floats2half2_rn(a.z, a.w);
    pairs[2] = __floats2half2_rn(b.x, b.y), pairs[3] = __floats2half2_rn(b.z, b.w);
    reinterpret_cast<uint4*>(O)[(first_row + row) * (d / 8) + chunk] = rounded;
  }
}

template <int d>
void start(const workbook::cuda::ForwardCall<half>& call, float* S, half* P) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const Sizes sizes{Nq, Nk, score_stride(Nk), call.causal()};
  const std::int64_t heads = B * H, q_tiles = ceil_div(Nq, tile), kv_tiles = ceil_div(Nk, tile);
  using workbook::cuda::launch, workbook::cuda::grid_of;
  launch(scores<d>, grid_of(heads * q_tiles * kv_tiles, "B·H·⌈Nq/64⌉·⌈Nk/64⌉"), dim3(threads), sizeof(ScoresShared<d>),
         call.Q, call.K, S, sizes, call.scale);
  const auto start_softmax = [&, rows = heads * Nq]<int count>(std::integral_constant<int, count>) {
    launch(softmax<count>, grid_of(rows, "B·H·Nq"), dim3(threads), sizeof(Row<count>), S, P, call.lse, sizes.stride);
  };
  if (sizes.stride <= 4096) {
    start_softmax(std::integral_constant<int, 4096>());
  } else {
    start_softmax(std::integral_constant<int, 15360>());  // 60 KB: every supported GPU allows this much per block
  }
  launch(output<d>, grid_of(heads * q_tiles, "B·H·⌈Nq/64⌉"), dim3(threads), sizeof(OutputShared<d>), P, call.V, call.O,
         sizes);
}

}  // namespace

void naive_attention(const workbook::cuda::ForwardCall<half>& call, float* S, half* P) {
  workbook::cuda::with_head_dim(call.shape.d, [&](auto d) { start<d>(call, S, P); });
}

}  // namespace ch01
