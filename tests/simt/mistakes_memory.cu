// Kernels with one wrong access each: out of bounds, uninitialised, misaligned; outputs never or twice written.
#include "tests/simt/arrays.hpp"
#include "tests/simt/cases.hpp"

namespace zoo {
namespace {

using namespace nvcuda;
using FragmentA = wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major>;
using FragmentC = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

// --- Global memory ---

__global__ void read_past_end(const float* a, float* b) {
  const int i = threadIdx.x;
  b[i] = a[i + 1];  // bug: read_past_end
}

__global__ void write_past_end(float* b) {
  const int i = threadIdx.x;
  b[i + 1] = 1;  // bug: write_past_end
}

__global__ void read_before_beginning(const float* a, float* b) {
  const int i = threadIdx.x;
  b[i] = a[i - 1];  // bug: read_before_beginning
}

__global__ void vector_over_end(const float* a, float* b) {
  const float4 v = reinterpret_cast<const float4*>(a)[threadIdx.x];  // bug: vector_over_end
  reinterpret_cast<float4*>(b)[threadIdx.x] = v;
}

__global__ void null_pointer(const float* a, float* b) {
  b[threadIdx.x] = a[threadIdx.x];  // bug: null_pointer
}

__global__ void wmma_past_end(const half* a, float* b) {
  FragmentA x;
  FragmentC c;
  wmma::load_matrix_sync(x, a + 16 * 16 * blockIdx.x, 16);  // bug: wmma_past_end
  wmma::fill_fragment(c, __half2float(x.x[0]));
  wmma::store_matrix_sync(b + 16 * 16 * blockIdx.x, c, 16, wmma::mem_row_major);
}

__global__ void async_past_end(const float* a, float* b) {
  __shared__ __align__(16) float tile[128];
  const int t = threadIdx.x;
  __pipeline_memcpy_async(&tile[4 * t], &a[4 * t], 16);  // bug: async_past_end
  __pipeline_commit();
  __pipeline_wait_prior(0);
  b[t] = tile[4 * t];
}

/// The array begins 2^32 elements before the memory that it has, and `first` is the first element that it has.
__global__ void int_offset(const float* a, float* b, std::int64_t first) {
  const int i = int(first) + threadIdx.x;
  b[threadIdx.x] = a[i];  // bug: int_offset
}

__global__ void read_unwritten(float* scratch, float* b) {
  const int i = threadIdx.x;
  if (i < 32) scratch[i] = 1;
  __syncthreads();
  b[i] = scratch[i];  // bug: read_unwritten
}

// The last of four blocks adds what all have written to scratch memory.
__device__ bool is_last(unsigned* counter) {
  __shared__ bool last;
  if (threadIdx.x == 0) last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  return last;
}
__device__ float sum_of_blocks(const float* scratch) {
  float sum = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) {
    const unsigned i = b * blockDim.x + threadIdx.x;
    sum += scratch[i];  // bug: no_fence   bug: fence_after_signal   bug: fence_before_barrier   bug: no_second_fence
  }
  return sum;
}

__global__ void no_fence(float* scratch, unsigned* counter, float* b) {
  scratch[blockIdx.x * blockDim.x + threadIdx.x] = 1;  // other: no_fence
  __syncthreads();
  if (is_last(counter)) b[threadIdx.x] = sum_of_blocks(scratch);
}
__global__ void fence_after_signal(float* scratch, unsigned* counter, float* b) {
  scratch[blockIdx.x * blockDim.x + threadIdx.x] = 1;  // other: fence_after_signal
  __syncthreads();
  const bool last = is_last(counter);
  __threadfence();
  if (last) b[threadIdx.x] = sum_of_blocks(scratch);
}
__global__ void fence_before_barrier(float* scratch, unsigned* counter, float* b) {
  scratch[blockIdx.x * blockDim.x + threadIdx.x] = 1;  // other: fence_before_barrier
  if (threadIdx.x == 0) __threadfence();               // of this thread's writes only
  __syncthreads();
  if (is_last(counter)) b[threadIdx.x] = sum_of_blocks(scratch);
}
__global__ void no_second_fence(float* scratch, unsigned* counter, float* b) {
  scratch[blockIdx.x * blockDim.x + threadIdx.x] = 1;  // other: no_second_fence
  __syncthreads();
  if (threadIdx.x == 0) __threadfence();
  if (is_last(counter)) b[threadIdx.x] = sum_of_blocks(scratch);
}
// Blocks 0 and 1 count on one counter, 2 and 3 on another: blocks 2 and 3 do not know that 0 and 1 have written.
__global__ void other_counter(float* scratch, unsigned* counters, float* b) {
  scratch[blockIdx.x * blockDim.x + threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(&counters[blockIdx.x / 2], 1u);
    __threadfence();
  }
  __syncthreads();
  if (blockIdx.x == 3) b[threadIdx.x] = scratch[threadIdx.x] + scratch[blockDim.x + threadIdx.x];  // bug: other_counter
}
template <void (*kernel)(float*, unsigned*, float*)>
void last_of_four() {
  DeviceArray<float> scratch("scratch", 4 * 64, Role::scratch);
  DeviceArray<unsigned> counter("counter", 2, Role::scratch);
  workbook::cuda::clear(counter.data(), 2 * sizeof(unsigned));
  auto b = output("b", 64);
  launch(kernel, dim3(4), dim3(64), 0, scratch.data(), counter.data(), b.data());
  workbook::cuda::synchronize();
}

__global__ void never_written(float* b, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n / 32 * 32) b[i] = 1;  // the tail is forgotten
}

