// What an answer has to do with the code around it: whether that code is as it was handed out, and which exercises
// would be solved by what depends on them. By tokens, not by names alone that stand in comments.
#pragma once

#include <map>
#include <set>
#include <string>

namespace workbook::grading {

/// Whether a file has every line that was given, in its order, and beside its regions nothing more than declarations of
/// its own at namespace level and headers: a helper function, not other given code. `given`: as it was handed out.
bool keeps_given(const std::string& source, const std::string& given);

/// The exercises whose answers call, other than the book's do, what calls them in turn: given code, or another
/// exercise, the book's answer to it or the student's. Where all others are the book's, such an answer is right
/// whatever it does. `solution`, `source`: name of a file in the chapter -> its text; `source` has those that were
/// handed in.
std::set<std::string> circular_exercises(const std::map<std::string, std::string>& solution,
                                         const std::map<std::string, std::string>& source);

}  // namespace workbook::grading
