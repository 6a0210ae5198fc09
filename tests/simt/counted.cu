// Kernels for the counters. Figures for them, from Nsight Compute on an H200, are in test_counters.cpp.
#include <cstring>

#include "tests/simt/arrays.hpp"
#include "tests/simt/cases.hpp"

namespace zoo {
namespace {

__global__ void copy_float4(const float4* a, float4* b, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float4 v = a[i];
    v.x += 1.f;
    b[i] = v;
  }
}

__global__ void copy_whole(const float4* a, float4* b, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) memcpy(b + i, a + i, sizeof *b);
}

__global__ void set_whole(float4* b, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) memset(b + i, 0, sizeof *b);
}

__global__ void sum_float4(const float4* a, float* b, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    const float4 v = a[i];
    b[i] = v.x + v.y + v.z + v.w;
  }
}

__global__ void strided(const float* a, float* b, int n, int stride) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i * stride < n) b[i] = a[i * stride];
}

template <int kPad>
__global__ void transpose(const float* a, float* b, int n) {
  __shared__ float tile[32][32 + kPad];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int i = 0; i < 32; i += 8) tile[threadIdx.y + i][threadIdx.x] = a[(y + i) * n + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  y = blockIdx.x * 32 + threadIdx.y;
  for (int i = 0; i < 32; i += 8) b[(y + i) * n + x] = tile[threadIdx.x][threadIdx.y + i];
}

__global__ void reverse_dynamic(const float* a, float* b, int n) {
  float* s = workbook::cuda::dynamic_shared_array<float>();
  const int t = threadIdx.x;
  s[t] = a[t];
  __syncthreads();
  if (t < n) b[t] = s[blockDim.x - 1 - t];
}

__global__ void read_modify_write(float* a) {
  a[threadIdx.x] += 1.f;
}

__global__ void naive_gemm(const float* A, const float* B, float* C, int n) {
  const int r = blockIdx.y * blockDim.y + threadIdx.y, c = blockIdx.x * blockDim.x + threadIdx.x;
  float s = 0;
  for (int k = 0; k < n; k++) s += A[r * n + k] * B[k * n + c];
  C[r * n + c] = s;
}

// --- Patterns of addresses ---

constexpr int kPatternElements = 512;

template <class T>
__global__ void reads(const int* pattern, T* b) {
  T* s = workbook::cuda::dynamic_shared_array<T>();
  const T zero{};
  for (int i = threadIdx.x; i < kPatternElements; i += 32) s[i] = zero;
  __syncthreads();
  const int i = pattern[threadIdx.x];
  T value = zero;
  if (i >= 0) value = s[i];
  b[threadIdx.x] = value;
}

template <class T>
__global__ void writes(const int* pattern, T* b) {
  T* s = workbook::cuda::dynamic_shared_array<T>();
  const T zero{};
  const int i = pattern[threadIdx.x];
  if (i >= 0) s[i] = zero;
  b[threadIdx.x] = zero;
}

__global__ void adds(const int* pattern, int* b) {
  const int i = pattern[threadIdx.x];
  if (i >= 0) atomicAdd(&b[i], 1);
}

// --- Attention forward: a block has 64 query rows, each of its 4 warps 16 of them. ---

using namespace nvcuda;
constexpr int Br = 64, Bc = 64, D = 64, kWarps = 4, kHalfRow = D + 8, kFloatRow = Bc + 4;

struct Smem {
  half Q[Br * kHalfRow], K[Bc * kHalfRow], V[Bc * kHalfRow], P[Br * kHalfRow];
  float S[Br * kFloatRow], O[Br * kFloatRow], m[Br], l[Br];
  SHARED_LAYOUT(Smem, (Q, D, kHalfRow), (K, D, kHalfRow), (V, D, kHalfRow), (P, Bc, kHalfRow), (S, Bc, kFloatRow), O, m,
                l);
};

/// 64x64 halves, 16 bytes per thread and step.
__device__ __forceinline__ void load_tile(half* tile, const half* from, int thread) {
  for (int i = thread; i < Br * D / 8; i += kWarps * 32) {
    const int r = i / (D / 8), c = i % (D / 8);
    *reinterpret_cast<uint4*>(tile + r * kHalfRow + c * 8) = *reinterpret_cast<const uint4*>(from + r * D + c * 8);
  }
}

