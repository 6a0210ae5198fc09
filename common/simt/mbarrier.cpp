// mbarriers (PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier"). A phase completes when
// there are no pending arrivals and no pending transaction bytes.
#include <algorithm>

#include "common/simt/asynchrony.hpp"
#include "common/simt/scheduler.hpp"
#include "common/simt/shared_memory.hpp"

namespace simt {

std::string name_of(const Block& block, const Mbarrier& barrier) {
  const Variable variable = block.shared->variable(barrier.address);
  return variable.name + variable.part;
}

Mbarrier* Asynchrony::barrier_at(std::uintptr_t address) {
  for (Mbarrier& barrier : barriers_) {
    if (barrier.address == address) return &barrier;
  }
  return nullptr;
}

void Asynchrony::fence_barriers(const Lane& lane) {
  for (Mbarrier& barrier : barriers_) barrier.fenced |= barrier.init_thread == lane.linear;
}

void name_expected(Finding& finding, const Block& block, const Mbarrier& barrier) {
  finding.variable.name = name_of(block, barrier);
  if (barrier.expect_pc == nullptr) return;
  finding.other = side_of(barrier.expect_pc, "expects bytes", barrier.expect_thread);
}

/// Reports a phase that completes before copies issued in it, whose bytes it does not expect.
void Asynchrony::report_early_end(const Mbarrier& barrier) {
  const BulkCopy* late = nullptr;
  std::uint64_t bytes = 0;
  for (const BulkCopy& copy : copies) {
    if (copy.stores() || copy.barrier != index_of(barrier) || copy.phase != barrier.phase) continue;
    if (late == nullptr) late = &copy;
    bytes += copy.map.box_bytes();
  }
  if (late == nullptr || block_.damaged) return;
  Finding finding = finding_of(*late->issuer, Mistake::barrier_bytes, late->pc, late->action());
  name_expected(finding, block_, barrier);
  finding.what = words("phase ", barrier.phase, " of the mbarrier completes while ", bytes,
                       " unexpected bytes are still in flight; it expected ", barrier.awaited);
  finding.advice = kExpectAll;
  note_finding(*late->issuer, std::move(finding));
  block_.damaged = true;  // consequences are not reported
}

void Asynchrony::complete_phase(Mbarrier& barrier) {
  if (barrier.missing != 0 || barrier.bytes != 0) return;
  report_early_end(barrier);
  barrier.arrived_before = barrier.arrived;
  barrier.arrived_before.phase = barrier.phase;
  barrier.arrived = {};
  barrier.passed = barrier.gathering.take();
  ++barrier.phase;
  barrier.missing = barrier.arrivals;
  barrier.awaited = 0;
  for (Lane* lane : barrier.waiting) {
    lane->knows = clocks.joined(lane->knows, barrier.passed);
    passed(*lane, index_of(barrier)) = {static_cast<std::int32_t>(barrier.phase - 1), false};
    lane->last_arrivals = barrier.arrived_before;
    wake(*lane);
  }
  barrier.waiting.clear();
}

namespace {

Finding misuse(const Lane& lane, const void* pc, const char* action, std::uintptr_t address, std::string what,
               std::string advice) {
  const SharedMemory& shared = *lane.block->shared;
  return finding_of(lane, Mistake::barrier_misuse, pc, action, std::move(what), std::move(advice),
                    shared.contains(address) ? shared.variable(address) : Variable{});
}

}  // namespace

/// The mbarrier that an instruction names; ends the lane if there is none.
Mbarrier& used_barrier(Lane& lane, const std::uint64_t* at, const char* action, const void* pc) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  Mbarrier* barrier = asynchrony(lane).barrier_at(address);
  if (barrier == nullptr) {
    refuse(
        lane,
        misuse(
            lane, pc, action, address,
            lane.block->shared->contains(address) ? "no mbarrier has been initialised here"
                                                  : "the mbarrier is not in shared memory",
            "let one thread call mbarrier_init, then fence_mbarrier_init; then call __syncthreads() in all threads"));
  }
  if (!ordered_before(lane, barrier->init_thread, barrier->init_stamp) && !lane.block->damaged) {
    Finding finding =
        misuse(lane, pc, action, address, "nothing makes this thread wait until the mbarrier is initialised",
               "put a __syncthreads() between mbarrier_init and the first use by other threads");
    finding.other = side_of(barrier->init_pc, "initialises the mbarrier", barrier->init_thread);
    note_finding(lane, std::move(finding));
  }
  return *barrier;
}

