// assignment.toml: what it may say, and what is refused.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "common/book/files.hpp"
#include "common/grading/assignment.hpp"
#include "tests/cli/workbook_copy.hpp"

using namespace workbook;
using namespace workbook::test;
using grading::Assignment;

namespace {

book::Book copied_book() {
  static const WorkbookCopy copy;
  return book::load_book(copy.root());
}

Assignment load(const std::string& toml) {
  const book::Book book = copied_book();
  book::write_file(scratch("assignment.toml"), toml);
  return grading::load_assignment(scratch("assignment.toml"), book);
}

std::string refusal(const std::string& toml) {
  try {
    load(toml);
  } catch (const book::ManifestError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("an assignment takes its points from the book unless it says otherwise") {
  const Assignment assignment =
      load("title = \"A\"\n\n[[exercise]]\nid = \"2.3\"\n\n[[exercise]]\nid = \"2.1\"\npoints = 7\n");
  REQUIRE(assignment.exercises.size() == 2);
  CHECK(assignment.exercises[0].id == "2.1");  // in the book's order
  CHECK(assignment.exercises[0].points == 7);
  CHECK(assignment.exercises[1].points == 5);
  REQUIRE(assignment.chapters.size() == 1);
  CHECK(assignment.chapters[0].points == grading::kWholePoints);
  CHECK(assignment.points() == 7 + 5 + grading::kWholePoints);
  CHECK(assignment.files == std::vector<std::string>{"chapters/02_online_softmax/online_softmax.cpp"});
  CHECK(assignment.hints);
}

TEST_CASE("a written assignment is read back unchanged") {
  Assignment assignment = grading::make_assignment(copied_book(), {"2.1"}, {"1"});
  assignment.title = "A \"title\" with \\ and\ttab";
  assignment.due = "2027-01-31";
  assignment.bars.push_back({2, "extra memory does not grow with N", 1});
  assignment.bars.push_back({2, "a hidden test", 2});
  const Assignment back = load(grading::to_toml(assignment, copied_book(), /*for_students=*/false));
  CHECK(back.title == assignment.title);
  CHECK(back.due == assignment.due);
  CHECK(back.points() == assignment.points());
  CHECK(back.exercises.size() == 4);
  CHECK(back.bars.size() == 2);
  // Students do not see the names of hidden tests.
  const std::string for_students = grading::to_toml(assignment, copied_book(), /*for_students=*/true);
  CHECK(for_students.find("a hidden test") == std::string::npos);
  CHECK(for_students.find("extra memory") != std::string::npos);
}

TEST_CASE("an invalid assignment is refused, with file and line") {
  const auto [toml, says] = GENERATE(table<std::string, std::string>({
      {"title = \"A\"\n", "has no [[exercise]]"},
      {"[[exercise]]\nid = \"2.1\"\n", "no key \"title\""},
      {"title = \"A\"\n[[exercise]]\nid = \"2.9\"\n", "assignment.toml:3: there is no exercise \"2.9\""},
      {"title = \"A\"\n[[exercise]]\nid = \"2.1\"\n[[exercise]]\nid = \"2.1\"\n",
       "assignment.toml:5: exercise 2.1 is given twice"},
      {"title = \"A\"\n[[exercise]]\nid = \"2.1\"\npoints = -1\n", "assignment.toml:4"},
      {"title = \"A\"\n[[exercise]]\nid = \"2.1\"\npiont = 1\n", "unknown key \"piont\""},
      {"title = \"A\"\nhidden_results = \"soon\"\n[[exercise]]\nid = \"2.1\"\n", "after_due_date"},
      {"title = \"A\"\n[[exercise]]\nid = \"2.1\"\n[[chapter]]\nnumber = 1\npoints = 1\n", "has no exercise in this"},
      {"title = \"A\"\n[[exercise]]\nid = \"2.1\"\n[[bar]]\nchapter = 2\npoints = 1\n", "no key \"test\""},
      {"title = \n", "assignment.toml:1"},
      // A bar that is given twice, that belongs to another chapter, or whose exercise is not open.
      {"title = \"A\"\n[[exercise]]\nid = \"2.3\"\n[[bar]]\nchapter = 2\ntest = \"extra memory does not grow with "
       "N\"\npoints = 1\n[[bar]]\nchapter = 2\ntest = \"extra memory does not grow with N\"\npoints = 2\n",
       "assignment.toml:10: this bar is given twice"},
      {"title = \"A\"\n[[exercise]]\nid = \"2.3\"\n[[exercise]]\nid = \"1.1\"\n[[bar]]\nchapter = 1\ntest = \"extra "
       "memory does not grow with N\"\npoints = 1\n",
       "assignment.toml:8: \"extra memory does not grow with N\" is a test of chapter 2"},
      {"title = \"A\"\n[[exercise]]\nid = \"2.3\"\n[[bar]]\nchapter = 2\ntest = \"" +
           copied_book().exercise("2.2").tests.front() + "\"\npoints = 1\n",
       "assignment.toml:6: this test belongs to 2.2, which is not in the assignment"},
  }));
  INFO(toml);
  CHECK(refusal(toml).find(says) != std::string::npos);
}
