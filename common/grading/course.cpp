#include "common/grading/course.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "common/attention/error.hpp"
#include "common/book/files.hpp"
#include "common/book/folders.hpp"
#include "common/book/markers.hpp"
#include "common/book/stubs.hpp"
#include "common/grading/release.hpp"
#include "common/worker/command.hpp"

namespace workbook::grading {
namespace fs = std::filesystem;
namespace {

using book::Chapter;
using judge::Workspace;

std::string hidden_target(const Chapter& chapter) {
  return "hidden_" + chapter.name();
}

/// The chapter with only the graded exercises.
Chapter graded_part(const Chapter& chapter, const Assignment& assignment) {
  Chapter part = chapter;
  std::erase_if(part.exercises, [&](const book::Exercise& exercise) { return !assignment.is_open(exercise.id); });
  return part;
}

std::string backend_text(const Workspace& workspace, Backend backend) {
  if (backend != Backend::cuda) return fmt::format("{} ({})", text(backend), workspace.toolchain.compiler_id);
  if (worker::find_program("nvidia-smi").empty()) return "a GPU";
  std::string name = worker::run_command({"nvidia-smi", "--query-gpu=name", "--format=csv,noheader"}).output;
  return "a GPU (" + name.substr(0, name.find('\n')) + ")";
}

/// The backends on which a chapter is graded: all of its backends, the GPU only on request.
std::vector<Backend> graded_backends(const Workspace& workspace, const Chapter& chapter, bool on_gpu) {
  std::vector<Backend> backends;
  for (const Backend backend : chapter.backends) {
    if (backend == Backend::cuda && !on_gpu) continue;
    if (!workspace.toolchain.can_build(backend) || (backend == Backend::cuda && !worker::gpu_present())) {
      const std::string why = workspace.toolchain.can_build(backend) ? "CUDA finds no GPU on this machine"
                                                                     : workspace.toolchain.why_not(backend);
      judge::fail_environment(
          "chapter {} cannot be graded on \"{}\" here: {}{}", chapter.number, name(backend), why,
          backend == Backend::cuda ? "; allowed: leave out --backend cuda to grade on the simulator" : "");
    }
    if (backend == Backend::sim && !workspace.toolchain.counts)
      judge::fail_environment(
          "chapter {}'s tests need the simulator's counters, which this compiler does not support: {}", chapter.number,
          workspace.toolchain.simulator);
    backends.push_back(backend);
  }
  if (backends.empty()) fail_input("chapter {} runs only on a GPU; allowed: --backend cuda", chapter.number);
  return backends;
}

/// The names of the tests in the sources of hidden tests.
std::set<std::string> test_names(const std::vector<fs::path>& files) {
  std::set<std::string> names;
  for (const fs::path& file : files) {
    const std::string text = book::read_file(file);
    for (std::size_t at = text.find("TEST_CASE("); at != std::string::npos; at = text.find("TEST_CASE(", at + 1)) {
      const std::size_t begin = text.find('"', at), end = text.find('"', begin + 1);
      if (end != std::string::npos) names.insert(text.substr(begin + 1, end - begin - 1));
    }
  }
  return names;
}

/// InputError for a bar on a test that does not exist: every submission would fail it.
void check_bars(const Course& course) {
  for (const Assignment::Bar& bar : course.assignment.bars) {
    const Chapter& chapter = *course.workspace.book.find(bar.chapter);
    const auto hidden = course.hidden.find(bar.chapter);
    const bool is_hidden = hidden != course.hidden.end() && test_names(hidden->second.files).contains(bar.test);
    if (is_hidden || has_test(chapter, bar.test)) continue;
    fail_input(
        "the bar \"{}\": chapter {} has no such test, and there is no hidden test of that name{}; allowed: \"{}\", or "
        "the name of another test in chapter.toml or in the hidden tests",
        bar.test, bar.chapter, course.options.hidden.empty() ? " (no --hidden)" : "",
        fmt::join(chapter.whole_tests, "\", \""));
  }
}

}  // namespace

Course load_course(const Workspace& workspace, const CourseOptions& options) {
  const book::Book& book = workspace.book;
  Course course{workspace, options, load_assignment(options.assignment, book)};
  std::set<Backend> backends;
  for (const int number : course.assignment.open_chapters()) {
    const Chapter& chapter = *book.find(number);
    if (!book.has_solutions(chapter))
      fail_input("chapter {} has no solution here: grading needs the whole book, not a release", number);
    course.chapters.push_back(graded_part(chapter, course.assignment));
    course.backends[number] = graded_backends(workspace, chapter, options.on_gpu);
    backends.insert(course.backends[number].begin(), course.backends[number].end());
    for (const book::MarkedFile& solution : book::read_solution(book, chapter))
      course.pristine["chapters/" + in_its_tree(solution)] = released_text(solution, course.assignment);
    const fs::path hidden = options.hidden / chapter.name();
    if (options.hidden.empty() || !fs::is_directory(hidden)) continue;
    course.hidden[number] = {book::files_below(hidden),
                             workspace.toolchain.build_folder / "bin" / hidden_target(chapter)};
  }
  check_bars(course);
  for (const Backend backend : backends) course.verified_on.push_back(backend_text(workspace, backend));
  return course;
}

void build_course(const Course& course) {
  const Workspace& workspace = course.workspace;
  std::set<std::string> targets{"workbook_isolate", "workbook_inspect"};
  for (const Chapter& chapter : course.chapters) {
    for (const std::string& target : test_targets(workspace, chapter)) targets.insert(target);
    if (course.hidden.contains(chapter.number)) targets.insert(hidden_target(chapter));
  }
  if (!course.hidden.empty()) {
    workspace.progress("configuring the hidden tests");
    const worker::CommandResult configured = worker::run_command(
        {workspace.toolchain.cmake, "-DWORKBOOK_HIDDEN_TESTS=" + fs::canonical(course.options.hidden).string(),
         workspace.toolchain.build_folder.string()});
    if (configured.exit_code != 0)
      throw std::runtime_error("the hidden tests could not be configured:\n" + configured.output);
  }
  workspace.progress("building what grading needs");
  worker::build_targets(workspace.toolchain, {targets.begin(), targets.end()});
  workspace.progress("");
}

std::string course_key(const Course& course) {
  const book::Book& book = course.workspace.book;
  const CourseOptions& options = course.options;
  std::vector<fs::path> folders{book.root / "common", book.root / "tests" / "support"};
  for (const Chapter& chapter : course.chapters) {
    folders.push_back(book.root / "tests" / chapter.name());
    folders.push_back(book.root / "solutions" / chapter.name());
    for (const fs::path& used : book.used(chapter)) folders.push_back(used);
  }
  for (const auto& [number, hidden] : course.hidden) folders.push_back(options.hidden / book.find(number)->name());
  std::multiset<std::string> hashes;
  for (const fs::path& folder : folders) {
    for (const fs::path& file : book::files_below(folder))
      if (!file.filename().string().starts_with("."))
        hashes.insert(file.lexically_relative(folder.parent_path()).string() + " " + book::hash(book::read_file(file)));
  }
  std::string all = to_toml(course.assignment, book, /*for_students=*/false) + course.workspace.toolchain.compiler_id +
                    fmt::format("{} {} {} {} {}", options.on_gpu, options.unsafe, options.time_limit,
                                options.total_time, options.build_time);
  // Flags, compilers and libraries.
  all += book::read_file(course.workspace.toolchain.build_folder / "toolchain.json");
  for (const std::string& hash : hashes) all += hash + "\n";
  return book::hash(all);
}

std::vector<fs::path> protected_files(const Course& course) {
  std::vector<fs::path> paths;
  for (const Chapter& chapter : course.chapters)
    for (const std::string& file : chapter.files) paths.push_back(course.workspace.book.solution(chapter, file));
  for (const auto& [chapter, hidden] : course.hidden) {
    for (const fs::path& file : hidden.files) paths.push_back(fs::canonical(file));
    paths.push_back(hidden.program);
  }
  return paths;
}

}  // namespace workbook::grading
