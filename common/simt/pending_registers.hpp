// Registers that products of warpgroups read and write while the kernel goes on. A lane's registers lie on its stack,
// and the instrumentation tells of every access there: so an accumulator that is touched between the issue of a product
// and its wait is noticed, and what was written since the last wgmma.fence. Internal.
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

  /// A product begins, ends, to use `count` registers of the lane.
  void begin(Lane& lane, const void* registers, int count);
  void end(Lane& lane, const void* registers, int count);
  /// They are in use no more, whatever has begun.
  void forget(Lane& lane, const void* registers, int count);
  /// A fence of the lane; a wait, after which new registers need a fence too.
  void fence(const Lane& lane) { ++of(lane).fences; }
  void wait(const Lane& lane) { of(lane).fences_at_wait = of(lane).fences; }
  /// Whether they were written, or may have been, since the lane's last fence.
  bool need_fence(const Lane& lane, const void* registers, int count);
  /// Notes an access; whether it is to a register in use.
  bool touch(const Lane& lane, std::uintptr_t address, unsigned size, bool writes);
  void clear(Lane& lane);

 private:
  struct Register {  ///< of four bytes
    std::uint8_t in_use = 0, known = 0;
    std::uint16_t written = 0;  ///< one more than the lane's fences at the time
  };
  struct OfLane {
    std::uint32_t fences = 0, fences_at_wait = 0;
    std::uintptr_t low = ~std::uintptr_t(0), high = 0;
  };
  OfLane& of(const Lane& lane) { return lanes_[lane.linear]; }
  Register* at(const Lane& lane, std::uintptr_t address);
  static std::uint16_t now(const OfLane& of) { return static_cast<std::uint16_t>(of.fences % 0xffff + 1); }

  Register* memory_ = nullptr;  ///< of lanes_mapped_ lanes
  std::size_t lanes_mapped_ = 0;
  OfLane lanes_[kMaxThreads] = {};
};

}  // namespace simt
