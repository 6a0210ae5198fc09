// What the verbs train and generate share.
#pragma once

#include <filesystem>
#include <string>

#include "common/cli/session.hpp"
#include "common/training/checkpoint.hpp"

namespace workbook::cli {

inline constexpr const char* kCheckpoint = "train.checkpoint";

/// Whose attention is used: the reader's chapters', the book's, or the plain attention. InputError if a backend is
/// given for the plain attention.
training::CodeUnderTraining code_under_training(const Session& session, bool chapters, bool solutions,
                                                const std::string& backend);

/// The checkpoint in the file that `flag` names. InputError if it has none.
training::Experiment given_checkpoint(const char* flag, const std::filesystem::path& file);

}  // namespace workbook::cli
