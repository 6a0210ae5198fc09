// Writing a release: a folder and an archive for students, an autograder for Gradescope. Verified before it is there:
// built and tested in a folder of its own, by its own launcher.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/grading/answers.hpp"
#include "common/grading/assignment.hpp"
#include "common/judge/workspace.hpp"

namespace workbook::grading {

struct PublishOptions {
  std::filesystem::path folder;  ///< where the release goes; its archives beside it
  std::filesystem::path hidden;  ///< hidden tests for the autograder; empty: none
  bool gradescope = false;       ///< with the autograder
  bool github = false;           ///< with a workflow for GitHub Actions
  bool verify = true;
};

/// What the release consists of: its folder, its archive, the autograder. An archive may be absent (archive.hpp).
std::vector<std::filesystem::path> release_paths(const std::filesystem::path& folder);

struct Published {
  std::vector<std::filesystem::path> written;
  std::size_t files = 0;
  std::vector<AnswerLine> given;  ///< lines of answers that stand in given code too
};

/// Writes the release, replacing what is there. Nothing is written, and std::runtime_error says why, if an answer
/// stands in what would be released, or if it does not hold what it promises: that it builds and runs by itself, that
/// its open exercises are open, that their answers pass.
Published publish(const judge::Workspace& workspace, const Assignment& assignment, const PublishOptions& options);

}  // namespace workbook::grading
