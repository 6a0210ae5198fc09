#include "common/training/curves.hpp"

#include <fmt/format.h>

namespace workbook::training {

std::string losses_csv(const Trained& trained) {
  std::string text = "step";
  for (const RunResult& result : trained.runs) {
    const char* run = name(result.run->precision);
    text += fmt::format(",{} loss,{} scale,{} skipped", run, run, run);
  }
  text += '\n';
  for (std::size_t i = 0; i < trained.longest(); ++i) {
    text += std::to_string(i + 1);
    for (const RunResult& result : trained.runs) {
      if (i < result.run->steps.size()) {
        const StepRecord& step = result.run->steps[i];
        text += fmt::format(",{},{},{}", step.loss, step.scale, int(step.skipped));
      } else {
        text += ",,,";
      }
    }
    text += '\n';
  }
  return text;
}

nlohmann::ordered_json losses_facts(const Trained& trained) {
  nlohmann::ordered_json curves = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < trained.runs.size(); ++i) {
    nlohmann::ordered_json points = nlohmann::ordered_json::array();
    const std::vector<StepRecord>& steps = trained.runs[i].run->steps;
    for (std::size_t step = 0; step < steps.size(); ++step) points.push_back({step + 1, steps[step].loss});
    if (points.empty()) continue;
    curves.push_back(
        {{"title", name(trained.runs[i].run->precision)}, {"style", "line"}, {"form", 0}, {"points", points}});
  }
  const nlohmann::ordered_json panel{{"title", "Losses"},  {"x_label", "step"},    {"y_label", "nats per byte"},
                                     {"x_log", false},     {"y_log", false},       {"x_is_length", false},
                                     {"x_ticks", nullptr}, {"y_from_zero", false}, {"curves", curves}};
  return {{"kind", "plot"}, {"title", "The losses over the steps"}, {"panels", {panel}}};
}

}  // namespace workbook::training
