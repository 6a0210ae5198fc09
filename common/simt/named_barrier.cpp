// Named barriers (PTX ISA, "Parallel Synchronization and Communication Instructions: barrier.cta"). A phase completes
// when the given number of threads has executed barrier.sync or barrier.arrive; only those that sync wait.
#include "common/simt/asynchrony.hpp"
#include "common/simt/scheduler.hpp"

namespace simt {

namespace {

Finding misuse(const Lane& lane, const void* pc, int number, std::string what, std::string advice) {
  return finding_of(lane, Mistake::named_barrier, pc, "arrives at the barrier", std::move(what), std::move(advice),
                    {words("barrier ", number), ""});
}

/// Adds the first thread that has arrived in this phase as the other side.
Finding against_first(const Block& block, const NamedBarrier& barrier, Finding finding) {
  finding.other = {barrier.first_pc, "arrives at the barrier", barrier.first_thread / kWarpSize,
                   block.lanes[barrier.first_thread].bit};
  return finding;
}

/// All lanes of each warp must arrive, or none.
void check_whole_warps(const Lane& lane, const NamedBarrier& barrier, int number, const void* pc) {
  const Block& block = *lane.block;
  for (int w = 0; w < block.warp_count; ++w) {
    const std::uint32_t absent = block.warps[w].alive & ~barrier.lanes[w];
    if (barrier.lanes[w] == 0 || absent == 0 || block.damaged) continue;
    Finding finding =
        misuse(lane, pc, number, words("only ", lanes_text(barrier.lanes[w]), " of warp ", w, " have arrived"),
               "all lanes of a warp must execute the barrier together: a GPU counts whole warps");
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
    refuse(lane, misuse(lane, pc, number, "a block has the named barriers 0 to 15, and __syncthreads uses barrier 0",
                        "use a number from 1 to 15"));
  }
  if (threads <= 0 || threads % kWarpSize != 0 || threads > kMaxThreads) {
    refuse(lane, misuse(lane, pc, number, words("a thread count of ", threads),
                        "pass a multiple of 32 up to 1024: the threads of all warps that sync or arrive"));
  }
  NamedBarrier& barrier = all.named[number];
  if (barrier.threads == 0) {
    barrier.threads = threads;
    barrier.first_pc = pc;
    barrier.first_thread = lane.linear;
  }
  if (barrier.threads != threads) {
    refuse(lane,
           against_first(
               *lane.block, barrier,
               misuse(lane, pc, number,
                      words("the thread count is ", threads, " here, but ", barrier.threads, " in the other call"),
                      "pass the same count in all calls: the number of threads that sync or arrive in a phase")));
  }
  if (barrier.lanes[lane.warp->index] & lane.bit) {
    refuse(lane, against_first(*lane.block, barrier,
                               misuse(lane, pc, number,
                                      words("this warp arrives twice in one phase: ", barrier.arrived, " of ", threads,
                                            " threads have arrived"),
                                      "let the waiting warps sync in between, or use another barrier")));
  }
  barrier.lanes[lane.warp->index] |= lane.bit;
  ++barrier.arrived;
  release(lane, barrier.gathering);
  lane.waits_at = pc;
  lane.issue_window = waits ? Lane::IssueWindow::open : Lane::IssueWindow::closed;
  if (waits) barrier.waiting.push_back(&lane);
  if (barrier.arrived == threads) return complete(lane, barrier, number, pc);
  if (waits) sleep(Sleep::named_barrier, number);
}

}  // namespace simt
