// Kernels with one mistake each in the use of ldmatrix, stmatrix, mma and groups of cp.async: races, invalid row
// addresses, missing lanes, uninitialised registers.
#include "tests/simt/arrays.hpp"
#include "tests/simt/cases.hpp"

namespace zoo {
namespace {

using namespace workbook::cuda;
using bf16 = __nv_bfloat16;

/// 16 rows of 16 halves, and 8 of padding.
struct Smem {
  half K[16][24];
  half V[16][24];
  SHARED_LAYOUT(Smem, (K, 16), (V, 16));
};

__device__ __forceinline__ void fill(half (&tile)[16][24]) {
  for (int i = threadIdx.x; i < 256; i += blockDim.x) tile[i / 16][i % 16] = __float2half(1.f);
}
/// Rows and columns of the four 8x8 matrices of a 16x16 tile, for ldmatrix_x4 and stmatrix_x4.
__device__ __forceinline__ int row_of_lane() {
  return threadIdx.x % 16;
}
__device__ __forceinline__ int column_of_lane() {
  return threadIdx.x % 32 / 16 * 8;
}
template <class T>
__device__ __forceinline__ float first(std::uint32_t pair) {
  return static_cast<float>(*reinterpret_cast<const T*>(&pair));
}
/// A fragment of ones, as a 16-bit operand.
template <class T, int n>
__device__ __forceinline__ void fill_ones(Fragment<T, n>& operand) {
  operand.fill(cvt_rn_x2<T>(1.f, 1.f));
}

// --- Races -----------------------------------------------------------------------------------------------------------

__global__ void ldmatrix_without_barrier(float* b) {
  Smem& s = dynamic_shared<Smem>();
  for (int i = threadIdx.x; i < 256; i += 32)
    s.K[i / 16][i % 16] = __float2half(1.f);  // other: ldmatrix_without_barrier
  Fragment<half, 4> K;
  ldmatrix_x4(K, &s.K[row_of_lane()][column_of_lane()]);  // bug: ldmatrix_without_barrier
  b[threadIdx.x] = first<half>(K[0]);
}

// Two pairs of warps, one named barrier per pair.

__global__ void named_barrier_of_another_pair(float* b) {
  __shared__ float s[128];
  const int t = threadIdx.x;
  s[t] = t;  // other: named_barrier_of_another_pair
  barrier_sync(1 + t / 64, 64);
  b[t] = s[127 - t];  // bug: named_barrier_of_another_pair
}

__global__ void named_barrier_before_the_read_only(float* b) {
  __shared__ float s[128];
  const int t = threadIdx.x;
  for (int i = 0; i < 2; ++i) {
    s[t] = t + i;  // bug: named_barrier_before_the_read_only
    barrier_sync(1 + t / 64, 64);
    b[t] = s[t ^ 32];  // other: named_barrier_before_the_read_only
  }
}

__global__ void ldmatrix_tile_overwritten(float* b) {
  Smem& s = dynamic_shared<Smem>();
  fill(s.K);
  __syncthreads();
  Fragment<half, 4> K;
  ldmatrix_x4(K, &s.K[row_of_lane()][column_of_lane()]);  // other: ldmatrix_tile_overwritten
  for (int i = threadIdx.x; i < 256; i += blockDim.x) {
    s.K[i / 16][i % 16] = __float2half(2.f);  // bug: ldmatrix_tile_overwritten
  }
  b[threadIdx.x] = first<half>(K[0]);
}

__global__ void stmatrix_then_read(float* b) {
  Smem& s = dynamic_shared<Smem>();
  Fragment<half, 4> P;
  fill_ones(P);
  stmatrix_x4(&s.K[row_of_lane()][column_of_lane()], P);    // other: stmatrix_then_read
  b[threadIdx.x] = __half2float(s.K[0][threadIdx.x % 16]);  // bug: stmatrix_then_read
}

__global__ void stmatrix_of_two_warps(float* b) {
  Smem& s = dynamic_shared<Smem>();
  Fragment<half, 2> P;
  fill_ones(P);
  stmatrix_x2(&s.K[row_of_lane()][0], P);  // bug: stmatrix_of_two_warps   other: stmatrix_of_two_warps
  __syncthreads();
  b[threadIdx.x] = __half2float(s.K[threadIdx.x % 16][0]);
}

__global__ void stmatrix_rows_overlap(float* b) {
  Smem& s = dynamic_shared<Smem>();
  Fragment<half, 2> P;
  fill_ones(P);
  stmatrix_x2(&s.K[row_of_lane() / 2][0], P);  // bug: stmatrix_rows_overlap   other: stmatrix_rows_overlap
  __syncwarp();
  b[threadIdx.x] = __half2float(s.K[threadIdx.x % 8][0]);
}

__global__ void ldmatrix_of_pending_copy(const half* a, float* b) {
  Smem& s = dynamic_shared<Smem>();
  const int row = row_of_lane(), column = column_of_lane();
  cp_async_16(&s.K[row][column], a + row * 16 + column);  // other: ldmatrix_of_pending_copy
  cp_async_commit_group();
  __syncwarp();
  Fragment<half, 4> K;
  ldmatrix_x4(K, &s.K[row][column]);  // bug: ldmatrix_of_pending_copy
  b[threadIdx.x] = first<half>(K[0]);
}

__global__ void wait_for_too_few_groups(const half* a, float* b) {
  __shared__ __align__(16) half K[3][16][16];
  const int row = row_of_lane(), column = column_of_lane();
  for (int stage = 0; stage < 3; ++stage) {
    cp_async_16(&K[stage][row][column], a + stage * 256 + row * 16 + column);  // other: wait_for_too_few_groups
    cp_async_commit_group();
  }
  float sum = 0;
  for (int stage = 0; stage < 2; ++stage) {
    cp_async_wait_group<2>();
    __syncwarp();
    Fragment<half, 4> fragment;
    ldmatrix_x4(fragment, &K[stage][row][column]);  // bug: wait_for_too_few_groups
    sum += first<half>(fragment[0]);
  }
  b[threadIdx.x] = sum;
}

__global__ void group_never_committed(const half* a, float* b) {
  Smem& s = dynamic_shared<Smem>();
  const int row = row_of_lane(), column = column_of_lane();
  cp_async_16(&s.K[row][column], a + row * 16 + column);  // other: group_never_committed
  cp_async_wait_group<0>();
  __syncwarp();
  Fragment<half, 4> K;
  ldmatrix_x4(K, &s.K[row][column]);  // bug: group_never_committed
  b[threadIdx.x] = first<half>(K[0]);
}

struct Stages {
  half K[2][32][8];
  SHARED_LAYOUT(Stages, K);
};
__global__ void stage_of_the_next_copy(const half* a, float* b) {
  Stages& s = dynamic_shared<Stages>();
  const int t = threadIdx.x;
  const auto load = [&](int j) {
    cp_async_16(&s.K[j % 2][t][0], a + t * 8);  // other: stage_of_the_next_copy
    cp_async_commit_group();
  };
  load(0);
  float sum = 0;
  for (int j = 0; j < 4; ++j) {
    cp_async_wait_group<0>();
    __syncwarp();
    load(j + 1);
    Fragment<half, 4> fragment;
    ldmatrix_x4(fragment, &s.K[(j + 1) % 2][t][0]);  // bug: stage_of_the_next_copy
    sum += first<half>(fragment[0]);
    __syncwarp();
  }
  cp_async_wait_group<0>();
  b[t] = sum;
}

/// Two stages with one missing barrier: a fast warp starts to copy over rows that a slow warp still loads.
__global__ void copy_over_rows_still_loaded(const half* a, float* b) {
  __shared__ __align__(16) half K[2][64][8];
  const int t = threadIdx.x;
  float sum = 0;
  cp_async_16(&K[0][t][0], a + t * 8);
  cp_async_commit_group();
  for (int j = 0; j < 4; ++j) {
    cp_async_wait_group<0>();
    __syncthreads();
    Fragment<half, 4> fragment;
    ldmatrix_x4(fragment, &K[0][t % 32][0]);  // other: copy_over_rows_still_loaded
    sum += first<half>(fragment[0]);
    cp_async_16(&K[0][t][0], a + t * 8);  // bug: copy_over_rows_still_loaded
    cp_async_commit_group();
  }
  cp_async_wait_group<0>();
  b[t] = sum;
}

// --- Rows ------------------------------------------------------------------------------------------------------------

__global__ void ldmatrix_misaligned(float* b) {
  __shared__ __align__(16) half K[16][18];
  for (int i = threadIdx.x; i < 16 * 18; i += 32) K[i / 18][i % 18] = __float2half(1.f);
  __syncwarp();
  Fragment<half, 4> fragment;
  ldmatrix_x4(fragment, &K[row_of_lane()][column_of_lane()]);  // bug: ldmatrix_misaligned
  b[threadIdx.x] = first<half>(fragment[0]);
}

__global__ void stmatrix_misaligned(float* b) {
  Smem& s = dynamic_shared<Smem>();
  Fragment<half, 2> P;
  fill_ones(P);
  stmatrix_x2(&s.K[row_of_lane()][4], P);  // bug: stmatrix_misaligned
  __syncwarp();
  b[threadIdx.x] = __half2float(s.K[0][4]);
}

__global__ void ldmatrix_of_global_memory(const half* a, float* b) {
  Fragment<half, 4> fragment;
  ldmatrix_x4(fragment, a + row_of_lane() * 16 + column_of_lane());  // bug: ldmatrix_of_global_memory
  b[threadIdx.x] = first<half>(fragment[0]);
}

__global__ void ldmatrix_past_launched(float* b) {
  half* tile = dynamic_shared_array<half>();
  for (int i = threadIdx.x; i < 128; i += 32) tile[i] = __float2half(1.f);
  __syncwarp();
  Fragment<half, 4> fragment;
  ldmatrix_x4(fragment, tile + threadIdx.x * 8);  // bug: ldmatrix_past_launched
  b[threadIdx.x] = first<half>(fragment[0]);
}

__global__ void ldmatrix_into_next_member(float* b) {
  Smem& s = dynamic_shared<Smem>();
  fill(s.K), fill(s.V);
  __syncwarp();
  const half* tile = &s.K[0][0];  // a pointer: the array's size is hidden
  Fragment<half, 4> fragment;
  ldmatrix_x4(fragment, tile + (8 + row_of_lane()) * 24 + column_of_lane());  // bug: ldmatrix_into_next_member
  b[threadIdx.x] = first<half>(fragment[0]);
}

__global__ void ldmatrix_of_padding(float* b) {
  Smem& s = dynamic_shared<Smem>();
  fill(s.K);
  __syncwarp();
  Fragment<half, 4> fragment;
  ldmatrix_x4(fragment, &s.K[row_of_lane()][8 + column_of_lane()]);  // bug: ldmatrix_of_padding
  b[threadIdx.x] = first<half>(fragment[0]);
}

__global__ void stmatrix_into_padding(float* b) {
  Smem& s = dynamic_shared<Smem>();
  Fragment<half, 4> P;
  fill_ones(P);
  stmatrix_x4(&s.K[row_of_lane()][8 + column_of_lane()], P);  // bug: stmatrix_into_padding
  __syncwarp();
  b[threadIdx.x] = __half2float(s.K[0][8]);
}

__global__ void ldmatrix_uninitialised(float* b, int rows) {
  Smem& s = dynamic_shared<Smem>();
  for (int i = threadIdx.x; i < rows * 16; i += 32) s.K[i / 16][i % 16] = __float2half(1.f);
  __syncwarp();
  Fragment<half, 4> fragment;
  ldmatrix_x4(fragment, &s.K[row_of_lane()][column_of_lane()]);  // bug: ldmatrix_uninitialised
  b[threadIdx.x] = first<half>(fragment[0]);
}

__global__ void copy_of_too_many_bytes(const half* a, float* b, int bytes) {
  Smem& s = dynamic_shared<Smem>();
  cp_async_16(&s.K[row_of_lane()][column_of_lane()], a, bytes);  // bug: copy_of_too_many_bytes
  cp_async_commit_group();
  cp_async_wait_group<0>();
  b[threadIdx.x] = __half2float(s.K[row_of_lane()][column_of_lane()]);
}

// --- Lanes -----------------------------------------------------------------------------------------------------------

__global__ void ldmatrix_in_a_branch(float* b) {
  Smem& s = dynamic_shared<Smem>();
  fill(s.K);
  __syncwarp();
  Fragment<half, 2> fragment;
  fill_ones(fragment);
  if (threadIdx.x < 16) ldmatrix_x2(fragment, &s.K[row_of_lane()][0]);  // bug: ldmatrix_in_a_branch
  __syncwarp();                                                         // other: ldmatrix_in_a_branch
  b[threadIdx.x] = 1;
}

__global__ void ldmatrix_in_two_branches(float* b) {
  Smem& s = dynamic_shared<Smem>();
  fill(s.K), fill(s.V);
  __syncwarp();
  Fragment<half, 4> fragment;
  if (threadIdx.x < 16) {
    ldmatrix_x4(fragment, &s.K[row_of_lane()][0]);  // other: ldmatrix_in_two_branches
  } else {
    ldmatrix_x4(fragment, &s.K[row_of_lane()][8]);  // bug: ldmatrix_in_two_branches
  }
  b[threadIdx.x] = first<half>(fragment[0]);
}

__global__ void ldmatrix_of_two_kinds(float* b) {
  Smem& s = dynamic_shared<Smem>();
  fill(s.K);
  __syncwarp();
  Fragment<half, 4> fragment;
  if (threadIdx.x % 2 == 0) {
    ldmatrix_x4(fragment, &s.K[row_of_lane()][column_of_lane()]);  // other: ldmatrix_of_two_kinds
  } else {
    ldmatrix_x4_trans(fragment, &s.K[row_of_lane()][column_of_lane()]);  // bug: ldmatrix_of_two_kinds
  }
  b[threadIdx.x] = 1;
}

__global__ void ldmatrix_after_exit(float* b, int n) {
  Smem& s = dynamic_shared<Smem>();
  fill(s.K);
  __syncwarp();
  b[threadIdx.x] = 1;
  if (int(threadIdx.x) >= n) return;
  Fragment<half, 4> fragment;
  ldmatrix_x4(fragment, &s.K[row_of_lane()][column_of_lane()]);  // bug: ldmatrix_after_exit
}

__global__ void stmatrix_after_exit(float* b, int n) {
  Smem& s = dynamic_shared<Smem>();
  b[threadIdx.x] = 1;
  if (int(threadIdx.x) >= n) return;
  Fragment<half, 4> P;
  fill_ones(P);
  stmatrix_x4(&s.K[row_of_lane()][column_of_lane()], P);  // bug: stmatrix_after_exit
}

__global__ void mma_after_exit(float* b, int n) {
  b[threadIdx.x] = 1;
  if (int(threadIdx.x) >= n) return;
  Fragment<half, 4> A;
  Fragment<float, 4> D;
  fill_ones(A), D.fill(0);
  mma_m16n8k16(D, A, A[0], A[1]);  // bug: mma_after_exit
}

__global__ void mma_against_shuffle(float* b) {
  Fragment<half, 4> A;
  Fragment<float, 4> D;
  fill_ones(A), D.fill(0);
  float x = threadIdx.x;
  if (threadIdx.x < 16) {
    mma_m16n8k16(D, A, A[0], A[1]);  // other: mma_against_shuffle
  } else {
    x = __shfl_xor_sync(0xffffffffu, x, 1);  // bug: mma_against_shuffle
  }
  b[threadIdx.x] = x;
}

// --- Registers -------------------------------------------------------------------------------------------------------

__global__ void A_never_loaded(float* b) {
  Fragment<half, 4> A;
  Fragment<half, 2> B;
  Fragment<float, 4> D;
  fill_ones(B), D.fill(0);
  mma_m16n8k16(D, A, B[0], B[1]);  // bug: A_never_loaded
  b[threadIdx.x] = D[0];
}

__global__ void A_partly_computed(float* b) {
  Fragment<bf16, 4> A;
  Fragment<bf16, 2> B;
  Fragment<float, 4> D;
  fill_ones(B), D.fill(0);
  A[0] = A[1] = A[3] = B[0];       // and A[2] is forgotten
  mma_m16n8k16(D, A, B[0], B[1]);  // bug: A_partly_computed
  b[threadIdx.x] = D[0];
}

__global__ void B_never_loaded(float* b) {
  Fragment<bf16, 4> A;
  Fragment<bf16, 2> B;
  Fragment<float, 4> D;
  fill_ones(A), D.fill(0);
  mma_m16n8k16(D, A, B[0], B[1]);  // bug: B_never_loaded
  b[threadIdx.x] = D[0];
}

__global__ void B_of_some_lanes(float* b) {
  Fragment<half, 4> A;
  Fragment<half, 2> B;
  Fragment<float, 4> D;
  fill_ones(A), D.fill(0);
  if (threadIdx.x < 30) fill_ones(B);
  mma_m16n8k16(D, A, B[0], B[1]);  // bug: B_of_some_lanes
  b[threadIdx.x] = D[0];
}

__global__ void D_never_filled(float* b) {
  Fragment<half, 4> A;
  Fragment<float, 4> D;
  fill_ones(A);
  mma_m16n8k16(D, A, A[0], A[1]);  // bug: D_never_filled
  b[threadIdx.x] = D[0];
}

/// An uninitialised value times 0 is not 0: it may have been an infinity.
__global__ void D_scaled_but_never_filled(float* b, float rescale) {
  Fragment<half, 4> A;
  Fragment<float, 4> D;
  fill_ones(A);
#pragma unroll
  for (int i = 0; i < 4; ++i) D[i] *= rescale;
  mma_m16n8k16(D, A, A[0], A[1]);  // bug: D_scaled_but_never_filled
  b[threadIdx.x] = D[0];
}

/// In the second round D holds nothing of the first round.
__global__ void D_declared_in_the_loop(float* b) {
  Fragment<half, 4> A;
  fill_ones(A);
  float sum = 0;
  for (int j = 0; j < 2; ++j) {
    Fragment<float, 4> D;
    if (j == 0) D.fill(0);
    mma_m16n8k16(D, A, A[0], A[1]);  // bug: D_declared_in_the_loop
    sum += D[0];
  }
  b[threadIdx.x] = sum;
}

__global__ void P_of_scores_never_set(float* b) {
  Fragment<float, 4> S, D;
  Fragment<half, 4> P;
  D.fill(0);
#pragma unroll
  for (int i = 0; i < 4; ++i) P[i] = cvt_rn_x2<half>(ex2_approx_ftz(S[i]), 1.f);
  mma_m16n8k16(D, P, P[0], P[1]);  // bug: P_of_scores_never_set
  b[threadIdx.x] = D[0];
}

__global__ void tf32_never_loaded(float* b) {
  Fragment<float, 4> A, D;
  D.fill(0);
  mma_m16n8k8(D, A, 1.f, 1.f);  // bug: tf32_never_loaded
  b[threadIdx.x] = D[0];
}

__global__ void stmatrix_of_nothing(float* b) {
  Smem& s = dynamic_shared<Smem>();
  Fragment<bf16, 4> P;
  stmatrix_x4(reinterpret_cast<bf16*>(&s.K[row_of_lane()][column_of_lane()]), P);  // bug: stmatrix_of_nothing
  b[threadIdx.x] = 1;
}

// --- Launches --------------------------------------------------------------------------------------------------------

template <auto kKernel, int kThreads = 32, class... Rest>
void with_tiles(Rest... rest) {
  planted<kKernel, kThreads, 1024, kThreads, sizeof(Smem)>(rest...);
}

constexpr Case cases[] = {
    {"ldmatrix_without_barrier", with_tiles<ldmatrix_without_barrier>, "race: read after write", "K["},
    {"ldmatrix_tile_overwritten", with_tiles<ldmatrix_tile_overwritten, 64>, "race: write after read", "K["},
    {"stmatrix_then_read", with_tiles<stmatrix_then_read>, "race: read after write", "K["},
    {"stmatrix_of_two_warps", with_tiles<stmatrix_of_two_warps, 64>, "race: write after write", "K["},
    {"stmatrix_rows_overlap", with_tiles<stmatrix_rows_overlap>, "race: write after write", "K["},
    {"ldmatrix_of_pending_copy", with_tiles<ldmatrix_of_pending_copy>, "access to bytes of a pending cp.async", "K["},
    {"wait_for_too_few_groups", with_tiles<wait_for_too_few_groups>, "access to bytes of a pending cp.async", "K"},
    {"stage_of_the_next_copy", planted<stage_of_the_next_copy, 32, 256, 32, sizeof(Stages)>,
     "read of another stage than the one waited for", "K["},
    {"group_never_committed", with_tiles<group_never_committed>, "access to bytes of a pending cp.async", "K["},
    {"copy_over_rows_still_loaded", with_tiles<copy_over_rows_still_loaded, 64>, "race: write after read", "K"},
    {"named_barrier_of_another_pair", planted<named_barrier_of_another_pair, 128>, "race: read after write", "s"},
    {"named_barrier_before_the_read_only", planted<named_barrier_before_the_read_only, 128>, "race: write after read",
     "s"},
    {"ldmatrix_misaligned", with_tiles<ldmatrix_misaligned>, "misaligned access", "K"},
    {"stmatrix_misaligned", with_tiles<stmatrix_misaligned>, "misaligned access", "K["},
    {"ldmatrix_of_global_memory", with_tiles<ldmatrix_of_global_memory>, "out of bounds, shared memory"},
    {"ldmatrix_past_launched", planted<ldmatrix_past_launched, 32, 0, 32, 256>, "out of bounds, shared memory",
     "dynamic shared memory"},
    {"ldmatrix_into_next_member", with_tiles<ldmatrix_into_next_member>, "out of bounds, shared memory", "V["},
    {"ldmatrix_of_padding", with_tiles<ldmatrix_of_padding>, "access to padding", "K["},
    {"stmatrix_into_padding", with_tiles<stmatrix_into_padding>, "access to padding", "K["},
    {"ldmatrix_uninitialised", [] { with_tiles<ldmatrix_uninitialised>(12); }, "read of uninitialised shared memory",
     "K["},
    {"copy_of_too_many_bytes", [] { with_tiles<copy_of_too_many_bytes>(32); }, "misaligned access"},
    {"ldmatrix_in_a_branch", with_tiles<ldmatrix_in_a_branch>, "divergent warp function"},
    {"ldmatrix_in_two_branches", with_tiles<ldmatrix_in_two_branches>, "divergent warp function"},
    {"ldmatrix_of_two_kinds", with_tiles<ldmatrix_of_two_kinds>, "divergent warp function"},
    {"ldmatrix_after_exit", [] { with_tiles<ldmatrix_after_exit>(24); }, "inactive lane in a warp function"},
    {"stmatrix_after_exit", [] { with_tiles<stmatrix_after_exit>(24); }, "inactive lane in a warp function"},
    {"mma_after_exit", [] { with_tiles<mma_after_exit>(24); }, "inactive lane in a warp function"},
    {"mma_against_shuffle", with_tiles<mma_against_shuffle>, "divergent warp function"},
    {"A_never_loaded", with_tiles<A_never_loaded>, "use of an uninitialised fragment"},
    {"A_partly_computed", with_tiles<A_partly_computed>, "use of an uninitialised fragment"},
    {"B_never_loaded", with_tiles<B_never_loaded>, "use of an uninitialised fragment"},
    {"B_of_some_lanes", with_tiles<B_of_some_lanes>, "use of an uninitialised fragment"},
    {"D_never_filled", with_tiles<D_never_filled>, "use of an uninitialised fragment"},
    {"D_scaled_but_never_filled", [] { with_tiles<D_scaled_but_never_filled>(0.f); },
     "use of an uninitialised fragment"},
    {"D_declared_in_the_loop", with_tiles<D_declared_in_the_loop>, "use of an uninitialised fragment"},
    {"P_of_scores_never_set", with_tiles<P_of_scores_never_set>, "use of an uninitialised fragment"},
    {"tf32_never_loaded", with_tiles<tf32_never_loaded>, "use of an uninitialised fragment"},
    {"stmatrix_of_nothing", with_tiles<stmatrix_of_nothing>, "use of an uninitialised fragment"},
};

}  // namespace

std::span<const Case> instruction_mistakes() {
  return cases;
}

}  // namespace zoo
