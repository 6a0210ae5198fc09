// The worker program: receives requests, runs the chapter's operations and replies. It is linked with one chapter's
// files and its special operations, never with the oracle, the tests or another chapter.
//
// It also counts the bytes that an operation allocates, by replacing operator new. operator new and main are in this
// one object file, so that a chapter that defines them too does not link. The count is for messages; if a call has a
// memory limit (Call::memory), the operating system enforces it.
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/attention/matrix.hpp"
#include "common/cuda/device.hpp"
#include "common/cuda/error.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/todo.hpp"
#include "common/cuda/version.hpp"
#include "common/worker/protocol.hpp"
#include "common/worker/reports.hpp"
#include "common/worker/sanitizers.hpp"
#include "common/worker/sealed.hpp"

namespace {

/// Memory allocated by the running call. Blocks of earlier calls are not counted, even if this call frees them.
struct Count {
  std::atomic<std::int64_t> now = 0, peak = 0;
  std::atomic<std::uint64_t> call = 0;
  std::atomic<std::size_t> refused = 0;  ///< the size of an allocation that failed
} counted;

void begin_count() {
  counted.now = counted.peak = 0;
  ++counted.call;
}

#ifndef WORKBOOK_SANITIZED
/// Precedes each block.
struct alignas(__STDCPP_DEFAULT_NEW_ALIGNMENT__) Note {
  std::size_t size;
  std::uint64_t call;
};

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  const std::size_t before = std::max(alignment, sizeof(Note));
  const std::size_t all = (before + size + before - 1) / before * before;  // aligned_alloc needs a multiple
  char* block = size > PTRDIFF_MAX - 2 * before ? nullptr : static_cast<char*>(std::aligned_alloc(before, all));
  if (block == nullptr) {
    counted.refused = size;
    throw std::bad_alloc();
  }
  new (block + before - sizeof(Note)) Note{size, counted.call};
  counted.now += std::int64_t(size);
  if (counted.now > counted.peak) counted.peak = counted.now.load();
  return block + before;
}

void release(void* pointer, std::size_t alignment) noexcept {
  if (pointer == nullptr) return;
  const Note& note = *reinterpret_cast<Note*>(static_cast<char*>(pointer) - sizeof(Note));
  if (note.call == counted.call) counted.now -= std::int64_t(note.size);
  std::free(static_cast<char*>(pointer) - std::max(alignment, sizeof(Note)));
}
#endif

}  // namespace

#ifndef WORKBOOK_SANITIZED
// The standard library's array and nothrow forms call these functions.
void* operator new(std::size_t size) {
  return allocate_or_throw(size, 1);
}
void* operator new(std::size_t size, std::align_val_t a) {
  return allocate_or_throw(size, std::size_t(a));
}
void operator delete(void* pointer) noexcept {
  release(pointer, 1);
}
void operator delete(void* pointer, std::size_t) noexcept {
  release(pointer, 1);
}
void operator delete(void* pointer, std::align_val_t a) noexcept {
  release(pointer, std::size_t(a));
}
void operator delete(void* pointer, std::size_t, std::align_val_t a) noexcept {
  release(pointer, std::size_t(a));
}
#endif

// Only code that nvcc has compiled calls it.
extern "C" [[gnu::weak]] void** __cudaRegisterFatBinary(void*);  // NOLINT(bugprone-reserved-identifier)

int workbook::detail::version = 0;

