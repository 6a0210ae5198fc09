#include "common/worker/worker.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "common/attention/setting.hpp"
#include "common/worker/protocol.hpp"
#include "common/worker/reports.hpp"
#include "common/worker/sanitizers.hpp"

namespace workbook::worker {

/// A file descriptor that is closed by its destructor and at exec.
// Not in the unnamed namespace, because Worker::Process has members of this type.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const { return number_; }

 private:
  int number_ = -1;
};

namespace {

using nlohmann::json;

constexpr double kLatest = 10;  // wall-clock limit of a call, as a multiple of its time limit
constexpr std::size_t kPage = 4096;
constexpr std::size_t kAlignment = 256;  // of every array, in bytes
constexpr std::size_t kGuard =
    1024;  // bytes before and after every array, not shared, so that an overflow is attributed to the right array
constexpr std::byte kUnwritten{0xFF};  // NaN as float, double, float16 and bfloat16
// Guards are NaN too, which exposes reads outside an array. It is not the NaN of outputs, which exposes copies of a
// guard into an output.
constexpr std::byte kGuardBytes[2] = {std::byte{0xF5}, std::byte{0xFF}};

[[noreturn]] void fail(Ending ending, const std::string& message) {
  throw Failure(ending, message);
}

std::string signal_text(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "signal 11, segmentation fault: it accessed memory that does not belong to it";
    case SIGABRT:
      return "signal 6, abort: an assertion failed (for example, an index past the end of a std::span or std::vector), "
             "abort() was called, or the allocator detected corrupted memory";
    case SIGFPE:
      return "signal 8: an integer division by zero, or a trapped floating-point exception";
    case SIGILL:
      return "signal 4: an illegal instruction, or a function that ended without a return";
    case SIGBUS:
      return "signal 7, bus error";
    case SIGKILL:
      return "signal 9, killed: probably by the system, for lack of memory";
    default:
      return fmt::format("signal {}, {}", signal, strsignal(signal));
  }
}

/// A number that the worker cannot predict: see protocol.hpp.
std::uint64_t new_id() {
  static std::random_device device;
  return std::uint64_t(device()) << 32 | device();
}

/// The location of one array in the shared memory: the bytes from `begin` to `end`, with a guard on either side.
struct Slot {
  std::size_t guard_begin, begin, end, guard_end;
};

Slot slot_of(std::size_t bytes, std::size_t from) {
  const std::size_t begin = from + kGuard;
  return {from, begin, begin + bytes, begin + (bytes + kAlignment - 1) / kAlignment * kAlignment + kGuard};
}

/// This process's mapping of the shared memory.
class Mapping {
 public:
  Mapping(int file, std::size_t size) : size_(size) {
    void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (address == MAP_FAILED) fail(Ending::out_of_memory, "cannot map the arrays");
    base_ = static_cast<std::byte*>(address);
  }
  ~Mapping() { ::munmap(base_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* at(std::size_t offset) const { return base_ + offset; }

  void write_guard(std::size_t from, std::size_t to) const {
    for (std::size_t i = from; i < to; ++i) base_[i] = kGuardBytes[i % 2];
  }
  bool is_guard(std::size_t from, std::size_t to) const {
    for (std::size_t i = from; i < to; ++i) {
      if (base_[i] != kGuardBytes[i % 2]) return false;
    }
    return true;
  }

 private:
  std::size_t size_;
  std::byte* base_;
};

/// CPU time of a process's threads in seconds: the run time of the busiest thread, and the longest time that a thread
/// was ready but not scheduled.
struct Usage {
  double run = 0, queued = 0;
};
Usage usage_of(pid_t pid) {
  Usage most;
  std::error_code ended;
  for (const auto& thread : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), ended)) {
    double run = 0, queued = 0;  // nanoseconds; unset if the kernel does not count them
    std::ifstream(thread.path() / "schedstat") >> run >> queued;
    most = {std::max(most.run, 1e-9 * run), std::max(most.queued, 1e-9 * queued)};
  }
  return most;
}

}  // namespace

