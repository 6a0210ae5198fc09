// Running a program and waiting for it: compilers, ninja, test programs, clang-format.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace workbook::worker {

struct CommandOptions {
  std::filesystem::path folder;                    ///< working directory; empty: this process's
  std::map<std::string, std::string> environment;  ///< added to this process's
  /// Capture stdout and stderr, or pass them through. The locale of a captured program is C.UTF-8, since what it
  /// prints is parsed: a compiler writes "warning:" in the user's language.
  bool capture = true;
  double time = 0;  ///< seconds; 0: no limit
  /// If set, the program gets a pipe as descriptor 3, and this function receives each complete line written there. An
  /// exception ends the program and propagates to the caller.
  std::function<void(const std::string&)> on_line;
};

struct CommandResult {
  int exit_code = 0;  ///< 128 + signal if it was killed
  bool timed_out = false;
  std::string output;  ///< stdout and stderr, interleaved
  double seconds = 0;  ///< processor time, with that of its descendants
};

/// Runs argv[0] (looked up in PATH if it has no slash). std::runtime_error if it cannot be started.
CommandResult run_command(const std::vector<std::string>& argv, const CommandOptions& options = {});

/// The program's full path in PATH, or empty.
std::filesystem::path find_program(const std::string& name);

/// The same for an LLVM program, "clang++" or "clang-tidy", of version 16 or newer: the newest of clang++-22 to
/// clang++-16, else plain clang++.
std::filesystem::path find_clang(const std::string& name);

/// `word` quoted for a POSIX shell.
std::string shell_quoted(const std::string& word);

}  // namespace workbook::worker
