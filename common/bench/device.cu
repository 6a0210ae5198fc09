// Measures the device's limits in the same run as the stages: a large copy, and reads from L2. A separate worker
// without a chapter. Compiled by nvcc only.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>

#include "common/cuda/bench.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::Operations;
using workbook::cuda::DeviceArray;

// -> properties (4): number of SMs, bytes of L2, bytes of device memory, compute capability (90 means 9.0)
void properties(const Arguments& call) {
  int device = 0, multiprocessors = 0, l2 = 0, major = 0, minor = 0;
  std::size_t free = 0, total = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  cudaMemGetInfo(&free, &total);
  const double found[] = {double(multiprocessors), double(l2), double(total), double(10 * major + minor)};
  std::copy(std::begin(found), std::end(found), call.array<double>("properties").begin());
}

// bytes -> seconds: a copy of `bytes` bytes within device memory, which reads and writes each byte once
void copy(const Arguments& call) {
  const auto bytes = std::size_t(call.integer("bytes"));
  DeviceArray<half> from("from", bytes / 2), to("to", bytes / 2);
  workbook::cuda::bench_detail::fill(from, 1, 1.0f);
  workbook::cuda::time_calls(call, [&](int) {
    if (cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice) != cudaSuccess) {
      throw workbook::cuda::Error("a copy within device memory failed");
    }
  });
}

/// Each thread block reads its own `count` values, a power of two, repeatedly, 16 bytes per thread, bypassing L1. No
/// two blocks read the same values, so that no block benefits from another's requests. The sum keeps the loads alive,
/// and each round starts at another position, so that the compiler cannot reuse a round's result.
__global__ void read_own_part(const uint4* values, unsigned count, int times, unsigned* sums) {
  const uint4* part = values + static_cast<std::size_t>(blockIdx.x) * count;
  unsigned sum = 0;
  for (int round = 0; round < times; ++round) {
    const unsigned first = threadIdx.x + static_cast<unsigned>(round) * blockDim.x;
#pragma unroll 4
    for (unsigned i = 0; i < count; i += blockDim.x) {
      const uint4 four = __ldcg(part + ((first + i) & (count - 1)));
      sum = sum * 3 + (four.x ^ four.y ^ four.z ^ four.w);
    }
  }
  if (sum == 0x12345678u) sums[blockIdx.x] = sum;
}

// bytes, blocks, times -> seconds: each block reads its own `bytes` bytes `times` times; all parts together fit in L2
void l2_read(const Arguments& call) {
  const auto bytes = std::size_t(call.integer("bytes"));
  const auto blocks = static_cast<unsigned>(call.integer("blocks"));
  DeviceArray<half> values("values", blocks * bytes / 2);
  DeviceArray<unsigned> sums("sums", blocks);
  workbook::cuda::bench_detail::fill(values, 1, 1.0f);
  workbook::cuda::time_calls(call, [&](int) {
    workbook::cuda::launch(read_own_part, dim3(blocks), dim3(1024), 0, reinterpret_cast<const uint4*>(values.data()),
                           unsigned(bytes / 16), int(call.integer("times")), sums.data());
  });
}

const Operations table{{"properties", properties}, {"copy", copy}, {"l2_read", l2_read}};

}  // namespace
