// grading_class FOLDER: writes a class's submissions of chapter 2 with 2.1 and 2.3 open, and its assignment.toml:
// solutions, wrong solutions (the bank of tests/mutants), untouched files and hostile ones; 60 in all.
#include <fmt/format.h>

#include <filesystem>

#include "common/book/files.hpp"
#include "common/book/mutants.hpp"
#include "common/grading/assignment.hpp"
#include "tests/grading/samples.hpp"

using namespace workbook;
namespace fs = std::filesystem;

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: grading_class FOLDER\n");
    return 2;
  }
  const fs::path folder = fs::absolute(argv[1]);
  const book::Book book = book::load_book(WORKBOOK_SOURCE);
  const std::string solution = test::solved(book);
  int count = 0;
  const auto submit = [&](const std::string& name, const std::string& text) {
    book::write_file(folder / "submissions" / fmt::format("{:02}_{}", ++count, name) / test::kAnswerFile, text);
  };
  for (const book::Mutant& mutant : book::load_mutants(book, book.chapter("2"))) {
    if (!mutant.exercise.starts_with("2.") || mutant.exercise == "2.2") continue;
    submit("mutant_" + mutant.id, book::apply(book, book.chapter("2"), mutant).at("online_softmax.cpp"));
  }
  const test::Places places{book.root / "solutions/02_online_softmax/online_softmax.cpp",
                            book.root / "tests/grading/hidden/02_online_softmax/test_hidden.cpp",
                            folder / "outside.txt"};
  int hostile = 0;
  for (const test::Sample& sample : test::hostile_samples(book, places)) {
    if (sample.files.size() == 1 && sample.files.contains(test::kAnswerFile) && hostile++ % 4 == 0) {
      submit("hostile_" + sample.name, sample.files.at(test::kAnswerFile));
    }
  }
  for (int i = 0; i < 4; ++i) submit("untouched", test::untouched(book));
  while (count < 60) submit("solved", solution);
  grading::Assignment assignment = grading::make_assignment(book, {"2.1", "2.3"}, {});
  assignment.title = "A class of 60";
  book::write_file(folder / "assignment.toml", grading::to_toml(assignment, book, false));
  fmt::print("{} submissions in {}\n", count, folder.string());
  return 0;
}
