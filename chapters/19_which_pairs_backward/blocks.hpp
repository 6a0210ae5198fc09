// Chapter 19: what a block keeps in shared memory, which keys and queries it has to do with, and the producer.
//
// Source: Shah et al. 2024 (FlashAttention-3), section 3.1 and appendix B.1.
#pragma once

#include <cstdint>

#include "asked_for.hpp"
#include "tiles.hpp"
#include "which_pairs_backward.hpp"

namespace ch19 {
namespace {

using workbook::cuda::barrier_arrive, workbook::cuda::barrier_sync, workbook::cuda::cp_async_bulk_commit_group;
using workbook::cuda::cp_async_bulk_load, workbook::cuda::cp_async_bulk_tensor_load;
using workbook::cuda::cp_async_bulk_tensor_store, workbook::cuda::cp_async_bulk_wait_group;
using workbook::cuda::cp_async_bulk_wait_group_read, workbook::cuda::cp_reduce_async_bulk_add;
using workbook::cuda::cvt_rn_x2, workbook::cuda::fence_mbarrier_init;
using workbook::cuda::fence_proxy_async, workbook::cuda::Major, workbook::cuda::Mbarrier;
using workbook::cuda::mbarrier_arrive, workbook::cuda::mbarrier_arrive_expect_tx, workbook::cuda::mbarrier_init;
using workbook::cuda::mbarrier_wait_parity, workbook::cuda::stmatrix_x4, workbook::cuda::stmatrix_x4_trans;
using workbook::cuda::TensorMap, workbook::cuda::wgmma_commit_group, workbook::cuda::wgmma_fence;
using workbook::cuda::wgmma_mma_async, workbook::cuda::wgmma_wait_group;

constexpr unsigned all_lanes = 0xffffffff;

/// Barriers with numbers, of which those from dQ_empty on are one for each consumer. Number 0 is __syncthreads'.
enum Numbered { dS_written = 1, dQ_empty = 2, dQ_full = 4, stored = 6 };

/// A kernel's sizes, and its change of scores.
template <class Element_, int d_, class Change_>
struct Kernel {
  using Element = Element_;
  using Change = Change_;
  static constexpr int d = d_, Bc = 128, Br = d == 64 ? 128 : 64, consumers = 2, threads = 128 * (1 + consumers);
  static constexpr int stages = 2;
  /// Whether dV begins as soon as half of P is there.
  static constexpr bool dV_early = d == 128;
  /// Which half of dQ (Br, d) a consumer forms: 64 of 128 rows, or 64 of 128 columns.
  static constexpr bool dQ_by_rows = d == 64;
  /// At first each thread has 65536 / 384 = 168 registers; 128·24 + 256·240 is no more.
  static constexpr int producer_registers = 24, consumer_registers = 240;

