// Converts every float to half and to bfloat16, in CUDA's four roundings, on the GPU and by the simulator's functions.
// For nvcc; not a part of the tests: tests/simt/compare_with_gpu --conversions. The exit code says whether all results
// are equal.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "common/simt/half_codes.hpp"

namespace {

constexpr int conversions = 8;
constexpr const char* names[conversions] = {"__float2half_rn",     "__float2half_rz",     "__float2half_rd",
                                            "__float2half_ru",     "__float2bfloat16_rn", "__float2bfloat16_rz",
                                            "__float2bfloat16_rd", "__float2bfloat16_ru"};

struct Codes {
  std::uint16_t of[conversions];
};

/// The floats starting from these bits, one per thread.
__global__ void convert(std::uint32_t first, Codes* codes) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  const float x = __uint_as_float(first + i);
  codes[i] = {{__half_as_ushort(__float2half_rn(x)), __half_as_ushort(__float2half_rz(x)),
               __half_as_ushort(__float2half_rd(x)), __half_as_ushort(__float2half_ru(x)),
               __bfloat16_as_ushort(__float2bfloat16_rn(x)), __bfloat16_as_ushort(__float2bfloat16_rz(x)),
               __bfloat16_as_ushort(__float2bfloat16_rd(x)), __bfloat16_as_ushort(__float2bfloat16_ru(x))}};
}

Codes simulated(float x) {
  using namespace simt;
  return {{float_to_half(x), round_to_zero<float_to_half, half_to_float>(x),
           round_down<float_to_half, half_to_float>(x), round_up<float_to_half, half_to_float>(x), float_to_bfloat16(x),
           round_to_zero<float_to_bfloat16, bfloat16_to_float>(x), round_down<float_to_bfloat16, bfloat16_to_float>(x),
           round_up<float_to_bfloat16, bfloat16_to_float>(x)}};
}

bool works(cudaError_t error) {
  if (error != cudaSuccess) std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  return error == cudaSuccess;
}

}  // namespace

int main() {
  constexpr std::uint64_t all = std::uint64_t(1) << 32;
  constexpr std::uint32_t part = 1 << 26, threads = 256;
  Codes* on_gpu = nullptr;
  if (!works(cudaMalloc(&on_gpu, part * sizeof(Codes)))) return 2;
  std::vector<Codes> codes(part);
  std::atomic<std::uint64_t> differ = 0;
  for (std::uint64_t first = 0; first < all; first += part) {
    convert<<<part / threads, threads>>>(std::uint32_t(first), on_gpu);
    if (!works(cudaGetLastError()) ||
        !works(cudaMemcpy(codes.data(), on_gpu, part * sizeof(Codes), cudaMemcpyDeviceToHost)))
      return 2;
    const auto compare = [&](std::uint32_t from, std::uint32_t until) {
      for (std::uint32_t i = from; i < until; ++i) {
        const float x = std::bit_cast<float>(std::uint32_t(first) + i);
        const Codes expected = simulated(x);
        for (int c = 0; c < conversions; ++c)
          if (codes[i].of[c] != expected.of[c] && differ++ < 20)
            std::fprintf(stderr, "%s(%a): %#06x on the GPU, %#06x here\n", names[c], x, codes[i].of[c], expected.of[c]);
      }
    };
    const std::uint32_t workers = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::jthread> running;
    for (std::uint32_t w = 0; w < workers; ++w)
      running.emplace_back(compare, std::uint32_t(std::uint64_t(part) * w / workers),
                           std::uint32_t(std::uint64_t(part) * (w + 1) / workers));
  }
  std::printf("%llu floats, %d conversions: %llu differ\n", static_cast<unsigned long long>(all), conversions,
              static_cast<unsigned long long>(differ.load()));
  return differ != 0;
}
