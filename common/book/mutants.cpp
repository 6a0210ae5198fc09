#include "common/book/mutants.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/book/stubs.hpp"
#include "common/book/toml_table.hpp"

namespace workbook::book {

namespace {

bool contains(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

bool has_test(const Chapter& chapter, const std::string& test) {
  return contains(chapter.whole_tests, test) ||
         std::any_of(chapter.exercises.begin(), chapter.exercises.end(),
                     [&](const Exercise& exercise) { return contains(exercise.tests, test); });
}

Mutant read_mutant(TomlTable table, const Chapter& chapter, const std::string& file) {
  Mutant mutant;
  mutant.file = file;
  mutant.line = table.line();
  mutant.id = table.text("id");
  mutant.exercise = mutant.id.substr(0, mutant.id.find('-'));
  if (table.has("exercise") && table.text("exercise") != mutant.exercise)
    table.fail_at("exercise", "the id already contains the exercise; leave this key out");
  mutant.title = table.text("title");
  mutant.find = table.text("find");
  mutant.replace = table.any_text("replace");  // empty: the text is deleted
  mutant.test = table.text("test");
  if (!chapter.whole_tests.empty()) mutant.whole = chapter.whole_tests.front();
  if (table.has("whole")) mutant.whole = table.choice("whole", chapter.whole_tests);
  mutant.diagnosis = table.text("diagnosis");
  if (table.has("property")) mutant.property = table.text("property");
  if (table.has("death")) mutant.death = table.choice("death", {"failed", "crashed", "timed out"});
  table.reject_unknown();
  if (mutant.exercise == kGivenCode && !contains(chapter.whole_tests, mutant.test)) {
    table.fail_at("test", fmt::format("given code is tested by the whole chapter's tests; \"{}\" is not one of them",
                                      mutant.test));
  }
  const bool known = mutant.exercise == kGivenCode || chapter.find(mutant.exercise) != nullptr;
  if (!known || mutant.id.size() <= mutant.exercise.size() + 1) {
    table.fail_at("id", fmt::format("id \"{}\" must begin with an exercise of chapter {} and \"-\", or with \"{}-\"",
                                    mutant.id, chapter.name(), kGivenCode));
  }
  if (!has_test(chapter, mutant.test)) {
    table.fail_at("test", fmt::format("chapter {} has no test \"{}\"", chapter.name(), mutant.test));
  }
  const Exercise* exercise = chapter.find(mutant.exercise);
  if (!mutant.property.empty() && (exercise == nullptr || !contains(exercise->tests, mutant.test))) {
    table.fail_at("property", fmt::format("\"{}\" is allowed only if a test of exercise {} itself kills the mutant",
                                          mutant.property, mutant.exercise));
  }
  if (mutant.find == mutant.replace) table.fail_at("replace", "find and replace are equal: the mutant changes nothing");
  return mutant;
}

/// The number of occurrences of `part` in `text`, including overlapping ones.
std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// The file's text with every byte of its regions' bodies replaced by 0, so that a search finds only given code.
std::string given_code(const MarkedFile& file, std::string text) {
  int line = 1;
  for (char& c : text) {
    const bool in_body = std::any_of(file.regions.begin(), file.regions.end(), [&](const Region& region) {
      return region.begin_line < line && line < region.end_line;
    });
    line += c == '\n';
    if (in_body) c = '\0';
  }
  return text;
}

[[noreturn]] void fail_to_apply(const Mutant& mutant, std::size_t count, const std::string& where) {
  throw ManifestError(fmt::format("{}:{}: mutant {}: \"{}\" occurs {} times in {}; it must occur exactly once",
                                  mutant.file, mutant.line, mutant.id, mutant.find, count, where));
}

std::map<std::string, std::string> apply_to_given_code(const Book& book, const Chapter& chapter, const Mutant& mutant) {
  std::map<std::string, std::string> texts;
  const std::vector<MarkedFile> files = read_solution(book, chapter);
  std::size_t count = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::string text = read_file(book.solution(chapter, chapter.files[i]));
    const std::string given = given_code(files[i], text);
    const std::size_t found = occurrences(given, mutant.find);
    if (found > 0) text.replace(given.find(mutant.find), mutant.find.size(), mutant.replace);
    count += found;
    texts[chapter.files[i]] = std::move(text);
  }
  if (count != 1) fail_to_apply(mutant, count, "the given code of chapter " + chapter.name());
  return texts;
}

}  // namespace

std::vector<Mutant> load_mutants(const Book& book, const Chapter& chapter) {
  const std::string file = fmt::format("tests/{}/mutants.toml", chapter.name());
  std::vector<Mutant> mutants;
  if (!std::filesystem::exists(book.root / file)) return mutants;
  const toml::table parsed = parse_toml(read_file(book.root / file), file);
  TomlTable table(parsed, file, "file");
  for (TomlTable& entry : table.tables("mutant")) {
    const Mutant& mutant = mutants.emplace_back(read_mutant(entry, chapter, file));
    for (const Mutant& other : mutants) {
      if (&other == &mutant || other.id != mutant.id) continue;
      entry.fail_at("id", fmt::format("mutant {} is given twice, first on line {}", mutant.id, other.line));
    }
  }
  table.reject_unknown();
  return mutants;
}

std::map<std::string, std::string> apply(const Book& book, const Chapter& chapter, const Mutant& mutant) {
  if (mutant.exercise == kGivenCode) return apply_to_given_code(book, chapter, mutant);
  std::map<std::string, std::string> texts;
  const std::vector<MarkedFile> files = read_solution(book, chapter);
  for (std::size_t i = 0; i < files.size(); ++i) {
    const Region* region = files[i].find(mutant.exercise);
    if (!region) {
      texts[chapter.files[i]] = read_file(book.solution(chapter, chapter.files[i]));
      continue;
    }
    std::string body = join_lines(region->body);
    const std::size_t count = occurrences(body, mutant.find);
    if (count != 1) {
      fail_to_apply(mutant, count,
                    fmt::format("region {} ({}:{})", mutant.exercise, files[i].name, region->begin_line));
    }
    body.replace(body.find(mutant.find), mutant.find.size(), mutant.replace);
    texts[chapter.files[i]] = replace_body(files[i], mutant.exercise, parse_reader("", body).lines);
  }
  return texts;
}

}  // namespace workbook::book
