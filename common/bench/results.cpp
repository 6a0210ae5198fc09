#include "common/bench/results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "common/attention/mask_text.hpp"
#include "common/attention/problem.hpp"

namespace workbook::bench {

using nlohmann::json;

Shape shape_of(const std::string& pass, const Mask& mask, std::int64_t B, std::int64_t H, std::int64_t N,
               std::int64_t d) {
  return {{{B, H, H, N, N, d}, default_scale(d), mask}, pass};
}

Shape usual_shape(const std::string& pass, const Mask& mask, std::int64_t N, std::int64_t d) {
  return shape_of(pass, mask, std::max<std::int64_t>(1, 16384 / N), std::max<std::int64_t>(1, 2048 / d), N, d);
}

std::string pass_text(const std::string& pass, const Mask& mask) {
  return mask == Mask::none ? pass : fmt::format("{}, {}", pass, mask.name());
}

double flops(const Shape& s) {
  double pairs = 0;
  for (std::int64_t query = 0; query < s.Nq(); ++query) pairs += double(s.mask.count(s.shape, query));
  return (s.pass == "backward" ? 2.5 : 1.0) * 4 * double(s.B() * s.H() * s.d()) * pairs;
}

Times summary(std::vector<double> seconds) {
  if (seconds.empty()) throw std::invalid_argument("summary of an empty list of times");
  std::sort(seconds.begin(), seconds.end());
  // Interpolates between adjacent values, so that few runs have a spread too.
  const auto at = [&](double share) {
    const double position = share * double(seconds.size() - 1);
    const auto below = std::size_t(position);
    const std::size_t above = std::min(below + 1, seconds.size() - 1);
    return seconds[below] + (position - double(below)) * (seconds[above] - seconds[below]);
  };
  return {at(0.5), at(0.1), at(0.9), std::int64_t(seconds.size())};
}

double parabola(const std::array<std::pair<double, double>, 3>& points, double x) {
  double sum = 0;  // Lagrange
  for (std::size_t i = 0; i < 3; ++i) {
    double term = points[i].second;
    for (std::size_t j = 0; j < 3; ++j) {
      if (j != i) term *= (x - points[j].first) / (points[i].first - points[j].first);
    }
    sum += term;
  }
  return sum;
}

std::optional<double> peak_flops(const std::string& gpu) {
  // In TFLOP/s. The first entry that the name contains is used; PCIe cards and smaller models precede the larger ones
  // of a family.
  const std::vector<std::pair<std::string, double>> known{
      {"H100 PCIe", 756}, {"H100 NVL", 835}, {"H100", 989}, {"H200 NVL", 835},
      {"H200", 989},      {"GH200", 989},    {"A100", 312}, {"A30", 165},
  };
  for (const auto& [name, peak] : known) {
    if (gpu.find(name) != std::string::npos) return peak * 1e12;
  }
  return std::nullopt;
}

bool Results::on_gpu() const {
  return std::any_of(points.begin(), points.end(), [](const Point& p) { return p.backend == Backend::cuda && p.ok(); });
}

bool Results::decoding() const {
  return on_gpu() && std::ranges::all_of(points, [](const Point& p) {
           return p.backend != Backend::cuda || !p.ok() || (p.shape.Nq() == 1 && p.shape.N() > 1);
         });
}

std::string Results::own_section() const {
  if (decoding()) return "decoding";
  if (!environment.contains(kFlashAttention3)) return "";
  const auto any = [&](auto what) { return std::ranges::any_of(points, what); };
  if (any([](const Point& p) { return p.shape.mask.kind == Mask::window; })) return "flash_attention_3_windows";
  if (any([](const Point& p) { return p.shape.H() != p.shape.Hkv(); })) return "flash_attention_3_groups";
  return "flash_attention_3";
}

const Point* Results::find(const std::string& name, const std::string& pass, const Mask& mask, std::int64_t N,
                           std::int64_t d) const {
  const auto found = std::ranges::find_if(points, [&](const Point& p) {
    const Shape& s = p.shape;
    return p.name == name && p.backend == Backend::cuda && s.pass == pass && s.mask == mask && s.N() == N && s.d() == d;
  });
  return found == points.end() ? nullptr : &*found;
}

std::vector<std::string> Results::names(const std::string& kind) const {
  std::vector<std::string> names;
  for (const Point& p : points) {
    if (p.backend != Backend::cuda || !p.ok() || p.kind == "step" || (!kind.empty() && p.kind != kind)) continue;
    if (std::find(names.begin(), names.end(), p.name) == names.end()) names.push_back(p.name);
  }
  return names;
}

std::vector<std::int64_t> Results::lengths() const {
  std::set<std::int64_t> all;
  for (const Point& p : points) {
    if (p.backend == Backend::cuda && p.kind != "step") all.insert(p.shape.N());
  }
  return {all.begin(), all.end()};
}
std::vector<std::int64_t> Results::head_dims() const {
  std::set<std::int64_t> all;
  for (const Point& p : points) {
    if (p.backend == Backend::cuda) all.insert(p.shape.d());
  }
  return {all.begin(), all.end()};
}

double flops_per_second(const Point& point) {
  return flops(point.shape) / point.times.value().median;
}
double tokens_per_second(const Point& point) {
  return double(point.shape.B() * point.shape.Nq()) / point.times.value().median;
}

namespace {

json number(const std::optional<double>& value) {
  return value ? json(*value) : json(nullptr);
}
std::optional<double> number(const json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}
json whole(const std::optional<double>& value) {
  return value ? json(std::int64_t(std::llround(*value))) : json(nullptr);
}
std::optional<double> share(std::optional<double> part, std::optional<double> whole) {
  return part && whole && *whole > 0 ? std::optional(*part / *whole) : std::nullopt;
}

/// In the order of the CSV columns.
nlohmann::ordered_json to_json(const Point& p, const Roofs& roofs) {
  const bool gpu = p.backend == Backend::cuda;
  std::optional<double> speed, tokens, bandwidth;
  if (p.times) {
    speed = flops_per_second(p);
    tokens = tokens_per_second(p);
    if (p.unique_bytes && gpu) bandwidth = *p.unique_bytes / p.times->median;
  }
  const auto of_times = [&](double Times::*member) { return p.times ? json((*p.times).*member) : json(nullptr); };
  return {{"name", p.name},
          {"kind", p.kind},
          {"source", p.source},
          {"backend", name(p.backend)},
          {"element", p.element},
          {"pass", p.shape.pass},
          {"mask", p.shape.mask.name()},
          {"B", p.shape.B()},
          {"H", p.shape.H()},
          {"Hkv", p.shape.Hkv()},
          {"Nq", p.shape.Nq()},
          {"N", p.shape.N()},
          {"d", p.shape.d()},
          {"result", p.result},
          {"message", p.message.empty() ? json(nullptr) : json(p.message)},
          {"runs", p.times ? json(p.times->runs) : json(nullptr)},
          {"seconds", of_times(&Times::median)},
          {"seconds_low", of_times(&Times::low)},
          {"seconds_high", of_times(&Times::high)},
          {"tflops", speed ? json(*speed / 1e12) : json(nullptr)},
          {"share_of_peak", number(gpu ? share(speed, roofs.peak_flops) : std::nullopt)},
          {"share_of_product", number(gpu ? share(speed, roofs.product_flops) : std::nullopt)},
          {"tokens_per_second", number(tokens)},
          {"extra_bytes", whole(p.extra_bytes)},
          {"requested_bytes", whole(p.requested_bytes)},
          {"unique_bytes", whole(p.unique_bytes)},
          {"gigabytes_per_second", bandwidth ? json(*bandwidth / 1e9) : json(nullptr)},
          {"share_of_copy", number(share(bandwidth, roofs.copy_bytes))},
          {"profile", p.profile}};
}

Point point_from(const json& j) {
  Point p;
  p.name = j.at("name");
  p.kind = j.at("kind");
  p.source = j.at("source");
  p.backend = worker::backend_of(j.at("backend").get<std::string>());
  p.element = j.at("element");
  const std::optional<Mask> mask = mask_of(j.at("mask").get<std::string>());
  if (!mask) throw ResultsError(fmt::format("a point has the unknown mask {}", j.at("mask").dump()));
  p.shape = shape_of(j.at("pass"), *mask, j.at("B"), j.at("H"), j.at("N"), j.at("d"));
  p.shape.shape.Hkv = j.value("Hkv", p.shape.H());  // absent in old results without shared heads
  p.shape.shape.Nq = j.value("Nq", p.shape.N());
  p.result = j.at("result");
  if (!j.at("message").is_null()) p.message = j.at("message");
  if (!j.at("seconds").is_null()) p.times = {j.at("seconds"), j.at("seconds_low"), j.at("seconds_high"), j.at("runs")};
  p.extra_bytes = number(j.at("extra_bytes"));
  p.requested_bytes = number(j.at("requested_bytes"));
  p.unique_bytes = number(j.at("unique_bytes"));
  p.profile = j.at("profile").get<std::map<std::string, double>>();
  const Shape& s = p.shape;
  if (s.B() < 1 || s.Hkv() < 1 || s.H() < s.Hkv() || s.Nq() < 1 || s.N() < 1 || s.d() < 1)
    throw ResultsError("a point has a size below 1");
  if (p.times && !(p.times->median > 0)) throw ResultsError("a point has a time of 0 or less");
  return p;
}

}  // namespace

json to_json(const Results& results) {
  json points = json::array();
  for (const Point& point : results.points) points.push_back(json(to_json(point, results.roofs)));
  return {{"environment", results.environment},
          {"roofs",
           {{"peak_flops", number(results.roofs.peak_flops)},
            {"product_flops", number(results.roofs.product_flops)},
            {"copy_bytes_per_second", number(results.roofs.copy_bytes)},
            {"l2_bytes_per_second", number(results.roofs.l2_bytes)}}},
          {"points", points},
          {"skipped", results.skipped}};
}

Results from_json(const json& document) {
  Results results;
  try {
    results.environment = document.at("environment").get<std::map<std::string, std::string>>();
    const json& roofs = document.at("roofs");
    results.roofs = {number(roofs.at("peak_flops")), number(roofs.at("product_flops")),
                     number(roofs.at("copy_bytes_per_second")), number(roofs.at("l2_bytes_per_second"))};
    for (const json& point : document.at("points")) results.points.push_back(point_from(point));
    results.skipped = document.at("skipped").get<std::vector<std::string>>();
  } catch (const json::exception& error) {
    throw ResultsError(fmt::format("not a result file of ./workbook bench: {}", error.what()));
  }
  return results;
}

std::string to_csv(const Results& results) {
  std::vector<std::string> columns;
  const nlohmann::ordered_json no_point = to_json(Point{}, results.roofs);
  for (const auto& [column, value] : no_point.items()) {
    if (column != "message" && column != "profile") columns.push_back(column);
  }
  const auto cell = [](const json& value) -> std::string {
    if (value.is_null()) return "";
    if (!value.is_string()) return value.dump();
    std::string quoted = "\"";
    for (const char c : value.get<std::string>()) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    return quoted + "\"";
  };
  std::string text;
  for (const auto& [key, value] : results.environment) text += fmt::format("# {}: {}\n", key, value);
  text += fmt::format("{}\n", fmt::join(columns, ","));
  for (const Point& point : results.points) {
    const nlohmann::ordered_json values = to_json(point, results.roofs);
    std::vector<std::string> cells;
    for (const std::string& column : columns) cells.push_back(cell(values.at(column)));
    text += fmt::format("{}\n", fmt::join(cells, ","));
  }
  return text;
}

}  // namespace workbook::bench
