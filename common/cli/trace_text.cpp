#include "common/cli/trace_text.hpp"

#include <algorithm>

#include "common/cli/session.hpp"
#include "common/judge/trace_facts.hpp"

namespace workbook::cli {
namespace {

using namespace workbook::judge;

constexpr std::int64_t kMostRows = 64;   // of a map
constexpr std::size_t kMostSource = 44;  // characters of a source line

std::string table_text(const TraceTable& table) {
  std::vector<std::size_t> widths(table.rows[0].size(), 0);
  for (const auto& row : table.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : table.rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i < table.left ? fmt::format(" {:<{}}", row[i], widths[i]) : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string map_text(const TileMap& map) {
  const auto rows = std::int64_t(map.rows.size()), columns = std::int64_t(map.columns());
  const std::string row_name = map.row_tensor.empty() ? "block" : map.row_tensor;
  const std::size_t name_width =
      std::max(row_name.size() + 1 + fmt::format("{}", map.rows.empty() ? 0 : map.rows.back()).size(), std::size_t(8));
  DrawnMap drawn = draw(map, 1);
  const auto characters = [&] { return std::int64_t(drawn.width() > 1 ? drawn.width() + 1 : 1); };
  const std::int64_t room = line_width() - std::int64_t(name_width) - 5;
  for (std::int64_t scale = std::max(columns * characters() / std::max<std::int64_t>(room, 1), rows / kMostRows);;
       ++scale) {
    drawn = draw(map, std::max<std::int64_t>(scale, 1));
    if (std::int64_t(drawn.cells[0].size()) * characters() <= room && std::int64_t(drawn.cells.size()) <= kMostRows)
      break;
    if (scale > std::max(rows, columns)) break;  // a map of one cell cannot shrink further
  }
  const std::size_t width = std::size_t(characters()) - (drawn.width() > 1 ? 1 : 0);
  std::string text = fmt::format("  tile map: {}\n", map_title(map));
  for (const auto& [mark, meaning] : map_legend(map, drawn)) {
    text += fmt::format("{}{} {}", text.ends_with("\n") ? "    " : "   ", mark.text, meaning);
  }
  text += "\n";
  if (const std::string note = map_note(map, drawn); !note.empty()) text += fmt::format("    {}\n", note);
  for (std::size_t i = 0; i < drawn.cells.size(); ++i) {
    const std::string name = fmt::format("{} {}", row_name, map.rows[i * std::size_t(drawn.scale)]);
    text += fmt::format("    {:>{}} ", name, name_width);
    for (std::size_t j = 0; j < drawn.cells[i].size(); ++j) {
      text += fmt::format("{}{:>{}}", width > 1 && j > 0 ? " " : "", drawn.cells[i][j].text, width);
    }
    text += "\n";
  }
  return text;
}

void print_launch(const Session& session, const TracedLaunch& launch, bool metrics, const std::string& where) {
  fmt::print("\n{}{}\n  {}\n\n", session.colored(launch.kernel, "bold"), where, launch_shape(launch));
  fmt::print("{}", table_text(traffic_table(launch)));
  if (const TraceTable shared = shared_table(launch); shared.rows.size() > 1) fmt::print("\n{}", table_text(shared));
  fmt::print("\n");
  std::size_t width = 0;
  const auto facts = launch_facts(launch);
  for (const auto& [name, text] : facts) width = std::max(width, name.size());
  for (const auto& [name, text] : facts) fmt::print("  {:<{}}  {}\n", name, width, text);
  for (const TileMap& map : tile_maps(launch)) fmt::print("\n{}", map_text(map));
  if (metrics) fmt::print("\n{}", table_text(metrics_table(launch)));
  for (const std::string& report : launch.reports)
    fmt::print("\n{}\n{}", session.colored("the simulator reports", "red"), report);
}

}  // namespace

void print_trace(const Session& session, const Trace& trace, bool metrics) {
  const bool several = std::ranges::any_of(trace.launches, [](const TracedLaunch& l) { return l.device != 0; });
  for (const TracedLaunch& launch : trace.launches)
    print_launch(session, launch, metrics, several ? fmt::format(", rank {}", launch.device) : "");
  if (trace.launches.size() > 1) {
    fmt::print("\n{}\n{}", session.colored("all launches together", "bold"),
               table_text(all_traffic_table(trace.launches)));
  }
  if (!trace.transfers.empty())
    fmt::print("\n{}\n{}", session.colored("transfers between ranks", "bold"),
               table_text(transfer_table(trace.transfers)));
  for (const std::string& report : trace.reports)
    fmt::print("\n{}\n{}", session.colored("the simulator reports", "red"), report);
  fmt::print("\n{}.\n{}.\n", traffic_legend, shared_legend);
}

void print_lines(const Session& session, const std::vector<ComparedPart>& parts,
                 const std::vector<TraceBeside>& beside) {
  std::string file;
  for (const ComparedPart& part : parts) {
    if (part.file != file) fmt::print("\n{}\n", session.colored(part.file, "bold"));
    file = part.file;
    TraceTable table = lines_table(part, beside);
    for (std::vector<std::string>& row : table.rows)
      if (row[1].size() > kMostSource) row[1] = row[1].substr(0, kMostSource - 3) + "...";
    fmt::print("\n  {}\n{}", part.name(), table_text(table));
    for (const ComparedLine& line : part.lines) {
      if (line.worst) fmt::print("  {}\n", worst_text(line));
    }
  }
  fmt::print("\n{}.\n", lines_legend);
  for (const TraceBeside& kernel : beside) {
    if (kernel.traced.result != "ok")
      fmt::print("{}: {} {}\n", kernel.name, kernel.traced.result, kernel.traced.message);
  }
}

}  // namespace workbook::cli
