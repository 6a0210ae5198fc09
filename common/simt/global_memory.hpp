// Device memory: named allocations, guard bands and the write history of elements; and, per operating-system thread,
// the traffic of its blocks. Internal.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/simt/execution.hpp"

namespace simt {

struct Operation;

/// An access of an operation of a stream (stream_order.hpp): bit n of the words is element n.
struct StreamAccess {
  std::shared_ptr<const Operation> operation;
  bool writes;
  std::vector<std::uint64_t> elements;
};

/// One allocation.
struct Tensor {
  std::uintptr_t low = 0, high = 0;
  std::byte* memory = nullptr;  ///< start of the guard band before the allocation
  std::size_t mapped = 0;
  std::string name;
  std::size_t element_size = 1;
  Role role = Role::input;
  std::size_t tile_bytes = 0;  ///< 0: reads are not counted per tile
  std::size_t index = 0;       ///< order of allocation
  /// The first writer of each element: 0 none, 1 the host, otherwise 2^63 | thread << 32 | code_of the write. Only for
  /// outputs and scratch memory.
  std::unique_ptr<std::atomic<std::uint64_t>[]> writers;
  std::size_t elements = 0;
  bool fresh = true;  ///< unwritten elements still hold 0xff bytes
  /// Sectors that the current launch has read and written: one bit each.
  std::unique_ptr<std::atomic<std::uint64_t>[]> sectors_read, sectors_written;
  int device = 0;
  /// If streams are followed: the elements that the current launch has read and written.
  std::unique_ptr<std::atomic<std::uint64_t>[]> elements_read, elements_written;
  std::vector<StreamAccess> history;  ///< accesses by streams, without those that later ones make redundant

  bool contains(std::uintptr_t address) const { return address - low < high - low; }
  std::size_t sectors() const { return (high - low + 31) / 32; }
};

/// Marks the elements of an access in `bits`, elements_read or elements_written, unless it is null.
inline void mark_elements(const Tensor& tensor, std::atomic<std::uint64_t>* bits, std::uintptr_t address,
                          std::size_t bytes) {
  if (bits == nullptr || bytes == 0) return;
  const std::size_t last = (address + bytes - 1 - tensor.low) / tensor.element_size;
  for (std::size_t i = (address - tensor.low) / tensor.element_size; i <= last; ++i)
    bits[i / 64].fetch_or(std::uint64_t(1) << i % 64, std::memory_order_relaxed);
}

/// Sets a sector's bit; returns whether it was clear.
inline bool touch(std::atomic<std::uint64_t>* bits, std::uint64_t sector) {
  const std::uint64_t bit = std::uint64_t(1) << sector % 64;
  std::atomic<std::uint64_t>& word = bits[sector / 64];
  return !(word.load(std::memory_order_relaxed) & bit) && !(word.fetch_or(bit, std::memory_order_relaxed) & bit);
}

/// The allocation that contains this address, or null. Allocations do not change while a kernel runs.
Tensor* find_tensor(std::uintptr_t address);
/// All allocations, by address; used at the start and the end of a launch.
const std::vector<std::unique_ptr<Tensor>>& all_tensors();
std::unique_ptr<std::atomic<std::uint64_t>[]> zeros(std::size_t count);
/// Describes an address outside every allocation: "12 bytes past the end of K", …
std::string describe_stray(std::uintptr_t address);

/// Makes device memory accessible to kernels during a launch. Otherwise the host can access it only by copies.
struct OpenedMemory {
  OpenedMemory();
  ~OpenedMemory();
  OpenedMemory(const OpenedMemory&) = delete;
  OpenedMemory& operator=(const OpenedMemory&) = delete;
};

/// The traffic of the blocks of one operating-system thread to each tensor in this launch.
class GlobalObserver {
 public:
  struct Traffic {
    GlobalCounters counters;
    std::vector<std::uint64_t> tile_bytes;
    std::map<std::uint64_t, std::vector<std::uint32_t>> tiles_of_block;
    std::vector<std::uint32_t> tiles_now;  ///< tiles of the current block, unsorted, each once
    std::vector<std::uint32_t> tile_seen;  ///< by tile: serial number of the last block that read it
    std::uint64_t arrived_bytes = 0;       ///< of block 0: by cp.async that was waited for
    bool touched = false;
  };

  void begin_launch();
  void begin_block() { ++serial_; }
  void end_block(std::uint64_t number);
  Traffic& of(const Tensor& tensor) { return traffic_[tensor.index]; }
  void read_tile(const Tensor& tensor, std::uint64_t address, std::size_t bytes);
  /// The counters of all tensors so far.
  GlobalCounters sum() const {
    GlobalCounters all;
    for (const Traffic& traffic : traffic_) all += traffic.counters;
    return all;
  }
  /// The counters of each tensor so far.
  std::map<std::string, Interval::Tensor> tensors_so_far() const;
  /// Adds this observer's counters to the launch's result.
  void merge_into(Launch& launch) const;

 private:
  std::vector<Traffic> traffic_;  ///< by Tensor::index
  std::uint32_t serial_ = 0;
};

/// At the start of a launch: what earlier launches wrote to scratch memory is visible to all of its blocks.
void begin_writers();
/// A plain access to scratch memory. A read of what another block of this launch has written is checked
/// (visibility.hpp).
void follow_scratch(Lane& lane, const Tensor& tensor, std::uintptr_t address, std::size_t size, Access access,
                    const void* pc);

/// Checks one access of a lane: inside an allocation, no read before the first write, outputs written once. Returns the
/// tensor, or null for constants. Does not return if the access is outside every allocation.
Tensor* check_global(Lane& lane, std::uintptr_t address, std::size_t size, Access access, const void* pc,
                     Tensor* guess = nullptr);

}  // namespace simt
