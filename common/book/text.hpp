// Small text functions that several parts need, and sizes as text.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace workbook::book {

/// `text` with every occurrence of `from` replaced.
inline std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (std::size_t at = text.find(from); at != std::string_view::npos; at = text.find(from)) {
    result.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return result.append(text);
}

/// A line without the white space around it.
inline std::string trimmed(const std::string& line) {
  const std::size_t from = line.find_first_not_of(" \t\r");
  return from == std::string::npos ? "" : line.substr(from, line.find_last_not_of(" \t\r") - from + 1);
}

/// Whether `accepts` is true of one of the words, which spaces and newlines separate.
template <class Accepts>
bool any_word(std::string_view words, const Accepts& accepts) {
  for (std::size_t begin = 0; (begin = words.find_first_not_of(" \n", begin)) != words.npos;) {
    const std::size_t end = std::min(words.size(), words.find_first_of(" \n", begin));
    if (accepts(words.substr(begin, end - begin))) return true;
    begin = end;
  }
  return false;
}
inline bool is_one_of(std::string_view words, std::string_view name) {
  return any_word(words, [&](std::string_view word) { return word == name; });
}
/// Whether the name begins with one of the words.
inline bool begins_with(std::string_view words, std::string_view name) {
  return any_word(words, [&](std::string_view word) { return name.starts_with(word); });
}

/// Every line of the text indented.
inline std::string indented(std::string_view text, std::string_view by) {
  std::string result(by);
  for (const char c : text) {
    result += c;
    if (c == '\n') result += by;
  }
  return result;
}

/// The file that a line of C++ includes with quotes; empty if it includes none.
inline std::string included_file(std::string_view line) {
  const std::size_t quote = line.find('"');
  if (quote == std::string_view::npos) return {};
  std::string directive(line.substr(0, quote));
  std::erase_if(directive, [](char c) { return c == ' ' || c == '\t'; });
  if (directive != "#include") return {};
  return std::string(line.substr(quote + 1, line.find('"', quote + 1) - quote - 1));
}

/// The text with &, <, >, " and ' replaced by entities of XML and HTML.
inline std::string xml_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&apos;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

/// "1.5 MiB"
inline std::string bytes_text(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

}  // namespace workbook::book
