// Chapter 6: P and dS of one Q tile and one K/V tile, from S, dP and the LSE and D of each query. These functions run
// between the matmuls of every kernel of the chapter.
//
// Source: Dao 2023, section 3.1.2, Algorithm 2.
// Test it: ./workbook test 6.3
#pragma once

#include "fragments.hpp"

namespace ch06 {
namespace {

using workbook::cuda::exp2_ftz;

/// Overwrites one fragment of S with P = exp2(S·scale - LSE) and one of dP with dS = P∘(dP - D). row[e] holds LSE and D
/// of the query of element e. If unmasked(e) is false, P and dS are 0. scale includes log2(e).
template <class Unmasked>
__device__ __forceinline__ void form_P_and_dS(Accumulator& S, Accumulator& dP, const QueryRow (&row)[elements],
                                              float scale, Unmasked unmasked) {
  // TODO(6.3) Overwrite each element e of S with P and of dP with dS, in fp32; P = 0 where masked (about 6 lines).
  // BEGIN 6.3
#pragma unroll
  for (int e = 0; e < elements; ++e) {
    const float P = unmasked(e) ? exp2_ftz(S.x[e] * scale - row[e].x) : 0;
    S.x[e] = P;
    dP.x[e] = P * (dP.x[e] - row[e].y);
  }
  // END 6.3
}

/// The mask of one tile of S. Key k and query q are indices within their tiles. The pair (q, k) is unmasked if the key
/// exists, k < keys, and the query attends to it, k <= q + diagonal.
struct Mask {
  bool needed;  // false: every pair is unmasked
  int keys, diagonal;

  __device__ __forceinline__ bool unmasked(int key, int query) const { return key < keys && key <= query + diagonal; }
};

/// Stores Pᵀ and dSᵀ of 32 keys and 32 queries, rounded, in smem.P and smem.dS: a row is a key. S and dP hold Sᵀ and
/// dPᵀ, (32, 32), and are overwritten. The keys start at row first_key of the K/V tile, the queries at row first_query
/// of the Q tile. `rows` holds LSE and D of all queries of the Q tile. `map` gives the row (key) and the column (query)
/// of each element of a fragment.
template <class Shared, int Br>
__device__ __forceinline__ void P_and_dS_of_keys(Shared& smem, Accumulator (&S)[2][2], Accumulator (&dP)[2][2],
                                                 int first_key, int first_query, const QueryRow (&rows)[Br],
                                                 const Map& map, float scale, const Mask& mask) {
  // TODO(6.4) Fragment (r, n) starts at key first_key + 16 r and query first_query + 16 n. Read LSE and D of each
  // element's query, form P and dS with the mask if needed, and store both, rounded (about 16 lines).
  // BEGIN 6.4
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int query = first_query + 16 * n;
    QueryRow row[elements];
#pragma unroll
    for (int e = 0; e < elements; ++e) row[e] = rows[query + map.column[e]];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int key = first_key + 16 * r;
      if (mask.needed) {
        const Map positions = make_map(smem.index);
        form_P_and_dS(S[r][n], dP[r][n], row, scale,
                      [&](int e) { return mask.unmasked(key + positions.row[e], query + positions.column[e]); });
      } else {
        form_P_and_dS(S[r][n], dP[r][n], row, scale, [](int) { return true; });
      }
      store_rounded(smem.P, key, query, S[r][n]);
      store_rounded(smem.dS, key, query, dP[r][n]);
    }
  }
  // END 6.4
}

/// Stores dS of 32 queries and 32 keys, rounded, in smem.dS: a row is a query. S and dP, (32, 32), are overwritten. The
/// queries start at row first_query of the Q tile, the keys at row first_key of the K/V tile. row[r][e] holds LSE and D
/// of the query of element e in the fragments (r, 0) and (r, 1).
template <class Shared>
__device__ __forceinline__ void dS_of_queries(Shared& smem, Accumulator (&S)[2][2], Accumulator (&dP)[2][2],
                                              int first_query, int first_key, const QueryRow (&row)[2][elements],
                                              float scale, const Mask& mask) {
  // TODO(6.5) As 6.4 with rows and columns exchanged: fragment (r, n) starts at query first_query + 16 r and key
  // first_key + 16 n. Store only dS. If a mask is needed, make_map(smem.index) gives each element's query (row) and key
  // (column) (about 15 lines).
  // BEGIN 6.5
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int query = first_query + 16 * r, key = first_key + 16 * n;
      if (mask.needed) {
        const Map positions = make_map(smem.index);
        form_P_and_dS(S[r][n], dP[r][n], row[r], scale,
                      [&](int e) { return mask.unmasked(key + positions.column[e], query + positions.row[e]); });
      } else {
        form_P_and_dS(S[r][n], dP[r][n], row[r], scale, [](int) { return true; });
      }
      store_rounded(smem.dS, query, key, dP[r][n]);
    }
  }
  // END 6.5
}

}  // namespace
}  // namespace ch06
