// Kernels with one mistake each in the use of Hopper's instructions: mbarriers and named barriers, TMA copies of boxes,
// ring buffers, wgmma, setmaxnreg. `m` is the mistake of an instance of a kernel.
#include "tests/simt/cases.hpp"
#include "tests/simt/hopper.hpp"

// A line that several mistakes share has the marks of all of them, and stays one line.
// clang-format off

namespace zoo {
namespace {

using namespace workbook::cuda;

// --- mbarriers -------------------------------------------------------------------------------------------------------

__global__ void barrier_never_made(float* b) {
  __shared__ Mbarrier barrier;
  mbarrier_arrive(barrier);  // bug: barrier_never_made
  b[threadIdx.x] = 1;
}

__global__ void barrier_made_twice(float* b) {
  __shared__ Mbarrier barrier;
  mbarrier_init(barrier, 64);  // bug: barrier_made_twice other: barrier_made_twice
  __syncthreads();
  mbarrier_arrive(barrier);
  b[threadIdx.x] = 1;
}

__global__ void barrier_without_arrivals(float* b) {
  __shared__ Mbarrier barrier;
  if (threadIdx.x == 0) mbarrier_init(barrier, 0);  // bug: barrier_without_arrivals
  b[threadIdx.x] = 1;
}

__global__ void barrier_used_too_early(float* b) {
  __shared__ Mbarrier barrier;
  if (threadIdx.x == 0) mbarrier_init(barrier, 64);  // other: barrier_used_too_early
  mbarrier_arrive(barrier);  // bug: barrier_used_too_early
  mbarrier_wait_parity(barrier, 0);  // bug: barrier_used_too_early
  b[threadIdx.x] = 1;
}

__global__ void too_few_arrivals(float* b) {
  __shared__ Mbarrier barrier;
  make_barrier(barrier, 65);
  mbarrier_arrive(barrier);
  mbarrier_wait_parity(barrier, 0);  // bug: too_few_arrivals
  b[threadIdx.x] = 1;
}

__global__ void one_lane_counted(float* b) {
  __shared__ Mbarrier left;
  __shared__ float box[32];
  if (threadIdx.x < 32) box[threadIdx.x] = 1;
  make_barrier(left, 1);
  if (threadIdx.x < 32) {
    mbarrier_wait_parity(left, 0);
    box[threadIdx.x] = 2;  // bug: one_lane_counted
    b[threadIdx.x] = 1;
  } else if (threadIdx.x < 63) {
    b[threadIdx.x] = box[threadIdx.x - 32];  // other: one_lane_counted
    mbarrier_arrive(left);
  }
}

__global__ void phase_that_never_comes(float* b) {
  __shared__ Mbarrier barrier;
  make_barrier(barrier, 64);
  mbarrier_arrive(barrier);
  mbarrier_wait_parity(barrier, 0);
  mbarrier_wait_parity(barrier, 1);  // bug: phase_that_never_comes
  b[threadIdx.x] = 1;
}

// --- Copies ----------------------------------------------------------------------------------------------------------

struct Two {
  float K[8][32], V[8][32];
  Mbarrier K_full, V_full;
  SHARED_LAYOUT(Two, K, V, K_full, V_full);
};

enum class Copy {
  barrier_not_fenced,
  too_many_arrivals,
  not_waited_for,
  waited_for_by_one_warp,
  wait_on_the_wrong_barrier,
  too_few_bytes,
  too_many_bytes,
  bytes_not_expected,
  every_lane_copies,
  barrier_of_another_copy,
  misaligned,
  larger_than_the_tile,
  wrong_coordinates,
  past_the_tensor,
  before_the_tensor,
  nothing_in_the_map,
};

template <Copy m>
__global__ void copies(const __grid_constant__ TensorMap a, float* b) {
  Two& s = dynamic_shared<Two>();
  if (threadIdx.x == 0) {
    mbarrier_init(s.K_full, 1);  // other: barrier_not_fenced
    mbarrier_init(s.V_full, 1);                                     // other: barrier_not_fenced
    if constexpr (m != Copy::barrier_not_fenced) fence_mbarrier_init();
  }
  __syncthreads();
  constexpr int bytes = sizeof s.K + (m == Copy::too_few_bytes ? -128 : m == Copy::too_many_bytes ? 128 : 0);
  if (threadIdx.x < (m == Copy::every_lane_copies ? 2 : 1)) {
    if constexpr (m == Copy::bytes_not_expected) {
      mbarrier_arrive(s.K_full);
    } else if (threadIdx.x == 0) {
      mbarrier_arrive_expect_tx(s.K_full, bytes);  // bug: too_many_bytes other: too_few_bytes
    }
    if constexpr (m == Copy::too_many_arrivals) mbarrier_arrive(s.K_full);  // bug: too_many_arrivals
    float* const to = m == Copy::misaligned ? &s.K[0][4] : m == Copy::larger_than_the_tile ? &s.K[1][0] : &s.K[0][0];
    if constexpr (m == Copy::wrong_coordinates) {
      cp_async_bulk_tensor_load(to, a, s.K_full, 0, 0, 0);  // bug: wrong_coordinates
    } else {
      cp_async_bulk_tensor_load(to, a, s.K_full, 0, m == Copy::nothing_in_the_map ? 16 : 0);  // bug: barrier_not_fenced bug: too_few_bytes bug: bytes_not_expected bug: every_lane_copies bug: misaligned bug: larger_than_the_tile bug: past_the_tensor bug: before_the_tensor bug: nothing_in_the_map other: not_waited_for other: waited_for_by_one_warp other: every_lane_copies other: barrier_of_another_copy
    }
    if (threadIdx.x == 0) {
      Mbarrier& full = m == Copy::barrier_of_another_copy ? s.K_full : s.V_full;
      mbarrier_arrive_expect_tx(full, sizeof s.V);  // bug: barrier_of_another_copy
      cp_async_bulk_tensor_load(s.V, a, full, 0, 8);  // bug: barrier_not_fenced other: wait_on_the_wrong_barrier
    }
  }
  if (m != Copy::not_waited_for && (m != Copy::waited_for_by_one_warp || threadIdx.x < 32)) {
    mbarrier_wait_parity(s.K_full, 0);  // other: too_many_bytes
  }
  float sum = s.K[threadIdx.x / 32][threadIdx.x % 32];  // bug: not_waited_for bug: waited_for_by_one_warp bug: bytes_not_expected
  if constexpr (m != Copy::wait_on_the_wrong_barrier) mbarrier_wait_parity(s.V_full, 0);
  sum += s.V[threadIdx.x / 32][threadIdx.x % 32];  // bug: wait_on_the_wrong_barrier
  b[threadIdx.x] = sum;
}
template <Copy m>
void run_copies() {
  auto a = floats("a", 16 * 32);
  auto b = output("b", 64);
  const std::uint64_t rows = m == Copy::past_the_tensor ? 17 : 16;
  launch(copies<m>, dim3(1), dim3(64), sizeof(Two),
         tensor_map(a.data(), {32, rows}, {128}, {32, 8}, Swizzle::none,
                    m == Copy::before_the_tensor || m == Copy::nothing_in_the_map ? 128 : 0),
         b.data());
  synchronize();
}

enum class Store { without_proxy_fence, without_barrier, not_committed, not_waited_for, overwritten };

template <Store m>
__global__ void stores(const __grid_constant__ TensorMap b) {
  __shared__ __align__(128) float tile[8][32];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) {
    tile[i / 32][i % 32] = i;  // other: without_proxy_fence other: without_barrier bug: without_barrier
  }
  if constexpr (m != Store::without_proxy_fence) fence_proxy_async();
  if constexpr (m != Store::without_barrier) __syncthreads();
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_store(b, tile, 0, 0);  // bug: without_proxy_fence bug: without_barrier bug: not_committed bug: store_not_waited_for other: overwritten other: without_barrier
    if constexpr (m != Store::not_committed) cp_async_bulk_commit_group();
    if constexpr (m == Store::overwritten) tile[0][0] = 7;  // bug: overwritten
    if constexpr (m != Store::not_waited_for) cp_async_bulk_wait_group_read<0>();
  }
}
template <Store m>
void run_stores() {
  auto b = output("b", 8 * 32);
  launch(stores<m>, dim3(1), dim3(64), 0, tensor_map(b.data(), {32, 8}, {128}, {32, 8}));
  synchronize();
}

