#include "common/simt/visibility.hpp"

#include <mutex>

namespace simt {

namespace {

/// Whether barriers order what a thread has written before what `lane` does now.
bool ordered(const Lane& writer, const Lane& lane) {
  return &writer == &lane || writer.wrote_at < lane.block->interval_began ||
         (writer.warp == lane.warp && writer.wrote_at < lane.warp->epoch);
}

void add(BlockSet& to, const BlockSet& from) {
  if (to.size() < from.size()) to.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) to[i] |= from[i];
}
void add(BlockSet& to, std::uint64_t block) {
  if (to.size() <= block / 64) to.resize(block / 64 + 1);
  to[block / 64] |= std::uint64_t(1) << block % 64;
}
bool contains(const BlockSet& set, std::uint64_t block) {
  return block / 64 < set.size() && (set[block / 64] >> block % 64 & 1) != 0;
}

/// Adds to what the block has seen the signals of the addresses that it has read. The launch is locked.
void see_signals(Block& block) {
  const auto& signals = block.launch->signals;
  for (const std::uintptr_t address : block.signals_read)
    if (const auto of_address = signals.find(address); of_address != signals.end()) add(block.seen, of_address->second);
}

}  // namespace

void begin_writes(Block& block) {
  block.second_fence = {};
  block.signals_read.clear();
  block.seen.clear();
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

void note_signal_seen(Block& block, std::uintptr_t address) {
  if (block.second_fence == Block::SecondFence::not_needed) block.second_fence = Block::SecondFence::missing;
  block.signals_read.insert(address);
}

void note_signal(Lane& lane, std::uintptr_t address) {
  Block& block = *lane.block;
  if (block.writers == 0 && block.signals_read.empty()) return;
  const std::lock_guard<std::mutex> lock(block.launch->mutex);
  see_signals(block);
  if (block.writers == 0 && block.seen.empty()) return;
  BlockSet& seen_by_readers = block.launch->signals[address];
  add(seen_by_readers, block.seen);
  if (block.writers == 0) return;
  add(seen_by_readers, block.number);
  Signalled& signalled = block.launch->signalled[block.number];
  for (const Lane& writer : block.lanes) {
    if (writer.wrote_at == 0) continue;
    const bool visible = writer.write_visible && ordered(writer, lane);
    (visible ? signalled.visible : signalled.invisible).set(writer.linear);
  }
}

Visible visible_write(Block& reader, std::uint64_t block, int thread) {
  const std::lock_guard<std::mutex> lock(reader.launch->mutex);
  if (!contains(reader.seen, block)) see_signals(reader);
  if (!contains(reader.seen, block)) return Visible::not_signalled;
  const Signalled& signalled = reader.launch->signalled[block];
  if (signalled.visible[std::size_t(thread)]) return Visible::yes;
  return signalled.invisible[std::size_t(thread)] ? Visible::no : Visible::not_signalled;
}

}  // namespace simt
