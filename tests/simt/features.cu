// Kernels for test_launch.cpp: annotations, open exercises, refused launches, several launches.
#include "tests/simt/features.hpp"

#include <cerrno>
#include <cstdio>

#include "tests/simt/arrays.hpp"

namespace zoo {
namespace {

__global__ void annotated(float* b) {
  for (int j = 0; j < 2; ++j) {
    if (j == int(blockIdx.x)) workbook::cuda::note("masked tile", j);
  }
  b[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}

/// As in a stub: the body of a phase is not written yet.
__device__ void phase_without_a_body(float*) {
  WORKBOOK_TODO(4.2);
}

__global__ void open(float* b) {
  __shared__ float s[64];
  workbook::cuda::note("begun", blockIdx.x);
  if (threadIdx.x >= 32) phase_without_a_body(s);  // these end here; their elements stay unwritten
  __syncthreads();
  b[threadIdx.x] = s[63 - threadIdx.x];
}

__global__ void trivial(float* b) {
  b[0] = 1;
}

__global__ void scaled(const float* a, float* b, float factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  b[i] = factor * a[i];
}

/// The number of accesses between two barriers is so large that the records are counted in between.
__global__ void long_loop(const float* a, float* b, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += a[(threadIdx.x + i) % 1024];
  b[threadIdx.x] = sum;
}

__global__ void endless_barriers(float* b) {
  for (;;) {
    __syncthreads();
    b[threadIdx.x] = 1;
  }
}

__global__ void divergent_loop(const float* a, float* b) {
  float sum = 0;
  for (int i = 0; i <= int(threadIdx.x) % 4; ++i) sum += a[threadIdx.x + 32 * i];
  b[threadIdx.x] = sum;
}

__global__ void write_of_static(float* b) {
  static float kept[32];
  static constexpr float constants[] = {1, 2};
  kept[threadIdx.x] = constants[threadIdx.x % 2];
  b[threadIdx.x] = kept[threadIdx.x];
}

__global__ void integer_into_static(float* b) {
  static float kept;
  b[threadIdx.x] = modff(b[threadIdx.x], &kept);
}

struct Rows {
  half tile[16][16];
  std::uint32_t registers[32][4];
};

/// The tile is 1, the registers 0; for this lane, the row of ldmatrix.
__device__ const half* filled(Rows& s) {
  for (int i = 0; i < 8; ++i) s.tile[threadIdx.x / 2][threadIdx.x % 2 * 8 + i] = __float2half(1.f);
  for (std::uint32_t& word : s.registers[threadIdx.x]) word = 0;
  __syncthreads();
  return &s.tile[threadIdx.x % 16][threadIdx.x / 16 * 8];
}
template <class T>
__device__ T& placed(std::uint32_t (&registers)[4]) {
  return reinterpret_cast<T&>(registers);
}
using workbook::cuda::Fragment;

__global__ void ldmatrix_into_shared(float* b) {
  __shared__ __align__(16) Rows s;
  const half* row = filled(s);
  workbook::cuda::ldmatrix_x4(placed<Fragment<half, 4>>(s.registers[threadIdx.x]), row);
  b[threadIdx.x] = s.registers[31 - threadIdx.x][0];
}

__global__ void mma_in_shared(float* b) {
  __shared__ __align__(16) Rows s;
  Fragment<half, 4> a;
  workbook::cuda::ldmatrix_x4(a, filled(s));
  workbook::cuda::mma_m16n8k16(placed<Fragment<float, 4>>(s.registers[threadIdx.x]), a, a[0], a[1]);
  b[threadIdx.x] = s.registers[31 - threadIdx.x][0];
}

__global__ void wmma_in_shared(float* b) {
  using namespace nvcuda;
  using Accumulator = wmma::fragment<wmma::accumulator, 16, 16, 16, half>;
  __shared__ __align__(16) Rows s;
  filled(s);
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> A;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> B;
  wmma::fill_fragment(A, __float2half(1.f));
  wmma::fill_fragment(B, __float2half(1.f));
  auto& C = placed<Accumulator>(s.registers[threadIdx.x]);
  wmma::mma_sync(C, A, B, C);
  b[threadIdx.x] = s.registers[31 - threadIdx.x][0];
}

__global__ void prints(float* b) {
  signed char written = 5;
  b[0] = printf("%s%.*d%%", "", 0, 0);
  b[1] = printf("%m");
  b[2] = fprintf(stdout, "12%hhn", &written);
  b[3] = written;
}

__global__ void reads_errno(float* b) {
  b[threadIdx.x] = errno;
}

}  // namespace

void run_annotated() {
  auto b = output("b", 3 * 32);
  launch(annotated, dim3(3), dim3(32), 0, b.data());
}
void run_open_exercise(unsigned blocks) {
  auto b = output("b", 64);
  launch(open, dim3(blocks), dim3(64), 0, b.data());
}
void run_with(unsigned grid_y, unsigned threads, std::size_t shared_bytes) {
  auto b = floats("b", 1);
  launch(trivial, dim3(1, grid_y), dim3(threads), shared_bytes, b.data());
}
void run_scaled(float factor) {
  auto a = floats("a", 256);
  auto b = output("b", 256);
  launch(scaled, dim3(2), dim3(128), 0, a.data(), b.data(), factor);  // converted as in a call
  expect(b, [&](std::size_t i) { return factor * float(i); });
}
void run_long_loop(int n) {
  auto a = floats("a", 1024);
  auto b = output("b", 32);
  launch(long_loop, dim3(1), dim3(32), 0, a.data(), b.data(), n);
}
void run_endless_barriers() {
  auto b = output("b", 64);
  launch(endless_barriers, dim3(1), dim3(64), 0, b.data());
}
void run_write_of_static() {
  auto b = output("b", 32);
  launch(write_of_static, dim3(1), dim3(32), 0, b.data());
}
void run_integer_into_static() {
  auto b = floats("b", 32);
  launch(integer_into_static, dim3(1), dim3(32), 0, b.data());
}
void run_ldmatrix_into_shared() {
  planted<ldmatrix_into_shared>();
}
void run_mma_in_shared() {
  planted<mma_in_shared>();
}
void run_wmma_in_shared() {
  planted<wmma_in_shared>();
}
void run_prints() {
  auto b = output("b", 4);
  launch(prints, dim3(1), dim3(1), 0, b.data());
  const float expected[] = {2, -1, -1, 5};
  expect(b, [&](std::size_t i) { return expected[i]; });
}
void run_errno() {
  planted<reads_errno>();
}
void run_divergent_loop() {
  auto a = floats("a", 256);
  auto b = output("b", 32);
  launch(divergent_loop, dim3(1), dim3(32), 0, a.data(), b.data());
}

}  // namespace zoo
