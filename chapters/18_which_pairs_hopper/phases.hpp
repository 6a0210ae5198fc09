// Chapter 18, masks on Hopper: the layout of shared memory and of a consumer's registers, the tile scheduler, and the
// phases of the kernel.
//
// Source: Shah et al. 2024 (FlashAttention-3), sections 3.1 and 3.2.
#pragma once

#include <cstdint>

#include "problem.hpp"
#include "tiles.hpp"
#include "which_pairs_hopper.hpp"

namespace ch18 {
namespace {

using workbook::cuda::barrier_arrive, workbook::cuda::barrier_sync, workbook::cuda::cp_async_bulk_commit_group;
using workbook::cuda::cp_async_bulk_tensor_load, workbook::cuda::cp_async_bulk_tensor_store;
using workbook::cuda::cp_async_bulk_wait_group_read, workbook::cuda::cvt_rn_x2;
using workbook::cuda::fence_mbarrier_init, workbook::cuda::fence_proxy_async, workbook::cuda::Major;
using workbook::cuda::Mbarrier, workbook::cuda::mbarrier_arrive, workbook::cuda::mbarrier_arrive_expect_tx;
using workbook::cuda::mbarrier_init, workbook::cuda::mbarrier_wait_parity, workbook::cuda::mov_tid_x;
using workbook::cuda::wgmma_commit_group, workbook::cuda::wgmma_fence, workbook::cuda::wgmma_mma_async;
using workbook::cuda::wgmma_wait_group;

constexpr unsigned all_lanes = 0xffffffff;

/// The kernel's arguments. `mask` covers all rows of a head.
struct Call {
  float* lse;         // (heads, Nq)
  int* tile_counter;  // of the tile scheduler: how many Q tiles have been assigned beyond each block's first one
  int heads, heads_per_group;
  WindowMask mask;
  Problem problem;
};

/// One unit of work of the tile scheduler: a Q tile of a head, and the K/V tiles that its queries need, which may be
/// none. K/V tiles are processed from the last to the first.
struct WorkTile {
  int head;         // of Q, indexed across the batch; -1: no Q tile is left
  WindowMask mask;  // of the tile's sequence only
  int first_row;    // the row of the head where this sequence starts
  int first_query;  // the tile's first query, counted within this sequence
  Range kv_tiles;
};

/// A kernel's sizes, and its score modification.
template <class Element_, int d_, int Bc_, int consumers_, class ScoreMod_>
struct Kernel {
  using Element = Element_;
  using ScoreMod = ScoreMod_;
  static constexpr int d = d_, Bc = Bc_, consumers = consumers_, Br = 64 * consumers, threads = 128 * (1 + consumers);
  static constexpr int stages = 2;
  /// Whether attend waits for the next K before it waits for O, or at the start of the next iteration.
  static constexpr bool K_before_O = d == 64;
  /// A kernel starts with 65536 / threads registers per thread. setmaxnreg moves registers from the producer warpgroup
  /// to the consumers: with three consumers, 128·32 + 384·160 = 65536.
  static constexpr int producer_registers = consumers == 3 ? 32 : 24, consumer_registers = consumers == 3 ? 160 : 240;

  /// Shared memory of a thread block. A `full` mbarrier signals that a tile has been loaded, an `empty` mbarrier that
  /// all consumer warps have released the stage. There are two work tiles: when the next Q is full, a consumer may
  /// still write O of the current tile.
  struct alignas(pattern_bytes) Shared {
    Tile<Element, d, 64> Q[consumers];
    Tile<Element, d, Bc> K[stages], V[stages];
    Tile<Element, d, 64> O[consumers];
    Mbarrier Q_full, Q_empty, K_full[stages], K_empty[stages], V_full[stages], V_empty[stages];
    WorkTile work[2];
    SHARED_LAYOUT(Shared, Q, K, V, O, Q_full, Q_empty, K_full, K_empty, V_full, V_empty, work);
  };

