// The backend on the simulator.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <map>
#include <new>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "common/cuda/backend.hpp"
#include "common/cuda/error.hpp"
#include "common/cuda/todo.hpp"
#include "common/cuda/trace_record.hpp"
#include "common/simt/simulator.hpp"
#include "common/simt/stream_order.hpp"

namespace workbook::cuda {

namespace {
struct Allocation {
  std::size_t bytes = 0;
  std::string name;
};
std::map<const void*, Allocation> allocations;
std::map<std::string, Tiling>
    tilings;  // of tensors whose reads are counted by tiles, by name, until the counters are taken
std::size_t bytes_now = 0, bytes_peak = 0;
std::optional<TraceRecord> trace;  // set while launches are recorded
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
  const char* name = std::getenv(simt::kGpuVariable);
  if (name == nullptr) return std::nullopt;
  try {
    simt::options().gpu = simt::gpu_class(name);
  } catch (const std::invalid_argument& unknown) {
    return std::string(simt::kGpuVariable) + ": " + unknown.what();
  }
  simt::options().shared_limit = simt::options().gpu.shared_block;
  return std::nullopt;
}

void* allocate(std::size_t bytes, std::string_view name, std::size_t element_size, Role role) {
  const simt::Role as = role == Role::input    ? simt::Role::input
                        : role == Role::output ? simt::Role::output
                                               : simt::Role::scratch;
  void* memory = nullptr;
  simt::require_host("allocate");
  try {
    memory = simt::allocate(bytes, std::string(name), element_size, as);
  } catch (const std::bad_alloc&) {
    throw Error("not enough memory for " + std::to_string(bytes) + " bytes of " + std::string(name));
  }
  allocations[memory] = {bytes, std::string(name)};
  bytes_now += bytes;
  bytes_peak = std::max(bytes_peak, bytes_now);
  return memory;
}
void release(void* memory) noexcept {
  if (const auto known = allocations.find(memory); known != allocations.end()) {
    bytes_now -= known->second.bytes;
    allocations.erase(known);
  }
  simt::release(memory);
}
std::size_t take_peak_bytes() {
  return std::exchange(bytes_peak, bytes_now);
}
void upload(void* device, const void* host, std::size_t bytes) {
  simt::copied_by_host(device, bytes, /*writes=*/true);
  simt::copy_in(device, host, bytes);
}
void clear(void* device, std::size_t bytes) {
  simt::fill_on(simt::current_stream(), device, 0, bytes, {});
}
int multiprocessors() {
  return simt::options().ends == 0 ? 132 : std::numeric_limits<int>::max();
}

void download(void* host, const void* device, std::size_t bytes) {
  if (bytes == 0) return;
  synchronize();
  simt::copied_by_host(device, bytes, /*writes=*/false);
  // Without instrumentation, it is unknown which elements were written.
  if (simt::instrumented() && simt::options().count && simt::options().detect) {
    const std::vector<simt::Report> reports = simt::check_output(device);
    if (!reports.empty() && !trace) throw Error(reports);
    if (!reports.empty()) trace->add_report(simt::text(reports));
  }
  simt::copy_out(host, device, bytes);
}

void synchronize() {
  simt::synchronize_device();
}

void count_by_tiles(void* memory, const Tiling& tiling) {
  simt::set_tiles(memory, unit_bytes(tiling));
  tilings[allocations.at(memory).name] = tiling;
}

void interrupt(bool on) {
  simt::interrupt(on);
}

void start_trace() {
  trace.emplace();
  simt::options().throw_on_mistakes = false;
  simt::options().trace = true;
}
std::string take_trace() {
  const std::string text = trace ? trace->text() : "";
  trace.reset();
  simt::options().throw_on_mistakes = true;
  simt::options().trace = false;
  return text;
}

void simulate_with(int workers, std::optional<std::uint64_t> seed) {
  simt::options().workers = workers;
  simt::options().order = seed ? simt::Order::shuffled : simt::Order::natural;
  simt::options().seed = seed.value_or(1);
}

std::vector<double> device_seconds(int, const std::function<void(int)>& work) {
  work(0);
  return {};
}
std::size_t shared_limit() {
  return simt::options().shared_limit;
}
int compute_capability() {
  return simt::options().gpu.compute;
}
std::size_t l2_bytes() {
  return 0;
}
void profiled(const std::function<void()>& work) {
  work();
}

std::vector<std::pair<std::string, double>> take_counters() {
  std::map<std::string, double> sums;
  for (const simt::Launch& launch : simt::launches()) {
    if (!launch.counted) continue;
    sums["launches"] += 1;
    const auto add = [&](const std::string& name, std::uint64_t count) { sums[name] += double(count); };
    visit_counters(launch.counters, add);
    for (const simt::TensorTraffic& tensor : launch.tensors) {
      visit_counters(tensor.counters, tensor.name + ".", add);
      const auto tiling = tilings.find(tensor.name);
      if (tiling == tilings.end() || tensor.tile_bytes.empty()) continue;
      for (const double reads : reads_of_tiles(tensor, tiling->second)) sums[tensor.name + ".tiles"] += reads;
    }
    // The number of different (block, value) pairs of an annotation, for example of masked tiles.
    for (const simt::Note& note : launch.notes) sums["note." + note.label] += 1;
  }
  for (const simt::Transfer& sent : simt::transfers()) sums["sent_bytes"] += double(sent.bytes);
  if (trace) trace->add_transfers(simt::transfers());
  simt::clear_launches();
  tilings.clear();
  return {sums.begin(), sums.end()};
}

namespace detail {

void translated(void (*run)(void*), void* call) {
  try {
    run(call);
  } catch (const simt::KernelMistakes& mistakes) {
    throw Error(mistakes.reports());
  }
}

void guarded(void (*run)(void*), void* launch) {
  try {
    run(launch);
    if (trace) {
      std::map<std::string, TracedTensor> tensors;
      for (const auto& [memory, allocation] : allocations) {
        const auto tiling = tilings.find(allocation.name);
        tensors[allocation.name] = {allocation.bytes,
                                    tiling == tilings.end() ? std::nullopt : std::optional(tiling->second)};
      }
      trace->add_launch(simt::last_launch(), tensors);
    }
  } catch (const simt::OpenExercise& open) {
    static auto& ids = *new std::set<std::string>;  // Todo keeps a pointer
    throw Todo(ids.insert(open.what()).first->c_str());
  } catch (const simt::KernelMistakes& mistakes) {
    throw Error(mistakes.reports());
  } catch (const simt::LaunchRefused& refused) {
    throw Error(refused.what());
  }
}

}  // namespace detail

}  // namespace workbook::cuda
