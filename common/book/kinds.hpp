// Kinds of input (common/attention/inputs.hpp, and kinds that follow from scale and mask), and the parts of chapters
// that are exempt from them: tests/kinds.toml.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/book/manifest.hpp"

namespace workbook::book {

struct Kinds {
  std::vector<std::string> all, with_mask;   ///< with_mask: kinds that require a mask
  std::map<std::string, std::string> apart;  ///< an exercise, or "1 as a whole" -> why it is exempt

  /// The name of a part of a chapter: an exercise, or the chapter as a whole.
  static std::string part(const Chapter& chapter, const std::string& exercise);
};
/// ManifestError with FILE:LINE for a missing or unknown key, a repeated kind or part, or a part that does not exist.
Kinds load_kinds(const Book& book);

}  // namespace workbook::book
