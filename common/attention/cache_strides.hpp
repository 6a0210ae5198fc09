// Where the keys of a KV cache are in K and V. Header-only.
#pragma once

#include <cstdint>

#include "common/attention/setting.hpp"

namespace workbook {

/// Element c of key j of head h of request b is element
/// page·page_stride + h·head_stride + (j % page_size)·key_stride + c of K and of V, where `page` is entry j / page_size
/// of the request's row of the page table.
struct CacheStrides {
  std::int64_t page_size = 0, page_stride = 0, head_stride = 0, key_stride = 0;
};
/// A contiguous cache has one page per request, of Nk keys.
inline CacheStrides cache_strides(const Setting& setting) {
  const Shape& s = setting.shape;
  const std::int64_t page_size = setting.mask.page_size > 0 ? setting.mask.page_size : s.Nk;
  const bool heads_first = setting.mask.page_size == 0 || setting.mask.page_seed % 2 == 0;
  return {page_size, s.Hkv * page_size * s.d, heads_first ? page_size * s.d : s.d, heads_first ? s.d : s.Hkv * s.d};
}

}  // namespace workbook
