// Chapter 3, the lab: attention with one thread block per query. Warp 0 loads the query; each thread of the other three
// warps handles every 96th key. The threads exchange data through shared memory. The kernel is slow but short.
//
// See it: ./workbook trace 3 --operation lab --seq 130 --heads 1
// Test it: ./workbook test 3.13
#include "lab.hpp"

#include "common/cuda/dispatch.hpp"

namespace ch03 {
namespace {

constexpr int d = 64, lanes = 32, warps = 4, threads = warps * lanes, keys = threads - lanes;

/// The score of one key. `query` is in shared memory, already multiplied by scale.
__device__ float score(const float (&query)[d], const half* __restrict__ K) {  // (d), (d)
  float sum = 0;
  for (int c = 0; c < d; c += 2) {
    const float2 k = __half22float2(*reinterpret_cast<const half2*>(&K[c]));
    sum += query[c] * k.x + query[c + 1] * k.y;
  }
  return sum;
}

/// The sum of two values, or the larger of the two.
template <bool is_sum>
__device__ float combine(float a, float b) {
  return is_sum ? a + b : fmaxf(a, b);
}

/// The sum of all threads' values, or the largest of them, returned to every thread of the block. `parts` is in shared
/// memory.
template <bool is_sum>
__device__ float block_reduce(float value, float (&parts)[warps]) {
  for (int step = lanes / 2; step > 0; step /= 2)
    value = combine<is_sum>(value, __shfl_xor_sync(0xffffffffu, value, step));  // reduction within the warp
  if (threadIdx.x % lanes == 0) parts[threadIdx.x / lanes] = value;
  __syncthreads();  // the values of all warps are stored
  value = parts[0];
  for (int w = 1; w < warps; ++w) value = combine<is_sum>(value, parts[w]);
  __syncthreads();  // all threads have read `parts`: it may be overwritten
  return value;
}

/// One block for one query. scale holds log2(e).
__global__ void __launch_bounds__(threads)
    lab_kernel(const half* __restrict__ Q, const half* __restrict__ K,  // (heads, Nq, d), (heads, Nk, d)
               const half* __restrict__ V, half* __restrict__ O,        // (heads, Nk, d), (heads, Nq, d)
               float* __restrict__ lse,                                 // (heads, Nq)
               std::int64_t Nq, std::int64_t Nk, float scale) {
  __shared__ float query[d], parts[warps], P[keys];
  const std::int64_t row = blockIdx.x, head = row / Nq;
  const int key_index =
      int(threadIdx.x) - lanes;  // within each group of `keys`; negative for warp 0, which has no keys
  Q += row * d, K += head * Nk * d, V += head * Nk * d;
  // TODO(3.13) This kernel is correct only if warp 0 runs first. Find what is missing, add it, and remove the line with
  // WORKBOOK_FIX (about 1 line).
  // BEGIN 3.13
  WORKBOOK_FIX(3.13);
  if (threadIdx.x < lanes)
    for (int c = threadIdx.x; c < d; c += lanes) query[c] = __half2float(Q[c]) * scale;
  // END 3.13
  float m = -INFINITY, l = 0, o = 0;
  for (std::int64_t key = key_index; key < Nk && key_index >= 0; key += keys) m = fmaxf(m, score(query, K + key * d));
  m = block_reduce<false>(m, parts);
  const float m_safe = m == -INFINITY ? 0 : m;  // all scores may be -inf after an overflow
  for (std::int64_t first = 0; first < Nk; first += keys) {
    if (key_index >= 0) {
      const std::int64_t key = first + key_index;
      const float p = key < Nk ? workbook::cuda::exp2_ftz(score(query, K + key * d) - m_safe) : 0.0f;
      l += p;
      P[key_index] = p;
    }
    __syncthreads();  // P of this group of keys is complete
    for (int j = 0; j < keys && first + j < Nk && threadIdx.x < d; ++j)
      o += P[j] * __half2float(V[(first + j) * d + threadIdx.x]);
    __syncthreads();  // all threads have read P: it may be overwritten
  }
  l = block_reduce<true>(l, parts);
  if (threadIdx.x < d) O[row * d + threadIdx.x] = __float2half_rn(l == 0 ? 0.0f : o / l);
  if (threadIdx.x == 0) lse[row] = (m + log2f(l)) * 0.6931471805599453f;
}

}  // namespace

void lab(const workbook::cuda::ForwardCall<half>& call) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  workbook::cuda::launch(lab_kernel, workbook::cuda::grid_of(B * H * Nq, "B·H·Nq"), dim3(threads), 0, call.Q, call.K,
                         call.V, call.O, call.lse, Nq, Nk, call.scale * 1.4426950408889634f);
}

}  // namespace ch03
