// Builds the stages of chapters as one library with a C interface (common/cuda/workbook.h), from the reader's code or
// the book's.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/judge/workspace.hpp"

namespace workbook::judge {

struct LibraryRequest {
  std::vector<const book::Chapter*> chapters;  ///< in the order in which their stages are listed
  std::string tree;                            ///< "chapters" or "solutions"
  Backend backend = Backend::sim;              ///< sim or cuda
};

/// Builds the library in the build folder and returns the path of the shared object. InputError for a chapter without
/// kernels, or without solutions if they are requested. EnvironmentError for a backend that cannot be built here, and,
/// with the compiler's output, for code that does not compile.
std::filesystem::path build_library(const Workspace& workspace, const LibraryRequest& request);

/// The exercises that are still open in the reader's tree, of these chapters and of those that they use.
std::vector<std::string> open_exercises(const book::Book& book, const std::vector<const book::Chapter*>& chapters);

}  // namespace workbook::judge
