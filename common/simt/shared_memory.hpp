// A block's shared memory: static variables (thread-local storage of the executable) and dynamic shared memory, each
// with a shadow that says who touched what last. Internal.
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

/// The history of two bytes of shared memory within the current block. Stamps are Block::clock at the time: one older
/// than the block's begin says "never", one older than the last block barrier "ordered before everything now".
struct alignas(32) Cell {
  std::uint32_t write_stamp = 0;
  std::uint32_t write_pc = 0;  ///< code_of the return address
  std::uint16_t write_thread = 0;
  std::uint16_t write_step = 0;
  std::uint16_t read_step = 0;
  std::uint8_t read_warp = 0;  ///< the first warp that has read since the last block barrier
  std::uint8_t flags = 0;
  std::uint32_t read_stamp = 0;  ///< of the last read by warp read_warp
  std::uint32_t read_pc = 0;     ///< of the last read that is kept
  std::uint32_t read_warps = 0;  ///< warps that have read since the last block barrier (if read_stamp is that young)
  std::uint32_t read_lanes = 0;  ///< lanes of warp read_warp that have read since its last barrier
  static constexpr std::uint8_t kAtomic = 1, kPending = 2;  ///< the last write: an atomic; still under way
  static constexpr std::uint8_t kSharedPc = 64;             ///< several lanes of read_warp have read at read_pc
  static constexpr int kWriteBytes = 2, kReadBytes = 4;     ///< shifts of two-bit masks: which of the bytes
};
static_assert(sizeof(Cell) == 32);

/// Which lane of read_warp has read a cell at read_pc, and where another one has, so that what a lane does not wait for
/// is never told with a place where it has read itself. Holds where several lanes have read and Cell::kSharedPc is not
/// set.
struct OtherRead {
  std::uint32_t pc = 0;
  std::uint16_t step = 0;
  std::uint8_t lane_of_cell = 0;  ///< which one has read at Cell::read_pc; pc and step are another's
};

/// The last read of two bytes by each warp, in blocks with barriers of parts of them (asynchrony.hpp).
struct Reader {
  std::uint32_t stamp = 0;  ///< kUnderWay: TMA or the tensor cores are still reading
  std::uint32_t pc = 0;
  std::uint32_t lanes = 0;  ///< that have read since their last barrier; 0: the tensor cores, for the warpgroup
  static constexpr std::uint32_t kUnderWay = ~0u;
};

/// Where 16 bytes of shared memory come from that TMA has brought.
struct Origin {
  std::uint32_t copy = 0;       ///< number of the copy in the block, from 1; 0: none
  std::uint32_t offset = 0;     ///< bytes from the box's beginning, before swizzling
  std::uint16_t row_bytes = 0;  ///< 0: of a line, of whose rows nothing is known
  Swizzle swizzle = Swizzle::none;
};

/// Who reads shared memory besides threads.
struct AsyncReader {
  const char* action;
  const void* pc;
  std::uint32_t lanes;    ///< 0: the tensor cores, for a warpgroup
  int warp;               ///< as which the read is entered: for a warpgroup its first one
  bool enters = true;     ///< false: it is entered already, and only looked at for another warp
  bool reported = false;  ///< one mistake of a read is enough
};

/// Memory with a shadow cell for every two bytes.
class Shadowed {
 public:
  void reset(std::uintptr_t low, std::size_t bytes);
  bool contains(std::uintptr_t address) const { return address - low_ < bytes_; }
  Cell* cell(std::uintptr_t address) { return &cells_[(address - low_) / 2]; }
  OtherRead& other_read(const Cell* cell) { return other_reads_[cell - cells_]; }
  /// Of the two bytes of this cell. A warp's lie side by side, as it reads.
  Reader& reader(const Cell* cell, int warp) { return readers_[warp * std::ptrdiff_t(cell_count()) + (cell - cells_)]; }
  Origin& origin(std::uintptr_t address) { return origins_[(address - low_) / 16]; }
  /// Makes room for readers and origins.
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
  static constexpr std::uint32_t kStaticsOffset = 0x39000;  ///< past the most that a block can have, a multiple of 1024

  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  void begin_launch(std::size_t dynamic_bytes);
  /// Fills with 0xff what the block before has written, and forgets its history.
  void begin_block(Block& block);
  /// Looks at the reads of this interval that found nothing written.
  void end_interval(Block& block);
  /// All lanes of this warp have met.
  void warp_barrier(Warp& warp) {
    if (!suspects_.empty()) [[unlikely]]
      pass_warp_barrier(warp);
  }

