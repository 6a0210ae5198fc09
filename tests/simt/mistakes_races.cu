// Kernels with one race each: plain accesses, atomics, WMMA, cp.async; between warps and within one.
#include "tests/simt/arrays.hpp"
#include "tests/simt/cases.hpp"

namespace zoo {
namespace {

using namespace nvcuda;
using FragmentA = wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major>;
using FragmentB = wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major>;
using FragmentC = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

// --- Plain accesses ---

__global__ void missing_barrier(const float* a, float* b) {
  __shared__ float tile[64];
  const int t = threadIdx.x;
  tile[t] = a[t];       // other: missing_barrier
  b[t] = tile[63 - t];  // bug: missing_barrier
}

__global__ void missing_barrier_before_overwrite(const float* a, float* b) {
  __shared__ float tile[64];
  const int t = threadIdx.x;
  float sum = 0;
  for (int j = 0; j < 2; ++j) {
    tile[t] = a[j * 64 + t];  // bug: missing_barrier_before_overwrite
    __syncthreads();
    sum += tile[63 - t];  // other: missing_barrier_before_overwrite
  }
  b[t] = sum;
}

__global__ void two_writers(float* b) {
  __shared__ float maximum;
  maximum = threadIdx.x;  // bug: two_writers   other: two_writers
  __syncthreads();
  b[threadIdx.x] = maximum;
}

__global__ void partial_maximum_ignored(const float* a, float* b) {
  __shared__ float warp_sum[4];
  const int t = threadIdx.x, warp = t / 32;
  float x = a[t];
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  if (t % 32 == 0) warp_sum[warp] = x;  // other: partial_maximum_ignored
  __syncwarp();                         // a barrier of the warp, where one of the block is needed
  float total = 0;
  for (int w = 0; w < 4; ++w) total += warp_sum[w];  // bug: partial_maximum_ignored
  b[t] = total;
}

__global__ void flag_of_one_thread(float* b) {
  __shared__ int flag;
  if (threadIdx.x == 0) flag = 7;  // other: flag_of_one_thread
  b[threadIdx.x] = flag;           // bug: flag_of_one_thread
}

__global__ void reduction_without_barriers(const float* a, float* b) {
  __shared__ float s[128];
  const int t = threadIdx.x;
  s[t] = a[t];
  __syncthreads();
  for (int half_size = 64; half_size >= 32; half_size /= 2) {
    if (t < half_size) s[t] += s[t + half_size];  // bug: reduction_without_barriers   other: reduction_without_barriers
  }
  __syncthreads();
  b[t] = s[0];
}

__global__ void histogram_without_atomics(const float* a, float* b) {
  __shared__ int bins[4];
  const int t = threadIdx.x;
  if (t < 4) bins[t] = 0;
  __syncthreads();
  bins[int(a[t]) % 4] += 1;  // bug: histogram_without_atomics   other: histogram_without_atomics
  __syncthreads();
  b[t] = bins[t % 4];
}

__global__ void atomic_and_plain(float* b) {
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  atomicAdd(&count, 1);    // other: atomic_and_plain
  b[threadIdx.x] = count;  // bug: atomic_and_plain
}

__global__ void halves_read_in_pairs(const float* a, float* b) {
  __shared__ half tile[64];
  const int t = threadIdx.x;
  tile[t] = __float2half(a[t]);                                    // other: halves_read_in_pairs
  const half2 pair = reinterpret_cast<const half2*>(tile)[t / 2];  // bug: halves_read_in_pairs
  b[t] = __low2float(pair);
}

// --- Within one warp ---

__global__ void missing_syncwarp(const float* a, float* b) {
  __shared__ float tile[32];
  const int lane = threadIdx.x;
  tile[lane] = a[lane];      // other: missing_syncwarp
  b[lane] = tile[lane ^ 1];  // bug: missing_syncwarp
}

__global__ void missing_syncwarp_before_overwrite(const float* a, float* b) {
  __shared__ float tile[32];
  const int lane = threadIdx.x;
  tile[lane] = a[lane];
  __syncwarp();
  const float neighbour = tile[lane ^ 1];  // other: missing_syncwarp_before_overwrite
  tile[lane] = neighbour + 1;              // bug: missing_syncwarp_before_overwrite
  __syncwarp();
  b[lane] = tile[lane];
}

__global__ void own_read_before_the_other(const float* a, float* b) {
  __shared__ float tile[32];
  const int lane = threadIdx.x;
  tile[lane] = a[lane];
  __syncwarp();
  float sum = tile[lane];  // no other lane writes this: not the conflicting read
  sum += tile[lane ^ 1];   // other: own_read_before_the_other
  tile[lane] = sum;        // bug: own_read_before_the_other
  __syncwarp();
  b[lane] = tile[lane];
}

__global__ void own_read_after_the_other(const float* a, float* b) {
  __shared__ float tile[32];
  const int lane = threadIdx.x;
  tile[lane] = a[lane];
  __syncwarp();
  float sum = tile[lane ^ 1];  // other: own_read_after_the_other
  sum += tile[lane];           // no other lane writes this: not the conflicting read
  tile[lane] = sum;            // bug: own_read_after_the_other
  __syncwarp();
  b[lane] = tile[lane];
}

__global__ void two_lanes_write(float* b) {
  __shared__ float tile[16];
  const int lane = threadIdx.x;
  tile[lane / 2] = lane;  // bug: two_lanes_write   other: two_lanes_write
  __syncwarp();
  b[lane] = tile[lane / 2];
}

__global__ void shuffle_is_no_barrier(const float* a, float* b) {
  __shared__ float tile[32];
  const int lane = threadIdx.x;
  tile[lane] = a[lane];  // other: shuffle_is_no_barrier
  const float x = __shfl_xor_sync(0xffffffffu, a[lane], 1);
  b[lane] = tile[31 - lane] + x;  // bug: shuffle_is_no_barrier
}

__global__ void half_warp_barrier(const float* a, float* b) {
  __shared__ float tile[32];
  const int lane = threadIdx.x;
  tile[lane] = a[lane];  // other: half_warp_barrier
  __syncwarp(lane < 16 ? 0x0000ffffu : 0xffff0000u);
  b[lane] = tile[31 - lane];  // bug: half_warp_barrier
}

// --- WMMA ---

struct Tiles {
  half A[16][24];
  half B[16][24];
  float C[16][20];
  SHARED_LAYOUT(Tiles, (A, 16), (B, 16), (C, 16));
};

__device__ void fill_tiles(Tiles& s, const float* a) {
  for (int i = threadIdx.x; i < 256; i += blockDim.x) {
    s.A[i / 16][i % 16] = __float2half(a[i]);
    s.B[i / 16][i % 16] = __float2half(a[i + 256]);
  }
}

__global__ void wmma_load_without_barrier(const float* a, float* b) {
  Tiles& s = workbook::cuda::dynamic_shared<Tiles>();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) {
    s.A[i / 16][i % 16] = __float2half(a[i]);  // other: wmma_load_without_barrier
    s.B[i / 16][i % 16] = __float2half(a[i]);
  }
  __syncwarp();
  FragmentA x;
  FragmentC c;
  wmma::load_matrix_sync(x, &s.A[0][0], 24);  // bug: wmma_load_without_barrier
  wmma::fill_fragment(c, __half2float(x.x[0]));
  if (threadIdx.x < 32) wmma::store_matrix_sync(b, c, 16, wmma::mem_row_major);
}

__global__ void wmma_store_then_read(const float* a, float* b) {
  Tiles& s = workbook::cuda::dynamic_shared<Tiles>();
  fill_tiles(s, a);
  __syncthreads();
  FragmentA x;
  FragmentB y;
  FragmentC c;
  wmma::load_matrix_sync(x, &s.A[0][0], 24);
  wmma::load_matrix_sync(y, &s.B[0][0], 24);
  wmma::fill_fragment(c, 0.f);
  wmma::mma_sync(c, x, y, c);
  wmma::store_matrix_sync(&s.C[0][0], c, 20, wmma::mem_row_major);         // other: wmma_store_then_read
  for (int i = threadIdx.x; i < 256; i += 32) b[i] = s.C[i / 16][i % 16];  // bug: wmma_store_then_read
}

__global__ void wmma_tile_overwritten(const float* a, float* b) {
  Tiles& s = workbook::cuda::dynamic_shared<Tiles>();
  fill_tiles(s, a);
  __syncthreads();
  FragmentA x;
  FragmentC c;
  wmma::load_matrix_sync(x, &s.A[0][0], 24);  // other: wmma_tile_overwritten
  for (int i = threadIdx.x; i < 256; i += blockDim.x) {
    s.A[i / 16][i % 16] = __float2half(2.f);  // bug: wmma_tile_overwritten
  }
  wmma::fill_fragment(c, __half2float(x.x[0]));
  if (threadIdx.x < 32) wmma::store_matrix_sync(b, c, 16, wmma::mem_row_major);
}

__global__ void wmma_two_warps_store(float* b) {
  Tiles& s = workbook::cuda::dynamic_shared<Tiles>();
  FragmentC c;
  wmma::fill_fragment(c, 1.f);
  const auto rows = wmma::mem_row_major;
  wmma::store_matrix_sync(s.C[0], c, 20, rows);  // bug: wmma_two_warps_store   other: wmma_two_warps_store
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) b[i] = s.C[i / 16][i % 16];
}

