// What an answer names, once the compiler's preprocessor is through with it: no comments, no macros, no branch that is
// not compiled. Names that have no place in an answer are counted beside those of the book's own file: headers have
// some too.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace workbook::judge {

/// How often each name stands in a preprocessed source that has no place in an answer.
using NameCounts = std::map<std::string, int, std::less<>>;
NameCounts refused_names(std::string_view preprocessed);

/// Why a name is none for an answer; empty if it may stand.
std::string why_refused(std::string_view name);

/// What `own` has more of than `book`, each with its reason: "names asm (inline assembly)".
std::vector<std::string> more_than(const NameCounts& own, const NameCounts& book);

}  // namespace workbook::judge
