// The book's own parts, and its main job.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "common/book/files.hpp"
#include "common/gates/groups.hpp"
#include "common/gates/share_cores.hpp"
#include "common/judge/verdict.hpp"
#include "common/worker/command.hpp"

namespace workbook::gates {
namespace {

using judge::Result, judge::Verdict, judge::Workspace;
using nlohmann::json;

/// One test program of the book's own parts.
Findings run_part(const Workspace& workspace, const std::string& program) {
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
    } else {
      findings.expect(verdict.result == Result::passed,
                      fmt::format("{}: \"{}\": {}\n{}", program, verdict.test, name(verdict.result), verdict.message));
    }
  };
  const worker::CommandResult ended = worker::run_command(
      {(workspace.toolchain.build_folder / "bin" / program).string(), "--warn", "NoAssertions"}, options);
  if (!done) findings.problems.push_back(fmt::format("{} ended early:\n{}", program, ended.output));
  return findings;
}

/// The programs that a list of the build names, built.
std::vector<std::string> built_parts(const Workspace& workspace, const std::string& list) {
  std::istringstream names(book::read_file(workspace.toolchain.build_folder / list));
  std::vector<std::string> programs;
  for (std::string name; names >> name;) programs.push_back(name);
  std::vector<std::string> targets = programs;
  targets.insert(targets.end(), {"workbook_cli", "workbook_course", "workbook_lab"});  // the command
  worker::build_targets(workspace.toolchain, targets);
  return programs;
}

void add_up(const std::vector<Findings>& parts, Findings& findings) {
  for (const Findings& part : parts) findings.add(part);
  findings.detail = fmt::format("{} tests of {} programs", findings.passed, parts.size());
}

}  // namespace

void check_parts(Inspection& inspection, Findings& findings) {
  const std::vector<std::string> programs = built_parts(inspection.workspace, "part_tests.txt");
  std::vector<Findings> parts(programs.size());
  share_cores(programs.size(), [&](std::size_t i) { parts[i] = run_part(inspection.workspace, programs[i]); });
  add_up(parts, findings);
}

void check_long_parts(Inspection& inspection, Findings& findings) {
  std::vector<Findings> parts;
  // One after the other: they use the machine's other users, and count their processes.
  for (const std::string& program : built_parts(inspection.workspace, "long_tests.txt"))
    parts.push_back(run_part(inspection.workspace, program));
  add_up(parts, findings);
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
  for (const json& picture : document.at("pictures")) {
    const std::string file = picture.at("file"), state = picture.at("state");
    if (state == "unknown") {
      ++findings.skipped;
    } else {
      findings.expect(state == "current", fmt::format("{}: {}", file,
                                                      state == "missing"   ? "missing; ./workbook pictures draws it"
                                                      : state == "unasked" ? "no pictures.toml asks for it"
                                                                           : "it is not what the code says by now; "
                                                                             "./workbook pictures draws it anew"));
    }
  }
  findings.detail = fmt::format("{} pictures are current", findings.passed);
}

void check_run(Inspection& inspection, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  const std::string command = (workspace.toolchain.build_folder / "bin" / "workbook_cli").string();
  for (const char* flags : {"", "--causal"}) {
    std::vector<std::string> argv{command, "run", "--json", "--seq", "384"};
    if (*flags != '\0') argv.push_back(flags);
    const worker::CommandResult result = worker::run_command(argv);
    findings.expect(result.exit_code == 0,
                    fmt::format("run {} ended with {}:\n{}", flags, result.exit_code, result.output));
    if (result.exit_code != 0) continue;
    const json document = json::parse(result.output);
    findings.expect(document.at("stages").size() >= inspection.chapters.size(), "run left a stage out");
    for (const json& stage : document.at("stages")) {
      if (!stage.at("supported").get<bool>()) continue;
      findings.expect(stage.at("max_error").get<double>() <= stage.at("bound").get<double>() &&
                          stage.at("rms_error").get<double>() <= stage.at("rms_bound").get<double>(),
                      fmt::format("run {}: {} is outside its bounds", flags, stage.at("chapter").get<std::string>()));
    }
  }
  findings.detail = "every stage inside its bounds";
}

}  // namespace workbook::gates
