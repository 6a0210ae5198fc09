#include "common/training/product.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <vector>

#include "common/training/threads.hpp"

namespace workbook::training {
namespace {

constexpr std::int64_t kRows = 4, kColumns = 8;  // block of C held in registers

/// B in panels of kColumns columns: panel p holds B(k, p·kColumns + j) at [(p·K + k)·kColumns + j]; the last panel is
/// padded with zeros.
template <class T>
void pack(std::vector<T>& panels, const MatrixView<T>& B) {
  const std::int64_t count = (B.columns + kColumns - 1) / kColumns, K = B.rows;
  panels.resize(std::size_t(count * K * kColumns));
  for (std::int64_t p = 0; p < count; ++p) {
    const std::int64_t first = p * kColumns, columns = std::min(kColumns, B.columns - first);
    T* panel = &panels[std::size_t(p * K * kColumns)];
    for (std::int64_t k = 0; k < K; ++k) {
      const T* row = B.data + k * B.row_step + first * B.column_step;
      for (std::int64_t j = 0; j < kColumns; ++j) panel[k * kColumns + j] = j < columns ? row[j * B.column_step] : T(0);
    }
  }
}

/// sums (rows, kColumns) = `rows` rows of A times a panel of B, 16 bytes of a row at a time. It uses a vector extension
/// of g++ and clang++, without which g++ keeps the sums in memory. The number of rows is a constant for the same
/// reason.
template <int rows, class T>
void multiply_panel(T (&sums)[kRows][kColumns], const T* A, std::int64_t row_step, std::int64_t column_step,
                    const T* panel, std::int64_t K) {
  constexpr int kLanes = 16 / sizeof(T), kVectors = int(kColumns) / kLanes;
  using Vector [[gnu::vector_size(16)]] = T;
  Vector local[rows][kVectors] = {}, b[kVectors];
  for (std::int64_t k = 0; k < K; ++k) {
    std::memcpy(b, panel + k * kColumns, sizeof b);
    for (int i = 0; i < rows; ++i) {
      const T a = A[i * row_step + k * column_step];
      for (int v = 0; v < kVectors; ++v) local[i][v] += a * b[v];
    }
  }
  std::memcpy(sums, local, sizeof local);
}

}  // namespace

template <class T>
void multiply(T* C, std::int64_t C_step, MatrixView<T> A, MatrixView<T> B, Into into, bool all_cores) {
  assert(A.columns == B.rows);
  thread_local std::vector<T> own_panels;
  pack(own_panels, B);
  const std::vector<T>& panels = own_panels;  // the caller's panels, which all threads use
  const std::int64_t K = B.rows;
  const auto work = [&](std::int64_t first_row, std::int64_t last_row) {
    for (std::int64_t column = 0; column < B.columns; column += kColumns) {
      const std::int64_t columns = std::min(kColumns, B.columns - column);
      const T* panel = panels.data() + column * K;
      for (std::int64_t row = first_row; row < last_row;) {
        T sums[kRows][kColumns];
        const std::int64_t rows = last_row - row >= kRows ? kRows : 1;
        const T* A_rows = A.data + row * A.row_step;
        if (rows == kRows)
          multiply_panel<kRows>(sums, A_rows, A.row_step, A.column_step, panel, K);
        else
          multiply_panel<1>(sums, A_rows, A.row_step, A.column_step, panel, K);
        for (std::int64_t i = 0; i < rows; ++i) {
          T* result = C + (row + i) * C_step + column;
          for (std::int64_t j = 0; j < columns; ++j) {
            result[j] = into == Into::add ? result[j] + sums[i][j] : sums[i][j];
          }
        }
        row += rows;
      }
    }
  };
  // With fewer multiplications, starting a thread takes longer than its work.
  constexpr std::int64_t kWorthAThread = 1 << 20;
  if (all_cores && A.rows * B.columns * K >= kWorthAThread)
    parallel(A.rows, kRows, work);
  else
    work(0, A.rows);
}

template void multiply(float*, std::int64_t, MatrixView<float>, MatrixView<float>, Into, bool);
template void multiply(double*, std::int64_t, MatrixView<double>, MatrixView<double>, Into, bool);

}  // namespace workbook::training
