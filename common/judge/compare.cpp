#include "common/judge/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "common/judge/elsewhere.hpp"

namespace workbook::judge {
namespace {

using Index = std::array<std::int64_t, 4>;

Index index_of(std::size_t element, const std::array<std::int64_t, 4>& sizes) {
  Index index{};
  auto rest = std::int64_t(element);
  for (int axis = 3; axis >= 0; --axis) {
    index[std::size_t(axis)] = rest % sizes[std::size_t(axis)];
    rest /= sizes[std::size_t(axis)];
  }
  return index;
}

/// |got - expected|; infinite if only one of them is NaN, or if they are not the same infinity.
double error_of(float got, double expected) {
  if (std::isfinite(got) && std::isfinite(expected)) return std::abs(double(got) - expected);
  const bool same = std::isnan(expected) ? std::isnan(got) : double(got) == expected;
  return same ? 0 : std::numeric_limits<double>::infinity();
}

/// With a NaN or negative bound, every error exceeds it.
bool is_off(double error, double bound) {
  return error > 0 && !(error <= bound);
}

/// Whether no output can be compared with this element: its reference is NaN or +∞, or its bound is not finite. A
/// reference of −∞ is the LSE of a fully masked row, which needs no bound.
bool is_unusable(double expected, double bound) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return expected != -infinity && !(std::isfinite(expected) && std::isfinite(bound));
}

/// "head 1", "row 64", or "3" for a compact list; axes without a name are omitted.
std::string place(const Layout& layout, const Index& index, bool names) {
  std::string text;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (layout.axes[axis].empty()) continue;
    if (!text.empty()) text += ", ";
    text += names ? fmt::format("{} {}", layout.axes[axis], index[axis]) : fmt::format("{}", index[axis]);
  }
  return text.empty() ? text : "(" + text + ")";
}

/// ", Q tile 1, warp 0"
std::string tile_of(const Layout& layout, std::int64_t row) {
  const std::int64_t tile_rows = layout.Br > 0 ? layout.Br : layout.Bc;
  std::string text;
  if (tile_rows > 0) text += fmt::format(", {} tile {}", layout.Br > 0 ? "Q" : "K/V", row / tile_rows);
  if (layout.rows_per_warp > 0) {
    const std::int64_t row_in_tile = tile_rows > 0 ? row % tile_rows : row;
    text += fmt::format(", warp {}", row_in_tile / layout.rows_per_warp);
  }
  return text;
}

/// Two numbers with enough digits to see their difference: at least 5 significant ones, 3 of the difference.
std::string expected_and_got(double expected, float got) {
  int digits = 5;
  const double error = std::abs(double(got) - expected);
  if (std::isfinite(error) && error > 0) {
    const double larger = std::max(std::abs(expected), std::abs(double(got)));
    digits = std::clamp(int(std::floor(std::log10(larger)) - std::floor(std::log10(error))) + 3, 5, 12);
  }
  const auto text = [](double value, int width) {  // the sign of a NaN has no meaning
    return std::isnan(value) ? std::string(" NaN") : fmt::format("{: .{}g}", value, width);
  };
  return fmt::format("expected {}, got {}", text(expected, digits), text(got, std::min(digits, 9)));
}

/// "2.4e-05" for an error or a bound.
std::string small(double value) {
  return fmt::format("{:.2g}", value);
}

/// The shortest pattern that repeats within [first, last]. The elements of one lane or fragment form such a pattern.
void find_repetition(AxisFinding& found, const std::vector<bool>& touched) {
  for (std::int64_t period = 2; period <= 64 && found.last - found.first >= 2 * period; period *= 2) {
    std::int64_t low = period, high = -1;
    for (std::int64_t i = found.first; i <= found.last; ++i)
      if (touched[std::size_t(i)]) low = std::min(low, i % period), high = std::max(high, i % period);
    if (2 * (high - low + 1) > period) continue;
    found.period = period, found.low = low, found.high = high;
    return;
  }
}

AxisFinding find_along(const std::string& axis, const std::vector<bool>& touched) {
  AxisFinding found{axis, std::int64_t(touched.size())};
  found.last = found.size - 1;
  while (!touched[std::size_t(found.first)]) ++found.first;
  while (!touched[std::size_t(found.last)]) --found.last;
  found.dense = std::ranges::count(touched, true) == found.last - found.first + 1;
  find_repetition(found, touched);
  return found;
}

