// Running programs: their exit codes and output, and that none of them can block the caller.

#include <signal.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cstdlib>

#include "common/worker/command.hpp"
#include "tests/worker/fixtures/fixtures.hpp"

using namespace workbook::worker;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

CommandResult shell(const std::string& script, const CommandOptions& options = {}) {
  return run_command({"sh", "-c", script}, options);
}

std::vector<std::string> lines_of(const std::string& script) {
  std::vector<std::string> lines;
  CommandOptions options;
  options.on_line = [&](const std::string& line) { lines.push_back(line); };
  CHECK(shell(script, options).exit_code == 0);
  return lines;
}

double seconds_of(const std::function<void()>& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

TEST_CASE("a program's exit code, or its signal, is returned") {
  CHECK(shell("exit 0").exit_code == 0);
  CHECK(shell("exit 7").exit_code == 7);
  CHECK(shell("exit 127").exit_code == 127);
  CHECK(shell("kill -SEGV $$").exit_code == 128 + SIGSEGV);
  CHECK_FALSE(shell("kill -KILL $$").timed_out);
}

TEST_CASE("stdout and stderr are returned complete, in the order in which they were written") {
  CHECK(shell("echo one; echo two >&2; printf three").output == "one\ntwo\nthree");
  CHECK(shell("head -c 3000000 /dev/zero").output.size() == 3'000'000);
  CHECK(shell("exit 1").output.empty());
}

TEST_CASE("stdin is empty: no program waits for a keyboard") {
  CHECK(shell("cat; echo done").output == "done\n");
}

TEST_CASE("variables are added to the environment, or replace existing ones") {
  ::setenv("WORKBOOK_TEST_OLD", "old", 1);
  CommandOptions options;
  options.environment = {{"WORKBOOK_TEST_OLD", "new $HOME"}, {"WORKBOOK_TEST_NEW", "x"}};
  CHECK(shell("echo \"$WORKBOOK_TEST_OLD,$WORKBOOK_TEST_NEW\"", options).output == "new $HOME,x\n");
  CHECK(shell("echo \"$WORKBOOK_TEST_OLD,$WORKBOOK_TEST_NEW\"").output == "old,\n");
  ::unsetenv("WORKBOOK_TEST_OLD");
}

TEST_CASE("a program whose output is read runs in the locale C.UTF-8, unless it is given another") {
  const char* const before = std::getenv("LC_ALL");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("LC_ALL", "de_DE.UTF-8", 1), ::setenv("LANGUAGE", "de:fr", 1);
  CommandOptions options;
  CHECK(shell("echo \"$LC_ALL,$LANGUAGE\"", options).output == "C.UTF-8,\n");
  options.environment = {{"LC_ALL", "POSIX"}};
  CHECK(shell("echo \"$LC_ALL\"", options).output == "POSIX\n");
  options.environment.clear();
  options.capture = false;
  CHECK(shell("test \"$LC_ALL,$LANGUAGE\" = de_DE.UTF-8,de:fr", options).exit_code == 0);
  ::unsetenv("LANGUAGE");
  before == nullptr ? ::unsetenv("LC_ALL") : ::setenv("LC_ALL", kept.c_str(), 1);
}

TEST_CASE("a program runs in the folder that it is given, found from ours") {
  const TemporaryFolder folder;
  folder.write("program", "#!/bin/sh\npwd\n");
  fs::permissions(folder / "program", fs::perms::owner_all);
  CommandOptions options;
  options.folder = "/";
  const fs::path here = fs::current_path();
  fs::current_path(folder.path());
  const CommandResult result = run_command({"./program"}, options);
  fs::current_path(here);
  CHECK(result.exit_code == 0);
  CHECK(result.output == "/\n");
}

TEST_CASE("a program that is too slow is killed within its time") {
  CommandOptions options;
  options.time = 0.3;
  CommandResult result;
  CHECK(seconds_of([&] { result = shell("echo started; exec sleep 5", options); }) < 2);
  CHECK(result.timed_out);
  CHECK(result.exit_code == 128 + SIGKILL);
  CHECK(result.output == "started\n");
  CHECK(seconds_of([&] { result = shell("exec >&- 2>&-; exec sleep 5", options); }) < 2);  // it closed the pipe
  CHECK(result.timed_out);
  CHECK_FALSE(shell("exit 0", options).timed_out);
}

TEST_CASE("background processes of a program are not waited for") {
  CommandResult result;
  CHECK(seconds_of([&] { result = shell("sleep 5 & echo done"); }) < 2);
  CHECK(result.output == "done\n");
  CHECK(result.exit_code == 0);
}

TEST_CASE("lines on descriptor 3 arrive one by one, however they were written") {
  CHECK(lines_of("echo one >&3; echo two >&3") == std::vector<std::string>{"one", "two"});
  CHECK(lines_of("printf 'one\\ntwo\\n\\nfour\\n' >&3") == std::vector<std::string>{"one", "two", "", "four"});
  CHECK(lines_of("printf on >&3; sleep 0.05; printf 'e\\ntw' >&3; sleep 0.05; printf 'o\\n' >&3") ==
        std::vector<std::string>{"one", "two"});
  CHECK(lines_of("head -c 200000 /dev/zero | tr '\\0' x >&3; echo >&3").at(0).size() == 200'000);
  CHECK(lines_of("echo to stdout").empty());
}

TEST_CASE("a last line that was not ended is not a line: its writer died over it") {
  CHECK(lines_of("printf 'one\\ntw' >&3") == std::vector<std::string>{"one"});
}

TEST_CASE("lines and output do not wait for each other") {
  std::string last;
  CommandOptions options;
  options.on_line = [&](const std::string& line) { last = line; };
  const CommandResult result = shell(
      "for i in 1 2 3 4 5; do head -c 100000 /dev/zero; head -c 100000 /dev/zero | tr '\\0' x >&3; done; "
      "echo >&3; echo end >&3",
      options);
  CHECK(result.output.size() == 500'000);
  CHECK(last == "end");
}

TEST_CASE("an exception from on_line reaches the caller, and the program is ended") {
  const TemporaryFolder folder;
  CommandOptions options;
  options.folder = folder.path();
  options.on_line = [](const std::string&) { throw std::runtime_error("not JSON"); };
  CHECK(seconds_of([&] { CHECK_THROWS_WITH(shell("echo $$ > pid; echo x >&3; exec sleep 5", options), "not JSON"); }) <
        2);
  CHECK(::kill(std::stoi(file_text(folder / "pid")), 0) != 0);
}

TEST_CASE("a program that cannot be started is an error that names it") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(run_command({"no-such-program-anywhere"}), ContainsSubstring("no-such-program-anywhere"));
  CHECK_THROWS_WITH(run_command({"/nowhere/program"}), ContainsSubstring("/nowhere/program"));
  CHECK_THROWS_WITH(run_command({folder.path().string()}), ContainsSubstring(folder.path().string()));
  folder.write("damaged",
               "\x7f"
               "ELF");
  fs::permissions(folder / "damaged", fs::perms::owner_all);
  CHECK_THROWS_WITH(run_command({(folder / "damaged").string()}), ContainsSubstring("damaged"));
  CommandOptions options;
  options.folder = "/nowhere";
  CHECK_THROWS_WITH(shell("exit 0", options), ContainsSubstring("/nowhere"));
}

TEST_CASE("no success is made up where the exit code cannot be had") {
  ::signal(SIGCHLD, SIG_IGN);  // inherited from some parents: the system then discards exit codes
  CHECK_THROWS(shell("exit 1"));
  ::signal(SIGCHLD, SIG_DFL);
}

TEST_CASE("a quoted word reaches a program unchanged through the shell") {
  for (const std::string word : {"plain", "", "two words", "$HOME `id` \\", "it's", "'", "a\nb", "Grüße; rm *"}) {
    CHECK(shell("printf %s " + shell_quoted(word)).output == word);
  }
}

TEST_CASE("programs are found in PATH, and only programs") {
  CHECK(find_program("sh").filename() == "sh");
  CHECK(find_program("no-such-program-anywhere").empty());
  CHECK(find_program("/bin/sh") == "/bin/sh");
  CHECK(find_program("/nowhere/sh").empty());
  CHECK(find_program("/bin/").empty());
}

TEST_CASE("of clang's programs the newest is taken, and none that is too old") {
  const workbook::TemporaryFolder folder;
  const auto program = [&](const std::string& name, const std::string& version) {
    folder.write(name, "#!/bin/sh\necho \"Debian LLVM version " + version + "\"\n");
    fs::permissions(folder / name, fs::perms::owner_all);
  };
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (folder.path().string() + ":/usr/bin:/bin").c_str(), 1);
  program("clang-sample", "14.0.6");
  CHECK(find_clang("clang-sample").empty());
  program("clang-sample", "19.1.0");
  CHECK(find_clang("clang-sample") == folder / "clang-sample");
  program("clang-sample-15", "15.0.6");
  program("clang-sample-16", "16.0.6");
  program("clang-sample-17", "17.0.1");
  CHECK(find_clang("clang-sample") == folder / "clang-sample-17");
  ::setenv("PATH", path.c_str(), 1);
  CHECK(find_clang("clang-sample").empty());
}
