// The refusals before a kernel runs. refusals.cpp builds the messages and is compiled once, since every kernel file
// includes this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/cuda/calls.hpp"

namespace workbook::cuda {

// std::invalid_argument. what: the formula of the number of blocks, e.g. "B·H".
[[noreturn]] void refuse_grid(std::int64_t blocks, const char* what);
[[noreturn]] void refuse_head_dim(std::int64_t d, int least);
[[noreturn]] void refuse_tiles(const Tiles& tiles);
[[noreturn]] void refuse_setting(const Setting& given, int d_taken, const Mask& mask_taken);

/// Error if `given` elements are to be copied from or to an array of another size.
void require_size(std::size_t given, std::size_t size);

/// Throws Error, with names and limits, for arguments that cuTensorMapEncodeTiled would refuse or the simulator does
/// not support. swizzle: the number of a Swizzle.
void check_tensor_map(const void* memory, std::uint64_t before, std::uint64_t element_bytes,
                      const std::vector<std::uint64_t>& sizes, const std::vector<std::uint64_t>& strides,
                      const std::vector<std::uint32_t>& box, unsigned swizzle);

}  // namespace workbook::cuda
