// The mutants of the chapters: each must die, and be diagnosed as what it is.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "common/book/mutants.hpp"
#include "common/gates/groups.hpp"
#include "common/gates/variants.hpp"

namespace workbook::gates {
namespace {

using book::Chapter;
using book::Mutant;
using judge::Result, judge::Verdict, judge::Workspace;

/// Whether this is the declared diagnosis. A mutant that is "unknown" to the known mistakes may still be named, as
/// itself: it is one of its exercise's known wrong solutions (judge/wrong_solutions.hpp), several of which may look the
/// same.
bool is_of(const judge::Verdict& verdict, const Mutant& mutant) {
  const std::string id = verdict.cause_id();
  if (id == mutant.diagnosis) return true;
  return mutant.diagnosis == judge::kUnknown &&
         (id == mutant.id || std::ranges::count(verdict.cause->also, mutant.id) > 0);
}

/// How a mutant died, and what is wrong with that.
MutantVerdict judge_mutant(const Chapter& chapter, const Mutant& mutant, const VariantRun& ran, Findings& findings) {
  const std::string where = fmt::format("{}:{}: mutant {}", mutant.file, mutant.line, mutant.id);
  MutantVerdict verdict{mutant.id, chapter.name(), mutant.exercise, "", ""};
  if (!ran.compiled) {
    findings.problems.push_back(where + " does not compile:\n" + ran.log);
    return verdict;
  }
  const Verdict* test = ran.run.tests.size() == 1 ? &ran.run.tests[0] : nullptr;
  const std::string result = test != nullptr ? name(test->result) : "not run";
  verdict.killed = test != nullptr && result == mutant.death;
  if (test != nullptr) {
    verdict.killed_by = test->test;
    verdict.diagnosis = test->cause_id();
  }
  verdict.diagnosis_right = verdict.killed && is_of(*test, mutant);
  findings.expect(verdict.killed, test != nullptr && test->result == Result::passed
                                      ? fmt::format("{} survives \"{}\"", where, mutant.test)
                                      : fmt::format("{}: \"{}\" gives {}, declared is {}{}", where, mutant.test, result,
                                                    mutant.death, test != nullptr ? "\n      " + summary(*test) : ""));
  if (verdict.killed) {
    findings.expect(verdict.diagnosis_right, fmt::format("{} is diagnosed as \"{}\", declared is \"{}\"\n      {}",
                                                         where, verdict.diagnosis, mutant.diagnosis, summary(*test)));
  }
  return verdict;
}

/// The confusion matrix: each cause against all mutants of the chapters that know it. Every mutant is compared with all
/// causes of its chapter and of those that share it, so that one told of a mutant that makes another mistake is off
/// the diagonal.
std::string confusion(const std::vector<Mutant>& mutants, const std::vector<MutantVerdict>& verdicts,
                      Findings& findings) {
  std::set<std::string> causes;
  int on = 0, off = 0;
  for (std::size_t i = 0; i < mutants.size(); ++i) {
    causes.insert(mutants[i].diagnosis);
    if (!verdicts[i].killed || verdicts[i].diagnosis == judge::kUnknown) continue;
    ++(verdicts[i].diagnosis_right ? on : off);
  }
  causes.erase(judge::kUnknown);
  findings.expect(off == 0, fmt::format("{} mutants are diagnosed with the cause of another", off));
  return fmt::format("{} causes against {} mutants: {} told on the diagonal, {} off it", causes.size(), mutants.size(),
                     on, off);
}

/// one_a_test: of those that a test kills only the first.
void run_mutants(Inspection& inspection, bool one_a_test, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  build_tests(workspace, inspection.chapters);
  std::vector<Mutant> mutants;
  std::vector<Variant> variants;
  for (const Chapter* chapter : inspection.chapters) {
    std::set<std::string> tests;
    for (auto& [mutant, variant] : mutant_variants(workspace, *chapter, findings)) {
      if (!tests.insert(mutant.test).second && one_a_test) continue;
      variant.request.only = mutant.test;
      variant.request.time_limit = mutant.death == name(Result::timed_out) ? 1 : 10;
      mutants.push_back(mutant);
      variants.push_back(variant);
    }
  }
  std::vector<MutantVerdict>& verdicts = inspection.mutants;
  verdicts.assign(mutants.size(), {});
  const auto judge = [&](std::size_t i, const VariantRun& ran, Findings& found) {
    verdicts[i] = judge_mutant(*variants[i].chapter, mutants[i], ran, found);
  };
  run_variants(inspection, variants, judge, findings);
  const auto count = [&](auto member) { return std::ranges::count_if(verdicts, member); };
  findings.detail =
      fmt::format("{} mutants, {} killed, {} with the right diagnosis, {} of those \"unknown\"", verdicts.size(),
                  count([](const MutantVerdict& v) { return v.killed; }),
                  count([](const MutantVerdict& v) { return v.diagnosis_right; }),
                  count([](const MutantVerdict& v) { return v.diagnosis_right && v.diagnosis == judge::kUnknown; })) +
      "; " + confusion(mutants, verdicts, findings);
}

}  // namespace

void check_mutants(Inspection& inspection, Findings& findings) {
  run_mutants(inspection, /*one_a_test=*/false, findings);
}

void check_tests_fail(Inspection& inspection, Findings& findings) {
  run_mutants(inspection, /*one_a_test=*/true, findings);
}

}  // namespace workbook::gates
