// Chapter 18, which pairs, on Hopper: what a block keeps in shared memory, a consumer in registers, and the phases of
// the kernel.
//
// Source: Shah et al. 2024 (FlashAttention-3), sections 3.1 and 3.2.
#pragma once

#include <cstdint>

#include "asked_for.hpp"
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

/// A call's numbers. `seen` is the mask, of all rows.
struct Call {
  float* lse;  // (heads, Nq)
  int* taken;  // how many tiles of queries have been taken beside each block's first one
  int heads, heads_at_once;
  SeenKeys seen;
  Given given;
};

/// What a block has to do: a tile of Br queries against the tiles of keys that they see, from the last one to the
/// first. There may be none.
struct Work {
  int head;         // of Q, through the batch; -1: there is nothing more to do
  SeenKeys seen;    // the mask, of the tile's sequence alone
  int first_row;    // where the sequence begins in its head
  int first_query;  // of the tile, in its sequence
  Range tiles;
};

/// A kernel's sizes, and its change of scores.
template <class Element_, int d_, int Bc_, int consumers_, class Change_>
struct Kernel {
  using Element = Element_;
  using Change = Change_;
  static constexpr int d = d_, Bc = Bc_, consumers = consumers_, Br = 64 * consumers, threads = 128 * (1 + consumers);
  static constexpr int stages = 2;
  /// Whether the wait for the next K stands before the wait for O (consume).
  static constexpr bool K_before_O = d == 64;
  /// At first each thread has 65536 / threads registers. The producer's warps give some back, and the consumers take
  /// them: with three consumers 128·32 + 384·160 is 65536 again.
  static constexpr int producer_registers = consumers == 3 ? 32 : 24, consumer_registers = consumers == 3 ? 160 : 240;

  /// What a block keeps in shared memory. A barrier says that a tile is full or, of a stage, that all consumers have
  /// left it. What there is to do for one tile of queries is still read when Q of the next is there: it has two places.
  struct alignas(pattern_bytes) Shared {
    Tile<Element, d, 64> Q[consumers];
    Tile<Element, d, Bc> K[stages], V[stages];
    Tile<Element, d, 64> O[consumers];
    Mbarrier Q_full, Q_empty, K_full[stages], K_empty[stages], V_full[stages], V_empty[stages];
    Work work[2];
    SHARED_LAYOUT(Shared, Q, K, V, O, Q_full, Q_empty, K_full, K_empty, V_full, V_empty, work);
  };

  // What a thread holds of a consumer's matrices: S (64, Bc), P as A of the next product, O (64, d). See place_in_D.
  using Scores = Fragment<float, Bc / 2>;
  using Probabilities = Fragment<Element, 4>[Bc / 16];
  using Output = Fragment<float, d / 2>;
};

// What tile of queries number `number` is. Some heads at a time, whose K and V the L2 cache holds, with those that
// share them side by side; of all these the last tiles first, which see the most keys under the causal mask.
//
// TODO(18.4) The head and the tile; its sequence; the tiles of keys that its queries see (about 12 lines).
// STUB: template <class T>
// STUB: __device__ __forceinline__ Work work_of(const Call& call, int number) {
// STUB:   WORKBOOK_TODO(18.4);
// STUB: }
// BEGIN 18.4
template <class T>
__device__ __forceinline__ Work work_of(const Call& call, int number) {
  const int q_tiles = call.given.q_tiles;
  if (number >= call.heads * q_tiles) return {-1, call.seen, 0, 0, {0, 0}};
  const int first_head = number / (call.heads_at_once * q_tiles) * call.heads_at_once;
  const int heads = min(call.heads_at_once, call.heads - first_head), of_these = number - first_head * q_tiles;
  SeenKeys seen = call.seen;
  const Sequence own = enter_sequence(seen, call.given, q_tiles - 1 - of_these / heads, T::Br);
  const int first_query = own.tile * T::Br;
  const Range tiles = seen.template tiles<T::Bc>({first_query, min(seen.Nq, first_query + T::Br)});
  return {first_head + of_these % heads, seen, own.first, first_query, {tiles.first, max(tiles.first, tiles.last)}};
}
// END 18.4

