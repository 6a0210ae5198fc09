#include "common/judge/agreement.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string_view>
#include <tuple>

#include "common/judge/compare.hpp"

namespace workbook::judge {
namespace {

constexpr double element_slack = 8;  ///< how many times the precision an element may differ
constexpr double closer_by = 10;     ///< see agreement()

bool same_kind(double a, double b) {
  if (std::isfinite(a) || std::isfinite(b)) return std::isfinite(a) && std::isfinite(b);
  return std::isnan(a) ? std::isnan(b) && is_unwritten(a) == is_unwritten(b) : a == b;
}

double mean_square(const std::vector<double>& values) {
  double squares = 0;
  std::size_t count = 0;
  for (const double value : values)
    if (std::isfinite(value)) squares += value * value, ++count;
  return count == 0 ? 0 : squares / double(count);
}

/// The comparison of two arrays.
struct Distance {
  bool same_kinds = true, close = true;
  double largest = 0, squares = 0;  ///< of the finite values' differences
  std::size_t different = 0, different_reals = 0;
};

Distance distance(const Output& a, const Output& b) {
  if (a.values.size() != b.values.size()) throw std::logic_error("agreement: arrays of different sizes");
  const double scale = std::sqrt(mean_square(b.values));
  Distance result;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    const double x = a.values[i], y = b.values[i];
    if (!same_kind(x, y)) {
      result.same_kinds = result.close = false;
      ++result.different;
      result.different_reals += !std::isnan(y);
      continue;
    }
    if (!std::isfinite(x) || x == y) continue;
    const double error = std::abs(x - y);
    ++result.different;
    ++result.different_reals;
    result.largest = std::max(result.largest, error);
    result.squares += error * error;
    if (error > element_slack * a.precision * (std::abs(y) + scale)) result.close = false;
  }
  return result;
}

const Output& of_same_name(const Answer& answer, const std::string& name) {
  const auto found = answer.outputs.find(name);
  if (found == answer.outputs.end()) throw std::logic_error("agreement: no output \"" + name + "\"");
  return found->second;
}

/// A report's sentence without line numbers: "warp 0 waits at ring.hpp:52".
std::string without_lines(std::string text) {
  for (const char* extension : {".hpp:", ".cu:"})
    for (std::size_t at = text.find(extension); at != text.npos; at = text.find(extension, at + 1)) {
      const std::size_t number = at + std::string_view(extension).size();
      text.erase(number, std::min(text.find_first_not_of("0123456789", number), text.size()) - number);
    }
  return text;
}

/// What of reports does not depend on the text of the kernels, in a fixed order.
std::vector<std::tuple<simt::Mistake, std::string, std::string, std::size_t>> facts_of(const Answer& answer) {
  std::vector<std::tuple<simt::Mistake, std::string, std::string, std::size_t>> facts;
  for (const simt::Report& report : answer.reports)
    facts.emplace_back(report.mistake, report.variable, without_lines(report.what), report.count);
  std::ranges::sort(facts);
  return facts;
}

}  // namespace

Agreement agreement(const Answer& got, const Answer& books, const Answer& wrong) {
  if (facts_of(got) != facts_of(wrong)) return {Agreement::contradicts};
  Agreement result;
  if (!got.reports.empty()) {
    result.verdict = Agreement::agrees;
    result.of_reports = true;
    // Reports of host code have no count.
    for (const simt::Report& report : got.reports) result.wrong += std::max<std::size_t>(1, report.count);
    result.wrong_reals = result.wrong;
    return result;
  }
  bool shown = false;
  double worst = 0;
  for (const auto& [name, values] : got.outputs) {
    const Output &right = of_same_name(books, name), &others = of_same_name(wrong, name);
    const Distance to_wrong = distance(values, others), of_wrong = distance(right, others);
    if (!to_wrong.close) return {Agreement::contradicts};
    result.largest = std::max(result.largest, to_wrong.largest);
    if (of_wrong.different == 0) continue;
    const double ratio = std::sqrt(to_wrong.squares / std::max(of_wrong.squares, 1e-300));
    if (of_wrong.same_kinds && ratio * closer_by > 1) continue;  // rounding explains its mistake here
    result.wrong += of_wrong.different;
    result.wrong_reals += of_wrong.different_reals;
    shown = true;
    if (of_wrong.same_kinds) worst = std::max(worst, ratio);
  }
  result.rms = worst;
  if (shown) {
    result.verdict = Agreement::agrees;
  } else if (wrong.counters != books.counters) {
    if (got.counters == books.counters) result.verdict = Agreement::contradicts;
    if (got.counters != wrong.counters) return result;
    result.verdict = Agreement::agrees;
    result.of_counters = true;
    for (const auto& [name, count] : wrong.counters) {
      const auto right = books.counters.find(name);
      result.wrong += right == books.counters.end() || right->second != count;
    }
    result.wrong_reals = result.wrong;
  }
  return result;
}

void Evidence::add(const Agreement& call) {
  wrong += call.wrong;
  wrong_reals += call.wrong_reals;
  largest = std::max(largest, call.largest);
  rms = std::max(rms, call.rms);
  of_reports = of_reports || call.of_reports;
  of_counters = of_counters && (call.verdict != Agreement::agrees || call.of_counters);
}

void Evidence::add(const Evidence& other) {
  wrong += other.wrong;
  wrong_reals += other.wrong_reals;
  largest = std::max(largest, other.largest);
  rms = std::max(rms, other.rms);
  of_reports = of_reports || other.of_reports;
  of_counters = of_counters && other.of_counters;
}

}  // namespace workbook::judge
