// Chapter 11, wgmma: what a block keeps in shared memory, a consumer in registers, and the phases of the kernel.
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

/// A kernel's sizes, and what it has of the chapter's steps (wgmma.hpp).
template <class Element_, int d_, int Bc_, int consumers_, int step>
struct Kernel {
  using Element = Element_;
  static constexpr int d = d_, Bc = Bc_, consumers = consumers_, Br = 64 * consumers, threads = 128 * (1 + consumers);
  static constexpr int stages = step == 1 ? 1 : 2;
  static constexpr bool overlapped = step >= 3, ping_pong = step >= 4, persistent = step >= 6;
  static constexpr float slack = step >= 5 ? ch11::slack : 0;
  /// Whether the wait for the next K stands before the wait for O (consume_overlapped).
  static constexpr bool K_before_O = d == 64;
  /// At first each thread has 65536 / threads registers. The producer's warps give some back, and the consumers take
  /// them: with three consumers 128·32 + 384·160 is 65536 again.
  static constexpr int producer_registers = consumers == 3 ? 32 : 24, consumer_registers = consumers == 3 ? 160 : 240;

  /// What a block keeps in shared memory. A barrier says that a tile is full or, of a stage, that all consumers have
  /// left it.
  struct alignas(pattern_bytes) Shared {
    Tile<Element, d, 64> Q[consumers];  // later O, where a block does not stay
    Tile<Element, d, Bc> K[stages], V[stages];
    Tile<Element, d, 64> O[stays ? consumers : 1];
    Mbarrier Q_full, Q_empty, K_full[stages], K_empty[stages], V_full[stages], V_empty[stages];
    int number;  // of the tile of queries that Q belongs to
    SHARED_LAYOUT(Shared, Q, K, V, O, Q_full, Q_empty, K_full, K_empty, V_full, V_empty, number);
    __device__ __forceinline__ auto& place_of_O(int consumer) {
      if constexpr (stays)
        return O[consumer];
      else
        return Q[consumer];
    }
  };

  // What a thread holds of a consumer's matrices: S (64, Bc), P as A of the next product, O (64, d). See place_in_D.
  using Scores = Fragment<float, Bc / 2>;
  using Probabilities = Fragment<Element, 4>[Bc / 16];
  using Output = Fragment<float, d / 2>;
};

/// A call's numbers. Query i sees all keys or, if causal, those up to i + (Nk - Nq).
struct Call {
  float* lse;  // (heads, Nq)
  int* taken;  // how many tiles of queries have been taken beside each block's first one
  int Nq, Nk, heads, q_tiles;
  float scale;  // its magnitude, more than 0; holds log2(e)
  bool causal, negative;
};

/// How many tiles of keys the queries before `end` see, from the first tile on. If they see no key: one tile, all of it
/// masked.
template <class T>
__device__ __forceinline__ int tiles_seen(const Call& call, int end) {
  const int keys = call.causal ? min(call.Nq, end) + call.Nk - call.Nq : call.Nk;
  return max(1, (keys + T::Bc - 1) / T::Bc);
}

/// What a block has to do: a tile of queries of a head against so many tiles of keys, from the last one to the first,
/// so that those with a mask come first. Tiles of queries are taken in the order of their numbers. Some heads at a
/// time, whose K and V the L2 cache holds; of all these, with the causal mask, the longest first, so that short ones
/// fill the gaps at the end. The gaps are filled from the last heads alone, so that there should be many of them.
template <class T>
struct Work {
  int head, first_query, tiles;
  __device__ Work(const Call& call, int number) {
    const int heads_at_once = call.causal ? 16 : 4;
    const int first_head = number / (heads_at_once * call.q_tiles) * heads_at_once;
    const int heads = min(heads_at_once, call.heads - first_head), of_these = number - first_head * call.q_tiles;
    head = first_head + of_these % heads;
    first_query = (call.q_tiles - 1 - of_these / heads) * T::Br;
    tiles = tiles_seen<T>(call, first_query + T::Br);
  }
};

