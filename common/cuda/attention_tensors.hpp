// The device tensors of one attention call, forward or backward, which the operations of every kernel chapter use.
#pragma once

#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>

#include "common/attention/cache_pages.hpp"
#include "common/attention/tensors.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"

namespace workbook::cuda {

namespace detail {

/// How elements are transferred to and from the device: 16-bit elements as codes.
template <class T>
using Code = std::conditional_t<sizeof(T) == 2, std::uint16_t, float>;

/// Calls take(CallTensor, array) for each array with its row of the table, in order.
template <class Table, class Take, class... Arrays>
void for_each_tensor(const Table& table, const Take& take, Arrays&... arrays) {
  static_assert(sizeof...(Arrays) == std::tuple_size_v<Table>);
  const CallTensor* tensor = table.data();
  (take(*tensor++, arrays), ...);
}

/// Whether K and V of the call are a cache as it is stored, with strides and a page table, and not (B, Hkv, Nk, d).
inline bool has_own_cache(const Arguments& call) {
  return call.has("page_stride");
}
inline CacheStrides cache_strides_of(const Arguments& call) {
  if (!has_own_cache(call)) return cache_strides(call.setting());
  return {call.integer("cache_page_size"), call.integer("page_stride"), call.integer("head_stride"),
          call.integer("key_stride")};
}

/// Copies inputs from a call's arrays and allocates outputs. Memory allocated later is counted as the chapter's.
struct FromCall {
  const Arguments& call;
  template <class T>
  void operator()(const CallTensor& tensor, DeviceArray<T>& array) const {
    const std::span<Code<T>> given = call.array<Code<T>>(tensor.name);
    if (tensor.kind == CallTensor::of_keys && call.integer("requests", 0) > 0 && !has_own_cache(call)) {
      const std::vector<Code<T>> stored = stored_in_cache(call.setting(), std::span<const Code<T>>(given));
      array = DeviceArray<T>(tensor.name, std::span<const Code<T>>(stored));
      return;
    }
    array = tensor.output ? DeviceArray<T>(tensor.name, given.size(), Role::output)
                          : DeviceArray<T>(tensor.name, std::span<const Code<T>>(given));
  }
};

/// The arrays of a mask in device memory.
struct MaskArrays {
  DeviceArray<float> sink;                         ///< (H); empty: none
  DeviceArray<std::int32_t> starts;                ///< of its packed sequences, (S + 1); empty: one sequence
  DeviceArray<std::int32_t> cache_lengths, pages;  ///< of a KV cache; empty: none, or no pages
  CacheStrides cache;

  MaskArrays() = default;
  explicit MaskArrays(const Arguments& call) : MaskArrays(call.has("mask") ? call.setting() : Setting()) {
    if (!has_own_cache(call)) return;
    cache = cache_strides_of(call);
    const std::span<const std::int32_t> table = call.array<std::int32_t>("given pages");
    pages = table.empty() ? DeviceArray<std::int32_t>() : DeviceArray<std::int32_t>("pages", table);
  }
  explicit MaskArrays(const Setting& setting) : cache(cache_strides(setting)) {
    const Mask& mask = setting.mask;
    if (!mask.sink.empty()) sink = DeviceArray<float>("sink", std::span<const float>(mask.sink));
    if (!mask.lengths.empty())
      starts = DeviceArray<std::int32_t>("starts", std::span<const std::int32_t>(mask.starts()));
    if (mask.cache.empty()) return;
    const std::vector<std::int32_t> lengths(mask.cache.begin(), mask.cache.end());
    cache_lengths = DeviceArray<std::int32_t>("cache_lengths", std::span<const std::int32_t>(lengths));
    if (mask.page_size == 0) return;
    const CachePages layout(setting);
    pages = DeviceArray<std::int32_t>("pages", std::span<const std::int32_t>(layout.table));
  }
};
/// The pointer to an optional array; nullptr if the call has no such array.
template <class T>
T* data_or_none(DeviceArray<T>& array) {
  return array.size() > 0 ? array.data() : nullptr;
}

}  // namespace detail

/// Common to the tensors of both passes. Tensors has each(take), which calls take(CallTensor, array) for every tensor.
template <class Tensors>
class OnDevice {
 public:
  /// Counts reads by tiles of `of_queries` rows (Q, O, …) and `of_keys` rows (K, V, …), on the simulator: the counters
  /// "K.tiles", … and the tile map of `./workbook trace`.
  void count_tiles(const Shape& shape, std::int64_t of_queries, std::int64_t of_keys) {
    self().each([&](const CallTensor& tensor, auto& array) {
      if (!tensor.by_tiles) return;
      const auto [B, heads, rows, columns] = tensor.sizes(shape);
      array.count_by_tiles(std::size_t(B * heads), std::size_t(rows), std::size_t(columns),
                           std::size_t(tensor.kind == CallTensor::of_keys ? of_keys : of_queries));
    });
  }
  /// Waits for the kernels and copies the outputs to the host.
  void download(const Arguments& call) {
    self().each([&]<class T>(const CallTensor& tensor, DeviceArray<T>& array) {
      if (tensor.output) array.download(call.array<detail::Code<T>>(tensor.name));
    });
  }

 private:
  Tensors& self() { return static_cast<Tensors&>(*this); }
};

/// Element is half or __nv_bfloat16. Inputs may extend past the last row.
template <class Element>
struct AttentionTensors : OnDevice<AttentionTensors<Element>> {
  AttentionTensors() = default;
  explicit AttentionTensors(const Arguments& call) {
    each(detail::FromCall{call});
    of_mask = detail::MaskArrays(call);
    begin_chapter();
  }
  template <class Take>
  void each(const Take& take) {
    detail::for_each_tensor(forward_tensors, take, Q, K, V, O, lse);
  }

  DeviceArray<Element> Q, K, V, O;
  DeviceArray<float> lse;
  detail::MaskArrays of_mask;
};

/// Gradient is Element or float.
template <class Element, class Gradient = Element>
struct GradientTensors : OnDevice<GradientTensors<Element, Gradient>> {
  GradientTensors() = default;
  explicit GradientTensors(const Arguments& call) {
    each(detail::FromCall{call});
    of_mask = detail::MaskArrays(call);
    if (of_mask.sink.size() > 0) dsink = DeviceArray<float>("dsink", of_mask.sink.size(), Role::output);
    if (call.integer("lse_gradient", 0) != 0)
      dlse = DeviceArray<float>("dlse", std::span<const float>(call.array<float>("dlse")));
    begin_chapter();
  }
  /// Also copies the gradient of the sinks.
  void download(const Arguments& call) {
    OnDevice<GradientTensors>::download(call);
    if (dsink.size() > 0) dsink.download(call.array<float>("dsink"));
  }
  template <class Take>
  void each(const Take& take) {
    detail::for_each_tensor(backward_tensors, take, Q, K, V, O, dO, lse, dQ, dK, dV);
  }

  DeviceArray<Element> Q, K, V, O, dO;
  DeviceArray<float> lse;
  DeviceArray<Gradient> dQ, dK, dV;
  DeviceArray<float> dsink;  ///< (H); empty: the mask has no sinks
  DeviceArray<float> dlse;   ///< (B, H, Nq); empty: the loss does not depend on the LSE
  detail::MaskArrays of_mask;
};

}  // namespace workbook::cuda
