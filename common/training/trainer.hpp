// Training runs: data, precision, optimiser, one step after the other. The same settings give the same losses, bit for
// bit, on one machine, on however many cores.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/training/loss_scaler.hpp"
#include "common/training/model.hpp"

namespace workbook::training {

/// What a run stores in 16 bits, and whether it scales its loss. In all of them the master weights, the optimiser and
/// all sums are fp32.
enum class MixedPrecision { fp32, fp16, fp16_scaled, bf16 };
inline constexpr std::array kPrecisions{MixedPrecision::fp32, MixedPrecision::fp16, MixedPrecision::fp16_scaled,
                                        MixedPrecision::bf16};
const char* name(MixedPrecision precision);  ///< "fp32", "fp16", "fp16-scaled", "bf16"
Storage storage_of(MixedPrecision precision);

/// What all runs of one experiment share.
struct Settings {
  ModelShape model;
  std::int64_t sequences = 8;      ///< of a batch
  std::int64_t micro_batches = 1;  ///< batches whose gradients are added up for one step
  /// The loss is the mean over the tokens of so many machines of which this is one. Each divides by the tokens of all,
  /// and their gradients are added up after they have been stored; this one counts its own `shares` times instead.
  std::int64_t shares = 256;
  double learning_rate = 2e-3;
  std::int64_t warmup = 20;  ///< steps in which the learning rate rises to its value; then it stays
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;  ///< AdamW
  std::uint64_t seed = 1;
  ScalerOptions scaler;
  std::int64_t overflow_at = 0;  ///< the step whose loss is multiplied by 2^32 in fp16-scaled, an overflow; 0: none

  /// Tokens whose losses are averaged in one step, on all machines.
  std::int64_t tokens() const { return sequences * micro_batches * model.context * shares; }
  bool operator==(const Settings&) const = default;
};
/// InputError naming the setting that makes no sense.
void check(const Settings& settings);

struct StepRecord {
  float loss = 0;   ///< mean over the step's tokens, in nats, before the update
  float scale = 1;  ///< that the step was computed with
  bool skipped = false;
  bool operator==(const StepRecord&) const = default;
};

/// Everything that a run needs to go on.
struct RunState {
  MixedPrecision precision = MixedPrecision::fp32;
  std::vector<float> weights, m, v;  ///< fp32 master weights, AdamW's two means
  std::int64_t updates = 0;          ///< steps taken: those skipped do not count
  std::uint64_t random = 0;          ///< state of the generator that draws the batches
  ScalerState scaler;
  std::vector<StepRecord> steps;
  bool operator==(const RunState&) const = default;
};

/// The parts of a step that the reader builds in chapter 7; those given are the default.
struct ScalingParts {
  /// Of one batch, in place: numbers of fp16 divided by scale, in fp32. Whether all results are finite.
  std::function<bool(std::span<float> gradients, float scale)> unscale = training::unscale;
  std::function<ScalerState(ScalerState, const ScalerOptions&, bool found_non_finite)> update = training::updated;
};

/// The trainer of one precision. It owns no run: a run is a RunState.
class Trainer {
 public:
  /// The last tenth of `text` is kept for validation. InputError if the text is too short for the context, or a setting
  /// makes no sense. attention: nullptr for PlainAttention.
  Trainer(const Settings& settings, MixedPrecision precision, std::string text,
          std::unique_ptr<AttentionCore<float>> attention = nullptr, ScalingParts parts = {});

  /// A run before its first step.
  RunState start() const;
  /// One step: draws a batch, computes, updates the weights unless the step is skipped, appends to run.steps.
  StepRecord step(RunState& run);
  /// Mean loss over fixed sequences of the part of the text that is not trained on, at most 64 of them, in nats.
  double validation_loss(const RunState& run);

  /// What became of the gradients of the last step.
  struct GradientFacts {
    /// Of each kind of weights, the share of gradients that are exactly 0: in fp16, what was lost.
    double zero_Wq = 0, zero_Wk = 0, zero_Wv = 0, zero_others = 0;
    /// Root mean square of dO in the first block, times the tokens, unscaled: the gradient of one token's own loss.
    double dO_of_a_token = 0;
  };
  GradientFacts gradient_facts() const;

 private:
  double batch(RunState& run, float factor, bool& finite);
  void update(RunState& run);

  Settings settings_;
  MixedPrecision precision_;
  std::string text_;
  std::size_t trained_;  ///< the first bytes of the text, trained on
  std::vector<Parameter> parameters_;
  std::unique_ptr<AttentionCore<float>> attention_;
  ScalingParts parts_;
  Model<float> model_;
  std::vector<float> stored_weights_, gradients_, batch_gradients_;
  float last_factor_ = 1;  ///< that the losses of the last step's tokens were multiplied by
};

}  // namespace workbook::training
