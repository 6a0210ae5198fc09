// Writes to device memory that another block of the same launch reads: they must be visible there before the block
// signals that it has written. A block signals by an atomic operation on an integer, or by a volatile store. Internal.
//
// A write is visible to the whole device if its thread calls __threadfence() after it, or if another thread does, after
// a barrier of both (fences are cumulative: PTX ISA, "Memory Consistency Model"). The signal must come after the fence
// and, if another thread gives it, after a barrier. Only plain stores to scratch memory are followed, by thread: once
// its block has signalled a visible write of a thread, later ones of the same launch count as visible too.
//
// The reading block needs a fence too, of any of its threads, after its first atomic operation or volatile read, by
// which it may have seen the signal.
#pragma once

#include <cstdint>

#include "common/simt/execution.hpp"
#include "common/simt/launch_state.hpp"

namespace simt {

void begin_writes(Block& block);
/// A plain store of a lane to scratch memory.
void note_scratch_write(Lane& lane);
void note_fence(Lane& lane);
void note_signal(Lane& lane);
/// An atomic on an integer, or a volatile read: the block may have seen another one's signal.
void note_signal_seen(Block& block);
/// Whether what a thread of another block has written is visible to a reader.
enum class Visible {
  yes,
  no,            ///< when the block signalled, it may not have been
  not_signalled  ///< the block has not signalled since
};
Visible visible_write(LaunchState& launch, std::uint64_t block, int thread);

}  // namespace simt
