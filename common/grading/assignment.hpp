// assignment.toml: the exercises of an assignment, their points and the due date. Written by hand or by `./workbook
// release`; notes/instructors.md documents the keys.
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
  std::vector<std::string> files;   ///< the files to edit, which contain an open exercise; relative to the book
  std::vector<Exercise> exercises;  ///< the open exercises, in the book's order
  std::vector<Whole> chapters;      ///< one per chapter with an open exercise
  std::vector<Bar> bars;

  int points() const;  ///< the maximum
  bool is_open(std::string_view exercise) const;
  /// The numbers of the chapters with an open exercise, in order.
  std::vector<int> open_chapters() const;
};

/// The default points for a chapter as a whole.
inline constexpr int kWholePoints = 2;

/// An assignment of these exercises ("2.1") and whole chapters ("2"), with the points of chapter.toml. ManifestError
/// for an unknown exercise or chapter.
Assignment make_assignment(const book::Book& book, const std::vector<std::string>& exercises,
                           const std::vector<std::string>& chapters);

/// Reads assignment.toml, or a folder's assignment.toml. ManifestError if there is none, and with FILE:LINE for: TOML
/// errors; a missing, mistyped or unknown key; no exercise; an unknown or repeated exercise; points for a chapter
/// without an open exercise; a bar without a test name, given twice, or with a test of another chapter or of an
/// exercise that is not open.
Assignment load_assignment(const std::filesystem::path& path, const book::Book& book);

/// The assignment as TOML. With `for_students`, bars on hidden tests are omitted.
std::string to_toml(const Assignment& assignment, const book::Book& book, bool for_students);

/// Whether the chapter has a public test of this name.
bool has_test(const book::Chapter& chapter, const std::string& name);

}  // namespace workbook::grading
