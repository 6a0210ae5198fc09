// check: the gate. What must hold of the book before a change lands; each gate says what it found, and where.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/book/mutants.hpp"
#include "common/book/stubs.hpp"
#include "common/cli/verbs.hpp"
#include "common/judge/run.hpp"
#include "common/worker/command.hpp"

namespace workbook::cli {
namespace fs = std::filesystem;
namespace {

using book::Chapter;
using book::Exercise;
using book::Mutant;
using judge::ChapterRun, judge::Result, judge::RunRequest, judge::Tree, judge::Verdict;
using nlohmann::json;

/// What one gate found.
struct Gate {
  std::string name;
  std::vector<std::string> problems;
  std::string detail;           ///< one line when all is well
  int passed = 0, skipped = 0;  ///< tests or comparisons within the gate
  std::string skip_reason;      ///< the whole gate was skipped

  void expect(bool holds, const std::string& problem) {
    if (holds) {
      ++passed;
    } else {
      problems.push_back(problem);
    }
  }
};

struct MutantVerdict {
  const Mutant* mutant;
  std::string chapter, killed_by, diagnosis;
  bool killed = false, diagnosis_right = false;
};

bool in_ci() {
  const char* ci = std::getenv("CI");
  return ci != nullptr && std::string(ci) == "true";
}

/// A folder of the check's own for a variant of a chapter; the reader's chapters/ is never written.
Tree variant(const Session& session, const Chapter& chapter, const std::string& name,
             const std::map<std::string, std::string>& texts) {
  const Tree tree{"check/" + name, session.toolchain.build_folder / "check" / name / chapter.name()};
  for (const auto& [file, text] : texts) book::write_if_changed(tree.folder / file, text);
  return tree;
}

std::map<std::string, std::string> solution_texts(const Session& session, const Chapter& chapter) {
  std::map<std::string, std::string> texts;
  for (const std::string& file : chapter.files) texts[file] = book::read_file(session.book.solution(chapter, file));
  return texts;
}

/// The solution with only exercise `id` open.
std::map<std::string, std::string> only_open(const Session& session, const Chapter& chapter, const std::string& id) {
  auto texts = solution_texts(session, chapter);
  for (auto& [file, text] : texts) {
    const book::MarkedFile marked = book::parse_marked("solutions/" + chapter.name() + "/" + file, text);
    if (marked.find(id) == nullptr) continue;
    text = book::replace_body(marked, id, book::stub_body(*marked.find(id)));
  }
  return texts;
}

std::string summary(const Verdict& test) {
  std::string text = fmt::format("\"{}\" ({}): {}", test.test, test.exercise, name(test.result));
  if (test.message.empty()) return text;
  std::istringstream lines(test.message);
  for (std::string line; std::getline(lines, line);) text += "\n      " + line;
  return text;
}

/// Where the Markdown links of a line lead, those within the repository.
std::vector<std::string> links_in(const std::string& line) {
  std::vector<std::string> targets;
  for (std::size_t at = line.find("]("); at != std::string::npos; at = line.find("](", at + 2)) {
    const std::size_t end = line.find(')', at);
    if (end == std::string::npos) break;
    const std::string target = line.substr(at + 2, end - at - 2);
    const std::string file = target.substr(0, target.find('#'));
    if (!file.empty() && target.find(':') == std::string::npos) targets.push_back(file);
  }
  return targets;
}

// ---- the gates ----

/// Stubs regenerate byte-identical. A filled region is the reader's work, an error only in CI.
void check_stubs(const Session& session, Gate& gate) {
  int work = 0;
  for (const book::StubFile& file : book::compare_stubs(session.book)) {
    const std::string where = fmt::format("{}:{}", session.shown(file.path), std::max(file.line, 1));
    switch (file.state) {
      case book::StubState::current:
        ++gate.passed;
        break;
      case book::StubState::work:
        ++work;
        gate.expect(!in_ci(), where + ": a region is filled in; what is committed must be the stub");
        break;
      case book::StubState::missing:
        gate.expect(false, where + ": missing; ./workbook stubs writes it");
        break;
      case book::StubState::outdated:
        gate.expect(false, where + ": the solution has changed since; ./workbook stubs writes the new stub");
        break;
      case book::StubState::drifted:
        gate.expect(false, where + ": differs from the stub outside the exercises");
        break;
    }
  }
  gate.detail =
      fmt::format("{} files{}", gate.passed, work > 0 ? fmt::format(", {} with your work in them", work) : "");
}

/// The tests of the book's own parts.
void check_parts(const Session& session, Gate& gate, const std::string& list) {
  std::istringstream names(book::read_file(session.toolchain.build_folder / list));
  std::vector<std::string> programs;
  for (std::string name; names >> name;) programs.push_back(name);
  std::vector<std::string> targets = programs;
  targets.push_back("workbook_cli");
  worker::build_targets(session.toolchain, targets);
  for (const std::string& program : programs) {
    bool done = false;
    worker::CommandOptions options;
    options.environment["WORKBOOK_RESULTS"] = "3";
    options.time = 1800;
    options.on_line = [&](const std::string& line) {
      const json event = json::parse(line);
      if (event.at("event") == "done") done = true;
      if (event.at("event") == "start") session.progress(program + ": " + event.at("test").get<std::string>());
      if (event.at("event") != "end") return;
      const Verdict verdict = judge::verdict_from_json(event.at("verdict"));
      if (verdict.result == Result::skipped) {
        ++gate.skipped;
      } else {
        gate.expect(verdict.result == Result::passed,
                    fmt::format("{}: \"{}\": {}\n{}", program, verdict.test, name(verdict.result), verdict.message));
      }
    };
    const worker::CommandResult ended = worker::run_command(
        {(session.toolchain.build_folder / "bin" / program).string(), "--warn", "NoAssertions"}, options);
    gate.expect(done, fmt::format("{} ended early:\n{}", program, ended.output));
    --gate.passed;  // the program itself is no test
  }
  gate.detail = fmt::format("{} tests of {} programs", gate.passed, programs.size());
}

void build_tests(const Session& session) {
  std::vector<std::string> targets;
  for (const Chapter& chapter : session.book.chapters) {
    const std::vector<std::string> more = test_targets(session, chapter);
    targets.insert(targets.end(), more.begin(), more.end());
  }
  worker::build_targets(session.toolchain, targets);
}

/// Every test passes on the solutions, and the tests are those that chapter.toml names.
void check_solutions(const Session& session, Gate& gate) {
  build_tests(session);
  std::map<std::string, int> skipped;
  for (const Chapter& chapter : session.book.chapters) {
    const std::vector<ChapterRun> runs = run_on_backends(session, chapter, solutions_tree(session, chapter), {});
    gate.expect(!runs.empty(), chapter.name() + ": no test ran");
    --gate.passed;
    std::map<std::string, std::set<std::string>> ran;
    for (const ChapterRun& run : runs) {
      for (const Verdict& test : run.tests) {
        if (test.result == Result::skipped) {
          ++gate.skipped;  // e.g. what a sanitizer build cannot count, what has no GPU
          ++skipped[std::string(name(run.backend)) + ": " + test.message];
        } else {
          gate.expect(test.result == Result::passed,
                      fmt::format("{} on {}: {}", chapter.name(), name(run.backend), summary(test)));
        }
        ran[test.exercise].insert(test.test);
      }
    }
    const auto compare = [&](const std::string& exercise, const std::vector<std::string>& named, int line) {
      const std::set<std::string> expected(named.begin(), named.end());
      for (const std::string& name : expected) {
        if (!ran[exercise].contains(name)) {
          gate.problems.push_back(fmt::format("{}:{}: {} names the test \"{}\", which does not exist under that tag",
                                              session.shown(session.book.manifest(chapter)), line, exercise, name));
        }
      }
      for (const std::string& name : ran[exercise]) {
        if (!expected.contains(name)) {
          gate.problems.push_back(fmt::format("{}:{}: the test \"{}\" of {} is not named there",
                                              session.shown(session.book.manifest(chapter)), line, name, exercise));
        }
      }
    };
    for (const Exercise& exercise : chapter.exercises) compare(exercise.id, exercise.tests, exercise.line);
    compare("whole", chapter.whole_tests, 1);
  }
  gate.detail = fmt::format("{} tests of {} chapters", gate.passed, session.book.chapters.size());
  for (const auto& [why, count] : skipped) gate.detail += fmt::format("; {} skipped on {}", count, why);
}

/// The stub trees compile, and every test on them is todo or blocked.
void check_stub_trees(const Session& session, Gate& gate) {
  build_tests(session);
  for (const Chapter& chapter : session.book.chapters) {
    auto texts = solution_texts(session, chapter);
    for (auto& [file, text] : texts)
      text = book::make_stub(book::parse_marked("solutions/" + chapter.name() + "/" + file, text));
    const Tree tree = variant(session, chapter, "stubs", texts);
    RunRequest request;
    request.backend = first_backend(session, chapter);
    const ChapterRun run = run_tests(session, chapter, tree, request);
    gate.expect(run.warnings.empty(), chapter.name() + ": the stubs compile with warnings:\n" + run.warnings);
    for (const Verdict& test : run.tests) {
      if (test.result == Result::skipped) {
        ++gate.skipped;  // what this build cannot count
        continue;
      }
      const bool given =
          std::find(chapter.given_tests.begin(), chapter.given_tests.end(), test.test) != chapter.given_tests.end();
      const Result wanted = given ? Result::passed : test.exercise == judge::kWhole ? Result::blocked : Result::todo;
      gate.expect(test.result == wanted,
                  fmt::format("{}: on the stubs, expected {}: {}", chapter.name(), name(wanted), summary(test)));
    }
  }
  gate.detail = fmt::format("{} tests todo or blocked", gate.passed);
}

/// With only one exercise open, only its tests are todo, and the whole chapter is blocked by it.
void check_one_open(const Session& session, Gate& gate) {
  build_tests(session);
  for (const Chapter& chapter : session.book.chapters) {
    for (const Exercise& exercise : chapter.exercises) {
      const Tree tree = variant(session, chapter, "open/" + exercise.id, only_open(session, chapter, exercise.id));
      RunRequest request;
      request.backend = first_backend(session, chapter);
      const ChapterRun run = run_tests(session, chapter, tree, request);
      for (const Verdict& test : run.tests) {
        const bool right = test.exercise == exercise.id ? test.result == Result::todo
                           : test.exercise == "whole" ? test.result == Result::passed || test.blocked_by == exercise.id
                                                      : test.result == Result::passed;
        gate.expect(right, fmt::format("with only {} open: {}", exercise.id, summary(test)));
      }
      gate.expect(run.count(Result::blocked) > 0,
                  fmt::format("with only {} open no whole-chapter test reaches it", exercise.id));
      for (const std::string& note : run.notes)
        gate.problems.push_back(fmt::format("with only {} open: {}", exercise.id, note));
    }
  }
  gate.detail = fmt::format("{} results", gate.passed);
}

/// With only one exercise wrong (its first mutant), only its tests and whole-chapter tests fail.
void check_one_wrong(const Session& session, Gate& gate) {
  build_tests(session);
  for (const Chapter& chapter : session.book.chapters) {
    const std::vector<Mutant> mutants = book::load_mutants(session.book, chapter);
    for (const Exercise& exercise : chapter.exercises) {
      const auto first =
          std::find_if(mutants.begin(), mutants.end(), [&](const Mutant& m) { return m.exercise == exercise.id; });
      if (first == mutants.end()) {
        gate.problems.push_back(fmt::format("{}:{}: exercise {} has no mutant",
                                            session.shown(session.book.manifest(chapter)), exercise.line, exercise.id));
        continue;
      }
      const Tree tree = variant(session, chapter, "mutants/" + first->id, book::apply(session.book, chapter, *first));
      RunRequest request;
      request.time_limit = 2;
      request.backend = first_backend(session, chapter);
      const ChapterRun run = run_tests(session, chapter, tree, request);
      int own = 0, whole = 0;
      for (const Verdict& test : run.tests) {
        if (test.result == Result::passed) continue;
        own += test.exercise == exercise.id;
        whole += test.exercise == "whole";
        gate.expect(test.exercise == exercise.id || test.exercise == "whole",
                    fmt::format("mutant {} fails a test of another exercise: {}", first->id, summary(test)));
      }
      gate.expect(own > 0,
                  fmt::format("{}:{}: mutant {} fails no test of its exercise", first->file, first->line, first->id));
      gate.expect(whole > 0,
                  fmt::format("{}:{}: mutant {} fails no whole-chapter test", first->file, first->line, first->id));
    }
  }
  gate.detail = fmt::format("{} results", gate.passed);
}

/// Every mutant dies by its named test, in the way that is declared, and the message names the mistake.
void check_mutants(const Session& session, Gate& gate, std::vector<MutantVerdict>& verdicts,
                   std::vector<std::vector<Mutant>>& storage) {
  build_tests(session);
  for (const Chapter& chapter : session.book.chapters) {
    storage.push_back(book::load_mutants(session.book, chapter));
    std::map<std::string, Tree> trees;
    std::vector<worker::WorkerJob> jobs;
    for (const Mutant& mutant : storage.back()) {
      try {
        trees[mutant.id] =
            variant(session, chapter, "mutants/" + mutant.id, book::apply(session.book, chapter, mutant));
        jobs.push_back(whole_job(session, chapter, trees[mutant.id], first_backend(session, chapter)));
      } catch (const std::runtime_error& error) {
        gate.problems.push_back(error.what());
      }
    }
    session.progress(fmt::format("building {} mutants of chapter {}", jobs.size(), chapter.number));
    const auto built = worker::build_workers(session.toolchain, jobs);  // all at once: they share the cores
    for (const Mutant& mutant : storage.back()) {
      const auto tree = trees.find(mutant.id);
      if (tree == trees.end()) continue;
      const std::string where = fmt::format("{}:{}: mutant {}", mutant.file, mutant.line, mutant.id);
      MutantVerdict verdict{&mutant, chapter.name(), "", ""};
      const auto& executable =
          built.at(whole_job(session, chapter, tree->second, first_backend(session, chapter)).name);
      if (!executable.ok) {
        gate.problems.push_back(where + " does not compile:\n" + executable.log);
        verdicts.push_back(verdict);
        continue;
      }
      session.progress("mutant " + mutant.id);
      RunRequest request;
      request.only = mutant.test;
      request.time_limit = mutant.death == "timed out" ? 1 : 10;
      request.backend = first_backend(session, chapter);
      const ChapterRun run = run_tests(session, chapter, tree->second, request);
      const bool one = run.tests.size() == 1;
      const std::string result = one ? name(run.tests[0].result) : "not run";
      verdict.killed = result == mutant.death;
      if (one) {
        verdict.killed_by = run.tests[0].test;
        verdict.diagnosis = run.tests[0].cause_id();
      }
      verdict.diagnosis_right = verdict.killed && verdict.diagnosis == mutant.diagnosis;
      gate.expect(verdict.killed, result == "passed" ? fmt::format("{} survives \"{}\"", where, mutant.test)
                                                     : fmt::format("{}: \"{}\" gives {}, declared is {}", where,
                                                                   mutant.test, result, mutant.death));
      if (verdict.killed) {
        gate.expect(verdict.diagnosis_right,
                    fmt::format("{} is diagnosed as \"{}\", declared is \"{}\"\n      {}", where, verdict.diagnosis,
                                mutant.diagnosis, one ? summary(run.tests[0]) : ""));
      }
      verdicts.push_back(verdict);
    }
  }
  const auto count = [&](auto member) { return std::count_if(verdicts.begin(), verdicts.end(), member); };
  gate.detail =
      fmt::format("{} mutants, {} killed, {} with the right diagnosis, {} of those \"unknown\"", verdicts.size(),
                  count([](const MutantVerdict& v) { return v.killed; }),
                  count([](const MutantVerdict& v) { return v.diagnosis_right; }),
                  count([](const MutantVerdict& v) { return v.diagnosis_right && v.diagnosis == "unknown"; }));
}

/// Chapter N uses nothing from later chapters: neither their folders nor their namespaces.
void check_order(const Session& session, Gate& gate) {
  for (const Chapter& chapter : session.book.chapters) {
    for (const std::string& file : chapter.files) {
      std::istringstream text(book::read_file(session.book.solution(chapter, file)));
      int number = 0;
      for (std::string line; std::getline(text, line);) {
        ++number;
        for (const Chapter& later : session.book.chapters) {
          if (later.number <= chapter.number) continue;
          const bool uses = line.find(later.name()) != std::string::npos ||
                            line.find(fmt::format("ch{:02}::", later.number)) != std::string::npos;
          gate.expect(!uses,
                      fmt::format("solutions/{}/{}:{}: uses chapter {}", chapter.name(), file, number, later.number));
        }
      }
    }
  }
  gate.detail = "no chapter uses a later one";
}

/// Every exercise is in its lesson; C++ in a lesson stands in the code that the build compiles, outside the answers;
/// links within the repository lead somewhere.
void check_lessons(const Session& session, Gate& gate) {
  const auto squeezed = [](const std::string& line) {
    const std::size_t from = line.find_first_not_of(" \t");
    return from == std::string::npos ? "" : line.substr(from, line.find_last_not_of(" \t\r") - from + 1);
  };
  std::set<std::string> compiled;
  const auto add = [&](const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) compiled.insert(squeezed(line));
  };
  for (const Chapter& chapter : session.book.chapters) {
    for (const std::string& file : chapter.files)
      add(book::make_stub(book::parse_marked(file, book::read_file(session.book.solution(chapter, file)))));
  }
  for (const auto& entry : fs::directory_iterator(session.book.root / "common" / "attention")) {
    if (entry.path().extension() == ".hpp") add(book::read_file(entry.path()));
  }
  std::vector<fs::path> pages{session.book.root / "README.md"};
  for (const auto& entry : fs::directory_iterator(session.book.root / "notes")) {
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  }
  for (const Chapter& chapter : session.book.chapters) {
    const fs::path lesson = session.book.root / "chapters" / chapter.name() / "README.md";
    pages.push_back(lesson);
    const std::string text = book::read_file(lesson);
    for (const Exercise& exercise : chapter.exercises) {
      gate.expect(text.find(exercise.id) != std::string::npos,
                  fmt::format("{}:1: exercise {} is not mentioned", session.shown(lesson), exercise.id));
    }
  }
  for (const fs::path& page : pages) {
    std::istringstream lines(book::read_file(page));
    bool in_code = false, in_cpp = false;
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      const std::string where = fmt::format("{}:{}", session.shown(page), number);
      if (squeezed(line).starts_with("```")) {
        in_cpp = !in_code && squeezed(line).starts_with("```cpp");
        in_code = !in_code;
        continue;
      }
      if (in_cpp && !squeezed(line).empty() && !squeezed(line).starts_with("//")) {
        gate.expect(compiled.contains(squeezed(line)),
                    where + ": this line of C++ stands in no file that the build compiles: " + line);
      }
      if (in_code) continue;
      for (const std::string& target : links_in(line)) {
        gate.expect(fs::exists(page.parent_path() / target), where + ": the link leads nowhere: " + target);
      }
    }
  }
  gate.detail = fmt::format("{} lines, links and exercises of {} pages", gate.passed, pages.size());
}

