// Chapter 19: the shared memory of a thread block, its work (a K/V tile, and the Q tiles of several heads), and the
// producer.
//
// Source: Shah et al. 2024 (FlashAttention-3), section 3.1 and appendix B.1.
#pragma once

#include <cstdint>

#include "problem.hpp"
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

/// The named barriers. Those from dQ_empty on exist once per consumer: add its index. __syncthreads is number 0.
enum NamedBarrier { dS_written = 1, dQ_empty = 2, dQ_full = 4, stored = 6 };

/// A kernel's sizes, and its score modification.
template <class Element_, int d_, class ScoreMod_>
struct Kernel {
  using Element = Element_;
  using ScoreMod = ScoreMod_;
  static constexpr int d = d_, Bc = 128, Br = d == 64 ? 128 : 64, consumers = 2, threads = 128 * (1 + consumers);
  static constexpr int stages = 2;
  /// Whether dV is issued in two halves, each when its half of P is ready.
  static constexpr bool dV_early = d == 128;
  /// Which half of dQ (Br, d) a consumer computes: 64 of its 128 rows, or 64 of its 128 columns.
  static constexpr bool dQ_by_rows = d == 64;
  /// A thread starts with 168 registers: 65536 / 384, rounded down to a multiple of 8. 128·24 + 256·240 = 64512 fits.
  static constexpr int producer_registers = 24, consumer_registers = 240;

  /// The shared memory of a block. A full barrier completes when a tile has arrived, and an empty barrier when both
  /// consumers have released a stage.
  struct alignas(pattern_bytes) Shared {
    Tile<Element, d, Bc> K, V;  // after the loop: dK and dV
    Tile<Element, d, Br> Q[stages], dO[stages];
    Tile<Element, Bc, Br> dS[stages];  // (Br, Bc), one buffer per stage; section w has the keys of consumer w
    float dQ[consumers][Br * d / 2];   // in the order in which a consumer's threads hold it
    alignas(16) float lse[stages][Br], D[stages][Br];
    Mbarrier K_full, V_full, Q_full[stages], dO_full[stages], empty[stages];
    int ticket;
    SHARED_LAYOUT(Shared, K, V, Q, dO, dS, dQ, lse, D, K_full, V_full, Q_full, dO_full, empty, ticket);
  };

  // A thread's fragments of a consumer's matrices. A row of the first three is a key.
  using Scores = Fragment<float, Br / 2>;            // Sᵀ or dPᵀ, (64, Br), then (P·derivative)ᵀ or dSᵀ
  using Operands = Fragment<Element, 4>[Br / 16];    // Pᵀ or dSᵀ, rounded: A of an MMA
  using Gradient = Fragment<float, d / 2>;           // dK or dV, (64, d)
  using DQHalf = Fragment<float, Br * d / 2 / 128>;  // (64, 64)
};

/// The parameters of a call.
struct Call {
  const float *lse, *D;  // (B·H, padded): LSE·log2(e), and D, of each query
  float* dQ_sum;         // (B·H, padded, d): see address_in_dQ_sum
  int* semaphores;       // the ticket counter, then (B·H, padded / 64); or nullptr
  int kv_heads;          // B·Hkv
  int heads_per_group;   // heads of K and V that are scheduled together
  int padded;            // padded rows per head
  float scale;
  WindowMask mask;  // of all rows
  Problem problem;
};

/// A step of a thread block's loop: a Q tile of a head of Q. Heads are counted over the batch.
struct Step {
  int head, q_tile;
};

