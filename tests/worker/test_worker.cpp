// The worker: the results and counts of a call, and every way in which the code under test can fail. Most tests use one
// executable, fixtures/zoo.cpp.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>
#include <utility>

#include "common/worker/calls.hpp"
#include "common/worker/sanitizers.hpp"
#include "common/worker/worker.hpp"
#include "tests/worker/fixtures/fixtures.hpp"

using namespace workbook::worker;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using workbook::Mask, workbook::Setting;
namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

/// All workers of this file, built together; a later run of the tests finds them built.
const WorkerBuilt& built(const std::string& name) {
  static const std::map<std::string, WorkerBuilt> workers = [] {
    const auto job = [](const std::string& job_name, const std::vector<std::string>& files) {
      WorkerJob made{job_name, Backend::cpu, {}, fixture("")};
      for (const std::string& file : files) made.sources.push_back(fixture(file));
      return made;
    };
    return build_workers(
        toolchain_for(fs::path(WORKBOOK_BINARY) / "tests/worker/built"),
        {job("zoo", {"zoo.cpp"}), job("before_main", {"zoo.cpp", "before_main.cpp"}),
         job("defines_main", {"zoo.cpp", "defines_main.cpp"}), job("defines_new", {"zoo.cpp", "defines_new.cpp"}),
         job("defines_protocol", {"zoo.cpp", "defines_protocol.cpp"}),
         job("defines_oracle", {"zoo.cpp", "defines_oracle.cpp"})});
  }();
  return workers.at(name);
}

Worker worker_of(const std::string& name, double seconds = 5) {
  const WorkerBuilt& worker = built(name);
  INFO(worker.log);
  REQUIRE(worker.ok);
  Limits limits;
  limits.time = Seconds(seconds);
  return Worker(worker.executable, limits);
}

Worker zoo(double seconds = 5) {
  return worker_of("zoo", seconds);
}

/// The failure of a call, which must fail.
Failure failure_of(Worker& worker, const Call& call) {
  try {
    worker.call(call);
  } catch (const Failure& failure) {
    return failure;
  }
  FAIL("the call returned");
  throw std::logic_error("not reached");
}

/// Checks that the worker is ready for the next call and returns the right result.
void check_answers(Worker& worker) {
  CHECK(worker.call(Call("return number").number("x", 7).output<double>("y", 1)).output<double>("y") ==
        std::vector<double>{7});
}

void check_dies(const Call& call, Ending ending, const std::string& message, double seconds = 5) {
  INFO(name(ending));
  Worker worker = zoo(seconds);
  check_answers(worker);
  const Failure failure = failure_of(worker, call);
  CHECK(std::string(name(failure.ending)) == name(ending));
  CHECK_THAT(failure.what(), ContainsSubstring(message));
  check_answers(worker);
}

/// Whether a worker must protect its pipe and its count from the code it runs (common/worker/sealed.hpp). Determined
/// without a worker, so that a worker that should be sealed and is not fails its tests.
bool is_sealed() {
#if defined(__x86_64__)
  static const bool takes_filters = [] {
    const pid_t child = ::fork();
    if (child == 0) {
      sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
      const sock_fprog program{1, allow};
      ::_exit(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0
                  ? 0
                  : 1);
    }
    int status = 0;
    return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
  }();
  return !kSanitized && takes_filters;
#else
  return false;
#endif
}

double seconds_since(Clock::time_point start) {
  return Seconds(Clock::now() - start).count();
}

/// A pipe whose other end is held open by every process that this one starts: closed when all of them are gone.
class OpenWhileAlive {
 public:
  OpenWhileAlive() { REQUIRE(::pipe(ends_) == 0); }
  ~OpenWhileAlive() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  OpenWhileAlive(const OpenWhileAlive&) = delete;
  OpenWhileAlive& operator=(const OpenWhileAlive&) = delete;
  bool all_gone_within(double seconds) {
    ::close(std::exchange(ends_[1], -1));
    pollfd descriptor{ends_[0], POLLIN, 0};
    char byte;
    return ::poll(&descriptor, 1, int(seconds * 1000)) == 1 && ::read(ends_[0], &byte, 1) == 0;
  }

 private:
  int ends_[2];
};

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

}  // namespace

// ---- Results. -------------------------------------------------------------------------------------------------------

