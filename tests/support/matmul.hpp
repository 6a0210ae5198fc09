// A matmul by tensor cores, as warm-ups run it.
#pragma once

#include <string>
#include <vector>

#include "tests/support/subject.hpp"

namespace workbook::test {

/// Normal numbers that fp16 has.
Tensor<float> half_tensor(const std::array<std::int64_t, 4>& sizes, std::uint64_t seed);

/// What an operation is given: A (rows, depth) and B, as codes of fp16, for C = A·B or, transposed, A·Bᵀ, in floats.
struct Matmul {
  std::string operation;
  bool transposed = true;
  Tensor<float> A, B;
  Numbers numbers = {};  ///< beside them

  worker::Reply reply() const;
  Tensor<float> C() const;
  /// C against the sum in float64.
  void expect_right(const std::string& what) const;
};

}  // namespace workbook::test