/// clang-format, with the version that the style was settled with; other versions format differently.
void check_format(const Session& session, Gate& gate) {
  constexpr const char* version = "14";
  fs::path program = worker::find_program(std::string("clang-format-") + version);
  if (program.empty()) program = worker::find_program("clang-format");
  if (program.empty() ||
      worker::run_command({program.string(), "--version"}).output.find(std::string("version ") + version + ".") ==
          std::string::npos) {
    gate.skip_reason = fmt::format("clang-format {} is not here", version);
    return;
  }
  std::vector<std::string> argv{program.string(), "--dry-run", "-Werror", "--style=file"};
  std::size_t files = 0;
  for (const char* folder : {"common", "solutions", "tests"}) {
    for (const auto& entry : fs::recursive_directory_iterator(session.book.root / folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".cpp" && extension != ".hpp" && extension != ".cu" && extension != ".cuh") continue;
      argv.push_back(fs::relative(entry.path(), session.book.root).string());
      ++files;
    }
  }
  worker::CommandOptions options;
  options.folder = session.book.root;
  const worker::CommandResult result = worker::run_command(argv, options);
  gate.expect(result.exit_code == 0, result.output.substr(0, 3000));
  gate.detail = fmt::format("{} files", files);
}

/// The launcher's own tests, and what the shell thinks of the scripts.
void check_launcher(const Session& session, Gate& gate) {
  const fs::path tests = session.book.root / "tests" / "launcher" / "test_launcher.sh";
  const worker::CommandResult syntax = worker::run_command({"sh", "-n", (session.book.root / "workbook").string()});
  gate.expect(syntax.exit_code == 0, syntax.output);
  if (!worker::find_program("shellcheck").empty()) {
    worker::CommandOptions options;
    options.folder = session.book.root;
    const worker::CommandResult lint = worker::run_command({"shellcheck", "workbook", ".ci/run"}, options);
    gate.expect(lint.exit_code == 0, lint.output);
  }
  const worker::CommandResult result =
      worker::run_command({"sh", tests.string(), (session.book.root / "workbook").string()});
  std::istringstream lines(result.output);
  int problems = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("ok ")) ++gate.passed;
    if (line.starts_with("skipped")) ++gate.skipped;
    if (line.starts_with("not ok")) {
      ++problems;
      gate.problems.push_back(line);
    }
  }
  if (result.exit_code != 0 && problems == 0) gate.problems.push_back(result.output);
  gate.detail = fmt::format("{} tests", gate.passed);
}

