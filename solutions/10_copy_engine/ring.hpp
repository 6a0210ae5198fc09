// Chapter 10: the shared memory of a thread block, its mbarriers, and the ring of stages through which tiles pass from
// the producer to the consumers.
//
// An mbarrier counts arrivals and, if it expects any, bytes. When none is missing, its phase ends and the next one
// begins. Phases have the parities 0, 1, 0, 1, … A wait for the parity of the current phase waits until this phase
// ends. A wait for the other parity returns at once, because the previous phase has ended.
//
//   full[s]    phase n ends when tile n of stage s has been loaded:        1 arrival, the producer's, and its bytes
//   empty[s]   phase n ends when all consumers have released tile n of it: 1 arrival per consumer warp
//   Q_full[w]  its only phase ends when warp w's Q has been loaded:        1 arrival, the producer's, and its bytes
//
// Source: PTX ISA, section "mbarrier"; Shah et al. 2024 (FlashAttention-3), section 3.1.
#pragma once

#include "copy_engine.hpp"
#include "tiles.hpp"

namespace ch10 {
namespace {

using workbook::cuda::fence_mbarrier_init, workbook::cuda::mbarrier_arrive, workbook::cuda::mbarrier_init,
    workbook::cuda::mbarrier_wait_parity;

/// The shared memory of a thread block: a Q tile per consumer warp, which later holds O; the ring, with tile n of the
/// sequence K_0, V_0, K_1, V_1, … in stage n % stages; and the mbarriers.
template <class Element, int d, int Bc, int warps>
struct alignas(1024) Shared {
  Tile<Element, 32, d> Q[warps];
  Tile<Element, Bc, d> ring[stages];
  Mbarrier Q_full[warps], full[stages], empty[stages];
  SHARED_LAYOUT(Shared, Q, ring, Q_full, full, empty);
};

/// A position in the ring: a stage, and the parity of the phase for which a consumer waits at its `full`.
struct Position {
  int stage = 0, parity = 0;
};

// TODO(10.4) The ring (about 14 lines):
//   advance: moves to the next stage; after the last stage to stage 0, with the other parity.
//   fill, called by the producer thread: waits until all consumers have released the stage, which in the first round is
//     true at once; loads the tile from row first_row on into it; advances.
//   wait_until_full, called by a consumer warp: waits until the stage has been loaded.
//   release, called by a consumer warp: arrives once at `empty` when all its lanes have read the stage; advances.
// STUB: __device__ __forceinline__ void advance(Position& position) {
// STUB:   WORKBOOK_TODO(10.4);
// STUB: }
// STUB: template <class AnyShared>
// STUB: __device__ __forceinline__ void fill(AnyShared& smem, Position& position, const TensorMap& tensor,
// STUB:                                      int first_row, int head) {
// STUB:   WORKBOOK_TODO(10.4);
// STUB: }
// STUB: template <class AnyShared>
// STUB: __device__ __forceinline__ void wait_until_full(AnyShared& smem, const Position& position) {
// STUB:   WORKBOOK_TODO(10.4);
// STUB: }
// STUB: template <class AnyShared>
// STUB: __device__ __forceinline__ void release(AnyShared& smem, Position& position) {
// STUB:   WORKBOOK_TODO(10.4);
// STUB: }
// BEGIN 10.4
__device__ __forceinline__ void advance(Position& position) {
  if (++position.stage == stages) position.stage = 0, position.parity ^= 1;
}
template <class AnyShared>
__device__ __forceinline__ void fill(AnyShared& smem, Position& position, const TensorMap& tensor, int first_row,
                                     int head) {
  mbarrier_wait_parity(smem.empty[position.stage], position.parity ^ 1);  // the previous round's phase
  load_tile(smem.ring[position.stage], tensor, smem.full[position.stage], first_row, head);
  advance(position);
}
template <class AnyShared>
__device__ __forceinline__ void wait_until_full(AnyShared& smem, const Position& position) {
  mbarrier_wait_parity(smem.full[position.stage], position.parity);
}
template <class AnyShared>
__device__ __forceinline__ void release(AnyShared& smem, Position& position) {
  __syncwarp();  // all lanes have read the stage
  if (threadIdx.x % 32 == 0) mbarrier_arrive(smem.empty[position.stage]);
  advance(position);
}
// END 10.4

/// Initialises the mbarriers. All threads call it, before the first use of an mbarrier.
template <class Element, int d, int Bc, int warps>
__device__ __forceinline__ void make_barriers(Shared<Element, d, Bc, warps>& smem) {
  // TODO(10.5) One thread initialises all mbarriers with the arrival counts of the table above, and makes them visible
  // to TMA. Then make them visible to all threads (about 8 lines).
  // BEGIN 10.5
  if (threadIdx.x == 0) {
    for (Mbarrier& Q_full : smem.Q_full) mbarrier_init(Q_full, 1);
    for (int stage = 0; stage < stages; ++stage) {
      mbarrier_init(smem.full[stage], 1);
      mbarrier_init(smem.empty[stage], warps);
    }
    fence_mbarrier_init();  // visible to TMA
  }
  __syncthreads();  // visible to all threads
  // END 10.5
}

}  // namespace
}  // namespace ch10
