// A KV cache in pages, as a call's tests lay it out: the pages of all requests are mixed in one pool, in an order that
// the mask's page_seed selects. What belongs to no key is NaN, so a kernel that uses it is wrong. Header-only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "common/attention/cache_strides.hpp"

namespace workbook {

struct CachePages {
  CacheStrides at;
  std::int64_t per_request = 1;     ///< entries of the table per request
  std::int64_t count = 0;           ///< pages of the pool
  std::vector<std::int32_t> table;  ///< (B, per_request): the page of each page_size keys; -1: none

  explicit CachePages(const Setting& setting) : at(cache_strides(setting)), per_request(pages_of(setting.shape.Nk)) {
    const std::vector<std::int64_t>& lengths = setting.mask.cache;
    if (setting.mask.page_size == 0) {
      while (count < setting.shape.B) table.push_back(std::int32_t(count++));
      return;
    }
    for (const std::int64_t length : lengths) count += pages_of(length);
    count += count / 4 + 1;  // these belong to no request
    std::vector<std::int32_t> order(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = std::int32_t(i);
    std::mt19937_64 random(std::uint64_t(setting.mask.page_seed));
    for (std::size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random() % (i + 1)]);
    auto next = order.begin();
    for (const std::int64_t length : lengths)
      for (std::int64_t i = 0; i < per_request; ++i) table.push_back(i < pages_of(length) ? *next++ : -1);
  }
  std::int64_t pages_of(std::int64_t keys) const { return (keys + at.page_size - 1) / at.page_size; }
  /// The elements of K or V as they are stored.
  std::int64_t elements() const { return count * at.page_stride; }
  /// The first element of a key.
  std::int64_t offset(std::int64_t request, std::int64_t head, std::int64_t key) const {
    const std::int64_t page = table[std::size_t(request * per_request + key / at.page_size)];
    return page * at.page_stride + head * at.head_stride + key % at.page_size * at.key_stride;
  }
};

/// K or V of a call with a cache, (B, Hkv, Nk, d), as it is stored: contiguous or in pages, with NaN elsewhere.
template <class Code>
std::vector<Code> stored_in_cache(const Setting& setting, std::span<const Code> given) {
  const Shape& s = setting.shape;
  const CachePages pages(setting);
  Code nan = Code(-1);  // of half and of bfloat16
  if constexpr (std::is_floating_point_v<Code>) nan = std::numeric_limits<Code>::quiet_NaN();
  std::vector<Code> stored(std::size_t(pages.elements()), nan);
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t h = 0; h < s.Hkv; ++h)
      for (std::int64_t j = 0; j < setting.mask.cache[std::size_t(b)]; ++j)
        std::copy_n(given.begin() + ((b * s.Hkv + h) * s.Nk + j) * s.d, s.d, stored.begin() + pages.offset(b, h, j));
  return stored;
}

/// K or V of the last head of the last request, from a cache as it is stored: the last of Nk rows.
template <class Code>
std::vector<Code> last_of_cache(const Setting& setting, std::span<const Code> stored) {
  const Shape& s = setting.shape;
  const CachePages pages(setting);
  std::vector<Code> rows(std::size_t(s.Nk * s.d));
  const std::int64_t length = setting.mask.cache.back();
  for (std::int64_t j = 0; j < length; ++j)
    std::copy_n(stored.begin() + pages.offset(s.B - 1, s.Hkv - 1, j), s.d, rows.begin() + (s.Nk - length + j) * s.d);
  return rows;
}

}  // namespace workbook