// --- Ring buffers ----------------------------------------------------------------------------------------------------

struct Ring {
  float tile[2][4][32];
  Mbarrier full[2], empty[2];
  SHARED_LAYOUT(Ring, tile, full, empty);
};
enum class InRing {
  parity_not_flipped,
  parity_of_the_phase_before,
  producer_parity_not_flipped,
  stage_not_released,
  released_before_reading,
  left_without_syncwarp,
  stage_never_released,
  stage_of_the_next_tile,
  one_warp_counted,
};

template <InRing m>
__global__ void ring(const __grid_constant__ TensorMap a, float* b, int tiles) {
  Ring& s = dynamic_shared<Ring>();
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) mbarrier_init(s.full[i], 1), mbarrier_init(s.empty[i], m == InRing::one_warp_counted ? 1 : 2);
    fence_mbarrier_init();
  }
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == 2) {
    for (int j = 0; lane == 0 && j < tiles; ++j) {
      const int parity = m == InRing::producer_parity_not_flipped ? 1 : (j / 2 & 1) ^ 1;
      if constexpr (m != InRing::stage_not_released) mbarrier_wait_parity(s.empty[j % 2], parity);  // bug: stage_never_released bug: parity_not_flipped bug: one_warp_counted
      mbarrier_arrive_expect_tx(s.full[j % 2], sizeof s.tile[0]);  // bug: one_warp_counted bug: producer_parity_not_flipped bug: stage_not_released bug: parity_not_flipped bug: parity_of_the_phase_before
      cp_async_bulk_tensor_load(s.tile[j % 2], a, s.full[j % 2], 0, 4 * j);  // bug: one_warp_counted other: one_warp_counted bug: stage_of_the_next_tile other: stage_of_the_next_tile bug: producer_parity_not_flipped bug: stage_not_released bug: released_before_reading bug: left_without_syncwarp other: parity_not_flipped other: parity_of_the_phase_before bug: parity_not_flipped bug: parity_of_the_phase_before other: producer_parity_not_flipped other: stage_not_released
    }
  } else {
    float sum = 0;
    for (int j = 0; j < tiles; ++j) {
      const int parity = m == InRing::parity_not_flipped ? 0 : (j / 2 & 1) ^ (m == InRing::parity_of_the_phase_before);
      mbarrier_wait_parity(s.full[j % 2], parity);  // bug: one_warp_counted bug: stage_never_released bug: parity_of_the_phase_before bug: parity_not_flipped
      if (m == InRing::released_before_reading && lane == 0) mbarrier_arrive(s.empty[j % 2]);
      for (int r = 0; r < 4; ++r) {
        sum += s.tile[(j + (m == InRing::stage_of_the_next_tile)) % 2][r][lane];  // bug: stage_of_the_next_tile other: stage_of_the_next_tile bug: one_warp_counted other: one_warp_counted bug: parity_not_flipped bug: parity_of_the_phase_before other: producer_parity_not_flipped other: stage_not_released other: released_before_reading other: left_without_syncwarp other: parity_not_flipped other: parity_of_the_phase_before bug: released_before_reading bug: stage_not_released bug: producer_parity_not_flipped
      }
      if (m != InRing::left_without_syncwarp) __syncwarp();
      if (m != InRing::released_before_reading && m != InRing::stage_never_released && lane == 0) mbarrier_arrive(s.empty[j % 2]);
    }
    b[threadIdx.x] = sum;
  }
}
template <InRing m>
void run_ring() {
  auto a = floats("a", 32 * 4 * 6);
  auto b = output("b", 64);
  launch(ring<m>, dim3(1), dim3(96), sizeof(Ring), tensor_map(a.data(), {32, 24}, {128}, {32, 4}), b.data(), 6);
  synchronize();
}

