#include "common/judge/causes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace workbook::judge {
namespace {

const Evidence* of_version(const std::vector<Evidence>& list, int version) {
  const auto found = std::ranges::find(list, version, &Evidence::version);
  return found == list.end() ? nullptr : &*found;
}

/// What all tests say together about the wrong solutions that none of them contradicts.
std::vector<Evidence> of_all(const EvidenceByTest& tests) {
  std::vector<Evidence> merged = tests.begin()->second;
  for (auto test = std::next(tests.begin()); test != tests.end(); ++test) {
    std::erase_if(merged, [&](const Evidence& each) { return of_version(test->second, each.version) == nullptr; });
    for (Evidence& each : merged) each.add(*of_version(test->second, each.version));
  }
  return merged;
}

/// Those that agree best.
std::vector<Evidence> best(std::vector<Evidence> list) {
  std::erase_if(list, [](const Evidence& each) { return each.wrong == 0; });
  double closest = std::numeric_limits<double>::infinity();
  for (const Evidence& each : list) closest = std::min(closest, each.rms);
  std::erase_if(list, [&](const Evidence& each) { return each.rms > 2 * closest + 0.01; });
  return list;
}

std::string measure_of(const Evidence& evidence) {
  if (evidence.of_reports) return "the simulator reports the same for that mistake";
  if (evidence.of_counters) return "all counters are those of that mistake";
  if (evidence.wrong_reals == 0) return "NaN is where that mistake gives NaN, and all numbers are right";
  if (evidence.largest == 0) return "your output equals that mistake's exactly";
  return fmt::format("your output equals that mistake's to {:.1g}", evidence.largest);
}

std::optional<Cause> cause_of(const std::vector<Evidence>& list, const std::vector<WrongVersion>& versions) {
  std::vector<const WrongVersion*> different;
  for (const Evidence& each : list) {
    const auto version = std::ranges::find(versions, each.version, &WrongVersion::number);
    if (version != versions.end() &&
        std::ranges::none_of(different, [&](const auto* other) { return other->sentence == version->sentence; }))
      different.push_back(&*version);
  }
  if (different.empty()) return {};
  const Evidence& first = list.front();
  const bool weak = !first.of_reports && (first.wrong < 2 || first.wrong_reals == 0);
  if (weak && different.size() > 1) return {};
  Cause cause{different[0]->id, different[0]->sentence, measure_of(first), {}, first.of_counters};
  for (std::size_t i = 1; i < different.size(); ++i) {
    cause.also.push_back(different[i]->id);
    if (i == 1) cause.sentence += " Or: " + different[i]->sentence;
  }
  if (different.size() == 3) cause.sentence += " Or a third mistake that looks the same here.";
  if (different.size() > 3)
    cause.sentence += fmt::format(" Or one of {} other mistakes that look the same here.", different.size() - 2);
  return cause;
}

}  // namespace

std::map<std::string, Cause> causes_of(const EvidenceByTest& tests, const std::vector<WrongVersion>& versions) {
  std::map<std::string, Cause> causes;
  if (tests.empty()) return causes;
  const std::vector<Evidence> agreeing = best(of_all(tests));
  if (const auto common = cause_of(agreeing, versions)) {
    for (const auto& [test, evidence] : tests) {
      const auto shows = [&](const Evidence& each) {
        const Evidence* here = of_version(evidence, each.version);
        return here != nullptr && here->wrong > 0;
      };
      if (std::ranges::any_of(agreeing, shows)) causes[test] = *common;
    }
    return causes;
  }
  for (const auto& [test, evidence] : tests) {
    const auto alone = cause_of(best(evidence), versions);
    if (!alone) return {};
    causes[test] = *alone;
  }
  return causes;
}

}  // namespace workbook::judge
