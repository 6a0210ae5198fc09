#include "common/simt/pending_registers.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "common/simt/asynchrony.hpp"

namespace simt {

namespace {
constexpr std::size_t kOfLane = Stacks::kSize / 4 + 8;  // registers
}

PendingRegisters::~PendingRegisters() {
  if (memory_ != nullptr) munmap(memory_, lanes_mapped_ * kOfLane * sizeof(Register));
}

PendingRegisters::Register* PendingRegisters::at(const Lane& lane, std::uintptr_t address) {
  // As many lanes as the block has: each host core reserves these addresses for its own block.
  if (const auto lanes = std::size_t(lane.block->threads); lanes_mapped_ < lanes) {
    if (memory_ != nullptr) munmap(memory_, lanes_mapped_ * kOfLane * sizeof(Register));  // of a smaller block
    memory_ = nullptr;
    void* memory = mmap(nullptr, lanes * kOfLane * sizeof(Register), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<Register*>(memory);
    lanes_mapped_ = lanes;
  }
  return memory_ + lane.linear * kOfLane + (address - lane.stack_low) / 4;
}

void PendingRegisters::begin(Lane& lane, const void* registers, int count) {
  const auto address = reinterpret_cast<std::uintptr_t>(registers);
  if (address - lane.stack_low >= lane.stack_size) return;  // no local variable: nothing is known about it
  Register* r = at(lane, address);
  for (int i = 0; i < count; ++i) {
    ++r[i].in_use;
    r[i].known = 1;
  }
  OfLane& all = of(lane);
  all.low = std::min(all.low, address);
  all.high = std::max(all.high, address + std::uintptr_t(4) * unsigned(count));
  lane.watches_registers = true;
}

void PendingRegisters::end(Lane& lane, const void* registers, int count) {
  const auto address = reinterpret_cast<std::uintptr_t>(registers);
  if (address - lane.stack_low >= lane.stack_size) return;
  Register* r = at(lane, address);
  for (int i = 0; i < count; ++i) r[i].in_use -= r[i].in_use != 0;
}

void PendingRegisters::forget(Lane& lane, const void* registers, int count) {
  const auto address = reinterpret_cast<std::uintptr_t>(registers);
  if (address - lane.stack_low >= lane.stack_size) return;
  Register* r = at(lane, address);
  for (int i = 0; i < count; ++i) r[i].in_use = 0;
}

bool PendingRegisters::need_fence(const Lane& lane, const void* registers, int count) {
  const auto address = reinterpret_cast<std::uintptr_t>(registers);
  const OfLane& all = of(lane);
  const bool fenced = all.fences > all.fences_at_wait;
  if (address - lane.stack_low >= lane.stack_size) return !fenced;
  const Register* r = at(lane, address);
  for (int i = 0; i < count; ++i) {
    if (r[i].known ? r[i].written == now(all) : !fenced) return true;
  }
  return false;
}

bool PendingRegisters::touch(const Lane& lane, std::uintptr_t address, unsigned size, bool writes) {
  const OfLane& all = of(lane);
  if (address + size <= all.low || address >= all.high) return false;
  Register* r = at(lane, address);
  const auto count = static_cast<int>((address % 4 + size + 3) / 4);
  bool in_use = false;
  for (int i = 0; i < count; ++i) {
    if (!r[i].known) continue;
    in_use |= r[i].in_use != 0;
    if (writes) r[i].written = now(all);
  }
  return in_use;
}

void PendingRegisters::clear(Lane& lane) {
  OfLane& all = of(lane);
  if (all.low < all.high) {
    Register* r = at(lane, all.low);
    std::memset(static_cast<void*>(r), 0, (all.high - all.low + 3) / 4 * sizeof(Register));
  }
  all = {};
  lane.watches_registers = false;
}

}  // namespace simt
