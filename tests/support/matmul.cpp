#include "tests/support/matmul.hpp"

#include <cmath>

#include "common/attention/element.hpp"

namespace workbook::test {

Tensor<float> half_tensor(const std::array<std::int64_t, 4>& sizes, std::uint64_t seed) {
  Tensor<float> tensor(sizes);
  tensor.values = from_codes(to_codes(normal_values(tensor.values.size(), seed), float16), float16);
  return tensor;
}

worker::Reply Matmul::reply() const {
  const std::vector<std::uint16_t> A_codes = to_codes(A.values, float16), B_codes = to_codes(B.values, float16);
  worker::Call request(operation);
  for (const auto& [name, value] : numbers) request.number(name, value);
  request.input("A", A_codes).input("B", B_codes);
  request.output<float>("C", std::size_t(A.sizes[2] * B.sizes[transposed ? 2 : 3]));
  return call(request);
}

Tensor<float> Matmul::C() const {
  return tensor(reply(), "C", {1, 1, A.sizes[2], B.sizes[transposed ? 2 : 3]});
}

void Matmul::expect_right(const std::string& what) const {
  const Tensor<float> got = C();
  Tensor<double> expected(got.sizes), size(got.sizes);
  for (std::int64_t i = 0; i < got.sizes[2]; ++i) {
    for (std::int64_t j = 0; j < got.sizes[3]; ++j) {
      for (std::int64_t k = 0; k < A.sizes[3]; ++k) {
        const double product = double(A(0, 0, i, k)) * (transposed ? B(0, 0, j, k) : B(0, 0, k, j));
        expected(0, 0, i, j) += product;
        size(0, 0, i, j) += std::abs(product);
      }
    }
  }
  judge::Layout layout;
  layout.tensor = "C";
  layout.axes[0] = layout.axes[1] = "";
  expect_close(got, {expected, product_bounds(size, A.sizes[3]), layout, what});
}

}  // namespace workbook::test
