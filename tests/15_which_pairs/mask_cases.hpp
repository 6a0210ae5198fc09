// The masks that the tests of chapter 15 use.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/attention/mask.hpp"
#include "common/worker/calls.hpp"

namespace workbook::test {

inline Mask changed(Mask mask, float softcap, bool alibi) {
  mask.softcap = softcap, mask.alibi = alibi;
  return mask;
}
inline Mask with_sink(Mask mask, std::int64_t heads, float first = 0.5f) {
  for (std::int64_t h = 0; h < heads; ++h) mask.sink.push_back(first + 1.5f * float(h));
  return mask;
}
inline Mask packed(Mask mask, std::vector<std::int64_t> lengths) {
  mask.lengths = std::move(lengths);
  return mask;
}

/// Calls use(shape, mask) for heads of Q that share K and V, and for those that do not, with every part of a mask
/// alone, and with all of them.
template <class Use>
void for_every_mask_and_group(std::int64_t d, const Use& use) {
  for (const auto& [H, Hkv] : {std::pair{8, 2}, {3, 1}, {2, 2}}) {
    const Mask rich = with_sink(changed(Mask::within(40, 9), 5, true), H, -1.0f);
    for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal), Mask::within(30, 5), changed(Mask::none, 0, true),
                             changed(Mask::none, 5, false), with_sink(Mask::none, H, -1.0f), rich})
      use(Shape{1, H, Hkv, 40, 70, d}, mask);
    for (const Mask& mask : {Mask(Mask::none), rich}) use(Shape{1, H, Hkv, 98, 98, d}, packed(mask, {33, 0, 1, 64}));
  }
}

struct Window {
  std::int64_t Nq, Nk, left, right;
  std::int64_t first(std::int64_t query) const { return std::max<std::int64_t>(0, query + Nk - Nq - left); }
  std::int64_t last(std::int64_t query) const { return std::min(Nk, query + Nk - Nq + right + 1); }
  bool attends(std::int64_t query, std::int64_t key) const { return first(query) <= key && key < last(query); }
  std::string text() const { return fmt::format("Nq={}, Nk={}, left={}, right={}", Nq, Nk, left, right); }
};
inline constexpr std::int64_t unlimited = 1000;  // more keys than there are: no end on that side
inline constexpr Window windows[] = {{70, 70, unlimited, unlimited},
                                     {70, 100, unlimited, 0},
                                     {100, 70, unlimited, 0},
                                     {130, 130, 40, 0},
                                     {130, 170, 40, 9},
                                     {170, 130, 33, 0},
                                     {97, 97, 0, 0},
                                     {97, 129, 64, 31},
                                     {64, 200, 31, 32},
                                     {33, 65, 0, unlimited}};

/// A call of an operation that is asked about a window.
inline worker::Call window_call(const char* operation, const Window& window) {
  worker::Call request(operation);
  request.number("Nq", double(window.Nq)).number("Nk", double(window.Nk));
  request.number("left", double(window.left)).number("right", double(window.right));
  return request;
}

}  // namespace workbook::test
