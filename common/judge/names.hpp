// The names in a preprocessed answer, without comments, macros and branches that are not compiled. Occurrences of
// refused names are compared with those in the book's own file, since headers contain some too.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace workbook::judge {

/// What is refused in an answer, "uses asm (inline assembly)", and its location if the compiler records it:
/// "chapters/02_online_softmax/online_softmax.cpp:31".
struct Refusal {
  std::string what, location = {};
  std::string section = {};  ///< section of the object file that contains the code
  std::uint64_t offset = 0;  ///< in that section
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Refusal, what, location, section, offset)

/// The number of occurrences of a refused name in a preprocessed source, and the location of the first one in a
/// chapter's file.
struct NameCount {
  int count = 0;
  std::string location;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NameCount, count, location)
using NameCounts = std::map<std::string, NameCount, std::less<>>;
/// By the first 60 bytes of each name.
NameCounts refused_names(std::string_view preprocessed);

/// Whether a job's source belongs to an answer. Stages and operations are the book's own, but include headers with
/// answers.
bool is_answer(const std::filesystem::path& source);

/// Why a name is refused in an answer; empty if it is allowed.
std::string why_refused(std::string_view name);

/// The names that occur more often in `own` than in `book`, with the reason. The location is known only if the name
/// does not occur in the book's file.
std::vector<Refusal> more_than(const NameCounts& own, const NameCounts& book);

}  // namespace workbook::judge
