// What a page in Markdown shows beside its prose: commands of the book.
#pragma once

#include <string>
#include <vector>

namespace workbook::book {

/// A call of ./workbook that a page shows.
struct ShownCommand {
  int line = 0;                    ///< where it begins, from 1
  std::vector<std::string> words;  ///< without "./workbook", quotes taken off
  /// It has a word that the reader is to replace: VERB, N, or one with "…" or "*".
  bool has_placeholder() const;
};
/// Those between backquotes, also over the end of a line, and those at the beginning of a line of a code block, up to a
/// remark there.
std::vector<ShownCommand> commands_in(const std::string& page);

}  // namespace workbook::book
