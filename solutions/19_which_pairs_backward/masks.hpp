// Chapter 19: masks, seen from the keys. The queries that attend to any key of a range are chapter 15's. New are the
// queries that attend to all keys of a range.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.1.
#pragma once

#include "common/cuda/kernel.hpp"

namespace ch19 {
namespace {

/// The integers from first to last - 1; empty if last <= first.
struct Range {
  int first, last;
};

/// Query i is aligned with key i + (Nk - Nq), its diagonal, so the last query is aligned with the last key. It attends
/// to the `left` keys before its diagonal, to the diagonal, and to the `right` keys after it, as far as these keys
/// exist. The causal mask has right = 0. An unlimited side is Nq + Nk.
struct WindowMask {
  int Nq, Nk, left, right;

  /// The keys that a query attends to. The diagonal may be negative, and the range may be empty.
  __device__ Range key_range(int query) const {
    const int diagonal = query + Nk - Nq;
    return {max(0, diagonal - left), min(Nk, diagonal + right + 1)};
  }

  // The inverse. Key j is the diagonal of query j + (Nq - Nk). From one key to the next, neither end of the range of
  // queries ever moves back.

  /// The queries that attend to at least one key in `keys`, which is not empty; and the range of Q tiles, of Br queries
  /// each, that contain them. If there are none, both are {0, 0}.
  __device__ Range query_range(const Range& keys) const {
    const int diagonal = Nq - Nk;  // key j is the diagonal of query j + diagonal
    return {max(0, keys.first - right + diagonal), max(0, min(Nq, keys.last + left + diagonal))};
  }
  template <int Br>
  __device__ Range q_tiles(const Range& keys) const {
    return {query_range(keys).first / Br, (query_range(keys).last + Br - 1) / Br};
  }

  // TODO(19.2) full_queries: the queries that attend to every key in `keys`; empty if one of the keys does not exist.
  // is_full: whether they include all of `queries` that exist (about 6 lines).
  // STUB: __device__ Range full_queries(const Range& keys) const { WORKBOOK_TODO(19.2); }
  // STUB: __device__ bool is_full(const Range& queries, const Range& keys) const { WORKBOOK_TODO(19.2); }
  // BEGIN 19.2
  __device__ Range full_queries(const Range& keys) const {
    const int diagonal = Nq - Nk;
    if (keys.last > Nk) return {0, 0};
    return {max(0, keys.last - 1 - right + diagonal), min(Nq, keys.first + left + diagonal + 1)};
  }
  __device__ bool is_full(const Range& queries, const Range& keys) const {
    const Range full = full_queries(keys);
    return full.first <= queries.first && min(Nq, queries.last) <= full.last;
  }
  // END 19.2
};

}  // namespace
}  // namespace ch19
