// Training with the chapters' own code: attention, unscaling and the loss scale, each in a worker. Which chapter has
// what, their manifests and their stages say.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/judge/workspace.hpp"
#include "common/training/checkpoint.hpp"

namespace workbook::training {

/// The workers of one experiment.
class TrainingChapters {
 public:
  /// Builds what these precisions need. InputError if no chapter has it, EnvironmentError if the backend cannot be
  /// built here. The workspace must outlive it.
  TrainingChapters(const judge::Workspace& workspace, const CodeUnderTraining& code,
                   const std::vector<MixedPrecision>& precisions, std::int64_t head_dim);
  ~TrainingChapters();

  /// "your chapters 2, 5 and 6": whose code it is.
  std::string text() const;
  /// Those of the reader's exercises that are still open in these chapters, and in what they use; none for the book's.
  std::vector<std::string> open_exercises() const;
  /// For each pass the last chapter that has it, with the mask of language models, in the element of the precision, for
  /// the model's head dimension; a chapter for this GPU alone comes before them. In fp32 the forward pass is one of the
  /// CPU. The calls throw worker::Failure. Lives no longer than this object.
  std::unique_ptr<AttentionCore<float>> attention(MixedPrecision precision);
  /// The operations "unscale" and "scaler" of a chapter for fp16-scaled, given for others. `run` has what came before:
  /// the scaler counts from the first step on.
  ScalingParts scaling(const RunState& run);

 private:
  struct Workers;
  std::unique_ptr<Workers> workers_;
};

}  // namespace workbook::training
