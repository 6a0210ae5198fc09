// The book's own answers as an honest student might have written them: the same steps in other words.
#pragma once

#include <string>

#include "common/book/manifest.hpp"

namespace workbook::test {

/// A file of a chapter's solution with every region rewritten, each in a way of its own that a grader might trip over
/// (comments, macros, helpers, headers, exceptions, …), and other line breaks and brackets (clang-format with another
/// style, where there is one).
std::string in_other_words(const book::Book& book, const book::Chapter& chapter, const std::string& file);

}  // namespace workbook::test