namespace workbook::worker {
namespace {

using cuda::Arguments, cuda::Operations, cuda::Refused, cuda::Unavailable, cuda::device, cuda::DeviceUse;
using nlohmann::json;

bool is_cuda() {
  return &__cudaRegisterFatBinary != nullptr;
}

/// The shared memory of one call, mapped during the call.
class Mapping {
 public:
  /// `read_only`: the number of read-only bytes at the beginning, whole pages.
  Mapping(std::size_t size, std::size_t read_only) : size_(size) {
    if (size == 0) return;
    base_ = static_cast<std::byte*>(map_shared(kSharedMemory, size));
    if (base_ == nullptr || ::mprotect(base_, read_only, PROT_READ) != 0) throw std::bad_alloc();
  }
  ~Mapping() {
    if (base_ != nullptr) munmap(base_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* base() const { return base_; }

 private:
  std::size_t size_;
  std::byte* base_ = nullptr;
};

class SharedArguments : public Arguments {
 public:
  SharedArguments(const json& request, std::byte* base) {
    for (const auto& [key, value] : request.at("numbers").items()) {
      numbers_[key] = value.is_string() ? std::stod(value.get<std::string>()) : value.get<double>();
    }
    for (const json& array : request.at("arrays")) {
      arrays_[array.at("name").get<std::string>()] = {
          {base + array.at("offset").get<std::size_t>(), array.at("bytes").get<std::size_t>()},
          array.at("element").get<std::size_t>()};
    }
  }
  double number(std::string_view name) const override {
    const auto found = numbers_.find(name);
    if (found == numbers_.end()) throw std::logic_error("the call has no number \"" + std::string(name) + "\"");
    return found->second;
  }
  bool has(std::string_view name) const override { return numbers_.contains(name); }
  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [name, value] : numbers_) all.push_back(name);
    return all;
  }

