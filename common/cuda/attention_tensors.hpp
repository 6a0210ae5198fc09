// The tensors of one attention call on the device, forward or backward: what the operations of every kernel chapter
// begin and end with.
#pragma once

#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>

#include "common/attention/tensors.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"

namespace workbook::cuda {

namespace detail {

/// How elements on the device travel: those of 16 bits as codes.
template <class T>
using Code = std::conditional_t<sizeof(T) == 2, std::uint16_t, float>;

/// Each array with its line of the table, in order.
template <class Table, class Take, class... Arrays>
void walk(const Table& table, const Take& take, Arrays&... arrays) {
  static_assert(sizeof...(Arrays) == std::tuple_size_v<Table>);
  const CallTensor* tensor = table.data();
  (take(*tensor++, arrays), ...);
}

/// Inputs from a call's arrays, outputs to be written. Memory allocated after it is counted as the chapter's.
struct FromCall {
  const Arguments& call;
  template <class T>
  void operator()(const CallTensor& tensor, DeviceArray<T>& array) const {
    const std::span<Code<T>> given = call.array<Code<T>>(tensor.name);
    array = tensor.output ? DeviceArray<T>(tensor.name, given.size(), Role::output)
                          : DeviceArray<T>(tensor.name, std::span<const Code<T>>(given));
  }
};

/// What a mask has in device memory.
struct MaskArrays {
  DeviceArray<float> sink;           ///< (H); empty: none
  DeviceArray<std::int32_t> starts;  ///< of its packed sequences, (S + 1); empty: one

  MaskArrays() = default;
  explicit MaskArrays(const Arguments& call) : MaskArrays(call.has("mask") ? call.setting().mask : Mask::none) {}
  explicit MaskArrays(const Mask& mask) {
    if (!mask.sink.empty()) sink = DeviceArray<float>("sink", std::span<const float>(mask.sink));
    if (!mask.lengths.empty())
      starts = DeviceArray<std::int32_t>("starts", std::span<const std::int32_t>(mask.starts()));
  }
};
/// What a kernel takes of an array that a call may have: nullptr if it has not.
template <class T>
T* data_or_none(DeviceArray<T>& array) {
  return array.size() > 0 ? array.data() : nullptr;
}

}  // namespace detail

/// What both passes do with their tensors; Tensors has them, and each(take), which calls take(CallTensor, array).
template <class Tensors>
class OnDevice {
 public:
  /// Counts the reads by tiles of so many rows (simulator): the counters "K.tiles", … and the tile map of `./workbook
  /// trace`.
  void count_tiles(const Shape& shape, std::int64_t of_queries, std::int64_t of_keys) {
    self().each([&](const CallTensor& tensor, auto& array) {
      if (!tensor.by_tiles) return;
      const auto [B, heads, rows, columns] = tensor.sizes(shape);
      array.count_by_tiles(std::size_t(B * heads), std::size_t(rows), std::size_t(columns),
                           std::size_t(tensor.kind == CallTensor::of_keys ? of_keys : of_queries));
    });
  }
  /// Waits for the kernels and brings the outputs back.
  void download(const Arguments& call) {
    self().each([&]<class T>(const CallTensor& tensor, DeviceArray<T>& array) {
      if (tensor.output) array.download(call.array<detail::Code<T>>(tensor.name));
    });
  }

 private:
  Tensors& self() { return static_cast<Tensors&>(*this); }
};

/// Element is half or __nv_bfloat16. Inputs may go on behind the last row.
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
    detail::walk(forward_tensors, take, Q, K, V, O, lse);
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
    begin_chapter();
  }
  /// And the gradient of the sinks.
  void download(const Arguments& call) {
    OnDevice<GradientTensors>::download(call);
    if (dsink.size() > 0) dsink.download(call.array<float>("dsink"));
  }
  template <class Take>
  void each(const Take& take) {
    detail::walk(backward_tensors, take, Q, K, V, O, dO, lse, dQ, dK, dV);
  }

  DeviceArray<Element> Q, K, V, O, dO;
  DeviceArray<float> lse;
  DeviceArray<Gradient> dQ, dK, dV;
  DeviceArray<float> dsink;  ///< (H); empty: the mask has no sinks
  detail::MaskArrays of_mask;
};

}  // namespace workbook::cuda
