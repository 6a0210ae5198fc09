// Chapter 8, given: one mma whose operands a warp loads from device memory at exercise 8.1's positions. A second kernel
// writes these positions as a table.
//
// Test it: ./workbook test 8.1
#include "fragments.hpp"
#include "registers.hpp"

namespace ch08 {
namespace {

/// Two adjacent elements of a lane as one register, the first one in the lower 16 bits.
__device__ std::uint32_t pair(const half* matrix, int columns, Position low, Position high) {
  return std::uint32_t(__half_as_ushort(matrix[low.row * columns + low.column])) |
         std::uint32_t(__half_as_ushort(matrix[high.row * columns + high.column])) << 16;
}

__global__ void multiply_kernel(const half* __restrict__ A,  // (16, 16)
                                const half* __restrict__ B,  // (16, 8)
                                float* __restrict__ D) {     // (16, 8)
  const int lane = threadIdx.x;
  Fragment<half, 4> A_part;
  Fragment<half, 2> B_part;
  Fragment<float, 4> D_part;
  D_part.fill(0);
#pragma unroll
  for (int i = 0; i < 4; ++i) A_part[i] = pair(A, 16, position_in_A(lane, 2 * i), position_in_A(lane, 2 * i + 1));
#pragma unroll
  for (int i = 0; i < 2; ++i) B_part[i] = pair(B, 8, position_in_B(lane, 2 * i), position_in_B(lane, 2 * i + 1));
  workbook::cuda::mma_m16n8k16(D_part, A_part, B_part[0], B_part[1]);
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const Position position = position_in_D(lane, e);
    D[position.row * 8 + position.column] = D_part[e];
  }
}

__global__ void fragment_layout_kernel(std::int32_t* rows,       // (32, 16)
                                       std::int32_t* columns) {  // (32, 16)
  const int lane = threadIdx.x;
  for (int i = 0; i < 16; ++i) {
    const Position position = i < 8    ? position_in_A(lane, i)
                              : i < 12 ? position_in_B(lane, i - 8)
                                       : position_in_D(lane, i - 12);
    rows[16 * lane + i] = position.row;
    columns[16 * lane + i] = position.column;
  }
}

}  // namespace

void multiply(const half* A, const half* B, float* D) {
  workbook::cuda::launch(multiply_kernel, dim3(1), dim3(32), 0, A, B, D);
}
void fragment_layout(std::int32_t* rows, std::int32_t* columns) {
  workbook::cuda::launch(fragment_layout_kernel, dim3(1), dim3(32), 0, rows, columns);
}

}  // namespace ch08
