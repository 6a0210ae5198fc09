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
#include "common/gates/instances.hpp"
#include "common/gates/variants.hpp"
#include "common/judge/run.hpp"

namespace workbook::gates {
namespace {

using book::Chapter;
using book::Exercise;
using book::Mutant;
using judge::ChapterRun, judge::Result, judge::Verdict, judge::Workspace;

book::MarkedFile marked(const Chapter& chapter, const std::string& file, const std::string& text) {
  return book::parse_marked("solutions/" + chapter.name() + "/" + file, text);
}

constexpr double kSanitizedTime = 4;  ///< how many times as long a call may take where sanitizers look at each access

/// The solution with only these exercises open.
Texts only_open(const Workspace& workspace, const Chapter& chapter, const std::set<std::string>& exercises) {
  Texts texts = solution_texts(workspace, chapter);
  for (auto& [file, text] : texts) {
    for (const std::string& id : exercises) {
      const book::MarkedFile now = marked(chapter, file, text);
      if (now.find(id) != nullptr) text = book::replace_body(now, id, book::stub_body(*now.find(id)));
    }
  }
  return texts;
}

/// The tests of the whole chapter on the first element's kernels, with only these exercises open.
Variant open_variant(const Workspace& workspace, const Chapter& chapter, const std::string& name,
                     const std::set<std::string>& exercises) {
  Variant variant = write_variant(workspace, chapter, "open/" + name, only_open(workspace, chapter, exercises));
  // What is open is told from the tree; that a whole test stops there is shown by the first element's kernels.
  variant.tree.first_element_only = true;
  variant.tree.flags = quick_flags(workspace, variant.request.backend);
  variant.request.groups = {judge::kWhole};
  return variant;
}

constexpr std::size_t kFirstTests = 3;  ///< of the whole chapter: they tell exercises that the stage does without

/// Leaves tests of the whole chapter out of variants[i], with only open[i] open, that are known to pass there: of its
/// first tests those that do, and others that pass with more exercises open, this one among them. Such a test reaches
/// none of them, so it is run once for all. They are two groups for each chapter: exercises without which most of the
/// first tests pass, and the others.
void leave_out_unreached(const Inspection& inspection, const std::vector<const Exercise*>& open,
                         std::vector<Variant>& variants) {
  const auto any = [](std::size_t, const VariantRun&, Findings&) {};  // a test may well be blocked
  const auto passed = [](const ChapterRun& run) {
    std::vector<std::string> tests;
    for (const Verdict& test : run.tests)
      if (test.result == Result::passed) tests.push_back(test.test);
    return tests;
  };
  const auto split = [](const Chapter& chapter) {  // behind the first tests
    return chapter.whole_tests.begin() + std::ptrdiff_t(std::min(kFirstTests, chapter.whole_tests.size()));
  };
  Findings found;
  std::vector<Variant> first = variants;
  for (Variant& variant : first)
    variant.request.without.assign(split(*variant.chapter), variant.chapter->whole_tests.end());
  const std::vector<VariantRun> first_runs = run_variants(inspection, first, any, found);
  std::map<std::pair<const Chapter*, bool>, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    std::vector<std::string>& without = variants[i].request.without;
    without = passed(first_runs[i].run);
    alike[{variants[i].chapter, 2 * without.size() > first_runs[i].run.tests.size()}].push_back(i);
  }
  std::erase_if(alike, [](const auto& group) { return group.second.size() < 2; });
  std::vector<Variant> together;
  for (const auto& [key, members] : alike) {
    std::set<std::string> ids;
    for (const std::size_t i : members) ids.insert(open[i]->id);
    together.push_back(open_variant(inspection.workspace, *key.first, "alike-" + *ids.begin(), ids));
    together.back().request.without.assign(key.first->whole_tests.begin(), split(*key.first));
  }
  const std::vector<VariantRun> runs = run_variants(inspection, together, any, found);
  std::size_t group = 0;
  for (const auto& [key, members] : alike) {
    const std::vector<std::string> unreached = passed(runs[group++].run);
    for (const std::size_t i : members) {
      std::vector<std::string>& without = variants[i].request.without;
      without.insert(without.end(), unreached.begin(), unreached.end());
    }
  }
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

/// One exercise is changed, so every other is judged on the solutions' worker: the gate "solutions" has run its tests.
void expect_others_untouched(const Workspace& workspace, const VariantRun& ran, const std::string& changed,
                             Findings& findings) {
  const Chapter& chapter = *ran.plan.chapter;
  const std::string books =
      whole_job(workspace, chapter, solutions_tree(workspace, chapter), ran.plan.request.backend).name;
  for (const auto& [id, exercise] : ran.plan.exercises) {
    if (id == changed) continue;
    findings.expect(exercise.worker == books, fmt::format("with only {} changed, {} is judged on {}, not on the book's",
                                                          changed, id, exercise.worker));
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

/// The tests of `exercise` and of the whole chapter, with only `exercise` open, but for those that are known to pass.
void judge_one_open(const Workspace& workspace, const Exercise& exercise, const ChapterRun& run, Findings& findings) {
  for (const Verdict& test : run.tests) {
    const bool right = test.exercise == exercise.id ? test.result == Result::todo
                                                    : test.result == Result::passed || test.blocked_by == exercise.id;
    findings.expect(right, fmt::format("with only {} open: {}", exercise.id, summary(test)));
  }
  findings.expect(run.count(Result::blocked) > 0 || stands_apart(workspace, *run.chapter, exercise),
                  fmt::format("with only {} open no whole-chapter test reaches it", exercise.id));
  for (const std::string& note : run.notes)
    findings.problems.push_back(fmt::format("with only {} open: {}", exercise.id, note));
}

/// An exercise that is wrong must fail the test of the whole chapter that its mutant names.
void judge_one_wrong(const Mutant& mutant, const ChapterRun& run, Findings& findings) {
  const Exercise& exercise = *run.chapter->find(mutant.exercise);
  const std::string where = fmt::format("{}:{}: mutant {}", mutant.file, mutant.line, mutant.id);
  findings.expect(std::ranges::count(exercise.tests, mutant.test) > 0,
                  where + " names no test of its exercise: the first of an exercise does");
  findings.expect(run.tests.size() == 1 && !run.none_failed(),
                  fmt::format("{} does not fail \"{}\": its key \"whole\" names a whole-chapter test that it fails",
                              where, mutant.whole));
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
    Texts texts = solution_texts(workspace, *chapter);
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

void check_one_open(Inspection& inspection, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  build_tests(workspace, inspection.chapters);
  std::vector<const Exercise*> open;
  std::vector<Variant> variants;
  for (const Chapter* chapter : inspection.chapters) {
    for (const Exercise& exercise : chapter->exercises) {
      open.push_back(&exercise);
      variants.push_back(open_variant(workspace, *chapter, exercise.id, {exercise.id}));
    }
  }
  leave_out_unreached(inspection, open, variants);
  for (std::size_t i = 0; i < variants.size(); ++i) {
    variants[i].request.groups.push_back(open[i]->id);
    findings.passed += int(variants[i].request.without.size());
  }
  const auto judge = [&](std::size_t i, const VariantRun& ran, Findings& found) {
    expect_others_untouched(workspace, ran, open[i]->id, found);
    judge_one_open(workspace, *open[i], ran.run, found);
  };
  run_variants(inspection, variants, judge, findings);
  findings.detail = fmt::format("{} results", findings.passed);
}

void check_one_wrong(Inspection& inspection, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  build_tests(workspace, inspection.chapters);
  std::vector<Mutant> wrong;
  std::vector<Variant> variants;
  std::vector<std::set<std::string>> tests;
  std::map<const Chapter*, std::set<std::string>> all_tests;
  for (const Chapter* chapter : inspection.chapters) {
    const std::vector<Mutant> mutants = book::load_mutants(workspace.book, *chapter);
    for (const Exercise& exercise : chapter->exercises) {
      const auto first = std::ranges::find(mutants, exercise.id, &Mutant::exercise);
      if (first == mutants.end()) {
        findings.problems.push_back(fmt::format("{}:{}: exercise {} has no mutant",
                                                workspace.shown(workspace.book.manifest(*chapter)), exercise.line,
                                                exercise.id));
        continue;
      }
      if (stands_apart(workspace, *chapter, exercise)) continue;  // the whole chapter's tests do not see it
      wrong.push_back(*first);
      tests.push_back(tests_of(*chapter, *first, mutants));
      all_tests[chapter].insert(tests.back().begin(), tests.back().end());
      variants.push_back(
          write_variant(workspace, *chapter, "mutants/" + first->id, book::apply(workspace.book, *chapter, *first)));
      variants.back().tree.first_element_only = true;
      variants.back().request.time_limit = 2;
      variants.back().request.only = first->whole;  // the gate "mutants" runs the exercise's own
    }
  }
  note_instances(inspection, all_tests);
  for (std::size_t i = 0; i < variants.size(); ++i)
    ask_for(inspection, *variants[i].chapter, tests[i], variants[i].tree);
  const auto judge = [&](std::size_t i, const VariantRun& ran, Findings& found) {
    expect_others_untouched(workspace, ran, wrong[i].exercise, found);
    judge_one_wrong(wrong[i], ran.run, found);
  };
  run_variants(inspection, variants, judge, findings);
  findings.detail = fmt::format("{} results", findings.passed);
}

}  // namespace workbook::gates
