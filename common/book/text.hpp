// Small changes to texts that several parts need.
#pragma once

#include <string>
#include <string_view>

namespace workbook::book {

/// `text` with every occurrence of `from` replaced.
inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
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

}  // namespace workbook::book
