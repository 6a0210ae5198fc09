#include "common/bench/steps.hpp"

#include <fmt/format.h>

#include <map>

#include "common/book/files.hpp"
#include "common/book/toml_table.hpp"

namespace workbook::bench {
namespace {

namespace fs = std::filesystem;
using Texts = std::map<std::string, std::string>;  // a chapter's files

/// Replaces the only occurrence of `find`.
void take_back(Texts& texts, book::TomlTable edit) {
  const std::string file = edit.text("file"), find = edit.text("find"), replace = edit.any_text("replace");
  edit.reject_unknown();
  const auto found = texts.find(file);
  if (found == texts.end()) edit.fail_at("file", fmt::format("the chapter has no file {}", file));
  std::string& text = found->second;
  const std::size_t at = text.find(find);
  if (at == std::string::npos)
    edit.fail_at("find", fmt::format("the text does not occur in {}, without the steps after this one", file));
  if (text.find(find, at + 1) != std::string::npos)
    edit.fail_at("find", fmt::format("the text occurs more than once in {}", file));
  text.replace(at, find.size(), replace);
}

}  // namespace

std::vector<Variant> load_variants(const book::Book& book, const book::Chapter& chapter, const fs::path& folder) {
  const std::string file = fmt::format("tests/steps/{}.toml", chapter.name());
  std::vector<Variant> variants;
  if (!fs::exists(book.root / file) || !book.has_solutions(chapter)) return variants;
  const toml::table parsed = book::parse_toml(book::read_file(book.root / file), file);
  book::TomlTable table(parsed, file, "file");
  std::vector<std::string> names;
  for (const NamedMask& each : all_masks()) names.emplace_back(each.name);
  const Mask mask = mask_named(table.choice("mask", names)).value();
  std::vector<book::TomlTable> steps = table.tables("step");
  table.reject_unknown();
  Texts texts;
  for (const std::string& name : chapter.files) texts[name] = book::read_file(book.solution(chapter, name));
  variants.resize(steps.size());
  std::size_t same_text = steps.size();  // the last variant with the current text
  for (std::size_t i = steps.size(); i-- > 0;) {
    book::TomlTable& step = steps[i];
    Variant& variant = variants[i];
    variant.chapter = chapter.name();
    variant.title = step.text("title");
    variant.number = int(i) + 1;
    variant.mask = mask;
    if (step.has("head_dim")) variant.head_dim = step.number("head_dim", 1);
    variant.folder = folder / chapter.name() / fmt::format("{}", same_text);
    for (book::TomlTable& number : step.tables("number")) {
      variant.numbers[number.text("name")] = number.number("value", 0);
      number.reject_unknown();
    }
    for (const auto& [name, text] : texts) book::write_if_changed(variant.folder / name, text);
    std::vector<book::TomlTable> edits = step.tables("without");
    step.reject_unknown();
    if (!edits.empty() && i == 0) step.fail_at("without", "the first step has no earlier text to restore");
    if (edits.empty()) continue;
    for (book::TomlTable& edit : edits) take_back(texts, edit);
    same_text = i;
  }
  for (std::size_t i = 1; i < variants.size(); ++i) {
    const bool same = variants[i].folder == variants[i - 1].folder && variants[i].numbers == variants[i - 1].numbers;
    if (same)
      steps[i].fail_at("title", "a step needs [[step.without]], the text that it replaced, or another [[step.number]]");
  }
  return variants;
}

}  // namespace workbook::bench
