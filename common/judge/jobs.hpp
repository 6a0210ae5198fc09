// A chapter's files as workers to build: the reader's, the book's, or those of a folder of its own.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/book/manifest.hpp"
#include "common/judge/workspace.hpp"

namespace workbook::judge {

/// Where a chapter's files under test lie.
struct Tree {
  std::string name;              ///< "chapters", "solutions", or a name for a folder of its own; unique
  std::filesystem::path folder;  ///< holds the chapter's files
  /// The kernels for the chapter's first element are the tree's; those for its other elements are the book's, whatever
  /// of the tree they include, unless their own file is another. No test of those says anything of the tree.
  bool first_element_only = false;
  /// Where the reader's own files lie, if those in `folder` were put together from them: markers and lines are theirs.
  std::filesystem::path as_written = {};
  std::vector<std::string> flags = {};  ///< of the compiler for the tree's own files
  /// The files whose kernels are asked for: the others are the book's too, whatever of the tree they include, unless
  /// their own text is another. Nothing: that is not known.
  std::optional<std::set<std::string>> asked = {};
  bool noted = false;  ///< its workers note which kernels they are asked for (common/cuda/instances.hpp)

  const std::filesystem::path& written() const { return as_written.empty() ? folder : as_written; }
};
Tree readers_tree(const Workspace& workspace, const book::Chapter& chapter);
Tree solutions_tree(const Workspace& workspace, const book::Chapter& chapter);

/// The job that builds a tree's whole chapter.
worker::WorkerJob whole_job(const Workspace& workspace, const book::Chapter& chapter, const Tree& tree,
                            Backend backend);
/// The job that builds a tree's stages alone, without the operations that only tests call.
worker::WorkerJob stages_job(const Workspace& workspace, const book::Chapter& chapter, const Tree& tree,
                             Backend backend);

}  // namespace workbook::judge
