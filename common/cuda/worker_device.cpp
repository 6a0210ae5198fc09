// What every worker with kernels adds to its replies, for both backends.
#include "common/cuda/worker_device.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/cuda/backend.hpp"
#include "common/cuda/device.hpp"

namespace workbook::cuda {
namespace {

std::size_t own_bytes = 0;      // device memory of the call's own tensors
bool begun = false;             // begin_chapter() was called
std::span<std::uint8_t> trace;  // receives the record of this call's launches; empty: not requested

std::size_t bytes_in_use() {
  take_peak_bytes();
  return take_peak_bytes();
}

/// Applies the optional numbers "workers" and "lane_seed" of a call: see simulate_with(). A call with the number
/// "trace" has a byte array "trace" for a text.
void begin(const Arguments& call) {
  const auto seed = std::uint64_t(call.integer("lane_seed", 0));
  simulate_with(int(call.integer("workers", 0)), seed == 0 ? std::nullopt : std::optional(seed));
  take_counters();
  own_bytes = bytes_in_use();
  begun = false;
  trace = {};
  if (call.integer("trace", 0) != 0) {
    trace = call.array<std::uint8_t>("trace");
    start_trace();
  }
}

DeviceUse end() {
  DeviceUse use;
  const std::size_t peak = take_peak_bytes();
  use.extra_bytes = std::int64_t(peak - own_bytes);
  for (const auto& [name, value] : take_counters()) use.counters[name] = value;
  if (!trace.empty()) {
    std::string text = take_trace();
    if (text.size() > trace.size())
      text = "{\"bytes\": " + std::to_string(text.size()) + "}";  // the size that it would need
    std::copy(text.begin(), text.end(), trace.begin());
    trace = {};
  }
  use.used = begun || use.extra_bytes > 0 || !use.counters.empty();
  return use;
}

const Device described{backend_name(), backend_compiler(), unavailable, begin, end};
const bool registered = (device = &described, true);

}  // namespace

void begin_chapter() {
  take_counters();
  own_bytes = bytes_in_use();
  begun = true;
}

}  // namespace workbook::cuda
