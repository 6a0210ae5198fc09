// The two backends' common interface, without templates: what the host's side of a worker needs of them. One of
// simulator_backend.cpp and gpu_backend.cu is linked into a worker. No header of a kernel's includes it: what is
// counted and checked is not the kernels' (tests/judge/test_layers.cpp).
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
/// What compiled the backend, as "nvcc 13.0" or "g++ 12.2".
const char* backend_compiler();
/// Why kernels cannot run here ("no CUDA device: …"); nothing if they can.
std::optional<std::string> unavailable();

/// Bytes of device memory in use at most since the last call, guard bands not counted; starts anew from what is in use.
std::size_t take_peak_bytes();
/// What the launches since the last call did, by name: "launches", "block_barriers", "tensor_instructions", …; for each
/// tensor "K.load_sectors", …, and "K.tiles", how many tiles were read, where they are counted (a part of a tile counts
/// as that part); for each annotation "note.masked tile", in how many blocks times values it was noted. Several
/// launches are added up. Empty on the GPU.
std::vector<std::pair<std::string, double>> take_counters();

/// From here on every launch is recorded for `./workbook trace`, and what the simulator reports becomes part of the
/// record: no launch and no download throws for it. Nothing on the GPU.
void start_trace();
/// Ends that and gives the record, as trace_record.hpp describes it. Empty on the GPU.
std::string take_trace();

/// How the launches to come are simulated: on so many operating-system threads (0: one a core), and with lanes and
/// warps in an order drawn from `seed` (nothing: their natural order). No right kernel's result depends on either.
/// Nothing on the GPU.
void simulate_with(int workers, std::optional<std::uint64_t> seed);

/// Calls work(0), work(1), … one after the other without waiting between them, and gives the seconds that the device
/// spent on each, by events. Empty on the simulator, whose time says nothing about a GPU's: there it is called once.
std::vector<double> device_seconds(int times, const std::function<void(int)>& work);
/// Bytes of dynamic shared memory that a block may have: the device's; on the simulator those of the GPU whose limits
/// it has taken on.
std::size_t shared_limit();
/// The device's compute capability, 90 for 9.0, in the same way.
int compute_capability();
/// Bytes of the device's L2 cache; 0 on the simulator, which has none.
std::size_t l2_bytes();
/// Calls `work`, and is what a profiler looks at that was told to wait for it (ncu --profile-from-start off).
void profiled(const std::function<void()>& work);

}  // namespace workbook::cuda
