#include "common/judge/cause_search.hpp"

#include <algorithm>
#include <set>

#include "common/judge/causes.hpp"
#include "common/judge/test_program.hpp"

namespace workbook::judge {
namespace {

using book::Chapter;
using nlohmann::json;

/// Whether the simulator's reports say where to look: all but the read of device memory that nothing has written, for
/// which the write may be missing in another kernel, stream or rank.
bool is_reported(const Verdict& verdict) {
  return !verdict.reports.empty() && verdict.reports[0].mistake != simt::Mistake::uninitialised_global;
}
/// Whether values or counters were wrong, and neither a report nor a direct check says why.
bool is_unexplained(const Verdict& verdict) {
  return !is_reported(verdict) && (!verdict.cause || !verdict.reports.empty());
}

/// The versions with the sentences of these ids.
std::vector<WrongVersion> versions_with(const std::set<std::string>& ids, const std::vector<WrongVersion>& versions) {
  std::set<std::string> sentences;
  for (const WrongVersion& version : versions)
    if (ids.contains(version.id)) sentences.insert(version.sentence);
  std::vector<WrongVersion> with = versions;
  std::erase_if(with, [&](const WrongVersion& version) { return !sentences.contains(version.sentence); });
  return with;
}

/// How long each test may run wrong solutions, and whether one that a test contradicts is run in the next.
struct Limits {
  double seconds;
  bool once;
};

/// The search in one run.
class CauseSearch {
 public:
  CauseSearch(const Workspace& workspace, const Plan& plan, const RunRequest& request, const json& context,
              ChapterRun& run)
      : workspace_(workspace), plan_(plan), request_(request), context_(context), run_(run) {
    // Of an exercise: more tests show the same mistake again, and a reader who has a report waits for nothing else.
    constexpr int most = 4, most_reported = 2;
    std::map<std::string, int> unexplained, reported;
    for (const Verdict& verdict : run.tests) {
      if (verdict.result != Result::failed || !verdict.finished) continue;
      if (is_reported(verdict) ? ++reported[verdict.exercise] > most_reported
                               : !is_unexplained(verdict) || ++unexplained[verdict.exercise] > most)
        continue;
      failed_[verdict.exercise].push_back(verdict.test);
    }
  }

  bool done() const { return failed_.empty(); }
  std::vector<std::string> exercises() const {
    std::vector<std::string> ids;
    for (const auto& [exercise, tests] : failed_) ids.push_back(exercise);
    return ids;
  }

  /// Runs the failed tests again beside these wrong solutions of their exercises, and names those that agree.
  void compare_with(const std::map<std::string, WrongSolutions>& wrong, const Limits& limits) {
    EvidenceByTest evidence = run_beside(wrong, failed_, limits, /*all_calls=*/false);
    std::map<std::string, WrongSolutions> alike;
    for (const auto& [exercise, solutions] : wrong) {
      const std::set<std::string> agree = name_those(exercise, solutions.versions, evidence);
      if (agree.size() > 1) alike[exercise] = {solutions.executable, versions_with(agree, solutions.versions)};
    }
    tell_apart(alike, limits, std::move(evidence));
    std::erase_if(failed_, [&](const auto& entry) { return has_cause(entry.first); });
  }

 private:
  using TestsOfExercise = std::map<std::string, std::vector<std::string>>;

  /// The evidence of tests, run again beside wrong solutions of their exercises. Of a failed test the last calls are
  /// compared, since the earlier ones have passed.
  EvidenceByTest run_beside(const std::map<std::string, WrongSolutions>& wrong, const TestsOfExercise& tests,
                            const Limits& limits, bool all_calls) {
    json context = context_;
    std::string spec;
    for (const auto& [exercise, solutions] : wrong) {
      const auto of_exercise = tests.find(exercise);
      if (of_exercise == tests.end()) continue;
      json& subject = context.at("subjects").at(exercise);
      subject["wrong_executable"] = solutions.executable.string();
      subject["wrong_seconds"] = limits.seconds;
      subject["wrong_once"] = limits.once;
      for (const WrongVersion& version : solutions.versions) subject["wrong"].push_back(version.number);
      for (const std::string& test : of_exercise->second) {
        subject["calls"][test] = all_calls ? 0 : run_.calls.at(test);
        RunRequest one = request_;
        one.only = test;
        spec += (spec.empty() ? "" : ",") + test_spec(*plan_.chapter, one);
      }
    }
    if (spec.empty()) return {};
    ChapterRun again;
    run_program(workspace_, plan_, request_, spec, context, again);
    return again.evidence;
  }

