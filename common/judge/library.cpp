#include "common/judge/library.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "common/attention/error.hpp"
#include "common/book/progress.hpp"
#include "common/judge/plan.hpp"

namespace workbook::judge {
namespace fs = std::filesystem;
namespace {

/// The job for one chapter's objects.
worker::WorkerJob part_of(const Workspace& workspace, const book::Chapter& chapter, const LibraryRequest& request) {
  if (!chapter.runs_on(request.backend) || chapter.element_on(request.backend) == float32)
    fail_input("--chapters {}: chapter {} has no 16-bit kernels; allowed: chapters that have some", chapter.number,
               chapter.number);
  const bool own = request.tree == "chapters";
  if (!own && !workspace.book.has_solutions(chapter))
    fail_input(
        "--solutions: this book comes without solutions; allowed: leave the option out to build the code in chapters/");
  worker::WorkerJob job = stages_job(
      workspace, chapter, own ? readers_tree(workspace, chapter) : solutions_tree(workspace, chapter), request.backend);
  for (fs::path& used : job.used)
    used = workspace.book.root / request.tree /
           used.filename();  // the files that it compiles again are from the same tree
  job.name += ".part";
  job.makes = worker::WorkerJob::part;
  return job;
}

}  // namespace

fs::path build_library(const Workspace& workspace, const LibraryRequest& request) {
  const auto& toolchain = workspace.toolchain;
  if (!toolchain.can_build(request.backend))
    fail_environment("a library for \"{}\": {}", name(request.backend), toolchain.why_not(request.backend));
  worker::WorkerJob library;
  std::vector<worker::WorkerJob> jobs;
  std::vector<int> numbers;
  for (const book::Chapter* chapter : request.chapters) {
    jobs.push_back(part_of(workspace, *chapter, request));
    library.parts.push_back(jobs.back().name);
    numbers.push_back(chapter->number);
  }
  library.name = fmt::format("{}/library.{}.{}", request.tree, fmt::join(numbers, "."), name(request.backend));
  library.backend = request.backend;
  library.makes = worker::WorkerJob::library;
  jobs.push_back(library);

  workspace.progress(fmt::format("building {}", library.name));
  const auto& rules = toolchain.backends.at(request.backend);
  worker::build_targets(toolchain, rules.shared_targets);
  const auto built = worker::build_workers(toolchain, jobs);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (!built.at(jobs[i].name).ok)
      fail_environment("chapter {} does not compile:\n{}", numbers[i], built.at(jobs[i].name).log);
  if (!built.at(library.name).ok) fail_environment("the library does not link:\n{}", built.at(library.name).log);
  workspace.progress("");
  return built.at(library.name).executable;
}

std::vector<std::string> open_exercises(const book::Book& book, const std::vector<const book::Chapter*>& chapters) {
  std::set<int> numbers;
  for (const book::Chapter* chapter : chapters) {
    numbers.insert(chapter->number);
    for (const std::string& other : chapter->compiles) numbers.insert(book.chapter(other).number);
  }
  const auto progress = book::load_progress(book);
  std::vector<std::string> open;
  for (const book::Chapter& chapter : book.chapters) {
    if (!numbers.contains(chapter.number)) continue;
    for (const book::Exercise& exercise : chapter.exercises)
      if (progress.at(exercise.id).state == book::Progress::open) open.push_back(exercise.id);
  }
  return open;
}

}  // namespace workbook::judge
