// The sets of tensors on which a stage of attention is timed (timing.hpp), generated on the device, or by the host for
// the simulator.
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

/// An approximately normal number of mean 0 and variance 1 (to 4 %, within ±3.5): the sum of four uniform 16-bit
/// integers from SplitMix64 of (seed, i).
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

/// Filled by the host, so that the simulator counts only the chapter's kernels.
template <class Element>
void fill(DeviceArray<Element>& array, std::uint64_t seed, float size) {
  std::vector<Element> values(array.size());
  Random random(seed);
  for (Element& value : values) value = static_cast<Element>(size * float(random.normal()));
  array.upload(std::span<const Element>(values));
}

#endif

}  // namespace bench_detail

/// A set of a call's tensors for timing: random inputs, and outputs to be written.
///
/// O and LSE of a backward pass are synthetic, because this worker has no forward pass. For normally distributed Q and
/// K with scale 1/√d, the scores are normal and the mean LSE of n scores is ln n + 1/2. With that LSE, each row of P
/// sums to about 1, and O, a mean of n values, is of size 1/√n. The backward pass only reads both.
template <class Tensors>
void make_at_random(Tensors& tensors, const Setting& setting, std::uint64_t seed) {
  const Shape& shape = setting.shape;
  tensors.of_mask = detail::MaskArrays(setting);
  tensors.each([&]<class T>(const CallTensor& tensor, DeviceArray<T>& array) {
    const bool cached = tensor.kind == CallTensor::of_keys && !setting.mask.cache.empty();
    array = DeviceArray<T>(tensor.name, std::size_t(cached ? CachePages(setting).elements() : tensor.count(shape)),
                           tensor.output ? Role::output : Role::input);
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

/// Copies to the host the last rows of the last heads of each tensor that a check of `rows` result rows needs.
template <class Tensors>
void give_back(const Arguments& call, Tensors& tensors, bool backward, std::int64_t rows) {
  const Shape shape = call.shape();
  tensors.each([&]<class T>(const CallTensor& tensor, DeviceArray<T>& array) {
    const auto checked = std::size_t(rows_to_check(tensor, backward, shape, rows) * tensor.columns(shape));
    if (tensor.kind == CallTensor::of_keys && call.integer("requests", 0) > 0) {
      std::vector<detail::Code<T>> stored(array.size());
      array.download(std::span<detail::Code<T>>(stored));
      const auto last = last_of_cache(call.setting(), std::span<const detail::Code<T>>(stored));
      const DeviceArray<T> of_last(tensor.name, std::span<const detail::Code<T>>(last));
      return give_back_rows(call, tensor.name, {of_last.data() + last.size() - checked, checked, sizeof(T)}, checked);
    }
    const std::size_t copied =
        tensor.output ? array.size() : checked;  // every element of an output is checked to be written
    give_back_rows(call, tensor.name, {array.data() + array.size() - copied, copied, sizeof(T)}, checked);
  });
}

}  // namespace workbook::cuda
