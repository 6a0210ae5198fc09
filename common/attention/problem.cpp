#include "common/attention/problem.hpp"

#include <cmath>

namespace workbook {

std::vector<std::int64_t> attended_keys(const Setting& setting, std::int64_t row) {
  std::vector<std::int64_t> keys;
  setting.mask.for_keys(setting.shape, row, [&](std::int64_t key) { keys.push_back(key); });
  return keys;
}

float default_scale(std::int64_t d) {
  return float(1.0 / std::sqrt(double(d)));
}

}  // namespace workbook