/// " (the last Q tile)" for rows that coincide with tiles; otherwise empty.
std::string tiles_of(const Layout& layout, const AxisFinding& rows) {
  const std::int64_t tile_rows = layout.Br > 0 ? layout.Br : layout.Bc;
  if (tile_rows <= 0 || rows.size <= tile_rows) return "";
  const char* tile = layout.Br > 0 ? "Q" : "K/V";
  const std::int64_t first_tile = rows.first / tile_rows, last_tile = rows.last / tile_rows;
  if (first_tile == last_tile && last_tile == (rows.size - 1) / tile_rows)
    return fmt::format(" (the last {} tile)", tile);
  if (first_tile == last_tile) return fmt::format(" ({} tile {})", tile, first_tile);
  if (rows.first % tile_rows == 0 && rows.last == rows.size - 1)
    return fmt::format(" ({} tile {} on)", tile, first_tile);
  return "";
}

/// What the wrong elements have in common.
class Pattern {
 public:
  explicit Pattern(const std::array<std::int64_t, 4>& sizes) {
    for (std::size_t axis = 0; axis < 4; ++axis) touched_[axis].resize(std::size_t(sizes[axis]));
  }
  void add(const Index& index, float got, double expected) {
    for (std::size_t axis = 0; axis < 4; ++axis) touched_[axis][std::size_t(index[axis])] = true;
    ++off_;
    unwritten_ += is_unwritten(got);
    nan_ += std::isnan(got) && !std::isnan(expected) && !is_unwritten(got);
    infinite_ += std::isinf(got);
    zero_ += got == 0;
  }

  /// The pattern as data, for the tensor `name` with `elements` elements.
  TensorFinding finding(const Layout& layout, const std::string& name, std::int64_t elements) const {
    TensorFinding finding;
    finding.tensor = name;
    finding.elements = elements;
    finding.off = off_;
    finding.nan = nan_;
    finding.unwritten = unwritten_;
    finding.right = off_ == 0;
    finding.rows_per_warp = layout.rows_per_warp;
    for (std::size_t axis = 0; axis < 4 && off_ > 0; ++axis) {
      if (!layout.axes[axis].empty() && touched_[axis].size() > 1)
        finding.where.push_back(find_along(layout.axes[axis], touched_[axis]));
    }
    return finding;
  }

  /// For the lines below the worst element: "every element; all got NaN…".
  std::vector<std::string> lines(const Layout& layout, std::int64_t elements) const {
    std::vector<std::string> lines;
    std::string where = pattern_text(layout, elements);
    if (elements > 1 && off_ == elements) where = "every element";
    if (!where.empty()) lines.push_back(where);
    const auto say = [&](std::int64_t count, const char* what) {
      if (count > 0)
        lines.push_back(count == off_ ? std::string("all ") + what : fmt::format("{} of them {}", count, what));
    };
    say(unwritten_,
        "still hold the NaN that outputs are initialised with: your code never writes them, or only accumulates into "
        "them");
    say(nan_, "got NaN from a computation: −∞ − (−∞), 0 · ∞, ∞ / ∞, 0 / 0, or a NaN that was read");
    say(infinite_, "got an infinity");
    if (off_ > 1 && zero_ == off_) lines.push_back("all got 0");
    return lines;
  }

 private:
  /// "only head 1", "every row from 64 on (Q tile 1 on)", "all of them in head 1, rows 192 to 199 (the last Q tile)".
  std::string pattern_text(const Layout& layout, std::int64_t elements) const {
    std::vector<std::string> ranges;
    std::string alone;
    for (const AxisFinding& found : finding(layout, "", elements).where) {
      if (found.everywhere()) continue;
      const bool rows = found.axis == layout.axes[2];
      const std::string tiles = rows ? tiles_of(layout, found) : "";
      const bool last_tile = tiles.starts_with(" (the last");
      if (found.first == found.last) {
        ranges.push_back(fmt::format("{} {}{}", found.axis, found.first, tiles));
        alone = "only " + ranges.back();
      } else if (found.period > 0) {
        ranges.push_back(found.repetition(layout.rows_per_warp));
      } else if (found.tail() && !last_tile) {
        ranges.push_back(fmt::format("{} from {} on{}", found.plural(), found.first, tiles));
        alone = fmt::format("every {} from {} on{}", found.axis, found.first, tiles);
      } else {
        ranges.push_back(fmt::format("{} {} to {}{}", found.plural(), found.first, found.last, tiles));
      }
    }
    if (ranges.empty()) return "";
    return ranges.size() == 1 && !alone.empty() ? alone : fmt::format("all of them in {}", fmt::join(ranges, ", "));
  }

