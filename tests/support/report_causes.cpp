#include "tests/support/report_causes.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace workbook::test {
namespace {

constexpr const char* kOutside =
    "your code indexes outside an array; the index must stay within the bounds that the report names";
constexpr ReportCause kOutsideAndTwice{
    simt::Mistake::outside_global, "out-of-bounds",
    "your code indexes outside an array, and it also writes output elements more than once; one wrong index of a head, "
    "tile or row can cause both, and each index must be valid and belong to one thread block only"};
constexpr const char* kNotAllLanes =
    "your code calls a warp function in a branch that only some lanes take; all lanes of its mask must reach it";
constexpr const char* kUnordered =
    "your code lets one thread read or overwrite what another thread writes, with no barrier in between; either a "
    "barrier must order the two accesses, or each thread must keep to its own elements";

// A kind that others follow from comes before them.
constexpr ReportCause causes[] = {
    {simt::Mistake::assertion, "assertion", "an assert() in the kernel failed"},
    {simt::Mistake::truncated_offset, "truncated-offset",
     "your code computes an offset in 32 bits, which are too few for tensors of this size; it must be a 64-bit number "
     "in every multiplication, and in every variable that holds it"},
    {simt::Mistake::outside_global, "out-of-bounds", kOutside},
    {simt::Mistake::outside_shared, "out-of-bounds", kOutside},
    {simt::Mistake::outside_array, "out-of-bounds", kOutside},
    {simt::Mistake::misaligned, "misaligned",
     "your code accesses an address that is not a multiple of the access's size; it must be aligned"},
    {simt::Mistake::padding, "padding",
     "your code accesses the padding at the end of a row in shared memory, which holds no data; the column index must "
     "stay below the row's used length, and the leading dimension must include the padding"},
    {simt::Mistake::wrong_stage, "wrong-stage",
     "your code reads another stage of the ring buffer than the one whose barrier it waited for; the wait and the read "
     "must use the same stage"},
    {simt::Mistake::arrival_count, "arrival-count",
     "an mbarrier's phase completes before all readers have arrived; the count given to mbarrier_init must equal the "
     "number of arrivals in a phase"},
    {simt::Mistake::pending_copy, "pending-copy",
     "your code accesses shared memory that a cp.async is still writing; it must wait for the copy before the access, "
     "and issue a copy only after the last read of its destination"},
    {simt::Mistake::wrong_phase, "wrong-phase",
     "your code waits for an mbarrier with the parity of another phase; it must use the parity of the phase that it "
     "waits for"},
    {simt::Mistake::barrier_bytes, "barrier-bytes",
     "the transaction bytes that your code expects at an mbarrier differ from those of the copies that complete on it; "
     "the two must be equal"},
    {simt::Mistake::barrier_misuse, "barrier-misuse",
     "your code uses an mbarrier that is not initialised and made visible, or gives it an invalid value; one thread "
     "must initialise it, followed by a fence and a barrier of the thread block"},
    {simt::Mistake::surplus_arrival, "surplus-arrival",
     "an mbarrier receives more arrivals in one phase than its count; each participant must arrive once per phase, and "
     "each condition needs a barrier of its own"},
    {simt::Mistake::named_barrier, "named-barrier",
     "warps meet at a named barrier with different thread counts, or at the barrier of another group; all participants "
     "must pass the same number and the same count"},
    {simt::Mistake::register_count, "register-count",
     "the warps of the thread block request more registers than the block has; setmaxnreg's counts must add up to at "
     "most what it was launched with"},
    {simt::Mistake::descriptor, "descriptor",
     "a matrix descriptor names another address or layout than the one in which TMA wrote the tile; both must agree"},
    {simt::Mistake::wgmma_order, "wgmma-order",
     "your code issues a wgmma without its fence, commit or wait; it must call wgmma_fence before, and commit and wait "
     "before the result is read"},
    {simt::Mistake::pending_registers, "pending-registers",
     "your code accesses registers of a wgmma in flight; it must wait for the wgmma first"},
    {simt::Mistake::missing_proxy_fence, "missing-proxy-fence",
     "TMA or the tensor cores read what threads wrote through the generic proxy; the writing threads must call "
     "fence.proxy.async before the barrier"},
    {simt::Mistake::unfinished_copy, "unfinished-copy",
     "your code reads a tile before its TMA load has completed; it must wait at the load's mbarrier"},
    {simt::Mistake::overwritten_early, "overwritten-early",
     "a tile is overwritten while it may still be read; its readers must release it after their last read, and the "
     "writer must wait for that release"},
    {simt::Mistake::unfinished_store, "unfinished-store",
     "a TMA store is not committed, or its thread exits before the store has read shared memory; the thread must "
     "commit the store and wait for it"},
    {simt::Mistake::transfer_mismatch, "transfer-mismatch",
     "two ranks disagree on a transfer; both must name the same count and type, in the same order"},
    {simt::Mistake::waiting_ranks, "waiting-ranks",
     "the ranks wait for each other; the report names the call in which each of them waits"},
    {simt::Mistake::other_device, "other-device",
     "a rank's kernel accesses the memory of another rank; the data must be received first"},
    {simt::Mistake::unordered_streams, "unordered-streams",
     "your code lets two streams access the same memory in no defined order, and one of them writes; the later one "
     "must wait for an event that is recorded after the earlier access, or one of them must use another buffer"},
    {simt::Mistake::unset_fragment, "unset-fragment",
     "your code uses a fragment that was neither filled nor loaded; accumulators must be set to 0 first"},
    {simt::Mistake::divergent_barrier, "divergent-barrier",
     "your code calls __syncthreads() in a branch that only some threads take; all threads of the thread block must "
     "reach it"},
    {simt::Mistake::divergent_collective, "divergent-warp-function", kNotAllLanes},
    {simt::Mistake::inactive_lane, "divergent-warp-function", kNotAllLanes},
    {simt::Mistake::deadlock, "deadlock",
     "threads wait for an arrival that no thread will make; the report names who waits where, and who has arrived"},
    {simt::Mistake::write_after_write, "race",
     "two threads write one element in no defined order; each element must have one writer, or a barrier between the "
     "writes"},
    {simt::Mistake::read_after_write, "race", kUnordered},
    {simt::Mistake::write_after_read, "race", kUnordered},
    {simt::Mistake::unseen_store, "unseen-store",
     "the simulator cannot observe this store, of a struct that a function returns; assign the members one by one"},
    {simt::Mistake::uninitialised_shared, "uninitialised-shared",
     "your code reads shared memory that no thread has written; either the writes must cover every element that is "
     "read, in the tail as well, or the read must not happen"},
    {simt::Mistake::missing_fence, "missing-fence",
     "a thread block reads what another one has written, but that write may not be visible yet; the writing block must "
     "pass a barrier and call __threadfence() before its atomic operation, and the reading block __threadfence() "
     "after"},
    {simt::Mistake::uninitialised_global, "uninitialised-global",
     "your code reads global memory before anything is known to have written it; the write, or the signal of the "
     "thread block that writes, must come first, and the writes must cover every element that is read"},
    {simt::Mistake::written_twice, "written-twice",
     "an output element is written more than once; each must be written once, by one thread"},
    {simt::Mistake::never_written, "never-written",
     "some output elements are never written; the grid, the loops and the bounds must cover every row, and no thread "
     "may return before it has written its elements"},
};

bool is_race(const ReportCause& cause) {
  return std::string_view(cause.id) == "race";
}

const ReportCause* cause_named(simt::Mistake mistake) {
  const auto* const found = std::ranges::find(causes, mistake, &ReportCause::mistake);
  return found == std::end(causes) ? nullptr : found;
}

}  // namespace

