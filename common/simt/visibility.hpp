// Writes to device memory that another block of the same launch reads: they must be visible there before the block
// signals that it has written. A block signals by an atomic operation on an integer, or by a volatile store. Internal.
//
// A write is visible to the whole device if its thread calls __threadfence() after it, or if another thread does, after
// a barrier of both (fences are cumulative: PTX ISA, "Memory Consistency Model"). The signal must come after the fence
// and, if another thread gives it, after a barrier. Only plain stores to scratch memory are followed, by thread: once
// its block has signalled a visible write of a thread, later ones of the same launch count as visible too.
//
// The reading block must have seen the signal: by an atomic operation on the same address or a volatile read of it, or
// by the signal of a third block that had seen it. So the order in which blocks happen to run does not matter. After
// its first such operation the reading block needs a fence too, of any of its threads.
#pragma once

#include <cstdint>

#include "common/simt/execution.hpp"
#include "common/simt/launch_state.hpp"

namespace simt {

void begin_writes(Block& block);
/// A plain store of a lane to scratch memory.
void note_scratch_write(Lane& lane);
void note_fence(Lane& lane);
/// An atomic on an integer, or a volatile store, before it is executed.
void note_signal(Lane& lane, std::uintptr_t address);
/// An atomic on an integer, or a volatile read: the block may have seen another one's signal.
void note_signal_seen(Block& block, std::uintptr_t address);
/// Whether what a thread of another block has written is visible to a reader.
enum class Visible {
  yes,
  no,            ///< when the block signalled, it may not have been
  not_signalled  ///< the block has not signalled since, or not to the reader
};
Visible visible_write(Block& reader, std::uint64_t block, int thread);

}  // namespace simt
