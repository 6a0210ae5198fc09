// bar.sync: barriers for some warps of a block. What they order is between a __syncthreads and a __syncwarp: the races
// of shared memory are judged by what each warp has heard of each other (shared_memory.cpp).
#include <algorithm>
#include <cstring>

#include "common/simt/detect.hpp"
#include "common/simt/scheduler.hpp"

namespace simt {

namespace {

[[noreturn]] void refuse(Lane& lane, const void* pc, std::string what, std::string advice) {
  Finding finding = finding_of(lane, Mistake::divergent_barrier, pc, "waits");
  finding.what = std::move(what);
  finding.advice = std::move(advice);
  note_finding(lane, std::move(finding));
  lane.block->damaged = true;
  end_lane();
}

/// All threads have come: what any of their warps has heard, all of them have now.
void complete_named_barrier(Block& block, NamedBarriers::Barrier& barrier) {
  NamedBarriers& named = block.named;
  if (!named.used) std::memset(named.heard, 0, sizeof named.heard);
  named.used = true;
  ++block.counters.named_barriers;
  const auto each_warp = [&](auto work) {
    for (int w = 0; w < block.warp_count; ++w)
      if (barrier.lanes[w] != 0) work(w);
  };
  std::uint32_t together[NamedBarriers::kWarps] = {};
  each_warp([&](int w) {
    flush(block.warps[w]);
    for (int other = 0; other < block.warp_count; ++other)
      together[other] = std::max(together[other], named.heard[w][other]);
  });
  ++block.clock;
  each_warp([&](int w) { together[w] = block.clock; });
  each_warp([&](int w) {
    Warp& warp = block.warps[w];
    std::memcpy(named.heard[w], together, sizeof together);
    warp.epoch = block.clock;  // its lanes have met, too
    warp.partial_barriers = false;
    warp.ready |= barrier.lanes[w];
    block.runnable |= 1u << w;
  });
  barrier = {};
}

}  // namespace

void named_barrier(int number, int threads) {
  Lane* lane = running;
  if (lane == nullptr) return;
  const void* pc = __builtin_return_address(0);
  Block& block = *lane->block;
  const std::string call = "barrier_sync(" + std::to_string(number) + ", " + std::to_string(threads) + ")";
  if (number < 1 || number >= NamedBarriers::kCount)
    refuse(*lane, pc, call + ": a block has barriers 1 to 15 beside that of __syncthreads", "choose one of 1 to 15");
  if (threads <= 0 || threads % kWarpSize != 0 || threads > block.warp_count * kWarpSize)
    refuse(*lane, pc, call + ": whole warps of the block wait, a multiple of 32 threads",
           "check the number of threads");
  NamedBarriers::Barrier& barrier = block.named.barriers[number];
  if (barrier.arrived > 0 && barrier.threads != threads)
    refuse(*lane, pc, call + ", where others wait for " + std::to_string(barrier.threads) + " threads",
           "all that meet at a barrier name the same number of threads");
  barrier.threads = threads;
  Warp& warp = *lane->warp;
  barrier.lanes[warp.index] |= lane->bit;
  warp.ready &= ~lane->bit;
  lane->waits_at = pc;
  if (++barrier.arrived == threads)
    complete_named_barrier(block, barrier);
  else
    wait_for_turn();
}

}  // namespace simt
