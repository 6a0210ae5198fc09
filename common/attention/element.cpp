#include "common/attention/element.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "common/attention/error.hpp"
#include "common/attention/half.hpp"

namespace workbook {

Precision precision_of(std::string_view element) {
  if (element == "float32") return float32_precision();
  if (element == "float16") return float16_precision();
  if (element == "bfloat16") return bfloat16_precision();
  fail_input("element \"{}\": unknown; allowed: \"float32\", \"float16\", \"bfloat16\"", element);
}

std::vector<std::uint16_t> to_codes(std::span<const float> values, std::string_view element) {
  std::vector<std::uint16_t> codes(values.size());
  std::transform(values.begin(), values.end(), codes.begin(),
                 element == "bfloat16" ? float_to_bfloat16 : float_to_half);
  return codes;
}

std::vector<float> from_codes(std::span<const std::uint16_t> codes, std::string_view element) {
  std::vector<float> values(codes.size());
  std::transform(codes.begin(), codes.end(), values.begin(), element == "bfloat16" ? bfloat16_to_float : half_to_float);
  return values;
}

EncodedProblem encoded(Problem problem, std::string_view element) {
  EncodedProblem result{std::string(element), std::move(problem), {}, {}, {}};
  if (!has_codes(element)) return result;
  const auto encode = [&](const char* name, Tensor<float>& tensor, std::vector<std::uint16_t>& codes) {
    codes = to_codes(tensor.values, element);
    std::vector<float> rounded = from_codes(codes, element);
    for (std::size_t i = 0; i < rounded.size(); ++i) {
      if (std::isinf(rounded[i]) && std::isfinite(tensor.values[i])) {
        fail_input("{}: the value {} does not fit {}; allowed: up to {}", name, tensor.values[i], element,
                   element == "float16" ? "65504" : "3.39e38");
      }
    }
    tensor.values = std::move(rounded);
  };
  encode("Q", result.problem.Q, result.Q);
  encode("K", result.problem.K, result.K);
  encode("V", result.problem.V, result.V);
  return result;
}

Problem rounded_to(Problem problem, std::string_view element) {
  return encoded(std::move(problem), element).problem;
}

}  // namespace workbook
