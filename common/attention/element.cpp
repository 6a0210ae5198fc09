#include "common/attention/element.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "common/attention/error.hpp"
#include "common/attention/half.hpp"
#include "common/attention/tensors.hpp"

namespace workbook {

Precision precision_of(Element element) {
  const std::array all{float32_precision(), float16_precision(), bfloat16_precision(), float8_precision()};
  return all[std::size_t(element)];
}

std::vector<std::uint16_t> to_codes(std::span<const float> values, Element element) {
  std::vector<std::uint16_t> codes(values.size());
  std::transform(values.begin(), values.end(), codes.begin(), element == bfloat16 ? float_to_bfloat16 : float_to_half);
  return codes;
}

std::vector<float> from_codes(std::span<const std::uint16_t> codes, Element element) {
  std::vector<float> values(codes.size());
  std::transform(codes.begin(), codes.end(), values.begin(), element == bfloat16 ? bfloat16_to_float : half_to_float);
  return values;
}

float float8_scale(float largest) {
  if (largest == 0) return 1;
  int exponent = 0;
  const float fraction = std::frexp(largest, &exponent);  // in [1/2, 1); 448 is 7/8 · 2^9
  return std::ldexp(1.0f, fraction <= 0.875f ? exponent - 9 : exponent - 8);
}

Tensor<float> rounded_in_blocks(const Tensor<float>& tensor) {
  Tensor<float> result = tensor;
  const std::int64_t heads = tensor.sizes[0] * tensor.sizes[1], N = tensor.sizes[2], d = tensor.sizes[3];
  for (std::int64_t head = 0; head < heads; ++head) {
    for (std::int64_t first = 0; first < N; first += float8_block_rows) {
      const auto begin = result.values.begin() + (head * N + first) * d;
      const auto end = begin + std::min(float8_block_rows, N - first) * d;
      float largest = 0;
      for (auto each = begin; each != end; ++each) largest = std::fmax(largest, std::abs(*each));
      const float scale = float8_scale(largest);
      for (auto each = begin; each != end; ++each) *each = rounded_to_e4m3(*each / scale) * scale;
    }
  }
  return result;
}

EncodedProblem encoded(Problem problem, Element element) {
  EncodedProblem result{element, std::move(problem), {}};
  if (!has_codes(element)) return result;
  for (std::size_t at = 0; at < 3; ++at) {
    Tensor<float>& tensor = *result.problem.tensors()[at];
    result.codes[at] = to_codes(tensor.values, element);
    std::vector<float> rounded = from_codes(result.codes[at], element);
    for (std::size_t i = 0; i < rounded.size(); ++i) {
      if (std::isinf(rounded[i]) && std::isfinite(tensor.values[i])) {
        fail_input("{}: the value {} does not fit {}; allowed: up to {}", forward_tensors[at].name, tensor.values[i],
                   name(element), element == bfloat16 ? "3.39e38" : "65504");
      }
    }
    tensor.values = std::move(rounded);
    if (element == float8) tensor = rounded_in_blocks(tensor);
  }
  return result;
}

Problem rounded_to(Problem problem, Element element) {
  return encoded(std::move(problem), element).problem;
}

}  // namespace workbook