/// Where a thread is in a ring of stages: at this stage, whose barriers are in a phase of this parity.
template <int stages>
struct Position {
  int stage = 0, parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

// A stage goes round: the producer waits until it is empty and fills it; TMA's last byte makes it full; the
// consumers wait for that, read it and leave it, and when the last has left, it is empty. A barrier's phase ends when
// so many have arrived as mbarrier_init was told, and all bytes that they expect have come. In a consumer one lane of
// each of its four warps arrives for its warp.
//
// A wait for the parity of the phase that is running waits for its end; for the other parity it does not wait. That is
// what the producer needs in its first round, where nobody has to leave a stage: it waits for parity ^ 1.
//
// TODO(11.2) By one thread: the barriers, and a fence that shows them to TMA. Then the producer, also one
// thread: all consumers' Q; and for each tile of keys, from the last to the first, K and V, from the stage `at` on.
// Before a tile's copy it waits for the stage to be empty and says how many bytes to expect. A tensor's coordinates: 0,
// row, 0, head (about 22 lines).
// STUB: template <class T>
// STUB: __device__ __forceinline__ void make_barriers(typename T::Shared& smem) {
// STUB:   WORKBOOK_TODO(11.2);
// STUB: }
// STUB: template <class T>
// STUB: __device__ __forceinline__ void produce(typename T::Shared& smem, const TensorMap& Q, const TensorMap& K,
// STUB:                                         const TensorMap& V, const Work<T>& work, Position<T::stages>& at) {
// STUB:   WORKBOOK_TODO(11.2);
// STUB: }
// BEGIN 11.2
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
template <class T>
__device__ __forceinline__ void produce(typename T::Shared& smem, const TensorMap& Q, const TensorMap& K,
                                        const TensorMap& V, const Work<T>& work, Position<T::stages>& at) {
  mbarrier_arrive_expect_tx(smem.Q_full, sizeof smem.Q);
  for (int i = 0; i < T::consumers; ++i)
    cp_async_bulk_tensor_load(smem.Q[i], Q, smem.Q_full, 0, work.first_query + 64 * i, 0, work.head);
  const auto load = [&](auto& tiles, const TensorMap& tensor, auto& full, auto& empty, int j) {
    mbarrier_wait_parity(empty[at.stage], at.parity ^ 1);
    mbarrier_arrive_expect_tx(full[at.stage], sizeof tiles[0]);
    cp_async_bulk_tensor_load(tiles[at.stage], tensor, full[at.stage], 0, j * T::Bc, 0, work.head);
  };
  for (int j = work.tiles - 1; j >= 0; --j) {
    load(smem.K, K, smem.K_full, smem.K_empty, j);  // (Bc, d)
    load(smem.V, V, smem.V_full, smem.V_empty, j);  // (Bc, d)
    at.advance();
  }
}
// END 11.2

/// The producer's way through its block's tiles of queries. One that stays takes the next number when all copies of a
/// tile are under way, no sooner: who takes numbers early keeps long tiles from those who are free. Consumers read the
/// number when Q is full; one behind the last tells them that there is nothing more to do. Q and the number give way to
/// the next when all consumers have left Q.
template <class T>
__device__ __forceinline__ void produce_all(typename T::Shared& smem, const TensorMap& Q, const TensorMap& K,
                                            const TensorMap& V, const Call& call) {
  Position<T::stages> at;
  for (int number = blockIdx.x, round = 0; number < call.heads * call.q_tiles; ++round) {
    smem.number = number;
    produce<T>(smem, Q, K, V, Work<T>(call, number), at);
    if constexpr (!T::persistent) return;
    number = gridDim.x + atomicAdd(call.taken, 1);
    mbarrier_wait_parity(smem.Q_empty, round % 2);
  }
  smem.number = call.heads * call.q_tiles;
  mbarrier_arrive_expect_tx(smem.Q_full, 0);
}

/// Starts S = Q Kᵀ, unscaled: (64, d), (Bc, d) -> (64, Bc).
template <class T>
__device__ __forceinline__ void start_QK(typename T::Scores& S, const Tile<typename T::Element, T::d, 64>& Q,
                                         const Tile<typename T::Element, T::d, T::Bc>& K) {
  // TODO(11.3) A fence; a product for each 16 columns of Q and K, of which the first does not add to S; a group (about
  // 5 lines).
  // BEGIN 11.3
  wgmma_fence();
#pragma unroll
  for (int c = 0; c < T::d / 16; ++c)
    wgmma_mma_async<typename T::Element>(S, sixteen_columns(Q, c), sixteen_columns(K, c), c > 0);
  wgmma_commit_group();
  // END 11.3
}

/// -inf for keys that a row does not see. The consumer's first row sees the first `visible` keys of the tile, each
/// later row one more if causal, and none sees more than `keys`.
template <int n>
__device__ __forceinline__ void mask_unseen(Fragment<float, n>& S, int keys, int visible) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const auto [row, column] = place_in_D(threadIdx.x % 128, e);
    const int end = min(keys, visible + row) - column;
#pragma unroll
    for (int j = 0; j < n / 4; ++j)
      if (8 * j >= end) S[4 * j + e] = -INFINITY;
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
//
// TODO(11.4) P: the four registers of each 16 keys. Then O += P V: a fence, a product for each 16 keys, a group (about
// 10 lines).
// STUB: template <class Element, int parts, int n>
// STUB: __device__ __forceinline__ void round_P(Fragment<Element, 4> (&P)[parts], const Fragment<float, n>& S) {
// STUB:   WORKBOOK_TODO(11.4);
// STUB: }
// STUB: template <class T>
// STUB: __device__ __forceinline__ void start_PV(typename T::Output& O, const typename T::Probabilities& P,
// STUB:                                          const Tile<typename T::Element, T::d, T::Bc>& V) {
// STUB:   WORKBOOK_TODO(11.4);
// STUB: }
// BEGIN 11.4
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
// END 11.4

/// O / l as Element and the LSE, (m + log2 l) ln 2, to device memory: rows first_query to first_query + 63 of a head. O
/// goes to smem_O, and from there by TMA, which leaves out the rows that do not exist. In a block that stays this is a
/// place of its own, since the next Q comes early. Otherwise it is where this consumer's Q was, which nobody needs any
/// more. number: the consumer's.
template <class T>
__device__ __forceinline__ void write_output(Tile<typename T::Element, T::d, 64>& smem_O, const TensorMap& tensor_O,
                                             const Call& call, const typename T::Output& O, const float (&m)[2],
                                             const float (&l)[2], int head, int first_query, int number) {
  using Element [[maybe_unused]] = typename T::Element;
  // The thread's number is read anew: what the compiler computes from threadIdx.x it would keep in registers throughout
  // the loop over tiles of queries, and a consumer's are all taken.
  const int thread = mov_tid_x() % 128, in_quad = thread % 4, barrier = 1 + T::consumers + number;
  if constexpr (T::persistent) {
    if (thread == 0) cp_async_bulk_wait_group_read<0>();
    barrier_sync(barrier, 128);  // the store of the tile before has read smem_O
  }
  // TODO(11.5) For both rows of this lane: l over the quad, the LSE by one lane of it, O / l to its swizzled place,
  // two neighbours at a time. Then show the rows to TMA; when all 128 threads have, one thread starts the
  // store, as a group (about 20 lines).
  // BEGIN 11.5
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = l[r];
    sum += __shfl_xor_sync(all_lanes, sum, 1);
    sum += __shfl_xor_sync(all_lanes, sum, 2);
    const int row = place_in_D(thread, 2 * r).row, query = first_query + row;
    if (in_quad == 0 && query < call.Nq) call.lse[std::int64_t(head) * call.Nq + query] = (m[r] + log2f(sum)) * ln_2;
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
    cp_async_bulk_tensor_store(tensor_O, smem_O, 0, first_query, 0, head);
    cp_async_bulk_commit_group();
  }
  // END 11.5
}

}  // namespace
}  // namespace ch11
