// The text form of a mask on command lines and in results.
#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/attention/mask.hpp"

namespace workbook {

inline constexpr const char* mask_texts =
    "none, causal, window=LEFT,RIGHT with whole numbers from 0 on, documents=N,N,…, prefix=N, or strided=WIDTH,STRIDE; "
    "optionally followed by +softcap=C, +alibi, +lengths=N,N,…, +rope, +dropout=P,SEED";

/// Parses "256,0", numbers from 0 on separated by commas; empty for any other text.
template <class Number>
std::vector<Number> numbers_of(std::string_view text) {
  std::vector<Number> numbers;
  const char* const last = text.data() + text.size();
  for (const char* at = text.data(); at <= last; ++at) {
    const auto [end, error] = std::from_chars(at, last, numbers.emplace_back());
    if (error != std::errc() || numbers.back() < 0 || (end != last && *end != ',')) return {};
    at = end;
  }
  return numbers;
}
/// The inverse of Mask::name(): "causal" or "window=256,0+softcap=50"; nothing for any other text. "+sink" means
/// `sinks` zeros, whose values the caller provides, and is not allowed if `sinks` is 0.
inline std::optional<Mask> mask_of(std::string_view text, std::int64_t sinks = 0) {
  Mask mask;
  for (std::size_t at = 0, end = 0; at <= text.size(); at = end + 1) {
    end = std::min(text.find('+', at), text.size());
    const std::string_view part = text.substr(at, end - at);
    const bool first = at == 0;
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string_view name = part.substr(0, equals), rest = part.substr(std::min(part.size(), equals + 1));
    const std::optional<Mask> kind = first ? mask_named(part) : std::nullopt;
    if (const auto sizes = numbers_of<std::int64_t>(rest); first && name == "window" && sizes.size() == 2)
      mask = Mask::within(sizes[0], sizes[1]);
    else if (first && name == "strided" && sizes.size() == 2 && std::ranges::count(sizes, 0) == 0)
      mask = Mask::in_strides(sizes[0], sizes[1]);
    else if (first && name == "prefix" && sizes.size() == 1)
      mask = Mask::of_prefix(sizes[0]);
    else if (first && name == "documents" && !sizes.empty() && std::ranges::count(sizes, 0) == 0)
      mask = Mask::of_documents(sizes);
    else if (kind)
      mask = *kind;
    else if (const auto cap = numbers_of<float>(rest); !first && name == "softcap" && cap.size() == 1 && cap[0] > 0)
      mask.softcap = cap[0];
    else if (!first && part == "alibi")
      mask.alibi = true;
    else if (!first && part == "rope")
      mask.rope = true;
    else if (const auto chance = numbers_of<double>(rest);
             !first && name == "dropout" && chance.size() == 2 && chance[0] < 1 && chance[1] < 0x1p53)
      mask.dropped = std::min(255, int(chance[0] * 256 + 0.5)), mask.seed = std::int64_t(chance[1]);
    else if (!first && part == "sink" && sinks > 0)
      mask.sink.assign(std::size_t(sinks), 0);
    else if (!first && name == "lengths" && mask.kind != Mask::documents && !sizes.empty() &&
             std::ranges::count(sizes, 0) == 0)
      mask.lengths = sizes;
    else
      return {};
  }
  return mask;
}

/// The part of a mask that a chapter does not support, and the option that requests it.
inline std::string lacking_part(const std::vector<Mask>& served, const Mask& mask) {
  const std::string_view part = part_not_in(served, mask);
  return part == "causal" ? "causal mask" : std::string(part);
}
inline std::string_view lacking_option(const std::vector<Mask>& served, const Mask& mask) {
  const std::string_view part = part_not_in(served, mask);
  return part_named(part).value_or(Mask::none).kind > Mask::causal ? "mask" : part == "packed" ? "lengths" : part;
}

}  // namespace workbook
