#include "common/gates/language.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <sstream>

#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/book/toml_table.hpp"
#include "common/gates/groups.hpp"

namespace workbook::gates {
namespace fs = std::filesystem;
namespace {

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '\'' || (c & 0x80) != 0;
}

/// The words of one line. `joined` says whether the first one continues the line before.
void add_words(std::vector<Word>& words, const std::string& line, int number, bool joined) {
  for (std::size_t at = 0; at < line.size();) {
    if (!in_word(line[at])) {
      joined = joined && (line[at] == ' ' || line[at] == '\t' || line[at] == '/' || line[at] == '>' || line[at] == '*');
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < line.size() && in_word(line[end])) ++end;
    Word word{line.substr(at, end - at), number, joined};
    for (char& c : word.text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    words.push_back(std::move(word));
    joined = true;
    at = end;
  }
}

/// `text` with what is between two marks, and the marks themselves, replaced by `stands_for` and blanks of the same
/// length; without `stands_for`, by semicolons, which separate the words before and after it.
void blank_between(std::string& text, std::string_view open, std::string_view close, std::string_view stands_for = "") {
  for (std::size_t at = text.find(open); at != std::string::npos; at = text.find(open, at)) {
    const std::size_t end = text.find(close, at + open.size());
    if (end == std::string::npos) return;
    for (std::size_t i = at; i < end + close.size(); ++i) {
      if (text[i] == '\n') continue;
      text[i] = i - at < stands_for.size() ? stands_for[i - at] : stands_for.empty() ? ';' : ' ';
    }
    at = end + close.size();
  }
}

/// A page without its blocks of code (but for plain text), code spans, formulas, HTML and the targets of its links.
std::string prose_of(const std::string& page, std::string_view stands_for) {
  std::string prose;
  std::istringstream lines(page);
  bool in_block = false, shown = true;
  for (std::string line; std::getline(lines, line); prose += '\n') {
    const std::size_t from = line.find_first_not_of(" \t");
    if (from != std::string::npos && line.compare(from, 3, "```") == 0) {
      const std::string kind = line.substr(from + 3);
      in_block = !in_block;
      shown = !in_block || (stands_for.empty() && (kind.empty() || kind == "text"));
    } else if (shown) {
      prose += line;
    }
  }
  blank_between(prose, "$$", "$$", stands_for);
  blank_between(prose, "<!--", "-->");
  blank_between(prose, "`", "`", stands_for);
  blank_between(prose, "$", "$", stands_for);
  blank_between(prose, "](", ")");
  blank_between(prose, "<", ">");
  return prose;
}

std::vector<std::string> split(const std::string& phrase) {
  std::vector<Word> words;
  add_words(words, phrase, 1, true);
  std::vector<std::string> texts;
  for (Word& word : words) texts.push_back(std::move(word.text));
  return texts;
}

bool is_at(const std::vector<Word>& words, std::size_t at, const std::vector<std::string>& phrase) {
  if (at + phrase.size() > words.size()) return false;
  for (std::size_t i = 0; i < phrase.size(); ++i) {
    if (words[at + i].text != phrase[i] || (i > 0 && !words[at + i].joined)) return false;
  }
  return true;
}

/// Whether a phrase that is right covers the words from `at` to `end`.
bool is_right(const std::vector<Word>& words, std::size_t at, std::size_t end,
              const std::vector<std::vector<std::string>>& right) {
  return std::ranges::any_of(right, [&](const std::vector<std::string>& phrase) {
    const std::size_t first = end > phrase.size() ? end - phrase.size() : 0;
    for (std::size_t from = first; from <= at; ++from) {
      if (from + phrase.size() >= end && is_at(words, from, phrase)) return true;
    }
    return false;
  });
}

struct Language {
  std::vector<Avoided> avoided;
  struct Exception {
    std::string file;
    std::vector<std::string> phrases;  ///< empty: all of them
  };
  std::vector<Exception> exceptions;

  bool excepted(const std::string& file, const std::string& phrase) const {
    return std::ranges::any_of(exceptions, [&](const Exception& exception) {
      const bool here = exception.file.ends_with('/') ? file.starts_with(exception.file) : file == exception.file;
      return here && (exception.phrases.empty() || std::ranges::count(exception.phrases, phrase) > 0);
    });
  }
};

Language read_language(const fs::path& file) {
  const toml::table table = book::parse_toml(book::read_file(file), file.filename().string());
  book::TomlTable top(table, file.filename().string(), "language");
  Language language;
  for (book::TomlTable& entry : top.tables("avoid")) {
    Avoided avoided{{}, {}, entry.text("write")};
    for (const std::string& phrase : entry.texts("phrases")) avoided.phrases.push_back(split(phrase));
    if (entry.has("right")) {
      for (const std::string& phrase : entry.texts("right")) avoided.right.push_back(split(phrase));
    }
    entry.reject_unknown();
    language.avoided.push_back(std::move(avoided));
  }
  for (book::TomlTable& entry : top.tables("exception")) {
    Language::Exception exception{entry.text("file"), {}};
    if (entry.has("phrases")) exception.phrases = entry.texts("phrases");
    entry.text("reason");
    entry.reject_unknown();
    language.exceptions.push_back(std::move(exception));
  }
  top.reject_unknown();
  return language;
}

}  // namespace

std::vector<Word> words_of_page(const std::string& text) {
  std::vector<Word> words;
  std::istringstream lines(prose_of(text, ""));
  int number = 0;
  bool in_paragraph = false;
  for (std::string line; std::getline(lines, line);) {
    add_words(words, line, ++number, in_paragraph);
    in_paragraph = line.find_first_not_of(" \t") != std::string::npos;
  }
  return words;
}

std::vector<Word> words_of_code(const std::string& text) {
  std::vector<Word> words;
  std::istringstream lines(text), code_lines(book::code_of(text));
  int number = 0;
  for (std::string line, code_line; std::getline(lines, line);) {
    std::getline(code_lines, code_line);
    std::vector<Word> all, code;
    add_words(all, line, ++number, true);
    add_words(code, code_line, number, true);
    std::size_t next = 0;  // of the words that are code, in their order
    for (Word& word : all) {
      if (next < code.size() && word.text == code[next].text)
        ++next;
      else
        words.push_back(std::move(word));
    }
  }
  return words;
}

std::vector<Hit> find_avoided(const std::vector<Word>& words, const Avoided& avoided) {
  std::vector<Hit> hits;
  for (std::size_t at = 0; at < words.size(); ++at) {
    for (const std::vector<std::string>& phrase : avoided.phrases) {
      if (!is_at(words, at, phrase) || is_right(words, at, at + phrase.size(), avoided.right)) continue;
      hits.push_back({words[at].line, fmt::format("{}", fmt::join(phrase, " "))});
      break;
    }
  }
  return hits;
}

std::vector<LongSentence> long_sentences(const std::string& page, int most) {
  std::vector<LongSentence> found;
  std::istringstream lines(prose_of(page, "x"));
  LongSentence sentence;
  const auto end = [&] {
    if (sentence.words > most) found.push_back(sentence);
    sentence = {};
  };
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::size_t from = line.find_first_not_of(" \t");
    const bool begins = from == std::string::npos || std::string_view("#|-*>!").find(line[from]) != std::string::npos ||
                        (std::isdigit(static_cast<unsigned char>(line[from])) && line.find(". ") < from + 4);
    if (begins) end();
    std::istringstream in_line(line);
    for (std::string word; in_line >> word;) {
      if (word == "|") end();
      const bool counted = std::ranges::any_of(word, [](unsigned char c) { return std::isalnum(c) != 0; });
      if (counted && sentence.words++ == 0) sentence.line = number;
      const std::size_t last = word.find_last_not_of(")\"*_”");
      if (last != std::string::npos && (word[last] == '.' || word[last] == '?' || word[last] == '!')) end();
    }
  }
  end();
  return found;
}

