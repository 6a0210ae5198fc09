// Which keys a query sees, and what is added to its scores: a value. A mask more is, here, a kind, its name, its keys
// and what it adds; everything else asks. Header-only: calls on a device hold one.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>

#include "common/attention/shape.hpp"

namespace workbook {

/// The keys [first, last) of a head.
struct KeyRange {
  std::int64_t first = 0, last = 0;
};

/// Rows count through (B, H, Nq): a mask may be another for each head.
struct Mask {
  enum Kind : std::int32_t { none, causal };

  Kind kind = none;

  constexpr Mask() = default;
  constexpr Mask(Kind kind_) : kind(kind_) {}
  /// From whether it is causal, for loops over both.
  constexpr Mask(std::same_as<bool> auto is_causal) : kind(is_causal ? causal : none) {}
  friend constexpr bool operator==(const Mask&, const Mask&) = default;

  /// Calls take(KeyRange) for the keys that a row sees, in rising order; not at all for a row that sees none.
  template <class Take>
  void for_ranges(const Shape& shape, std::int64_t row, const Take& take) const {
    switch (kind) {
      case none:
        return take(KeyRange{0, shape.Nk});
      case causal:
        if (const std::int64_t n = visible_keys(row % shape.Nq, shape.Nq, shape.Nk, true); n > 0) take(KeyRange{0, n});
    }
  }
  /// What is added to scale·Q_i·K_j, for a key that the row sees.
  double added(const Shape&, std::int64_t /*row*/, std::int64_t /*key*/) const { return 0; }

  /// Calls take(key) for every key that a row sees, in rising order.
  template <class Take>
  void for_keys(const Shape& shape, std::int64_t row, const Take& take) const {
    for_ranges(shape, row, [&](const KeyRange& range) {
      for (std::int64_t key = range.first; key < range.last; ++key) take(key);
    });
  }
  /// How many keys a row sees.
  std::int64_t count(const Shape& shape, std::int64_t row) const {
    std::int64_t keys = 0;
    for_ranges(shape, row, [&](const KeyRange& range) { keys += range.last - range.first; });
    return keys;
  }
  bool sees(const Shape& shape, std::int64_t row, std::int64_t key) const {
    bool seen = false;
    for_ranges(shape, row, [&](const KeyRange& range) { seen |= range.first <= key && key < range.last; });
    return seen;
  }

  std::string_view name() const;
  /// How a sentence says it: "causal", "not causal".
  std::string_view text() const { return kind == none ? "not causal" : name(); }
};

/// All masks, by what options, manifests and results call them.
struct NamedMask {
  std::string_view name;
  Mask mask;
};
inline constexpr std::array all_masks{NamedMask{"none", Mask::none}, NamedMask{"causal", Mask::causal}};

inline std::string_view Mask::name() const {
  const auto found =
      std::find_if(all_masks.begin(), all_masks.end(), [&](const auto& each) { return each.mask == *this; });
  return found == all_masks.end() ? "no mask of the book" : found->name;
}
/// Nothing for a name that no mask has.
inline std::optional<Mask> mask_named(std::string_view name) {
  const auto found =
      std::find_if(all_masks.begin(), all_masks.end(), [&](const NamedMask& each) { return each.name == name; });
  return found == all_masks.end() ? std::nullopt : std::optional(found->mask);
}

}  // namespace workbook
