// The device's limits: copies, reads from L2, and a large matmul, with clocks and power under that load.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <sstream>
#include <thread>

#include "common/bench/measurement.hpp"
#include "common/book/text.hpp"

namespace workbook::bench {
namespace {

constexpr double kProductSize = 8192;  // rows and columns of the matrices
constexpr std::size_t kCopies = 20;    // timed calls

/// Measures copies and reads from L2, and queries the device's properties.
void measure_memory(Measurement& m) {
  const std::string what = "copy and L2 reading";
  const auto program = m.device_program("device", what);
  if (!program) return;
  worker::Worker worker(*program, gpu_limits());
  auto& about = m.results.environment;
  try {
    worker::Call ask("properties");
    const worker::Reply described = worker.call(ask.output<double>("properties", 4));
    const std::vector<double> properties = described.output<double>("properties");
    about["CUDA"] = described.device_compiler;
    about["multiprocessors"] = fmt::format("{:.0f}", properties[0]);
    about["L2"] = book::bytes_text(properties[1]);
    about["device memory"] = book::bytes_text(properties[2]);
    about["compute capability"] = fmt::format("{:.1f}", properties[3] / 10);

    const double bytes = std::min(2.0 * (1u << 30), std::floor(properties[2] / 8 / 256) * 256);
    worker::Call copy("copy");
    copy.number("bytes", bytes).output<double>("seconds", kCopies);
    m.results.roofs.copy_bytes = 2 * bytes / summary(times_of(worker.call(copy))).median;

    const double part = 65536, blocks = 2 * properties[0], times = 512;  // 16.5 MiB on a GPU with 132 SMs
    worker::Call l2("l2_read");
    l2.number("bytes", part).number("blocks", blocks).number("times", times).output<double>("seconds", kCopies);
    m.results.roofs.l2_bytes = blocks * times * part / summary(times_of(worker.call(l2))).median;
  } catch (const worker::Failure& failure) {
    m.skip(fmt::format("{}: {}", what, failure.what()));
  }
}

void measure_product(Measurement& m) {
  const std::string what = "the matmul of the column \"of matmul\"";
  if (m.workspace.toolchain.cublas.empty()) {
    m.skip(what + ": this CUDA Toolkit does not include cuBLAS");
    return;
  }
  const auto program = m.device_program("product", what);
  if (!program) return;
  worker::Worker worker(*program, gpu_limits());
  try {
    // A burst, like the timing of the stages. Under a long load, the power limit lowers the clock.
    worker::Call burst("product");
    burst.number("n", kProductSize).output<double>("seconds", 50);
    const double median = summary(times_of(worker.call(burst))).median;
    m.results.roofs.product_flops = 2 * std::pow(kProductSize, 3) / median;
    // Reads clocks and power in the middle of a load of two seconds.
    auto queried = std::async(std::launch::async, [] {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      return ask_gpu();
    });
    worker::Call load("product");
    load.number("n", kProductSize).output<double>("seconds", std::size_t(std::clamp(2 / median, 10.0, 1e5)));
    worker.call(load);
    const auto gpu = queried.get();
    constexpr std::pair<const char*, const char*> shown[] = {
        {"clocks.sm", "SM clock under load"},
        {"clocks.mem", "memory clock under load"},
        {"power.draw", "power under load"},
        {"temperature.gpu", "temperature under load, degrees Celsius"}};
    for (const auto& [key, name] : shown) {
      if (gpu.contains(key)) m.results.environment[name] = gpu.at(key);
    }
  } catch (const worker::Failure& failure) {
    m.skip(fmt::format("{}: {}", what, failure.what()));
  }
}

}  // namespace

std::map<std::string, std::string> ask_gpu() {
  const std::vector<std::string> names{"name",       "driver_version", "clocks.sm",       "clocks.max.sm", "clocks.mem",
                                       "power.draw", "power.limit",    "temperature.gpu", "memory.total"};
  const std::string text = output_of(
      {"nvidia-smi", "--id=0", fmt::format("--query-gpu={}", fmt::join(names, ",")), "--format=csv,noheader"});
  std::map<std::string, std::string> values;
  std::istringstream cells(text);
  std::size_t i = 0;
  for (std::string cell; i < names.size() && std::getline(cells, cell, ',');) {
    cell.erase(0, cell.find_first_not_of(' '));
    values[names[i++]] = cell;
  }
  return values;
}

void measure_device(Measurement& m) {
  m.workspace.progress("measuring the device's limits");
  measure_memory(m);
  measure_product(m);
  const auto gpu = ask_gpu();
  auto& about = m.results.environment;
  if (gpu.contains("name")) about["GPU"] = gpu.at("name");
  if (gpu.contains("driver_version")) about["driver"] = gpu.at("driver_version");
  if (gpu.contains("clocks.max.sm")) about["SM clock, highest"] = gpu.at("clocks.max.sm");
  if (gpu.contains("power.limit")) about["power limit"] = gpu.at("power.limit");
  if (about.contains("GPU")) m.results.roofs.peak_flops = peak_flops(about["GPU"]);
  if (!m.results.roofs.peak_flops) m.skip("shares of the peak: the peak of this GPU is not known");
}

}  // namespace workbook::bench