void mbarrier_init(std::uint64_t* at, int arrivals) {
  Lane& lane = *running;
  Asynchrony& all = asynchrony(lane);
  const void* pc = __builtin_return_address(0);
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  SharedMemory& shared = *lane.block->shared;
  const char* action = "initialises an mbarrier";
  if (!shared.contains(address) || address % 8 != 0) {
    refuse(lane, misuse(lane, pc, action, address, "an mbarrier must be 8 bytes of shared memory at a multiple of 8",
                        "declare it in shared memory as an Mbarrier"));
  }
  shared.check_bounds(lane, address, 8, Access::write, pc);
  constexpr int kMostArrivals = (1 << 20) - 1;
  if (arrivals < 1 || arrivals > kMostArrivals) {
    refuse(lane,
           misuse(lane, pc, action, address, words("an arrival count of ", arrivals, "; allowed are 1 to 1048575"),
                  "pass the number of threads that arrive in each phase"));
  }
  if (const Mbarrier* old = all.barrier_at(address)) {
    Finding finding = misuse(lane, pc, action, address, "the mbarrier is initialised a second time",
                             "let one thread of the block initialise it, once");
    finding.other = side_of(old->init_pc, action, old->init_thread);
    refuse(lane, std::move(finding));
  }
  if (all.barrier_count() == kMostBarriers) {
    refuse(lane,
           misuse(lane, pc, action, address, "the simulator supports at most 64 mbarriers per block", "use fewer"));
  }
  Mbarrier& barrier = all.add_barrier();
  barrier.address = address;
  barrier.arrivals = barrier.missing = arrivals;
  barrier.init_thread = lane.linear;
  barrier.init_stamp = lane.block->clock;
  barrier.init_pc = pc;
  ++lane.block->clock;
}

void mbarrier_fence_init() {
  asynchrony(*running).fence_barriers(*running);
}

/// The lane expects bytes for a phase that still waits for those of an earlier copy. If its next copy goes to the same
/// destination, the stage is refilled before it can have been released. Otherwise the mbarrier belongs to another
/// buffer. `to`: the destination of the copy, 0 if none has been issued.
void refuse_refill(Lane& lane, std::uintptr_t to) {
  if (lane.expects_again_at == nullptr) return;
  Asynchrony& all = *lane.block->asynchrony;
  const Mbarrier& barrier = all.barrier(lane.expects_again);
  const void* pc = lane.expects_again_at;
  const std::string name = name_of(*lane.block, barrier);
  lane.expects_again_at = nullptr;
  for (const BulkCopy& copy : all.copies) {
    if (copy.stores() || copy.barrier != lane.expects_again) continue;
    Finding finding =
        finding_of(lane, Mistake::overwritten_early, pc, "expects bytes",
                   words("the copy of phase ", barrier.phase, " of ", name,
                         " to this stage is still in flight, and this thread starts to fill the stage again"),
                   "wait at an mbarrier until all readers have released the stage, before it is filled again",
                   lane.block->shared->variable(copy.shared));
    if (to != 0 && to != copy.shared) {
      const Variable other = lane.block->shared->variable(to);
      finding.mistake = Mistake::surplus_arrival;
      finding.what =
          words("phase ", barrier.phase, " of ", name,
                " still waits for a copy in flight; this thread expects the bytes of another copy there, to ",
                other.name, other.part, ", for which the phase has no arrival left");
      finding.advice =
          "let one arrival expect the bytes of all copies that signal the phase, or use one mbarrier per copy";
    } else if (lane.last_wait >= 0 && all.passed(lane, lane.last_wait).repeated) {
      finding.mistake = Mistake::wrong_phase;
      finding.what += "; the wait at " + name_of(*lane.block, all.barrier(lane.last_wait)) +
                      " returned immediately: the phase with its parity had already completed";
      finding.advice = "flip the parity each time the ring buffer wraps around";
    }
    finding.other = {copy.pc, copy.action(), copy.issuer->warp->index, copy.issuer->bit};
    refuse(lane, std::move(finding));
  }
}