__global__ void written_twice(float* b) {
  const int i = blockIdx.x * 32 + threadIdx.x;  // blocks of 64 threads, 32 apart
  b[i] = 1;                                     // bug: written_twice   other: written_twice
}

__global__ void accumulated_in_output(float* b) {
  b[threadIdx.x] = 1;   // other: accumulated_in_output
  b[threadIdx.x] += 1;  // bug: accumulated_in_output
}

// --- Shared memory ---

__global__ void static_index(float* b) {
  __shared__ float s[32];
  const int t = threadIdx.x;
  s[t] = t;  // bug: static_index
  __syncthreads();
  b[t] = s[t % 32];
}

__global__ void static_row(float* b) {
  __shared__ float s[8][8];
  const int t = threadIdx.x;
  s[t / 4][t % 4] = t;  // bug: static_row
  __syncthreads();
  b[t] = s[t % 8][0];
}

__global__ void local_index(const float* a, float* b) {
  float sums[4] = {0, 0, 0, 0};
  for (int i = 0; i < 8; ++i) sums[i / int(a[1] + 0.5f)] += a[i];  // bug: local_index
  b[threadIdx.x] = sums[threadIdx.x % 4];
}

__global__ void dynamic_past_launched(float* b) {
  float* s = workbook::cuda::dynamic_shared_array<float>();
  const int t = threadIdx.x;
  s[t] = t;  // bug: dynamic_past_launched
  __syncthreads();
  b[t] = s[63 - t];  // other: dynamic_past_launched
}

struct Smem {
  half K[16][24];
  half V[16][24];
  float m[16];
  float not_named[16];
  SHARED_LAYOUT(Smem, (K, 16), (V, 16), m);
};

__global__ void struct_larger_than_launched(float* b) {
  Smem& s = workbook::cuda::dynamic_shared<Smem>();  // bug: struct_larger_than_launched
  s.m[threadIdx.x % 16] = 1;
  b[threadIdx.x] = 1;
}

__global__ void member_row(const float* a, float* b) {
  Smem& s = workbook::cuda::dynamic_shared<Smem>();
  const int t = threadIdx.x;
  s.K[t / 2][t % 2] = __float2half(a[t]);  // bug: member_row
  __syncthreads();
  b[t] = 1;
}

/// Rows of 16 halves, two 16-byte accesses each; `half*` hides the array's size from the compiler.
__device__ void load_rows(half* tile, const half* from, int rows, int row_halves) {
  for (int i = threadIdx.x; i < rows * 2; i += blockDim.x) {
    *reinterpret_cast<uint4*>(tile + i / 2 * row_halves + i % 2 * 8) =
        reinterpret_cast<const uint4*>(from)[i];  // bug: member_padding
  }
}

__global__ void member_padding(const half* a, float* b) {
  Smem& s = workbook::cuda::dynamic_shared<Smem>();
  load_rows(&s.K[0][0], a, 16, 16);  // the leading dimension is 24
  __syncthreads();
  b[threadIdx.x] = 1;
}

__global__ void member_into_next(const float* a, float* b) {
  Smem& s = workbook::cuda::dynamic_shared<Smem>();
  const int t = threadIdx.x;
  float* m = s.m;
  if (t <= 16) m[t] = a[t];  // bug: member_into_next
  __syncthreads();
  b[t] = 1;
}

__global__ void wmma_into_next_member(float* b) {
  Smem& s = workbook::cuda::dynamic_shared<Smem>();
  for (int i = threadIdx.x; i < 16 * 16; i += 32) {
    s.K[i / 16][i % 16] = __float2half(1.f);
    s.V[i / 16][i % 16] = __float2half(1.f);
  }
  __syncwarp();
  FragmentA x;
  FragmentC c;
  wmma::load_matrix_sync(x, &s.K[8][0], 24);  // bug: wmma_into_next_member
  wmma::fill_fragment(c, __half2float(x.x[0]));
  wmma::store_matrix_sync(b, c, 16, wmma::mem_row_major);
}

