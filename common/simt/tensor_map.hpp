// A tensor map: address, sizes and strides of a tensor, the box of one TMA copy, and the swizzle of the box in shared
// memory. Plain data, passed to kernels by value; common/cuda/tensor_map.hpp creates it.
#pragma once

#include <cstdint>

namespace simt {

/// The permutation of the 16-byte chunks of a row in shared memory. It depends on address bits, and therefore on the
/// address of the tile. The name gives the length of a row.
enum class Swizzle : std::uint8_t { none, bytes_32, bytes_64, bytes_128 };

/// The bytes of a row; 0 without swizzle.
constexpr unsigned swizzle_span(Swizzle swizzle) {
  return swizzle == Swizzle::none ? 0 : 16u << static_cast<unsigned>(swizzle);
}
/// The swizzled address of a byte: bits 4 to 6 (for 128 bytes; fewer for shorter rows) are combined with bits 7 to 9 by
/// exclusive or. The function is its own inverse.
constexpr std::uint64_t swizzled(std::uint64_t address, Swizzle swizzle) {
  constexpr std::uint64_t kMasks[] = {0, 0x10, 0x30, 0x70};
  return address ^ (address >> 3 & kMasks[static_cast<unsigned>(swizzle)]);
}

inline constexpr int kMostDimensions = 5;

// A separate namespace: argument-dependent lookup of a call of workbook::cuda::launch with a map must not find
// simt::launch.
namespace plain {
struct TensorMap {
  void* memory = nullptr;    ///< of the tensor
  std::uint64_t before = 0;  ///< bytes from the element with coordinates 0 to `memory`
  int dimensions = 0;
  std::uint32_t element_bytes = 0;
  std::uint64_t sizes[kMostDimensions] = {};    ///< in elements; sizes[0] is the fastest-varying dimension
  std::uint64_t strides[kMostDimensions] = {};  ///< in bytes; strides[0] is the size of an element
  std::uint32_t box[kMostDimensions] = {};      ///< in elements
  Swizzle swizzle = Swizzle::none;

  std::uint64_t box_bytes() const {
    std::uint64_t bytes = element_bytes;
    for (int i = 0; i < dimensions; ++i) bytes *= box[i];
    return bytes;
  }
};
}  // namespace plain
using plain::TensorMap;

}  // namespace simt
