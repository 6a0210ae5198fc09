// The known mistakes of chapter 3 that other files name.
#pragma once

#include <vector>

#include "tests/02_online_softmax/mistakes.hpp"

namespace workbook::test::ch03 {

/// C (1, 1, rows, columns) = A·Bᵀ of A (1, 1, rows, depth) and B (1, 1, columns, depth), in steps of `step` columns of
/// both.
std::vector<judge::Mistake> product_mistakes(const Tensor<float>& A, const Tensor<float>& B, judge::Index step);
/// The transpose (1, 1, columns, rows) of a matrix (1, 1, rows, columns), by tiles of side × side.
std::vector<judge::Mistake> transpose_mistakes(const Tensor<float>& matrix, judge::Index side);

}  // namespace workbook::test::ch03
