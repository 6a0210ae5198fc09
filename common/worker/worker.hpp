// The parent's side of the pipe: starts a worker process, calls its operations, and converts every abnormal end into a
// named failure. Independent of chapters, exercises and attention.
//
// Inputs and outputs are in one shared memory file; requests and replies use a socket pair. Outputs are pre-filled with
// NaN, every array has guard bands, and inputs are compared after the call. The worker cannot report that a test
// passes; it can only fill the outputs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "common/simt/report.hpp"

namespace workbook::worker {

/// How a call can end without a result.
enum class Ending {
  todo,            ///< the code reached WORKBOOK_TODO; `Failure::todo` holds the id
  refused,         ///< given code refused the call before doing any work
  unavailable,     ///< the backend has no device to run kernels on, or the device is too small for this call
  threw,           ///< an exception left the operation
  reported,        ///< the simulator found mistakes in a kernel: `Failure::reports`
  read_outside,    ///< an index was outside a matrix of a CPU chapter; no access took place
  crashed,         ///< killed by a signal (segmentation fault, abort, …)
  exited,          ///< the process ended without answering
  timed_out,       ///< no answer within the limit
  out_of_memory,   ///< an allocation failed under the memory limit
  output_flood,    ///< printed more than the limit
  broke_protocol,  ///< the answer is not a valid reply
  wrote_outside,   ///< a guard band of an array was overwritten
  changed_input,   ///< an input differs from what was sent
  not_started,     ///< the executable could not be started
};
/// "timed out", "crashed", …
const char* name(Ending ending);

/// A call that did not return. what() is one or two sentences for the reader, with the last lines printed by the code
/// and the texts of the reports.
class Failure : public std::runtime_error {
 public:
  Failure(Ending ending, const std::string& message, std::string todo = "")
      : std::runtime_error(message), ending(ending), todo(std::move(todo)) {}
  Ending ending;
  std::string todo;
  std::string printed;  ///< the last part of the code's output during the call
  std::vector<simt::Report> reports;
  std::size_t reports_left_out = 0;  ///< number of reports that did not fit in the reply
};

/// Bytes of address space for a worker. On the simulator each core runs a thread block, with stacks for its threads.
std::uint64_t usual_memory();

struct Limits {
  static constexpr std::chrono::hours kLongest{24};  ///< effectively unlimited, for calls that a person waits for
  std::chrono::duration<double> time{10};            ///< per call, wall clock
  std::uint64_t memory = usual_memory();  ///< bytes of address space, 0: no limit; not applied in sanitizer builds
  std::uint64_t stack = 0;  ///< bytes of its stack, which prevents large arrays there; 0: the system's default
  std::uint64_t printed = 16ull << 20;  ///< bytes written to stdout and stderr, per call
  std::string debugger;  ///< a shell command that starts the worker on this terminal, without limits; or empty
  /// The time to exit when requested, before the worker is killed. A tool that observes the worker writes its report
  /// then.
  std::chrono::duration<double> patience{0};
  /// Program and arguments that start the worker in isolation; its executable is appended.
  std::vector<std::string> prefix;
};

/// One call: an operation's name, numbers, and arrays.
class Call {
 public:
  explicit Call(std::string operation) : operation_(std::move(operation)) {}
  Call& number(const std::string& name, double value);
  /// Limits the operation's memory to `bytes` bytes from any source; the stack has its own limit. The operation runs in
  /// a process that keeps nothing from earlier calls, and its inputs are read-only.
  Call& memory(std::uint64_t bytes);
  /// Selects one of the versions that the worker's program holds (common/book/combine.hpp); 0: the book's.
  Call& version(int number);
  template <class T>
  Call& input(const std::string& name, std::span<const T> values) {
    return add(name, sizeof(T), values.size(), values.data());
  }
  template <class T>
  Call& input(const std::string& name, const std::vector<T>& values) {
    return input(name, std::span<const T>(values));
  }
  /// An output of `count` elements, pre-filled with NaN (floating types) or 0xFF bytes (which, for 16-bit codes and
  /// float, are NaN as well).
  template <class T>
  Call& output(const std::string& name, std::size_t count) {
    add(name, sizeof(T), count, nullptr);
    arrays_.back().is_real = std::is_floating_point_v<T>;
    return *this;
  }

  /// "forward" with Nk=50, Nq=50, …: for messages.
  std::string text() const;
  const std::map<std::string, double>& numbers() const { return numbers_; }
  const std::string& operation() const { return operation_; }
  /// Whether this output has elements of float or double, rather than codes or integers.
  bool is_real(const std::string& output) const;
  std::size_t element_size(const std::string& array) const;  ///< in bytes; 0: there is no such array

 private:
  friend class Worker;
  struct Array {
    std::string name;
    std::size_t element_size, count;
    const void* values;    // null for an output; must stay alive during the call
    bool is_real = false;  // an output of float or double
  };
  Call& add(const std::string& name, std::size_t element_size, std::size_t count, const void* values);
  std::string operation_;
  std::map<std::string, double> numbers_;
  std::vector<Array> arrays_;
  std::optional<std::uint64_t> memory_;
  int version_ = 0;
};

/// The result of a call.
struct Reply {
  double seconds = 0;  ///< wall clock of the operation, measured by the worker
  /// Peak memory allocated by the operation: by operator new or, if it used a device, device memory in addition to the
  /// call's tensors. -1: not counted.
  std::int64_t extra_bytes = -1;
  std::map<std::string, double> counters;  ///< the backend's counters (none on the CPU)
  std::map<std::string, std::vector<std::byte>> outputs;
  std::string printed;          ///< the last part of the code's output during the call
  std::string device;           ///< "sim" or "cuda"; empty on the CPU
  std::string device_compiler;  ///< compiler of the kernels' backend: "nvcc 13.0"

  template <class T>
  std::vector<T> output(const std::string& name) const {
    const std::vector<std::byte>& bytes = outputs.at(name);
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  /// 0 if the backend does not count it, or if it did not occur.
  double counter(const std::string& name) const {
    const auto found = counters.find(name);
    return found == counters.end() ? 0 : found->second;
  }
  /// Bytes that the kernels requested from device memory: by loads and stores, cp.async, and TMA.
  double read_bytes() const {
    return counter("global.load_bytes") + counter("global.async_bytes") + counter("global.bulk_load_bytes");
  }
  double written_bytes() const {
    return counter("global.store_bytes") + counter("global.bulk_store_bytes") + counter("global.bulk_reduce_bytes");
  }
};

/// A worker process. Started at the first call, and restarted after it has ended.
class Worker {
 public:
  explicit Worker(std::filesystem::path executable, Limits limits = {});
  ~Worker();
  Worker(Worker&&) noexcept;
  Worker& operator=(Worker&&) noexcept;

  /// Runs one operation. Throws Failure.
  Reply call(const Call& call);
  Limits& limits();

 private:
  struct Process;
  std::unique_ptr<Process> process_;
};

}  // namespace workbook::worker
