#include "common/judge/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

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

/// A NaN or negative bound allows nothing.
bool is_off(double error, double bound) {
  return error > 0 && !(error <= bound);
}

/// "head 1", "row 64", or "3" for a compact list; axes without a name are left out.
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
  const auto text = [](double value, int width) {  // the sign of a NaN says nothing
    return std::isnan(value) ? std::string(" NaN") : fmt::format("{: .{}g}", value, width);
  };
  return fmt::format("expected {}, got {}", text(expected, digits), text(got, std::min(digits, 9)));
}

/// "2.4e-05" for an error or a bound.
std::string small(double value) {
  return fmt::format("{:.2g}", value);
}

std::string plural(const std::string& axis) {
  if (axis == "batch") return "batches";
  if (axis == "query") return "queries";
  return axis + "s";
}

/// Where the elements that are off lie along one axis.
struct Place {
  enum Kind { everywhere, single, tail, part } kind = everywhere;
  std::string text;  ///< "head 1", "rows from 64 on (Q tile 1 on)", "rows 192 to 199 (the last Q tile)"
};

/// " (the last Q tile)", for rows [first, last] of `size`; empty if they do not fall together with tiles.
std::string tiles_of(const Layout& layout, std::int64_t first, std::int64_t last, std::int64_t size) {
  const std::int64_t tile_rows = layout.Br > 0 ? layout.Br : layout.Bc;
  if (tile_rows <= 0 || size <= tile_rows) return "";
  const char* tile = layout.Br > 0 ? "Q" : "K/V";
  const std::int64_t first_tile = first / tile_rows, last_tile = last / tile_rows;
  if (first_tile == last_tile && last_tile == (size - 1) / tile_rows) return fmt::format(" (the last {} tile)", tile);
  if (first_tile == last_tile) return fmt::format(" ({} tile {})", tile, first_tile);
  if (first % tile_rows == 0 && last == size - 1) return fmt::format(" ({} tile {} on)", tile, first_tile);
  return "";
}

/// "columns 8 to 15 of every 16": a pattern that repeats within [first, last], as a lane's or a fragment's share does.
std::string repetition(const std::string& names, const std::vector<bool>& touched, std::int64_t first,
                       std::int64_t last) {
  for (std::int64_t period = 2; period <= 64 && last - first >= 2 * period; period *= 2) {
    std::int64_t low = period, high = -1;
    for (std::int64_t i = first; i <= last; ++i)
      if (touched[std::size_t(i)]) low = std::min(low, i % period), high = std::max(high, i % period);
    if (2 * (high - low + 1) > period) continue;
    if (low == high) return fmt::format("{} {} of every {}", names, low, period);
    return fmt::format("{} {} to {} of every {}", names, low, high, period);
  }
  return "";
}

Place place_along(const Layout& layout, std::size_t axis, const std::vector<bool>& touched) {
  const std::string& name = layout.axes[axis];
  const auto size = std::int64_t(touched.size());
  if (name.empty() || size == 1) return {};
  std::int64_t first = 0, last = size - 1;
  while (!touched[std::size_t(first)]) ++first;
  while (!touched[std::size_t(last)]) --last;
  const std::string tiles = axis == 2 ? tiles_of(layout, first, last, size) : "";
  if (first == last) return {Place::single, fmt::format("{} {}{}", name, first, tiles)};
  if (const std::string text = repetition(plural(name), touched, first, last); !text.empty())
    return {Place::part, text};
  if (first == 0 && last == size - 1) return {};
  const bool all = std::ranges::count(touched, true) == last - first + 1;
  if (all && last == size - 1 && !tiles.starts_with(" (the last"))
    return {Place::tail, fmt::format("from {} on{}", first, tiles)};
  return {Place::part, fmt::format("{} {} to {}{}", plural(name), first, last, tiles)};
}

