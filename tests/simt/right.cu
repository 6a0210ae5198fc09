// Correct kernels with code that a detector could mistake for an error. None has a report, and all give the correct
// result.
#include "tests/simt/arrays.hpp"
#include "tests/simt/cases.hpp"

namespace zoo {
namespace {

using namespace nvcuda;
constexpr unsigned kFull = 0xffffffffu;

// --- Blocks that read what others have written ---

/// The last of the blocks adds what all have written. The counter is then 0 again.
template <bool each_thread>
__global__ void last_block_adds(float* scratch, unsigned* counter, float* b) {
  __shared__ bool last;
  scratch[blockIdx.x * blockDim.x + threadIdx.x] = float(threadIdx.x);
  if (each_thread) __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    if (!each_thread) __threadfence();  // of all threads' writes: they come before the barrier
    last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (!last) return;
  float sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) sum += scratch[i * blockDim.x + threadIdx.x];
  b[threadIdx.x] = sum;
}
template <bool each_thread>
void last_block_of_five() {
  DeviceArray<float> scratch("scratch", 5 * 64, Role::scratch);
  DeviceArray<unsigned> counter("counter", 1, Role::scratch);
  workbook::cuda::clear(counter.data(), sizeof(unsigned));
  for (int launches = 0; launches < 2; ++launches) {
    auto b = output("b", 64);
    launch(last_block_adds<each_thread>, dim3(5), dim3(64), 0, scratch.data(), counter.data(), b.data());
    expect(b, [](size_t i) { return 5 * i; });
  }
}

/// The last block of each of two pairs counts on a third counter, and the second of these adds what all four have
/// written. It has not shared a counter with the first block of the other pair, but its last block has.
__global__ void pairs_add(float* scratch, unsigned* counters, float* b) {
  __shared__ bool last;
  const auto is_last_of_two = [&](unsigned* counter) {
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      last = atomicInc(counter, 1) == 1;
      __threadfence();
    }
    __syncthreads();
    return last;
  };
  scratch[blockIdx.x * blockDim.x + threadIdx.x] = float(threadIdx.x);
  if (!is_last_of_two(counters + blockIdx.x / 2) || !is_last_of_two(counters + 2)) return;
  float sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) sum += scratch[i * blockDim.x + threadIdx.x];
  b[threadIdx.x] = sum;
}
void two_pairs_of_blocks() {
  DeviceArray<float> scratch("scratch", 4 * 64, Role::scratch);
  DeviceArray<unsigned> counters("counters", 3, Role::scratch);
  workbook::cuda::clear(counters.data(), 3 * sizeof(unsigned));
  auto b = output("b", 64);
  launch(pairs_add, dim3(4), dim3(64), 0, scratch.data(), counters.data(), b.data());
  expect(b, [](size_t i) { return 4 * i; });
}

// --- Accesses ---

__global__ void ragged_copy(const float* a, float* b, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n + 3) / 4; i += gridDim.x * blockDim.x) {
    if (4 * i + 4 <= n) {
      reinterpret_cast<float4*>(b)[i] = reinterpret_cast<const float4*>(a)[i];
    } else {
      for (int j = 4 * i; j < n; ++j) b[j] = a[j];
    }
  }
}

/// Not inlined: the call returns its result directly to memory.
__attribute__((noinline)) __device__ half one_more(float x) {
  return __float2half(x + 1);
}
__global__ void results_of_calls(const float* a, half* b, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) b[i] = one_more(a[i]);
}

__global__ void early_exit(const float* a, float* b, int n) {
  __shared__ float tile[64];
  const int t = threadIdx.x;
  if (t >= n) return;  // before the barrier: it counts the remaining threads
  tile[t] = a[t];
  __syncthreads();
  b[t] = tile[n - 1 - t];
}

