// Lessons and the other pages: what they show must be there, and be so.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <sstream>

#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/book/pages.hpp"
#include "common/book/stubs.hpp"
#include "common/book/text.hpp"
#include "common/gates/groups.hpp"

namespace workbook::gates {
namespace fs = std::filesystem;
namespace {

using book::Chapter;
using book::Exercise;
using judge::Workspace;

/// Whether the text names the exercise: 3.1 is not named where 3.10 is.
bool mentions(const std::string& text, const std::string& id) {
  for (std::size_t at = text.find(id); at != std::string::npos; at = text.find(id, at + 1)) {
    const char after = at + id.size() < text.size() ? text[at + id.size()] : ' ';
    if (after < '0' || after > '9') return true;
  }
  return false;
}

/// Where the Markdown links of a line lead, those within the repository.
std::vector<std::string> links_in(const std::string& line) {
  std::vector<std::string> targets;
  for (std::size_t at = line.find("]("); at != std::string::npos; at = line.find("](", at + 2)) {
    const std::size_t end = line.find(')', at);
    if (end == std::string::npos) break;
    const std::string target = line.substr(at + 2, end - at - 2);
    const std::string file = target.substr(0, target.find('#'));
    if (!file.empty() && target.find(':') == std::string::npos) targets.push_back(file);
  }
  return targets;
}

/// The lines that a lesson may show: those of the solutions outside the answers, and of the problem's headers.
std::set<std::string> compiled_lines(const Workspace& workspace) {
  std::set<std::string> compiled;
  const auto add = [&](const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) compiled.insert(book::trimmed(line));
  };
  for (const Chapter& chapter : workspace.book.chapters) {
    for (const std::string& file : chapter.files)
      add(book::make_stub(book::parse_marked(file, book::read_file(workspace.book.solution(chapter, file)))));
  }
  for (const auto& entry : fs::directory_iterator(workspace.book.root / "common" / "attention")) {
    if (entry.path().extension() == ".hpp") add(book::read_file(entry.path()));
  }
  return compiled;
}

void check_page(const Workspace& workspace, const fs::path& page, const std::set<std::string>& compiled,
                Findings& findings) {
  std::istringstream lines(book::read_file(page));
  bool in_code = false, in_cpp = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string where = fmt::format("{}:{}", workspace.shown(page), number);
    if (book::trimmed(line).starts_with("```")) {
      in_cpp = !in_code && book::trimmed(line).starts_with("```cpp");
      in_code = !in_code;
      continue;
    }
    if (in_cpp && !book::trimmed(line).empty() && !book::trimmed(line).starts_with("//")) {
      findings.expect(compiled.contains(book::trimmed(line)),
                      where + ": this line of C++ is in no file that the build compiles: " + line);
    }
    if (in_code) continue;
    for (const std::string& target : links_in(line)) {
      findings.expect(fs::exists(page.parent_path() / target), where + ": the link leads nowhere: " + target);
    }
  }
}

/// The chapters, exercises and tests that a page's commands name are there. (tests/cli asks the command line itself
/// whether it reads them.)
void check_commands(const Workspace& workspace, const fs::path& page, const std::string& text, Findings& findings) {
  std::set<std::string> tests, exercises, chapters;
  for (const Chapter& chapter : workspace.book.chapters) {
    chapters.insert(std::to_string(chapter.number));
    tests.insert(chapter.whole_tests.begin(), chapter.whole_tests.end());
    tests.insert(chapter.given_tests.begin(), chapter.given_tests.end());
    for (const Exercise& exercise : chapter.exercises) {
      exercises.insert(exercise.id);
      tests.insert(exercise.tests.begin(), exercise.tests.end());
    }
  }
  for (const book::ShownCommand& command : book::commands_in(text)) {
    if (command.has_placeholder()) continue;
    const std::string where = fmt::format("{}:{}", workspace.shown(page), command.line);
    const auto is_verb = [&](std::initializer_list<const char*> verbs) {
      return !command.words.empty() && std::ranges::count(verbs, command.words[0]) > 0;
    };
    for (std::size_t i = 1; i < command.words.size(); ++i) {
      const std::string &word = command.words[i], &before = command.words[i - 1];
      if (before == "--only" && is_verb({"test"}) && word != "a test's name")
        findings.expect(tests.contains(word), fmt::format("{}: there is no test \"{}\"", where, word));
      if (i == 1 && is_verb({"hint", "reset", "solution"}))
        findings.expect(exercises.contains(word), fmt::format("{}: there is no exercise {}", where, word));
      if (i == 1 && is_verb({"test", "watch", "trace", "bench"}) && !word.starts_with("-"))
        findings.expect(exercises.contains(word) || chapters.contains(word),
                        fmt::format("{}: there is no chapter or exercise {}", where, word));
    }
  }
}

