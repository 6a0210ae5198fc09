#include "common/judge/cause_search.hpp"

#include <algorithm>

#include "common/judge/causes.hpp"
#include "common/judge/test_program.hpp"

namespace workbook::judge {
namespace {

using book::Chapter;
using nlohmann::json;

/// Whether values or counters were wrong, and neither a report nor a direct check says why. A read of device memory
/// that nothing has written does not say it: the write may be missing in another kernel, stream or rank.
bool is_unexplained(const Verdict& verdict) {
  if (verdict.result != Result::failed || !verdict.finished) return false;
  if (verdict.reports.empty()) return !verdict.cause;
  return verdict.reports[0].mistake == simt::Mistake::uninitialised_global;
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
    constexpr std::size_t most = 4;  // of an exercise: more tests show the same mistake again
    for (const Verdict& verdict : run.tests)
      if (is_unexplained(verdict) && failed_[verdict.exercise].size() < most)
        failed_[verdict.exercise].push_back(verdict.test);
  }

  bool done() const { return failed_.empty(); }
  std::vector<std::string> exercises() const {
    std::vector<std::string> ids;
    for (const auto& [exercise, tests] : failed_) ids.push_back(exercise);
    return ids;
  }

  /// Runs the failed tests again beside these wrong solutions of their exercises, and names those that agree.
  void compare_with(const std::map<std::string, WrongSolutions>& wrong, const Limits& limits) {
    json context = context_;
    std::string spec;
    for (const auto& [exercise, solutions] : wrong) {
      json& subject = context.at("subjects").at(exercise);
      subject["wrong_executable"] = solutions.executable.string();
      subject["wrong_seconds"] = limits.seconds;
      subject["wrong_once"] = limits.once;
      for (const WrongVersion& version : solutions.versions) subject["wrong"].push_back(version.number);
      for (const std::string& test : failed_.at(exercise)) {
        subject["calls"][test] = run_.calls.at(test);
        RunRequest one = request_;
        one.only = test;
        spec += (spec.empty() ? "" : ",") + test_spec(*plan_.chapter, one);
      }
    }
    if (spec.empty()) return;
    ChapterRun again;
    run_program(workspace_, plan_, request_, spec, context, again);
    for (const auto& [exercise, solutions] : wrong) name_those(exercise, solutions.versions, again);
    std::erase_if(failed_, [&](const auto& entry) { return has_cause(entry.first); });
  }

 private:
  void name_those(const std::string& exercise, const std::vector<WrongVersion>& versions, const ChapterRun& again) {
    EvidenceByTest evidence;
    for (const std::string& test : failed_.at(exercise))
      if (const auto found = again.evidence.find(test); found != again.evidence.end()) evidence.insert(*found);
    const auto causes = causes_of(evidence, versions);
    for (Verdict& verdict : run_.tests)
      if (const auto cause = causes.find(verdict.test); cause != causes.end()) verdict.cause = cause->second;
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
  std::map<std::string, std::vector<std::string>> failed_;  ///< unexplained tests, by exercise
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
