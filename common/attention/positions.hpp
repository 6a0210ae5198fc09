// Rotary position embedding and dropout computed directly from their formulas, for the oracle, its bounds, tests and
// pictures. Chapters do not include this header.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/attention/setting.hpp"

namespace workbook {

/// Rows of Q or K, (heads, rows, d), rotated by their positions, or back: elements c and c + d/2 are a pair, rotated by
/// position·10000^(-2c/d). The last row has position `last`. RoFormer, Su et al. 2021, section 3.2.
template <class T>
void rotate(std::vector<T>& values, std::int64_t rows, std::int64_t d, std::int64_t last, bool back = false) {
  const std::int64_t half = d / 2;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t c = 0; c < half; ++c) {
      const double angle = double(row + last - (rows - 1)) * std::pow(10000, -2 * double(c) / double(d));
      const double cos = std::cos(angle), sin = back ? -std::sin(angle) : std::sin(angle);
      for (std::size_t at = std::size_t(row * d + c); at < values.size(); at += std::size_t(rows * d)) {
        const double x = double(values[at]), y = double(values[at + std::size_t(half)]);
        values[at] = T(x * cos - y * sin), values[at + std::size_t(half)] = T(y * cos + x * sin);
      }
    }
}
/// The same for a tensor of a call's queries or keys, if its mask has RoPE. The last query and the last key have
/// position Nk - 1.
template <class T>
void rotate_rows(std::vector<T>& values, const Setting& setting, std::int64_t rows, bool back = false) {
  if (setting.mask.rope) rotate(values, rows, setting.shape.d, setting.shape.Nk - 1, back);
}
/// The length of each element's pair, which rotation does not change and which bounds the element. Without rotation,
/// the element's absolute value.
inline std::vector<double> sizes_of(const std::vector<double>& values, const Setting& setting) {
  std::vector<double> sizes(values.size());
  const std::size_t d = std::size_t(setting.shape.d);
  for (std::size_t at = 0; at < values.size(); ++at) {
    const std::size_t partner = at % d < d / 2 ? at + d / 2 : at - d / 2;
    sizes[at] = setting.mask.rope ? std::hypot(values[at], values[partner]) : std::abs(values[at]);
  }
  return sizes;
}

/// sqrt(Σ_c a_c² b_c²), with each magnitude at least the smallest normal half: the effect, in unit roundoffs, of
/// rounding both operands on their dot product.
inline double rounded_products(const double* a, const double* b, std::int64_t d) {
  constexpr double least = 0x1p-14;
  double sum = 0;
  for (std::int64_t c = 0; c < d; ++c) {
    const double product = std::max(std::abs(a[c]), least) * std::max(std::abs(b[c]), least);
    sum += product * product;
  }
  return std::sqrt(sum);
}

/// Philox4x32-10: 128 random bits of a counter and a key. Salmon et al. 2011.
inline std::array<std::uint32_t, 4> philox_4x32(std::array<std::uint32_t, 4> counter,
                                                std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t left = std::uint64_t(0xD2511F53) * counter[0], right = std::uint64_t(0xCD9E8D57) * counter[2];
    counter = {std::uint32_t(right >> 32) ^ counter[1] ^ key[0], std::uint32_t(right),
               std::uint32_t(left >> 32) ^ counter[3] ^ key[1], std::uint32_t(left)};
    key[0] += 0x9E3779B9, key[1] += 0xBB67AE85;
  }
  return counter;
}
/// The random byte of a pair. Pairs in a block of 32 x 32 whose queries and keys are multiples of 8 apart share a
/// 128-bit number, of which each pair uses one byte. `head` is numbered through (B, H).
inline std::int32_t random_byte(std::int64_t seed, std::int64_t head, std::int64_t query, std::int64_t key) {
  const auto word = philox_4x32(
      {std::uint32_t(key / 32 * 8 + key % 8), std::uint32_t(query / 32 * 8 + query % 8), std::uint32_t(head), 0},
      {std::uint32_t(seed), std::uint32_t(seed >> 32)})[std::size_t(query / 8 % 4)];
  return std::int32_t(word >> (key / 8 % 4 * 8) & 255);
}
/// The factor for P of a pair; 0 if the pair is dropped. `row` is numbered through (B, H, Nq).
inline double kept(const Setting& setting, std::int64_t row, std::int64_t key) {
  const Mask& mask = setting.mask;
  if (mask.dropped == 0) return 1;
  const std::int64_t query = row % setting.shape.Nq, head = row / setting.shape.Nq;
  return random_byte(mask.seed, head, query, key) < mask.dropped ? 0 : mask.kept_scale();
}

}  // namespace workbook