// --- cp.async ---

__global__ void async_not_waited_for(const float* a, float* b) {
  __shared__ __align__(16) float tile[256];
  const int t = threadIdx.x;
  __pipeline_memcpy_async(&tile[4 * t], &a[4 * t], 16);  // other: async_not_waited_for
  __pipeline_commit();
  __syncthreads();
  b[t] = tile[t];  // bug: async_not_waited_for
}

__global__ void async_without_barrier(const float* a, float* b) {
  __shared__ __align__(16) float tile[256];
  const int t = threadIdx.x;
  __pipeline_memcpy_async(&tile[4 * t], &a[4 * t], 16);  // other: async_without_barrier
  __pipeline_commit();
  __pipeline_wait_prior(0);
  b[t] = tile[t];  // bug: async_without_barrier
}

__global__ void async_barrier_before_the_wait(const float* a, float* b) {
  __shared__ __align__(16) float tile[256];
  const int t = threadIdx.x;
  __pipeline_memcpy_async(&tile[4 * t], &a[4 * t], 16);  // other: async_barrier_before_the_wait
  __pipeline_commit();
  __syncthreads();
  __pipeline_wait_prior(0);
  b[t] = tile[(t + 4) % 256];  // bug: async_barrier_before_the_wait
}

__global__ void async_waits_for_too_few(const float* a, float* b) {
  __shared__ __align__(16) float tile[2][256];
  const int t = threadIdx.x;
  for (int stage = 0; stage < 2; ++stage) {
    __pipeline_memcpy_async(&tile[stage][4 * t], &a[4 * t], 16);  // other: async_waits_for_too_few
    __pipeline_commit();
  }
  __pipeline_wait_prior(1);
  __syncthreads();
  b[t] = tile[0][t] + tile[1][t];  // bug: async_waits_for_too_few
}

