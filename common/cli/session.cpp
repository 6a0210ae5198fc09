#include "common/cli/session.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace workbook::cli {

namespace {

/// The number of characters of a UTF-8 string.
std::size_t characters(std::string_view text) {
  return std::size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string Session::colored(const std::string& text, const char* color) const {
  if (!terminal) return text;
  const std::string_view name = color;
  const char* code = name == "red"      ? "31"
                     : name == "green"  ? "32"
                     : name == "yellow" ? "33"
                     : name == "bold"   ? "1"
                                        : "2";
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

Session open_session() {
  Session session{judge::open_workspace()};
  session.terminal = ::isatty(1) != 0 && std::getenv("NO_COLOR") == nullptr;
  if (::isatty(2) != 0) {
    session.on_progress = [](const std::string& text) {
      std::fprintf(stderr, "\r\x1b[K%s", text.c_str());
      std::fflush(stderr);
    };
  }
  return session;
}

std::int64_t line_width() {
  winsize size{};
  return ::isatty(1) != 0 && ::ioctl(1, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40 ? size.ws_col : 120;
}

std::string wrapped(const std::string& text) {
  const auto width = std::size_t(line_width());
  std::string all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line); all += line + "\n") {
    for (std::size_t from = 0; !line.starts_with(' ') && characters(line.substr(from)) > width;) {
      std::size_t end = from;  // the last space that still fits
      for (std::size_t at = from, taken = 0; at < line.size() && taken <= width; ++at) {
        taken += (line[at] & 0xC0) != 0x80;
        if (line[at] == ' ') end = at;
      }
      if (end == from) break;  // one word
      line[end] = '\n';
      from = end + 1;
    }
  }
  if (!text.ends_with('\n') && !all.empty()) all.pop_back();
  return all;
}

void print_json(const nlohmann::json& document) {
  fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace workbook::cli
