// Training with the chapters' code: attention, unscaling and the loss scale, each in a worker. The manifests and the
// stages' descriptions determine which chapter provides what.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/judge/workspace.hpp"
#include "common/training/checkpoint.hpp"

namespace workbook::training {

/// What chapters' code is used for: training needs a forward and a backward pass, generation a forward pass for the
/// prompt and one for decoding.
enum class Purpose { training, generation };

/// The workers of one experiment.
class TrainingChapters {
 public:
  /// Builds everything that these precisions need. InputError if no chapter provides it, EnvironmentError if the
  /// backend cannot be built here. The workspace must outlive this object.
  TrainingChapters(const judge::Workspace& workspace, const CodeUnderTraining& code,
                   const std::vector<MixedPrecision>& precisions, std::int64_t head_dim,
                   Purpose purpose = Purpose::training);
  ~TrainingChapters();

  /// "your chapters 2, 5 and 6": the owner of the code and the chapters.
  std::string text() const;
  /// The reader's exercises that are still open in these chapters and in the chapters they use; none for the book's
  /// code.
  std::vector<std::string> open_exercises() const;
  /// For each pass, the last chapter that supports the causal mask, the element of the precision and the model's head
  /// dimension; a chapter for exactly this GPU is preferred. In fp32, the forward pass runs on the CPU. Calls throw
  /// worker::Failure. This object must outlive the result.
  std::unique_ptr<AttentionCore<float>> attention(MixedPrecision precision);
  /// The forward pass alone: of the prompt, or for decoding.
  std::unique_ptr<AttentionCore<float>> forward_pass(MixedPrecision precision, bool decoding);
  /// The operations "unscale" and "scaler" of a chapter for fp16-scaled, the given ones for other precisions. `run` has
  /// the earlier steps, since the scaler counts from the first step.
  ScalingParts scaling(const RunState& run);

 private:
  struct Workers;
  std::unique_ptr<Workers> workers_;
};

}  // namespace workbook::training
