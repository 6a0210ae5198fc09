// The command: reads its line, opens the book, runs the verb. A verb of another program of the command is handed on to
// that program, which is built first if need be.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "common/attention/error.hpp"
#include "common/book/markers.hpp"
#include "common/cli/verbs.hpp"

namespace {

using namespace workbook;
using namespace workbook::cli;

int ends_with(int exit_code, const char* message) {
  fmt::print(stderr, "workbook: {}\n", message);
  return exit_code;
}

/// Becomes the program that has this verb.
int hand_on(const Session& session, const std::string& verb, int argc, char** argv) {
  const auto* const found = std::ranges::find_if(kVerbs, [&](const Verb& known) { return known.name == verb; });
  const std::string program = (session.toolchain.build_folder / "bin" / found->program).string();
  const auto has_word = [&](const std::string& start) {
    return std::any_of(argv, argv + argc, [&](const std::string& word) { return word.starts_with(start); });
  };
  const bool shows = has_word("--help") || has_word("-h");  // no build is worth waiting for that
  if (verb == "bench" && !shows && !has_word("--from") && !worker::gpu_present()) {
    fmt::print(
        stderr,
        "this machine has no GPU: nothing is timed on one. Chapters on the CPU are timed, and kernels counted on "
        "the simulator; to build all that for the first time takes minutes\n");
  }
  if (!shows || ::access(program.c_str(), X_OK) != 0) {
    session.progress(fmt::format("building what {} needs", verb));
    worker::build_targets(session.toolchain, {found->program});
    session.progress("");
  }
  ::execv(program.c_str(), argv);
  throw EnvironmentError(program + " cannot be started");
}

/// Whatever is thrown, as an exit code and a message.
int run_verb(const CommandLine& line, int argc, char** argv) {
  try {
    Session session = open_session();
    session.json = line.json;
    return line.run ? line.run(session) : hand_on(session, line.verb, argc, argv);
  } catch (const InputError& error) {
    return ends_with(kUsage, error.what());
  } catch (const book::ManifestError& error) {
    return ends_with(kUsage, error.what());
  } catch (const book::MarkerError& error) {
    return ends_with(kUsage, error.what());
  } catch (const std::bad_alloc&) {
    return ends_with(kEnvironment, "there is not enough memory for this");
  } catch (const std::exception& error) {  // EnvironmentError among them
    return ends_with(kEnvironment, error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<ListedVerb> verbs;
  const std::map<std::string, Declare> here = verbs_of_this_program();
  for (const Verb& verb : kVerbs) {
    const auto declared = here.find(verb.name);
    verbs.push_back({verb.name, verb.description, verb.example, declared == here.end() ? nullptr : declared->second});
  }
  const CommandLine line = read_command_line(verbs, {argv + 1, argv + argc});
  // For the test of the commands that the book's pages show: whether they can be read, and no more.
  if (std::getenv("WORKBOOK_ONLY_READ") != nullptr) return line.verb.empty() ? line.exit_code : kDone;
  return line.verb.empty() ? line.exit_code : run_verb(line, argc, argv);
}