// --- Named barriers, registers ---------------------------------------------------------------------------------------

__global__ void named_counts_differ(float* b) {
  if (threadIdx.x < 32) {
    barrier_sync(1, 64);  // bug: named_counts_differ other: named_counts_differ
  } else {
    barrier_sync(1, 96);  // bug: named_counts_differ other: named_counts_differ
  }
  b[threadIdx.x] = 1;
}
__global__ void named_number_zero(float* b) {
  barrier_sync(0, 64);  // bug: named_number_zero
  b[threadIdx.x] = 1;
}
__global__ void named_count_odd(float* b) {
  barrier_sync(1, 48);  // bug: named_count_odd
  b[threadIdx.x] = 1;
}
__global__ void named_too_few_come(float* b) {
  if (threadIdx.x < 32) barrier_sync(1, 64);  // bug: named_too_few_come
  b[threadIdx.x] = 1;
}
__global__ void named_half_a_warp(float* b) {
  if (threadIdx.x % 32 < 16) barrier_sync(1, 32);  // bug: named_half_a_warp
  __syncthreads();
  b[threadIdx.x] = 1;
}
__global__ void named_twice(float* b) {
  if (threadIdx.x < 32) {
    barrier_arrive(1, 64);  // other: named_twice
    __syncwarp();
    barrier_arrive(1, 64);  // bug: named_twice
  }
  b[threadIdx.x] = 1;
}
__global__ void named_orders_too_few(float* b) {
  __shared__ float value[96];
  value[threadIdx.x] = threadIdx.x;                    // other: named_orders_too_few
  if (threadIdx.x < 64) barrier_sync(1, 64);           // the third warp does not arrive
  b[threadIdx.x] = value[(threadIdx.x + 32) % 96];  // bug: named_orders_too_few
}

