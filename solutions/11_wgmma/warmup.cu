// Chapter 11, given: two products by one group of four warps, whose operands TMA brings and exercise 11.1's
// functions name, and a table of the places in D.
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

/// C (64, 64) = A Bᵀ with A (64, d), or with by_rows C (64, d) = A B with A (64, 64); B (64, d).
template <int d, bool by_rows>
__global__ void __launch_bounds__(128)
    multiply_kernel(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, float* __restrict__ C) {
  auto& smem = workbook::cuda::dynamic_shared<Operands<d>>();
  if (threadIdx.x == 0) {
    workbook::cuda::mbarrier_init(smem.full, 1);
    workbook::cuda::fence_mbarrier_init();
    const int bytes = by_rows ? sizeof smem.A + sizeof smem.B : sizeof smem.wide_A + sizeof smem.B;
    workbook::cuda::mbarrier_arrive_expect_tx(smem.full, bytes);
    void* const to = by_rows ? static_cast<void*>(smem.A) : smem.wide_A;
    workbook::cuda::cp_async_bulk_tensor_load(to, A, smem.full, 0, 0, 0);
    workbook::cuda::cp_async_bulk_tensor_load(smem.B, B, smem.full, 0, 0, 0);
  }
  __syncthreads();  // the barrier is there
  workbook::cuda::mbarrier_wait_parity(smem.full, 0);
  constexpr int columns = by_rows ? d : 64;
  Fragment<float, columns / 2> D;
  workbook::cuda::wgmma_fence();
#pragma unroll
  for (int k = 0; k < (by_rows ? 64 : d) / 16; ++k) {
    if constexpr (by_rows)
      workbook::cuda::wgmma_mma_async<half, workbook::cuda::Major::n>(D, sixteen_columns(smem.A, k),
                                                                      sixteen_rows(smem.B, k), k > 0);
    else
      workbook::cuda::wgmma_mma_async<half>(D, sixteen_columns(smem.wide_A, k), sixteen_columns(smem.B, k), k > 0);
  }
  workbook::cuda::wgmma_commit_group();
  workbook::cuda::wgmma_wait_group<0>(D);
#pragma unroll
  for (int e = 0; e < columns / 2; ++e) {
    const Place place = place_in_D(threadIdx.x, e);
    C[place.row * columns + place.column] = D[e];
  }
}

__global__ void places_kernel(std::int32_t* rows,       // (128, 32)
                              std::int32_t* columns) {  // (128, 32)
  for (int e = 0; e < 32; ++e) {
    const Place place = place_in_D(threadIdx.x, e);
    rows[32 * threadIdx.x + e] = place.row;
    columns[32 * threadIdx.x + e] = place.column;
  }
}

/// A matrix (64, d) as (d / 64, 64, 64), the layout of a Tile.
TensorMap map_of(const half* matrix, int d) {
  return workbook::cuda::tensor_map(matrix, {64, 64, std::uint64_t(d / 64)}, {2 * std::uint64_t(d), 128},
                                    {64, 64, std::uint32_t(d / 64)}, Swizzle::bytes_128);
}

template <int d, bool by_rows>
void start(const half* A, const half* B, float* C) {
  workbook::cuda::launch(multiply_kernel<d, by_rows>, dim3(1), dim3(128), sizeof(Operands<d>),
                         map_of(A, by_rows ? 64 : d), map_of(B, d), C);
}

template <bool by_rows>
void multiply(const half* A, const half* B, float* C, int d) {
  if (d != 64 && d != 128)
    throw std::invalid_argument("d = " + std::to_string(d) + " is not supported; allowed are 64 and 128");
  d == 64 ? start<64, by_rows>(A, B, C) : start<128, by_rows>(A, B, C);
}

}  // namespace

void multiply_columns(const half* A, const half* B, float* C, int d) {
  multiply<false>(A, B, C, d);
}
void multiply_rows(const half* A, const half* B, float* C, int d) {
  multiply<true>(A, B, C, d);
}
void places(std::int32_t* rows, std::int32_t* columns) {
  workbook::cuda::launch(places_kernel, dim3(1), dim3(128), 0, rows, columns);
}

}  // namespace ch11
