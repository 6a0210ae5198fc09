// Kernels with one mistake each in the use of the instructions that a backward pass on Hopper adds to the forward pass:
// bulk copies and bulk reductions, and operands that threads have written. `m` is the mistake of an instance of a
// kernel.
#include "tests/simt/arrays.hpp"
#include "tests/simt/cases.hpp"

// A line that several mistakes share has the marks of all of them, and stays one line.
// clang-format off

namespace zoo {
namespace {

using namespace workbook::cuda;

// --- Bulk loads ------------------------------------------------------------------------------------------------------

/// A tile of 4 rows and one number per column, for 32 columns, which are loaded together.
struct Tile {
  float rows[2][4][32], numbers[2][32], guard[8];
  Mbarrier full[2], empty[2];
  SHARED_LAYOUT(Tile, rows, numbers, guard, full, empty);
};

enum class Line {
  odd_size,
  odd_source,
  odd_address,
  past_the_tensor,
  into_the_next_member,
  swapped,
  barrier_not_fenced,
  not_expected,
  not_waited_for,
  stage_released_early,
};

/// A producer fills two stages, each with a box and a bulk copy that signal one mbarrier; a warp adds up the data.
template <Line m>
__global__ void lines(const __grid_constant__ TensorMap rows, float* numbers, float* b, int tiles) {
  Tile& s = dynamic_shared<Tile>();
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) mbarrier_init(s.full[i], 1), mbarrier_init(s.empty[i], 1);  // other: line_barrier_not_fenced
    if constexpr (m != Line::barrier_not_fenced) fence_mbarrier_init();
  }
  __syncthreads();
  const int lane = threadIdx.x % 32;
  if (threadIdx.x >= 32) {
    for (int j = 0; lane == 0 && j < tiles; ++j) {
      const int stage = j % 2, bytes = m == Line::odd_size ? 120 : m == Line::into_the_next_member ? 272 : 128;
      mbarrier_wait_parity(s.empty[stage], (j / 2 & 1) ^ 1);
      mbarrier_arrive_expect_tx(s.full[stage], sizeof s.rows[0] + (m == Line::not_expected ? 0 : bytes));  // other: line_not_expected bug: line_stage_released_early
      const float* const from = numbers + 32 * j + (m == Line::odd_source ? 2 : m == Line::past_the_tensor ? 144 : 0);
      float* const to = &s.numbers[stage][m == Line::odd_address ? 2 : 0];
      cp_async_bulk_tensor_load(s.rows[stage], rows, s.full[stage], 0, 4 * j);  // bug: line_barrier_not_fenced bug: line_not_expected bug: line_stage_released_early other: line_stage_released_early
      if constexpr (m == Line::swapped) {
        cp_async_bulk_load(numbers + 32 * j, s.numbers[stage], bytes, s.full[stage]);  // bug: line_swapped
      } else {
        cp_async_bulk_load(to, from, bytes, s.full[stage]);  // bug: line_odd_size bug: line_odd_source bug: line_odd_address bug: line_past_the_tensor bug: line_into_the_next_member bug: line_barrier_not_fenced bug: line_not_expected other: line_not_waited_for bug: line_stage_released_early other: line_stage_released_early
      }
    }
  } else {
    float sum = 0;
    for (int j = 0; j < tiles; ++j) {
      const int stage = j % 2;
      if constexpr (m == Line::not_waited_for) sum += s.numbers[stage][lane];  // bug: line_not_waited_for
      mbarrier_wait_parity(s.full[stage], j / 2 & 1);
      if (m == Line::stage_released_early && lane == 0) mbarrier_arrive(s.empty[stage]);
      if constexpr (m != Line::not_waited_for) sum += s.numbers[stage][lane];  // bug: line_not_expected bug: line_stage_released_early other: line_stage_released_early
      for (int r = 0; r < 4; ++r) sum += s.rows[stage][r][lane];  // bug: line_stage_released_early other: line_stage_released_early
      __syncwarp();
      if (m != Line::stage_released_early && lane == 0) mbarrier_arrive(s.empty[stage]);
    }
    b[lane] = sum;
  }
}
template <Line m>
void run_lines() {
  auto rows = floats("rows", 32 * 4 * 5), numbers = floats("numbers", 32 * 5);
  auto b = output("b", 32);
  launch(lines<m>, dim3(1), dim3(64), sizeof(Tile), tensor_map(rows.data(), {32, 20}, {128}, {32, 4}), numbers.data(), b.data(), 5);
  synchronize();
}

