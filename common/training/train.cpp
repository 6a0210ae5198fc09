#include "common/training/train.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "common/worker/worker.hpp"

namespace workbook::training {
namespace {

std::optional<double> mean_of_last_tenth(const RunState& run) {
  const std::size_t steps = run.steps.size();
  if (steps == 0) return std::nullopt;
  const std::size_t first = steps - std::max<std::size_t>(1, steps / 10);
  double sum = 0;
  for (std::size_t i = first; i < steps; ++i) sum += run.steps[i].loss;
  return sum / double(steps - first);
}

void compare_with_fp32(std::vector<RunResult>& results) {
  const auto fp32 = std::find_if(results.begin(), results.end(),
                                 [](const RunResult& r) { return r.run->precision == MixedPrecision::fp32; });
  if (fp32 == results.end() || !fp32->loss) return;
  for (RunResult& result : results) {
    if (&result != &*fp32 && result.loss && result.run->steps.size() == fp32->run->steps.size())
      result.above_fp32 = *result.loss / *fp32->loss - 1;
  }
}

/// Trains one run up to `steps`, or until it stops or fails.
RunResult train_run(const judge::Workspace& workspace, const Experiment& experiment, RunState& run, std::int64_t steps,
                    TrainingChapters* chapters, const std::function<bool()>& stop) {
  RunResult result;
  result.run = &run;
  Trainer trainer(experiment.settings, run.precision, experiment.text,
                  chapters == nullptr ? nullptr : chapters->attention(run.precision),
                  chapters == nullptr ? ScalingParts{} : chapters->scaling(run));
  const auto begin = std::chrono::steady_clock::now();
  std::int64_t done = 0;
  while (std::int64_t(run.steps.size()) < steps) {
    if (stop()) break;
    StepRecord record;
    const std::uint64_t random = run.random;
    try {
      record = trainer.step(run);
    } catch (const worker::Failure& failure) {
      run.random = random;  // the step did not complete
      result.problem = failure.ending == worker::Ending::todo ? fmt::format("exercise {} is still open", failure.todo)
                                                              : failure.what();
      break;
    }
    ++done;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    workspace.progress(fmt::format("{}: step {} of {}, loss {:.4f}, scale {}{}, {:.3f} s per step", name(run.precision),
                                   run.steps.size(), steps, record.loss, record.scale,
                                   record.skipped ? ", skipped" : "", seconds.count() / double(done)));
  }
  if (done > 0) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const Settings& settings = experiment.settings;
    result.tokens_per_second = double(done * (settings.tokens() / settings.shares)) / seconds.count();
  }
  result.loss = mean_of_last_tenth(run);
  if (done > 0 && result.problem.empty()) result.gradients = trainer.gradient_facts();
  if (!run.steps.empty() && result.problem.empty()) result.validation_loss = trainer.validation_loss(run);
  return result;
}

}  // namespace

Experiment new_experiment(const Settings& settings, const std::vector<MixedPrecision>& precisions,
                          const std::string& text, const CodeUnderTraining& code) {
  Experiment experiment{settings, text, {}, code};
  for (const MixedPrecision precision : precisions)
    experiment.runs.push_back(Trainer(settings, precision, text).start());
  return experiment;
}

std::int64_t RunResult::skipped() const {
  return std::count_if(run->steps.begin(), run->steps.end(), [](const StepRecord& s) { return s.skipped; });
}

std::size_t Trained::longest() const {
  std::size_t steps = 0;
  for (const RunResult& result : runs) steps = std::max(steps, result.run->steps.size());
  return steps;
}

Trained train(const judge::Workspace& workspace, Experiment& experiment, std::int64_t steps, TrainingChapters* chapters,
              const std::function<bool()>& stop) {
  Trained trained;
  for (RunState& run : experiment.runs) {
    trained.runs.push_back(train_run(workspace, experiment, run, steps, chapters, stop));
    trained.finished = trained.finished && std::int64_t(run.steps.size()) >= steps;
  }
  workspace.progress("");
  compare_with_fp32(trained.runs);
  return trained;
}

std::vector<std::string> scale_events(const RunState& run) {
  std::vector<std::string> events;
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    const StepRecord& step = run.steps[i];
    const float next = i + 1 < run.steps.size() ? run.steps[i + 1].scale : run.scaler.scale;
    if (step.skipped)
      events.push_back(fmt::format("step {}: skipped, the scale goes from {} to {}", i + 1, step.scale, next));
    else if (next != step.scale)
      events.push_back(fmt::format("step {}: the scale grows from {} to {}", i + 1, step.scale, next));
  }
  return events;
}

}  // namespace workbook::training
