// Tensors, and a problem with its values. For the book's own code (tests, oracle, run); chapters include only
// setting.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/attention/error.hpp"
#include "common/attention/setting.hpp"

namespace workbook {

/// A dense (B, H, N, d) tensor in row-major order; a tensor of lower rank has leading or trailing sizes of 1.
template <class T>
struct Tensor {
  std::array<std::int64_t, 4> sizes{0, 0, 0, 0};  ///< B, H, N, d
  std::vector<T> values;

  Tensor() = default;
  explicit Tensor(std::array<std::int64_t, 4> sizes_, T fill = T{})
      : sizes(sizes_),
        values(std::size_t(checked_size("tensor", {sizes_[0], sizes_[1], sizes_[2], sizes_[3]})), fill) {}

  T& operator()(std::int64_t b, std::int64_t h, std::int64_t n, std::int64_t c) { return values[index(b, h, n, c)]; }
  const T& operator()(std::int64_t b, std::int64_t h, std::int64_t n, std::int64_t c) const {
    return values[index(b, h, n, c)];
  }
  std::size_t index(std::int64_t b, std::int64_t h, std::int64_t n, std::int64_t c) const {
    return std::size_t(((b * sizes[1] + h) * sizes[2] + n) * sizes[3] + c);
  }
};

/// The inputs of one attention problem.
struct Problem : Setting {
  Tensor<float> Q, K, V;

  std::array<Tensor<float>*, 3> tensors() { return {&Q, &K, &V}; }  ///< in the order of forward_tensors
};

/// The keys that row `row` of (B, H, Nq) attends to, in ascending order.
std::vector<std::int64_t> attended_keys(const Setting& setting, std::int64_t row);

/// 1/√d in float, the default scale.
float default_scale(std::int64_t d);

}  // namespace workbook
