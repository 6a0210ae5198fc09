// What test says of its runs, for people: an exercise at a time, and what to do next.
#pragma once

#include <string>
#include <vector>

#include "common/cli/session.hpp"
#include "common/judge/run.hpp"

namespace workbook::cli {

/// A chapter on one backend. Of each exercise the first test that failed is printed in full, the others in one line
/// each, then what they say together: at most 30 lines, or with `verbose` all there is. `runs`: the chapter's on all
/// backends, of which this is one.
void print_run(const Session& session, const std::vector<judge::ChapterRun>& runs, const judge::ChapterRun& run,
               bool verbose);

/// The backends on which nothing ran, one line each, however many chapters they stand for.
void print_unavailable(const Session& session, const std::vector<judge::ChapterRun>& runs);

/// "next: …": the first thing to repair or to write; if all is well, what the book has to offer then. `exercise`: the
/// one that alone was tested, or empty.
void print_next(const Session& session, const std::vector<judge::ChapterRun>& runs, const std::string& exercise);

}  // namespace workbook::cli
