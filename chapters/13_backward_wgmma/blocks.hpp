// Chapter 13: the shared memory of a thread block, the keys and queries that it computes with, the mask, and the
// producer.
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

/// The named barriers. Those from dQ_empty on exist once per consumer: add its index. __syncthreads is number 0.
enum NamedBarrier { dS_written = 1, dQ_empty = 2, dQ_full = 4, stored = 6 };

/// A kernel's sizes, and the features of its version, `step` (backward_wgmma.hpp).
template <class Element_, int d_, int step>
struct Kernel {
  using Element = Element_;
  static constexpr int d = d_, Bc = 128, Br = d == 64 ? 128 : 64, consumers = 2, threads = 128 * (1 + consumers);
  static constexpr int stages = step == 1 ? 1 : 2;
  static constexpr bool overlapped = step >= 3, dV_early = step >= 4 && d == 128;
  /// Which half of dQ (Br, d) a consumer computes: 64 of its 128 rows, or 64 of its 128 columns.
  static constexpr bool dQ_by_rows = d == 64;
  /// A thread starts with 168 registers: 65536 / 384, rounded down to a multiple of 8. 128·24 + 256·240 = 64512 fits.
  static constexpr int producer_registers = 24, consumer_registers = 240;

  /// The shared memory of a block. A full barrier completes when a tile has arrived, and an empty barrier when both
  /// consumers have released a stage.
  struct alignas(pattern_bytes) Shared {
    Tile<Element, d, Bc> K, V;  // after the loop: dK and dV
    Tile<Element, d, Br> Q[stages], dO[stages];
    Tile<Element, Bc, Br> dS[2];      // (Br, Bc), two buffers; section w has the keys of consumer w
    float dQ[consumers][Br * d / 2];  // in the order in which a consumer's threads hold it
    alignas(16) float lse[stages][Br], D[stages][Br];
    Mbarrier K_full, V_full, Q_full[stages], dO_full[stages], empty[stages];
    int ticket;
    SHARED_LAYOUT(Shared, K, V, Q, dO, dS, dQ, lse, D, K_full, V_full, Q_full, dO_full, empty, ticket);
  };

  // A thread's fragments of a consumer's matrices. A row of the first three is a key.
  using Scores = Fragment<float, Br / 2>;            // Sᵀ or dPᵀ, (64, Br), then Pᵀ or dSᵀ
  using Operands = Fragment<Element, 4>[Br / 16];    // Pᵀ or dSᵀ, rounded: A of an MMA
  using Gradient = Fragment<float, d / 2>;           // dK or dV, (64, d)
  using DQHalf = Fragment<float, Br * d / 2 / 128>;  // (64, 64)
};

/// The parameters of a call. Query i attends to all keys or, if causal, to the keys up to i + (Nk - Nq).
struct Call {
  const float *lse, *D;  // (heads, padded(Nq)): LSE·log2(e), and D, of each query
  float* dQ_sum;         // (heads, padded(Nq), d): see address_in_dQ_sum
  int* semaphores;       // the ticket counter, then (heads, padded(Nq) / 64); or nullptr
  int Nq, Nk, heads, heads_per_group, kv_tiles;
  float scale, scale_log2;  // scale_log2 = scale·log2(e)
  bool causal;
};

// The causal mask. In first_q_tile, key 0 is the K/V tile's first key: query i attends to key k if k <= i + diagonal.
// The first Q tiles, whose queries attend to none of the tile's keys, are skipped.
//
// In mask_P, key 0 is the consumer's first key and query 0 the Q tile's first query: query q attends to key k if
// k < visible + q. Only keys k < `keys` exist (`keys` may be more than 64, or less than 1). Without the causal mask
// visible = keys. A warp has 16 of the keys. The queries from `unmasked_from` on attend to all 16, so the column groups
// (eight queries each) that begin there or later need no test. If one of the 16 does not exist, all column groups need
// it. unmasked_from is the same for all lanes of the warp; __shfl_sync makes this known to the compiler.
//
// TODO(13.4) first_q_tile: the index of the first Q tile with an unmasked pair. mask_P: sets P = 0 for masked pairs in
// the column groups from begin to end - 1 (about 18 lines).
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

/// The work of a block: a K/V tile of a head, and the q_count Q tiles from q_begin on. Blocks start in the order of
/// their index. If causal, the heads form groups whose Q, dO and dQ_sum fit in the L2 cache; within a group the first
/// K/V tiles, which have the most Q tiles, come first. In deterministic mode the last K/V tiles come first, because
/// they add first.
template <class T>
struct WorkTile {
  int head, kv_tile, first_key, q_begin, q_count;
  __device__ WorkTile(const Call& call, int index) {
    const int first_head = index / (call.heads_per_group * call.kv_tiles) * call.heads_per_group;
    const int heads = min(call.heads_per_group, call.heads - first_head);
    const int index_in_group = index - first_head * call.kv_tiles;
    head = first_head + index_in_group % heads;
    kv_tile = call.semaphores != nullptr ? call.kv_tiles - 1 - index_in_group / heads : index_in_group / heads;
    first_key = kv_tile * T::Bc;
    const int q_tiles = (call.Nq + T::Br - 1) / T::Br;  // the last query attends to every key: q_count >= 1
    q_begin = min(first_q_tile<T>(call.Nk - call.Nq - first_key, call.causal), q_tiles - 1);
    q_count = q_tiles - q_begin;
  }
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

/// The producer, one thread: loads K and V, and for each Q tile Q with its LSE and dO with its D.
template <class T>
__device__ __forceinline__ void produce(typename T::Shared& smem, const TensorMap& Q, const TensorMap& K,
                                        const TensorMap& V, const TensorMap& dO, const Call& call,
                                        const WorkTile<T>& work) {
  const std::int64_t row_offset = std::int64_t(work.head) * padded(call.Nq);  // of this head in call.lse and call.D
  Position<T::stages> position;
  // TODO(13.2) Load K, then Q and dO of each Q tile; load V after the first Q. Before the loads of a Q tile, wait until
  // its stage is empty. One full barrier expects the bytes of a tile and of its Br statistics, which are loaded by
  // cp_async_bulk_tensor_load (coordinates: 0, row, 0, head) and by cp_async_bulk_load (about 19 lines).
  // BEGIN 13.2
  WORKBOOK_TODO(13.2);
  // END 13.2
}

}  // namespace
}  // namespace ch13
