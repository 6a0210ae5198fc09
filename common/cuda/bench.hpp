// What a stage of attention is timed on (timing.hpp): sets of its call's tensors, made on the device; on the simulator,
// by the host.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/attention/random.hpp"
#include "common/cuda/attention_tensors.hpp"
#include "common/cuda/kernel.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/timing.hpp"

namespace workbook::cuda {

namespace bench_detail {

#if defined(__CUDACC__)

/// A number from a bell-shaped distribution of mean 0 and variance 1 (to 4 %, never beyond ±3.5): four uniform numbers
/// of 16 bits from SplitMix64 of (seed, i), added up.
__device__ __forceinline__ float normal(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t z = (seed << 40) + (i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  const auto sum = static_cast<float>((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
  return (sum - 131070.0f) * (1.7320508f / 65536.0f);
}

template <class Element>
__global__ void fill_normal(Element* values, std::int64_t count, std::uint64_t seed, float size) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += threads) {
    values[i] = static_cast<Element>(size * normal(seed, static_cast<std::uint64_t>(i)));
  }
}

template <class Element>
void fill(DeviceArray<Element>& array, std::uint64_t seed, float size) {
  cuda::launch(fill_normal<Element>, dim3(2048), dim3(256), 0, array.data(), static_cast<std::int64_t>(array.size()),
               seed, size);
}

#else

/// The simulator's counters are the chapter's alone: filled by the host.
template <class Element>
void fill(DeviceArray<Element>& array, std::uint64_t seed, float size) {
  std::vector<Element> values(array.size());
  Random random(seed);
  for (Element& value : values) value = static_cast<Element>(size * float(random.normal()));
  array.upload(std::span<const Element>(values));
}

#endif

}  // namespace bench_detail

/// A set of a call's tensors for timing: inputs at random, outputs to be written.
///
/// A backward pass's O and LSE come from no forward pass: this worker has none. The scores of normal Q and K with scale
/// 1/√d are normal too, and the LSE of n of them is ln n + 1/2 on average. With that as the LSE, rows of P add up to
/// about 1, and O, the mean of n values, has the size 1/√n. To a backward pass both are just inputs.
template <class Tensors>
void make_at_random(Tensors& tensors, const Setting& setting, std::uint64_t seed) {
  const Shape& shape = setting.shape;
  tensors.of_mask = detail::MaskArrays(setting.mask);
  tensors.each([&]<class T>(const CallTensor& tensor, DeviceArray<T>& array) {
    array = DeviceArray<T>(tensor.name, std::size_t(tensor.count(shape)), tensor.output ? Role::output : Role::input);
    if (tensor.output) return;
    if constexpr (sizeof(T) == sizeof(float)) {  // the LSE
      std::vector<float> values(array.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::int64_t keys = setting.mask.count(shape, std::int64_t(i) % shape.Nq);
        values[i] = keys == 0 ? -INFINITY : std::log(float(keys)) + 0.5f;
      }
      array.upload(std::span<const float>(values));
    } else {
      bench_detail::fill(array, seed++, tensor.name == std::string_view("O") ? 1 / std::sqrt(float(shape.Nk)) : 1);
    }
  });
}

/// Bytes of a set, without the LSE.
template <class Element>
std::size_t bytes_of_set(bool backward, const Shape& shape) {
  std::size_t bytes = 0;
  for (const CallTensor& tensor : tensors_of(backward))
    bytes += tensor.kind == CallTensor::of_rows ? 0 : sizeof(Element) * std::size_t(tensor.count(shape));
  return bytes;
}

/// Of each tensor the last rows of the last heads that a check of `rows` rows of the results takes.
template <class Tensors>
void give_back(const Arguments& call, Tensors& tensors, bool backward, std::int64_t rows) {
  const Shape shape = call.shape();
  tensors.each([&]<class T>(const CallTensor& tensor, DeviceArray<T>& array) {
    const auto asked = std::size_t(rows_to_check(tensor, backward, shape, rows) * tensor.columns(shape));
    const std::size_t seen = tensor.output ? array.size() : asked;  // of results it is seen whether all were written
    give_back_rows(call, tensor.name, {array.data() + array.size() - seen, seen, sizeof(T)}, asked);
  });
}

}  // namespace workbook::cuda
