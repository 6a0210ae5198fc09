// Writes a release: a folder and an archive for students, and an autograder for Gradescope. It is verified first: built
// and tested in a separate folder by its own launcher.
#pragma once

#include <filesystem>
#include <vector>

#include "common/grading/answers.hpp"
#include "common/grading/assignment.hpp"
#include "common/judge/workspace.hpp"

namespace workbook::grading {

struct PublishOptions {
  std::filesystem::path folder;  ///< folder of the release; archives are written beside it
  std::filesystem::path hidden;  ///< hidden tests for the autograder; empty: none
  bool gradescope = false;       ///< write the autograder
  bool github = false;           ///< include a workflow for GitHub Actions
  bool verify = true;
};

/// The paths of a release: its folder, its archive, the autograder. Archives may be missing (archive.hpp).
std::vector<std::filesystem::path> release_paths(const std::filesystem::path& folder);

struct Published {
  std::vector<std::filesystem::path> written;
  std::size_t files = 0;
  std::vector<AnswerLine> given;  ///< lines of answers that also occur in given code
};

/// Writes the release and replaces an existing one. Throws std::runtime_error without writing if the release would
/// contain an answer or fails its verification. Verification requires that it builds and runs on its own, that its open
/// exercises are open, and that their answers pass.
Published publish(const judge::Workspace& workspace, const Assignment& assignment, const PublishOptions& options);

}  // namespace workbook::grading
