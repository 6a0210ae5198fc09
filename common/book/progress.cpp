#include "common/book/progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/book/files.hpp"
#include "common/book/folders.hpp"
#include "common/book/markers.hpp"
#include "common/book/stubs.hpp"

namespace workbook::book {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

fs::path progress_path(const Book& book) {
  return book.root / ".workbook" / "progress.json";
}
fs::path hints_path(const Book& book) {
  return book.root / ".workbook" / "hints.json";
}

/// The cache's object; empty if there is none or it is damaged.
Json read_cache(const fs::path& path) {
  if (!fs::is_regular_file(path)) return Json::object();
  Json json = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : Json::object();
}

void write_cache(const fs::path& path, const Json& json) {
  write_file(path, json.dump(2) + "\n");
}

/// Files beside the tests that do not affect their results: the wrong solutions.
bool is_not_a_test(const fs::path& file) {
  return file.filename() == "wrong.diff" || file.filename() == "killed_by.tsv";
}

/// The chapter's test sources, as one text that changes with any of them.
std::string test_sources(const Book& book, const Chapter& chapter) {
  const fs::path folder = book.root / "tests" / chapter.name();
  std::vector<fs::path> files = files_below(folder);
  // Hidden files, such as an editor's swap files, are excluded.
  std::erase_if(files, [](const fs::path& file) { return file.filename().string()[0] == '.' || is_not_a_test(file); });
  std::sort(files.begin(), files.end());
  std::string text;
  for (const fs::path& file : files) {
    text += fmt::format("{} {}\n", file.lexically_relative(folder).generic_string(), hash(read_file(file)));
  }
  return text;
}

std::string result_hash(const Region& region, const std::string& sources) {
  return hash(join_lines(region.body) + '\0' + sources);
}

/// A reader's region and its file.
struct Found {
  const MarkedFile* file = nullptr;
  const Region* region = nullptr;
};

Found find_region(const std::vector<MarkedFile>& files, std::string_view id) {
  for (const MarkedFile& file : files) {
    if (const Region* region = file.find(id)) return {&file, region};
  }
  return {};
}

/// Whether the line is one of the exercise's markers. Those of 4.12 are not markers of 4.1.
bool is_marker_of(std::string_view line, std::string_view id) {
  for (const std::string& marker :
       {fmt::format("// TODO({})", id), fmt::format("// BEGIN {}", id), fmt::format("// END {}", id)}) {
    const std::size_t at = line.find(marker);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = line.substr(at + marker.size());
    if (rest.empty() || rest[0] < '0' || rest[0] > '9') return true;
  }
  return false;
}

/// The location of a lost exercise: the first remaining marker line, otherwise the file that contains it in the
/// solution.
ExerciseProgress lost(const Book& book, const Chapter& chapter, const std::vector<MarkedFile>& files,
                      const std::string& id) {
  const auto at = [&](const MarkedFile& file, int line) {
    const Damage* const damage = file.damage_of(id);
    return damage == nullptr
               ? ExerciseProgress{Progress::lost, book.root / file.name, line}
               : ExerciseProgress{Progress::lost, book.root / file.name, damage->first_line, file.message(*damage)};
  };
  for (const MarkedFile& file : files) {
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      if (is_marker_of(file.lines[i], id)) return at(file, static_cast<int>(i) + 1);
    }
  }
  for (const std::string& file : chapter.files) {
    const fs::path solution = book.solution(chapter, file);
    if (!fs::is_regular_file(solution) || !parse_reader("", read_file(solution)).find(id)) continue;
    return at(files[std::size_t(&file - chapter.files.data())], 0);
  }
  return at(files.front(), 0);
}

Progress state_of(const Region& region, const Json& entry, const std::string& sources) {
  if (is_open(region)) return Progress::open;
  const bool known = entry.is_object() && entry.contains("hash") && entry.contains("passed") &&
                     entry["hash"] == result_hash(region, sources) && entry["passed"].is_boolean();
  if (!known) return Progress::untested;
  return entry["passed"].get<bool>() ? Progress::passing : Progress::failing;
}

}  // namespace

const char* name(Progress progress) {
  // In the order of Progress.
  static constexpr const char* names[] = {"open", "untested", "passing", "failing", "lost"};
  return names[std::size_t(progress)];
}

std::map<std::string, ExerciseProgress> load_progress(const Book& book) {
  const Json cache = read_cache(progress_path(book));
  std::map<std::string, ExerciseProgress> states;
  for (const Chapter& chapter : book.chapters) {
    const std::vector<MarkedFile> files = read_reader(book, chapter);
    const std::string sources = test_sources(book, chapter);
    for (const Exercise& exercise : chapter.exercises) {
      const Found found = find_region(files, exercise.id);
      if (!found.region || found.file->damage_of(exercise.id)) {
        states[exercise.id] = lost(book, chapter, files, exercise.id);
        continue;
      }
      const Json entry = cache.contains(exercise.id) ? cache[exercise.id] : Json();
      const Progress state = state_of(*found.region, entry, sources);
      const int line = state == Progress::open ? found.region->todo_line : found.region->begin_line;
      const Damage* const outside = found.file->damage_outside();
      states[exercise.id] = {state, book.root / found.file->name, line,
                             outside == nullptr ? "" : found.file->message(*outside)};
    }
  }
  return states;
}

void save_progress(const Book& book, const std::map<std::string, bool>& results) {
  for (const auto& [id, passed] : results) book.exercise(id);  // throws if the exercise does not exist
  Json cache = read_cache(progress_path(book));
  for (const Chapter& chapter : book.chapters) {
    const std::vector<MarkedFile> files = read_reader(book, chapter);
    const std::string sources = test_sources(book, chapter);
    for (const Exercise& exercise : chapter.exercises) {
      const auto result = results.find(exercise.id);
      const Found found = find_region(files, exercise.id);
      if (result == results.end() || !found.region) continue;
      cache[exercise.id] = {{"hash", result_hash(*found.region, sources)}, {"passed", result->second}};
    }
  }
  write_cache(progress_path(book), cache);
}

int hints_seen(const Book& book, const std::string& id) {
  const int hints = static_cast<int>(book.exercise(id).hints.size());
  const Json cache = read_cache(hints_path(book));
  if (!cache.contains(id) || !cache[id].is_number_integer()) return 0;
  return static_cast<int>(std::clamp<std::int64_t>(cache[id].get<std::int64_t>(), 0, hints));
}

void remember_hint(const Book& book, const std::string& id, int seen) {
  book.exercise(id);  // throws if the exercise does not exist
  Json cache = read_cache(hints_path(book));
  cache[id] = seen;
  write_cache(hints_path(book), cache);
}

}  // namespace workbook::book
