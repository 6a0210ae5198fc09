#include "common/judge/run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "common/attention/error.hpp"
#include "common/book/files.hpp"
#include "common/book/foreign_text.hpp"
#include "common/book/offsets.hpp"
#include "common/book/text.hpp"
#include "common/judge/cause_search.hpp"
#include "common/judge/test_program.hpp"
#include "common/judge/warnings.hpp"
#include "common/worker/command.hpp"

namespace workbook::judge {
namespace fs = std::filesystem;
namespace {

using book::Chapter;
using nlohmann::json;

/// The beginning of a program's output as valid UTF-8: it ends within no character.
std::string first_errors(const std::string& log) {
  return book::clean_text(log, 3000);
}

json subject_json(const std::string& executable, const std::string& not_compiled, bool open) {
  return {{"executable", executable}, {"not_compiled", not_compiled}, {"open", open}, {"on_host", false}};
}
json subject_json(const worker::WorkerBuilt& built, const Plan& plan) {
  return subject_json(built.ok ? built.executable.string() : "",
                      built.ok ? "" : first_errors(as_the_reader_knows(built.log, plan)), false);
}

/// Whether an exercise is tested: all are if `exercise` is empty.
bool is_tested(const std::string& id, const std::string& exercise) {
  return exercise.empty() || id == exercise;
}

/// Warnings about 32-bit index computations in kernels. They overflow only from 2^31 on, so no test can detect them.
std::string narrow_offsets(const Workspace& workspace, const Plan& plan, const std::string& exercise) {
  std::string warnings;
  for (const auto& [id, in] : plan.regions) {
    const book::Region* region = in.reader.find(id);
    if (!is_tested(id, exercise) || region == nullptr || book::is_open(*region) ||
        fs::path(in.file).extension() == ".cpp")
      continue;
    for (const book::NarrowProduct& product : book::narrow_products(book::join_lines(in.reader.lines))) {
      if (product.line <= region->begin_line || product.line >= region->end_line) continue;
      const std::string warning = fmt::format(
          "{}:{}: {} is computed in 32 bits and overflows from 2^31 on, which no test is large enough to show: make "
          "its first factor a std::int64_t\n",
          workspace.shown(plan.tree.written() / in.file), product.line, product.text);
      if (warnings.find(warning) == std::string::npos) warnings += warning;  // several pointers may use one offset
    }
  }
  return warnings;
}

/// The compiler's warnings about the tested exercises of the tree, from the first build that reports each. Warnings
/// about other lines are omitted, since those are the book's.
std::string own_warnings(const Workspace& workspace, const Plan& plan, const Built& built,
                         const std::string& exercise) {
  const auto is_own = [&](const std::string& file, int line) {
    return std::ranges::any_of(plan.regions, [&](const auto& entry) {
      const auto& [id, in] = entry;
      const book::Region* region = in.reader.find(id);
      return is_tested(id, exercise) && region != nullptr && file == workspace.shown(plan.tree.written() / in.file) &&
             line > region->begin_line && line < region->end_line && !book::is_open(*region);
    });
  };
  std::string text;
  for (const auto& [name, job] : plan.jobs) {
    const auto found = built.find(name);
    if (found == built.end()) continue;
    for (const std::string& warning : warnings_in(found->second.log, is_own)) {
      if (text.find(warning.substr(0, warning.find('\n'))) == std::string::npos) text += warning;
    }
  }
  return text + narrow_offsets(workspace, plan, exercise);
}

/// compute-sanitizer for the workers of one run.
struct Watching {
  std::vector<std::string> command;  ///< empty: no sanitizer
  fs::path reports;                  ///< a folder with one file per worker
};
Watching watch_with(const Workspace& workspace, const RunRequest& request) {
  Watching watching;
  if (request.sanitizer.empty() || request.backend != Backend::cuda || !worker::gpu_present()) return watching;
  const fs::path nvcc = workspace.toolchain.backends.at(Backend::cuda).kernels.at(0);
  fs::path program = nvcc.parent_path() / "compute-sanitizer";
  if (!fs::exists(program)) program = worker::find_program("compute-sanitizer");
  if (program.empty()) fail_input("--sanitizer {}: compute-sanitizer was not found beside nvcc", request.sanitizer);
  watching.reports =
      workspace.toolchain.build_folder / "sanitizer" / fmt::format("{}.{}", request.sanitizer, ::getpid());
  fs::remove_all(watching.reports);
  fs::create_directories(watching.reports);
  watching.command = {program.string(), "--tool", request.sanitizer, "--log-file",
                      (watching.reports / "%p.log").string()};
  return watching;
}

/// The findings of compute-sanitizer, as an additional test.
Verdict findings(const Watching& watching, const std::string& tool) {
  Verdict verdict;
  verdict.test = fmt::format("compute-sanitizer --tool {} finds nothing", tool);
  verdict.exercise = kWhole;
  int reports = 0;
  for (const auto& entry : fs::directory_iterator(watching.reports)) {
    const std::string text = book::read_file(entry.path());
    ++reports;
    // The tool's summary is its only machine-readable result.
    const bool clean = text.find("SUMMARY: 0 errors") != std::string::npos ||
                       text.find("SUMMARY: 0 hazards displayed (0 errors, 0 warnings)") != std::string::npos;
    if (!clean) verdict.message += first_errors(text) + "\n";
  }
  if (reports == 0) verdict.message = "compute-sanitizer wrote no report";
  verdict.result = verdict.message.empty() ? Result::passed : Result::failed;
  return verdict;
}

/// The code that each group of tests runs on, for the context. Adds a note to the run for an exercise that cannot be
/// judged alone, and for a file with changed given lines, which grafts replace with the book's.
json subjects_json(const Workspace& workspace, const Plan& plan, const Built& built, ChapterRun& run) {
  const auto built_as = [&](const std::string& job) {
    const auto found = built.find(job);
    return found == built.end() ? worker::WorkerBuilt{} : found->second;
  };
  const worker::WorkerBuilt whole = built_as(plan.whole);
  json subjects{{kWhole, subject_json(whole, plan)}};
  std::map<std::string, int> changed;  // file -> first changed given line; 0: none, or already noted
  for (const auto& [id, exercise] : plan.exercises) {
    json& entry = subjects[id];
    const auto region = plan.regions.find(id);
    const bool on_host = region != plan.regions.end() && fs::path(region->second.file).extension() == ".cpp";
    if (exercise.open || !exercise.broken.empty()) {
      entry = subject_json("", exercise.broken, exercise.open);
      entry["on_host"] = on_host;
      continue;
    }
    const worker::WorkerBuilt alone = built_as(exercise.worker);
    const bool stands_in = !alone.ok && whole.ok && plan.request.whole_stands_in;
    entry = subject_json(stands_in ? whole : alone, plan);
    entry["on_host"] = on_host;
    const RegionInTree& in = plan.regions.at(id);
    if (!stands_in) {
      // A tree assembled for grading has the book's lines already. Grading reports what it has left out.
      if (plan.tree.as_written.empty() && !changed.contains(in.file))
        changed[in.file] = book::first_difference(in.reader, in.solution);
      continue;
    }
    changed[in.file] = 0;
    run.notes.push_back(
        fmt::format("exercise {} needs code that you changed outside its region, so it cannot be judged alone: its "
                    "tests ran on your whole chapter",
                    id));
  }
  for (const auto& [file, line] : changed) {
    if (line == 0) continue;
    run.notes.push_back(
        fmt::format("{}:{} was changed outside every BEGIN/END region: exercises in this file were tested with the "
                    "book's lines around them. Grading keeps #include <…> lines and functions that you add between the "
                    "given lines; it restores a given line that you changed",
                    workspace.shown(plan.tree.written() / file), line));
  }
  return subjects;
}

/// The shell command that starts the worker under a debugger; the worker's path is appended. gdb stops once, at the
/// first line of the test's exercise. Empty: no debugger.
std::string debugger_of(const Workspace& workspace, const Plan& plan, const RunRequest& request) {
  if (!request.debug) return "";
  if (const char* other = std::getenv("WORKBOOK_DEBUGGER")) return other;
  std::string location;
  for (const auto& [id, exercise] : plan.exercises) {
    const RegionInTree& in = plan.regions.at(id);
    const book::Region* region = in.reader.find(id);
    const auto& tests = plan.chapter->find(id)->tests;
    if (region == nullptr || std::ranges::find(tests, request.only) == tests.end()) continue;
    location = fmt::format("{}:{}", workspace.shown(plan.tree.written() / in.file), region->begin_line + 1);
  }
  std::string words = "gdb -q -ex 'set confirm off' -ex 'set breakpoint pending on'";
  if (!location.empty()) words += fmt::format(" -ex {} -ex run", worker::shell_quoted("tbreak " + location));
  return words + " --args";
}

/// The context that the test program reads (tests/support/context.hpp).
json context_json(const Workspace& workspace, const Plan& plan, const Built& built, const RunRequest& request,
                  const Watching& watching, ChapterRun& run) {
  const auto previous = built.find(plan.previous);
  const bool compared = previous != built.end() && previous->second.ok;
  return {{"chapter", plan.chapter->number},
          {"chapter_name", plan.chapter->name()},
          {"backend", name(request.backend)},
          {"unavailable", plan.unavailable},
          {"counts", workspace.toolchain.counts_on(request.backend)},
          {"element", plan.chapter->element_on(request.backend)},
          {"debugger", debugger_of(workspace, plan, request)},
          {"time_limit", request.time_limit},
          {"version", request.version},
          {"worker_prefix", watching.command.empty() ? request.worker_prefix : watching.command},
          {"previous", compared ? previous->second.executable.string() : ""},
          {"previous_element", plan.previous_element},
          {"failed", ""},
          {"subjects", subjects_json(workspace, plan, built, run)}};
}

/// The source lines in a list of reports. Equal lists stand for the same mistakes.
std::string locations_of(const std::vector<simt::Report>& reports) {
  std::string locations;
  const auto add = [&](const simt::Side& side) {
    locations += fmt::format(" {}:{}:{}", side.source.file, side.source.line, side.source.known_as);
  };
  for (const simt::Report& report : reports) {
    locations += name(report.mistake);
    add(report.side);
    if (report.other) add(*report.other);
  }
  return locations;
}

/// Adds the reports' texts to the messages. If an earlier test shows the same reports, only the first line is repeated.
void append_reports(std::vector<Verdict>& verdicts) {
  std::map<std::string, std::string> shown;  // locations -> the test that shows them
  for (Verdict& verdict : verdicts) {
    if (verdict.reports.empty()) continue;
    const auto [first, is_new] = shown.emplace(locations_of(verdict.reports), verdict.test);
    std::string text = simt::text(verdict.reports);
    while (text.ends_with('\n')) text.pop_back();
    if (!is_new) {
      text = fmt::format("{}\n  at the same lines as in \"{}\", which shows the full report",
                         text.substr(0, text.find('\n')), first->second);
    }
    if (verdict.reports_left_out > 0) text += fmt::format("\nand {} more reports", verdict.reports_left_out);
    verdict.message += "\n" + book::indented(text, "  ");
  }
}

/// The first exercise with a failed test; empty: none.
std::string first_failed(const ChapterRun& run) {
  for (const book::Exercise& exercise : run.chapter->exercises)
    for (const Verdict& verdict : run.tests)
      if (verdict.exercise == exercise.id && verdict.result > Result::blocked) return exercise.id;
  return "";
}

}  // namespace

int ChapterRun::count(Result result) const {
  return int(std::ranges::count(tests, result, &Verdict::result));
}
bool ChapterRun::none_failed() const {
  return count(Result::passed) + count(Result::skipped) == int(tests.size());
}
json to_json(const ChapterRun& run) {
  json document{{"chapter", run.chapter->name()}, {"backend", name(run.backend)}, {"source", run.tree},
                {"finished", run.finished},       {"warnings", run.warnings},     {"notes", run.notes},
                {"tests", json::array()}};
  for (const Result result : kResults) {
    std::string key = name(result);
    std::ranges::replace(key, ' ', '_');
    document[key] = run.count(result);
  }
  for (const Verdict& verdict : run.tests) document["tests"].push_back(to_json(verdict));
  return document;
}
bool all_passed(const std::vector<ChapterRun>& runs) {
  const auto passed = [](const ChapterRun& run) { return run.count(Result::passed) > 0; };
  return std::ranges::any_of(runs, passed) && std::ranges::all_of(runs, &ChapterRun::none_failed);
}

ChapterRun run_plan(const Workspace& workspace, const Plan& plan, const Built& built, const RunRequest& request) {
  ChapterRun run;
  run.chapter = plan.chapter;
  run.backend = request.backend;
  run.tree = plan.tree.name;
  run.unavailable = plan.unavailable;
  if (const auto whole = built.find(plan.whole); whole != built.end() && whole->second.ok)
    run.warnings = whole->second.log;
  run.own_warnings = own_warnings(workspace, plan, built, request.exercise);
  const Watching watching = watch_with(workspace, request);
  json context = context_json(workspace, plan, built, request, watching, run);
  // In grading and in the gates the whole chapter's tests run whatever else fails.
  const bool all = request.only.empty() && request.groups.empty() && request.exercise.empty();
  std::vector<std::vector<std::string>> parts{request.groups};  // each is a run of the test program
  if (all && (request.whole_waits || !request.seconds.empty())) {
    parts.assign(1, {});
    for (const book::Exercise& exercise : plan.chapter->exercises) {
      // An endless loop in one exercise takes no time from another.
      if (!request.seconds.empty() && !parts.back().empty()) parts.emplace_back();
      parts.back().push_back(exercise.id);
    }
    parts.push_back({kWhole});
  }
  bool finished = true;
  double share = 1;  // of the time: several endless loops take little more of it than one
  for (const std::vector<std::string>& groups : parts) {
    RunRequest part = request;
    part.groups = groups;
    for (auto& [group, seconds] : part.seconds) seconds *= share;
    if (request.whole_waits) context["failed"] = first_failed(run);
    run_program(workspace, plan, part, test_spec(*plan.chapter, part), context, run);
    if (!run.finished) share = std::max(share / 2, 1.0 / 6);
    finished = finished && run.finished;
  }
  run.finished = finished;
  append_reports(run.tests);  // first, since the reader sees the failed test before its cause is looked for
  find_causes(workspace, plan, built, request, context, run);
  if (!watching.command.empty()) run.tests.push_back(findings(watching, request.sanitizer));
  for (Verdict& verdict : run.tests) {
    verdict.chapter = plan.chapter->name();
    verdict.backend = request.backend;
    verdict.hidden = request.hidden;
    // The location for the reader: the region in the tree's file.
    const auto found = plan.regions.find(verdict.exercise);
    if (found == plan.regions.end() || !found->second.error.empty()) continue;
    const book::Region* region = found->second.reader.find(verdict.exercise);
    if (region == nullptr) continue;
    verdict.place = {workspace.shown(plan.tree.written() / found->second.file),
                     region->begin_line + (verdict.result == Result::todo ? 1 : 0)};
  }
  return run;
}

std::vector<Plan> plan_backends(const Workspace& workspace, const Chapter& chapter, const Tree& tree,
                                RunRequest request, std::optional<Backend> only) {
  std::vector<Plan> plans;
  for (const Backend backend : chapter.backends) {
    if (only && backend != *only) continue;
    request.backend = backend;
    plans.push_back(make_plan(workspace, chapter, tree, request));
  }
  return plans;
}

}  // namespace workbook::judge
