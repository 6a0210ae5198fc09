// Sums of e4m3 terms by one wgmma, on the GPU and by the simulator, bit for bit. For nvcc, with
// common/simt/tensor_math.cpp; not a part of the tests: tests/simt/compare_with_gpu --conversions. The exit code says
// whether all results are equal.
#include <cuda_fp8.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "common/cuda/kernel.hpp"
#include "common/cuda/ptx_wgmma.hpp"
#include "tests/simt/e4m3_sums.hpp"

// As in tensor_math.hpp, which uses the simulator's float4 and similar types, which CUDA defines as well.
namespace simt {
void multiply_e4m3(int m, int n, const float* a, const float* b, float* c);
}

namespace {

using workbook::cuda::Fragment, workbook::cuda::Swizzle, workbook::cuda::wgmma_matrix;
using E4m3 = __nv_fp8_e4m3;
constexpr int m = 64, n = 8, k = 32;

/// C (64, 8) += A (64, 32) Bᵀ, B (8, 32), one wgmma per block.
__global__ void add_products(const E4m3* A, const E4m3* B, float* C) {
  __shared__ alignas(1024) E4m3 operand_a[m][k];
  __shared__ alignas(1024) E4m3 operand_b[n][k];
  A += blockIdx.x * m * k, B += blockIdx.x * n * k, C += blockIdx.x * m * n;
  // Rows of 32 bytes with the 32-byte swizzle: bit 4 of an address by bit 7.
  for (int i = threadIdx.x; i < m * k; i += blockDim.x) operand_a[i / k][(i % k) ^ (i / k / 4 % 2 * 16)] = A[i];
  for (int i = threadIdx.x; i < n * k; i += blockDim.x) operand_b[i / k][(i % k) ^ (i / k / 4 % 2 * 16)] = B[i];
  workbook::cuda::fence_proxy_async();
  __syncthreads();
  Fragment<float, 4> D;
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  for (int e = 0; e < 4; ++e) D[e] = C[(row + e / 2 * 8) * n + column + e % 2];
  workbook::cuda::wgmma_fence();
  workbook::cuda::wgmma_mma_async<E4m3>(D, wgmma_matrix(operand_a, 0, 256, Swizzle::bytes_32),
                                        wgmma_matrix(operand_b, 0, 256, Swizzle::bytes_32), true);
  workbook::cuda::wgmma_commit_group();
  workbook::cuda::wgmma_wait_group<0>(D);
  for (int e = 0; e < 4; ++e) C[(row + e / 2 * 8) * n + column + e % 2] = D[e];
}

float value_of(std::uint8_t code) {
  E4m3 number;
  number.__x = code;
  return float(number);
}

template <class T>
T* on_device(const std::vector<T>& host) {
  T* memory = nullptr;
  cudaMalloc(&memory, host.size() * sizeof(T));
  cudaMemcpy(memory, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice);
  return memory;
}

}  // namespace

int main() {
  constexpr int products = 4096;
  long different = 0;
  for (int kind = 0; kind < simt::sums::kinds; ++kind) {
    simt::sums::Numbers numbers(kind);
    std::vector<std::uint8_t> A(std::size_t(products) * m * k), B(std::size_t(products) * n * k);
    std::vector<float> C(std::size_t(products) * m * n);
    for (auto& x : A) x = numbers.code();
    for (auto& x : B) x = numbers.code();
    for (auto& x : C) x = numbers.sum();
    float* const sums = on_device(C);
    add_products<<<products, 128>>>(reinterpret_cast<E4m3*>(on_device(A)), reinterpret_cast<E4m3*>(on_device(B)), sums);
    std::vector<float> got(C.size());
    const cudaError_t error = cudaMemcpy(got.data(), sums, got.size() * sizeof(float), cudaMemcpyDeviceToHost);
    if (error != cudaSuccess) return std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error)), 2;
    std::vector<float> a(m * k), b(k * n);
    for (int p = 0; p < products; ++p) {
      for (int i = 0; i < m * k; ++i) a[i] = value_of(A[std::size_t(p) * m * k + i]);
      for (int i = 0; i < n * k; ++i) b[i % k * n + i / k] = value_of(B[std::size_t(p) * n * k + i]);
      float* const expected = &C[std::size_t(p) * m * n];
      simt::multiply_e4m3(m, n, a.data(), b.data(), expected);
      for (int i = 0; i < m * n; ++i) different += expected[i] != got[std::size_t(p) * m * n + i];
    }
  }
  std::printf("sums of e4m3: %ld of %ld differ\n", different, long(simt::sums::kinds) * products * m * n);
  return different != 0;
}