TEST_CASE("numbers and arrays of every type arrive, and outputs are returned") {
  const std::vector<float> floats{1.5f, -2, 0};
  const std::vector<double> doubles{0.1, 1e300};
  const std::vector<std::int64_t> integers{std::int64_t(1) << 40, -3};
  const std::vector<std::uint16_t> codes{1, 30000, 32767, 0, 7};
  Worker worker = zoo();
  const Reply reply = worker.call(Call("scale all")
                                      .number("factor", 2)
                                      .input("x float", floats)
                                      .input("x double", doubles)
                                      .input("x int64", integers)
                                      .input("x uint16", codes)
                                      .output<float>("y float", 3)
                                      .output<double>("y double", 2)
                                      .output<std::int64_t>("y int64", 2)
                                      .output<std::uint16_t>("y uint16", 3 + 2));
  CHECK(reply.output<float>("y float") == std::vector<float>{3, -4, 0});
  CHECK(reply.output<double>("y double") == std::vector<double>{0.2, 2e300});
  CHECK(reply.output<std::int64_t>("y int64") == std::vector<std::int64_t>{std::int64_t(1) << 41, -6});
  CHECK(reply.output<std::uint16_t>("y uint16").at(1) == 60000);
  CHECK(reply.seconds >= 0);
  CHECK(reply.counters.empty());
}

TEST_CASE("arrays may be empty") {
  Worker worker = zoo();
  const Reply reply = worker.call(Call("scale all")
                                      .number("factor", 2)
                                      .input("x float", std::vector<float>{})
                                      .input("x double", std::vector<double>{})
                                      .input("x int64", std::vector<std::int64_t>{})
                                      .input("x uint16", std::vector<std::uint16_t>{9})
                                      .output<float>("y float", 0)
                                      .output<double>("y double", 0)
                                      .output<std::int64_t>("y int64", 0)
                                      .output<std::uint16_t>("y uint16", 1));
  CHECK(reply.output<float>("y float").empty());
  CHECK(reply.output<std::uint16_t>("y uint16") == std::vector<std::uint16_t>{18});
}

