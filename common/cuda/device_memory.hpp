// Device memory, without templates; memory.hpp is built on it. Kernel files may include it, since it neither exposes
// counters nor changes checks.
#pragma once

#include <cstddef>
#include <string_view>

namespace workbook::cuda {

/// The purpose of device memory.
enum class Role {
  input,    ///< filled by the host
  output,   ///< every element must be written once; download() checks it (simulator)
  scratch,  ///< workspace, which must be written before it is read (simulator)
};

/// Allocates bytes on the device, aligned to 256 bytes, filled with 0xff (NaN), with guard bands on both sides. Throws
/// Error.
void* allocate(std::size_t bytes, std::string_view name, std::size_t element_size, Role role);
void release(void* memory) noexcept;
void upload(void* device, const void* host, std::size_t bytes);
/// Sets bytes to zero, in stream order with this thread's launches.
void clear(void* device, std::size_t bytes);
/// The number of SMs of the device; on the simulator an H100's, or the number of thread blocks if it runs only some of
/// them (unobserved.hpp).
int multiprocessors();
/// Waits for all launches first. Throws Error if a kernel failed, if guard bands were overwritten, or (simulator) if
/// elements of an output were never written.
void download(void* host, const void* device, std::size_t bytes);
/// Waits for all launches. Throws Error if one failed, Todo if one reached an open exercise.
void synchronize();

/// A tensor as consecutive matrices whose rows are divided into tiles. The last tile of each matrix may have fewer
/// rows.
struct Tiling {
  std::size_t matrices, rows, row_bytes, tile_rows;
  std::size_t tiles() const { return (rows + tile_rows - 1) / tile_rows; }  ///< of one matrix
};
/// Counts the reads of this memory by tiles (simulator).
void count_by_tiles(void* memory, const Tiling& tiling);

}  // namespace workbook::cuda
