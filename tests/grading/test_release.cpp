// What a release holds and what it does not.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/book/stubs.hpp"
#include "common/grading/answers.hpp"
#include "common/grading/release.hpp"
#include "common/worker/share_cores.hpp"
#include "tests/cli/workbook_copy.hpp"
#include "tests/text.hpp"

using namespace workbook;
using namespace workbook::test;
using grading::Assignment;
using grading::Files;

namespace {

const char* kFile = "chapters/02_online_softmax/online_softmax.cpp";

struct Made {
  Made() : book(book::load_book(copy.root())), assignment(grading::make_assignment(book, {"2.1", "2.3"}, {})) {}
  WorkbookCopy copy;
  book::Book book;
  Assignment assignment;
};

}  // namespace

TEST_CASE("open exercises are stubs, all others are given") {
  const Made made;
  const Files files = grading::release_files(made.book, made.assignment);
  const std::string text = files.at(kFile).text;
  const book::MarkedFile released = book::parse_marked("released", text);
  const book::MarkedFile solution =
      book::parse_marked("solution", made.copy.read("solutions/02_online_softmax/online_softmax.cpp"));
  CHECK(book::is_open(*released.find("2.1")));
  CHECK(!book::is_open(*released.find("2.2")));
  CHECK(book::is_open(*released.find("2.3")));
  CHECK(released.find("2.2")->body == solution.find("2.2")->body);
  CHECK(book::outside_regions(released) == book::outside_regions(solution));
  CHECK(files.at(std::string(book::kPristine) + "/02_online_softmax/online_softmax.cpp").text == text);
  // Chapter 1 comes complete.
  for (const book::Region& region :
       book::parse_marked("1", files.at("chapters/01_naive_attention/naive_attention.cpp").text).regions) {
    CHECK(!book::is_open(region));
  }
  CHECK(grading::with_answers(made.book, made.assignment, files).at(kFile).text ==
        grading::released_text(solution, Assignment{}));
}

TEST_CASE("solutions, wrong solutions, later chapters and instructors' notes stay here") {
  const Made made;
  made.copy.write("notes/instructors.md", "for instructors\n");
  made.copy.write("tests/02_online_softmax/.answer.cpp.swp", "an editor's\n");
  made.copy.write("tests/02_online_softmax/test_online_softmax.cpp~", "an editor's\n");
  const Assignment first = grading::make_assignment(made.book, {"1.2"}, {});
  for (const auto& [path, file] : grading::release_files(made.book, first)) {
    INFO(path);
    CHECK(!path.starts_with("solutions"));
    CHECK(!contains(path, "wrong.diff"));
    CHECK(!contains(path, "killed_by"));
    CHECK(!contains(path, "02_online_softmax"));
    CHECK(!contains(path, "instructors"));
    CHECK(!path.ends_with("~"));
    CHECK(!contains(path, ".swp"));
  }
  const Files files = grading::release_files(made.book, made.assignment);
  CHECK(files.contains("README.md"));
  CHECK(contains(files.at("README.md").text, "| 2.3 |"));
  CHECK(files.contains("tests/02_online_softmax/test_online_softmax.cpp"));
  CHECK(files.at("workbook").executable);
}

TEST_CASE("every link of a release's pages leads somewhere in it") {
  const book::Book book = book::load_book(WORKBOOK_SOURCE);
  for (const char* open : {"1.2", "2.1", "4.2"}) {
    const Files files = grading::release_files(book, grading::make_assignment(book, {open}, {}));
    int links = 0;
    for (const auto& [path, file] : files) {
      if (!path.ends_with(".md")) continue;
      for (std::size_t at = file.text.find("]("); at != std::string::npos; at = file.text.find("](", at + 1)) {
        const std::string target = file.text.substr(at + 2, file.text.find_first_of("#)", at) - at - 2);
        if (target.empty() || target.find_first_of(": &*\n") != std::string::npos) continue;  // outside, or code
        const std::string wanted = (std::filesystem::path(path).parent_path() / target).lexically_normal();
        INFO(path << " leads to " << wanted);
        const auto next = files.lower_bound(wanted);
        CHECK((next != files.end() && next->first.starts_with(wanted)));
        ++links;
      }
    }
    CHECK(links > 5);
    // The text of a link that went stays.
    CHECK(contains(book::read_file(book.root / "notes/json.md"), "[the instructor's guide](instructors.md)"));
    CHECK(contains(files.at("notes/json.md").text, "the instructor's guide"));
    CHECK(!contains(files.at("notes/json.md").text, "(instructors.md)"));
  }
}

TEST_CASE("hints are kept or dropped") {
  Made made;
  const std::string manifest = "chapters/02_online_softmax/chapter.toml";
  CHECK(contains(grading::release_files(made.book, made.assignment).at(manifest).text, "Keep two numbers"));
  made.assignment.hints = false;
  const std::string without = grading::release_files(made.book, made.assignment).at(manifest).text;
  CHECK(!contains(without, "Keep two numbers"));
  CHECK(!contains(without, "m_safe"));
  // It is a manifest still.
  made.copy.write(manifest, without);
  CHECK(book::load_book(made.copy.root()).exercise("2.1").hints.size() == 2);
}

