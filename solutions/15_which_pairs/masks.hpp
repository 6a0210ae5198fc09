// Chapter 15: which pairs of a query and a key count. The keys that a query sees, as a range; the tiles of keys that a
// block needs; and for a warp whether it needs none of a tile, all of it or a part.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.1; its repository, csrc/flash_attn/src/block_info.h and mask.h.
#pragma once

#include <cstdint>

#include "phases.hpp"

namespace ch15 {
namespace {

/// Numbers from first to last - 1; none if last <= first.
struct Range {
  int first, last;
};

/// What the queries of a warp see of a tile of keys: no pair counts, every pair does, or each has to be asked.
enum class TileClass { empty, full, partial };

/// Which keys queries see. Query i stands at key i + (Nk - Nq), the diagonal: the last query at the last key. It sees
/// `left` keys before that one, that one and `right` keys after it, as far as they exist. With the causal mask right is
/// 0, and without an end on a side the number there is so large that it never matters.
struct SeenKeys {
  int Nq, Nk, left, right;

  // TODO(15.1) The keys that a query sees. It may stand before the first key, and its range may be empty (2 lines).
  // STUB: __device__ Range of(int query) const { WORKBOOK_TODO(15.1); }
  // BEGIN 15.1
  __device__ Range of(int query) const {
    const int diagonal = query + Nk - Nq;
    return {max(0, diagonal - left), min(Nk, diagonal + right + 1)};
  }
  // END 15.1

  // TODO(15.2) The class of the tile of keys first_key to end_key - 1 for the queries of `queries`, of which there may
  // be none. Two of them tell it: from query to query neither end of a range ever moves left (about 4 lines).
  // STUB: __device__ TileClass class_of(const Range& queries, int first_key, int end_key) const {
  // STUB:   WORKBOOK_TODO(15.2);
  // STUB: }
  // BEGIN 15.2
  __device__ TileClass class_of(const Range& queries, int first_key, int end_key) const {
    const Range first = of(queries.first), last = of(queries.last - 1);
    if (queries.last <= queries.first || end_key <= first.first || last.last <= first_key) return TileClass::empty;
    return last.first <= first_key && end_key <= first.last ? TileClass::full : TileClass::partial;
  }
  // END 15.2

  // TODO(15.3) The tiles of Bc keys that the queries of `queries` need together, from the first to the last (about 2
  // lines).
  // STUB: template <int Bc>
  // STUB: __device__ Range tiles(const Range& queries) const {
  // STUB:   WORKBOOK_TODO(15.3);
  // STUB: }
  // BEGIN 15.3
  template <int Bc>
  __device__ Range tiles(const Range& queries) const {
    return {of(queries.first).first / Bc, (max(0, of(queries.last - 1).last) + Bc - 1) / Bc};
  }
  // END 15.3

  // TODO(15.9) The other way round: the queries that see any of the keys of `keys`, of which there is at least one; and
  // the Q tiles of Br queries that hold them. There may be none: then both are {0, 0} (about 3 lines).
  // STUB: __device__ Range queries(const Range& keys) const { WORKBOOK_TODO(15.9); }
  // STUB: template <int Br>
  // STUB: __device__ Range q_tiles(const Range& keys) const {
  // STUB:   WORKBOOK_TODO(15.9);
  // STUB: }
  // BEGIN 15.9
  __device__ Range queries(const Range& keys) const {
    const int diagonal = Nq - Nk;  // key j is the diagonal of query j + diagonal
    return {max(0, keys.first - right + diagonal), max(0, min(Nq, keys.last + left + diagonal))};
  }
  template <int Br>
  __device__ Range q_tiles(const Range& keys) const {
    return {queries(keys).first / Br, (queries(keys).last + Br - 1) / Br};
  }
  // END 15.9
};

/// What becomes of the products Q_i·K_j of a tile, (32, Bc), which begins at first_query and first_key: a score by
/// `change`, in units of log2. In a tile that is partial (`masked`) those that do not count become -inf.
template <bool masked, int Bc, class Change>
__device__ __forceinline__ void change_scores(Scores<Bc> (&S)[row_tiles], const Change& change, const SeenKeys& seen,
                                              int first_query, int first_key) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const auto [row, column] = place_in_D(lane, e);
      const int query = first_query + 16 * i + row, key = first_key + column;  // of part 0
      const float distance = float(query + seen.Nk - seen.Nq - key);           // of the key from the diagonal
      // TODO(15.4) Each part j: the score of this query with key + 8·j, whose distance is 8·j less; -inf if the tile is
      // masked and the query does not see that key (about 6 lines).
      // BEGIN 15.4
      const Range keys = masked ? seen.of(query) : Range{0, 0};
#pragma unroll
      for (int j = 0; j < Bc / 8; ++j) {
        const bool counts = !masked || (keys.first <= key + 8 * j && key + 8 * j < keys.last);
        S[i][j][e] = counts ? change(S[i][j][e], distance - float(8 * j)) : -INFINITY;
      }
      // END 15.4
    }
}

/// S of a tile becomes the exponents of P; O and l are brought to the new m. A full tile whose scores are only scaled
/// is left to subtract_maximum. That wants a scale > 0.
template <class Element, int d, int Bc, class Change>
__device__ __forceinline__ void move_to_maximum(Registers<Element, d>& own, Scores<Bc> (&S)[row_tiles],
                                                const Change& change, const SeenKeys& seen, TileClass tile_class,
                                                int first_query, int tile) {
  const bool masked = tile_class == TileClass::partial;
  const bool changed = masked || Change::of_each_score || change.scale <= 0;
  if (masked) {
    workbook::cuda::note("masked tile", tile);
    change_scores<true, Bc>(S, change, seen, first_query, tile * Bc);
  } else if (changed) {
    change_scores<false, Bc>(S, change, seen, first_query, tile * Bc);
  }
  float rescale[row_tiles][2];
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
    subtract_maximum(S[i], own.m[i], own.l[i], rescale[i], changed ? 1 : change.scale);
  rescale_O(own, rescale, tile);
}

}  // namespace
}  // namespace ch15
