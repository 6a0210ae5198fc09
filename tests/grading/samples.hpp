// Submissions of chapter 2 as graders meet them: right, wrong, open, broken and hostile. The bank is hostile.toml.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/book/manifest.hpp"

namespace workbook::test {

/// What grading must make of a sample, with 2.1 and 2.3 open.
struct Sample {
  std::string name;
  std::map<std::string, std::string> files;  ///< path in the submission -> text; "archive:NAME" is written as one
  bool first = false;                        ///< 2.1 must be given its points
  bool second = false;                       ///< 2.3 must
  bool whole = false;                        ///< the whole chapter must
  std::string result;                        ///< what 2.1 must come to; empty: anything but passed
  std::string says;                          ///< a text in its feedback
};

/// The path of the exercise's file in a submission.
inline constexpr const char* kAnswerFile = "chapters/02_online_softmax/online_softmax.cpp";

/// The solution with other code in a region, and more at the file's end.
std::string answer(const book::Book& book, const std::string& exercise, const std::string& body,
                   const std::string& at_end = "");
/// The file as the students get it.
std::string untouched(const book::Book& book);
/// The complete solution.
std::string solved(const book::Book& book);

/// Code for a region of 2.1: does `attack`, which is a C++ expression that is true if it has worked, and then gives a
/// wrong answer. An attack that worked throws "ATTACK SUCCEEDED", which must not be found in any result.
std::string attack_body(const std::string& attack);

struct SamplePaths {
  std::filesystem::path solution, hidden, outside;  ///< files that no submission may read or change
  std::filesystem::path other;                      ///< another student's submission
};
/// Hostile and broken ones.
std::vector<Sample> hostile_samples(const book::Book& book, const SamplePaths& paths);
/// Writes a sample as a folder below `folder` (or as the archive that it is).
void write_sample(const std::filesystem::path& folder, const Sample& sample);

}  // namespace workbook::test
