// The backend on the simulator.
#include <algorithm>
#include <map>
#include <new>
#include <set>
#include <utility>

#include "common/cuda/backend.hpp"
#include "common/simt/simulator.hpp"
#include "common/worker/todo.hpp"

namespace workbook::cuda {

namespace {
struct Allocation {
  std::size_t bytes = 0;
  std::string name;
};
std::map<const void*, Allocation> allocations;
std::map<std::string, std::size_t> tile_sizes;  // bytes, by the tensor's name, where reads are counted by tiles
std::size_t bytes_now = 0, bytes_peak = 0;
}  // namespace

const char* backend_name() {
  return "sim";
}
#define WORKBOOK_TEXT_OF(x) #x
#define WORKBOOK_TEXT(x) WORKBOOK_TEXT_OF(x)
const char* backend_compiler() {
#if defined(__clang__)
  return "clang++ " WORKBOOK_TEXT(__clang_major__) "." WORKBOOK_TEXT(__clang_minor__);
#else
  return "g++ " WORKBOOK_TEXT(__GNUC__) "." WORKBOOK_TEXT(__GNUC_MINOR__);
#endif
}
std::optional<std::string> unavailable() {
  return std::nullopt;
}

void* allocate(std::size_t bytes, const std::string& name, std::size_t element_size, Role role) {
  const simt::Role as = role == Role::input    ? simt::Role::input
                        : role == Role::output ? simt::Role::output
                                               : simt::Role::scratch;
  void* memory = nullptr;
  try {
    memory = simt::allocate(bytes, name, element_size, as);
  } catch (const std::bad_alloc&) {
    throw Error("no memory for " + std::to_string(bytes) + " bytes of " + name);
  }
  allocations[memory] = {bytes, name};
  bytes_now += bytes;
  bytes_peak = std::max(bytes_peak, bytes_now);
  return memory;
}
void release(void* memory) noexcept {
  if (const auto known = allocations.find(memory); known != allocations.end()) {
    bytes_now -= known->second.bytes;
    tile_sizes.erase(known->second.name);
    allocations.erase(known);
  }
  simt::release(memory);
}
std::size_t take_peak_bytes() {
  return std::exchange(bytes_peak, bytes_now);
}
void upload(void* device, const void* host, std::size_t bytes) {
  simt::copy_in(device, host, bytes);
}

void download(void* host, const void* device, std::size_t bytes) {
  if (bytes == 0) return;
  // Without instrumentation nobody knows which elements were written.
  if (simt::instrumented() && simt::options().count && simt::options().detect) {
    std::string text;
    for (const simt::Report& report : simt::check_output(device)) text += report.text();
    if (!text.empty()) throw Error(text);
  }
  simt::copy_out(host, device, bytes);
}

void synchronize() {}  // a launch on the simulator returns when it is done

void count_by_tiles(void* memory, std::size_t tile_bytes) {
  simt::set_tiles(memory, tile_bytes);
  tile_sizes[allocations.at(memory).name] = tile_bytes;
}

void simulate_with(int workers, std::optional<std::uint64_t> seed) {
  simt::options().workers = workers;
  simt::options().order = seed ? simt::Order::shuffled : simt::Order::natural;
  simt::options().seed = seed.value_or(1);
}

std::optional<double> device_seconds(const std::function<void()>& work) {
  work();
  return std::nullopt;
}

std::vector<std::pair<std::string, double>> take_counters() {
  std::map<std::string, double> sums;
  const auto add_global = [&](const std::string& prefix, const simt::GlobalCounters& c) {
    sums[prefix + "load_requests"] += double(c.load_requests);
    sums[prefix + "load_sectors"] += double(c.load_sectors);
    sums[prefix + "load_bytes"] += double(c.load_bytes);
    sums[prefix + "store_requests"] += double(c.store_requests);
    sums[prefix + "store_sectors"] += double(c.store_sectors);
    sums[prefix + "store_bytes"] += double(c.store_bytes);
    sums[prefix + "async_requests"] += double(c.async_requests);
    sums[prefix + "async_sectors"] += double(c.async_sectors);
    sums[prefix + "async_bytes"] += double(c.async_bytes);
    sums[prefix + "atomic_requests"] += double(c.atomic_requests);
    sums[prefix + "atomic_sectors"] += double(c.atomic_sectors);
    sums[prefix + "unique_read_sectors"] += double(c.unique_read_sectors);
    sums[prefix + "unique_written_sectors"] += double(c.unique_written_sectors);
  };
  for (const simt::Launch& launch : simt::launches()) {
    if (!launch.counted) continue;
    const simt::Counters& c = launch.counters;
    sums["launches"] += 1;
    add_global("global.", c.global);
    sums["shared.load_instructions"] += double(c.shared.load_instructions);
    sums["shared.store_instructions"] += double(c.shared.store_instructions);
    sums["shared.matrix_loads"] += double(c.shared.matrix_loads);
    sums["shared.load_wavefronts"] += double(c.shared.load_wavefronts);
    sums["shared.store_wavefronts"] += double(c.shared.store_wavefronts);
    sums["shared.load_ideal"] += double(c.shared.load_ideal);
    sums["shared.store_ideal"] += double(c.shared.store_ideal);
    sums["shared.atomic_instructions"] += double(c.shared.atomic_instructions);
    sums["tensor_instructions"] += double(c.tensor_instructions);
    sums["async_instructions"] += double(c.async_instructions);
    sums["block_barriers"] += double(c.block_barriers);
    sums["warp_barriers"] += double(c.warp_barriers);
    sums["shuffles"] += double(c.shuffles);
    sums["votes"] += double(c.votes);
    for (const simt::TensorTraffic& tensor : launch.tensors) {
      add_global(tensor.name + ".", tensor.counters);
      const auto tile = tile_sizes.find(tensor.name);
      if (tile == tile_sizes.end()) continue;
      for (const std::uint64_t bytes : tensor.tile_bytes) {
        sums[tensor.name + ".tiles"] +=
            double(bytes) / double(tile->second);  // tiles read: whole ones if none is short
      }
    }
    // How many different (block, value) pairs an annotation has: masked tiles, say.
    for (const simt::Note& note : launch.notes) sums["note." + note.label] += 1;
  }
  simt::clear_launches();
  return {sums.begin(), sums.end()};
}

namespace detail {

void guarded(void (*run)(void*), void* launch) {
  try {
    run(launch);
  } catch (const simt::OpenExercise& open) {
    static auto& ids = *new std::set<std::string>;  // Todo keeps a pointer
    throw Todo(ids.insert(open.what()).first->c_str());
  } catch (const simt::KernelMistakes& mistakes) {
    throw Error(mistakes.what());
  } catch (const simt::LaunchRefused& refused) {
    throw Error(refused.what());
  }
}

}  // namespace detail

}  // namespace workbook::cuda