  /// Names the causes that agree, and returns the ids of all.
  std::set<std::string> name_those(const std::string& exercise, const std::vector<WrongVersion>& versions,
                                   const EvidenceByTest& evidence) {
    EvidenceByTest unexplained, all;
    for (const Verdict& verdict : run_.tests) {
      const auto found = evidence.find(verdict.test);
      if (verdict.exercise != exercise || found == evidence.end()) continue;
      all.insert(*found);
      if (!is_reported(verdict)) unexplained.insert(*found);
    }
    const auto causes = causes_of(unexplained, versions), of_all = causes_of(all, versions);
    std::set<std::string> agree;
    for (Verdict& verdict : run_.tests) {
      const auto& known = is_reported(verdict) ? of_all : causes;
      const auto cause = known.find(verdict.test);
      if (cause == known.end()) continue;
      agree.insert(cause->second.id);
      agree.insert(cause->second.also.begin(), cause->second.also.end());
      // What a report says is narrower than a choice of mistakes.
      if (!is_reported(verdict) || cause->second.also.empty()) verdict.cause = cause->second;
    }
    return agree;
  }

  /// Where several wrong solutions agree, those are left that also give the answer's values in the tests that passed.
  void tell_apart(const std::map<std::string, WrongSolutions>& alike, const Limits& limits, EvidenceByTest evidence) {
    constexpr std::size_t most = 3;
    TestsOfExercise passed;
    for (const Verdict& verdict : run_.tests)
      if (alike.contains(verdict.exercise) && verdict.result == Result::passed &&
          passed[verdict.exercise].size() < most)
        passed[verdict.exercise].push_back(verdict.test);
    const EvidenceByTest others = run_beside(alike, passed, limits, /*all_calls=*/true);
    for (const auto& [exercise, tests] : passed) {
      for (const std::string& test : tests) {
        const auto other = others.find(test);
        if (other == others.end()) continue;
        for (const std::string& failed : failed_.at(exercise))
          std::erase_if(evidence[failed], [&](const Evidence& each) {
            return std::ranges::find(other->second, each.version, &Evidence::version) == other->second.end();
          });
      }
      name_those(exercise, alike.at(exercise).versions, evidence);
    }
  }

  bool has_cause(const std::string& exercise) const {
    return std::ranges::any_of(run_.tests, [&](const Verdict& verdict) {
      return verdict.exercise == exercise && verdict.result == Result::failed &&
             (verdict.cause || !verdict.reports.empty());
    });
  }

  const Workspace& workspace_;
  const Plan& plan_;
  const RunRequest& request_;
  const json& context_;
  ChapterRun& run_;
  TestsOfExercise failed_;  ///< those whose cause is looked for
};

}  // namespace

void find_causes(const Workspace& workspace, const Plan& plan, const Built& built, const RunRequest& request,
                 const json& context, ChapterRun& run) {
  const Workspace& books = request.books != nullptr ? *request.books : workspace;
  const Chapter& chapter = *books.book.find(plan.chapter->number);  // with the exercises that grading omits
  if (!books.book.has_solutions(chapter) || request.debug || request.until_failure || !request.sanitizer.empty())
    return;
  CauseSearch search(workspace, plan, request, context, run);
  if (search.done()) return;
  const std::vector<std::string> exercises = search.exercises();
  std::map<std::string, WrongSolutions> wrong;
  if (request.version != 0) {
    for (const auto& [exercise, versions] : request.wrong_versions)
      if (std::ranges::count(exercises, exercise) > 0) wrong[exercise] = {built.at(plan.whole).executable, versions};
  } else {
    if (request.before_search) request.before_search(run);
    workspace.progress("looking for the cause among known wrong solutions");
    wrong = build_wrong_solutions(books, chapter, request.backend, exercises, request.build);
  }
  // A reader waits for 8 seconds at most. What the gate finds must not depend on other work of the machine.
  const double seconds = request.version != 0 ? 60 : 8;
  search.compare_with(wrong, {.seconds = seconds, .once = false});
  if (!request.small_edits || search.done()) return;
  workspace.progress("looking for the cause among small edits of the solution");
  wrong = build_small_edits(books, chapter, request.backend, search.exercises(), plan.regions);
  search.compare_with(wrong, {.seconds = 10, .once = true});
}

}  // namespace workbook::judge
