// Barriers with numbers ("Parallel Synchronization and Communication Instructions: barrier.cta"): so many threads come
// to one, those that sync wait, those that arrive go on.
#include "common/simt/asynchrony.hpp"
#include "common/simt/scheduler.hpp"

namespace simt {

namespace {

Finding misuse(const Lane& lane, const void* pc, int number, std::string what, std::string advice) {
  return finding_of(lane, Mistake::named_barrier, pc, "comes to the barrier", std::move(what), std::move(advice),
                    {words("barrier ", number), ""});
}

/// With the first that has come to this phase as the other side.
Finding against_first(const Block& block, const NamedBarrier& barrier, Finding finding) {
  finding.other = {barrier.first_pc, "comes to the barrier", barrier.first_thread / kWarpSize,
                   block.lanes[barrier.first_thread].bit};
  return finding;
}

/// All lanes of each warp, or none.
void check_whole_warps(const Lane& lane, const NamedBarrier& barrier, int number, const void* pc) {
  const Block& block = *lane.block;
  for (int w = 0; w < block.warp_count; ++w) {
    const std::uint32_t absent = block.warps[w].alive & ~barrier.lanes[w];
    if (barrier.lanes[w] == 0 || absent == 0 || block.damaged) continue;
    Finding finding =
        misuse(lane, pc, number, words("of warp ", w, " only ", lanes_text(barrier.lanes[w]), " have come"),
               "all lanes of a warp have to come to it together: a GPU counts whole warps");
    note_finding(lane, std::move(finding));
  }
}

void complete(Lane& lane, NamedBarrier& barrier, int number, const void* pc) {
  Asynchrony& all = *lane.block->asynchrony;
  check_whole_warps(lane, barrier, number, pc);
  ++lane.block->counters.named_barriers;
  const KnowledgePointer knows = barrier.gathering.take();
  const auto waiting = std::move(barrier.waiting);
  barrier = {};
  for (Lane* other : waiting) {
    other->knows = all.clocks.joined(other->knows, knows);
    if (other != &lane) wake(*other);
  }
}

}  // namespace

void named_barrier(int number, int threads, bool waits) {
  Lane& lane = *running;
  const void* pc = __builtin_return_address(0);
  Asynchrony& all = asynchrony(lane);
  if (number < 1 || number > 15) {
    refuse(lane, misuse(lane, pc, number, "a block has the barriers 0 to 15, and 0 is that of __syncthreads",
                        "use a number from 1 to 15"));
  }
  if (threads <= 0 || threads % kWarpSize != 0 || threads > kMaxThreads) {
    refuse(lane, misuse(lane, pc, number, words("a barrier for ", threads, " threads"),
                        "pass a multiple of 32: the threads of all warps that come, those that arrive included"));
  }
  NamedBarrier& barrier = all.named[number];
  if (barrier.threads == 0) {
    barrier.threads = threads;
    barrier.first_pc = pc;
    barrier.first_thread = lane.linear;
  }
  if (barrier.threads != threads) {
    refuse(lane, against_first(*lane.block, barrier,
                               misuse(lane, pc, number,
                                      words("the barrier is for ", threads, " threads here, and for ", barrier.threads,
                                            " at the other side"),
                                      "pass the same number everywhere: all threads that sync or arrive in a phase")));
  }
  if (barrier.lanes[lane.warp->index] & lane.bit) {
    refuse(lane, against_first(*lane.block, barrier,
                               misuse(lane, pc, number,
                                      words("this warp comes a second time before the others have come: ",
                                            barrier.arrived, " of ", threads, " threads are there"),
                                      "let those who wait come in between, or use another number")));
  }
  barrier.lanes[lane.warp->index] |= lane.bit;
  ++barrier.arrived;
  release(lane, barrier.gathering);
  lane.waits_at = pc;
  lane.turn = waits ? Lane::Turn::own : Lane::Turn::passed;
  if (waits) barrier.waiting.push_back(&lane);
  if (barrier.arrived == threads) return complete(lane, barrier, number, pc);
  if (waits) sleep(Sleep::named_barrier, number);
}

}  // namespace simt
