// Which words of a page, a comment or a message the book avoids, and which sentences are too long
// (notes/language.toml).
#pragma once

#include <string>
#include <vector>

namespace workbook::gates {

/// One word of prose, lower case.
struct Word {
  std::string text;
  int line = 0;        ///< where it is, from 1
  bool joined = true;  ///< only white space, line ends and comment marks separate it from the word before
};

/// The words of a page in Markdown or of a TOML file, without code spans, code, links' targets and HTML.
std::vector<Word> words_of_page(const std::string& text);
/// The words of the comments and texts of a C++ file.
std::vector<Word> words_of_code(const std::string& text);

/// What to avoid, and what to write instead.
struct Avoided {
  std::vector<std::vector<std::string>> phrases, right;  ///< as words; `right` contain a phrase and are allowed
  std::string write;
};

/// A place where an avoided phrase was found.
struct Hit {
  int line = 0;
  std::string phrase;
};
std::vector<Hit> find_avoided(const std::vector<Word>& words, const Avoided& avoided);

/// A sentence of a lesson that has more words than `most`.
struct LongSentence {
  int line = 0;  ///< where it begins
  int words = 0;
};
/// Sentences end at ".", "?", "!" or with their paragraph, list item or table cell. A formula or code span is one word.
std::vector<LongSentence> long_sentences(const std::string& page, int most);

}  // namespace workbook::gates
