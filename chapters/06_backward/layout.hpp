// Chapter 6, given: how backward.cu divides its work, what lies in shared memory, and how it gets there.
#pragma once

#include <cstdint>

#include "fragments.hpp"

namespace ch06 {
namespace {

/// How a thread block divides its work. It owns a K/V tile for dK and dV, a Q tile for dQ, of `owned` rows.
/// Blocks of `passing` rows of the other kind pass by. A team of one or two warps has 32 of the owned rows. Each warp
/// of it forms P and dS for these and 32 rows of the passing block, and accumulates the team's gradients in `columns`
/// columns.
template <int d_, int warps_, int team_>
struct Plan {
  static constexpr int d = d_, warps = warps_, team = team_, threads = lanes * warps;
  static constexpr int owned = warp_rows * warps / team, passing = warp_rows * team, columns = d / team;
  static constexpr int blocks = warps > 4 ? 1 : 2;  // that are to fit a multiprocessor
};

/// What a thread block keeps that owns a K/V tile of keys. There is a place for two Q tiles.
template <class T>
struct KeyShared {
  Element K[T::owned][T::d + pad], V[T::owned][T::d + pad];
  Element Q[2][T::passing][T::d + pad], dO[2][T::passing][T::d + pad];
  Element P[T::owned][T::passing + pad], dS[T::owned][T::passing + pad];  // Pᵀ and dSᵀ: a row is a key
  QueryRow rows[2][T::passing];
  float index[16][16];
  SHARED_LAYOUT(KeyShared, (K, T::d), (V, T::d), (Q, T::d), (dO, T::d), (P, T::passing), (dS, T::passing), rows, index);
};

/// The same for a thread block that owns a Q tile of queries.
template <class T>
struct QueryShared {
  Element Q[T::owned][T::d + pad], dO[T::owned][T::d + pad];
  Element K[2][T::passing][T::d + pad], V[2][T::passing][T::d + pad];
  Element dS[T::owned][T::passing + pad];
  QueryRow rows[T::owned];
  float index[16][16];
  SHARED_LAYOUT(QueryShared, (Q, T::d), (dO, T::d), (K, T::d), (V, T::d), (dS, T::passing), rows, index);
};

/// Which block of which head a thread block takes. Thread blocks start in the order of their numbers: head by head, so
/// that those that run together share what they read in L2; or, where blocks differ in how much passes by, all heads'
/// first blocks first.
struct Place {
  std::int64_t head, tile;
};
__device__ __forceinline__ Place place_of_block(std::int64_t tiles, bool tiles_differ) {
  const std::int64_t block = blockIdx.x, heads = gridDim.x / tiles;
  return tiles_differ ? Place{block % heads, block / heads} : Place{block / tiles, block % tiles};
}

/// Waits until the warps of a team have stored what the others read, or read what the others overwrite. Teams of two
/// share one barrier, that of the whole thread block.
template <class T>
__device__ __forceinline__ void team_barrier() {
  if constexpr (T::team == 1)
    __syncwarp();
  else
    __syncthreads();
}

/// Starts to copy the Q tile that begins with this query to one of the two places.
template <class T>
__device__ __forceinline__ void load_q_tile(KeyShared<T>& smem, int stage, const Element* __restrict__ Q,
                                               const Element* __restrict__ dO, const QueryRow* __restrict__ rows,
                                               std::int64_t query, std::int64_t Nq) {
  const int queries = min(std::int64_t(T::passing), Nq - query);
  load_tile<T::threads>(smem.Q[stage], Q + query * T::d, queries);    // (passing, d)
  load_tile<T::threads>(smem.dO[stage], dO + query * T::d, queries);  // (passing, d)
  load_rows(smem.rows[stage], rows + query, queries);                 // (passing)
}

/// The same of the K/V tile that begins with this key.
template <class T>
__device__ __forceinline__ void load_kv_tile(QueryShared<T>& smem, int stage, const Element* __restrict__ K,
                                                  const Element* __restrict__ V, std::int64_t key, std::int64_t Nk) {
  const int keys = min(std::int64_t(T::passing), Nk - key);
  load_tile<T::threads>(smem.K[stage], K + key * T::d, keys);  // (passing, d)
  load_tile<T::threads>(smem.V[stage], V + key * T::d, keys);  // (passing, d)
}

}  // namespace
}  // namespace ch06
