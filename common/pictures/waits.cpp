// Who waits for whom: a drawing of judge/trace_waits.hpp.
#include <fmt/format.h>

#include "common/judge/trace_waits.hpp"
#include "common/pictures/kinds.hpp"

namespace workbook::pictures {
namespace {

constexpr double left = 116, top = 44, tall = 24, between = 6;
// In a step, what can run runs first, and begins to wait then.
constexpr double runs = 0.25;
constexpr double kNarrow = 60;
constexpr int run_color = 2, copy_color = 1;

}  // namespace

Drawing draw_waits(const Request& request) {
  Parameters& p = request.parameters;
  const auto first = std::size_t(p.number("first")), count = std::size_t(p.count("count"));
  const judge::TracedLaunch launch = traced_launch(request);
  const judge::WaitTimeline timeline = judge::waits_of(launch, first, count);
  if (first + count > timeline.steps) p.fail(fmt::format("there are {} steps", timeline.steps));

  Drawing drawing;
  Svg& svg = drawing.svg;
  const double width = (Svg::kWidth - left) / double(count);
  const auto x = [&](double step) { return left + (step - double(first)) * width; };
  svg.text(0, 16, fmt::format("Block 0, {} warps, in the simulator's order", launch.threads() / 32), kHead);
  for (std::size_t i = 0; i < count; ++i)
    svg.text(x(double(first + i) + 0.5), top - 8, fmt::format("{}", first + i), middle(kSoft));
  svg.text(0, top - 8, "step", kSoft);
  double y = top;
  for (const judge::WaitRow& row : timeline.rows) {
    if (row.bars.empty()) continue;  // warps that run all the time, or have ended
    svg.text(0, y + 16, row.name, kSmall);
    if (!row.copies) svg.rectangle(x(double(first)), y, double(count) * width, tall, pale(run_color), 3);
    std::string said;
    for (const judge::WaitBar& bar : row.bars) {
      const double from = x(double(bar.first) + (bar.before ? 0 : runs)), to = x(double(bar.last));
      svg.rectangle(from, y, to - from, tall, row.copies ? tile(copy_color) : Shape{Fill::faint, 0, false, true}, 3);
      const std::string text = bar.text.starts_with("wgmma") ? "wgmma" : bar.text;
      svg.text((from + to) / 2, y + 16, text, to - from < kNarrow ? kTiny : middle(kSmall));
      said += fmt::format("{}{} from step {} to {}", said.empty() ? "" : ", ", bar.text, bar.first, bar.last);
    }
    drawing.description += fmt::format("{}{}: {}. ", row.name,
                                       row.copies                      ? ""
                                       : row.name.starts_with("warps") ? " wait for"
                                                                       : " waits for",
                                       said);
    y += tall + between;
  }
  for (std::size_t i = 0; i <= count; ++i) svg.line(x(double(first + i)), top - 4, x(double(first + i)), y, Line::thin);
  const auto key = [&](double at, Shape shape, const char* meaning) {
    svg.rectangle(at, y + 8, 16, 14, shape, 3);
    svg.text(at + 22, y + 20, meaning, kSmall);
  };
  key(left, pale(run_color), "runs");
  key(left + 90, {Fill::faint, 0, false, true}, "waits for what is named");
  key(left + 290, tile(copy_color), "a copy on its way");
  drawing.description = "Steps end when a wait or a copy ends. " + drawing.description;
  drawing.height = y + 30;
  return drawing;
}

}  // namespace workbook::pictures
