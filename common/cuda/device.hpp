// The interface of a backend with a device (common/cuda) to the worker's server: whether kernels can run here, and what
// a call did on the device. The server is independent of CUDA; the backend's object file sets `device` before main.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/cuda/operations.hpp"

namespace workbook::cuda {

/// What one call did on the device.
struct DeviceUse {
  bool used = false;             ///< memory was allocated or a kernel launched
  std::int64_t extra_bytes = 0;  ///< peak device memory in addition to the call's tensors
  std::map<std::string, double> counters;
};

struct Device {
  const char* name;                             ///< "sim" or "cuda"
  const char* compiler;                         ///< compiler of the backend: "nvcc 13.0", "g++ 12.2"
  std::optional<std::string> (*unavailable)();  ///< why no kernel can run here
  void (*begin)(const Arguments&);              ///< before an operation
  DeviceUse (*end)();                           ///< after it, whether it returned or threw
};
/// Null on the CPU.
inline const Device* device = nullptr;

}  // namespace workbook::cuda
