// Chapter 19: which pairs of a query and a key count, seen from the side of the keys. Which queries see any of some
// keys is chapter 15's; new is which queries see all of them.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.1.
#pragma once

#include "common/cuda/kernel.hpp"

namespace ch19 {
namespace {

/// Numbers from first to last - 1; none if last <= first.
struct Range {
  int first, last;
};

/// Which keys queries see. Query i stands at key i + (Nk - Nq), the diagonal: the last query at the last key. It sees
/// `left` keys before that one, that one and `right` keys after it, as far as they exist. With the causal mask right is
/// 0, and without an end on a side the number there is so large that it never matters.
struct SeenKeys {
  int Nq, Nk, left, right;

  /// The keys that a query sees. It may stand before the first key, and its range may be empty.
  __device__ Range of(int query) const {
    const int diagonal = query + Nk - Nq;
    return {max(0, diagonal - left), min(Nk, diagonal + right + 1)};
  }

  // The other way round. Key j stands at query j + (Nq - Nk); from key to key neither end of a range of queries ever
  // moves left.

  /// The queries that see any of the keys of `keys`, of which there is at least one; and the Q tiles of Br queries
  /// that hold them. There may be none: then both are {0, 0}.
  __device__ Range queries(const Range& keys) const {
    const int diagonal = Nq - Nk;
    return {max(0, keys.first - right + diagonal), max(0, min(Nq, keys.last + left + diagonal))};
  }
  template <int Br>
  __device__ Range q_tiles(const Range& keys) const {
    return {queries(keys).first / Br, (queries(keys).last + Br - 1) / Br};
  }

  // TODO(19.2) The queries that see every key of `keys`; there may be none, and are none if one of the keys does not
  // exist. And whether all of the queries of `those` that exist are among them (about 6 lines).
  // STUB: __device__ Range full_queries(const Range& keys) const { WORKBOOK_TODO(19.2); }
  // STUB: __device__ bool all_see(const Range& those, const Range& keys) const { WORKBOOK_TODO(19.2); }
  // BEGIN 19.2
  __device__ Range full_queries(const Range& keys) const {
    const int diagonal = Nq - Nk;
    if (keys.last > Nk) return {0, 0};
    return {max(0, keys.last - 1 - right + diagonal), min(Nq, keys.first + left + diagonal + 1)};
  }
  __device__ bool all_see(const Range& those, const Range& keys) const {
    const Range full = full_queries(keys);
    return full.first <= those.first && min(Nq, those.last) <= full.last;
  }
  // END 19.2
};

}  // namespace
}  // namespace ch19
