#include "common/book/small_edits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

namespace workbook::book {
namespace {

struct Token {
  enum Kind { word, number, sign } kind;
  std::string text;
  std::size_t at;  ///< in the line
  std::size_t end() const { return at + text.size(); }
};

bool is_letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

std::vector<Token> tokens_of(const std::string& line) {
  static const char* const signs[] = {"<<=", ">>=", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=",
                                      "-=",  "*=",  "/=", "%=", "++", "--", "->", "::", "^=", "|=", "&="};
  std::vector<Token> tokens;
  for (std::size_t at = 0; at < line.size();) {
    if (std::isspace(static_cast<unsigned char>(line[at])) != 0) {
      ++at;
      continue;
    }
    std::size_t end = at + 1;
    Token::Kind kind = Token::sign;
    if (is_letter(line[at])) {
      kind = std::isdigit(static_cast<unsigned char>(line[at])) != 0 ? Token::number : Token::word;
      while (end < line.size() && (is_letter(line[end]) || (kind == Token::number && line[end] == '.'))) ++end;
    } else {
      for (const char* each : signs)
        if (line.compare(at, std::string_view(each).size(), each) == 0) {
          end = at + std::string_view(each).size();
          break;
        }
    }
    tokens.push_back({kind, line.substr(at, end - at), at});
    at = end;
  }
  return tokens;
}

/// One line of the body.
class Line {
 public:
  /// `code`: the line with spaces for comments and literals.
  Line(std::string text, const std::string& code) : text_(std::move(text)), tokens_(tokens_of(code)) {}

  const std::vector<Token>& tokens() const { return tokens_; }
  const std::string& text() const { return text_; }
  bool is(std::size_t i, std::string_view sign) const { return i < tokens_.size() && tokens_[i].text == sign; }

  /// The line with the text from token `first` up to and without token `last` replaced.
  std::string with(std::size_t first, std::size_t last, const std::string& now) const {
    const std::size_t begin = tokens_[first].at, end = last == first ? begin : tokens_[last - 1].end();
    return text_.substr(0, begin) + now + text_.substr(end);
  }
  std::string between(std::size_t first, std::size_t last) const {
    return first == last ? "" : text_.substr(tokens_[first].at, tokens_[last - 1].end() - tokens_[first].at);
  }

  /// By how much token i changes the depth of brackets: 1 for one that opens, -1 for one that closes, else 0.
  int nesting(std::size_t i) const {
    return is(i, "(") || is(i, "[") || is(i, "{") ? 1 : is(i, ")") || is(i, "]") || is(i, "}") ? -1 : 0;
  }
  /// The token that closes what token `open` opens; nothing if it is on another line.
  std::optional<std::size_t> closing(std::size_t open) const {
    int depth = 0;
    for (std::size_t i = open; i < tokens_.size(); ++i) {
      depth += nesting(i);
      if (depth == 0) return i;
    }
    return {};
  }
  bool ends_operand(std::size_t i) const { return tokens_[i].kind != Token::sign || is(i, ")") || is(i, "]"); }
  /// Whether token i is an operator between two operands. clang-format puts spaces around it.
  bool is_binary(std::size_t i) const {
    return i > 0 && i + 1 < tokens_.size() && ends_operand(i - 1) && tokens_[i - 1].end() < tokens_[i].at &&
           tokens_[i].end() < tokens_[i + 1].at;
  }

  /// The token after the operand that begins at token i: a name with its members, calls and indices.
  std::size_t end_of_operand(std::size_t i) const {
    while (i < tokens_.size() && (is(i, "-") || is(i, "!") || is(i, "*") || is(i, "&"))) ++i;
    while (i < tokens_.size()) {
      if (is(i, "(") || is(i, "[")) {
        const auto close = closing(i);
        if (!close) return tokens_.size();
        i = *close + 1;
      } else if (tokens_[i].kind != Token::sign) {
        ++i;
      } else if (is(i, ".") || is(i, "->") || is(i, "::")) {
        ++i;
        continue;
      } else {
        break;
      }
      if (i < tokens_.size() && !is(i, "(") && !is(i, "[") && !is(i, ".") && !is(i, "->") && !is(i, "::")) break;
    }
    return i;
  }
  /// The first token of the operand that ends before token i.
  std::size_t begin_of_operand(std::size_t i) const {
    while (i > 0) {
      --i;
      if (is(i, ")") || is(i, "]")) {
        int depth = 0;
        for (std::size_t open = i + 1; open-- > 0;) {
          depth -= nesting(open);
          if (depth == 0) {
            i = open;
            break;
          }
        }
        if (i > 0 && tokens_[i - 1].kind == Token::word && tokens_[i - 1].end() == tokens_[i].at) continue;
      }
      if (i > 0 && (is(i - 1, ".") || is(i - 1, "->") || is(i - 1, "::"))) {
        --i;
        continue;
      }
      break;
    }
    return i;
  }
  /// The token after the factors and divisors that begin at token i.
  std::size_t end_of_term(std::size_t i) const {
    i = end_of_operand(i);
    while (is(i, "*") || is(i, "/") || is(i, "%")) i = end_of_operand(i + 1);
    return i;
  }

