// Chapter 11, given: two matmuls by one warpgroup. TMA loads the operands, and exercise 11.1's descriptors address
// them. A third kernel writes the accumulator's layout as a table.
//
// Test it: ./workbook test 11.1
#include <stdexcept>
#include <string>

#include "tiles.hpp"
#include "wgmma.hpp"

namespace ch11 {
namespace {

using workbook::cuda::Mbarrier, workbook::cuda::TensorMap;

template <int d>
struct alignas(pattern_bytes) Operands {
  Tile<half, 64, 64> A;
  Tile<half, d, 64> wide_A, B;
  Mbarrier full;
  SHARED_LAYOUT(Operands, A, wide_A, B, full);
};

/// C (64, 64) = A Bᵀ with A (64, d); or, if MN_major, C (64, d) = A B with A (64, 64). B is (64, d).
template <int d, bool MN_major>
__global__ void __launch_bounds__(128)
    multiply_kernel(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, float* __restrict__ C) {
  auto& smem = workbook::cuda::dynamic_shared<Operands<d>>();
  if (threadIdx.x == 0) {
    workbook::cuda::mbarrier_init(smem.full, 1);
    workbook::cuda::fence_mbarrier_init();
    const int bytes = MN_major ? sizeof smem.A + sizeof smem.B : sizeof smem.wide_A + sizeof smem.B;
    workbook::cuda::mbarrier_arrive_expect_tx(smem.full, bytes);
    void* const destination = MN_major ? static_cast<void*>(smem.A) : smem.wide_A;
    workbook::cuda::cp_async_bulk_tensor_load(destination, A, smem.full, 0, 0, 0);
    workbook::cuda::cp_async_bulk_tensor_load(smem.B, B, smem.full, 0, 0, 0);
  }
  __syncthreads();  // the barrier is initialised
  workbook::cuda::mbarrier_wait_parity(smem.full, 0);
  constexpr int columns = MN_major ? d : 64;
  Fragment<float, columns / 2> D;
  workbook::cuda::wgmma_fence();
#pragma unroll
  for (int k = 0; k < (MN_major ? 64 : d) / 16; ++k) {
    if constexpr (MN_major)
      workbook::cuda::wgmma_mma_async<half, workbook::cuda::Major::n>(D, K_major_descriptor(smem.A, k),
                                                                      MN_major_descriptor(smem.B, k), k > 0);
    else
      workbook::cuda::wgmma_mma_async<half>(D, K_major_descriptor(smem.wide_A, k), K_major_descriptor(smem.B, k),
                                            k > 0);
  }
  workbook::cuda::wgmma_commit_group();
  workbook::cuda::wgmma_wait_group<0>(D);
#pragma unroll
  for (int e = 0; e < columns / 2; ++e) {
    const auto [row, column] = coordinates_in_D(threadIdx.x, e);
    C[row * columns + column] = D[e];
  }
}

__global__ void accumulator_layout_kernel(std::int32_t* rows,       // (128, 32)
                                          std::int32_t* columns) {  // (128, 32)
  for (int e = 0; e < 32; ++e) {
    const auto [row, column] = coordinates_in_D(threadIdx.x, e);
    rows[32 * threadIdx.x + e] = row;
    columns[32 * threadIdx.x + e] = column;
  }
}

/// The tensor map of a matrix (64, d), viewed as (d / 64, 64, 64), the layout of a Tile.
TensorMap make_tensor_map(const half* matrix, int d) {
  return workbook::cuda::tensor_map(matrix, {64, 64, std::uint64_t(d / 64)}, {2 * std::uint64_t(d), 128},
                                    {64, 64, std::uint32_t(d / 64)}, Swizzle::bytes_128);
}

template <int d, bool MN_major>
void start(const half* A, const half* B, float* C) {
  workbook::cuda::launch(multiply_kernel<d, MN_major>, dim3(1), dim3(128), sizeof(Operands<d>),
                         make_tensor_map(A, MN_major ? 64 : d), make_tensor_map(B, d), C);
}

template <bool MN_major>
void multiply(const half* A, const half* B, float* C, int d) {
  if (d != 64 && d != 128)
    throw std::invalid_argument("d = " + std::to_string(d) + " is not supported; allowed are 64 and 128");
  d == 64 ? start<64, MN_major>(A, B, C) : start<128, MN_major>(A, B, C);
}

}  // namespace

void multiply_K_major(const half* A, const half* B, float* C, int d) {
  multiply<false>(A, B, C, d);
}
void multiply_MN_major(const half* A, const half* B, float* C, int d) {
  multiply<true>(A, B, C, d);
}
void accumulator_layout(std::int32_t* rows, std::int32_t* columns) {
  workbook::cuda::launch(accumulator_layout_kernel, dim3(1), dim3(128), 0, rows, columns);
}

}  // namespace ch11
