// Mutants: wrong solutions, described as replacements within a region of the right one, or in the given code around the
// regions, which a reader can break too. tests/NN_name/mutants.toml.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/book/manifest.hpp"

namespace workbook::book {

/// The exercise of a mutant that changes given code.
inline constexpr const char* kGivenCode = "given";

struct Mutant {
  std::string id;        ///< "1.1-no-scale": exercise id and slug; "given-…" for given code
  std::string exercise;  ///< "1.1", from the id: the region that is changed; kGivenCode: the text outside the regions
  std::string title;     ///< "the scores are not scaled"
  std::string find;      ///< must occur exactly once in the region's body, or outside all regions of all files
  std::string replace;
  std::string test;       ///< name of the test that must kill it
  std::string whole;      ///< name of a whole-chapter test that fails with it too; default: the chapter's first
  std::string diagnosis;  ///< id of the known mistake that the message must name, or "unknown"
  std::string property;   ///< the property of the problem that it gets wrong, for the gate that counts them; or empty
  std::string death = "failed";  ///< the expected result: "failed", "crashed", "timed out"
  std::string file;              ///< tests/NN_name/mutants.toml
  int line = 0;
};

/// Reads the mutants of a chapter; ManifestError with FILE:LINE for a missing or unknown key, a repeated id, or an
/// exercise or test that the chapter does not have. Empty if the chapter has no file.
std::vector<Mutant> load_mutants(const Book& book, const Chapter& chapter);

/// The solution files of the chapter with the mutant applied: file name -> text. ManifestError with the mutant's
/// FILE:LINE if `find` does not occur exactly once in its region or the given code.
std::map<std::string, std::string> apply(const Book& book, const Chapter& chapter, const Mutant& mutant);

}  // namespace workbook::book
