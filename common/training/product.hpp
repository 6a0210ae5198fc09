// Matmuls in plain C++, fast enough to train a small model on two cores, with bitwise identical results on any number
// of cores: every element of the result is one sum over ascending k, in T.
#pragma once

#include <cstdint>

namespace workbook::training {

/// A read-only matrix view: element (i, k) is data[i·row_step + k·column_step].
template <class T>
struct MatrixView {
  const T* data;
  std::int64_t rows, columns, row_step, column_step;

  MatrixView transposed() const { return {data, columns, rows, column_step, row_step}; }
};
/// A row-major matrix without gaps.
template <class T>
MatrixView<T> matrix(const T* data, std::int64_t rows, std::int64_t columns) {
  return {data, rows, columns, columns, 1};
}

enum class Into { overwrite, add };

/// C (A.rows, B.columns), row-major with rows C_step apart, = A · B, or C + A · B. Runs on all cores, or only on the
/// calling thread.
template <class T>
void multiply(T* C, std::int64_t C_step, MatrixView<T> A, MatrixView<T> B, Into into, bool all_cores);

/// The same for a C without gaps, on all cores.
template <class T>
void multiply(T* C, MatrixView<T> A, MatrixView<T> B, Into into = Into::overwrite) {
  multiply(C, B.columns, A, B, into, true);
}

}  // namespace workbook::training
