// Where a chapter's code runs. The one place where a backend's name is text.
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
/// "the CPU", "the simulator", "the GPU": in sentences.
const char* text(Backend backend);
/// The backend of this name; nothing for any other text.
std::optional<Backend> backend_named(std::string_view name);
/// The backend of this name. std::invalid_argument naming those that there are.
Backend backend_of(std::string_view name);
/// All names.
std::vector<std::string> backend_names();

/// Whose limits the simulator takes on in the processes that are started from here on. std::invalid_argument naming the
/// classes if there is none of this name.
void simulate_gpu(const std::string& name);
/// The one that it has.
const simt::GpuClass& simulated_gpu();

/// Whether this machine has a GPU that CUDA can see.
bool gpu_present();

}  // namespace workbook::worker

namespace workbook {
using worker::Backend;
}
