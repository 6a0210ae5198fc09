// What every verb uses: the engine's workspace, the terminal and the exit codes.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "common/book/text.hpp"
#include "common/judge/verdict.hpp"
#include "common/judge/workspace.hpp"

namespace workbook::cli {

using book::bytes_text, judge::EnvironmentError, judge::number_json;

/// Exit codes of the command.
enum Exit { kDone = 0, kTestFailed = 1, kUsage = 2, kEnvironment = 3 };

/// The workspace, and how to print.
struct Session : judge::Workspace {
  bool json = false;      ///< --json: stdout receives one JSON document and nothing else
  bool terminal = false;  ///< stdout is a terminal: colours

  /// `text` in a colour ("red", "green", "yellow", "bold", "dim") on a terminal, unchanged elsewhere.
  std::string colored(const std::string& text, const char* color) const;
};

/// Opens the book. If stderr is a terminal, progress is printed there in one line that is overwritten.
Session open_session();

/// The width of a line on stdout, in characters: the terminal's, or a default.
std::int64_t line_width();

/// The text with its lines broken at spaces so that none exceeds line_width(). Lines that begin with a space are code
/// and are not broken.
std::string wrapped(const std::string& text);

/// Writes to stderr. Unlike fmt::print it does not throw if that fails: there is no other stream for the message.
template <class... Args>
void print_error(fmt::format_string<Args...> format, Args&&... args) {
  std::fputs(fmt::format(format, std::forward<Args>(args)...).c_str(), stderr);
}

/// A JSON document on stdout, invalid UTF-8 replaced.
void print_json(const nlohmann::json& document);

}  // namespace workbook::cli
