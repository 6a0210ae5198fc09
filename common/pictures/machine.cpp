// The limits of a GPU: its memories, and stages under its roofs. Data sheet figures are in notes/hardware.toml,
// measured figures in notes/results.md and notes/figures, which bench writes.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "common/book/files.hpp"
#include "common/pictures/kinds.hpp"

namespace workbook::pictures {
namespace {

using Row = std::vector<std::string>;

std::string stripped(const std::string& text) {
  const std::size_t from = text.find_first_not_of(' ');
  return from == std::string::npos ? "" : text.substr(from, text.find_last_not_of(' ') - from + 1);
}

/// The rows of the first table of a page of notes after this line, without the line of dashes.
std::vector<Row> table_after(const judge::Workspace& workspace, const std::string& line,
                             const std::string& name = "results.md") {
  const std::string page = book::read_file(workspace.book.root / "notes" / name);
  const std::size_t at = ("\n" + page).find("\n" + line + "\n");
  if (at == std::string::npos) throw std::runtime_error("notes/" + name + " has no line \"" + line + "\"");
  std::istringstream lines(page.substr(at));
  std::vector<Row> rows;
  for (std::string text; std::getline(lines, text);) {
    if (!text.starts_with("|")) {
      if (rows.empty()) continue;
      break;
    }
    if (text.starts_with("|-")) continue;
    Row& row = rows.emplace_back();
    std::istringstream cells(text.substr(1));
    for (std::string cell; std::getline(cells, cell, '|');) row.push_back(stripped(cell));
  }
  return rows;
}

/// A device's figures from the data sheets and the results.
struct Device {
  std::string name;
  double multiprocessors, clock_ghz;
  double registers, shared, l2, memory_bytes;  ///< of the whole device
  double register_tb_s, shared_tb_s, l2_tb_s, memory_tb_s, memory_sheet_tb_s;
  double product_tflops, peak_tflops;
};

Device read_device(const Request& request) {
  const std::string wanted = request.parameters.text("device");
  std::map<std::string, std::string> measured;
  for (const Row& row : table_after(request.workspace, "<!-- BEGIN environment -->")) {
    if (row.size() >= 2) measured[row[0]] = row[1];
  }
  const auto value = [&](const std::string& key) { return std::strtod(measured.at(key).c_str(), nullptr); };
  if (measured["GPU"] != wanted) request.parameters.fail("notes/results.md contains no measurements of this device");
  for (Parameters& sheet :
       read_tables(request.workspace.book.root / "notes" / "hardware.toml", "notes/hardware.toml", "device")) {
    if (sheet.text("name") != wanted) continue;
    Device device;
    device.name = wanted;
    device.memory_bytes = value("device memory") * 1024 * 1024 * 1024;
    device.multiprocessors = value("multiprocessors");
    device.clock_ghz = value("SM clock, highest") / 1000;
    const double clocks = device.multiprocessors * device.clock_ghz / 1000;  // of all SMs, 10^12 per second
    device.registers = device.multiprocessors * sheet.number("register_kib") * 1024;
    device.shared = device.multiprocessors * sheet.number("shared_kib") * 1024;
    device.l2 = value("L2") * 1024 * 1024;
    device.register_tb_s = clocks * sheet.number("multiply_adds_a_clock") * 3 * 4;
    device.shared_tb_s = clocks * sheet.number("shared_bytes_a_clock");
    device.l2_tb_s = value("reading from L2, measured in this run");
    device.memory_tb_s = value("copy in device memory, read + written, measured in this run");
    device.memory_sheet_tb_s = sheet.number("memory_tb_s");
    device.product_tflops = value("fp16 matrix product, measured in this run");
    device.peak_tflops = value("dense fp16 peak, data sheet");
    sheet.texts("sources");
    sheet.finish();
    return device;
  }
  request.parameters.fail("notes/hardware.toml has no device with this name");
}

}  // namespace

Facts memory_facts(const Request& request) {
  const Device device = read_device(request);
  return {{"device", device.name},
          {"multiprocessors", device.multiprocessors},
          {"clock_ghz", device.clock_ghz},
          {"levels",
           {{{"name", "Registers"},
             {"whose", "a thread's own"},
             {"bytes", device.registers},
             {"parts", device.multiprocessors},
             {"tb_s", device.register_tb_s},
             {"how", "computed"}},
            {{"name", "Shared memory"},
             {"whose", "a block's"},
             {"bytes", device.shared},
             {"parts", device.multiprocessors},
             {"tb_s", device.shared_tb_s},
             {"how", "computed"}},
            {{"name", "L2 cache"},
             {"whose", "everybody's"},
             {"bytes", device.l2},
             {"where", "on the chip"},
             {"tb_s", device.l2_tb_s},
             {"how", "measured"}},
            {{"name", "Device memory"},
             {"whose", "everybody's"},
             {"bytes", device.memory_bytes},
             {"where", "beside the chip"},
             {"tb_s", device.memory_tb_s},
             {"how", "measured"},
             {"sheet_tb_s", device.memory_sheet_tb_s}}}}};
}

namespace {

struct StagePoint {
  std::string name;
  double x, y;  ///< FLOP per byte, TFLOP/s
};

std::vector<StagePoint> stage_points(const Request& request) {
  const std::vector<Row> rows = table_after(request.workspace, "### " + request.parameters.text("section"));
  const auto column = [&](const char* name) {
    return std::size_t(std::ranges::find(rows.at(0), name) - rows[0].begin());
  };
  const std::size_t speed = column("TFLOP/s"), rate = column("GB/s");
  std::vector<StagePoint> points;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (rows[i].size() <= std::max(speed, rate) || rows[i][rate] == "-") continue;
    const double tflops = std::stod(rows[i][speed]), gb_s = std::stod(rows[i][rate]);
    points.push_back({rows[i][0], tflops * 1000 / gb_s, tflops});
  }
  if (points.empty()) request.parameters.fail("the section has no stage with a memory throughput");
  return points;
}

}  // namespace

