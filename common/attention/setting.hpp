// The problem that every stage solves, apart from its values: sizes, scale and mask. Calls, gradients, messages and
// measurements hold a Setting and add their own data. The reader's chapters include this header, so mask.cpp is linked
// into every worker.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/attention/mask.hpp"
#include "common/attention/shape.hpp"

namespace workbook {

struct Setting {
  Shape shape;
  float scale = 0;  ///< multiplies QKᵀ, of any sign; usually 1/√d
  Mask mask;        ///< which keys a query attends to, and the score modification
  bool causal() const { return mask.kind == Mask::causal; }
  bool operator==(const Setting&) const = default;
};

/// The number of elements, which is the product of the sizes. InputError, naming `what`, if a size is <= 0 or 8 bytes
/// per element exceed 63 bits.
std::int64_t checked_size(std::string_view what, std::initializer_list<std::int64_t> sizes);

/// "(2, 4, 100, 64)", for messages.
std::string sizes_text(std::span<const std::int64_t> sizes);

// The checks of a problem. The command line, mask texts, files, the C interface and Python all use them, so that they
// accept the same problems and refuse the others with the same sentence. Each throws InputError, which names the
// argument, its value and what is allowed.

/// Checks a shape: every size from 1 to largest_number, d in {32, 64, 128} or at least 1 when `any_d`, H a multiple of
/// Hkv, all numbers of elements within 64 bits.
void check(const Shape& shape, bool any_d = false);
/// Checks the numbers of a mask: sides of a window from 0 on, prefixes, strides and lengths that fit in 32 bits, the
/// sum of the lengths too, a softcap of 0 or from least_softcap to largest_softcap, finite sinks; for a cache, the
/// causal mask or none.
void check(const Mask& mask);
/// Checks both, a finite scale, lengths that add up to the rows, one sink per head, one length of at most Nk for each
/// request of a cache, and for ALiBi a number of heads that is a power of two: for others ALiBi's code interleaves the
/// slopes of two powers of two, which no stage does.
void check(const Setting& setting, bool any_d = false);

/// Calls take(name, number) for every number of a shape, const or not, with its name in calls.
template <class S, class Take>
void for_shape_numbers(S&& shape, const Take& take) {
  take("B", shape.B), take("H", shape.H), take("Hkv", shape.Hkv);
  take("Nq", shape.Nq), take("Nk", shape.Nk), take("d", shape.d);
}
/// The same for the numbers of a mask's parts. Those of a part that the mask does not have are 0.
template <class M, class Take>
void for_part_numbers(M&& mask, const Take& take) {
  take("window_left", mask.left), take("window_right", mask.right);
  take("softcap", mask.softcap), take("alibi", mask.alibi);
  take("rope", mask.rope), take("dropped", mask.dropped), take("dropout_seed", mask.seed);
  take("page_size", mask.page_size), take("page_seed", mask.page_seed);
}
/// The same for every number of a setting.
template <class S, class Take>
void for_numbers(S&& setting, const Take& take) {
  for_shape_numbers(setting.shape, take);
  take("scale", setting.scale);
  take("mask", setting.mask.kind);
  for_part_numbers(setting.mask, take);
}
/// The setting with number(name) for each number.
template <class Number>
Setting setting_from(const Number& number) {
  Setting setting;
  for_numbers(setting, [&](std::string_view name, auto& value) {
    value = static_cast<std::remove_reference_t<decltype(value)>>(number(name));
  });
  return setting;
}

/// One call of an attention stage on the CPU: the inputs and the outputs.
template <class T>
struct AttentionCallOf : Setting {
  std::span<const T> Q, K, V;  ///< (B, H, Nq, d), (B, Hkv, Nk, d), (B, Hkv, Nk, d)
  std::span<T> O, lse;         ///< (B, H, Nq, d), (B, H, Nq)
};
using AttentionCall = AttentionCallOf<float>;

/// One backward call: the inputs and outputs of the forward pass, dO, and the gradients to write.
template <class T>
struct GradientCallOf : Setting {
  std::span<const T> Q, K, V;     ///< (B, H, Nq, d), (B, Hkv, Nk, d), (B, Hkv, Nk, d)
  std::span<const T> O, dO, lse;  ///< (B, H, Nq, d), (B, H, Nq, d), (B, H, Nq)
  std::span<T> dQ, dK, dV;        ///< shaped like Q, K and V
};
using GradientCall = GradientCallOf<float>;

}  // namespace workbook
