// What every verb needs: the engine's workspace, and the terminal. And the exit codes.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "common/book/text.hpp"
#include "common/judge/verdict.hpp"
#include "common/judge/workspace.hpp"

namespace workbook::cli {

using book::bytes_text, judge::EnvironmentError, judge::number_json;

/// Exit codes of the command.
enum Exit { kDone = 0, kTestFailed = 1, kUsage = 2, kEnvironment = 3 };

/// The workspace, and how to print.
struct Session : judge::Workspace {
  bool json = false;      ///< --json: one JSON document on stdout, nothing else there
  bool terminal = false;  ///< stdout is a terminal: colours

  /// `text` in a colour ("red", "green", "yellow", "bold", "dim") on a terminal, as it is elsewhere.
  std::string colored(const std::string& text, const char* color) const;
};

/// Opens the book. Progress goes to stderr, in one line that is overwritten, where that is a terminal.
Session open_session();

/// Characters of a line on stdout: those of the terminal, or of a page.
std::int64_t line_width();

/// The text with its lines broken at spaces so that none is longer than line_width(). Lines that begin with a space are
/// code, and stay as they are.
std::string wrapped(const std::string& text);

/// A JSON document on stdout, invalid UTF-8 replaced.
void print_json(const nlohmann::json& document);

}  // namespace workbook::cli
