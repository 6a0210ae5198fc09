// The mutants of the chapters: each must be killed, and reported to the reader with its sentence.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "common/book/files.hpp"
#include "common/book/mutants.hpp"
#include "common/gates/groups.hpp"
#include "common/gates/variants.hpp"
#include "common/judge/wrong_solutions.hpp"

namespace workbook::gates {
namespace {

using book::Chapter;
using book::Killed;
using book::Mutant;
using judge::Result, judge::Verdict, judge::Workspace;

/// Values of Killed::reported besides kItself: another mutant's sentence, with its id, and no cause.
constexpr const char* kAnother = "another: ";
constexpr const char* kNothing = "nothing";

/// The sentences of a chapter's mutants by their ids.
using Sentences = std::map<std::string, std::string>;

/// What the verdict tells a reader: kItself; "one of 3" if it names the mutant among others that look the same; the id
/// of what a test or the simulator names; kNothing; or kAnother.
std::string reported_by(const Verdict& verdict, const Mutant& mutant, const Sentences& sentences) {
  if (!verdict.cause) return kNothing;
  const auto is_it = [&](const std::string& id) {
    const auto found = sentences.find(id);
    return found != sentences.end() && found->second == mutant.sentence;
  };
  if (!sentences.contains(verdict.cause->id)) return verdict.cause->id;
  const auto& also = verdict.cause->also;
  if (is_it(verdict.cause->id) && also.empty()) return book::kItself;
  if (is_it(verdict.cause->id) || std::ranges::any_of(also, is_it)) return fmt::format("one of {}", also.size() + 1);
  return kAnother + verdict.cause->id;
}

/// How the tests of a run kill the mutant: by the recorded test if it fails, else by the first one that fails.
Killed killed_in(const judge::ChapterRun& run, const Mutant& mutant, const Sentences& sentences) {
  const Verdict* killer = nullptr;
  for (const Verdict& test : run.tests) {
    if (test.result <= Result::blocked) continue;
    if (killer == nullptr || test.test == mutant.killed.test) killer = &test;
  }
  if (killer == nullptr) return {};
  return {name(killer->result), killer->test, reported_by(*killer, mutant, sentences), mutant.killed.whole};
}

bool same(const Killed& a, const Killed& b) {
  return a.result == b.result && a.test == b.test && a.reported == b.reported;
}

std::string text_of(const Killed& killed) {
  if (killed.test.empty()) return "not killed";
  return fmt::format("{} \"{}\", reported: {}", killed.result, killed.test, killed.reported);
}

/// The mutants that a gate examines.
struct Examined {
  std::vector<Mutant> mutants;
  std::vector<Variant> variants;
  std::map<const Chapter*, Sentences> sentences;
  std::vector<Killed> now;
};

/// The tests that a gate runs: the recorded one, those of the exercise, or also those of the whole chapter.
enum class Tests { recorded, exercise, whole };

/// Runs some of the mutants.
void run_some(Inspection& inspection, Examined& all, const std::vector<std::size_t>& some, Tests tests,
              Findings& findings) {
  std::vector<Variant> variants;
  for (const std::size_t i : some) {
    Variant& variant = variants.emplace_back(all.variants[i]);
    const Killed& recorded = all.mutants[i].killed;
    if (tests == Tests::recorded) variant.request.only = recorded.test;
    if (tests != Tests::recorded) variant.request.groups = {judge::exercise_of(all.mutants[i])};
    if (tests == Tests::whole) variant.request.groups.push_back(judge::kWhole);
    variant.request.time_limit = recorded.result == name(Result::timed_out) ? 1 : 10;
  }
  const auto judge = [&](std::size_t i, const VariantRun& ran, Findings& found) {
    const Mutant& mutant = all.mutants[some[i]];
    Killed& now = all.now[some[i]];
    now = killed_in(ran.run, mutant, all.sentences.at(variants[i].chapter));
    if (!ran.compiled && tests != Tests::whole)
      found.problems.push_back(fmt::format("wrong solution {} does not compile:\n{}", mutant.id, ran.log));
  };
  Findings found;  // what differs runs again with more tests
  run_variants(inspection, variants, judge, tests == Tests::recorded ? found : findings);
}

MutantVerdict verdict_of(const Mutant& mutant, const Chapter& chapter, const Killed& now) {
  MutantVerdict verdict{mutant.id, chapter.name(), mutant.exercise, now.test, now.reported};
  verdict.killed = !now.test.empty();
  verdict.diagnosis_right = verdict.killed && now.reported != kNothing && !now.reported.starts_with(kAnother);
  return verdict;
}

void report(const Mutant& mutant, const Killed& now, Findings& findings) {
  const std::string where = fmt::format("{}:{}: wrong solution {}", mutant.file, mutant.line, mutant.id);
  if (now.test.empty()) {
    findings.problems.push_back(where + " passes all tests of its exercise");
  } else if (now.reported.starts_with(kAnother)) {
    findings.problems.push_back(
        fmt::format("{} is reported as {}", where, now.reported.substr(std::string(kAnother).size())));
  } else {
    findings.expect(same(now, mutant.killed),
                    fmt::format("{}: {}; recorded in killed_by.tsv: {}", where, text_of(now), text_of(mutant.killed)));
  }
}

/// Writes the killed_by.tsv of each chapter as it should be to the build folder, if one differs.
void write_records(const Inspection& inspection, const Examined& all, Findings& findings) {
  for (const Chapter* chapter : inspection.chapters) {
    std::vector<Mutant> mutants;
    for (std::size_t i = 0; i < all.mutants.size(); ++i) {
      if (all.variants[i].chapter != chapter) continue;
      mutants.push_back(all.mutants[i]);
      mutants.back().killed = all.now[i];
    }
    const auto path = book::killed_by_path(inspection.workspace.book, *chapter);
    const std::string text = book::killed_by_text(mutants);
    if (std::filesystem::exists(path) ? book::read_file(path) == text : mutants.empty()) continue;
    const auto written = inspection.workspace.toolchain.build_folder / "check" / "killed_by" / chapter->name();
    book::write_file(written, text);
    findings.problems.push_back(
        fmt::format("if these results are right: cp {} {}", written.string(), inspection.workspace.shown(path)));
  }
}

/// one_a_test: of those that a test kills only the first.
void run_mutants(Inspection& inspection, bool one_a_test, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  build_tests(workspace, inspection.chapters);
  Examined all;
  for (const Chapter* chapter : inspection.chapters) {
    std::set<std::string> tests;
    for (auto& [mutant, variant] : mutant_variants(workspace, *chapter, findings)) {
      all.sentences[chapter][mutant.id] = mutant.sentence;
      if (!tests.insert(mutant.killed.test).second && one_a_test) continue;
      all.mutants.push_back(mutant);
      all.variants.push_back(variant);
    }
  }
  all.now.resize(all.mutants.size());
  std::vector<std::size_t> recorded, others;
  for (std::size_t i = 0; i < all.mutants.size(); ++i)
    (all.mutants[i].killed.test.empty() ? others : recorded).push_back(i);
  run_some(inspection, all, recorded, Tests::recorded, findings);
  for (const std::size_t i : recorded)
    if (!same(all.now[i], all.mutants[i].killed)) others.push_back(i);
  run_some(inspection, all, others, Tests::exercise, findings);
  std::erase_if(others, [&](std::size_t i) { return !all.now[i].test.empty(); });
  run_some(inspection, all, others, Tests::whole, findings);
  for (std::size_t i = 0; i < all.mutants.size(); ++i) {
    report(all.mutants[i], all.now[i], findings);
    inspection.mutants.push_back(verdict_of(all.mutants[i], *all.variants[i].chapter, all.now[i]));
  }
  if (!one_a_test) write_records(inspection, all, findings);
  const auto reported = [&](const char* what) {
    return std::ranges::count_if(all.now, [&](const Killed& now) { return now.reported.starts_with(what); });
  };
  findings.detail = fmt::format("{} wrong solutions: {} reported as themselves, {} among others, {} without a cause",
                                all.now.size(), reported(book::kItself), reported("one of "), reported(kNothing));
}

}  // namespace

void check_mutants(Inspection& inspection, Findings& findings) {
  run_mutants(inspection, /*one_a_test=*/false, findings);
}

void check_tests_fail(Inspection& inspection, Findings& findings) {
  run_mutants(inspection, /*one_a_test=*/true, findings);
}

}  // namespace workbook::gates
