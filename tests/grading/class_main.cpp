// grading_class FOLDER [beside]: writes a class's submissions, its assignment.toml and expected.csv, the
// table that grading them must give. Without a word: solutions, wrong solutions (the mutants of tests/NN_name),
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

/// Writes submissions, and keeps what each must be given.
class Class {
 public:
  Class(const fs::path& folder, const std::vector<std::string>& exercises)
      : folder_(folder), book_(book::load_book(WORKBOOK_SOURCE)), assignment_(make_assignment(exercises)) {}

  const book::Book& book() const { return book_; }
  const grading::Assignment& assignment() const { return assignment_; }
  std::size_t count() const { return expected_.size(); }

  /// `earned`: "2.1", "chapter 2", … that must be given their points.
  void submit(const std::string& name, const std::string& file, const std::string& text,
              const std::set<std::string>& earned) {
    submit(name, {{file, text}}, earned);
  }
  void submit(const test::Sample& sample) {
    std::set<std::string> earned;
    if (sample.first) earned.insert("2.1");
    if (sample.second) earned.insert("2.3");
    if (sample.whole) earned.insert("chapter 2");
    submit("hostile_" + sample.name, sample.files, earned);
  }
  void submit(const std::string& name, const std::map<std::string, std::string>& files,
              const std::set<std::string>& earned) {
    grading::GradedSubmission graded;
    graded.student = fmt::format("{:02}_{}", expected_.size() + 1, name);
    graded.path = "submissions/" + graded.student;
    for (const auto& [file, text] : files) book::write_file(folder_ / graded.path / file, text);
    const auto add = [&](const std::string& id, double points) {
      grading::GradedItem item;
      item.id = id;
      item.max_points = points;
      item.points = earned.contains(id) ? points : 0;
      graded.items.push_back(item);
    };
    for (const auto& exercise : assignment_.exercises) add(exercise.id, exercise.points);
    for (const auto& whole : assignment_.chapters) add(fmt::format("chapter {}", whole.chapter), whole.points);
    expected_.push_back(graded);
  }

  void write_tables() {
    std::ranges::sort(expected_, {}, &grading::GradedSubmission::student);  // as grading them does
    book::write_file(folder_ / "assignment.toml", grading::to_toml(assignment_, book_, /*for_students=*/false));
    book::write_file(folder_ / "expected.csv", grading::class_table(expected_));
  }

 private:
  grading::Assignment make_assignment(const std::vector<std::string>& exercises) const {
    grading::Assignment made = grading::make_assignment(book_, exercises, {});
    made.title = "A class of 60";
    return made;
  }

  fs::path folder_;
  book::Book book_;
  grading::Assignment assignment_;
  std::vector<grading::GradedSubmission> expected_;
};

/// A wrong solution's file.
std::string wrong(const book::Book& book, const std::string& chapter, const std::string& id, const std::string& file) {
  for (const book::Mutant& mutant : book::load_mutants(book, book.chapter(chapter))) {
    if (mutant.id == id) return book::apply(book, book.chapter(chapter), mutant).at(file);
  }
  throw std::runtime_error("there is no mutant " + id);
}

/// The hostile samples, with what they want to read in `folder` and in the book. `other`: somebody else's submission.
std::vector<test::Sample> samples(const book::Book& book, const fs::path& folder, const std::string& other) {
  const test::Places places{book.root / "solutions/02_online_softmax/online_softmax.cpp",
                            book.root / "tests/grading/hidden/02_online_softmax/test_hidden.cpp",
                            folder / "outside.txt", folder / "submissions" / other / test::kAnswerFile};
  return test::hostile_samples(book, places);
}

void write_mixed_class(Class& students, const fs::path& folder) {
  const book::Book& book = students.book();
  // Chapter 4: right in other words than the book's, and wrong in each exercise.
  std::string kernel = book::read_file(book.root / "solutions/04_q_split/phases.hpp");
  for (const char* begin : {"// BEGIN 4.2\n", "// BEGIN 4.4\n"}) {
    kernel.insert(kernel.find(begin) + std::string(begin).size(), "  // As I have understood it.\n");
  }
  students.submit("kernel_solved", kKernelFile, kernel, {"4.2", "4.4", "chapter 4"});
  for (const char* id : {"4.2-first-fragment-only", "4.4-O-not-rescaled"}) {
    students.submit(fmt::format("kernel_mutant_{}", id), kKernelFile, wrong(book, "4", id, "phases.hpp"),
                    {std::string(id).starts_with("4.2") ? "4.4" : "4.2"});
  }

  // Chapter 2: every second wrong solution of the open exercises. It loses its exercise and the chapter; or the chapter
  // alone, where what it does wrong is counted by a test of the whole chapter.
  const std::vector<std::string>& whole_tests = book.chapter("2").whole_tests;
  int wrong_ones = 0;
  for (const book::Mutant& mutant : book::load_mutants(book, book.chapter("2"))) {
    if (!students.assignment().is_open(mutant.exercise) || wrong_ones++ % 2 != 0) continue;
    std::set<std::string> earned{"2.1", "2.3"};
    if (std::find(whole_tests.begin(), whole_tests.end(), mutant.test) == whole_tests.end()) {
      earned.erase(mutant.exercise);
    }
    students.submit("mutant_" + mutant.id, test::kAnswerFile,
                    book::apply(book, book.chapter("2"), mutant).at("online_softmax.cpp"), earned);
  }
  int hostile = 0;
  for (const test::Sample& sample : samples(book, folder, "60_solved"))
    if (sample.files.size() == 1 && sample.files.contains(test::kAnswerFile) && hostile++ % 5 == 0)
      students.submit(sample);
  // What the summary must name first.
  for (int i = 0; i < 8; ++i) {
    students.submit("commonest_mistake", test::kAnswerFile,
                    wrong(book, "2", "2.1-l-not-rescaled", "online_softmax.cpp"), {"2.3"});
  }
  for (int i = 0; i < 4; ++i) students.submit("untouched", test::kAnswerFile, test::untouched(book), {});
  while (students.count() < kSubmissions) {
    students.submit("solved", test::kAnswerFile, test::solved(book), {"2.1", "2.3", "chapter 2"});
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool beside = argc == 3 && std::string(argv[2]) == "beside";
  if (argc != 2 && !beside) {
    fmt::print(stderr, "usage: grading_class FOLDER [beside]\n");
    return 2;
  }
  const fs::path folder = fs::absolute(argv[1]);
  Class students(
      folder, beside ? std::vector<std::string>{"2.1", "2.3"} : std::vector<std::string>{"2.1", "2.3", "4.2", "4.4"});
  if (!beside) write_mixed_class(students, folder);
  if (beside) {
    const std::vector<test::Sample> bank = samples(students.book(), folder, "01_solved");
    for (std::size_t i = 0; i < std::max(kSubmissions, bank.size()); ++i) {
      if (i < kSubmissions)
        students.submit("solved", test::kAnswerFile, test::solved(students.book()), {"2.1", "2.3", "chapter 2"});
      if (i < bank.size()) students.submit(bank[i]);
    }
  }
  students.write_tables();
  fmt::print("{} submissions in {}\n", students.count(), folder.string());
  return 0;
}
