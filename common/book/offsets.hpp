// Products of shape numbers that a kernel computes in 32 bits: right in every test, and wrong from 2^31 elements on,
// for which a simulator has no memory. Found in the text: a chain of factors is computed from left to right, and
// becomes a 64-bit one with the first factor that is. Knows the names of the book's kernels, and no types but those
// declared in the text; what it does not know is taken for small.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace workbook::book {

struct NarrowProduct {
  int line = 0;
  std::string text;  ///< "blockIdx.x * blockDim.x"
};

/// In the order of the lines; empty if there are none.
std::vector<NarrowProduct> narrow_products(std::string_view source);

}  // namespace workbook::book
