// The book's own parts, and its main job.
#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/attention/mask.hpp"
#include "common/book/files.hpp"
#include "common/gates/groups.hpp"
#include "common/judge/verdict.hpp"
#include "common/worker/command.hpp"
#include "common/worker/share_cores.hpp"

namespace workbook::gates {
namespace {

using judge::Result, judge::Verdict, judge::Workspace;
using nlohmann::json;

/// A test program of the book's own parts.
struct Part {
  std::string program;
  std::string tests = {};  ///< only those with this tag; empty: all

  std::string name() const { return tests.empty() ? program : program + " " + tests; }
};

Findings run_part(const Workspace& workspace, const Part& part) {
  const std::string program = part.name();
  Findings findings;
  bool done = false;
  worker::CommandOptions options;
  options.environment["WORKBOOK_RESULTS"] = "3";
  options.time = 1800;
  options.on_line = [&](const std::string& line) {
    const json event = json::parse(line);
    if (event.at("event") == "done") done = true;
    if (event.at("event") == "start") workspace.progress(program + ": " + event.at("test").get<std::string>());
    if (event.at("event") != "end") return;
    const Verdict verdict = judge::verdict_from_json(event.at("verdict"));
    if (verdict.result == Result::skipped) {
      ++findings.skipped;
      findings.detail = verdict.message;
    } else {
      findings.expect(verdict.result == Result::passed,
                      fmt::format("{}: \"{}\": {}\n{}", program, verdict.test, name(verdict.result), verdict.message));
    }
  };
  std::vector<std::string> argv{(workspace.toolchain.build_folder / "bin" / part.program).string(), "--warn",
                                "NoAssertions"};
  if (!part.tests.empty()) argv.push_back(part.tests);
  const worker::CommandResult ended = worker::run_command(argv, options);
  if (!done || findings.passed + findings.skipped + int(findings.problems.size()) == 0)
    findings.problems.push_back(fmt::format("{} ended early:\n{}", program, ended.output));
  return findings;
}

/// The programs that a list of the build names, one a line, built.
std::vector<Part> built_parts(const Workspace& workspace, const std::string& list) {
  std::istringstream lines(book::read_file(workspace.toolchain.build_folder / list));
  std::vector<Part> parts;
  std::vector<std::string> targets{"workbook_cli", "workbook_test", "workbook_course", "workbook_lab"};  // the command
  for (std::string program; lines >> program;) {
    targets.push_back(program);
    parts.push_back({program});
  }
  worker::build_targets(workspace.toolchain, targets);
  return parts;
}

/// Runs what is built. `share` runs the tasks: task(0) … task(count - 1).
void check_list(const Inspection& inspection, const std::vector<Part>& parts, Findings& findings,
                void (*share)(std::size_t count, const std::function<void(std::size_t)>& task)) {
  std::vector<Findings> found(parts.size());
  share(parts.size(), [&](std::size_t i) { found[i] = run_part(inspection.workspace, parts[i]); });
  for (const Findings& part : found) findings.add(part);
  findings.detail = fmt::format("{} tests of {} programs", findings.passed, parts.size());
  // Why what was skipped cannot run, of one program.
  for (const Findings& part : found)
    if (!part.detail.empty() && parts.size() == 1) findings.detail += "; skipped: " + part.detail;
}

/// They use the machine's other users, and count their processes.
void one_after_the_other(std::size_t count, const std::function<void(std::size_t)>& task) {
  for (std::size_t i = 0; i < count; ++i) task(i);
}

}  // namespace

void check_parts(Inspection& inspection, Findings& findings) {
  check_list(inspection, built_parts(inspection.workspace, "part_tests.txt"), findings,
             [](std::size_t count, const auto& task) { worker::share_cores(count, task); });
}

void check_long_parts(Inspection& inspection, Findings& findings) {
  check_list(inspection, built_parts(inspection.workspace, "long_tests.txt"), findings, one_after_the_other);
}

void check_graded_chapters(Inspection& inspection, Findings& findings) {
  std::vector<Part> parts;
  for (const Part& part : built_parts(inspection.workspace, "graded_tests.txt")) {
    for (const book::Chapter* chapter : inspection.chapters)
      parts.push_back({part.program, fmt::format("[{}]", chapter->number)});
  }
  check_list(inspection, parts, findings, one_after_the_other);
}

void check_pictures(Inspection& inspection, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  worker::build_targets(workspace.toolchain, {"workbook_lab"});
  std::vector<std::string> argv{(workspace.toolchain.build_folder / "bin" / "workbook_lab").string(), "pictures",
                                "--check", "--json"};
  if (inspection.chapters.size() < workspace.book.chapters.size()) {
    for (const book::Chapter* chapter : inspection.chapters) argv.push_back(chapter->name());
  }
  const worker::CommandResult result = worker::run_command(argv);
  const json document = json::parse(result.output, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) {
    findings.problems.push_back(fmt::format("pictures ended with {}:\n{}", result.exit_code, result.output));
    return;
  }
  std::string why;
  for (const json& picture : document.at("pictures")) {
    const std::string file = picture.at("file"), state = picture.at("state");
    if (state == "unknown") {
      ++findings.skipped;
      why = picture.at("why");
    } else {
      findings.expect(state == "current", fmt::format("{}: {}", file,
                                                      state == "missing"  ? "missing; ./workbook pictures draws it"
                                                      : state == "unused" ? "no pictures.toml requests it"
                                                                          : "it is not what the code says by now; "
                                                                            "./workbook pictures draws it anew"));
    }
  }
  findings.detail = fmt::format("{} files of pictures are current", findings.passed);
  if (!why.empty()) findings.detail += "; skipped: " + why;
}

void check_run(Inspection& inspection, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  const std::string command = (workspace.toolchain.build_folder / "bin" / "workbook_cli").string();
  for (const auto& [mask, as_value] : all_masks()) {
    const std::vector<std::string> argv{command, "run", "--json", "--seq", "384", "--mask", std::string(mask)};
    const worker::CommandResult result = worker::run_command(argv);
    findings.expect(result.exit_code == 0,
                    fmt::format("run --mask {} ended with {}:\n{}", mask, result.exit_code, result.output));
    if (result.exit_code != 0) continue;
    const json document = json::parse(result.output);
    findings.expect(document.at("stages").size() >= inspection.chapters.size(), "run left a stage out");
    for (const json& stage : document.at("stages")) {
      if (!stage.at("supported").get<bool>()) continue;
      findings.expect(
          stage.at("max_error").get<double>() <= stage.at("bound").get<double>() &&
              stage.at("rms_error").get<double>() <= stage.at("rms_bound").get<double>(),
          fmt::format("run --mask {}: {} is outside its bounds", mask, stage.at("chapter").get<std::string>()));
    }
  }
  findings.detail = "every stage inside its bounds";
}

}  // namespace workbook::gates