  bool contains(std::uintptr_t address) const { return dynamic_.contains(address) || statics_.contains(address); }
  /// As descriptors name places in shared memory: static variables lie behind the dynamic memory.
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
  /// Names the parts of the dynamic memory; ends the lane if `size` is more than was asked for.
  void use_layout(Lane& lane, std::size_t size, const SharedLayout* layout, const void* pc);

  /// Checks one access. `lanes`: those that take part (one, or the whole warp for a matrix). Does not return if the
  /// access is outside what may be touched. `pending`: a cp.async begins to write.
  void check(Lane& lane, std::uintptr_t address, std::size_t size, Access access, std::uint32_t lanes, const void* pc,
             bool pending = false);
  /// Bounds only: for matrices, whose lines must lie in one member.
  void check_bounds(Lane& lane, std::uintptr_t address, std::size_t size, Access access, const void* pc);
  /// Whether two addresses within bounds lie in one member, or in one static variable.
  bool same_member(std::uintptr_t a, std::uintptr_t b) const;
  /// All lines of a matrix in one member. Does not return otherwise.
  void check_same_member(Lane& lane, std::uintptr_t first, std::uintptr_t last, Access access, const void* pc);
  // Where vector clocks order the block (ordered_memory.cpp).
  /// From now on in this block.
  void begin_ordering();
  /// TMA begins and ends to write a box.
  void begin_async_write(Lane& lane, const BulkCopy& copy);
  void finish_async_write(Block& block, const BulkCopy& copy);
  /// TMA, for one lane, or the tensor cores, for a warpgroup, begin and end to read.
  void begin_async_read(Lane& lane, std::uintptr_t address, std::size_t size, AsyncReader& reader);
  void mark_async_read(const Block& block, std::uintptr_t address, std::size_t size, const AsyncReader& reader);
  void finish_async_read(const Block& block, int warp, std::uintptr_t address, std::size_t size, bool tensor_cores);
  /// Where the 16 bytes at this address come from; null if no copy has brought them, or if they were written since.
  const Origin* origin(std::uintptr_t address);
  /// "loads a box", what has brought the bytes at this address.
  const char* action_of_load(std::uintptr_t address) {
    return shadow(address).origin(address).row_bytes == 0 ? "loads a line" : "loads a box";
  }

  /// Pending bytes have arrived: they are now written by the lane.
  void arrive(Lane& lane, std::uintptr_t address, std::size_t size, const void* pc);

  /// "K", "tile", and which part of it: "[3][16]", " + 128 bytes".
  Variable variable(std::uintptr_t address) const;
  /// The same place in another stage of a ring, an array of three or more dimensions, of which `is` says that it is
  /// meant; 0: there is none, or the array is one of touched_too_early_.
  std::uintptr_t in_another_stage(std::uintptr_t address, const std::function<bool(const Cell&)>& is);
  /// The last read by this warp of two bytes of the dynamic memory, in a block that vector clocks order.
  const Reader& last_read(const Cell& cell, int warp) { return dynamic_.reader(&cell, warp); }

 private:
  struct Suspect {  ///< a read that found nothing written
    std::uintptr_t address;
    const void* pc;
    std::uint16_t thread;
    bool warp_barrier_since;
    bool holds_something = false;  ///< other than what memory holds before anything is written
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
    std::uint8_t bytes, flags;  ///< which bytes of the cell; Cell's flags of the write
    bool copies;                ///< TMA writes, for the lane
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
  /// By two-byte cell of the dynamic memory: 1 + index of the member, 0 outside all, kPadding in padding columns, kAny
  /// where members overlap.
  std::vector<std::uint8_t> map_;
  static constexpr std::uint8_t kOutside = 0, kPadding = 255, kAny = 254;
  bool ordering_ = false;     ///< vector clocks order this block
  std::uint32_t copies_ = 0;  ///< of the block so far
  std::vector<Suspect> suspects_;
  /// Rings that the block has touched too early, where no other stage was meant: their stages may come unread after it.
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
