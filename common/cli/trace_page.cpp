#include "common/cli/trace_page.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/book/text.hpp"
#include "common/cli/trace_places.hpp"
#include "common/cli/trace_rows.hpp"
#include "common/cli/trace_time.hpp"
#include "common/judge/trace_facts.hpp"

namespace workbook::cli {
namespace {

using namespace workbook::judge;
using book::xml_escaped;

constexpr std::int64_t kMostCells = 96;  // of a drawn map, down and across

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --page: #ffffff; --ink: #1c2024; --soft: #5c6570; --line: #d6dbe1;
        --read: #2a6fbb; --masked: #c9791b; --part: #8fb3d9; --mixed: #7d6bb0; --never: #eef1f4; --report: #b3261e;
        --now: #f2b134; --now-ink: #1c1400; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171a; --ink: #e4e7ea; --soft: #9aa4ae; --line: #343b42;
          --read: #5b9bdf; --masked: #e0a04d; --part: #37597d; --mixed: #9a89cf; --never: #22282d; --report: #ff8a80;
          --now: #8a5a00; --now-ink: #ffffff; }
}
body { background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto;
       max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.2rem; margin: 2.5rem 0 .25rem; }
h2 code, td, th, dd, svg text { font-variant-numeric: tabular-nums; }
p { margin: .25rem 0; } .soft { color: var(--soft); font-size: .9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0 .25rem; }
th, td { padding: .2rem .8rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { color: var(--soft); font-weight: 600; white-space: normal; } .word { text-align: left; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: 1rem 0; }
dt { color: var(--soft); } dd { margin: 0; }
figure { margin: 1.5rem 0; } figcaption { margin-bottom: .5rem; }
svg { max-width: 100%; height: auto; display: block; } svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
svg .count { fill: var(--page); text-anchor: middle; }
.read { fill: var(--read); background: var(--read); } .masked { fill: var(--masked); background: var(--masked); }
.part { fill: var(--part); background: var(--part); } .mixed { fill: var(--mixed); background: var(--mixed); }
.never { fill: var(--never); background: var(--never); }
.key { display: inline-block; width: .9em; height: .9em; margin: 0 .4em 0 0; vertical-align: -.1em; }
.legend span { margin-right: 1.4em; }
pre { color: var(--report); overflow-x: auto; border-left: 3px solid var(--report); padding-left: 1rem; }
.both { max-width: none; } .kernel { min-width: 0; }
.pair { display: grid; gap: 0 2rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 44rem), 1fr)); }
details { margin: 1rem 0; } summary { cursor: pointer; color: var(--soft); }
)";

const char* class_of(DrawnCell::Kind kind) {
  switch (kind) {
    case DrawnCell::Kind::never:
      return "never";
    case DrawnCell::Kind::part:
      return "part";
    case DrawnCell::Kind::read:
      return "read";
    case DrawnCell::Kind::masked:
      return "masked";
    case DrawnCell::Kind::mixed:
      return "mixed";
  }
  return "";
}

/// "3", or "3-5" if several are drawn as one.
std::string numbers(const std::vector<std::int64_t>& names, std::size_t index, std::int64_t scale) {
  const std::size_t first = index * std::size_t(scale);
  const std::size_t last = std::min(first + std::size_t(scale), names.size()) - 1;
  return first == last ? fmt::format("{}", names[first]) : fmt::format("{}-{}", names[first], names[last]);
}

/// "times read: 16", "never read"
std::string words(const DrawnCell& cell, bool counts) {
  switch (cell.kind) {
    case DrawnCell::Kind::never:
      return "never read";
    case DrawnCell::Kind::part:
      return "read in part";
    case DrawnCell::Kind::read:
      return counts ? "times read: " + cell.text : "read";
    case DrawnCell::Kind::masked:
      return counts ? "masked, times read: " + cell.text.substr(0, cell.text.size() - 1) : "read, and masked";
    case DrawnCell::Kind::mixed:
      return "some one way, some another";
  }
  return "";
}

