// Finds multiplications of shape numbers that a kernel computes in 32 bits. They are right in every test and overflow
// from 2^31 elements on, for which the simulator lacks the memory. The search works on the text: a chain of factors is
// evaluated from left to right and becomes 64 bits wide with the first 64-bit factor. It uses the names of the book's
// kernels and the types declared in the text; unknown names count as small.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace workbook::book {

struct NarrowProduct {
  int line = 0;
  std::string text;  ///< "blockIdx.x * blockDim.x"
};

/// The multiplications in the order of lines.
std::vector<NarrowProduct> narrow_products(std::string_view source);

}  // namespace workbook::book
