// Compares the description of a stage in a chapter's manifest with the stage's own description.
#pragma once

#include <string>

#include "common/book/manifest.hpp"
#include "common/worker/backend.hpp"
#include "common/worker/description.hpp"

namespace workbook::judge {

/// The first disagreement between chapter.toml and the stages of the chapter's worker on `backend`, as a sentence;
/// empty if they agree. Compares the passes, the element, the masks, and the file that describes the stage.
std::string disagreement(const book::Chapter& chapter, Backend backend, const worker::WorkerDescription& description);

}  // namespace workbook::judge