__global__ void __launch_bounds__(512, 1) registers_never_given_back(float* b) {
  if (threadIdx.x >= 128) setmaxnreg_inc<160>();  // bug: registers_never_given_back
  b[threadIdx.x] = 1;
}
#if !defined(ZOO_FOR_GPU)  // ptxas rejects this kernel: C7406
__global__ void __launch_bounds__(512, 1) registers_given_back_upwards(float* b) {
  setmaxnreg_dec<160>();  // bug: registers_given_back_upwards
  b[threadIdx.x] = 1;
}
#endif
__global__ void __launch_bounds__(512, 1) registers_of_two_warps(float* b) {
  if (threadIdx.x < 64) setmaxnreg_dec<32>();  // bug: registers_of_two_warps
  b[threadIdx.x] = 1;
}

// --- wgmma -----------------------------------------------------------------------------------------------------------

struct alignas(1024) Operands {
  half gap[256];  // 512 bytes
  half shifted[64][64];
  half gap_too[256];
  half A[64][64], B[32][64], V[2][16][64];
  Mbarrier full, B_full;
  SHARED_LAYOUT(Operands, gap, shifted, gap_too, A, B, V, full, B_full);
};
enum class InProduct {
  without_fence,
  not_committed,
  not_waited_for,
  waits_for_too_few,
  never_waited_for,
  A_overwritten,
  of_a_pending_copy,
  wrong_swizzle,
  wrong_stride,
  tile_at_512,
  section_missing,
  too_many_rows,
  tile_overwritten,
  D_never_filled,
  A_never_loaded,
  different_products,
  written_between,
};