  /// "where it computes row", "in the loop over j", "in the call of copy", …
  std::string where() const {
    if (tokens_.empty()) return "";
    if (is(0, "for"))
      for (std::size_t i = 1; i < tokens_.size(); ++i)
        if (is(i, "=") && i > 0) return "in the loop over " + tokens_[i - 1].text;
    if (is(0, "if") || is(0, "while") || is(0, "else")) return "in the condition of " + tokens_[0].text;
    if (is(0, "return")) return "in the value that it returns";
    for (std::size_t i = 1; i < tokens_.size(); ++i) {
      if (is(i, "(") && i == 1) return "in the call of " + tokens_[0].text;
      const std::string& sign = tokens_[i].text;
      if (sign == "=" || sign == "+=" || sign == "-=" || sign == "*=" || sign == "/=")
        return "where it computes " + between(begin_of_operand(i), i);
    }
    for (std::size_t i = 1; i < tokens_.size(); ++i)
      if (is(i, "(") && tokens_[i - 1].kind == Token::word) return "in the call of " + tokens_[i - 1].text;
    return "near " + tokens_[0].text;
  }
  /// Whether the line is a whole statement that declares nothing.
  bool is_statement() const {
    if (tokens_.size() < 2 || !is(tokens_.size() - 1, ";")) return false;
    int depth = 0;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      depth += nesting(i);
      if (depth < 0) return false;
    }
    if (depth != 0 || is(0, "return") || is(0, "using") || is(0, "else")) return false;
    if (is(0, "if") || is(0, "for") || is(0, "++") || is(0, "--") || is(0, "*")) return true;
    const std::size_t end = end_of_operand(0);
    if (end >= tokens_.size()) return false;
    const std::string& sign = tokens_[end].text;
    return sign == ";" || (sign.ends_with('=') && sign != "==");
  }

 private:
  std::string text_;
  std::vector<Token> tokens_;
};

/// Collects the edits of one line.
class LineEdits {
 public:
  LineEdits(const Line& line, std::size_t number, bool begins_statement, std::string where,
            const std::map<std::string, std::string>& types, std::vector<SmallEdit>& edits)
      : line_(line),
        number_(number),
        begins_(begins_statement),
        where_(std::move(where)),
        types_(types),
        edits_(edits) {}

  void collect() {
    for (std::size_t i = 0; i < line_.tokens().size(); ++i) {
      exchange_operator(i);
      leave_out_operand(i);
      exchange_arguments(i);
      exchange_constant(i);
      exchange_variable(i);
      off_by_one(i);
    }
    if (begins_ && line_.is_statement()) add("", "lacks a statement: the one " + where_);
  }

 private:
  void add(std::string text, const std::string& what) {
    edits_.push_back({number_, std::move(text), fmt::format("Your code behaves like one that {}.", what)});
  }
  void replace(std::size_t i, const std::string& now, const std::string& what) {
    add(line_.with(i, i + 1, now), what + " " + where_);
  }

  void exchange_operator(std::size_t i) {
    const std::string& sign = line_.tokens()[i].text;
    if (sign == "!" && i + 1 < line_.tokens().size()) replace(i, "", "lacks a negation");
    if (!line_.is_binary(i)) return;
    if (sign == "/") replace(i, "%", "exchanges / and %");
    if (sign == "%") replace(i, "/", "exchanges / and %");
    if (sign == "+") replace(i, "-", "has a wrong sign");
    if (sign == "-") replace(i, "+", "has a wrong sign");
    if (sign == "*") replace(i, "/", "divides instead of multiplying");
    if (sign == "/") replace(i, "*", "multiplies instead of dividing");
    for (const auto& [a, b] : {std::pair("<", "<="), {">", ">="}}) {
      if (sign == a) replace(i, b, "has a bound that is off by one");
      if (sign == b) replace(i, a, "has a bound that is off by one");
    }
    for (const auto& [a, b] : {std::pair("<", ">"), {"<=", ">="}, {"==", "!="}, {"&&", "||"}}) {
      if (sign == a) replace(i, b, "has the wrong comparison or logical operator");
      if (sign == b) replace(i, a, "has the wrong comparison or logical operator");
    }
    if (sign == "+=" || sign == "*=") replace(i, "=", "overwrites instead of accumulating");
    if (sign == "=" && begins_ && line_.is_statement()) replace(i, "+=", "accumulates instead of assigning");
  }

