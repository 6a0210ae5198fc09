#include "common/grading/tokens.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace workbook::grading {
namespace {

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}
constexpr std::array<std::string_view, 5> kRawPrefixes{"R", "LR", "uR", "UR", "u8R"};
constexpr std::array<std::string_view, 4> kPrefixes{"L", "u", "U", "u8"};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) { skip_splices(); }

  Tokens run() {
    while (at_ < source_.size()) step();
    return std::move(tokens_);
  }

 private:
  char now() const { return at_ < source_.size() ? source_[at_] : '\0'; }
  /// The character behind the current one.
  char next() const {
    Lexer ahead(*this, nullptr);
    ahead.advance();
    return ahead.now();
  }
  Lexer(const Lexer& other, std::nullptr_t) : source_(other.source_), at_(other.at_), line_(other.line_) {}

  /// A backslash before a newline joins two lines. (g++ lets white space stand between.)
  void skip_splices() {
    while (at_ < source_.size() && source_[at_] == '\\') {
      std::size_t end = at_ + 1;
      while (end < source_.size() && is_blank(source_[end])) ++end;
      if (end < source_.size() && source_[end] != '\n') return;
      if (end >= source_.size()) {
        tokens_.open_end = true;
        at_ = source_.size();
        return;
      }
      ++line_;
      at_ = end + 1;
      if (at_ == source_.size()) tokens_.open_end = true;
    }
  }
  void advance() {
    if (at_ >= source_.size()) return;
    if (source_[at_] == '\n') ++line_;
    ++at_;
    skip_splices();
  }
  void add(Token::Kind kind, std::string content, int line) {
    tokens_.all.push_back({kind, std::move(content), line, in_directive_});
    line_begins_ = false;
  }
  void add_mark(std::string content, int length) {
    const int line = line_;
    for (int i = 0; i < length; ++i) advance();
    if ((content == "#") && line_begins_) {
      in_directive_ = true;
      add(Token::Kind::directive, std::move(content), line);
      return;
    }
    add(Token::Kind::mark, std::move(content), line);
  }

  void end_line() {
    advance();
    line_begins_ = true;
    in_directive_ = false;
  }

  void block_comment() {
    advance();
    advance();
    while (at_ < source_.size()) {
      const bool ends = now() == '*' && next() == '/';
      advance();
      if (ends) {
        advance();
        return;
      }
    }
    tokens_.open_end = true;
  }

  /// From the opening quote on, to the closing one or the line's end.
  void quoted(const std::string& prefix, int line) {
    const char quote = now();
    advance();
    while (at_ < source_.size() && now() != quote && now() != '\n') {
      if (now() == '\\') advance();
      if (now() != '\n') advance();
    }
    if (now() == quote) advance();
    add(Token::Kind::text, prefix + quote + quote, line);
  }

  /// From the opening quote on. Splices are none in a raw text.
  void raw_text(const std::string& prefix, int line) {
    constexpr std::size_t longest_delimiter = 16;
    const std::size_t length = source_.substr(at_ + 1, longest_delimiter + 1).find_first_of("( \n)\\");
    const std::size_t open = at_ + 1 + length;
    if (length == std::string_view::npos || source_[open] != '(') return quoted(prefix, line);
    const std::string end = ")" + std::string(source_.substr(at_ + 1, open - at_ - 1)) + "\"";
    const std::size_t found = source_.find(end, open);
    if (found == std::string_view::npos) tokens_.open_end = true;
    const std::size_t past = found == std::string_view::npos ? source_.size() : found + end.size();
    line_ += int(std::count(source_.begin() + std::ptrdiff_t(at_), source_.begin() + std::ptrdiff_t(past), '\n'));
    at_ = past;
    skip_splices();
    add(Token::Kind::text, prefix + "\"\"", line);
  }

  void word() {
    const int line = line_;
    std::string content;
    for (; is_name(now()); advance()) content += now();
    if (now() == '"' && std::ranges::count(kRawPrefixes, content) > 0) return raw_text(content, line);
    if ((now() == '"' || now() == '\'') && std::ranges::count(kPrefixes, content) > 0) return quoted(content, line);
    const bool includes = in_directive_ && tokens_.all.back().kind == Token::Kind::directive &&
                          (content.find("include") != std::string::npos || content == "embed" || content == "import");
    add(Token::Kind::word, std::move(content), line);
    if (includes) path();
  }

  /// What follows #include, if it is no macro.
  void path() {
    while (is_blank(now()) || (now() == '/' && next() == '*')) now() == '/' ? block_comment() : advance();
    if (now() != '"' && now() != '<') return;
    const char end = now() == '<' ? '>' : '"';
    const int line = line_;
    std::string content(1, now());
    for (advance(); at_ < source_.size() && now() != '\n'; advance()) {
      content += now();
      if (now() != end) continue;
      advance();
      break;
    }
    add(Token::Kind::path, std::move(content), line);
  }

  void number() {
    const int line = line_;
    std::string content;
    while (at_ < source_.size()) {
      const char c = now();
      const bool sign = (c == '+' || c == '-') && std::string_view("eEpP").find(content.back()) != std::string::npos;
      const bool separator = c == '\'' && is_name(next());
      if (!content.empty() && !sign && !separator && !is_name(c) && c != '.') break;
      content += c;
      advance();
    }
    add(Token::Kind::number, std::move(content), line);
  }

  void step() {
    const char c = now(), after = next();
    if (c == '\n') return end_line();
    if (is_blank(c)) return advance();
    if (c == '/' && after == '/') {
      while (at_ < source_.size() && now() != '\n') advance();
      return;
    }
    if (c == '/' && after == '*') return block_comment();
    if (is_digit(c) || (c == '.' && is_digit(after))) return number();
    if (is_name(c)) return word();
    if (c == '"' || c == '\'') return quoted("", line_);
    if (c == '<' && after == '%') return add_mark("{", 2);
    if (c == '%' && after == '>') return add_mark("}", 2);
    if (c == ':' && after == '>') return add_mark("]", 2);
    if (c == '<' && after == ':') return add_mark("[", 2);
    if (c == '#' && after == '#') return add_mark("##", 2);
    if (c == '%' && after == ':') return pasting_digraph();
    add_mark(std::string(1, c), 1);
  }

  /// %: is #, and %:%: is ##.
  void pasting_digraph() {
    Lexer ahead(*this, nullptr);
    ahead.advance();
    ahead.advance();
    const bool twice = ahead.now() == '%' && ahead.next() == ':';
    add_mark(twice ? "##" : "#", twice ? 4 : 2);
  }

  std::string_view source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_begins_ = true, in_directive_ = false;
  Tokens tokens_;
};

}  // namespace

Tokens tokens_of(std::string_view source) {
  return Lexer(source.substr(source.starts_with("\xEF\xBB\xBF") ? 3 : 0)).run();
}

}  // namespace workbook::grading
