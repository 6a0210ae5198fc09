// The shared memory of a block: static variables (thread-local storage of the executable) and dynamic shared memory,
// each with a shadow that records the last accesses. Internal.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "common/simt/execution.hpp"
#include "common/simt/launch_state.hpp"
#include "common/simt/tensor_map.hpp"

namespace simt {

/// The access history of two bytes of shared memory within the current block. Stamps are values of Block::clock. A
/// stamp older than the block's start means "never"; one older than the last block barrier means "ordered before
/// everything now".
struct alignas(32) Cell {
  std::uint32_t write_stamp = 0;
  std::uint32_t write_pc = 0;  ///< code_of the return address
  std::uint16_t write_thread = 0;
  std::uint16_t write_step = 0;
  std::uint16_t read_step = 0;
  std::uint8_t read_warp = 0;  ///< the first warp that has read since the last block barrier
  std::uint8_t flags = 0;
  std::uint32_t read_stamp = 0;  ///< of the last read by warp read_warp
  std::uint32_t read_pc = 0;     ///< of the last read that is recorded
  std::uint32_t read_warps = 0;  ///< warps that have read since the last block barrier (if read_stamp is that recent)
  std::uint32_t read_lanes = 0;  ///< lanes of warp read_warp that have read since its last barrier
  static constexpr std::uint8_t kAtomic = 1, kPending = 2;  ///< flags of the last write: atomic; not yet complete
  static constexpr std::uint8_t kSharedPc = 64;             ///< several lanes of read_warp have read at read_pc
  static constexpr int kWriteBytes = 2, kReadBytes = 4;     ///< shifts of two-bit masks of the accessed bytes
};
static_assert(sizeof(Cell) == 32);

/// Which lane of read_warp has read a cell at read_pc, and where another lane has read it. With this, a report never
/// names a location where the reporting lane itself has read. Valid if several lanes have read and Cell::kSharedPc is
/// not set.
struct OtherRead {
  std::uint32_t pc = 0;
  std::uint16_t step = 0;
  std::uint8_t lane_of_cell = 0;  ///< the lane that has read at Cell::read_pc; pc and step belong to another lane
};

/// The last read of two bytes by each warp, in blocks with barriers for parts of the block (asynchrony.hpp).
struct Reader {
  std::uint32_t stamp = 0;  ///< kInFlight: TMA or the tensor cores are still reading
  std::uint32_t pc = 0;
  std::uint32_t lanes = 0;  ///< lanes that have read since their last barrier; 0: the tensor cores, for the warpgroup
  static constexpr std::uint32_t kInFlight = ~0u;
};

/// The source of 16 bytes of shared memory that TMA has written.
struct Origin {
  std::uint32_t copy = 0;       ///< number of the copy in the block, from 1; 0: none
  std::uint32_t offset = 0;     ///< bytes from the start of the box, before swizzling
  std::uint16_t row_bytes = 0;  ///< 0: a bulk copy without tensor map, whose rows are unknown
  Swizzle swizzle = Swizzle::none;
};

/// A reader of shared memory other than a thread.
struct AsyncReader {
  const char* action;
  const void* pc;
  std::uint32_t lanes;    ///< 0: the tensor cores, for a warpgroup
  int warp;               ///< under which the read is recorded; for a warpgroup its first warp
  bool enters = true;     ///< false: it is recorded already and only checked for another warp
  bool reported = false;  ///< one error per read is enough
};

/// Memory with a shadow cell for every two bytes.
class Shadowed {
 public:
  void reset(std::uintptr_t low, std::size_t bytes);
  bool contains(std::uintptr_t address) const { return address - low_ < bytes_; }
  Cell* cell(std::uintptr_t address) { return &cells_[(address - low_) / 2]; }
  OtherRead& other_read(const Cell* cell) { return other_reads_[cell - cells_]; }
  /// Of the two bytes of this cell. The entries of a warp are contiguous, because it reads contiguous cells.
  Reader& reader(const Cell* cell, int warp) { return readers_[warp * std::ptrdiff_t(cell_count()) + (cell - cells_)]; }
  Origin& origin(std::uintptr_t address) { return origins_[(address - low_) / 16]; }
  /// Allocates readers and origins.
  void begin_ordering();
  std::uintptr_t low() const { return low_; }
  std::size_t bytes() const { return bytes_; }
  void clear();
  ~Shadowed();
  Shadowed() = default;
  Shadowed(const Shadowed&) = delete;
  Shadowed& operator=(const Shadowed&) = delete;

 private:
  std::size_t cell_count() const { return mapped_ / sizeof(Cell); }

