// GPUs whose limits the simulator can adopt, and the number of blocks of a kernel that are resident on one SM
// (streaming multiprocessor). Independent of the rest of the simulator, so that any program can include it.
//
// Source: NVIDIA, CUDA C++ Programming Guide, appendix "Compute Capabilities", table "Technical Specifications per
// Compute Capability" (13.0).
#pragma once

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace simt {

struct GpuClass {
  std::string_view name, title;
  int compute;                ///< compute capability: 75 means 7.5
  std::size_t shared_block;   ///< maximum bytes of shared memory per block, including dynamic shared memory
  std::size_t shared_sm;      ///< bytes of shared memory per SM
  std::size_t shared_system;  ///< bytes of it that the system reserves per block
  int threads_sm, blocks_sm;  ///< maximum resident threads and blocks per SM
};

constexpr std::size_t KiB = 1024;
inline constexpr GpuClass kGpuClasses[] = {
    {"t4", "Tesla T4", 75, 64 * KiB, 64 * KiB, 0, 1024, 16},
    {"rtx3060", "GeForce RTX 3060", 86, 99 * KiB, 100 * KiB, KiB, 1536, 16},
    {"rtx4090", "GeForce RTX 4090", 89, 99 * KiB, 100 * KiB, KiB, 1536, 24},
    {"a100", "A100", 80, 163 * KiB, 164 * KiB, KiB, 2048, 32},
    {"h100", "H100", 90, 227 * KiB, 228 * KiB, KiB, 2048, 32},
    {"b200", "B200", 100, 227 * KiB, 228 * KiB, KiB, 2048, 32},
    {"rtx5090", "GeForce RTX 5090", 120, 99 * KiB, 100 * KiB, KiB, 1536, 24},
};
/// The default class.
inline constexpr std::string_view kDefaultGpu = "h100";
/// The environment variable that selects the class for a process and its children.
inline constexpr const char* kGpuVariable = "WORKBOOK_GPU";

/// The class with this name. Throws std::invalid_argument that lists the names otherwise.
inline const GpuClass& gpu_class(std::string_view name) {
  std::string allowed;
  for (const GpuClass& gpu : kGpuClasses) {
    if (gpu.name == name) return gpu;
    if (!allowed.empty()) allowed += ", ";
    allowed += gpu.name;
  }
  std::string message = "unknown GPU \"";  // appended piece by piece: g++ 12 has a spurious warning for operator+ here
  message += name;
  message += "\"; allowed are " + allowed;
  throw std::invalid_argument(message);
}

inline constexpr int kRegistersSm = 65536;  ///< 32-bit registers per SM, of all these GPUs

/// The number of resident blocks of a kernel per SM, and the limiting resource. `registers`: per block, if known, as
/// after setmaxnreg. Otherwise only the compiler knows the register count, and registers do not limit the result.
struct Occupancy {
  int blocks = 0;
  const char* limit = "";  ///< "shared memory", "threads", "blocks", "registers"
};
constexpr Occupancy occupancy(const GpuClass& gpu, int threads, std::size_t shared_bytes, int registers = 0) {
  const std::size_t bytes = shared_bytes + gpu.shared_system;
  const int warps = (threads + 31) / 32;
  Occupancy best{gpu.blocks_sm, "blocks"};
  if (gpu.threads_sm / (32 * warps) < best.blocks) best = {gpu.threads_sm / (32 * warps), "threads"};
  if (bytes > 0 && int(gpu.shared_sm / bytes) < best.blocks) best = {int(gpu.shared_sm / bytes), "shared memory"};
  if (registers > 0 && kRegistersSm / registers < best.blocks) best = {kRegistersSm / registers, "registers"};
  return best;
}

}  // namespace simt