  std::array<std::vector<bool>, 4> touched_;
  std::int64_t off_ = 0, nan_ = 0, unwritten_ = 0, infinite_ = 0, zero_ = 0;
};

/// The parts of a layout, or the whole tensor as one part, with the wrong elements of each.
class Parts {
 public:
  Parts(const Layout& layout, const std::array<std::int64_t, 4>& sizes)
      : parts_(layout.parts.empty() ? std::vector<Layout::Part>{{layout.tensor, 0}} : layout.parts),
        patterns_(parts_.size(), Pattern(sizes)) {}
  void add(const Index& index, float got, double expected) {
    std::size_t part = parts_.size() - 1;
    while (part > 0 && index[3] < parts_[part].first_column) --part;
    patterns_[part].add(index, got, expected);
  }
  std::vector<TensorFinding> findings(const Layout& layout, const std::array<std::int64_t, 4>& sizes) const {
    std::vector<TensorFinding> findings;
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      const std::int64_t end = part + 1 < parts_.size() ? parts_[part + 1].first_column : sizes[3];
      findings.push_back(patterns_[part].finding(layout, parts_[part].name,
                                                 sizes[0] * sizes[1] * sizes[2] * (end - parts_[part].first_column)));
      // The column at which a part begins says nothing about the errors in it.
      if (parts_.size() > 1)
        std::erase_if(findings.back().where, [&](const AxisFinding& axis) { return axis.axis == layout.axes[3]; });
    }
    return findings;
  }

 private:
  std::vector<Layout::Part> parts_;
  std::vector<Pattern> patterns_;
};

/// Whether the wrong elements equal the expected ones times a factor. All columns c of a row with the same c % period /
/// run share one factor; there must be at least four of them. The factor has to explain nearly all of the difference.
/// If the difference is close to the rounding error, any factor near 1 would fit.
bool are_scaled(const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds, std::int64_t period,
                std::int64_t run) {
  const std::int64_t columns = got.sizes[3];
  if (run <= 0 || columns % period != 0 || columns / period * run < 4) return false;
  bool any = false;
  for (std::int64_t row = 0; row < std::int64_t(got.values.size()); row += columns) {
    for (std::int64_t first = 0; first < period; first += run) {
      std::vector<std::size_t> together;
      for (std::int64_t c = first; c < columns; c += period)
        for (std::int64_t i = c; i < c + run; ++i) together.push_back(std::size_t(row + i));
      double dot = 0, square = 0;
      bool off = false;
      for (const std::size_t i : together) {
        off = off || is_off(error_of(got.values[i], expected.values[i]), bounds.element.values[i]);
        dot += double(got.values[i]) * expected.values[i], square += expected.values[i] * expected.values[i];
      }
      if (!off) continue;
      const double factor = dot / square;
      if (!std::isfinite(factor) || std::abs(factor) < 1e-3) return false;
      double difference = 0, size = 0, left = 0;
      for (const std::size_t i : together) {
        const double allowed = 4 * bounds.element.values[i] * (1 + std::abs(factor));
        const double rest = got.values[i] - factor * expected.values[i], all = got.values[i] - expected.values[i];
        if (!(std::abs(rest) <= allowed)) return false;
        difference += all * all, size += double(got.values[i]) * got.values[i], left += rest * rest;
      }
      if (16 * left > std::min(difference, size)) return false;  // values near 0 are near any multiple of `expected`
      any = true;
    }
  }
  return any;
}
std::string scaled_together(const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds) {
  const std::int64_t columns = got.sizes[3];
  if (are_scaled(got, expected, bounds, columns, columns)) return "row";
  if (are_scaled(got, expected, bounds, columns, columns / 2)) return fmt::format("columns 0 to {}", columns / 2 - 1);
  for (const std::int64_t run : {4, 2})
    if (are_scaled(got, expected, bounds, 8, run)) return fmt::format("columns 0 to {} of every 8", run - 1);
  return "";
}

void check_sizes(const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds) {
  if (got.sizes == expected.sizes && got.sizes == bounds.element.sizes) return;
  const auto text = [](const std::array<std::int64_t, 4>& sizes) {
    return fmt::format("({}, {}, {}, {})", sizes[0], sizes[1], sizes[2], sizes[3]);
  };
  throw std::logic_error("compare: got " + text(got.sizes) + ", expected " + text(expected.sizes) + ", bounds " +
                         text(bounds.element.sizes));
}

}  // namespace

bool is_unwritten(double value) {
  return std::isnan(value) && std::bit_cast<std::uint32_t>(float(value)) >> 16 == 0xffff;
}