__global__ void attention_forward(const half* __restrict__ Q, const half* __restrict__ K, const half* __restrict__ V,
                                  float* __restrict__ O, int N, float scale, int causal) {
  Smem& sm = workbook::cuda::dynamic_shared<Smem>();
  const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
  const size_t base = static_cast<size_t>(blockIdx.y) * N * D;
  const int q0 = blockIdx.x * Br, r0 = warp * 16;

  load_tile(sm.Q, Q + base + static_cast<size_t>(q0) * D, tid);
  for (int i = tid; i < Br * kFloatRow; i += kWarps * 32) sm.O[i] = 0.f;
  for (int i = tid; i < Br; i += kWarps * 32) {
    sm.m[i] = -INFINITY;
    sm.l[i] = 0.f;
  }

  const int tiles = causal ? (q0 + Br + Bc - 1) / Bc : N / Bc;
  for (int j = 0; j < tiles; j++) {
    __syncthreads();
    load_tile(sm.K, K + base + static_cast<size_t>(j) * Bc * D, tid);
    load_tile(sm.V, V + base + static_cast<size_t>(j) * Bc * D, tid);
    __syncthreads();
    // S = Q K^T for this warp's 16 rows
    for (int n = 0; n < Bc / 16; n++) {
      wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
      wmma::fill_fragment(acc, 0.f);
      for (int k = 0; k < D / 16; k++) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
        wmma::load_matrix_sync(a, sm.Q + r0 * kHalfRow + k * 16, kHalfRow);
        wmma::load_matrix_sync(b, sm.K + n * 16 * kHalfRow + k * 16, kHalfRow);
        wmma::mma_sync(acc, a, b, acc);
      }
      for (int e = 0; e < acc.num_elements; e++) acc.x[e] *= scale;
      wmma::store_matrix_sync(sm.S + r0 * kFloatRow + n * 16, acc, kFloatRow, wmma::mem_row_major);
    }
    __syncwarp();
    // online softmax, one row at a time: 32 lanes with two columns each
    for (int r = r0; r < r0 + 16; r++) {
      float s0 = sm.S[r * kFloatRow + lane], s1 = sm.S[r * kFloatRow + lane + 32];
      if (causal) {
        if (j * Bc + lane > q0 + r) s0 = -INFINITY;
        if (j * Bc + lane + 32 > q0 + r) s1 = -INFINITY;
      }
      float mx = fmaxf(s0, s1);
      for (int o = 16; o > 0; o /= 2) mx = fmaxf(mx, __shfl_xor_sync(0xffffffffu, mx, o));
      const float m_old = sm.m[r], m_new = fmaxf(m_old, mx);
      const float p0 = __expf(s0 - m_new), p1 = __expf(s1 - m_new);
      float sum = p0 + p1;
      for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
      sm.P[r * kHalfRow + lane] = __float2half(p0);
      sm.P[r * kHalfRow + lane + 32] = __float2half(p1);
      const float alpha = __expf(m_old - m_new);
      sm.O[r * kFloatRow + lane] *= alpha;
      sm.O[r * kFloatRow + lane + 32] *= alpha;
      __syncwarp();
      if (lane == 0) {
        sm.m[r] = m_new;
        sm.l[r] = sm.l[r] * alpha + sum;
      }
    }
    __syncwarp();
    // O += P V
    for (int n = 0; n < D / 16; n++) {
      wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
      wmma::load_matrix_sync(acc, sm.O + r0 * kFloatRow + n * 16, kFloatRow, wmma::mem_row_major);
      for (int k = 0; k < Bc / 16; k++) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
        wmma::load_matrix_sync(a, sm.P + r0 * kHalfRow + k * 16, kHalfRow);
        wmma::load_matrix_sync(b, sm.V + k * 16 * kHalfRow + n * 16, kHalfRow);
        wmma::mma_sync(acc, a, b, acc);
      }
      wmma::store_matrix_sync(sm.O + r0 * kFloatRow + n * 16, acc, kFloatRow, wmma::mem_row_major);
    }
    __syncwarp();
  }
  for (int i = lane; i < 16 * D; i += 32) {
    const int r = r0 + i / D, c = i % D;
    O[base + static_cast<size_t>(q0 + r) * D + c] = sm.O[r * kFloatRow + c] / sm.l[r];
  }
}

