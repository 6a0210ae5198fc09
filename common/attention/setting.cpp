// The checks of a problem. Linked into libraries of stages (workbook.h), which are not linked with fmt.
#include "common/attention/setting.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "common/attention/error.hpp"
#include "common/attention/mask_text.hpp"

namespace workbook {
namespace {

/// InputError: "NAME = VALUE: allowed: ALLOWED".
template <class Value>
[[noreturn]] void refuse(std::string_view name, const Value& value, const std::string& allowed) {
  std::string text(name);
  if constexpr (std::is_convertible_v<Value, std::string>)
    text.append(" = ").append(value);
  else if constexpr (std::is_floating_point_v<Value>)
    text.append(" = ").append(number_text(value));
  else
    text.append(" = ").append(std::to_string(value));
  throw InputError(text + ": allowed: " + allowed);
}

std::string from_to(std::int64_t least, std::int64_t most) {
  return "whole numbers from " + std::to_string(least) + " to " + std::to_string(most);
}

std::string lengths_text(const std::vector<std::int64_t>& lengths) {
  std::string text;
  for (const std::int64_t length : lengths) text.append(text.empty() ? "" : ",").append(std::to_string(length));
  return text;
}

/// "lengths" or "documents", whichever the lengths of a mask are.
const char* name_of_lengths(const Mask& mask) {
  return mask.packed() ? "lengths" : "documents";
}

void check_lengths(const Mask& mask) {
  std::int64_t sum = 0;
  for (const std::int64_t length : mask.lengths) {
    if (length < 0 || length > longest_length - sum)
      refuse(name_of_lengths(mask), lengths_text(mask.lengths),
             from_to(0, longest_length) + ", as is the sum of the lengths");
    sum += length;
  }
}

void check_cache(const Mask& mask) {
  for (const std::int64_t length : mask.cache)
    if (length < 0 || length > longest_length) refuse("cache", lengths_text(mask.cache), from_to(0, longest_length));
  if (mask.page_size < 0 || mask.page_size > largest_page) refuse("pages", mask.page_size, from_to(1, largest_page));
  if (mask.page_seed < 0 || mask.page_seed >= largest_number)
    refuse("the seed of the pages", mask.page_seed, from_to(0, largest_number - 1));
  if (mask.page_size > 0 && mask.cache.empty()) throw InputError("pages without cache: allowed: cache=N,N,…+pages=…");
  const bool others = mask.kind > Mask::causal || !mask.lengths.empty() || mask.alibi || mask.rope || mask.dropped > 0;
  if (!mask.cache.empty() && others)
    throw InputError("cache with " + mask.name() + ": allowed with a cache: none, causal, softcap and sink");
}

}  // namespace

std::string sizes_text(std::span<const std::int64_t> sizes) {
  std::string text = "(";
  for (const std::int64_t size : sizes) text.append(text.size() == 1 ? "" : ", ").append(std::to_string(size));
  return text.append(")");
}

std::int64_t checked_size(std::string_view what, std::initializer_list<std::int64_t> sizes) {
  // Counts elements. Their number in bytes of the widest type (8) must fit too, so that no later multiplication
  // overflows.
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 8;
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) {
    if (size <= 0)
      throw InputError(std::string(what) + ": a size is " + std::to_string(size) + "; allowed: sizes of at least 1");
    if (product > most / size)
      throw InputError(std::string(what) + ": sizes " + sizes_text({sizes.begin(), sizes.size()}) +
                       " are too large; allowed: at most " + std::to_string(most) + " elements");
    product *= size;
  }
  return product;
}