void check_language(Inspection& inspection, Findings& findings) {
  constexpr int most_words = 35;
  const fs::path& root = inspection.workspace.book.root;
  const Language language = read_language(root / "notes" / "language.toml");
  int files = 0;
  const auto check = [&](const fs::path& file, const std::vector<Word>& words) {
    const std::string shown = fs::relative(file, root).generic_string();
    ++files;
    for (const Avoided& avoided : language.avoided) {
      for (const Hit& hit : find_avoided(words, avoided)) {
        findings.expect(language.excepted(shown, hit.phrase),
                        fmt::format("{}:{}: \"{}\": write {}", shown, hit.line, hit.phrase, avoided.write));
      }
    }
    ++findings.passed;
  };
  const auto check_folder = [&](const fs::path& folder) {
    for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::recursive_directory_iterator(); ++entry) {
      const fs::path& file = entry->path();
      if (file.filename() == "node_modules") entry.disable_recursion_pending();
      if (!entry->is_regular_file()) continue;
      const std::string kind = file.extension().string();
      if (kind == ".md" || kind == ".toml")
        check(file, words_of_page(book::read_file(file)));
      else if (kind == ".hpp" || kind == ".cpp" || kind == ".cu" || kind == ".h")
        check(file, words_of_code(book::read_file(file)));
    }
  };
  check(root / "README.md", words_of_page(book::read_file(root / "README.md")));
  for (const char* folder : {"notes", "common"}) check_folder(root / folder);
  for (const book::Chapter* chapter : inspection.chapters) {
    check_folder(root / "solutions" / chapter->name());
    for (const auto& entry : fs::directory_iterator(root / "chapters" / chapter->name())) {
      const fs::path& page = entry.path();
      if (page.extension() != ".md" && page.extension() != ".toml") continue;
      const std::string text = book::read_file(page);
      check(page, words_of_page(text));
      if (page.extension() != ".md") continue;
      for (const LongSentence& sentence : long_sentences(text, most_words)) {
        findings.expect(
            false, fmt::format("{}:{}: a sentence of {} words, at most {}", fs::relative(page, root).generic_string(),
                               sentence.line, sentence.words, most_words));
      }
    }
  }
  findings.detail = fmt::format("{} files use the field's terms", files);
}

}  // namespace workbook::gates