TEST_CASE("an answer in the files to be released is found") {
  const Made made;
  Files files = grading::release_files(made.book, made.assignment);
  const grading::AnswerSearch clean = grading::find_answers(made.book, made.assignment, files);
  for (const grading::AnswerLine& line : clean.leaked) FAIL_CHECK(line.file << ":" << line.line << " " << line.text);
  // A line of prose.
  files["notes/leak.md"] = {"You could write\n    l *= std::exp(m - m_safe);\n"};
  CHECK(grading::find_answers(made.book, made.assignment, files).leaked.size() == 1);
  // Within a line, and in a hint.
  files["notes/leak.md"] = {"You could write `for (float& o : O_tile.row(i)) o = l[i] == 0 ? 0 : o / l[i];` there.\n"};
  CHECK(grading::find_answers(made.book, made.assignment, files).leaked.size() == 1);
  files.erase("notes/leak.md");
  // The answer itself, in code beside the file.
  files["tests/02_online_softmax/copy.cpp"] = {made.copy.read("solutions/02_online_softmax/online_softmax.cpp")};
  CHECK(grading::find_answers(made.book, made.assignment, files).leaked.size() > 5);
  // The same lines in the region itself.
  files.erase("tests/02_online_softmax/copy.cpp");
  files = grading::with_answers(made.book, made.assignment, files);
  CHECK(grading::find_answers(made.book, made.assignment, files).leaked.size() > 5);
}

TEST_CASE("each exercise, and each chapter, can be released: no lesson, hint or given code holds its answer") {
  const book::Book book = book::load_book(WORKBOOK_SOURCE);
  std::vector<Assignment> assignments;
  for (const book::Chapter& chapter : book.chapters) {
    assignments.push_back(grading::make_assignment(book, {}, {std::to_string(chapter.number)}));
    for (const book::Exercise& exercise : chapter.exercises)
      assignments.push_back(grading::make_assignment(book, {exercise.id}, {}));
  }
  std::vector<grading::AnswerSearch> searches(assignments.size());
  worker::share_cores(assignments.size(), [&](std::size_t i) {
    searches[i] = grading::find_answers(book, assignments[i], grading::release_files(book, assignments[i]));
  });
  for (const grading::AnswerSearch& search : searches) {
    for (const grading::AnswerLine& line : search.leaked)
      FAIL_CHECK("a line of the answer to " << line.exercise << " in " << line.file << ":" << line.line << ": "
                                            << line.text);
    CHECK(search.leaked.empty());
  }
}

TEST_CASE("reset goes back to the pristine stub, region or file") {
  const Made made;
  const Files files = grading::release_files(made.book, made.assignment);
  std::filesystem::remove_all(made.copy / "solutions");
  const std::string pristine = std::string(book::kPristine) + "/02_online_softmax/online_softmax.cpp";
  made.copy.write(kFile, files.at(kFile).text);
  made.copy.write(pristine, files.at(pristine).text);
  const auto body = [&](const std::string& id) {
    return book::join_lines(book::parse_marked("", made.copy.read(kFile)).find(id)->body);
  };
  for (const auto& [id, line] : {std::pair{"2.1", "  return {1, 2};"}, {"2.2", "  into.m = 0;"}}) {
    made.copy.write(kFile, book::replace_body(book::parse_marked("", made.copy.read(kFile)), id, {line}));
  }
  CHECK(made.copy.run({"reset", "2.1"}).exit_code == 0);
  CHECK(body("2.1") == "  WORKBOOK_TODO(2.1);\n");
  CHECK(body("2.2") == "  into.m = 0;\n");
  CHECK(made.copy.run({"reset", "2.2"}).exit_code == 0);  // given: back to what was given
  CHECK(contains(body("2.2"), "from_factor"));
  made.copy.write(kFile, "// all gone\n");
  CHECK(made.copy.run({"reset", "--file", "2.1"}).exit_code == 0);
  CHECK(made.copy.read(kFile) == files.at(kFile).text);
}

TEST_CASE("the autograder for Gradescope has its scripts at its root, and no student's copy") {
  const Made made;
  const std::filesystem::path hidden = std::string(WORKBOOK_SOURCE) + "/tests/grading/hidden";
  const Files files = grading::autograder_files(made.book, made.assignment, hidden);
  for (const char* file : {"setup.sh", "run_autograder"}) {
    REQUIRE(files.contains(file));
    CHECK(files.at(file).executable);
    CHECK(files.at(file).text.starts_with("#!/usr/bin/env bash\n"));
  }
  CHECK(files.contains("assignment.toml"));
  CHECK(files.contains("hidden/02_online_softmax/test_hidden.cpp"));
  CHECK(files.contains("book/solutions/02_online_softmax/online_softmax.cpp"));
  CHECK(files.at("book/workbook").executable);
  for (const auto& [path, file] : files) CHECK(!contains(path, ".pristine"));
}
