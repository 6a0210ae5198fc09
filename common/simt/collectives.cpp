// Collective operations of the lanes of a warp: barriers, shuffles, votes. The last lane to arrive does the work for
// all.
#include <algorithm>
#include <cstring>

#include "common/simt/asynchrony.hpp"
#include "common/simt/detect.hpp"
#include "common/simt/scheduler.hpp"
#include "common/simt/shared_memory.hpp"

namespace simt {

namespace {

void complete_barrier(Warp& warp, std::uint32_t lanes) {
  Block& block = *warp.block;
  ++block.clock;
  ++block.counters.warp_barriers;
  if (block.asynchrony != nullptr) [[unlikely]]
    block.asynchrony->join_lanes(warp, lanes);
  if (lanes == warp.alive) {
    warp.epoch = block.clock;
    warp.partial_barriers = false;
    if (block.shared != nullptr) block.shared->warp_barrier(warp);
    return;
  }
  if (!warp.partial_barriers) {
    warp.partial_barriers = true;
    std::memset(warp.heard, 0, sizeof warp.heard);
  }
  std::uint32_t together[kWarpSize] = {};  // the combined knowledge of all lanes, which each of them acquires
  for (std::uint32_t m = lanes; m != 0; m &= m - 1) {
    const std::uint32_t* heard = warp.heard[std::countr_zero(m)];
    for (int other = 0; other < kWarpSize; ++other) together[other] = std::max(together[other], heard[other]);
  }
  for (std::uint32_t m = lanes; m != 0; m &= m - 1) together[std::countr_zero(m)] = block.clock;
  for (std::uint32_t m = lanes; m != 0; m &= m - 1) {
    std::memcpy(warp.heard[std::countr_zero(m)], together, sizeof together);
  }
}

void complete_shuffle(Warp& warp, std::uint32_t lanes) {
  if (lanes == ~0u) {
    for (int lane = 0; lane < kWarpSize; ++lane) warp.result[lane] = warp.value[warp.source[lane]];
  } else {
    for (std::uint32_t m = lanes; m != 0; m &= m - 1) {
      const int lane = std::countr_zero(m), source = warp.source[lane];
      if (!(lanes >> source & 1)) report_inactive_source(warp, lane, source, warp.lanes[lane].waits_at);
      warp.result[lane] = warp.value[source];
    }
  }
  ++warp.block->counters.shuffles, ++warp.shuffles;
}

void complete_vote(Warp& warp, std::uint32_t lanes) {
  std::uint64_t ballot = 0;
  for (std::uint32_t m = lanes; m != 0; m &= m - 1) {
    const int lane = std::countr_zero(m);
    ballot |= warp.value[lane] << lane;
  }
  ballot |= std::uint64_t(lanes) << 32;  // the participating lanes: some may have ended when a lane reads its result
  for (std::uint32_t m = lanes; m != 0; m &= m - 1) warp.result[std::countr_zero(m)] = ballot;
  ++warp.block->counters.votes;
}

/// Whether all 32 lanes execute an instruction of the tensor cores; reports it if not.
bool whole_warp(Warp& warp, std::uint32_t lanes, Collective operation) {
  if (lanes == ~0u) [[likely]]
    return true;
  if (warp.block->damaged) return false;
  const Lane& lane = warp.lanes[std::countr_zero(lanes)];
  const std::string name = name_of(operation);
  Finding finding =
      finding_of(lane, Mistake::inactive_lane, lane.waits_at, "calls",
                 name + " is executed without " + lanes_text(~lanes) + ", which have ended or do not exist",
                 name + " needs all 32 lanes: let whole warps exit early, never single lanes");
  finding.side.lanes = lanes;
  note_finding(lane, std::move(finding));
  return false;
}

}  // namespace

void complete(Warp& warp, const Group& group) {
  warp.block->polling.count = 0;
  if (group.arrived == warp.alive && warp.recorder.size() != 0) flush(warp);
  switch (group.operation) {
    case Collective::barrier:
      complete_barrier(warp, group.arrived);
      break;
    case Collective::vote:
      complete_vote(warp, group.arrived);
      break;
    case Collective::multiply:
      if (whole_warp(warp, group.arrived, group.operation)) multiply_fragments(warp);
      break;
    case Collective::load_matrices:
    case Collective::store_matrices:
    case Collective::multiply_registers:
      if (whole_warp(warp, group.arrived, group.operation)) execute_instruction(warp, group.operation);
      break;
    case Collective::set_registers:
      if (whole_warp(warp, group.arrived, group.operation)) move_registers(warp);
      break;
    case Collective::elect:
      for (std::uint32_t m = group.arrived; m != 0; m &= m - 1)
        warp.result[std::countr_zero(m)] = group.arrived & -group.arrived;
      break;
    default:
      complete_shuffle(warp, group.arrived);
      break;
  }
}

void warp_barrier(std::uint32_t mask) {
  if (running == nullptr) return;
  rendezvous(mask, Collective::barrier, __builtin_return_address(0));
}

std::uint64_t warp_shuffle(Shuffle kind, std::uint32_t mask, std::uint64_t value, int operand, int width) {
  const Lane& lane = *running;
  Warp& warp = *lane.warp;
  // CUDA's definition: within a segment of `width` lanes; a source outside it is the lane itself (index: modulo).
  const int self = lane.index, segment = self & ~(width - 1);
  int source = self;
  Collective operation = Collective::shuffle_index;
  switch (kind) {
    case Shuffle::index:
      source = segment | (operand & (width - 1));
      break;
    case Shuffle::up:
      operation = Collective::shuffle_up;
      if (self - operand >= segment) source = self - operand;
      break;
    case Shuffle::down:
      operation = Collective::shuffle_down;
      if (self + operand < segment + width) source = self + operand;
      break;
    case Shuffle::exclusive_or:
      operation = Collective::shuffle_xor;
      if ((self ^ operand) < segment + width) source = self ^ operand;  // an earlier segment may be read
      break;
  }
  warp.value[self] = value;
  warp.source[self] = static_cast<std::uint8_t>(source & 31);
  rendezvous(mask, operation, __builtin_return_address(0));
  return warp.result[self];
}

std::uint32_t warp_vote(Vote kind, std::uint32_t mask, bool predicate) {
  const Lane& lane = *running;
  Warp& warp = *lane.warp;
  warp.value[lane.index] = predicate;
  rendezvous(mask, Collective::vote, __builtin_return_address(0));
  const auto ballot = static_cast<std::uint32_t>(warp.result[lane.index]);
  const auto lanes = static_cast<std::uint32_t>(warp.result[lane.index] >> 32);
  switch (kind) {
    case Vote::ballot:
      return ballot;
    case Vote::any:
      return ballot != 0;
    case Vote::all:
      return ballot == lanes;
  }
  return 0;
}

bool elect_lane(std::uint32_t mask) {
  const Lane& lane = *running;
  rendezvous(mask, Collective::elect, __builtin_return_address(0));
  return lane.warp->result[lane.index] == lane.bit;
}

std::uint32_t active_mask() {
  return running->warp->alive;
}

}  // namespace simt
