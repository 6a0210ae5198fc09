// Device memory: allocations with names, guard bands and the history of their elements; and, for each operating-system
// thread, what its blocks have asked of them. Internal.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/simt/execution.hpp"

namespace simt {

/// One allocation.
struct Tensor {
  std::uintptr_t low = 0, high = 0;
  std::byte* memory = nullptr;  ///< the guard band in front begins here
  std::size_t mapped = 0;
  std::string name;
  std::size_t element_size = 1;
  Role role = Role::input;
  std::size_t tile_bytes = 0;  ///< 0: reads are not counted by tile
  std::size_t index = 0;       ///< order of allocation
  /// For each element who wrote it first: 0 nobody, 1 the host, otherwise 2^63 | thread << 32 | code_of the write. Only
  /// for outputs and scratch.
  std::unique_ptr<std::atomic<std::uint64_t>[]> writers;
  std::size_t elements = 0;
  bool fresh = true;  ///< what nobody has written holds 0xff throughout
  /// Sectors that the current launch has read, written: one bit each.
  std::unique_ptr<std::atomic<std::uint64_t>[]> sectors_read, sectors_written;

  bool contains(std::uintptr_t address) const { return address - low < high - low; }
  std::size_t sectors() const { return (high - low + 31) / 32; }
};

/// Sets a sector's bit; whether it is new.
inline bool touch(std::atomic<std::uint64_t>* bits, std::uint64_t sector) {
  const std::uint64_t bit = std::uint64_t(1) << sector % 64;
  std::atomic<std::uint64_t>& word = bits[sector / 64];
  return !(word.load(std::memory_order_relaxed) & bit) && !(word.fetch_or(bit, std::memory_order_relaxed) & bit);
}

/// The allocation that holds this address, or null. Allocations do not change while a kernel runs.
Tensor* find_tensor(std::uintptr_t address);
/// All allocations, by address; for the begin and end of a launch.
const std::vector<std::unique_ptr<Tensor>>& all_tensors();
/// Where an address outside every allocation is: "12 bytes past the end of K", …
std::string describe_stray(std::uintptr_t address);

/// Device memory is the kernels': the host reads and writes it by copies alone. While this lives, a launch runs.
struct OpenedMemory {
  OpenedMemory();
  ~OpenedMemory();
  OpenedMemory(const OpenedMemory&) = delete;
  OpenedMemory& operator=(const OpenedMemory&) = delete;
};

/// What the blocks of one operating-system thread asked of each tensor in this launch.
class GlobalObserver {
 public:
  struct Traffic {
    GlobalCounters counters;
    std::vector<std::uint64_t> tile_bytes;
    std::map<std::uint64_t, std::vector<std::uint32_t>> tiles_of_block;
    std::vector<std::uint32_t> tiles_now;  ///< of the current block, unsorted, each once
    std::vector<std::uint32_t> tile_seen;  ///< by tile: the last block's serial number
    std::uint64_t arrived_bytes = 0;       ///< of block 0: by cp.async, and waited for
    bool touched = false;
  };

  void begin_launch();
  void begin_block() { ++serial_; }
  void end_block(std::uint64_t number);
  Traffic& of(const Tensor& tensor) { return traffic_[tensor.index]; }
  void read_tile(const Tensor& tensor, std::uint64_t address, std::size_t bytes);
  /// What it has seen of all tensors so far.
  GlobalCounters sum() const {
    GlobalCounters all;
    for (const Traffic& traffic : traffic_) all += traffic.counters;
    return all;
  }
  /// What it has seen of each tensor so far.
  std::map<std::string, Interval::Tensor> tensors_so_far() const;
  /// Adds what this observer saw to the launch's result.
  void merge_into(Launch& launch) const;

 private:
  std::vector<Traffic> traffic_;  ///< by Tensor::index
  std::uint32_t serial_ = 0;
};

/// Checks one access of a lane: inside an allocation, written before it is read, outputs written once. Returns the
/// tensor, or null for constants; does not return if the access is outside every allocation.
Tensor* check_global(Lane& lane, std::uintptr_t address, std::size_t size, Access access, const void* pc,
                     Tensor* guess = nullptr);

}  // namespace simt
