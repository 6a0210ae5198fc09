#include "common/attention/problem.hpp"

#include <cmath>
#include <limits>

namespace workbook {

std::string sizes_text(std::span<const std::int64_t> sizes) {
  std::string text;
  for (const std::int64_t size : sizes) text += (text.empty() ? "(" : ", ") + std::to_string(size);
  return text + ")";
}

std::int64_t checked_size(std::string_view what, std::initializer_list<std::int64_t> sizes) {
  // Counts elements. Their number in bytes of the widest type (8) must fit too, so that no later multiplication
  // overflows.
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 8;
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) {
    if (size <= 0) fail_input("{}: a size is {}; allowed: sizes of at least 1", what, size);
    if (product > most / size)
      fail_input("{}: sizes {} are too large; allowed: at most {} elements", what,
                 sizes_text({sizes.begin(), sizes.size()}), most);
    product *= size;
  }
  return product;
}

void check(const Shape& shape, bool any_d) {
  const auto positive = [](std::string_view name, std::int64_t value) {
    if (value <= 0) fail_input("{} = {}: allowed: whole numbers from 1 on", name, value);
  };
  positive("B (batch)", shape.B);
  positive("H (heads)", shape.H);
  positive("Hkv (K/V heads)", shape.Hkv);
  positive("Nq (number of queries)", shape.Nq);
  positive("Nk (number of keys)", shape.Nk);
  positive("d (head_dim)", shape.d);
  if (!any_d && shape.d != 32 && shape.d != 64 && shape.d != 128)
    fail_input("d (head_dim) = {}: allowed: 32, 64 and 128", shape.d);
  if (shape.H % shape.Hkv != 0)
    fail_input("Hkv (K/V heads) = {} with H (heads) = {}: allowed: divisors of H", shape.Hkv, shape.H);
  checked_size("Q", {shape.B, shape.H, shape.Nq, shape.d});
  checked_size("K", {shape.B, shape.Hkv, shape.Nk, shape.d});
  checked_size("S", {shape.B, shape.H, shape.Nq, shape.Nk});
}

std::vector<std::int64_t> seen_keys(const Setting& setting, std::int64_t row) {
  std::vector<std::int64_t> keys;
  setting.mask.for_keys(setting.shape, row, [&](std::int64_t key) { keys.push_back(key); });
  return keys;
}

float default_scale(std::int64_t d) {
  return float(1.0 / std::sqrt(double(d)));
}

}  // namespace workbook
