#include "common/cli/testing.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "common/attention/error.hpp"
#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/grading/text.hpp"
#include "common/worker/command.hpp"

namespace workbook::cli {
namespace fs = std::filesystem;
namespace {

using book::Chapter;
using book::Exercise;
using nlohmann::json;

bool is_kernel_file(const std::string& file) {
  return fs::path(file).extension() == ".cu";
}
bool is_source(const std::string& file) {
  return fs::path(file).extension() == ".cpp" || is_kernel_file(file);
}

/// Where an exercise's region stands: the tree's file that has it, parsed, beside the solution's.
struct Place {
  std::string file;  ///< relative to the chapter's folder
  book::MarkedFile reader, solution;
  std::string error;  ///< why the reader's file cannot be grafted
};

std::map<std::string, Place> places(const Session& session, const Chapter& chapter, const Tree& tree) {
  std::map<std::string, Place> found;
  for (const std::string& file : chapter.files) {
    const fs::path solution_path = session.book.solution(chapter, file);
    // Without solutions/ (a release) the tree itself says where its regions are.
    const fs::path reader_path = tree.folder / file;
    const bool has_solution = fs::exists(solution_path);
    Place place;
    place.file = file;
    if (fs::exists(reader_path)) {
      place.reader = book::parse_reader(session.shown(reader_path), book::read_file(reader_path));
    } else {
      place.error = session.shown(reader_path) + " is missing";
    }
    place.solution =
        has_solution ? book::parse_marked(session.shown(solution_path), book::read_file(solution_path)) : place.reader;
    for (const book::Region& region : place.solution.regions) found[region.id] = place;
  }
  return found;
}

/// What the tests of one exercise run on.
struct ExerciseSubject {
  bool open = false;
  std::string worker;  ///< name of a job
  std::string broken;  ///< why there is nothing to run: markers gone
};

/// Which of an exercise's marker lines are gone from a reader's file.
std::string lost_markers(const book::MarkedFile& file, const std::string& id) {
  const std::string begin = "// BEGIN " + id, end = "// END " + id;
  const auto line_of = [&](const std::string& marker) {
    const auto found = std::find_if(file.lines.begin(), file.lines.end(), [&](const std::string& line) {
      const std::size_t from = line.find_first_not_of(" \t");
      return from != std::string::npos && line.substr(from, line.find_last_not_of(" \t") - from + 1) == marker;
    });
    return found == file.lines.end() ? 0 : int(found - file.lines.begin()) + 1;
  };
  const int begins = line_of(begin), ends = line_of(end);
  if (begins == 0 && ends == 0) return fmt::format("{}: the lines {} and {} are gone", file.name, begin, end);
  if (ends == 0) return fmt::format("{}:{}: the line {} that closes this region is gone", file.name, begins, end);
  if (begins == 0) return fmt::format("{}:{}: the line {} that opens this region is gone", file.name, ends, begin);
  return fmt::format("{}:{}: the markers of exercise {} stand twice, or another region's lie between them", file.name,
                     begins, id);
}

/// True if the tree is the solution with just this region changed: then the whole chapter is the graft.
bool is_solution_but(const Session& session, const Chapter& chapter, const Tree& tree, const Place& place,
                     const book::Region& region) {
  return std::all_of(chapter.files.begin(), chapter.files.end(), [&](const std::string& file) {
    const std::string text = book::read_file(tree.folder / file);
    return file == place.file ? text == book::replace_body(place.solution, region.id, region.body)
                              : text == book::read_file(session.book.solution(chapter, file));
  });
}

std::string first_errors(const std::string& log) {
  constexpr std::size_t most = 3000;
  return log.size() <= most ? log : log.substr(0, most) + "\n…";
}

json subject_json(const std::string& executable, const std::string& not_compiled, bool open) {
  return {{"executable", executable}, {"not_compiled", not_compiled}, {"open", open}};
}

/// A Catch2 test spec that matches exactly this name.
std::string exact(const std::string& name) {
  std::string spec;
  for (const char c : name) {
    if (c == ',' || c == '[' || c == '\\' || c == '*') spec += '\\';
    spec += c;
  }
  return spec;
}

}  // namespace

int ChapterRun::count(const std::string& result) const {
  return int(std::count_if(tests.begin(), tests.end(), [&](const TestResult& t) { return t.result == result; }));
}
bool ChapterRun::none_failed() const {
  return count("passed") + count("skipped") == int(tests.size());
}
bool all_passed(const std::vector<ChapterRun>& runs) {
  const auto passed = [](const ChapterRun& run) { return run.count("passed") > 0; };
  return std::any_of(runs.begin(), runs.end(), passed) &&
         std::all_of(runs.begin(), runs.end(), [](const ChapterRun& run) { return run.none_failed(); });
}

Tree readers_tree(const Session& session, const Chapter& chapter) {
  return {"chapters", session.book.root / "chapters" / chapter.name()};
}
Tree solutions_tree(const Session& session, const Chapter& chapter) {
  return {"solutions", session.book.root / "solutions" / chapter.name()};
}

worker::WorkerJob whole_job(const Session& session, const Chapter& chapter, const Tree& tree,
                            const std::string& backend) {
  worker::WorkerJob job;
  job.name = tree.name + "/" + chapter.name() + "." + backend;
  job.backend = backend;
  // With the book's own headers, the table of operations and the files that equal the book's are those that the
  // solution is built with: compiled once. (The chapter's sources find the headers beside them first.)
  const auto is_books = [&](const std::string& file) {
    const fs::path solution = session.book.solution(chapter, file);
    return fs::exists(solution) && fs::exists(tree.folder / file) &&
           book::read_file(tree.folder / file) == book::read_file(solution);
  };
  const bool own_headers = std::any_of(chapter.files.begin(), chapter.files.end(),
                                       [&](const std::string& file) { return !is_source(file) && !is_books(file); });
  for (const std::string& file : chapter.files) {
    if (!is_source(file) || (backend == "cpu" && is_kernel_file(file))) continue;
    job.sources.push_back(!own_headers && is_books(file) ? session.book.solution(chapter, file) : tree.folder / file);
  }
  job.include = own_headers ? tree.folder : solutions_tree(session, chapter).folder;
  job.used = session.book.used(chapter);
  job.sources.push_back(session.book.root / "tests" / chapter.name() /
                        (backend == "cpu" ? "operations.cpp" : "operations.cu"));
  return job;
}

bool can_build(const Session& session, const std::string& backend) {
  return session.toolchain.backends.contains(backend);
}

bool gpu_present() {
  return fs::exists("/dev/nvidiactl") || fs::exists("/dev/dxg");  // the latter under WSL2
}

std::string first_backend(const Session& session, const Chapter& chapter) {
  const auto found = std::find_if(chapter.backends.begin(), chapter.backends.end(),
                                  [&](const std::string& backend) { return can_build(session, backend); });
  return found == chapter.backends.end() ? chapter.backends.front() : *found;
}

std::vector<std::string> worker_targets(const Session& session, const Chapter& chapter) {
  std::vector<std::string> targets;
  for (const std::string& backend : chapter.backends) {
    if (!can_build(session, backend)) continue;
    const std::vector<std::string>& more = session.toolchain.backends.at(backend).targets;
    targets.insert(targets.end(), more.begin(), more.end());
  }
  std::sort(targets.begin(), targets.end());
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  return targets;
}

std::vector<std::string> test_targets(const Session& session, const Chapter& chapter) {
  std::vector<std::string> targets = worker_targets(session, chapter);
  targets.push_back("tests_" + chapter.name());
  return targets;
}

namespace {

/// The stage to compare with: the chapter before this one that has a stage of the same pass, on the same backend if it
/// has that, from solutions/ or chapters/. Empty paths if there is none, or it does not compile.
struct Previous {
  fs::path executable;
  std::string element;
};
Previous build_previous(const Session& session, const Chapter& chapter, const RunRequest& request) {
  const Chapter* previous = nullptr;
  for (const Chapter& other : session.book.chapters) {
    if (other.number < chapter.number && other.pass == chapter.pass) previous = &other;
  }
  if (previous == nullptr) return {};
  const std::string backend = previous->runs_on(request.backend) ? request.backend : first_backend(session, *previous);
  if (!can_build(session, backend)) return {};
  const bool own = request.previous_readers || !session.book.has_solutions(*previous);
  const worker::WorkerJob job = whole_job(
      session, *previous, own ? readers_tree(session, *previous) : solutions_tree(session, *previous), backend);
  const auto built =
      (request.build ? request.build({job}) : worker::build_workers(session.toolchain, {job})).at(job.name);
  return {built.ok ? built.executable : fs::path(), previous->element_on(backend)};
}

/// compute-sanitizer over the workers of one run.
struct Watching {
  std::vector<std::string> command;  ///< empty: nothing watches
  fs::path reports;                  ///< a folder, one file for each worker
};
Watching watch_with(const Session& session, const RunRequest& request) {
  Watching watching;
  if (request.sanitizer.empty() || request.backend != "cuda" || !gpu_present()) return watching;
  const fs::path nvcc = session.toolchain.backends.at("cuda").kernels.at(0);
  fs::path program = nvcc.parent_path() / "compute-sanitizer";
  if (!fs::exists(program)) program = worker::find_program("compute-sanitizer");
  if (program.empty()) fail_input("--sanitizer {}: compute-sanitizer was not found beside nvcc", request.sanitizer);
  watching.reports = session.toolchain.build_folder / "sanitizer" / fmt::format("{}.{}", request.sanitizer, ::getpid());
  fs::remove_all(watching.reports);
  fs::create_directories(watching.reports);
  watching.command = {program.string(), "--tool", request.sanitizer, "--log-file",
                      (watching.reports / "%p.log").string()};
  return watching;
}

/// What it found, as one more test.
TestResult findings(const Watching& watching, const std::string& tool) {
  TestResult result;
  result.name = fmt::format("compute-sanitizer --tool {} finds nothing", tool);
  result.exercise = "whole";
  result.result = "failed";
  int reports = 0;
  for (const auto& entry : fs::directory_iterator(watching.reports)) {
    const std::string text = book::read_file(entry.path());
    ++reports;
    const bool clean = text.find("SUMMARY: 0 errors") != std::string::npos ||
                       text.find("SUMMARY: 0 hazards displayed (0 errors, 0 warnings)") != std::string::npos;
    if (!clean) result.message += first_errors(text) + "\n";
  }
  if (reports == 0) result.message = "it wrote no report";
  if (result.message.empty()) result.result = "passed";
  return result;
}

/// The tests of this chapter that belong to a backend, as a Catch2 test spec to be joined with others; see run_tests().
std::string backend_spec(const Chapter& chapter, const std::string& backend) {
  if (!chapter.runs_on("cpu")) return "";
  return backend == "cpu" ? "~[kernel]" : "[kernel]";
}

}  // namespace

std::vector<ChapterRun> run_on_backends(const Session& session, const Chapter& chapter, const Tree& tree,
                                        RunRequest request, const std::string& only_backend) {
  std::vector<ChapterRun> runs;
  for (const std::string& backend : chapter.backends) {
    if (!only_backend.empty() && backend != only_backend) continue;
    request.backend = backend;
    ChapterRun run = run_tests(session, chapter, tree, request);
    if (!run.tests.empty()) runs.push_back(std::move(run));
  }
  return runs;
}

ChapterRun run_tests(const Session& session, const Chapter& chapter, const Tree& tree, const RunRequest& request) {
  ChapterRun run;
  run.chapter = &chapter;
  run.backend = request.backend;
  run.tree = tree.name;

  // The workers: the whole chapter, and for each exercise the solution with the tree's region put in. Nothing is built
  // for an open region; a graft that equals the solution or the whole tree is that worker.
  const bool here = can_build(session, request.backend);
  const bool have_solutions = session.book.has_solutions(chapter);
  const bool graft = have_solutions && tree.name != "solutions" && (request.backend != "cuda" || request.gpu_grafts);
  const std::map<std::string, Place> where = places(session, chapter, tree);
  const worker::WorkerJob whole = whole_job(session, chapter, tree, request.backend);
  const worker::WorkerJob solution = whole_job(session, chapter, solutions_tree(session, chapter), request.backend);
  std::map<std::string, worker::WorkerJob> jobs;
  const auto wanted = [&](const std::string& exercise) {
    return request.exercise.empty() || request.exercise == exercise;
  };
  jobs[whole.name] = whole;  // always: exercises fall back on it
  std::map<std::string, ExerciseSubject> subjects;
  std::map<std::string, std::string> known_as;  // a file of a graft: what the reader knows it by
  for (const Exercise& exercise : chapter.exercises) {
    if (!wanted(exercise.id)) continue;
    ExerciseSubject& subject = subjects[exercise.id];
    const auto found = where.find(exercise.id);
    if (found == where.end()) {
      subject.broken = fmt::format("exercise {} has no region in the book's files", exercise.id);
      continue;
    }
    const Place& place = found->second;
    const book::Region* region = place.error.empty() ? place.reader.find(exercise.id) : nullptr;
    if (region == nullptr) {
      subject.broken = place.error.empty() ? lost_markers(place.reader, exercise.id) : place.error;
      subject.broken += fmt::format(
          "\n  put the marker lines back, or start the file again: ./workbook reset --file {}", exercise.id);
      continue;
    }
    if (book::is_open(*region)) {
      subject.open = true;
      continue;
    }
    if (!graft) {
      subject.worker = whole.name;
      continue;
    }
    if (region->body == place.solution.find(exercise.id)->body) {
      subject.worker = solution.name;
      jobs[solution.name] = solution;
      continue;
    }
    if (is_solution_but(session, chapter, tree, place, *region)) {
      subject.worker = whole.name;
      continue;
    }
    const Tree grafted{"grafts/" + tree.name + "/" + exercise.id,
                       session.toolchain.build_folder / "grafts" / tree.name / exercise.id / chapter.name()};
    for (const std::string& file : chapter.files) {
      const fs::path copied = session.book.solution(chapter, file), own = tree.folder / file;
      const std::string text =
          file == place.file ? book::graft(place.solution, place.reader, exercise.id) : book::read_file(copied);
      book::write_if_changed(grafted.folder / file, text);
      const bool same = fs::is_regular_file(own) && book::read_file(own) == text;
      known_as[session.shown(grafted.folder / file)] = session.shown(same ? own : copied);
    }
    const worker::WorkerJob job = whole_job(session, chapter, grafted, request.backend);
    jobs[job.name] = job;
    subject.worker = job.name;
  }
  std::vector<worker::WorkerJob> all;
  for (const auto& [name, job] : jobs) all.push_back(job);
  std::map<std::string, worker::WorkerBuilt> built;
  if (here) {
    built = request.build ? request.build(all) : worker::build_workers(session.toolchain, all);
  } else {
    for (const auto& [name, job] : jobs) built[name] = {};
  }
  const worker::WorkerBuilt& whole_built = built.at(whole.name);
  if (whole_built.ok) run.warnings = whole_built.log;

  const Watching watching = watch_with(session, request);
  // The context that the test program reads.
  const auto why = session.toolchain.unavailable.find(request.backend);
  const Previous previous = here ? build_previous(session, chapter, request) : Previous{};
  json context{{"chapter", chapter.number},
               {"backend", request.backend},
               {"unavailable", here                                         ? ""
                               : why == session.toolchain.unavailable.end() ? "this build has no such backend"
                                                                            : why->second},
               {"counts", request.backend == "sim" && session.toolchain.counts},
               {"element", chapter.element_on(request.backend)},
               {"debug", request.debug},
               {"time_limit", request.time_limit},
               {"worker_prefix", watching.command.empty() ? request.worker_prefix : watching.command},
               {"previous", previous.executable.string()},
               {"previous_element", previous.element},
               {"subjects", json::object()}};
  context["subjects"]["whole"] = subject_json(whole_built.ok ? whole_built.executable.string() : "",
                                              whole_built.ok ? "" : first_errors(whole_built.log), false);
  for (const auto& [id, subject] : subjects) {
    json& entry = context["subjects"][id];
    if (subject.open) {
      entry = subject_json("", "", true);
    } else if (!subject.broken.empty()) {
      entry = subject_json("", subject.broken, false);
    } else {
      const worker::WorkerBuilt& graft = built.at(subject.worker);
      if (graft.ok) {
        entry = subject_json(graft.executable.string(), "", false);
      } else if (whole_built.ok) {
        entry = subject_json(whole_built.executable.string(), "", false);
        run.notes.push_back(fmt::format(
            "exercise {} needs something that you changed outside its region, so it cannot be judged alone: "
            "its tests ran on your whole chapter",
            id));
      } else {
        entry = subject_json("", first_errors(graft.log), false);
      }
    }
  }
  const fs::path context_path =
      session.toolchain.build_folder / "contexts" / fmt::format("{}.{}.json", chapter.name(), ::getpid());
  book::write_file(context_path, context.dump(2));

  // The test program: results come as JSON lines on its descriptor 3.
  const fs::path program =
      !request.program.empty() ? request.program : session.toolchain.build_folder / "bin" / ("tests_" + chapter.name());
  std::vector<std::string> argv{program.string(), "--warn", "NoAssertions"};
  std::string spec = backend_spec(chapter, request.backend);
  if (!request.only.empty()) {
    spec += exact(request.only);  // in this order: after a name "~" would be part of it
  } else if (!request.exercise.empty()) {
    spec = "[" + request.exercise + "]" + spec;
  }
  if (!spec.empty()) argv.push_back(spec);
  std::string running;
  bool done = false;
  worker::CommandOptions options;
  options.environment["WORKBOOK_CONTEXT"] = context_path.string();
  options.environment["WORKBOOK_RESULTS"] = "3";
  options.capture = !request.debug;
  options.time = request.total_time;
  options.on_line = [&](const std::string& line) {
    const json event = json::parse(line);
    if (event.at("event") == "start") {
      running = event.at("test");
      session.show_progress(fmt::format("chapter {}: {}", chapter.number, running));
    } else if (event.at("event") == "done") {
      done = true;
    } else {
      TestResult result;
      result.name = event.at("test");
      result.exercise = event.at("exercise");
      result.result = event.at("result");
      result.message = event.at("message");
      for (auto known = known_as.rbegin(); known != known_as.rend(); ++known)  // "a.cuh" before "a.cu"
        result.message = grading::replaced(result.message, known->first, known->second);
      result.likely_cause = event.at("likely_cause");
      result.diagnosis = event.at("diagnosis");
      result.seconds = event.at("seconds");
      run.tests.push_back(std::move(result));
      running.clear();
    }
  };
  const worker::CommandResult ended = worker::run_command(argv, options);
  session.show_progress("");
  fs::remove(context_path);
  if (!done && ended.timed_out) {
    run.tests.push_back({running.empty() ? "the test program" : running, "whole", "timed out",
                         fmt::format("all tests together took longer than {:g} seconds", request.total_time), "", "",
                         "", 0, 0});
  } else if (!done) {
    run.tests.push_back({running.empty() ? "the test program" : running, "whole", "crashed",
                         "the book's own test program ended early:\n" + ended.output, "", "", "", 0, 0});
  }

  if (!watching.command.empty()) run.tests.push_back(findings(watching, request.sanitizer));

  // Where to look: the region in the tree's file.
  for (TestResult& test : run.tests) {
    const auto found = where.find(test.exercise);
    if (found == where.end() || !found->second.error.empty()) continue;
    const book::Region* region = found->second.reader.find(test.exercise);
    if (region == nullptr) continue;
    test.file = session.shown(tree.folder / found->second.file);
    test.line = region->begin_line + (test.result == "todo" ? 1 : 0);
  }
  return run;
}

json to_json(const ChapterRun& run) {
  json tests = json::array();
  for (const TestResult& test : run.tests) {
    tests.push_back({{"name", test.name},
                     {"exercise", test.exercise},
                     {"result", test.result},
                     {"message", test.message},
                     {"likely_cause", test.likely_cause.empty() ? json(nullptr) : json(test.likely_cause)},
                     {"file", test.file.empty() ? json(nullptr) : json(test.file)},
                     {"line", test.line == 0 ? json(nullptr) : json(test.line)}});
  }
  return {{"chapter", run.chapter->name()},
          {"backend", run.backend},
          {"source", run.tree},
          {"passed", run.count("passed")},
          {"failed", run.count("failed")},
          {"todo", run.count("todo")},
          {"blocked", run.count("blocked")},
          {"skipped", run.count("skipped")},
          {"crashed", run.count("crashed")},
          {"timed_out", run.count("timed out")},
          {"not_compiled", run.count("not compiled")},
          {"notes", run.notes},
          {"tests", tests}};
}

}  // namespace workbook::cli
