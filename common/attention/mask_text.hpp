// The text form of a mask on command lines, in the C interface and in results.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/attention/mask.hpp"

namespace workbook {

inline constexpr const char* mask_texts =
    "one of none, causal, window=LEFT,RIGHT with whole numbers from 0 on (LEFT,0: a causal window), documents=N,N,…, "
    "prefix=N and strided=WIDTH,STRIDE, followed by any of +softcap=C, +alibi, +lengths=N,N,…, +rope, +dropout=P,SEED";
inline constexpr const char* cache_texts = ", +cache=N,N,…, +pages=SIZE,SEED";  ///< these too, on command lines
inline constexpr const char* softcap_text = "a number from 0.001 to 1000";
inline constexpr double least_dropout = 1 / 512.0;  ///< a smaller probability would be rounded to 0
inline constexpr const char* dropout_text =
    "0, and from 1/512 to below 1, rounded to a multiple of 1/256, at most 255/256";

/// The inverse of Mask::name(): "causal" or "window=256,0+softcap=50". "none+" may be left out: "softcap=50". "+sink"
/// means `sinks` zeros, whose values the caller provides, and is not allowed if `sinks` is 0. InputError for any other
/// text, for numbers that check(Mask) refuses, and for a dropout probability that would be rounded to 0.
Mask mask_from(std::string_view text, std::int64_t sinks = 0);
/// The same; nothing for a text that mask_from() refuses.
std::optional<Mask> mask_of(std::string_view text, std::int64_t sinks = 0);

/// A number in a message: "0.5", "inf".
std::string number_text(float number);

/// The part of a mask that a chapter does not support, and the option that requests it.
inline std::string lacking_part(const std::vector<Mask>& served, const Mask& mask) {
  const std::string_view part = part_not_in(served, mask);
  return part == "causal" ? "causal mask" : std::string(part);
}
inline std::string_view lacking_option(const std::vector<Mask>& served, const Mask& mask) {
  const std::string_view part = part_not_in(served, mask);
  return part_named(part).value_or(Mask::none).kind > Mask::causal || part == "cache" ? "mask"
         : part == "packed"                                                           ? "lengths"
                                                                                      : part;
}

}  // namespace workbook