const ReportCause* cause_of(const std::vector<simt::Report>& reports) {
  const auto* const cause = std::ranges::find_if(causes, [&](const ReportCause& each) {
    return std::ranges::count(reports, each.mistake, &simt::Report::mistake) > 0;
  });
  if (cause == std::end(causes)) return nullptr;
  if (cause->mistake == simt::Mistake::outside_global &&
      std::ranges::count(reports, simt::Mistake::written_twice, &simt::Report::mistake) > 0)
    return &kOutsideAndTwice;
  if (!is_race(*cause)) return cause;
  // Where a barrier is missing, the read comes first and a later overwrite follows from it; where two threads write one
  // element, the two writes come first.
  for (const simt::Report& report : reports)
    if (const ReportCause* race = cause_named(report.mistake); race != nullptr && is_race(*race)) return race;
  return cause;
}

void put_first(const ReportCause& cause, std::vector<simt::Report>& reports) {
  std::ranges::stable_partition(reports, [&](const simt::Report& report) { return report.mistake == cause.mistake; });
  // Errors in the line of an index out of bounds follow from it, as do all errors after a wait for the wrong phase.
  const simt::SourceLine line = reports.at(0).side.source;
  const bool outside = std::string_view(cause.id) == "out-of-bounds";
  for (simt::Report& report : reports) {
    const simt::SourceLine& other = report.side.source;
    const bool same_line = other.file == line.file && other.line == line.line;
    if (report.mistake != cause.mistake && (cause.mistake == simt::Mistake::wrong_phase || (outside && same_line)))
      report.advice.clear();
  }
}

}  // namespace workbook::test
