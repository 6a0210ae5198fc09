// Mutants: the known wrong solutions of a chapter, tests/NN_name/wrong.diff. Each fails a test; if a reader's answer
// fails like one of them, its sentence is the cause.
//
//     @@ 5.1 @@                                            <- the exercise, or a file for given code outside regions
//
//     Your code rounds the number of tiles down; it must round up.
//     -  return (visible + Bc - 1) / Bc;                   <- a hunk as in a diff: lines of the solution ("-", or " "
//     +  return visible / Bc;                                 if they stay), and lines instead of them ("+")
//
//     -…                                                   <- another one of the same cause
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/book/manifest.hpp"

namespace workbook::book {

/// The exercise of a mutant that changes given code.
inline constexpr const char* kGivenCode = "given";

struct Hunk {
  std::vector<std::string> before;  ///< must occur exactly once in the region's body, or in the file's given code
  std::vector<std::string> after;
};

/// How a mutant is known to fail: a line of tests/NN_name/killed_by.tsv, which the gate "mutants" writes.
struct Killed {
  std::string result;  ///< "failed", "crashed", "timed out"
  std::string test;
  std::string reported;  ///< the reported cause: kItself, or the id of what the test or the simulator names
  /// Of the first mutant of an exercise: a test of the whole chapter that fails with it. Empty: the chapter's first.
  std::string whole = {};
};
inline constexpr const char* kItself = "itself";

struct Mutant {
  std::string id;        ///< "5.1/3": the third of its section
  std::string section;   ///< "5.1", or a file of given code
  std::string exercise;  ///< "5.1", or kGivenCode
  std::string sentence;  ///< "Your code …; it must …."
  Hunk hunk;
  Killed killed;     ///< empty if not recorded
  std::string file;  ///< tests/NN_name/wrong.diff
  int line = 0;      ///< of the hunk
};

/// Reads the mutants of a chapter; ManifestError with FILE:LINE for a section that is no exercise and no file of the
/// chapter, a sentence outside sections, and a hunk that has no sentence, changes nothing, or has no line of the
/// solution. Empty if the chapter has no file.
std::vector<Mutant> load_mutants(const Book& book, const Chapter& chapter);

/// Reads the lines of a hunk: each is " ", "-" or "+", then a line of code.
Hunk parse_hunk(const std::string& text);

/// The text of killed_by.tsv.
std::string killed_by_text(const std::vector<Mutant>& mutants);
std::filesystem::path killed_by_path(const Book& book, const Chapter& chapter);

/// The solution files of the chapter with the mutant applied: file name -> text. ManifestError with the mutant's
/// FILE:LINE if its lines do not occur exactly once in its region or the given code.
std::map<std::string, std::string> apply(const Book& book, const Chapter& chapter, const Mutant& mutant);

}  // namespace workbook::book
