// Chapter 11, wgmma: the layout of shared memory and of a consumer's registers, and the phases of the kernel.
//
// Source: Shah et al. 2024 (FlashAttention-3), sections 3.1 and 3.2.
#pragma once

#include <cstdint>

#include "tiles.hpp"
#include "wgmma.hpp"

namespace ch11 {
namespace {

using workbook::cuda::barrier_arrive, workbook::cuda::barrier_sync, workbook::cuda::cp_async_bulk_commit_group;
using workbook::cuda::cp_async_bulk_tensor_load, workbook::cuda::cp_async_bulk_tensor_store;
using workbook::cuda::cp_async_bulk_wait_group_read, workbook::cuda::cvt_rn_x2, workbook::cuda::exp2_ftz;
using workbook::cuda::fence_mbarrier_init, workbook::cuda::fence_proxy_async, workbook::cuda::Major;
using workbook::cuda::Mbarrier, workbook::cuda::mbarrier_arrive, workbook::cuda::mbarrier_arrive_expect_tx;
using workbook::cuda::mbarrier_init, workbook::cuda::mbarrier_wait_parity, workbook::cuda::mov_tid_x;
using workbook::cuda::TensorMap;
using workbook::cuda::wgmma_commit_group, workbook::cuda::wgmma_fence, workbook::cuda::wgmma_mma_async;
using workbook::cuda::wgmma_wait_group;

constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;
constexpr unsigned all_lanes = 0xffffffff;

/// A kernel's sizes, and the features of its version, `step` (wgmma.hpp).
template <class Element_, int d_, int Bc_, int consumers_, int step>
struct Kernel {
  using Element = Element_;
  static constexpr int d = d_, Bc = Bc_, consumers = consumers_, Br = 64 * consumers, threads = 128 * (1 + consumers);
  static constexpr int stages = step == 1 ? 1 : 2;
  static constexpr bool overlapped = step >= 3, ping_pong = step >= 4, persistent = step >= 6;
  static constexpr float slack = step >= 5 ? ch11::slack : 0;
  /// Whether consume_overlapped waits for the next K before it waits for O, or at the start of the next iteration.
  static constexpr bool K_before_O = d == 64;
  /// A kernel starts with 65536 / threads registers per thread. setmaxnreg moves registers from the producer warpgroup
  /// to the consumers: with three consumers, 128·32 + 384·160 = 65536.
  static constexpr int producer_registers = consumers == 3 ? 32 : 24, consumer_registers = consumers == 3 ? 160 : 240;

  /// Shared memory of a thread block. A `full` mbarrier signals that a tile has been loaded, an `empty` mbarrier that
  /// all consumer warps have released the stage.
  struct alignas(pattern_bytes) Shared {
    Tile<Element, d, 64> Q[consumers];  // reused for O if the kernel is not persistent
    Tile<Element, d, Bc> K[stages], V[stages];
    Tile<Element, d, 64> O[persistent ? consumers : 1];
    Mbarrier Q_full, Q_empty, K_full[stages], K_empty[stages], V_full[stages], V_empty[stages];
    int tile_index;  // of the Q tile in Q
    SHARED_LAYOUT(Shared, Q, K, V, O, Q_full, Q_empty, K_full, K_empty, V_full, V_empty, tile_index);
    __device__ __forceinline__ auto& O_buffer(int consumer) {
      if constexpr (persistent)
        return O[consumer];
      else
        return Q[consumer];
    }
  };

