#include "common/book/offsets.hpp"

#include <cctype>
#include <set>

#include "common/book/markers.hpp"

namespace workbook::book {
namespace {

struct Token {
  std::string text;
  int line = 0;
};

bool in_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

/// Names with their members ("blockIdx.x"), numbers and operators, without directives. `source`: from code_of().
std::vector<Token> tokens_of(std::string_view source) {
  std::vector<Token> tokens;
  int line = 1;
  for (std::size_t i = 0; i < source.size();) {
    const char c = source[i];
    if (c == '\n' || std::isspace(static_cast<unsigned char>(c))) {
      line += c == '\n';
      ++i;
    } else if (c == '#') {
      i = std::min(source.find('\n', i), source.size());
    } else if (in_name(c)) {
      std::size_t end = i;
      const auto goes_on = [&](std::string_view by) {
        return source.substr(end, by.size()) == by && end + by.size() < source.size() &&
               in_name(source[end + by.size()]);
      };
      while (end < source.size() && (in_name(source[end]) || source[end] == '\'' || goes_on(".") || goes_on("::")))
        end += goes_on("::") ? 2 : 1;
      tokens.push_back({std::string(source.substr(i, end - i)), line});
      i = end;
    } else {
      const bool two = source.substr(i, 2) == "->" || source.substr(i, 2) == "&&" || source.substr(i, 2) == "*=" ||
                       source.substr(i, 2) == "/=" || source.substr(i, 2) == "++" || source.substr(i, 2) == "--" ||
                       source.substr(i, 2) == "\"\"";
      tokens.push_back({std::string(source.substr(i, two ? 2 : 1)), line});
      i += two ? 2 : 1;
    }
  }
  return tokens;
}

const std::set<std::string> kWide{"std::int64_t", "int64_t",        "std::size_t", "size_t", "std::uint64_t",
                                  "uint64_t",     "std::ptrdiff_t", "ptrdiff_t",   "long",   "float",
                                  "double",       "half",           "float2",      "float4"};
const std::set<std::string> kNarrow{"int", "unsigned", "std::int32_t", "std::uint32_t", "int32_t", "uint32_t"};
const std::set<std::string> kShape{"Nq",         "Nk",        "n",           "B",          "H",
                                   "Hkv",        "heads",     "rows_of_all", "blockIdx.x", "blockIdx.y",
                                   "blockIdx.z", "gridDim.x", "gridDim.y",   "gridDim.z"};

const std::set<std::string> kKeywords{"return", "if", "while", "for", "switch", "case", "else"};

bool is_name(const Token& token) {
  return in_name(token.text[0]) && !std::isdigit(static_cast<unsigned char>(token.text[0]));
}
bool is_number(const Token& token) {
  return std::isdigit(static_cast<unsigned char>(token.text[0])) != 0;
}

class Reader {
 public:
  explicit Reader(std::string_view source) : tokens_(tokens_of(code_of(std::string(source)))) {}

  std::vector<NarrowProduct> products() {
    for (at_ = 0; at_ < tokens_.size();) step();
    return std::move(found_);
  }

 private:
  void step() {
    if (kWide.contains(text(at_)) || kNarrow.contains(text(at_))) declare();
    if (text(at_) == "auto") forget_types();
    if (begins_factor(at_)) {
      chain();
    } else {
      ++at_;
    }
  }
  /// "const auto& [Nq, Nk] = sizes": the types of these names are unknown.
  void forget_types() {
    std::size_t i = at_ + 1;
    while (text(i) == "&" || text(i) == "&&") ++i;
    if (text(i) != "[") return;
    for (; i < tokens_.size() && text(i) != "]"; ++i) {
      for (auto* names : {&wide_, &narrow_, &large_}) names->erase(text(i));
    }
  }

  const std::string& text(std::size_t i) const {
    static const std::string none;
    return i < tokens_.size() ? tokens_[i].text : none;
  }
  bool begins_factor(std::size_t i) const {
    return i < tokens_.size() && (is_name(tokens_[i]) || is_number(tokens_[i]) || text(i) == "(") &&
           !kKeywords.contains(text(i)) && (!kNarrow.contains(text(i)) || text(i + 1) == "(");
  }