/// What the elements that are off have in common, for the line below the worst: "every element; all are NaN…".
class Pattern {
 public:
  explicit Pattern(const std::array<std::int64_t, 4>& sizes) {
    for (std::size_t axis = 0; axis < 4; ++axis) touched_[axis].resize(std::size_t(sizes[axis]));
  }
  void add(const Index& index, float got) {
    for (std::size_t axis = 0; axis < 4; ++axis) touched_[axis][std::size_t(index[axis])] = true;
    ++off_;
    nan_ += std::isnan(got);
    infinite_ += std::isinf(got);
    zero_ += got == 0;
  }
  std::vector<std::string> lines(const Layout& layout, std::int64_t elements) const {
    std::vector<std::string> lines;
    std::string where = all_places(layout);
    if (elements > 1 && off_ == elements) where = "every element";
    if (!where.empty()) lines.push_back(where);
    if (nan_ == off_)
      lines.push_back("all got NaN: never written (outputs start as NaN), or computed as NaN");
    else if (nan_ > 0)
      lines.push_back(
          fmt::format("{} of them got NaN: never written (outputs start as NaN), or computed as NaN", nan_));
    if (infinite_ > 0)
      lines.push_back(infinite_ == off_ ? "all got an infinity" : fmt::format("{} of them got an infinity", infinite_));
    if (off_ > 1 && zero_ == off_) lines.push_back("all got 0");
    return lines;
  }

 private:
  /// "only head 1", "every row from 64 on (Q tile 1 on)", "all of them in head 1, rows 192 to 199 (the last Q tile)".
  std::string all_places(const Layout& layout) const {
    std::vector<std::string> places;
    std::string alone;
    for (std::size_t axis = 0; axis < 4; ++axis) {
      const Place place = place_along(layout, axis, touched_[axis]);
      if (place.kind == Place::everywhere) continue;
      const bool tail = place.kind == Place::tail;
      places.push_back(tail ? plural(layout.axes[axis]) + " " + place.text : place.text);
      if (place.kind == Place::single) alone = "only " + place.text;
      if (tail) alone = "every " + layout.axes[axis] + " " + place.text;
    }
    if (places.empty()) return "";
    return places.size() == 1 && !alone.empty() ? alone : fmt::format("all of them in {}", fmt::join(places, ", "));
  }

  std::array<std::vector<bool>, 4> touched_;
  std::int64_t off_ = 0, nan_ = 0, infinite_ = 0, zero_ = 0;
};

void check_sizes(const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds) {
  if (got.sizes == expected.sizes && got.sizes == bounds.element.sizes) return;
  const auto text = [](const std::array<std::int64_t, 4>& sizes) {
    return fmt::format("({}, {}, {}, {})", sizes[0], sizes[1], sizes[2], sizes[3]);
  };
  throw std::logic_error("compare: got " + text(got.sizes) + ", expected " + text(expected.sizes) + ", bounds " +
                         text(bounds.element.sizes));
}

}  // namespace

Comparison compare(const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds,
                   const Layout& layout) {
  check_sizes(got, expected, bounds);
  Comparison result;
  result.elements = std::int64_t(got.values.size());
  result.rms_bound = bounds.rms;

  Pattern pattern(got.sizes);
  std::vector<std::size_t> first_five;
  std::size_t worst = 0;
  double worst_share = -1, squares = 0;
  std::int64_t finite = 0;
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    const double error = error_of(got.values[i], expected.values[i]), bound = bounds.element.values[i];
    // Of two errors that are infinitely larger than their bounds, the first is the worst.
    const double share = error == 0 ? 0 : bound > 0 ? error / bound : std::numeric_limits<double>::infinity();
    if (share > worst_share) worst_share = share, worst = i, result.max_error = error, result.bound = bound;
    // An element that equals what is expected counts with an error of 0, an infinity too.
    if (std::isfinite(error)) squares += error * error, ++finite;
    if (!is_off(error, bound)) continue;
    ++result.off;
    if (first_five.size() < 5) first_five.push_back(i);
    pattern.add(index_of(i, got.sizes), got.values[i]);
  }
  result.rms_error = finite > 0 ? std::sqrt(squares / double(finite)) : 0;
  const bool rms_off = is_off(result.rms_error, result.rms_bound);
  result.close = result.off == 0 && !rms_off;
  if (result.close) return result;

  const std::string of_tensor = layout.tensor.empty() ? "" : " of " + layout.tensor;
  const std::string origin = bounds.origin.empty() ? "" : " (" + bounds.origin + ")";
  const Index at = index_of(worst, got.sizes);
  const std::string worst_place = place(layout, at, true), worst_tile = tile_of(layout, at[2]);
  std::string& text = result.text;
  if (result.off == 0) {
    text = fmt::format(
        "  every element{} is within its own bound, but together they are off: rms error {}, allowed {}{}\n", of_tensor,
        small(result.rms_error), small(result.rms_bound), origin);
    text +=
        "    one such error may be chance, all together are not: perhaps a step is rounded too coarsely or too early\n";
    text += fmt::format("  nearest to its bound: {}{}\n    {}, allowed difference {}", worst_place, worst_tile,
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

}  // namespace workbook::judge
