#include "common/bench/figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace workbook::bench {
namespace {

using Style = Curve::Style;

/// Peers are dashed.
Curve curve_for(const Results& results, const std::string& name) {
  const std::vector<std::string> peers = results.names("peer");
  return {name, std::ranges::count(peers, name) > 0 ? Style::dashed : Style::line_and_points, 0, {}};
}

/// A curve over N for each name; `value` returns nothing if there is no point.
Panel over_lengths(const Results& results, const std::vector<std::string>& names, Panel panel,
                   const std::function<std::optional<double>(const std::string&, std::int64_t)>& value) {
  panel.x_label = "sequence length N";
  panel.x_log = panel.x_is_length = true;
  for (const std::string& name : names) {
    Curve curve = curve_for(results, name);
    for (const std::int64_t N : results.lengths()) {
      if (const auto y = value(name, N)) curve.points.emplace_back(double(N), *y);
    }
    if (!curve.points.empty()) panel.curves.push_back(std::move(curve));
  }
  return panel;
}

const Point* timed(const Results& results, const std::string& name, const std::string& pass, const Mask& mask,
                   std::int64_t N, std::int64_t d) {
  const Point* found = results.find(name, pass, mask, N, d);
  return found && found->ok() && found->times ? found : nullptr;
}

/// The figures whose panels have curves.
void add(std::vector<Figure>& figures, Figure figure) {
  std::erase_if(figure.panels, [](const Panel& panel) { return panel.curves.empty(); });
  if (!figure.panels.empty()) figures.push_back(std::move(figure));
}

Figure speed(const Results& results, const std::string& pass, const Mask& mask) {
  Figure figure{mask == Mask::none ? "speed_" + pass : fmt::format("speed_{}_{}", pass, mask.name()),
                fmt::format("Speed over N, {} pass{}. FLOPs by the usual convention; fp16.", pass,
                            mask == Mask::none ? "" : fmt::format(", {}", mask.name())),
                {}};
  for (const std::int64_t d : results.head_dims()) {
    Panel panel;
    panel.title = fmt::format("{}, d = {}", pass_text(pass, mask), d);
    panel.y_label = "TFLOP/s";
    panel = over_lengths(results, results.names(), panel,
                         [&](const std::string& name, std::int64_t N) -> std::optional<double> {
                           const Point* p = timed(results, name, pass, mask, N, d);
                           return p ? std::optional(flops_per_second(*p) / 1e12) : std::nullopt;
                         });
    const auto roof = [&](const std::string& title, std::optional<double> value) {
      if (!value || panel.curves.empty()) return;
      Curve curve{title, Style::roof, 0, {}};
      for (const std::int64_t N : results.lengths()) curve.points.emplace_back(double(N), *value / 1e12);
      panel.curves.push_back(std::move(curve));
    };
    roof("cuBLAS matmul, measured", results.roofs.product_flops);
    figure.panels.push_back(std::move(panel));
  }
  return figure;
}

/// The stage that writes S and P to device memory: the book's first.
std::optional<std::string> standard_attention(const Results& results) {
  std::vector<std::string> names = results.names("stage");
  std::ranges::sort(names);
  if (names.empty()) return std::nullopt;
  return names.front();
}

Figure speed_up(const Results& results) {
  Figure figure{
      "speed_up",
      "Time of standard attention (three kernels, S and P in device memory) over the time of each fused stage; "
      "forward, not causal.",
      {}};
  const auto standard = standard_attention(results);
  if (!standard) return figure;
  std::vector<std::string> fused = results.names("stage");
  std::erase(fused, *standard);
  for (const std::int64_t d : results.head_dims()) {
    Panel panel;
    panel.title = fmt::format("fused over standard attention, d = {}", d);
    for (const Point& p : results.points) {
      if (p.name == *standard && p.result == "out of memory" && p.shape.d() == d && p.shape.mask == Mask::none) {
        panel.title += fmt::format("\nstandard attention: out of memory at N = {}", p.shape.N());
        break;
      }
    }
    panel.y_label = "speed-up";
    figure.panels.push_back(
        over_lengths(results, fused, panel, [&](const std::string& name, std::int64_t N) -> std::optional<double> {
          const Point* a = timed(results, *standard, "forward", false, N, d);
          const Point* b = timed(results, name, "forward", false, N, d);
          return a && b ? std::optional(a->times->median / b->times->median) : std::nullopt;
        }));
  }
  return figure;
}

Figure memory(const Results& results) {
  Figure figure{"memory",
                "Memory in addition to inputs and outputs, per head. A stage's LSE, which the backward pass needs, is "
                "included; PyTorch computes one only if needed.",
                {}};
  for (const char* pass : {"forward", "backward"}) {
    Panel panel;
    panel.title = fmt::format("extra memory, {}", pass);
    panel.y_label = "bytes per head";
    panel.y_log = true;
    figure.panels.push_back(over_lengths(
        results, results.names(), panel, [&](const std::string& name, std::int64_t N) -> std::optional<double> {
          for (const std::int64_t d : results.head_dims()) {
            const Point* p = timed(results, name, pass, Mask::none, N, d);
            if (p == nullptr || !p->extra_bytes) continue;
            const double lse = p->kind == "stage" && p->shape.pass == "forward" ? 4.0 * double(N) : 0;
            const double bytes = *p->extra_bytes / double(p->shape.B() * p->shape.H()) + lse;
            if (bytes > 0) return bytes;
          }
          return std::nullopt;
        }));
  }
  return figure;
}

Figure causal_gain(const Results& results) {
  Figure figure{"causal",
                "Time without the causal mask over the time with it. Half of the pairs are unmasked, so skipping the "
                "rest gives at most 2N/(N+1).",
                {}};
  for (const char* pass : {"forward", "backward"}) {
    for (const std::int64_t d : results.head_dims()) {
      Panel panel;
      panel.title = fmt::format("{}, d = {}", pass, d);
      panel.y_label = "speed-up with the mask";
      panel = over_lengths(results, results.names(), panel,
                           [&](const std::string& name, std::int64_t N) -> std::optional<double> {
                             const Point* a = timed(results, name, pass, Mask::none, N, d);
                             const Point* b = timed(results, name, pass, Mask::causal, N, d);
                             return a && b ? std::optional(a->times->median / b->times->median) : std::nullopt;
                           });
      if (!panel.curves.empty()) {
        Curve ideal{"2N/(N+1)", Style::roof, 0, {}};
        for (const std::int64_t N : results.lengths())
          ideal.points.emplace_back(double(N), 2.0 * double(N) / double(N + 1));
        panel.curves.push_back(std::move(ideal));
      }
      figure.panels.push_back(std::move(panel));
    }
  }
  return figure;
}

/// Bytes between L2 and device memory, measured by the profiler.
std::optional<double> dram_bytes(const Point& p) {
  const auto read = p.profile.find("dram__bytes_read.sum"), written = p.profile.find("dram__bytes_write.sum");
  if (read == p.profile.end() || written == p.profile.end()) return std::nullopt;
  return read->second + written->second;
}

/// The N of the roofline: the largest up to 8192 that was profiled, or else the largest up to 8192.
std::int64_t roofline_length(const Results& results) {
  std::int64_t plain = 0, profiled = 0;
  for (const Point& p : results.points) {
    if (p.backend != Backend::cuda || !p.ok() || p.shape.N() > 8192 || p.kind != "stage") continue;
    plain = std::max(plain, p.shape.N());
    if (!p.profile.empty()) profiled = std::max(profiled, p.shape.N());
  }
  return profiled != 0 ? profiled : plain;
}

Panel roofline_panel(const Results& results, const std::string& title, const std::string& x_label, double slope,
                     const std::function<std::optional<double>(const Point&)>& bytes) {
  Panel panel;
  panel.title = title;
  panel.x_label = x_label;
  panel.y_label = "TFLOP/s";
  panel.x_log = panel.y_log = true;
  const std::int64_t N = roofline_length(results);
  double x_low = 1e300, x_high = 0;
  const std::vector<std::int64_t> head_dims = results.head_dims();
  for (const std::string& name : results.names("stage")) {
    bool titled = false;
    for (const Mask mask : {Mask::none, Mask::causal}) {
      for (std::size_t i = 0; i < head_dims.size(); ++i) {
        Curve curve = curve_for(results, name);
        curve.style = Style::points;
        curve.form = 2 * int(i) + (mask == Mask::none ? 0 : 1);
        if (titled) curve.title.clear();
        for (const Point& p : results.points) {
          const auto all = bytes(p);
          const bool here = p.name == name && p.shape.N() == N && p.shape.d() == head_dims[i] && p.shape.mask == mask;
          if (!here || p.backend != Backend::cuda || !p.ok() || !all) continue;
          const double x = flops(p.shape) / *all;
          curve.points.emplace_back(x, flops_per_second(p) / 1e12);
          x_low = std::min(x_low, x);
          x_high = std::max(x_high, x);
        }
        if (curve.points.empty()) continue;
        titled = true;
        panel.curves.push_back(std::move(curve));
      }
    }
  }
  if (panel.curves.empty()) return panel;
  const Roofs& roofs = results.roofs;
  const double highest = std::max(roofs.peak_flops.value_or(0), roofs.product_flops.value_or(0));
  const double last = std::max(x_high, highest / slope) * 2;
  const auto roof = [&](const std::string& roof_title, double flat) {
    const double ridge = flat / slope, first = std::min(x_low, ridge) / 2;
    Curve curve{roof_title, Style::roof, 0, {}};
    curve.points = {{first, first * slope / 1e12}, {ridge, flat / 1e12}, {last, flat / 1e12}};
    panel.curves.push_back(std::move(curve));
  };
  if (roofs.product_flops) roof("cuBLAS matmul, measured", *roofs.product_flops);
  if (roofs.peak_flops) roof("peak of the data sheet", *roofs.peak_flops);
  return panel;
}

Figure roofline(const Results& results) {
  Figure figure{"roofline", "", {}};
  const std::int64_t N = roofline_length(results);
  std::string forms;
  const char* const names_of_forms[] = {"small", "large", "largest"};
  for (std::size_t i = 0; i < results.head_dims().size() && i < 3; ++i)
    forms += fmt::format("{}{} d = {}", i == 0 ? "" : ", ", names_of_forms[i], results.head_dims()[i]);
  figure.caption = fmt::format(
      "Every stage under its roofs, N = {}: bytes that its kernels request from L2 (counted by the simulator), and "
      "bytes that reach device memory (measured by the profiler, if profiled). {}; hollow: causal.",
      N, forms);
  if (results.roofs.l2_bytes) {
    figure.panels.push_back(
        roofline_panel(results, fmt::format("the L2 roof: {:.1f} TB/s, measured", *results.roofs.l2_bytes / 1e12),
                       "FLOP per byte requested (simulator)", *results.roofs.l2_bytes,
                       [](const Point& p) { return p.requested_bytes; }));
  }
  if (results.roofs.copy_bytes) {
    figure.panels.push_back(
        roofline_panel(results, fmt::format("the DRAM roof: {:.1f} TB/s, a copy", *results.roofs.copy_bytes / 1e12),
                       "FLOP per byte of DRAM (profiler)", *results.roofs.copy_bytes, dram_bytes));
  }
  return figure;
}

template <class T>
void add_once(std::vector<T>& list, const T& value) {
  if (std::ranges::find(list, value) == list.end()) list.push_back(value);
}

/// The steps that led to a stage, in their order.
Figure steps(const Results& results) {
  Figure figure{
      "steps",
      "The effect of each step within a chapter: the stage without its later steps, step after step, in the same run.",
      {}};
  std::vector<std::string> stages;
  for (const Point& p : results.points) {
    const std::size_t colon = p.name.find(": ");
    if (p.kind != "step" || !p.ok() || colon == std::string::npos) continue;
    const std::string stage = p.name.substr(0, colon);
    add_once(stages, stage);
  }
  for (const std::string& stage : stages) {
    Panel panel;
    panel.title = stage;
    panel.x_label = "step";
    panel.y_label = "TFLOP/s";
    std::vector<Shape> shapes;
    std::vector<std::string> titles;
    for (const Point& p : results.points) {
      if (p.kind != "step" || !p.name.starts_with(stage + ": ")) continue;
      add_once(titles, p.name.substr(stage.size() + 2));
      if (p.ok()) add_once(shapes, p.shape);
    }
    panel.x_ticks = titles;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const Shape& s = shapes[i];
      Curve curve{
          fmt::format("d = {}, N = {}, {}", s.d(), s.N(), pass_text(s.pass, s.mask)), Style::line_and_points, 0, {}};
      for (std::size_t step = 0; step < titles.size(); ++step) {
        for (const Point& p : results.points) {
          if (p.kind != "step" || !p.ok() || p.shape != s || p.name != stage + ": " + titles[step]) continue;
          curve.points.emplace_back(double(step), flops_per_second(p) / 1e12);
        }
      }
      panel.curves.push_back(std::move(curve));
    }
    figure.panels.push_back(std::move(panel));
  }
  return figure;
}

}  // namespace