__global__ void whole_warps_exit(const float* a, float* b) {
  if (threadIdx.x >= 64) return;
  __shared__ float tile[64];
  tile[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  float x = tile[63 - threadIdx.x];
  x = __shfl_xor_sync(kFull, x, 1);
  b[threadIdx.x] = x;
}

__global__ void double_buffer(const float* a, float* b, int tiles) {
  __shared__ float tile[2][64];
  const int t = threadIdx.x;
  float sum = 0;
  tile[0][t] = a[t];
  for (int j = 0; j < tiles; ++j) {
    __syncthreads();  // tile j is complete; tile j-1 may be overwritten
    if (j + 1 < tiles) tile[(j + 1) % 2][t] = a[(j + 1) * 64 + t];
    sum += tile[j % 2][63 - t];
  }
  b[t] = sum;
}

__constant__ float weights[4] = {1.f, 2.f, 3.f, 4.f};

__global__ void constant_table(const float* a, float* b) {
  b[threadIdx.x] = a[threadIdx.x] * weights[threadIdx.x % 4];
}

struct Affine {
  float scale, shift[3];
};

__global__ void struct_parameter(const float* a, float* b, Affine f) {
  b[threadIdx.x] = a[threadIdx.x] * f.scale + f.shift[threadIdx.x % 3];
}

__global__ void three_dimensions(float* b) {
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  b[block * blockDim.x * blockDim.y * blockDim.z + thread] = block + thread;
}

__global__ void bytes_of_adjacent_lanes(const float* a, float* b) {
  __shared__ unsigned char s[64];
  const int t = threadIdx.x;
  s[t] = static_cast<unsigned char>(a[t]);
  __syncthreads();
  b[t] = s[63 - t];
}

__global__ void halves_of_adjacent_lanes(const float* a, float* b) {
  __shared__ half s[64];
  const int t = threadIdx.x;
  s[t] = __float2half(a[t]);  // two lanes write one word: no conflict
  __syncthreads();
  b[t] = __half2float(s[63 - t]);
}

__global__ void private_slots(const float* a, float* b) {
  __shared__ float s[64];
  const int t = threadIdx.x;
  s[t] = a[t];  // each thread accesses only its own element: no barrier needed
  s[t] *= 2;
  b[t] = s[t] + 1;
}

__global__ void half2_arithmetic(const half2* a, float* b) {
  const half2 x = a[threadIdx.x];
  const half2 y = __hfma2(x, __float2half2_rn(2.f), __floats2half2_rn(1.f, 0.f));
  b[2 * threadIdx.x] = __low2float(y);
  b[2 * threadIdx.x + 1] = __high2float(y);
}

// --- Reductions and scans ---

__global__ void tree_reduction(const float* a, float* b) {
  __shared__ float s[128];
  const int t = threadIdx.x;
  s[t] = a[t];
  for (int size = 64; size > 0; size /= 2) {
    __syncthreads();
    if (t < size) s[t] += s[t + size];
  }
  __syncthreads();
  b[t] = s[0];
}

__global__ void warp_synchronous_reduction(const float* a, float* b) {
  __shared__ float s[32];
  const int lane = threadIdx.x;
  s[lane] = a[lane];
  __syncwarp();
  for (int size = 16; size > 0; size /= 2) {
    const float sum = s[lane] + s[lane ^ size];
    __syncwarp();  // all have read
    s[lane] = sum;
    __syncwarp();  // all have written
  }
  b[lane] = s[lane];
}

__global__ void halves_of_a_warp(const float* a, float* b) {
  __shared__ float s[32];
  const int lane = threadIdx.x, group = lane / 16;
  const unsigned mask = 0xffffu << 16 * group;
  s[lane] = a[lane];
  __syncwarp(mask);
  float sum = 0;
  for (int i = 0; i < 16; ++i) sum += s[16 * group + i];
  __syncwarp(mask);
  s[lane] = sum;
  __syncwarp(mask);
  b[lane] = s[16 * group + (lane + 1) % 16];
}

__global__ void groups_of_four(const float* a, float* b) {
  float x = a[threadIdx.x];
  x += __shfl_xor_sync(kFull, x, 1);
  x += __shfl_xor_sync(kFull, x, 2);
  b[threadIdx.x] = x;
}

__global__ void warps_combine(const float* a, float* b) {
  __shared__ float partial[4];
  __shared__ float total;
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  float x = a[t];
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_down_sync(kFull, x, offset);
  if (lane == 0) partial[warp] = x;
  __syncthreads();
  if (warp == 0) {
    float y = lane < 4 ? partial[lane] : 0;
    for (int offset = 2; offset > 0; offset /= 2) y += __shfl_xor_sync(kFull, y, offset);
    if (lane == 0) total = y;
  }
  __syncthreads();
  b[t] = total;
}

__global__ void scan_by_shuffles(const float* a, float* b) {
  const int lane = threadIdx.x % 32;
  float x = a[threadIdx.x];
  for (int offset = 1; offset < 32; offset *= 2) {
    const float before = __shfl_up_sync(kFull, x, offset);
    if (lane >= offset) x += before;
  }
  b[threadIdx.x] = x;
}

__global__ void scan_in_shared(const float* a, float* b) {
  __shared__ float s[2][64];
  const int t = threadIdx.x;
  int now = 0;
  s[0][t] = a[t];
  for (int offset = 1; offset < 64; offset *= 2) {
    __syncthreads();
    s[1 - now][t] = s[now][t] + (t >= offset ? s[now][t - offset] : 0.f);
    now = 1 - now;
  }
  b[t] = s[now][t];
}

__global__ void shuffle_in_groups_of_eight(const float* a, float* b) {
  b[threadIdx.x] = __shfl_sync(kFull, a[threadIdx.x], 3, 8);  // lane 3 of each group of eight
}

__global__ void shuffle_wide_values(const float* a, float* b) {
  const int lane = threadIdx.x;
  const double d = __shfl_sync(kFull, double(a[lane]), 31 - lane);
  const long long l = __shfl_xor_sync(kFull, (long long)a[lane] << 32, 1);
  const half2 h = __shfl_sync(kFull, __floats2half2_rn(a[lane], 2.f), 0);
  b[lane] = float(d) + float(l >> 32) + __high2float(h);
}

__global__ void row_maxima_by_lanes(const float* a, float* b) {
  __shared__ __align__(16) float S[32][36];
  const int lane = threadIdx.x;
  for (int i = lane; i < 32 * 32; i += 32) S[i / 32][i % 32] = a[i];
  __syncwarp();
  float maximum = -INFINITY;
  for (int c = 0; c < 32; c += 4) {
    const float4 v = *reinterpret_cast<const float4*>(&S[lane][c]);
    maximum = fmaxf(maximum, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
  }
  b[lane] = maximum;
}

// --- Votes, masks, barriers with results ---

__global__ void compaction(const float* a, float* b) {
  const int lane = threadIdx.x;
  const bool keep = int(a[lane]) % 3 == 0;
  const unsigned kept = __ballot_sync(kFull, keep);
  if (keep) b[__popc(kept & ((1u << lane) - 1))] = a[lane];
}

__global__ void votes(const float* a, float* b) {
  const int lane = threadIdx.x;
  b[lane] =
      __any_sync(kFull, a[lane] == 7) * 100 + __all_sync(kFull, a[lane] < 32) * 10 + __all_sync(kFull, a[lane] > 0);
}

__global__ void branches_with_masks(const float* a, float* b) {
  const int lane = threadIdx.x;
  float x = a[lane];
  if (lane < 8) {
    for (int offset = 4; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffu, x, offset);
  } else {
    x += __shfl_xor_sync(~0xffu, x, 1);
  }
  b[lane] = x;
}

__global__ void barriers_with_results(const float* a, float* b) {
  const int t = threadIdx.x;
  const int count = __syncthreads_count(a[t] < 10);
  const int all = __syncthreads_and(a[t] >= 0);
  const int any = __syncthreads_or(a[t] == 1000);
  b[t] = count * 100 + (all != 0) * 10 + (any != 0);
}

__global__ void lane_zero_decides(const float* a, float* b) {
  __shared__ float s;
  const int t = threadIdx.x;
  for (int j = 0; j < 4; ++j) {
    if (t == 0) s = a[j];
    __syncthreads();
    b[j * 64 + t] = s + t;
    __syncthreads();
  }
}

// --- Atomics ---

__global__ void histogram_shared(const float* a, float* b) {
  __shared__ int bins[8];
  const int t = threadIdx.x;
  if (t < 8) bins[t] = 0;
  __syncthreads();
  atomicAdd(&bins[int(a[t]) % 8], 1);
  __syncthreads();
  if (t < 8) b[t] = bins[t];
}

__global__ void histogram_global(const float* a, int* bins) {
  atomicAdd(&bins[int(a[blockIdx.x * blockDim.x + threadIdx.x]) % 8], 1);
}

__global__ void last_block_adds_up(const float* a, float* partial, unsigned* finished, float* b) {
  __shared__ bool last;
  const int t = threadIdx.x;
  float x = a[blockIdx.x * 32 + t];
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(kFull, x, offset);
  if (t == 0) {
    partial[blockIdx.x] = x;
    __threadfence();
    last = atomicAdd(finished, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  float sum = 0;
  for (int i = 0; i < int(gridDim.x); ++i) sum += partial[i];
  b[t] = sum;
}

__global__ void maximum_by_compare_and_swap(const float* a, int* maximum) {
  const int mine = int(a[threadIdx.x]);
  int old = *maximum;
  while (old < mine) old = atomicCAS(maximum, old, mine);
}

// --- cp.async ---

__global__ void async_tile(const float* a, float* b) {
  __shared__ __align__(16) float tile[256];
  const int t = threadIdx.x;
  __pipeline_memcpy_async(&tile[4 * t], &a[4 * t], 16);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  b[t] = tile[255 - t];
}

__global__ void async_two_stages(const float* a, float* b, int tiles) {
  __shared__ __align__(16) float tile[2][256];
  const int t = threadIdx.x;
  float sum = 0;
  __pipeline_memcpy_async(&tile[0][4 * t], &a[4 * t], 16);
  __pipeline_commit();
  for (int j = 0; j < tiles; ++j) {
    if (j + 1 < tiles) __pipeline_memcpy_async(&tile[(j + 1) % 2][4 * t], &a[(j + 1) * 256 + 4 * t], 16);
    __pipeline_commit();       // an empty group at the end keeps the count right
    __pipeline_wait_prior(1);  // tile j has arrived
    __syncthreads();
    sum += tile[j % 2][255 - t];
    __syncthreads();  // tile j may be overwritten
  }
  b[t] = sum;
}

__global__ void async_zero_fill(const float* a, float* b, int n) {
  __shared__ __align__(16) float tile[128];
  const int t = threadIdx.x, first = 4 * t;
  const int left = n - first < 0 ? 0 : n - first > 4 ? 4 : n - first;
  __pipeline_memcpy_async(&tile[first], left > 0 ? &a[first] : a, 16, 16 - 4 * left);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  for (int i = t; i < 128; i += 32) b[i] = tile[i];
}

// --- WMMA ---

template <int m, int n, int k, class T, class Memory, class Accumulator, class LayoutA, class LayoutB>
__global__ void product(const Memory* A, const Memory* B, Accumulator* C, int lead_a, int lead_b, int lead_c,
                        wmma::layout_t layout_c) {
  wmma::fragment<wmma::matrix_a, m, n, k, T, LayoutA> a;
  wmma::fragment<wmma::matrix_b, m, n, k, T, LayoutB> b;
  wmma::fragment<wmma::accumulator, m, n, k, Accumulator> c;
  wmma::load_matrix_sync(a, A, lead_a);
  wmma::load_matrix_sync(b, B, lead_b);
  wmma::fill_fragment(c, Accumulator(1.f));
  wmma::mma_sync(c, a, b, c);
  wmma::store_matrix_sync(C, c, lead_c, layout_c);
}

/// C = A B + 1 with small integers, exact in every format.
template <int m, int n, int k, class T, class Memory, class Accumulator, bool a_rows, bool b_rows, bool c_rows>
void run_product() {
  const auto value_a = [](int i, int j) { return float((3 * i + j) % 5 - 2); };
  const auto value_b = [](int i, int j) { return float((i + 2 * j) % 7 - 3); };
  std::vector<Memory> A(m * k), B(k * n);
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < k; ++j) A[a_rows ? i * k + j : j * m + i] = Memory(value_a(i, j));
  }
  for (int i = 0; i < k; ++i) {
    for (int j = 0; j < n; ++j) B[b_rows ? i * n + j : j * k + i] = Memory(value_b(i, j));
  }
  DeviceArray<Memory> a("A", std::span<const Memory>(A)), b("B", std::span<const Memory>(B));
  DeviceArray<Accumulator> c("C", m * n, Role::output);
  using LayoutA = std::conditional_t<a_rows, wmma::row_major, wmma::col_major>;
  using LayoutB = std::conditional_t<b_rows, wmma::row_major, wmma::col_major>;
  launch(product<m, n, k, T, Memory, Accumulator, LayoutA, LayoutB>, dim3(1), dim3(32), 0, a.data(), b.data(), c.data(),
         a_rows ? k : m, b_rows ? n : k, c_rows ? n : m, c_rows ? wmma::mem_row_major : wmma::mem_col_major);
  std::vector<Accumulator> C(m * n);
  c.download(std::span<Accumulator>(C));
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      float sum = 1;
      for (int l = 0; l < k; ++l) sum += value_a(i, l) * value_b(l, j);
      const float got = float(C[c_rows ? i * n + j : j * m + i]);
      if (got != sum) {
        throw std::logic_error("C[" + std::to_string(i) + "][" + std::to_string(j) + "] is " + std::to_string(got) +
                               ", expected " + std::to_string(sum));
      }
    }
  }
}

