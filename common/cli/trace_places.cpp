#include "common/cli/trace_places.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "common/book/text.hpp"
#include "common/judge/trace_waits.hpp"

namespace workbook::cli {
namespace {

using namespace workbook::judge;
using book::xml_escaped;

constexpr int kBanks = 32, kBankBytes = 4;
constexpr std::int64_t kMostTimes = 600;  // drawn: a page stays small

/// How many of the lanes, or rows, of an access ask for each bank.
std::vector<int> asked_of_banks(const TracedAccess& access) {
  std::vector<int> asked(kBanks, 0);
  for (const int first : access.banks) {
    const auto banks = int((access.bytes + kBankBytes - 1) / kBankBytes);
    for (int i = 0; i < banks; ++i) ++asked[std::size_t((first + i) % kBanks)];
  }
  return asked;
}

std::string access_html(const ComparedPart& part, const ComparedLine& line) {
  const std::vector<int> asked = asked_of_banks(*line.worst);
  std::string html = fmt::format(
      "<li><p><b>{}</b>, {}</p>\n<div class=\"wide\" tabindex=\"0\"><table class=\"banks\">"
      "<tr><th scope=\"row\">bank</th>",
      xml_escaped(part.name()), xml_escaped(worst_text(line)));
  for (int bank = 0; bank < kBanks; ++bank) html += fmt::format("<th scope=\"col\">{}</th>", bank);
  html += fmt::format("</tr>\n<tr><th scope=\"row\">{} that ask for it</th>", line.worst->rows ? "rows" : "lanes");
  for (int bank = 0; bank < kBanks; ++bank) {
    const int count = asked[std::size_t(bank)];
    html += fmt::format("<td{}>{}</td>", bank == line.worst->bank ? " class=\"hot\"" : "",
                        count == 0 ? "" : fmt::format("{}", count));
  }
  return html + "</tr></table></div></li>\n";
}

}  // namespace

const char* const places_style = R"(
.banks td, .banks th { padding: .1rem .2rem; min-width: 1.3rem; text-align: center; border: 1px solid var(--line); }
.banks .hot { background: var(--now); color: var(--now-ink); font-weight: 600; }
.accesses { list-style: none; padding-left: 0; }
.choice { margin: .6rem 0; } .choice select { font: inherit; max-width: 100%; }
.bar.wait { border-left: 2px solid var(--report); }
.bar.flight { border-left: 2px solid var(--read); }
)";

const char* const places_script = R"(
for (const part of document.querySelectorAll('.lines')) {
  const choice = part.querySelector('select');
  if (!choice) continue;
  const items = [...part.querySelectorAll('.accesses > li')];
  const show = () => items.forEach((item, i) => { item.hidden = i !== choice.selectedIndex; });
  part.querySelector('.choice').hidden = false;
  choice.addEventListener('change', show);
  show();
}
)";

