// The tensors of one attention call on the device: what the operations of every kernel chapter begin and end with.
#pragma once

#include <cstdint>
#include <span>

#include "common/cuda/memory.hpp"
#include "common/cuda/worker_device.hpp"
#include "common/worker/operations.hpp"

namespace workbook::cuda {

/// Q (B, H, Nq, d), K, V (B, Hkv, Nk, d) from a call's arrays of 16-bit codes; O (B, H, Nq, d) and lse (B, H, Nq) to be
/// written. Element is half or __nv_bfloat16. Memory allocated after it is counted as the chapter's.
template <class Element>
struct AttentionTensors {
  explicit AttentionTensors(const worker::Arguments& call)
      : Q("Q", codes(call, "Q")),
        K("K", codes(call, "K")),
        V("V", codes(call, "V")),
        O("O", call.array<std::uint16_t>("O").size(), Role::output),
        lse("lse", call.output("lse").size(), Role::output) {
    begin_chapter();
  }
  /// Counts how many tiles of Bc keys are read, where no tile is short (simulator).
  void count_tiles(const Shape& shape, std::int64_t Bc) {
    if (shape.Nk % Bc == 0) K.count_by_tiles(std::size_t(Bc * shape.d));
  }
  /// Waits for the kernels and brings O and lse back.
  void download(const worker::Arguments& call) const {
    O.download(call.array<std::uint16_t>("O"));
    lse.download(call.output("lse"));
  }

  DeviceArray<Element> Q, K, V, O;
  DeviceArray<float> lse;

 private:
  static std::span<const std::uint16_t> codes(const worker::Arguments& call, const char* name) {
    return call.array<std::uint16_t>(name);
  }
};

}  // namespace workbook::cuda