std::vector<Figure> figures(const Results& results) {
  std::vector<Figure> all;
  for (const char* pass : {"forward", "backward"}) {
    for (const NamedMask& each : all_masks()) add(all, speed(results, pass, each.mask));
  }
  add(all, speed_up(results));
  add(all, memory(results));
  add(all, causal_gain(results));
  add(all, roofline(results));
  add(all, steps(results));
  return all;
}

nlohmann::ordered_json facts(const Figure& figure) {
  constexpr const char* styles[] = {"line_and_points", "line", "dashed", "points", "roof"};
  nlohmann::ordered_json panels = nlohmann::ordered_json::array();
  for (const Panel& panel : figure.panels) {
    nlohmann::ordered_json curves = nlohmann::ordered_json::array();
    for (const Curve& curve : panel.curves) {
      curves.push_back({{"title", curve.title},
                        {"style", styles[int(curve.style)]},
                        {"form", curve.form},
                        {"points", curve.points}});
    }
    panels.push_back({{"title", panel.title},
                      {"x_label", panel.x_label},
                      {"y_label", panel.y_label},
                      {"x_log", panel.x_log},
                      {"y_log", panel.y_log},
                      {"x_is_length", panel.x_is_length},
                      {"x_ticks", panel.x_ticks},
                      {"y_from_zero", panel.y_from_zero},
                      {"curves", curves}});
  }
  return {{"kind", "plot"}, {"title", figure.caption}, {"panels", panels}};
}

}  // namespace workbook::bench