  std::uintptr_t low_ = 0;
  std::size_t bytes_ = 0, mapped_ = 0, ordering_ = 0;
  Cell* cells_ = nullptr;
  OtherRead* other_reads_ = nullptr;
  Reader* readers_ = nullptr;
  Origin* origins_ = nullptr;
};

/// The shared memory of the block that one operating-system thread runs.
struct BulkCopy;

class SharedMemory {
 public:
  static constexpr std::size_t kMostDynamic = std::size_t(256) * 1024;
  static constexpr std::uint32_t kStaticsOffset = 0x39000;  ///< past the largest dynamic memory, a multiple of 1024

  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  void begin_launch(std::size_t dynamic_bytes);
  /// Fills the bytes that the previous block has written with 0xff and erases their history.
  void begin_block(Block& block);
  /// Checks the reads of this interval that found no preceding write.
  void end_interval(Block& block);
  /// All lanes of this warp have synchronised.
  void warp_barrier(Warp& warp) {
    if (!suspects_.empty()) [[unlikely]]
      pass_warp_barrier(warp);
  }

  bool contains(std::uintptr_t address) const { return dynamic_.contains(address) || statics_.contains(address); }
  /// The offset that descriptors use for an address: static variables follow the dynamic memory.
  std::uint32_t offset_of(std::uintptr_t address) const {
    if (dynamic_.contains(address)) return static_cast<std::uint32_t>(address - dynamic_.low());
    return static_cast<std::uint32_t>(kStaticsOffset + (address - (statics_.low() & ~std::uintptr_t(1023))));
  }
  std::uintptr_t at_offset(std::uint32_t offset) const {
    if (offset < kStaticsOffset) return dynamic_.low() + offset;
    return (statics_.low() & ~std::uintptr_t(1023)) + (offset - kStaticsOffset);
  }
  bool in_statics(std::uintptr_t address) const { return statics_.contains(address); }
  std::byte* dynamic() const { return memory_; }
  /// Names the members of the dynamic memory; ends the lane if `size` exceeds the launched bytes.
  void use_layout(Lane& lane, std::size_t size, const SharedLayout* layout, const void* pc);

  /// Checks one access. `lanes`: the lanes that execute it (one, or the whole warp for a matrix). Does not return if
  /// the access is out of bounds. `pending`: a cp.async starts to write.
  void check(Lane& lane, std::uintptr_t address, std::size_t size, Access access, std::uint32_t lanes, const void* pc,
             bool pending = false);
  /// Checks bounds only: for matrices, whose lines must be in one member.
  void check_bounds(Lane& lane, std::uintptr_t address, std::size_t size, Access access, const void* pc);
  /// Whether two addresses within bounds are in one member, or in one static variable.
  bool same_member(std::uintptr_t a, std::uintptr_t b) const;
  /// Checks that all lines of a matrix are in one member. Does not return otherwise.
  void check_same_member(Lane& lane, std::uintptr_t first, std::uintptr_t last, Access access, const void* pc);
  // Blocks that are ordered by vector clocks (ordered_memory.cpp).
  /// Switches this block to vector clocks.
  void begin_ordering();
  /// TMA starts (begin) and completes (finish) writing a box.
  void begin_async_write(Lane& lane, const BulkCopy& copy);
  void finish_async_write(Block& block, const BulkCopy& copy);
  /// TMA, for one lane, or the tensor cores, for a warpgroup, start and complete a read.
  void begin_async_read(Lane& lane, std::uintptr_t address, std::size_t size, AsyncReader& reader);
  void mark_async_read(const Block& block, std::uintptr_t address, std::size_t size, const AsyncReader& reader);
  void finish_async_read(const Block& block, int warp, std::uintptr_t address, std::size_t size, bool tensor_cores);
  /// The source of the 16 bytes at this address; null if no TMA copy has written them, or if they were overwritten
  /// since.
  const Origin* origin(std::uintptr_t address);
  /// The action of the copy that has written the bytes at this address: "loads a box", …
  const char* action_of_load(std::uintptr_t address) {
    return shadow(address).origin(address).row_bytes == 0 ? "loads a line" : "loads a box";
  }

  /// Pending bytes are complete: they are now writes of the lane.
  void arrive(Lane& lane, std::uintptr_t address, std::size_t size, const void* pc);

  /// "K" or "tile", and the accessed part of it: "[3][16]", " + 128 bytes".
  Variable variable(std::uintptr_t address) const;
  /// The corresponding address in another stage of a ring buffer (an array of three or more dimensions) for which `is`
  /// returns true. 0 if there is none, or if the array is in touched_too_early_.
  std::uintptr_t in_another_stage(std::uintptr_t address, const std::function<bool(const Cell&)>& is);
  /// The last read by this warp of two bytes of dynamic memory, in a block that is ordered by vector clocks.
  const Reader& last_read(const Cell& cell, int warp) { return dynamic_.reader(&cell, warp); }