void check(const Shape& shape, bool any_d) {
  const std::pair<const char*, std::int64_t> sizes[]{{"B (batch)", shape.B},
                                                     {"H (heads)", shape.H},
                                                     {"Hkv (K/V heads)", shape.Hkv},
                                                     {"Nq (number of queries)", shape.Nq},
                                                     {"Nk (number of keys)", shape.Nk},
                                                     {"d (head_dim)", shape.d}};
  for (const auto& [name, size] : sizes)
    if (size <= 0) refuse(name, size, "whole numbers from 1 on");
  if (!any_d && shape.d != 32 && shape.d != 64 && shape.d != 128) refuse("d (head_dim)", shape.d, "32, 64 and 128");
  if (shape.H % shape.Hkv != 0)
    throw InputError("Hkv (K/V heads) = " + std::to_string(shape.Hkv) + " with H (heads) = " + std::to_string(shape.H) +
                     ": allowed: divisors of H");
  checked_size("Q", {shape.B, shape.H, shape.Nq, shape.d});
  checked_size("K", {shape.B, shape.Hkv, shape.Nk, shape.d});
  checked_size("S", {shape.B, shape.H, shape.Nq, shape.Nk});
  for (const auto& [name, size] : sizes)
    if (size > largest_number) refuse(name, size, from_to(1, largest_number));
}

void check(const Mask& mask) {
  const auto pair = [&] { return std::to_string(mask.left) + "," + std::to_string(mask.right); };
  const std::int64_t least = std::min(mask.left, mask.right), most = std::max(mask.left, mask.right);
  if (mask.kind == Mask::window && least < 0)
    refuse("window", pair(), "whole numbers from 0 on; " + std::to_string(no_end) + " or more: no end");
  if (mask.kind == Mask::strided && (least < 1 || most > longest_length))
    refuse("strided", pair(), from_to(1, longest_length));
  if (mask.kind == Mask::prefix && (mask.left < 0 || mask.left > longest_length))
    refuse("prefix", mask.left, from_to(0, longest_length));
  check_lengths(mask);
  if (mask.softcap != 0 && !(mask.softcap >= least_softcap && mask.softcap <= largest_softcap))
    refuse("softcap", mask.softcap, softcap_text);
  if (mask.dropped < 0 || mask.dropped > 255)
    refuse("dropout", float(mask.dropped) / 256, "a number from 0 on, below 1");
  if (mask.seed < 0 || mask.seed >= largest_number) refuse("dropout's seed", mask.seed, from_to(0, largest_number - 1));
  check_cache(mask);
  for (std::size_t head = 0; head < mask.sink.size(); ++head)
    if (!std::isfinite(mask.sink[head]) || mask.sink[head] > 0x1p127f)  // times log2(e) it must be a float too
      refuse("sink[" + std::to_string(head) + "]", mask.sink[head], "finite numbers up to 2^127");
}

void check(const Setting& setting, bool any_d) {
  const Shape& shape = setting.shape;
  const Mask& mask = setting.mask;
  check(shape, any_d);
  if (!std::isfinite(setting.scale)) refuse("scale", setting.scale, "finite numbers");
  check(mask);
  if (mask.alibi && !std::has_single_bit(std::uint64_t(shape.H)))
    throw InputError("H (heads) = " + std::to_string(shape.H) + " with alibi: allowed: powers of two");
  const std::int64_t rows = mask.rows();
  if (!mask.lengths.empty() && (rows != shape.Nk || (mask.packed() && rows != shape.Nq)))
    throw InputError(std::string(name_of_lengths(mask)) + " = " + lengths_text(mask.lengths) +
                     ": the lengths add up to " + std::to_string(rows) + ", with Nq = " + std::to_string(shape.Nq) +
                     ", Nk = " + std::to_string(shape.Nk) + ": allowed: lengths that add up to " +
                     (mask.packed() ? "both" : "Nk"));
  if (!mask.sink.empty() && std::int64_t(mask.sink.size()) != shape.H)
    refuse("the number of sinks", std::int64_t(mask.sink.size()), std::to_string(shape.H) + ", one for each head");
  if (!mask.cache.empty() && std::int64_t(mask.cache.size()) != shape.B)
    refuse("the number of lengths in cache", std::int64_t(mask.cache.size()),
           std::to_string(shape.B) + ", one for each request");
  for (const std::int64_t length : mask.cache)
    if (length > shape.Nk) refuse("cache", lengths_text(mask.cache), from_to(0, shape.Nk) + ", the number of keys");
}

}  // namespace workbook