struct Tiles {
  half A[16][24];
  half B[16][24];
  float C[16][20];
  SHARED_LAYOUT(Tiles, (A, 16), (B, 16), (C, 16));
};

/// Loads, accumulates in shared memory in place, stores: each lane accesses its own elements again.
__global__ void accumulator_in_place(const float* a, float* b) {
  Tiles& s = workbook::cuda::dynamic_shared<Tiles>();
  for (int i = threadIdx.x; i < 256; i += 32) {
    s.A[i / 16][i % 16] = __float2half(a[i] / 256);
    s.B[i / 16][i % 16] = __float2half(i / 16 == i % 16 ? 1.f : 0.f);
    s.C[i / 16][i % 16] = 1;
  }
  __syncwarp();
  for (int round = 0; round < 2; ++round) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> y;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    wmma::load_matrix_sync(x, &s.A[0][0], 24);
    wmma::load_matrix_sync(y, &s.B[0][0], 24);
    wmma::load_matrix_sync(c, &s.C[0][0], 20, wmma::mem_row_major);
    wmma::mma_sync(c, x, y, c);
    wmma::store_matrix_sync(&s.C[0][0], c, 20, wmma::mem_row_major);
  }
  __syncwarp();
  for (int i = threadIdx.x; i < 256; i += 32) b[i] = s.C[i / 16][i % 16];
}

