// Spin loops: threads that read a location in device memory repeatedly until another block writes there. Nothing wakes
// them, so a missing signal would hang the launch. The launch therefore ends when every running block polls and nothing
// has changed since.
#include <cstring>

#include "common/simt/detect.hpp"
#include "common/simt/global_memory.hpp"
#include "common/simt/scheduler.hpp"

namespace simt {

namespace {

constexpr std::uint32_t kPolls =
    1 << 17;  ///< reads of a block in which nothing else happens, before it counts as waiting

std::string who_polls(const Lane& lane, const Polling& polling) {
  const Tensor* tensor = find_tensor(polling.address);
  std::string text = words("block ", lane.block->number, ", warp ", lane.warp->index, ", at ",
                           tensor == nullptr ? "an unknown address" : tensor->name);
  if (tensor != nullptr) text += words(", element ", (polling.address - tensor->low) / tensor->element_size);
  return words(text, ", which holds ", std::int64_t(polling.value));
}

[[noreturn]] void give_up_polling(Lane& lane, const Polling& polling, const void* pc) {
  LaunchState& launch = *lane.block->launch;
  Finding finding = finding_of(lane, Mistake::deadlock, pc, "polls");
  if (const Tensor* tensor = find_tensor(polling.address)) finding.variable = {tensor->name, " (global)"};
  {
    const std::lock_guard<std::mutex> lock(launch.mutex);
    finding.what = "no thread can continue: ";
    for (const auto& [block, who] : launch.polling)
      finding.what += (block == launch.polling.begin()->first ? "" : "; ") + who;
    if (const std::uint64_t begun = launch.next_block; begun < launch.block_count)
      finding.what += words("; ", launch.block_count - begun, " blocks have not started");
  }
  finding.advice =
      "find out for each location which thread should write it next, and why it does not: it may have ended without "
      "signalling the semaphore, have signalled it twice, or itself wait for another value";
  refuse(lane, std::move(finding));
}

}  // namespace

void poll(Lane& lane, std::uintptr_t address, unsigned size, const void* pc) {
  if (size > sizeof(std::uint64_t)) return;
  Block& block = *lane.block;
  LaunchState& launch = *block.launch;
  std::uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<const void*>(address), size);  // NOLINT(performance-no-int-to-ptr)
  Polling& polling = block.polling;
  if (polling.address != address || polling.value != value) {
    polling = {address, value, 0};
    return;
  }
  if (++polling.count % kPolls != 0) return;
  bool stuck = false;
  {
    const std::lock_guard<std::mutex> lock(launch.mutex);
    if (const std::uint64_t changes = launch.changes; launch.looking_since != changes) {
      launch.polling.clear();
      launch.looking_since = changes;
      launch.rounds = 0;
    }
    // A second round: a block that has registered may not have run since a plain store to its location.
    if (!launch.stuck && launch.polling.size() == launch.running && ++launch.rounds == 1) launch.polling.clear();
    launch.polling[block.number] = who_polls(lane, polling);
    launch.stuck |= launch.rounds > 0 && launch.polling.size() == launch.running;
    stuck = launch.stuck;
  }
  if (stuck) give_up_polling(lane, polling, pc);
}

}  // namespace simt
