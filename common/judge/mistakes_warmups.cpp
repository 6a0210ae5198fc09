// The known mistakes of chapter 3's warm-ups: a transpose by tiles, and one product of 16 × 16 matrices.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/judge/diagnosis.hpp"

namespace workbook::judge {
namespace {

using Index = std::int64_t;

/// A (rows, columns) tensor whose element (i, j) is element(i, j).
Tensor<double> matrix_of(Index rows, Index columns, const std::function<double(Index, Index)>& element) {
  Tensor<double> result({1, 1, rows, columns});
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j) result(0, 0, i, j) = element(i, j);
  return result;
}

}  // namespace

std::vector<Mistake> transposed_product_mistakes(const Tensor<float>& A, const Tensor<float>& B) {
  const auto shared = std::make_shared<const std::pair<Tensor<float>, Tensor<float>>>(A, B);
  std::vector<Mistake> mistakes;
  // C(i, j) is the sum over k of a(i, j, k) · b(i, j, k), as the mistake picks them.
  const auto add = [&](std::string id, std::string sentence, auto a, auto b, Index terms = 16) {
    mistakes.push_back({std::move(id), std::move(sentence), [=] {
                          return matrix_of(16, 16, [&](Index i, Index j) {
                            double sum = 0;
                            for (Index k = 0; k < terms; ++k)
                              sum += double(a(shared->first, i, j, k)) * b(shared->second, i, j, k);
                            return sum;
                          });
                        }});
  };
  using Matrix = const Tensor<float>&;
  const auto row_of_A = [](Matrix m, Index i, Index, Index k) { return m(0, 0, i, k); };
  const auto row_of_B = [](Matrix m, Index, Index j, Index k) { return m(0, 0, j, k); };
  add("B-not-transposed", "C is A·B: read as col_major, B's memory is Bᵀ", row_of_A,
      [](Matrix m, Index, Index j, Index k) { return m(0, 0, k, j); });
  add(
      "A-transposed", "C is Aᵀ·Bᵀ: A is row_major", [](Matrix m, Index i, Index, Index k) { return m(0, 0, k, i); },
      row_of_B);
  add(
      "C-transposed", "C is B·Aᵀ, the transpose of A·Bᵀ: it is stored mem_row_major, and A is the left factor",
      [](Matrix m, Index, Index j, Index k) { return m(0, 0, j, k); },
      [](Matrix m, Index i, Index, Index k) { return m(0, 0, i, k); });
  add("all-zeros", "every element is 0: nothing was multiplied", row_of_A, row_of_B, 0);
  return mistakes;
}

std::vector<Mistake> transpose_mistakes(const Tensor<float>& matrix, Index side) {
  const auto shared = std::make_shared<const Tensor<float>>(matrix);
  const Index rows = matrix.sizes[2], columns = matrix.sizes[3];
  std::vector<Mistake> mistakes;
  mistakes.push_back({"not-transposed", "the elements lie in their old order: nothing was transposed", [=] {
                        Tensor<double> same({1, 1, columns, rows});
                        same.values.assign(shared->values.begin(), shared->values.end());
                        return same;
                      }});
  if (rows % side == 0 && columns % side == 0)
    mistakes.push_back({"tile-not-transposed",
                        "each tile has the right place, but is not transposed itself: what is written along a row of "
                        "the tile must be read along a column",
                        [=] {
                          return matrix_of(columns, rows, [&](Index i, Index j) {
                            return (*shared)(0, 0, j / side * side + i % side, i / side * side + j % side);
                          });
                        }});
  return mistakes;
}

}  // namespace workbook::judge
