// Training with the chapters' own code: attention by chapters 2, 5, 6 and 7, unscaling and the loss scale by chapter 7,
// each in a worker.
#pragma once

#include <memory>

#include "common/cli/session.hpp"
#include "common/training/checkpoint.hpp"

namespace workbook::cli {

/// The workers of one experiment.
class TrainingChapters {
 public:
  /// Builds them. InputError if a chapter is not there, EnvironmentError if the backend cannot be built here.
  TrainingChapters(const Session& session, const training::CodeUnderTraining& code);
  ~TrainingChapters();

  /// Of fp32: chapter 2's tiled attention, and chapter 6's naive backward for want of one in fp32. Of fp16: chapters 5
  /// and 6. Of bf16: chapter 7. The calls throw worker::Failure. Lives no longer than this object.
  std::unique_ptr<training::AttentionCore<float>> attention(training::Precision precision);
  /// Exercises 7.5 and 7.4 for fp16-scaled, given for others. `run` has what came before: chapter 7's scaler counts
  /// from the first step on.
  training::ScalingParts scaling(const training::RunState& run);

 private:
  struct Workers;
  std::unique_ptr<Workers> workers_;
};

}  // namespace workbook::cli
