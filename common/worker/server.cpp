// The worker program: waits for requests, runs the chapter's operation, answers. It is linked with one chapter's files
// and its special operations, never with the oracle, the tests or another chapter.
//
// It also counts what an operation allocates: operator new is replaced, and what gives thrown objects their memory,
// exact to the byte (allocations.hpp). That, and main, lie in this one object file, so that a chapter that defines them
// as well does not link.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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
#include "common/worker/allocations.hpp"
#include "common/worker/protocol.hpp"
#include "common/worker/reports.hpp"
#include "common/worker/sanitizers.hpp"
#include "common/worker/sealed.hpp"

namespace {

// What earlier calls have allocated and nobody has given back. A few numbers may be kept; more is memory of the call's.
constexpr std::int64_t kMayBeKept = 4096;

#ifndef WORKBOOK_SANITIZED
void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  // aligned_alloc wants a multiple.
  void* block =
      alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__
          ? std::malloc(std::max<std::size_t>(size, 1))
          : std::aligned_alloc(alignment, std::max(alignment, (size + alignment - 1) / alignment * alignment));
  if (block == nullptr || size > PTRDIFF_MAX) throw std::bad_alloc();
  workbook::worker::count_block(block, size);
  return block;
}

void release(void* block) noexcept {
  workbook::worker::forget_block(block);
  std::free(block);
}
#endif

}  // namespace

#ifndef WORKBOOK_SANITIZED
// The array and nothrow forms of the standard library call these.
void* operator new(std::size_t size) {
  return allocate_or_throw(size, 1);
}
void* operator new(std::size_t size, std::align_val_t a) {
  return allocate_or_throw(size, std::size_t(a));
}
void operator delete(void* pointer) noexcept {
  release(pointer);
}
void operator delete(void* pointer, std::size_t) noexcept {
  release(pointer);
}
void operator delete(void* pointer, std::align_val_t) noexcept {
  release(pointer);
}
void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept {
  release(pointer);
}

// What is thrown has memory too, and the library takes it by malloc. Its own calls come through here as well.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" __attribute__((visibility("default"))) void* __cxa_allocate_exception(std::size_t size) noexcept {
  static const auto of_the_library =
      reinterpret_cast<void* (*)(std::size_t)>(::dlsym(RTLD_NEXT, "__cxa_allocate_exception"));
  void* block = of_the_library(size);
  workbook::worker::count_block(block, size);
  return block;
}
extern "C" __attribute__((visibility("default"))) void __cxa_free_exception(void* block) noexcept {
  static const auto of_the_library = reinterpret_cast<void (*)(void*)>(::dlsym(RTLD_NEXT, "__cxa_free_exception"));
  workbook::worker::forget_block(block);
  of_the_library(block);
}
// NOLINTEND(bugprone-reserved-identifier)
#endif

std::uint64_t workbook::cuda::available_memory() {
  std::uint64_t available = UINT64_MAX;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string key; meminfo >> key;) {
    std::uint64_t kib = 0;
    meminfo >> kib;
    if (key == "MemAvailable:") {
      available = kib * 1024;
      break;
    }
    meminfo.ignore(256, '\n');
  }
  // A container's limit (cgroup v2); "max" and a missing file leave it as it is.
  std::uint64_t limit = 0, used = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit && std::ifstream("/sys/fs/cgroup/memory.current") >> used) {
    available = std::min(available, limit > used ? limit - used : 0);
  }
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const std::uint64_t mapped = pages * std::uint64_t(sysconf(_SC_PAGESIZE));
    available = std::min<std::uint64_t>(available, space.rlim_cur > mapped ? space.rlim_cur - mapped : 0);
  }
  return available;
}

namespace workbook::worker {
namespace {

using cuda::Arguments, cuda::Operations, cuda::Refused, cuda::Unavailable, cuda::device, cuda::DeviceUse;
using nlohmann::json;

/// The shared memory of one call, mapped while it runs.
class Mapping {
 public:
  explicit Mapping(std::size_t size) : size_(size) {
    if (size == 0) return;
    void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, kSharedMemory,
                         0);  // all of it: the parent knows what it takes
    if (address == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(address);
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

void run(const json& request, json& reply) {
  const Mapping memory(request.at("size").get<std::size_t>());
  const SharedArguments arguments(request, memory.base());
  const std::string name = request.at("operation");
  const auto operation = Operations::all().find(name);
  if (operation == Operations::all().end()) {
    std::string known;
    for (const auto& [other, run] : Operations::all()) known += (known.empty() ? "" : ", ") + other;
    throw std::logic_error("this worker has no operation \"" + name + "\"; it has: " + known);
  }
  if (device != nullptr) device->begin(arguments);
  const auto start = std::chrono::steady_clock::now();
  // The simulator allocates on many threads; what counts there is device memory.
  begin_count(/*sealed=*/device == nullptr);
  try {
    operation->second(arguments);
  } catch (...) {
    end_count();
    if (device != nullptr) device->end();
    throw;
  }
  const Counted counted = end_count();
  // The simulator keeps memory of its own from launch to launch: it is not told apart there.
  const std::int64_t kept = device == nullptr && counted.kept_before > kMayBeKept ? counted.kept_before : 0;
  reply["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  reply["extra_bytes"] = kCountsMemory ? counted.peak + kept : -1;
  if (device == nullptr) return;
  const DeviceUse use = device->end();
  reply["counters"] = use.counters;
  // What the backend allocates on the host is its own affair.
  if (use.used) reply["extra_bytes"] = use.extra_bytes;
}

/// Given back when memory has run out, so that there is some to say so with.
std::vector<char> reserve(std::size_t(1) << 18);

/// As many reports as a reply has room for, each whole, and how many are left out.
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
  json request;  // outlives the try block: even the destructor of a json allocates
  json reply{{"status", "ok"}, {"seconds", 0.0}, {"extra_bytes", -1}, {"counters", json::object()}};
  const auto failed = [&](const char* status, const std::string& message) {
    reply["status"] = status;
    reply["message"] = message.substr(0, 4000);  // a reply has its longest length
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
    failed("out_of_memory", "");
  } catch (const OutsideMatrix& outside) {
    failed("read_outside", outside.what());
  } catch (const cuda::Error& error) {
    const bool reported = !error.reports().empty();
    failed(reported ? "reported" : "threw", reported ? "" : error.what());
    add_reports(reply, error.reports());
  } catch (const std::exception& error) {
    failed("threw", error.what());
  } catch (...) {
    failed("threw", "something that is not a std::exception");
  }
  return reply;
}

int serve() {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 12);
  // CUDA's driver makes memory executable, and a sanitizer maps where it likes.
  if (kCountsMemory && (device == nullptr || std::string_view(device->name) != "cuda")) seal();
  constexpr Transfer own{send_by_own_call, receive_by_own_call};
  bool timed_out = false;
  while (const auto request = receive_message(kSocket, -1, timed_out, own)) {
    const json reply = answer(*request);
    std::fflush(stdout);
    // Text thrown by the chapter may be no UTF-8: replaced, never an exception.
    if (!send_message(kSocket, reply.dump(-1, ' ', false, json::error_handler_t::replace), own)) {
      // The chapter has closed the pipe. The parent sees it and ends this process; were it to end by itself, that would
      // pass for an exit() of the chapter's.
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
