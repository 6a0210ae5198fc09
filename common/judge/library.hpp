// The stages of some chapters as one library with a C interface (common/cuda/workbook.h), the reader's or the book's.
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

/// Builds it, in the build folder, and gives the shared object. InputError for a chapter without kernels, or without
/// solutions where these are asked for; EnvironmentError for a backend that cannot be built here, and with what the
/// compiler said for code that does not compile.
std::filesystem::path build_library(const Workspace& workspace, const LibraryRequest& request);

/// The exercises of these chapters, and of those that they use, that are still open in the reader's tree.
std::vector<std::string> open_exercises(const book::Book& book, const std::vector<const book::Chapter*>& chapters);

}  // namespace workbook::judge