/// The work of a block: a K/V tile of one sequence in one head of K and V, and the Q tiles that attend to it, in each
/// head of Q that shares the head. Blocks start in the order of their index. With a mask, the heads form groups whose
/// Q, dO and dQ_sum fit in the L2 cache; within a group the first K/V tiles, which have the most Q tiles under a causal
/// mask, come first. In deterministic mode the last K/V tiles come first, because they add first.
template <class T>
struct WorkTile {
  int kv_head, first_head;          // of K and V; the first one of Q that shares it
  WindowMask mask;                  // of the sequence
  int first_row, first_padded_row;  // of the sequence, in its head
  int kv_tile, first_key;           // in the sequence
  Range q_tiles;                    // of each head; may be empty
  int steps;
  __device__ WorkTile(const Call& call, int index) {
    const int kv_tiles = call.problem.kv_tiles;
    const int first_kv_head = index / (call.heads_per_group * kv_tiles) * call.heads_per_group;
    const int heads = min(call.heads_per_group, call.kv_heads - first_kv_head);
    const int index_in_group = index - first_kv_head * kv_tiles;
    const int tile = call.semaphores != nullptr ? kv_tiles - 1 - index_in_group / heads : index_in_group / heads;
    kv_head = first_kv_head + index_in_group % heads, first_head = kv_head * call.problem.group;
    mask = call.mask;
    const Sequence sequence = enter_sequence(mask, call.problem, tile, T::Bc);
    first_row = sequence.first, first_padded_row = padded_before(call.problem.starts, sequence.first);
    kv_tile = sequence.tile, first_key = sequence.tile * T::Bc;
    q_tiles = mask.template q_tiles<T::Br>({first_key, min(mask.Nk, first_key + T::Bc)});
    steps = count_steps(call.problem.group);
  }
  __device__ __forceinline__ Step first_step() const { return {first_head, q_tiles.first}; }

  // TODO(19.1) count_steps: the number of steps, for `group` heads of Q. advance: moves to the next Q tile, or to the
  // first Q tile of the next head (about 3 lines).
  // BEGIN 19.1
  __device__ __forceinline__ int count_steps(int group) const { WORKBOOK_TODO(19.1); }
  __device__ __forceinline__ void advance(Step& step) const { WORKBOOK_TODO(19.1); }
  // END 19.1
};

/// A thread's position in a ring of stages: the stage, and the parity of its barriers' phase.
template <int stages>
struct Position {
  int stage = 0, parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

/// By one thread: initialises the mbarriers, and makes them visible to TMA. Q and dO of a stage have one empty barrier,
/// because the consumers release them together.
template <class T>
__device__ __forceinline__ void init_barriers(typename T::Shared& smem) {
  mbarrier_init(smem.K_full, 1), mbarrier_init(smem.V_full, 1);
  for (int i = 0; i < T::stages; ++i) {
    mbarrier_init(smem.Q_full[i], 1), mbarrier_init(smem.dO_full[i], 1);  // arrivals: the producer
    mbarrier_init(smem.empty[i], 4 * T::consumers);                       // arrivals: one per consumer warp
  }
  fence_mbarrier_init();
}

/// The producer, one thread: loads K and V, and for each step Q with its LSE and dO with its D. Without a step it loads
/// nothing, because no thread would wait for K and V.
template <class T>
__device__ __forceinline__ void produce(typename T::Shared& smem, const TensorMap& Q, const TensorMap& K,
                                        const TensorMap& V, const TensorMap& dO, const Call& call,
                                        const WorkTile<T>& work) {
  const auto load_kv = [&](auto& tile, const TensorMap& tensor, Mbarrier& full) {
    const SequenceRows keys = rows_of_sequence(work.kv_head, call.mask.Nk, work.first_row, work.mask.Nk);
    mbarrier_arrive_expect_tx(full, sizeof tile);
    cp_async_bulk_tensor_load(tile, tensor, full, 0, keys.before_first + work.first_key, 0, keys.end);
  };
  const auto load_q = [&](auto& tile, auto& tile_stats, const TensorMap& tensor, const float* stats, Mbarrier& full,
                          const Step& step) {
    mbarrier_arrive_expect_tx(full, sizeof tile + sizeof tile_stats);
    // TODO(19.5) Load this step's tile of Q or dO by cp_async_bulk_tensor_load, as load_kv does for K and V. Load its
    // T::Br statistics by cp_async_bulk_load(tile_stats, from, sizeof tile_stats, full). `stats` is (B·H, padded); the
    // sequence begins at row first_padded_row of each head (about 5 lines).
    // BEGIN 19.5
    WORKBOOK_TODO(19.5);
    // END 19.5
  };
  if (work.steps == 0) return;
  load_kv(smem.K, K, smem.K_full);
  Position<T::stages> position;
  Step step = work.first_step();
  for (int i = 0; i < work.steps; ++i) {
    const int s = position.stage;
    mbarrier_wait_parity(smem.empty[s], position.parity ^ 1);  // does not block in the first round
    load_q(smem.Q[s], smem.lse[s], Q, call.lse, smem.Q_full[s], step);
    if (i == 0) load_kv(smem.V, V, smem.V_full);
    load_q(smem.dO[s], smem.D[s], dO, call.D, smem.dO_full[s], step);
    position.advance(), work.advance(step);
  }
}

}  // namespace
}  // namespace ch19