  void leave_out_operand(std::size_t i) {
    if (!line_.is_binary(i)) return;
    const std::string& sign = line_.tokens()[i].text;
    if (sign == "*" || sign == "/") {
      add(line_.with(i, line_.end_of_operand(i + 1), ""), "leaves out a factor " + where_);
      if (sign == "*") add(line_.with(line_.begin_of_operand(i), i + 1, ""), "leaves out a factor " + where_);
    }
    if (sign == "%") add(line_.with(i, line_.end_of_operand(i + 1), ""), "leaves out the remainder by % " + where_);
    if (sign == "+" || sign == "-") add(line_.with(i, line_.end_of_term(i + 1), ""), "leaves out a term " + where_);
    if (sign == "&&" || sign == "||") {
      std::size_t end = i + 1;
      for (int depth = 0; end < line_.tokens().size() && depth >= 0; ++end) {
        depth += line_.nesting(end);
        if (depth < 0 || (depth == 0 && (line_.is(end, "&&") || line_.is(end, "||") || line_.is(end, "?")))) break;
      }
      add(line_.with(i, end, ""), "leaves out a condition " + where_);
    }
    if (sign == "?") choose(i);
  }

  /// One side of a conditional expression alone.
  void choose(std::size_t question) {
    std::size_t colon = question, end = question;
    int depth = 0;
    for (std::size_t i = question + 1; i < line_.tokens().size(); ++i) {
      depth += line_.nesting(i);
      if (depth == 0 && line_.is(i, "?")) return;
      if (depth == 0 && line_.is(i, ":") && colon == question) colon = i;
      end = i;
      if (depth < 0 || (depth == 0 && (line_.is(i, ";") || (line_.is(i, ",") && colon != question)))) break;
    }
    if (colon == question || colon + 1 >= end) return;
    std::size_t begin = question;
    for (int deep = 0; begin > 0; --begin) {
      deep -= line_.nesting(begin - 1);
      if (deep < 0 || (deep == 0 && (line_.is(begin - 1, "=") || line_.is(begin - 1, "return") ||
                                     line_.is(begin - 1, ",") || line_.is(begin - 1, "+="))))
        break;
    }
    const std::string yes = line_.between(question + 1, colon), no = line_.between(colon + 1, end);
    add(line_.with(begin, end, yes), "leaves out a condition " + where_);
    add(line_.with(begin, end, no), "leaves out a condition " + where_);
    add(line_.with(question + 1, end, no + " : " + yes), "exchanges the two sides of a condition " + where_);
  }

  void exchange_arguments(std::size_t i) {
    if (!line_.is(i, "(") || i == 0 || line_.tokens()[i - 1].kind != Token::word) return;
    const std::string& called = line_.tokens()[i - 1].text;
    const auto close = line_.closing(i);
    if (!close || called == "if" || called == "for" || called == "while" || *close == i + 1) return;
    std::vector<std::pair<std::size_t, std::size_t>> arguments{{i + 1, 0}};
    int depth = 0;
    for (std::size_t at = i + 1; at < *close; ++at) {
      depth += line_.nesting(at);
      if (depth != 0 || !line_.is(at, ",")) continue;
      arguments.back().second = at;
      arguments.emplace_back(at + 1, 0);
    }
    arguments.back().second = *close;
    const bool extreme = called == "max" || called == "min" || called == "fmaxf" || called == "fminf";
    for (std::size_t a = 0; a + 1 < arguments.size() && !extreme; ++a) {
      const auto [first, middle] = arguments[a];
      const auto [second, end] = arguments[a + 1];
      if (first >= middle || second >= end) continue;
      const std::string one = line_.between(first, middle), other = line_.between(second, end);
      if (one != other)
        add(line_.with(first, end, other + ", " + one), "exchanges two arguments in the call of " + called);
    }
    if (!extreme || arguments.size() != 2) return;
    const bool is_max = called.find("max") != std::string::npos;
    for (const auto& [first, last] : arguments)
      if (first < last)
        add(line_.with(line_.begin_of_operand(*close + 1), *close + 1, line_.between(first, last)),
            fmt::format("takes the {} of one value alone {}", is_max ? "maximum" : "minimum", where_));
    std::string other = called;
    other.replace(called.find(is_max ? "max" : "min"), 3, is_max ? "min" : "max");
    replace(i - 1, other, "exchanges minimum and maximum");
  }