/// The main job, through the command itself.
void check_run(const Session& session, Gate& gate) {
  for (const char* flags : {"", "--causal"}) {
    std::vector<std::string> argv{"/proc/self/exe", "run", "--json", "--seq", "384"};
    argv[0] = fs::read_symlink("/proc/self/exe").string();
    if (*flags != '\0') argv.push_back(flags);
    const worker::CommandResult result = worker::run_command(argv);
    gate.expect(result.exit_code == 0,
                fmt::format("run {} ended with {}:\n{}", flags, result.exit_code, result.output));
    if (result.exit_code != 0) continue;
    const json document = json::parse(result.output);
    gate.expect(document.at("stages").size() >= session.book.chapters.size(), "run left a stage out");
    for (const json& stage : document.at("stages")) {
      if (!stage.at("supported").get<bool>()) continue;
      gate.expect(stage.at("max_error").get<double>() <= stage.at("bound").get<double>() &&
                      stage.at("rms_error").get<double>() <= stage.at("rms_bound").get<double>(),
                  fmt::format("run {}: {} is outside its bounds", flags, stage.at("chapter").get<std::string>()));
    }
  }
  gate.detail = "every stage inside its bounds";
}

// ---- check --full ----

/// The parts and the solutions, built with sanitizers by another preset.
void check_sanitized(const Session& session, Gate& gate, const std::string& preset, const std::string& compiler) {
  if (!compiler.empty() && worker::find_program(compiler).empty()) {
    gate.skip_reason = compiler + " is not here";
    return;
  }
  worker::CommandOptions options;
  options.folder = session.book.root;
  std::vector<std::string> configure{session.toolchain.cmake, "--preset", preset};
  if (!compiler.empty()) configure.push_back("-DCMAKE_CXX_COMPILER=" + compiler);
  const fs::path build = session.book.root / "build" / preset;
  worker::CommandResult result = worker::run_command(configure, options);
  if (result.exit_code == 0) {
    session.progress("building " + preset);
    result = worker::run_command({session.toolchain.cmake, "--build", build.string()}, options);
  }
  gate.expect(result.exit_code == 0,
              result.output.size() > 4000 ? result.output.substr(result.output.size() - 4000) : result.output);
  if (result.exit_code != 0) return;
  session.progress("testing " + preset);
  options.environment["WORKBOOK_BUILD"] = build.string();
  options.environment["WORKBOOK_ROOT"] = session.book.root.string();
  result = worker::run_command({(build / "bin" / "workbook_cli").string(), "check", "--gate", "parts", "--gate",
                                "solutions", "--gate", "stub trees", "--gate", "run"},
                               options);
  gate.expect(result.exit_code == 0, result.output);
  gate.detail = result.output.substr(result.output.rfind('\n', result.output.size() - 2) + 1);
  while (!gate.detail.empty() && gate.detail.back() == '\n') gate.detail.pop_back();
}

