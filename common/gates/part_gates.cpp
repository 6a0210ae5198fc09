// The book's own parts, and its main job.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "common/attention/mask.hpp"
#include "common/book/files.hpp"
#include "common/gates/groups.hpp"
#include "common/gates/kept.hpp"
#include "common/gates/variants.hpp"
#include "common/judge/verdict.hpp"
#include "common/worker/command.hpp"
#include "common/worker/share_cores.hpp"

namespace workbook::gates {
namespace {

using judge::Result, judge::Verdict, judge::Workspace;
using nlohmann::json;

constexpr const char* kParts = "part_tests.txt";  // the build's list of programs

/// A test program of the book's own parts.
struct Part {
  std::string program;
  std::optional<OfChapters> reads;  ///< of chapters no other files; nothing: all
  bool apart = false;               ///< no test touches what another one does
  std::string tests = {};           ///< only those with this tag; empty: all

  std::string name() const { return tests.empty() ? program : program + " " + tests; }
};

/// One of `shares` shares of a program's tests: each by itself is short, and all of them may be long.
struct Share {
  std::size_t part = 0;
  int index = 0, shares = 1;
};

Findings run_part(const Workspace& workspace, const Part& part, const Share& share) {
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
  if (share.shares > 1) {  // by name: long ones stand together in a file
    argv.insert(argv.end(), {"--order", "lex", fmt::format("--shard-count={}", share.shares),
                             fmt::format("--shard-index={}", share.index)});
  }
  if (!part.tests.empty()) argv.push_back(part.tests);
  const worker::CommandResult ended = worker::run_command(argv, options);
  if (!done) findings.problems.push_back(fmt::format("{} ended early:\n{}", program, ended.output));
  return findings;
}

/// The programs that a list of the build names. A line each: its name, perhaps "apart", then "all", or numbers of
/// chapters and names of files.
std::vector<Part> parts_of(const Workspace& workspace, const std::string& list) {
  std::istringstream lines(book::read_file(workspace.toolchain.build_folder / list));
  std::vector<Part> parts;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Part part;
    std::string word;
    if (!(words >> part.program)) continue;
    part.reads.emplace();
    while (words >> word) {
      if (word == "all") {
        part.reads.reset();
        break;
      }
      if (word == "apart")
        part.apart = true;
      else if (word.find_first_not_of("0123456789") == std::string::npos)
        part.reads->chapters.insert(std::stoi(word));
      else
        part.reads->names.insert(word);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

/// What is built of them, and the command, which they call.
std::vector<std::string> targets_of(const std::vector<Part>& parts) {
  std::vector<std::string> targets{"workbook_cli", "workbook_test", "workbook_course", "workbook_lab"};
  for (const Part& part : parts) targets.push_back(part.program);
  return targets;
}

/// Into how many shares a program's tests go: where there are more cores than programs, the longest would be waited
/// for.
int shares_of(const Part& part) {
  return part.apart ? std::clamp(int(std::thread::hardware_concurrency()) / 2, 1, 8) : 1;
}

/// Builds these and runs them. What an earlier check has seen pass on the same files is not run again. `run` runs the
/// others: task(0) … task(count - 1).
void check_list(Inspection& inspection, const std::vector<Part>& parts, Findings& findings,
                void (*run)(std::size_t count, const std::function<void(std::size_t)>& task)) {
  const Workspace& workspace = inspection.workspace;
  worker::build_targets(workspace.toolchain, targets_of(parts));
  Digests digests(workspace);
  std::vector<Findings> found(parts.size());
  std::vector<std::string> keys(parts.size());
  std::vector<std::size_t> to_run;
  std::vector<Share> tasks;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::optional<json> kept;
    if (inspection.results != nullptr) {
      keys[i] = part_key(workspace, parts[i].name(), parts[i].reads, digests);
      kept = inspection.results->find(keys[i], digests);
    }
    found[i].trees = 1;
    if (!kept) {
      to_run.push_back(i);
      for (int index = 0; index < shares_of(parts[i]); ++index) tasks.push_back({i, index, shares_of(parts[i])});
      continue;
    }
    found[i].kept = 1;
    kept->at("passed").get_to(found[i].passed);
    kept->at("skipped").get_to(found[i].skipped);
    found[i].detail = kept->value("detail", "");
  }
  std::vector<Findings> ran(tasks.size());
  run(tasks.size(), [&](std::size_t i) { ran[i] = run_part(workspace, parts[tasks[i].part], tasks[i]); });
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    Findings& of_part = found[tasks[i].part];
    of_part.add(ran[i]);
    if (!ran[i].detail.empty()) of_part.detail = ran[i].detail;
  }
  for (const std::size_t i : to_run) {
    if (found[i].passed + found[i].skipped == 0 && found[i].problems.empty())
      found[i].problems.push_back(parts[i].name() + " has run no test");
    if (inspection.results != nullptr && found[i].problems.empty() && digests.stood_still())
      inspection.results->keep(
          keys[i], {}, json{{"passed", found[i].passed}, {"skipped", found[i].skipped}, {"detail", found[i].detail}});
  }
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

void check_build(Inspection& inspection, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  std::vector<std::string> targets = test_targets_of(workspace, inspection.chapters);
  targets.insert(targets.end(), {"known_mistakes", "workbook_lab"});
  if (inspection.chapters.size() == workspace.book.chapters.size()) {
    const std::vector<std::string> of_parts = targets_of(parts_of(workspace, kParts));
    targets.insert(targets.end(), of_parts.begin(), of_parts.end());
  }
  worker::build_targets(workspace.toolchain, targets);
  findings.detail = fmt::format("{} programs and libraries", std::set(targets.begin(), targets.end()).size());
}

void check_parts(Inspection& inspection, Findings& findings) {
  check_list(inspection, parts_of(inspection.workspace, kParts), findings,
             [](std::size_t count, const auto& task) { worker::share_cores(count, task); });
}

void check_long_parts(Inspection& inspection, Findings& findings) {
  check_list(inspection, parts_of(inspection.workspace, "long_tests.txt"), findings, one_after_the_other);
}

void check_graded_chapters(Inspection& inspection, Findings& findings) {
  // Each chapter by itself: what has changed in a later one says nothing of it.
  std::vector<Part> parts;
  for (const Part& part : parts_of(inspection.workspace, "graded_tests.txt")) {
    for (const book::Chapter* chapter : inspection.chapters) {
      OfChapters reads{{}, {"chapter.toml"}};
      for (int number = 1; number <= chapter->number; ++number) reads.chapters.insert(number);
      parts.push_back({.program = part.program, .reads = reads, .tests = fmt::format("[{}]", chapter->number)});
    }
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
                                                      state == "missing"   ? "missing; ./workbook pictures draws it"
                                                      : state == "unasked" ? "no pictures.toml asks for it"
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
