// Device memory, without templates: what memory.hpp is made of. Nothing here tells what was counted, nor changes what
// is checked: a file of kernels may see it.
#pragma once

#include <cstddef>
#include <string_view>

namespace workbook::cuda {

/// What device memory is for.
enum class Role {
  input,    ///< filled by the host
  output,   ///< every element written once; download() says so if not (simulator)
  scratch,  ///< workspace: read only after it is written (simulator)
};

/// Bytes on the device, aligned to 256 bytes, pre-filled with 0xff (NaN), guard bands on both sides. Throws Error.
void* allocate(std::size_t bytes, std::string_view name, std::size_t element_size, Role role);
void release(void* memory) noexcept;
void upload(void* device, const void* host, std::size_t bytes);
/// Sets bytes to zero, in turn with this thread's launches.
void clear(void* device, std::size_t bytes);
/// The device's multiprocessors; on the simulator those of an H100, or as many as there are blocks where it runs only
/// some of them (unobserved.hpp).
int multiprocessors();
/// Waits for all launches first. Throws Error if a kernel failed, if the guard bands were written, or (simulator) if
/// elements of an output were not.
void download(void* host, const void* device, std::size_t bytes);
/// Waits for all launches. Throws Error if one failed, Todo if one met an open exercise.
void synchronize();

/// A tensor as a kernel takes it: matrices one behind the other, their rows in tiles. The last tile of each matrix may
/// have fewer rows.
struct Tiling {
  std::size_t matrices, rows, row_bytes, tile_rows;
  std::size_t tiles() const { return (rows + tile_rows - 1) / tile_rows; }  ///< of one matrix
};
/// Counts the reads of this memory by tiles (simulator).
void count_by_tiles(void* memory, const Tiling& tiling);

}  // namespace workbook::cuda
