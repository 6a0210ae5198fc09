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
  mutant.exercise = table.text("exercise");
  mutant.title = table.text("title");
  mutant.find = table.text("find");
  mutant.replace = table.any_text("replace");  // empty: the text is left out
  mutant.test = table.text("test");
  mutant.diagnosis = table.text("diagnosis");
  if (table.has("death")) mutant.death = table.choice("death", {"failed", "crashed", "timed out"});
  table.reject_unknown();
  if (!chapter.find(mutant.exercise)) {
    table.fail_at("exercise", fmt::format("chapter {} has no exercise {}", chapter.name(), mutant.exercise));
  }
  if (!mutant.id.starts_with(mutant.exercise + "-") || mutant.id.size() == mutant.exercise.size() + 1) {
    table.fail_at("id", fmt::format("id \"{}\" must begin with \"{}-\"", mutant.id, mutant.exercise));
  }
  if (!has_test(chapter, mutant.test)) {
    table.fail_at("test", fmt::format("chapter {} has no test \"{}\"", chapter.name(), mutant.test));
  }
  if (mutant.find == mutant.replace) table.fail_at("replace", "find and replace are the same: nothing is mutated");
  return mutant;
}

/// How often `part` begins in `text`, overlaps counted.
std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace

std::vector<Mutant> load_mutants(const Book& book, const Chapter& chapter) {
  const std::string file = fmt::format("tests/mutants/{}.toml", chapter.name());
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
      throw ManifestError(fmt::format(
          "{}:{}: mutant {}: \"{}\" occurs {} times in region {} ({}:{}); it must occur exactly once", mutant.file,
          mutant.line, mutant.id, mutant.find, count, mutant.exercise, files[i].name, region->begin_line));
    }
    body.replace(body.find(mutant.find), mutant.find.size(), mutant.replace);
    texts[chapter.files[i]] = replace_body(files[i], mutant.exercise, parse_reader("", body).lines);
  }
  return texts;
}

}  // namespace workbook::book
