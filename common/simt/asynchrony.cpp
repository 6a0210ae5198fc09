// The lifetime of a block's asynchronous state: its start and end, sleeping lanes, and the operations carried out when
// no thread can run.
//
// One rule holds for every asynchronous operation: it is carried out when its result is waited for, not before. So late
// reads observe data that the kernel has overwritten too early, and early uses observe the old data. Copies are carried
// out one at a time, when no thread of the block can run: in the order of issue, reversed, or shuffled and sometimes
// earlier, as Options::order says.
#include "common/simt/asynchrony.hpp"

#include <algorithm>

#include "common/simt/program.hpp"
#include "common/simt/scheduler.hpp"
#include "common/simt/shared_memory.hpp"
#include "common/simt/tracer.hpp"
#include "common/simt/wgmma.hpp"

namespace simt {

void Asynchrony::begin_block() {
  clocks.forget();
  barriers_.clear();
  barriers_.reserve(kMostBarriers);  // keeps the addresses of barriers valid
  passed_.assign(std::size_t(block_.threads) * kMostBarriers, {});
  for (NamedBarrier& barrier : named) barrier = {};
  copies.clear();
  writes.clear();
  stored.clear();
  for (Warpgroup& group : warpgroups) {
    group.wgmmas.clear();
    group.group_ends.clear();
    group.committers.clear();
    group.waiting.clear();
    group.first_wgmma = group.first_group = group.executed = group.read = 0;
    group.read_stamp = 0;
    group.lanes.fill({});
  }
  registers = {};
  const int each = 65536 / block_.threads / 8 * 8;
  registers.of_warp.fill(std::min(each, 256));
  registers.free = 65536 - std::min(each, 256) * block_.warp_count * kWarpSize;
  // Everything before the last block barrier is ordered before every thread.
  const auto base = std::make_shared<Knowledge>();
  std::fill_n(base->known, kFirstBarrierAgent, block_.interval_began);
  for (int i = 0; i < block_.threads; ++i) {
    Lane& lane = block_.lanes[i];
    pending.clear(lane);
    lane.knows = base;
    lane.fenced_at = 0;
    lane.last_wait = -1;
    lane.last_arrivals = {};
    lane.expects_again_at = nullptr;
    lane.store_groups = 0;
    lane.issue_window = Lane::IssueWindow::none;
    lane.shuffles_at_read = -1;
    lane.sleep = Sleep::none;
  }
}

Asynchrony& asynchrony(Lane& lane) {
  Block& block = *lane.block;
  if (block.asynchrony == nullptr) [[unlikely]] {
    if (!block.asynchrony_kept) block.asynchrony_kept = std::make_shared<Asynchrony>(block);
    block.asynchrony = block.asynchrony_kept.get();
    block.asynchrony->begin_block();
    block.shared->begin_ordering();
  }
  return *block.asynchrony;
}

void sleep(Sleep reason, int what, int detail) {
  Lane& lane = *running;
  lane.sleep = reason;
  lane.sleeps_for = what;
  lane.sleep_detail = detail;
  if (lane.block->tracer != nullptr) [[unlikely]]
    lane.block->tracer->begin_wait(*lane.warp, lane.waits_at, lane.block->asynchrony->awaited(lane));
  lane.warp->ready &= ~lane.bit;
  suspend_lane();
}

void wake(Lane& lane) {
  if (lane.block->tracer != nullptr) [[unlikely]]
    lane.block->tracer->end_wait(*lane.warp);
  lane.sleep = Sleep::none;
  lane.warp->ready |= lane.bit;
  lane.block->runnable |= 1u << lane.warp->index;
}

void Asynchrony::carry_out(std::size_t copy) {
  BulkCopy one = std::move(copies[copy]);
  copies.erase(copies.begin() + static_cast<std::ptrdiff_t>(copy));
  land(block_, std::move(one));
}

const Asynchrony::Stored* Asynchrony::store_from(std::uintptr_t address, std::uint32_t pc, int warp,
                                                 std::uint32_t lanes) const {
  const auto store = std::find_if(stored.rbegin(), stored.rend(), [&](const Stored& at) {
    return at.pc == pc && at.low <= address && address < at.high && int(at.thread) / kWarpSize == warp &&
           lanes >> at.thread % kWarpSize & 1;
  });
  return store == stored.rend() ? nullptr : &*store;
}

/// Stores wait for their thread; only loads complete on their own.
bool Asynchrony::advance() {
  if (advance_wgmmas(block_)) return true;
  std::vector<std::size_t> loads;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (!copies[i].stores()) loads.push_back(i);
  }
  if (loads.empty()) return false;
  const Order order = block_.launch->options.order;
  std::size_t which = order == Order::reversed ? loads.size() - 1 : 0;
  if (order == Order::shuffled) which = random_below(block_, static_cast<unsigned>(loads.size()));
  carry_out(loads[which]);
  return true;
}

void Asynchrony::advance_at_random() {
  if (!copies.empty() && random_below(block_, 4) == 0) advance();
}

void Asynchrony::end_lane(Lane& lane) {
  // Stores that were not waited for are still carried out, and reported.
  for (std::size_t i = 0; i < copies.size();) {
    if (!copies[i].stores() || copies[i].issuer != &lane) {
      ++i;
      continue;
    }
    const BulkCopy& copy = copies[i];
    if (!block_.damaged) {
      note_finding(lane, finding_of(lane, Mistake::unfinished_store, copy.pc, copy.action(),
                                    copy.group < 0 ? "the thread ends before the store was committed and waited for"
                                                   : "the thread ends without waiting for the store: shared memory may "
                                                     "be released before TMA has read it",
                                    std::string(copy.group < 0 ? "call cp_async_bulk_commit_group() after it, and then "
                                                               : "call ") +
                                        "cp_async_bulk_wait_group_read<0>() in the thread that issued the store",
                                    block_.shared->variable(copy.shared)));
    }
    carry_out(i);
  }
  end_wgmmas(lane);
  end_registers(lane);
}