template <InProduct m>
__global__ void product(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                        const __grid_constant__ TensorMap V, float* b) {
  Operands& s = dynamic_shared<Operands>();
  make_barrier(s.full, 1);
  auto& tile = *(m == InProduct::tile_at_512 ? &s.shifted : &s.A);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(s.full, sizeof s.A + sizeof s.B + sizeof s.V);
    cp_async_bulk_tensor_load(tile, A, s.full, 0, 0);  // other: product_of_a_pending_copy bug: product_of_a_pending_copy
    cp_async_bulk_tensor_load(s.B, B, s.full, 0, 0);
    cp_async_bulk_tensor_load(s.V, V, s.full, 0, 0, 0);
  }
  if constexpr (m != InProduct::of_a_pending_copy) mbarrier_wait_parity(s.full, 0);
  const Swizzle swizzle = m == InProduct::wrong_swizzle ? Swizzle::bytes_64 : Swizzle::bytes_128;
  const int stride = m == InProduct::wrong_stride ? 512 : 1024;
  const WgmmaMatrix a = wgmma_matrix(tile, 0, 1024, Swizzle::bytes_128), k = wgmma_matrix(s.B, 0, stride, swizzle);
  Fragment<float, 16> D, E;
  Fragment<float, 64> wide;
  Fragment<half, 4> P;
  if (m != InProduct::A_never_loaded)
    for (int i = 0; i < 4; ++i) P[i] = 0;
  E.fill(0);
  if constexpr (m != InProduct::without_fence) wgmma_fence();
  if constexpr (m == InProduct::too_many_rows) {
    Fragment<float, 32> too_wide;
    wgmma_mma_async<half>(too_wide, a, k, false);  // bug: product_too_many_rows
  } else if constexpr (m == InProduct::section_missing) {
    wgmma_mma_async<half, Major::n>(wide, P, wgmma_matrix(s.V, 0, 1024, Swizzle::bytes_128), false);  // bug: product_section_missing
    wgmma_commit_group();
    wgmma_wait_group<0>(wide);
  } else if constexpr (m == InProduct::A_overwritten || m == InProduct::A_never_loaded) {
    wgmma_mma_async(D, P, k, false);  // other: product_A_overwritten bug: product_A_never_loaded
  } else if (m == InProduct::different_products && threadIdx.x >= 96) {
    wgmma_mma_async<half>(D, a, k + 32, false);  // bug: product_different_products other: product_different_products
  } else {
    wgmma_mma_async<half>(D, a, k, m == InProduct::D_never_filled);  // bug: product_without_fence other: product_not_committed other: product_not_waited_for other: product_waits_for_too_few bug: product_never_waited_for bug: product_of_a_pending_copy other: product_of_a_pending_copy bug: product_wrong_swizzle bug: product_wrong_stride bug: product_tile_at_512 other: product_tile_overwritten bug: product_D_never_filled bug: product_different_products other: product_different_products other: product_written_between
  }
  if constexpr (m != InProduct::not_committed) wgmma_commit_group();
  if constexpr (m == InProduct::waits_for_too_few) wgmma_wait_group<1>(D);
  if constexpr (m == InProduct::A_overwritten) P[0] = 1;                         // bug: product_A_overwritten
  if (m == InProduct::tile_overwritten && threadIdx.x < 64) s.A[threadIdx.x][0] = 0;  // bug: product_tile_overwritten
  if constexpr (m == InProduct::written_between) D[3] = 0;                       // bug: product_written_between
  if constexpr (m == InProduct::never_waited_for) {
    b[threadIdx.x] = E[0];
    return;
  }
  if constexpr (m != InProduct::waits_for_too_few && m != InProduct::not_waited_for) wgmma_wait_group<0>(D);
  b[threadIdx.x] = D[0];  // bug: product_not_committed bug: product_not_waited_for bug: product_waits_for_too_few
}
template <InProduct m>
void run_product() {
  auto A = random_halves("A", 64 * 64, 1), B = random_halves("B", 32 * 64, 2), V = random_halves("V", 16 * 128, 3);
  auto b = output("b", 128);
  const auto map = [](const DeviceArray<half>& x, std::uint32_t rows) {
    return tensor_map(x.data(), {64, rows}, {128}, {64, rows}, Swizzle::bytes_128);
  };
  launch(product<m>, dim3(1), dim3(128), sizeof(Operands), map(A, 64), map(B, 32),
         tensor_map(V.data(), {64, 16, 2}, {256, 128}, {64, 16, 2}, Swizzle::bytes_128), b.data());
  synchronize();
}

/// 8-bit operands: P in registers, V's tile in rows of 64 bytes, with the 64-byte swizzle.
struct alignas(1024) SmallOperands {
  __nv_fp8_e4m3 V[128][64];
  Mbarrier full;
  SHARED_LAYOUT(SmallOperands, V, full);
};
enum class InSmallProduct { wrong_swizzle, wrong_stride, A_overwritten, without_fence };