/// The compiler does not instrument the stores of the structs that these functions return in place: they are not
/// inlined.
struct Pair {
  float low, high;
};
struct Row {
  float values[8];
};
__attribute__((noinline)) __device__ Pair pair_of(float x) {
  return {x, x + 1};
}
__attribute__((noinline)) __device__ Row row_of(float x) {
  Row row;
  for (int i = 0; i < 8; ++i) row.values[i] = x + i;
  return row;
}

__global__ void unseen_store(const float* a, float* b) {
  __shared__ Pair s[64];
  const int t = threadIdx.x;
  new (&s[t]) Pair(pair_of(a[t]));
  __syncthreads();
  b[t] = s[63 - t].low;  // bug: unseen_store
}

__global__ void unseen_row(const float* a, Row* rows, float* b) {
  const int t = threadIdx.x;
  new (&rows[t]) Row(row_of(a[t]));
  b[t] = rows[t].values[3];  // bug: unseen_row
}

__global__ void unseen_output(const float* a, Pair* b) {
  const int t = threadIdx.x;
  new (&b[t]) Pair(pair_of(a[t]));
}

__global__ void uninitialised(const float* a, float* b) {
  __shared__ float s[64];
  const int t = threadIdx.x;
  if (t < 32) s[t] = a[t];
  __syncthreads();
  b[t] = s[t];  // bug: uninitialised
}

__global__ void uninitialised_sum(const float* a, float* b) {
  __shared__ float s[64];
  const int t = threadIdx.x;
  s[t] += a[t];  // bug: uninitialised_sum
  __syncthreads();
  b[t] = s[t];
}

__global__ void uninitialised_tail(const float* a, float* b, int n) {
  Smem& s = workbook::cuda::dynamic_shared<Smem>();
  for (int i = threadIdx.x; i < n; i += 32) s.K[i / 16][i % 16] = __float2half(a[i]);
  __syncwarp();
  FragmentA x;
  FragmentC c;
  wmma::load_matrix_sync(x, &s.K[0][0], 24);  // bug: uninitialised_tail
  wmma::fill_fragment(c, __half2float(x.x[0]));
  wmma::store_matrix_sync(b, c, 16, wmma::mem_row_major);
}

// --- Alignment ---

__global__ void misaligned_global(const float* a, float* b) {
  const float4 v = reinterpret_cast<const float4*>(a + 1)[threadIdx.x];  // bug: misaligned_global
  b[threadIdx.x] = v.x;
}

__global__ void misaligned_shared(float* b) {
  __shared__ __align__(16) half s[32][9];
  const int t = threadIdx.x;
  *reinterpret_cast<uint4*>(&s[t][0]) = make_uint4(0, 0, 0, 0);  // bug: misaligned_shared
  __syncthreads();
  b[t] = __half2float(s[0][t % 8]);
}

__global__ void misaligned_wmma_pointer(const half* a, float* b) {
  FragmentA x;
  FragmentC c;
  wmma::load_matrix_sync(x, a + 8, 16);  // bug: misaligned_wmma_pointer
  wmma::fill_fragment(c, __half2float(x.x[0]));
  wmma::store_matrix_sync(b, c, 16, wmma::mem_row_major);
}

__global__ void misaligned_wmma_leading(float* b) {
  __shared__ __align__(32) float s[16 * 18];
  FragmentC c;
  wmma::fill_fragment(c, 1.f);
  wmma::store_matrix_sync(s, c, 18, wmma::mem_row_major);  // bug: misaligned_wmma_leading
  __syncwarp();
  b[threadIdx.x] = s[threadIdx.x];
}

__global__ void misaligned_async(const float* a, float* b) {
  __shared__ __align__(16) float tile[256];
  const int t = threadIdx.x;
  __pipeline_memcpy_async(&tile[4 * t], &a[4 * t + 2], 16);  // bug: misaligned_async
  __pipeline_commit();
  __pipeline_wait_prior(0);
  b[t] = tile[4 * t];
}

// --- Launches ---

