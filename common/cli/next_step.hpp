// What a reader does next, after tests have passed: never what is finished or optional.
#pragma once

#include <string>
#include <vector>

#include "common/cli/session.hpp"
#include "common/judge/run.hpp"

namespace workbook::cli {

/// The next step after passing: how the book solves the exercise, and what is still open.
std::string after_passing(const Session& session, const std::vector<judge::ChapterRun>& runs,
                          const book::Chapter& chapter, const std::string& exercise);

/// Whether the reader's own code passes an exercise, or all of a chapter.
bool is_finished(const Session& session, const book::Chapter& chapter, const std::string& exercise);

}  // namespace workbook::cli
