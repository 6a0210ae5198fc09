#include "common/book/stubs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "common/book/files.hpp"

namespace workbook::book {

namespace fs = std::filesystem;

namespace {

std::string relative_to_root(const Book& book, const fs::path& path) {
  return path.lexically_relative(book.root).generic_string();
}

/// A file's hash, independent of its line ends.
std::string fingerprint(std::string_view text) {
  return hash(join_lines(parse_reader("", text).lines));
}

// ---- chapters/generated.txt ---------------------------------------------------------------------------------------

/// Path -> hashes of its stub. One hash per file, except after a git conflict: then both sides are older stubs.
using Generated = std::map<std::string, std::set<std::string>>;

fs::path generated_path(const Book& book) {
  return book.root / "chapters" / "generated.txt";
}

Generated read_generated(const Book& book) {
  Generated generated;
  if (!fs::exists(generated_path(book))) return generated;
  constexpr std::size_t digits = 16;
  for (const std::string& line : parse_reader("", read_file(generated_path(book))).lines) {
    const bool entry = line.size() > digits + 2 && line.substr(digits, 2) == "  " &&
                       line.find_first_not_of("0123456789abcdef") == digits;
    if (entry) generated[line.substr(digits + 2)].insert(line.substr(0, digits));
  }
  return generated;
}

void write_generated(const Book& book, const Generated& generated) {
  std::string text;
  for (const auto& [path, hashes] : generated) {
    for (const std::string& hash : hashes) text += fmt::format("{}  {}\n", hash, path);
  }
  write_if_changed(generated_path(book), text);
}

/// Removes files that no chapter lists any more.
void drop_unlisted(const Book& book, Generated& generated) {
  std::set<std::string> listed;
  for (const Chapter& chapter : book.chapters) {
    for (const std::string& file : chapter.files) listed.insert(relative_to_root(book, book.reader(chapter, file)));
  }
  std::erase_if(generated, [&](const auto& entry) { return !listed.contains(entry.first); });
}

// ---- comparing ----------------------------------------------------------------------------------------------------

/// The stub of a solution file; a file without regions is copied unchanged.
std::string stub_text(const Book& book, const Chapter& chapter, const MarkedFile& solution, const std::string& file) {
  return solution.regions.empty() ? read_file(book.solution(chapter, file)) : make_stub(solution);
}

bool same_bodies(const MarkedFile& reader, const MarkedFile& stub) {
  return std::all_of(stub.regions.begin(), stub.regions.end(), [&](const Region& region) {
    const Region* mine = reader.find(region.id);
    return mine && mine->body == region.body;
  });
}

void compare(StubFile& file, const std::string& name, const Generated& generated) {
  file.state = StubState::missing;
  if (!fs::exists(file.path)) return;
  const std::string text = read_file(file.path);
  const MarkedFile reader = parse_reader(name, text), stub = parse_reader(name, file.stub);
  file.line = first_difference(reader, stub);
  if (file.line == 0) {
    file.state = same_bodies(reader, stub) ? StubState::current : StubState::work;
    if (file.state == StubState::current) return;
  } else {
    file.state = StubState::drifted;
  }
  // A stub that changed only within a region is still an older stub, not a reader's work.
  const auto known = generated.find(name);
  if (known != generated.end() && known->second.contains(fingerprint(text))) file.state = StubState::outdated;
}

// ---- exercises ----------------------------------------------------------------------------------------------------

const Chapter& chapter_of(const Book& book, const Exercise& exercise) {
  const Chapter* chapter = book.find(std::stoi(exercise.id));  // the number before the point
  if (!chapter) throw ManifestError(fmt::format("there is no chapter for exercise {}", exercise.id));
  return *chapter;
}

/// The location of an exercise's region in the solution.
struct RegionLocation {
  std::size_t file = 0;  ///< index in chapter.files
  MarkedFile solution;
  const Region& region(const std::string& id) const { return *solution.find(id); }
};

RegionLocation find_region(const Book& book, const Chapter& chapter, const std::string& id) {
  std::vector<MarkedFile> files = read_solution(book, chapter);
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (files[i].find(id)) return {i, std::move(files[i])};
  }
  throw ManifestError(fmt::format("exercise {} has no region", id));  // read_solution has checked that
}

/// A release's stub of the file that contains exercise `id`. The name is empty if there is none.
struct Pristine {
  std::string file;  ///< relative to the chapter's folder
  MarkedFile stub;
};
Pristine find_pristine(const Book& book, const Chapter& chapter, const std::string& id) {
  for (const std::string& file : chapter.files) {
    const fs::path path = book.root / kPristine / chapter.name() / file;
    if (!fs::is_regular_file(path)) continue;
    MarkedFile stub = parse_reader(relative_to_root(book, path), read_file(path));
    if (stub.find(id)) return {file, std::move(stub)};
  }
  return {};
}

/// Throws a message about the damaged markers of exercise `id`.
[[noreturn]] void fail_lost(const std::string& id, const MarkedFile& reader, int expected_line) {
  if (const Damage* damage = reader.damage_of(id))
    throw ManifestError(reader.message(*damage) + "; nothing was changed");
  const int last_line = static_cast<int>(reader.lines.size());
  std::string problem = fmt::format("{}:{}: the markers of exercise {} are missing", reader.name,
                                    std::clamp(expected_line, 1, std::max(1, last_line)), id);
  try {
    parse_marked(reader.name, join_lines(reader.lines));
  } catch (const MarkerError& error) {
    problem = error.what();
  }
  throw ManifestError(
      fmt::format("{}; nothing was changed. `./workbook reset --file {}` restores the whole file", problem, id));
}

}  // namespace

