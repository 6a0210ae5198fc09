#include "common/book/kinds.hpp"

#include <algorithm>
#include <cstdlib>

#include "common/book/files.hpp"
#include "common/book/toml_table.hpp"

namespace workbook::book {

std::string Kinds::part(const Chapter& chapter, const std::string& exercise) {
  return chapter.find(exercise) != nullptr ? exercise : fmt::format("{} as a whole", chapter.number);
}

Kinds load_kinds(const Book& book) {
  const std::string file = "tests/kinds.toml";
  const toml::table parsed = parse_toml(read_file(book.root / file), file);
  TomlTable table(parsed, file, "file");
  Kinds kinds;
  kinds.all = table.texts("kinds");
  kinds.with_mask = table.texts("with_mask", kinds.all);
  for (TomlTable& entry : table.tables("apart")) {
    const std::string why = entry.text("why");
    for (const std::string& part : entry.texts("parts")) {
      const auto chapter = std::ranges::find(book.chapters, std::atoi(part.c_str()), &Chapter::number);
      if (chapter == book.chapters.end()) continue;  // this book does not have the chapter
      if (chapter->find(part) == nullptr && Kinds::part(*chapter, "") != part)
        entry.fail_at("parts", fmt::format("there is no part \"{}\"", part));
      if (!kinds.apart.emplace(part, why).second) entry.fail_at("parts", fmt::format("\"{}\" is named twice", part));
    }
    entry.reject_unknown();
  }
  table.reject_unknown();
  return kinds;
}

}  // namespace workbook::book
