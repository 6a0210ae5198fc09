// Where a chapter's code runs, and the texts of the backends' names.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/simt/gpu_class.hpp"

namespace workbook::worker {

enum class Backend {
  cpu,   ///< plain C++
  sim,   ///< kernels on the book's simulator
  cuda,  ///< kernels on a GPU
};
inline constexpr Backend kBackends[] = {Backend::cpu, Backend::sim, Backend::cuda};

/// "cpu", "sim", "cuda": in chapter.toml, on command lines and in JSON.
const char* name(Backend backend);
/// "the CPU", "the simulator", "the GPU": for sentences.
const char* text(Backend backend);
/// The backend with this name; nothing for any other text.
std::optional<Backend> backend_named(std::string_view name);
/// The backend with this name. Otherwise a std::invalid_argument lists the names.
Backend backend_of(std::string_view name);
/// All names.
std::vector<std::string> backend_names();

/// Selects the GPU class whose limits the simulator applies in processes started from now on. For an unknown name, a
/// std::invalid_argument lists the classes.
void simulate_gpu(const std::string& name);
/// The selected class.
const simt::GpuClass& simulated_gpu();

/// Whether this machine has a GPU that CUDA can use.
bool gpu_present();

}  // namespace workbook::worker

namespace workbook {
using worker::Backend;
}
