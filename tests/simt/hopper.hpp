// Common code of the kernels with Hopper's instructions. For kernel files.
#pragma once

#include "tests/simt/arrays.hpp"

namespace zoo {

/// For the whole block.
__device__ __forceinline__ void make_barrier(workbook::cuda::Mbarrier& barrier, int arrivals) {
  if (threadIdx.x == 0) {
    workbook::cuda::mbarrier_init(barrier, arrivals);
    workbook::cuda::fence_mbarrier_init();
  }
  __syncthreads();
}

/// Loads the tiles A and B of `s` by TMA; the mbarrier `full` counts their bytes.
template <class Shared>
__device__ __forceinline__ void load_operands(Shared& s, const workbook::cuda::TensorMap& A,
                                              const workbook::cuda::TensorMap& B) {
  make_barrier(s.full, 1);
  if (threadIdx.x == 0) {
    workbook::cuda::mbarrier_arrive_expect_tx(s.full, sizeof s.A + sizeof s.B);
    workbook::cuda::cp_async_bulk_tensor_load(s.A, A, s.full, 0, 0);
    workbook::cuda::cp_async_bulk_tensor_load(s.B, B, s.full, 0, 0);
  }
}

/// The locations of D's elements in a matrix (64, n) in device memory.
template <int n>
__device__ void store(float* b, const workbook::cuda::Fragment<float, n / 2>& D) {
  const int warp = threadIdx.x % 128 / 32, quad = threadIdx.x % 32 / 4, in_quad = threadIdx.x % 4;
  for (int j = 0; j < n / 8; ++j)
    for (int e = 0; e < 4; ++e) b[(16 * warp + quad + e / 2 * 8) * n + 8 * j + 2 * in_quad + e % 2] = D[4 * j + e];
}

/// `count` values 0, 1, … 15 in an order that repeats only after 61, exact in every format.
__host__ __device__ inline int small_number(std::size_t i) {
  return int(i * 7 % 61 % 16);
}
template <class T>
DeviceArray<T> small_numbers(const char* name, std::size_t count, int first) {
  std::vector<T> host;
  for (std::size_t i = 0; i < count; ++i) host.push_back(T(float(small_number(i + std::size_t(first)))));
  return DeviceArray<T>(name, std::span<const T>(host));
}

}  // namespace zoo
