// The tensors of one attention call on the device, forward or backward: what the operations of every kernel chapter
// begin and end with.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"

namespace workbook::cuda {

/// Q (B, H, Nq, d), K, V (B, Hkv, Nk, d) from a call's arrays of 16-bit codes; O (B, H, Nq, d) and lse (B, H, Nq) to be
/// written. Element is half or __nv_bfloat16. Memory allocated after it is counted as the chapter's.
template <class Element>
struct AttentionTensors {
  explicit AttentionTensors(const Arguments& call)
      : Q("Q", codes(call, "Q")),
        K("K", codes(call, "K")),
        V("V", codes(call, "V")),
        O("O", call.array<std::uint16_t>("O").size(), Role::output),
        lse("lse", call.output("lse").size(), Role::output) {
    begin_chapter();
  }
  /// Counts the reads of Q by tiles of Br queries, of K and V by tiles of Bc keys (simulator): the counters "K.tiles",
  /// … and the tile map of `./workbook trace`.
  void count_tiles(const Shape& shape, std::int64_t Br, std::int64_t Bc) {
    const auto d = std::size_t(shape.d), Nk = std::size_t(shape.Nk);
    Q.count_by_tiles(std::size_t(shape.B * shape.H), std::size_t(shape.Nq), d, std::size_t(Br));
    K.count_by_tiles(std::size_t(shape.B * shape.Hkv), Nk, d, std::size_t(Bc));
    V.count_by_tiles(std::size_t(shape.B * shape.Hkv), Nk, d, std::size_t(Bc));
  }
  /// Waits for the kernels and brings O and lse back.
  void download(const Arguments& call) const {
    O.download(call.array<std::uint16_t>("O"));
    lse.download(call.output("lse"));
  }

  DeviceArray<Element> Q, K, V, O;
  DeviceArray<float> lse;

 private:
  static std::span<const std::uint16_t> codes(const Arguments& call, const char* name) {
    return call.array<std::uint16_t>(name);
  }
};

/// Q, O, dO (B, H, Nq, d), K, V (B, Hkv, Nk, d) from a call's arrays of 16-bit codes, lse (B, H, Nq) from floats; the
/// gradients dQ, dK, dV to be written, as codes where Gradient has 16 bits, as floats else. Memory allocated after it
/// is counted as the chapter's.
template <class Element, class Gradient>
struct GradientTensors {
  using Code = std::conditional_t<sizeof(Gradient) == 2, std::uint16_t, float>;

  explicit GradientTensors(const Arguments& call)
      : Q("Q", codes(call, "Q")),
        K("K", codes(call, "K")),
        V("V", codes(call, "V")),
        O("O", codes(call, "O")),
        dO("dO", codes(call, "dO")),
        lse("lse", call.input("lse")),
        dQ("dQ", call.array<Code>("dQ").size(), Role::output),
        dK("dK", call.array<Code>("dK").size(), Role::output),
        dV("dV", call.array<Code>("dV").size(), Role::output) {
    begin_chapter();
  }
  /// Counts the reads of what passes by in tiles of so many rows (simulator): the counters "K.tiles", "Q.tiles", ….
  void count_tiles(const Shape& shape, std::int64_t rows) {
    const auto d = std::size_t(shape.d), tile = std::size_t(rows);
    for (DeviceArray<Element>* tensor : {&Q, &dO})
      tensor->count_by_tiles(std::size_t(shape.B * shape.H), std::size_t(shape.Nq), d, tile);
    for (DeviceArray<Element>* tensor : {&K, &V})
      tensor->count_by_tiles(std::size_t(shape.B * shape.Hkv), std::size_t(shape.Nk), d, tile);
  }
  /// Waits for the kernels and brings the gradients back.
  void download(const Arguments& call) const {
    dQ.download(call.array<Code>("dQ"));
    dK.download(call.array<Code>("dK"));
    dV.download(call.array<Code>("dV"));
  }

  DeviceArray<Element> Q, K, V, O, dO;
  DeviceArray<float> lse;
  DeviceArray<Gradient> dQ, dK, dV;

 private:
  static std::span<const std::uint16_t> codes(const Arguments& call, const char* name) {
    return call.array<std::uint16_t>(name);
  }
};

}  // namespace workbook::cuda
