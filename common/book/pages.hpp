// The commands of the book that a Markdown page shows.
#pragma once

#include <string>
#include <vector>

namespace workbook::book {

/// A call of ./workbook that a page shows.
struct ShownCommand {
  int line = 0;                    ///< its first line, from 1
  std::vector<std::string> words;  ///< without "./workbook" and quotes
  /// Whether it contains a placeholder for the reader to replace: VERB, N, or a word with "…" or "*".
  bool has_placeholder() const;
};
/// The commands between backquotes, which may span lines, and those at the beginning of a line of a code block, up to a
/// comment.
std::vector<ShownCommand> commands_in(const std::string& page);

}  // namespace workbook::book
