// The command: parses its arguments, opens the book and runs the verb. If another program implements the verb, the
// command builds that program if necessary and executes it.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <system_error>

#include "common/attention/error.hpp"
#include "common/book/markers.hpp"
#include "common/cli/verbs.hpp"

namespace {

using namespace workbook;
using namespace workbook::cli;

int ends_with(int exit_code, const std::string& message) {
  print_error("workbook: {}\n", message);
  return exit_code;
}

/// Opens /dev/null for each standard stream that the caller has closed; otherwise the next file that is opened would
/// take its number, and receive the output. Writing to a closed standard output still fails.
void open_standard_streams() {
  for (const int stream : {0, 1, 2})
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF) ::open("/dev/null", stream == 2 ? O_WRONLY : O_RDONLY);
}

/// The exit code, or kEnvironment if not all of the output could be written.
int after_output(int exit_code) {
  errno = 0;
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.flush().good();
  if (written) return exit_code;
  const std::string why = errno == 0 ? "" : std::string(": ") + std::strerror(errno);
  return ends_with(kEnvironment, "standard output: cannot write" + why);
}

/// Replaces this process by the program that implements the verb.
int hand_on(const Session& session, const Verb& verb, int argc, char** argv) {
  const std::string program = (session.toolchain.build_folder / "bin" / verb.program).string();
  const bool from_file =
      std::any_of(argv, argv + argc, [](const std::string& word) { return word.starts_with("--from"); });
  if (std::string_view(verb.name) == "bench" && !from_file && !worker::gpu_present()) {
    print_error(
        "this machine has no GPU, so bench times only the CPU chapters and counts the kernels' accesses on the "
        "simulator; the first build takes minutes\n");
  }
  session.progress(fmt::format("building what the verb {} needs", verb.name));
  worker::build_targets(session.toolchain, {verb.program});
  session.progress("");
  ::execv(program.c_str(), argv);
  throw EnvironmentError(program + ": cannot start this program");
}

/// Turns any exception into an exit code and a message.
int run_verb(const CommandLine& line, int argc, char** argv) {
  try {
    Session session = open_session();
    session.json = line.json;
    const std::optional<int> exit_code = line.run(session);
    return exit_code ? *exit_code : hand_on(session, *line.verb, argc, argv);
  } catch (const InputError& error) {
    return ends_with(kUsage, error.what());
  } catch (const book::ManifestError& error) {
    return ends_with(kUsage, error.what());
  } catch (const book::MarkerError& error) {
    return ends_with(kUsage, error.what());
  } catch (const std::bad_alloc&) {
    return ends_with(kEnvironment, "not enough memory");
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string to = error.path2().empty() ? "" : ", " + error.path2().string();
    return ends_with(kEnvironment, fmt::format("{}{}: {}", error.path1().string(), to, error.code().message()));
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) != 0) return kEnvironment;  // fmt could not print; after_output() says so
    return ends_with(kEnvironment, error.what());
  } catch (const std::exception& error) {  // EnvironmentError among them
    return ends_with(kEnvironment, error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // at the limit of a file's size, writing fails with a message
  open_standard_streams();
  std::vector<Verb> verbs = readers_verbs();
  for (const Verb& verb : other_verbs()) verbs.push_back(verb);
  const CommandLine line = read_command_line(verbs, {argv + 1, argv + argc});
  // For the test of the commands shown in the book's pages, which only parses them.
  if (std::getenv("WORKBOOK_ONLY_READ") != nullptr) return line.verb == nullptr ? line.exit_code : kDone;
  return after_output(line.verb == nullptr ? line.exit_code : run_verb(line, argc, argv));
}
