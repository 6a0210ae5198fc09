#include "common/simt/shared_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "common/simt/asynchronous.hpp"
#include "common/simt/asynchrony.hpp"
#include "common/simt/detect.hpp"
#include "common/simt/program.hpp"

namespace simt {

namespace {

void* map_zeroed(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

Variable with_offset(const std::string& name, std::size_t bytes) {
  return {name, bytes == 0 ? "" : words(" + ", bytes, " bytes")};
}

}  // namespace

/// Of an OtherRead for each cell.
static std::size_t other_read_bytes(std::size_t cell_bytes) {
  return cell_bytes / sizeof(Cell) * sizeof(OtherRead);
}

void Shadowed::reset(std::uintptr_t low, std::size_t bytes) {
  low_ = low & ~std::uintptr_t(1);
  bytes_ = bytes + (low & 1);
  const std::size_t needed = (bytes_ / 2 + 2) * sizeof(Cell);
  if (needed <= mapped_) return;
  if (cells_ != nullptr) munmap(cells_, mapped_), munmap(other_reads_, other_read_bytes(mapped_));
  if (readers_ != nullptr) munmap(readers_, ordering_);
  readers_ = nullptr;
  cells_ = static_cast<Cell*>(map_zeroed(needed));
  other_reads_ = static_cast<OtherRead*>(map_zeroed(other_read_bytes(needed)));
  mapped_ = needed;
}

void Shadowed::clear() {
  if (cells_ != nullptr) std::memset(static_cast<void*>(cells_), 0, mapped_);
  if (readers_ != nullptr) std::memset(static_cast<void*>(readers_), 0, ordering_);
}

void Shadowed::begin_ordering() {
  if (readers_ != nullptr) return;
  const std::size_t cells = cell_count();
  ordering_ = cells * (32 * sizeof(Reader) + sizeof(Origin) / 4);  // one origin per eight cells, and room
  readers_ = static_cast<Reader*>(map_zeroed(ordering_));
  origins_ = reinterpret_cast<Origin*>(readers_ + cells * 32);
}

Shadowed::~Shadowed() {
  if (readers_ != nullptr) munmap(readers_, ordering_);
  if (cells_ != nullptr) munmap(cells_, mapped_), munmap(other_reads_, other_read_bytes(mapped_));
}

SharedMemory::SharedMemory() : memory_(static_cast<std::byte*>(map_zeroed(kMostDynamic))) {
  const StaticShared statics = static_shared_of_this_thread();
  statics_.reset(statics.low, statics.bytes);
  poison_static_shared(0, ~std::uintptr_t(0));
}

SharedMemory::~SharedMemory() {
  munmap(memory_, kMostDynamic);
}

void SharedMemory::begin_launch(std::size_t dynamic_bytes) {
  dynamic_bytes_ = dynamic_bytes;
  dynamic_.reset(reinterpret_cast<std::uintptr_t>(memory_), kMostDynamic);
  layout_ = nullptr;
  map_.clear();
}

void SharedMemory::begin_block(Block& block) {
  constexpr std::uint32_t kClockNearItsEnd = 0xf0000000u;
  if (block.clock > kClockNearItsEnd) {
    statics_.clear();
    dynamic_.clear();
    block.clock = block.block_began = block.interval_began = 1;
  }
  std::memset(memory_, 0xff, dynamic_bytes_);
  if (static_dirty_low_ < static_dirty_high_) poison_static_shared(static_dirty_low_, static_dirty_high_);
  static_dirty_low_ = ~std::uintptr_t(0);
  static_dirty_high_ = 0;
  suspects_.clear();
  touched_too_early_.clear();
  ordering_ = false;
  copies_ = 0;
}

std::uint32_t shared_offset(const void* pointer) {
  return running->block->shared->offset_of(reinterpret_cast<std::uintptr_t>(pointer)) & 0x3ffff;
}

// --- Bounds and names ------------------------------------------------------------------------------------------------

void SharedMemory::use_layout(Lane& lane, std::size_t size, const SharedLayout* layout, const void* pc) {
  if (size > dynamic_bytes_) {
    Finding finding =
        finding_of(lane, Mistake::outside_shared, pc, "requests dynamic shared memory",
                   words("the struct has ", size, " bytes, but the launch gave the block ", dynamic_bytes_),
                   "launch with at least the size of the struct as dynamic shared memory");
    finding.variable.name = layout != nullptr ? layout->name : "dynamic shared memory";
    refuse(lane, std::move(finding));
  }
  if (layout == nullptr || layout == layout_) return;
  layout_ = layout;
  map_.assign(dynamic_bytes_ / 2 + 1, kOutside);
  for (std::size_t i = 0; i < layout->count && i + 1 < kAny; ++i) {
    const SharedMember& m = layout->members[i];
    for (std::size_t offset = m.offset; offset < m.offset + m.size; offset += 2) {
      const std::size_t column = m.columns == 0 ? 0 : (offset - m.offset) / m.element_size % m.columns;
      const bool used = m.columns == 0 || column < m.used_columns;
      std::uint8_t& entry = map_[offset / 2];
      const std::uint8_t mine = used ? static_cast<std::uint8_t>(i + 1) : kPadding;
      // Members of a union overlap: the address alone does not identify the member.
      if (entry == kOutside || entry == kPadding) {
        entry = mine;
      } else if (used) {
        entry = kAny;
      }
    }
  }
}

const SharedMember* SharedMemory::member(std::size_t offset) const {
  if (layout_ == nullptr) return nullptr;
  for (std::size_t i = 0; i < layout_->count; ++i) {
    const SharedMember& m = layout_->members[i];
    if (offset - m.offset < m.size) return &m;
  }
  return nullptr;
}

Variable SharedMemory::variable(std::uintptr_t address) const {
  if (statics_.contains(address)) {
    const StaticVariable v = static_variable(address);
    return with_offset(v.name.empty() ? "static shared memory" : v.name, v.offset);
  }
  const std::size_t offset = address - dynamic_.low();
  const SharedMember* m = member(offset);
  if (m == nullptr) return with_offset("dynamic shared memory", offset);
  const std::size_t element = (offset - m->offset) / m->element_size;
  if (m->size == m->element_size) return {m->name, ""};
  const auto index = [](std::size_t i) { return words("[", i, "]"); };
  if (m->columns == 0) return {m->name, index(element)};
  std::size_t row = element / m->columns;
  std::string part = index(element % m->columns);
  for (const std::size_t size : {m->rows, m->matrices}) {
    if (size == 0) break;
    part = index(row % size) + part;
    row /= size;
  }
  return {m->name, index(row) + part};
}

const SharedMember* SharedMemory::ring_at(std::uintptr_t address) const {
  const SharedMember* m = dynamic_.contains(address) ? member(address - dynamic_.low()) : nullptr;
  return m != nullptr && m->rows != 0 ? m : nullptr;
}

std::uintptr_t SharedMemory::in_another_stage(std::uintptr_t address, const std::function<bool(const Cell&)>& is) {
  const SharedMember* m = ring_at(address);
  if (m == nullptr || touched_too_early_.contains(m)) return 0;
  const std::size_t offset = address - dynamic_.low();
  const std::size_t stage = std::size_t(std::max(m->matrices, 1u)) * m->rows * m->columns * m->element_size;
  for (std::size_t at = (offset - m->offset) % stage; at < m->size; at += stage) {
    const std::uintptr_t there = dynamic_.low() + m->offset + at;
    const Cell* cell = dynamic_.cell(there);
    if (there != address && is(*cell)) return there;
  }
  touched_too_early_.insert(m);
  return 0;
}

void SharedMemory::check_bounds(Lane& lane, std::uintptr_t address, std::size_t size, Access access, const void* pc) {
  if (!dynamic_.contains(address)) {
    if (static_variable_holds(address, size)) return;
    refuse(lane, finding_of(lane, Mistake::outside_shared, pc, action_of(access),
                            words(size, " bytes extend past the end of a __shared__ variable"),
                            "check the index against the array's declared size", variable(address)));
  }
  const std::size_t first = address - dynamic_.low(), last = first + size - 1;
  if (last >= dynamic_bytes_) [[unlikely]] {
    refuse(lane, finding_of(lane, Mistake::outside_shared, pc, action_of(access),
                            words("the launch gave the block ", dynamic_bytes_, " bytes"),
                            "check the index, or launch with more bytes of dynamic shared memory",
                            with_offset("dynamic shared memory", first)));
  }
  if (map_.empty()) return;
  const std::uint8_t from = map_[first / 2], to = map_[last / 2];
  if (from == to && from != kPadding && from != kOutside) [[likely]]
    return;
  if (from == kAny || to == kAny) return;
  const SharedMember* m = member(first);
  Finding finding = finding_of(lane, Mistake::outside_shared, pc, action_of(access));
  finding.variable = variable(address);
  if (from == kPadding || to == kPadding) {
    finding.mistake = Mistake::padding;
    finding.what = words("accesses padding: a row of ", m->name, " has ", m->used_columns, " used columns and ",
                         m->columns - m->used_columns, " padding columns");
    finding.advice = "check the bound of the column index";
    note_finding(lane, std::move(finding));
    return;  // harmless in itself: the thread continues
  }
  if (m == nullptr) {
    finding.what = "accesses bytes outside every member of " + std::string(layout_->name);
  } else {
    const SharedMember* next = member(last);
    const std::uint32_t elements = m->size / m->element_size;
    finding.what = words(
        "runs past the end of ", m->name, ", which has ",
        m->columns == 0 ? words(elements, " elements") : words(elements / m->columns, " rows of ", m->used_columns),
        next != nullptr && next != m ? words(", into ", next->name) : std::string());
  }
  finding.advice = "keep the row index below the member's number of rows";
  refuse(lane, std::move(finding));
}

bool SharedMemory::same_member(std::uintptr_t a, std::uintptr_t b) const {
  if (dynamic_.contains(a) && dynamic_.contains(b)) {
    const std::size_t from = a - dynamic_.low(), to = b - dynamic_.low();
    // Bytes beyond the launched size have no member.
    if (map_.empty() || from >= dynamic_bytes_ || to >= dynamic_bytes_) return true;
    if (map_[from / 2] == map_[to / 2] || map_[from / 2] == kAny || map_[to / 2] == kAny) return true;
    const SharedMember *of_a = member(from), *of_b = member(to);
    return of_a == of_b || of_a == nullptr || of_b == nullptr;
  }
  if (!statics_.contains(a) || !statics_.contains(b)) return true;
  const StaticVariable x = static_variable(a), y = static_variable(b);
  return x.name.empty() || y.name.empty() || a - x.offset == b - y.offset;
}

void SharedMemory::check_same_member(Lane& lane, std::uintptr_t first, std::uintptr_t last, Access access,
                                     const void* pc) {
  if (same_member(first, last)) return;
  Finding finding = finding_of(lane, Mistake::outside_shared, pc, action_of(access));
  finding.variable = variable(first);
  finding.what = "the matrix starts in " + finding.variable.name + " and ends in " + variable(last).name;
  finding.advice = "check the pointer and the leading dimension";
  refuse(lane, std::move(finding));
}

// --- Races -----------------------------------------------------------------------------------------------------------

namespace {

/// Whether the operation of a lane of the same warp at `stamp` is ordered before the next operation of `lane`.
inline bool ordered_in_warp(const Lane& lane, int other, std::uint32_t stamp) {
  const Warp& warp = *lane.warp;
  if (stamp < warp.epoch) return true;
  return warp.partial_barriers && stamp < warp.heard[lane.index][other];
}

/// The lanes among `others` (of the same warp) whose reads at `stamp` are not ordered before the next operation of
/// `lane`.
inline std::uint32_t unordered_lanes(const Lane& lane, std::uint32_t others, std::uint32_t stamp) {
  if (stamp < lane.warp->epoch) return 0;
  if (!lane.warp->partial_barriers) return others;
  std::uint32_t left = 0;
  for (std::uint32_t m = others; m != 0; m &= m - 1) {
    const int other = std::countr_zero(m);
    if (stamp >= lane.warp->heard[lane.index][other]) left |= 1u << other;
  }
  return left;
}

}  // namespace

// The two loops keep the needed members of lane, warp and block in registers, and delegate everything except the common
// case to the functions after them.

void SharedMemory::read_cells(Lane& lane, Cell* cell, Cell* end, std::uintptr_t address, std::uint32_t lanes,
                              const void* pc, std::uint8_t bytes) {
  const Block& block = *lane.block;
  const Warp& warp = *lane.warp;
  const std::uint32_t began = block.block_began, interval = block.interval_began, clock = block.clock;
  const std::uint32_t epoch = warp.epoch, code = code_of(pc), my_warp = 1u << warp.index;
  const auto warp_index = static_cast<std::uint8_t>(warp.index);
  const std::uint16_t step = lane.step;
  const auto byte_flags = static_cast<std::uint8_t>(bytes << Cell::kReadBytes);
  const bool partial = warp.partial_barriers;
  for (; cell != end; ++cell, address += 2) {
    const bool settled = cell->write_stamp - began < interval - began && !(cell->flags & Cell::kPending);
    if (!settled) [[unlikely]]
      judge_read(lane, *cell, address, lanes, pc, bytes);
    const std::uint32_t stamp = cell->read_stamp;
    std::uint32_t warps = my_warp, all_lanes = lanes;
    std::uint8_t shared_pc = lanes == lane.bit ? 0 : Cell::kSharedPc;
    if (stamp >= interval) {
      // The same lanes have just read the cell: everything is recorded already. A write in between would be in this
      // interval.
      if (stamp == clock && cell->read_warp == warp_index && (cell->read_lanes & lanes) == lanes && settled &&
          (cell->flags & byte_flags) == byte_flags) {
        continue;
      }
      warps |= cell->read_warps;
      if (cell->read_warp !=
          warp_index) {  // warps run one after another: the reads of the first warp are the ones to report
        cell->read_warps = warps;
        continue;
      }
      if (stamp >= epoch) {
        // Reads that are ordered before this one are ordered before everything after it, and need not be kept.
        const bool keep = !partial || unordered_lanes(lane, cell->read_lanes & ~lane.bit, stamp) != 0;
        if (keep) {
          if (cell->read_lanes & ~lanes) shared_pc |= join_readers(lane, *cell, address, lanes, code);
          all_lanes |= cell->read_lanes;
        }
      }
    }
    cell->read_stamp = clock;
    cell->read_pc = code;
    cell->read_warps = warps;
    cell->read_lanes = all_lanes;
    cell->read_warp = warp_index;
    cell->read_step = step;
    cell->flags =
        static_cast<std::uint8_t>((cell->flags & ~(3 << Cell::kReadBytes | Cell::kSharedPc)) | byte_flags | shared_pc);
  }
}

/// A read at `code` of a cell that other lanes of the warp have read too: records where they have read. Returns
/// kSharedPc if one of them has read at the same code address.
std::uint8_t SharedMemory::join_readers(const Lane& lane, const Cell& cell, std::uintptr_t address, std::uint32_t lanes,
                                        std::uint32_t code) {
  const bool several = (cell.read_lanes & (cell.read_lanes - 1)) != 0, shared = cell.flags & Cell::kSharedPc;
  if (shared && cell.read_pc == code) return Cell::kSharedPc;
  OtherRead& other = shadow(address).other_read(&cell);
  const int before = several ? other.lane_of_cell : std::countr_zero(cell.read_lanes);
  const bool by_another = shared || !(lanes >> before & 1);
  if (by_another && cell.read_pc == code) return Cell::kSharedPc;
  if (by_another) other.pc = cell.read_pc, other.step = cell.read_step;
  other.lane_of_cell = static_cast<std::uint8_t>(lane.index);
  return 0;
}

/// A read of a cell that was written in this interval, is being copied, or was never written.
void SharedMemory::judge_read(Lane& lane, const Cell& cell, std::uintptr_t address, std::uint32_t lanes, const void* pc,
                              std::uint8_t bytes) {
  const Block& block = *lane.block;
  const int writer_warp = cell.write_thread / kWarpSize, writer_lane = cell.write_thread % kWarpSize;
  if (cell.write_stamp < block.block_began) {
    if (suspects_.size() < kMostSuspects)
      suspects_.push_back({address, pc, lane.linear, false, *at_address<const std::uint16_t>(address & ~1) != 0xffff});
    return;
  }
  if (!(cell.flags & Cell::kPending)) {
    if (cell.write_thread == lane.linear && lanes == lane.bit) return;
    if (!(cell.flags >> Cell::kWriteBytes & bytes)) return;
    if (writer_warp == lane.warp->index && ordered_in_warp(lane, writer_lane, cell.write_stamp)) return;
  }
  report_race(lane, cell, address, false, true, lanes, 1u << writer_lane, writer_warp, pc);
}

void SharedMemory::write_cells(Lane& lane, Cell* cell, Cell* end, std::uintptr_t address, const void* pc,
                               std::uint8_t bytes, std::uint8_t flags) {
  const Block& block = *lane.block;
  const std::uint32_t interval = block.interval_began, clock = block.clock, code = code_of(pc);
  const std::uint16_t thread = lane.linear, step = lane.step;
  const std::uint8_t new_flags = static_cast<std::uint8_t>(flags | bytes << Cell::kWriteBytes);
  for (; cell != end; ++cell, address += 2) {
    const bool untouched =
        cell->write_stamp < interval && cell->read_stamp < interval && !(cell->flags & Cell::kPending);
    if (!untouched) judge_write(lane, *cell, address, pc, bytes, flags);
    cell->write_stamp = clock;
    cell->write_pc = code;
    cell->write_thread = thread;
    cell->write_step = step;
    cell->flags = static_cast<std::uint8_t>((cell->flags & (3 << Cell::kReadBytes | Cell::kSharedPc)) | new_flags);
  }
}

/// A write to a cell that was read or written in this interval, or is being copied.
void SharedMemory::judge_write(Lane& lane, const Cell& cell, std::uintptr_t address, const void* pc, std::uint8_t bytes,
                               std::uint8_t flags) {
  const Block& block = *lane.block;
  const Warp& warp = *lane.warp;
  const int writer_warp = cell.write_thread / kWarpSize, writer_lane = cell.write_thread % kWarpSize;
  const bool being_copied = cell.flags & Cell::kPending && cell.write_stamp >= block.block_began;
  if (being_copied || (cell.write_stamp >= block.interval_began && cell.write_thread != lane.linear &&
                       (cell.flags >> Cell::kWriteBytes & bytes) && !(cell.flags & flags & Cell::kAtomic) &&
                       (writer_warp != warp.index || !ordered_in_warp(lane, writer_lane, cell.write_stamp)))) {
    report_race(lane, cell, address, true, true, lane.bit, 1u << writer_lane, writer_warp, pc);
  }
  if (cell.read_stamp < block.interval_began || !(cell.flags >> Cell::kReadBytes & bytes)) return;
  const std::uint32_t other_warps = cell.read_warps & ~(1u << warp.index);
  const bool my_warp_read = cell.read_warp == warp.index;
  const std::uint32_t other_lanes =
      my_warp_read ? unordered_lanes(lane, cell.read_lanes & ~lane.bit, cell.read_stamp) : 0;
  if ((other_warps | other_lanes) == 0) return;
  if (other_lanes != 0) {
    const OtherRead& other = shadow(address).other_read(&cell);
    Cell seen = cell;
    if ((cell.read_lanes & lane.bit) && !(cell.flags & Cell::kSharedPc) && other.lane_of_cell == lane.index)
      seen.read_pc = other.pc, seen.read_step = other.step;
    report_race(lane, seen, address, true, false, lane.bit, other_lanes, warp.index, pc);
  } else {
    report_race(lane, cell, address, true, false, lane.bit, my_warp_read ? 0 : cell.read_lanes,
                my_warp_read ? std::countr_zero(other_warps) : cell.read_warp, pc);
  }
}

void SharedMemory::check_byte(Lane& lane, Cell* cell, std::uintptr_t address, bool reads, std::uint32_t lanes,
                              const void* pc, std::uint8_t flags) {
  const std::uint8_t byte = address & 1 ? 2 : 1;
  if (ordering_) [[unlikely]]
    return reads ? read_ordered(lane, cell, cell + 1, address, lanes, pc, byte)
                 : write_ordered(lane, cell, cell + 1, address, pc, byte, flags);
  reads ? read_cells(lane, cell, cell + 1, address, lanes, pc, byte)
        : write_cells(lane, cell, cell + 1, address, pc, byte, flags);
}

void SharedMemory::arrive(Lane& lane, std::uintptr_t address, std::size_t size, const void* pc) {
  Shadowed& memory = dynamic_.contains(address) ? dynamic_ : statics_;
  Cell* const end = memory.cell(address + size - 1) + 1;
  for (Cell* cell = memory.cell(address); cell != end; ++cell) {
    cell->flags &= ~Cell::kPending;
    cell->write_stamp = lane.block->clock;
    cell->write_pc = code_of(pc);
    cell->write_thread = lane.linear;
    cell->write_step = lane.step;
  }
}

void explain_wrong_stage(Finding& finding, const Variable& meant) {
  finding.mistake = Mistake::wrong_stage;
  finding.what =
      "another copy fills this location; the data of " + meant.name + meant.part + " has arrived, but was not read";
  finding.advice =
      "use the same stage in the copy, the wait and the reads: the n-th load, counted from 0, fills stage n modulo "
      "the number of stages, whichever tile it loads; data of a single warp needs an mbarrier of its own";
}

namespace {

/// Whether the cell was written by a copy that is complete, and was not read since.
bool has_come_unread(const Cell& cell, const Block& block) {
  return cell.write_stamp >= block.block_began && !(cell.flags & Cell::kPending) && cell.read_stamp < cell.write_stamp;
}

/// Describes the group of the copy that writes to this address, and the wait that would complete it.
void describe_pending(Finding& finding, const Lane& toucher, const Lane& issuer, std::uintptr_t address) {
  const int newer = issuer.copies.groups_after(address);
  const std::string count = std::to_string(std::max(newer, 0));
  finding.what = "the bytes are still being written by a cp.async";
  if (!(issuer.warp->alive & issuer.bit)) {
    finding.what += ", whose thread has ended without waiting for it";
  } else if (newer < 0) {
    finding.what += ", which is not committed to a group yet";
  } else {
    finding.what += newer == 0 ? " of its thread's newest group" : " of a group with " + count + " newer after it";
  }
  const std::string wait = "wait until no more than " + count + " groups are in flight (__pipeline_wait_prior(" +
                           count + "), cp_async_wait_group<" + count + ">)";
  finding.advice = (newer < 0 ? "commit the copy, then " : "") + wait;
  if (newer > 0) finding.advice += " here: one less for each commit between the wait and here";
  if (&toucher != &issuer) {
    const char* const barrier = toucher.warp == issuer.warp ? "__syncwarp()" : "__syncthreads()";
    finding.advice += std::string(", in the thread that copies, and put a ") + barrier + " after it";
  } else if (newer <= 0) {
    finding.advice += " before accessing them";
  }
  if (newer <= 0)
    finding.advice += "; or, if it loads data for a later read, issue it after the last read of this location";
}

}  // namespace

void SharedMemory::report_race(Lane& lane, const Cell& cell, std::uintptr_t address, bool i_write, bool other_writes,
                               std::uint32_t lanes, std::uint32_t other_lanes, int other_warp, const void* pc) {
  const std::uint32_t other_code = other_writes ? cell.write_pc : cell.read_pc;
  // Two lanes that write one location by the same cp.async: no wait is missing, the address is wrong.
  const bool one_copy = i_write && other_code == code_of(pc) && cell.write_thread != lane.linear &&
                        cell.write_step == lane.step && cell.write_stamp >= lane.block->interval_began;
  const bool in_flight = other_writes && (cell.flags & Cell::kPending) && !one_copy;
  const Lane& issuer = lane.block->lanes[in_flight ? cell.write_thread : lane.linear];
  if (in_flight && lane.block->damaged && !(issuer.warp->alive & issuer.bit))
    return;  // an error has ended it before its wait
  // A thread that has waited for its own copies lacks no wait, but a barrier after it.
  const bool pending = in_flight && !lane.copies.waited_for(issuer.copies, address);
  const int other_step = other_writes ? cell.write_step : cell.read_step;
  // Lanes run one after another here. The number of shared accesses of each thread since the last barrier decides which
  // of the two accesses comes first in the kernel.
  const bool i_am_later = in_flight || lane.step > other_step || (lane.step == other_step && !i_write);
  Mistake mistake = Mistake::write_after_write;
  if (pending) {
    mistake = Mistake::pending_copy;
  } else if (!other_writes || !i_write) {
    mistake = (i_write == i_am_later) ? Mistake::write_after_read : Mistake::read_after_write;
  }
  Finding finding = finding_of(lane, mistake, pc, i_write ? "writes" : "reads");
  finding.side.lanes = lanes;
  finding.other = {address_of_code(other_code),
                   in_flight      ? "copies asynchronously"
                   : other_writes ? "writes"
                                  : "reads",
                   other_warp, other_lanes};
  if (!i_am_later) {
    std::swap(finding.side, finding.other);
  }
  finding.variable = variable(address);
  if (!i_write && other_writes) {
    // And a barrier has ordered it before the reader: without one, every stage is read too early, including the right
    // one.
    const Block& block = *lane.block;
    const int writer = cell.write_thread % kWarpSize;
    const bool one_warp = cell.write_thread / kWarpSize == lane.warp->index;
    const auto is = [&](const Cell& other) {
      return other.write_thread == cell.write_thread && has_come_unread(other, block) &&
             (other.write_stamp < block.interval_began ||
              (one_warp && ordered_in_warp(lane, writer, other.write_stamp)));
    };
    if (const std::uintptr_t place = in_another_stage(address, is)) {
      explain_wrong_stage(finding, variable(place));
      return note_finding(lane, std::move(finding));
    }
  } else if (pending) {
    touched_too_early_.insert(ring_at(address));
  }
  const bool one_warp = other_warp == lane.warp->index;
  // Where warps have different tasks, they may synchronise at other barriers than the block's.
  const std::string barrier = one_warp ? "__syncwarp()" : ordering_ ? "barrier" : "__syncthreads()";
  switch (mistake) {
    case Mistake::pending_copy:
      describe_pending(finding, lane, issuer, address);
      break;
    case Mistake::read_after_write:
      finding.what = "nothing makes the read wait for the write: it may see the old value";
      finding.advice =
          "put a " + barrier + " between the " + (in_flight ? "wait for the copies" : "write") + " and the read";
      break;
    case Mistake::write_after_read:
      finding.what = "nothing makes the write wait for the read: the read may see the new value";
      finding.advice = "put a " + barrier + " between the last read and the write that overwrites it";
      break;
    default:
      finding.what = "two threads write the same location, and nothing orders the two writes";
      finding.advice = "let one thread write each element: check the index, and the work of each warp; or put a " +
                       barrier + " between the writes";
      break;
  }
  if (one_warp && mistake != Mistake::pending_copy) {
    finding.advice += " (the lanes of a warp do not run in lockstep)";
  }
  if (ordering_ && mistake == Mistake::read_after_write)
    explain_arrivals_of_lanes(finding, lane, other_warp, other_lanes);
  note_finding(lane, std::move(finding));
}

// --- Reads of uninitialised memory -----------------------------------------------------------------------------------
// A read that finds no write may be a race instead: the writing lane may not have run yet. It is therefore judged when
// all threads have arrived at the next barrier.

void SharedMemory::pass_warp_barrier(Warp& warp) {
  std::erase_if(suspects_, [&](Suspect& suspect) {
    if (suspect.thread / kWarpSize != warp.index || suspect.warp_barrier_since) return false;
    const Cell& cell = *(dynamic_.contains(suspect.address) ? dynamic_ : statics_).cell(suspect.address);
    suspect.warp_barrier_since = true;
    return cell.write_stamp >= warp.block->interval_began && cell.write_thread != suspect.thread;
  });
}

void SharedMemory::end_interval(Block& block) {
  if (suspects_.empty()) return;
  for (const Suspect& suspect : suspects_) {
    const Cell& cell = *(dynamic_.contains(suspect.address) ? dynamic_ : statics_).cell(suspect.address);
    const bool same_warp = cell.write_thread / kWarpSize == suspect.thread / kWarpSize;
    const bool race = cell.write_stamp >= block.interval_began && cell.write_thread != suspect.thread &&
                      !(same_warp && suspect.warp_barrier_since);
    if (race || block.damaged) continue;
    const Lane& lane = block.lanes[suspect.thread];
    const Mistake mistake = suspect.holds_something ? Mistake::unseen_store : Mistake::uninitialised_shared;
    Finding finding =
        finding_of(lane, mistake, suspect.pc, "reads",
                   suspect.holds_something ? kUnseenStore : "no thread of the block has written it",
                   suspect.holds_something ? kUnseenStoreAdvice
                                           : "check the index of the read, the loop that fills the array, and its tail",
                   variable(suspect.address));
    const auto is = [&](const Cell& other) {
      const bool is_bulk_copy = other.write_thread >= kFirstBarrierAgent;
      return has_come_unread(other, block) &&
             (is_bulk_copy ? block.asynchrony->passed(lane, int(other.write_thread - kFirstBarrierAgent)).phase >= 0
                           : other.write_thread / kWarpSize == suspect.thread / kWarpSize);
    };
    if (const std::uintptr_t place = in_another_stage(suspect.address, is))
      explain_wrong_stage(finding, variable(place));
    note_finding(lane, std::move(finding));
  }
  suspects_.clear();
}

}  // namespace simt
