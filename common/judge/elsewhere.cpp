#include "common/judge/elsewhere.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace workbook::judge {
namespace {

using Index = std::int64_t;

/// A tensor divided into runs of `width` adjacent elements of a row. Run indices count through all heads.
struct Runs {
  const Tensor<float>& got;
  const Tensor<double>& expected;
  const Tensor<double>& bounds;
  Index width;

  Index in_a_row() const { return got.sizes[3] / width; }
  Index count() const { return Index(got.values.size()) / width; }
  /// Whether the values at run `at` equal the expected values of run `of`.
  bool holds(Index at, Index of) const {
    for (Index i = 0; i < width; ++i) {
      const auto to = std::size_t(at * width + i), from = std::size_t(of * width + i);
      if (!(std::abs(got.values[to] - expected.values[from]) <= 2 * bounds.values[from])) return false;
    }
    return true;
  }
  /// Whether the values can identify their run: at least one is not 0.
  bool is_distinct(Index at) const {
    return std::any_of(&got.values[std::size_t(at * width)], &got.values[std::size_t(at * width)] + width,
                       [](float x) { return std::isfinite(x) && std::abs(x) > 1e-3F; });
  }
  /// The only run whose expected values this run holds; -1: none, -2: several.
  Index home_of(Index at) const {
    Index home = -1;
    for (Index other = 0; other < count(); ++other) {
      if (!holds(at, other)) continue;
      if (home >= 0) return -2;
      home = other;
    }
    return home;
  }
};

struct Moved {
  Index to, from;  ///< runs
};

constexpr std::size_t kMostChecked = 128;  ///< runs that are checked: each is compared with all others

std::vector<Moved> moved(const Runs& runs) {
  std::vector<Index> off;
  for (Index at = 0; at < runs.count(); ++at)
    if (!runs.holds(at, at)) off.push_back(at);
  const std::size_t checked = std::min(off.size(), kMostChecked);
  std::vector<Moved> found;
  std::size_t strange = 0;
  for (std::size_t i = 0; i < checked; ++i) {
    const Index at = off[i * off.size() / checked];
    const Index home = runs.is_distinct(at) ? runs.home_of(at) : -2;
    if (home >= 0) found.push_back({at, home});
    strange += home == -1;
    if (2 * strange > checked) return {};
  }
  return found.size() >= 4 && 2 * found.size() >= checked ? found : std::vector<Moved>();
}

std::string text_of(const Runs& runs, const std::vector<Moved>& all, const Layout& layout) {
  const Index rows = runs.got.sizes[2], in_a_row = runs.in_a_row();
  const auto row_of = [=](Index run) { return run / in_a_row % rows; };
  const auto head_of = [=](Index run) { return run / in_a_row / rows; };
  const auto any_differ = [&](const auto& of) {
    return std::ranges::any_of(all, [&](const Moved& each) { return of(each.to) != of(each.from); });
  };
  const bool heads = any_differ(head_of), row = any_differ(row_of),
             columns = any_differ([=](Index run) { return run % in_a_row; });
  const auto position = [&](Index run) {
    std::string text = heads ? fmt::format("head {}", head_of(run)) : "";
    if (row) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", layout.axes[2], row_of(run));
    const Index first = run % in_a_row * runs.width;
    if (columns)
      text += fmt::format("{}{}s {} to {}", text.empty() ? "" : ", ", layout.axes[3], first, first + runs.width - 1);
    return text;
  };
  std::vector<std::string> texts;
  for (const Moved& each : all) {
    const std::string to = position(each.to), from = position(each.from);
    const std::string verb = row || heads || !columns ? "holds" : "hold";
    std::string text = texts.empty() ? fmt::format("{} {} what belongs in {}", to, verb, from)
                                     : fmt::format("{} what belongs in {}", to, from);
    if (to == from || std::ranges::count(texts, text) > 0) continue;
    if (!texts.empty() && texts.front().starts_with(to + " ")) continue;
    texts.push_back(text);
    if (texts.size() == 2) break;
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

std::string belongs_elsewhere(const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds,
                              const Layout& layout) {
  constexpr std::size_t most = std::size_t(1) << 16;
  const Index columns = got.sizes[3];
  if (columns < 4 || got.values.size() > most || !layout.parts.empty()) return "";
  for (const Index width : {columns, Index(16), Index(8), Index(4), Index(2)}) {
    if (width > columns || columns % width != 0) continue;
    const Runs runs{got, expected, bounds.element, width};
    if (const std::vector<Moved> found = moved(runs); !found.empty()) return text_of(runs, found, layout);
  }
  return "";
}

}  // namespace workbook::judge