namespace {

/// Whether a copy that signals the mbarrier is in flight.
bool is_awaited(const Asynchrony& all, const Mbarrier& barrier) {
  return std::ranges::any_of(
      all.copies, [&](const BulkCopy& copy) { return !copy.stores() && copy.barrier == all.index_of(barrier); });
}

void arrive(Lane& lane, Mbarrier& barrier, const char* action, const void* pc) {
  Asynchrony& all = *lane.block->asynchrony;
  ++lane.block->counters.mbarrier_arrivals;
  if (barrier.missing == 0) {
    Finding finding = misuse(lane, pc, action, barrier.address,
                             words("phase ", barrier.phase, " already has all of its ", barrier.arrivals,
                                   " arrivals, and waits for transaction bytes"),
                             "arrive once per phase, and use a separate mbarrier for other events; or initialise the "
                             "mbarrier with the number of arrivals in each phase");
    finding.mistake = Mistake::surplus_arrival;
    refuse(lane, std::move(finding));
  }
  --barrier.missing;
  ++barrier.arrived.count;
  barrier.arrived.warps |= 1u << lane.warp->index;
  barrier.arrived.lanes |= lane.bit;
  barrier.lanes_ever |= lane.bit;
  release(lane, barrier.gathering);
  all.complete_phase(barrier);
}

}  // namespace

void mbarrier_arrive(std::uint64_t* at) {
  Lane& lane = *running;
  const void* pc = __builtin_return_address(0);
  refuse_refill(lane, 0);
  arrive(lane, used_barrier(lane, at, "arrives", pc), "arrives", pc);
  if (lane.shuffles_at_read >= 0)
    lane.block->counters.shuffles_before_arrival += std::uint64_t(lane.warp->shuffles - lane.shuffles_at_read);
  lane.shuffles_at_read = -1;
}

void mbarrier_arrive_expect(std::uint64_t* at, std::int64_t bytes) {
  Lane& lane = *running;
  const void* pc = __builtin_return_address(0);
  refuse_refill(lane, 0);
  Mbarrier& barrier = used_barrier(lane, at, "expects bytes", pc);
  if (bytes < 0 || bytes >= 1 << 20) {
    refuse(lane, misuse(lane, pc, "expects bytes", barrier.address,
                        words(bytes, " transaction bytes are expected; allowed are 0 to 1048575"),
                        "pass the bytes of the loaded boxes"));
  }
  if (barrier.missing == 0 && is_awaited(*lane.block->asynchrony, barrier)) {
    lane.expects_again_at = pc, lane.expects_again = lane.block->asynchrony->index_of(barrier);
    return;  // reported when the destination of the copy is known
  }
  barrier.bytes += bytes;
  barrier.awaited += bytes;
  barrier.expect_pc = pc;
  barrier.expect_thread = lane.linear;
  arrive(lane, barrier, "expects bytes", pc);
}

void mbarrier_wait(std::uint64_t* at, int parity) {
  Lane& lane = *running;
  const void* pc = __builtin_return_address(0);
  refuse_refill(lane, 0);
  Mbarrier& barrier = used_barrier(lane, at, "waits", pc);
  Asynchrony& all = *lane.block->asynchrony;
  ++lane.block->counters.mbarrier_waits;
  ++lane.waits_since_mma;
  const int index = all.index_of(barrier);
  lane.last_wait = index;
  lane.waits_at = pc;
  if ((barrier.phase & 1) == (parity & 1)) {
    barrier.waiting.push_back(&lane);
    sleep(Sleep::mbarrier, index, parity & 1);
    return;
  }
  PassedPhase& passed = all.passed(lane, index);
  const auto phase = static_cast<std::int32_t>(barrier.phase - 1);
  passed = {phase, passed.phase == phase};
  lane.last_arrivals = barrier.arrived_before;
  lane.knows = all.clocks.joined(lane.knows, barrier.passed);
}

}  // namespace simt
