// Chapter 13: what a block keeps in shared memory, which keys and queries it has to do with, and the producer.
//
// Source: Shah et al. 2024 (FlashAttention-3), section 3.1 and appendix B.1.
#pragma once

#include <cstdint>

#include "backward_wgmma.hpp"
#include "tiles.hpp"

namespace ch13 {
namespace {

using workbook::cuda::barrier_arrive, workbook::cuda::barrier_sync, workbook::cuda::cp_async_bulk_commit_group;
using workbook::cuda::cp_async_bulk_load, workbook::cuda::cp_async_bulk_tensor_load;
using workbook::cuda::cp_async_bulk_tensor_store, workbook::cuda::cp_async_bulk_wait_group;
using workbook::cuda::cp_async_bulk_wait_group_read, workbook::cuda::cp_reduce_async_bulk_add;
using workbook::cuda::cvt_rn_x2, workbook::cuda::exp2_ftz, workbook::cuda::fence_mbarrier_init;
using workbook::cuda::fence_proxy_async, workbook::cuda::Major, workbook::cuda::Mbarrier;
using workbook::cuda::mbarrier_arrive, workbook::cuda::mbarrier_arrive_expect_tx, workbook::cuda::mbarrier_init;
using workbook::cuda::mbarrier_wait_parity, workbook::cuda::stmatrix_x4, workbook::cuda::stmatrix_x4_trans;
using workbook::cuda::TensorMap, workbook::cuda::wgmma_commit_group, workbook::cuda::wgmma_fence;
using workbook::cuda::wgmma_mma_async, workbook::cuda::wgmma_wait_group;

constexpr float log2_e = 1.4426950408889634f;
constexpr unsigned all_lanes = 0xffffffff;

/// Barriers with numbers, of which those from dQ_empty on are one for each consumer. Number 0 is __syncthreads'.
enum Numbered { dS_written = 1, dQ_empty = 2, dQ_full = 4, stored = 6 };

/// A kernel's sizes, and what it has of the chapter's steps (backward_wgmma.hpp).
template <class Element_, int d_, int step>
struct Kernel {
  using Element = Element_;
  static constexpr int d = d_, Bc = 128, Br = d == 64 ? 128 : 64, consumers = 2, threads = 128 * (1 + consumers);
  static constexpr int stages = step == 1 ? 1 : 2;
  static constexpr bool overlapped = step >= 3, dV_early = step >= 4 && d == 128;
  /// Which half of dQ (Br, d) a consumer forms: 64 of 128 rows, or 64 of 128 columns.
  static constexpr bool dQ_by_rows = d == 64;
  /// At first each thread has 65536 / 384 = 168 registers; 128·24 + 256·240 is no more.
  static constexpr int producer_registers = 24, consumer_registers = 240;

  /// What a block keeps in shared memory. A barrier says that a tile is full or, of a stage, that both consumers have
  /// left it.
  struct alignas(pattern_bytes) Shared {
    Tile<Element, d, Bc> K, V;  // later dK and dV
    Tile<Element, d, Br> Q[stages], dO[stages];
    Tile<Element, Bc, Br> dS[2];      // (Br, Bc), of one Q tile and of the next; section w is of consumer w's keys
    float dQ[consumers][Br * d / 2];  // as the threads of a consumer hold it
    alignas(16) float lse[stages][Br], D[stages][Br];
    Mbarrier K_full, V_full, Q_full[stages], dO_full[stages], empty[stages];
    int ticket;
    SHARED_LAYOUT(Shared, K, V, Q, dO, dS, dQ, lse, D, K_full, V_full, Q_full, dO_full, empty, ticket);
  };