const char* name(Ending ending) {
  // In the order of Ending.
  static constexpr const char* names[] = {
      "todo",          "refused",          "unavailable", "threw",         "reported mistakes", "read outside",
      "crashed",       "exited",           "timed out",   "out of memory", "printed too much",  "broke the protocol",
      "wrote outside", "changed an input", "not started"};
  return names[std::size_t(ending)];
}

Call& Call::number(const std::string& name, double value) {
  numbers_[name] = value;
  return *this;
}

std::uint64_t usual_memory() {
  constexpr std::uint64_t GiB = std::uint64_t(1) << 30;
  return 4 * GiB + std::thread::hardware_concurrency() * (GiB / 4);
}

Call& Call::memory(std::uint64_t bytes) {
  memory_ = bytes;
  return *this;
}
bool Call::is_real(const std::string& output) const {
  const auto found = std::ranges::find(arrays_, output, &Array::name);
  return found != arrays_.end() && found->is_real;
}
std::size_t Call::element_size(const std::string& array) const {
  const auto found = std::ranges::find(arrays_, array, &Array::name);
  return found == arrays_.end() ? 0 : found->element_size;
}
Call& Call::version(int number) {
  version_ = number;
  return *this;
}

std::string Call::text() const {
  std::string text = "\"" + operation_ + "\"";
  const char* separator = " with ";
  for (const auto& [name, value] : numbers_) {
    bool is_absent = false;  // of a part that the mask does not have, of which the reader's chapter may know nothing
    for_part_numbers(Mask(), [&](std::string_view part, auto) { is_absent |= name == part && value == 0; });
    if (is_absent) continue;
    text += fmt::format("{}{}={:.6g}", separator, name, value);
    separator = ", ";
  }
  return text;
}

Call& Call::add(const std::string& name, std::size_t element_size, std::size_t count, const void* values) {
  arrays_.push_back({name, element_size, count, values});
  return *this;
}

struct Worker::Process {
  std::filesystem::path executable;
  Limits limits;
  pid_t pid = -1;
  Descriptor socket, memory, printed;

  ~Process() { stop(); }

  void start();
  std::optional<std::string> wait_for_reply(bool& timed_out) const;
  bool ended() const;
  int stop();
  json exchange(const std::string& operation, json request);
  std::string last_printed(std::size_t most) const;
  Failure failure(Ending ending, const std::string& message) const;
  Failure died(const std::string& operation);
};

void Worker::Process::start() {
  // The child uses fixed descriptor numbers. Every descriptor created here must be above them, or dup2 would overwrite
  // it.
  const auto above = [](int number) {
    const int moved = ::fcntl(number, F_DUPFD_CLOEXEC, 10);
    ::close(number);
    return Descriptor(moved);
  };
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    fail(Ending::not_started, "cannot create a socket pair");
  }
  Descriptor child_socket = above(pair[1]);
  socket = above(pair[0]);
  memory = above(::memfd_create("workbook-arrays", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  printed = above(::memfd_create("workbook-printed", MFD_CLOEXEC));
  if (memory.get() < 0 || printed.get() < 0) fail(Ending::not_started, "cannot create shared memory");
  // Prevents the worker from shrinking the file: an access to the missing part would kill this process.
  ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL);

  std::vector<std::string> words = limits.prefix;
  // Untrusted code must not be able to inspect this process, which holds the expected results.
  if (!limits.prefix.empty()) ::prctl(PR_SET_DUMPABLE, 0);
  if (!limits.debugger.empty()) words = {"/bin/sh", "-c", limits.debugger + " \"$0\""};
  words.push_back(executable.string());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const pid_t parent = ::getpid();
  pid = ::vfork();  // as in run_command
  if (pid < 0) fail(Ending::not_started, "vfork failed: " + std::string(std::strerror(errno)));
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // no worker outlives its parent
    if (::getppid() != parent) ::_exit(127);
    ::dup2(child_socket.get(), kSocket);
    ::dup2(memory.get(), kSharedMemory);
    if (limits.debugger.empty()) {
      ::setpgid(0, 0);  // so that its children can be killed with it
      const int nothing = ::open("/dev/null", O_RDONLY);
      ::dup2(nothing, 0);
      ::dup2(printed.get(), 1);
      ::dup2(printed.get(), 2);
      const rlimit core{0, 0};
      ::setrlimit(RLIMIT_CORE, &core);
      ::signal(SIGXFSZ, SIG_DFL);  // if ignored, the limit would truncate the output silently
      const rlimit file{limits.printed, limits.printed};
      ::setrlimit(RLIMIT_FSIZE, &file);
      if (kCountsMemory && limits.memory != 0) {
        const rlimit space{limits.memory, limits.memory};
        ::setrlimit(RLIMIT_AS, &space);
      }
      if (kCountsMemory && limits.stack != 0) {
        const rlimit stack{limits.stack, limits.stack};
        ::setrlimit(RLIMIT_STACK, &stack);
      }
    }
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
}

