// Kernels whose threads do not synchronise as they should: divergent barriers, deadlocks, warp functions without all
// their lanes, uninitialised fragments, failed assertions.
#include "tests/simt/arrays.hpp"
#include "tests/simt/cases.hpp"

namespace zoo {
namespace {

using namespace nvcuda;
using FragmentA = wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major>;
using FragmentB = wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major>;
using FragmentC = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

__global__ void barrier_in_both_branches(float* b) {
  if (threadIdx.x < 32) {
    __syncthreads();  // other: barrier_in_both_branches
  } else {
    __syncthreads();  // bug: barrier_in_both_branches
  }
  b[threadIdx.x] = 1;
}

__global__ void barrier_in_one_branch(float* b) {
  if (threadIdx.x < 32) __syncthreads();  // other: barrier_in_one_branch
  b[threadIdx.x] = 1;
  __syncthreads();  // bug: barrier_in_one_branch
}

__global__ void barrier_for_half_a_warp(float* b) {
  if (threadIdx.x % 32 < 16) __syncthreads();  // other: barrier_for_half_a_warp
  b[threadIdx.x] = 1;
  __syncthreads();  // bug: barrier_for_half_a_warp
}

__global__ void syncwarp_against_syncthreads(float* b) {
  if (threadIdx.x < 16) {
    __syncwarp();  // bug: syncwarp_against_syncthreads
  } else {
    __syncthreads();
  }
  b[threadIdx.x] = 1;
}

__global__ void shuffle_in_a_branch(float* b) {
  float x = threadIdx.x;
  if (threadIdx.x < 16) x = __shfl_xor_sync(0xffffffffu, x, 1);  // bug: shuffle_in_a_branch
  __syncthreads();
  b[threadIdx.x] = x;
}

__global__ void masks_that_overlap(float* b) {
  const int lane = threadIdx.x;
  __syncwarp(lane < 16 ? 0x0001ffffu : 0xffff0000u);  // bug: masks_that_overlap
  __syncthreads();                                    // lane 16 waits here, lanes 0 to 15 wait for lane 16
  b[lane] = 1;
}

__global__ void different_functions(float* b) {
  const int lane = threadIdx.x;
  float x = lane;
  if (lane < 16) {
    x = __shfl_xor_sync(0xffffffffu, x, 1);  // other: different_functions
  } else {
    x = __ballot_sync(0xffffffffu, x > 20);  // bug: different_functions
  }
  b[lane] = x;
}

__global__ void caller_not_in_mask(float* b) {
  const int lane = threadIdx.x;
  b[lane] = __shfl_sync(0x0000ffffu, lane, 0);  // bug: caller_not_in_mask
}

__global__ void shuffle_from_outside(float* b) {
  const int lane = threadIdx.x;
  float x = 0;
  if (lane < 16) x = __shfl_down_sync(0x0000ffffu, float(lane), 8);  // bug: shuffle_from_outside
  b[lane] = x;
}

__global__ void shuffle_after_exit(const float* a, float* b, int n) {
  const int lane = threadIdx.x;
  if (lane >= n) return;
  float x = a[lane];
  for (int offset = 16; offset > 0; offset /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, offset);  // bug: shuffle_after_exit
  b[lane] = x;
}

__global__ void mma_without_all_lanes(float* b) {
  FragmentA x;
  FragmentB y;
  FragmentC c;
  wmma::fill_fragment(x, __float2half(1.f));
  wmma::fill_fragment(y, __float2half(1.f));
  wmma::fill_fragment(c, 0.f);
  b[threadIdx.x] = 1;
  if (threadIdx.x >= 24) return;
  wmma::mma_sync(c, x, y, c);  // bug: mma_without_all_lanes
}

__global__ void matrix_load_in_a_branch(const half* a, float* b) {
  FragmentA x;
  wmma::fill_fragment(x, __float2half(0.f));
  if (threadIdx.x < 16) wmma::load_matrix_sync(x, a, 16);  // bug: matrix_load_in_a_branch
  __syncwarp();
  b[threadIdx.x] = __half2float(x.x[0]);
}

__global__ void matrix_pointer_by_lane(const half* a, float* b) {
  FragmentA x;
  wmma::load_matrix_sync(x, a + threadIdx.x / 16 * 16, 32);  // bug: matrix_pointer_by_lane
  b[threadIdx.x] = __half2float(x.x[0]);
}

__global__ void accumulator_not_cleared(const half* a, float* b) {
  FragmentA x;
  FragmentB y;
  FragmentC c;
  wmma::load_matrix_sync(x, a, 16);
  wmma::load_matrix_sync(y, a, 16);
  wmma::mma_sync(c, x, y, c);  // bug: accumulator_not_cleared
  wmma::store_matrix_sync(b, c, 16, wmma::mem_row_major);
}

__global__ void operand_not_loaded(const half* a, float* b) {
  FragmentA x;
  FragmentB y;
  FragmentC c;
  wmma::load_matrix_sync(x, a, 16);
  wmma::fill_fragment(c, 0.f);
  wmma::mma_sync(c, x, y, c);  // bug: operand_not_loaded
  wmma::store_matrix_sync(b, c, 16, wmma::mem_row_major);
}

__global__ void stored_without_a_product(float* b) {
  FragmentC c;
  for (int e = 0; e < c.num_elements; ++e) c.x[e] *= 0.5f;
  wmma::store_matrix_sync(b, c, 16, wmma::mem_row_major);  // bug: stored_without_a_product
}

__global__ void failed_assertion(const float* a, float* b) {
  assert(a[threadIdx.x] < 20);  // bug: failed_assertion
  b[threadIdx.x] = 1;
}

/// The second block waits for a semaphore value that the first block never writes.
__global__ void never_released(int* semaphores, float* b) {
  if (threadIdx.x == 0) {
    while (*static_cast<volatile int*>(semaphores) != int(blockIdx.x)) {  // bug: never_released
    }
  }
  __syncthreads();
  b[32 * blockIdx.x + threadIdx.x] = 1;
}

constexpr Case cases[] = {
    {"barrier_in_both_branches", planted<barrier_in_both_branches, 64>, "divergent barrier"},
    {"barrier_in_one_branch", planted<barrier_in_one_branch, 64>, "divergent barrier"},
    {"barrier_for_half_a_warp", planted<barrier_for_half_a_warp, 64>, "divergent barrier"},
    {"syncwarp_against_syncthreads", planted<syncwarp_against_syncthreads>, "deadlock"},
    {"shuffle_in_a_branch", planted<shuffle_in_a_branch>, "deadlock"},
    {"masks_that_overlap", planted<masks_that_overlap>, "deadlock"},
    {"different_functions", planted<different_functions>, "divergent warp function"},
    {"caller_not_in_mask", planted<caller_not_in_mask>, "divergent warp function"},
    {"shuffle_from_outside", planted<shuffle_from_outside>, "inactive lane in a warp function"},
    {"shuffle_after_exit", [] { planted<shuffle_after_exit>(20); }, "inactive lane in a warp function"},
    {"mma_without_all_lanes", planted<mma_without_all_lanes>, "inactive lane in a warp function"},
    {"matrix_load_in_a_branch", planted<matrix_load_in_a_branch>, "divergent warp function"},
    {"matrix_pointer_by_lane", planted<matrix_pointer_by_lane>, "divergent warp function"},
    {"accumulator_not_cleared", planted<accumulator_not_cleared, 32, 1024, 256>, "use of an uninitialised fragment"},
    {"operand_not_loaded", planted<operand_not_loaded, 32, 1024, 256>, "use of an uninitialised fragment"},
    {"stored_without_a_product", planted<stored_without_a_product, 32, 0, 256>, "use of an uninitialised fragment"},
    {"failed_assertion", planted<failed_assertion>, "assertion"},
#if !defined(ZOO_FOR_GPU)  // there it would wait for ever
    {"never_released",
     [] {
       const std::vector<int> first(1, 0);
       DeviceArray<int> semaphores("semaphores", std::span<const int>(first));
       auto b = output("b", 64);
       launch(never_released, dim3(2), dim3(32), 0, semaphores.data(), b.data());
     },
     "deadlock", "semaphores"},
#endif
};

}  // namespace

std::span<const Case> warp_cases() {
  return cases;
}

}  // namespace zoo
