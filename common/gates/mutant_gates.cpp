// The mutants of the chapters: each must be killed, and reported to the reader with its sentence.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string_view>

#include "common/book/files.hpp"
#include "common/book/mutants.hpp"
#include "common/gates/groups.hpp"
#include "common/gates/variants.hpp"
#include "common/judge/localize.hpp"
#include "common/judge/wrong_solutions.hpp"

namespace workbook::gates {
namespace {

using book::Chapter;
using book::Killed;
using book::Mutant;
using judge::Result, judge::Verdict, judge::Workspace;

/// Values of Killed::reported besides kItself: another mutant's sentence, with its id; one of n causes; and no cause.
constexpr const char* kAnother = "another: ";
constexpr const char* kOneOf = "one of ";
constexpr const char* kNothing = "nothing";

/// The sentences of a chapter's mutants by their ids.
using Sentences = std::map<std::string, std::string>;

/// What the likeliest cause tells a reader: kItself; "one of 3" if it names the mutant among others that look the same;
/// the id of what a test or the simulator names; kNothing; or kAnother.
std::string reported_by(const std::vector<judge::Cause>& causes, const Mutant& mutant, const Sentences& sentences) {
  if (causes.empty()) return kNothing;
  const std::string& id = causes.front().id;
  const auto& also = causes.front().also;
  const auto is_it = [&](const std::string& one) {
    const auto found = sentences.find(one);
    return found != sentences.end() && found->second == mutant.sentence;
  };
  if (!sentences.contains(id)) return id;
  if (is_it(id) && also.empty()) return book::kItself;
  if (is_it(id) || std::ranges::any_of(also, is_it)) return fmt::format("{}{}", kOneOf, also.size() + 1);
  return kAnother + id;
}

/// How the tests of a run kill the mutant: by the recorded test if it fails, else by the first one that fails; and what
/// they tell a reader together.
Killed killed_in(const judge::ChapterRun& run, const Mutant& mutant, const Sentences& sentences) {
  const Verdict* killer = nullptr;
  for (const Verdict& test : run.tests) {
    if (test.result <= Result::blocked) continue;
    if (killer == nullptr || test.test == mutant.killed.test) killer = &test;
  }
  if (killer == nullptr) return {};
  std::vector<const Verdict*> together;
  for (const Verdict& test : run.tests)
    if (test.exercise == killer->exercise) together.push_back(&test);
  return {name(killer->result), killer->test, reported_by(judge::conclude(together).causes, mutant, sentences),
          mutant.killed.whole};
}

/// The number of causes among which one is reported: 3 for "one of 3"; 0: nothing of this kind.
int alternatives(const std::string& reported) {
  return reported.starts_with(kOneOf) ? std::atoi(reported.c_str() + std::string_view(kOneOf).size()) : 0;
}
/// A wrong solution that is reported as itself is right, whatever was reported before, and fewer alternatives are
/// better than more.
bool as_good_as(const Killed& now, const Killed& recorded) {
  const int before = alternatives(recorded.reported), after = alternatives(now.reported);
  const bool better = now.reported == book::kItself || (0 < after && after < before);
  return now.result == recorded.result && now.test == recorded.test && (better || now.reported == recorded.reported);
}

std::string text_of(const Killed& killed) {
  if (killed.test.empty()) return "not killed";
  return fmt::format("{} \"{}\", reported: {}", killed.result, killed.test, killed.reported);
}

std::string location_of(const Mutant& mutant) {
  return fmt::format("{}:{}: wrong solution {}", mutant.file, mutant.line, mutant.id);
}

double time_limit_of(const Mutant& mutant) {
  return mutant.killed.result == name(Result::timed_out) ? 1 : 10;
}

/// The mutants that a gate examines.
struct Examined {
  std::vector<Mutant> mutants;
  std::vector<Variant> variants;
  std::map<const Chapter*, Sentences> sentences;
  std::vector<Killed> now;
};

/// Runs some of the mutants.
void run_some(Inspection& inspection, Examined& all, const std::vector<std::size_t>& some, bool whole_chapter,
              Findings& findings) {
  std::vector<Variant> variants;
  for (const std::size_t i : some) {
    judge::RunRequest& request = variants.emplace_back(all.variants[i]).request;
    request.groups = {judge::exercise_of(all.mutants[i])};
    if (whole_chapter) request.groups.push_back(judge::kWhole);
    request.time_limit = time_limit_of(all.mutants[i]);
  }
  const auto judge = [&](std::size_t i, const VariantRun& ran, Findings& found) {
    const Mutant& mutant = all.mutants[some[i]];
    all.now[some[i]] = killed_in(ran.run, mutant, all.sentences.at(variants[i].chapter));
    if (!ran.compiled && !whole_chapter)
      found.problems.push_back(location_of(mutant) + " does not compile:\n" + ran.log);
  };
  run_variants(inspection, variants, judge, findings);
}

MutantVerdict verdict_of(const Mutant& mutant, const Chapter& chapter, const Killed& now) {
  MutantVerdict verdict{mutant.id, chapter.name(), mutant.exercise, now.test, now.reported};
  verdict.killed = !now.test.empty();
  verdict.diagnosis_right = verdict.killed && now.reported != kNothing && !now.reported.starts_with(kAnother);
  return verdict;
}

void report(const Mutant& mutant, const Killed& now, Findings& findings) {
  const std::string where = location_of(mutant);
  if (now.test.empty()) {
    findings.problems.push_back(where + " passes all tests of its exercise");
  } else if (now.reported.starts_with(kAnother)) {
    findings.problems.push_back(
        fmt::format("{} is reported as {}", where, now.reported.substr(std::string(kAnother).size())));
  } else {
    findings.expect(as_good_as(now, mutant.killed),
                    fmt::format("{}: {}; recorded in killed_by.tsv: {}", where, text_of(now), text_of(mutant.killed)));
  }
}

/// Writes the killed_by.tsv of each chapter as it should be to the build folder, if one differs.
void write_records(const Inspection& inspection, const Examined& all, Findings& findings) {
  for (const Chapter* chapter : inspection.chapters) {
    std::vector<Mutant> mutants;
    bool worse = false;
    for (std::size_t i = 0; i < all.mutants.size(); ++i) {
      if (all.variants[i].chapter != chapter) continue;
      worse = worse || !as_good_as(all.now[i], all.mutants[i].killed);
      mutants.push_back(all.mutants[i]);
      mutants.back().killed = all.now[i];
    }
    const auto path = book::killed_by_path(inspection.workspace.book, *chapter);
    const std::string text = book::killed_by_text(mutants);
    if (std::filesystem::exists(path) ? book::read_file(path) == text : mutants.empty()) continue;
    const auto written = inspection.workspace.toolchain.build_folder / "check" / "killed_by" / chapter->name();
    book::write_file(written, text);
    const std::string copy = fmt::format("cp {} {}", written.string(), inspection.workspace.shown(path));
    if (worse) findings.problems.push_back("if these results are right: " + copy);
    if (!worse) findings.detail += "; more causes are reported than recorded: " + copy;
  }
}

}  // namespace

void check_mutants(Inspection& inspection, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  build_tests(workspace, inspection.chapters);
  Examined all;
  std::vector<std::size_t> numbers;
  for (const Chapter* chapter : inspection.chapters) {
    for (auto& [mutant, variant] : mutant_variants(workspace, *chapter, findings)) {
      all.sentences[chapter][mutant.id] = mutant.sentence;
      numbers.push_back(numbers.size());
      all.mutants.push_back(mutant);
      all.variants.push_back(variant);
    }
  }
  all.now.resize(all.mutants.size());
  run_some(inspection, all, numbers, /*whole_chapter=*/false, findings);
  std::erase_if(numbers, [&](std::size_t i) { return !all.now[i].test.empty(); });
  run_some(inspection, all, numbers, /*whole_chapter=*/true, findings);
  for (std::size_t i = 0; i < all.mutants.size(); ++i) {
    report(all.mutants[i], all.now[i], findings);
    inspection.mutants.push_back(verdict_of(all.mutants[i], *all.variants[i].chapter, all.now[i]));
  }
  const auto reported = [&](const char* what) {
    return std::ranges::count_if(all.now, [&](const Killed& now) { return now.reported.starts_with(what); });
  };
  findings.detail = fmt::format("{} wrong solutions: {} reported as themselves, {} among others, {} without a cause",
                                all.now.size(), reported(book::kItself), reported(kOneOf), reported(kNothing));
  write_records(inspection, all, findings);
}

namespace {

/// The recorded test of each mutant fails on it. one_a_test: of those that a test kills only the first.
void check_recorded(Inspection& inspection, bool one_a_test, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  build_tests(workspace, inspection.chapters);
  std::vector<Mutant> mutants;
  std::vector<Variant> variants;
  for (const Chapter* chapter : inspection.chapters) {
    std::set<std::string> tests;
    for (auto& [mutant, variant] : mutant_variants(workspace, *chapter, findings)) {
      if (mutant.killed.test.empty())
        findings.problems.push_back(location_of(mutant) + " is not in killed_by.tsv: check --gate mutants records it");
      if (mutant.killed.test.empty() || (!tests.insert(mutant.killed.test).second && one_a_test)) continue;
      variant.request.only = mutant.killed.test;
      variant.request.time_limit = time_limit_of(mutant);
      variant.request.wrong_versions.clear();  // its cause is check_mutants' concern
      mutants.push_back(mutant);
      variants.push_back(variant);
    }
  }
  const auto judge = [&](std::size_t i, const VariantRun& ran, Findings& found) {
    const Killed& recorded = mutants[i].killed;
    if (!ran.compiled) {
      found.problems.push_back(location_of(mutants[i]) + " does not compile:\n" + ran.log);
      return;
    }
    const bool killed = std::ranges::any_of(ran.run.tests, [&](const Verdict& test) {
      return test.test == recorded.test && name(test.result) == recorded.result;
    });
    found.expect(killed, fmt::format("{}: \"{}\" is not {}, as killed_by.tsv records", location_of(mutants[i]),
                                     recorded.test, recorded.result));
  };
  run_variants(inspection, variants, judge, findings);
  findings.detail = fmt::format("{} {}", findings.passed, one_a_test ? "tests fail on a wrong solution" : "are killed");
}

}  // namespace

void check_tests_fail(Inspection& inspection, Findings& findings) {
  check_recorded(inspection, /*one_a_test=*/true, findings);
}

void check_killed(Inspection& inspection, Findings& findings) {
  check_recorded(inspection, /*one_a_test=*/false, findings);
}

}  // namespace workbook::gates