Facts roofline_facts(const Request& request) {
  const Device device = read_device(request);
  Facts stages = Facts::array();
  for (const StagePoint& point : stage_points(request))
    stages.push_back({{"name", point.name}, {"flop_per_byte", point.x}, {"tflops", point.y}});
  return {{"device", device.name},
          {"section", request.parameters.text("section")},
          {"measured", {{"tflops", device.product_tflops}, {"tb_s", device.memory_tb_s}}},
          {"data_sheet", {{"tflops", device.peak_tflops}, {"tb_s", device.memory_sheet_tb_s}}},
          {"stages", stages}};
}

Facts plot_facts(const Request& request) {
  Parameters& p = request.parameters;
  const std::vector<std::string> curves = p.texts("curves"), names = p.texts("names");
  if (names.size() != curves.size()) p.fail("names must have one name per curve");
  const auto file = request.workspace.book.root / "notes/figures" / (p.text("figure") + ".json");
  const auto titled = [&](Facts all, const std::string& title) {
    for (Facts& one : all) {
      if (one.at("title") == title) return std::move(one);
    }
    p.fail(fmt::format("{} has no \"{}\"", request.workspace.shown(file), title));
  };
  Facts panel = titled(Facts::parse(book::read_file(file)).at("panels"), p.text("panel")), chosen = Facts::array();
  for (std::size_t i = 0; i < curves.size(); ++i) {
    Facts curve = titled(panel.at("curves"), curves[i]);
    curve["title"] = names[i];
    chosen.push_back(std::move(curve));
  }
  if (p.has("log")) {
    const std::vector<Row> rows = table_after(request.workspace, "### " + p.text("log"), "speed_log.md");
    const std::string wanted = p.text("log_rows"), column = p.text("log_column");
    const auto at = std::size_t(std::ranges::find(rows.at(0), column) - rows[0].begin());
    Facts points = Facts::array();
    for (const Row& row : rows) {
      if (row.at(0) == wanted && at < row.size()) points.push_back({std::stod(row.at(1)), std::stod(row[at])});
    }
    if (points.empty()) p.fail(fmt::format("the table has no \"{}\" in rows of \"{}\"", column, wanted));
    chosen.push_back({{"title", p.text("log_name")}, {"style", "dashed"}, {"form", 0}, {"points", points}});
  }
  panel["curves"] = std::move(chosen);
  return {{"panels", Facts::array({std::move(panel)})}};
}

}  // namespace workbook::pictures
