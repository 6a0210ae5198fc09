// Trains every run of an experiment, one after the other, and summarises each. Prints nothing.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/judge/workspace.hpp"
#include "common/training/chapters.hpp"
#include "common/training/checkpoint.hpp"

namespace workbook::training {

/// A new experiment, without any steps. InputError for invalid settings or text.
Experiment new_experiment(const Settings& settings, const std::vector<MixedPrecision>& precisions,
                          const std::string& text, const CodeUnderTraining& code);

/// One run with its summary.
struct RunResult {
  const RunState* run = nullptr;
  std::optional<double> loss;                       ///< mean of the last tenth of its steps
  std::optional<double> validation_loss;            ///< on text that is not in the training set
  std::optional<double> above_fp32;                 ///< loss / fp32's - 1, after the same number of steps
  std::optional<Trainer::GradientFacts> gradients;  ///< of its last step, if this call ran it
  std::optional<double> tokens_per_second;          ///< of the steps that this call ran
  std::string problem;                              ///< why the chapters' code failed; empty if it did not
  std::int64_t skipped() const;
};

struct Trained {
  std::vector<RunResult> runs;  ///< in the experiment's order; they point into the experiment
  bool finished = true;         ///< whether every run has completed all its steps
  std::size_t longest() const;  ///< steps of the longest run
};

/// Trains every run up to `steps`, until `stop` returns true, or until the chapters' code fails. After an exception the
/// experiment holds the completed steps. chapters: nullptr for PlainAttention.
Trained train(const judge::Workspace& workspace, Experiment& experiment, std::int64_t steps, TrainingChapters* chapters,
              const std::function<bool()>& stop);

/// "step 120: skipped, the scale goes from 65536 to 32768"
std::vector<std::string> scale_events(const RunState& run);

}  // namespace workbook::training
