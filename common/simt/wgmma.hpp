// The layout of wgmma operands in shared memory, as given by their matrix descriptors (PTX ISA: "Matrix Descriptor",
// "Strides", "Canonical Layouts"). Internal.
#pragma once

#include <cstdint>

#include "common/simt/asynchrony.hpp"

namespace simt {

/// The fields of a matrix descriptor, in bytes.
struct Descriptor {
  std::uint32_t start, leading, stride, base_offset;
  Swizzle swizzle;
  explicit Descriptor(std::uint64_t bits)
      : start(static_cast<std::uint32_t>(bits & 0x3fff) * 16),
        leading(static_cast<std::uint32_t>(bits >> 16 & 0x3fff) * 16),
        stride(static_cast<std::uint32_t>(bits >> 32 & 0x3fff) * 16),
        base_offset(static_cast<std::uint32_t>(bits >> 49 & 7)) {
    constexpr Swizzle kModes[] = {Swizzle::none, Swizzle::bytes_128, Swizzle::bytes_64, Swizzle::bytes_32};
    swizzle = kModes[bits >> 62];
  }
};

/// Matrix A (64, k), or B as (n, k). Transposed: rows of shared memory run along its first dimension.
struct Operand {
  Descriptor descriptor;
  int rows;
  bool transposed;
  int lines() const { return transposed ? 16 : rows; }      ///< of shared memory
  int pieces() const { return transposed ? rows / 8 : 2; }  ///< 16-byte chunks per line

  /// The offset of a chunk in shared memory, without swizzle.
  std::uint32_t plain(int line, int piece) const {
    const auto l = static_cast<std::uint32_t>(line), p = static_cast<std::uint32_t>(piece);
    const Descriptor& d = descriptor;
    const std::uint32_t span = swizzle_span(d.swizzle);
    if (span == 0) return d.start + l / 8 * d.stride + l % 8 * 16 + p * d.leading;
    const std::uint32_t across = span / 16;
    if (!transposed) return d.start + l / 8 * d.stride + l % 8 * span + p * 16;
    return d.start + p / across * d.leading + l / 8 * d.stride + l % 8 * span + p % across * 16;
  }
  std::uint32_t at(int line, int piece) const {
    return static_cast<std::uint32_t>(swizzled(plain(line, piece), descriptor.swizzle));
  }
};

inline Operand operand_a(const Wgmma& wgmma) {
  return {Descriptor(wgmma.a), 64, wgmma.form.a_transposed};
}
inline Operand operand_b(const Wgmma& wgmma) {
  return {Descriptor(wgmma.b), wgmma.form.n, wgmma.form.b_transposed};
}

/// Calls act(line, piece, offset in shared memory) for each 16-byte chunk of an operand.
template <class Act>
void for_each_piece(const Operand& operand, Act act) {
  for (int line = 0; line < operand.lines(); ++line) {
    for (int piece = 0; piece < operand.pieces(); ++piece) act(line, piece, operand.at(line, piece));
  }
}

/// Ends the lane if a descriptor is invalid; reports one that does not match the data that TMA has loaded
/// (descriptors.cpp).
void check_descriptors(Lane& lane, const Wgmma& wgmma);
/// No thread can run: executes wgmma groups that all lanes have committed and some wait for. False if there are none.
bool advance_wgmmas(Block& block);

}  // namespace simt
