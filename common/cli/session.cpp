#include "common/cli/session.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace workbook::cli {

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

void print_json(const nlohmann::json& document) {
  fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace workbook::cli
