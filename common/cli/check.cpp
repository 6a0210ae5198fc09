// check: runs the gates, which must pass before a change lands. common/gates implements them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "common/cli/verbs.hpp"
#include "common/gates/gate.hpp"

namespace workbook::cli {
namespace {

using gates::Checked, gates::GateResult;
using nlohmann::json;

std::string detail(const GateResult& result) {
  return result.skipped() ? "skipped: " + result.findings.skip_reason : result.findings.detail;
}

void print_gate(const Session& session, const GateResult& result) {
  fmt::print("{} {:<19} {:6.1f} s {:6.0f} cpu s  {}\n",
             !result.ok()       ? session.colored("FAILED", "red")
             : result.skipped() ? session.colored("skip  ", "yellow")
                                : session.colored("ok    ", "green"),
             result.name, result.seconds, result.cpu_seconds, detail(result));
  for (const std::string& problem : result.findings.problems) fmt::print("    {}\n", problem);
  std::fflush(stdout);
}

json to_json(const Checked& checked) {
  json gates = json::array(), mutants = json::array();
  for (const GateResult& result : checked.gates) {
    gates.push_back(
        {{"name", result.name},
         {"ok", result.ok()},
         {"skipped", result.skipped()},
         {"detail", result.ok() ? detail(result) : fmt::format("{}", fmt::join(result.findings.problems, "\n"))},
         {"seconds", number_json(result.seconds)},
         {"cpu_seconds", number_json(result.cpu_seconds)}});
  }
  for (const gates::MutantVerdict& mutant : checked.mutants) {
    mutants.push_back({{"id", mutant.id},
                       {"chapter", mutant.chapter},
                       {"exercise", mutant.exercise},
                       {"killed", mutant.killed},
                       {"killed_by", mutant.killed ? json(mutant.killed_by) : json(nullptr)},
                       {"diagnosis", mutant.diagnosis},
                       {"diagnosis_right", mutant.diagnosis_right}});
  }
  return {{"gates", gates},
          {"mutants", mutants},
          {"passed", checked.passed},
          {"failed", checked.failed},
          {"skipped", checked.skipped}};
}

}  // namespace

int check(const Session& session, const CheckOptions& options) {
  gates::CheckOptions wanted{options.full, options.gates, options.also, {}};
  if (!options.chapter.empty()) wanted.chapter = session.book.chapter(options.chapter).number;
  const Checked checked = run_gates(session, wanted, [&](const GateResult& result) {
    if (!session.json) print_gate(session, result);
  });
  if (session.json) {
    print_json(to_json(checked));
  } else {
    fmt::print("{} passed, {} failed, {} skipped\n", checked.passed, checked.failed, checked.skipped);
  }
  return checked.failed == 0 && checked.passed > 0 ? kDone : kTestFailed;
}

}  // namespace workbook::cli
