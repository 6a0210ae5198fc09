// The two backends' common interface, without templates: device memory, synchronisation, time. One of sim.cpp and
// cuda.cu is linked into a worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace workbook::cuda {

/// What the backend refuses or reports: CUDA's error text, or the simulator's findings.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// "sim" or "cuda".
const char* backend_name();
/// What compiled the backend, as "nvcc 13.0" or "g++ 12.2".
const char* backend_compiler();
/// Why kernels cannot run here ("no CUDA device: …"); nothing if they can.
std::optional<std::string> unavailable();

/// What device memory is for.
enum class Role {
  input,    ///< filled by the host
  output,   ///< every element written once; download() says so if not (simulator)
  scratch,  ///< workspace: read only after it is written (simulator)
};

/// Bytes on the device, aligned to 256 bytes, pre-filled with 0xff (NaN), guard bands on both sides. Throws Error.
void* allocate(std::size_t bytes, const std::string& name, std::size_t element_size, Role role);
void release(void* memory) noexcept;
/// Bytes of device memory in use at most since the last call, guard bands not counted; starts anew from what is in use.
std::size_t take_peak_bytes();
void upload(void* device, const void* host, std::size_t bytes);
/// Waits for all launches first. Throws Error if a kernel failed, if the guard bands were written, or (simulator) if
/// elements of an output were not.
void download(void* host, const void* device, std::size_t bytes);
/// Waits for all launches. Throws Error if one failed, Todo if one met an open exercise.
void synchronize();

/// Counts the reads of this memory by tiles of so many bytes (simulator).
void count_by_tiles(void* memory, std::size_t tile_bytes);
/// What the launches since the last call did, by name: "launches", "block_barriers", "tensor_instructions", …; for each
/// tensor "K.load_sectors", …, and "K.tiles", how many tiles were read, where they are counted; for each annotation
/// "note.masked tile", in how many blocks times values it was noted. Several launches are added up. Empty on the GPU.
std::vector<std::pair<std::string, double>> take_counters();

/// How the launches to come are simulated: on so many operating-system threads (0: one a core), and with lanes and
/// warps in an order drawn from `seed` (nothing: their natural order). No right kernel's result depends on either.
/// Nothing on the GPU.
void simulate_with(int workers, std::optional<std::uint64_t> seed);

/// Seconds that the device spent on `work`; nothing on the simulator, whose time says nothing about a GPU's.
std::optional<double> device_seconds(const std::function<void()>& work);

}  // namespace workbook::cuda
