#include "common/worker/worker.hpp"

#include <fcntl.h>
#include <fmt/format.h>
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
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/worker/protocol.hpp"
#include "common/worker/sanitizers.hpp"

namespace workbook::worker {
namespace {

using nlohmann::json;

constexpr std::size_t kGuard = 256;  // bytes before and after every array, and its alignment
constexpr std::byte kGuardByte{0xA5};
constexpr std::byte kUnwritten{0xFF};  // as float, double, float16 or bfloat16: NaN

/// A file descriptor that is closed with its owner, and at exec.
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

[[noreturn]] void fail(Ending ending, const std::string& message) { throw Failure(ending, message); }

std::string signal_text(int signal) {
  switch (signal) {
    case SIGSEGV: return "signal 11, segmentation fault: it touched memory that is not its own";
    case SIGABRT: return "signal 6, abort: an assertion failed, or the memory allocator found damage";
    case SIGFPE: return "signal 8: an integer was divided by zero";
    case SIGILL: return "signal 4: an illegal instruction, or a function that ended without its return";
    case SIGBUS: return "signal 7, bus error";
    case SIGKILL: return "signal 9, killed: probably by the system, for want of memory";
    default: return fmt::format("signal {}, {}", signal, strsignal(signal));
  }
}

bool all_equal(std::span<const std::byte> bytes, std::byte value) {
  return std::all_of(bytes.begin(), bytes.end(), [value](std::byte b) { return b == value; });
}

}  // namespace

const char* name(Ending ending) {
  switch (ending) {
    case Ending::todo: return "todo";
    case Ending::refused: return "refused";
    case Ending::threw: return "threw";
    case Ending::crashed: return "crashed";
    case Ending::exited: return "exited";
    case Ending::timed_out: return "timed out";
    case Ending::out_of_memory: return "out of memory";
    case Ending::output_flood: return "printed too much";
    case Ending::broke_protocol: return "broke the protocol";
    case Ending::wrote_outside: return "wrote outside";
    case Ending::changed_input: return "changed an input";
    case Ending::not_started: return "not started";
  }
  return "?";
}

Call& Call::number(const std::string& name, double value) {
  numbers_[name] = value;
  return *this;
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
  off_t printed_before = 0;  // what earlier calls printed

  ~Process() { stop(); }

  void start();
  int stop();
  std::string last_printed(std::size_t most) const;
  Failure failure(Ending ending, const std::string& message) const;
  Failure died(const std::string& operation);
};

void Worker::Process::start() {
  // Fixed descriptor numbers in the child: everything made here must lie above them, or dup2 would overwrite it.
  const auto above = [](int number) {
    const int moved = ::fcntl(number, F_DUPFD_CLOEXEC, 10);
    ::close(number);
    return Descriptor(moved);
  };
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) fail(Ending::not_started, "no socket pair could be made");
  Descriptor child_socket = above(pair[1]);
  socket = above(pair[0]);
  memory = above(::memfd_create("workbook-arrays", MFD_ALLOW_SEALING));
  printed = above(::memfd_create("workbook-printed", 0));
  if (memory.get() < 0 || printed.get() < 0) fail(Ending::not_started, "no shared memory could be made");
  // The worker must not shrink what we have mapped: touching the missing part would kill us.
  ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL);
  printed_before = 0;

  std::vector<std::string> words;
  if (limits.debug) {
    const char* debugger = std::getenv("WORKBOOK_DEBUGGER");
    words = {"/bin/sh", "-c", std::string(debugger ? debugger : "gdb -q --args") + " \"$0\""};
  }
  words.push_back(executable.string());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const pid_t parent = ::getpid();
  pid = ::fork();
  if (pid < 0) fail(Ending::not_started, "fork failed: " + std::string(std::strerror(errno)));
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // no worker outlives its parent
    if (::getppid() != parent) ::_exit(127);
    ::dup2(child_socket.get(), kSocket);
    ::dup2(memory.get(), kSharedMemory);
    if (!limits.debug) {
      ::setpgid(0, 0);  // so that what it starts can be killed with it
      const int nothing = ::open("/dev/null", O_RDONLY);
      ::dup2(nothing, 0);
      ::dup2(printed.get(), 1);
      ::dup2(printed.get(), 2);
      const rlimit core{0, 0};
      ::setrlimit(RLIMIT_CORE, &core);
      const rlimit file{limits.printed, limits.printed};
      ::setrlimit(RLIMIT_FSIZE, &file);
      if (kCountsMemory) {
        const rlimit space{limits.memory, limits.memory};
        ::setrlimit(RLIMIT_AS, &space);
      }
    }
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
}

