// Pictures of numbers: a row's running softmax, number formats, and the gradients' position in their ranges.
#include <algorithm>
#include <cmath>

#include "common/attention/inputs.hpp"
#include "common/attention/oracle.hpp"
#include "common/pictures/kinds.hpp"

namespace workbook::pictures {
namespace {

/// Maximum and sum of exp(s - maximum) of the first `count` scores, from the oracle's LSE, and the weighted sum of the
/// first `count` values.
struct SoftmaxState {
  double m, l, O = 0;
};
SoftmaxState state_after(const std::vector<double>& scores, std::size_t count, const std::vector<double>& values = {}) {
  Problem problem;
  problem.shape = {.B = 1, .H = 1, .Hkv = 1, .Nq = 1, .Nk = std::int64_t(count), .d = 1};
  problem.scale = 1;
  problem.Q = Tensor<float>({1, 1, 1, 1}, 1);  // a score then equals the key
  problem.K = problem.V = Tensor<float>({1, 1, std::int64_t(count), 1});
  for (std::size_t i = 0; i < count; ++i) {
    problem.K.values[i] = float(scores[i]);
    problem.V.values[i] = values.empty() ? 0 : float(values[i]);
  }
  const auto result = forward_oracle(problem, 1);
  const double m = *std::max_element(scores.begin(), scores.begin() + std::ptrdiff_t(count));
  const double l = std::exp(result.lse.values[0] - m);
  return {m, l, result.O.values[0] * l};
}

}  // namespace

/// For blocks of every length: data for a picture, and for a page that goes step by step.
Facts softmax_facts(const Request& request) {
  const std::vector<double> scores = request.parameters.numbers("scores");
  const auto block = std::size_t(request.parameters.count("block"));
  Facts passes = Facts::array();
  for (std::size_t length = 1; length <= scores.size(); ++length) {
    Facts steps = Facts::array();
    SoftmaxState before{-INFINITY, 0};
    for (std::size_t first = 0; first < scores.size(); first += length) {
      const std::size_t last = std::min(first + length, scores.size());
      const SoftmaxState now = state_after(scores, last);
      const double factor = std::exp(before.m - now.m);
      steps.push_back({{"first", first},
                       {"last", last},
                       {"m", now.m},
                       {"factor", factor},
                       {"added", now.l - before.l * factor},
                       {"l", now.l}});
      before = now;
    }
    passes.push_back({{"block", length}, {"steps", steps}});
  }
  const SoftmaxState all = state_after(scores, scores.size());
  std::vector<double> weights;
  for (const double score : scores) weights.push_back(std::exp(score - all.m) / all.l);
  return {
      {"scores", scores}, {"block", block}, {"passes", passes}, {"lse", all.m + std::log(all.l)}, {"weights", weights}};
}

Facts algorithm_facts(const Request& request) {
  Parameters& p = request.parameters;
  const std::vector<double> scores = p.numbers("scores"), values = p.numbers("values");
  const auto keys = std::size_t(p.count("keys")), columns = std::size_t(p.count("columns")),
             block = std::size_t(p.count("block"));
  if (scores.size() % keys != 0 || values.size() != keys * columns || keys % block != 0)
    p.fail(
        "scores must be rows of `keys` numbers, values `keys` rows of `columns` numbers, and block must divide keys");
  const auto part = [](const std::vector<double>& all, std::size_t first, std::size_t count, std::size_t step) {
    std::vector<double> taken;
    for (std::size_t i = 0; i < count; ++i) taken.push_back(all[first + i * step]);
    return taken;
  };
  std::vector<std::vector<double>> S, V;
  for (std::size_t i = 0; i < scores.size(); i += keys) S.push_back(part(scores, i, keys, 1));
  for (std::size_t j = 0; j < keys; ++j) V.push_back(part(values, j * columns, columns, 1));
  Facts steps = Facts::array();
  for (std::size_t last = block; last <= keys; last += block) {
    std::vector<double> m, l;
    std::vector<std::vector<double>> O;
    for (const std::vector<double>& row : S) {
      O.emplace_back();
      for (std::size_t c = 0; c < columns; ++c)
        O.back().push_back(state_after(row, last, part(values, c, keys, columns)).O);
      const SoftmaxState state = state_after(row, last);
      m.push_back(state.m);
      l.push_back(state.l);
    }
    steps.push_back({{"m", m}, {"l", l}, {"O", O}});
  }
  return {{"Bc", block}, {"S", S}, {"V", V}, {"steps", steps}};
}

namespace {

struct Format {
  std::string name;
  int exponent, mantissa;
  bool infinity;
  int bias() const { return (1 << (exponent - 1)) - 1; }
  /// Without infinity, only the last code is not a number.
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
    p.fail("names, exponent_bits and mantissa_bits must have the same length");
  std::vector<Format> formats;
  for (std::size_t i = 0; i < names.size(); ++i)
    formats.push_back({names[i], int(exponents[i]), int(mantissas[i]), std::ranges::count(without, names[i]) == 0});
  return formats;
}

Facts all_facts(const std::vector<Format>& formats) {
  Facts all = Facts::array();
  for (const Format& format : formats) {
    all.push_back({{"name", format.name},
                   {"exponent", format.exponent},
                   {"mantissa", format.mantissa},
                   {"largest", format.largest()},
                   {"smallest_normal", format.smallest_normal()},
                   {"smallest", format.smallest()}});
  }
  return all;
}

}  // namespace

Facts ranks_facts(const Request& request) {
  Parameters& p = request.parameters;
  Facts facts{{"tflops", p.number("tflops")}, {"gbs", p.number("gbs")}, {"links", p.numbers("links")}};
  for (const char* name : {"heads", "d", "ranks", "tokens", "group"}) facts[name] = p.count(name);
  return facts;
}

Facts formats_facts(const Request& request) {
  return {{"formats", all_facts(read_formats(request.parameters))}};
}

namespace {

/// The number of elements of dO, dP and dS between 2^i and 2^(i + 1), for a sample of the rows of one head without a
/// mask.
struct Sizes {
  static constexpr int kLowest = -64, kBins = 104;
  std::string name;
  std::vector<int> bins = std::vector<int>(kBins, 0);
  int all = 0, zero = 0;  ///< zero: number of elements that the format rounds to 0
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

Facts ranges_facts(const Request& request) {
  Parameters& p = request.parameters;
  const std::vector<Format> formats = read_formats(p);
  const std::string over = p.text("over");
  const auto chosen = std::ranges::find(formats, over, &Format::name);
  if (chosen == formats.end()) p.fail("over must be one of names");
  Facts tensors = Facts::array();
  for (const Sizes& tensor : gradient_sizes(p, chosen->smallest()))
    tensors.push_back({{"name", tensor.name}, {"bins", tensor.bins}, {"zero", tensor.zero}, {"all", tensor.all}});
  return {{"formats", all_facts(formats)},
          {"over", over},
          {"tensors", tensors},
          {"lowest", Sizes::kLowest},
          {"rows", kSampledRows},
          {"keys", p.count("keys")},
          {"d", p.count("d")},
          {"gradient", p.number("gradient")},
          {"tokens", p.number("tokens")}};
}

}  // namespace workbook::pictures