 private:
  struct Suspect {  ///< a read that found no preceding write
    std::uintptr_t address;
    const void* pc;
    std::uint16_t thread;
    bool warp_barrier_since;
    bool holds_something = false;  ///< other than the initial pattern of memory
  };
  void pass_warp_barrier(Warp& warp);
  void read_cells(Lane& lane, Cell* cell, Cell* end, std::uintptr_t address, std::uint32_t lanes, const void* pc,
                  std::uint8_t bytes);
  void check_byte(Lane& lane, Cell* cell, std::uintptr_t address, bool reads, std::uint32_t lanes, const void* pc,
                  std::uint8_t flags);
  void write_cells(Lane& lane, Cell* cell, Cell* end, std::uintptr_t address, const void* pc, std::uint8_t bytes,
                   std::uint8_t flags);
  void judge_read(Lane& lane, const Cell& cell, std::uintptr_t address, std::uint32_t lanes, const void* pc,
                  std::uint8_t bytes);
  std::uint8_t join_readers(const Lane& lane, const Cell& cell, std::uintptr_t address, std::uint32_t lanes,
                            std::uint32_t code);
  void judge_write(Lane& lane, const Cell& cell, std::uintptr_t address, const void* pc, std::uint8_t bytes,
                   std::uint8_t flags);
  void report_race(Lane& lane, const Cell& cell, std::uintptr_t address, bool i_write, bool other_writes,
                   std::uint32_t lanes, std::uint32_t other_lanes, int other_warp, const void* pc);
  const SharedMember* member(std::size_t offset) const;
  const SharedMember* ring_at(std::uintptr_t address) const;
  Shadowed& shadow(std::uintptr_t address) { return dynamic_.contains(address) ? dynamic_ : statics_; }
  void read_ordered(Lane& lane, Cell* cell, Cell* end, std::uintptr_t address, std::uint32_t lanes, const void* pc,
                    std::uint8_t bytes);
  void write_ordered(Lane& lane, Cell* cell, Cell* end, std::uintptr_t address, const void* pc, std::uint8_t bytes,
                     std::uint8_t flags);
  struct Overwrite {  ///< a write to a cell that was written or read before
    Lane& lane;
    const Cell& cell;
    std::uintptr_t address;
    const char* action;
    const void* pc;
    std::uint8_t bytes, flags;  ///< which bytes of the cell; the Cell flags of the write
    bool copies;                ///< TMA writes, on behalf of the lane
  };
  Finding finding_of_write(const Overwrite& write, Mistake mistake) const;
  bool judge_overwritten(const Overwrite& write);
  bool judge_earlier_write(const Overwrite& write);
  bool judge_earlier_reads(const Overwrite& write);
  void report_over_copy(const Overwrite& write);
  void report_over_read(const Overwrite& write, const Reader& reader, int warp, std::uint32_t lanes);
  void report_async_read(Lane& lane, const Cell& cell, std::uintptr_t address, const AsyncReader& reader);
  void explain_early_copy(const Overwrite& write, Finding& finding, int reader) const;

  Shadowed statics_, dynamic_;
  std::byte* memory_ = nullptr;
  std::size_t dynamic_bytes_ = 0;
  std::uintptr_t static_dirty_low_ = ~std::uintptr_t(0), static_dirty_high_ = 0;
  const SharedLayout* layout_ = nullptr;
  /// By two-byte cell of dynamic memory: 1 + index of the member, 0 outside all members, kPadding in padding columns,
  /// kAny where members overlap.
  std::vector<std::uint8_t> map_;
  static constexpr std::uint8_t kOutside = 0, kPadding = 255, kAny = 254;
  bool ordering_ = false;     ///< this block is ordered by vector clocks
  std::uint32_t copies_ = 0;  ///< number of TMA copies of the block so far
  std::vector<Suspect> suspects_;
  /// Ring buffers that the block has accessed too early in the right stage: their stages may remain unread after that.
  std::set<const SharedMember*> touched_too_early_;
  static constexpr std::size_t kMostSuspects = 256;
};

inline void SharedMemory::check(Lane& lane, std::uintptr_t address, std::size_t size, Access access,
                                std::uint32_t lanes, const void* pc, bool pending) {
  const bool reads = access == Access::read || access == Access::matrix_read;
  const bool in_dynamic = dynamic_.contains(address);
  if (in_dynamic) [[likely]] {
    const std::size_t first = address - dynamic_.low(), last = first + size - 1;
    const bool inside = last < dynamic_bytes_ &&
                        (map_.empty() || (map_[first / 2] == map_[last / 2] && map_[first / 2] - 1u < kPadding - 1u));
    if (!inside) [[unlikely]]
      check_bounds(lane, address, size, access, pc);
  } else {
    check_bounds(lane, address, size, access, pc);
    if (!reads) {
      static_dirty_low_ = std::min(static_dirty_low_, address);
      static_dirty_high_ = std::max(static_dirty_high_, address + size);
    }
  }
  if (!lane.block->launch->detecting) return;
  if (lane.step != 0xffff) ++lane.step;
  Cell* cell = in_dynamic ? dynamic_.cell(address) : statics_.cell(address);
  const std::uint8_t flags = (access == Access::atomic ? Cell::kAtomic : 0) | (pending ? Cell::kPending : 0);
  if (size == 1) [[unlikely]]
    return check_byte(lane, cell, address, reads, lanes, pc, flags);
  Cell* const end = cell + size / 2;  // accesses are aligned
  if (ordering_) [[unlikely]]
    return reads ? read_ordered(lane, cell, end, address, lanes, pc, 3)
                 : write_ordered(lane, cell, end, address, pc, 3, flags);
  reads ? read_cells(lane, cell, end, address, lanes, pc, 3) : write_cells(lane, cell, end, address, pc, 3, flags);
}

}  // namespace simt
