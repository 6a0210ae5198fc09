#include "common/worker/backend.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace workbook::worker {

const char* name(Backend backend) {
  // In the order of Backend.
  static constexpr const char* names[] = {"cpu", "sim", "cuda"};
  return names[std::size_t(backend)];
}

const char* text(Backend backend) {
  // In the order of Backend.
  static constexpr const char* names[] = {"the CPU", "the simulator", "the GPU"};
  return names[std::size_t(backend)];
}

std::optional<Backend> backend_named(std::string_view name) {
  const auto* const found =
      std::ranges::find_if(kBackends, [&](Backend backend) { return worker::name(backend) == name; });
  return found == std::end(kBackends) ? std::nullopt : std::optional(*found);
}

Backend backend_of(std::string_view name) {
  if (const auto backend = backend_named(name)) return *backend;
  throw std::invalid_argument("\"" + std::string(name) + "\" is not a backend; allowed: cpu, sim or cuda");
}

std::vector<std::string> backend_names() {
  std::vector<std::string> all;
  for (const Backend backend : kBackends) all.emplace_back(name(backend));
  return all;
}

void simulate_gpu(const std::string& name) {
  ::setenv(simt::kGpuVariable, std::string(simt::gpu_class(name).name).c_str(), 1);
}
const simt::GpuClass& simulated_gpu() {
  const char* name = std::getenv(simt::kGpuVariable);
  return simt::gpu_class(name == nullptr ? simt::kDefaultGpu : name);
}

bool gpu_present() {
  return std::filesystem::exists("/dev/nvidiactl") || std::filesystem::exists("/dev/dxg");  // the latter under WSL2
}

}  // namespace workbook::worker
