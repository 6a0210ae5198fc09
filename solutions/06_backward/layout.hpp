// Chapter 6, given: the division of work in backward.cu, its shared-memory layout, and the copies into it.
#pragma once

#include <cstdint>

#include "fragments.hpp"

namespace ch06 {
namespace {

/// The tile sizes of a kernel. One tile of `resident` rows stays in shared memory for the whole kernel: a K/V tile for
/// dK and dV, a Q tile for dQ. Tiles of the other kind, of `streamed` rows each, are streamed through two buffers. A
/// team of one or two warps handles 32 of the resident rows. Each of its warps forms P and dS for these rows and 32
/// rows of the streamed tile, and accumulates `columns` columns of the team's gradients.
template <int d_, int warps_, int team_>
struct Plan {
  static constexpr int d = d_, warps = warps_, team = team_, threads = lanes * warps;
  static constexpr int resident = warp_rows * warps / team, streamed = warp_rows * team, columns = d / team;
  static constexpr int blocks = warps > 4 ? 1 : 2;  // resident per SM, for __launch_bounds__
};

/// Shared memory of the dK and dV kernel: the resident K/V tile and two buffers for Q tiles.
template <class T>
struct KeyShared {
  Element K[T::resident][T::d + pad], V[T::resident][T::d + pad];
  Element Q[2][T::streamed][T::d + pad], dO[2][T::streamed][T::d + pad];
  Element P[T::resident][T::streamed + pad], dS[T::resident][T::streamed + pad];  // Pᵀ and dSᵀ: a row is a key
  QueryRow rows[2][T::streamed];
  float index[16][16];
  SHARED_LAYOUT(KeyShared, (K, T::d), (V, T::d), (Q, T::d), (dO, T::d), (P, T::streamed), (dS, T::streamed), rows,
                index);
};

/// Shared memory of the dQ kernel: the resident Q tile and two buffers for K/V tiles.
template <class T>
struct QueryShared {
  Element Q[T::resident][T::d + pad], dO[T::resident][T::d + pad];
  Element K[2][T::streamed][T::d + pad], V[2][T::streamed][T::d + pad];
  Element dS[T::resident][T::streamed + pad];
  QueryRow rows[T::resident];
  float index[16][16];
  SHARED_LAYOUT(QueryShared, (Q, T::d), (dO, T::d), (K, T::d), (V, T::d), (dS, T::streamed), rows, index);
};

/// The head and the resident tile of this thread block. Thread blocks start in the order of blockIdx. Normally that is
/// head by head, so that concurrent thread blocks share their reads in L2. If the tiles differ in their amount of work
/// (uneven), the first tiles of all heads start first.
struct TileIndex {
  std::int64_t head, tile;
};
__device__ __forceinline__ TileIndex tile_of_block(std::int64_t tiles, bool uneven) {
  const std::int64_t block = blockIdx.x, heads = gridDim.x / tiles;
  return uneven ? TileIndex{block % heads, block / heads} : TileIndex{block / tiles, block % tiles};
}

/// A barrier for the warps of a team. Before it, a warp stores what the team's other warp loads after it, or loads what
/// the other warp overwrites. Teams of two warps use the barrier of the whole thread block.
template <class T>
__device__ __forceinline__ void team_barrier() {
  if constexpr (T::team == 1)
    __syncwarp();
  else
    __syncthreads();
}

/// Starts copying the Q tile whose first row is `query` into one of the two buffers.
template <class T>
__device__ __forceinline__ void load_q_tile(KeyShared<T>& smem, int buffer, const Element* __restrict__ Q,
                                            const Element* __restrict__ dO, const QueryRow* __restrict__ rows,
                                            std::int64_t query, std::int64_t Nq) {
  const int queries = min(std::int64_t(T::streamed), Nq - query);
  load_tile<T::threads>(smem.Q[buffer], Q + query * T::d, queries);    // (streamed, d)
  load_tile<T::threads>(smem.dO[buffer], dO + query * T::d, queries);  // (streamed, d)
  load_rows(smem.rows[buffer], rows + query, queries);                 // (streamed)
}

/// Starts copying the K/V tile whose first row is `key` into one of the two buffers.
template <class T>
__device__ __forceinline__ void load_kv_tile(QueryShared<T>& smem, int buffer, const Element* __restrict__ K,
                                             const Element* __restrict__ V, std::int64_t key, std::int64_t Nk) {
  const int keys = min(std::int64_t(T::streamed), Nk - key);
  load_tile<T::threads>(smem.K[buffer], K + key * T::d, keys);  // (streamed, d)
  load_tile<T::threads>(smem.V[buffer], V + key * T::d, keys);  // (streamed, d)
}

}  // namespace
}  // namespace ch06