/// The layout of an accumulator, determined by loading a matrix of row numbers; then each row is scaled by its own
/// factor.
__global__ void learned_layout(const float* a, float* b) {
  __shared__ __align__(32) float numbers[256];
  const int lane = threadIdx.x;
  for (int i = lane; i < 256; i += 32) numbers[i] = i / 16;
  __syncwarp();
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> rows, c;
  wmma::load_matrix_sync(rows, numbers, 16, wmma::mem_row_major);
  wmma::load_matrix_sync(c, a, 16, wmma::mem_row_major);
  const float factor = lane + 1;  // of row `lane`
  for (int e = 0; e < c.num_elements; ++e) c.x[e] *= __shfl_sync(kFull, factor, int(rows.x[e]));
  wmma::store_matrix_sync(b, c, 16, wmma::mem_row_major);
}

/// An accumulator converted to halves element by element, never filled or loaded as a whole.
__global__ void converted_fragment(const float* a, half* b) {
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
  wmma::fragment<wmma::accumulator, 16, 16, 16, half> h;
  wmma::load_matrix_sync(c, a, 16, wmma::mem_row_major);
  for (int e = 0; e < c.num_elements; ++e) h.x[e] = __float2half(c.x[e]);
  wmma::store_matrix_sync(b, h, 16, wmma::mem_row_major);
}

