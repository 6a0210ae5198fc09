// assignment.toml: which exercises a class gets, what they are worth, and until when. Written by hand or by
// `./workbook release`: notes/instructors.md has its keys. Knows nothing of submissions.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/book/manifest.hpp"

namespace workbook::grading {

struct Assignment {
  struct Exercise {
    std::string id;
    int points = 0;
  };
  struct Whole {
    int chapter = 0;
    int points = 0;
  };
  struct Bar {
    int chapter = 0;
    std::string test;
    int points = 0;
  };
  std::string title, due;
  bool hints = true, leaderboard = false;
  std::string hidden_results = "after_published";  ///< Gradescope's names: hidden, after_due_date, after_published, …
  std::vector<std::string> files;                  ///< that hold an open exercise, relative to the book: to be edited
  std::vector<Exercise> exercises;                 ///< open ones, in the book's order
  std::vector<Whole> chapters;                     ///< one for each chapter with an open exercise
  std::vector<Bar> bars;

  int points() const;  ///< the most that can be had
  bool is_open(std::string_view exercise) const;
  /// The numbers of the chapters with an open exercise, in order.
  std::vector<int> open_chapters() const;
};

/// What a chapter in which everything works is worth where the assignment does not say.
inline constexpr int kWholePoints = 2;

/// An assignment of these exercises ("2.1") and whole chapters ("2"), each with the points that chapter.toml gives.
/// ManifestError for one that the book does not have.
Assignment make_assignment(const book::Book& book, const std::vector<std::string>& exercises,
                           const std::vector<std::string>& chapters);

/// Reads assignment.toml. ManifestError with FILE:LINE for: TOML errors, a missing, mistyped or unknown key, no
/// exercise, an exercise that the book does not have or that is given twice, points of a chapter without an open
/// exercise, a bar without its test's name, that is given twice or whose test is another chapter's or of an exercise
/// that is not open.
Assignment load_assignment(const std::filesystem::path& path, const book::Book& book);

/// The assignment as TOML. Bars on tests that the chapters do not have (hidden ones) are left out with `for_students`.
std::string to_toml(const Assignment& assignment, const book::Book& book, bool for_students);

/// Whether the chapter has a public test of this name.
bool has_test(const book::Chapter& chapter, const std::string& name);

}  // namespace workbook::grading
