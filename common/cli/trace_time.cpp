#include "common/cli/trace_time.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <vector>

#include "common/book/text.hpp"
#include "common/cli/trace_places.hpp"
#include "common/cli/trace_rows.hpp"
#include "common/judge/trace_timeline.hpp"

namespace workbook::cli {
namespace {

using namespace workbook::judge;
using book::bytes_text, book::xml_escaped;

constexpr std::size_t kMostIntervals = 1000;  // a page stays small, and a slider usable

/// What block 0 has asked of device memory by the end of each interval: "read Q 16 KiB, K 8 KiB; written O 8 KiB".
std::vector<std::string> moved_so_far(const TracedLaunch& launch, std::size_t count) {
  std::map<std::string, std::int64_t> read, written;
  const auto text = [](const char* what, const std::map<std::string, std::int64_t>& bytes) {
    std::vector<std::string> parts;
    for (const auto& [name, moved] : bytes) {
      if (moved > 0) parts.push_back(name + " " + bytes_text(double(moved)));
    }
    return parts.empty() ? std::string() : fmt::format("{} {}", what, fmt::join(parts, ", "));
  };
  std::vector<std::string> said;
  for (std::size_t i = 0; i < count; ++i) {
    for (const TracedTensor& tensor : launch.tensors) {
      const TracedInterval& interval = launch.intervals[i];
      read[tensor.name] += interval.counter(tensor.name, "load_bytes") + interval.counter(tensor.name, "async_bytes") +
                           interval.counter(tensor.name, "bulk_load_bytes");
      written[tensor.name] += interval.counter(tensor.name, "store_bytes") +
                              interval.counter(tensor.name, "bulk_store_bytes") +
                              interval.counter(tensor.name, "bulk_reduce_bytes");
    }
    const std::string in = text("read", read), out = text("written", written);
    said.push_back(in.empty() && out.empty() ? "nothing" : in + (in.empty() || out.empty() ? "" : "; ") + out);
  }
  return said;
}

std::string lanes_html(const std::vector<TimelineLane>& lanes, std::size_t count) {
  std::string html = fmt::format(
      "<div class=\"wide\" tabindex=\"0\"><div class=\"lanes\" style=\"grid-template-columns: max-content "
      "repeat({}, minmax(4.6rem, 1fr))\">\n",
      count);
  for (std::size_t i = 0; i < count; ++i)
    html += fmt::format(
        "<span class=\"tick\" data-first=\"{0}\" data-last=\"{0}\" style=\"grid-column: {1}\">{0}</span>", i, i + 2);
  std::size_t row = 1;
  for (const TimelineLane& lane : lanes) {
    const bool shown = std::ranges::any_of(lane.bars, [&](const TimelineBar& bar) { return bar.first < count; });
    if (!shown) continue;
    html += fmt::format("\n<span class=\"lane\" style=\"grid-row: {}\">{}</span>", ++row, xml_escaped(lane.name));
    for (const TimelineBar& bar : lane.bars) {
      if (bar.first >= count) continue;
      html += fmt::format(
          "<span class=\"bar {}\" data-first=\"{}\" data-last=\"{}\" style=\"grid-row: {}; grid-column: {} / {}\">{}"
          "</span>",
          name(lane.kind), bar.first, bar.last, row, bar.first + 2, std::min(bar.last, count - 1) + 3,
          xml_escaped(bar.text));
    }
  }
  return html + "\n</div></div>\n";
}

/// What happens in one interval: "K, copied, K 1: 8 KiB; tensor cores, 512".
std::string happens(const std::vector<TimelineLane>& lanes, std::size_t interval) {
  std::vector<std::string> parts;
  for (const TimelineLane& lane : lanes) {
    for (const TimelineBar& bar : lane.bars) {
      if (bar.first <= interval && interval <= bar.last) parts.push_back(fmt::format("{} ({})", lane.name, bar.text));
    }
  }
  return parts.empty() ? "nothing that is counted" : fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace

const char* const time_style = R"(
.lanes { display: grid; gap: 3px; align-items: center; font-size: .8rem; min-width: max-content; }
.tick { grid-row: 1; text-align: center; color: var(--soft); border-left: 2px solid var(--report); }
.tick[data-first="0"] { border-color: transparent; }
.lane { grid-column: 1; color: var(--soft); padding-right: .6rem; white-space: nowrap; position: sticky; left: 0;
        background: var(--page); }
.bar { background: var(--never); border-radius: 4px; text-align: center; padding: 0 .3rem; white-space: nowrap; }
.bar.now, .tick.now { background: var(--now); color: var(--now-ink); font-weight: 600; }
.scrub { display: flex; flex-wrap: wrap; gap: .2rem .8rem; align-items: center; margin: .6rem 0; }
.scrub input { flex: 1 1 12rem; max-width: 40rem; }
.intervals { margin: .5rem 0; padding-left: 0; list-style: none; }
)";

const char* const time_script = R"(
for (const part of document.querySelectorAll('.time')) {
  const slider = part.querySelector('input'), output = part.querySelector('output');
  const said = [...part.querySelectorAll('.intervals li')], marks = [...part.querySelectorAll('[data-first]')];
  const show = () => {
    const at = Number(slider.value);
    output.textContent = `${at} of ${said.length}`;
    said.forEach((item, i) => { item.hidden = i !== at; });
    for (const mark of marks)
      mark.classList.toggle('now', Number(mark.dataset.first) <= at && at <= Number(mark.dataset.last));
    part.querySelector('.tick.now')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  };
  part.querySelector('.scrub').hidden = false;
  slider.addEventListener('input', show);
  show();
  scrollTo(0, 0);
}
const together = document.querySelector('.together');
if (together) {
  together.hidden = false;
  // The n-th slider of one kernel and the n-th of the other.
  const columns = [...document.querySelectorAll('.kernel')].map((kernel) => [...kernel.querySelectorAll('.time input')]);
  let following = false;
  columns.forEach((sliders, c) => sliders.forEach((slider, n) => slider.addEventListener('input', () => {
    const other = columns[1 - c][n];
    if (following || !other || !together.querySelector('input').checked) return;
    other.value = Math.round(Number(slider.value) / Math.max(1, Number(slider.max)) * Number(other.max));
    following = true;
    other.dispatchEvent(new Event('input', { bubbles: true }));
    following = false;
  })));
}
)";

std::string time_html(const TracedLaunch& launch) {
  const std::size_t all = launch.intervals.size(), count = std::min(all, kMostIntervals);
  if (count == 0) return "";
  const std::vector<TimelineLane> lanes = timeline_of(launch);
  const std::vector<std::string> moved = moved_so_far(launch, count);
  std::string html = fmt::format(
      "<div class=\"time\">\n<h3>Block 0 between its barriers</h3>\n<p class=\"soft\">All warps of the block together. "
      "A red line is a barrier. Copies by cp.async last from the interval that starts them to the one that waits for "
      "them. Shared memory: wavefronts; tensor cores and shuffles: instructions.{}</p>\n",
      count < all ? fmt::format(" The first {} of {} intervals.", count, all) : "");
  html += fmt::format(
      "<label class=\"scrub\" hidden>Interval <input type=\"range\" min=\"0\" max=\"{}\" value=\"0\"><output></output>"
      "</label>\n",
      count - 1);
  html += lanes_html(lanes, count) + "<ol class=\"intervals\" aria-live=\"polite\">\n";
  for (std::size_t i = 0; i < count; ++i) {
    const std::string waits = waits_text(launch, i);
    html +=
        fmt::format("<li><b>Interval {}:</b> {}. {}<br><b>So far:</b> {}.</li>\n", i, xml_escaped(happens(lanes, i)),
                    waits.empty() ? "" : "<br><b>Waits:</b> " + xml_escaped(waits) + ".", xml_escaped(moved[i]));
  }
  return html + "</ol>\n" + rows_html(launch) + waits_html(launch) + "</div>\n";
}

}  // namespace workbook::cli
