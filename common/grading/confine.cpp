#include "common/grading/confine.hpp"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "common/book/markers.hpp"
#include "common/grading/tokens.hpp"

namespace workbook::grading {
namespace {

/// One region's body, token by token.
class Confinement {
 public:
  Confinement(std::string_view body, int first_line) : tokens_(tokens_of(body)), first_line_(first_line) {}

  /// Empty if the body stays where it is.
  std::string why_not() {
    const std::vector<Token>& all = tokens_.all;
    for (std::size_t i = 0; i < all.size() && why_.empty(); ++i) {
      if (all[i].kind == Token::Kind::directive) {
        i = directive(i);
      } else {
        bracket(all[i], open_);
      }
    }
    if (!why_.empty()) return why_;
    if (tokens_.open_end) return "a comment, a raw text or a \\ at its end goes on behind the region";
    if (!branches_.empty()) return "an #if without its #endif";
    if (!open_.empty()) return fmt::format("line {}: {} is never closed", line(open_.back()), open_.back().content);
    if (!macros_.empty()) return fmt::format("the macro {} is not undefined at the region's end", *macros_.begin());
    return "";
  }

 private:
  using Brackets = std::vector<Token>;
  static constexpr std::size_t kDeepest = 200;

  int line(const Token& token) const { return first_line_ + token.line - 1; }
  void leaves(const Token& token, const std::string& what) {
    if (why_.empty()) why_ = fmt::format("line {}: {}", line(token), what);
  }

  void bracket(const Token& token, Brackets& open) {
    if (token.kind != Token::Kind::mark) return;
    const std::string& c = token.content;
    if (c == "(" || c == "[" || c == "{") open.push_back(token);
    if (open.size() > kDeepest || branches_.size() > kDeepest) leaves(token, "brackets are nested too deeply");
    if (c != ")" && c != "]" && c != "}") return;
    const char* opening = c == ")" ? "(" : c == "]" ? "[" : "{";
    if (open.empty() || open.back().content != opening)
      return leaves(token, c + " closes what the region has not opened");
    open.pop_back();
  }

  /// A directive that begins at `i`; its last token.
  std::size_t directive(std::size_t i) {
    const std::vector<Token>& all = tokens_.all;
    std::size_t end = i + 1;
    while (end < all.size() && all[end].in_directive && all[end].kind != Token::Kind::directive) ++end;
    const std::string name = i + 1 < end ? all[i + 1].content : "", macro = i + 2 < end ? all[i + 2].content : "";
    if (name.starts_with("if")) {
      branches_.push_back(open_);
    } else if (name.starts_with("el") || name == "endif") {
      if (branches_.empty()) {
        leaves(all[i], fmt::format("#{} without its #if", name));
      } else if (!equal(branches_.back(), open_)) {
        leaves(all[i], "the brackets between #if and here do not match");
      }
      if (name == "endif" && !branches_.empty()) branches_.pop_back();
    } else if (name == "define") {
      macros_.insert(macro);
      Brackets open;
      for (std::size_t j = i + 3; j < end; ++j) bracket(all[j], open);
      if (!open.empty()) leaves(all[i], fmt::format("the brackets of the macro {} do not match", macro));
    } else if (name == "undef") {
      // What is undefined in one branch alone may live on in the other.
      if (branches_.empty()) macros_.erase(macro);
    } else if (name == "include") {
      leaves(all[i], "an #include has its place outside the exercise");
    }
    return end - 1;
  }

  static bool equal(const Brackets& a, const Brackets& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i)
      if (a[i].line != b[i].line || a[i].content != b[i].content) return false;
    return true;
  }

  const Tokens tokens_;
  const int first_line_;
  Brackets open_;
  std::vector<Brackets> branches_;  ///< what was open at each #if
  std::set<std::string> macros_;    ///< defined and not undefined yet
  std::string why_;
};

}  // namespace

std::map<std::string, std::string> leaving_regions(std::string_view source) {
  std::map<std::string, std::string> leaving;
  for (const book::Region& region : book::parse_reader("", source).regions) {
    const std::string why = Confinement(book::join_lines(region.body), region.begin_line + 1).why_not();
    if (!why.empty()) leaving[region.id] = why;
  }
  return leaving;
}

std::string confined(const std::string& source) {
  std::string text = source;
  for (const auto& [id, why] : leaving_regions(source)) {
    std::string line = fmt::format("#error exercise {} leaves its region: {}", id, why);
    for (char& c : line)
      if (c == '\'' || c == '"' || c == '\\') c = '`';
    text = book::replace_body(book::parse_reader("", text), id, {line});
  }
  return text;
}

}  // namespace workbook::grading
