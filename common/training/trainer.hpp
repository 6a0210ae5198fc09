// Training runs: data, precision, optimiser and steps. On one machine, the same settings give bitwise identical losses
// on any number of cores.
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

/// The 16-bit format of a run, and whether it scales its loss. The master weights, the optimiser and all sums are
/// always fp32.
enum class MixedPrecision { fp32, fp16, fp16_scaled, bf16 };
inline constexpr std::array kPrecisions{MixedPrecision::fp32, MixedPrecision::fp16, MixedPrecision::fp16_scaled,
                                        MixedPrecision::bf16};
const char* name(MixedPrecision precision);  ///< "fp32", "fp16", "fp16-scaled", "bf16"
Storage storage_of(MixedPrecision precision);

/// The settings that all runs of an experiment share.
struct Settings {
  ModelShape model;
  std::int64_t sequences = 8;      ///< per batch
  std::int64_t micro_batches = 1;  ///< batches whose gradients are accumulated for one step
  /// The loss is the mean over the tokens of `shares` machines, including this one. Each machine divides by the tokens
  /// of all, and their gradients are added after storage. This simulation adds its own gradients `shares` times
  /// instead.
  std::int64_t shares = 256;
  double learning_rate = 2e-3;
  std::int64_t warmup = 20;  ///< steps over which the learning rate rises to its constant value
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;  ///< AdamW
  std::uint64_t seed = 1;
  ScalerOptions scaler;
  std::int64_t overflow_at =
      0;  ///< the step whose loss is multiplied by 2^32 in fp16-scaled, which causes an overflow; 0: none

  /// Tokens whose losses are averaged in one step, on all machines.
  std::int64_t tokens() const { return sequences * micro_batches * model.context * shares; }
  bool operator==(const Settings&) const = default;
};
/// InputError naming an invalid setting.
void check(const Settings& settings);

struct StepRecord {
  float loss = 0;   ///< mean over the step's tokens, in nats, before the update
  float scale = 1;  ///< loss scale of the step
  bool skipped = false;
  bool operator==(const StepRecord&) const = default;
};

/// The complete state of a run.
struct RunState {
  MixedPrecision precision = MixedPrecision::fp32;
  std::vector<float> weights, m, v;  ///< fp32 master weights, AdamW's two moments
  std::int64_t updates = 0;          ///< steps without the skipped ones
  std::uint64_t random = 0;          ///< state of the random generator for the batches
  ScalerState scaler;
  std::vector<StepRecord> steps;
  bool operator==(const RunState&) const = default;
};

/// The parts of a step that the reader builds in chapter 7; the defaults are the given versions.
struct ScalingParts {
  /// Divides one batch's gradients, fp16 numbers, by the scale in place, in fp32. Returns whether all results are
  /// finite.
  std::function<bool(std::span<float> gradients, float scale)> unscale = training::unscale;
  std::function<ScalerState(ScalerState, const ScalerOptions&, bool found_non_finite)> update = training::updated;
};

/// The trainer of one precision. The state of a run is in a RunState, which the trainer does not own.
class Trainer {
 public:
  /// Reserves the last tenth of `text` for validation. InputError if the text is too short for the context, or a
  /// setting is invalid. attention: nullptr for PlainAttention.
  Trainer(const Settings& settings, MixedPrecision precision, std::string text,
          std::unique_ptr<AttentionCore<float>> attention = nullptr, ScalingParts parts = {});

  /// A run before its first step.
  RunState start() const;
  /// One step: draws a batch, computes the gradients, updates the weights unless the step is skipped, and appends to
  /// run.steps.
  StepRecord step(RunState& run);
  /// Mean loss in nats over at most 64 fixed sequences of the validation text.
  double validation_loss(const RunState& run);

  /// Statistics of the gradients of the last step.
  struct GradientFacts {
    /// For each kind of weights, the share of gradients that are exactly 0; in fp16, these were lost to underflow.
    double zero_Wq = 0, zero_Wk = 0, zero_Wv = 0, zero_others = 0;
    /// Root mean square of dO in the first block times the number of tokens, unscaled: the gradient of one token's
    /// loss.
    double dO_of_a_token = 0;
  };
  GradientFacts gradient_facts() const;

 private:
  double batch(RunState& run, float factor, bool& finite);
  void update(RunState& run);

  Settings settings_;
  MixedPrecision precision_;
  std::string text_;
  std::size_t trained_;  ///< number of bytes of the training text
  std::vector<Parameter> parameters_;
  std::unique_ptr<AttentionCore<float>> attention_;
  ScalingParts parts_;
  Model<float> model_;
  std::vector<float> stored_weights_, gradients_, batch_gradients_;
  float last_factor_ = 1;  ///< factor of the token losses in the last step
};

}  // namespace workbook::training
