// Chapter 6, what happens between the products: P and dS from S, dP and what each query brings, for one Q tile and
// one K/V tile. All kernels of the chapter use it.
//
// Source: Dao 2023, section 3.1.2, Algorithm 2.
// Test it: ./workbook test 6.3
#pragma once

#include "fragments.hpp"

namespace ch06 {
namespace {

using workbook::cuda::exp2_ftz;

/// S -> P = exp2(S·scale - LSE) and dP -> dS = P∘(dP - D) for one fragment. Element e belongs to the query of row[e];
/// where counts(e) is false, P and dS are 0. scale holds log2(e).
template <class Counts>
__device__ __forceinline__ void form_P_and_dS(Accumulator& S, Accumulator& dP, const QueryRow (&row)[elements],
                                              float scale, Counts counts) {
  // TODO(6.3) Element by element, all in fp32 (about 6 lines).
  // BEGIN 6.3
#pragma unroll
  for (int e = 0; e < elements; ++e) {
    const float P = counts(e) ? exp2_ftz(S.x[e] * scale - row[e].x) : 0;
    S.x[e] = P;
    dP.x[e] = P * (dP.x[e] - row[e].y);
  }
  // END 6.3
}

/// Which pairs of a key and a query count. Both are numbered from the first of their blocks on: key k counts for query
/// q if it exists, k < keys, and if q sees it, k <= q + diagonal.
struct Mask {
  bool needed;  // false: every pair counts
  int keys, diagonal;

  __device__ __forceinline__ bool counts(int key, int query) const { return key < keys && key <= query + diagonal; }
};

/// Pᵀ and dSᵀ of 32 keys and 32 queries, rounded, to smem.P and smem.dS, where a row is a key. S and dP hold Sᵀ and dPᵀ
/// of them, (32, 32), and are used up. The 32 keys begin at row first_key of the K/V tile, the 32 queries at row
/// first_query of the Q tile, and rows are what its queries bring. map says which key (row) and which query (column)
/// each element of a fragment belongs to.
template <class Shared, int Br>
__device__ __forceinline__ void P_and_dS_of_keys(Shared& smem, Accumulator (&S)[2][2], Accumulator (&dP)[2][2],
                                                 int first_key, int first_query, const QueryRow (&rows)[Br],
                                                 const Map& map, float scale, const Mask& mask) {
  // TODO(6.4) Fragment (r, n) has the 16 keys from first_key + 16 r on and the 16 queries from first_query + 16 n on.
  // Fetch what the queries of its elements bring, make P and dS of it, and store both, rounded (about 16 lines).
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
        const Map at = learn_map(smem.index);
        form_P_and_dS(S[r][n], dP[r][n], row, scale,
                      [&](int e) { return mask.counts(key + at.row[e], query + at.column[e]); });
      } else {
        form_P_and_dS(S[r][n], dP[r][n], row, scale, [](int) { return true; });
      }
      store_rounded(smem.P, key, query, S[r][n]);
      store_rounded(smem.dS, key, query, dP[r][n]);
    }
  }
  // END 6.4
}

/// dS of 32 queries and 32 keys, rounded, to smem.dS, where a row is a query. S and dP, (32, 32), are used up. The
/// queries begin at row first_query of the Q tile, the keys at row first_key of the K/V tile. row[r] is what the
/// queries of a fragment's elements bring, 16 r further down.
template <class Shared>
__device__ __forceinline__ void dS_of_queries(Shared& smem, Accumulator (&S)[2][2], Accumulator (&dP)[2][2],
                                              int first_query, int first_key, const QueryRow (&row)[2][elements],
                                              float scale, const Mask& mask) {
  // TODO(6.5) The same with the roles exchanged: fragment (r, n) has the 16 queries from first_query + 16 r on and the
  // 16 keys from first_key + 16 n on. Only dS is needed. For a mask, learn_map(smem.index) says which query and which
  // key an element is (about 15 lines).
  // BEGIN 6.5
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int query = first_query + 16 * r, key = first_key + 16 * n;
      if (mask.needed) {
        const Map at = learn_map(smem.index);
        form_P_and_dS(S[r][n], dP[r][n], row[r], scale,
                      [&](int e) { return mask.counts(key + at.column[e], query + at.row[e]); });
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
