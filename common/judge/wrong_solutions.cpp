#include "common/judge/wrong_solutions.hpp"

#include <fmt/format.h>

#include "common/book/combine.hpp"
#include "common/book/files.hpp"
#include "common/judge/verdict.hpp"

namespace workbook::judge {
namespace {

/// A tree that holds an exercise's wrong solutions beside the book's, and which versions they are.
struct Written {
  Tree tree;
  std::vector<WrongSolutions::Version> versions;
};

Written write_wrong_solutions(const Workspace& workspace, const book::Chapter& chapter, const std::string& exercise) {
  book::Files books;
  for (const std::string& file : chapter.files) books[file] = book::read_file(workspace.book.solution(chapter, file));
  const std::string of = exercise == kWhole ? book::kGivenCode : exercise;
  std::map<int, book::Files> versions;
  Written written;
  for (const book::Mutant& mutant : book::load_mutants(workspace.book, chapter)) {
    if (mutant.exercise != of) continue;
    const int number = int(versions.size()) + 1;
    versions[number] = book::apply(workspace.book, chapter, mutant);
    written.versions.push_back(version_of(mutant, number));
  }
  const book::Combined combined = book::combine(books, versions);
  std::erase_if(written.versions, [&](const auto& version) { return combined.apart.contains(version.number); });
  const std::string name = fmt::format("wrong/{}", exercise);
  written.tree = {name, workspace.toolchain.build_folder / name / chapter.name(), /*first_element_only=*/true};
  for (const auto& [file, text] : combined.files) book::write_if_changed(written.tree.folder / file, text);
  return written;
}

}  // namespace

WrongSolutions::Version version_of(const book::Mutant& mutant, int number) {
  return {number, mutant.diagnosis != kUnknown ? mutant.diagnosis : mutant.id, mutant.title};
}

std::map<std::string, WrongSolutions> build_wrong_solutions(const Workspace& workspace, const book::Chapter& chapter,
                                                            Backend tested, const std::vector<std::string>& exercises) {
  const Backend backend = tested == Backend::cuda ? Backend::sim : tested;
  if (!workspace.toolchain.can_build(backend)) return {};
  std::map<std::string, Written> all;
  std::vector<worker::WorkerJob> jobs;
  for (const std::string& exercise : exercises) {
    Written written = write_wrong_solutions(workspace, chapter, exercise);
    if (written.versions.empty()) continue;
    if (backend == Backend::sim) written.tree.flags = workspace.toolchain.backends.at(backend).quick_flags();
    jobs.push_back(whole_job(workspace, chapter, written.tree, backend));
    all[exercise] = std::move(written);
  }
  if (backend == Backend::sim && !workspace.toolchain.backends.at(backend).quick_flags().empty())
    worker::build_targets(workspace.toolchain, {worker::kQuickPrecompiled});
  const Built built = worker::build_workers(workspace.toolchain, jobs);
  std::map<std::string, WrongSolutions> found;
  for (auto& [exercise, written] : all) {
    const worker::WorkerBuilt& program = built.at(whole_job(workspace, chapter, written.tree, backend).name);
    if (program.ok) found[exercise] = {program.executable, std::move(written.versions)};
  }
  return found;
}

}  // namespace workbook::judge
