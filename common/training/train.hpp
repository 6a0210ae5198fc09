// Training every run of an experiment, one after the other, and what each came to. It prints nothing and knows no
// terminal.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/judge/workspace.hpp"
#include "common/training/chapters.hpp"
#include "common/training/checkpoint.hpp"

namespace workbook::training {

/// An experiment of which no run has made a step yet. InputError if settings or text make no sense.
Experiment new_experiment(const Settings& settings, const std::vector<MixedPrecision>& precisions,
                          const std::string& text, const CodeUnderTraining& code);

/// One run, and what can be said of it at the end.
struct RunResult {
  const RunState* run = nullptr;
  std::optional<double> loss;                       ///< mean of the last tenth of its steps
  std::optional<double> validation_loss;            ///< on text that it has not seen
  std::optional<double> above_fp32;                 ///< loss / fp32's - 1, at as many steps
  std::optional<Trainer::GradientFacts> gradients;  ///< of its last step, if that was made here
  std::optional<double> tokens_per_second;          ///< of the steps that were made here
  std::string problem;                              ///< why the chapters' code could not go on; empty if it could
  std::int64_t skipped() const;
};

struct Trained {
  std::vector<RunResult> runs;  ///< as in the experiment, which they point into
  bool finished = true;         ///< every run has made all its steps
  std::size_t longest() const;  ///< steps of the run that has most
};

/// Takes every run up to `steps`, or until `stop` says so or the chapters' code cannot go on, and writes the
/// checkpoint, also when something is thrown. chapters: nullptr for the book's plain attention.
Trained train(const judge::Workspace& workspace, Experiment& experiment, std::int64_t steps, TrainingChapters* chapters,
              const std::filesystem::path& checkpoint, const std::function<bool()>& stop);

/// "step 120: skipped, the scale goes from 65536 to 32768"
std::vector<std::string> scale_events(const RunState& run);

}  // namespace workbook::training