/// Whether the process has ended by itself; stop() then returns its status.
bool Worker::Process::ended() const {
  siginfo_t info{};  // the call fails if SIGCHLD is ignored, since the process is then not recorded
  return ::waitid(P_PID, id_t(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid;
}

/// Kills the process, if it runs, and its children; returns its wait status.
int Worker::Process::stop() {
  if (pid < 0) return 0;
  int status = 0;
  socket = Descriptor();  // a worker that waits for a request detects the closed socket and returns
  for (auto left = limits.patience; left.count() > 0 && !ended(); left -= std::chrono::milliseconds(10))
    ::usleep(10000);
  if (limits.debugger.empty()) ::kill(-pid, SIGKILL);
  ::kill(pid, SIGKILL);
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  pid = -1;
  return status;
}

/// The last part of what this call printed.
std::string Worker::Process::last_printed(std::size_t most) const {
  const off_t end = ::lseek(printed.get(), 0, SEEK_END);
  const off_t from = std::max<off_t>(0, end - off_t(most));
  std::string text(std::size_t(end - from), '\0');
  const ssize_t read = ::pread(printed.get(), text.data(), text.size(), from);
  text.resize(read > 0 ? std::size_t(read) : 0);
  return text;
}

Failure Worker::Process::failure(Ending ending, const std::string& message) const {
  std::string text = last_printed(2000);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  Failure failure(ending, text.empty() ? message : message + "\n  it printed last: " + text);
  failure.printed = std::move(text);
  return failure;
}

/// Determines how the worker ended without a reply.
Failure Worker::Process::died(const std::string& operation) {
  // It may have closed its end and still run, so it gets a short time to exit and is then killed.
  bool by_itself = ended();
  for (int i = 0; i < 50 && !by_itself; ++i) {
    ::usleep(2000);
    by_itself = ended();
  }
  const int status = stop();
  if (!by_itself) {
    return failure(Ending::broke_protocol,
                   fmt::format("the code closed the book's pipe during \"{}\", or wrote to it", operation));
  }
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    if (signal == SIGXFSZ) {
      return failure(Ending::output_flood,
                     fmt::format("the code printed more than {} MiB during \"{}\"", limits.printed >> 20, operation));
    }
    const std::string stack = signal == SIGSEGV && limits.stack != 0
                                  ? fmt::format(", or exceeded its stack of {} KiB", limits.stack >> 10)
                                  : "";
    return failure(Ending::crashed,
                   fmt::format("the code was killed during \"{}\" by {}{}", operation, signal_text(signal), stack));
  }
  if (WEXITSTATUS(status) == 127) {
    return failure(Ending::not_started, fmt::format("cannot start {}", executable.string()));
  }
  return failure(Ending::exited, fmt::format("the program ended with exit({}) during \"{}\", before it replied",
                                             WEXITSTATUS(status), operation));
}

Worker::Worker(std::filesystem::path executable, Limits limits) : process_(std::make_unique<Process>()) {
  process_->executable = std::move(executable);
  process_->limits = std::move(limits);
}
Worker::~Worker() = default;
Worker::Worker(Worker&&) noexcept = default;
Worker& Worker::operator=(Worker&&) noexcept = default;
Limits& Worker::limits() {
  return process_->limits;
}

/// Waits until the call's time limit. Time in which the call was ready but not scheduled, because of other load on this
/// machine, is added to the limit, up to kLatest times the limit in total.
std::optional<std::string> Worker::Process::wait_for_reply(bool& timed_out) const {
  if (!limits.debugger.empty()) return receive_message(socket.get(), -1, timed_out);
  const Usage before = usage_of(pid);
  const double limit = limits.time.count();
  for (double waited = 0, wait = limit;;) {
    pollfd descriptor{socket.get(), POLLIN, 0};
    const int ready = ::poll(&descriptor, 1, int(std::ceil(1000 * wait)));
    if (ready > 0) return receive_message(socket.get(), limit, timed_out);
    if (ready < 0 && errno == EINTR) continue;
    waited += wait;
    const Usage now = usage_of(pid);
    const double left = limit - std::max(waited - (now.queued - before.queued), now.run - before.run);
    if (waited >= kLatest * limit || left < 0.01) {
      timed_out = true;
      return {};
    }
    wait = std::min(left, kLatest * limit - waited);
  }
}

/// Sends the request and waits for its reply. Throws Failure if there is none.
json Worker::Process::exchange(const std::string& operation, json request) {
  const std::uint64_t id = new_id();
  request["id"] = id;
  bool timed_out = false;
  std::optional<std::string> text;
  if (send_message(socket.get(), request.dump())) text = wait_for_reply(timed_out);
  // If a child of the worker keeps the pipe open, only the time limit reveals that the worker has ended.
  if (timed_out && !ended()) {
    stop();
    throw failure(Ending::timed_out,
                  fmt::format("the code did not finish \"{}\" within {} s: an endless loop, or far too slow", operation,
                              limits.time.count()));
  }
  if (!text) throw died(operation);

  json reply = json::parse(*text, nullptr, false);
  if (!reply.is_object() || reply.value("id", json()) != id) {
    stop();
    throw failure(Ending::broke_protocol,
                  fmt::format("the answer to \"{}\" is not a valid reply to this call", operation));
  }
  return reply;
}

// NOLINTNEXTLINE(readability-function-size): one call, from the request to the reply
Reply Worker::call(const Call& call) {
  Process& process = *process_;
  // The process ended after its last reply, independently of this call.
  if (process.pid >= 0 && (call.memory_ || process.ended())) process.stop();
  if (process.pid < 0) process.start();

  // Lays out the arrays, each between guards of its own.
  json request{{"operation", call.operation_}, {"numbers", json::object()}, {"arrays", json::array()}};
  for (const auto& [name, number] : call.numbers_) {
    request["numbers"][name] = std::isfinite(number) ? json(number) : json(fmt::format("{}", number));
  }
  std::size_t size = kGuard;
  std::vector<Slot> slots;
  std::size_t read_only = 0;  // size of the read-only part: the inputs, up to a page boundary
  for (const Call::Array& array : call.arrays_) {
    const std::size_t bytes = array.element_size * array.count;
    if (call.memory_ && array.values == nullptr && read_only == 0)
      read_only = size = (size + kPage - 1) / kPage * kPage;
    slots.push_back(slot_of(bytes, size));
    size = slots.back().guard_end;
    request["arrays"].push_back(
        {{"name", array.name}, {"offset", slots.back().begin}, {"bytes", bytes}, {"element", array.element_size}});
  }
  request["size"] = size;
  request["read_only"] = read_only;
  if (call.memory_) request["memory"] = *call.memory_;
  if (call.version_ != 0) request["version"] = call.version_;
  const off_t have = ::lseek(process.memory.get(), 0, SEEK_END);
  if (have < off_t(size) && ::ftruncate(process.memory.get(), off_t(size)) != 0) {
    fail(Ending::out_of_memory,
         fmt::format("cannot allocate {} bytes of shared memory for the arrays: {}", size, std::strerror(errno)));
  }
  const Mapping memory(process.memory.get(), size);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    memory.write_guard(slot.guard_begin, slot.begin);
    memory.write_guard(slot.end, slot.guard_end);
    if (call.arrays_[i].values == nullptr) {
      std::fill(memory.at(slot.begin), memory.at(slot.end), kUnwritten);
    } else if (slot.end > slot.begin) {
      std::memcpy(memory.at(slot.begin), call.arrays_[i].values, slot.end - slot.begin);
    }
  }

  // Discards the output of earlier calls, since the limit and the returned text apply to this call.
  if (::ftruncate(process.printed.get(), 0) == 0) ::lseek(process.printed.get(), 0, SEEK_SET);
  const json answer = process.exchange(call.operation_, std::move(request));
  if (call.memory_) process.stop();  // the limit of a process cannot be changed

  Reply reply;
  std::string status, message;
  std::vector<simt::Report> reports;
  std::size_t left_out = 0;
  const auto broken_reply = [&] {
    process.stop();
    return process.failure(Ending::broke_protocol,
                           fmt::format("the answer to \"{}\" is not a valid reply", call.operation_));
  };
  try {
    status = answer.at("status").get<std::string>();
    message = answer.value("message", "");
    reply.seconds = answer.at("seconds").get<double>();
    reply.extra_bytes = answer.at("extra_bytes").get<std::int64_t>();
    reply.counters = answer.at("counters").get<std::map<std::string, double>>();
    if (const auto device = answer.find("device"); device != answer.end()) {
      reply.device = device->at("name").get<std::string>();
      reply.device_compiler = device->at("compiler").get<std::string>();
    }
    if (const auto given = answer.find("reports"); given != answer.end()) {
      reports = reports_from_json(*given);
      left_out = answer.at("reports_left_out").get<std::size_t>();
    }
  } catch (const json::exception&) {
    throw broken_reply();
  } catch (const std::invalid_argument&) {
    throw broken_reply();
  }
  if (status == "todo") {
    throw Failure(Ending::todo, fmt::format("todo {}", message), message);
  }
  if (status == "refused") throw process.failure(Ending::refused, message);
  if (status == "unavailable") throw process.failure(Ending::unavailable, message);
  if (status == "out_of_memory") {
    process.stop();  // memory that it leaked must be available to the next call
    const std::string most = call.memory_ ? fmt::format("limit {} bytes of its own", *call.memory_)
                                          : fmt::format("limit {} MiB", process.limits.memory >> 20);
    throw process.failure(Ending::out_of_memory,
                          fmt::format("the code requested more memory than available during \"{}\" ({}): {}",
                                      call.operation_, most, message));
  }
  if (status == "reported") {
    Failure failure = process.failure(Ending::reported, fmt::format("the simulator found mistakes in \"{}\":\n{}",
                                                                    call.operation_, simt::text(reports)));
    failure.reports = std::move(reports);
    failure.reports_left_out = left_out;
    throw failure;
  }
  if (status == "read_outside") {
    throw process.failure(Ending::read_outside,
                          fmt::format("the code threw an exception during \"{}\": {}", call.operation_, message));
  }
  if (status != "ok") {
    if (reply.device == "cuda") process.stop();  // a failed kernel leaves the device context unusable
    throw process.failure(Ending::threw,
                          fmt::format("the code threw an exception during \"{}\": {}", call.operation_, message));
  }

  // Checks guards and inputs, then reads the outputs.
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Call::Array& array = call.arrays_[i];
    const Slot& slot = slots[i];
    const std::size_t bytes = slot.end - slot.begin;
    if (!memory.is_guard(slot.guard_begin, slot.begin)) {
      throw process.failure(Ending::wrote_outside,
                            fmt::format("\"{}\" wrote before the first element of {}", call.operation_, array.name));
    }
    if (!memory.is_guard(slot.end, slot.guard_end)) {
      throw process.failure(Ending::wrote_outside, fmt::format("\"{}\" wrote past the end of {}, which has {} elements",
                                                               call.operation_, array.name, array.count));
    }
    if (array.values == nullptr) {
      reply.outputs[array.name].assign(memory.at(slot.begin), memory.at(slot.end));
    } else if (bytes > 0 && std::memcmp(memory.at(slot.begin), array.values, bytes) != 0) {
      throw process.failure(Ending::changed_input, fmt::format("\"{}\" changed its input {}: inputs are read-only",
                                                               call.operation_, array.name));
    }
  }
  reply.printed = process.last_printed(2000);
  return reply;
}

}  // namespace workbook::worker
