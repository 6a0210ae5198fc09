#include "common/bench/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

namespace workbook::bench {
namespace {

constexpr const char* kTime = "gpu__time_duration.sum";

const std::vector<std::string>& metrics() {
  static const std::vector<std::string> all{
      kTime,
      "dram__bytes_read.sum",
      "dram__bytes_write.sum",
      "lts__t_bytes.sum",
      "dram__throughput.avg.pct_of_peak_sustained_elapsed",
      "lts__throughput.avg.pct_of_peak_sustained_elapsed",
      "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
      "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
      "sm__inst_executed_pipe_tensor.sum",
      "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
      "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
      "sm__issue_active.avg.pct_of_peak_sustained_elapsed",
      "sm__warps_active.avg.pct_of_peak_sustained_active",
      "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
      "smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio",
      "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
      "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio",
      "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio",
      "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio",
      "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",
  };
  return all;
}

/// One line of CSV with quoted cells.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  bool within = false;
  for (const char c : line) {
    if (c == '"') {
      within = !within;
    } else if (c == ',' && !within) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

}  // namespace

std::vector<std::string> profiler_command(const std::filesystem::path& log) {
  return {"ncu",           "--profile-from-start",
          "off",           "--clock-control",
          "none",          "--target-processes",
          "all",           "--csv",
          "--page",        "raw",
          "--print-units", "base",
          "--log-file",    log.string(),
          "--metrics",     fmt::format("{}", fmt::join(metrics(), ","))};
}

std::map<std::string, double> profiled_metrics(const std::string& csv) {
  // With --page raw: a line of names, a line of units, then one line per kernel.
  std::istringstream lines(csv);
  std::vector<std::string> names;
  std::map<std::string, double> sums;
  bool units = false;
  double weights = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('"')) continue;  // a message of the profiler
    const std::vector<std::string> cells = cells_of(line);
    if (names.empty()) {
      names = cells;
      units = true;
      continue;
    }
    if (units) {
      units = false;
      continue;
    }
    std::map<std::string, double> kernel;
    for (std::size_t i = 0; i < std::min(names.size(), cells.size()); ++i) {
      // The raw page also contains the device's attributes and other metrics.
      if (std::find(metrics().begin(), metrics().end(), names[i]) == metrics().end()) continue;
      std::string digits;
      for (const char c : cells[i]) {
        if (c != ',') digits += c;
      }
      double value = 0;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (error == std::errc() && end == digits.data() + digits.size()) kernel[names[i]] = value;
    }
    const auto time = kernel.find(kTime);
    const double weight = time == kernel.end() ? 1 : time->second;
    weights += weight;
    for (const auto& [name, value] : kernel) sums[name] += name.ends_with(".sum") ? value : weight * value;
  }
  for (auto& [name, value] : sums) {
    if (!name.ends_with(".sum") && weights > 0) value /= weights;
  }
  return sums;
}

}  // namespace workbook::bench
