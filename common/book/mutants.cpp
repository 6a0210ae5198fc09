#include "common/book/mutants.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/book/stubs.hpp"

namespace workbook::book {
namespace {

using Lines = std::vector<std::string>;

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool is_of_hunk(const std::string& line) {
  return line.starts_with('-') || line.starts_with('+') || line.starts_with(' ');
}

/// Reads wrong.diff line by line.
class Reader {
 public:
  Reader(const Chapter& chapter, std::string file) : chapter_(chapter), file_(std::move(file)) {}

  std::vector<Mutant> read(const Lines& lines) {
    for (const std::string& line : lines) {
      ++line_;
      if (!is_of_hunk(line)) end_hunk();
      if (line.starts_with("@@ ") && line.ends_with(" @@")) {
        begin_section(line.substr(3, line.size() - 6));
      } else if (is_of_hunk(line)) {
        hunk_.push_back(line);
        sentence_ended_ = true;
      } else if (line.empty()) {
        sentence_ended_ = true;
      } else if (!line.starts_with('#')) {
        if (section_.empty()) fail("a sentence before the first section, \"@@ N.M @@\"");
        if (sentence_ended_) sentence_.clear();
        sentence_ += (sentence_.empty() ? "" : " ") + line;
        sentence_ended_ = false;
      }
    }
    ++line_;
    end_hunk();
    return std::move(mutants_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw ManifestError(fmt::format("{}:{}: {}", file_, line_, what));
  }

  void begin_section(const std::string& section) {
    section_ = section;
    sentence_.clear();
    number_ = 0;
    if (chapter_.find(section) == nullptr && std::ranges::count(chapter_.files, section) == 0)
      fail(fmt::format("\"{}\" is neither an exercise nor a file of chapter {}", section, chapter_.name()));
  }

  void end_hunk() {
    if (hunk_.empty()) return;
    if (sentence_.empty()) fail("a hunk without a sentence before it: \"Your code …; it must …\"");
    Mutant& mutant = mutants_.emplace_back();
    mutant.id = fmt::format("{}/{}", section_, ++number_);
    mutant.section = section_;
    mutant.exercise = chapter_.find(section_) != nullptr ? section_ : kGivenCode;
    mutant.sentence = sentence_;
    mutant.hunk = parse_hunk(join_lines(hunk_));
    mutant.file = file_;
    mutant.line = line_ - int(hunk_.size());
    if (mutant.hunk.before == mutant.hunk.after) fail("the hunk changes nothing");
    if (mutant.hunk.before.empty()) fail("the hunk needs a line of the solution, to say where it belongs");
    hunk_.clear();
  }

  const Chapter& chapter_;
  std::string file_, section_, sentence_;
  bool sentence_ended_ = true;
  Lines hunk_;
  int line_ = 0, number_ = 0;
  std::vector<Mutant> mutants_;
};

/// Lines of killed_by.tsv by mutant. Lines of mutants that no longer exist are ignored.
std::map<std::string, Killed> read_killed(const std::filesystem::path& path) {
  std::map<std::string, Killed> all;
  if (!std::filesystem::exists(path)) return all;
  for (const std::string& line : lines_of(read_file(path))) {
    std::istringstream columns(line);
    std::string id;
    Killed killed;
    std::getline(columns, id, '\t');
    std::getline(columns, killed.result, '\t');
    std::getline(columns, killed.test, '\t');
    std::getline(columns, killed.reported, '\t');
    std::getline(columns, killed.whole, '\t');
    all[id] = killed;
  }
  return all;
}

/// Where `part` occurs in `lines`; `allowed` says which lines count.
template <class Allowed>
std::vector<std::size_t> occurrences(const Lines& lines, const Lines& part, const Allowed& allowed) {
  std::vector<std::size_t> found;
  for (std::size_t at = 0; at + part.size() <= lines.size(); ++at) {
    bool same = true;
    for (std::size_t i = 0; same && i < part.size(); ++i) same = allowed(at + i) && lines[at + i] == part[i];
    if (same) found.push_back(at);
  }
  return found;
}

/// `lines` with the hunk applied.
template <class Allowed>
Lines changed(const Mutant& mutant, Lines lines, const std::string& where, const Allowed& allowed) {
  const auto found = occurrences(lines, mutant.hunk.before, allowed);
  if (found.size() != 1) {
    throw ManifestError(fmt::format("{}:{}: the lines of wrong solution {} occur {} times in {}; they must occur once",
                                    mutant.file, mutant.line, mutant.id, found.size(), where));
  }
  const auto first = lines.begin() + std::ptrdiff_t(found[0]);
  const auto at = lines.erase(first, first + std::ptrdiff_t(mutant.hunk.before.size()));
  lines.insert(at, mutant.hunk.after.begin(), mutant.hunk.after.end());
  return lines;
}

}  // namespace

Hunk parse_hunk(const std::string& text) {
  Hunk hunk;
  for (const std::string& line : lines_of(text)) {
    if (!line.starts_with('+')) hunk.before.push_back(line.substr(1));
    if (!line.starts_with('-')) hunk.after.push_back(line.substr(1));
  }
  return hunk;
}

std::vector<Mutant> load_mutants(const Book& book, const Chapter& chapter) {
  const std::string file = fmt::format("tests/{}/wrong.diff", chapter.name());
  if (!std::filesystem::exists(book.root / file)) return {};
  std::vector<Mutant> mutants = Reader(chapter, file).read(lines_of(read_file(book.root / file)));
  const auto killed = read_killed(killed_by_path(book, chapter));
  for (Mutant& mutant : mutants)
    if (const auto found = killed.find(mutant.id); found != killed.end()) mutant.killed = found->second;
  return mutants;
}

std::filesystem::path killed_by_path(const Book& book, const Chapter& chapter) {
  return book.root / "tests" / chapter.name() / "killed_by.tsv";
}

std::string killed_by_text(const std::vector<Mutant>& mutants) {
  std::string text;
  for (const Mutant& mutant : mutants) {
    const auto& [result, test, reported, whole] = mutant.killed;
    text += fmt::format("{}\t{}\t{}\t{}{}{}\n", mutant.id, result, test, reported, whole.empty() ? "" : "\t", whole);
  }
  return text;
}

std::map<std::string, std::string> apply(const Book& book, const Chapter& chapter, const Mutant& mutant) {
  std::map<std::string, std::string> texts;
  const std::vector<MarkedFile> files = read_solution(book, chapter);
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::string& text = texts[chapter.files[i]];
    const Region* region = files[i].find(mutant.exercise);
    if (region != nullptr) {
      const std::string where = fmt::format("region {} ({}:{})", region->id, files[i].name, region->begin_line);
      const Lines body = changed(mutant, region->body, where, [](std::size_t) { return true; });
      text = replace_body(files[i], region->id, body);
    } else if (mutant.section == chapter.files[i]) {
      const auto is_given = [&](std::size_t at) {
        const int line = int(at) + 1;
        return std::ranges::none_of(files[i].regions,
                                    [&](const Region& r) { return r.begin_line < line && line < r.end_line; });
      };
      text = join_lines(changed(mutant, files[i].lines, "the given code of " + files[i].name, is_given));
    } else {
      text = read_file(book.solution(chapter, chapter.files[i]));
    }
  }
  return texts;
}

}  // namespace workbook::book
