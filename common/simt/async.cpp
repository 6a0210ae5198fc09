// cp.async: asynchronous copies from global to shared memory. From issue to the wait of the issuing thread the bytes
// are pending, and no thread may access them. The wait completes the writes. From then on they are writes of the
// issuing thread, and other threads need a barrier as after any other write.
#include <cstring>

#include "common/simt/address.hpp"
#include "common/simt/detect.hpp"
#include "common/simt/global_memory.hpp"
#include "common/simt/scheduler.hpp"
#include "common/simt/shared_memory.hpp"
#include "common/simt/tracer.hpp"

namespace simt {

namespace {

void arrive(Lane& lane, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const AsyncCopy& copy = lane.copies.copies[i];
    std::memcpy(at_address<void>(copy.to), at_address<const void>(copy.from), copy.size - copy.zero_fill);
    std::memset(at_address<void>(copy.to + copy.size - copy.zero_fill), 0, copy.zero_fill);
    if (lane.block->number == 0 && observed != nullptr) {
      const Tensor* tensor = find_tensor(copy.from);
      if (tensor != nullptr) lane.block->global->of(*tensor).arrived_bytes += copy.size - copy.zero_fill;
    }
    if (lane.block->launch->detecting) lane.block->shared->arrive(lane, copy.to, copy.size, copy.pc);
  }
  lane.copies.copies.erase(lane.copies.copies.begin(), lane.copies.copies.begin() + static_cast<std::ptrdiff_t>(count));
}

[[noreturn]] void refuse(Lane& lane, const void* pc, Mistake mistake, std::string what, std::string advice) {
  refuse(lane, finding_of(lane, mistake, pc, "copies asynchronously", std::move(what), std::move(advice)));
}

}  // namespace

void copy_async(void* shared, const void* global, std::size_t size, std::size_t zero_fill) {
  Lane& lane = *running;
  Block& block = *lane.block;
  const void* pc = __builtin_return_address(0);
  const auto to = reinterpret_cast<std::uintptr_t>(shared), from = reinterpret_cast<std::uintptr_t>(global);
  if (size != 4 && size != 8 && size != 16) {
    refuse(lane, pc, Mistake::misaligned, words("a cp.async of ", size, " bytes; allowed are 4, 8 and 16"),
           "copy 16 bytes at a time");
  }
  if (zero_fill > size) {
    const std::string bytes = std::to_string(size);
    refuse(lane, pc, Mistake::misaligned,
           "a cp.async of " + bytes + " bytes must read 0 to " + bytes + " bytes from global memory",
           "check the number of bytes that are read or zero-filled");
  }
  if (!block.shared->contains(to)) {
    refuse(lane, pc, Mistake::outside_shared, "the destination of a cp.async is not in shared memory",
           "pass the shared-memory address first, then the global address");
  }
  const std::size_t bytes = size - zero_fill;
  if (to % size != 0 || (bytes > 0 && from % size != 0)) {
    refuse(lane, pc, Mistake::misaligned,
           words("both addresses of a cp.async of ", size, " bytes must be multiples of ", size),
           "use a row stride that is a multiple of 16 bytes");
  }
  if (observed != nullptr) {
    Recorder& recorder = lane.warp->recorder;
    if (bytes > 0) {
      Tensor* tensor = check_global(lane, from, bytes, Access::async, pc);
      if (tensor != nullptr) {
        recorder.add(lane.position, lane.index, pc, from, static_cast<unsigned>(size), Access::async, Space::global)
            .tensor = tensor;
        count_at(block, pc, [&] { block.global->of(*tensor).counters.async_bytes += bytes; });
        if (tensor->tile_bytes != 0) block.global->read_tile(*tensor, from, bytes);
      }
    }
    block.shared->check(lane, to, size, Access::async, lane.bit, pc, /*pending=*/true);
    recorder.add(lane.position, lane.index, pc, to, static_cast<unsigned>(size), Access::async, Space::shared);
    if (recorder.far_ahead(lane.position)) [[unlikely]]
      pause_for_counting();
  }
  lane.copies.copies.push_back({to, from, static_cast<std::uint8_t>(size), static_cast<std::uint8_t>(zero_fill), pc});
}

void copy_async_commit() {
  AsyncCopies& copies = running->copies;
  copies.group_ends.push_back(static_cast<std::uint32_t>(copies.copies.size()));
}

void copy_async_wait(std::size_t groups_left) {
  Lane& lane = *running;
  auto& ends = lane.copies.group_ends;
  if (ends.size() <= groups_left) return;
  const std::size_t groups = ends.size() - groups_left;
  const std::uint32_t arrived = ends[groups - 1];
  if (lane.block->tracer != nullptr && lane.index == 0) [[unlikely]]
    lane.block->tracer->pass_wait(*lane.warp, __builtin_return_address(0), "cp.async");
  arrive(lane, arrived);
  ends.erase(ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(groups));
  for (std::uint32_t& end : ends) end -= arrived;
  lane.copies.complete += groups;
  lane.block->counters.async_partial_waits += lane.index == 0 && !lane.copies.copies.empty();
}

}  // namespace simt
