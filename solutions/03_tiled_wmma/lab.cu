// Chapter 3, the lab: attention with one thread block a query. Warp 0 fetches the query; each thread of the other three
// warps has every 96th key. What they share goes through shared memory. It is slow, and small enough to be read at one
// go.
//
// See it: ./workbook trace 3 --operation lab --seq 130 --heads 1
// Test it: ./workbook test 3.13
#include "lab.hpp"

#include "common/cuda/dispatch.hpp"

namespace ch03 {
namespace {

constexpr int d = 64, lanes = 32, warps = 4, threads = warps * lanes, keys = threads - lanes;

/// The score of one key. `query` lies in shared memory, times scale.
__device__ float score(const float (&query)[d], const half* __restrict__ K) {  // (d), (d)
  float sum = 0;
  for (int c = 0; c < d; c += 2) {
    const float2 k = __half22float2(*reinterpret_cast<const half2*>(&K[c]));
    sum += query[c] * k.x + query[c + 1] * k.y;
  }
  return sum;
}

/// The larger of two, or their sum.
template <bool sums>
__device__ float together(float a, float b) {
  return sums ? a + b : fmaxf(a, b);
}

/// The largest of all threads' values, or their sum, for every thread of the block. `parts` lies in shared memory.
template <bool sums>
__device__ float over_block(float value, float (&parts)[warps]) {
  for (int step = lanes / 2; step > 0; step /= 2)
    value = together<sums>(value, __shfl_xor_sync(0xffffffffu, value, step));  // of the warp
  if (threadIdx.x % lanes == 0) parts[threadIdx.x / lanes] = value;
  __syncthreads();  // the part of every warp is there
  value = parts[0];
  for (int w = 1; w < warps; ++w) value = together<sums>(value, parts[w]);
  __syncthreads();  // all have read the parts: the next ones may take their place
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
  const int own_key = int(threadIdx.x) - lanes;  // of `keys`; negative for warp 0, which has none
  Q += row * d, K += head * Nk * d, V += head * Nk * d;
  // TODO(3.13) This works here, and not everywhere. Find what is missing, add it, and take out the line with
  // WORKBOOK_MEND (about 1 line).
  // STUB: WORKBOOK_MEND(3.13);
  // STUB: if (threadIdx.x < lanes)
  // STUB:   for (int c = threadIdx.x; c < d; c += lanes) query[c] = __half2float(Q[c]) * scale;
  // BEGIN 3.13
  if (threadIdx.x < lanes)
    for (int c = threadIdx.x; c < d; c += lanes) query[c] = __half2float(Q[c]) * scale;
  __syncthreads();  // the query is there for all warps
  // END 3.13
  float m = -INFINITY, l = 0, o = 0;
  for (std::int64_t key = own_key; key < Nk && own_key >= 0; key += keys) m = fmaxf(m, score(query, K + key * d));
  m = over_block<false>(m, parts);
  const float m_safe = m == -INFINITY ? 0 : m;  // all scores may have overflowed
  for (std::int64_t first = 0; first < Nk; first += keys) {
    if (own_key >= 0) {
      const std::int64_t key = first + own_key;
      const float p = key < Nk ? workbook::cuda::exp2_ftz(score(query, K + key * d) - m_safe) : 0.0f;
      l += p;
      P[own_key] = p;
    }
    __syncthreads();  // P of these keys is there
    for (int j = 0; j < keys && first + j < Nk && threadIdx.x < d; ++j)
      o += P[j] * __half2float(V[(first + j) * d + threadIdx.x]);
    __syncthreads();  // all have read P: the next keys' may take its place
  }
  l = over_block<true>(l, parts);
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