void check_tidy(const Session& session, Gate& gate) {
  if (worker::find_program("clang-tidy").empty()) {
    gate.skip_reason = "clang-tidy is not here";
    return;
  }
  std::vector<std::string> files;
  for (const char* folder : {"common", "solutions"}) {
    for (const auto& entry : fs::recursive_directory_iterator(session.book.root / folder)) {
      const bool kernels = entry.path().extension() == ".cu" && std::string(folder) == "solutions";
      if (entry.path().extension() == ".cpp" || kernels) files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    session.progress("clang-tidy " + session.shown(file));
    std::vector<std::string> command{"clang-tidy", "--quiet", "--warnings-as-errors=*"};
    // The simulator and the kernels are compiled with flags of g++ that clang-tidy does not know: here without them.
    const bool kernels = file.ends_with(".cu"), simulator = file.find("/common/simt/") != std::string::npos;
    if (kernels) {
      // Offsets within a tile are int on purpose; an element's row is i / 16, rounded down, also where it is stored as
      // a float; vectors go by value, as in CUDA; a fragment's num_elements is static.
      command.emplace_back(
          "--checks=-bugprone-implicit-widening-of-multiplication-result,-bugprone-integer-division,"
          "-performance-unnecessary-value-param,-readability-static-accessed-through-instance");
    }
    if (kernels || simulator) {
      command.insert(command.end(),
                     {file, "--", "-x", "c++", "-std=c++20", "-I" + session.book.root.string(),
                      "-I" + (session.book.root / "solutions").string(), "-Wall", "-Wextra", "-Wno-unknown-pragmas"});
    } else {
      command.insert(command.end(), {"-p", session.toolchain.build_folder.string(), file});
    }
    const worker::CommandResult result = worker::run_command(command);
    gate.expect(result.exit_code == 0, session.shown(file) + ":\n" + result.output);
  }
  gate.detail = fmt::format("{} files", files.size());
}

}  // namespace

