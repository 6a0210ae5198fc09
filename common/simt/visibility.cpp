#include "common/simt/visibility.hpp"

#include <mutex>

namespace simt {

namespace {

/// Whether barriers order what a thread has written before what `lane` does now.
bool ordered(const Lane& writer, const Lane& lane) {
  return &writer == &lane || writer.wrote_at < lane.block->interval_began ||
         (writer.warp == lane.warp && writer.wrote_at < lane.warp->epoch);
}

}  // namespace

void begin_writes(Block& block) {
  block.second_fence = {};
  if (block.writers == 0) return;
  block.writers = 0;
  for (Lane& lane : block.lanes) lane.wrote_at = 0;
}

void note_scratch_write(Lane& lane) {
  lane.block->writers += lane.wrote_at == 0;
  lane.wrote_at = lane.block->clock;
  lane.write_visible = false;
}

void note_fence(Lane& lane) {
  auto& second = lane.block->second_fence;
  if (second == Block::SecondFence::missing) second = Block::SecondFence::called;
  if (lane.block->writers == 0) return;
  for (Lane& writer : lane.block->lanes) writer.write_visible |= ordered(writer, lane);
}

void note_signal_seen(Block& block) {
  if (block.second_fence == Block::SecondFence::not_needed) block.second_fence = Block::SecondFence::missing;
}

void note_signal(Lane& lane) {
  Block& block = *lane.block;
  if (block.writers == 0) return;
  const std::lock_guard<std::mutex> lock(block.launch->mutex);
  Signalled& signalled = block.launch->signalled[block.number];
  for (const Lane& writer : block.lanes) {
    if (writer.wrote_at == 0) continue;
    const bool visible = writer.write_visible && ordered(writer, lane);
    (visible ? signalled.visible : signalled.invisible).set(writer.linear);
  }
}

Visible visible_write(LaunchState& launch, std::uint64_t block, int thread) {
  const std::lock_guard<std::mutex> lock(launch.mutex);
  const auto found = launch.signalled.find(block);
  if (found == launch.signalled.end()) return Visible::not_signalled;
  if (found->second.visible[std::size_t(thread)]) return Visible::yes;
  return found->second.invisible[std::size_t(thread)] ? Visible::no : Visible::not_signalled;
}

}  // namespace simt
