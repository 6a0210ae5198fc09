#include "common/judge/elsewhere.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace workbook::judge {
namespace {

using Index = std::int64_t;

/// A tensor cut into runs of `width` neighbours in a row; runs are numbered through all heads.
struct Runs {
  const Tensor<float>& got;
  const Tensor<double>& expected;
  const Tensor<double>& bounds;
  Index width;

  Index in_a_row() const { return got.sizes[3] / width; }
  Index count() const { return Index(got.values.size()) / width; }
  /// Whether what was got at run `at` is what is expected at run `of`.
  bool holds(Index at, Index of) const {
    for (Index i = 0; i < width; ++i) {
      const auto to = std::size_t(at * width + i), from = std::size_t(of * width + i);
      if (!(std::abs(got.values[to] - expected.values[from]) <= 2 * bounds.values[from])) return false;
    }
    return true;
  }
  /// Whether numbers say where they belong: not all of them are 0.
  bool tells(Index at) const {
    return std::any_of(&got.values[std::size_t(at * width)], &got.values[std::size_t(at * width)] + width,
                       [](float x) { return std::isfinite(x) && std::abs(x) > 1e-3F; });
  }
  /// The only run where this one belongs; -1: none, -2: several.
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

constexpr std::size_t kMostAsked = 128;  ///< runs that are looked for: each is compared with all others

std::vector<Moved> moved(const Runs& runs) {
  std::vector<Index> off;
  for (Index at = 0; at < runs.count(); ++at)
    if (!runs.holds(at, at)) off.push_back(at);
  const std::size_t asked = std::min(off.size(), kMostAsked);
  std::vector<Moved> found;
  std::size_t strange = 0;
  for (std::size_t i = 0; i < asked; ++i) {
    const Index at = off[i * off.size() / asked];
    const Index home = runs.tells(at) ? runs.home_of(at) : -2;
    if (home >= 0) found.push_back({at, home});
    strange += home == -1;
    if (2 * strange > asked) return {};
  }
  return found.size() >= 4 && 2 * found.size() >= asked ? found : std::vector<Moved>();
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
  const auto place = [&](Index run) {
    std::string text = heads ? fmt::format("head {}", head_of(run)) : "";
    if (row) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", layout.axes[2], row_of(run));
    const Index first = run % in_a_row * runs.width;
    if (columns)
      text += fmt::format("{}{}s {} to {}", text.empty() ? "" : ", ", layout.axes[3], first, first + runs.width - 1);
    return text;
  };
  std::vector<std::string> said;
  for (const Moved& each : all) {
    const std::string to = place(each.to), from = place(each.from);
    const std::string verb = row || heads || !columns ? "holds" : "hold";
    std::string text = said.empty() ? fmt::format("{} {} what belongs in {}", to, verb, from)
                                    : fmt::format("{} what belongs in {}", to, from);
    if (to == from || std::ranges::count(said, text) > 0) continue;
    if (!said.empty() && said.front().starts_with(to + " ")) continue;
    said.push_back(text);
    if (said.size() == 2) break;
  }
  return fmt::format("{}", fmt::join(said, ", "));
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