void Asynchrony::end_block() {
  while (advance()) {
  }
  end_stores(block_);
  if (!block_.damaged) {
    for (const Mbarrier& barrier : barriers_) {
      if (barrier.bytes == 0) continue;
      const bool unexpected = barrier.bytes < 0;
      const Lane& lane = block_.lanes[unexpected ? barrier.copy_thread : barrier.expect_thread];
      Finding finding = finding_of(
          lane, Mistake::barrier_bytes, unexpected ? barrier.copy_pc : barrier.expect_pc,
          unexpected ? "issues a copy" : "expects bytes",
          !unexpected ? words("the block ends, but ", barrier.bytes, " of ", barrier.awaited,
                              " expected transaction bytes never arrived")
                      : words("the block ends after ", -barrier.bytes, " unexpected transaction bytes have arrived"),
          "expect exactly the bytes that are loaded, including those outside the tensor");
      finding.variable.name = name_of(block_, barrier);
      note_finding(lane, std::move(finding));
    }
    for (int first = 0; first < block_.warp_count; first += 4) {
      int calls = 0, last = std::min(first + 4, block_.warp_count), most = 0;
      for (int w = first; w < last; ++w) {
        calls += registers.calls[w] == registers.calls[first] && registers.requested[w] == registers.requested[first];
        most = std::max(most, registers.calls[w]);
      }
      if (most == 0 || calls == last - first) continue;
      int with = first;
      while (registers.calls[with] != most) ++with;
      const Lane& lane = block_.lanes[std::ptrdiff_t(with) * kWarpSize];
      Finding finding = finding_of(
          lane, Mistake::register_count, registers.call_pc[with], "calls setmaxnreg",
          words("not all warps of the warpgroup (warps ", first, " to ", last - 1, ") execute the same setmaxnreg"),
          "let all four warps of the warpgroup execute it before they diverge");
      finding.side.lanes = ~0u;
      note_finding(lane, std::move(finding));
    }
  }
  for (int i = 0; i < block_.threads; ++i) block_.lanes[i].knows = nullptr;
}

const BulkCopy* Asynchrony::load_to(std::uintptr_t address) const {
  for (auto copy = copies.rbegin(); copy != copies.rend(); ++copy) {
    if (!copy->stores() && address - copy->shared < copy->map.box_bytes()) return &*copy;
  }
  return nullptr;
}

std::string Asynchrony::awaited(const Lane& lane) const {
  switch (lane.sleep) {
    case Sleep::none:
      break;
    case Sleep::mbarrier: {
      const Mbarrier& barrier = barriers_[std::size_t(lane.sleeps_for)];
      std::string text = words(name_of(block_, barrier), ", phase ", barrier.phase, " (parity ", barrier.phase & 1,
                               "): ", barrier.arrivals - barrier.missing, " of ", barrier.arrivals, " arrivals");
      if (barrier.awaited != 0) {
        text += words(", ", barrier.awaited - barrier.bytes, " of ", barrier.awaited, " bytes");
      }
      return text;
    }
    case Sleep::named_barrier: {
      const NamedBarrier& barrier = named[lane.sleeps_for];
      return words("barrier ", lane.sleeps_for, ": ", barrier.arrived, " of ", barrier.threads, " threads");
    }
    case Sleep::wgmmas:
      return words("wgmma_wait_group of warpgroup ", lane.sleeps_for, ": ",
                   warpgroups[std::size_t(lane.sleeps_for)].waiting.size(), " of 128 threads");
    case Sleep::registers:
      return words("setmaxnreg to ", lane.sleep_detail, ": ", registers.free, " registers are free");
  }
  return "";
}

bool Asynchrony::report_missing_bytes() {
  bool any = registers.waiting != 0;
  for (std::uint32_t m = registers.waiting; m != 0; m &= m - 1) {
    const auto w = std::size_t(std::countr_zero(m));
    const Lane& lane = block_.lanes[w * kWarpSize];
    Finding finding = finding_of(
        lane, Mistake::register_count, registers.call_pc[w], "calls setmaxnreg",
        words("no thread can continue: the warp requests ", registers.requested[w], " registers per thread and has ",
              registers.of_warp[w], "; ", registers.free, " registers are free"),
        "let the other warps release enough registers with setmaxnreg.dec: all threads together have 65536");
    finding.side.lanes = ~0u;
    note_finding(lane, std::move(finding));
  }
  for (const Mbarrier& barrier : barriers_) {
    if (barrier.waiting.empty() || barrier.missing != 0 || barrier.bytes <= 0) continue;
    any = true;
    const Lane& waiter = *barrier.waiting.front();
    Finding finding = finding_of(waiter, Mistake::barrier_bytes, barrier.expect_pc, "expects bytes");
    finding.side.warp = barrier.expect_thread / kWarpSize;
    finding.side.lanes = 1u << barrier.expect_thread % kWarpSize;
    finding.variable.name = name_of(block_, barrier);
    finding.other = {waiter.waits_at, "waits", waiter.warp->index, waiter.bit};
    finding.what =
        words("no thread can continue: ", barrier.bytes, " of the ", barrier.awaited, " transaction bytes that phase ",
              barrier.phase, " of the mbarrier expects have not arrived, and no copy is in flight");
    finding.advice = "expect exactly the bytes that are loaded";
    note_finding(waiter, std::move(finding));
  }
  return any;
}

}  // namespace simt
