// Kernels with one planted mistake each: each is reported with its kind and its line, and nothing else is reported.
#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <exception>

#include "common/simt/simulator.hpp"
#include "tests/simt/cases.hpp"
#include "tests/simt/sources.hpp"

namespace zoo {

inline void require_instrumentation() {
  if (!simt::instrumented()) SKIP("kernel files are compiled without the instrumentation");
}

/// Runs one case and compares its reports with the comments in its source. `alone`: each mistake is reported exactly
/// once.
inline void check_planted(const Case& c, const MarkedLines& lines, const std::string& file, bool alone) {
  INFO(c.name);
  simt::clear_launches();
  std::string thrown;
  try {
    c.run();
  } catch (const std::exception& error) {
    thrown = error.what();
  }
  REQUIRE(!thrown.empty());
  const std::vector<simt::Report> reports = simt::last_launch().reports;
  INFO("what was thrown:\n" << thrown << "the reports:\n" << simt::text(reports));
  // Seen when the output is fetched, so not in the launch.
  if (reports.empty()) {
    CHECK(thrown.find(c.mistake) != std::string::npos);
    return;
  }
  CHECK(thrown == simt::text(reports));
  const auto at = [&](const auto& by_name) {
    const auto found = by_name.find(c.name);
    return found == by_name.end() ? std::set<int>() : found->second;
  };
  const std::set<int> bug = at(lines.bug), other = at(lines.other);
  REQUIRE(!bug.empty());

  const auto right = std::find_if(reports.begin(), reports.end(), [&](const simt::Report& r) {
    const std::string kind = simt::name(r.mistake);
    return (kind == c.mistake || kind == c.or_else) && bug.count(r.side.source.line) == 1 &&
           (other.empty() || !r.other || other.count(r.other->source.line) == 1) && r.variable.starts_with(c.variable);
  });
  REQUIRE(right != reports.end());
  CHECK(!right->what.empty());
  CHECK(!right->advice.empty());
  CHECK(right->count > 0);
  for (const simt::Report& report : reports) {  // no report points anywhere else
    CHECK(report.side.source.file.find(file) != std::string::npos);
    CHECK(bug.count(report.side.source.line) + other.count(report.side.source.line) > 0);
  }
  if (!alone) return;
  const simt::Mistake mistake = right->mistake;
  if (!other.empty() && mistake != simt::Mistake::outside_shared) CHECK(right->other.has_value());
  if (mistake != simt::Mistake::deadlock && mistake != simt::Mistake::divergent_barrier) CHECK(right->side.lanes != 0);
  for (const simt::Report& report : reports) {
    if (report.other && !other.empty())
      CHECK(bug.count(report.other->source.line) + other.count(report.other->source.line) > 0);
    CHECK(std::count_if(reports.begin(), reports.end(), [&](const simt::Report& r) {
            return r.mistake == report.mistake && r.side.source.line == report.side.source.line &&
                   r.what == report.what &&
                   (r.other ? r.other->source.line : 0) == (report.other ? report.other->source.line : 0);
          }) == 1);
  }
}

inline void check_planted(std::span<const Case> cases, const std::string& file, bool alone) {
  const MarkedLines lines = marked_lines(ZOO_SOURCES "/" + file);
  for (const Case& c : cases) check_planted(c, lines, file, alone);
}

}  // namespace zoo
