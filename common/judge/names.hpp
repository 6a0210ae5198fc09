// What an answer names, once the compiler's preprocessor is through with it: no comments, no macros, no branch that is
// not compiled. Names that have no place in an answer are counted beside those of the book's own file: headers have
// some too.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace workbook::judge {

/// What is refused of an answer, "names asm (inline assembly)", and where it stands as far as the compiler says so:
/// "chapters/02_online_softmax/online_softmax.cpp:31".
struct Refusal {
  std::string what, place = {};
  std::string section = {};  ///< of an object file, where the compiled code does so
  std::uint64_t offset = 0;  ///< in that section
};

/// How often a name that has no place in an answer stands in a preprocessed source, and where first in a file of a
/// chapter.
struct NameCount {
  int count = 0;
  std::string place;
};
using NameCounts = std::map<std::string, NameCount, std::less<>>;
NameCounts refused_names(std::string_view preprocessed);

/// Why a name is none for an answer; empty if it may stand.
std::string why_refused(std::string_view name);

/// What `own` has more of than `book`, each with its reason. Its place is known where the book's chapter has none of
/// it.
std::vector<Refusal> more_than(const NameCounts& own, const NameCounts& book);

}  // namespace workbook::judge
