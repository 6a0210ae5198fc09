// Nsight Compute: how it is started, and what it writes.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace workbook::bench {

/// Program and arguments that a worker's executable is put behind. The metrics of the kernels between cudaProfilerStart
/// and cudaProfilerStop go to `log` as CSV, in base units. The GPU's clocks are left as they are.
std::vector<std::string> profiler_command(const std::filesystem::path& log);

/// The metrics in such a log, over all its kernels: sums (names that end in ".sum") added up, all others averaged with
/// the kernels' times as weights. Empty if there are none.
std::map<std::string, double> profiled_metrics(const std::string& csv);

}  // namespace workbook::bench