/// The numbers of a line, those that are no part of a word: "N = 4096, 0.5 %" has 4096 and 0.5.
std::vector<std::string> numbers_in(const std::string& line) {
  const auto part_of_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  std::vector<std::string> numbers;
  for (std::size_t at = 0; at < line.size();) {
    if (!part_of_word(line[at])) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < line.size() && (part_of_word(line[end]) || (line[end] == '.' && end + 1 < line.size() &&
                                                             digit(line[end + 1]) && digit(line[end - 1]))))
      ++end;
    const std::string word = line.substr(at, end - at);
    if (std::ranges::all_of(word, [&](char c) { return digit(c) || c == '.'; })) numbers.push_back(word);
    at = end;
  }
  return numbers;
}

/// Between `<!-- figures: FILE -->` and `<!-- end of figures -->` every number of a table's row, but for what its first
/// cell says, is in FILE as well: figures are measured once and written down there.
void check_figures(const Workspace& workspace, const fs::path& page, const std::string& text, Findings& findings) {
  constexpr std::string_view begin = "<!-- figures: ", end = "<!-- end of figures -->";
  std::istringstream lines(text);
  std::set<std::string> known;
  bool inside = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string where = fmt::format("{}:{}", workspace.shown(page), number);
    if (line.starts_with(begin)) {
      const fs::path source = workspace.book.root / line.substr(begin.size(), line.rfind(" -->") - begin.size());
      findings.expect(fs::exists(source), where + ": the figures' file is not there: " + source.generic_string());
      known.clear();
      if (fs::exists(source)) {
        for (std::string& known_number : numbers_in(book::read_file(source))) known.insert(std::move(known_number));
      }
      inside = true;
    } else if (line == end) {
      inside = false;
    } else if (inside && line.starts_with("|")) {
      for (const std::string& figure : numbers_in(line.substr(std::min(line.find('|', 1), line.size()))))
        findings.expect(known.contains(figure),
                        where + ": the figure " + figure + " is not in the file that it is from");
    }
  }
  findings.expect(!inside, fmt::format("{}:{}: {} is missing", workspace.shown(page), number, end));
}

/// A reader comes to the first exercise soon: at most `most` words precede its heading; a word is what has a
/// letter or a digit between two blanks. What later exercises need is right before them.
void check_first_exercise(const Workspace& workspace, const Chapter& chapter, const fs::path& lesson,
                          const std::string& text, Findings& findings) {
  constexpr int most = 800;
  std::istringstream lines(text);
  int words = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#") && line.find("# " + chapter.exercises.front().id + " ") != std::string::npos) {
      findings.expect(words <= most, fmt::format("{}:1: {} words precede exercise {}, at most {} may",
                                                 workspace.shown(lesson), words, chapter.exercises.front().id, most));
      return;
    }
    std::istringstream in_line(line);
    for (std::string word; in_line >> word;)
      words += std::ranges::any_of(word, [](unsigned char c) { return std::isalnum(c) != 0; });
  }
  findings.expect(false, fmt::format("{}:1: no heading begins with exercise {}", workspace.shown(lesson),
                                     chapter.exercises.front().id));
}

/// Each picture that the chapter has is shown in its lesson. (The links of a page are checked, so each that is shown is
/// there; and the gate "pictures" knows that each there is current.)
void check_pictures_shown(const Workspace& workspace, const fs::path& lesson, const std::string& text,
                          Findings& findings) {
  const fs::path folder = lesson.parent_path() / "pictures";
  if (!fs::is_directory(folder)) return;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".svg") continue;
    const std::string link = "](pictures/" + entry.path().filename().string() + ")";
    findings.expect(
        text.find(link) != std::string::npos,
        fmt::format("{}:1: the picture {} is not shown", workspace.shown(lesson), link.substr(2, link.size() - 3)));
  }
}

}  // namespace

void check_lessons(Inspection& inspection, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  std::vector<fs::path> pages{workspace.book.root / "README.md"};
  for (const auto& entry : fs::directory_iterator(workspace.book.root / "notes")) {
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  }
  for (const Chapter* chapter : inspection.chapters) {
    const fs::path lesson = workspace.book.root / "chapters" / chapter->name() / "README.md";
    pages.push_back(lesson);
    const std::string text = book::read_file(lesson);
    check_pictures_shown(workspace, lesson, text, findings);
    check_first_exercise(workspace, *chapter, lesson, text, findings);
    for (const Exercise& exercise : chapter->exercises) {
      findings.expect(!exercise.why.empty(), fmt::format("{}:1: exercise {} has no why in its chapter.toml",
                                                         workspace.shown(lesson), exercise.id));
      findings.expect(mentions(text, exercise.id),
                      fmt::format("{}:1: exercise {} is not mentioned", workspace.shown(lesson), exercise.id));
    }
  }
  const std::set<std::string> compiled = compiled_lines(workspace);
  for (const fs::path& page : pages) {
    const std::string text = book::read_file(page);
    check_page(workspace, page, compiled, findings);
    check_commands(workspace, page, text, findings);
    check_figures(workspace, page, text, findings);
  }
  findings.detail = fmt::format("{} lines, links, commands, figures, pictures and exercises of {} pages",
                                findings.passed, pages.size());
}

}  // namespace workbook::gates
