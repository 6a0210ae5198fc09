// What a GPU can do: its memories, and stages under its roofs. Figures of data sheets are in notes/hardware.toml,
// measured ones in notes/results.md, which bench writes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "common/book/files.hpp"
#include "common/book/text.hpp"
#include "common/pictures/axis.hpp"
#include "common/pictures/kinds.hpp"

namespace workbook::pictures {
namespace {

using Row = std::vector<std::string>;

std::string stripped(const std::string& text) {
  const std::size_t from = text.find_first_not_of(' ');
  return from == std::string::npos ? "" : text.substr(from, text.find_last_not_of(' ') - from + 1);
}

/// The rows of the first table of notes/results.md behind this line, without the line of dashes.
std::vector<Row> table_behind(const judge::Workspace& workspace, const std::string& line) {
  const std::string page = book::read_file(workspace.book.root / "notes" / "results.md");
  const std::size_t at = ("\n" + page).find("\n" + line + "\n");
  if (at == std::string::npos) throw std::runtime_error("notes/results.md has no line \"" + line + "\"");
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

/// A device as the data sheets and the results know it.
struct Device {
  std::string name, memory;
  double multiprocessors, clock_ghz;
  double registers, shared, l2;  ///< bytes of the whole device
  double register_tb_s, shared_tb_s, l2_tb_s, memory_tb_s, memory_sheet_tb_s;
  double product_tflops, peak_tflops;
};

Device read_device(const Request& request) {
  const std::string wanted = request.parameters.text("device");
  std::map<std::string, std::string> measured;
  for (const Row& row : table_behind(request.workspace, "<!-- BEGIN environment -->")) {
    if (row.size() >= 2) measured[row[0]] = row[1];
  }
  const auto value = [&](const std::string& key) { return std::strtod(measured.at(key).c_str(), nullptr); };
  if (measured["GPU"] != wanted) request.parameters.fail("notes/results.md has not been measured on this device");
  for (Parameters& sheet :
       read_tables(request.workspace.book.root / "notes" / "hardware.toml", "notes/hardware.toml", "device")) {
    if (sheet.text("name") != wanted) continue;
    Device device;
    device.name = wanted;
    device.memory = measured.at("device memory");
    device.multiprocessors = value("multiprocessors");
    device.clock_ghz = value("SM clock, highest") / 1000;
    const double clocks = device.multiprocessors * device.clock_ghz / 1000;  // of all multiprocessors, 10^12 a second
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
  request.parameters.fail("notes/hardware.toml has no device of this name");
}

/// "33.5 TB/s", "400 TB/s"
std::string rate_text(double tb_s) {
  return tb_s >= 100 ? fmt::format("{:.0f} TB/s", tb_s) : fmt::format("{:.3g} TB/s", tb_s);
}

}  // namespace

Drawing draw_memory(const Request& request) {
  const Device device = read_device(request);
  struct Level {
    std::string name, whose, size, where;
    double tb_s;
    std::string how;
    double sheet_tb_s;
  };
  const double count = device.multiprocessors;
  const Level levels[] = {
      {"Registers", "a thread's own", book::bytes_text(device.registers),
       fmt::format("{:.0f} x {:g} KiB", count, device.registers / count / 1024), device.register_tb_s, "computed", 0},
      {"Shared memory", "a block's", book::bytes_text(device.shared),
       fmt::format("{:.0f} x {:g} KiB", count, device.shared / count / 1024), device.shared_tb_s, "computed", 0},
      {"L2 cache", "everybody's", book::bytes_text(device.l2), "on the chip", device.l2_tb_s, "measured", 0},
      {"Device memory", "everybody's", device.memory, "beside the chip", device.memory_tb_s, "measured",
       device.memory_sheet_tb_s},
  };
  Drawing drawing;
  Svg& svg = drawing.svg;
  constexpr double row_height = 74, top = 34, box = 250, bars = 300, most = 290;
  svg.text(0, 16, device.name, kHead);
  svg.text(box + 20, 16, "bandwidth, TB/s", kSoft);
  const LogAxis bar{1, 1000, 0, most};
  for (const double tick : {1., 10., 100., 1000.}) {
    const double x = bars - 30 + bar(tick);
    svg.line(x, top - 6, x, top + 4 * row_height - 14, Line::thin);
    svg.text(x, top - 8, fmt::format("{:g}", tick), kTiny);
  }
  for (int i = 0; i < 4; ++i) {
    const Level& level = levels[i];
    const double y = top + i * row_height, inset = (3 - i) * 18;
    svg.rectangle(inset / 2, y, box - 10 - inset, row_height - 16, tile(i), 4);
    const double middle_x = (box - 10) / 2;
    svg.text(middle_x, y + 18, level.name, {{}, Words::Anchor::middle, true, false});
    svg.text(middle_x, y + 34, level.size, middle(kSmall));
    svg.text(middle_x, y + 50, level.where + ", " + level.whose, middle(kSoft));
    const double left = bars - 30;
    svg.rectangle(left, y + 8, bar(level.tb_s), 16, tile(i));
    std::string text = fmt::format("{}, {}", rate_text(level.tb_s), level.how);
    if (level.sheet_tb_s > 0) {
      svg.line(left + bar(level.sheet_tb_s), y + 2, left + bar(level.sheet_tb_s), y + 30, Line::strong, i);
      text += fmt::format("; {} by the data sheet", rate_text(level.sheet_tb_s));
    }
    svg.text(left + 4, y + 42, text, kSmall);
    drawing.description += fmt::format("{} ({}): {}, {}. ", level.name, level.whose, level.size, text);
  }
  const double end = top + 4 * row_height + 4;
  svg.text(0, end,
           fmt::format("Computed: {:.0f} multiprocessors at {:g} GHz, each 32 banks of 4 bytes, and three operands of "
                       "128 multiply-adds, a clock.",
                       count, device.clock_ghz),
           kSoft);
  svg.text(0, end + 17, "Measured: notes/results.md. Data sheet and sources: notes/hardware.toml.", kSoft);
  drawing.height = end + 26;
  return drawing;
}

namespace {

struct StagePoint {
  std::string name;
  double x, y;  ///< FLOP a byte, TFLOP/s
};

std::vector<StagePoint> stage_points(const Request& request) {
  const std::vector<Row> rows = table_behind(request.workspace, "### " + request.parameters.text("section"));
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
  if (points.empty()) request.parameters.fail("the section has no stage with its bytes");
  return points;
}

}  // namespace

Drawing draw_roofline(const Request& request) {
  const Device device = read_device(request);
  std::vector<StagePoint> points = stage_points(request);
  Drawing drawing;
  Svg& svg = drawing.svg;
  const LogAxis x{4, 20000, 60, Svg::kWidth - 10}, y{10, 2000, 340, 30};
  svg.text(0, 16, "TFLOP/s", kSoft);
  for (const double tick : {10., 100., 1000., 10000.}) {
    svg.line(x(tick), y.to, x(tick), y.from, Line::thin);
    svg.text(x(tick), y.from + 18, fmt::format("{:g}", tick), middle(kSoft));
  }
  svg.text(Svg::kWidth - 10, y.from + 36, "FLOP for each byte that must move between device memory and the chip",
           right(kSoft));
  for (const double tick : {10., 100., 1000.}) {
    svg.line(x.from, y(tick), x.to, y(tick), Line::thin);
    svg.text(x.from - 6, y(tick) + 4, fmt::format("{:g}", tick), right(kSoft));
  }
  const auto roof = [&](double flat, double tb_s, int color, bool dashed) {
    const double lowest = std::max(x.low, y.low / tb_s), ridge = flat / tb_s;
    svg.curve({{x(lowest), y(lowest * tb_s)}, {x(ridge), y(flat)}, {x.to, y(flat)}}, color, dashed);
    return ridge;
  };
  const double sheet_ridge = roof(device.peak_tflops, device.memory_sheet_tb_s, 7, true);
  const double ridge = roof(device.product_tflops, device.memory_tb_s, 0, false);
  svg.text(x.to, y(device.peak_tflops) - 7,
           fmt::format("data sheet: {:.0f} TFLOP/s, {:g} TB/s; corner at {:.0f}", device.peak_tflops,
                       device.memory_sheet_tb_s, sheet_ridge),
           right(kSoft));
  svg.colored(x.to, y(device.product_tflops) + 17,
              fmt::format("measured: {:.0f} TFLOP/s, {:g} TB/s; corner at {:.0f}", device.product_tflops,
                          device.memory_tb_s, ridge),
              0, right(kSmall));
  // Labels of points that lie close to each other go below one another.
  std::ranges::sort(points, {}, [](const StagePoint& p) { return -p.y; });
  double last_label = 0;
  int color = 1;
  for (const StagePoint& point : points) {
    const double at_x = x(point.x), at_y = y(point.y), label = std::max(at_y - 8, last_label + 15);
    svg.dot(at_x, at_y, 5, color);
    const bool left_half = at_x < Svg::kWidth / 2;
    svg.colored(left_half ? at_x + 10 : at_x - 10, label + 4,
                fmt::format("{}: {:g} TFLOP/s at {:.0f} FLOP a byte", point.name, point.y, point.x), color,
                left_half ? kSmall : right(kSmall));
    drawing.description += fmt::format("{}: {:g} TFLOP/s at {:.0f} FLOP for each byte. ", point.name, point.y, point.x);
    last_label = label;
    color = color % 6 + 1;
  }
  drawing.description += fmt::format(
      "The measured roof is a slope of {:g} TB/s up to {:.0f} FLOP a byte and then flat at {:.0f} TFLOP/s; the data "
      "sheet's corner is at {:.0f}.",
      device.memory_tb_s, ridge, device.product_tflops, sheet_ridge);
  drawing.height = y.from + 46;
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (const StagePoint& point : points)
    stages.push_back({{"name", point.name}, {"flop_per_byte", point.x}, {"tflops", point.y}});
  drawing.facts = {{"device", device.name},
                   {"section", request.parameters.text("section")},
                   {"measured", {{"tflops", device.product_tflops}, {"tb_s", device.memory_tb_s}}},
                   {"data_sheet", {{"tflops", device.peak_tflops}, {"tb_s", device.memory_sheet_tb_s}}},
                   {"stages", stages}};
  return drawing;
}

}  // namespace workbook::pictures
