// A C++ source as tokens, in one pass: comments gone, spliced lines joined, the content of texts left out. Knows no
// names. What cannot be a token is a mark of one character.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace workbook::grading {

struct Token {
  enum class Kind {
    word,       ///< a name or keyword
    number,     ///< as the preprocessor has it: 1'000, 0x1p-3f
    text,       ///< "…", '…' or R"(…)", with its prefix; content is empty
    directive,  ///< the # that begins a directive
    path,       ///< what #include names, with its quotes
    mark        ///< any other character; digraphs as what they stand for, ## as one
  };
  Kind kind;
  std::string content;
  int line = 0;               ///< where it begins, from 1
  bool in_directive = false;  ///< between a directive's # and the end of its line
};

struct Tokens {
  std::vector<Token> all;
  /// The source ends within a comment or a raw text, or with a spliced line: what follows it would not be read as what
  /// it is.
  bool open_end = false;
};

Tokens tokens_of(std::string_view source);

}  // namespace workbook::grading