// --- Bulk reductions -------------------------------------------------------------------------------------------------

struct Parts {
  float part[2][128];
  SHARED_LAYOUT(Parts, part);
};

enum class Sum {
  not_cleared,
  odd_address,
  past_the_sum,
  without_proxy_fence,
  signalled_before_written,
  overwritten,
  buffer_released_too_early,
  buffer_released_before_the_wait,
  not_committed,
  not_waited_for,
  read_too_early,
  cleared_too_late,
  released_early,
};
enum Number { written = 1, empty = 3 };  // of barriers, two each

/// Two warps write their parts of a sum, tile by tile, and a third warp adds them to device memory by TMA.
template <Sum m>
__global__ void additions(float* sum, float* b, int* semaphore, int tiles) {
  Parts& s = dynamic_shared<Parts>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp < 2) {
    for (int j = 0; j < tiles; ++j) {
      barrier_sync(empty + warp, 64);
      if constexpr (m == Sum::signalled_before_written) barrier_arrive(written + warp, 64);
      for (int i = lane; i < 128; i += 32) s.part[warp][i] = i + j;  // bug: sum_signalled_before_written other: sum_signalled_before_written other: sum_without_proxy_fence bug: sum_buffer_released_too_early bug: sum_buffer_released_before_the_wait other: sum_not_committed
      if constexpr (m != Sum::without_proxy_fence) fence_proxy_async();
      if constexpr (m != Sum::signalled_before_written) barrier_arrive(written + warp, 64);
    }
    return;
  }
  for (int w = 0; w < 2; ++w) barrier_arrive(empty + w, 64);
  for (int j = 0; j < tiles; ++j) {
    float* const to = sum + 256 * j + (m == Sum::odd_address ? 1 : m == Sum::past_the_sum ? 256 : 0);
    for (int w = 0; w < 2; ++w) {
      barrier_sync(written + w, 64);
      if (lane == 0) {
        cp_reduce_async_bulk_add(to + 128 * w, s.part[w], sizeof s.part[w]);  // bug: sum_not_cleared bug: sum_odd_address bug: sum_past_the_sum bug: sum_without_proxy_fence bug: sum_signalled_before_written other: sum_signalled_before_written other: sum_overwritten other: sum_buffer_released_too_early other: sum_buffer_released_before_the_wait bug: sum_not_committed bug: sum_not_waited_for other: sum_read_too_early other: sum_cleared_too_late other: sum_released_early
        if constexpr (m != Sum::not_committed) cp_async_bulk_commit_group();
        if constexpr (m == Sum::overwritten) s.part[w][3] = 0;  // bug: sum_overwritten
      }
    }
    const auto release_buffers = [&] {
      for (int w = 0; j + 1 < tiles && w < 2; ++w) barrier_arrive(empty + w, 64);
    };
    if constexpr (m == Sum::buffer_released_before_the_wait) release_buffers();
    const bool last = m == Sum::not_waited_for && j + 1 == tiles;
    if (lane == 0 && !last) {
      if constexpr (m == Sum::buffer_released_too_early) cp_async_bulk_wait_group_read<2>();
      else cp_async_bulk_wait_group_read<0>();
    }
    __syncwarp();
    if constexpr (m != Sum::buffer_released_before_the_wait) release_buffers();
    if (m == Sum::released_early && lane == 0) {
      __threadfence();
      atomicAdd(semaphore, 1);  // bug: sum_released_early
    }
    if (m == Sum::cleared_too_late && lane == 0) sum[256 * j + 5] = 0;  // bug: sum_cleared_too_late
  }
  b[lane] = m == Sum::read_too_early ? sum[lane] : 0;  // bug: sum_read_too_early
  if (m == Sum::buffer_released_too_early && lane == 0) cp_async_bulk_wait_group_read<0>();
}
template <Sum m>
void run_additions() {
  const std::vector<float> zeros(3 * 256, 0.0f);
  DeviceArray<float> sum("sum", zeros.size(), Role::scratch);
  if (m != Sum::not_cleared) sum.upload(std::span<const float>(zeros));
  auto b = output("b", 32);
  DeviceArray<int> semaphore("semaphore", 1, Role::scratch);
  const int first[] = {0};
  semaphore.upload(std::span<const int>(first));
  launch(additions<m>, dim3(1), dim3(96), sizeof(Parts), sum.data(), b.data(), semaphore.data(), m == Sum::past_the_sum ? 3 : 2);
  synchronize();
}