/// Ends the process if it runs; returns its wait status.
int Worker::Process::stop() {
  if (pid < 0) return 0;
  int status = 0;
  socket = Descriptor();  // a worker that waits for a request sees the end and returns
  if (!limits.debug) ::kill(-pid, SIGKILL);
  ::kill(pid, SIGKILL);
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  pid = -1;
  return status;
}

/// The end of what this call printed.
std::string Worker::Process::last_printed(std::size_t most) const {
  const off_t end = ::lseek(printed.get(), 0, SEEK_END);
  if (end <= printed_before) return "";
  const off_t from = std::max<off_t>(printed_before, end - off_t(most));
  std::string text(std::size_t(end - from), '\0');
  const ssize_t read = ::pread(printed.get(), text.data(), text.size(), from);
  text.resize(read > 0 ? std::size_t(read) : 0);
  return text;
}

Failure Worker::Process::failure(Ending ending, const std::string& message) const {
  std::string text = last_printed(2000);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return Failure(ending, text.empty() ? message : message + "\n  it printed last: " + text);
}

/// The worker is gone without an answer: finds out how.
Failure Worker::Process::died(const std::string& operation) {
  int status = 0;
  // It may have closed its end and still run: a moment to end by itself, then it is ended.
  for (int i = 0; i < 50; ++i) {
    const pid_t done = ::waitpid(pid, &status, WNOHANG);
    if (done == pid) {
      ::kill(-pid, SIGKILL);  // whatever it has started
      pid = -1;
      break;
    }
    ::usleep(2000);
  }
  if (pid >= 0) {
    stop();
    return failure(Ending::broke_protocol, fmt::format("the code closed the book's pipe during \"{}\"", operation));
  }
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    if (signal == SIGXFSZ) {
      return failure(Ending::output_flood,
                     fmt::format("the code printed more than {} MiB during \"{}\"", limits.printed >> 20, operation));
    }
    return failure(Ending::crashed, fmt::format("the code was killed during \"{}\" by {}", operation,
                                                signal_text(signal)));
  }
  if (WEXITSTATUS(status) == 127) {
    return failure(Ending::not_started, fmt::format("{} could not be started", executable.string()));
  }
  return failure(Ending::exited, fmt::format("the program ended with exit({}) during \"{}\", before it answered",
                                             WEXITSTATUS(status), operation));
}

Worker::Worker(std::filesystem::path executable, Limits limits) : process_(std::make_unique<Process>()) {
  process_->executable = std::move(executable);
  process_->limits = limits;
}
Worker::~Worker() = default;
Worker::Worker(Worker&&) noexcept = default;
Worker& Worker::operator=(Worker&&) noexcept = default;
Limits& Worker::limits() { return process_->limits; }