std::string table_html(const TraceTable& table) {
  std::string html = "<div class=\"wide\" tabindex=\"0\"><table>\n";
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const char* tag = row == 0 ? "th" : "td";
    html += "<tr>";
    for (std::size_t column = 0; column < table.rows[row].size(); ++column) {
      const std::string& text = table.rows[row][column];
      const char* cell = text.empty() ? "td" : tag;  // a head without words is none
      html += fmt::format("<{}{}>{}</{}>", cell, column < table.left ? " class=\"word\"" : "", xml_escaped(text), cell);
    }
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

std::string lines_html(const std::vector<ComparedPart>& parts, const std::vector<TraceBeside>& beside) {
  if (parts.empty()) return "";
  std::string html = fmt::format("<section class=\"lines\">\n<h2>By source line</h2>\n<p class=\"soft\">{}.</p>\n",
                                 xml_escaped(lines_legend));
  std::string options, accesses;
  for (const ComparedPart& part : parts) {
    html +=
        fmt::format("<h3>{} <span class=\"soft\">{}</span></h3>\n", xml_escaped(part.name()), xml_escaped(part.file)) +
        table_html(lines_table(part, beside));
    for (const ComparedLine& line : part.lines) {
      if (!line.worst) continue;
      options += fmt::format("<option>{}, line {}</option>", xml_escaped(part.name()), line.line);
      accesses += access_html(part, line);
    }
  }
  if (accesses.empty()) return html + "<p>No line has bank conflicts.</p>\n</section>\n";
  return html + fmt::format(
                    "<h3>Banks of the worst access</h3>\n<label class=\"choice\" hidden>Line <select>{}</select>"
                    "</label>\n<ul class=\"accesses\" aria-live=\"polite\">\n{}</ul>\n</section>\n",
                    options, accesses);
}

std::string waits_text(const TracedLaunch& launch, std::size_t interval) {
  std::map<std::pair<int, std::string>, std::set<int>> warps;  // by line and what
  for (const TracedWait& wait : launch.waits) {
    if (std::size_t(wait.interval) == interval) warps[{wait.line, short_wait(wait.what)}].insert(wait.warp);
  }
  std::vector<std::string> said;
  for (const auto& [at, who] : warps) {
    said.push_back(fmt::format("{} {} at line {} ({})", who.size() == 1 ? "warp" : "warps",
                               ranges_text({who.begin(), who.end()}), at.first, at.second));
  }
  return fmt::format("{}", fmt::join(said, "; "));
}

std::string waits_html(const TracedLaunch& launch) {
  std::int64_t times = 0, warps = 0;
  for (const TracedWait& wait : launch.waits) {
    times = std::max(times, wait.end);
    warps = std::max(warps, std::int64_t(wait.warp) + 1);
  }
  if (times == 0) return "";
  const std::int64_t shown = std::min(times, kMostTimes);
  std::string html = fmt::format(
      "<h3>Who waits where</h3>\n<p class=\"soft\">Warps of block 0, in the order in which the simulator ran them: one "
      "of "
      "those that a GPU may take. How long a wait lasts there, it does not say.{}{}</p>\n"
      "<div class=\"wide\" tabindex=\"0\"><div class=\"lanes waits\" style=\"grid-template-columns: max-content "
      "repeat({}, minmax(3.4rem, 1fr))\">\n",
      shown < times ? fmt::format(" The first {} of {} waits.", shown, times) : "",
      launch.flights.empty() ? "" : " Below: what the copy engine has on its way, and at which barrier it ends.",
      shown);
  for (std::int64_t warp = 0; warp < warps; ++warp)
    html += fmt::format("<span class=\"lane\" style=\"grid-row: {}\">warp {}</span>", warp + 1, warp);
  for (const TracedWait& wait : launch.waits) {
    if (wait.begin >= shown) continue;
    html += fmt::format(
        "\n<span class=\"bar wait\" data-first=\"{0}\" data-last=\"{0}\" style=\"grid-row: {1}; grid-column: {2} / "
        "{3}\" "
        "title=\"{4}\">:{5} {6}</span>",
        wait.interval, wait.warp + 1, wait.begin + 2, std::max(std::min(wait.end, shown), wait.begin + 1) + 2,
        xml_escaped(wait.what), wait.line, xml_escaped(short_wait(wait.what)));
  }
  std::map<std::string, std::int64_t> rows;  // of the copy engine's targets
  for (const TracedFlight& flight : launch.flights) {
    if (flight.begin >= shown) continue;
    const auto [row, fresh] = rows.try_emplace(flight.barrier, warps + 1 + std::int64_t(rows.size()));
    if (fresh)
      html += fmt::format("\n<span class=\"lane\" style=\"grid-row: {}\">copies, {}</span>", row->second,
                          xml_escaped(flight.barrier));
    html += fmt::format(
        "\n<span class=\"bar flight\" data-first=\"{0}\" data-last=\"{0}\" style=\"grid-row: {1}; grid-column: {2} / "
        "{3}\">{4}</span>",
        flight.interval, row->second, flight.begin + 2, std::max(std::min(flight.end, shown), flight.begin + 1) + 2,
        xml_escaped(flight.what));
  }
  return html + "\n</div></div>\n";
}

}  // namespace workbook::cli
