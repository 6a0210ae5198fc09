// Chapter 3, the lab: attention with one thread block a query. Each thread has every 128th key; what the threads know
// together goes through shared memory. It is slow, and small enough to be read at one go.
//
// See it: ./workbook trace 3 --operation lab --seq 200 --heads 1
// Test it: ./workbook test 3.12
#include "lab.hpp"

#include "common/cuda/dispatch.hpp"

namespace ch03 {
namespace {

constexpr int d = 64, lanes = 32, warps = 4, threads = warps * lanes;

/// Q·K of one query and one key, times scale.
__device__ float score(const half* __restrict__ Q, const half* __restrict__ K, float scale) {  // (d), (d)
  float sum = 0;
  for (int c = 0; c < d; c += 2) {
    const float2 q = __half22float2(*reinterpret_cast<const half2*>(&Q[c])),
                 k = __half22float2(*reinterpret_cast<const half2*>(&K[c]));
    sum += q.x * k.x + q.y * k.y;
  }
  return sum * scale;
}

/// The larger of two, or their sum.
template <bool sums>
__device__ float together(float a, float b) {
  return sums ? a + b : fmaxf(a, b);
}

/// The largest of all threads' values, or their sum, for every thread of the block. `parts` and `whole` lie in shared
/// memory.
template <bool sums>
__device__ float over_block(float value, float (&parts)[warps], float& whole) {
  for (int step = lanes / 2; step > 0; step /= 2)
    value = together<sums>(value, __shfl_xor_sync(0xffffffffu, value, step));  // of the warp
  // TODO(3.12) This works here, and not everywhere. Find what is missing, add it, and take out the line with
  // WORKBOOK_MEND (about 1 line).
  // BEGIN 3.12
  WORKBOOK_MEND(3.12);
  if (threadIdx.x % lanes == 0) parts[threadIdx.x / lanes] = value;
  __syncthreads();  // the part of every warp is there
  if (threadIdx.x == 0) {
    whole = parts[0];
    for (int w = 1; w < warps; ++w) whole = together<sums>(whole, parts[w]);
  }
  return whole;
  // END 3.12
}

/// One block for one query. scale holds log2(e).
__global__ void __launch_bounds__(threads)
    lab_kernel(const half* __restrict__ Q, const half* __restrict__ K,  // (heads, Nq, d), (heads, Nk, d)
               const half* __restrict__ V, half* __restrict__ O,        // (heads, Nk, d), (heads, Nq, d)
               float* __restrict__ lse,                                 // (heads, Nq)
               std::int64_t Nq, std::int64_t Nk, float scale) {
  __shared__ float parts[warps], whole, P[threads];
  const std::int64_t row = blockIdx.x, head = row / Nq;
  Q += row * d, K += head * Nk * d, V += head * Nk * d;
  float m = -INFINITY, l = 0, o = 0;
  for (std::int64_t key = threadIdx.x; key < Nk; key += threads) m = fmaxf(m, score(Q, K + key * d, scale));
  m = over_block<false>(m, parts, whole);
  const float m_safe = m == -INFINITY ? 0 : m;  // all scores may have overflowed
  for (std::int64_t first = 0; first < Nk; first += threads) {
    const std::int64_t key = first + threadIdx.x;
    const float p = key < Nk ? workbook::cuda::exp2_ftz(score(Q, K + key * d, scale) - m_safe) : 0.0f;
    l += p;
    P[threadIdx.x] = p;
    __syncthreads();  // P of these keys is there
    for (int j = 0; j < threads && first + j < Nk && threadIdx.x < d; ++j)
      o += P[j] * __half2float(V[(first + j) * d + threadIdx.x]);
    __syncthreads();  // all have read P: the next keys' may take its place
  }
  l = over_block<true>(l, parts, whole);
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