std::string map_html(const TileMap& map) {
  const auto most = std::int64_t(std::max(map.rows.size(), map.columns()));
  const DrawnMap drawn = draw(map, (most + kMostCells - 1) / kMostCells);
  std::vector<std::int64_t> columns(map.columns());
  for (std::size_t j = 0; j < columns.size(); ++j) columns[j] = std::int64_t(j);

  const bool counts = map.most_reads() > 1;
  const std::string row_name = map.row_tensor.empty() ? "block" : map.row_tensor + " tile";
  const std::string column_name = fmt::format("{} tile", fmt::join(map.tensors, " and "));
  const std::size_t cell = counts ? std::max<std::size_t>(18, 8 * drawn.width() + 6) : 14, height = counts ? 18 : 14;
  // The rows' names stand on the left.
  const std::size_t digits = fmt::format("{}", map.rows.empty() ? 0 : map.rows.back()).size();
  const std::size_t left = 16 + 7 * (row_name.size() + 2 + (drawn.scale > 1 ? 2 : 1) * digits), top = 20,
                    across = drawn.cells.empty() ? 0 : drawn.cells[0].size();
  const std::size_t width = left + across * cell + 40, tall = top + drawn.cells.size() * height + 4;
  std::string html = fmt::format("<figure>\n<figcaption>{}</figcaption>\n", xml_escaped(map_title(map)));
  html +=
      fmt::format("<svg role=\"img\" aria-label=\"tile map: {}\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {} {}\">\n",
                  xml_escaped(map_title(map)), width, tall, width, tall);
  for (std::size_t j = 0; j < across; j += 4) {
    html += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", left + j * cell, top - 6,
                        columns[j * std::size_t(drawn.scale)]);
  }
  for (std::size_t i = 0; i < drawn.cells.size(); ++i) {
    const std::string row = fmt::format("{} {}", row_name, numbers(map.rows, i, drawn.scale));
    if (i % 4 == 0) {
      html += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", left - 6,
                          top + i * height + height - 4, xml_escaped(row));
    }
    for (std::size_t j = 0; j < across; ++j) {
      const DrawnCell& at = drawn.cells[i][j];
      const std::size_t x = left + j * cell, y = top + i * height;
      html += fmt::format(
          "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}, {} {}: {}</title></rect>\n",
          class_of(at.kind), x, y, cell - 1, height - 1, xml_escaped(row), xml_escaped(column_name),
          numbers(columns, j, drawn.scale), words(at, counts));
      if (counts && (at.kind == DrawnCell::Kind::read || at.kind == DrawnCell::Kind::masked)) {
        html +=
            fmt::format("<text class=\"count\" x=\"{}\" y=\"{}\">{}</text>\n", x + cell / 2, y + height - 5, at.text);
      }
    }
  }
  html += "</svg>\n<p class=\"soft legend\">";
  for (const auto& [key, meaning] : map_legend(map, drawn)) {
    html += fmt::format("<span><i class=\"key {}\"></i>{}{}</span>", class_of(key.kind),
                        counts && key.kind == DrawnCell::Kind::read ? "a number: " : "", xml_escaped(meaning));
  }
  html += "</p>\n";
  if (const std::string note = map_note(map, drawn); !note.empty()) {
    html += fmt::format("<p class=\"soft\">{}</p>\n", xml_escaped(note));
  }
  return html + "</figure>\n";
}

std::string reports_html(const std::vector<std::string>& reports) {
  std::string html;
  for (const std::string& report : reports) html += fmt::format("<pre>{}</pre>\n", xml_escaped(report));
  return html.empty() ? "" : "<p>The simulator reports mistakes:</p>\n" + html;
}

std::string launch_html(const TracedLaunch& launch) {
  std::string html = fmt::format("<section>\n<h2><code>{}</code></h2>\n<p class=\"soft\">{}</p>\n",
                                 xml_escaped(launch.kernel), xml_escaped(launch_shape(launch)));
  html += reports_html(launch.reports);
  html += table_html(traffic_table(launch));
  html += fmt::format("<p class=\"soft\">{}</p>\n", xml_escaped(traffic_legend));
  if (const TraceTable shared = shared_table(launch); shared.rows.size() > 1) {
    html += table_html(shared);
    html += fmt::format("<p class=\"soft\">{}</p>\n", xml_escaped(shared_legend));
  }
  html += "<dl>\n";
  for (const auto& [name, text] : launch_facts(launch)) {
    html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", xml_escaped(name), xml_escaped(text));
  }
  html += "</dl>\n";
  for (const TileMap& map : tile_maps(launch)) html += map_html(map);
  html += time_html(launch);
  html += "<details><summary>Every counter, and Nsight Compute's metric</summary>\n" +
          table_html(metrics_table(launch)) + "</details>\n</section>\n";
  return html;
}

