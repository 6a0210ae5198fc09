// Chapter 10: what a block keeps in shared memory, its barriers, and the ring of stages through which the tiles go from
// the producer to the consumers.
//
// A barrier (PTX: mbarrier) counts arrivals, and the bytes that it has been told to expect. When all have come, its
// phase ends and the next one begins. Phases have the parities 0, 1, 0, 1, … To wait for parity p is to wait until the
// phase of parity p has ended: a wait for the parity that is not the running phase's goes on at once.
//
//   full[s]    phase n ends when the n-th tile of stage s has come:   1 arrival, the producer's, and the tile's bytes
//   empty[s]   phase n ends when all have left the n-th tile:         1 arrival of each consumer warp
//   Q_full[w]  its only phase ends when warp w's Q has come:          1 arrival, the producer's, and Q's bytes
//
// Source: PTX ISA, section "mbarrier"; Shah et al. 2024 (FlashAttention-3), section 3.1.
#pragma once

#include "copy_engine.hpp"
#include "tiles.hpp"

namespace ch10 {
namespace {

using workbook::cuda::fence_mbarrier_init, workbook::cuda::mbarrier_arrive, workbook::cuda::mbarrier_init,
    workbook::cuda::mbarrier_wait_parity;

/// What a block keeps in shared memory: a Q for each warp, where O lies later; the ring, K_0, V_0, K_1, V_1, …, tile n
/// in stage n % stages; and the barriers.
template <class Element, int d, int Bc, int warps>
struct alignas(1024) Shared {
  Tile<Element, 32, d> Q[warps];
  Tile<Element, Bc, d> ring[stages];
  Mbarrier Q_full[warps], full[stages], empty[stages];
  SHARED_LAYOUT(Shared, Q, ring, Q_full, full, empty);
};

/// Where the producer, or a consumer, is in the ring: at this stage, whose barriers are, on this round, in a phase of
/// this parity.
struct Position {
  int stage = 0, parity = 0;
};

// TODO(10.4) The ring: to the next stage, and after the last one to the first, on the next round; the producer fills a
// stage with the tile from row first_row on, as soon as all have left it (in the first round at once), and goes on; a
// consumer warp waits until its stage is full; and it leaves the stage, when all its lanes have read what they need, by
// one arrival, and goes on (about 14 lines).
// STUB: __device__ __forceinline__ void advance(Position& at) {
// STUB:   WORKBOOK_TODO(10.4);
// STUB: }
// STUB: template <class AnyShared>
// STUB: __device__ __forceinline__ void fill(AnyShared& smem, Position& at, const TensorMap& tensor, int first_row,
// STUB:                                      int head) {
// STUB:   WORKBOOK_TODO(10.4);
// STUB: }
// STUB: template <class AnyShared>
// STUB: __device__ __forceinline__ void wait_until_full(AnyShared& smem, const Position& at) {
// STUB:   WORKBOOK_TODO(10.4);
// STUB: }
// STUB: template <class AnyShared>
// STUB: __device__ __forceinline__ void leave(AnyShared& smem, Position& at) {
// STUB:   WORKBOOK_TODO(10.4);
// STUB: }
// BEGIN 10.4
__device__ __forceinline__ void advance(Position& at) {
  if (++at.stage == stages) at.stage = 0, at.parity ^= 1;
}
template <class AnyShared>
__device__ __forceinline__ void fill(AnyShared& smem, Position& at, const TensorMap& tensor, int first_row, int head) {
  mbarrier_wait_parity(smem.empty[at.stage], at.parity ^ 1);  // the phase of the round before
  load_tile(smem.ring[at.stage], tensor, smem.full[at.stage], first_row, head);
  advance(at);
}
template <class AnyShared>
__device__ __forceinline__ void wait_until_full(AnyShared& smem, const Position& at) {
  mbarrier_wait_parity(smem.full[at.stage], at.parity);
}
template <class AnyShared>
__device__ __forceinline__ void leave(AnyShared& smem, Position& at) {
  __syncwarp();  // all lanes have read the stage
  if (threadIdx.x % 32 == 0) mbarrier_arrive(smem.empty[at.stage]);
  advance(at);
}
// END 10.4

/// Makes the block's barriers. All threads call it, before anybody uses one.
template <class Element, int d, int Bc, int warps>
__device__ __forceinline__ void make_barriers(Shared<Element, d, Bc, warps>& smem) {
  // TODO(10.5) One thread makes the barriers for as many arrivals as the table above says, and shows them to TMA;
  // then all may use them (about 8 lines).
  // BEGIN 10.5
  if (threadIdx.x == 0) {
    for (Mbarrier& Q_full : smem.Q_full) mbarrier_init(Q_full, 1);
    for (int stage = 0; stage < stages; ++stage) {
      mbarrier_init(smem.full[stage], 1);
      mbarrier_init(smem.empty[stage], warps);
    }
    fence_mbarrier_init();  // TMA sees them
  }
  __syncthreads();  // the barriers are there for all
  // END 10.5
}

}  // namespace
}  // namespace ch10
