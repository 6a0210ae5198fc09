// Sanitises text from untrusted programs for files that other programs read: JSON, XML, Markdown, CSV.
#pragma once

#include <string>
#include <string_view>

namespace workbook::book {

/// The text as valid UTF-8 without terminal escapes and control characters. Complete CSI and OSC sequences are removed,
/// and all control characters except newline and tab, and code points that XML 1.0 does not allow. Invalid bytes become
/// U+FFFD. Truncated after `longest` bytes, with "…".
std::string clean_text(std::string_view text, std::size_t longest = 16000);

/// clean_text on one line: newlines and tabs become spaces, and characters that change the direction of a line are
/// removed.
std::string line_text(std::string_view text, std::size_t longest = 16000);

/// The text as a portable file name: letters and digits of any language and . _ - are kept; other characters become _.
/// `lossless`: no information was lost.
std::string name_text(std::string_view text, bool& lossless);

/// clean_text with &, <, >, " and ' written as XML entities.
std::string xml_text(std::string_view text, std::size_t longest = 16000);

/// A Markdown code block with a fence longer than any run of back-ticks in the text, which therefore cannot end it.
std::string markdown_block(std::string_view text);

/// One line of text for Markdown outside code: characters with a meaning in Markdown or HTML are escaped.
std::string markdown_line(std::string_view text);

/// One cell of a CSV row (RFC 4180). A text that a spreadsheet would interpret as a formula is prefixed with an
/// apostrophe.
std::string csv_cell(std::string_view text);

/// "3", "2.5": points without trailing zeros.
std::string points_text(double points);

}  // namespace workbook::book