int check(const Session& session, const CheckOptions& options) {
  std::vector<MutantVerdict> verdicts;
  std::vector<std::vector<Mutant>> storage;  // what the verdicts point to
  storage.reserve(session.book.chapters.size());
  using Run = std::function<void(Gate&)>;
  std::vector<std::pair<std::string, Run>> gates{
      {"stubs", [&](Gate& g) { check_stubs(session, g); }},
      {"order", [&](Gate& g) { check_order(session, g); }},
      {"lessons", [&](Gate& g) { check_lessons(session, g); }},
      {"format", [&](Gate& g) { check_format(session, g); }},
      {"launcher", [&](Gate& g) { check_launcher(session, g); }},
      {"solutions", [&](Gate& g) { check_solutions(session, g); }},
      {"stub trees", [&](Gate& g) { check_stub_trees(session, g); }},
      {"one open", [&](Gate& g) { check_one_open(session, g); }},
      {"one wrong", [&](Gate& g) { check_one_wrong(session, g); }},
      {"mutants", [&](Gate& g) { check_mutants(session, g, verdicts, storage); }},
      {"parts", [&](Gate& g) { check_parts(session, g, "part_tests.txt"); }},
      {"run", [&](Gate& g) { check_run(session, g); }},
  };
  const std::vector<std::pair<std::string, Run>> full{
      {"grading", [&](Gate& g) { check_parts(session, g, "long_tests.txt"); }},
      {"g++ sanitizers", [&](Gate& g) { check_sanitized(session, g, "asan-ubsan-gcc", ""); }},
      {"clang++ sanitizers",
       [&](Gate& g) {
         std::string compiler = "clang++";
         for (int version = 22; version >= 16; --version) {
           const std::string name = fmt::format("clang++-{}", version);
           if (!worker::find_program(name).empty()) {
             compiler = name;
             break;
           }
         }
         check_sanitized(session, g, "asan-ubsan-clang", compiler);
       }},
      {"clang-tidy", [&](Gate& g) { check_tidy(session, g); }},
  };
  std::set<std::string> known;
  for (const auto& list : {gates, full}) {
    for (const auto& [name, gate] : list) known.insert(name);
  }
  for (const std::string& name : options.gates) {
    if (!known.contains(name)) {
      fmt::print(stderr, "--gate {}: there is no such gate; allowed: {}\n", name, fmt::join(known, ", "));
      return kUsage;
    }
  }
  if (options.full || !options.gates.empty()) gates.insert(gates.end(), full.begin(), full.end());

  json gates_json = json::array();
  int passed = 0, failed = 0, skipped = 0;
  for (const auto& [name, run] : gates) {
    if (!options.gates.empty() && std::find(options.gates.begin(), options.gates.end(), name) == options.gates.end())
      continue;
    Gate gate;
    gate.name = name;
    const auto start = std::chrono::steady_clock::now();
    session.progress(name);
    try {
      run(gate);
    } catch (const std::exception& error) {
      gate.problems.push_back(error.what());
    }
    session.progress("");
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const bool skip = !gate.skip_reason.empty();
    passed += gate.passed;
    failed += int(gate.problems.size());
    skipped += gate.skipped + skip;
    const bool ok = gate.problems.empty();
    const std::string detail = skip ? "skipped: " + gate.skip_reason : gate.detail;
    gates_json.push_back({{"name", name},
                          {"ok", ok},
                          {"skipped", skip},
                          {"detail", ok ? detail : fmt::format("{}", fmt::join(gate.problems, "\n"))},
                          {"seconds", number_json(seconds)}});
    if (session.json) continue;
    fmt::print("{} {:<19} {:6.1f} s  {}\n",
               !ok    ? session.colored("FAILED", "red")
               : skip ? session.colored("skip  ", "yellow")
                      : session.colored("ok    ", "green"),
               name, seconds, detail);
    for (const std::string& problem : gate.problems) fmt::print("    {}\n", problem);
    std::fflush(stdout);
  }
  if (session.json) {
    json mutants = json::array();
    for (const MutantVerdict& verdict : verdicts) {
      mutants.push_back({{"id", verdict.mutant->id},
                         {"chapter", verdict.chapter},
                         {"exercise", verdict.mutant->exercise},
                         {"killed", verdict.killed},
                         {"killed_by", verdict.killed ? json(verdict.killed_by) : json(nullptr)},
                         {"diagnosis", verdict.diagnosis},
                         {"diagnosis_right", verdict.diagnosis_right}});
    }
    print_json(
        {{"gates", gates_json}, {"mutants", mutants}, {"passed", passed}, {"failed", failed}, {"skipped", skipped}});
  } else {
    fmt::print("{} passed, {} failed, {} skipped\n", passed, failed, skipped);
  }
  return failed == 0 && passed > 0 ? kDone : kTestFailed;
}

}  // namespace workbook::cli
