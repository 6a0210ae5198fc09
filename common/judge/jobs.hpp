// The build jobs of a chapter's workers: from the reader's files, the book's, or those of another folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/book/manifest.hpp"
#include "common/judge/workspace.hpp"

namespace workbook::judge {

/// The location of a chapter's files under test.
struct Tree {
  std::string name;              ///< "chapters", "solutions", or the name of another folder; unique
  std::filesystem::path folder;  ///< holds the chapter's files
  /// Only the kernels for the chapter's first element come from the tree. Those for its other elements are the book's
  /// unless their own file differs, even if they include files of the tree. No test of those judges the tree.
  bool first_element_only = false;
  /// The folder of the reader's own files, if those in `folder` were assembled from them. Markers and line numbers
  /// refer to the reader's files.
  std::filesystem::path as_written = {};
  std::vector<std::string> flags = {};  ///< compiler flags for the tree's own files

  const std::filesystem::path& written() const { return as_written.empty() ? folder : as_written; }
};
Tree readers_tree(const Workspace& workspace, const book::Chapter& chapter);
Tree solutions_tree(const Workspace& workspace, const book::Chapter& chapter);

/// The job that builds a tree's whole chapter.
worker::WorkerJob whole_job(const Workspace& workspace, const book::Chapter& chapter, const Tree& tree,
                            Backend backend);
/// The job that builds only a tree's stages, without the operations that tests call.
worker::WorkerJob stages_job(const Workspace& workspace, const book::Chapter& chapter, const Tree& tree,
                             Backend backend);

}  // namespace workbook::judge
