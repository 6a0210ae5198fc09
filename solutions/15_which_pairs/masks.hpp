// Chapter 15: masks (the mask_mod of FlexAttention). A mask gives the range of keys that a query attends to, the K/V
// tiles that a thread block needs, and for each tile whether a warp finds all, some or none of its pairs unmasked.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.1; its repository, csrc/flash_attn/src/block_info.h and mask.h.
#pragma once

#include <cstdint>

#include "phases.hpp"

namespace ch15 {
namespace {

/// The integers from first to last - 1; empty if last <= first.
struct Range {
  int first, last;
};

/// The pairs of a warp's queries and a K/V tile: all masked, all unmasked, or some of each.
enum class TileClass { empty, full, partial };

/// Query i is aligned with key i + (Nk - Nq), its diagonal, so the last query is aligned with the last key. It attends
/// to the `left` keys before its diagonal, to the diagonal, and to the `right` keys after it, as far as these keys
/// exist. The causal mask has right = 0. An unlimited side is Nq + Nk.
struct WindowMask {
  int Nq, Nk, left, right;

  // TODO(15.1) The keys that a query attends to. The diagonal may be negative, and the range may be empty (2 lines).
  // STUB: __device__ Range key_range(int query) const { WORKBOOK_TODO(15.1); }
  // BEGIN 15.1
  __device__ Range key_range(int query) const {
    const int diagonal = query + Nk - Nq;
    return {max(0, diagonal - left), min(Nk, diagonal + right + 1)};
  }
  // END 15.1

  // TODO(15.2) The class of the tile of keys first_key to end_key - 1 for the queries in `queries`, which may be empty.
  // Compare with the key ranges of the first and the last query only (about 4 lines).
  // STUB: __device__ TileClass classify(const Range& queries, int first_key, int end_key) const {
  // STUB:   WORKBOOK_TODO(15.2);
  // STUB: }
  // BEGIN 15.2
  __device__ TileClass classify(const Range& queries, int first_key, int end_key) const {
    const Range first = key_range(queries.first), last = key_range(queries.last - 1);
    if (queries.last <= queries.first || end_key <= first.first || last.last <= first_key) return TileClass::empty;
    return last.first <= first_key && end_key <= first.last ? TileClass::full : TileClass::partial;
  }
  // END 15.2

  // TODO(15.3) The range of K/V tiles, of Bc keys each, that the queries in `queries` need together (about 2 lines).
  // STUB: template <int Bc>
  // STUB: __device__ Range kv_tiles(const Range& queries) const {
  // STUB:   WORKBOOK_TODO(15.3);
  // STUB: }
  // BEGIN 15.3
  template <int Bc>
  __device__ Range kv_tiles(const Range& queries) const {
    return {key_range(queries.first).first / Bc, (max(0, key_range(queries.last - 1).last) + Bc - 1) / Bc};
  }
  // END 15.3

  // TODO(15.9) The inverse of 15.1 and 15.3: the queries that attend to at least one key in `keys`, which is not empty;
  // and the range of Q tiles, of Br queries each, that contain them. If there are none, both are {0, 0} (about 3
  // lines).
  // STUB: __device__ Range query_range(const Range& keys) const { WORKBOOK_TODO(15.9); }
  // STUB: template <int Br>
  // STUB: __device__ Range q_tiles(const Range& keys) const {
  // STUB:   WORKBOOK_TODO(15.9);
  // STUB: }
  // BEGIN 15.9
  __device__ Range query_range(const Range& keys) const {
    const int diagonal = Nq - Nk;  // key j is the diagonal of query j + diagonal
    return {max(0, keys.first - right + diagonal), max(0, min(Nq, keys.last + left + diagonal))};
  }
  template <int Br>
  __device__ Range q_tiles(const Range& keys) const {
    return {query_range(keys).first / Br, (query_range(keys).last + Br - 1) / Br};
  }
  // END 15.9
};

/// Replaces the dot products Q_i·K_j of a tile, (32, Bc), by scores in units of log2. The tile starts at first_query
/// and first_key. In a partial tile (`masked`) the scores of masked pairs become -inf.
template <bool masked, int Bc, class ScoreMod>
__device__ __forceinline__ void apply_score_mod(Scores<Bc> (&S)[row_tiles], const ScoreMod& score_mod,
                                                const WindowMask& mask, int first_query, int first_key) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const auto [row, column] = position_in_part(lane, e);
      const int query = first_query + 16 * i + row, key = first_key + column;  // in part 0
      const float distance = float(query + mask.Nk - mask.Nq - key);           // from the key to the diagonal
      // TODO(15.4) For each part j: replace S[i][j][e] by the score of this query and key + 8·j, whose distance is 8·j
      // less; by -inf if the tile is masked and the query does not attend to that key (about 6 lines).
      // BEGIN 15.4
      const Range keys = masked ? mask.key_range(query) : Range{0, 0};
#pragma unroll
      for (int j = 0; j < Bc / 8; ++j) {
        const bool unmasked = !masked || (keys.first <= key + 8 * j && key + 8 * j < keys.last);
        S[i][j][e] = unmasked ? score_mod(S[i][j][e], distance - float(8 * j)) : -INFINITY;
      }
      // END 15.4
    }
}

/// S of a tile becomes the exponents of P; O and l are rescaled to the new m. If the tile is full and the scores are
/// only scaled, subtract_maximum scales them. It needs a scale > 0.
template <class Element, int d, int Bc, class ScoreMod>
__device__ __forceinline__ void move_to_maximum(Registers<Element, d>& registers, Scores<Bc> (&S)[row_tiles],
                                                const ScoreMod& score_mod, const WindowMask& mask, TileClass tile_class,
                                                int first_query, int tile) {
  const bool masked = tile_class == TileClass::partial;
  const bool modified = masked || ScoreMod::modifies_scores || score_mod.scale <= 0;
  if (masked) {
    workbook::cuda::note("masked tile", tile);
    apply_score_mod<true, Bc>(S, score_mod, mask, first_query, tile * Bc);
  } else if (modified) {
    apply_score_mod<false, Bc>(S, score_mod, mask, first_query, tile * Bc);
  }
  float rescale[row_tiles][2];
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
    subtract_maximum(S[i], registers.m[i], registers.l[i], rescale[i], modified ? 1 : score_mod.scale);
  rescale_O(registers, rescale, tile);
}

}  // namespace
}  // namespace ch15
