#include "common/judge/warnings.hpp"

#include <charconv>
#include <sstream>

namespace workbook::judge {
namespace {

/// The first line of a compiler's message: "FILE:12:7: warning: …", nvcc "FILE(12): warning #177-D: …".
struct Headline {
  std::string file;
  int line = 0;
  bool warning = false;
};

Headline headline_of(const std::string& text) {
  const std::size_t kind = text.find(": ");
  if (kind == std::string::npos || text.starts_with(" ")) return {};
  Headline found;
  const std::string place = text.substr(0, kind);
  const std::size_t at = place.find_first_of("(:");
  if (at == std::string::npos) return {};
  found.file = place.substr(0, at);
  std::from_chars(place.data() + at + 1, place.data() + place.size(), found.line);
  if (found.line == 0) return {};
  found.warning = text.compare(kind + 2, 7, "warning") == 0;
  return found;
}

}  // namespace

std::vector<std::string> warnings_in(const std::string& log,
                                     const std::function<bool(const std::string& file, int line)>& is_own) {
  std::vector<std::string> warnings;
  bool taking = false;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const Headline headline = headline_of(line);
    const bool goes_on = line.starts_with(" ");  // the source line, the caret
    if (headline.line > 0 && headline.warning) {
      taking = is_own(headline.file, headline.line);
      if (taking) warnings.push_back(line + "\n");
    } else if (taking && goes_on) {
      warnings.back() += line + "\n";
    } else {
      taking = false;
    }
  }
  return warnings;
}

}  // namespace workbook::judge
