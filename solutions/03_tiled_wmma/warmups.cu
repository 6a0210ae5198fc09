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
  const std::int64_t thread = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x;
  const std::int64_t threads = gridDim.x * std::int64_t(blockDim.x);
  for (std::int64_t i = thread; i < n / 8; i += threads)
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  for (std::int64_t i = n / 8 * 8 + thread; i < n; i += threads) to[i] = from[i];
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
  __shared__ float tile[side][side + 1];
  if (top + y < rows && left + x < columns) tile[y][x] = from[(top + y) * columns + left + x];
  __syncthreads();  // the tile is complete: each thread reads another thread's element
  if (left + y < columns && top + x < rows) to[(left + y) * rows + top + x] = tile[x][y];
  // END 3.2
}

/// C (16, 16) = A (16, 16) · Bᵀ, with B (16, 16), all row-major: one warp, one mma_sync.
__global__ void multiply_transposed_kernel(const half* __restrict__ A,  // (16, 16)
                                           const half* __restrict__ B,  // (16, 16)
                                           float* __restrict__ C) {     // (16, 16)
  // TODO(3.3) Declare three fragments; clear the accumulator, load A and Bᵀ, multiply, store (about 8 lines).
  // BEGIN 3.3
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
  wmma::fill_fragment(c, 0.0f);
  wmma::load_matrix_sync(a, A, 16);
  wmma::load_matrix_sync(b, B, 16);
  wmma::mma_sync(c, a, b, c);
  wmma::store_matrix_sync(C, c, 16, wmma::mem_row_major);
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
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c[tile_side / 16];
  for (auto& each : c) wmma::fill_fragment(each, 0.0f);
  for (std::int64_t offset = 0; offset < depth; offset += tile_side) {
    for (int i = threadIdx.x; i < tile_side * tile_side / 8; i += warps * lanes) {
      const int y = i / (tile_side / 8), x = i % (tile_side / 8) * 8;
      *reinterpret_cast<uint4*>(&A_tile[y][x]) = *reinterpret_cast<const uint4*>(&A[y * depth + offset + x]);
      *reinterpret_cast<uint4*>(&B_tile[y][x]) = *reinterpret_cast<const uint4*>(&B[y * depth + offset + x]);
    }
    __syncthreads();  // both tiles are complete
    for (int k = 0; k < tile_side; k += 16) {
      wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
      wmma::load_matrix_sync(b, &B_tile[first_column][k], padded);
      for (int i = 0; i < tile_side / 16; ++i) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
        wmma::load_matrix_sync(a, &A_tile[16 * i][k], padded);
        wmma::mma_sync(c[i], a, b, c[i]);
      }
    }
    __syncthreads();  // all warps have read the tiles: they may be overwritten
  }
  for (int i = 0; i < tile_side / 16; ++i)
    wmma::store_matrix_sync(&C[16 * i * tile_side + first_column], c[i], tile_side, wmma::mem_row_major);
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
