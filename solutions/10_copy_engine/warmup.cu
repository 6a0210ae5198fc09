// Chapter 10, the warm-ups: two warps that hand rows over with two mbarriers; one TMA load of a tile; and a ring of
// stages with one producer and two consumers.
//
// Test it: ./workbook test 10.1
#include "common/cuda/dispatch.hpp"
#include "copy_engine.hpp"
#include "ring.hpp"

namespace ch10 {
namespace {

/// Two warps. Warp 0 stores row i of `from` in the slot, one element per lane; warp 1 reads it reversed and writes it
/// to row i of `to`. The slot holds one row: warp 0 waits until row i - 1 has been read, warp 1 until row i has been
/// stored.
__global__ void hand_over_kernel(const float* __restrict__ from,  // (rounds, 32)
                                 float* __restrict__ to,          // (rounds, 32)
                                 int rounds) {
  __shared__ float slot[32];
  __shared__ Mbarrier full, empty;  // phase i ends when all lanes have stored, or read, row i
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // TODO(10.1) One thread initialises both mbarriers; then all threads synchronise. In each round both warps wait,
  // access the slot and arrive (about 15 lines).
  // BEGIN 10.1
  if (threadIdx.x == 0) {
    mbarrier_init(full, 32);
    mbarrier_init(empty, 32);
  }
  __syncthreads();  // the mbarriers are initialised
  for (int i = 0; i < rounds; ++i) {
    if (warp == 0) {
      mbarrier_wait_parity(empty, i % 2 ^ 1);  // of phase i - 1; returns at once in round 0
      slot[lane] = from[32 * i + lane];
      mbarrier_arrive(full);
    } else {
      mbarrier_wait_parity(full, i % 2);  // of phase i
      to[32 * i + lane] = slot[31 - lane];
      mbarrier_arrive(empty);
    }
  }
  // END 10.1
}

/// One tile (32, d) of a tensor (heads, N, d). One warp; lane 0 issues the load.
template <int d>
struct alignas(1024) OneTile {
  Tile<half, 32, d> tile;
  Mbarrier full;
  SHARED_LAYOUT(OneTile, tile, full);
};
template <int d>
__global__ void one_tile_kernel(const __grid_constant__ TensorMap tensor, int first_row, int head,
                                half* __restrict__ memory,  // 32·d
                                half* __restrict__ rows) {  // (32, d)
  auto& smem = workbook::cuda::dynamic_shared<OneTile<d>>();
  const int lane = threadIdx.x;
  if (lane == 0) {
    mbarrier_init(smem.full, 1);
    fence_mbarrier_init();  // visible to TMA
  }
  __syncthreads();
  if (lane == 0) load_tile(smem.tile, tensor, smem.full, first_row, head);
  mbarrier_wait_parity(smem.full, 0);
  for (int i = lane; i < 32 * d; i += 32) {
    memory[i] = (&smem.tile[0][0][0])[i];
    rows[i] = swizzled(smem.tile, i / d, i % d / 8)[i % 8];
  }
}

/// Warps 0 and 1 sum the columns of a tensor (N, 64), 32 columns each; warp 2 is the producer.
__global__ void sum_columns_kernel(const __grid_constant__ TensorMap tensor, int tiles,
                                   float* __restrict__ sums) {  // (64)
  auto& smem = workbook::cuda::dynamic_shared<Shared<half, 64, 16, 2>>();
  make_barriers(smem);
  Position position;
  if (threadIdx.x / 32 == 2) {
    for (int j = 0; threadIdx.x % 32 == 0 && j < tiles; ++j) fill(smem, position, tensor, 16 * j, 0);
    return;
  }
  const int column = threadIdx.x;
  float sum = 0;
  for (int j = 0; j < tiles; ++j) {
    wait_until_full(smem, position);
    for (int row = 0; row < 16; ++row)
      sum += __half2float(swizzled(smem.ring[position.stage], row, column / 8)[column % 8]);
    release(smem, position);
  }
  sums[column] = sum;
}

}  // namespace

void hand_over(const float* from, float* to, int rounds) {
  workbook::cuda::launch(hand_over_kernel, dim3(1), dim3(64), 0, from, to, rounds);
}
void one_tile(const half* tensor, int heads, int N, int d, int first_row, int head, half* memory, half* tile) {
  workbook::cuda::with_head_dim(d, [&](auto d) {
    workbook::cuda::launch(one_tile_kernel<d>, dim3(1), dim3(32), sizeof(OneTile<d>),
                           tile_map<half, 32, d>(tensor, heads, N), first_row, head, memory, tile);
  });
}
void sum_columns(const half* tensor, int N, float* sums) {
  workbook::cuda::launch(sum_columns_kernel, dim3(1), dim3(96), sizeof(Shared<half, 64, 16, 2>),
                         tile_map<half, 16, 64>(tensor, 1, N), (N + 15) / 16, sums);
}

}  // namespace ch10
