// Shared memory in blocks that are ordered by vector clocks. This is the counterpart of the shadow in
// shared_memory.cpp, which is faster and serves blocks that only use __syncthreads. Besides threads, TMA reads and
// writes here, and the tensor cores read.
#include <algorithm>
#include <bit>

#include "common/simt/asynchrony.hpp"
#include "common/simt/detect.hpp"
#include "common/simt/program.hpp"
#include "common/simt/shared_memory.hpp"

namespace simt {

void SharedMemory::begin_ordering() {
  ordering_ = true;
  dynamic_.begin_ordering();
  statics_.begin_ordering();
}

namespace {

std::string phase_text(std::int64_t phase) {
  return words("phase ", phase, " (parity ", phase & 1, ")");
}

/// Turns a finding about a stage that was filled too early into one about the mbarrier that its copy has waited for, if
/// the completed phase has counted other warps than `reader`, a warp that reads.
bool explain_arrivals(Finding& finding, const Block& block, int waited, const Arrivals& arrivals, int reader) {
  if (waited < 0 || arrivals.warps == 0 || arrivals.warps >> reader & 1) return false;
  finding.mistake = Mistake::arrival_count;
  finding.what =
      words(phase_text(arrivals.phase), " of ", name_of(block, block.asynchrony->barrier(waited)), " completed after ",
            arrivals.count, arrivals.count == 1 ? " arrival, of " : " arrivals, of ", warps_text(arrivals.warps), "; ",
            warps_text(1u << reader), " also reads this location, and had not arrived");
  finding.advice =
      "the arrival count of mbarrier_init must equal the arrivals in each phase, and every reader must arrive: one "
      "lane of each warp, or every thread";
  return true;
}

/// Explains an access to the bytes of a copy by the thread's waits at the mbarrier that the copy signals.
void explain_touch(Finding& finding, const Lane& lane, const Cell& cell, std::uintptr_t address, bool reads) {
  Block& block = *lane.block;
  Asynchrony& all = *block.asynchrony;
  const int index = int(cell.write_thread - kFirstBarrierAgent);
  const Mbarrier& barrier = all.barrier(index);
  const bool pending = cell.flags & Cell::kPending;
  const BulkCopy* copy = pending ? all.load_to(address) : nullptr;
  const std::int64_t phase = copy != nullptr ? copy->phase : barrier.phase - 1;
  const PassedPhase passed = all.passed(lane, index);
  const std::string name = name_of(block, barrier);
  const auto waited_for_unread = [&](const Cell& other) {
    const int warp = lane.warp->index;
    const Reader& own = block.shared->last_read(other, warp);
    const Reader& group =
        block.shared->last_read(other, warp - warp % 4);  // the tensor cores' reads are recorded there
    return other.write_thread >= kFirstBarrierAgent && other.write_thread != cell.write_thread &&
           other.write_stamp >= block.block_began && !(other.flags & Cell::kPending) && own.stamp < other.write_stamp &&
           (group.lanes != 0 || group.stamp < other.write_stamp) &&
           ordered_before(lane, other.write_thread, other.write_stamp);
  };
  finding.mistake = Mistake::unfinished_copy;
  finding.what =
      pending ? "the TMA load of these bytes is still in flight" : "nothing makes this access wait for the copy";
  finding.advice =
      words("call mbarrier_wait_parity(", name, ", ", phase & 1, ") in every warp that reads, before the read");
  finding.other = {address_of_code(cell.write_pc),
                   copy != nullptr ? copy->action() : block.shared->action_of_load(address),
                   copy != nullptr ? copy->issuer->warp->index : -1, copy != nullptr ? copy->issuer->bit : 0};
  // A wait that returned immediately explains by itself why the bytes are missing, whatever other stages hold.
  const bool at_once = (passed.repeated || passed.phase == -1) && passed.phase != phase;
  if (reads && !at_once) {
    if (const std::uintptr_t place = block.shared->in_another_stage(address, waited_for_unread))
      return explain_wrong_stage(finding, block.shared->variable(place));
  }
  if (passed.phase == -2) {
    finding.what += ": this thread has not waited for " + name;
    return;
  }
  if (at_once) {
    finding.mistake = Mistake::wrong_phase;
    finding.what += "; the wait at " + name + " returned immediately: it selected " +
                    (passed.phase == -1 ? "the phase before the first (parity 1)" : phase_text(passed.phase)) +
                    ", which had already completed, but the copy signals " + phase_text(phase);
    finding.advice =
        "pass the parity of the phase to wait for: 0 for the first, then 1, 0, …; flip it each time the ring buffer "
        "wraps around";
  } else if (passed.phase == phase) {
    finding.what += ": this thread has waited for " + phase_text(phase) + " of " + name +
                    ", which did not expect the bytes and completed without them";
    finding.advice = kExpectAll;
  } else if (passed.phase > phase ||
             !explain_arrivals(finding, block, barrier.copy_waited, barrier.copy_arrivals, lane.warp->index)) {
    finding.what += ": this thread's last wait for " + name + " was for " + phase_text(passed.phase) +
                    ", but the copy signals " + phase_text(phase);
  }
}

}  // namespace

void explain_arrivals_of_lanes(Finding& finding, const Lane& lane, int warp, std::uint32_t lanes) {
  if (lane.last_wait < 0 || warp == lane.warp->index) return;
  const Mbarrier& barrier = lane.block->asynchrony->barrier(lane.last_wait);
  const Arrivals& arrivals = lane.last_arrivals;
  if (finding.mistake == Mistake::write_after_read && arrivals.warps >> warp & 1 && (arrivals.lanes & lanes) == lanes) {
    // Their reads before the arrival would be ordered.
    finding.mistake = Mistake::overwritten_early;
    finding.what = words(lanes_text(lanes), " of ", warps_text(1u << warp), " had already arrived at ",
                         name_of(*lane.block, barrier), ", at which the write waits, and read afterwards");
    finding.advice = "arrive after the last read";
    return;
  }
  if (arrivals.count == 0 || arrivals.lanes & lanes || (barrier.lanes_ever & lanes) != lanes) return;
  if (barrier.arrivals >= std::popcount(barrier.lanes_ever)) return;  // its arrival count covers all of them
  finding.mistake = Mistake::arrival_count;
  finding.what =
      words(phase_text(arrivals.phase), " of ", name_of(*lane.block, barrier), " completed after ", arrivals.count,
            arrivals.count == 1 ? " arrival, of " : " arrivals, of ", lanes_text(arrivals.lanes),
            ", without the arrival of ", lanes_text(lanes), " of ", warps_text(1u << warp));
  finding.advice = "pass the number of all arrivals in a phase to mbarrier_init: here every one of these lanes arrives";
}

// --- Ordinary accesses -----------------------------------------------------------------------------------------------

void SharedMemory::read_ordered(Lane& lane, Cell* cell, Cell* end, std::uintptr_t address, std::uint32_t lanes,
                                const void* pc, std::uint8_t bytes) {
  const Block& block = *lane.block;
  const Warp& warp = *lane.warp;
  Shadowed& memory = shadow(address);
  const std::uint32_t code = code_of(pc), my_warp = 1u << warp.index;
  const Cell* before = nullptr;  // the last cell written before this read
  for (; cell != end; ++cell, address += 2) {
    const Agent writer = cell->write_thread;
    const bool pending = cell->flags & Cell::kPending;
    if (cell->write_stamp < block.block_began) {
      if (suspects_.size() < kMostSuspects) suspects_.push_back({address, pc, lane.linear, false});
    } else if (pending || before == nullptr || before->write_thread != writer ||
               before->write_stamp != cell->write_stamp) {
      const bool ordered = !pending && ordered_before(lane, writer, cell->write_stamp);
      if (ordered) {
        before = cell;
      } else if (writer >= kFirstBarrierAgent) {
        Finding finding = finding_of(lane, Mistake::unfinished_copy, pc, "reads");
        finding.side.lanes = lanes;
        finding.variable = variable(address);
        explain_touch(finding, lane, *cell, address, true);
        note_finding(lane, std::move(finding));
      } else if (pending || (cell->flags >> Cell::kWriteBytes & bytes)) {
        report_race(lane, *cell, address, false, true, lanes, 1u << writer % kWarpSize, int(writer) / kWarpSize, pc);
      }
    }

    if (cell->read_stamp < block.block_began) cell->read_warps = 0, cell->flags &= ~(3 << Cell::kReadBytes);
    Reader& reader = memory.reader(cell, warp.index);
    if (reader.stamp != Reader::kInFlight || !(cell->read_warps & my_warp)) {
      const bool same = cell->read_warps & my_warp && reader.lanes != 0 && reader.stamp >= warp.epoch &&
                        reader.stamp >= block.interval_began;
      reader = {block.clock, code, same ? reader.lanes | lanes : lanes};
    }
    cell->read_warps |= my_warp;
    cell->read_stamp = block.clock;
    cell->read_warp = static_cast<std::uint8_t>(warp.index);
    cell->read_lanes = lanes;
    cell->read_pc = code;
    cell->read_step = lane.step;
    cell->flags = static_cast<std::uint8_t>(cell->flags | bytes << Cell::kReadBytes);
  }
}

// --- Overwritten memory ----------------------------------------------------------------------------------------------

Finding SharedMemory::finding_of_write(const Overwrite& write, Mistake mistake) const {
  Finding finding = finding_of(write.lane, mistake, write.pc, write.action);
  finding.variable = variable(write.address);
  return finding;
}

/// Whether an access to the cell is not ordered before the write; reports it.
bool SharedMemory::judge_overwritten(const Overwrite& write) {
  return judge_earlier_write(write) || judge_earlier_reads(write);
}

bool SharedMemory::judge_earlier_write(const Overwrite& write) {
  Lane& lane = write.lane;
  const Cell& cell = write.cell;
  if (cell.write_stamp < lane.block->block_began) return false;
  const Agent writer = cell.write_thread;
  const bool pending = cell.flags & Cell::kPending;
  if (writer >= kFirstBarrierAgent) {
    if (!pending && ordered_before(lane, writer, cell.write_stamp)) return false;
    report_over_copy(write);
    return true;
  }
  const int warp = int(writer) / kWarpSize;
  const std::uint32_t lanes = 1u << writer % kWarpSize;
  if (pending || (cell.flags >> Cell::kWriteBytes & write.bytes && writer != lane.linear &&
                  !(cell.flags & write.flags & Cell::kAtomic) && !ordered_before(lane, writer, cell.write_stamp))) {
    if (!write.copies) {
      report_race(lane, cell, write.address, true, true, lane.bit, lanes, warp, write.pc);
      return true;
    }
    Finding finding = finding_of_write(write, Mistake::overwritten_early);
    finding.other = {address_of_code(cell.write_pc), "writes", warp, lanes};
    finding.what = "nothing makes the copy wait for the write: either may come last";
    finding.advice = "let the thread that issues the copy wait at a barrier for the writing threads";
    note_finding(lane, std::move(finding));
    return true;
  }
  if (write.copies && !seen_by_async_proxy(lane, writer, cell.write_stamp)) {
    Finding finding = finding_of_write(write, Mistake::missing_proxy_fence);
    finding.other = {address_of_code(cell.write_pc), "writes", warp, lanes};
    finding.what = "TMA is not ordered after generic-proxy writes to the same bytes: either may come last";
    finding.advice = "call fence_proxy_async() in the writing threads, after the writes and before the barrier";
    note_finding(lane, std::move(finding));
    return true;
  }
  return false;
}

/// The cell was written by a copy that is not ordered before the write.
void SharedMemory::report_over_copy(const Overwrite& write) {
  Lane& lane = write.lane;
  Finding finding = finding_of_write(write, Mistake::unfinished_copy);
  explain_touch(finding, lane, write.cell, write.address, false);
  const BulkCopy* other = lane.block->asynchrony->load_to(write.address);
  const bool pending = write.cell.flags & Cell::kPending;
  if (write.copies && pending && other != nullptr && other->issuer->warp == lane.warp && other->issuer != &lane &&
      other->pc == write.pc) {
    finding.mistake = Mistake::overwritten_early;
    finding.what = "several lanes of a warp issue the same copy: its bytes arrive once per lane";
    finding.advice = "let one lane of the warp issue copies: if (elect_sync()), or lane 0";
  } else if (write.copies && finding.mistake == Mistake::unfinished_copy) {
    finding.mistake = Mistake::overwritten_early;
  }
  note_finding(lane, std::move(finding));
}

namespace {

/// The lanes of warp `warp` whose last read of the cell is not ordered before the lane's next operation.
std::uint32_t lanes_that_may_read(const Lane& lane, const Reader& reader, int warp) {
  if (reader.stamp == Reader::kInFlight) return reader.lanes != 0 ? reader.lanes : ~0u;
  if (reader.lanes == 0) return ordered_before(lane, kFirstTensorAgent + Agent(warp / 4), reader.stamp) ? 0 : ~0u;
  std::uint32_t lanes = 0;
  if (reader.stamp < lane.block->interval_began) return lanes;
  for (std::uint32_t l = reader.lanes; l != 0; l &= l - 1) {
    const int other = std::countr_zero(l);
    if (!ordered_before(lane, Agent(warp * kWarpSize + other), reader.stamp)) lanes |= 1u << other;
  }
  return lanes;
}

}  // namespace

bool SharedMemory::judge_earlier_reads(const Overwrite& write) {
  const Cell& cell = write.cell;
  const std::uint32_t block_began = write.lane.block->block_began;
  if (cell.read_stamp < block_began || !(cell.flags >> Cell::kReadBytes & write.bytes)) return false;
  Shadowed& memory = shadow(write.address);
  for (std::uint32_t m = cell.read_warps; m != 0; m &= m - 1) {
    const int warp = std::countr_zero(m);
    const Reader& reader = memory.reader(&cell, warp);
    if (reader.stamp < block_began) continue;
    const std::uint32_t lanes = lanes_that_may_read(write.lane, reader, warp);
    if (lanes == 0) continue;
    report_over_read(write, reader, warp, lanes);
    return true;
  }
  return false;
}

/// The cell was read, or is being read, by lanes that are not ordered before the write.
void SharedMemory::report_over_read(const Overwrite& write, const Reader& reader, int warp, std::uint32_t lanes) {
  Lane& lane = write.lane;
  const bool in_flight = reader.stamp == Reader::kInFlight;
  const auto* store = lane.block->asynchrony->store_from(write.address, reader.pc, warp, lanes);
  const bool unordered = store != nullptr && !write.copies && !ordered_before(lane, store->thread, store->began);
  const bool two_threads =  // an ordinary race
      unordered || (!write.copies && !in_flight && store == nullptr && reader.lanes != 0);
  Finding finding = finding_of_write(write, two_threads ? Mistake::write_after_read : Mistake::overwritten_early);
  finding.other = {address_of_code(reader.pc),
                   in_flight && !unordered ? "is still reading"
                   : store != nullptr      ? store->action
                   : reader.lanes == 0     ? "multiplies"
                                           : "reads",
                   warp, lanes};
  if (unordered) {
    finding.what = "nothing orders the two accesses: TMA may read the old or the new value";
    finding.advice =
        "if the store should send the new value, let its thread wait for this one at a barrier; otherwise let its "
        "thread call cp_async_bulk_wait_group_read, and let this thread wait for it at a barrier";
  } else if (two_threads) {
    finding.what = "nothing makes the write wait for the read: the read may see the new value";
    finding.advice = warp == lane.warp->index ? "put a __syncwarp() between the last read and the write"
                                              : "put a barrier between the last read and the write that overwrites it";
  } else if (in_flight) {
    finding.what = "the overwritten bytes are still being read";
    finding.advice = "wait for it (wgmma_wait_group, cp_async_bulk_wait_group_read) before the buffer is released";
  } else if (store != nullptr) {
    finding.what =
        "TMA may read the overwritten bytes until the thread that issued the store has waited for it, and nothing "
        "makes this write wait for that thread";
    finding.advice =
        "let that thread call cp_async_bulk_wait_group_read, and then synchronise with this thread at a barrier";
  } else {
    finding.what = "nothing makes this write wait until all threads have read the overwritten bytes";
    finding.advice =
        "let every warp that reads arrive at a barrier after its last read (after a __syncwarp() if other lanes read "
        "too), and let the writer wait for all of them";
  }
  if (write.copies) explain_early_copy(write, finding, warp);
  if (two_threads && !unordered) explain_arrivals_of_lanes(finding, lane, warp, lanes);
  note_finding(lane, std::move(finding));
}

/// Explains a copy that overwrites data that warp `reader` reads: the read was not ordered after the copy at all, the
/// producer's wait returned immediately, or the mbarrier has counted other warps.
void SharedMemory::explain_early_copy(const Overwrite& write, Finding& finding, int reader) const {
  const Lane& lane = write.lane;
  const Block& block = *lane.block;
  if (write.cell.write_stamp < block.block_began) {
    finding.mistake = Mistake::unfinished_copy;
    std::swap(finding.side, finding.other);
    finding.what = "the read comes before the copy that loads the bytes, and nothing makes it wait";
    finding.advice = "wait at the copy's mbarrier in every warp that reads";
  } else if (lane.last_wait >= 0 && block.asynchrony->passed(lane, lane.last_wait).repeated) {
    finding.mistake = Mistake::wrong_phase;
    finding.what += "; the wait at " + name_of(block, block.asynchrony->barrier(lane.last_wait)) +
                    " returned immediately: it selected " +
                    phase_text(block.asynchrony->passed(lane, lane.last_wait).phase) + ", which had already completed";
    finding.advice = "flip the parity each time the ring buffer wraps around";
  } else {
    explain_arrivals(finding, block, lane.last_wait, lane.last_arrivals, reader);
  }
}

void SharedMemory::write_ordered(Lane& lane, Cell* cell, Cell* end, std::uintptr_t address, const void* pc,
                                 std::uint8_t bytes, std::uint8_t flags) {
  for (; cell != end; ++cell, address += 2) {
    judge_overwritten({lane, *cell, address, "writes", pc, bytes, flags, false});
    cell->write_stamp = lane.block->clock;
    cell->write_pc = code_of(pc);
    cell->write_thread = lane.linear;
    cell->write_step = lane.step;
    cell->flags =
        static_cast<std::uint8_t>((cell->flags & (3 << Cell::kReadBytes)) | flags | bytes << Cell::kWriteBytes);
  }
}

// --- TMA and the tensor cores ----------------------------------------------------------------------------

void SharedMemory::begin_async_write(Lane& lane, const BulkCopy& copy) {
  const std::uint64_t bytes = copy.map.box_bytes();
  if (statics_.contains(copy.shared)) {
    static_dirty_low_ = std::min(static_dirty_low_, copy.shared);
    static_dirty_high_ = std::max(static_dirty_high_, copy.shared + bytes);
  }
  Shadowed& memory = shadow(copy.shared);
  if (lane.step != 0xffff) ++lane.step;
  bool reported = lane.block->damaged;
  for (std::uint64_t i = 0; i < bytes; i += 2) {
    Cell& cell = *memory.cell(copy.shared + i);
    if (!reported) reported = judge_overwritten({lane, cell, copy.shared + i, copy.action(), copy.pc, 3, 0, true});
    cell.write_stamp = lane.block->clock;
    cell.write_pc = code_of(copy.pc);
    cell.write_thread = static_cast<std::uint16_t>(kFirstBarrierAgent + Agent(copy.barrier));
    cell.write_step = lane.step;
    cell.flags =
        static_cast<std::uint8_t>((cell.flags & (3 << Cell::kReadBytes)) | Cell::kPending | 3 << Cell::kWriteBytes);
  }
}

void SharedMemory::finish_async_write(Block& block, const BulkCopy& copy) {
  Shadowed& memory = shadow(copy.shared);
  const std::uint64_t bytes = copy.map.box_bytes();
  for (std::uint64_t i = 0; i < bytes; i += 2) {
    Cell& cell = *memory.cell(copy.shared + i);
    cell.flags = static_cast<std::uint8_t>(cell.flags & ~Cell::kPending);
    cell.write_stamp = block.clock;
  }
  ++copies_;
  // A bulk copy without tensor map may hold anything: the start of its rows is unknown.
  const auto row = static_cast<std::uint16_t>(copy.is_line() ? 0 : copy.map.box[0] * copy.map.element_bytes);
  for (std::uint64_t i = 0; i < bytes; i += 16) {
    memory.origin(swizzled(copy.shared + i, copy.map.swizzle)) = {copies_, static_cast<std::uint32_t>(i), row,
                                                                  copy.map.swizzle};
  }
}

const Origin* SharedMemory::origin(std::uintptr_t address) {
  Shadowed& memory = shadow(address);
  const Cell& cell = *memory.cell(address);
  if (cell.write_thread < kFirstBarrierAgent || cell.flags & Cell::kPending) return nullptr;
  const Origin& origin = memory.origin(address);
  return origin.copy == 0 || origin.copy > copies_ || origin.row_bytes == 0 ? nullptr : &origin;
}

void SharedMemory::begin_async_read(Lane& lane, std::uintptr_t address, std::size_t size, AsyncReader& reader) {
  const Block& block = *lane.block;
  Shadowed& memory = shadow(address);
  const Cell* cell = memory.cell(address);
  const Cell* const end = cell + size / 2;
  const Cell* visible = nullptr;  // the last cell whose write is visible to the reader
  for (std::uintptr_t at = address; !reader.reported && cell != end; ++cell, at += 2) {
    if (cell->write_stamp < block.block_began) {
      if (suspects_.size() < kMostSuspects) suspects_.push_back({at, reader.pc, lane.linear, false});
      continue;
    }
    const bool pending = cell->flags & Cell::kPending;
    const auto is_visible = [&] {
      return ordered_before(lane, cell->write_thread, cell->write_stamp) &&
             seen_by_async_proxy(lane, cell->write_thread, cell->write_stamp);
    };
    const bool same = visible != nullptr && visible->write_thread == cell->write_thread &&
                      visible->write_stamp == cell->write_stamp;  // true for most of the 16 bytes
    if (!pending && (same || is_visible())) {
      visible = cell;
      continue;
    }
    if (!block.damaged) report_async_read(lane, *cell, at, reader);
    reader.reported = true;
  }
  if (reader.enters) mark_async_read(block, address, size, reader);
}

/// The last write may not be visible to TMA or the tensor cores.
void SharedMemory::report_async_read(Lane& lane, const Cell& cell, std::uintptr_t address, const AsyncReader& reader) {
  const Agent writer = cell.write_thread;
  const bool pending = cell.flags & Cell::kPending;
  Finding finding = finding_of(lane, Mistake::unfinished_copy, reader.pc, reader.action);
  const auto by_thread = [&](Mistake mistake, const char* action, const char* what, const char* advice) {
    finding.mistake = mistake;
    finding.other = {address_of_code(cell.write_pc), action, int(writer) / kWarpSize, 1u << writer % kWarpSize};
    finding.what = what;
    finding.advice = advice;
  };
  if (writer >= kFirstBarrierAgent)
    explain_touch(finding, lane, cell, address, true);
  else if (pending || !ordered_before(lane, writer, cell.write_stamp))
    by_thread(Mistake::read_after_write, pending ? "copies asynchronously" : "writes",
              "nothing makes the asynchronous read wait for the write: it may see the old value",
              "let the writing threads call fence_proxy_async(), and then synchronise with this thread at a barrier");
  else
    by_thread(Mistake::missing_proxy_fence, "writes",
              "generic-proxy writes of threads may not be visible to TMA and the tensor cores, even after a barrier",
              "call fence_proxy_async() in the writing threads, after the writes and before the barrier");
  finding.side.lanes = reader.lanes != 0 ? reader.lanes : ~0u;
  finding.variable = variable(address);
  note_finding(lane, std::move(finding));
}

void SharedMemory::mark_async_read(const Block& block, std::uintptr_t address, std::size_t size,
                                   const AsyncReader& reader) {
  Shadowed& memory = shadow(address);
  Cell* cell = memory.cell(address);
  Cell* const end = cell + size / 2;
  for (; cell != end; ++cell) {
    if (cell->read_stamp < block.block_began) cell->read_warps = 0;
    memory.reader(cell, reader.warp) = {Reader::kInFlight, code_of(reader.pc), reader.lanes};
    cell->read_warps |= 1u << reader.warp;
    cell->read_stamp = block.clock;
    cell->flags = static_cast<std::uint8_t>(cell->flags | 3 << Cell::kReadBytes);
  }
}

void SharedMemory::finish_async_read(const Block& block, int warp, std::uintptr_t address, std::size_t size,
                                     bool tensor_cores) {
  Shadowed& memory = shadow(address);
  Cell* cell = memory.cell(address);
  Cell* const end = cell + size / 2;
  for (; cell != end; ++cell) {
    Reader& reader = memory.reader(cell, warp);
    if (reader.stamp == Reader::kInFlight && (reader.lanes == 0) == tensor_cores) reader.stamp = block.clock;
  }
}

}  // namespace simt
