// Mistakes of learners that are not in the book (learners.toml): none may get a wrong cause, and most must be localized
// to the wrong statement. Takes minutes, since a chapter's kernels are compiled for each.
#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

#include "common/book/files.hpp"
#include "common/book/mutants.hpp"
#include "common/judge/localize.hpp"
#include "common/judge/run.hpp"

using namespace workbook;
using namespace workbook::judge;

namespace {

struct LearnersMistake {
  book::Mutant change;
  std::string cause, says, never;
};

std::vector<LearnersMistake> learners_mistakes() {
  const toml::table file = toml::parse_file(WORKBOOK_SOURCE "/tests/judge/learners.toml");
  std::vector<LearnersMistake> all;
  for (const toml::node& node : *file["mistake"].as_array()) {
    const toml::table& table = *node.as_table();
    const auto text = [&](const char* key) { return table[key].value_or(std::string()); };
    LearnersMistake& mistake = all.emplace_back();
    mistake.change.id = text("id");
    mistake.change.exercise = text("exercise");
    mistake.change.section = mistake.change.exercise;
    mistake.change.hunk = book::parse_hunk(text("hunk"));
    mistake.change.file = "tests/judge/learners.toml";
    mistake.cause = text("cause");
    mistake.says = text("says");
    mistake.never = text("never");
  }
  return all;
}

Workspace workspace() {
  ::setenv("WORKBOOK_ROOT", WORKBOOK_SOURCE, 1);
  ::setenv("WORKBOOK_BUILD", WORKBOOK_BINARY, 1);
  return open_workspace();
}

/// A learner's folder: the solution with the mistake.
Tree learners_tree(const Workspace& workspace, const book::Chapter& chapter, const LearnersMistake& mistake) {
  Tree tree{"learners/" + mistake.change.id,
            workspace.toolchain.build_folder / "learners" / mistake.change.id / chapter.name()};
  for (const auto& [file, text] : book::apply(workspace.book, chapter, mistake.change))
    book::write_if_changed(tree.folder / file, text);
  return tree;
}

void expect_localized(const LearnersMistake& mistake, const ChapterRun& run) {
  std::vector<const Verdict*> verdicts;
  std::string output;
  for (const Verdict& verdict : run.tests) {
    if (verdict.exercise == mistake.change.exercise) verdicts.push_back(&verdict);
    output += fmt::format("{}: {}\n{}\n", name(verdict.result), verdict.test, verdict.message);
  }
  const Conclusion conclusion = conclude(verdicts);
  bool said = mistake.says.empty(), said_what_is_wrong = false;
  for (const std::string& fact : conclusion.facts) {
    output += "fact: " + fact + "\n";
    said = said || fact.find(mistake.says) != std::string::npos;
    said_what_is_wrong |= !mistake.never.empty() && fact.find(mistake.never) != std::string::npos;
  }
  for (const Cause& cause : conclusion.causes) output += fmt::format("cause {}: {}\n", cause.id, cause.text());
  INFO(mistake.change.id << ":\n" << output);
  CHECK_FALSE(run.none_failed());
  CHECK(said);
  CHECK_FALSE(said_what_is_wrong);
  CHECK(conclusion.causes.size() == (mistake.cause.empty() ? 0 : 1));
  for (const Cause& cause : conclusion.causes) CHECK(cause.sentence.find(mistake.cause) != std::string::npos);
}

void check_chapter(int number) {
  const Workspace here = workspace();
  const book::Chapter& chapter = here.book.chapter(std::to_string(number));
  const Backend backend = number == 6 ? Backend::sim : first_backend(here, chapter);
  if (!here.toolchain.can_build(backend) || (backend != Backend::cpu && !here.toolchain.counts_on(backend)))
    SKIP("the simulator is not complete in this build");
  worker::build_targets(here.toolchain, test_targets(here, chapter));
  std::vector<LearnersMistake> mistakes = learners_mistakes();
  std::erase_if(mistakes, [&](const LearnersMistake& mistake) { return mistake.change.exercise[0] != '0' + number; });
  REQUIRE_FALSE(mistakes.empty());
  std::vector<Plan> plans;
  RunRequest request;
  request.backend = backend;
  for (const LearnersMistake& mistake : mistakes) {
    request.exercise = mistake.change.exercise;
    plans.push_back(make_plan(here, chapter, learners_tree(here, chapter, mistake), request));
  }
  const Built built = build_plans(here, plans);
  for (std::size_t i = 0; i < mistakes.size(); ++i) {
    request.exercise = mistakes[i].change.exercise;
    expect_localized(mistakes[i], run_plan(here, plans[i], built, request));
  }
}

}  // namespace

TEST_CASE("at least nine of twelve mistakes that are in no bank are localized") {
  const std::vector<LearnersMistake> all = learners_mistakes();
  CHECK(all.size() >= 12);
  const auto narrowed = std::ranges::count_if(all, [](const auto& m) { return !m.cause.empty() || !m.says.empty(); });
  CHECK(narrowed >= 9);
}

TEST_CASE("mistakes of learners in chapter 1") {
  check_chapter(1);
}
TEST_CASE("mistakes of learners in chapter 2") {
  check_chapter(2);
}
TEST_CASE("mistakes of learners in chapter 3") {
  check_chapter(3);
}
TEST_CASE("mistakes of learners in chapter 4") {
  check_chapter(4);
}
TEST_CASE("mistakes of learners in chapter 5") {
  check_chapter(5);
}
TEST_CASE("mistakes of learners in chapter 6") {
  check_chapter(6);
}
TEST_CASE("mistakes of learners in chapter 7") {
  check_chapter(7);
}
