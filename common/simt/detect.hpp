// The detectors: errors in accesses, barriers and collectives. Internal.
//
// Every access to shared memory is checked when it happens, against a shadow of two-byte cells (shared_memory.hpp).
// Each error becomes a Finding; the launch converts findings to reports when it ends.
#pragma once

#include <cstdint>
#include <string>

#include "common/simt/execution.hpp"
#include "common/simt/launch_state.hpp"

namespace simt {

/// A finding about the running lane at `pc`.
Finding finding_of(const Lane& lane, Mistake mistake, const void* pc, const char* action, std::string what = "",
                   std::string advice = "", Variable variable = {});
/// The side of a report for one thread of a block.
inline Finding::Side side_of(const void* pc, const char* action, int thread) {
  return {pc, action, thread / kWarpSize, 1u << thread % kWarpSize};
}
/// The text for memory that no observed store has written but that holds a value. The compiler does not instrument the
/// store of a struct that a function returns in place if the function is not inlined.
inline constexpr const char* kUnseenStore =
    "no observed store wrote it, and yet it holds a value: the simulator does not observe the store of a struct that a "
    "non-inlined function returns in place, as in new (&p[i]) T(f(x))";
inline constexpr const char* kUnseenStoreAdvice =
    "assign the result: p[i] = f(x); or make the function __forceinline__";
/// An instruction's access to its registers. They are local variables of the running lane; anywhere else, the access is
/// observed like any other.
void observe_registers(const void* registers, std::size_t bytes, Access access, const void* pc);
/// Turns a finding about a read into one about the wrong stage of a ring buffer. `meant` is what should have been read.
void explain_wrong_stage(Finding& finding, const Variable& meant);
/// Extends a race between `lane`, which has waited at an mbarrier, and lanes of another warp that each arrive there. It
/// becomes a finding about that mbarrier in two cases. Either the completed phase has counted none of those lanes, and
/// the arrival count is smaller than the number of arriving lanes. Or it has counted all of them, so that they read
/// after their arrival.
void explain_arrivals_of_lanes(Finding& finding, const Lane& lane, int warp, std::uint32_t lanes);
/// Records the finding in the lane's launch.
void note_finding(const Lane& lane, Finding finding);
/// Records the finding and ends the running lane.
[[noreturn]] void refuse(Lane& lane, Finding finding);

/// A volatile read of device memory, possibly one iteration of a spin loop that ends when another block writes there.
/// Ends the lane if that write can no longer happen (spinning.cpp).
void poll(Lane& lane, std::uintptr_t address, unsigned size, const void* pc);

// The events in a block's life that the detectors follow.
void begin_block(Block& block);
void end_interval(Block& block);  ///< all threads have arrived at a block barrier, or ended
void end_block(Block& block);

// Errors that the scheduler and the collectives detect.
void report_exception(const Lane& lane, const char* text);
void report_deadlock(const Block& block);
void report_divergent_barrier(const Lane& lane, Where where);
void report_divergent_collective(const Lane& lane, const Group& group, const void* pc);
void report_not_in_mask(const Lane& lane, std::uint32_t mask, const void* pc);
void report_inactive_source(const Warp& warp, int lane, int source, const void* pc);

/// "writes", "reads", "atomically updates", …
const char* action_of(Access access);
/// "__syncwarp", "mma_sync", "ldmatrix", …
const char* name_of(Collective operation);

}  // namespace simt