// --- Dynamic shared memory ---

struct Reused {
  union {
    half K[32][16];
    float partial[4][64];
  };
  float sums[4];
  SHARED_LAYOUT(Reused, K, partial, sums);
};

__global__ void reused_memory(const float* a, float* b) {
  Reused& s = workbook::cuda::dynamic_shared<Reused>();
  const int t = threadIdx.x, warp = t / 32;
  for (int i = t; i < 512; i += 128) s.K[i / 16][i % 16] = __float2half(1.f);
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < 16; ++i) sum += __half2float(s.K[t % 32][i]);
  __syncthreads();  // K is no longer needed
  s.partial[warp][t % 32] = sum;
  s.partial[warp][32 + t % 32] = a[t];
  __syncthreads();
  b[t] = s.partial[(warp + 1) % 4][t % 32] + s.partial[warp][32 + t % 32];
}

/// Scores as floats, overwritten in place by halves: a lane owns its row.
__global__ void halves_over_floats(const float* a, float* b) {
  __shared__ __align__(16) float S[32][36];
  const int lane = threadIdx.x;
  for (int c = 0; c < 32; ++c) S[lane][c] = a[lane * 32 + c];
  float row[32];
  for (int c = 0; c < 32; ++c) row[c] = S[lane][c];
  half* P = reinterpret_cast<half*>(&S[lane][0]);
  for (int c = 0; c < 32; ++c) P[c] = __float2half(row[c] / 1024);
  __syncwarp();
  b[lane] = __half2float(reinterpret_cast<const half*>(&S[31 - lane][0])[lane]);
}

