// What a stage of attention is timed on (timing.hpp): sets of its call's tensors, made on the device; on the simulator,
// by the host.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/attention/random.hpp"
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

/// give_back_rows (timing.hpp) of a tensor (heads, N, columns).
template <class Element>
void give_back(const Arguments& call, const char* name, const DeviceArray<Element>& tensor, std::int64_t N,
               std::int64_t columns, std::int64_t first, std::int64_t rows) {
  give_back_rows(call, name, {tensor.data(), tensor.size(), sizeof(Element)}, N, columns, first, rows);
}

}  // namespace bench_detail

/// What one forward call takes and gives. Element is half or __nv_bfloat16.
template <class Element>
struct ForwardTensors {
  ForwardTensors(const Setting& setting, std::uint64_t seed) : ForwardTensors(setting.shape, seed) {}
  ForwardTensors(const Shape& shape, std::uint64_t seed)
      : Q("Q", std::size_t(shape.q_size())),
        K("K", std::size_t(shape.kv_size())),
        V("V", std::size_t(shape.kv_size())),
        O("O", std::size_t(shape.q_size()), Role::output),
        lse("lse", std::size_t(shape.lse_size()), Role::output) {
    bench_detail::fill(Q, seed, 1);
    bench_detail::fill(K, seed + 1, 1);
    bench_detail::fill(V, seed + 2, 1);
  }
  static std::size_t bytes(const Shape& shape) {
    return sizeof(Element) * std::size_t(2 * shape.q_size() + 2 * shape.kv_size());
  }
  /// Of the last head: the last `rows` rows of Q, O (rows, d) and lse (rows), and all of K and V (Nk, d). Masks are
  /// aligned to the last query, so these queries are an attention problem of their own.
  void give_back(const Arguments& call, std::int64_t rows) const {
    const Shape s = call.shape();
    bench_detail::give_back(call, "Q", Q, s.Nq, s.d, s.Nq - rows, rows);
    bench_detail::give_back(call, "K", K, s.Nk, s.d, 0, s.Nk);
    bench_detail::give_back(call, "V", V, s.Nk, s.d, 0, s.Nk);
    bench_detail::give_back(call, "O", O, s.Nq, s.d, s.Nq - rows, rows);
    bench_detail::give_back(call, "lse", lse, s.Nq, 1, s.Nq - rows, rows);
  }

  DeviceArray<Element> Q, K, V, O;
  DeviceArray<float> lse;
};

/// What one backward call takes and gives; the gradients have the type Gradient.
///
/// O and the LSE come from no forward pass: this worker has none. The scores of normal Q and K with scale 1/√d are
/// normal too, and the LSE of n of them is ln n + 1/2 on average. With that as the LSE, rows of P add up to about 1,
/// and O, the mean of n values, has the size 1/√n. To a backward pass both are just inputs.
template <class Element, class Gradient = Element>
struct BackwardTensors {
  BackwardTensors(const Setting& setting, std::uint64_t seed) : BackwardTensors(setting.shape, setting.mask, seed) {}
  BackwardTensors(const Shape& shape, const Mask& mask, std::uint64_t seed)
      : Q("Q", std::size_t(shape.q_size())),
        K("K", std::size_t(shape.kv_size())),
        V("V", std::size_t(shape.kv_size())),
        O("O", std::size_t(shape.q_size())),
        dO("dO", std::size_t(shape.q_size())),
        lse("lse", std::size_t(shape.lse_size())),
        dQ("dQ", std::size_t(shape.q_size()), Role::output),
        dK("dK", std::size_t(shape.kv_size()), Role::output),
        dV("dV", std::size_t(shape.kv_size()), Role::output) {
    bench_detail::fill(Q, seed, 1);
    bench_detail::fill(K, seed + 1, 1);
    bench_detail::fill(V, seed + 2, 1);
    bench_detail::fill(O, seed + 3, 1 / std::sqrt(float(shape.Nk)));
    bench_detail::fill(dO, seed + 4, 1);
    std::vector<float> values(lse.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::int64_t keys = mask.count(shape, std::int64_t(i));
      values[i] = keys == 0 ? -INFINITY : std::log(float(keys)) + 0.5f;
    }
    lse.upload(std::span<const float>(values));
  }
  static std::size_t bytes(const Shape& shape) {
    return sizeof(Element) * std::size_t(3 * shape.q_size() + 2 * shape.kv_size()) +
           sizeof(Gradient) * std::size_t(shape.q_size() + 2 * shape.kv_size());
  }
  /// Of the last head: all of Q, K, V, O, dO (N, d) and lse (Nq); the last `rows` rows of dQ, dK, dV (rows, d).
  void give_back(const Arguments& call, std::int64_t rows) const {
    const Shape s = call.shape();
    bench_detail::give_back(call, "Q", Q, s.Nq, s.d, 0, s.Nq);
    bench_detail::give_back(call, "K", K, s.Nk, s.d, 0, s.Nk);
    bench_detail::give_back(call, "V", V, s.Nk, s.d, 0, s.Nk);
    bench_detail::give_back(call, "O", O, s.Nq, s.d, 0, s.Nq);
    bench_detail::give_back(call, "dO", dO, s.Nq, s.d, 0, s.Nq);
    bench_detail::give_back(call, "lse", lse, s.Nq, 1, 0, s.Nq);
    bench_detail::give_back(call, "dQ", dQ, s.Nq, s.d, s.Nq - rows, rows);
    bench_detail::give_back(call, "dK", dK, s.Nk, s.d, s.Nk - rows, rows);
    bench_detail::give_back(call, "dV", dV, s.Nk, s.d, s.Nk - rows, rows);
  }

  DeviceArray<Element> Q, K, V, O, dO;
  DeviceArray<float> lse;
  DeviceArray<Gradient> dQ, dK, dV;
};

}  // namespace workbook::cuda
