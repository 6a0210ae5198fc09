// Chapter 18: masks. The keys that a query attends to, and the K/V tiles that several queries need, are chapter 15's.
// New is the range of full tiles.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.1.
#pragma once

#include "common/cuda/kernel.hpp"

namespace ch18 {
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

  // From one query to the next, neither end of the key range ever moves back.

  /// The range of K/V tiles, of Bc keys each, that the queries in `queries` need together. There is at least one query.
  template <int Bc>
  __device__ Range kv_tiles(const Range& queries) const {
    return {key_range(queries.first).first / Bc, (max(0, key_range(queries.last - 1).last) + Bc - 1) / Bc};
  }

  // TODO(18.1) The range of K/V tiles, of Bc keys each, of which every query in `queries` attends to every key. There
  // is at least one query, and the range may be empty (about 2 lines).
  // STUB: template <int Bc>
  // STUB: __device__ Range full_tiles(const Range& queries) const {
  // STUB:   WORKBOOK_TODO(18.1);
  // STUB: }
  // BEGIN 18.1
  template <int Bc>
  __device__ Range full_tiles(const Range& queries) const {
    return {(key_range(queries.last - 1).first + Bc - 1) / Bc, max(0, key_range(queries.first).last) / Bc};
  }
  // END 18.1
};

}  // namespace
}  // namespace ch18