/// A bulk store whose destination another thread reads after a barrier, but without a wait for the store.
__global__ void store_read_after_a_barrier(float* b, float* c) {
  __shared__ __align__(16) float line[64];
  line[threadIdx.x] = threadIdx.x;
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    cp_async_bulk_store(b, line, sizeof line);  // other: store_read_after_a_barrier
    cp_async_bulk_commit_group();
  }
  __syncthreads();
  c[threadIdx.x] = b[63 - threadIdx.x];  // bug: store_read_after_a_barrier
  if (threadIdx.x == 0) cp_async_bulk_wait_group<0>();
}

/// A buffer is stored to two destinations, and is overwritten when one of the two stores has read it.
__global__ void line_stored_twice(float* b) {
  __shared__ __align__(16) float line[64];
  line[threadIdx.x] = threadIdx.x;
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      cp_async_bulk_store(b + 64 * i, line, sizeof line);  // other: line_stored_twice
      cp_async_bulk_commit_group();
    }
    cp_async_bulk_wait_group_read<1>();
    line[7] = 0;  // bug: line_stored_twice
    cp_async_bulk_wait_group_read<0>();
  }
}

// --- Operands that threads have written ------------------------------------------------------------------------------

struct alignas(1024) Written {
  half dS[2][64][64];  // per stage: queries, 64 keys
  half K[64][64];      // keys, 64 columns
  half wide[2][16][64];
  SHARED_LAYOUT(Written, dS, K, wide);
};
enum class InOwn { wrong_stride, wrong_leading, stage_overwritten, without_proxy_fence, D_added_to, A_transposed_past_the_end };

/// dQ = dS K twice, with two stages of dS, and in addition a wgmma with a wide operand that has two sections.
template <InOwn m>
__global__ void own(float* b) {
  Written& s = dynamic_shared<Written>();
  for (int i = threadIdx.x; i < 64 * 64; i += blockDim.x) {
    s.dS[0][i / 64][i % 64] = __float2half(1);  // other: own_without_proxy_fence
    s.dS[1][i / 64][i % 64] = __float2half(1);  // other: own_without_proxy_fence
    s.K[i / 64][i % 64] = __float2half(1);      // other: own_without_proxy_fence
    if (i < 2 * 16 * 64) s.wide[i / 1024][i / 64 % 16][i % 64] = __float2half(1);
  }
  if constexpr (m != InOwn::without_proxy_fence) fence_proxy_async();
  __syncthreads();
  const WgmmaMatrix K = wgmma_matrix(s.K, 0, 1024, Swizzle::bytes_128);
  const WgmmaMatrix dS = wgmma_matrix(s.dS[0], 0, m == InOwn::wrong_stride ? 512 : 1024, Swizzle::bytes_128);
  Fragment<float, 32> dQ;
  wgmma_fence();
  if constexpr (m == InOwn::A_transposed_past_the_end) {
    const WgmmaMatrix A = wgmma_matrix(s.dS[1][56], 0, 1024, Swizzle::bytes_128);
    wgmma_mma_async<half, Major::n, Major::m>(dQ, A, K);  // bug: own_A_transposed_past_the_end
  } else if constexpr (m == InOwn::D_added_to) {
    wgmma_mma_async<half, Major::n>(dQ, dS, K, true);  // bug: own_D_added_to
  } else {
    wgmma_mma_async<half, Major::n>(dQ, dS, K);  // bug: own_wrong_stride bug: own_without_proxy_fence other: own_stage_overwritten
  }
  wgmma_commit_group();
  if constexpr (m == InOwn::wrong_leading) {
    Fragment<half, 4> A;
    A.fill(0);
    Fragment<float, 64> D;
    wgmma_fence();
    wgmma_mma_async<half, Major::n>(D, A, wgmma_matrix(s.wide, 128, 1024, Swizzle::bytes_128));  // bug: own_wrong_leading
    wgmma_commit_group();
    wgmma_wait_group<0>(D);
  }
  if constexpr (m == InOwn::stage_overwritten) {
    Fragment<half, 4> next;
    next.fill(0);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    stmatrix_x4_trans(&s.dS[0][16 * warp + lane % 16][lane / 16 * 8], next);  // bug: own_stage_overwritten
  }
  wgmma_wait_group<0>(dQ);
  b[threadIdx.x] = dQ[0];
}
template <InOwn m>
void run_own() {
  auto b = output("b", 128);
  launch(own<m>, dim3(1), dim3(128), sizeof(Written), b.data());
  synchronize();
}

