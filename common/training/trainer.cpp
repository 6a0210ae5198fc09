#include "common/training/trainer.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "common/attention/problem.hpp"
#include "common/attention/random.hpp"

namespace workbook::training {
namespace {

constexpr std::int64_t kLongestContext = 4096, kMostTokens = 65536, kMostShares = std::int64_t{1} << 30;
constexpr float kOverflow =
    0x1p32f;  // times a gradient of about 1e-3 and any scale from 1 on, this exceeds fp16's 65504

}  // namespace

const char* name(MixedPrecision precision) {
  // In the order of MixedPrecision.
  static constexpr const char* names[] = {"fp32", "fp16", "fp16-scaled", "bf16"};
  return names[std::size_t(precision)];
}

Storage storage_of(MixedPrecision precision) {
  return precision == MixedPrecision::fp32   ? Storage::fp32
         : precision == MixedPrecision::bf16 ? Storage::bf16
                                             : Storage::fp16;
}

void check(const Settings& settings) {
  parameters_of(settings.model);
  const auto require = [](bool good, const char* what, auto value, const char* allowed) {
    if (!good) fail_input("{} = {}: allowed: {}", what, value, allowed);
  };
  require(settings.sequences >= 1, "sequences", settings.sequences, "whole numbers from 1 on");
  require(settings.micro_batches >= 1, "micro batches", settings.micro_batches, "whole numbers from 1 on");
  require(settings.shares >= 1 && settings.shares <= kMostShares, "shares", settings.shares,
          "whole numbers from 1 to 2^30");
  require(settings.micro_batches <= kMostShares, "micro batches", settings.micro_batches,
          "whole numbers from 1 to 2^30");
  require(settings.model.context <= kLongestContext, "context", settings.model.context,
          "whole numbers from 1 to 4096 (attention stores context² numbers per head)");
  require(settings.sequences <= kMostTokens / settings.model.context, "sequences", settings.sequences,
          "at most 65536 tokens in total, which need about 1 GB (micro batches make a step larger)");
  require(settings.learning_rate > 0 && std::isfinite(settings.learning_rate), "learning rate", settings.learning_rate,
          "positive numbers");
  require(settings.warmup >= 0, "warm-up", settings.warmup, "whole numbers from 0 on");
  require(settings.overflow_at >= 0, "the step of the overflow", settings.overflow_at, "whole numbers from 0 on");
  check(settings.scaler);
}

Trainer::Trainer(const Settings& settings, MixedPrecision precision, std::string text,
                 std::unique_ptr<AttentionCore<float>> attention, ScalingParts parts)
    : settings_((check(settings), settings)),
      precision_(precision),
      text_(std::move(text)),
      trained_(text_.size() - text_.size() / 10),
      parameters_(parameters_of(settings.model)),
      attention_(attention ? std::move(attention) : std::make_unique<PlainAttention<float>>(storage_of(precision))),
      parts_(std::move(parts)),
      model_(settings.model, storage_of(precision), *attention_) {
  const auto shortest = std::size_t(settings.model.context + 1);
  if (text_.size() - trained_ < shortest) {
    fail_input(
        "the text has only {} bytes; a tenth of it, reserved for validation, must contain a sequence of {} bytes and "
        "the next byte",
        text_.size(), settings.model.context);
  }
  const auto count = std::size_t(weight_count(settings.model));
  stored_weights_.resize(count);
  gradients_.resize(count);
  batch_gradients_.resize(count);
}

RunState Trainer::start() const {
  RunState run;
  run.precision = precision_;
  run.weights = initial_weights(settings_.model, settings_.seed);
  run.m.resize(run.weights.size());
  run.v.resize(run.weights.size());
  run.random = Random(settings_.seed + 1).bits();
  if (precision_ == MixedPrecision::fp16_scaled) run.scaler.scale = float(settings_.scaler.initial);
  return run;
}

/// Adds the unscaled gradients of factor times the sum of one batch's losses to gradients_; sets `finite` to false if a
/// gradient is not finite. Returns the batch's mean loss.
double Trainer::batch(RunState& run, float factor, bool& finite) {
  const std::int64_t context = settings_.model.context;
  Random random(run.random);
  std::vector<std::uint8_t> bytes, targets;
  for (std::int64_t i = 0; i < settings_.sequences; ++i) {
    const std::int64_t first = random.below(std::int64_t(trained_) - context);
    for (std::int64_t n = first; n < first + context; ++n) {
      bytes.push_back(std::uint8_t(text_[std::size_t(n)]));
      targets.push_back(std::uint8_t(text_[std::size_t(n + 1)]));
    }
  }
  run.random = random.state();
  const double loss = model_.forward(stored_weights_, bytes, targets);
  std::fill(batch_gradients_.begin(), batch_gradients_.end(), 0.0f);
  model_.backward(stored_weights_, bytes, targets, factor, batch_gradients_);
  // The weight gradients are stored like any other tensor; the sum over several batches is fp32.
  round_to(storage_of(precision_), batch_gradients_);
  if (precision_ == MixedPrecision::fp16_scaled) finite = parts_.unscale(batch_gradients_, run.scaler.scale) && finite;
  for (std::size_t i = 0; i < gradients_.size(); ++i) gradients_[i] += float(settings_.shares) * batch_gradients_[i];
  return loss;
}

/// AdamW (Loshchilov and Hutter 2019, algorithm 2), without weight decay for gains.
void Trainer::update(RunState& run) {
  ++run.updates;
  const double warm = double(run.steps.size() + 1) / double(settings_.warmup + 1);
  const float rate = float(settings_.learning_rate * std::min(1.0, warm));
  const float beta1 = float(settings_.beta1), beta2 = float(settings_.beta2), epsilon = float(settings_.epsilon);
  const float correction1 = float(1 / (1 - std::pow(settings_.beta1, double(run.updates)))),
              correction2 = float(1 / (1 - std::pow(settings_.beta2, double(run.updates))));
  for (const Parameter& parameter : parameters_) {
    const float decay = parameter.initial == 0 ? 0.0f : rate * float(settings_.weight_decay);
    for (auto i = std::size_t(parameter.offset); i < std::size_t(parameter.offset + parameter.size); ++i) {
      const float g = gradients_[i];
      run.m[i] = beta1 * run.m[i] + (1 - beta1) * g;
      run.v[i] = beta2 * run.v[i] + (1 - beta2) * g * g;
      run.weights[i] -=
          decay * run.weights[i] + rate * (run.m[i] * correction1) / (std::sqrt(run.v[i] * correction2) + epsilon);
    }
  }
}

StepRecord Trainer::step(RunState& run) {
  stored_weights_ = run.weights;
  round_to(storage_of(precision_), stored_weights_);
  std::fill(gradients_.begin(), gradients_.end(), 0.0f);

  StepRecord record{0, run.scaler.scale, false};
  const bool scaled = precision_ == MixedPrecision::fp16_scaled;
  float factor = run.scaler.scale / float(settings_.tokens());
  if (scaled && std::int64_t(run.steps.size()) + 1 == settings_.overflow_at) factor *= kOverflow;
  last_factor_ = factor;
  double loss = 0;
  bool finite = true;
  for (std::int64_t i = 0; i < settings_.micro_batches; ++i) loss += batch(run, factor, finite);
  record.loss = float(loss / double(settings_.micro_batches));

  if (scaled) {
    record.skipped = !finite;
    run.scaler = parts_.update(run.scaler, settings_.scaler, record.skipped);
  }
  if (!record.skipped) update(run);
  run.steps.push_back(record);
  return record;
}

Trainer::GradientFacts Trainer::gradient_facts() const {
  std::array<std::int64_t, 4> zeros{}, counts{};
  for (const Parameter& parameter : parameters_) {
    for (std::int64_t i = 0; i < parameter.size; ++i) {
      // Wqkv (width, 3·width): the columns of Wq, then those of Wk, then those of Wv.
      const bool qkv = parameter.name.ends_with("Wqkv");
      const auto kind = std::size_t(qkv ? i % parameter.columns / (parameter.columns / 3) : 3);
      ++counts[kind];
      zeros[kind] += gradients_[std::size_t(parameter.offset + i)] == 0;
    }
  }
  const auto share = [&](std::size_t kind) { return double(zeros[kind]) / double(counts[kind]); };
  double squares = 0;
  for (const float x : model_.first_dO()) squares += double(x) * double(x);
  const double size = std::sqrt(squares / double(std::max<std::size_t>(1, model_.first_dO().size())));
  return {share(0), share(1), share(2), share(3), size / double(last_factor_)};
}

double Trainer::validation_loss(const RunState& run) {
  stored_weights_ = run.weights;
  round_to(storage_of(precision_), stored_weights_);
  const std::int64_t context = settings_.model.context, kept = std::int64_t(text_.size() - trained_);
  const std::int64_t sequences = std::min<std::int64_t>(64, (kept - 1) / context);
  std::vector<std::uint8_t> bytes, targets;
  for (std::int64_t i = 0; i < sequences; ++i) {
    const std::int64_t first =
        std::int64_t(trained_) + (kept - 1 - context) * i / std::max<std::int64_t>(1, sequences - 1);
    for (std::int64_t n = first; n < first + context; ++n) {
      bytes.push_back(std::uint8_t(text_[std::size_t(n)]));
      targets.push_back(std::uint8_t(text_[std::size_t(n + 1)]));
    }
  }
  return model_.forward(stored_weights_, bytes, targets);
}

}  // namespace workbook::training
