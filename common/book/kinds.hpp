// Kinds of input (common/attention/inputs.hpp, and what a problem's scale and mask make it), and which parts of the
// chapters take them: tests/kinds.toml.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/book/manifest.hpp"

namespace workbook::book {

struct Kinds {
  std::vector<std::string> all, with_mask;   ///< with_mask: those that a stage without a mask does not take
  std::map<std::string, std::string> apart;  ///< an exercise, or "1 as a whole" -> why it takes none

  /// What is called so of a part of a chapter: an exercise, or the chapter as a whole.
  static std::string part(const Chapter& chapter, const std::string& exercise);
};
/// ManifestError with FILE:LINE for a missing or unknown key, a kind or a part twice, a part that there is not.
Kinds load_kinds(const Book& book);

}  // namespace workbook::book