constexpr Case cases[] = {
    {"line_odd_size", run_lines<Line::odd_size>, "misaligned access"},
    {"line_odd_source", run_lines<Line::odd_source>, "misaligned access"},
    {"line_odd_address", run_lines<Line::odd_address>, "misaligned access"},
    {"line_past_the_tensor", run_lines<Line::past_the_tensor>, "out of bounds, global memory"},
    {"line_into_the_next_member", run_lines<Line::into_the_next_member>, "out of bounds, shared memory"},
    {"line_swapped", run_lines<Line::swapped>, "out of bounds, shared memory"},
    {"line_barrier_not_fenced", run_lines<Line::barrier_not_fenced>, "misuse of an mbarrier"},
    {"line_not_expected", run_lines<Line::not_expected>, "mbarrier transaction bytes do not add up"},
    {"line_not_waited_for", run_lines<Line::not_waited_for>, "read before the copy is complete"},
    {"line_stage_released_early", run_lines<Line::stage_released_early>, "overwritten while it may be read", "", "read before the copy is complete"},
    {"sum_not_cleared", run_additions<Sum::not_cleared>, "read of uninitialised global memory"},
    {"sum_odd_address", run_additions<Sum::odd_address>, "misaligned access"},
    {"sum_past_the_sum", run_additions<Sum::past_the_sum>, "out of bounds, global memory"},
    {"sum_without_proxy_fence", run_additions<Sum::without_proxy_fence>, "missing proxy fence"},
    {"sum_signalled_before_written", run_additions<Sum::signalled_before_written>, "race: read after write", "", "overwritten while it may be read"},
    {"sum_overwritten", run_additions<Sum::overwritten>, "overwritten while it may be read"},
    {"sum_buffer_released_too_early", run_additions<Sum::buffer_released_too_early>, "overwritten while it may be read"},
    {"sum_buffer_released_before_the_wait", run_additions<Sum::buffer_released_before_the_wait>, "overwritten while it may be read"},
    {"sum_not_committed", run_additions<Sum::not_committed>, "bulk store not waited for"},
    {"sum_not_waited_for", run_additions<Sum::not_waited_for>, "bulk store not waited for"},
    {"sum_read_too_early", run_additions<Sum::read_too_early>, "bulk store not waited for"},
    {"sum_cleared_too_late", run_additions<Sum::cleared_too_late>, "bulk store not waited for"},
    {"sum_released_early", run_additions<Sum::released_early>, "bulk store not waited for"},
    {"store_read_after_a_barrier",
     [] {
       DeviceArray<float> b("b", 64, Role::scratch);
       auto c = output("c", 64);
       launch(store_read_after_a_barrier, dim3(1), dim3(64), 0, b.data(), c.data());
       synchronize();
     }, "bulk store not waited for"},
    {"line_stored_twice",
 planted<line_stored_twice, 64, 0, 128>, "overwritten while it may be read"},
    {"own_wrong_stride", run_own<InOwn::wrong_stride>, "matrix descriptor does not match shared memory"},
    {"own_wrong_leading", run_own<InOwn::wrong_leading>, "matrix descriptor does not match shared memory"},
    {"own_stage_overwritten", run_own<InOwn::stage_overwritten>, "overwritten while it may be read"},
    {"own_without_proxy_fence", run_own<InOwn::without_proxy_fence>, "missing proxy fence"},
    {"own_D_added_to", run_own<InOwn::D_added_to>, "use of an uninitialised fragment"},
    {"own_A_transposed_past_the_end", run_own<InOwn::A_transposed_past_the_end>, "matrix descriptor does not match shared memory", "", "out of bounds, shared memory"},
};

}  // namespace

std::span<const Case> line_mistakes() {
  return cases;
}

}  // namespace zoo