Comparison compare(const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds,
                   const Layout& layout) {
  check_sizes(got, expected, bounds);
  Comparison result;
  result.elements = std::int64_t(got.values.size());
  result.rms_bound = bounds.rms;

  Pattern pattern(got.sizes);
  Parts parts(layout, got.sizes);
  std::vector<std::size_t> first_five;
  std::size_t worst = 0;
  double worst_share = -1, squares = 0;
  std::int64_t finite = 0;
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    const double error = error_of(got.values[i], expected.values[i]), bound = bounds.element.values[i];
    // If two errors are infinitely larger than their bounds, the first is the worst.
    const double share = error == 0 ? 0 : bound > 0 ? error / bound : std::numeric_limits<double>::infinity();
    if (share > worst_share) worst_share = share, worst = i, result.max_error = error, result.bound = bound;
    // An element that equals the expected value has an error of 0, even if both are infinite.
    if (std::isfinite(error)) squares += error * error, ++finite;
    if (!is_off(error, bound)) continue;
    ++result.off;
    if (first_five.size() < 5) first_five.push_back(i);
    const Index index = index_of(i, got.sizes);
    pattern.add(index, got.values[i], expected.values[i]);
    parts.add(index, got.values[i], expected.values[i]);
  }
  result.rms_error = finite > 0 ? std::sqrt(squares / double(finite)) : 0;
  const bool rms_off = is_off(result.rms_error, result.rms_bound);
  result.close = result.off == 0 && !rms_off;
  result.findings = parts.findings(layout, got.sizes);
  if (result.off == 0 && rms_off)
    for (TensorFinding& finding : result.findings) finding.right = false;
  if (result.close) return result;
  if (result.findings.size() == 1) {
    result.findings[0].scaled_together = scaled_together(got, expected, bounds);
    result.findings[0].elsewhere = belongs_elsewhere(got, expected, bounds, layout);
  }

  const std::string of_tensor = layout.tensor.empty() ? "" : " of " + layout.tensor;
  const std::string origin = bounds.origin.empty() ? "" : " (" + bounds.origin + ")";
  const Index at = index_of(worst, got.sizes);
  const std::string worst_place = place(layout, at, true), worst_tile = tile_of(layout, at[2]);
  std::string& text = result.text;
  if (result.off == 0) {
    text = fmt::format("  every element{} is within its own bound, but the rms error is too large: {}, allowed {}{}\n",
                       of_tensor, small(result.rms_error), small(result.rms_bound), origin);
    text +=
        "    one such error may be a coincidence, this many are not: your code may round a step too coarsely or too "
        "early\n";
    text += fmt::format("  closest to its bound: {}{}\n    {}, allowed difference {}", worst_place, worst_tile,
                        expected_and_got(expected.values[worst], got.values[worst]), small(result.bound));
    return result;
  }
  text = fmt::format("  {} of {} elements{} {} off; worst at {}{}\n", result.off, result.elements, of_tensor,
                     result.off == 1 ? "is" : "are", worst_place, worst_tile);
  text += fmt::format("    {}, allowed difference {}{}", expected_and_got(expected.values[worst], got.values[worst]),
                      small(result.bound), origin);
  if (result.off == 1) return result;
  for (const std::string& line : pattern.lines(layout, result.elements)) text += "\n    " + line;
  text += first_five.size() == 5 ? "\n  first five:" : "\n  all of them:";
  for (std::size_t i : first_five)
    text += fmt::format("\n    {:<18} {}", place(layout, index_of(i, got.sizes), false),
                        expected_and_got(expected.values[i], got.values[i]));
  return result;
}

Comparison compare_finite(const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds,
                          const Layout& layout) {
  Comparison result = compare(got, expected, bounds, layout);
  std::size_t unusable = 0;
  while (unusable < expected.values.size() && !is_unusable(expected.values[unusable], bounds.element.values[unusable]))
    ++unusable;
  const bool element = unusable < expected.values.size();
  if (!element && std::isfinite(bounds.rms)) return result;
  result.close = false;
  result.text =
      element ? fmt::format("  the reference of {} at {} is {} and its bound is {}: both must be finite\n",
                            layout.tensor, place(layout, index_of(unusable, got.sizes), true),
                            expected.values[unusable], bounds.element.values[unusable])
              : fmt::format("  the bound of the rms error of {} is {}: it must be finite\n", layout.tensor, bounds.rms);
  result.text +=
      "    no output can be checked against it: the inputs are too large for float64, or the oracle is wrong";
  for (TensorFinding& finding : result.findings) finding.right = false;
  return result;
}

}  // namespace workbook::judge