  /// A declaration's names: "std::int64_t Nq, Nk", "int head = blockIdx.x / tiles, rows". A 32-bit variable is large if
  /// its initialiser is.
  void declare() {
    const bool wide = kWide.contains(text(at_));
    std::size_t i = at_ + 1;
    while (is_name_at(i)) {
      const std::string name = text(i++);
      const bool given = text(i) == "=";
      bool large = kShape.contains(name) && !given, bounded = false;
      if (given) {
        int depth = 0;
        for (++i; i < tokens_.size(); ++i) {
          const std::string& word = text(i);
          if (depth == 0 && (word == "," || word == ";" || word == ")")) break;
          depth += (word == "(" || word == "[" || word == "{") - (word == ")" || word == "]" || word == "}");
          large = large || large_.contains(word) || (kShape.contains(word) && !narrow_.contains(word)) ||
                  (kShape.contains(name) && kShape.contains(word.substr(word.rfind('.') + 1)));  // Nq = sizes.Nq
          bounded = bounded || word == "min" || word == "%" || word == "?";
        }
      }
      (wide ? wide_ : narrow_).insert(name);
      (wide ? narrow_ : wide_).erase(name);
      if (!wide && large && !bounded)
        large_.insert(name);
      else
        large_.erase(name);
      if (text(i) != "," || kWide.contains(text(i + 1)) || kNarrow.contains(text(i + 1)) || text(i + 1) == "const")
        break;
      ++i;
    }
  }
  bool is_name_at(std::size_t i) const { return i < tokens_.size() && is_name(tokens_[i]); }

  struct Factor {
    bool wide = false, large = false, number = false;
    std::string text;
  };

  /// A name, a number, a call or a parenthesised expression, with the indices after it.
  Factor factor() {
    Factor result;
    const bool call = is_name_at(at_), narrowed = kNarrow.contains(text(at_));  // int(N)
    result.number = is_number(tokens_[at_]);
    result.text = text(at_);
    note(result, at_);
    if (call || result.number) ++at_;
    if (text(at_) == "<" && kWide.contains(text(at_ + 1)) && text(at_ + 2) == ">") {  // static_cast<std::int64_t>
      result.wide = true;
      at_ += 3;
    }
    while (text(at_) == "(" || text(at_) == "[") {
      const bool bounded = call && (result.text == "min" || result.text == "std::min");
      const std::string open = text(at_), close = open == "(" ? ")" : "]";
      int depth = 0, index = 0;
      const std::size_t from = at_;
      for (; at_ < tokens_.size(); ++at_) {
        depth += (text(at_) == open) - (text(at_) == close);
        index += (text(at_) == "[") - (text(at_) == "]");
        if (open == "(" && !bounded && index == 0)
          note(result, at_);  // an index does not determine the size of the element
        if (at_ > from || call) result.text += text(at_);
        if (depth == 0) break;
      }
      // A 64-bit value that is converted to int may be large.
      for (std::size_t i = from; narrowed && i < at_; ++i) result.large = result.large || wide_.contains(text(i));
      inner_.emplace_back(from + 1, at_);
      ++at_;
      if (open == "[") result = {true, false, false, result.text};  // an array element is not a shape number
    }
    if (narrowed) result.wide = false;
    return result;
  }
  void note(Factor& factor, std::size_t i) const {
    const std::string& word = text(i);
    factor.wide = factor.wide || kWide.contains(word) || wide_.contains(word);
    const bool of_the_launch = kShape.contains(word) && word.find('.') != std::string::npos;  // "blockIdx.x"
    factor.large = factor.large || large_.contains(word) || of_the_launch;
  }

  void chain() {
    const int line = tokens_[at_].line;
    const std::size_t inner_before = inner_.size();
    const bool condition = at_ > 0 && kKeywords.contains(text(at_ - 1)) && text(at_ - 1) != "return";
    // A subtrahend of a 32-bit integer is not larger than that integer, as in row - heads * (row / heads).
    const bool subtracted = at_ > 1 && text(at_ - 1) == "-" && narrow_.contains(text(at_ - 2));
    Factor left = factor();
    while (!condition && (text(at_) == "*" || text(at_) == "/" || text(at_) == "%") && begins_factor(at_ + 1)) {
      const std::string sign = text(at_++);
      const Factor right = factor();
      const std::string both = left.text + " " + sign + " " + right.text;
      if (sign == "*" && !subtracted && !left.wide && !right.wide && (left.large || right.large) && !left.number &&
          !right.number)
        found_.push_back({line, both});
      left = {left.wide || right.wide, sign == "%" ? right.large : left.large || (sign == "*" && right.large),
              left.number && right.number, both};
    }
    // The contents of parentheses are separate expressions.
    const std::size_t end = at_;
    const std::vector<std::pair<std::size_t, std::size_t>> inner(inner_.begin() + std::ptrdiff_t(inner_before),
                                                                 inner_.end());
    inner_.resize(inner_before);
    for (const auto& [from, to] : inner) {
      for (at_ = from; at_ < to;) step();
    }
    at_ = end;
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::set<std::string> wide_, narrow_, large_;
  std::vector<std::pair<std::size_t, std::size_t>> inner_;  ///< parentheses that have not been read yet
  std::vector<NarrowProduct> found_;
};

}  // namespace

std::vector<NarrowProduct> narrow_products(std::string_view source) {
  return Reader(source).products();
}

}  // namespace workbook::book