TEST_CASE("numbers arrive exactly, including non-finite ones") {
  Worker worker = zoo();
  for (const double x : {0.1, -0.0, 1e-320, 1.7976931348623157e308, 9007199254740993.0,
                         std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
    const double y = worker.call(Call("return number").number("x", x).output<double>("y", 1)).output<double>("y")[0];
    CHECK(y == x);
    CHECK(std::signbit(y) == std::signbit(x));
  }
  CHECK(std::isnan(worker.call(Call("return number").number("x", kNaN).output<double>("y", 1)).output<double>("y")[0]));
}

TEST_CASE("an output that an operation does not write is NaN, also after a call that wrote it") {
  Worker worker = zoo();
  const std::vector<float> x{1, 2, 3, 4};
  for (int i = 0; i < 2; ++i) {
    const auto y = worker.call(Call("copy half").input("x", x).output<float>("y", 4)).output<float>("y");
    CHECK(y[1] == 2);
    CHECK(std::isnan(y[2]));
    CHECK(std::isnan(y[3]));
  }
  const Reply reply = worker.call(Call("do nothing").output<float>("y", 4).output<double>("z", 1));
  for (const float y : reply.output<float>("y")) CHECK(std::isnan(y));
  CHECK(std::isnan(reply.output<double>("z")[0]));
}

TEST_CASE("memory just outside an array reads as NaN, so that its use shows in the result") {
  Worker worker = zoo();
  const std::vector<float> x{1, 2, 3};
  for (const int index : {-1, -200, 3, 4, 200}) {
    const Reply reply = worker.call(Call("read at").input("x", x).number("index", index).output<float>("y", 1));
    CHECK(std::isnan(reply.output<float>("y")[0]));
  }
}

TEST_CASE("large arrays travel, and small ones after them") {
  Worker worker = zoo();
  std::vector<float> x(5'000'000);
  std::iota(x.begin(), x.end(), 0.0f);
  const auto y = worker.call(Call("copy half").input("x", x).output<float>("y", x.size())).output<float>("y");
  CHECK(y[2'499'999] == 2'499'999);
  CHECK(std::isnan(y[2'500'000]));
  check_answers(worker);
}

TEST_CASE("a missing argument and an unknown operation are reported") {
  Worker worker = zoo();
  CHECK_THAT(failure_of(worker, Call("ask for missing")).what(), ContainsSubstring("no number \"no such number\""));
  CHECK_THAT(failure_of(worker, Call("ask for wrong type").output<float>("x", 2)).what(),
             ContainsSubstring("\"x\" has elements of another size"));
  CHECK_THAT(failure_of(worker, Call("fly")).what(), ContainsSubstring("no operation \"fly\""));
}

TEST_CASE("the output that the code printed in this call is returned") {
  Worker worker = zoo();
  CHECK(worker.call(Call("print")).printed == "to stdout\nto stderr\nno newline at the end");
  CHECK(worker.call(Call("do nothing")).printed.empty());
  CHECK(worker.call(Call("print KiB").number("KiB", 100)).printed.size() == 2000);  // the end of it
}

TEST_CASE("the last printed output is part of a failure's message") {
  Worker worker = zoo();
  CHECK_THAT(failure_of(worker, Call("print and abort")).what(), ContainsSubstring("it printed last: row 17 is odd"));
}

TEST_CASE("two workers alive at once do not interfere") {
  Worker one = zoo(), two = zoo();
  const auto pid = [](Worker& worker) {
    return worker.call(Call("process id").output<std::int64_t>("pid", 1)).output<std::int64_t>("pid")[0];
  };
  const auto first = pid(one), second = pid(two);
  CHECK(first != second);
  failure_of(one, Call("exit").number("code", 0));
  CHECK(pid(two) == second);
  CHECK(pid(one) != first);
  CHECK(one.call(Call("print")).printed.size() > 0);
  CHECK(two.call(Call("do nothing")).printed.empty());
}

TEST_CASE("a worker can be moved, and replaced by another") {
  Worker one = zoo();
  check_answers(one);
  Worker two = std::move(one);
  check_answers(two);
  two = zoo();
  check_answers(two);
}

// ---- Memory. --------------------------------------------------------------------------------------------------------

TEST_CASE("extra_bytes is the peak of the bytes allocated by operator new, exactly") {
  if (!kCountsMemory) SKIP("AddressSanitizer owns operator new");
  Worker worker = zoo();
  const auto extra = [&](const std::string& operation, double n) {
    return worker.call(Call(operation).number("n", n)).extra_bytes;
  };
  CHECK(worker.call(Call("do nothing")).extra_bytes == 0);
  CHECK(extra("allocate vector", 1000) == 4000);
  CHECK(extra("allocate vector", 1) == 4);
  CHECK(extra("allocate vector", 0) == 0);
  CHECK(extra("allocate twice in sequence", 1000) == 4000);
  CHECK(extra("allocate twice together", 1000) == 8000);
  CHECK(extra("allocate in every way", 1000) == 1 + 1000 + 1000 + 64 + 64000);
  CHECK(extra("allocate in threads", 100'000) >= 400'000);  // a std::thread allocates as well
  CHECK(extra("allocate in threads", 100'000) <= 401'000);
}

TEST_CASE("memory kept from one call is not counted in the next, nor is giving it back") {
  if (!kCountsMemory) SKIP("AddressSanitizer owns operator new");
  Worker worker = zoo();
  CHECK(worker.call(Call("keep").number("n", 1000)).extra_bytes == 4000);
  CHECK(worker.call(Call("do nothing")).extra_bytes == 0);
  CHECK(worker.call(Call("drop, then allocate").number("n", 500)).extra_bytes == 2000);
}

TEST_CASE("a call's memory limit holds for every way to allocate, and the message gives the bytes") {
  if (!kCountsMemory) SKIP("a sanitizer build does not limit memory");
  Worker worker = zoo();
  worker.limits().stack = 256 << 10;
  constexpr double allowed = 20'000, more = 400'000;
  worker.call(Call("keep").number("n", more));  // in a process that ends afterwards
  for (const std::string operation : {"allocate vector", "malloc", "pages", "raise the limit"}) {
    INFO(operation);
    CHECK_NOTHROW(worker.call(Call(operation).number("n", allowed / 4).memory(std::uint64_t(allowed))));
    const Failure failure = failure_of(worker, Call(operation).number("n", more).memory(std::uint64_t(allowed)));
    CHECK(std::string(name(failure.ending)) == "out of memory");
    CHECK_THAT(failure.what(), ContainsSubstring("limit 20000 bytes of its own"));
  }
  const Failure vector = failure_of(worker, Call("allocate vector").number("n", more).memory(std::uint64_t(allowed)));
  CHECK_THAT(vector.what(), ContainsSubstring("it held 0 bytes and requested 1600000 more"));
  const Failure stack = failure_of(worker, Call("stack array").number("n", more).memory(std::uint64_t(allowed)));
  CHECK(std::string(name(stack.ending)) == "crashed");
  // An exception that cannot be allocated ends the program.
  const Failure thrown = failure_of(worker, Call("throw and catch").number("n", more).memory(std::uint64_t(allowed)));
  CHECK(std::string(name(thrown.ending)) == "crashed");
  // Its inputs do not count as its own memory.
  const std::vector<float> x(1000);
  const Call writes = Call("change input").input("x", x).output<float>("y", 1).memory(std::uint64_t(allowed));
  CHECK(std::string(name(failure_of(worker, writes).ending)) == "crashed");
  check_answers(worker);
}

TEST_CASE("a sanitizer build says that it does not count") {
  if (kCountsMemory) SKIP("this build counts");
  Worker worker = zoo();
  CHECK(worker.call(Call("allocate vector").number("n", 1000)).extra_bytes == -1);
}

TEST_CASE("an allocation beyond the limit ends as out of memory, and the next call has all memory") {
  if (!kCountsMemory) SKIP("AddressSanitizer builds run without a limit of memory");
  for (const std::string operation : {"ask for too much", "leak everything"}) {
    INFO(operation);
    Worker worker = zoo();
    worker.limits().memory = 256u << 20;
    const Failure failure = failure_of(worker, Call(operation));
    CHECK(std::string(name(failure.ending)) == "out of memory");
    CHECK_THAT(failure.what(), ContainsSubstring("limit 256 MiB"));
    CHECK(worker.call(Call("allocate vector").number("n", 40e6)).extra_bytes == 160'000'000);
  }
}

TEST_CASE("the limit of memory is the worker's, not ours") {
  if (!kCountsMemory) SKIP("AddressSanitizer builds run without a limit of memory");
  Worker worker = zoo();
  worker.limits().memory = 64u << 20;
  const std::vector<float> x(30'000'000);
  CHECK(std::string(name(failure_of(worker, Call("copy half").input("x", x).output<float>("y", 1)).ending)) ==
        "out of memory");
  check_answers(worker);
}

// ---- Exceptions: the worker lives on. -------------------------------------------------------------------------------

TEST_CASE("a call as text omits the numbers of parts that its mask does not have") {
  Call call("forward");
  add_numbers(call, {{1, 2, 2, 3, 4, 64}, 0.5F, Mask::causal});
  CHECK(call.text() == "\"forward\" with B=1, H=2, Hkv=2, Nk=4, Nq=3, d=64, mask=1, scale=0.5");
  Setting capped{{1, 2, 2, 3, 4, 64}, 0.5F, Mask::within(7, 0)};
  capped.mask.softcap = 2, capped.mask.alibi = true;
  Call with_parts("forward");
  add_numbers(with_parts, capped);
  CHECK_THAT(with_parts.text(), ContainsSubstring("alibi=1, d=64, mask=2, scale=0.5, softcap=2, window_left=7"));
}

TEST_CASE("an open exercise ends a call as todo, with its id") {
  Worker worker = zoo();
  const Failure failure = failure_of(worker, Call("open exercise"));
  CHECK(failure.ending == Ending::todo);
  CHECK(failure.todo == "4.2");
  check_answers(worker);
}

TEST_CASE("exceptions of every kind are reported, and the same process goes on") {
  Worker worker = zoo();
  const Call ask = Call("process id").output<std::int64_t>("pid", 1);
  const auto before = worker.call(ask).output<std::int64_t>("pid");
  const auto message = [&](const std::string& operation, Ending ending) {
    const Failure failure = failure_of(worker, Call(operation));
    CHECK(std::string(name(failure.ending)) == name(ending));
    return std::string(failure.what());
  };
  CHECK_THAT(message("throw error", Ending::threw), ContainsSubstring("\"throw error\": the tile is empty"));
  CHECK_THAT(message("throw number", Ending::threw), ContainsSubstring("not a std::exception"));
  CHECK_THAT(message("throw binary", Ending::threw), ContainsSubstring("bytes \uFFFD\uFFFD here"));
  CHECK_THAT(message("throw novel", Ending::threw), ContainsSubstring("it was a dark night"));
  CHECK(message("refuse", Ending::refused) == "S would take 64 GiB");
  CHECK(worker.call(ask).output<std::int64_t>("pid") == before);
}

// ---- Ways to die: named, and the next call works. -------------------------------------------------------------------

TEST_CASE("a crash is named by its signal") {
  check_dies(Call("abort"), Ending::crashed, "abort");
  if (!kCountsMemory) {
    // The sanitizer catches the other signals, reports, and exits: what it printed is in the message.
    check_dies(Call("touch null"), Ending::exited, "it printed last:");
    return;
  }
  check_dies(Call("touch null"), Ending::crashed, "segmentation fault");
#ifdef __x86_64__  // on ARM the quotient is 0
  check_dies(Call("divide by zero"), Ending::crashed, "division by zero");
#endif
}

TEST_CASE("an operation that ends the program has no result, whatever its exit code") {
  for (const std::string operation : {"exit", "_exit"}) {
    check_dies(Call(operation).number("code", 0), Ending::exited, "exit(0)");
    check_dies(Call(operation).number("code", 5), Ending::exited, "exit(5)");
  }
}

TEST_CASE("a program that ends or hangs before main has no result") {
  const auto ending = [](const char* what) {
    ::setenv("WORKBOOK_TEST_BEFORE_MAIN", what, 1);
    Worker worker = worker_of("before_main", 0.3);
    const Failure failure = failure_of(worker, Call("do nothing"));
    ::unsetenv("WORKBOOK_TEST_BEFORE_MAIN");
    check_answers(worker);
    return std::string(name(failure.ending));
  };
  CHECK(ending("exit") == "exited");
  CHECK(ending("_exit") == "exited");
  CHECK(ending("abort") == "crashed");
  CHECK(ending("throw") == "crashed");
  CHECK(ending("loop") == "timed out");
}

TEST_CASE("a call that waits for the processor is not late, and one that waits for nothing is") {
  // Everything on one core, with processes that never wait.
  cpu_set_t before, one;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
    if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  std::vector<pid_t> spinning;
  for (int i = 0; i < 8; ++i) {
    spinning.push_back(::fork());
    if (spinning.back() == 0) {
      for (volatile int on = 1; on != 0;) {
      }
    }
  }
  {
    Worker worker = zoo(1);
    CHECK_NOTHROW(worker.call(Call("busy").number("seconds", 0.2)));  // 1.8 s, by the clock
  }
  for (const pid_t pid : spinning) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  ::sched_setaffinity(0, sizeof before, &before);
}

TEST_CASE("an endless loop is stopped within the limit") {
  Worker worker = zoo(0.3);
  check_answers(worker);
  const auto start = Clock::now();
  const Failure failure = failure_of(worker, Call("loop"));
  CHECK(failure.ending == Ending::timed_out);
  CHECK_THAT(failure.what(), ContainsSubstring("did not finish \"loop\" within 0.3 s"));
  CHECK(seconds_since(start) >= 0.29);
  CHECK(seconds_since(start) < 2);
  check_answers(worker);
}

TEST_CASE("a call that waits, and not for the processor, is late") {
  Worker worker = zoo(0.5);
  const auto start = Clock::now();
  CHECK(failure_of(worker, Call("sleep")).ending == Ending::timed_out);
  CHECK(seconds_since(start) < 4);
}

TEST_CASE("printing without end is stopped, and named") {
  Worker worker = zoo();
  worker.limits().printed = 1u << 20;
  const Failure failure = failure_of(worker, Call("print KiB").number("KiB", 2000));
  CHECK(failure.ending == Ending::output_flood);
  CHECK_THAT(failure.what(), ContainsSubstring("more than 1 MiB"));
  check_answers(worker);
}

TEST_CASE("the limit on printing is for one call: many that print a little are no flood") {
  Worker worker = zoo();
  worker.limits().printed = 1u << 20;
  for (int i = 0; i < 8; ++i) CHECK_NOTHROW(worker.call(Call("print KiB").number("KiB", 300)));
}

TEST_CASE("the limit on printing holds where the signal for it is ignored") {
  ::signal(SIGXFSZ, SIG_IGN);  // inherited from some parents
  Worker worker = zoo();
  worker.limits().printed = 1u << 20;
  CHECK(failure_of(worker, Call("print KiB").number("KiB", 2000)).ending == Ending::output_flood);
  ::signal(SIGXFSZ, SIG_DFL);
}

TEST_CASE("an executable that cannot be started is named") {
  Worker worker("/nowhere/worker");
  const Failure failure = failure_of(worker, Call("do nothing"));
  CHECK(failure.ending == Ending::not_started);
  CHECK_THAT(failure.what(), ContainsSubstring("/nowhere/worker"));
}

// ---- Writing where it should not. -----------------------------------------------------------------------------------

TEST_CASE("writing outside an array is seen, and the array named") {
  Worker worker = zoo();
  const auto write_at = [&](bool second, int index) {
    const std::vector<float> x{1, 2, 3};
    const Failure failure = failure_of(worker, Call("write at")
                                                   .number("second", second)
                                                   .number("index", index)
                                                   .input("x", x)
                                                   .output<float>("y", 3)
                                                   .output<float>("z", 128));
    CHECK(failure.ending == Ending::wrote_outside);
    return std::string(failure.what());
  };
  CHECK_THAT(write_at(false, 3), ContainsSubstring("past the end of y, which has 3 elements"));
  CHECK_THAT(write_at(false, 130), ContainsSubstring("past the end of y"));
  CHECK_THAT(write_at(false, -1), ContainsSubstring("before the first element of y"));
  CHECK_THAT(write_at(false, -128), ContainsSubstring("before the first element of y"));
  CHECK_THAT(write_at(true, 128), ContainsSubstring("past the end of z, which has 128 elements"));
  CHECK_THAT(write_at(true, -1), ContainsSubstring("before the first element of z"));
  check_answers(worker);
}

TEST_CASE("writing to an empty array is outside") {
  Worker worker = zoo();
  const Failure failure =
      failure_of(worker, Call("write at").number("second", 0).number("index", 0).output<float>("y", 0));
  CHECK(failure.ending == Ending::wrote_outside);
}

TEST_CASE("changing an input is seen, and the input named") {
  Worker worker = zoo();
  const std::vector<float> w{1, 2}, x{1, 2};
  const Failure failure = failure_of(worker, Call("change input").input("w", w).input("x", x));
  CHECK(failure.ending == Ending::changed_input);
  CHECK_THAT(failure.what(), ContainsSubstring("changed its input x"));
  check_answers(worker);
}

TEST_CASE("taking the shared memory away does not kill the parent") {
  Worker worker = zoo();
  const std::vector<float> x(1000, 1.0f);
  const Reply reply = worker.call(Call("shrink memory").input("x", x).output<float>("y", 1000));
  CHECK(reply.printed.empty());  // it could neither shrink nor seal it
  CHECK(std::isnan(reply.output<float>("y")[0]));
  CHECK(failure_of(worker, Call("punch hole").input("x", x)).ending == Ending::wrote_outside);
  check_answers(worker);
}

// ---- Meddling with what it is made of. ------------------------------------------------------------------------------

TEST_CASE("the program's image cannot be changed, no code made, and no memory shared") {
  if (!is_sealed()) SKIP("nothing is sealed here: another processor, a sanitizer's build, or no seccomp");
  Worker worker = zoo();
  CHECK(worker.call(Call("unseal").output<float>("y", 1)).output<float>("y")[0] == 0);
  check_answers(worker);
}

// ---- Meddling with the pipe: never a result. ------------------------------------------------------------------------

TEST_CASE("the pipe is the server's alone: the reader's code can neither close nor replace it, nor answer") {
  if (!is_sealed()) SKIP("nothing is sealed here: another processor, a sanitizer's build, or no seccomp");
  Worker worker = zoo();
  for (const std::string operation : {"close socket", "send wrong JSON", "send deep JSON"}) {
    INFO(operation);
    worker.call(Call(operation));
    check_answers(worker);
  }
  const Reply reply = worker.call(Call("forge").number("times", 1).number("exit", 0).output<float>("y", 3));
  CHECK(std::isnan(reply.output<float>("y")[0]));
  check_dies(Call("write garbage"), Ending::crashed, "write garbage");
  check_dies(Call("forge").number("times", 1).number("exit", 1).output<float>("y", 3), Ending::exited, "forge");
}

TEST_CASE("closing the pipe is named") {
  if (is_sealed()) SKIP("the code cannot close it");
  check_dies(Call("close socket"), Ending::broke_protocol, "pipe during \"close socket\"");
}

TEST_CASE("a malformed reply is rejected") {
  if (is_sealed()) SKIP("the code cannot write to the pipe");
  for (const std::string operation : {"write garbage", "send wrong JSON", "send deep JSON"}) {
    INFO(operation);
    check_dies(Call(operation), Ending::broke_protocol, operation);
  }
}

TEST_CASE("a forged reply is rejected") {
  if (is_sealed()) SKIP("the code cannot write to the pipe");
  for (const bool exits : {true, false}) {
    const Call call = Call("forge").number("times", 1).number("exit", exits).output<float>("y", 3);
    check_dies(call, Ending::broke_protocol, "forge");
  }
}

TEST_CASE("replies sent in advance do not answer later calls") {
  if (is_sealed()) SKIP("the code cannot write to the pipe");
  Worker worker = zoo();
  failure_of(worker, Call("forge").number("times", 10).number("exit", 0));
  for (int i = 0; i < 3; ++i) check_answers(worker);
}

TEST_CASE("code that replies instead of the server must still compute: the outputs are NaN") {
  if (is_sealed()) SKIP("the code cannot replace the pipe");
  Worker worker = zoo();
  worker.call(Call("become impostor"));
  const Reply reply = worker.call(Call("return number").number("x", 7).output<double>("y", 1));
  CHECK(std::isnan(reply.output<double>("y")[0]));
}

// ---- Processes. -----------------------------------------------------------------------------------------------------

TEST_CASE("a child process of the code ends with the worker") {
  OpenWhileAlive alive;
  {
    Worker worker = zoo();
    worker.call(Call("fork and return"));
    check_answers(worker);
  }
  CHECK(alive.all_gone_within(2));
}

TEST_CASE("a dead worker whose child holds the pipe open is not waited for longer than the limit") {
  OpenWhileAlive alive;
  {
    Worker worker = zoo(0.3);
    const auto start = Clock::now();
    const Failure failure = failure_of(worker, Call("fork and exit"));
    CHECK(failure.ending == Ending::exited);
    CHECK_THAT(failure.what(), ContainsSubstring("exit(3)"));
    CHECK(seconds_since(start) < 2);
    check_answers(worker);
  }
  CHECK(alive.all_gone_within(2));
}

TEST_CASE("a worker does not outlive its parent, however that ends") {
  OpenWhileAlive alive;
  const pid_t parent = ::fork();
  REQUIRE(parent >= 0);
  if (parent == 0) {
    Limits limits;
    limits.time = Seconds(20);
    Worker worker(built("zoo").executable, limits);
    worker.call(Call("do nothing"));
    if (::fork() == 0) {  // kills the parent while it waits for the worker
      ::usleep(100'000);
      ::kill(::getppid(), SIGKILL);
      ::_exit(0);
    }
    try {
      worker.call(Call("loop"));
    } catch (const Failure&) {
    }
    ::_exit(1);
  }
  int status = 0;
  REQUIRE(::waitpid(parent, &status, 0) == parent);
  CHECK(WIFSIGNALED(status));
  CHECK(alive.all_gone_within(2));
}

TEST_CASE("calls and deaths leak no descriptor") {
  const auto open_descriptors = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto before = open_descriptors();
  {
    Worker worker = zoo();
    for (int i = 0; i < 3; ++i) failure_of(worker, Call("_exit").number("code", 0));
    check_answers(worker);
  }
  CHECK(open_descriptors() == before);
}

// ---- Chapters that define the book's symbols. -----------------------------------------------------------------------

TEST_CASE("a chapter that defines main, operator new or the server's functions does not link, and the log says why") {
  const auto check_not_linked = [](const std::string& job, const std::string& symbol) {
    INFO(job);
    CHECK_FALSE(built(job).ok);
    CHECK_THAT(built(job).log, ContainsSubstring("multiple definition of") && ContainsSubstring(symbol));
  };
  check_not_linked("defines_main", "main");
  check_not_linked("defines_protocol", "send_message");
  if (kCountsMemory) check_not_linked("defines_new", "operator new");
}

TEST_CASE("a chapter that defines the oracle changes nothing: its oracle is never called") {
  Worker worker = worker_of("defines_oracle");
  check_answers(worker);
  CHECK(std::isnan(worker.call(Call("do nothing").output<float>("O", 1)).output<float>("O")[0]));
}