constexpr Case cases[] = {
    {"read_past_end", planted<read_past_end, 64, 64>, "out of bounds, global memory"},
    {"write_past_end", planted<write_past_end, 64>, "out of bounds, global memory"},
    {"read_before_beginning", planted<read_before_beginning, 64, 64>, "out of bounds, global memory"},
    {"vector_over_end", planted<vector_over_end, 2, 7, 8>, "out of bounds, global memory", "a"},
    {"null_pointer",
     [] {
       auto b = output("b", 32);
       launch(null_pointer, dim3(1), dim3(32), 0, static_cast<const float*>(nullptr), b.data());
     },
     "out of bounds, global memory"},
    {"wmma_past_end", planted<wmma_past_end, 32, 256 + 128, 512, 0, 2>, "out of bounds, global memory"},
    {"async_past_end", planted<async_past_end, 32, 126>, "out of bounds, global memory", "a"},
    {"int_offset",
     [] {
       auto a = floats("a", 64);
       auto b = output("b", 64);
       const std::int64_t first = std::int64_t(1) << 32;
       launch(int_offset, dim3(1), dim3(64), 0, a.data() - first, b.data(), first);
     },
     "offset computed in 32 bits", "a"},
    {"read_unwritten",
     [] {
       DeviceArray<float> scratch("scratch", 64, Role::scratch);
       auto b = output("b", 64);
       launch(read_unwritten, dim3(1), dim3(64), 0, scratch.data(), b.data());
     },
     "read of uninitialised global memory", "scratch"},
    {"no_fence", last_of_four<no_fence>, "write not visible to the other blocks", "scratch"},
    {"fence_after_signal", last_of_four<fence_after_signal>, "write not visible to the other blocks", "scratch"},
    {"no_second_fence", last_of_four<no_second_fence>, "write not visible to the other blocks", "scratch"},
    {"fence_before_barrier", last_of_four<fence_before_barrier>, "write not visible to the other blocks", "scratch"},
    {"other_counter", last_of_four<other_counter>, "read of uninitialised global memory", "scratch"},
    {"never_written",
     [] {
       auto b = output("b", 50);
       launch(never_written, dim3(1), dim3(64), 0, b.data(), 50);
       values(b);
     },
     "output never written", "b"},
    {"written_twice", planted<written_twice, 64, 0, 96, 0, 2>, "output written twice", "b"},
    {"accumulated_in_output", planted<accumulated_in_output>, "output written twice", "b"},
    {"static_index", planted<static_index, 64>, "out of bounds, array"},
    {"static_row", planted<static_row, 64>, "out of bounds, array"},
    {"local_index", planted<local_index, 32, 64>, "out of bounds, array"},
    {"dynamic_past_launched", planted<dynamic_past_launched, 64, 0, 64, 128>, "out of bounds, shared memory",
     "dynamic shared memory"},
    {"struct_larger_than_launched", planted<struct_larger_than_launched, 32, 0, 32, 1024>,
     "out of bounds, shared memory", "Smem"},
    {"member_row", planted<member_row, 64, 64, 64, sizeof(Smem)>, "out of bounds, array"},
    {"member_padding", planted<member_padding, 32, 256, 32, sizeof(Smem)>, "access to padding", "K["},
    {"member_into_next", planted<member_into_next, 32, 64, 32, sizeof(Smem)>, "out of bounds, shared memory"},
    {"wmma_into_next_member", planted<wmma_into_next_member, 32, 0, 256, sizeof(Smem)>, "out of bounds, shared memory",
     "K[8][0]"},
    {"unseen_store", planted<unseen_store, 64, 64>, "store not observed by the simulator", "s"},
    {"unseen_row",
     [] {
       auto a = floats("a", 64);
       DeviceArray<Row> rows("rows", 64, Role::scratch);
       auto b = output("b", 64);
       launch(unseen_row, dim3(1), dim3(64), 0, a.data(), rows.data(), b.data());
     },
     "store not observed by the simulator", "rows"},
    {"unseen_output",
     [] {
       auto a = floats("a", 64);
       DeviceArray<Pair> b("b", 64, Role::output);
       launch(unseen_output, dim3(1), dim3(64), 0, a.data(), b.data());
       std::vector<Pair> host(64);
       b.download(std::span<Pair>(host));
     },
     "store not observed by the simulator", "b"},
    {"uninitialised", planted<uninitialised, 64, 64>, "read of uninitialised shared memory", "s"},
    {"uninitialised_sum", planted<uninitialised_sum, 64, 64>, "read of uninitialised shared memory", "s"},
    {"uninitialised_tail", [] { planted<uninitialised_tail, 32, 256, 256, sizeof(Smem)>(200); },
     "read of uninitialised shared memory", "K["},
    {"misaligned_global", planted<misaligned_global, 8, 64>, "misaligned access", "a"},
    {"misaligned_shared", planted<misaligned_shared>, "misaligned access", "s"},
    {"misaligned_wmma_pointer", planted<misaligned_wmma_pointer, 32, 512, 256>, "misaligned access", "a"},
    {"misaligned_wmma_leading", planted<misaligned_wmma_leading>, "misaligned access", "s"},
    {"misaligned_async", planted<misaligned_async, 32, 256>, "misaligned access"},
};

}  // namespace

std::span<const Case> memory_cases() {
  return cases;
}

}  // namespace zoo
