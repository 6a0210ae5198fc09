// The known mistakes of chapter 3 that other files name.
#pragma once

#include <vector>

#include "tests/02_online_softmax/mistakes.hpp"

namespace workbook::test::ch03 {

/// C (1, 1, 16, 16) = A·Bᵀ of two (1, 1, 16, 16) matrices.
std::vector<judge::Mistake> transposed_product_mistakes(const Tensor<float>& A, const Tensor<float>& B);
/// The transpose (1, 1, columns, rows) of a matrix (1, 1, rows, columns), by tiles of side × side.
std::vector<judge::Mistake> transpose_mistakes(const Tensor<float>& matrix, judge::Index side);

}  // namespace workbook::test::ch03
