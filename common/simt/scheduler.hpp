// Runs one block: selects the next lane and manages waiting lanes. Internal.
//
// The functions on the path to a switch are inline: see Fiber::switch_to.
#pragma once

#include "common/simt/detect.hpp"
#include "common/simt/execution.hpp"
#include "common/simt/launch_state.hpp"

namespace simt {

/// Sets up lanes and warps for blocks of this size.
void prepare_block(Block& block, dim3 grid, dim3 size, Stacks& stacks);
/// Runs block number `number` of the grid to its end, and reports the errors of its threads.
void run_block(Block& block, std::uint64_t number);
/// Suspends the running lane until its warp's records have been counted.
void pause_for_counting();

/// Counts the warp's records and erases them (counting.cpp).
void flush(Warp& warp);
/// Carries out a collective whose lanes have all arrived (collectives.cpp).
void complete(Warp& warp, const Group& group);
/// Multiplies the fragments of all lanes in warp.operands (wmma.cpp).
void multiply_fragments(Warp& warp);
/// Carries out the ldmatrix, stmatrix or mma whose operands all lanes have stored in warp.instruction
/// (instructions.cpp).
void execute_instruction(Warp& warp, Collective operation);
/// Counts one ldmatrix or stmatrix at `pc` with 16-byte rows at these addresses, eight per matrix (counting.cpp).
void count_matrix_rows(Block& block, const std::uintptr_t* rows, int matrices, bool stores, const void* pc);

/// A random number below n, from the block's own sequence.
unsigned random_below(Block& block, unsigned n);
/// pick() for any order except the natural one.
int pick_in_order(Block& block, std::uint32_t mask);
/// The bit of `mask` (not empty) that runs next.
inline int pick(Block& block, std::uint32_t mask) {
  if (block.launch->options.order == Order::natural) [[likely]]
    return std::countr_zero(mask);
  return pick_in_order(block, mask);
}

/// Suspends the running lane, whose bit in `ready` is cleared, until it is ready again.
__attribute__((always_inline)) inline void suspend_lane() {
  Lane& lane = *running;
  Warp& warp = *lane.warp;
  if (warp.ready == 0 && warp.paused != 0) [[unlikely]] {  // the whole warp waits for its records to be counted
    flush(warp);
    if (!interrupted.load(std::memory_order_relaxed)) {
      warp.ready = warp.paused;
      warp.paused = 0;
    }
  }
  if (warp.ready != 0) [[likely]] {
    Lane& next = warp.lanes[pick(*lane.block, warp.ready)];
    if (&next == &lane) return;
    running = &next;
    observed = lane.block->launch->observing ? &next : nullptr;
    Fiber::switch_to(lane.fiber, next.fiber);
    return;
  }
  lane.block->runnable &= ~(1u << warp.index);
  running = observed = nullptr;
  Fiber::switch_to(lane.fiber, lane.block->scheduler);
}

/// The group of this mask, created if there is none. Reports inconsistencies.
Group& find_group(Lane& lane, std::uint32_t& mask, Collective operation, const void* pc);

/// Waits for every other lane of `mask`; the last lane to arrive carries out the operation for all.
__attribute__((always_inline)) inline void rendezvous(std::uint32_t mask, Collective operation, const void* pc) {
  Lane& lane = *running;
  Warp& warp = *lane.warp;
  Group* group = &warp.groups[0];
  if (!(warp.groups_used == 1 && group->mask == mask && group->operation == operation && (mask & lane.bit)))
      [[unlikely]] {
    group = &find_group(lane, mask, operation, pc);
  }
  group->arrived |= lane.bit;
  lane.waits_at = pc;
  if (group->arrived != (mask & warp.alive)) [[likely]] {
    warp.ready &= ~lane.bit;
    suspend_lane();
    return;
  }
  const Group all = *group;
  *group = warp.groups[--warp.groups_used];
  complete(warp, all);
  warp.ready |= all.arrived;
}

}  // namespace simt
