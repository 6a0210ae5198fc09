// Starts Nsight Compute and reads its output.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace workbook::bench {

/// Program and arguments that precede a worker's executable. The metrics of the kernels between cudaProfilerStart and
/// cudaProfilerStop are written to `log` as CSV, in base units. The GPU's clocks are not changed.
std::vector<std::string> profiler_command(const std::filesystem::path& log);

/// The metrics in such a log over all kernels: sums (names that end in ".sum") are added, all others are averaged with
/// the kernels' times as weights. Empty if there are none.
std::map<std::string, double> profiled_metrics(const std::string& csv);

}  // namespace workbook::bench
