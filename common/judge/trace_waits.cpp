#include "common/judge/trace_waits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace workbook::judge {
namespace {

/// Moments at which something ends; step n begins with the n-th of them, step 0 with the launch.
class Steps {
 public:
  explicit Steps(const TracedLaunch& launch) {
    for (const TracedWait& wait : launch.waits) ends_.insert(wait.end);
    for (const TracedFlight& flight : launch.flights) ends_.insert(flight.end);
  }
  /// In which a moment lies.
  std::size_t at(std::int64_t time) const { return std::size_t(std::distance(ends_.begin(), ends_.upper_bound(time))); }
  std::size_t count() const { return ends_.size() + 1; }

 private:
  std::set<std::int64_t> ends_;
};

bool same(const WaitBar& a, const WaitBar& b) {
  return a.first == b.first && a.last == b.last && a.text == b.text && a.before == b.before;
}

}  // namespace

std::string short_wait(const std::string& what) {
  return what.substr(0, what.find_first_of(",:"));
}

std::string ranges_text(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    const int first = numbers[i];
    int last = first;
    for (++i; i < numbers.size() && numbers[i] == last + 1; ++i) last = numbers[i];
    text += fmt::format("{}{}", text.empty() ? "" : ", ", first);
    if (last > first) text += fmt::format("-{}", last);
  }
  return text;
}

WaitTimeline waits_of(const TracedLaunch& launch, std::size_t first, std::size_t count) {
  const Steps steps(launch);
  const auto add = [&](std::vector<WaitBar>& bars, std::int64_t begin, std::int64_t end, std::string text) {
    const WaitBar bar{std::max(steps.at(begin), first), std::min(steps.at(end), first + count), std::move(text),
                      steps.at(begin) < first};
    if (bar.first < bar.last) bars.push_back(bar);
  };
  WaitTimeline timeline{steps.count(), {}};
  std::map<std::string, std::size_t> places;
  for (const TracedFlight& flight : launch.flights) {
    const auto [at, fresh] = places.try_emplace(flight.barrier, timeline.rows.size());
    if (fresh) timeline.rows.push_back({"copies, " + flight.barrier, true, {}});
    add(timeline.rows[at->second].bars, flight.begin, flight.end, flight.what);
  }
  std::map<int, std::vector<WaitBar>> of_warps;
  for (const TracedWait& wait : launch.waits) add(of_warps[wait.warp], wait.begin, wait.end, short_wait(wait.what));
  std::erase_if(timeline.rows, [](const WaitRow& row) { return row.bars.empty(); });
  std::vector<std::pair<std::vector<int>, std::vector<WaitBar>>> alike;
  for (auto& [warp, bars] : of_warps) {
    const auto found =
        std::ranges::find_if(alike, [&](const auto& group) { return std::ranges::equal(group.second, bars, same); });
    if (found != alike.end()) {
      found->first.push_back(warp);
    } else {
      alike.emplace_back(std::vector{warp}, std::move(bars));
    }
  }
  for (auto& [warps, bars] : alike) {
    const char* const who = warps.size() == 1 ? "warp" : "warps";
    timeline.rows.push_back({fmt::format("{} {}", who, ranges_text(warps)), false, std::move(bars)});
  }
  return timeline;
}

}  // namespace workbook::judge
