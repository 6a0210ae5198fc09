#include "common/cli/trace_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/book/text.hpp"

namespace workbook::cli {
namespace {

using namespace workbook::judge;
using nlohmann::json;

constexpr std::size_t kMostRowsOfPage = 128;  // a page stays small

/// A float's own digits and no more.
json short_json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "∞" : "−∞";
  return std::stod(fmt::format("{:.7g}", value));
}

/// {"labels": ["m", …], "rows": [{"row": 3, "at": [[INTERVAL, M, …], …]}]}: null where nothing is noted yet.
json histories(const TracedLaunch& launch) {
  const TracedTensor* Q = launch.tensor("Q");
  const std::int64_t end = Q != nullptr && Q->tiling ? Q->tiling->rows : std::numeric_limits<std::int64_t>::max();
  std::vector<std::string> labels;
  std::map<std::int64_t, std::map<std::int64_t, std::map<std::string, double>>> noted;  // by row, interval, label
  for (const TracedValues& values : launch.values) {
    if (std::ranges::count(labels, values.label) == 0) labels.push_back(values.label);
    if (values.row >= end) continue;  // of a tile that is not full
    for (const auto& [interval, value] : values.at) noted[values.row][interval][values.label] = value;
  }
  const auto place = [](const std::string& label) { return label == "m" ? 0 : label == "l" ? 1 : 2; };
  std::ranges::stable_sort(labels, {}, place);  // whichever thread came first
  json rows = json::array();
  for (const auto& [row, intervals] : noted) {
    if (rows.size() == kMostRowsOfPage) break;
    json at = json::array();
    std::map<std::string, double> now;
    for (const auto& [interval, values] : intervals) {
      for (const auto& [label, value] : values) now[label] = value;
      json& entry = at.emplace_back(json::array({interval}));
      for (const std::string& label : labels) entry.push_back(now.contains(label) ? short_json(now[label]) : json());
    }
    rows.push_back({{"row", row}, {"at", at}});
  }
  return {{"labels", labels}, {"rows", rows}};
}

}  // namespace

const char* const rows_style = R"(
.values tr.now td, .values tr.now th { background: var(--now); color: var(--now-ink); }
.values tbody tr:last-child td { font-weight: 600; }
)";

const char* const rows_script = R"(
for (const part of document.querySelectorAll('.values')) {
  const { labels, rows } = JSON.parse(part.dataset.values);
  const choice = part.querySelector('select'), body = part.querySelector('tbody'), head = part.querySelector('thead tr');
  const slider = part.closest('.time').querySelector('input');
  const cell = (row, text, name = 'td') => row.appendChild(Object.assign(document.createElement(name), { textContent: text }));
  const place = (label) => labels.indexOf(label) + 1;
  const shared = place('m') && place('l'), divided = labels.map((label) => /^O\[/.test(label)).indexOf(true) + 1;
  const number = (value) => typeof value === 'number' ? String(Number(value.toPrecision(5))).replace('-', '−') : value ?? '';
  for (const name of ['interval', ...labels, ...(shared ? ['share of the sum'] : []), ...(shared && divided ? [`${labels[divided - 1]} / l`] : [])])
    cell(head, name, 'th').scope = 'col';
  for (const { row } of rows) choice.add(new Option(row));
  const mark = () => {
    const now = [...body.rows].filter((row) => Number(row.dataset.interval) <= Number(slider.value)).at(-1);
    for (const row of body.rows) row.classList.toggle('now', row === now);
  };
  const show = () => {
    const { at } = rows[choice.selectedIndex], end = at.at(-1);
    body.replaceChildren(...at.map((values) => {
      const row = document.createElement('tr'), l = values[place('l')];
      row.dataset.interval = values[0];
      values.forEach((value) => cell(row, number(value)));
      if (shared) {
        const share = l * 2 ** (values[place('m')] - end[place('m')]) / end[place('l')];
        cell(row, Number.isFinite(share) ? `${(100 * share).toFixed(1)} %` : '');
        if (divided) cell(row, l ? number(values[divided] / l) : '');
      }
      return row;
    }));
    mark();
  };
  part.hidden = false;
  choice.addEventListener('change', show);
  slider.addEventListener('input', mark);
  show();
}
)";

std::string rows_html(const TracedLaunch& launch) {
  if (launch.values.empty()) return "";
  return fmt::format(
      "<div class=\"values\" data-values=\"{}\" hidden>\n<h3>One row, tile by tile</h3>\n<p class=\"soft\">What the "
      "kernel noted of a row of block 0: m in units of log2, l and O relative to it, as registers hold them. Share of "
      "the sum: l beside what it comes to, both relative to the last m. The last line is the final one.</p>\n"
      "<label class=\"choice\">Row <select></select></label>\n<div class=\"wide\" tabindex=\"0\"><table><thead><tr>"
      "</tr></thead><tbody></tbody></table></div>\n</div>\n",
      book::xml_escaped(histories(launch).dump()));
}

}  // namespace workbook::cli