  // What a thread holds of a consumer's matrices. Rows of the first three are keys.
  using Scores = Fragment<float, Br / 2>;              // Sᵀ or dPᵀ, (64, Br), then Pᵀ and dSᵀ
  using Operand = Fragment<Element, 4>[Br / 16];       // the same, rounded, as A of a product
  using Gradient = Fragment<float, d / 2>;             // dK or dV, (64, d)
  using HalfOfdQ = Fragment<float, Br * d / 2 / 128>;  // (64, 64)
};

/// A call's numbers. Query i sees all keys or, if causal, those up to i + (Nk - Nq).
struct Call {
  const float *lse, *D;  // (heads, padded(Nq)): what the queries bring
  float* dQ_sum;         // (heads, padded(Nq), d): see place_in_dQ_sum
  int* turns;            // tickets, then (heads, padded(Nq) / 64), or nullptr
  int Nq, Nk, heads, heads_at_once, kv_tiles;
  float scale, scale_log2;  // the second holds log2(e)
  bool causal;
};

// From the side of the keys: query i sees the keys up to i + diagonal, counted from the K/V tile's first one. So
// some Q tiles have no query that sees any of the keys, and come before the first one that has.
//
// And of a pair that does not count, P is 0: of a consumer's 64 keys `keys` exist, and query q of the Q tile sees
// those before visible + q; without the mask visible is `keys`. There may be more than 64 of them, or none. A lane's
// two keys are of its warp's 16. From query `border` on, all 16 are seen, unless one of them does not exist: only
// eights of queries before it have to be looked at. The border is the same for the warp: __shfl_sync tells the compiler
// so.
//
// TODO(13.4) The first Q tile; P = 0 in the eights of queries from begin to end - 1 (about 18 lines).
// BEGIN 13.4
template <class T>
__device__ __forceinline__ int first_q_tile(int diagonal, bool causal) {
  WORKBOOK_TODO(13.4);
}
template <int begin, int end, int n>
__device__ __forceinline__ void mask_P(Fragment<float, n>& P, int keys, int visible) {
  WORKBOOK_TODO(13.4);
}
// END 13.4

/// What a block has to do: a K/V tile of a head against `count` Q tiles from `first` on. Blocks start in the
/// order of their numbers. If causal, those of some heads go together, whose Q, dO and dQ_sum the L2 cache holds: first
/// the first K/V tiles, which the most queries see. With turns it is the last ones, whose turn comes first.
template <class T>
struct Work {
  int head, kv_tile, first_key, first, count;
  __device__ Work(const Call& call, int number) {
    const int first_head = number / (call.heads_at_once * call.kv_tiles) * call.heads_at_once;
    const int heads = min(call.heads_at_once, call.heads - first_head);
    const int within = number - first_head * call.kv_tiles;
    head = first_head + within % heads;
    kv_tile = call.turns != nullptr ? call.kv_tiles - 1 - within / heads : within / heads;
    first_key = kv_tile * T::Bc;
    const int q_tiles = (call.Nq + T::Br - 1) / T::Br;  // the last query sees every key: one of them counts
    first = min(first_q_tile<T>(call.Nk - call.Nq - first_key, call.causal), q_tiles - 1);
    count = q_tiles - first;
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

/// By one thread: the barriers, and a fence that shows them to TMA. A stage is one of Q and one of dO, which the
/// consumers leave together.
template <class T>
__device__ __forceinline__ void make_barriers(typename T::Shared& smem) {
  mbarrier_init(smem.K_full, 1), mbarrier_init(smem.V_full, 1);
  for (int i = 0; i < T::stages; ++i) {
    mbarrier_init(smem.Q_full[i], 1), mbarrier_init(smem.dO_full[i], 1);  // the producer
    mbarrier_init(smem.empty[i], 4 * T::consumers);                       // the consumers' warps
  }
  fence_mbarrier_init();
}

/// The producer, one thread: K and V of the K/V tile, and of each Q tile Q with its LSE, and dO with its D.
template <class T>
__device__ __forceinline__ void produce(typename T::Shared& smem, const TensorMap& Q, const TensorMap& K,
                                        const TensorMap& V, const TensorMap& dO, const Call& call,
                                        const Work<T>& work) {
  const std::int64_t rows = std::int64_t(work.head) * padded(call.Nq);  // in call.lse and call.D
  Position<T::stages> at;
  // TODO(13.2) K, then for each Q tile Q and dO; V after the first Q. Before a Q tile the producer waits for its
  // stage to be empty. A tile and its line of statistics, Br floats, are expected together, by one barrier, and copied
  // by cp_async_bulk_tensor_load (coordinates: 0, row, 0, head) and cp_async_bulk_load (about 19 lines).
  // BEGIN 13.2
  WORKBOOK_TODO(13.2);
  // END 13.2
}

}  // namespace
}  // namespace ch13
