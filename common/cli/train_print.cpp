#include "common/cli/train_print.hpp"

#include <algorithm>
#include <optional>

namespace workbook::cli {
namespace {

using namespace workbook::training;
using nlohmann::json;

std::string number_or(std::optional<double> value, const char* format, const char* otherwise = "-") {
  return value ? fmt::format(fmt::runtime(format), *value) : otherwise;
}

void print_curves(const Trained& trained) {
  const std::size_t steps = trained.longest();
  fmt::print("  {:>6}", "step");
  for (const RunResult& result : trained.runs) fmt::print(" {:>12}", name(result.run->precision));
  fmt::print("\n");
  constexpr std::size_t rows = 16;
  std::size_t shown = 0;
  for (std::size_t i = 1; i <= rows; ++i) {
    const std::size_t step = std::max<std::size_t>(1, steps * i / rows);
    if (step == shown) continue;
    // The mean over the steps since the previous row.
    fmt::print("  {:>6}", step);
    for (const RunResult& result : trained.runs) {
      double sum = 0;
      std::size_t count = 0;
      for (std::size_t n = shown; n < std::min(step, result.run->steps.size()); ++n, ++count)
        sum += result.run->steps[n].loss;
      fmt::print(" {:>12}", count == 0 ? "-" : fmt::format("{:.4f}", sum / double(count)));
    }
    fmt::print("\n");
    shown = step;
  }
}

}  // namespace

void print_results(const Session& session, const Experiment& experiment, const std::string& code,
                   const Trained& trained) {
  const Settings& s = experiment.settings;
  fmt::print("A byte-level model of {} weights: {} blocks, {} heads of {}, context {}.\n", weight_count(s.model),
             s.model.blocks, s.model.heads, s.model.head_dim, s.model.context);
  if (!experiment.code.tree.empty()) {
    fmt::print("Attention and the loss scale by {}, kernels on {}.\n", code, text(*experiment.code.backend));
  }
  fmt::print(
      "{} tokens per step; the loss is the mean over {} tokens in total ({} share{}); seed {}, text of {} bytes.\n\n",
      s.tokens() / s.shares, s.tokens(), s.shares, s.shares == 1 ? "" : "s", s.seed, experiment.text.size());
  fmt::print("Loss in nats per byte, mean since the row above:\n\n");
  print_curves(trained);
  fmt::print("\n  {:<12} {:>6} {:>9} {:>10} {:>10} {:>8} {:>10} {:>9}   {}\n", "run", "steps", "loss", "validation",
             "above fp32", "skipped", "scale", "tokens/s", "zero gradients: Wq, Wk, Wv, others");
  for (const RunResult& result : trained.runs) {
    std::string zeros = "-";
    if (result.gradients) {
      zeros = fmt::format("{:.1f}%, {:.1f}%, {:.1f}%, {:.1f}%", 100 * result.gradients->zero_Wq,
                          100 * result.gradients->zero_Wk, 100 * result.gradients->zero_Wv,
                          100 * result.gradients->zero_others);
    }
    fmt::print("  {:<12} {:>6} {:>9} {:>10} {:>10} {:>8} {:>10} {:>9}   {}\n", name(result.run->precision),
               result.run->steps.size(), number_or(result.loss, "{:.4f}"), number_or(result.validation_loss, "{:.4f}"),
               result.above_fp32 ? fmt::format("{:+.2f}%", 100 * *result.above_fp32) : "-", result.skipped(),
               fmt::format("{}", result.run->scaler.scale), number_or(result.tokens_per_second, "{:.0f}"), zeros);
  }
  fmt::print("\nloss: mean over the last tenth of the steps; zero gradients: share in the last step.\n");
  for (const RunResult& result : trained.runs) {
    if (!result.problem.empty())
      fmt::print("\n{}: {}\n", session.colored(name(result.run->precision), "bold"), result.problem);
  }
  for (const RunResult& result : trained.runs) {
    const std::vector<std::string> events = scale_events(*result.run);
    constexpr std::size_t most = 12;
    if (!events.empty()) fmt::print("\n{}\n", session.colored(name(result.run->precision), "bold"));
    for (std::size_t i = 0; i < std::min(most, events.size()); ++i) fmt::print("  {}\n", events[i]);
    if (events.size() > most) fmt::print("  and {} more: see the CSV file\n", events.size() - most);
  }
}

json results_json(const Experiment& experiment, const Trained& trained, const std::vector<std::string>& files) {
  json runs = json::array();
  for (const RunResult& result : trained.runs) {
    json losses = json::array(), scales = json::array(), skips = json::array();
    for (std::size_t i = 0; i < result.run->steps.size(); ++i) {
      losses.push_back(number_json(result.run->steps[i].loss));
      scales.push_back(number_json(result.run->steps[i].scale));
      if (result.run->steps[i].skipped) skips.push_back(i + 1);
    }
    const auto fact = [&](double Trainer::GradientFacts::*which) {
      return result.gradients ? number_json((*result.gradients).*which) : json(nullptr);
    };
    runs.push_back({{"precision", name(result.run->precision)},
                    {"steps", result.run->steps.size()},
                    {"loss", number_json(result.loss)},
                    {"validation_loss", number_json(result.validation_loss)},
                    {"above_fp32", number_json(result.above_fp32)},
                    {"scale", number_json(result.run->scaler.scale)},
                    {"zero_Wq", fact(&Trainer::GradientFacts::zero_Wq)},
                    {"zero_Wk", fact(&Trainer::GradientFacts::zero_Wk)},
                    {"zero_Wv", fact(&Trainer::GradientFacts::zero_Wv)},
                    {"zero_others", fact(&Trainer::GradientFacts::zero_others)},
                    {"dO_of_a_token", fact(&Trainer::GradientFacts::dO_of_a_token)},
                    {"losses", losses},
                    {"scales", scales},
                    {"skipped_steps", skips},
                    {"tokens_per_second", number_json(result.tokens_per_second)},
                    {"problem", result.problem.empty() ? json(nullptr) : json(result.problem)}});
  }
  const Settings& s = experiment.settings;
  return {{"finished", trained.finished},
          {"tokens_of_a_step", s.tokens() / s.shares},
          {"tokens_of_the_mean", s.tokens()},
          {"weights", weight_count(s.model)},
          {"seed", s.seed},
          {"text_bytes", experiment.text.size()},
          {"attention", experiment.code.tree.empty() ? "plain" : experiment.code.tree},
          {"backend", experiment.code.backend ? json(name(*experiment.code.backend)) : json(nullptr)},
          {"runs", runs},
          {"files", files}};
}

}  // namespace workbook::cli
