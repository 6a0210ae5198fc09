// A look at a submission's source for names that have no place in an answer: what the simulator is made of, its
// callbacks, inline assembly, sanitizer attributes, headers beyond the language's and the chapter's own. A filter and
// no proof: it says no early and clearly; what holds is the isolation.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace workbook::grading {

/// Something that the source must not have.
struct Refusal {
  int line = 0;
  std::string what;  ///< "inline assembly (asm)"
};

/// Looks through a C++ source: comments and texts are left out, spliced lines joined. Lines that stand in `given`, the
/// file as it was handed out, are not looked at.
std::vector<Refusal> screen_source(std::string_view source, std::string_view given);

}  // namespace workbook::grading
