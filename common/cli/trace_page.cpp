#include "common/cli/trace_page.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "common/book/files.hpp"
#include "common/book/text.hpp"
#include "common/cli/trace_json.hpp"
#include "common/judge/trace_facts.hpp"
#include "common/judge/trace_timeline.hpp"

namespace workbook::cli {
namespace {

using namespace workbook::judge;
using nlohmann::json;

constexpr std::int64_t kMostCells = 96;        // of a drawn map, in each dimension
constexpr std::int64_t kMostRowsOfPage = 128;  // keeps the page small

json table_json(const TraceTable& table, const char* legend = nullptr) {
  return {{"rows", table.rows}, {"left", table.left}, {"legend", legend == nullptr ? json(nullptr) : json(legend)}};
}

const char* kind_name(DrawnCell::Kind kind) {
  constexpr const char* names[] = {"never", "part", "read", "masked", "mixed"};
  return names[std::size_t(kind)];
}

/// "3", or "3-5" if several rows are drawn as one.
std::vector<std::string> drawn_names(const std::vector<std::int64_t>& names, std::int64_t scale) {
  std::vector<std::string> all;
  for (std::size_t first = 0; first < names.size(); first += std::size_t(scale)) {
    const std::size_t last = std::min(first + std::size_t(scale), names.size()) - 1;
    all.push_back(first == last ? fmt::format("{}", names[first]) : fmt::format("{}-{}", names[first], names[last]));
  }
  return all;
}

json drawn_map_json(const TileMap& map) {
  const auto most = std::int64_t(std::max(map.rows.size(), map.columns()));
  const DrawnMap drawn = draw(map, (most + kMostCells - 1) / kMostCells);
  std::vector<std::int64_t> columns(map.columns());
  for (std::size_t j = 0; j < columns.size(); ++j) columns[j] = std::int64_t(j);
  json cells = json::array(), legend = json::array();
  for (const auto& row : drawn.cells) {
    json& of_row = cells.emplace_back(json::array());
    for (const DrawnCell& cell : row) of_row.push_back({kind_name(cell.kind), cell.text});
  }
  for (const auto& [key, meaning] : map_legend(map, drawn)) legend.push_back({kind_name(key.kind), meaning});
  return {{"title", map_title(map)},
          {"row_name", map.row_tensor.empty() ? "block" : map.row_tensor + " tile"},
          {"column_name", fmt::format("{} tile", fmt::join(map.tensors, " and "))},
          {"rows", drawn_names(map.rows, drawn.scale)},
          {"columns", drawn_names(columns, drawn.scale)},
          {"counts", map.most_reads() > 1},
          {"cells", cells},
          {"legend", legend},
          {"note", map_note(map, drawn)}};
}

/// Per interval, the bytes that thread block 0 requested from device memory: {name: [bytes read, bytes written]}.
json moved_json(const TracedLaunch& launch) {
  json all = json::array();
  for (const TracedInterval& interval : launch.intervals) {
    json& moved = all.emplace_back(json::object());
    for (const TracedTensor& tensor : launch.tensors) {
      const auto sum = [&](std::initializer_list<const char*> names) {
        std::int64_t bytes = 0;
        for (const char* name : names) bytes += interval.counter(tensor.name, name);
        return bytes;
      };
      const std::int64_t read = sum({"load_bytes", "async_bytes", "bulk_load_bytes"}),
                         written = sum({"store_bytes", "bulk_store_bytes", "bulk_reduce_bytes"});
      if (read + written > 0) moved[tensor.name] = {read, written};
    }
  }
  return all;
}

/// Only the significant digits of a float.
json short_json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "∞" : "−∞";
  return std::stod(fmt::format("{:.7g}", value));
}

/// [{"label": "m", "row": 3, "at": [[INTERVAL, VALUE]]}], without the rows past the end of a partial tile.
json values_json(const TracedLaunch& launch) {
  const TracedTensor* Q = launch.tensor("Q");
  const std::int64_t end = Q != nullptr && Q->tiling ? std::min(Q->tiling->rows, kMostRowsOfPage) : kMostRowsOfPage;
  json all = json::array();
  for (const TracedValues& values : launch.values) {
    if (values.row >= end) continue;
    json at = json::array();
    for (const auto& [interval, value] : values.at) at.push_back({interval, short_json(value)});
    all.push_back({{"label", values.label}, {"row", values.row}, {"at", at}});
  }
  return all;
}

/// The launch as --json prints it, plus what the page shows.
json page_launch(const TracedLaunch& launch) {
  json all = launch_json(launch), tables{table_json(traffic_table(launch), traffic_legend)}, maps = json::array();
  if (const TraceTable shared = shared_table(launch); shared.rows.size() > 1)
    tables.push_back(table_json(shared, shared_legend));
  for (const TileMap& map : tile_maps(launch)) maps.push_back(drawn_map_json(map));
  all.update({{"shape", launch_shape(launch)},
              {"tables", tables},
              {"facts", launch_facts(launch)},
              {"drawn_maps", maps},
              {"timeline", timeline_facts(launch)},
              {"moved", moved_json(launch)},
              {"values", values_json(launch)},
              {"metrics", table_json(metrics_table(launch))}});
  all.update(json(waits_facts(launch, /*lines=*/true)));
  all.erase("maps");
  return all;
}

json page_lines(const TraceColumn& column) {
  json parts = json::array();
  for (const ComparedPart& part : column.parts) {
    json worst = json::array();
    for (const ComparedLine& line : part.lines) {
      if (!line.worst) continue;
      worst.push_back({{"line", line.line},
                       {"words", worst_text(line)},
                       {"rows", line.worst->rows},
                       {"bank", line.worst->bank},
                       {"bytes", line.worst->bytes},
                       {"banks", line.worst->banks}});
    }
    parts.push_back({{"name", part.name()},
                     {"file", part.file},
                     {"table", table_json(lines_table(part, column.beside))},
                     {"worst", worst}});
  }
  return {{"parts", parts}, {"legend", lines_legend}};
}

json page_column(const TraceColumn& column) {
  json launches = json::array();
  for (const TracedLaunch& launch : column.trace->launches) launches.push_back(page_launch(launch));
  const bool several = launches.size() > 1;
  return {{"title", column.title},
          {"lesson", column.lesson},
          {"input", column.input},
          {"reports", column.trace->reports},
          {"launches", launches},
          {"all", several ? table_json(all_traffic_table(column.trace->launches)) : json(nullptr)},
          {"lines", page_lines(column)}};
}

void bundle(const std::filesystem::path& module, std::set<std::string>& done, std::string& script) {
  if (!done.insert(module.filename().string()).second) return;
  std::string text = book::read_file(module);
  static const std::regex imported(R"(import (\{[^}]*\}) from '\./([\w.-]+)';)"),
      exported(R"(\nexport ((?:const|class|function|async function) (\w+)))");
  for (std::sregex_iterator at(text.begin(), text.end(), imported), end; at != end; ++at)
    bundle(module.parent_path() / (*at)[2].str(), done, script);
  std::vector<std::string> names;
  for (std::sregex_iterator at(text.begin(), text.end(), exported), end; at != end; ++at) names.push_back((*at)[2]);
  text = std::regex_replace(text, imported, "const $1 = modules['$2'];");
  text = std::regex_replace(text, exported, "\n$1");
  script += fmt::format("modules['{}'] = (() => {{\n{}return {{ {} }};\n}})();\n", module.filename().string(), text,
                        fmt::join(names, ", "));
}

}  // namespace

std::string bundled(const std::filesystem::path& module) {
  std::set<std::string> done;
  std::string script;
  bundle(module, done, script);
  return script;
}

std::string trace_page(const std::filesystem::path& figures, const std::string& title,
                       const std::vector<TraceColumn>& columns) {
  json facts{{"title", title}, {"columns", json::array()}};
  for (const TraceColumn& column : columns) facts["columns"].push_back(page_column(column));
  std::string html = book::read_file(figures / "trace.html");
  const auto put = [&](const std::string& name, const std::string& text) {
    const std::string mark = "{{" + name + "}}";
    html.replace(html.find(mark), mark.size(), text);
  };
  put("title", book::xml_escaped(title));
  put("style", book::read_file(figures / "figures.css"));
  put("modules", bundled(figures / "trace.mjs"));
  put("facts", book::replaced(facts.dump(-1, ' ', false, json::error_handler_t::replace), "<", "\\u003c"));
  return html;
}

}  // namespace workbook::cli