  void exchange_constant(std::size_t i) {
    const Token& token = line_.tokens()[i];
    if (token.text == "true") replace(i, "false", "exchanges true and false");
    if (token.text == "false") replace(i, "true", "exchanges true and false");
    if (token.kind != Token::number || token.text.find_first_not_of("0123456789") != std::string::npos) return;
    const long value = std::strtol(token.text.c_str(), nullptr, 10);
    std::set<long> others{value * 2, value / 2, value + 1, value - 1};
    for (const long other : others)
      if (other != value && other >= 0) replace(i, std::to_string(other), "has a wrong constant");
  }

  /// Another variable of the same type.
  void exchange_variable(std::size_t i) {
    const Token& token = line_.tokens()[i];
    const auto type = types_.find(token.text);
    if (type == types_.end() || (i > 0 && (line_.is(i - 1, ".") || line_.is(i - 1, "->") || line_.is(i - 1, "::"))))
      return;
    if (i > 0 && line_.tokens()[i - 1].kind == Token::word && !line_.is(i - 1, "return")) return;  // declared here
    std::size_t tried = 0;
    constexpr std::size_t most = 4;
    for (const auto& [name, of] : types_)
      if (name != token.text && of == type->second && tried++ < most)
        replace(i, name, fmt::format("uses a wrong variable, such as {},", name));
  }

  void off_by_one(std::size_t i) {
    if (!line_.is(i, "[") || i == 0 || !line_.ends_operand(i - 1)) return;
    const auto close = line_.closing(i);
    if (!close || *close == i + 1) return;
    const std::string index = line_.between(i + 1, *close);
    const std::string of = line_.between(line_.begin_of_operand(i), i);
    add(line_.with(i + 1, *close, index + " + 1"), fmt::format("has an index of {} that is off by one", of));
    add(line_.with(i + 1, *close, index + " - 1"), fmt::format("has an index of {} that is off by one", of));
    add(line_.with(i + 1, *close, "0"), fmt::format("has a wrong index of {}", of));
  }

  const Line& line_;
  std::size_t number_;
  bool begins_;
  std::string where_;
  const std::map<std::string, std::string>& types_;
  std::vector<SmallEdit>& edits_;
};

/// The variables that the lines declare, with the words of their types.
std::map<std::string, std::string> declared_types(const std::vector<Line>& lines) {
  static const std::set<std::string> known{"int",      "unsigned", "float",  "int64_t",
                                           "uint32_t", "bool",     "double", "int32_t"};
  std::map<std::string, std::string> types;
  for (const Line& line : lines) {
    const auto& tokens = line.tokens();
    for (std::size_t i = 0; i + 2 < tokens.size(); ++i) {
      if (!known.contains(tokens[i].text) || tokens[i + 1].kind != Token::word) continue;
      // `int a = 1, b = 2;` declares both, outside parentheses.
      int depth = 0;
      for (std::size_t at = i + 1; at + 1 < tokens.size(); ++at) {
        depth += line.nesting(at);
        if (depth < 0 || line.is(at, ";")) break;
        const bool first = at == i + 1 || (depth == 0 && line.is(at - 1, ","));
        if (first && tokens[at].kind == Token::word &&
            (line.is(at + 1, "=") || line.is(at + 1, ",") || line.is(at + 1, ";")))
          types[tokens[at].text] = tokens[i].text;
      }
    }
  }
  return types;
}

/// Each edit is compiled with the whole region, so of a long region there are fewer, but of all its lines.
std::vector<SmallEdit> some_of_each_line(const std::vector<SmallEdit>& edits, std::size_t lines) {
  constexpr std::size_t most_lines = 3000;
  std::map<std::size_t, std::size_t> rounds;  // edits of a line so far
  std::multimap<std::size_t, SmallEdit> by_round;
  for (const SmallEdit& edit : edits) by_round.emplace(rounds[edit.line]++, edit);
  std::vector<SmallEdit> some;
  for (const auto& [round, edit] : by_round)
    if (some.size() < most_lines / lines) some.push_back(edit);
  return some;
}

}  // namespace

std::vector<SmallEdit> small_edits(const Region& region) {
  std::vector<Line> lines;
  std::size_t at = 0;
  const std::string text = join_lines(region.body), code = code_at_its_positions(text);
  for (const std::string& line : region.body) {
    lines.emplace_back(line, code.substr(at, line.size()));
    at += line.size() + 1;
  }
  const auto types = declared_types(lines);
  std::vector<SmallEdit> edits;
  bool begins = true;
  std::string where;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto& tokens = lines[i].tokens();
    if (tokens.empty() || lines[i].is(0, "#")) continue;
    if (begins || where.empty()) where = lines[i].where();
    LineEdits(lines[i], i, begins, where, types, edits).collect();
    const std::string& last = tokens.back().text;
    begins = last == ";" || last == "{" || last == "}" || last == ":";
  }
  return some_of_each_line(edits, region.body.size());
}

}  // namespace workbook::book