void run_copy() {
  auto a = floats("a", 4096);
  auto b = output("b", 4096);
  launch(copy_float4, dim3(8), dim3(128), 0, reinterpret_cast<const float4*>(a.data()),
         reinterpret_cast<float4*>(b.data()), 1024);
  expect(b, [](std::size_t i) { return i % 4 == 0 ? i + 1 : i; });
}
void run_copy_whole() {
  auto a = floats("a", 4096);
  auto b = output("b", 4096);
  launch(copy_whole, dim3(8), dim3(128), 0, reinterpret_cast<const float4*>(a.data()),
         reinterpret_cast<float4*>(b.data()), 1024);
  expect(b, [](std::size_t i) { return i; });
}
void run_set_whole() {
  auto b = output("b", 4096);
  launch(set_whole, dim3(8), dim3(128), 0, reinterpret_cast<float4*>(b.data()), 1024);
  expect(b, [](std::size_t) { return 0; });
}
void run_sum() {
  auto a = floats("a", 4096);
  auto b = output("b", 1024);
  launch(sum_float4, dim3(8), dim3(128), 0, reinterpret_cast<const float4*>(a.data()), b.data(), 1024);
  expect(b, [](std::size_t i) { return 16 * i + 6; });
}
template <int kStride>
void run_strided() {
  const int n = 4096 * kStride > 16384 ? 16384 : 4096 * kStride;
  auto a = floats("a", n);
  auto b = output("b", n / kStride);
  launch(strided, dim3((n / kStride + 127) / 128), dim3(128), 0, a.data(), b.data(), n, kStride);
  expect(b, [](std::size_t i) { return i * kStride; });
}
template <int kPad>
void run_transpose() {
  auto a = floats("a", 128 * 128);
  auto b = output("b", 128 * 128);
  launch(transpose<kPad>, dim3(4, 4), dim3(32, 8), 0, a.data(), b.data(), 128);
  expect(b, [](std::size_t i) { return i % 128 * 128 + i / 128; });
}
void run_reverse() {
  auto a = floats("a", 128);
  auto b = output("b", 128);
  launch(reverse_dynamic, dim3(1), dim3(128), 512, a.data(), b.data(), 128);
  expect(b, [](std::size_t i) { return 127 - i; });
}
void run_read_modify_write() {
  auto a = floats("a", 64);
  launch(read_modify_write, dim3(1), dim3(64), 0, a.data());
  expect(a, [](std::size_t i) { return i + 1; });
}
void run_gemm() {
  auto A = floats("A", 64 * 64);
  auto B = floats("B", 64 * 64);
  auto C = output("C", 64 * 64);
  launch(naive_gemm, dim3(2, 8), dim3(32, 8), 0, A.data(), B.data(), C.data(), 64);
  workbook::cuda::synchronize();
}

DeviceArray<int> on_device(std::span<const int> pattern) {
  return DeviceArray<int>("pattern", pattern);
}
template <class T>
void run_pattern(void (*kernel)(const int*, T*), std::span<const int> pattern) {
  const auto p = on_device(pattern);
  DeviceArray<T> b("b", 32, Role::output);
  launch(kernel, dim3(1), dim3(32), kPatternElements * sizeof(T), p.data(), b.data());
  workbook::cuda::synchronize();
}

constexpr Case cases[] = {
    {"copy float4", run_copy},
    {"copy by memcpy", run_copy_whole},
    {"zeros by memset", run_set_whole},
    {"sum float4", run_sum},
    {"stride 1", run_strided<1>},
    {"stride 2", run_strided<2>},
    {"stride 8", run_strided<8>},
    {"stride 32", run_strided<32>},
    {"transpose 32", run_transpose<0>},
    {"transpose 33", run_transpose<1>},
    {"dynamic shared", run_reverse},
    {"read-modify-write", run_read_modify_write},
    {"naive GEMM 64", run_gemm},
    {"attention 256", [] { attention(256, 2, false); }},
    {"attention 256 causal", [] { attention(256, 2, true); }},
};

}  // namespace

void attention(int N, int BH, bool causal) {
  const std::size_t count = static_cast<std::size_t>(BH) * N * D;
  auto Q = random_halves("Q", count, 1), K = random_halves("K", count, 2), V = random_halves("V", count, 3);
  auto O = output("O", count);
  K.count_by_tiles(Bc * D);
  launch(attention_forward, dim3(N / Br, BH), dim3(kWarps * 32), sizeof(Smem), Q.data(), K.data(), V.data(), O.data(),
         N, 0.125f, int(causal));
  for (const float o : values(O)) {
    if (!(o > -1.f && o < 1.f)) throw std::logic_error("attention's output is no mean of values");
  }
}

void read_by_pattern(int bytes, std::span<const int> pattern) {
  bytes == 8 ? run_pattern<float2>(reads<float2>, pattern) : run_pattern<float4>(reads<float4>, pattern);
}
void write_by_pattern(int bytes, std::span<const int> pattern) {
  bytes == 8 ? run_pattern<float2>(writes<float2>, pattern) : run_pattern<float4>(writes<float4>, pattern);
}
void add_by_pattern(std::span<const int> pattern) {
  const auto p = on_device(pattern);
  const std::vector<int> zeros(kPatternElements, 0);
  DeviceArray<int> b("b", std::span<const int>(zeros));
  launch(adds, dim3(1), dim3(32), 0, p.data(), b.data());
  workbook::cuda::synchronize();
}

std::span<const Case> counted_cases() {
  return cases;
}

}  // namespace zoo
