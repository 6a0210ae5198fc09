// Device memory for the test kernels. For kernel files.
#pragma once

#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "common/cuda/kernel.hpp"
#include "common/cuda/memory.hpp"

namespace zoo {

using workbook::cuda::DeviceArray;
using workbook::cuda::launch;
using workbook::cuda::Role;

/// `count` floats 0, 1, 2, … on the device.
inline DeviceArray<float> floats(const char* name, std::size_t count) {
  std::vector<float> host(count);
  std::iota(host.begin(), host.end(), 0.0f);
  return DeviceArray<float>(name, std::span<const float>(host));
}
inline DeviceArray<float> output(const char* name, std::size_t count) {
  return DeviceArray<float>(name, count, Role::output);
}
/// `count` halves between -1 and 1, the same for the same seed.
inline DeviceArray<half> random_halves(const char* name, std::size_t count, unsigned seed) {
  std::vector<half> host(count);
  for (half& value : host) {
    seed = seed * 1664525u + 1013904223u;
    value = __float2half(static_cast<float>(seed >> 8) / 8388608.f - 1.f);
  }
  return DeviceArray<half>(name, std::span<const half>(host));
}
/// `count` ones.
inline DeviceArray<half> halves(const char* name, std::size_t count) {
  const std::vector<half> host(count, __float2half(1.f));
  return DeviceArray<half>(name, std::span<const half>(host));
}
inline std::vector<float> values(const DeviceArray<float>& array) {
  std::vector<float> host(array.size());
  array.download(std::span<float>(host));
  return host;
}

/// Waits for the kernel and compares its output with f(i). A kernel with a planted mistake has no correct output: it
/// calls workbook::cuda::synchronize() instead.
template <class F>
void expect(const DeviceArray<float>& array, F f) {
  const std::vector<float> host = values(array);
  for (std::size_t i = 0; i < host.size(); ++i) {
    const float wanted = static_cast<float>(f(i));
    if (!(host[i] == wanted)) {
      throw std::logic_error("element " + std::to_string(i) + " is " + std::to_string(host[i]) + ", expected " +
                             std::to_string(wanted));
    }
  }
}

template <class First, class... Rest>
First first_argument(void (*)(First, Rest...));

/// Launches a kernel with a planted mistake: on `in` floats or halves, if it takes an input, `out` floats, and `rest`.
template <auto kernel, int threads = 32, int in = 1024, int out = threads, int shared = 0, int blocks = 1,
          class... Rest>
void planted(Rest... rest) {
  auto b = output("b", out);
  const auto start = [&](auto... a) {
    launch(kernel, dim3(blocks), dim3(threads), shared, a..., b.data(), rest...);
    workbook::cuda::synchronize();
  };
  using First = decltype(first_argument(kernel));
  if constexpr (std::is_same_v<First, const float*>) {
    start(floats("a", in).data());
  } else if constexpr (std::is_same_v<First, const half*>) {
    start(halves("a", in).data());
  } else {
    start();
  }
}

}  // namespace zoo
