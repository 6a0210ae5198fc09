// Masks for the tests of chapter 17.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "common/attention/positions.hpp"
#include "tests/support/subject.hpp"

namespace workbook::test {

inline Mask rotated(Mask mask) {
  mask.rope = true;
  return mask;
}
inline Mask dropped(Mask mask, std::int32_t of_256, std::int64_t seed = 7) {
  mask.dropped = of_256, mask.seed = seed;
  return mask;
}
/// Two plain masks, changed.
template <class Change>
std::vector<Mask> both(const Change& change) {
  return {change(Mask::none), change(Mask::causal)};
}
inline std::vector<Mask> rotations() {
  return both(rotated);
}
/// Small and large p, and seeds of one word and of two.
inline std::vector<Mask> dropouts() {
  return {dropped(Mask::none, 26), dropped(Mask::causal, 128, 0x100000003), dropped(Mask::none, 230, 12345)};
}
inline std::vector<Mask> all_together() {
  return both([](const Mask& mask) { return dropped(rotated(mask), 26, 99); });
}
/// Whole tiles, and diagonals that begin at key 0, after it and before it.
inline const std::initializer_list<std::pair<std::int64_t, std::int64_t>> some_lengths{
    {64, 96}, {130, 130}, {70, 161}, {161, 70}};

/// A call of one of the chapter's operations.
template <class Number>
std::vector<Number> numbers_of(const char* operation, const Numbers& numbers, const std::vector<Number>& given,
                               std::size_t size) {
  worker::Call request(operation);
  for (const auto& [name, value] : numbers) request.number(name, value);
  request.input("given", given).template output<Number>("numbers", size);
  return call(request).template output<Number>("numbers");
}

}  // namespace workbook::test
