#include "common/judge/diagnosis.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>

#include "common/judge/compare.hpp"

namespace workbook::judge {
namespace {

// An output agrees with a mistake if two conditions hold.
//
// 1. On every element the two differ by at most `element_slack` times what is allowed there. The bounds are computed
// for the right answer. A mistake can produce larger intermediate values (unscaled scores, sums that are not divided),
// with larger rounding errors. So the tolerance also grows with the mistake's own values in that row, at the relative
// precision of the bounds.
// 2. In the root mean square, the output is ten times closer to the mistake than the mistake is to the right answer.
// This separates two cases that the first condition cannot: mistakes that hardly exceed the bounds, such as a P that is
// rounded too early, and outputs that are only slightly wrong.
constexpr double element_slack = 8;
constexpr double closer_by = 10;

/// The limit of multiply-adds for one diagnosis: about one second.
constexpr double cost_limit = 0x1p32;

bool same_kind(double a, double b) {
  if (std::isfinite(a) || std::isfinite(b)) return std::isfinite(a) && std::isfinite(b);
  return std::isnan(a) ? std::isnan(b) && is_unwritten(a) == is_unwritten(b) : a == b;
}

/// Comparison of two outputs: whether NaN and infinities coincide, and the difference of the finite values.
struct Distance {
  bool same_kinds = true;
  double largest = 0, rms = 0;
};

template <class A, class B>
Distance distance(const Tensor<A>& a, const Tensor<B>& b) {
  Distance result;
  double squares = 0;
  std::int64_t compared = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    const auto x = double(a.values[i]), y = double(b.values[i]);
    if (!same_kind(x, y)) result.same_kinds = false;
    // Equal infinities, or two NaN, count as a difference of 0, as in the bound on the mean.
    compared += same_kind(x, y);
    if (!std::isfinite(x) || !std::isfinite(y)) continue;
    result.largest = std::max(result.largest, std::abs(x - y));
    squares += (x - y) * (x - y);
  }
  if (compared > 0) result.rms = std::sqrt(squares / double(compared));
  return result;
}

/// Whether `output` is `expected` up to `share` of the bounds.
template <class T>
bool within(const Tensor<T>& output, const Tensor<double>& expected, const Bounds& bounds, double share) {
  const Distance all = distance(output, expected);
  if (!all.same_kinds || all.rms > share * bounds.rms) return false;
  for (std::size_t i = 0; i < output.values.size(); ++i) {
    if (!std::isfinite(expected.values[i])) continue;
    if (std::abs(double(output.values[i]) - expected.values[i]) > share * bounds.element.values[i]) return false;
  }
  return true;
}

/// The relative precision of the bounds: their magnitude divided by that of the expected values.
double relative_precision(const Tensor<double>& expected, const Bounds& bounds) {
  double allowed = 0, size = 0;
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    if (!std::isfinite(expected.values[i]) || !std::isfinite(bounds.element.values[i])) continue;
    allowed += bounds.element.values[i] * bounds.element.values[i];
    size += expected.values[i] * expected.values[i];
  }
  constexpr double float_precision = 1e-6;  // where only zeros are expected
  return size > 0 ? std::clamp(std::sqrt(allowed / size), float_precision, 1e-2) : float_precision;
}

/// The first condition: every element of `got` is close to the mistake's. A row is the last axis.
bool agrees(const Tensor<float>& got, const Tensor<double>& mistake, const Bounds& bounds, double precision) {
  const auto row_size = std::size_t(got.sizes[3]);
  for (std::size_t row = 0; row < got.values.size(); row += row_size) {
    double largest = 0;
    for (std::size_t i = row; i < row + row_size; ++i)
      if (std::isfinite(mistake.values[i])) largest = std::max(largest, std::abs(mistake.values[i]));
    for (std::size_t i = row; i < row + row_size; ++i) {
      if (!same_kind(got.values[i], mistake.values[i])) return false;
      if (!std::isfinite(mistake.values[i])) continue;
      const double bound = std::isfinite(bounds.element.values[i]) ? bounds.element.values[i] : 0;
      const double allowed = element_slack * (bound + precision * largest);
      if (std::abs(double(got.values[i]) - mistake.values[i]) > allowed) return false;
    }
  }
  return true;
}

/// A mistake that agrees with the output, and how well it agrees.
struct Match {
  const Mistake* mistake;
  double largest, rms;  ///< its difference from the output
  double separation;    ///< its difference from the expected values (rms)
  bool in_numbers;      ///< a wrong element that is not NaN agrees
};

/// Whether every value is a computed NaN. Many different mistakes produce such an output.
bool nothing_but_nan(const Tensor<float>& got) {
  return std::ranges::all_of(got.values, [](float value) { return std::isnan(value) && !is_unwritten(value); });
}

