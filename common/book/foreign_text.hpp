// Text that came out of somebody else's program, made fit for a file that other programs read: JSON, XML, Markdown,
// CSV.
#pragma once

#include <string>
#include <string_view>

namespace workbook::book {

/// The text as valid UTF-8 without terminal escapes and control characters: a CSI or OSC sequence goes as a whole, a
/// carriage return before a newline too, any other control character but newline and tab alone, and so do the code
/// points that XML 1.0 does not allow. Bytes that are no UTF-8 become U+FFFD. Cut after `longest` bytes, with "…".
std::string clean_text(std::string_view text, std::size_t longest = 16000);

/// clean_text on one line: a newline or a tab becomes a space, and what turns the direction of a line round goes.
std::string line_text(std::string_view text, std::size_t longest = 16000);

/// The text as a file's name that every system can have and every page can show: letters and digits of any language,
/// and . _ - only; all else becomes _. `lossless`: nothing did.
std::string name_text(std::string_view text, bool& lossless);

/// clean_text with &, <, >, " and ' written as XML entities.
std::string xml_text(std::string_view text, std::size_t longest = 16000);

/// A Markdown code block with a fence longer than any run of back-ticks in the text, which therefore cannot end it.
std::string markdown_block(std::string_view text);

/// One line of text for Markdown outside code: what Markdown and HTML give a meaning is escaped.
std::string markdown_line(std::string_view text);

/// One cell of a CSV row (RFC 4180). A text that a spreadsheet would take for a formula gets an apostrophe in front.
std::string csv_cell(std::string_view text);

/// "3", "2.5": points without a tail of zeros.
std::string points_text(double points);

}  // namespace workbook::book
