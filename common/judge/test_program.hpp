// Runs a chapter's test program.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/judge/run.hpp"

namespace workbook::judge {

/// The requested tests as a Catch2 test spec; empty: all.
std::string test_spec(const book::Chapter& chapter, const RunRequest& request);

/// Runs the tests that match `spec` (all if it is empty), and adds their verdicts to `run`. `context`: what the program
/// reads (tests/support/context.hpp). It writes its verdicts as JSON lines to file descriptor 3.
void run_program(const Workspace& workspace, const Plan& plan, const RunRequest& request, const std::string& spec,
                 const nlohmann::json& context, ChapterRun& run);

}  // namespace workbook::judge