 private:
  struct Array {
    std::span<std::byte> bytes;
    std::size_t element;
  };
  std::span<std::byte> raw(std::string_view name, std::size_t element_size) const override {
    const auto found = arrays_.find(name);
    if (found == arrays_.end()) throw std::logic_error("the call has no array \"" + std::string(name) + "\"");
    if (found->second.element != element_size) {
      throw std::logic_error("array \"" + std::string(name) + "\" has elements of another size");
    }
    return found->second.bytes;
  }
  std::map<std::string, double, std::less<>> numbers_;
  std::map<std::string, Array, std::less<>> arrays_;
};

/// The bytes of this process's memory that RLIMIT_DATA limits.
std::uint64_t data_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmData:")) return std::stoull(line.substr(7)) * 1024;
  return 0;
}

bool sealed = false;
std::uint64_t data_at_start = 0;

#pragma GCC diagnostic ignored "-Wprio-ctor-dtor"  // reserved priorities
/// Runs before the initialisers of the reader's code, which could allocate memory for a later call. (Those of the
/// simulator's instrumentation have priority 99.) CUDA's driver makes memory executable, and a sanitizer maps over
/// existing memory.
[[gnu::constructor(98)]] void start() {
  if (!kCountsMemory || is_cuda()) return;
  sealed = seal();
  data_at_start = data_bytes();
}

/// Limits this process from now on to `bytes` more bytes of memory, plus malloc's granularity. What the server and
/// initialisers have allocated since its start counts beyond 256 KiB.
void limit_memory(std::uint64_t bytes) {
  constexpr std::uint64_t at_a_time = 32 << 10, since_start = 256 << 10;
  ::mallopt(M_TOP_PAD, 0);
  ::malloc_trim(0);
  const std::uint64_t used = data_bytes(), most = std::min(used, data_at_start + since_start) + bytes + at_a_time;
  if (used > most) {  // a limit does not apply to memory that is already allocated
    counted.now = std::int64_t(used - data_at_start);
    throw std::bad_alloc();
  }
  const rlimit limit{most, most};
  if (data_at_start == 0 || ::setrlimit(RLIMIT_DATA, &limit) != 0)
    throw std::runtime_error("cannot limit the memory of this process");
}

void run(const json& request, json& reply) {
  const Mapping memory(request.at("size"), request.at("read_only"));
  const SharedArguments arguments(request, memory.base());
  const std::string name = request.at("operation");
  const auto operation = Operations::all().find(name);
  if (operation == Operations::all().end()) {
    std::string known;
    for (const auto& [other, run] : Operations::all()) known += (known.empty() ? "" : ", ") + other;
    throw std::logic_error("this worker has no operation \"" + name + "\"; it has: " + known);
  }
  detail::version = request.value("version", 0);
  if (device != nullptr) device->begin(arguments);
  const auto start = std::chrono::steady_clock::now();
  if (kCountsMemory && request.contains("memory")) limit_memory(request.at("memory"));
  begin_count();
  try {
    operation->second(arguments);
  } catch (...) {
    if (device != nullptr) device->end();
    throw;
  }
  reply["extra_bytes"] = kCountsMemory ? counted.peak.load() : -1;
  reply["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (device == nullptr) return;
  const DeviceUse use = device->end();
  reply["counters"] = use.counters;
  // The backend's own host allocations are not counted.
  if (use.used) reply["extra_bytes"] = use.extra_bytes;
}

/// Freed when memory has run out, so that the error can be reported.
std::vector<char> reserve(std::size_t(1) << 18);

/// Adds as many complete reports as fit in a reply, and the number of omitted ones.
void add_reports(json& reply, const std::vector<simt::Report>& reports) {
  constexpr std::size_t room = kLongestMessage / 4;
  std::size_t used = 0;
  json given = json::array();
  for (json& report : reports_json(reports)) {
    const std::size_t size = report.dump(-1, ' ', false, json::error_handler_t::replace).size();
    if (used + size > room) continue;
    used += size;
    given.push_back(std::move(report));
  }
  reply["reports_left_out"] = reports.size() - given.size();
  reply["reports"] = std::move(given);
}

json answer(const std::string& text) {
  json request;  // outlives the try block, since even a json's destructor allocates
  json reply{{"status", "ok"}, {"seconds", 0.0}, {"extra_bytes", -1}, {"counters", json::object()}};
  const auto failed = [&](const char* status, const std::string& message) {
    reply["status"] = status;
    reply["message"] = message.substr(0, 4000);  // the length of a reply is limited
  };
  if (device != nullptr) reply["device"] = {{"name", device->name}, {"compiler", device->compiler}};
  try {
    request = json::parse(text);
    reply["id"] = request.at("id");
    if (const auto why = device == nullptr ? std::nullopt : device->unavailable()) {
      failed("unavailable", *why);
    } else {
      run(request, reply);
    }
  } catch (const Todo& todo) {
    failed("todo", todo.what());
  } catch (const Refused& refused) {
    failed("refused", refused.what());
  } catch (const Unavailable& unavailable) {
    failed("unavailable", unavailable.what());
  } catch (const std::bad_alloc&) {
    reserve = std::vector<char>();  // not {}, which keeps the memory
    failed("out_of_memory", "it held " + std::to_string(counted.now) + " bytes and requested " +
                                std::to_string(counted.refused) + " more");
  } catch (const OutsideMatrix& outside) {
    failed("read_outside", outside.what());
  } catch (const cuda::Error& error) {
    const bool reported = !error.reports().empty();
    failed(reported ? "reported" : "threw", reported ? "" : error.what());
    add_reports(reply, error.reports());
  } catch (const std::exception& error) {
    failed("threw", error.what());
  } catch (...) {
    failed("threw", "an exception that is not a std::exception");
  }
  return reply;
}

/// Whether a system call filter is already active.
bool is_isolated() {
  return ::prctl(PR_GET_SECCOMP) != 0;
}

int serve() {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 12);
  if (kCountsMemory && !is_cuda() && !sealed && is_isolated()) {
    std::fputs("the worker cannot be sealed\n", stderr);
    return 1;
  }
  constexpr Transfer own{send_by_own_call, receive_by_own_call};
  bool timed_out = false;
  while (const auto request = receive_message(kSocket, -1, timed_out, own)) {
    const json reply = answer(*request);
    std::fflush(stdout);
    // Invalid UTF-8 in a text thrown by the chapter is replaced, and never throws.
    if (!send_message(kSocket, reply.dump(-1, ' ', false, json::error_handler_t::replace), own)) {
      // The chapter has closed the pipe. The parent detects it and ends this process. If the process ended by itself,
      // the parent would report an exit() by the chapter.
      while (true) ::pause();
    }
  }
  return 0;
}

}  // namespace
}  // namespace workbook::worker

int main() {
  return workbook::worker::serve();
}
