// Chapter 18: which pairs of a query and a key count. The keys that a query sees, and the tiles of keys of several
// queries, are chapter 15's; new is which of them are full.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.1.
#pragma once

#include "common/cuda/kernel.hpp"

namespace ch18 {
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

  // From query to query neither end of a range ever moves left.

  /// The tiles of Bc keys that the queries of `queries`, of which there is at least one, need together, from the first
  /// to the last.
  template <int Bc>
  __device__ Range tiles(const Range& queries) const {
    return {of(queries.first).first / Bc, (max(0, of(queries.last - 1).last) + Bc - 1) / Bc};
  }

  // TODO(18.1) Those of these tiles of which each of the queries sees every key (about 2 lines).
  // BEGIN 18.1
  template <int Bc>
  __device__ Range full_tiles(const Range& queries) const {
    WORKBOOK_TODO(18.1);
  }
  // END 18.1
};

}  // namespace
}  // namespace ch18
