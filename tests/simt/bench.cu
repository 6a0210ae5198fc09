// The simulator's speed: nanoseconds per thread for a barrier and a shuffle, per warp for mma_sync, mma and ldmatrix,
// and the seconds of an attention kernel, minimum and median of 15 launches. Run: simt_bench [workers]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "common/simt/simulator.hpp"
#include "tests/simt/arrays.hpp"
#include "tests/simt/cases.hpp"

namespace zoo {
namespace {

__global__ void barriers(int rounds) {
  for (int i = 0; i < rounds; ++i) __syncthreads();
}

__global__ void shuffles(float* out, int rounds) {
  float x = threadIdx.x;
  for (int i = 0; i < rounds; ++i) x = __shfl_xor_sync(0xffffffffu, x, 1 << i % 5);
  out[threadIdx.x] = x;
}

__global__ void shared_reads(float* out, int rounds) {
  __shared__ float s[128];
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  float x = 0;
  for (int i = 0; i < rounds; ++i) x += s[(threadIdx.x + i) % 128];
  out[threadIdx.x] = x;
}

__global__ void products(float* out, int rounds) {
  using namespace nvcuda;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
  wmma::fill_fragment(a, __float2half(0.5f));
  wmma::fill_fragment(b, __float2half(0.25f));
  wmma::fill_fragment(c, 0.f);
  for (int i = 0; i < rounds; ++i) wmma::mma_sync(c, a, b, c);
  wmma::store_matrix_sync(out, c, 16, wmma::mem_row_major);
}

__global__ void instructions(float* out, int rounds, bool multiply) {
  auto* const row = workbook::cuda::dynamic_shared_array<half>() + 8 * threadIdx.x;
  for (int i = 0; i < 8; ++i) row[i] = __float2half(0.5f);
  __syncwarp();
  workbook::cuda::Fragment<half, 4> a;
  workbook::cuda::Fragment<float, 4> d;
  d.fill(0);
  workbook::cuda::ldmatrix_x4(a, row);
  for (int i = 0; i < rounds; ++i) {
    if (multiply) {
      workbook::cuda::mma_m16n8k16(d, a, a[0], a[1]);
    } else {
      workbook::cuda::ldmatrix_x4(a, row);
    }
  }
  out[threadIdx.x] = d[0];
}

struct Time {
  double shortest, median;  ///< wall-clock seconds
  double processor;         ///< seconds of all cores together, minimum: still comparable on a busy machine
};

/// Times several launches.
template <class Run>
Time measure(Run run, int repetitions) {
  std::vector<double> seconds, processor;
  for (int i = 0; i < repetitions; ++i) {
    const std::clock_t start = std::clock();
    run();
    processor.push_back(double(std::clock() - start) / CLOCKS_PER_SEC);
    seconds.push_back(simt::last_launch().seconds);
    simt::clear_launches();
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[seconds.size() / 2], *std::min_element(processor.begin(), processor.end())};
}

void measure_parts() {
  constexpr int kRounds = 5000, kThreads = 128, kTimes = 5;
  auto out = DeviceArray<float>("out", 256);
  const auto print = [](const char* what, Time time, int count) {
    std::printf("  %-30s %8.1f ns\n", what, time.processor / count * 1e9);
  };
  print("__syncthreads, a thread", measure([&] { launch(barriers, dim3(1), dim3(kThreads), 0, kRounds); }, kTimes),
        kRounds * kThreads);
  print("__shfl_xor_sync, a thread",
        measure([&] { launch(shuffles, dim3(1), dim3(kThreads), 0, out.data(), kRounds); }, kTimes),
        kRounds * kThreads);
  print("shared 4-byte read, a thread",
        measure([&] { launch(shared_reads, dim3(1), dim3(kThreads), 0, out.data(), kRounds); }, kTimes),
        kRounds * kThreads);
  print("mma_sync, a warp", measure([&] { launch(products, dim3(1), dim3(32), 0, out.data(), kRounds); }, kTimes),
        kRounds);
  for (const bool multiply : {true, false}) {
    print(multiply ? "mma.m16n8k16, a warp" : "ldmatrix.x4, a warp",
          measure([&] { launch(instructions, dim3(1), dim3(32), 512, out.data(), kRounds, multiply); }, kTimes),
          kRounds);
  }
}

}  // namespace
}  // namespace zoo

int main(int argc, char** argv) {
  simt::Options& options = simt::options();
  options.workers = argc > 1 ? std::atoi(argv[1]) : 2;
  for (const bool on : {true, false}) {
    options.count = options.detect = on;
    std::printf("counters and race detection %s\n", on ? "on" : "off");
    zoo::measure_parts();
    for (const int N : {256, 1024}) {
      const zoo::Time time = zoo::measure([&] { zoo::attention(N, 2, false); }, 15);
      std::printf("  attention N=%d, B*H=2, d=64, %d workers: %.3f s, median %.3f s (processor time %.3f s)\n", N,
                  options.workers, time.shortest, time.median, time.processor);
    }
  }
}
