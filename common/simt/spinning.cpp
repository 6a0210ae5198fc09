// Threads that look at a place in device memory again and again until another block has written there. Nothing wakes
// them, so that a turn that never comes would last for ever: the launch ends it when every block that runs looks, and
// nothing has been changed since.
#include <cstring>

#include "common/simt/detect.hpp"
#include "common/simt/global_memory.hpp"
#include "common/simt/scheduler.hpp"

namespace simt {

namespace {

constexpr std::uint32_t kLooks = 1 << 17;  ///< of a block in which nothing else happens: then it waits for another one

std::string who_looks(const Lane& lane, const Looking& looking) {
  const Tensor* tensor = find_tensor(looking.address);
  std::string text = words("block ", lane.block->number, ", warp ", lane.warp->index, ", at ",
                           tensor == nullptr ? "a place" : tensor->name);
  if (tensor != nullptr) text += words(", element ", (looking.address - tensor->low) / tensor->element_size);
  return words(text, ", which holds ", std::int64_t(looking.value));
}

[[noreturn]] void give_up_looking(Lane& lane, const Looking& looking, const void* pc) {
  LaunchState& launch = *lane.block->launch;
  Finding finding = finding_of(lane, Mistake::deadlock, pc, "looks again and again");
  if (const Tensor* tensor = find_tensor(looking.address)) finding.variable = {tensor->name, " (global)"};
  {
    const std::lock_guard<std::mutex> lock(launch.mutex);
    finding.what = "nobody can go on: ";
    for (const auto& [block, who] : launch.looking)
      finding.what += (block == launch.looking.begin()->first ? "" : "; ") + who;
    if (const std::uint64_t begun = launch.next_block; begun < launch.block_count)
      finding.what += words("; ", launch.block_count - begun, " blocks have not begun");
  }
  finding.advice =
      "ask of each place who should change it next, and why that thread does not: it has ended without passing its "
      "turn "
      "on, or passed it on twice, or waits for another number itself";
  refuse(lane, std::move(finding));
}

}  // namespace

void look(Lane& lane, std::uintptr_t address, unsigned size, const void* pc) {
  if (size > sizeof(std::uint64_t)) return;
  Block& block = *lane.block;
  LaunchState& launch = *block.launch;
  std::uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<const void*>(address), size);  // NOLINT(performance-no-int-to-ptr)
  Looking& looking = block.looking;
  if (looking.address != address || looking.value != value) {
    looking = {address, value, 0};
    return;
  }
  if (++looking.count % kLooks != 0) return;
  bool stuck = false;
  {
    const std::lock_guard<std::mutex> lock(launch.mutex);
    if (const std::uint64_t changes = launch.changes; launch.looking_since != changes) {
      launch.looking.clear();
      launch.looking_since = changes;
      launch.rounds = 0;
    }
    // A second round, since one that has registered may not have run since a plain store to its place.
    if (!launch.stuck && launch.looking.size() == launch.running && ++launch.rounds == 1) launch.looking.clear();
    launch.looking[block.number] = who_looks(lane, looking);
    launch.stuck |= launch.rounds > 0 && launch.looking.size() == launch.running;
    stuck = launch.stuck;
  }
  if (stuck) give_up_looking(lane, looking, pc);
}

}  // namespace simt
