// What TMA is told of a tensor: where it lies, its sizes and strides, the box that one copy moves, and how
// the box is swizzled in shared memory. Plain data, passed to kernels by value; common/cuda/tensor_map.hpp makes it.
#pragma once

#include <cstdint>

namespace simt {

/// How the 16-byte pieces of a row change places in shared memory: by bits of the address, so that it depends on where
/// the tile lies. A row is as long as the name says.
enum class Swizzle : std::uint8_t { none, bytes_32, bytes_64, bytes_128 };

/// The bytes of a row, 0 without swizzle.
constexpr unsigned swizzle_span(Swizzle swizzle) {
  return swizzle == Swizzle::none ? 0 : 16u << static_cast<unsigned>(swizzle);
}
/// Where the byte lies that would lie at this address without swizzle: bits 4 to 6 (of 128 bytes; fewer of shorter
/// rows) are combined with bits 7 to 9 by exclusive or. The same again leads back.
constexpr std::uint64_t swizzled(std::uint64_t address, Swizzle swizzle) {
  constexpr std::uint64_t kMasks[] = {0, 0x10, 0x30, 0x70};
  return address ^ (address >> 3 & kMasks[static_cast<unsigned>(swizzle)]);
}

inline constexpr int kMostDimensions = 5;

// A namespace of its own: a call of workbook::cuda::launch with a map must not find simt::launch by its argument.
namespace plain {
struct TensorMap {
  void* memory = nullptr;    ///< of the tensor
  std::uint64_t before = 0;  ///< so many bytes before it the element would lie whose coordinates are 0
  int dimensions = 0;
  std::uint32_t element_bytes = 0;
  std::uint64_t sizes[kMostDimensions] = {};    ///< elements; sizes[0] runs fastest
  std::uint64_t strides[kMostDimensions] = {};  ///< bytes; strides[0] is one element's
  std::uint32_t box[kMostDimensions] = {};      ///< elements
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