__global__ void async_never_committed(const float* a, float* b) {
  __shared__ __align__(16) float tile[256];
  const int t = threadIdx.x;
  __pipeline_memcpy_async(&tile[4 * t], &a[4 * t], 16);  // other: async_never_committed
  __pipeline_wait_prior(0);
  __syncthreads();
  b[t] = tile[t];  // bug: async_never_committed
}

__global__ void async_over_data_still_read(const float* a, float* b) {
  __shared__ __align__(16) float tile[256];
  const int t = threadIdx.x;
  float sum = 0;
  for (int j = 0; j < 2; ++j) {
    __pipeline_memcpy_async(&tile[4 * t], &a[4 * t], 16);  // bug: async_over_data_still_read
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    sum += tile[t];  // other: async_over_data_still_read
  }
  b[t] = sum;
}

__global__ void async_own_bytes_touched(const float* a, float* b) {
  __shared__ __align__(16) float tile[256];
  const int t = threadIdx.x;
  __pipeline_memcpy_async(&tile[4 * t], &a[4 * t], 16);  // other: async_own_bytes_touched
  tile[4 * t] = 0;                                       // bug: async_own_bytes_touched
  __pipeline_commit();
  __pipeline_wait_prior(0);
  b[t] = tile[4 * t];
}

__global__ void async_to_one_address(const float* a, float* b) {
  __shared__ __align__(16) float tile[256];
  const int t = threadIdx.x;
  __pipeline_memcpy_async(&tile[4 * (t % 32)], &a[4 * t], 16);  // bug: async_to_one_address other: async_to_one_address
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  b[t] = tile[t];
}

