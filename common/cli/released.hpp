// The exercises of a release that are given: their solutions are in the reader's files, and are not the reader's work.
#pragma once

#include <filesystem>
#include <optional>

#include "common/book/progress.hpp"
#include "common/cli/session.hpp"
#include "common/grading/assignment.hpp"

namespace workbook::cli {

/// The exercises that a release leaves open. With solutions/ present, an assignment.toml does not describe this folder.
inline std::optional<grading::Assignment> released(const Session& session) {
  const std::filesystem::path path = session.book.root / "assignment.toml";
  if (std::filesystem::is_directory(session.book.root / "solutions") || !std::filesystem::exists(path)) return {};
  return grading::load_assignment(path, session.book);
}

/// Whether an exercise is given, unless it has been broken.
inline bool is_given(const std::optional<grading::Assignment>& assignment, const book::Exercise& exercise,
                     book::Progress state) {
  return assignment && !assignment->is_open(exercise.id) &&
         (state == book::Progress::untested || state == book::Progress::passing);
}

/// An exercise without points is optional and is never suggested as the next step.
inline bool is_left_open(const book::Exercise& exercise, book::Progress state) {
  return exercise.points == 0 && state == book::Progress::open;
}

}  // namespace workbook::cli
