// The detectors: what is wrong with an access, a barrier, a collective. Internal.
//
// Every access to shared memory is checked when it happens, against a shadow of two-byte cells (shared_memory.hpp);
// what is found becomes a Finding, and the launch makes reports of them when it has ended.
#pragma once

#include <cstdint>
#include <string>

#include "common/simt/execution.hpp"
#include "common/simt/launch_state.hpp"

namespace simt {

/// A finding about the running lane at `pc`.
Finding finding_of(const Lane& lane, Mistake mistake, const void* pc, const char* action, std::string what = "",
                   std::string advice = "", Variable variable = {});
/// The side of one thread of a block.
inline Finding::Side side_of(const void* pc, const char* action, int thread) {
  return {pc, action, thread / kWarpSize, 1u << thread % kWarpSize};
}
/// What to say of memory that no store was seen to write, and that holds something all the same. The compiler tells of
/// no access that a call makes for a struct: it stores the result of a function that is not inlined without a word.
inline constexpr const char* kUnseenStore =
    "no store was seen to write it, and yet it holds something: the simulator does not see the store of a struct that "
    "a function returns which is not inlined, as in p[i] = f(x)";
inline constexpr const char* kUnseenStoreAdvice =
    "take the result first and store it then: const auto value = f(x); p[i] = value; or let the function be inlined "
    "(__forceinline__)";
/// Makes a finding about a read one about the wrong stage of a ring; `meant` is what should have been read.
void tell_wrong_stage(Finding& finding, const Variable& meant);
/// Makes a race of `lane`, which has waited at an mbarrier, with lanes of another warp each of which arrives there
/// itself, one about that barrier: if the phase that let it pass has counted none of them and it was made for fewer
/// than come; or has counted them all, so that what they read they read after they had arrived.
void tell_arrivals_of_lanes(Finding& finding, const Lane& lane, int warp, std::uint32_t lanes);
/// Notes it in the lane's launch.
void note_finding(const Lane& lane, Finding finding);
/// And ends the running lane, whose finding it is.
[[noreturn]] void refuse(Lane& lane, Finding finding);

/// A volatile read of device memory: perhaps one of many, until another block has written there. Ends the lane if that
/// can no longer come (spinning.cpp).
void look(Lane& lane, std::uintptr_t address, unsigned size, const void* pc);

// The parts of a block's life that the detectors follow.
void begin_block(Block& block);
void end_interval(Block& block);  ///< all threads have come to a block barrier, or ended
void end_block(Block& block);

// What the scheduler and the collectives notice.
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
