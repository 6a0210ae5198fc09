// Matrix: a checked, non-owning view of a row-major matrix for the CPU chapters. It is header-only and needs only the
// standard library, so that a reader's chapter can include it without linking the book's code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

namespace workbook {

/// An index outside a matrix. what() contains the matrix's name, the index and the size.
class OutsideMatrix : public std::out_of_range {
 public:
  using std::out_of_range::out_of_range;
};

/// A view of `rows` x `columns` elements, row-major and contiguous. Every access is checked: an index outside throws
/// OutsideMatrix.
template <class T>
class Matrix {
 public:
  Matrix(const char* name, T* data, std::int64_t rows, std::int64_t columns)
      : name_(name), data_(data), rows_(rows), columns_(columns) {}
  Matrix(const char* name, std::span<T> data, std::int64_t rows, std::int64_t columns)
      : Matrix(name, data.data(), rows, columns) {
    if (std::int64_t(data.size()) != rows * columns)
      throw std::invalid_argument(std::string(name) + ": " + std::to_string(data.size()) + " elements given for a (" +
                                  std::to_string(rows) + ", " + std::to_string(columns) + ") matrix");
  }
  /// Converts a Matrix<float> to a Matrix<const float>.
  operator Matrix<const T>() const { return {name_, data_, rows_, columns_}; }

  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  const char* name() const { return name_; }

  T& operator()(std::int64_t row, std::int64_t column) const {
    if (row < 0 || row >= rows_ || column < 0 || column >= columns_) [[unlikely]]
      outside(row, column);
    return data_[row * columns_ + column];
  }
  /// Row `row` as a span of `columns()` elements.
  std::span<T> row(std::int64_t row) const {
    if (row < 0 || row >= rows_) [[unlikely]]
      outside(row, 0);
    return {data_ + row * columns_, std::size_t(columns_)};
  }
  /// Rows [first, first + count) as a matrix.
  Matrix rows_from(std::int64_t first, std::int64_t count) const {
    if (first < 0 || count < 0 || first + count > rows_)
      throw OutsideMatrix(std::string(name_) + ": rows [" + std::to_string(first) + ", " +
                          std::to_string(first + count) + ") are outside its " + std::to_string(rows_) + " rows");
    return {name_, data_ + first * columns_, count, columns_};
  }
  std::span<T> elements() const { return {data_, std::size_t(rows_ * columns_)}; }

 private:
  [[noreturn]] void outside(std::int64_t row, std::int64_t column) const {
    throw OutsideMatrix(std::string(name_) + "(" + std::to_string(row) + ", " + std::to_string(column) +
                        ") is outside " + name_ + ", whose size is (" + std::to_string(rows_) + ", " +
                        std::to_string(columns_) + ")");
  }

  const char* name_;
  T* data_;
  std::int64_t rows_, columns_;
};

}  // namespace workbook
