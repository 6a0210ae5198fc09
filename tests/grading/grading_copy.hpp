// A copy of the book, and what the tests of grading do with it again and again.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "common/book/files.hpp"
#include "common/book/manifest.hpp"
#include "tests/cli/workbook_copy.hpp"
#include "tests/grading/samples.hpp"

namespace workbook::test {

/// The copy with an assignment: 2.1 (3 points), 2.3 (5), the chapter (2), and the memory bar (1) where `bar` says so.
class GradingCopy : public WorkbookCopy {
 public:
  explicit GradingCopy(bool bar = false) {
    std::string toml =
        "title = \"Online softmax\"\ndue = \"2027-01-31\"\n\n[[exercise]]\nid = \"2.1\"\n\n[[exercise]]\nid "
        "= \"2.3\"\n\n[[chapter]]\nnumber = 2\npoints = 2\n";
    if (bar) toml += "\n[[bar]]\nchapter = 2\ntest = \"extra memory does not grow with N\"\npoints = 1\n";
    book::write_file(assignment(), toml);
  }
  std::filesystem::path assignment() const { return scratch("assignment.toml"); }
  std::filesystem::path submissions() const { return scratch("submissions"); }
  std::filesystem::path graded() const { return scratch("graded"); }
  book::Book book() const { return book::load_book(root()); }

  /// Writes a submission that is one file.
  void submit(const std::string& student, const std::string& text) const {
    book::write_file(submissions() / student / kAnswerFile, text);
  }
  Ran grade(std::vector<std::string> more = {}, double time = 600) const {
    std::vector<std::string> arguments{"grade", "--assignment", assignment().string(), "--out", graded().string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    for (const auto& entry : std::filesystem::directory_iterator(submissions())) {
      arguments.push_back(entry.path().string());
    }
    RunOptions options;
    options.time = time;
    return run(arguments, options);
  }
  nlohmann::json record(const std::string& student) const {
    return nlohmann::json::parse(book::read_file(graded() / student / "record.json"));
  }
  std::string feedback(const std::string& student) const { return book::read_file(graded() / student / "feedback.md"); }
  /// "2.1" -> its item in the record.
  nlohmann::json item(const std::string& student, const std::string& id) const {
    const nlohmann::json all = record(student).at("items");
    for (const nlohmann::json& item : all) {
      if (item.at("id") == id) return item;
    }
    FAIL("no item " << id << " of " << student);
    return {};
  }
};

}  // namespace workbook::test
