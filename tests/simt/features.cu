// Kernels for test_launch.cpp: annotations, open exercises, refused launches, several launches.
#include "tests/simt/features.hpp"

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
void run_divergent_loop() {
  auto a = floats("a", 256);
  auto b = output("b", 32);
  launch(divergent_loop, dim3(1), dim3(32), 0, a.data(), b.data());
}

}  // namespace zoo