template <InSmallProduct m>
__global__ void small_product(const __grid_constant__ TensorMap V, float* b) {
  SmallOperands& s = dynamic_shared<SmallOperands>();
  make_barrier(s.full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(s.full, sizeof s.V);
    cp_async_bulk_tensor_load(s.V, V, s.full, 0, 0);
  }
  mbarrier_wait_parity(s.full, 0);
  const Swizzle swizzle = m == InSmallProduct::wrong_swizzle ? Swizzle::bytes_128 : Swizzle::bytes_64;
  const WgmmaMatrix v = wgmma_matrix(s.V, 0, m == InSmallProduct::wrong_stride ? 1024 : 512, swizzle);
  Fragment<float, 16> D;
  D.fill(0);
  Fragment<__nv_fp8_e4m3, 4> P;
  for (int i = 0; i < 4; ++i) P[i] = cvt_rn_satfinite_e4m3x4(1, 2, 3, 4);
  if constexpr (m != InSmallProduct::without_fence) wgmma_fence();
  wgmma_mma_async(D, P, v + 32, true);  // bug: product_e4m3_wrong_swizzle bug: product_e4m3_wrong_stride other: product_e4m3_A_overwritten bug: product_e4m3_without_fence
  wgmma_commit_group();
  if constexpr (m == InSmallProduct::A_overwritten) P[3] = 0;  // bug: product_e4m3_A_overwritten
  wgmma_wait_group<0>(D);
  b[threadIdx.x] = D[0];
}
template <InSmallProduct m>
void run_small_product() {
  const std::vector<std::uint8_t> codes(128 * 64, 0x38);  // 1
  DeviceArray<__nv_fp8_e4m3> V("V", std::span<const std::uint8_t>(codes));
  auto b = output("b", 128);
  launch(small_product<m>, dim3(1), dim3(128), sizeof(SmallOperands),
         tensor_map(V.data(), {64, 128}, {64}, {64, 128}, Swizzle::bytes_64), b.data());
  synchronize();
}

/// Operands that the threads have written themselves.
template <bool fences, bool meets>
__global__ void product_of_ordinary_writes(float* b) {
  Operands& s = dynamic_shared<Operands>();
  for (int i = threadIdx.x; i < 64 * 64; i += blockDim.x) {
    s.A[i / 64][i % 64] = __float2half(1);           // other: product_without_proxy_fence other: product_without_barrier
    if (i < 32 * 64) s.B[i / 64][i % 64] = __float2half(1);  // other: product_without_proxy_fence other: product_without_barrier
  }
  if constexpr (fences) fence_proxy_async();
  if constexpr (meets) __syncthreads();
  Fragment<float, 16> D;
  wgmma_fence();
  wgmma_mma_async<half>(D, wgmma_matrix(s.A, 0, 1024, Swizzle::bytes_128),  // bug: product_without_proxy_fence bug: product_without_barrier other: product_without_barrier
                        wgmma_matrix(s.B, 0, 1024, Swizzle::bytes_128), false);
  wgmma_commit_group();
  wgmma_wait_group<0>(D);
  b[threadIdx.x] = D[0];
}
template <bool fences, bool meets>
void run_product_of_ordinary_writes() {
  auto b = output("b", 128);
  launch(product_of_ordinary_writes<fences, meets>, dim3(1), dim3(128), sizeof(Operands), b.data());
  synchronize();
}

__global__ void half_a_warpgroup(float* b) {
  Operands& s = dynamic_shared<Operands>();
  Fragment<float, 16> D;
  wgmma_fence();
  wgmma_mma_async<half>(D, wgmma_matrix(s.A, 0, 1024, Swizzle::bytes_128),  // bug: half_a_warpgroup
                        wgmma_matrix(s.B, 0, 1024, Swizzle::bytes_128), false);
  wgmma_commit_group();
  wgmma_wait_group<0>(D);
  b[threadIdx.x] = D[0];
}

