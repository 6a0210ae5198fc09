#include "common/cli/session.hpp"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace workbook::cli {
namespace fs = std::filesystem;

std::string Session::shown(const fs::path& path) const {
  const fs::path relative = path.lexically_relative(book.root);
  return relative.empty() || *relative.begin() == ".." ? path.string() : relative.string();
}

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

void Session::show_progress(const std::string& text) const {
  if (!progress) return;
  std::fprintf(stderr, "\r\x1b[K%s", text.c_str());
  std::fflush(stderr);
}

Session open_session() {
  const char* root = std::getenv("WORKBOOK_ROOT");
  const char* build = std::getenv("WORKBOOK_BUILD");
  if (root == nullptr || build == nullptr) {
    throw EnvironmentError("WORKBOOK_ROOT and WORKBOOK_BUILD are not set: start the command as ./workbook");
  }
  Session session;
  session.book = book::load_book(fs::weakly_canonical(root));
  session.toolchain = worker::load_toolchain(fs::weakly_canonical(build), session.book.root);
  session.terminal = ::isatty(1) != 0 && std::getenv("NO_COLOR") == nullptr;
  session.progress = ::isatty(2) != 0;
  return session;
}

nlohmann::json number_json(std::optional<double> value) {
  if (!value) return nullptr;
  if (std::isnan(*value)) return "nan";
  if (std::isinf(*value)) return *value > 0 ? "inf" : "-inf";
  return *value;
}

void print_json(const nlohmann::json& document) {
  fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

}  // namespace workbook::cli