  /// What a block keeps in shared memory. A barrier says that a tile is full or, of a stage, that both consumers have
  /// left it.
  struct alignas(pattern_bytes) Shared {
    Tile<Element, d, Bc> K, V;  // later dK and dV
    Tile<Element, d, Br> Q[stages], dO[stages];
    Tile<Element, Bc, Br> dS[stages];  // (Br, Bc), of one step and of the next; section w is of consumer w's keys
    float dQ[consumers][Br * d / 2];   // as the threads of a consumer hold it
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

/// A call's numbers. `seen` is the mask, of all rows; kv_heads is B·Hkv.
struct Call {
  const float *lse, *D;  // (B·H, padded): what the queries bring
  float* dQ_sum;         // (B·H, padded, d): see place_in_dQ_sum
  int* turns;            // tickets, then (B·H, padded / 64), or nullptr
  int kv_heads, heads_at_once, padded;
  float scale;
  SeenKeys seen;
  Given given;
};

/// A step of a block: a Q tile of a head of Q, counted through the batch.
struct Step {
  int head, q_tile;
};

/// What a block has to do: a K/V tile of one head of K and V, and of one sequence, against the Q tiles that see
/// any of its keys, of each head of Q that shares them. Blocks start in the order of their numbers. Where a mask ends
/// on the right, those of some heads go together, whose Q, dO and dQ_sum the L2 cache holds: first the first column
/// blocks, which the most queries see. With turns it is the last ones, whose turn comes first.
template <class T>
struct Work {
  int kv_head, first_head;      // of K and V; the first of Q
  SeenKeys seen;                // the mask, of the sequence alone
  int first_row, padded_first;  // where the sequence begins in its head, and in padded rows
  int kv_tile, first_key;  // in the sequence
  Range q_tiles;             // of each head; there may be none
  int steps;
  __device__ Work(const Call& call, int number) {
    const int kv_tiles = call.given.kv_tiles;
    const int first = number / (call.heads_at_once * kv_tiles) * call.heads_at_once;
    const int heads = min(call.heads_at_once, call.kv_heads - first), within = number - first * kv_tiles;
    const int block = call.turns != nullptr ? kv_tiles - 1 - within / heads : within / heads;
    kv_head = first + within % heads, first_head = kv_head * call.given.group;
    seen = call.seen;
    const Sequence own = enter_sequence(seen, call.given, block, T::Bc);
    first_row = own.first, padded_first = padded_before(call.given.starts, own.first);
    kv_tile = own.tile, first_key = own.tile * T::Bc;
    q_tiles = seen.template q_tiles<T::Br>({first_key, min(seen.Nk, first_key + T::Bc)});
    steps = count_steps(call.given.group);
  }
  __device__ __forceinline__ Step first_step() const { return {first_head, q_tiles.first}; }

  // TODO(19.1) How many steps there are, with `group` heads of Q. And the step after `step`: the next Q tile, or the
  // next head's first one (about 3 lines).
  // BEGIN 19.1
  __device__ __forceinline__ int count_steps(int group) const { WORKBOOK_TODO(19.1); }
  __device__ __forceinline__ void advance(Step& step) const { WORKBOOK_TODO(19.1); }
  // END 19.1
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

/// The producer, one thread: K and V of the K/V tile, and of each step Q with its LSE, and dO with its D. Where
/// there is no step nobody waits for K and V, and nothing is loaded.
template <class T>
__device__ __forceinline__ void produce(typename T::Shared& smem, const TensorMap& Q, const TensorMap& K,
                                        const TensorMap& V, const TensorMap& dO, const Call& call,
                                        const Work<T>& work) {
  const auto load_keys = [&](auto& tile, const TensorMap& tensor, Mbarrier& full) {
    const SequenceRows keys = rows_of_sequence(work.kv_head, call.seen.Nk, work.first_row, work.seen.Nk);
    mbarrier_arrive_expect_tx(full, sizeof tile);
    cp_async_bulk_tensor_load(tile, tensor, full, 0, keys.before_first + work.first_key, 0, keys.end);
  };
  const auto load_queries = [&](auto& tile, auto& line, const TensorMap& tensor, const float* of_rows, Mbarrier& full,
                                const Step& step) {
    mbarrier_arrive_expect_tx(full, sizeof tile + sizeof line);
    // TODO(19.5) Q or dO of this step by cp_async_bulk_tensor_load, as load_keys does it for its rows; and the line of
    // T::Br floats of its padded rows by cp_async_bulk_load(line, from, sizeof line, full). of_rows is (B·H, padded),
    // and the sequence begins at padded row padded_first of each head (about 5 lines).
    // BEGIN 19.5
    WORKBOOK_TODO(19.5);
    // END 19.5
  };
  if (work.steps == 0) return;
  load_keys(smem.K, K, smem.K_full);
  Position<T::stages> at;
  Step step = work.first_step();
  for (int i = 0; i < work.steps; ++i) {
    const int s = at.stage;
    mbarrier_wait_parity(smem.empty[s], at.parity ^ 1);  // in the first round it does not wait
    load_queries(smem.Q[s], smem.lse[s], Q, call.lse, smem.Q_full[s], step);
    if (i == 0) load_keys(smem.V, V, smem.V_full);
    load_queries(smem.dO[s], smem.D[s], dO, call.D, smem.dO_full[s], step);
    at.advance(), work.advance(step);
  }
}

}  // namespace
}  // namespace ch19