__global__ void cleared_padding(float* b) {
  float* s = workbook::cuda::dynamic_shared_array<float>();
  for (int i = threadIdx.x; i < 16 * 20; i += 32)
    s[i] = 0;  // rows of 16 and their padding: unnamed, so access is allowed
  __syncwarp();
  b[threadIdx.x] = s[threadIdx.x % 16 * 20];
}

__global__ void partial_last_warp(const float* a, float* b) {
  __shared__ float s[48];
  const int t = threadIdx.x;
  s[t] = a[t];
  __syncthreads();
  const float x = __shfl_xor_sync(kFull, s[47 - t], 1);  // lanes 16 to 31 of the second warp do not exist
  b[t] = x;
}

// --- Launches ---

template <auto kKernel, int kThreads, int kIn, int kOut, int kShared = 0, class... Rest>
DeviceArray<float> on_floats(Rest... rest) {
  auto a = floats("a", kIn);
  auto b = output("b", kOut);
  launch(kKernel, dim3(1), dim3(kThreads), kShared, a.data(), b.data(), rest...);
  return b;
}

using std::size_t;

constexpr Case cases[] = {
    {"ragged copy",
     [] {
       auto a = floats("a", 1003);
       auto b = output("b", 1003);
       launch(ragged_copy, dim3(2), dim3(64), 0, a.data(), b.data(), 1003);
       expect(b, [](size_t i) { return i; });
     }},
    {"early exit", [] { expect(on_floats<early_exit, 64, 50, 50>(50), [](size_t i) { return 49 - i; }); }},
    {"whole warps exit",
     [] { expect(on_floats<whole_warps_exit, 128, 64, 64>(), [](size_t i) { return 63 - (i ^ 1); }); }},
    {"double buffer",
     [] { expect(on_floats<double_buffer, 64, 256, 64>(4), [](size_t i) { return 4 * (63 - i) + 64 * 6; }); }},
    {"constant table",
     [] { expect(on_floats<constant_table, 64, 64, 64>(), [](size_t i) { return i * (i % 4 + 1); }); }},
    {"struct parameter",
     [] {
       expect(on_floats<struct_parameter, 64, 64, 64>(Affine{2, {1, 2, 3}}),
              [](size_t i) { return 2 * i + i % 3 + 1; });
     }},
    {"three dimensions",
     [] {
       auto b = output("b", 2 * 3 * 2 * 4 * 3 * 2);
       launch(three_dimensions, dim3(2, 3, 2), dim3(4, 3, 2), 0, b.data());
       expect(b, [](size_t i) { return i / 24 + i % 24; });
     }},
    {"bytes of adjacent lanes",
     [] { expect(on_floats<bytes_of_adjacent_lanes, 64, 64, 64>(), [](size_t i) { return 63 - i; }); }},
    {"halves of adjacent lanes",
     [] { expect(on_floats<halves_of_adjacent_lanes, 64, 64, 64>(), [](size_t i) { return 63 - i; }); }},
    {"private slots", [] { expect(on_floats<private_slots, 64, 64, 64>(), [](size_t i) { return 2 * i + 1; }); }},
    {"half2 arithmetic",
     [] {
       std::vector<half2> host;
       for (int i = 0; i < 32; ++i) host.push_back(__floats2half2_rn(i, -i));
       DeviceArray<half2> a("a", std::span<const half2>(host));
       auto b = output("b", 64);
       launch(half2_arithmetic, dim3(1), dim3(32), 0, a.data(), b.data());
       expect(b, [](size_t i) { return i % 2 == 0 ? float(i) + 1 : -float(i - 1); });
     }},
    {"tree reduction", [] { expect(on_floats<tree_reduction, 128, 128, 128>(), [](size_t) { return 127 * 64; }); }},
    {"warp-synchronous reduction",
     [] { expect(on_floats<warp_synchronous_reduction, 32, 32, 32>(), [](size_t) { return 31 * 16; }); }},
    {"halves of a warp",
     [] { expect(on_floats<halves_of_a_warp, 32, 32, 32>(), [](size_t i) { return i < 16 ? 120 : 376; }); }},
    {"groups of four",
     [] { expect(on_floats<groups_of_four, 64, 64, 64>(), [](size_t i) { return i / 4 * 16 + 6; }); }},
    {"warps combine", [] { expect(on_floats<warps_combine, 128, 128, 128>(), [](size_t) { return 127 * 64; }); }},
    {"scan by shuffles",
     [] { expect(on_floats<scan_by_shuffles, 32, 32, 32>(), [](size_t i) { return i * (i + 1) / 2; }); }},
    {"scan in shared memory",
     [] { expect(on_floats<scan_in_shared, 64, 64, 64>(), [](size_t i) { return i * (i + 1) / 2; }); }},
    {"shuffle in groups of eight",
     [] { expect(on_floats<shuffle_in_groups_of_eight, 32, 32, 32>(), [](size_t i) { return i / 8 * 8 + 3; }); }},
    {"shuffle of wide values",
     [] { expect(on_floats<shuffle_wide_values, 32, 32, 32>(), [](size_t i) { return 31 - i + (i ^ 1) + 2; }); }},
    {"row maxima by lanes",
     [] { expect(on_floats<row_maxima_by_lanes, 32, 1024, 32>(), [](size_t i) { return 32 * i + 31; }); }},
    {"compaction", [] { expect(on_floats<compaction, 32, 32, 11>(), [](size_t i) { return 3 * i; }); }},
    {"votes", [] { expect(on_floats<votes, 32, 32, 32>(), [](size_t) { return 110; }); }},
    {"branches with masks",
     [] { expect(on_floats<branches_with_masks, 32, 32, 32>(), [](size_t i) { return i < 8 ? 28 : i + (i ^ 1); }); }},
    {"barriers with results",
     [] { expect(on_floats<barriers_with_results, 64, 64, 64>(), [](size_t) { return 1010; }); }},
    {"lane zero decides",
     [] { expect(on_floats<lane_zero_decides, 64, 64, 256>(), [](size_t i) { return i / 64 + i % 64; }); }},
    {"histogram in shared memory", [] { expect(on_floats<histogram_shared, 64, 64, 8>(), [](size_t) { return 8; }); }},
    {"histogram in global memory",
     [] {
       auto a = floats("a", 256);
       const std::vector<int> zeros(8, 0);
       DeviceArray<int> bins("bins", std::span<const int>(zeros));
       launch(histogram_global, dim3(4), dim3(64), 0, a.data(), bins.data());
       std::vector<int> counts(8);
       bins.download(std::span<int>(counts));
       if (counts != std::vector<int>(8, 32)) throw std::logic_error("wrong histogram");
     }},
    {"last block adds up",
     [] {
       auto a = floats("a", 256);
       DeviceArray<float> partial("partial", 8, Role::scratch);
       const std::vector<unsigned> zero(1, 0u);
       DeviceArray<unsigned> finished("finished", std::span<const unsigned>(zero));
       auto b = output("b", 32);
       launch(last_block_adds_up, dim3(8), dim3(32), 0, a.data(), partial.data(), finished.data(), b.data());
       expect(b, [](size_t) { return 255 * 128; });
     }},
    {"maximum by compare and swap",
     [] {
       auto a = floats("a", 64);
       const std::vector<int> start(1, -1);
       DeviceArray<int> maximum("maximum", std::span<const int>(start));
       launch(maximum_by_compare_and_swap, dim3(1), dim3(64), 0, a.data(), maximum.data());
       std::vector<int> got(1);
       maximum.download(std::span<int>(got));
       if (got[0] != 63) throw std::logic_error("wrong maximum");
     }},
    {"async tile", [] { expect(on_floats<async_tile, 64, 256, 64>(), [](size_t i) { return 255 - i; }); }},
    {"async two stages",
     [] { expect(on_floats<async_two_stages, 64, 1024, 64>(4), [](size_t i) { return 4 * (255 - i) + 256 * 6; }); }},
    {"async zero fill",
     [] { expect(on_floats<async_zero_fill, 32, 50, 128>(50), [](size_t i) { return i < 50 ? i : 0; }); }},
    {"product 16x16x16 half", run_product<16, 16, 16, half, half, float, true, false, true>},
    {"product 16x16x16 half, columns", run_product<16, 16, 16, half, half, float, false, true, false>},
    {"product 16x16x16 half, half sum", run_product<16, 16, 16, half, half, half, true, true, true>},
    {"product 32x8x16 half", run_product<32, 8, 16, half, half, float, true, false, true>},
    {"product 8x32x16 half", run_product<8, 32, 16, half, half, float, false, true, true>},
    {"product 8x32x16 half, half sum", run_product<8, 32, 16, half, half, half, true, false, false>},
    {"product 16x16x16 bf16", run_product<16, 16, 16, __nv_bfloat16, __nv_bfloat16, float, true, true, true>},
    {"product 32x8x16 bf16", run_product<32, 8, 16, __nv_bfloat16, __nv_bfloat16, float, false, false, false>},
    {"product 8x32x16 bf16", run_product<8, 32, 16, __nv_bfloat16, __nv_bfloat16, float, true, true, true>},
    {"product 16x16x8 tf32", run_product<16, 16, 8, wmma::precision::tf32, float, float, true, false, true>},
    {"product 16x16x8 tf32, columns", run_product<16, 16, 8, wmma::precision::tf32, float, float, false, true, false>},
    {"accumulator in place",
     [] {
       expect(on_floats<accumulator_in_place, 32, 256, 256, sizeof(Tiles)>(),
              [](size_t i) { return 1 + 2 * (i / 256.f); });
     }},
    {"learned layout",
     [] { expect(on_floats<learned_layout, 32, 256, 256>(), [](size_t i) { return i * (i / 16 + 1); }); }},
    {"results of calls",
     [] {
       auto a = floats("a", 70);
       DeviceArray<half> b("b", 70, Role::output);
       launch(results_of_calls, dim3(1), dim3(32), 0, a.data(), b.data(), 70);
       std::vector<half> host(70);
       b.download(std::span<half>(host));
       for (int i = 0; i < 70; ++i) {
         if (__half2float(host[i]) != float(i + 1)) throw std::logic_error("wrong result");
       }
     }},
    {"converted fragment",
     [] {
       auto a = floats("a", 256);
       DeviceArray<half> b("b", 256, Role::output);
       launch(converted_fragment, dim3(1), dim3(32), 0, a.data(), b.data());
       std::vector<half> host(256);
       b.download(std::span<half>(host));
       for (int i = 0; i < 256; ++i) {
         if (__half2float(host[i]) != float(i)) throw std::logic_error("wrong conversion");
       }
     }},
    {"reused memory",
     [] { expect(on_floats<reused_memory, 128, 128, 128, sizeof(Reused)>(), [](size_t i) { return 16 + i; }); }},
    {"halves over floats",
     [] {
       expect(on_floats<halves_over_floats, 32, 1024, 32>(), [](size_t i) { return ((31 - i) * 32 + i) / 1024.f; });
     }},
    {"cleared padding",
     [] {
       auto b = output("b", 32);
       launch(cleared_padding, dim3(1), dim3(32), 16 * 20 * 4, b.data());
       expect(b, [](size_t) { return 0; });
     }},
    {"last block adds, one fence", last_block_of_five<false>},
    {"last block adds, fences of all threads", last_block_of_five<true>},
    {"blocks add by pairs", two_pairs_of_blocks},
    {"partial last warp",
     [] { expect(on_floats<partial_last_warp, 48, 48, 48>(), [](size_t i) { return 47 - (i ^ 1); }); }},
};

}  // namespace

std::span<const Case> right_cases() {
  return cases;
}

}  // namespace zoo