/// Where a thread is in a ring of stages: at this stage, whose barriers are in a phase of this parity.
template <int stages>
struct Position {
  int stage = 0, parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

/// By one thread: the barriers, and a fence that shows them to TMA, as in chapter 11.
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

/// The producer, one thread: all consumers' Q; and for each tile of keys, from the last to the first, K and V, from the
/// stage `at` on.
template <class T>
__device__ __forceinline__ void produce(typename T::Shared& smem, const TensorMap& Q, const TensorMap& K,
                                        const TensorMap& V, const Call& call, const Work& work,
                                        Position<T::stages>& at) {
  const SequenceRows queries = rows_of_sequence(work.head, call.seen.Nq, work.first_row, work.seen.Nq);
  const SequenceRows keys = rows_of_sequence(work.head / call.given.group, call.seen.Nk, work.first_row, work.seen.Nk);
  // Who has no rows gets none: to load a box that lies outside of its map altogether, TMA touches the map's first
  // element, which lies before the tensor (tiles.hpp).
  const int consumers = min(T::consumers, (work.seen.Nq - work.first_query + 63) / 64);
  mbarrier_arrive_expect_tx(smem.Q_full, consumers * sizeof smem.Q[0]);
  for (int i = 0; i < consumers; ++i)
    cp_async_bulk_tensor_load(smem.Q[i], Q, smem.Q_full, 0, queries.before_first + work.first_query + 64 * i, 0,
                              queries.end);
  const auto load = [&](auto& tiles, const TensorMap& tensor, auto& full, auto& empty, int j) {
    mbarrier_wait_parity(empty[at.stage], at.parity ^ 1);
    mbarrier_arrive_expect_tx(full[at.stage], sizeof tiles[0]);
    cp_async_bulk_tensor_load(tiles[at.stage], tensor, full[at.stage], 0, keys.before_first + j * T::Bc, 0, keys.end);
  };
  for (int j = work.tiles.last - 1; j >= work.tiles.first; --j) {
    load(smem.K, K, smem.K_full, smem.K_empty, j);  // (Bc, d)
    load(smem.V, V, smem.V_full, smem.V_empty, j);  // (Bc, d)
    at.advance();
  }
}

/// The producer's way through its block's tiles of queries. It takes the next number when all copies of a tile are
/// under way, no sooner: who takes numbers early keeps long tiles from those who are free. What there is to do then it
/// finds out while the consumers are busy, and hands it to them with Q; at last, that there is nothing more. Q gives
/// way to the next when all consumers have left it. So none of them still reads what there was to do before that.
template <class T>
__device__ __forceinline__ void produce_all(typename T::Shared& smem, const TensorMap& Q, const TensorMap& K,
                                            const TensorMap& V, const Call& call) {
  Position<T::stages> at;
  const Work first = work_of<T>(call, blockIdx.x);
  smem.work[0] = first;
  for (int round = 0; smem.work[round % 2].head >= 0; ++round) {
    produce<T>(smem, Q, K, V, call, smem.work[round % 2], at);
    const Work next = work_of<T>(call, gridDim.x + atomicAdd(call.taken, 1));
    mbarrier_wait_parity(smem.Q_empty, round % 2);
    smem.work[(round + 1) % 2] = next;
  }
  mbarrier_arrive_expect_tx(smem.Q_full, 0);
}

/// Starts S = Q Kᵀ, unscaled: (64, d), (Bc, d) -> (64, Bc).
template <class T>
__device__ __forceinline__ void start_QK(typename T::Scores& S, const Tile<typename T::Element, T::d, 64>& Q,
                                         const Tile<typename T::Element, T::d, T::Bc>& K) {
  wgmma_fence();
#pragma unroll
  for (int c = 0; c < T::d / 16; ++c)
    wgmma_mma_async<typename T::Element>(S, sixteen_columns(Q, c), sixteen_columns(K, c), c > 0);
  wgmma_commit_group();
}

/// The products Q_i·K_j of a tile, (64, Bc), which begins at first_query and first_key, become scores by `change`, in
/// units of log2.
template <int n, class Change>
__device__ __forceinline__ void change_scores(Fragment<float, n>& S, const Change& change, const SeenKeys& seen,
                                              int first_query, int first_key) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const auto [row, column] = place_in_D(threadIdx.x % 128, e);
    const float distance = float(first_query + row + seen.Nk - seen.Nq - first_key - column);  // of the first 8 columns
#pragma unroll
    for (int j = 0; j < n / 4; ++j) S[4 * j + e] = change(S[4 * j + e], distance - float(8 * j));
  }
}

/// Those that do not count become -inf.
template <int n>
__device__ __forceinline__ void mask_scores(Fragment<float, n>& S, const SeenKeys& seen, int first_query,
                                            int first_key) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    [[maybe_unused]] const auto [row, column] = place_in_D(threadIdx.x % 128, e);
    // TODO(18.2) The keys that this row sees; and of each 8 columns the score of this row and column, -inf if its key
    // is none of them (about 5 lines).
    // BEGIN 18.2
    const Range keys = seen.of(first_query + row);
    const int first = keys.first - first_key - column, last = keys.last - first_key - column;
