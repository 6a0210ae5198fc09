// Chapter 12, given: the kernels that round Q, K and V from fp16 to e4m3. One thread block processes one block of 128
// rows of a head.
//
// Test it: ./workbook test 12.1
#include "rounding.hpp"

#include <stdexcept>
#include <string>

#include "common/cuda/dispatch.hpp"

namespace ch12 {
namespace {

template <int d, bool transposed>
__global__ void __launch_bounds__(rounding_threads)
    round_kernel(const half* __restrict__ tensor,  // (heads, N, d)
                 E4m3* __restrict__ codes,         // (heads, N, d), or (heads, d, 128·blocks)
                 float* __restrict__ scales,       // (heads, blocks)
                 int N, int blocks, bool rotated) {
  auto& smem = workbook::cuda::dynamic_shared<RoundingShared<d>>();
  const std::int64_t head = blockIdx.x / blocks;
  const int block = blockIdx.x % blocks, first = block * block_rows;
  BlockFragment<d> fragment;
  load_fragment(fragment, tensor + head * N * d, first, N);
  if (rotated) rotate(fragment);
  const float scale = scale_for(block_max(fragment, smem));
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  if constexpr (transposed) {
    const std::int64_t keys = std::int64_t(blocks) * block_rows;
    store_transposed(codes + head * d * keys + first, fragment, scale, keys, smem);
  } else {
    store_rows(codes + head * N * d, fragment, scale, first, N);
  }
}

template <bool transposed>
void start(const half* tensor, Rounded to, std::int64_t heads, std::int64_t N, int d, bool rotated) {
  const dim3 grid = workbook::cuda::grid_of(heads * block_count(N), "B·H·⌈N/128⌉");
  const auto launch = [&](auto head_dim) {
    workbook::cuda::launch(round_kernel<head_dim, transposed>, grid, dim3(rounding_threads),
                           sizeof(RoundingShared<head_dim>), tensor, to.codes, to.scales, int(N), int(block_count(N)),
                           rotated);
  };
  if (d == 64) return launch(std::integral_constant<int, 64>());
  if (d == 128) return launch(std::integral_constant<int, 128>());
  throw std::invalid_argument("d = " + std::to_string(d) + " is not supported; allowed are 64 and 128");
}

__global__ void key_order_kernel(std::int32_t* keys) {  // (128)
  keys[threadIdx.x] = key_at(int(threadIdx.x));
}

}  // namespace

void round_rows(const half* tensor, Rounded to, std::int64_t heads, std::int64_t N, int d, bool rotated) {
  start<false>(tensor, to, heads, N, d, rotated);
}
void round_and_transpose(const half* tensor, Rounded to, std::int64_t heads, std::int64_t N, int d) {
  start<true>(tensor, to, heads, N, d, false);
}
void key_order(std::int32_t* keys) {
  workbook::cuda::launch(key_order_kernel, dim3(1), dim3(block_rows), 0, keys);
}

}  // namespace ch12
