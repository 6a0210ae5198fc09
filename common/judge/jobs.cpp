#include "common/judge/jobs.hpp"

#include <algorithm>
#include <sstream>

#include "common/book/files.hpp"
#include "common/book/text.hpp"

namespace workbook::judge {
namespace fs = std::filesystem;
namespace {

using book::Chapter;

bool is_kernel_file(const std::string& file) {
  return fs::path(file).extension() == ".cu";
}
bool is_source(const std::string& file) {
  return fs::path(file).extension() == ".cpp" || is_kernel_file(file);
}

bool is_changed(const Workspace& workspace, const Chapter& chapter, const Tree& tree, const std::string& file);

/// Whether a file includes a header of the chapter that is_changed.
bool includes_changed(const Workspace& workspace, const Chapter& chapter, const Tree& tree, const fs::path& path) {
  std::istringstream lines(book::read_file(path));
  for (std::string line; std::getline(lines, line);) {
    const std::string file = book::included_file(line);
    if (std::ranges::count(chapter.files, file) > 0 && is_changed(workspace, chapter, tree, file)) return true;
  }
  return false;
}

bool has_same_text(const fs::path& own, const fs::path& books) {
  return fs::exists(own) && fs::exists(books) && book::read_file(own) == book::read_file(books);
}

/// Whether a file of the tree, or a header that it includes, differs from the book's. Files that do not differ are
/// compiled once for all trees.
bool is_changed(const Workspace& workspace, const Chapter& chapter, const Tree& tree, const std::string& file) {
  const fs::path solution = workspace.book.solution(chapter, file), own = tree.folder / file;
  return !has_same_text(own, solution) || includes_changed(workspace, chapter, tree, own);
}

/// Whether a file compiles another file of the chapter again, for an element other than the chapter's first.
bool is_for_other_element(const Chapter& chapter, const fs::path& path) {
  return !chapter.more_elements.empty() && fs::exists(path) &&
         book::read_file(path).find("#define WORKBOOK_ELEMENT") != std::string::npos;
}

}  // namespace

Tree readers_tree(const Workspace& workspace, const Chapter& chapter) {
  return {"chapters", workspace.book.root / "chapters" / chapter.name()};
}
Tree solutions_tree(const Workspace& workspace, const Chapter& chapter) {
  return {"solutions", workspace.book.root / "solutions" / chapter.name()};
}

worker::WorkerJob stages_job(const Workspace& workspace, const Chapter& chapter, const Tree& tree, Backend backend) {
  worker::WorkerJob job;
  job.name = tree.name + "/" + chapter.name() + "." + name(backend) + ".stages";
  job.backend = backend;
  job.include = tree.folder;
  job.books_include = solutions_tree(workspace, chapter).folder;
  job.used = workspace.book.used(chapter);
  job.architecture = chapter.architecture;
  job.sources_flags = tree.flags;
  for (const std::string& file : chapter.files) {
    // stage.cpp describes the chapter's stages on the CPU, stage.cu those of its kernels.
    const bool other_stage = backend == Backend::cpu ? is_kernel_file(file) : file == "stage.cpp";
    if (!is_source(file) || other_stage) continue;
    const fs::path books_file = job.books_include / file;
    const bool unneeded = tree.first_element_only && is_for_other_element(chapter, books_file);
    const bool books = unneeded && has_same_text(tree.folder / file, books_file);
    if (!books && is_changed(workspace, chapter, tree, file))
      job.sources.push_back(tree.folder / file);
    else
      job.books_sources.push_back(job.books_include / file);
  }
  return job;
}

worker::WorkerJob whole_job(const Workspace& workspace, const Chapter& chapter, const Tree& tree, Backend backend) {
  worker::WorkerJob job = stages_job(workspace, chapter, tree, backend);
  job.name = tree.name + "/" + chapter.name() + "." + name(backend);
  for (const char* special : {"operations.cpp", "operations.cu"}) {
    const fs::path path = workspace.book.root / "tests" / chapter.name() / special;
    if (!fs::exists(path) || (backend == Backend::cpu && is_kernel_file(special))) continue;
    const bool own = includes_changed(workspace, chapter, tree, path);
    (own ? job.sources : job.books_sources).push_back(path);
  }
  return job;
}

}  // namespace workbook::judge