  // A thread's registers: S (64, Bc); P as the A operand of O += P V; O (64, d). See coordinates_in_D.
  using Scores = Fragment<float, Bc / 2>;
  using Probabilities = Fragment<Element, 4>[Bc / 16];
  using Output = Fragment<float, d / 2>;
};

// The order of the tile scheduler. Tile indices iterate over one group of heads at a time, so that the group's K and V
// stay in the L2 cache. Within a group the head changes fastest, so that heads that share K and V are adjacent, and Q
// tiles are in decreasing order, so that the longest causal tiles come first.
//
// TODO(18.4) decode_tile: the head and the Q tile with this index, the tile's sequence, and the K/V tiles that its
// queries need. The head is -1 for an index past the last tile (about 12 lines).
// BEGIN 18.4
template <class T>
__device__ __forceinline__ WorkTile decode_tile(const Call& call, int tile_index) {
  WORKBOOK_TODO(18.4);
}
// END 18.4

/// A position in a ring of stages: the stage, and the parity of the phase for which a consumer waits there.
template <int stages>
struct Position {
  int stage = 0, parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

/// Called by one thread: initialises all mbarriers, and makes them visible to TMA by a fence, as in chapter 11.
template <class T>
__device__ __forceinline__ void make_barriers(typename T::Shared& smem) {
  mbarrier_init(smem.Q_full, 1), mbarrier_init(smem.Q_empty, 4 * T::consumers);
  for (int i = 0; i < T::stages; ++i) {
    mbarrier_init(smem.K_full[i], 1), mbarrier_init(smem.V_full[i], 1);  // the producer
    mbarrier_init(smem.K_empty[i], 4 * T::consumers);                    // the consumers' warps
    mbarrier_init(smem.V_empty[i], 4 * T::consumers);
  }
  fence_mbarrier_init();
}

/// Called by the producer thread: loads Q of all consumers; then K_j and V_j for each K/V tile j, from the last to the
/// first, starting at `position`.
template <class T>
__device__ __forceinline__ void produce(typename T::Shared& smem, const TensorMap& Q, const TensorMap& K,
                                        const TensorMap& V, const Call& call, const WorkTile& work,
                                        Position<T::stages>& position) {
  const SequenceRows queries = rows_of_sequence(work.head, call.mask.Nq, work.first_row, work.mask.Nq);
  const SequenceRows keys =
      rows_of_sequence(work.head / call.problem.group, call.mask.Nk, work.first_row, work.mask.Nk);
  // A consumer without rows gets no Q: if no element of a box is in bounds, TMA accesses the first element of the map,
  // which is before the tensor (tiles.hpp).
  const int consumers = min(T::consumers, (work.mask.Nq - work.first_query + 63) / 64);
  mbarrier_arrive_expect_tx(smem.Q_full, consumers * sizeof smem.Q[0]);
  for (int i = 0; i < consumers; ++i)
    cp_async_bulk_tensor_load(smem.Q[i], Q, smem.Q_full, 0, queries.before_first + work.first_query + 64 * i, 0,
                              queries.end);
  const auto load = [&](auto& tiles, const TensorMap& tensor, auto& full, auto& empty, int j) {
    mbarrier_wait_parity(empty[position.stage], position.parity ^ 1);
    mbarrier_arrive_expect_tx(full[position.stage], sizeof tiles[0]);
    cp_async_bulk_tensor_load(tiles[position.stage], tensor, full[position.stage], 0, keys.before_first + j * T::Bc, 0,
                              keys.end);
  };
  for (int j = work.kv_tiles.last - 1; j >= work.kv_tiles.first; --j) {
    load(smem.K, K, smem.K_full, smem.K_empty, j);  // (Bc, d)
    load(smem.V, V, smem.V_full, smem.V_empty, j);  // (Bc, d)
    position.advance();
  }
}

/// The producer's loop over the Q tiles of its thread block. It claims its next tile index only after it has issued
/// all loads of the current tile: an index claimed earlier would wait for this block while other blocks are idle. It
/// decodes the index while the consumers compute. Consumers read the work tile when Q is full; head -1 ends their loop.
/// The next Q overwrites the current one when all consumers have released it. None of them then reads the previous
/// tile's work tile, which the next one overwrites.
template <class T>
__device__ __forceinline__ void produce_all(typename T::Shared& smem, const TensorMap& Q, const TensorMap& K,
                                            const TensorMap& V, const Call& call) {
  Position<T::stages> position;
  const WorkTile first = decode_tile<T>(call, blockIdx.x);
  smem.work[0] = first;
  for (int iteration = 0; smem.work[iteration % 2].head >= 0; ++iteration) {
    produce<T>(smem, Q, K, V, call, smem.work[iteration % 2], position);
    const WorkTile next = decode_tile<T>(call, gridDim.x + atomicAdd(call.tile_counter, 1));
    mbarrier_wait_parity(smem.Q_empty, iteration % 2);
    smem.work[(iteration + 1) % 2] = next;
  }
  mbarrier_arrive_expect_tx(smem.Q_full, 0);
}

/// Issues S = Q Kᵀ, unscaled: (64, d), (Bc, d) -> (64, Bc).
template <class T>
__device__ __forceinline__ void start_QK(typename T::Scores& S, const Tile<typename T::Element, T::d, 64>& Q,
                                         const Tile<typename T::Element, T::d, T::Bc>& K) {
  wgmma_fence();
#pragma unroll
  for (int c = 0; c < T::d / 16; ++c)
    wgmma_mma_async<typename T::Element>(S, K_major_descriptor(Q, c), K_major_descriptor(K, c), c > 0);
  wgmma_commit_group();
}

/// Replaces the dot products Q_i·K_j of a tile, (64, Bc), by scores in units of log2. The tile starts at first_query
/// and first_key.
template <int n, class ScoreMod>
__device__ __forceinline__ void apply_score_mod(Fragment<float, n>& S, const ScoreMod& score_mod,
                                                const WindowMask& mask, int first_query, int first_key) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const auto [row, column] = coordinates_in_D(threadIdx.x % 128, e);
    const float distance = float(first_query + row + mask.Nk - mask.Nq - first_key - column);  // of the first 8 columns
#pragma unroll
    for (int j = 0; j < n / 4; ++j) S[4 * j + e] = score_mod(S[4 * j + e], distance - float(8 * j));
  }
}

/// Sets S to -inf for keys that a row does not attend to.
template <int n>
__device__ __forceinline__ void mask_scores(Fragment<float, n>& S, const WindowMask& mask, int first_query,
                                            int first_key) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    [[maybe_unused]] const auto [row, column] = coordinates_in_D(threadIdx.x % 128, e);
    // TODO(18.2) For each j from 0 to n / 4 - 1: S[4·j + e] is the score of this row and of key first_key + column +
    // 8·j. Set it to -inf if the row's query does not attend to that key (about 5 lines).
    // BEGIN 18.2
    WORKBOOK_TODO(18.2);
    // END 18.2
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
template <class Element, int parts, int n>
__device__ __forceinline__ void round_P(Fragment<Element, 4> (&P)[parts], const Fragment<float, n>& S) {
#pragma unroll
  for (int j = 0; j < parts; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) P[j][i] = cvt_rn_x2<Element>(S[8 * j + 2 * i], S[8 * j + 2 * i + 1]);
}
template <class T>
__device__ __forceinline__ void start_PV(typename T::Output& O, const typename T::Probabilities& P,
                                         const Tile<typename T::Element, T::d, T::Bc>& V) {
  wgmma_fence();
#pragma unroll
  for (int j = 0; j < T::Bc / 16; ++j)
    wgmma_mma_async<typename T::Element, Major::n>(O, P[j], MN_major_descriptor(V, j), true);
  wgmma_commit_group();
}

/// Reads a value in shared memory by lane 0, for all lanes of the warp. Lane 0 alone then has to finish before the warp
/// releases the value.
__device__ __forceinline__ int read_once(const int& value) {
  return __shfl_sync(all_lanes, mov_tid_x() % 32 == 0 ? value : 0, 0);
}

/// Writes O / l as Element, and the LSE, (m + log2 l) ln 2, of this consumer's 64 rows of a sequence. O goes to smem_O,
/// and from there to device memory by TMA, which skips rows past the end of the sequence.
template <class T>
__device__ __forceinline__ void write_output(Tile<typename T::Element, T::d, 64>& smem_O, const TensorMap& tensor_O,
                                             const Call& call, const WorkTile& work, const typename T::Output& O,
                                             const float (&m)[2], const float (&l)[2], int consumer) {
  using Element [[maybe_unused]] = typename T::Element;
  // mov_tid_x reads the thread index again. The compiler would keep values computed from threadIdx.x in registers
  // throughout the loop over Q tiles, and a consumer has no register to spare.
  const int thread = mov_tid_x() % 128, in_quad = thread % 4, barrier = 1 + T::consumers + consumer;
  const int head = read_once(work.head), first_row = read_once(work.first_row), Nq = read_once(work.mask.Nq);
  const int first_query = read_once(work.first_query) + 64 * consumer;
  if (thread == 0) cp_async_bulk_wait_group_read<0>();
  barrier_sync(barrier, 128);  // the previous tile's store has read smem_O
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = l[r];
    sum += __shfl_xor_sync(all_lanes, sum, 1);
    sum += __shfl_xor_sync(all_lanes, sum, 2);
    const int row = coordinates_in_D(thread, 2 * r).row, query = first_query + row;
    float* const lse = call.lse + std::int64_t(head) * call.mask.Nq + first_row;
    if (in_quad == 0 && query < Nq) lse[query] = (m[r] + log2f(sum)) * ln_2;
    const float inverse = sum == 0 ? 0 : 1 / sum;
#pragma unroll
    for (int c = 0; c < T::d / 8; ++c) {  // 8 columns are a chunk of 16 bytes
      Element* chunk = &smem_O[c / 8][row][(c ^ row) % 8 * 8];
      reinterpret_cast<std::uint32_t*>(chunk)[in_quad] =
          cvt_rn_x2<Element>(O[4 * c + 2 * r] * inverse, O[4 * c + 2 * r + 1] * inverse);
    }
  }
  fence_proxy_async();
  barrier_sync(barrier, 128);  // all rows of this consumer are in smem_O
  if (thread == 0) {
    const SequenceRows queries = rows_of_sequence(head, call.mask.Nq, first_row, Nq);
    cp_async_bulk_tensor_store(tensor_O, smem_O, 0, queries.before_first + first_query, 0, queries.end);
    cp_async_bulk_commit_group();
  }
}

}  // namespace
}  // namespace ch18