constexpr Case cases[] = {
    {"barrier_never_made", planted<barrier_never_made, 64>, "misuse of an mbarrier"},
    {"barrier_made_twice", planted<barrier_made_twice, 64>, "misuse of an mbarrier"},
    {"barrier_without_arrivals", planted<barrier_without_arrivals, 64>, "misuse of an mbarrier"},
    {"barrier_used_too_early", planted<barrier_used_too_early, 64>, "misuse of an mbarrier"},
    {"too_few_arrivals", planted<too_few_arrivals, 64>, "deadlock"},
    {"one_lane_counted", planted<one_lane_counted, 64>, "mbarrier phase completes too early"},
    {"phase_that_never_comes", planted<phase_that_never_comes, 64>, "deadlock"},
    {"barrier_not_fenced", run_copies<Copy::barrier_not_fenced>, "misuse of an mbarrier"},
    {"too_many_arrivals", run_copies<Copy::too_many_arrivals>, "too many arrivals in an mbarrier phase"},
    {"not_waited_for", run_copies<Copy::not_waited_for>, "read before the copy is complete"},
    {"waited_for_by_one_warp", run_copies<Copy::waited_for_by_one_warp>, "read before the copy is complete"},
    {"wait_on_the_wrong_barrier", run_copies<Copy::wait_on_the_wrong_barrier>, "read before the copy is complete"},
    {"too_few_bytes", run_copies<Copy::too_few_bytes>, "mbarrier transaction bytes do not add up"},
    {"too_many_bytes", run_copies<Copy::too_many_bytes>, "mbarrier transaction bytes do not add up"},
    {"bytes_not_expected", run_copies<Copy::bytes_not_expected>, "mbarrier transaction bytes do not add up"},
    {"barrier_of_another_copy", run_copies<Copy::barrier_of_another_copy>, "too many arrivals in an mbarrier phase"},
    {"every_lane_copies", run_copies<Copy::every_lane_copies>, "overwritten while it may be read"},
    {"misaligned", run_copies<Copy::misaligned>, "misaligned access"},
    {"larger_than_the_tile", run_copies<Copy::larger_than_the_tile>, "out of bounds, shared memory"},
    {"wrong_coordinates", run_copies<Copy::wrong_coordinates>, "matrix descriptor does not match shared memory"},
    {"past_the_tensor", run_copies<Copy::past_the_tensor>, "out of bounds, global memory"},
    {"before_the_tensor", run_copies<Copy::before_the_tensor>, "out of bounds, global memory", "a"},
    {"nothing_in_the_map", run_copies<Copy::nothing_in_the_map>, "out of bounds, global memory", "a"},
    {"without_proxy_fence", run_stores<Store::without_proxy_fence>, "missing proxy fence"},
    {"without_barrier", run_stores<Store::without_barrier>, "race: read after write", "", "race: write after read"},
    {"not_committed", run_stores<Store::not_committed>, "bulk store not waited for"},
    {"store_not_waited_for", run_stores<Store::not_waited_for>, "bulk store not waited for"},
    {"overwritten", run_stores<Store::overwritten>, "overwritten while it may be read"},
    {"parity_not_flipped", run_ring<InRing::parity_not_flipped>, "wait for the wrong mbarrier phase", "", "read before the copy is complete"},
    {"parity_of_the_phase_before", run_ring<InRing::parity_of_the_phase_before>, "wait for the wrong mbarrier phase", "", "deadlock"},
    {"producer_parity_not_flipped", run_ring<InRing::producer_parity_not_flipped>, "wait for the wrong mbarrier phase", "", "overwritten while it may be read"},
    {"stage_not_released", run_ring<InRing::stage_not_released>, "overwritten while it may be read"},
    {"released_before_reading", run_ring<InRing::released_before_reading>, "overwritten while it may be read"},
    {"left_without_syncwarp", run_ring<InRing::left_without_syncwarp>, "overwritten while it may be read"},
    {"stage_never_released", run_ring<InRing::stage_never_released>, "deadlock"},
    {"stage_of_the_next_tile", run_ring<InRing::stage_of_the_next_tile>, "read of another stage than the one waited for"},
    {"one_warp_counted", run_ring<InRing::one_warp_counted>, "mbarrier phase completes too early"},
    {"named_counts_differ", planted<named_counts_differ, 64>, "misuse of a named barrier"},
    {"named_number_zero", planted<named_number_zero, 64>, "misuse of a named barrier"},
    {"named_count_odd", planted<named_count_odd, 64>, "misuse of a named barrier"},
    {"named_too_few_come", planted<named_too_few_come, 64>, "deadlock"},
    {"named_half_a_warp", planted<named_half_a_warp, 64>, "misuse of a named barrier"},
    {"named_twice", planted<named_twice, 64>, "misuse of a named barrier"},
    {"named_orders_too_few", planted<named_orders_too_few, 96>, "race: read after write"},
    {"registers_never_given_back", planted<registers_never_given_back, 512>, "misuse of setmaxnreg"},
#if !defined(ZOO_FOR_GPU)
    {"registers_given_back_upwards", planted<registers_given_back_upwards, 512>, "misuse of setmaxnreg"},
#endif
    {"registers_of_two_warps", planted<registers_of_two_warps, 512>, "misuse of setmaxnreg"},
    {"product_without_fence", run_product<InProduct::without_fence>, "wgmma without fence, commit or wait"},
    {"product_not_committed", run_product<InProduct::not_committed>, "registers of a wgmma in flight"},
    {"product_not_waited_for", run_product<InProduct::not_waited_for>, "registers of a wgmma in flight"},
    {"product_waits_for_too_few", run_product<InProduct::waits_for_too_few>, "registers of a wgmma in flight"},
    {"product_never_waited_for", run_product<InProduct::never_waited_for>, "wgmma without fence, commit or wait"},
    {"product_A_overwritten", run_product<InProduct::A_overwritten>, "registers of a wgmma in flight"},
    {"product_of_a_pending_copy", run_product<InProduct::of_a_pending_copy>, "read before the copy is complete"},
    {"product_wrong_swizzle", run_product<InProduct::wrong_swizzle>, "matrix descriptor does not match shared memory"},
    {"product_wrong_stride", run_product<InProduct::wrong_stride>, "matrix descriptor does not match shared memory"},
    {"product_tile_at_512", run_product<InProduct::tile_at_512>, "matrix descriptor does not match shared memory"},
    {"product_section_missing", run_product<InProduct::section_missing>, "matrix descriptor does not match shared memory"},
    {"product_too_many_rows", run_product<InProduct::too_many_rows>, "out of bounds, shared memory"},
    {"product_tile_overwritten", run_product<InProduct::tile_overwritten>, "overwritten while it may be read"},
    {"product_D_never_filled", run_product<InProduct::D_never_filled>, "use of an uninitialised fragment"},
    {"product_A_never_loaded", run_product<InProduct::A_never_loaded>, "use of an uninitialised fragment"},
    {"product_different_products", run_product<InProduct::different_products>, "divergent warp function"},
    {"product_written_between", run_product<InProduct::written_between>, "registers of a wgmma in flight"},
    {"product_e4m3_wrong_swizzle", run_small_product<InSmallProduct::wrong_swizzle>, "matrix descriptor does not match shared memory"},
    {"product_e4m3_wrong_stride", run_small_product<InSmallProduct::wrong_stride>, "matrix descriptor does not match shared memory"},
    {"product_e4m3_A_overwritten", run_small_product<InSmallProduct::A_overwritten>, "registers of a wgmma in flight"},
    {"product_e4m3_without_fence", run_small_product<InSmallProduct::without_fence>, "wgmma without fence, commit or wait"},
    {"product_without_proxy_fence", run_product_of_ordinary_writes<false, true>, "missing proxy fence"},
    {"product_without_barrier", run_product_of_ordinary_writes<true, false>, "race: read after write", "", "overwritten while it may be read"},
    {"half_a_warpgroup",
 planted<half_a_warpgroup, 64, 0, 64, sizeof(Operands)>, "inactive lane in a warp function"},
};

}  // namespace

std::span<const Case> hopper_mistakes() {
  return cases;
}

}  // namespace zoo
