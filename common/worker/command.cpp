#include "common/worker/command.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>

namespace workbook::worker {
namespace {

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe could be made");
    // Above the numbers that the child's dup2 calls use.
    read_end = ::fcntl(ends[0], F_DUPFD_CLOEXEC, 10);
    write_end = ::fcntl(ends[1], F_DUPFD_CLOEXEC, 10);
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~Pipe() {
    close_read();
    close_write();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_read() {
    if (read_end >= 0) ::close(read_end);
    read_end = -1;
  }
  void close_write() {
    if (write_end >= 0) ::close(write_end);
    write_end = -1;
  }
};

}  // namespace

std::filesystem::path find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return ::access(name.c_str(), X_OK) == 0 ? name : "";
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::filesystem::path candidate = std::filesystem::path(folder.empty() ? "." : folder) / name;
    std::error_code ignored;
    if (std::filesystem::is_regular_file(candidate, ignored) && ::access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
  }
  return {};
}

std::string shell_quoted(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

CommandResult run_command(const std::vector<std::string>& argv, const CommandOptions& options) {
  const std::filesystem::path program = find_program(argv.at(0));
  if (program.empty()) throw std::runtime_error(argv[0] + " was not found");

  // Everything that allocates happens before fork.
  std::vector<std::string> words(argv);
  words[0] = program.string();
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable(*entry);
    if (!options.environment.contains(variable.substr(0, variable.find('=')))) variables.push_back(variable);
  }
  for (const auto& [key, value] : options.environment) variables.push_back(key + "=" + value);
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);

  Pipe output, lines;
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("fork failed: " + std::string(std::strerror(errno)));
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(127);
    if (options.capture) {
      const int nothing = ::open("/dev/null", O_RDONLY);
      ::dup2(nothing, 0);
      ::dup2(output.write_end, 1);
      ::dup2(output.write_end, 2);
    }
    if (options.on_line) ::dup2(lines.write_end, 3);
    if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) ::_exit(127);
    ::execve(arguments[0], arguments.data(), environment.data());
    ::_exit(127);
  }
  output.close_write();
  lines.close_write();
  if (!options.capture) output.close_read();
  if (!options.on_line) lines.close_read();

  CommandResult result;
  std::string pending;
  const auto start = std::chrono::steady_clock::now();
  while (output.read_end >= 0 || lines.read_end >= 0) {
    int wait = -1;
    if (options.time > 0) {
      const double left =
          options.time - std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      wait = left > 0 ? int(left * 1000) + 1 : 0;
    }
    pollfd descriptors[2] = {{output.read_end, POLLIN, 0}, {lines.read_end, POLLIN, 0}};
    const int ready = ::poll(descriptors, 2, wait);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      result.timed_out = true;
      ::kill(pid, SIGKILL);
      break;
    }
    char buffer[1 << 16];
    for (int i = 0; i < 2; ++i) {
      if (descriptors[i].fd < 0 || descriptors[i].revents == 0) continue;
      const ssize_t count = ::read(descriptors[i].fd, buffer, sizeof buffer);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        i == 0 ? output.close_read() : lines.close_read();
      } else if (i == 0) {
        result.output.append(buffer, std::size_t(count));
      } else {
        pending.append(buffer, std::size_t(count));
        for (std::size_t end; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1)) {
          options.on_line(pending.substr(0, end));
        }
      }
    }
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace workbook::worker
