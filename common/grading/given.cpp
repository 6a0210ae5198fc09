#include "common/grading/given.hpp"

#include <algorithm>
#include <vector>

#include "common/book/markers.hpp"
#include "common/grading/tokens.hpp"

namespace workbook::grading {
namespace {

using Kind = Token::Kind;

constexpr std::size_t kDeepest = 200;       ///< brackets that are open at the same time
constexpr std::size_t kLongestHead = 2000;  ///< tokens of a function's parameters

/// The index of the bracket that the one at `i` matches, towards the end or the beginning; the end's or 0 if none does.
std::size_t matching(const std::vector<Token>& tokens, std::size_t i, int step) {
  int depth = 0;
  for (std::size_t at = i; at < tokens.size(); at = at + std::size_t(step)) {
    const std::string& c = tokens[at].content;
    if (tokens[at].kind == Kind::mark && !tokens[at].in_directive) {
      if (c == "(" || c == "{" || c == "[") depth += step;
      if (c == ")" || c == "}" || c == "]") depth -= step;
      if (depth == 0) return at;
    }
    if (at == 0 || (step < 0 && i - at > kLongestHead)) return 0;
  }
  return step > 0 ? tokens.size() - 1 : 0;
}

/// Whether the { at `i` opens a namespace, or extern "C".
bool opens_namespace(const std::vector<Token>& tokens, std::size_t i) {
  while (i > 0 &&
         (tokens[i - 1].content == ":" || tokens[i - 1].kind == Kind::text ||
          (tokens[i - 1].kind == Kind::word && tokens[i - 1].content != "namespace")) &&
         tokens[i - 1].content != "extern") {
    --i;
  }
  return i > 0 && (tokens[i - 1].content == "namespace" || tokens[i - 1].content == "extern");
}

struct Function {
  std::string name;
  int first_line = 0, last_line = 0;
  std::set<std::string> words;  ///< in its body
};

/// The functions that a source defines, by what stands before their bodies.
std::vector<Function> functions_of(const std::string& source) {
  const std::vector<Token> tokens = tokens_of(source).all;
  std::vector<Function> functions;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].content != "{" || tokens[i].kind != Kind::mark || tokens[i].in_directive) continue;
    std::size_t close = i;
    while (close > 0 && tokens[close - 1].kind == Kind::word) --close;  // const, noexcept, …
    if (close == 0 || tokens[close - 1].content != ")") continue;
    const std::size_t open = matching(tokens, close - 1, -1);
    if (open == 0 || tokens[open - 1].kind != Kind::word) continue;
    const std::size_t end = matching(tokens, i, +1);
    Function function{tokens[open - 1].content, tokens[i].line, tokens[end].line, {}};
    for (std::size_t j = i; j < end; ++j)
      if (tokens[j].kind == Kind::word) function.words.insert(tokens[j].content);
    functions.push_back(std::move(function));
    i = end;
  }
  return functions;
}

/// Which of a chapter's functions call which, by name.
class Calls {
 public:
  void add(const std::vector<Function>& functions) {
    for (const Function& function : functions)
      calls_[function.name].insert(function.words.begin(), function.words.end());
  }
  bool has(const std::string& name) const { return calls_.contains(name); }
  bool reaches(const std::string& from, const std::string& to) const {
    std::set<std::string> seen;
    return reaches(from, to, seen);
  }

 private:
  bool reaches(const std::string& from, const std::string& to, std::set<std::string>& seen) const {
    if (from == to) return true;
    const auto found = calls_.find(from);
    if (found == calls_.end() || !seen.insert(from).second) return false;
    return std::ranges::any_of(found->second, [&](const std::string& word) { return reaches(word, to, seen); });
  }
  std::map<std::string, std::set<std::string>> calls_;
};

std::set<std::string> words_of(const book::Region& region) {
  std::set<std::string> words;
  for (const Token& token : tokens_of(book::join_lines(region.body)).all)
    if (token.kind == Kind::word) words.insert(token.content);
  return words;
}

std::string trimmed(const std::string& line) {
  const std::size_t from = line.find_first_not_of(" \t\r");
  return from == std::string::npos ? "" : line.substr(from, line.find_last_not_of(" \t\r") - from + 1);
}

}  // namespace

bool keeps_given(const std::string& source, const std::string& given) {
  const std::string outside = book::outside_regions(book::parse_reader("", source));
  const std::vector<std::string> lines = book::parse_reader("", outside).lines;
  const std::vector<std::string> wanted =
      book::parse_reader("", book::outside_regions(book::parse_reader("", given))).lines;
  std::vector<bool> is_added(lines.size() + 2, false);
  std::size_t next = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (next < wanted.size() && trimmed(lines[i]) == trimmed(wanted[next])) {
      ++next;
    } else {
      is_added[i + 1] = !trimmed(lines[i]).empty();
    }
  }
  while (next < wanted.size() && trimmed(wanted[next]).empty()) ++next;
  if (next < wanted.size()) return false;

  // What is added begins and ends at namespace level; each bracket knows whether it was given.
  const Tokens tokens = tokens_of(outside);
  struct Open {
    bool is_namespace, is_added;
  };
  std::vector<Open> open;
  for (std::size_t i = 0; i < tokens.all.size(); ++i) {
    const Token& token = tokens.all[i];
    const bool added = is_added[std::size_t(token.line)];
    const bool at_namespace = std::ranges::all_of(open, [](const Open& o) { return o.is_namespace || o.is_added; });
    if (added && !at_namespace) return false;
    if (added && token.kind == Kind::directive && i + 1 < tokens.all.size() && tokens.all[i + 1].content != "include")
      return false;
    if (token.kind != Kind::mark || token.in_directive) continue;
    if (open.size() > kDeepest) return false;
    if (token.content == "(" || token.content == "[" || token.content == "{")
      open.push_back({token.content == "{" && opens_namespace(tokens.all, i), added});
    if (token.content != ")" && token.content != "]" && token.content != "}") continue;
    if (open.empty() || open.back().is_added != added) return false;
    open.pop_back();
  }
  return !tokens.open_end && open.empty();
}

std::set<std::string> circular_exercises(const std::map<std::string, std::string>& solution,
                                         const std::map<std::string, std::string>& source) {
  Calls calls;
  // Whoever's version of another exercise it is that calls this one.
  for (const auto& [name, text] : solution) calls.add(functions_of(text));
  for (const auto& [name, text] : source) calls.add(functions_of(text));
  std::set<std::string> circular;
  for (const auto& [name, text] : source) {
    const auto book = solution.find(name);
    if (book == solution.end()) continue;
    const book::MarkedFile own = book::parse_reader("", text), books = book::parse_reader("", book->second);
    const std::vector<Function> functions = functions_of(book->second);
    for (const book::Region& region : own.regions) {
      const book::Region* known = books.find(region.id);
      if (known == nullptr) continue;
      const std::set<std::string> theirs = words_of(*known);
      for (const Function& function : functions) {
        if (function.first_line > known->begin_line || function.last_line < known->end_line) continue;
        for (const std::string& word : words_of(region)) {
          const bool is_new = calls.has(word) && !theirs.contains(word) && word != function.name;
          if (is_new && calls.reaches(word, function.name)) circular.insert(region.id);
        }
      }
    }
  }
  return circular;
}

}  // namespace workbook::grading
