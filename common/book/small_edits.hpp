// Small edits of an exercise's answer, as readers make them by mistake: two operands exchanged, a bound off by one, a
// term left out. The mutation operators of Jia and Harman (An Analysis and Survey of the Development of Mutation
// Testing, 2011, section III) for C++. They are known wrong solutions without an author: if none of those in wrong.diff
// behaves as a reader's answer does, these run.
#pragma once

#include <string>
#include <vector>

#include "common/book/markers.hpp"

namespace workbook::book {

struct SmallEdit {
  std::size_t line;      ///< of the region's body, from 0
  std::string text;      ///< of the line after the edit; empty: the line is left out
  std::string sentence;  ///< "Your code behaves like one that exchanges / and % where it computes row."
};

/// The edits of a region: the first of each line, the second of each, and so on; of a long region not all. Some may not
/// compile, and some may not change what the code does.
std::vector<SmallEdit> small_edits(const Region& region);

}  // namespace workbook::book