// --- Launches ---

constexpr Case cases[] = {
    {"missing_barrier", planted<missing_barrier, 64>, "race: read after write", "tile"},
    {"missing_barrier_before_overwrite", planted<missing_barrier_before_overwrite, 64>, "race: write after read",
     "tile"},
    {"two_writers", planted<two_writers, 64>, "race: write after write", "maximum"},
    {"partial_maximum_ignored", planted<partial_maximum_ignored, 128>, "race: read after write", "warp_sum"},
    {"flag_of_one_thread", planted<flag_of_one_thread, 64>, "race: read after write", "flag"},
    {"reduction_without_barriers", planted<reduction_without_barriers, 128>, "race: read after write", "s"},
    {"histogram_without_atomics", planted<histogram_without_atomics, 64>, "race: write after write", "bins"},
    {"atomic_and_plain", planted<atomic_and_plain, 64>, "race: read after write", "count"},
    {"halves_read_in_pairs", planted<halves_read_in_pairs, 64>, "race: read after write", "tile"},
    {"missing_syncwarp", planted<missing_syncwarp>, "race: read after write", "tile"},
    {"missing_syncwarp_before_overwrite", planted<missing_syncwarp_before_overwrite>, "race: write after read", "tile"},
    {"own_read_before_the_other", planted<own_read_before_the_other>, "race: write after read", "tile"},
    {"own_read_after_the_other", planted<own_read_after_the_other>, "race: write after read", "tile"},
    {"two_lanes_write", planted<two_lanes_write>, "race: write after write", "tile"},
    {"shuffle_is_no_barrier", planted<shuffle_is_no_barrier>, "race: read after write", "tile"},
    {"half_warp_barrier", planted<half_warp_barrier>, "race: read after write", "tile"},
    {"wmma_load_without_barrier", planted<wmma_load_without_barrier, 64, 1024, 256, sizeof(Tiles)>,
     "race: read after write", "A["},
    {"wmma_store_then_read", planted<wmma_store_then_read, 32, 1024, 256, sizeof(Tiles)>, "race: read after write",
     "C["},
    {"wmma_tile_overwritten", planted<wmma_tile_overwritten, 64, 1024, 256, sizeof(Tiles)>, "race: write after read",
     "A["},
    {"wmma_two_warps_store", planted<wmma_two_warps_store, 64, 0, 256, sizeof(Tiles)>, "race: write after write", "C["},
    {"async_not_waited_for", planted<async_not_waited_for, 64>, "access to bytes of a pending cp.async", "tile"},
    {"async_without_barrier", planted<async_without_barrier, 64>, "race: read after write", "tile"},
    {"async_barrier_before_the_wait", planted<async_barrier_before_the_wait, 64>, "race: read after write", "tile"},
    {"async_waits_for_too_few", planted<async_waits_for_too_few, 64>, "access to bytes of a pending cp.async", "tile"},
    {"async_never_committed", planted<async_never_committed, 64>, "access to bytes of a pending cp.async", "tile"},
    {"async_over_data_still_read", planted<async_over_data_still_read, 64>, "race: write after read", "tile"},
    {"async_own_bytes_touched", planted<async_own_bytes_touched, 64>, "access to bytes of a pending cp.async", "tile"},
    {"async_to_one_address", planted<async_to_one_address, 64>, "race: write after write", "tile"},
};

}  // namespace

std::span<const Case> race_cases() {
  return cases;
}

}  // namespace zoo