#pragma unroll
    for (int j = 0; j < n / 4; ++j)
      if (8 * j < first || last <= 8 * j) S[4 * j + e] = -INFINITY;
    // END 18.2
  }
}

/// The largest of S in row r = 0 or 1 of this lane: over the even columns and over the odd, so that neither waits for
/// the other; then over the quad.
template <int n>
__device__ __forceinline__ float largest_of_row(const Fragment<float, n>& S, int r) {
  float even = S[2 * r], odd = S[2 * r + 1];
#pragma unroll
  for (int j = 1; j < n / 4; ++j) even = fmaxf(even, S[4 * j + 2 * r]), odd = fmaxf(odd, S[4 * j + 2 * r + 1]);
  float largest = fmaxf(even, odd);
  largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, 1));
  return fmaxf(largest, __shfl_xor_sync(all_lanes, largest, 2));
}

/// S -> P = exp2(S·scale - m) in both rows of a lane, scale > 0; m and l. rescale is what brings O to the new m: not
/// yet, since O += P V of the tile before may be under way. l is the sum over the columns of this lane alone.
template <int n>
__device__ __forceinline__ void online_softmax(Fragment<float, n>& S, float (&m)[2], float (&l)[2], float (&rescale)[2],
                                               float scale, float slack) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float m_tile = largest_of_row(S, r) * scale, m_new = m_tile > m[r] + slack ? m_tile : m[r];
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

/// O = O·rescale, if any lane's factor differs from 1. tile: the number of the K/V tile, for the trace.
template <int n>
__device__ __forceinline__ void rescale_O(Fragment<float, n>& O, const float (&rescale)[2], int tile) {
  if (!__any_sync(all_lanes, rescale[0] != 1 || rescale[1] != 1)) return;
  workbook::cuda::note("rescaled tile", tile);
#pragma unroll
  for (int e = 0; e < n; ++e) O[e] *= rescale[e / 2 % 2];
}

// P goes from S to the left operand of O += P V without leaving its registers, as in chapter 8: what a thread holds of
// 16 columns of S is what wgmma wants of an A (64, 16). It is rounded to Element, two neighbours a register.
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
    wgmma_mma_async<typename T::Element, Major::n>(O, P[j], sixteen_rows(V, j), true);
  wgmma_commit_group();
}

/// A number in shared memory, for all lanes of a warp. One lane reads it, the one that says later that it has been
/// read.
__device__ __forceinline__ int read_once(const int& number) {
  return __shfl_sync(all_lanes, mov_tid_x() % 32 == 0 ? number : 0, 0);
}

/// O / l as Element and the LSE, (m + log2 l) ln 2, to device memory: 64 rows from first_query on of a sequence. O goes
/// to smem_O, and from there by TMA, which leaves out the rows that do not exist. number: the consumer's.
template <class T>
__device__ __forceinline__ void write_output(Tile<typename T::Element, T::d, 64>& smem_O, const TensorMap& tensor_O,
                                             const Call& call, const Work& work, const typename T::Output& O,
                                             const float (&m)[2], const float (&l)[2], int number) {
  using Element [[maybe_unused]] = typename T::Element;
  // The thread's number is read anew: what the compiler computes from threadIdx.x it would keep in registers throughout
  // the loop over tiles of queries, and a consumer's are all taken.
  const int thread = mov_tid_x() % 128, in_quad = thread % 4, barrier = 1 + T::consumers + number;
  const int head = read_once(work.head), first_row = read_once(work.first_row), Nq = read_once(work.seen.Nq);
  const int first_query = read_once(work.first_query) + 64 * number;
  if (thread == 0) cp_async_bulk_wait_group_read<0>();
  barrier_sync(barrier, 128);  // the store of the tile before has read smem_O
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = l[r];
    sum += __shfl_xor_sync(all_lanes, sum, 1);
    sum += __shfl_xor_sync(all_lanes, sum, 2);
    const int row = place_in_D(thread, 2 * r).row, query = first_query + row;
    float* const lse = call.lse + std::int64_t(head) * call.seen.Nq + first_row;
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
  barrier_sync(barrier, 128);  // all of the consumer's rows are there
  if (thread == 0) {
    const SequenceRows queries = rows_of_sequence(head, call.seen.Nq, first_row, Nq);
    cp_async_bulk_tensor_store(tensor_O, smem_O, 0, queries.before_first + first_query, 0, queries.end);
    cp_async_bulk_commit_group();
  }
}

}  // namespace
}  // namespace ch18
