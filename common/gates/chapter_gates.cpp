// The chapters' tests on the solutions and on variants of them.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "common/attention/inputs.hpp"
#include "common/book/files.hpp"
#include "common/book/kinds.hpp"
#include "common/book/markers.hpp"
#include "common/book/mutants.hpp"
#include "common/book/stubs.hpp"
#include "common/gates/groups.hpp"
#include "common/gates/variants.hpp"
#include "common/judge/run.hpp"
#include "common/judge/wrong_solutions.hpp"

namespace workbook::gates {
namespace {

using book::Chapter;
using book::Exercise;
using book::Mutant;
using judge::ChapterRun, judge::Result, judge::Verdict, judge::Workspace;

book::MarkedFile marked(const Chapter& chapter, const std::string& file, const std::string& text) {
  return book::parse_marked("solutions/" + chapter.name() + "/" + file, text);
}

constexpr double kSanitizedTime = 4;  ///< how many times as long a call may take where sanitizers check each access

/// The solution with only the exercise open that a mutant changes.
Texts only_open(const Workspace& workspace, const Chapter& chapter, const Mutant& mutant) {
  const std::string& exercise = mutant.exercise;
  Texts texts = judge::solution_texts(workspace, chapter);
  for (auto& [file, text] : texts) {
    const book::MarkedFile now = marked(chapter, file, text);
    if (now.find(exercise) != nullptr) text = book::replace_body(now, exercise, book::stub_body(*now.find(exercise)));
  }
  return texts;
}

using TestNames = std::map<std::string, std::set<std::string>>;  ///< by exercise
using KindsGiven = TestNames;

/// The tests that ran are those that chapter.toml names.
void compare_names(const Workspace& workspace, const Chapter& chapter, const TestNames& ran, Findings& findings) {
  const std::string manifest = workspace.shown(workspace.book.manifest(chapter));
  const auto compare = [&](const std::string& exercise, const std::vector<std::string>& named, int line) {
    const std::set<std::string> expected(named.begin(), named.end());
    const auto found = ran.find(exercise);
    const std::set<std::string> there = found == ran.end() ? std::set<std::string>() : found->second;
    for (const std::string& name : expected) {
      if (there.contains(name)) continue;
      findings.problems.push_back(fmt::format("{}:{}: {} names the test \"{}\", which does not exist under that tag",
                                              manifest, line, exercise, name));
    }
    for (const std::string& name : there) {
      if (expected.contains(name)) continue;
      findings.problems.push_back(
          fmt::format("{}:{}: the test \"{}\" of {} is not named there", manifest, line, name, exercise));
    }
  };
  for (const Exercise& exercise : chapter.exercises) compare(exercise.id, exercise.tests, exercise.line);
  compare(judge::kWhole, chapter.whole_tests, 1);
}

/// The tests of each part of a chapter together have given it every kind of input that it takes. with_mask: its stage
/// has a mask.
void compare_kinds(const book::Kinds& kinds, const Chapter& chapter, const KindsGiven& given, Findings& findings) {
  const bool with_mask = std::ranges::any_of(given, [&](const auto& part) {
    return std::ranges::any_of(kinds.with_mask, [&](const auto& kind) { return part.second.contains(kind); });
  });
  const auto expect_all = [&](const std::string& exercise) {
    const std::string part = book::Kinds::part(chapter, exercise);
    if (kinds.apart.contains(part)) return;
    const auto found = given.find(exercise);
    for (const std::string& kind : kinds.all) {
      const bool taken = found != given.end() && found->second.contains(kind);
      const bool needed = with_mask || std::ranges::count(kinds.with_mask, kind) == 0;
      findings.expect(taken || !needed, fmt::format("no test of {} gives it the kind of input \"{}\": "
                                                    "tests/kinds.toml, tests/{}",
                                                    part, kind, chapter.name()));
    }
  };
  for (const Exercise& exercise : chapter.exercises) expect_all(exercise.id);
  expect_all(judge::kWhole);
}

/// What the stubs' tests must come to.
Result expected_on_stubs(const Chapter& chapter, const Verdict& test) {
  if (std::ranges::count(chapter.given_tests, test.test) > 0) return Result::passed;
  return test.exercise == judge::kWhole ? Result::blocked : Result::todo;
}

/// If one exercise differs from the book's, every other is judged on the solutions' worker: the gate "solutions" has
/// run its tests.
void expect_others_untouched(const Workspace& workspace, const Chapter& chapter, const Mutant& changed,
                             const Texts& texts, Findings& findings) {
  const Variant variant = write_variant(workspace, chapter, "changed", texts);
  const judge::Plan plan = make_plan(workspace, chapter, variant.tree, variant.request);
  const std::string books =
      whole_job(workspace, chapter, solutions_tree(workspace, chapter), first_backend(workspace, chapter)).name;
  for (const auto& [id, exercise] : plan.exercises) {
    if (id == changed.exercise) continue;
    findings.expect(exercise.worker == books, fmt::format("with only {} changed, {} is judged on {}, not on the book's",
                                                          changed.exercise, id, exercise.worker));
  }
}

/// Whether the chapter is whole without this exercise: it gives no points, or is a lab, a kernel of its own.
bool stands_apart(const Workspace& workspace, const Chapter& chapter, const Exercise& exercise) {
  const std::vector<book::MarkedFile> files = book::read_solution(workspace.book, chapter);
  return exercise.points == 0 || std::ranges::any_of(files, [&](const book::MarkedFile& file) {
           const book::Region* region = file.find(exercise.id);
           return region != nullptr && region->is_lab();
         });
}

/// The test of the whole chapter that an exercise's first mutant fails.
const std::string& whole_test(const Chapter& chapter, const Mutant& mutant) {
  return mutant.killed.whole.empty() ? chapter.whole_tests.front() : mutant.killed.whole;
}

/// Null if all tests passed or were skipped.
const Verdict* first_not_passed(const ChapterRun& run) {
  const auto found = std::ranges::find_if(run.tests, [](const Verdict& test) { return test.result > Result::skipped; });
  return found == run.tests.end() ? nullptr : &*found;
}

/// A test of the whole chapter that needs the open exercise is blocked by it.
void judge_one_open(const Mutant& mutant, const ChapterRun& run, Findings& findings) {
  const auto* const first = first_not_passed(run);
  findings.expect(first != nullptr && first->blocked_by == mutant.exercise,
                  fmt::format("with only {} open: {}", mutant.exercise,
                              first != nullptr ? summary(*first) : "the test of the whole chapter passes"));
  for (const std::string& note : run.notes)
    findings.problems.push_back(fmt::format("with only {} open: {}", mutant.exercise, note));
}

/// An exercise that is wrong must fail the test of the whole chapter that is recorded for it.
void judge_one_wrong(const Mutant& mutant, const ChapterRun& run, Findings& findings) {
  findings.expect(first_not_passed(run) != nullptr,
                  fmt::format("{}:{}: wrong solution {} does not fail \"{}\": the last column of killed_by.tsv names a "
                              "test of the whole chapter that it fails",
                              mutant.file, mutant.line, mutant.id, whole_test(*run.chapter, mutant)));
}

}  // namespace

void check_solutions(Inspection& inspection, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  build_tests(workspace, inspection.chapters);
  std::vector<Variant> variants;
  for (const Chapter* chapter : inspection.chapters) {
    for (const Backend backend : chapter->backends) {
      variants.push_back({chapter, solutions_tree(workspace, *chapter), {}});
      variants.back().request.backend = backend;
      if (!workspace.toolchain.sanitize.empty()) variants.back().request.time_limit *= kSanitizedTime;
    }
  }
  const auto judge = [](std::size_t, const VariantRun& ran, Findings& found) {
    for (const Verdict& test : ran.run.tests) {
      if (test.result == Result::skipped) {
        ++found.skipped;  // e.g. what a sanitizer build cannot count, what has no GPU
      } else {
        found.expect(test.result == Result::passed,
                     fmt::format("{} on {}: {}", ran.run.chapter->name(), name(ran.run.backend), summary(test)));
      }
    }
  };
  const book::Kinds kinds = book::load_kinds(workspace.book);
  for (const InputKind& kind : input_kinds())
    findings.expect(std::ranges::count(kinds.all, kind.name) == 1,
                    fmt::format("tests/kinds.toml: the kind of input \"{}\" is missing", kind.name));
  std::map<std::string, int> skipped;
  std::map<const Chapter*, TestNames> ran;
  std::map<const Chapter*, KindsGiven> given;
  for (const auto& [compiled, log, plan, run] : run_variants(inspection, variants, judge, findings)) {
    for (const Verdict& test : run.tests) {
      ran[run.chapter][test.exercise].insert(test.test);
      given[run.chapter][test.exercise].insert(test.kinds.begin(), test.kinds.end());
      if (test.result == Result::skipped) ++skipped[std::string(name(run.backend)) + ": " + test.message];
    }
  }
  for (const Chapter* chapter : inspection.chapters) {
    if (ran[chapter].empty()) findings.problems.push_back(chapter->name() + ": no test ran");
    compare_names(workspace, *chapter, ran[chapter], findings);
    compare_kinds(kinds, *chapter, given[chapter], findings);
  }
  findings.detail = fmt::format("{} tests of {} chapters", findings.passed, inspection.chapters.size());
  for (const auto& [why, count] : skipped) findings.detail += fmt::format("; {} skipped on {}", count, why);
}

void check_stub_trees(Inspection& inspection, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  build_tests(workspace, inspection.chapters);
  std::vector<Variant> variants;
  for (const Chapter* chapter : inspection.chapters) {
    Texts texts = judge::solution_texts(workspace, *chapter);
    for (auto& [file, text] : texts) text = book::make_stub(marked(*chapter, file, text));
    variants.push_back(write_variant(workspace, *chapter, "stubs", texts));
  }
  const auto judge = [](std::size_t, const VariantRun& ran, Findings& found) {
    const Chapter& chapter = *ran.run.chapter;
    found.expect(ran.run.warnings.empty(), chapter.name() + ": the stubs compile with warnings:\n" + ran.run.warnings);
    for (const Verdict& test : ran.run.tests) {
      if (test.result == Result::skipped) {
        ++found.skipped;  // what this build cannot count
        continue;
      }
      const Result wanted = expected_on_stubs(chapter, test);
      found.expect(test.result == wanted,
                   fmt::format("{}: on the stubs, expected {}: {}", chapter.name(), name(wanted), summary(test)));
    }
  };
  run_variants(inspection, variants, judge, findings);
  findings.detail = fmt::format("{} tests todo or blocked", findings.passed);
}

namespace {

/// The first mutant of each exercise that the whole chapter needs.
std::vector<MutantVariant> first_mutants(const Workspace& workspace, const Chapter& chapter, Findings& findings) {
  std::vector<MutantVariant> first;
  const std::vector<MutantVariant> mutants = mutant_variants(workspace, chapter, findings);
  for (const Exercise& exercise : chapter.exercises) {
    const auto found = std::ranges::find(mutants, exercise.id, [](const auto& each) { return each.mutant.exercise; });
    findings.expect(found != mutants.end(),
                    fmt::format("{}:{}: exercise {} has no mutant", workspace.shown(workspace.book.manifest(chapter)),
                                exercise.line, exercise.id));
    if (found != mutants.end() && !stands_apart(workspace, chapter, exercise)) first.push_back(*found);
  }
  return first;
}

/// Runs the whole-chapter test that each of these mutants fails on the variant beside it.
void run_whole_tests(Inspection& inspection, const std::vector<MutantVariant>& changed,
                     void (*judge)(const Mutant&, const ChapterRun&, Findings&), Findings& findings) {
  std::vector<Variant> variants;
  for (const auto& [mutant, variant] : changed) {
    variants.push_back(variant);
    variants.back().request.time_limit = 2;
    variants.back().request.only = whole_test(*variant.chapter, mutant);  // the gate "mutants" runs the exercise's own
  }
  const auto judge_variant = [&](std::size_t i, const VariantRun& ran, Findings& found) {
    found.expect(ran.compiled, fmt::format("{} does not compile:\n{}", changed[i].mutant.id, ran.log));
    judge(changed[i].mutant, ran.run, found);
  };
  run_variants(inspection, variants, judge_variant, findings);
  findings.detail = fmt::format("{} results", findings.passed);
}

}  // namespace

void check_one_open(Inspection& inspection, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  build_tests(workspace, inspection.chapters);
  std::vector<MutantVariant> open;
  for (const Chapter* chapter : inspection.chapters) {
    std::vector<Texts> versions;
    const std::vector<MutantVariant> mutants = first_mutants(workspace, *chapter, findings);
    for (const auto& [mutant, variant] : mutants) {
      versions.push_back(only_open(workspace, *chapter, mutant));
      expect_others_untouched(workspace, *chapter, mutant, versions.back(), findings);
    }
    const std::vector<Variant> variants = write_versions(workspace, *chapter, "open", versions);
    for (std::size_t i = 0; i < variants.size(); ++i) open.push_back({mutants[i].mutant, variants[i]});
  }
  run_whole_tests(inspection, open, judge_one_open, findings);
}

void check_one_wrong(Inspection& inspection, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  build_tests(workspace, inspection.chapters);
  std::vector<MutantVariant> wrong;
  for (const Chapter* chapter : inspection.chapters)
    for (const MutantVariant& each : first_mutants(workspace, *chapter, findings)) {
      expect_others_untouched(workspace, *chapter, each.mutant, book::apply(workspace.book, *chapter, each.mutant),
                              findings);
      wrong.push_back(each);
    }
  run_whole_tests(inspection, wrong, judge_one_wrong, findings);
}

}  // namespace workbook::gates
