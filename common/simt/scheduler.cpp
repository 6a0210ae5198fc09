// Fibers, warps, blocks: which lane runs next, and which lanes wait.
#include "common/simt/scheduler.hpp"
#include "common/simt/address.hpp"
#include "common/simt/asynchrony.hpp"
#include "common/simt/global_memory.hpp"
#include "common/simt/tracer.hpp"

#include <cstring>
#include <exception>
#include <new>

namespace simt {

// Repeated here, because g++ drops the TLS model of the declarations.
constinit thread_local Lane* running __attribute__((tls_model("initial-exec"))) = nullptr;
constinit thread_local Lane* observed __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {

std::uint32_t everyone(int lanes) {
  return lanes >= kWarpSize ? ~0u : (1u << lanes) - 1;
}

/// Block 0's counters so far, for the launch's record.
void note_interval(Block& block) {
  if (block.number == 0 && block.launch->observing)
    block.intervals.push_back({block.counters, block.global->tensors_so_far()});
}

/// The last thread has arrived at the block barrier, or has ended while the others wait there.
void complete_block_barrier(Block& block) {
  block.barrier_result_count = block.arrived;
  block.barrier_result_true = block.barrier_true;
  block.arrived = block.barrier_true = 0;
  block.polling.count = 0;
  ++block.counters.block_barriers;
  for (int w = 0; block.tracer != nullptr && w < block.warp_count; ++w) block.tracer->end_wait(block.warps[w]);
  for (int w = 0; w < block.warp_count; ++w) flush(block.warps[w]);
  note_interval(block);
  end_interval(block);
  ++block.clock;
  block.interval_began = block.clock;
  for (int w = 0; w < block.warp_count; ++w) {
    Warp& warp = block.warps[w];
    warp.epoch = block.clock;
    warp.partial_barriers = false;
    warp.ready |= warp.at_barrier;
    warp.at_barrier = 0;
    if (warp.ready) block.runnable |= 1u << w;
  }
  for (int i = 0; i < block.threads; ++i) block.lanes[i].step = 0;
  if (block.asynchrony != nullptr) [[unlikely]]
    block.asynchrony->join_block();
}

/// A lane has ended: lanes that wait for it may now continue.
void complete_without(Lane& lane) {
  Warp& warp = *lane.warp;
  for (int g = 0; g < warp.groups_used; ++g) {
    const Group group = warp.groups[g];
    if (group.arrived != (group.mask & warp.alive)) continue;
    warp.groups[g] = warp.groups[--warp.groups_used];
    complete(warp, group);
    warp.ready |= group.arrived;
    g = -1;  // restart: the groups have moved
  }
  Block& block = *lane.block;
  if (block.arrived > 0 && block.arrived == block.alive) complete_block_barrier(block);
}

void finish_lane() {
  Lane& lane = *running;
  Warp& warp = *lane.warp;
  warp.alive &= ~lane.bit;
  warp.ready &= ~lane.bit;
  --lane.block->alive;
  lane.copies.clear();
  if (lane.block->asynchrony != nullptr) [[unlikely]]
    lane.block->asynchrony->end_lane(lane);
  if (warp.alive == 0) flush(warp);
  complete_without(lane);
  suspend_lane();
}

/// The main loop of a fiber: runs one thread of one block after another.
void fiber_main() {
  for (;;) {
    LaunchState& launch = *running->block->launch;
    try {
      launch.body(launch.parameters);
    } catch (const std::bad_alloc&) {  // of the simulator: kernels allocate no memory
      launch.fail();
    } catch (const std::exception& error) {
      report_exception(*running, error.what());
    } catch (...) {
      report_exception(*running, "something that is not a std::exception");
    }
    finish_lane();
  }
}

bool same_file(const Where& a, const Where& b) {
  return a.file == b.file || std::strcmp(a.file, b.file) == 0;
}

/// Ends a block whose threads have not all ended.
void abandon(Block& block) {
  for (int w = 0; w < block.warp_count; ++w) {
    Warp& warp = block.warps[w];
    flush(warp);
    warp.alive = warp.ready = warp.at_barrier = warp.paused = 0;
    warp.groups_used = 0;
  }
  // The fibers are left suspended and restarted for the next block.
  for (Lane& lane : block.lanes) lane.abandoned = true;
  block.alive = block.arrived = 0;
  block.damaged |= block.asynchrony != nullptr;  // operations left in flight follow from this
}

/// No thread can run, and some have not ended: reports the deadlock and abandons the block.
void give_up(Block& block) {
  if (block.damaged || block.asynchrony == nullptr || !block.asynchrony->report_missing_bytes()) report_deadlock(block);
  abandon(block);
}

}  // namespace

void prepare_block(Block& block, dim3 grid, dim3 size, Stacks& stacks) {
  block.grid = {grid.x, grid.y, grid.z};
  block.size = {size.x, size.y, size.z};
  block.threads = static_cast<int>(size.x * size.y * size.z);
  block.warp_count = (block.threads + kWarpSize - 1) / kWarpSize;
  if (!block.warps) {
    block.warps = std::make_unique<Warp[]>(kMaxThreads / kWarpSize);
    block.lanes.resize(kMaxThreads);
  }
  for (int i = 0; i < block.warp_count * kWarpSize; ++i) {
    Lane& lane = block.lanes[i];
    const unsigned t = static_cast<unsigned>(i);
    lane.thread = {t % size.x, t / size.x % size.y, t / (size.x * size.y)};
    lane.linear = static_cast<std::uint16_t>(i);
    lane.index = static_cast<std::uint16_t>(i % kWarpSize);
    lane.bit = 1u << lane.index;
    lane.block = &block;
    lane.warp = &block.warps[i / kWarpSize];
    if (lane.stack_size == 0 && i < block.threads) {
      lane.stack_low = reinterpret_cast<std::uintptr_t>(stacks.low(i));
      lane.stack_size = Stacks::kSize - std::size_t(64) * 64;  // the stacks are shifted by up to 63 cache lines
    }
  }
  for (int w = 0; w < block.warp_count; ++w) {
    block.warps[w].block = &block;
    block.warps[w].lanes = block.lanes.data() + std::ptrdiff_t(w) * kWarpSize;
    block.warps[w].index = w;
  }
}

void run_block(Block& block, std::uint64_t number) {
  block.number = number;
  block.index = {static_cast<unsigned>(number % block.grid.x),
                 static_cast<unsigned>(number / block.grid.x % block.grid.y),
                 static_cast<unsigned>(number / block.grid.x / block.grid.y)};
  block.alive = block.threads;
  block.arrived = block.barrier_true = 0;
  block.damaged = false;
  block.polling = {};
  block.random = (block.launch->options.seed + number) * 0x9E3779B97F4A7C15ull | 1;
  ++block.clock;
  block.block_began = block.interval_began = block.clock;
  block.asynchrony = nullptr;
  begin_block(block);
  for (int w = 0; w < block.warp_count; ++w) {
    Warp& warp = block.warps[w];
    warp.alive = warp.ready = everyone(block.threads - w * kWarpSize);
    warp.at_barrier = warp.paused = 0;
    warp.groups_used = 0;
    warp.epoch = block.clock;
    warp.partial_barriers = false;
    block.runnable |= 1u << w;
  }
  for (int i = 0; i < block.threads; ++i) {
    Lane& lane = block.lanes[i];
    lane.step = 0;
    lane.copies.clear();
    lane.sleep = Sleep::none;
    if (lane.watches_registers) [[unlikely]]  // the lane was abandoned
      block.asynchrony_kept->pending.clear(lane);
    if (lane.abandoned || !lane.fiber.prepared()) {
      lane.abandoned = false;
      lane.fiber.prepare(at_address<void>(lane.stack_low), lane.stack_size, &fiber_main);
    }
  }

  while (block.alive > 0) {
    if (interrupted.load(std::memory_order_relaxed)) [[unlikely]] {
      abandon(block);
      break;
    }
    if (block.asynchrony != nullptr && block.launch->options.order == Order::shuffled)
      block.asynchrony->advance_at_random();
    if (block.runnable == 0) {
      if (block.asynchrony != nullptr && block.asynchrony->advance()) continue;
      give_up(block);
      break;
    }
    Warp& warp = block.warps[pick(block, block.runnable)];
    if (warp.ready == 0) {
      block.runnable &= ~(1u << warp.index);
      continue;
    }
    Lane& next = warp.lanes[pick(block, warp.ready)];
    running = &next;
    observed = block.launch->observing ? &next : nullptr;
    Fiber::switch_to(block.scheduler, next.fiber);
  }
  if (block.asynchrony != nullptr) {
    block.asynchrony->end_block();
    for (int w = 0; w < block.warp_count; ++w) block.warps[w].ready = 0;  // lanes woken by the last copies
  }
  block.runnable = 0;
  note_interval(block);
  end_interval(block);
  end_block(block);
}

unsigned random_below(Block& block, unsigned n) {
  block.random ^= block.random << 13;  // xorshift64
  block.random ^= block.random >> 7;
  block.random ^= block.random << 17;
  return static_cast<unsigned>(block.random >> 32) % n;
}

int pick_in_order(Block& block, std::uint32_t mask) {
  if (block.launch->options.order == Order::reversed) return 31 - std::countl_zero(mask);
  const int start = static_cast<int>(random_below(block, 32));
  return (std::countr_zero(std::rotr(mask, start)) + start) & 31;
}

void pause_for_counting() {
  Lane& lane = *running;
  lane.warp->ready &= ~lane.bit;
  lane.warp->paused |= lane.bit;
  suspend_lane();
}

void end_lane() {
  running->abandoned = true;  // this stack is never continued; the next block restarts it
  finish_lane();
  __builtin_unreachable();
}

Group& find_group(Lane& lane, std::uint32_t& mask, Collective operation, const void* pc) {
  Warp& warp = *lane.warp;
  if (!(mask & lane.bit)) {
    report_not_in_mask(lane, mask, pc);
    mask |= lane.bit;
  }
  for (int g = 0; g < warp.groups_used; ++g) {
    if (warp.groups[g].mask != mask) continue;
    if (warp.groups[g].operation != operation) report_divergent_collective(lane, warp.groups[g], pc);
    return warp.groups[g];
  }
  Group& group = warp.groups[warp.groups_used++];
  group = {mask, 0, operation};
  return group;
}

int block_barrier(BarrierResult kind, bool predicate, Where where) {
  Lane* lane = running;
  if (lane == nullptr) return 0;
  Block& block = *lane->block;
  if (block.arrived == 0) {
    block.barrier_where = where;
  } else if (block.barrier_where.line != where.line || !same_file(block.barrier_where, where)) [[unlikely]] {
    report_divergent_barrier(*lane, where);
  }
  lane->waits_at = __builtin_return_address(0);
  ++block.arrived;
  block.barrier_true += predicate;
  Warp& warp = *lane->warp;
  if (block.tracer != nullptr) [[unlikely]]
    block.tracer->begin_wait(warp, lane->waits_at, "__syncthreads");
  warp.at_barrier |= lane->bit;
  warp.ready &= ~lane->bit;
  if (block.arrived == block.alive) {
    complete_block_barrier(block);
  } else {
    suspend_lane();
  }
  switch (kind) {
    case BarrierResult::none:
      return 0;
    case BarrierResult::count:
      return block.barrier_result_true;
    case BarrierResult::all:
      return block.barrier_result_true == block.barrier_result_count;
    case BarrierResult::any:
      return block.barrier_result_true > 0;
  }
  return 0;
}

}  // namespace simt
