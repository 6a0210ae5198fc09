// Registers that wgmma in flight read and write. A lane's registers are on its stack, and the instrumentation reports
// every access there. This detects accesses to an accumulator between the issue of a wgmma and its wait, and writes to
// registers since the last wgmma.fence. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/simt/execution.hpp"

namespace simt {

class PendingRegisters {
 public:
  PendingRegisters() = default;
  ~PendingRegisters();
  PendingRegisters(const PendingRegisters&) = delete;
  PendingRegisters& operator=(const PendingRegisters&) = delete;

  /// A wgmma starts (begin) or stops (end) using `count` registers of the lane.
  void begin(Lane& lane, const void* registers, int count);
  void end(Lane& lane, const void* registers, int count);
  /// They are no longer in use, whatever has started.
  void forget(Lane& lane, const void* registers, int count);
  /// fence: a wgmma.fence of the lane. After a wait, new registers need a fence too.
  void fence(const Lane& lane) { ++of(lane).fences; }
  void wait(const Lane& lane) { of(lane).fences_at_wait = of(lane).fences; }
  /// Whether they were, or may have been, written since the lane's last fence.
  bool need_fence(const Lane& lane, const void* registers, int count);
  /// Records an access; returns whether it is to a register in use.
  bool touch(const Lane& lane, std::uintptr_t address, unsigned size, bool writes);
  void clear(Lane& lane);

 private:
  struct Register {  ///< four bytes
    std::uint8_t in_use = 0, known = 0;
    std::uint16_t written = 0;  ///< one more than the lane's number of fences at the time of the last write
  };
  struct OfLane {
    std::uint32_t fences = 0, fences_at_wait = 0;
    std::uintptr_t low = ~std::uintptr_t(0), high = 0;
  };
  OfLane& of(const Lane& lane) { return lanes_[lane.linear]; }
  Register* at(const Lane& lane, std::uintptr_t address);
  static std::uint16_t now(const OfLane& of) { return static_cast<std::uint16_t>(of.fences % 0xffff + 1); }

  Register* memory_ = nullptr;  ///< for lanes_mapped_ lanes
  std::size_t lanes_mapped_ = 0;
  OfLane lanes_[kMaxThreads] = {};
};

}  // namespace simt