/// What two kernels ask for, in all their launches.
std::string sums_html(const std::vector<TraceColumn>& columns) {
  TraceTable table{{{""}}};
  for (const TraceColumn& column : columns) table.rows[0].push_back(column.title);
  const auto add = [&](const char* name, const auto& of_launch, bool bytes = false) {
    std::vector<std::string>& row = table.rows.emplace_back(std::vector<std::string>{name});
    for (const TraceColumn& column : columns) {
      std::int64_t sum = 0;
      for (const TracedLaunch& launch : column.trace->launches) sum += of_launch(launch);
      row.push_back(bytes ? book::bytes_text(double(sum)) : fmt::format("{}", sum));
    }
  };
  const auto tensors = [](auto member) {
    return [member](const TracedLaunch& launch) {
      std::int64_t sum = 0;
      for (const TracedTensor& tensor : launch.tensors) sum += (tensor.*member)();
      return sum;
    };
  };
  const auto counters = [](std::initializer_list<const char*> names) {
    return [all = std::vector<std::string>(names.begin(), names.end())](const TracedLaunch& launch) {
      std::int64_t sum = 0;
      for (const std::string& name : all) sum += launch.counter(name);
      return sum;
    };
  };
  add("device memory, read", tensors(&TracedTensor::read_bytes), true);
  add("device memory, written", tensors(&TracedTensor::written_bytes), true);
  add("wavefronts of shared memory", counters({"shared.load_wavefronts", "shared.store_wavefronts"}));
  add("without bank conflicts", counters({"shared.load_ideal", "shared.store_ideal"}));
  add("instructions of tensor cores", counters({"tensor_instructions"}));
  add("__syncthreads", counters({"block_barriers"}));
  add("__syncwarp", counters({"warp_barriers"}));
  add("shuffles", counters({"shuffles"}));
  return "<section>\n<h2>Together</h2>\n" + table_html(table) +
         "<label class=\"together\" hidden><input type=\"checkbox\" checked> Sliders move together, each by its share "
         "of "
         "its kernel's intervals</label>\n</section>\n";
}

std::string column_html(const TraceColumn& column) {
  std::string html = reports_html(column.trace->reports);
  for (const TracedLaunch& launch : column.trace->launches) html += launch_html(launch);
  if (column.trace->launches.size() > 1) {
    html += "<section>\n<h2>All launches together</h2>\n" + table_html(all_traffic_table(column.trace->launches)) +
            "</section>\n";
  }
  return html + lines_html(column.parts, column.beside);
}

}  // namespace

std::string trace_page(const std::string& title, const std::vector<TraceColumn>& columns) {
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n"
      "<style>{}{}{}{}</style>\n</head>\n<body{}>\n<main>\n<h1>{}</h1>\n",
      xml_escaped(title), kStyle, time_style, places_style, rows_style, columns.size() > 1 ? " class=\"both\"" : "",
      xml_escaped(title));
  if (columns.size() == 1) {
    html += fmt::format("<p class=\"soft\">{}</p>\n", xml_escaped(columns[0].input)) + column_html(columns[0]);
  } else {
    html += sums_html(columns) + "<div class=\"pair\">\n";
    for (const TraceColumn& column : columns) {
      html += fmt::format("<div class=\"kernel\">\n<h2>{}</h2>\n<p class=\"soft\">{}</p>\n{}</div>\n",
                          xml_escaped(column.title), xml_escaped(column.input), column_html(column));
    }
    html += "</div>\n";
  }
  return html +
         fmt::format("</main>\n<script>{}{}{}</script>\n</body>\n</html>\n", time_script, places_script, rows_script);
}

}  // namespace workbook::cli
