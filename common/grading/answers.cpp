#include "common/grading/answers.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <sstream>

#include "common/book/folders.hpp"
#include "common/book/stubs.hpp"

namespace workbook::grading {
namespace {

constexpr std::size_t kCounted = 12;  ///< characters of a line that counts
constexpr std::size_t kInARow = 4;    ///< lines that are an answer

std::string squeezed(const std::string& line) {
  const std::size_t from = line.find_first_not_of(" \t\r");
  return from == std::string::npos ? "" : line.substr(from, line.find_last_not_of(" \t\r") - from + 1);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(squeezed(line));
  return lines;
}

/// Not comments, and not directives: every kernel has its #pragma unroll.
bool counts(const std::string& line) {
  return line.size() >= kCounted && !line.starts_with("//") && !line.starts_with("#");
}

/// The lines of an open region that count.
struct Answer {
  int chapter = 0;
  std::string exercise;
  std::vector<std::string> lines;
  std::set<std::string> all;
};

std::vector<Answer> open_answers(const book::Book& book, const Assignment& assignment) {
  std::vector<Answer> answers;
  for (const book::Chapter* chapter : released_chapters(book, assignment)) {
    for (const book::MarkedFile& solution : book::read_solution(book, *chapter)) {
      for (const book::Region& region : solution.regions) {
        if (!assignment.is_open(region.id)) continue;
        Answer answer{chapter->number, region.id, {}, {}};
        for (const std::string& line : region.body) {
          if (counts(squeezed(line))) answer.lines.push_back(squeezed(line));
        }
        answer.all.insert(answer.lines.begin(), answer.lines.end());
        answers.push_back(std::move(answer));
      }
    }
  }
  return answers;
}

/// The number of the chapter that a released file of code lies in; 0 for none.
int chapter_of(const std::string& path) {
  for (const std::string& folder : {std::string(book::kPristine) + "/", std::string("chapters/")}) {
    if (path.starts_with(folder)) return std::atoi(path.c_str() + folder.size());
  }
  return 0;
}

/// Lines of an answer in code: leaked where a run of them stands in the answer's order.
void search_code(const Answer& answer, const std::string& path, const std::vector<std::string>& lines,
                 AnswerSearch& found) {
  const int chapter = chapter_of(path);
  // Code of an earlier chapter is given whatever it has in common with a later answer; so is the oracle.
  const bool may_have_it = is_oracle(path) || (chapter > 0 && chapter < answer.chapter);
  const std::size_t enough = std::min(kInARow, std::max<std::size_t>(2, answer.lines.size()));
  std::size_t run = 0, expected = 0;  // lines found in the answer's order
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!answer.all.contains(lines[i])) {
      if (counts(lines[i])) run = 0;
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

/// Lines of an answer in prose, where they may stand within a line. `in_code`: the lines of given code, which prose may
/// show too.
void search_prose(const Answer& answer, const std::string& path, const std::vector<std::string>& lines,
                  const std::set<std::string>& in_code, AnswerSearch& found) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const AnswerLine here{answer.exercise, lines[i], path, int(i) + 1};
    if (answer.all.contains(lines[i])) {
      (in_code.contains(lines[i]) ? found.given : found.leaked).push_back(here);
      continue;
    }
    for (const std::string& line : answer.all) {
      const bool stands_here = line.size() >= 2 * kCounted && lines[i].find(line) != std::string::npos;
      if (stands_here && !in_code.contains(line)) found.leaked.push_back(here);
    }
  }
}

/// What `run` attends over: README and the first lessons as they were once, which quote a line of an answer here and
/// there. Every release has it, since what lessons count is counted with it.
constexpr std::string_view kTextOfRun = "common/attention/text.txt";

}  // namespace

bool is_oracle(const std::string& file) {
  constexpr std::array prefixes{"common/attention/oracle.", "common/judge/mistakes", "common/judge/attention_model.",
                                "common/judge/gradient_model."};
  return std::ranges::any_of(prefixes, [&](const char* prefix) { return file.starts_with(prefix); }) ||
         (file.starts_with("tests/") && file.find("/mistakes.") != std::string::npos);
}

AnswerSearch find_answers(const book::Book& book, const Assignment& assignment, const Files& files) {
  const std::vector<Answer> answers = open_answers(book, assignment);
  std::set<std::string> in_code;
  for (const auto& [path, file] : files) {
    if (!book::is_code(path)) continue;
    for (std::string& line : lines_of(file.text)) in_code.insert(std::move(line));
  }
  AnswerSearch found;
  for (const auto& [path, file] : files) {
    if (path == kTextOfRun) continue;
    const std::vector<std::string> lines = lines_of(file.text);
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
