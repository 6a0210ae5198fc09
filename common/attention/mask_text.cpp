#include "common/attention/mask_text.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

#include "common/attention/error.hpp"
#include "common/attention/setting.hpp"

namespace workbook {
namespace {

/// One number, from 0 on or not finite, that is all of `text`; an integer that does not fit in 64 bits is the largest
/// that does.
template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end != text.data() + text.size() || text.empty() || text[0] == '-') return std::nullopt;
  if (error == std::errc::result_out_of_range && std::is_integral_v<Number>) return std::numeric_limits<Number>::max();
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

/// Parses "256,0", numbers separated by commas; empty for any other text.
template <class Number>
std::vector<Number> numbers_of(std::string_view text) {
  std::vector<Number> numbers;
  for (std::size_t at = 0, end = 0; at <= text.size(); at = end + 1) {
    end = std::min(text.find(',', at), text.size());
    const std::optional<Number> number = number_of<Number>(text.substr(at, end - at));
    if (!number) return {};
    numbers.push_back(*number);
  }
  return numbers;
}

/// The mask whose text is the first part of a mask's; nothing for any other text.
std::optional<Mask> first_part(std::string_view part, std::string_view name, std::string_view rest) {
  const auto sizes = numbers_of<std::int64_t>(rest);
  if (name == "window" && sizes.size() == 2) return Mask::within(sizes[0], sizes[1]);
  if (name == "strided" && sizes.size() == 2) return Mask::in_strides(sizes[0], sizes[1]);
  if (name == "prefix" && sizes.size() == 1) return Mask::of_prefix(sizes[0]);
  if (name == "documents" && !sizes.empty() && std::ranges::count(sizes, 0) == 0) return Mask::of_documents(sizes);
  return mask_named(part);
}

/// "0.1,7": the dropout probability and its seed.
bool add_dropout(Mask& mask, std::string_view rest) {
  const std::size_t comma = std::min(rest.find(','), rest.size());
  const auto probability = number_of<double>(rest.substr(0, comma));
  const auto seed = number_of<std::int64_t>(rest.substr(std::min(rest.size(), comma + 1)));
  if (!probability || !seed || !(*probability < 1)) return false;
  if (*probability > 0 && *probability < least_dropout)
    throw InputError("dropout = " + std::string(rest.substr(0, comma)) + ": allowed: " + dropout_text);
  mask.dropped = std::min(255, int(*probability * 256 + 0.5)), mask.seed = *seed;
  return true;
}

/// Adds a later part of the text to the mask; false for an unknown one.
bool add_part(Mask& mask, std::string_view part, std::string_view name, std::string_view rest, std::int64_t sinks) {
  if (name == "dropout") return add_dropout(mask, rest);
  if (name == "softcap") {
    const auto cap = number_of<long double>(rest);  // a float's range is smaller than a double's
    mask.softcap = float(cap.value_or(0));
    if (cap && !(mask.softcap >= least_softcap && mask.softcap <= largest_softcap))
      throw InputError("softcap = " + std::string(rest) + ": allowed: " + softcap_text);
    return cap.has_value();
  }
  if (name == "lengths") {
    mask.lengths = numbers_of<std::int64_t>(rest);
    return mask.kind != Mask::documents && !mask.lengths.empty();
  }
  if (name == "cache") {
    mask.cache = numbers_of<std::int64_t>(rest);
    return !mask.cache.empty();
  }
  if (name == "pages") {
    const auto numbers = numbers_of<std::int64_t>(rest);
    if (numbers.size() != 2 || numbers[0] == 0) return false;
    mask.page_size = numbers[0], mask.page_seed = numbers[1];
    return true;
  }
  if (part == "alibi") return mask.alibi = true;
  if (part == "rope") return mask.rope = true;
  if (part == "sink" && sinks > 0) mask.sink.assign(std::size_t(sinks), 0);
  return part == "sink" && sinks > 0;
}

}  // namespace

Mask mask_from(std::string_view text, std::int64_t sinks) {
  const std::string argument = "mask = " + std::string(text) + ": ";
  Mask mask;
  std::vector<std::string_view> names;
  try {
    for (std::size_t at = 0, end = 0; at <= text.size(); at = end + 1) {
      end = std::min(text.find('+', at), text.size());
      const std::string_view part = text.substr(at, end - at);
      const std::size_t equals = std::min(part.find('='), part.size());
      const std::string_view name = part.substr(0, equals), rest = part.substr(std::min(part.size(), equals + 1));
      if (std::ranges::count(names, name) > 0) throw InputError(std::string(name) + " is given twice; allowed: once");
      names.push_back(name);
      const std::optional<Mask> first = at == 0 ? first_part(part, name, rest) : std::nullopt;
      if (first)
        mask = *first;
      else if (!add_part(mask, part, name, rest, sinks))
        throw InputError(std::string("allowed: ") + mask_texts + (sinks > 0 ? ", +sink" : cache_texts));
    }
    check(mask);
  } catch (const InputError& error) {
    throw InputError(argument + error.what());
  }
  return mask;
}

std::optional<Mask> mask_of(std::string_view text, std::int64_t sinks) {
  try {
    return mask_from(text, sinks);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

std::string number_text(float number) {
  char text[32];
  return {text, std::to_chars(std::begin(text), std::end(text), number).ptr};
}

}  // namespace workbook
