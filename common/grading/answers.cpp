#include "common/grading/answers.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>
#include <unordered_set>

#include "common/book/folders.hpp"
#include "common/book/stubs.hpp"
#include "common/book/text.hpp"

namespace workbook::grading {
namespace {

constexpr std::size_t kCounted = 12;  ///< minimum length of a significant line
constexpr std::size_t kInARow = 4;    ///< number of consecutive lines that make an answer

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(book::trimmed(line));
  return lines;
}

/// Whether a line is significant. Comments and directives are not: every kernel has #pragma unroll.
bool is_significant(const std::string& line) {
  return line.size() >= kCounted && !line.starts_with("//") && !line.starts_with("#");
}

/// The significant lines of an open region.
struct Answer {
  int chapter = 0;
  std::string exercise;
  std::vector<std::string> lines;
  std::unordered_set<std::string> all;
};

std::vector<Answer> open_answers(const book::Book& book, const Assignment& assignment) {
  std::vector<Answer> answers;
  for (const book::Chapter* chapter : released_chapters(book, assignment)) {
    for (const book::MarkedFile& solution : book::read_solution(book, *chapter)) {
      for (const book::Region& region : solution.regions) {
        if (!assignment.is_open(region.id)) continue;
        Answer answer{chapter->number, region.id, {}, {}};
        for (const std::string& line : region.body)
          if (is_significant(book::trimmed(line))) answer.lines.push_back(book::trimmed(line));
        answer.all.insert(answer.lines.begin(), answer.lines.end());
        answers.push_back(std::move(answer));
      }
    }
  }
  return answers;
}

/// The number of the chapter that contains a released source file; 0 for none.
int chapter_of(const std::string& path) {
  for (const std::string& folder : {std::string(book::kPristine) + "/", std::string("chapters/")})
    if (path.starts_with(folder)) return std::atoi(path.c_str() + folder.size());
  return 0;
}

/// Searches code for lines of an answer. A run of them in the answer's order is a leak.
void search_code(const Answer& answer, const std::string& path, const std::vector<std::string>& lines,
                 AnswerSearch& found) {
  const int chapter = chapter_of(path);
  // Code of an earlier chapter and the oracle are given, even if they share lines with a later answer.
  const bool may_have_it = is_oracle(path) || (chapter > 0 && chapter < answer.chapter);
  const std::size_t enough = std::min(kInARow, std::max<std::size_t>(2, answer.lines.size()));
  std::size_t run = 0, expected = 0;  // lines found in the answer's order
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!answer.all.contains(lines[i])) {
      if (is_significant(lines[i])) run = 0;
      continue;
    }
    if (run > 0 && expected < answer.lines.size() && answer.lines[expected] == lines[i]) {
      ++run;
      ++expected;
    } else {
      run = 1;
      expected = std::size_t(std::ranges::find(answer.lines, lines[i]) - answer.lines.begin()) + 1;
    }
    (run >= enough && !may_have_it ? found.leaked : found.given)
        .push_back({answer.exercise, lines[i], path, int(i) + 1});
  }
}

/// Searches prose for lines of an answer, which may be part of a longer line. `in_code`: those of its lines that given
/// code has, which prose may show.
void search_prose(const Answer& answer, const std::string& path, const std::vector<std::string>& lines,
                  const std::unordered_set<std::string>& in_code, AnswerSearch& found) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const AnswerLine here{answer.exercise, lines[i], path, int(i) + 1};
    if (answer.all.contains(lines[i])) {
      (in_code.contains(lines[i]) ? found.given : found.leaked).push_back(here);
      continue;
    }
    for (const std::string& line : answer.all) {
      const bool occurs_here = line.size() >= 2 * kCounted && lines[i].find(line) != std::string::npos;
      if (occurs_here && !in_code.contains(line)) found.leaked.push_back(here);
    }
  }
}

/// The text that `run` uses as input: an earlier README and the first lessons, which quote a few lines of answers.
/// Every release contains it, since figures in the lessons were counted with it.
constexpr std::string_view kTextOfRun = "common/attention/text.txt";

}  // namespace

bool is_oracle(const std::string& file) {
  return file.starts_with("common/attention/oracle.");
}

AnswerSearch find_answers(const book::Book& book, const Assignment& assignment, const Files& files) {
  const std::vector<Answer> answers = open_answers(book, assignment);
  std::unordered_set<std::string> of_answers, in_code;
  for (const Answer& answer : answers) of_answers.insert(answer.all.begin(), answer.all.end());
  std::map<std::string, std::vector<std::string>> lines_of_files;
  for (const auto& [path, file] : files) {
    const std::vector<std::string>& lines = lines_of_files[path] = lines_of(file.text);
    if (!book::is_code(path)) continue;
    for (const std::string& line : lines)
      if (of_answers.contains(line)) in_code.insert(line);
  }
  AnswerSearch found;
  for (const auto& [path, lines] : lines_of_files) {
    if (path == kTextOfRun) continue;
    for (const Answer& answer : answers) {
      if (book::is_code(path)) {
        search_code(answer, path, lines, found);
      } else {
        search_prose(answer, path, lines, in_code, found);
      }
    }
  }
  return found;
}

}  // namespace workbook::grading
