#include "common/training/storage.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <stdexcept>

namespace workbook::training {
namespace {

constexpr std::uint32_t kInfinity = 0x7f800000u;

// Without branches, so that the loops below vectorise: millions of values a step come through here.

/// The upper bits of a float, `dropped` of them rounded away, to nearest even. A carry raises the exponent.
template <int dropped>
std::uint32_t drop(std::uint32_t magnitude) {
  const std::uint32_t odd = magnitude >> dropped & 1u, half = 1u << (dropped - 1);
  return (magnitude + half - 1u + odd) >> dropped << dropped;
}

float to_fp16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & 0x7fffffffu;
  std::uint32_t normal = drop<13>(magnitude);
  normal = normal >= 0x47800000u ? kInfinity : normal;  // 2^16, where fp16's next number after the largest would be
  // Below 2^-14 fp16's numbers are multiples of 2^-24, as are the floats between 1/2 and 1: adding 1/2 rounds.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>((std::bit_cast<float>(magnitude) + 0.5f) - 0.5f);
  std::uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude > kInfinity ? magnitude : result;  // NaN
  return std::bit_cast<float>((bits & 0x80000000u) | result);
}

float to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const std::uint32_t result = magnitude > kInfinity ? magnitude : drop<16>(magnitude);
  return std::bit_cast<float>((bits & 0x80000000u) | result);
}

}  // namespace

void round_to(Storage storage, std::span<float> values) {
  if (storage == Storage::fp16)
    for (float& value : values) value = to_fp16(value);
  else if (storage == Storage::bf16)
    for (float& value : values) value = to_bf16(value);
}

void round_to(Storage storage, std::span<double>) {
  if (storage != Storage::fp32) throw std::logic_error("a model in double stores nothing in 16 bits");
}

float rounded(Storage storage, float value) {
  round_to(storage, {&value, 1});
  return value;
}

}  // namespace workbook::training
