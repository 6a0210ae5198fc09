// Chapter 3's warm-ups: four small kernels, and their launches.
//
// Source: CUDA C++ Programming Guide, sections "Device Memory Accesses", "Shared Memory" and "Warp Matrix Functions".
// Test it: ./workbook test 3
#include "warmups.hpp"

#include <algorithm>
#include <cstdint>

#include "common/cuda/kernel.hpp"

namespace ch03 {
namespace {

using namespace nvcuda;

/// to (n) = from (n). Each thread copies eight adjacent elements, 16 bytes, and advances by the number of threads in
/// the grid. The remaining n % 8 elements are copied one at a time.
__global__ void copy_kernel(const half* __restrict__ from,  // (n)
                            half* __restrict__ to,          // (n)
                            std::int64_t n) {
  // TODO(3.1) Compute the global thread index and the number of threads. Copy full groups of eight as uint4, then the
  // remaining n % 8 elements (about 6 lines).
  // BEGIN 3.1
  WORKBOOK_TODO(3.1);
  // END 3.1
}

constexpr int side = 32;  // of the tile that one block transposes, with one thread per element

/// to (columns, rows) = the transpose of from (rows, columns). Both are read and written along their rows.
__global__ void transpose_kernel(const float* __restrict__ from,  // (rows, columns)
                                 float* __restrict__ to,          // (columns, rows)
                                 std::int64_t rows, std::int64_t columns) {
  const std::int64_t top = blockIdx.y * std::int64_t(side), left = blockIdx.x * std::int64_t(side);  // of the tile
  const int x = threadIdx.x, y = threadIdx.y;  // x varies fastest: a warp has one y
  // TODO(3.2) Declare a tile in shared memory, padded so that a column is in 32 banks. Each warp reads a row of `from`
  // into a row of the tile and writes a column of the tile to a row of `to`. Guard both (about 6 lines).
  // BEGIN 3.2
  WORKBOOK_TODO(3.2);
  // END 3.2
}

/// C (16, 16) = A (16, 16) · Bᵀ, with B (16, 16), all row-major: one warp, one mma_sync.
__global__ void multiply_transposed_kernel(const half* __restrict__ A,  // (16, 16)
                                           const half* __restrict__ B,  // (16, 16)
                                           float* __restrict__ C) {     // (16, 16)
  // TODO(3.3) Declare three fragments; clear the accumulator, load A and Bᵀ, multiply, store (about 8 lines).
  // BEGIN 3.3
  WORKBOOK_TODO(3.3);
  // END 3.3
}

constexpr int tile_side = 64, padded = tile_side + 8;  // 16 bytes of padding: eight rows start in different banks
constexpr int warps = 4, lanes = 32, width = tile_side / warps;

/// C (64, 64) = A (64, depth) · Bᵀ, with B (64, depth): one block of four warps, tiles of (64, 64) in shared memory.
__global__ void multiply_tiles_kernel(const half* __restrict__ A,  // (64, depth)
                                      const half* __restrict__ B,  // (64, depth)
                                      float* __restrict__ C,       // (64, 64)
                                      std::int64_t depth) {
  __shared__ __align__(32) half A_tile[tile_side][padded], B_tile[tile_side][padded];
  const int first_column = threadIdx.x / lanes * width;  // this warp's first column of C, a row of B
  // TODO(3.4) Clear four accumulators per warp, once. For each group of 64 columns of A and B: load both tiles, 16
  // bytes per access; multiply all rows of A by this warp's 16 rows of B. Two barriers (about 23 lines).
  // BEGIN 3.4
  WORKBOOK_TODO(3.4);
  // END 3.4
}

}  // namespace

void copy(const half* from, half* to, std::int64_t n) {
  const std::int64_t threads = 256, blocks = std::clamp<std::int64_t>((n / 8 + threads - 1) / threads, 1, 1024);
  workbook::cuda::launch(copy_kernel, dim3(blocks), dim3(threads), 0, from, to, n);
}

void transpose(const float* from, float* to, std::int64_t rows, std::int64_t columns) {
  workbook::cuda::launch(transpose_kernel, dim3((columns + side - 1) / side, (rows + side - 1) / side),
                         dim3(side, side), 0, from, to, rows, columns);
}

void multiply_transposed(const half* A, const half* B, float* C) {
  workbook::cuda::launch(multiply_transposed_kernel, dim3(1), dim3(32), 0, A, B, C);
}

void multiply_tiles(const half* A, const half* B, float* C, std::int64_t depth) {
  workbook::cuda::launch(multiply_tiles_kernel, dim3(1), dim3(warps * lanes), 0, A, B, C, depth);
}

}  // namespace ch03
