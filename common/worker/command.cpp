#include "common/worker/command.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace workbook::worker {
namespace {

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail(errno);
    // Above the descriptors that the child's dup2 calls use.
    read_end = ::fcntl(ends[0], F_DUPFD_CLOEXEC, 10);
    write_end = ::fcntl(ends[1], F_DUPFD_CLOEXEC, 10);
    const int error = errno;
    ::close(ends[0]);
    ::close(ends[1]);
    if (read_end >= 0 && write_end >= 0) return;
    close_read();
    close_write();
    fail(error == EINVAL ? EMFILE : error);  // EINVAL: the limit of open files is below 10
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
  [[noreturn]] static void fail(int error) {
    throw std::runtime_error(std::string("cannot create a pipe: ") + std::strerror(error));
  }
};

/// A child process. The destructor kills it if nothing has waited for it, after an exception.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {
    if (pid < 0) throw std::runtime_error("vfork failed: " + std::string(std::strerror(errno)));
  }
  ~Child() {
    if (pid_ < 0) return;
    kill();
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void kill() const { ::kill(pid_, SIGKILL); }
  /// Its exit code, or 128 + signal. Adds its processor time.
  int wait(double& seconds) {
    int status = 0;
    rusage used{};
    const pid_t pid = std::exchange(pid_, -1);
    while (::wait4(pid, &status, 0, &used) < 0) {
      if (errno != EINTR) throw std::runtime_error("cannot get the exit status of a program: is SIGCHLD ignored?");
    }
    for (const timeval& time : {used.ru_utime, used.ru_stime})
      seconds += double(time.tv_sec) + 1e-6 * double(time.tv_usec);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  bool ended() const {
    siginfo_t info{};  // the call fails if SIGCHLD is ignored, since the process is then not recorded
    return ::waitid(P_PID, id_t(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid_;
  }

 private:
  pid_t pid_;
};

/// In the child: replaces this process by the program. Returns on failure.
void become(const CommandOptions& options, const Pipe& output, const Pipe& lines, char** arguments,
            char** environment) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (options.capture) {
    const int nothing = ::open("/dev/null", O_RDONLY);
    ::dup2(nothing, 0);
    ::dup2(output.write_end, 1);
    ::dup2(output.write_end, 2);
  }
  if (options.on_line) ::dup2(lines.write_end, 3);
  if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) return;
  ::execve(arguments[0], arguments, environment);
}

/// Appends the contents of the pipe to `text`, up to 16 MiB; false at the end of the pipe.
bool read_some(int pipe, std::string& text) {
  constexpr std::size_t most = 16 << 20;  // a compiler's messages about a student's code may have no end
  char buffer[1 << 16];                   // the capacity of a pipe
  const ssize_t count = ::read(pipe, buffer, sizeof buffer);
  if (count > 0) text.append(buffer, std::min(std::size_t(count), most - std::min(most, text.size())));
  return count > 0 || (count < 0 && errno == EINTR);
}

/// Calls on_line for each complete line in `text`, and removes the line.
void take_lines(std::string& text, const std::function<void(const std::string&)>& on_line) {
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    on_line(text.substr(begin, end - begin));
  }
  text.erase(0, begin);
}

}  // namespace

std::filesystem::path find_program(const std::string& name) {
  const auto is_program = [](const std::filesystem::path& file) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(file, ignored) && ::access(file.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return is_program(name) ? name : "";
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::filesystem::path candidate = std::filesystem::path(folder.empty() ? "." : folder) / name;
    if (is_program(candidate)) return candidate;
  }
  return {};
}

std::filesystem::path find_clang(const std::string& name) {
  constexpr int oldest = 16, newest = 22;
  for (int version = newest; version >= oldest; --version) {
    const std::filesystem::path found = find_program(name + "-" + std::to_string(version));
    if (!found.empty()) return found;
  }
  const std::filesystem::path plain = find_program(name);
  if (plain.empty()) return {};
  const std::string said = run_command({plain.string(), "--version"}).output, before = "version ";
  const std::size_t at = said.find(before);
  return at != std::string::npos && std::atoi(said.c_str() + at + before.size()) >= oldest ? plain
                                                                                           : std::filesystem::path();
}

std::string shell_quoted(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

CommandResult run_command(const std::vector<std::string>& argv, const CommandOptions& options) {
  const std::filesystem::path program = find_program(argv.at(0));
  if (program.empty()) throw std::runtime_error(argv[0] + " was not found");

  // Everything that allocates happens before vfork.
  std::vector<std::string> words(argv);
  words[0] =
      std::filesystem::absolute(program).string();  // relative to this process's folder; the program may run in another
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::map<std::string, std::string> given = options.environment;
  if (options.capture) given.insert({{"LC_ALL", "C.UTF-8"}, {"LANGUAGE", ""}});
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable(*entry);
    if (!given.contains(variable.substr(0, variable.find('=')))) variables.push_back(variable);
  }
  for (const auto& [key, value] : given) variables.push_back(key + "=" + value);
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);

  Pipe output, lines, trouble;  // trouble: the errno of a failed start; exec closes it
  const pid_t parent = ::getpid();
  // vfork copies no page tables, and makes no page of this process copy-on-write. The child only calls the system.
  const pid_t pid = ::vfork();
  if (pid == 0) {
    if (::getppid() == parent) become(options, output, lines, arguments.data(), environment.data());
    const int error = errno;
    ::_exit(::write(trouble.write_end, &error, sizeof error) < 0 ? 126 : 127);
  }
  Child child(pid);
  output.close_write();
  lines.close_write();
  trouble.close_write();
  int error = 0;
  if (::read(trouble.read_end, &error, sizeof error) == ssize_t(sizeof error)) {
    throw std::runtime_error(argv[0] + " cannot be started" +
                             (options.folder.empty() ? "" : " in " + options.folder.string()) + ": " +
                             std::strerror(error));
  }
  if (!options.capture) output.close_read();
  if (!options.on_line) lines.close_read();

  CommandResult result;
  std::string pending;
  const auto start = std::chrono::steady_clock::now();
  for (bool ended = false; !ended;) {
    ended = child.ended();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    if (!ended && options.time > 0 && passed.count() > options.time) {
      result.timed_out = true;
      child.kill();
      break;
    }
    // Polls with a short timeout, since a program may close its pipes and continue, or exit while a child keeps them
    // open. After the program's end, one more iteration reads everything that a pipe can hold.
    const bool open = output.read_end >= 0 || lines.read_end >= 0;
    pollfd descriptors[2] = {{output.read_end, POLLIN, 0}, {lines.read_end, POLLIN, 0}};
    ::poll(descriptors, 2, ended ? 0 : open ? 20 : 1);
    if (descriptors[0].revents != 0 && !read_some(output.read_end, result.output)) output.close_read();
    if (descriptors[1].revents != 0) {
      if (!read_some(lines.read_end, pending)) lines.close_read();
      take_lines(pending, options.on_line);
    }
  }
  result.exit_code = child.wait(result.seconds);
  return result;
}

}  // namespace workbook::worker
