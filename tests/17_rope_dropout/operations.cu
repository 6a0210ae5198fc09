// Chapter 17's Philox, its bits, the table of rotations and a rotated pair of chunks, as operations that the tests call
// by name.
#include <cstdint>
#include <vector>

#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"
#include "dropout.hpp"
#include "rope.hpp"

namespace ch17 {
namespace {

using workbook::cuda::Arguments, workbook::cuda::DeviceArray, workbook::cuda::Operations, workbook::cuda::Role;

/// Calls a kernel with one block of `threads`, which fills the output `numbers` from the input `given`.
template <class Number, class Kernel, class... More>
void fill(const Arguments& call, Kernel kernel, int threads, More... more) {
  const DeviceArray<Number> given("given", std::span<const Number>(call.array<Number>("given")));
  DeviceArray<Number> numbers("numbers", call.array<Number>("numbers").size(), Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(kernel, dim3(1), dim3(unsigned(threads)), 0, given.data(), more..., numbers.data());
  numbers.download(call.array<Number>("numbers"));
}
int number(const Arguments& call, const char* name) {
  return int(call.integer(name));
}

// given (n, 6), int32: counter and key -> numbers (n, 4)
__global__ void draw(const std::int32_t* given, int n, std::int32_t* numbers) {
  const int i = int(threadIdx.x);
  if (i >= n) return;
  const auto word = [&](int k) { return unsigned(given[6 * i + k]); };
  const uint4 drawn = philox(uint4{word(0), word(1), word(2), word(3)}, uint2{word(4), word(5)});
  numbers[4 * i] = int(drawn.x), numbers[4 * i + 1] = int(drawn.y);
  numbers[4 * i + 2] = int(drawn.z), numbers[4 * i + 3] = int(drawn.w);
}
void draw_all(const Arguments& call) {
  fill<std::int32_t>(call, draw, 32, number(call, "n"));
}

// dropped, head, first_query, first_key, transposed; given: the seed's words -> numbers (32): each lane's bits
__global__ void bits(const std::int32_t* given, int dropped, int head, int first_query, int first_key, int transposed,
                     std::int32_t* numbers) {
  const Dropout dropout{uint2{unsigned(given[0]), unsigned(given[1])}, dropped, 1};
  const std::uint32_t kept = transposed != 0 ? kept_pairs<true>(dropout, head, first_query, first_key)
                                             : kept_pairs<false>(dropout, head, first_query, first_key);
  numbers[threadIdx.x] = int(kept);
}
void bits_of_lanes(const Arguments& call) {
  fill<std::int32_t>(call, bits, 32, number(call, "dropped"), number(call, "head"), number(call, "first_query"),
                     number(call, "first_key"), number(call, "transposed"));
}

// n; given (n): positions -> numbers (n, 32, 2): cosine and sine of each pair of 64 columns
__global__ void angles(const float* given, int n, float* numbers) {
  const int c = int(threadIdx.x);
  for (int i = 0; i < n; ++i) {
    const float2 by = cos_sin<64>(int(given[i]), c);
    numbers[64 * i + 2 * c] = by.x, numbers[64 * i + 2 * c + 1] = by.y;
  }
}
void rotations(const Arguments& call) {
  fill<float>(call, angles, 32, number(call, "n"));
}

// given: left (8), right (8), then cosine and sine (8, 2) -> numbers: left (8), right (8)
__global__ void rotate_one_pair(const float* given, float* numbers) {
  uint4 left{}, right{};
  half *x = reinterpret_cast<half*>(&left), *y = reinterpret_cast<half*>(&right);
  for (int k = 0; k < 8; ++k) x[k] = half(given[k]), y[k] = half(given[8 + k]);
  rotate_chunks<half>(left, right, reinterpret_cast<const float2*>(given + 16));
  for (int k = 0; k < 8; ++k) numbers[k] = float(x[k]), numbers[8 + k] = float(y[k]);
}
void chunks(const Arguments& call) {
  fill<float>(call, rotate_one_pair, 1);
}

const Operations operations{{"draw", draw_all}, {"bits", bits_of_lanes}, {"rotations", rotations}, {"chunks", chunks}};

}  // namespace
}  // namespace ch17