  // A thread's registers: S (64, Bc); P as the A operand of O += P V; O (64, d). See coordinates_in_D.
  using Scores = Fragment<float, Bc / 2>;
  using Probabilities = Fragment<Element, 4>[Bc / 16];
  using Output = Fragment<float, d / 2>;
};

/// The kernel's arguments. Query i sees all keys or, if causal, the keys up to i + (Nk - Nq).
struct Call {
  float* lse;         // (heads, Nq)
  int* tile_counter;  // of the tile scheduler: how many Q tiles have been assigned beyond each block's first one
  int Nq, Nk, heads, q_tiles;
  float scale;  // |scale|·log2(e), greater than 0; `negative` is its sign
  bool causal, negative;
};

/// The number of K/V tiles, from the first one on, that the queries before `end` see. At least one: if they see no key,
/// that tile is fully masked.
template <class T>
__device__ __forceinline__ int visible_kv_tiles(const Call& call, int end) {
  const int keys = call.causal ? min(call.Nq, end) + call.Nk - call.Nq : call.Nk;
  return max(1, (keys + T::Bc - 1) / T::Bc);
}

/// One unit of work of the tile scheduler: a Q tile of a head, and the number of its K/V tiles. K/V tiles are processed
/// from the last to the first, so that partial tiles come first. Tile indices iterate over one group of heads at a
/// time, so that the group's K and V stay in the L2 cache. Within a group, causal Q tiles are in decreasing order of
/// length (longest processing time first), so that short tiles fill the idle SMs at the end. Only the last group fills
/// them, so a group has many heads if causal.
template <class T>
struct WorkTile {
  int head, first_query, kv_tiles;
  __device__ WorkTile(const Call& call, int tile_index) {
    const int heads_per_group = call.causal ? 16 : 4;
    const int first_head = tile_index / (heads_per_group * call.q_tiles) * heads_per_group;
    const int heads = min(heads_per_group, call.heads - first_head),
              index_in_group = tile_index - first_head * call.q_tiles;
    head = first_head + index_in_group % heads;
    first_query = (call.q_tiles - 1 - index_in_group / heads) * T::Br;
    kv_tiles = visible_kv_tiles<T>(call, first_query + T::Br);
  }
};

/// A position in a ring of stages: the stage, and the parity of the phase for which a consumer waits there.
template <int stages>
struct Position {
  int stage = 0, parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

// The cycle of a stage: the producer waits until the stage is empty and issues a TMA load; the load's last byte
// completes the phase of `full`; the consumers wait for that, read the tile and release the stage; the last release
// completes the phase of `empty`. A phase ends when all expected arrivals and all expected bytes have arrived. One lane
// of each consumer warp arrives for its warp.
//
// A wait for the parity of the current phase waits for the end of that phase. A wait for the other parity returns at
// once. The producer needs this in its first round, when no stage has been released: it waits for parity ^ 1.
//
// TODO(11.2) make_barriers, called by one thread: initialise all mbarriers, and make them visible to TMA by a fence.
// produce, called by the producer thread: load Q of all consumers; then K_j and V_j for each K/V tile j, from the last
// to the first, starting at `position`. Before each load, wait until the stage is empty and expect the tile's bytes;
// produce_all waits for Q_empty. The coordinates of a box, column, row, section and head, are 0, row, 0, head (about
// 22 lines).
// BEGIN 11.2
template <class T>
__device__ __forceinline__ void make_barriers(typename T::Shared& smem) {
  WORKBOOK_TODO(11.2);
}
template <class T>
__device__ __forceinline__ void produce(typename T::Shared& smem, const TensorMap& Q, const TensorMap& K,
                                        const TensorMap& V, const WorkTile<T>& work,
                                        Position<T::stages>& position) {
  WORKBOOK_TODO(11.2);
}
// END 11.2

/// The producer's loop over the Q tiles of its thread block. A persistent block draws its next tile index only after
/// it has issued all loads of the current tile: a tile claimed earlier would wait for this block while other blocks are
/// idle. Consumers read the index when Q is full; an index past the last tile ends their loop. The next Q and index
/// overwrite the current ones when all consumers have released Q.
template <class T>
__device__ __forceinline__ void produce_all(typename T::Shared& smem, const TensorMap& Q, const TensorMap& K,
                                            const TensorMap& V, const Call& call) {
  Position<T::stages> position;
  for (int tile_index = blockIdx.x, iteration = 0; tile_index < call.heads * call.q_tiles; ++iteration) {
    smem.tile_index = tile_index;
    produce<T>(smem, Q, K, V, WorkTile<T>(call, tile_index), position);
    if constexpr (!T::persistent) return;
    tile_index = gridDim.x + atomicAdd(call.tile_counter, 1);
    mbarrier_wait_parity(smem.Q_empty, iteration % 2);
  }
  smem.tile_index = call.heads * call.q_tiles;
  mbarrier_arrive_expect_tx(smem.Q_full, 0);
}

/// Issues S = Q Kᵀ, unscaled: (64, d), (Bc, d) -> (64, Bc).
template <class T>
__device__ __forceinline__ void start_QK(typename T::Scores& S, const Tile<typename T::Element, T::d, 64>& Q,
                                         const Tile<typename T::Element, T::d, T::Bc>& K) {
  // TODO(11.3) A fence; one wgmma for each 16 columns of Q and K, where the first one overwrites S; commit the group
  // (about 5 lines).
  // BEGIN 11.3
  WORKBOOK_TODO(11.3);
  // END 11.3
}

/// Sets S to -inf for keys that a row does not see. The consumer's first row sees the first `visible` keys of the tile,
/// each later row one key more, and no row sees more than `keys`.
template <int n>
__device__ __forceinline__ void mask_scores(Fragment<float, n>& S, int keys, int visible) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const auto [row, column] = coordinates_in_D(threadIdx.x % 128, e);
    const int end = min(keys, visible + row) - column;
#pragma unroll
    for (int j = 0; j < n / 4; ++j)
      if (8 * j >= end) S[4 * j + e] = -INFINITY;
  }
}

/// The maximum of S in row r = 0 or 1 of this lane: over even and over odd columns in two independent chains, then over
/// the quad.
template <int n>
__device__ __forceinline__ float row_max(const Fragment<float, n>& S, int r) {
  float even = S[2 * r], odd = S[2 * r + 1];
#pragma unroll
  for (int j = 1; j < n / 4; ++j) even = fmaxf(even, S[4 * j + 2 * r]), odd = fmaxf(odd, S[4 * j + 2 * r + 1]);
  float largest = fmaxf(even, odd);
  largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, 1));
  return fmaxf(largest, __shfl_xor_sync(all_lanes, largest, 2));
}

