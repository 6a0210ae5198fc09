#include "common/gates/gate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "common/attention/error.hpp"
#include "common/gates/groups.hpp"

namespace workbook::gates {
namespace {

constexpr Gate kGates[] = {
    {"stubs", Gate::Runs::always, check_stubs},
    {"order", Gate::Runs::always, check_order},
    {"lessons", Gate::Runs::always, check_lessons},
    {"language", Gate::Runs::always, check_language},
    {"pictures", Gate::Runs::for_chapter, check_pictures},
    {"format", Gate::Runs::always, check_format},
    {"launcher", Gate::Runs::always, check_launcher},
    {"solutions", Gate::Runs::always, check_solutions},
    {"gpu classes", Gate::Runs::for_chapter, check_gpu_classes},
    {"stub trees", Gate::Runs::always, check_stub_trees},
    {"one open", Gate::Runs::for_chapter, check_one_open},
    {"one wrong", Gate::Runs::for_chapter, check_one_wrong},
    {"tests fail", Gate::Runs::always, check_tests_fail, "killed"},
    {"mutants", Gate::Runs::for_chapter, check_mutants},
    {"parts", Gate::Runs::whole_book, check_parts},
    {"run", Gate::Runs::whole_book, check_run},
    {"site", Gate::Runs::whole_book, check_site},
    {"killed", Gate::Runs::in_full_check, check_killed},
    {"all gpu classes", Gate::Runs::in_full_check, check_all_gpu_classes},
    {"architectures", Gate::Runs::in_full_check, check_architectures},
    {"grading", Gate::Runs::in_full_check, check_long_parts},
    {"graded chapters", Gate::Runs::in_full_check, check_graded_chapters},
    {"g++ sanitizers", Gate::Runs::in_full_check, check_sanitized_by_gcc},
    {"clang++ sanitizers", Gate::Runs::in_full_check, check_sanitized_by_clang},
    {"clang-tidy", Gate::Runs::in_full_check, check_tidy},
};

bool is_wanted(const Gate& gate, const CheckOptions& options) {
  const auto is_named = [&](std::string_view name) {
    return std::ranges::count(options.also, name) + std::ranges::count(options.gates, name) > 0;
  };
  if (is_named(gate.name)) return true;
  if (!options.gates.empty() || is_named(gate.within) || (options.full && *gate.within != 0)) return false;
  return options.full || gate.runs == Gate::Runs::always ||
         gate.runs == (options.chapter ? Gate::Runs::for_chapter : Gate::Runs::whole_book);
}

void refuse_unknown(const char* option, const std::vector<std::string>& names) {
  std::set<std::string> known;
  for (const Gate& gate : kGates) known.insert(gate.name);
  for (const std::string& name : names) {
    if (!known.contains(name)) {
      fail_input("{} {}: there is no such gate; allowed: {}", option, name, fmt::format("{}", fmt::join(known, ", ")));
    }
  }
}

std::vector<const book::Chapter*> wanted_chapters(const book::Book& book, const CheckOptions& options) {
  std::vector<const book::Chapter*> chapters;
  for (const book::Chapter& chapter : book.chapters) {
    if (!options.chapter || *options.chapter == chapter.number) chapters.push_back(&chapter);
  }
  if (chapters.empty()) fail_input("--chapter {}: there is no such chapter", options.chapter.value_or(0));
  return chapters;
}

/// What processors have spent on this process and its children that have ended.
double cpu_seconds() {
  double seconds = 0;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    ::getrusage(who, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime})
      seconds += double(time.tv_sec) + 1e-6 * double(time.tv_usec);
  }
  return seconds;
}

GateResult run_gate(const Gate& gate, Inspection& inspection) {
  GateResult result;
  result.name = gate.name;
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = cpu_seconds();
  inspection.workspace.progress(gate.name);
  try {
    gate.run(inspection, result.findings);
  } catch (const std::exception& error) {
    result.findings.problems.push_back(error.what());
  }
  inspection.workspace.progress("");
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.cpu_seconds = cpu_seconds() - cpu_start;
  return result;
}

}  // namespace

void Findings::add(const Findings& part) {
  problems.insert(problems.end(), part.problems.begin(), part.problems.end());
  passed += part.passed;
  skipped += part.skipped;
}

Checked run_gates(const judge::Workspace& workspace, const CheckOptions& options,
                  const std::function<void(const GateResult&)>& on_result) {
  refuse_unknown("--gate", options.gates);
  refuse_unknown("--also", options.also);
  Inspection inspection{workspace, wanted_chapters(workspace.book, options), {}};
  Checked checked;
  for (const Gate& gate : kGates) {
    if (!is_wanted(gate, options)) continue;
    GateResult result = run_gate(gate, inspection);
    checked.passed += result.findings.passed;
    checked.failed += int(result.findings.problems.size());
    checked.skipped += result.findings.skipped + result.skipped();
    if (on_result) on_result(result);
    checked.gates.push_back(std::move(result));
  }
  checked.mutants = std::move(inspection.mutants);
  return checked;
}

}  // namespace workbook::gates
