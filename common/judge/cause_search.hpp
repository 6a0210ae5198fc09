// Finds the causes of failures that neither a report nor a direct check explains.
#pragma once

#include <nlohmann/json.hpp>

#include "common/judge/run.hpp"

namespace workbook::judge {

/// Adds causes to the failed verdicts of `run`: known wrong solutions that behave in the same way, else, if requested,
/// small edits of the book's answers. `context`: that of the run.
void find_causes(const Workspace& workspace, const Plan& plan, const Built& built, const RunRequest& request,
                 const nlohmann::json& context, ChapterRun& run);

}  // namespace workbook::judge
