#include "common/book/foreign_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "common/book/text.hpp"

namespace workbook::book {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// One code point of `text` at `at`: its length in bytes, 0 if the bytes there are not valid UTF-8. Overlong forms and
/// surrogates are invalid.
std::size_t decode(std::string_view text, std::size_t at, std::uint32_t& code) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  const std::size_t length = first < 0x80             ? 1
                             : (first & 0xE0) == 0xC0 ? 2
                             : (first & 0xF0) == 0xE0 ? 3
                             : (first & 0xF8) == 0xF0 ? 4
                                                      : 0;
  if (length == 0 || at + length > text.size()) return 0;
  code = length == 1 ? first : first & (0x7F >> length);
  for (std::size_t i = at + 1; i < at + length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  return code < least[length] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF) ? 0 : length;
}

/// The end of a terminal escape that begins at `at`.
std::size_t end_of_escape(std::string_view text, std::size_t at) {
  std::size_t i = at + 1;
  if (i >= text.size()) return i;
  if (text[i] == '[') {  // CSI: parameters, then one byte from @ to ~
    for (++i; i < text.size(); ++i) {
      if (text[i] >= '@' && text[i] <= '~') return i + 1;
      if (text[i] < ' ') return i;
    }
    return i;
  }
  if (text[i] == ']') {  // OSC: up to BEL or ESC backslash, on one line
    for (++i; i < text.size(); ++i) {
      if (text[i] == '\a') return i + 1;
      if (text[i] == '\n') return i;
      if (text[i] == '\x1b') return std::min(i + 2, text.size());
    }
    return i;
  }
  return i + 1;
}

bool is_allowed(std::uint32_t code) {
  if (code == '\n' || code == '\t') return true;
  if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return false;
  if ((code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069)) return false;  // turn a line around
  return (code & 0xFFFE) != 0xFFFE;  // U+FFFE, U+FFFF and similar code points are noncharacters
}

/// Spaces of special widths, zero-width marks, and characters that change the direction of a line.
bool is_format(std::uint32_t code) {
  return (code >= 0x2000 && code <= 0x206F) || code == 0xFEFF || code == 0xAD || code == 0x61C;
}

}  // namespace

std::string clean_text(std::string_view text, std::size_t longest) {
  std::string clean;
  for (std::size_t at = 0; at < text.size();) {
    if (clean.size() >= longest) return clean + "…";
    if (text[at] == '\x1b') {
      at = end_of_escape(text, at);
      continue;
    }
    std::uint32_t code = 0;
    const std::size_t length = decode(text, at, code);
    if (length == 0) {
      clean += kReplacement;
      ++at;
      continue;
    }
    if (is_allowed(code)) clean += text.substr(at, length);
    at += length;
  }
  return clean;
}

std::string line_text(std::string_view text, std::size_t longest) {
  const std::string clean = clean_text(text, longest);
  std::string line;
  for (std::size_t at = 0; at < clean.size();) {
    std::uint32_t code = 0;
    const std::size_t length = decode(clean, at, code);
    if (code == '\n' || code == '\t') {
      line += ' ';
    } else if (!is_format(code)) {
      line += clean.substr(at, length);
    }
    at += length;
  }
  return line;
}

std::string name_text(std::string_view text, bool& lossless) {
  std::string name;
  lossless = true;
  for (std::size_t at = 0; at < text.size();) {
    std::uint32_t code = 0;
    const std::size_t length = decode(text, at, code);
    const bool plain = code < 0x80 && (std::isalnum(int(code)) != 0 || code == '.' || code == '_' || code == '-');
    const bool beyond = code > 0xBF && is_allowed(code) && !is_format(code) && code != 0x3000;
    if (length != 0 && (plain || beyond)) {
      name += text.substr(at, length);
    } else {
      name += '_';
      lossless = lossless && length != 0 && code >= ' ' && code < 0x7F;
    }
    at += std::max<std::size_t>(length, 1);
  }
  return name;
}

std::string xml_text(std::string_view text, std::size_t longest) {
  return xml_escaped(clean_text(text, longest));
}

std::string markdown_block(std::string_view text) {
  std::string clean = clean_text(text);
  while (!clean.empty() && clean.back() == '\n') clean.pop_back();
  std::size_t longest = 2, run = 0;
  for (const char c : clean) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  return fmt::format("{}\n{}\n{}\n", fence, clean, fence);
}

std::string markdown_line(std::string_view text) {
  std::string line;
  for (const char c : clean_text(text)) {
    if (c == '\n' || c == '\t') {
      line += ' ';
      continue;
    }
    if (std::string_view("\\`*_{}[]<>#|!&~").find(c) != std::string_view::npos) line += '\\';
    line += c;
  }
  return line;
}

std::string csv_cell(std::string_view text) {
  std::string cell = clean_text(text);
  if (!cell.empty() && std::string_view("=+-@\t").find(cell[0]) != std::string_view::npos) cell = "'" + cell;
  if (cell.find_first_of(",\"\n") == std::string::npos) return cell;
  std::string quoted = "\"";
  for (const char c : cell) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

std::string points_text(double points) {
  return fmt::format("{:g}", points);
}

}  // namespace workbook::book
