// What every verb needs: the book, the toolchain, how to print. And the exit codes.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>

#include "common/book/manifest.hpp"
#include "common/worker/build.hpp"

namespace workbook::cli {

/// Exit codes of the command.
enum Exit { kDone = 0, kTestFailed = 1, kUsage = 2, kEnvironment = 3 };

/// Something that this machine lacks; the command prints it and exits with 3.
class EnvironmentError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Session {
  book::Book book;
  worker::Toolchain toolchain;
  bool json = false;      ///< --json: one JSON document on stdout, nothing else there
  bool terminal = false;  ///< stdout is a terminal: colours
  bool progress = false;  ///< stderr is a terminal: progress lines

  /// A path as the reader should see it: relative to the book if it lies there.
  std::string shown(const std::filesystem::path& path) const;
  /// `text` in a colour ("red", "green", "yellow", "bold", "dim") on a terminal, as it is elsewhere.
  std::string colored(const std::string& text, const char* color) const;
  /// A line on stderr that the next one overwrites; nothing unless stderr is a terminal. Empty text: clears it.
  void show_progress(const std::string& text) const;
};

/// Opens the book: WORKBOOK_ROOT and WORKBOOK_BUILD, set by the launcher.
Session open_session();

/// A number for JSON: non-finite ones as "nan", "inf", "-inf"; absent as null.
nlohmann::json number_json(std::optional<double> value);

/// A JSON document on stdout, invalid UTF-8 replaced.
void print_json(const nlohmann::json& document);

/// "1.5 MiB"
std::string bytes_text(double bytes);

}  // namespace workbook::cli
