// The common interface of the two backends for a worker's host code, without templates. Either simulator_backend.cpp or
// gpu_backend.cu is linked into a worker. No kernel header includes this file, since kernels must not access counters
// and checks (tests/judge/test_layers.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/cuda/device_memory.hpp"

namespace workbook::cuda {

/// "sim" or "cuda".
const char* backend_name();
/// The compiler of the backend: "nvcc 13.0" or "g++ 12.2".
const char* backend_compiler();
/// Why kernels cannot run here ("no CUDA device: …"); nothing if they can.
std::optional<std::string> unavailable();

/// Peak device memory in use since the last call, in bytes, without guard bands. The new peak starts at the memory now
/// in use.
std::size_t take_peak_bytes();
/// The counters of all launches since the last call, by name: "launches", "block_barriers", "tensor_instructions", …;
/// for each tensor "K.load_sectors", …, and, if its tiles are counted, "K.tiles", the number of tiles read (part of a
/// tile counts as a fraction); for each annotation, such as "note.masked tile", the number of different (block, value)
/// pairs. Empty on the GPU.
std::vector<std::pair<std::string, double>> take_counters();

/// Ends the simulation of the current call and of later ones with an exception, until interrupt(false). Any thread may
/// call it. Does nothing on the GPU.
void interrupt(bool on);

/// Starts recording launches for `./workbook trace`. The simulator's reports become part of the record, and no launch
/// or download throws because of them. Does nothing on the GPU.
void start_trace();
/// Stops recording and returns the record, as trace_record.hpp describes it. Empty on the GPU.
std::string take_trace();

/// Configures the simulation of later launches: the number of operating-system threads (0: one per core), and the order
/// of lanes and warps, drawn from `seed` (nothing: their natural order). The result of a correct kernel depends on
/// neither. Does nothing on the GPU.
void simulate_with(int workers, std::optional<std::uint64_t> seed);

/// Calls work(0), work(1), … without waiting between them, and returns the device time of each in seconds, measured by
/// events. On the simulator, whose time is no measure of a GPU's, it calls work once and returns nothing.
std::vector<double> device_seconds(int times, const std::function<void(int)>& work);
/// The maximum dynamic shared memory of a thread block in bytes: the device's, or that of the simulated GPU.
std::size_t shared_limit();
/// The compute capability of the device or of the simulated GPU; 90 means 9.0.
int compute_capability();
/// Bytes of the device's L2 cache; 0 on the simulator, which has none.
std::size_t l2_bytes();
/// Calls `work` as the range that a profiler started with --profile-from-start off (ncu) records.
void profiled(const std::function<void()>& work);

}  // namespace workbook::cuda
