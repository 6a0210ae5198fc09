// Prints the results of test for people, one exercise at a time, and the next step.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/cli/session.hpp"
#include "common/judge/run.hpp"

namespace workbook::cli {

/// Prints a chapter's results on one backend. For each exercise, the first failed test is printed in full, the others
/// in one line each, then the likely causes: at most 30 lines, or everything with `verbose`. `runs`: the chapter's runs
/// on all backends, including this one. `shown`: messages that are on the screen already.
void print_run(const Session& session, const std::vector<judge::ChapterRun>& runs, const judge::ChapterRun& run,
               bool verbose, std::set<std::string> shown = {});

/// Prints the first failed test, while its cause is still being looked for, and returns its message.
std::string print_first_failure(const judge::ChapterRun& run);

/// Prints one line for each backend on which nothing ran, however many chapters it concerns.
void print_unavailable(const Session& session, const std::vector<judge::ChapterRun>& runs);

/// Prints "next: …": the first exercise to fix or to write, or what follows once all tests pass. `exercise`: the only
/// exercise tested, or empty.
void print_next(const Session& session, const std::vector<judge::ChapterRun>& runs, const std::string& exercise);

}  // namespace workbook::cli
