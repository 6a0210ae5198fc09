// What the tests of commands ask of a text.
#pragma once

#include <string>

namespace workbook {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace workbook
