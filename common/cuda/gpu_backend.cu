// The backend on a GPU. Compiled by nvcc only.
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "common/cuda/backend.hpp"
#include "common/cuda/error.hpp"
#include "common/cuda/launch.hpp"
#include "common/cuda/todo.hpp"
#include "common/simt/gpu_class.hpp"

namespace workbook::cuda {

namespace {

constexpr std::size_t kGuard = 4096;  // bytes on either side of an allocation

struct Allocation {
  std::size_t bytes;
  std::string name;
};
std::mutex allocations_mutex;  // several ranks allocate concurrently; protects the next two
std::map<const void*, Allocation> allocations;
std::size_t bytes_now = 0, bytes_peak = 0;
std::vector<void (*)(char (&)[32])> exercise_readers;
std::mutex readers_mutex;  // several threads may launch concurrently (workbook.h)

void check(cudaError_t error, const std::string& doing) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw Error(doing + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")");
}

/// Checks that the allocation's guard bands still hold what allocate() wrote.
void check_guards(const void* memory, const Allocation& allocation) {
  std::vector<unsigned char> band(kGuard);
  const auto* data = static_cast<const unsigned char*>(memory);
  for (const bool after : {false, true}) {
    check(cudaMemcpy(band.data(), after ? data + allocation.bytes : data - kGuard, kGuard, cudaMemcpyDeviceToHost),
          "reading the guard bands of " + allocation.name);
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (band[i] == 0xff) continue;
      throw Error(
          "a kernel wrote outside " + allocation.name + ", " +
          (after ? std::to_string(i) + " bytes past its end" : std::to_string(kGuard - i) + " bytes before its start"));
    }
  }
}

}  // namespace

namespace detail {
void watch_open_exercise(void (*read)(char (&)[32])) {
  const std::lock_guard lock(readers_mutex);
  exercise_readers.push_back(read);
}
}  // namespace detail

const char* backend_name() {
  return "cuda";
}

#define WORKBOOK_TEXT_OF(x) #x
#define WORKBOOK_TEXT(x) WORKBOOK_TEXT_OF(x)
const char* backend_compiler() {
  return "nvcc " WORKBOOK_TEXT(__CUDACC_VER_MAJOR__) "." WORKBOOK_TEXT(__CUDACC_VER_MINOR__);
}

std::optional<std::string> unavailable() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return std::string("no CUDA device: ") + cudaGetErrorString(error);
  if (count == 0) return "no CUDA device";
  return std::nullopt;
}

void* allocate(std::size_t bytes, std::string_view known_as, std::size_t, Role) {
  const std::string name(known_as);
  unsigned char* memory = nullptr;
  check(cudaMalloc(&memory, bytes + 2 * kGuard), "allocating " + std::to_string(bytes) + " bytes for " + name);
  check(cudaMemset(memory, 0xff, bytes + 2 * kGuard), "filling " + name);
  check(cudaStreamSynchronize(nullptr), "filling " + name);  // other streams need not wait for the default stream
  const std::lock_guard lock(allocations_mutex);
  allocations[memory + kGuard] = {bytes, name};
  bytes_now += bytes;
  bytes_peak = std::max(bytes_peak, bytes_now);
  return memory + kGuard;
}

void release(void* memory) noexcept {
  if (memory == nullptr) return;
  {
    const std::lock_guard lock(allocations_mutex);
    if (const auto known = allocations.find(memory); known != allocations.end()) {
      bytes_now -= known->second.bytes;
      allocations.erase(known);
    }
  }
  cudaFree(static_cast<unsigned char*>(memory) - kGuard);
}

std::size_t take_peak_bytes() {
  return std::exchange(bytes_peak, bytes_now);
}

void upload(void* device, const void* host, std::size_t bytes) {
  check(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "copying to the device");
}

void clear(void* device, std::size_t bytes) {
  check(cudaMemsetAsync(device, 0, bytes, detail::stream()), "setting device memory to zero");
}

int multiprocessors() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device), "querying the device");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "querying the number of SMs");
  return count;
}

void download(void* host, const void* device, std::size_t bytes) {
  synchronize();
  const auto known = allocations.find(device);
  if (known != allocations.end()) check_guards(device, known->second);
  check(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "copying from the device");
}

void synchronize() {
  check(cudaDeviceSynchronize(), "a kernel failed");
  const std::lock_guard lock(readers_mutex);
  for (const auto read : exercise_readers) {
    char id[32] = {};
    read(id);
    if (id[0] == 0) continue;
    static auto& ids = *new std::set<std::string>;  // Todo keeps a pointer
    throw Todo(ids.insert(id).first->c_str());
  }
}

void count_by_tiles(void*, const Tiling&) {}
std::vector<std::pair<std::string, double>> take_counters() {
  return {};
}
void interrupt(bool) {}
void start_trace() {}
std::string take_trace() {
  return {};
}

void simulate_with(int, std::optional<std::uint64_t>) {}

std::vector<double> device_seconds(int times, const std::function<void(int)>& work) {
  struct Event {
    cudaEvent_t event = nullptr;
    Event() { check(cudaEventCreate(&event), "creating an event"); }
    ~Event() { cudaEventDestroy(event); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
  };
  const std::vector<Event> begin(static_cast<std::size_t>(times)), end(static_cast<std::size_t>(times));
  for (std::size_t i = 0; i < begin.size(); ++i) {
    check(cudaEventRecord(begin[i].event), "recording an event");
    work(static_cast<int>(i));
    check(cudaEventRecord(end[i].event), "recording an event");
  }
  synchronize();
  std::vector<double> seconds;
  for (std::size_t i = 0; i < begin.size(); ++i) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin[i].event, end[i].event), "reading the time between events");
    seconds.push_back(milliseconds / 1e3);
  }
  return seconds;
}

namespace {

/// The class of GPUs whose limits apply in addition to the device's own, so that tile sizes for smaller GPUs can be
/// tested on a large one.
std::optional<simt::GpuClass> kept_to() {
  const char* name = std::getenv(simt::kGpuVariable);
  return name == nullptr ? std::nullopt : std::optional(simt::gpu_class(name));
}

}  // namespace

std::size_t shared_limit() {
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "querying the device");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "querying the shared memory per thread block");
  const auto limit = static_cast<std::size_t>(bytes);
  const auto other = kept_to();
  return other ? std::min(limit, other->shared_block) : limit;
}

int compute_capability() {
  int device = 0, major = 0, minor = 0;
  check(cudaGetDevice(&device), "querying the device");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "querying the compute capability");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "querying the compute capability");
  const auto other = kept_to();
  return other ? std::min(10 * major + minor, other->compute) : 10 * major + minor;
}

std::size_t l2_bytes() {
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "querying the device");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device), "querying the size of the L2 cache");
  return static_cast<std::size_t>(bytes);
}

void profiled(const std::function<void()>& work) {
  check(cudaProfilerStart(), "starting the profiler");
  work();
  synchronize();
  check(cudaProfilerStop(), "stopping the profiler");
}

}  // namespace workbook::cuda