Reply Worker::call(const Call& call) {
  Process& process = *process_;
  if (process.pid < 0) process.start();

  // Lay out the arrays: guard, array, guard, array, …, guard.
  json request{{"operation", call.operation_}, {"numbers", call.numbers_}, {"arrays", json::array()}};
  std::size_t size = kGuard;
  std::vector<std::size_t> offsets;
  for (const Call::Array& array : call.arrays_) {
    const std::size_t bytes = array.element_size * array.count;
    offsets.push_back(size);
    request["arrays"].push_back(
        {{"name", array.name}, {"offset", size}, {"bytes", bytes}, {"element", array.element_size}});
    size += (bytes + kGuard - 1) / kGuard * kGuard + kGuard;
  }
  request["size"] = size;
  const off_t have = ::lseek(process.memory.get(), 0, SEEK_END);
  if (have < off_t(size) && ::ftruncate(process.memory.get(), off_t(size)) != 0) {
    fail(Ending::out_of_memory, fmt::format("{} MiB of shared memory for the arrays are not to be had", size >> 20));
  }
  struct Unmap {
    std::size_t size;
    void operator()(std::byte* base) const { ::munmap(base, size); }
  };
  void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, process.memory.get(), 0);
  if (address == MAP_FAILED) fail(Ending::out_of_memory, "the arrays could not be mapped");
  const std::unique_ptr<std::byte, Unmap> base(static_cast<std::byte*>(address), Unmap{size});
  std::fill_n(base.get(), size, kGuardByte);
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const Call::Array& array = call.arrays_[i];
    const std::size_t bytes = array.element_size * array.count;
    if (array.values == nullptr) {
      std::fill_n(base.get() + offsets[i], bytes, kUnwritten);
    } else if (bytes > 0) {
      std::memcpy(base.get() + offsets[i], array.values, bytes);
    }
  }

  process.printed_before = ::lseek(process.printed.get(), 0, SEEK_END);
  bool timed_out = false;
  std::optional<std::string> text;
  if (send_message(process.socket.get(), request.dump())) {
    text = receive_message(process.socket.get(), process.limits.debug ? -1 : process.limits.time.count(), timed_out);
  }
  if (timed_out) {
    process.stop();
    throw process.failure(Ending::timed_out, fmt::format("the code did not finish \"{}\" within {} s: an endless loop, "
                                                         "or far too slow",
                                                         call.operation_, process.limits.time.count()));
  }
  if (!text) throw process.died(call.operation_);

  Reply reply;
  std::string status, message;
  try {
    const json answer = json::parse(*text);
    status = answer.at("status").get<std::string>();
    message = answer.value("message", "");
    reply.seconds = answer.at("seconds").get<double>();
    reply.extra_bytes = answer.at("extra_bytes").get<std::int64_t>();
    reply.counters = answer.at("counters").get<std::map<std::string, double>>();
  } catch (const json::exception&) {
    process.stop();
    throw process.failure(Ending::broke_protocol,
                          fmt::format("what came back from \"{}\" is not a reply of the book's", call.operation_));
  }
  if (status == "todo") {
    throw Failure(Ending::todo, fmt::format("todo {}", message), message);
  }
  if (status == "refused") throw process.failure(Ending::refused, message);
  if (status == "out_of_memory") {
    throw process.failure(Ending::out_of_memory,
                          fmt::format("the code asked for more memory than there is during \"{}\" (limit {} MiB)",
                                      call.operation_, process.limits.memory >> 20));
  }
  if (status != "ok") {
    throw process.failure(Ending::threw, fmt::format("the code threw an exception during \"{}\": {}", call.operation_,
                                                     message));
  }

  // Guards and inputs, then the outputs.
  const auto bytes_of = [&](std::size_t from, std::size_t to) {
    return std::span<const std::byte>(base.get() + from, to - from);
  };
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const Call::Array& array = call.arrays_[i];
    const std::size_t end = offsets[i] + array.element_size * array.count;
    const std::size_t next = i + 1 < offsets.size() ? offsets[i + 1] : size;
    if (!all_equal(bytes_of(offsets[i] - kGuard, offsets[i]), kGuardByte)) {
      throw process.failure(Ending::wrote_outside, fmt::format("\"{}\" wrote before the first element of {}",
                                                               call.operation_, array.name));
    }
    if (!all_equal(bytes_of(end, next), kGuardByte)) {
      throw process.failure(Ending::wrote_outside,
                            fmt::format("\"{}\" wrote past the end of {}, which has {} elements", call.operation_,
                                        array.name, array.count));
    }
    if (array.values == nullptr) {
      reply.outputs[array.name].assign(base.get() + offsets[i], base.get() + end);
    } else if (end > offsets[i] && std::memcmp(base.get() + offsets[i], array.values, end - offsets[i]) != 0) {
      throw process.failure(Ending::changed_input,
                            fmt::format("\"{}\" changed its input {}: inputs are only to be read", call.operation_,
                                        array.name));
    }
  }
  reply.printed = process.last_printed(2000);
  return reply;
}

}  // namespace workbook::worker
