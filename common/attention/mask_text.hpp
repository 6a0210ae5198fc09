// A mask as it is written on a command line and in results.
#pragma once

#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "common/attention/mask.hpp"

namespace workbook {

inline constexpr const char* mask_texts = "none, causal, or window=LEFT,RIGHT with whole numbers from 0 on";

/// "none", "causal", "window=256,0"; nothing for another text.
inline std::optional<Mask> mask_of(std::string_view text) {
  if (const std::optional<Mask> named = mask_named(text)) return named;
  const std::string_view prefix = "window=";
  if (!text.starts_with(prefix)) return {};
  std::array<std::int64_t, 2> sizes{-1, -1};
  const char *at = text.data() + prefix.size(), *const last = text.data() + text.size();
  for (std::int64_t& size : sizes) {
    const auto [end, error] = std::from_chars(at, last, size);
    const bool ends = &size == sizes.data() ? end != last && *end == ',' : end == last;
    if (error != std::errc() || size < 0 || !ends) return {};
    at = end == last ? end : end + 1;
  }
  return Mask::within(sizes[0], sizes[1]);
}

/// What of a mask a chapter that serves these does not, and the option that asks for it.
inline std::string lacking_part(const std::vector<Mask>& served, const Mask& mask) {
  const std::string_view part = part_not_in(served, mask);
  return part == "causal" ? "causal mask" : std::string(part);
}
inline std::string_view lacking_option(const std::vector<Mask>& served, const Mask& mask) {
  const std::string_view part = part_not_in(served, mask);
  return part == "window" ? "mask" : part == "packed" ? "lengths" : part;
}

}  // namespace workbook
