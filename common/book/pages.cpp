#include "common/book/pages.hpp"

#include <algorithm>
#include <cctype>

namespace workbook::book {
namespace {

constexpr std::string_view call = "./workbook";

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false, begun = false;
  for (const char c : text + " ") {
    if (c == '"') {
      quoted = !quoted;
      begun = true;
    } else if (!quoted && std::isspace(static_cast<unsigned char>(c))) {
      if (begun) words.push_back(word);
      word.clear();
      begun = false;
    } else if (std::isspace(static_cast<unsigned char>(c))) {
      if (!word.ends_with(' ')) word += ' ';  // a text that continues on the next, indented line
    } else {
      word += c;
      begun = true;
    }
  }
  return words;
}

}  // namespace

bool ShownCommand::has_placeholder() const {
  return std::ranges::any_of(words, [](const std::string& word) {
    const bool capitals = !word.empty() && std::ranges::all_of(word, [](unsigned char c) { return std::isupper(c); });
    return capitals || word.find("…") != std::string::npos || word.find('*') != std::string::npos;
  });
}

std::vector<ShownCommand> commands_in(const std::string& page) {
  std::vector<ShownCommand> commands;
  bool in_block = false;
  int line = 1;
  for (std::size_t at = 0; at < page.size(); ++at) {
    const bool begins_line = at == 0 || page[at - 1] == '\n';
    if (begins_line && page.compare(at, 3, "```") == 0) in_block = !in_block;
    const bool begins_code = in_block ? begins_line : at > 0 && page[at - 1] == '`';
    if (begins_code && page.compare(at, call.size(), call) == 0) {
      std::size_t end = page.find(in_block ? '\n' : '`', at);
      if (in_block) end = std::min(end, page.find(" #", at));
      const std::string text = page.substr(at + call.size(), std::min(end, page.size()) - at - call.size());
      if (text.empty() || std::isspace(static_cast<unsigned char>(text[0]))) commands.push_back({line, words_of(text)});
    }
    if (page[at] == '\n') ++line;
  }
  return commands;
}

}  // namespace workbook::book
