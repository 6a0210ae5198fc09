// GPUs whose limits the simulator can take on, and how many blocks of a kernel such a GPU keeps on a multiprocessor.
// A header of its own that needs nothing of the simulator: whoever offers the choice includes it.
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
  int compute;                ///< capability, 75 for 7.5
  std::size_t shared_block;   ///< bytes of shared memory that a block may ask for, dynamic memory included
  std::size_t shared_sm;      ///< bytes of shared memory of a multiprocessor
  std::size_t shared_system;  ///< bytes that the system takes of it for each block
  int threads_sm, blocks_sm;  ///< that a multiprocessor keeps
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
/// What the simulator is unless told otherwise.
inline constexpr std::string_view kDefaultGpu = "h100";
/// The environment variable by which a process, and those that it starts, are told.
inline constexpr const char* kGpuVariable = "WORKBOOK_GPU";

/// The class of this name. std::invalid_argument naming those that there are.
inline const GpuClass& gpu_class(std::string_view name) {
  std::string allowed;
  for (const GpuClass& gpu : kGpuClasses) {
    if (gpu.name == name) return gpu;
    if (!allowed.empty()) allowed += ", ";
    allowed += gpu.name;
  }
  std::string message = "GPU \"";  // put together piece by piece: g++ 12 warns of + here, for nothing
  message += name;
  message += "\": there is no such class; allowed are " + allowed;
  throw std::invalid_argument(message);
}

inline constexpr int kRegistersSm = 65536;  ///< of 32 bits, of every such multiprocessor

/// How many blocks of a kernel a multiprocessor keeps, and which limit says so. `registers`: of a block, where they are
/// known, as setmaxnreg makes them; otherwise they are the compiler's to know, and are not counted here.
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
