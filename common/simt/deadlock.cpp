// The report of a block in which no thread can continue: where threads wait, which have arrived there, and which have
// ended.
#include <algorithm>
#include <bit>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "common/simt/asynchrony.hpp"
#include "common/simt/detect.hpp"
#include "common/simt/program.hpp"

namespace simt {

namespace {

std::string location(const SourceLine& line) {
  const std::size_t slash = line.file.rfind('/');
  return line.line == 0 ? "an unknown line"
                        : words(slash == std::string::npos ? line.file : line.file.substr(slash + 1), ":", line.line);
}

constexpr const char *
    kMissingAtNumber =
       "a named barrier releases its waiters once the given number of threads has arrived or synced, the waiters "
       "included. The number must be 32 times the warps that call barrier_sync or barrier_arrive at this barrier. If "
       "it "
       "is, let the missing warps sync or arrive, once per wait. A warp that only signals others "
       "calls barrier_arrive and does not wait. Two groups of warps may also wait for each other at different barriers",
   *kMissingAtBarrier =
       "find out for each mbarrier which thread should arrive next, and why it does not. It may wait for the current "
       "phase where it should pass the other parity, or for a tile that no thread loads. A wait elsewhere may "
       "have the wrong parity and return at once; its thread then runs ahead or ends. A stage may never be "
       "released, or be released at the mbarrier of another stage. The ring buffer may have too few stages. Or the "
       "arrival count may be larger than the number of arrivals",
   *kMissingAtCall =
       "every lane of a mask, and every thread of the block, must reach the same call: move it out of the branch or "
       "loop that only some threads execute";

/// For a lane that waits at a named barrier: " have arrived, of warps 4-7", " have arrived, of warps 0-7, of which
/// warps 0-3 continued".
std::string who_came(const Lane& lane) {
  if (lane.sleep != Sleep::named_barrier) return "";
  const Block& block = *lane.block;
  const NamedBarrier& barrier = block.asynchrony->named[lane.sleeps_for];
  std::uint32_t come = 0, waiting = 0;
  for (int w = 0; w < block.warp_count; ++w) come |= barrier.lanes[w] != 0 ? 1u << w : 0;
  for (const Lane* other : barrier.waiting) waiting |= 1u << other->warp->index;
  const std::uint32_t gone_on = come & ~waiting;
  return " have arrived, of " + warps_text(come) +
         (gone_on != 0 ? ", of which " + warps_text(gone_on) + " continued" : "");
}

}  // namespace

void report_deadlock(const Block& block) {
  if (block.damaged) return;  // the others may wait for threads that an error has ended
  std::vector<std::pair<std::string, std::uint32_t>> waiting;  // a location, and the warps whose lanes wait there
  Finding finding{};
  std::uint32_t ended = 0;  // warps
  bool any_at_number = false;
  for (int w = 0; w < block.warp_count; ++w) {
    const Warp& warp = block.warps[w];
    std::uint32_t left = warp.alive;
    if (left == 0) ended |= 1u << w;
    if (left != 0 && finding.side.warp < 0)
      finding = finding_of(warp.lanes[std::countr_zero(left)], Mistake::deadlock,
                           warp.lanes[std::countr_zero(left)].waits_at, "waits");
    while (left != 0) {
      const Lane& first = warp.lanes[std::countr_zero(left)];
      const bool at_barrier = warp.at_barrier & first.bit;
      std::uint32_t same = 0;
      for (std::uint32_t m = left; m != 0; m &= m - 1) {
        const Lane& other = warp.lanes[std::countr_zero(m)];
        if (other.waits_at == first.waits_at && bool(warp.at_barrier & other.bit) == at_barrier &&
            other.sleep == first.sleep)
          same |= other.bit;
      }
      left &= ~same;
      any_at_number = any_at_number || first.sleep == Sleep::named_barrier;
      std::string what =
          first.sleep != Sleep::none ? block.asynchrony->awaited(first) + who_came(first) : "__syncthreads";
      for (int g = 0; !at_barrier && first.sleep == Sleep::none && g < warp.groups_used; ++g) {
        if (warp.groups[g].arrived & first.bit) {
          what = std::string(name_of(warp.groups[g].operation)) + " for " + lanes_text(warp.groups[g].mask);
        }
      }
      what = lanes_text(same) + (first.sleep == Sleep::none ? ", in " : ", at ") + what + " (" +
             location(source_line(first.waits_at)) + ")";
      const auto known = std::ranges::find(waiting, what, &std::pair<std::string, std::uint32_t>::first);
      if (known == waiting.end())
        waiting.emplace_back(what, 1u << w);
      else
        known->second |= 1u << w;
    }
  }
  constexpr std::size_t most = 6;
  std::string who;
  for (const auto& [where, warps] : waiting | std::views::take(most))
    who += (who.empty() ? "" : "; ") + warps_text(warps) + ", " + where;
  if (waiting.size() > most) who += "; and others";
  if (ended != 0) who += words("; ", warps_text(ended), std::has_single_bit(ended) ? " has ended" : " have ended");
  finding.what = "no thread can continue: " + who;
  finding.advice = any_at_number ? kMissingAtNumber : block.asynchrony != nullptr ? kMissingAtBarrier : kMissingAtCall;
  block.launch->findings.add(std::move(finding));
}

}  // namespace simt
