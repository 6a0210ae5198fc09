// grading_class FOLDER [beside]: writes a class's submissions, its assignment.toml and expected.csv, the
// table that grading them must give. Without a word: solutions, wrong solutions (tests/NN_name/wrong.diff),
// untouched files and hostile ones, 60 in all, three of them of chapter 4 (2.1, 2.3, 4.2 and 4.4 are open). beside: 60
// solutions of chapter 2 and in turn with them every hostile sample, for class_time.sh. Then, in FOLDER:
//
//   ./workbook grade --assignment assignment.toml --jobs 2 submissions/*
//   cmp graded/class.csv expected.csv
//
// What a hostile one costs a class is the "seconds" of its record beside those of a solution's.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/book/files.hpp"
#include "common/book/mutants.hpp"
#include "common/grading/assignment.hpp"
#include "common/grading/summary.hpp"
#include "tests/grading/samples.hpp"

using namespace workbook;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t kSubmissions = 60;
constexpr const char* kKernelFile = "chapters/04_q_split/phases.hpp";

/// Writes submissions and records the expected points.
class Class {
 public:
  Class(const fs::path& folder, const std::vector<std::string>& exercises)
      : book(book::load_book(WORKBOOK_SOURCE)),
        assignment(grading::make_assignment(book, exercises, {})),
        folder_(folder) {
    assignment.title = "A class of 60";
  }
  std::size_t count() const { return expected_.size(); }

  /// `earned`: "2.1", "chapter 2", … the items that must earn their points.
  void submit(const std::string& name, const std::map<std::string, std::string>& files,
              const std::set<std::string>& earned) {
    grading::GradedSubmission graded;
    graded.student = fmt::format("{:02}_{}", expected_.size() + 1, name);
    graded.path = "submissions/" + graded.student;
    for (const auto& [file, text] : files) book::write_file(folder_ / graded.path / file, text);
    const auto add = [&](const std::string& id, double points) {
      graded.items.push_back({.id = id, .points = earned.contains(id) ? points : 0, .max_points = points});
    };
    for (const auto& exercise : assignment.exercises) add(exercise.id, exercise.points);
    for (const auto& whole : assignment.chapters) add(fmt::format("chapter {}", whole.chapter), whole.points);
    expected_.push_back(graded);
  }
  void submit(const test::Sample& sample) {
    std::set<std::string> earned;
    if (sample.first) earned.insert("2.1");
    if (sample.second) earned.insert("2.3");
    if (sample.whole) earned.insert("chapter 2");
    submit("hostile_" + sample.name, sample.files, earned);
  }
  void submit_solved() { submit("solved", {{test::kAnswerFile, test::solved(book)}}, {"2.1", "2.3", "chapter 2"}); }
  /// A known wrong solution of the chapter.
  void submit_wrong(const std::string& name, const char* chapter, const std::string& id, const char* file,
                    const std::set<std::string>& earned) {
    const std::vector<book::Mutant> mutants = book::load_mutants(book, book.chapter(chapter));
    const auto found = std::ranges::find(mutants, id, &book::Mutant::id);
    if (found == mutants.end()) throw std::runtime_error("there is no wrong solution " + id);
    const auto files = book::apply(book, book.chapter(chapter), *found);
    submit(name, {{file, files.at(fs::path(file).filename().string())}}, earned);
  }
  void write_tables() {
    std::ranges::sort(expected_, {}, &grading::GradedSubmission::student);  // as grading them does
    book::write_file(folder_ / "assignment.toml", grading::to_toml(assignment, book, /*for_students=*/false));
    book::write_file(folder_ / "expected.csv", grading::class_table(expected_));
  }
  /// The hostile samples, with the files that they try to read in the folder and the book. `other`: another
  /// submission's.
  std::vector<test::Sample> samples(const std::string& other) const {
    return test::hostile_samples(book, {book.root / "solutions/02_online_softmax/online_softmax.cpp",
                                        book.root / "tests/grading/hidden/02_online_softmax/test_hidden.cpp",
                                        folder_ / "outside.txt", folder_ / "submissions" / other / test::kAnswerFile});
  }

  const book::Book book;
  grading::Assignment assignment;

 private:
  fs::path folder_;
  std::vector<grading::GradedSubmission> expected_;
};

void write_mixed_class(Class& students) {
  const book::Book& book = students.book;
  // Chapter 4: right in other words than the book's, and wrong in each exercise.
  std::string kernel = book::read_file(book.root / "solutions/04_q_split/phases.hpp");
  for (const char* begin : {"// BEGIN 4.2\n", "// BEGIN 4.4\n"})
    kernel.insert(kernel.find(begin) + std::string(begin).size(), "  // As I have understood it.\n");
  students.submit("kernel_solved", {{kKernelFile, kernel}}, {"4.2", "4.4", "chapter 4"});
  students.submit_wrong("kernel_mutant", "4", "4.2/2", kKernelFile, {"4.4"});
  students.submit_wrong("kernel_mutant", "4", "4.4/4", kKernelFile, {"4.2"});

  // Chapter 2: every second wrong solution of the open exercises. It loses its exercise and the chapter; or the chapter
  // alone, where what it does wrong is counted by a test of the whole chapter.
  const std::vector<std::string>& whole_tests = book.chapter("2").whole_tests;
  int wrong_ones = 0, hostile = 0;
  for (const book::Mutant& mutant : book::load_mutants(book, book.chapter("2"))) {
    if (!students.assignment.is_open(mutant.exercise) || wrong_ones++ % 2 != 0) continue;
    std::set<std::string> earned{"2.1", "2.3"};
    if (std::ranges::count(whole_tests, mutant.killed.test) == 0) earned.erase(mutant.exercise);
    students.submit_wrong(fmt::format("mutant_{}", wrong_ones), "2", mutant.id, test::kAnswerFile, earned);
  }
  for (const test::Sample& sample : students.samples("60_solved"))
    if (sample.files.size() == 1 && sample.files.contains(test::kAnswerFile) && hostile++ % 5 == 0)
      students.submit(sample);
  // What the summary must name first.
  for (int i = 0; i < 8; ++i) students.submit_wrong("commonest_mistake", "2", "2.1/1", test::kAnswerFile, {"2.3"});
  for (int i = 0; i < 4; ++i) students.submit("untouched", {{test::kAnswerFile, test::untouched(book)}}, {});
  while (students.count() < kSubmissions) students.submit_solved();
}

}  // namespace

int main(int argc, char** argv) {
  const bool beside = argc == 3 && std::string(argv[2]) == "beside";
  if (argc != 2 && !beside) {
    fmt::print(stderr, "usage: grading_class FOLDER [beside]\n");
    return 2;
  }
  std::vector<std::string> exercises{"2.1", "2.3"};
  if (!beside) exercises.insert(exercises.end(), {"4.2", "4.4"});
  Class students(fs::absolute(argv[1]), exercises);
  if (!beside) write_mixed_class(students);
  if (beside) {
    const std::vector<test::Sample> bank = students.samples("01_solved");
    for (std::size_t i = 0; i < std::max(kSubmissions, bank.size()); ++i) {
      if (i < kSubmissions) students.submit_solved();
      if (i < bank.size()) students.submit(bank[i]);
    }
  }
  students.write_tables();
  fmt::print("{} submissions in {}\n", students.count(), argv[1]);
  return 0;
}
