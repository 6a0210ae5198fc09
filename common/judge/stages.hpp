// What a chapter's manifest says of its stage, held against what the stage says of itself.
#pragma once

#include <string>

#include "common/book/manifest.hpp"
#include "common/worker/backend.hpp"
#include "common/worker/description.hpp"

namespace workbook::judge {

/// The first thing in which chapter.toml and the stages of the chapter's worker on `backend` disagree, as a sentence;
/// empty if they agree: the passes, the element, the masks, and the file that describes the stage.
std::string disagreement(const book::Chapter& chapter, Backend backend, const worker::WorkerDescription& description);

}  // namespace workbook::judge