/// S -> P = exp2(S·scale - m) in both rows of a lane, scale > 0; updates m and l. `rescale` is O's factor for the new
/// m. It is not applied here, because the previous O += P V may still be in flight. l sums only this lane's columns.
template <int n>
__device__ __forceinline__ void online_softmax(Fragment<float, n>& S, float (&m)[2], float (&l)[2], float (&rescale)[2],
                                               float scale, float slack) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float m_tile = row_max(S, r) * scale, m_new = m_tile > m[r] + slack ? m_tile : m[r];
    const float m_safe = m_new == -INFINITY ? 0 : m_new;
    rescale[r] = exp2_ftz(m[r] - m_safe);
    m[r] = m_new;
    float even = 0, odd = 0;
#pragma unroll
    for (int j = 0; j < n / 4; ++j) {
      float &left = S[4 * j + 2 * r], &right = S[4 * j + 2 * r + 1];
      even += left = exp2_ftz(left * scale - m_safe);
      odd += right = exp2_ftz(right * scale - m_safe);
    }
    l[r] = l[r] * rescale[r] + (even + odd);
  }
}

/// O = O·rescale, if any lane's factor differs from 1. tile: the index of the K/V tile, for the trace.
template <int n>
__device__ __forceinline__ void rescale_O(Fragment<float, n>& O, const float (&rescale)[2], int tile) {
  if (!__any_sync(all_lanes, rescale[0] != 1 || rescale[1] != 1)) return;
  workbook::cuda::note("rescaled tile", tile);
#pragma unroll
  for (int e = 0; e < n; ++e) O[e] *= rescale[e / 2 % 2];
}

// P becomes the A operand of O += P V without leaving its registers, as in chapter 8: a thread's elements of 16 columns
// of S are exactly its elements of A (64, 16). Two adjacent elements, rounded to Element, are one register.
//
// TODO(11.4) round_P: the four registers of A for each 16 keys. start_PV, O += P V: a fence, one wgmma for each 16
// keys, commit the group (about 10 lines).
// BEGIN 11.4
template <class Element, int parts, int n>
__device__ __forceinline__ void round_P(Fragment<Element, 4> (&P)[parts], const Fragment<float, n>& S) {
  WORKBOOK_TODO(11.4);
}
template <class T>
__device__ __forceinline__ void start_PV(typename T::Output& O, const typename T::Probabilities& P,
                                         const Tile<typename T::Element, T::d, T::Bc>& V) {
  WORKBOOK_TODO(11.4);
}
// END 11.4

/// Writes O / l as Element, and the LSE, (m + log2 l) ln 2, of rows first_query to first_query + 63 of a head. O goes
/// to smem_O, and from there to device memory by TMA, which skips rows past Nq. A persistent block has a separate
/// buffer for O, because the next Q is loaded early. Otherwise smem_O is this consumer's Q, which has been read.
template <class T>
__device__ __forceinline__ void write_output(Tile<typename T::Element, T::d, 64>& smem_O, const TensorMap& tensor_O,
                                             const Call& call, const typename T::Output& O, const float (&m)[2],
                                             const float (&l)[2], int head, int first_query, int consumer) {
  using Element [[maybe_unused]] = typename T::Element;
  // mov_tid_x reads the thread index again. The compiler would keep values computed from threadIdx.x in registers
  // throughout the loop over Q tiles, and a consumer has no register to spare.
  const int thread = mov_tid_x() % 128, in_quad = thread % 4, barrier = 1 + T::consumers + consumer;
  if constexpr (T::persistent) {
    if (thread == 0) cp_async_bulk_wait_group_read<0>();
    barrier_sync(barrier, 128);  // the previous tile's store has read smem_O
  }
  // TODO(11.5) For both rows of this lane: sum l over the quad; one lane of the quad writes the LSE; write O / l to the
  // swizzled chunks of smem_O, two adjacent columns at a time. Make these writes visible to TMA. After all 128 threads
  // have done so, one thread issues the store and commits it as a group (about 20 lines).
  // BEGIN 11.5
  WORKBOOK_TODO(11.5);
  // END 11.5
}

}  // namespace
}  // namespace ch11
