// The isolation itself, below the filter by name: what a compiler and a worker in it can reach.
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <thread>

#include "common/book/files.hpp"
#include "common/grading/isolation.hpp"
#include "common/worker/command.hpp"
#include "common/worker/sanitizers.hpp"
#include "common/worker/worker.hpp"
#include "tests/book/fixtures/temporary_book.hpp"
#include "tests/text.hpp"

using namespace workbook;
using namespace workbook::grading;
namespace fs = std::filesystem;

namespace {

const fs::path kProgram = fs::path(WORKBOOK_BINARY) / "bin" / "workbook_isolate";

const std::string kAnswer = "void answer(const workbook::cuda::Arguments&) {}\n";

/// Keeps a compiler at work for minutes.
const std::string kEndless =
    "constexpr long spin(long n) { long s = 0; for (long i = 0; i < n; ++i) s += i % 7; return s; }\n"
    "template <long n> struct Many { static constexpr long value = spin(200000 + n) + Many<n - 1>::value; };\n"
    "template <> struct Many<0> { static constexpr long value = 0; };\nlong x = Many<800>::value;\n";

/// AddressSanitizer sets limits when a program starts, and its search for leaks watches it: an isolation allows
/// neither.
bool isolated_here() {
  if (worker::kSanitized || !fs::exists(kProgram)) return false;
  return ::geteuid() == 0 || worker::run_command({kProgram.string(), "view"}).exit_code == 0;
}

void skip_unless_isolated() {
  if (!isolated_here()) SKIP("needs libseccomp, root or user namespaces, and a build without sanitizers");
}

/// A workshop and a job of one source, compiled as submissions are.
struct Inside {
  explicit Inside(const fs::path& book = WORKBOOK_SOURCE, double build_seconds = 20)
      : toolchain(worker::load_toolchain(WORKBOOK_BINARY, book)),
        isolation((skip_unless_isolated(), prove_isolation(kProgram, {}))),
        workshop(toolchain, isolation, {.build_seconds = build_seconds}, 2) {}
  worker::WorkerBuilt build(const std::string& source, unsigned slot = 0, const std::string& tree = "submission/",
                            const std::string& header = "") {
    const std::string name = fmt::format("{}{}.cpu", tree, ++jobs);  // a workshop builds each job once
    folder.write(name + "/chapters/99_test/answer.cpp",
                 "#include \"common/cuda/operations.hpp\"\n" + source +
                     "\nnamespace { const workbook::cuda::Operations table{{\"answer\", answer}}; }\n");
    folder.write(name + "/chapters/99_test/own.hpp", header);
    worker::WorkerJob job;
    job.name = name;
    job.sources = {folder / (name + "/chapters/99_test/answer.cpp")};
    job.include = folder / (name + "/chapters/99_test");
    return workshop.build(slot, {job}).at(name);
  }
  worker::Worker run(const worker::WorkerBuilt& built, unsigned slot = 0) const {
    INFO(built.log);
    REQUIRE(built.ok);
    worker::Limits limits;
    limits.prefix = workshop.worker_prefix(slot, Backend::cpu);
    return worker::Worker(built.executable, limits);
  }
  /// What its answer puts out.
  std::vector<float> output(const worker::WorkerBuilt& built, std::size_t count) const {
    worker::Worker runner = run(built);
    worker::Call call("answer");
    call.output<float>("y", count);
    return runner.call(call).output<float>("y");
  }
  book::TemporaryFolder folder;
  worker::Toolchain toolchain;
  Isolation isolation;
  Workshop workshop;
  int jobs = 0;
};

/// Processor time of what we have started, and of what that has started, as far as it has ended.
double seconds_of_children() {
  rusage used{};
  REQUIRE(::getrusage(RUSAGE_CHILDREN, &used) == 0);
  const auto seconds = [](const timeval& time) { return double(time.tv_sec) + 1e-6 * double(time.tv_usec); };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// The children of a process, or of a thread of it.
std::vector<pid_t> children_of(const fs::path& task) {
  std::ifstream list(task / "children");
  std::vector<pid_t> children;
  for (pid_t pid = 0; list >> pid;) children.push_back(pid);
  return children;
}

/// Sends a signal to the program that isolates a compiler of ours, as soon as that runs; false if none comes.
bool send_to_isolation(int signal) {
  for (int i = 0; i < 5000; ++i) {
    for (const auto& thread : fs::directory_iterator("/proc/self/task")) {
      for (const pid_t pid : children_of(thread.path())) {
        const std::string process = fmt::format("/proc/{}", pid);
        std::string name;
        std::ifstream(process + "/comm") >> name;
        if (!name.starts_with("workbook_isola") || children_of(fmt::format("{}/task/{}", process, pid)).empty())
          continue;
        return ::kill(pid, signal) == 0;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace

TEST_CASE("a compiler can include the book's headers and its own files, and nothing else") {
  Inside inside;
  const worker::WorkerBuilt good = inside.build(kAnswer);
  INFO(good.log);
  REQUIRE(good.ok);
  // Readable by everyone, were it not for the isolation: a root of its own, or else a closed folder.
  inside.folder.write("secret.hpp", "#define SECRET 1\n");
  if (!inside.isolation.view) ::chmod(inside.folder.path().c_str(), 0700);
  const std::string secret = (inside.folder / "secret.hpp").string();
  const worker::WorkerBuilt include = inside.build(fmt::format("#include \"{}\"\n", secret) + kAnswer);
  CHECK(!include.ok);
  CHECK((contains(include.log, "Permission denied") || contains(include.log, "No such file")));
  const worker::WorkerBuilt incbin = inside.build(kAnswer + fmt::format("asm(\".incbin \\\"{}\\\"\");\n", secret));
  CHECK(!incbin.ok);
  CHECK(contains(incbin.log, "secret.hpp"));
  // The worker that was built before, of the same submission: it may hold answers to other exercises.
  CHECK(!inside.build(kAnswer + fmt::format("asm(\".incbin \\\"{}\\\"\");\n", good.executable.string())).ok);
  // Devices that never end, and a terminal.
  for (const char* device : {"/dev/zero", "/dev/tty", "/dev/ptmx"}) {
    INFO(device);
    CHECK(!inside.build(fmt::format("#include \"{}\"\n", device) + kAnswer).ok);
  }
  // To a compiler this is an empty file, where it is any.
  CHECK(inside.build("#include \"/proc/self/mem\"\n" + kAnswer).ok == !inside.isolation.view);
}

TEST_CASE("a book that is closed to others, graded with a strict umask, can be compiled with all the same") {
  skip_unless_isolated();
  const book::TemporaryFolder closed;
  fs::copy(fs::path(WORKBOOK_SOURCE) / "common", closed / "common", fs::copy_options::recursive);
  for (const auto& entry : fs::recursive_directory_iterator(closed.path())) {
    ::chmod(entry.path().c_str(), entry.is_directory() ? 0700 : 0600);
  }
  const mode_t before = ::umask(077);
  {
    Inside inside(closed.path());
    const worker::WorkerBuilt built = inside.build(kAnswer);
    INFO(built.log);
    CHECK(built.ok);
  }
  ::umask(before);
}

TEST_CASE("a compiler's limit is its processor time, whatever else runs; the next has less, the fourth none") {
  Inside inside(WORKBOOK_SOURCE, 4);  // kAnswer needs less than half of it
  // Longer than both limits by the clock, which are four times as long: where a core is free, those end nothing.
  const auto processor_seconds = [&] {
    const double before = seconds_of_children();
    const std::string log = inside.build(kEndless + kAnswer).log;
    INFO(log);
    CHECK(contains(log, "compiling took longer than"));
    return seconds_of_children() - before;
  };
  CHECK(processor_seconds() < 6);
  for (int i = 0; i < 2; ++i) CHECK(processor_seconds() < 4);
  const double before = seconds_of_children();
  CHECK(contains(inside.build(kEndless + kAnswer).log, "the rest of this submission is not compiled"));
  CHECK(seconds_of_children() - before < 0.1);
  // Another one's slot has its own time.
  const worker::WorkerBuilt others = inside.build(kAnswer, 1);
  INFO(others.log);
  CHECK(others.ok);
}

TEST_CASE("without a limit a compiler has three times the time of the book's code, at least 8 seconds") {
  Inside inside(WORKBOOK_SOURCE, 0);
  REQUIRE(inside.build(kAnswer, 0, kBooks).ok);
  const double before = seconds_of_children();
  CHECK(contains(inside.build(kEndless + kAnswer).log, "compiling took longer than"));
  CHECK(seconds_of_children() - before > 7);
  CHECK(seconds_of_children() - before < 12);
}

TEST_CASE("the book's object is used for a source whose every file is the book's, and for no other") {
  Inside inside;
  const std::string source =
      "#include \"own.hpp\"\nvoid answer(const workbook::cuda::Arguments& call) { call.output(\"y\")[0] = value";
  const std::string header = "inline constexpr float value = 1;\n", other = "inline constexpr float value = 2;\n";
  REQUIRE(inside.build(source + ";}\n", 0, kBooks, header).ok);
  const worker::WorkerBuilt same = inside.build(source + ";}\n", 0, "submission/", header);
  CHECK(same.objects.empty());  // nothing was compiled
  CHECK(inside.output(same, 1)[0] == 1);
  CHECK(inside.output(inside.build(source + ";}\n", 0, "submission/", other), 1)[0] == 2);
  CHECK(inside.output(inside.build(source + "+ 2;}\n", 0, "submission/", header), 1)[0] == 3);
}

TEST_CASE("a signal that ends a compiler is an error of the grader; an ignored signal ends no compiler") {
  Inside inside;
  // Long enough to be met at work.
  const std::string answer =
      "#include <regex>\nvoid answer(const workbook::cuda::Arguments&) { std::regex once(\"a|b\"); }\n";
  const auto inherited = ::signal(SIGHUP, SIG_DFL);  // the parent of the tests may ignore it
  auto sent = std::async(std::launch::async, send_to_isolation, SIGHUP);
  CHECK_THROWS_AS(inside.build(answer), std::runtime_error);
  CHECK(sent.get());
  ::signal(SIGHUP, SIG_IGN);  // nohup
  sent = std::async(std::launch::async, send_to_isolation, SIGHUP);
  const worker::WorkerBuilt built = inside.build(answer);
  ::signal(SIGHUP, inherited);
  CHECK(sent.get());
  INFO(built.log);
  CHECK(built.ok);
}

TEST_CASE("a worker keeps to its slot's part of the cores") {
  Inside inside;
  const worker::WorkerBuilt built = inside.build(
      "#include <sched.h>\nvoid answer(const workbook::cuda::Arguments& call) {\n  cpu_set_t cores;\n"
      "  sched_getaffinity(0, sizeof cores, &cores);\n  call.output(\"y\")[0] = float(CPU_COUNT(&cores));\n"
      "  for (int i = 0; i < CPU_SETSIZE; ++i) CPU_SET(i, &cores);\n"
      "  call.output(\"y\")[1] = float(sched_setaffinity(0, sizeof cores, &cores));\n}\n");
  const std::vector<float> y = inside.output(built, 2);
  cpu_set_t cores;
  REQUIRE(::sched_getaffinity(0, sizeof cores, &cores) == 0);
  CHECK(y[0] == float(std::max(1, CPU_COUNT(&cores) / 2)));  // the workshop has two slots
  CHECK(y[1] == -1);
}

TEST_CASE("a worker runs in its isolation as it would outside") {
  Inside inside;
  const worker::WorkerBuilt built = inside.build(
      "#include <cstdio>\n#include <thread>\n#include <vector>\nvoid answer(const workbook::cuda::Arguments& call) "
      "{\n  "
      "std::vector<float> copy(call.input(\"x\").begin(), call.input(\"x\").end());\n  std::thread([&] { for "
      "(std::size_t i "
      "= 0; i < copy.size(); ++i) call.output(\"y\")[i] = 2 * copy[i]; }).join();\n  std::puts(\"done\");\n}\n");
  worker::Worker runner = inside.run(built);
  const std::vector<float> x{1, 2, 3};
  worker::Call call("answer");
  call.input("x", x).output<float>("y", 3);
  const worker::Reply reply = runner.call(call);
  CHECK(reply.output<float>("y") == std::vector<float>{2, 4, 6});
  CHECK(contains(reply.printed, "done"));
  CHECK(reply.extra_bytes > 0);
  // Its program can be read by it, and not be started from the next submission's slot. (A user's are all its own.)
  if (::geteuid() != 0) return;
  worker::Worker other = inside.run(built, 1);
  CHECK_THROWS_AS(other.call(worker::Call("answer")), worker::Failure);
}

TEST_CASE("files that others can read are found before anything is graded") {
  skip_unless_isolated();
  const book::TemporaryFolder folder;
  folder.write("hidden.cpp", "// secret\n");
  ::chmod(folder.path().c_str(), 0755);
  CHECK_NOTHROW(prove_isolation(kProgram, {}));
  const Isolation isolation = prove_isolation(kProgram, {});
  if (isolation.view) {
    CHECK_NOTHROW(prove_isolation(kProgram, {folder / "hidden.cpp"}));
    CHECK(isolation.record.at("layers").back() == "a root of its own");
  } else {
    CHECK_THROWS_AS(prove_isolation(kProgram, {folder / "hidden.cpp"}), judge::EnvironmentError);
  }
  // A file in a place that the isolation leaves open: everyone's header folder.
  CHECK_THROWS_AS(prove_isolation(kProgram, {"/usr/include/stdio.h"}), judge::EnvironmentError);
  CHECK_THROWS_AS(prove_isolation(folder / "no_such_program", {}), judge::EnvironmentError);
}

TEST_CASE("paths that are no UTF-8, or have quotes and newlines, can be protected") {
  skip_unless_isolated();
  const book::TemporaryFolder folder;
  for (const char* name : {"M\xfcller", "a\nb", "a\"b\\", "x\n{\"end\": true}\n"}) {
    folder.write(std::string(name) + "/secret", "");
    ::chmod(folder.path().c_str(), 0700);
    CHECK_NOTHROW(prove_isolation(kProgram, {folder / name / "secret"}));
  }
}

TEST_CASE("a workshop in use is not deleted, whatever process is named as its owner") {
  const fs::path temporary = fs::temp_directory_path();
  // Of a process that this one cannot see, as in another container that shares the folder.
  const fs::path used = temporary / "workbook-grading-999999999-inuse",
                 left = temporary / "workbook-grading-999999999-left";
  for (const fs::path& folder : {used, left}) book::write_file(folder / "lock", "");
  const int lock = ::open((used / "lock").c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(::flock(lock, LOCK_EX) == 0);
  {
    const worker::Toolchain toolchain = worker::load_toolchain(WORKBOOK_BINARY, WORKBOOK_SOURCE);
    const Workshop workshop(toolchain, Isolation(), {}, 1);
    CHECK(fs::exists(used));
    CHECK(!fs::exists(left));
    const Workshop second(toolchain, Isolation(), {}, 1);
    CHECK(fs::exists(workshop.mirror(0)));
  }
  ::close(lock);
  fs::remove_all(used);
}

TEST_CASE("a full disk is an error of the grader, not of the code") {
  if (!isolated_here() || ::geteuid() != 0) SKIP("needs root, to mount a disk that is small");
  const book::TemporaryFolder folder;
  const fs::path disk = folder / "disk";
  fs::create_directories(disk);
  if (worker::run_command({"mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk.string()}).exit_code != 0)
    SKIP("no disk can be mounted here");
  ::chmod(folder.path().c_str(), 0755);
  ::setenv("TMPDIR", disk.c_str(), 1);
  {
    Inside inside;
    const worker::WorkerBuilt before = inside.build(kAnswer);
    INFO(before.log);
    CHECK(before.ok);
    // Room for the sources, none for what the compiler makes of them.
    const auto free = fs::space(disk).available;
    worker::run_command(
        {"dd", "if=/dev/zero", "of=" + (disk / "full").string(), "bs=4096", fmt::format("count={}", free / 4096 - 24)});
    CHECK_THROWS_AS(inside.build(kAnswer), std::runtime_error);
  }
  ::unsetenv("TMPDIR");
  worker::run_command({"umount", disk.string()});
}
