// The book's own answers as an honest student might have written them: the same steps in other words.
#pragma once

#include <span>
#include <string>

#include "common/book/manifest.hpp"

namespace workbook::test {

enum class Where { anywhere, host, kernels };
/// A way to write that changes nothing: lines of a region, and what they need between the given lines. What the
/// simulator's kernels may not have (a host's library) is for .cpp files.
struct Style {
  const char *body, *between = "";
  Where where = Where::anywhere;
};
/// What an honest answer may have, and a grader may trip over.
std::span<const Style> honest_styles();

/// A file of a chapter's solution with every region rewritten, each in a way of its own that a grader might trip over
/// (comments, macros, helpers, headers, exceptions, …), and other line breaks and brackets (clang-format with another
/// style, where there is one).
std::string in_other_words(const book::Book& book, const book::Chapter& chapter, const std::string& file);

}  // namespace workbook::test