std::vector<MarkedFile> read_solution(const Book& book, const Chapter& chapter) {
  std::vector<MarkedFile> files;
  std::map<std::string, std::string> locations;  // exercise id -> FILE:LINE
  for (const std::string& file : chapter.files) {
    const fs::path path = book.solution(chapter, file);
    const MarkedFile& marked = files.emplace_back(parse_marked(relative_to_root(book, path), read_file(path)));
    for (const Region& region : marked.regions) {
      if (!chapter.find(region.id)) {
        throw MarkerError(marked.name, region.todo_line,
                          fmt::format("exercise {} is not in chapters/{}/chapter.toml", region.id, chapter.name()));
      }
      const auto [first, is_new] = locations.emplace(region.id, fmt::format("{}:{}", marked.name, region.todo_line));
      if (!is_new) {
        throw MarkerError(marked.name, region.todo_line,
                          fmt::format("region {} is given twice, first in {}", region.id, first->second));
      }
    }
  }
  for (const Exercise& exercise : chapter.exercises) {
    if (locations.contains(exercise.id)) continue;
    throw ManifestError(fmt::format("chapters/{0}/chapter.toml:{1}: exercise {2} has no region in solutions/{0}",
                                    chapter.name(), exercise.line, exercise.id));
  }
  return files;
}

std::vector<MarkedFile> read_reader(const Book& book, const Chapter& chapter) {
  std::vector<MarkedFile> files;
  for (const std::string& file : chapter.files) {
    const fs::path path = book.reader(chapter, file);
    files.push_back(parse_reader(relative_to_root(book, path), fs::exists(path) ? read_file(path) : ""));
  }
  return files;
}

std::vector<StubFile> compare_stubs(const Book& book) {
  const Generated generated = read_generated(book);
  std::vector<StubFile> stubs;
  for (const Chapter& chapter : book.chapters) {
    if (!book.has_solutions(chapter)) continue;
    const std::vector<MarkedFile> solutions = read_solution(book, chapter);
    for (std::size_t i = 0; i < solutions.size(); ++i) {
      const std::string& name = chapter.files[i];
      StubFile& file = stubs.emplace_back();
      file.chapter = &chapter;
      file.file = name;
      file.path = book.reader(chapter, name);
      file.stub = stub_text(book, chapter, solutions[i], name);
      compare(file, relative_to_root(book, file.path), generated);
    }
  }
  return stubs;
}

StubsWritten write_stubs(const Book& book, bool force) {
  StubsWritten result;
  Generated generated = read_generated(book);
  drop_unlisted(book, generated);
  for (const StubFile& file : compare_stubs(book)) {
    const bool holds_work = file.state == StubState::work || file.state == StubState::drifted;
    if (holds_work && !force) {
      result.kept.push_back(file.path);
      continue;
    }
    if (holds_work) result.backups.push_back(back_up(book.root, file.path));
    if (file.state != StubState::current) {
      write_file(file.path, file.stub);
      result.written.push_back(file.path);
    }
    // Saved after each file. Otherwise an interruption could leave a stub that later looks like a reader's work.
    generated[relative_to_root(book, file.path)] = {fingerprint(file.stub)};
    write_generated(book, generated);
  }
  write_generated(book, generated);
  return result;
}

fs::path reset_exercise(const Book& book, const std::string& id) {
  const Chapter& chapter = chapter_of(book, book.exercise(id));
  std::vector<MarkedFile> readers = read_reader(book, chapter);
  Region stub;
  stub.id = id;
  std::size_t expected_file = 0;
  int expected_line = 1;
  if (book.has_solutions(chapter)) {
    const RegionLocation location = find_region(book, chapter, id);
    stub.stub_lines = location.region(id).stub_lines;
    expected_file = location.file;
    expected_line = location.region(id).begin_line;
  }
  const Pristine pristine = book.has_solutions(chapter) ? Pristine{} : find_pristine(book, chapter, id);
  for (std::size_t i = 0; i < readers.size(); ++i) {
    const Region* region = readers[i].find(id);
    if (!region) continue;
    stub.indent = region->indent;
    const fs::path path = book.reader(chapter, chapter.files[i]);
    fs::path backup = back_up(book.root, path);
    write_file(path,
               replace_body(readers[i], id, pristine.file.empty() ? stub_body(stub) : pristine.stub.find(id)->body));
    return backup;
  }
  fail_lost(id, readers[expected_file], expected_line);
}

fs::path reset_file(const Book& book, const std::string& id) {
  const Chapter& chapter = chapter_of(book, book.exercise(id));
  if (!book.has_solutions(chapter)) {
    if (const Pristine pristine = find_pristine(book, chapter, id); !pristine.file.empty()) {
      const fs::path path = book.reader(chapter, pristine.file);
      fs::path backup = fs::exists(path) ? back_up(book.root, path) : fs::path();
      write_file(path, read_file(book.root / kPristine / chapter.name() / pristine.file));
      return backup;
    }
    throw ManifestError(fmt::format(
        "solutions/{} does not exist, so the file of exercise {} cannot be restored; copy it from the original",
        chapter.name(), id));
  }
  const RegionLocation location = find_region(book, chapter, id);
  const std::string& file = chapter.files[location.file];
  const fs::path path = book.reader(chapter, file);
  fs::path backup = fs::exists(path) ? back_up(book.root, path) : fs::path();
  write_file(path, make_stub(location.solution));
  return backup;
}

}  // namespace workbook::book
