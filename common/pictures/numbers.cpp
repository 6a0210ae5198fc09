// Pictures of numbers: a row's running softmax, number formats, and where gradients lie in them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "common/attention/inputs.hpp"
#include "common/attention/oracle.hpp"
#include "common/pictures/axis.hpp"
#include "common/pictures/kinds.hpp"

namespace workbook::pictures {
namespace {

/// Maximum and sum of exp(s - maximum) of the first `count` scores, from the oracle's LSE.
struct State {
  double m, l;
};
State state_after(const std::vector<double>& scores, std::size_t count) {
  Problem problem;
  problem.shape = {.B = 1, .H = 1, .Hkv = 1, .Nq = 1, .Nk = std::int64_t(count), .d = 1};
  problem.scale = 1;
  problem.Q = Tensor<float>({1, 1, 1, 1}, 1);  // a score is then the key itself
  problem.K = problem.V = Tensor<float>({1, 1, std::int64_t(count), 1});
  for (std::size_t i = 0; i < count; ++i) problem.K.values[i] = float(scores[i]);
  const double m = *std::max_element(scores.begin(), scores.begin() + std::ptrdiff_t(count));
  return {m, std::exp(forward_oracle(problem, 1).lse.values[0] - m)};
}

/// For a page on which the blocks' length can be chosen and one goes step by step.
nlohmann::ordered_json softmax_facts(const std::vector<double>& scores, std::size_t block) {
  nlohmann::ordered_json walks = nlohmann::ordered_json::array();
  for (std::size_t length = 1; length <= scores.size(); ++length) {
    nlohmann::ordered_json steps = nlohmann::ordered_json::array();
    State before{-INFINITY, 0};
    for (std::size_t first = 0; first < scores.size(); first += length) {
      const std::size_t last = std::min(first + length, scores.size());
      const State now = state_after(scores, last);
      const double factor = std::exp(before.m - now.m);
      steps.push_back({{"first", first},
                       {"last", last},
                       {"m", now.m},
                       {"factor", factor},
                       {"added", now.l - before.l * factor},
                       {"l", now.l}});
      before = now;
    }
    walks.push_back({{"block", length}, {"steps", steps}});
  }
  const State all = state_after(scores, scores.size());
  std::vector<double> weights;
  for (const double score : scores) weights.push_back(std::exp(score - all.m) / all.l);
  return {
      {"scores", scores}, {"block", block}, {"walks", walks}, {"lse", all.m + std::log(all.l)}, {"weights", weights}};
}

}  // namespace

Drawing draw_softmax(const Request& request) {
  const std::vector<double> scores = request.parameters.numbers("scores");
  const auto block = std::size_t(request.parameters.count("block"));
  const std::size_t blocks = (scores.size() + block - 1) / block;
  const double highest = *std::max_element(scores.begin(), scores.end());
  Drawing drawing;
  Svg& svg = drawing.svg;
  constexpr double left = 110, base = 190, unit_top = 40;
  const double width = (Svg::kWidth - left) / double(blocks), unit = (base - unit_top) / highest;
  svg.text(0, 20, "scores", kHead);
  svg.colored(0, 40, "running maximum m", 4, kSmall);
  double before_m = 0;
  for (std::size_t b = 0; b < blocks; ++b) {
    const double x = left + double(b) * width;
    const std::size_t first = b * block, last = std::min(first + block, scores.size());
    const State now = state_after(scores, last);
    svg.rectangle(x + 4, 24, width - 8, base - 24, {Fill::faint, 0, false, false}, 4);
    svg.text(x + width / 2, 16, fmt::format("block {}", b), middle(kSoft));
    const double bar = std::min(48., (width - 40) / double(block) - 10);
    for (std::size_t i = first; i < last; ++i) {
      const double at = x + width / 2 + (double(i - first) - double(last - first) / 2) * (bar + 10) + 5;
      svg.rectangle(at, base - scores[i] * unit, bar, scores[i] * unit, tile(int(b)));
      svg.text(at + bar / 2, base - scores[i] * unit - (scores[i] * unit < 14 ? 4 : -14),
               fmt::format("{:g}", scores[i]), middle(kSmall));
    }
    svg.line(x + 4, base - now.m * unit, x + width - 4, base - now.m * unit, Line::strong, 4);
    const double factor = b == 0 ? 0 : std::exp(before_m - now.m);
    const double text_x = x + width / 2;
    const double before_l = b == 0 ? 0 : state_after(scores, first).l;
    double added = 0;
    for (std::size_t i = first; i < last; ++i) added += std::exp(scores[i] - now.m);
    svg.text(text_x, base + 26, fmt::format("{:g}", now.m), kCentered);
    svg.text(text_x, base + 52,
             b == 0 ? "exp(-inf) = 0" : fmt::format("exp({:g} - {:g}) = {:.4f}", before_m, now.m, factor),
             middle(kSmall));
    svg.text(text_x, base + 78, fmt::format("{:.4f}", added), kCentered);
    svg.text(text_x, base + 104, fmt::format("{:.4f} x {:.4f} + {:.4f}", before_l, factor, added), middle(kSmall));
    svg.text(text_x, base + 124, fmt::format("= {:.4f}", now.l), {{}, Words::Anchor::middle, true, false});
    drawing.description +=
        fmt::format("After block {}: m = {:g}, factor {:.4f}, l = {:.4f}. ", b, now.m, factor, now.l);
    before_m = now.m;
  }
  const State all = state_after(scores, scores.size());
  for (const auto& [y, text] :
       {std::pair{26, "m"}, std::pair{52, "factor for l and O"}, std::pair{78, "this block adds"}, std::pair{104, "l"}})
    svg.text(0, base + y, text, kSmall);
  svg.line(0, base + 136, Svg::kWidth, base + 136, Line::thin);
  const std::string end = fmt::format("All at once: m = {:g}, l = {:.4f}. LSE = {:g} + log {:.4f} = {:.4f}.", all.m,
                                      all.l, all.m, all.l, all.m + std::log(all.l));
  svg.text(0, base + 156, end, kSmall);
  drawing.description += end;
  drawing.height = base + 166;
  drawing.facts = softmax_facts(scores, block);
  return drawing;
}

namespace {

struct Format {
  std::string name;
  int exponent, mantissa;
  bool infinity;
  int bias() const { return (1 << (exponent - 1)) - 1; }
  int bits() const { return 1 + exponent + mantissa; }
  /// Without infinity only the very last code is no number.
  double largest() const {
    return infinity ? std::ldexp(2 - std::ldexp(1, -mantissa), bias())
                    : std::ldexp(2 - std::ldexp(2, -mantissa), bias() + 1);
  }
  double smallest_normal() const { return std::ldexp(1, 1 - bias()); }
  double smallest() const { return std::ldexp(1, 1 - bias() - mantissa); }
};

std::vector<Format> read_formats(Parameters& p) {
  const std::vector<std::string> names = p.texts("names"), without = p.texts("without_infinity");
  const std::vector<double> exponents = p.numbers("exponent_bits"), mantissas = p.numbers("mantissa_bits");
  if (exponents.size() != names.size() || mantissas.size() != names.size())
    p.fail("names, exponent_bits and mantissa_bits are equally many");
  std::vector<Format> formats;
  for (std::size_t i = 0; i < names.size(); ++i)
    formats.push_back({names[i], int(exponents[i]), int(mantissas[i]), std::ranges::count(without, names[i]) == 0});
  return formats;
}

/// "65504", "3.39e+38"
std::string value_text(double value) {
  return value >= 0.01 && value < 1e6 ? fmt::format("{:g}", value) : fmt::format("{:.2e}", value);
}

}  // namespace

Drawing draw_formats(const Request& request) {
  const std::vector<Format> formats = read_formats(request.parameters);
  Drawing drawing;
  Svg& svg = drawing.svg;
  constexpr double left = 80, bit = 19, height = 24, step = 64;
  double y = 28;
  svg.rectangle(left, 6, 12, 12, tile(4));
  svg.text(left + 18, 16, "sign", kSmall);
  svg.rectangle(left + 60, 6, 12, 12, tile(0));
  svg.text(left + 78, 16, "exponent: how far it reaches", kSmall);
  svg.rectangle(left + 270, 6, 12, 12, tile(2));
  svg.text(left + 288, 16, "mantissa: how finely it divides", kSmall);
  for (const Format& format : formats) {
    svg.text(0, y + 17, format.name, kHead);
    for (int i = 0; i < format.bits(); ++i)
      svg.rectangle(left + i * bit, y, bit, height, tile(i == 0 ? 4 : i <= format.exponent ? 0 : 2));
    const std::string facts = fmt::format("{} + {} + {} = {} bits; largest {}, smallest normal {}, smallest {}", 1,
                                          format.exponent, format.mantissa, format.bits(), value_text(format.largest()),
                                          value_text(format.smallest_normal()), value_text(format.smallest()));
    svg.text(left, y + height + 16, facts, kSoft);
    drawing.description += format.name + ": " + facts + ". ";
    y += step;
  }
  drawing.height = y - 8;
  return drawing;
}

namespace {

/// How many of dO, dP and dS lie between 2^i and 2^(i + 1), for one head without a mask, a sample of its rows.
struct Sizes {
  static constexpr int kLowest = -64, kBins = 104;
  std::string name;
  std::vector<int> bins = std::vector<int>(kBins, 0);
  int all = 0, zero = 0;  ///< zero: rounded to a multiple of the format's smallest number
  void add(double value, double smallest) {
    ++all;
    zero += std::abs(value) <= smallest / 2;
    const int bin = value == 0 ? 0 : int(std::floor(std::log2(std::abs(value)))) - kLowest;
    ++bins[std::size_t(std::clamp(bin, 0, kBins - 1))];
  }
};

constexpr std::size_t kSampledRows = 64;

std::vector<Sizes> gradient_sizes(Parameters& p, double smallest) {
  const auto N = std::size_t(p.count("keys")), d = std::size_t(p.count("d"));
  const double dO_size = p.number("gradient") / p.number("tokens"), scale = 1 / std::sqrt(double(d));
  constexpr std::size_t rows = kSampledRows;
  const std::vector<float> Q = normal_values(rows * d, 1), K = normal_values(N * d, 2), V = normal_values(N * d, 3),
                           dO = normal_values(rows * d, 4);
  std::vector<Sizes> sizes{{"dO"}, {"dP"}, {"dS"}};
  std::vector<double> P(N), dP(N);
  for (std::size_t i = 0; i < rows; ++i) {
    double l = 0, D = 0;
    for (std::size_t j = 0; j < N; ++j) {
      double s = 0, g = 0;
      for (std::size_t c = 0; c < d; ++c) {
        s += double(Q[i * d + c]) * double(K[j * d + c]);
        g += double(dO[i * d + c]) * dO_size * double(V[j * d + c]);
      }
      l += P[j] = std::exp(scale * s);
      dP[j] = g;
    }
    for (std::size_t j = 0; j < N; ++j) D += P[j] / l * dP[j];
    for (std::size_t c = 0; c < d; ++c) sizes[0].add(double(dO[i * d + c]) * dO_size, smallest);
    for (std::size_t j = 0; j < N; ++j) {
      sizes[1].add(dP[j], smallest);
      sizes[2].add(P[j] / l * (dP[j] - D), smallest);
    }
  }
  return sizes;
}

}  // namespace

Drawing draw_ranges(const Request& request) {
  Parameters& p = request.parameters;
  const std::vector<Format> formats = read_formats(p);
  const std::string over = p.text("over");
  const auto chosen = std::ranges::find(formats, over, &Format::name);
  if (chosen == formats.end()) p.fail("over is one of names");
  const std::vector<Sizes> sizes = gradient_sizes(p, chosen->smallest());
  Drawing drawing;
  Svg& svg = drawing.svg;
  // Powers of two from far below to far above; what reaches further is cut off and says so.
  constexpr int low = -64, high = 40;
  constexpr double left = 80, right_end = Svg::kWidth - 10, row = 30, top = 46;
  const auto x = [&](double power) {
    return left + (std::clamp<double>(power, low, high) - low) / (high - low) * (right_end - left);
  };
  const double ranges_end = top + double(formats.size()) * row, hill = 74;
  const double end = ranges_end + 30 + double(sizes.size()) * hill;
  for (int power = -60; power <= high; power += 20) {
    svg.line(x(power), top - 8, x(power), end, Line::thin);
    svg.text(x(power), top - 14, fmt::format("2^{}", power), middle(kSoft));
  }
  svg.text(left, 14, "Outlined: normal numbers; pale: subnormal ones. An arrow: it reaches further.", kSoft);
  double y = top;
  for (const Format& format : formats) {
    const double smallest = std::log2(format.smallest()), normal = std::log2(format.smallest_normal()),
                 largest = std::log2(format.largest());
    svg.text(0, y + 15, format.name, {{}, {}, &format == &*chosen, false});
    svg.rectangle(x(smallest), y + 2, x(normal) - x(smallest), 18, pale(0));
    svg.rectangle(x(normal), y + 2, x(largest) - x(normal), 18, tile(0));
    if (smallest < low) svg.text(left - 4, y + 15, "◀", right(kSmall));
    if (largest > high) svg.text(right_end - 12, y + 15, "▶", kSmall);
    drawing.description += fmt::format("{}: 2^{:.0f} (normal from 2^{:.0f}) to {}. ", format.name, smallest, normal,
                                       value_text(format.largest()));
    y += row;
  }
  for (const double bound : {std::log2(chosen->smallest()), std::log2(chosen->largest())})
    svg.line(x(bound), top, x(bound), end, Line::dashed, 4);
  y = ranges_end + 24;
  int color = 1;
  for (const Sizes& tensor : sizes) {
    const double base = y + hill - 12;
    const int most = *std::max_element(tensor.bins.begin(), tensor.bins.end());
    std::vector<std::pair<double, double>> points;
    for (int bin = 0; bin < Sizes::kBins; ++bin)
      points.emplace_back(x(Sizes::kLowest + bin + 0.5),
                          base - std::round((hill - 26) * tensor.bins[std::size_t(bin)] / most));
    svg.area(points, base, color);
    svg.text(0, base - 22, tensor.name, kHead);
    const std::string lost = fmt::format("{:.1f} % zero in {}", 100. * tensor.zero / tensor.all, over);
    svg.colored(x(std::log2(chosen->largest())) + 8, base - 8, lost, color, kSmall);
    drawing.description += fmt::format("{}: {}. ", tensor.name, lost);
    y += hill;
    ++color;
  }
  svg.colored(x(std::log2(chosen->smallest())) + 5, ranges_end + 14, over + "'s smallest number", 4, kSmall);
  svg.colored(x(std::log2(chosen->largest())) + 5, ranges_end + 14, "its largest", 4, kSmall);
  svg.text(
      0, end + 18,
      fmt::format("Computed for {} rows of one head, {} keys, d = {}: Q, K, V normal; dO normal, {:g} a token over "
                  "{:g} tokens.",
                  kSampledRows, p.count("keys"), p.count("d"), p.number("gradient"), p.number("tokens")),
      kSoft);
  drawing.height = end + 28;
  return drawing;
}

}  // namespace workbook::pictures
