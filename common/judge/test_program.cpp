#include "common/judge/test_program.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "common/book/files.hpp"
#include "common/book/foreign_text.hpp"
#include "common/judge/locations.hpp"
#include "common/worker/command.hpp"

namespace workbook::judge {
namespace fs = std::filesystem;
using book::Chapter;
using nlohmann::json;

namespace {

/// A Catch2 test spec that matches exactly this name.
std::string exact(const std::string& name) {
  std::string spec;
  for (const char c : name) {
    if (c == ',' || c == '[' || c == '"' || c == '\\' || c == '*') spec += '\\';
    spec += c;
  }
  return spec;
}

}  // namespace

std::string test_spec(const Chapter& chapter, const RunRequest& request) {
  std::string spec;
  if (chapter.runs_on(Backend::cpu)) spec = request.backend == Backend::cpu ? "~[kernel]" : "[kernel]";
  if (!request.only.empty()) return spec + exact(request.only);  // a "~" after a name would be part of the name
  std::vector<std::string> groups = request.groups;
  if (groups.empty() && !request.exercise.empty()) groups = {request.exercise};
  std::string groups_spec;
  for (const std::string& group : groups)
    groups_spec += fmt::format("{}[{}]{}", groups_spec.empty() ? "" : ",", group, spec);
  return groups.empty() ? spec : groups_spec;
}

void run_program(const Workspace& workspace, const Plan& plan, const RunRequest& request, const std::string& spec,
                 const json& context, ChapterRun& run) {
  const Chapter& chapter = *plan.chapter;
  static std::atomic<int> runs{0};  // several runs at a time need separate contexts
  const fs::path context_path =
      workspace.toolchain.build_folder / "contexts" / fmt::format("{}.{}.{}.json", chapter.name(), ::getpid(), ++runs);
  book::write_file(context_path, context.dump(2));
  const fs::path program = !request.program.empty()
                               ? request.program
                               : workspace.toolchain.build_folder / "bin" / ("tests_" + chapter.name());
  std::vector<std::string> argv{program.string(), "--warn", "NoAssertions"};
  if (!spec.empty()) argv.push_back(spec);
  if (request.until_failure) argv.emplace_back("--abort");
  if (request.debug) argv.insert(argv.end(), {"--out", "/dev/null"});  // the terminal is the debugger's
  std::string running;
  run.finished = false;
  worker::CommandOptions options;
  options.environment["WORKBOOK_CONTEXT"] = context_path.string();
  options.environment["WORKBOOK_RESULTS"] = "3";
  options.capture = !request.debug;
  for (const auto& [group, seconds] : request.seconds)
    if (request.groups.empty() || std::ranges::count(request.groups, group) > 0) options.time += seconds;
  options.on_line = [&](const std::string& line) {
    const json event = json::parse(line);
    if (event.at("event") == "start") {
      running = event.at("test");
      workspace.progress(fmt::format("chapter {}: {}", chapter.number, running));
    } else if (event.at("event") == "done") {
      run.finished = true;
    } else {
      run.tests.push_back(verdict_from_json(event.at("verdict")));
      run.calls[run.tests.back().test] = event.at("calls");
      if (event.contains("evidence")) event.at("evidence").get_to(run.evidence[run.tests.back().test]);
      name_locations(workspace, plan, run.tests.back().reports);
      running.clear();
    }
  };
  const worker::CommandResult ended = worker::run_command(argv, options);
  workspace.progress("");
  fs::remove(context_path);
  if (run.finished) return;
  Verdict verdict;
  verdict.test = running.empty() ? "the test program" : running;
  verdict.exercise = request.groups.size() == 1 ? request.groups.front() : kWhole;
  verdict.finished = false;
  verdict.result = ended.timed_out ? Result::timed_out : Result::crashed;
  verdict.message = ended.timed_out
                        ? fmt::format(
                              "the tests of {} together took longer than {:.0f} seconds; the tests after this one were "
                              "not reached",
                              verdict.exercise == kWhole ? "the chapter" : verdict.exercise, options.time)
                        : "the book's own test program ended early:\n" + book::clean_text(ended.output, 3000);
  run.tests.push_back(std::move(verdict));
}

}  // namespace workbook::judge
