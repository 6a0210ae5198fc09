#include "common/book/manifest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "common/book/files.hpp"
#include "common/book/toml_table.hpp"

namespace workbook::book {

namespace fs = std::filesystem;

namespace {

/// "chapters/01_name/chapter.toml", independent of the book's folder.
std::string display_name(const fs::path& manifest) {
  const fs::path folder = fs::absolute(manifest).lexically_normal().parent_path();
  return (folder.parent_path().filename() / folder.filename() / manifest.filename()).generic_string();
}

bool is_slug(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

/// "sm_90a": an architecture for one GPU family only.
bool is_one_gpu(std::string_view text) {
  if (!text.starts_with("sm_") || text.size() < 6 || text[3] == '0') return false;
  const std::string_view number = text.substr(3, text.size() - 4);
  return number.find_first_not_of("0123456789") == std::string_view::npos && (text.back() == 'a' || text.back() == 'f');
}

std::string read_slug(TomlTable& table) {
  std::string slug = table.text("slug");
  if (!is_slug(slug)) {
    table.fail_at("slug", fmt::format("slug \"{}\" must be lower-case letters, digits and underscores", slug));
  }
  return slug;
}

/// A file of the chapter must stay in the chapter's folder.
bool is_inside(const fs::path& file) {
  return file.is_relative() && file.has_filename() && file == file.lexically_normal() && *file.begin() != ".." &&
         *file.begin() != ".";
}

std::string read_id(TomlTable& table, const Chapter& chapter) {
  std::string id = table.text("id");
  const std::string prefix = fmt::format("{}.", chapter.number);
  const std::string number = id.starts_with(prefix) ? id.substr(prefix.size()) : "";
  const bool digits = std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (number.empty() || !digits || number[0] == '0') {
    table.fail_at("id", fmt::format("exercise id \"{}\" is not an id of this chapter; allowed: {}1, {}2, ...", id,
                                    prefix, prefix));
  }
  return id;
}

Exercise read_exercise(TomlTable table, const Chapter& chapter) {
  Exercise exercise;
  exercise.line = table.line();
  exercise.id = read_id(table, chapter);
  exercise.slug = read_slug(table);
  exercise.title = table.text("title");
  exercise.points = table.number("points", 0);
  exercise.lines = table.number("lines", 1);
  if (table.has("why")) exercise.why = table.text("why");
  exercise.hints = table.texts("hints");
  exercise.tests = table.texts("tests");
  table.reject_unknown();
  for (const Exercise& other : chapter.exercises) {
    if (other.id == exercise.id) {
      table.fail_at("id", fmt::format("exercise {} is given twice, first on line {}", other.id, other.line));
    }
    if (other.slug == exercise.slug) {
      table.fail_at("slug", fmt::format("slug \"{}\" is already used by exercise {}", other.slug, other.id));
    }
  }
  if (exercise.hints.size() < 2 || exercise.hints.size() > 3) {
    table.fail_at("hints", fmt::format("exercise {} has {} hint{}; it needs two or three", exercise.id,
                                       exercise.hints.size(), exercise.hints.size() == 1 ? "" : "s"));
  }
  return exercise;
}

Mask read_mask(const TomlTable& table, std::string_view key, const std::string& name) {
  const std::optional<Mask> mask = part_named(name);
  if (mask) return *mask;
  std::vector<std::string_view> names;
  for (const NamedMask& each : mask_parts()) names.push_back(each.name);
  table.fail_at(key, fmt::format("\"{}\" is not a mask; allowed: {}", name, fmt::join(names, ", ")));
}

Goal read_goal(TomlTable table) {
  Goal goal;
  goal.over = table.text("over");
  goal.mask = read_mask(table, "mask", table.text("mask"));
  goal.d = table.number("d", 1);
  goal.least_N = table.number("least_N", 1);
  if (table.has("most_N")) goal.most_N = table.number("most_N", goal.least_N);
  goal.must = table.positive("must");
  goal.hoped = table.positive("hoped");
  if (goal.over == Goal::kUnmasked && goal.mask == Mask::none)
    table.fail_at("over", "over = \"unmasked\" needs a mask: the goal compares the stage with itself without the mask");
  table.reject_unknown();
  return goal;
}

/// Checks that the files exist: in solutions/ if the chapter has a folder there, otherwise in chapters/.
void check_files(const fs::path& root, const Chapter& chapter, const TomlTable& table) {
  const fs::path solutions = fs::path("solutions") / chapter.name();
  const fs::path folder = fs::is_directory(root / solutions) ? solutions : fs::path("chapters") / chapter.name();
  for (const std::string& file : chapter.files) {
    if (fs::is_regular_file(root / folder / file)) continue;
    table.fail_at("files", fmt::format("{} does not exist", (folder / file).generic_string()));
  }
}

std::string join_names(const std::vector<Chapter>& chapters) {
  std::vector<std::string> names;
  for (const Chapter& chapter : chapters) names.push_back(chapter.name());
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string Chapter::name() const {
  return fmt::format("{:02}_{}", number, slug);
}

const Exercise* Chapter::find(std::string_view id) const {
  const auto found = std::find_if(exercises.begin(), exercises.end(), [&](const Exercise& e) { return e.id == id; });
  return found == exercises.end() ? nullptr : &*found;
}
std::vector<std::string> Chapter::passes() const {
  std::vector<std::string> all{pass};
  all.insert(all.end(), more_passes.begin(), more_passes.end());
  return all;
}
bool Chapter::runs_on(Backend backend) const {
  return std::find(backends.begin(), backends.end(), backend) != backends.end();
}
bool Chapter::does(const Mask& mask) const {
  return part_not_in(masks, mask).empty();
}
std::string Chapter::does_not_do(const Setting& setting, Backend backend) const {
  if (!does(setting.mask)) return std::string(part_not_in(masks, setting.mask));
  return setting.shape.H != setting.shape.Hkv && std::ranges::count(shared_heads, backend) == 0 ? "Hkv < H" : "";
}
Element Chapter::element_on(Backend backend) const {
  return backend != Backend::cpu && element == float32 ? float16 : element;
}

bool Chapter::takes(Element requested, Backend backend) const {
  const bool has_more = backend != Backend::cpu && std::ranges::count(more_elements, requested) > 0;
  return runs_on(backend) && (element_on(backend) == requested || has_more);
}

fs::path Book::solution(const Chapter& chapter, const std::string& file) const {
  return root / "solutions" / chapter.name() / file;
}

fs::path Book::reader(const Chapter& chapter, const std::string& file) const {
  return root / "chapters" / chapter.name() / file;
}

fs::path Book::manifest(const Chapter& chapter) const {
  return reader(chapter, "chapter.toml");
}

bool Book::has_solutions(const Chapter& chapter) const {
  return fs::is_directory(root / "solutions" / chapter.name());
}

std::vector<fs::path> Book::used(const Chapter& chapter) const {
  std::vector<fs::path> folders;
  for (const auto* names : {&chapter.uses, &chapter.compiles}) {
    for (const std::string& name : *names) {
      const fs::path solutions = root / "solutions" / name;
      folders.push_back(fs::is_directory(solutions) ? solutions : root / "chapters" / name);
    }
  }
  return folders;
}

const Chapter* Book::find(int number) const {
  const auto found =
      std::find_if(chapters.begin(), chapters.end(), [&](const Chapter& c) { return c.number == number; });
  return found == chapters.end() ? nullptr : &*found;
}

const Chapter& Book::chapter(std::string_view which) const {
  for (const Chapter& chapter : chapters) {
    const bool number = which == fmt::format("{}", chapter.number) || which == fmt::format("{:02}", chapter.number);
    if (number || which == chapter.name() || which == chapter.slug) return chapter;
  }
  throw ManifestError(fmt::format("there is no chapter \"{}\"; there are: {}", which, join_names(chapters)));
}

const Exercise& Book::exercise(std::string_view id) const {
  std::vector<std::string> ids;
  for (const Chapter& chapter : chapters) {
    if (const Exercise* exercise = chapter.find(id)) return *exercise;
    for (const Exercise& exercise : chapter.exercises) ids.push_back(exercise.id);
  }
  throw ManifestError(fmt::format("there is no exercise \"{}\"; there are: {}", id,
                                  ids.empty() ? "none" : fmt::format("{}", fmt::join(ids, ", "))));
}

Chapter load_chapter(const fs::path& manifest) {
  const std::string file = display_name(manifest);
  const toml::table parsed = parse_toml(read_file(manifest), file);
  TomlTable table(parsed, file, "chapter");
  Chapter chapter;
  chapter.number = table.number("number", 1);
  chapter.slug = read_slug(table);
  chapter.title = table.text("title");
  chapter.summary = table.text("summary");
  chapter.element = element_named(table.choice("element", {element_names.begin(), element_names.end()})).value();
  if (table.has("more_elements"))
    for (const std::string& more : table.texts("more_elements", {"float16", "bfloat16"}))
      chapter.more_elements.push_back(element_named(more).value());
  if (std::ranges::count(chapter.more_elements, chapter.element) > 0)
    table.fail_at("more_elements", fmt::format("\"{}\" is already its element", name(chapter.element)));
  chapter.pass = table.choice("pass", {"forward", "backward"});
  if (table.has("more_passes")) chapter.more_passes = table.texts("more_passes", {"forward", "backward"});
  if (std::ranges::count(chapter.more_passes, chapter.pass) > 0)
    table.fail_at("more_passes", fmt::format("\"{}\" is already its pass", chapter.pass));
  for (const std::string& mask : table.texts("masks")) chapter.masks.push_back(read_mask(table, "masks", mask));
  if (table.has("use")) chapter.use = table.choice("use", {"decoding", "several GPUs"});
  if (table.has("architecture")) {
    chapter.architecture = table.text("architecture");
    if (!is_one_gpu(chapter.architecture))
      table.fail_at(
          "architecture",
          fmt::format("\"{}\" is not an architecture for one GPU; allowed: such as \"sm_90a\"", chapter.architecture));
  }
  for (const std::string& backend : table.texts("backends", worker::backend_names()))
    chapter.backends.push_back(worker::backend_of(backend));
  if (table.has("shared_heads")) {
    for (const std::string& backend : table.texts("shared_heads", worker::backend_names()))
      chapter.shared_heads.push_back(worker::backend_of(backend));
  }
  chapter.files = table.texts("files");
  chapter.whole_tests = table.texts("whole_tests");
  if (table.has("given_tests")) chapter.given_tests = table.texts("given_tests", chapter.whole_tests);
  for (const auto& [key, names] : {std::pair{"uses", &chapter.uses}, {"compiles", &chapter.compiles}}) {
    if (table.has(key)) *names = table.texts(key);
    for (const std::string& name : *names) {
      const bool earlier = name.size() > 3 && name[2] == '_' && is_slug(name) && name < chapter.name();
      if (!earlier) table.fail_at(key, fmt::format("\"{}\" is not the name of an earlier chapter", name));
    }
  }
  for (TomlTable& exercise : table.tables("exercise")) {
    chapter.exercises.push_back(read_exercise(std::move(exercise), chapter));
  }
  for (TomlTable& goal : table.tables("goal")) chapter.goals.push_back(read_goal(std::move(goal)));
  table.reject_unknown();

  const std::string folder = fs::absolute(manifest).lexically_normal().parent_path().filename().string();
  const std::string number = fmt::format("{:02}_", chapter.number);
  if (!folder.starts_with(number)) {
    table.fail_at("number", fmt::format("number {} does not match the folder {}", chapter.number, folder));
  }
  if (folder != chapter.name()) {
    table.fail_at("slug", fmt::format("slug \"{}\" does not match the folder {}", chapter.slug, folder));
  }
  for (const std::string& name : chapter.files) {
    if (!is_inside(name)) {
      table.fail_at("files", fmt::format("\"{}\" is not a plain path relative to the chapter's folder", name));
    }
  }
  check_files(fs::absolute(manifest).lexically_normal().parent_path().parent_path().parent_path(), chapter, table);
  return chapter;
}

Book load_book(const fs::path& root) {
  Book book;
  book.root = root;
  const fs::path folder = root / "chapters";
  std::error_code error;
  std::map<int, std::string> names;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path manifest = entry->path() / "chapter.toml";
    if (fs::is_regular_file(manifest)) book.chapters.push_back(load_chapter(manifest));
  }
  if (error) throw ManifestError(fmt::format("cannot read {}: {}", folder.string(), error.message()));
  std::sort(book.chapters.begin(), book.chapters.end(),
            [](const Chapter& a, const Chapter& b) { return a.name() < b.name(); });
  for (const Chapter& chapter : book.chapters) {
    const auto [other, is_new] = names.emplace(chapter.number, chapter.name());
    if (is_new) continue;
    throw ManifestError(fmt::format("chapters/{}/chapter.toml:1: number {} is already used by chapters/{}",
                                    chapter.name(), chapter.number, other->second));
  }
  return book;
}

}  // namespace workbook::book