std::optional<Match> match(const Mistake& mistake, const Tensor<float>& got, const Tensor<double>& expected,
                           const Bounds& bounds, double precision) {
  const Tensor<double> output = mistake.output();
  if (output.sizes != got.sizes) throw std::logic_error("the mistake " + mistake.id + " has the wrong sizes");
  if (!agrees(got, output, bounds, precision)) return {};
  // A mistake that hardly differs from the right answer is not the cause of a wrong one.
  if (within(output, expected, bounds, 0.5)) return {};
  const Distance from_got = distance(got, output), from_expected = distance(output, expected);
  if (from_expected.same_kinds && closer_by * from_got.rms > from_expected.rms) return {};
  bool in_numbers = false;
  for (std::size_t i = 0; i < output.values.size(); ++i) {
    const double x = output.values[i], y = expected.values[i];
    in_numbers |= !std::isnan(x) && x != y && !(std::abs(x - y) <= bounds.element.values[i]);
  }
  return Match{&mistake, from_got.largest, from_got.rms, from_expected.rms, in_numbers};
}

/// The mistakes that agree best. Several agree about equally well if they give the same values for this input.
std::vector<Match> matches_of(const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds,
                              const std::vector<Mistake>& mistakes) {
  if (got.sizes != expected.sizes || got.sizes != bounds.element.sizes)
    throw std::logic_error("diagnose: sizes of got, expected and bounds differ");
  if (within(got, expected, bounds, 1)) return {};

  const double precision = relative_precision(expected, bounds);
  std::vector<Match> matches;
  double cost = 0;
  for (const Mistake& mistake : mistakes) {
    if (cost + mistake.cost > cost_limit) continue;
    cost += mistake.cost;
    if (const auto found = match(mistake, got, expected, bounds, precision)) matches.push_back(*found);
  }
  double closest = std::numeric_limits<double>::infinity();
  for (const Match& each : matches) closest = std::min(closest, each.rms);
  std::erase_if(matches, [&](const Match& each) { return each.rms > 2 * closest + 0.01 * each.separation; });
  return matches;
}

/// The first of the matching mistakes in the table provides the sentence; the others are appended.
std::optional<Diagnosis> diagnosis_of(const std::vector<Match>& matches) {
  if (matches.empty()) return {};
  const Match& first = matches.front();
  Diagnosis result{first.mistake->id, first.mistake->sentence, first.largest, first.in_numbers, {}};
  for (const Match& each : matches) {
    const bool known = each.mistake->id == result.id || std::ranges::count(result.also, each.mistake->id) > 0;
    if (known) continue;
    result.also.push_back(each.mistake->id);
    if (result.also.size() <= 2) result.sentence += ", or " + each.mistake->sentence;
  }
  if (result.also.size() > 2)
    result.sentence +=
        fmt::format(", or one of {} other mistakes that give the same values here", result.also.size() - 2);
  return result;
}

/// Whether a tensor is consistent with the mistake of this id: it has the mistake's values, or is right if the mistake
/// does not affect it.
bool is_consistent(const Answered& other, const std::string& id, bool right_is_enough) {
  const auto is_nan = [](float value) { return std::isnan(value); };
  if (std::ranges::all_of(other.got->values, is_nan)) return true;  // NaN alone is no evidence
  bool any = false;
  for (const Mistake& mistake : *other.mistakes) {
    if (mistake.id != id) continue;
    any = true;
    if (other.right && right_is_enough && mistake.may_spare) return true;
    if (agrees(*other.got, mistake.output(), *other.bounds, relative_precision(*other.expected, *other.bounds)))
      return true;
  }
  return !any && other.right;
}

}  // namespace

std::optional<Diagnosis> diagnose(const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds,
                                  const std::vector<Mistake>& mistakes) {
  return diagnosis_of(matches_of(got, expected, bounds, mistakes));
}

std::optional<Diagnosis> diagnose(const std::vector<Answered>& answer) {
  // Only mistakes that are consistent with the other tensors too: the cause has to explain every value.
  const auto of = [&](const Answered& each) {
    std::vector<Match> matches = matches_of(*each.got, *each.expected, *each.bounds, *each.mistakes);
    for (const bool right_is_enough : {true, false}) {
      const auto is_shown = [&](const Match& match) {
        return std::ranges::all_of(answer, [&](const Answered& other) {
          return &other == &each || is_consistent(other, match.mistake->id, right_is_enough);
        });
      };
      if (right_is_enough || std::ranges::any_of(matches, is_shown)) std::erase_if(matches, std::not_fn(is_shown));
    }
    return diagnosis_of(matches);
  };
  std::vector<const Answered*> wrong;
  for (const Answered& each : answer)
    if (!each.right) wrong.push_back(&each);
  // The first tensor with numbers decides. If only a later tensor agrees with some mistake, the agreement is a
  // coincidence.
  for (const Answered* each : wrong)
    if (!nothing_but_nan(*each->got)) return of(*each);
  if (wrong.size() != 1 || answer.size() == 1 || !nothing_but_nan(*wrong[0]->got)) return {};
  const auto found = of(*wrong[0]);
  return found && found->also.empty() ? found : std::nullopt;
}

}  // namespace workbook::judge
