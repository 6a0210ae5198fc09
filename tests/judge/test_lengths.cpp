// Limits on the lengths of functions and files, checked on the sources.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cctype>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/book/files.hpp"

using namespace workbook;
namespace fs = std::filesystem;

namespace {

struct Token {
  std::string text;  ///< a name, a number, "->", "::", "&&" or one character; a literal is its quote
  int line = 0;
};

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

/// C++ without comments, directives and the contents of literals.
class Tokens {
 public:
  explicit Tokens(const std::string& text) : text_(text) {
    while (at_ < text_.size()) take();
  }
  std::vector<Token> all;

 private:
  bool starts(const std::string& with) const { return text_.compare(at_, with.size(), with) == 0; }
  void skip_to(std::size_t end) {
    for (end = std::min(end, text_.size()); at_ < end; ++at_) line_ += text_[at_] == '\n';
  }
  /// Advances to after the next `end`.
  void skip_past(const std::string& end, std::size_t from) {
    const std::size_t found = text_.find(end, from);
    skip_to(found == std::string::npos ? text_.size() : found + end.size());
  }
  void skip_line() {
    std::size_t end = text_.find('\n', at_);
    while (end != std::string::npos && text_[end - 1] == '\\') end = text_.find('\n', end + 1);
    skip_to(end);
  }
  void skip_literal(char quote) {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    skip_to(end + 1);
  }
  void take_word() {
    std::size_t end = at_;
    const bool number = std::isdigit(static_cast<unsigned char>(text_[at_]));
    while (end < text_.size() && (is_word(text_[end]) || (number && (text_[end] == '\'' || text_[end] == '.')))) ++end;
    const std::string word = text_.substr(at_, end - at_);
    if (text_[end] == '"' && word.ends_with('R')) {  // R"X( … )X"
      const std::size_t open = text_.find('(', end);
      all.push_back({"\"", line_});
      return skip_past(")" + text_.substr(end + 1, open - end - 1) + "\"", open);
    }
    all.push_back({word, line_});
    skip_to(end);
  }
  void take() {
    const char c = text_[at_];
    if (starts("//")) return skip_line();
    if (starts("/*")) return skip_past("*/", at_ + 2);
    if (c == '#') return skip_line();
    if (std::isspace(static_cast<unsigned char>(c))) return skip_to(at_ + 1);
    if (is_word(c)) return take_word();
    if (c == '"' || c == '\'') {
      all.push_back({std::string(1, c), line_});
      return skip_literal(c);
    }
    const bool two = starts("->") || starts("::") || starts("&&");
    all.push_back({text_.substr(at_, two ? 2 : 1), line_});
    skip_to(at_ + (two ? 2 : 1));
  }

  const std::string& text_;
  std::size_t at_ = 0;
  int line_ = 1;
};

struct Function {
  std::string name;  ///< empty: a lambda
  int line = 0, lines = 0;
};

/// Finds the functions of a file, and the lambdas outside functions. The text before a bracket decides whether it opens
/// declarations, a function's body or something else (an initialiser, a list of arguments).
class Functions {
 public:
  explicit Functions(const std::string& text) {
    frames_.push_back({Kind::declarations, "", {}, 0});
    for (const Token& token : Tokens(text).all) take(token);
    if (frames_.size() != 1) throw std::runtime_error("a bracket stays open");
  }
  std::vector<Function> found;

 private:
  enum class Kind { declarations, function, other };
  struct Frame {
    Kind kind;
    std::string open;
    std::vector<std::string>
        head;  ///< the statement so far; the contents of brackets are reduced to "()", "[]" or "{}"
    int line;  ///< where that began
  };

  static bool is_name(const std::string& text) { return is_word(text[0]) && text != "return"; }

  static Kind opened_by(std::vector<std::string> head) {
    const auto has = [&](const char* word) { return std::ranges::count(head, word) > 0; };
    while (!head.empty() && head[0] == "template") {
      std::size_t end = 1;
      for (int depth = 0; end < head.size(); ++end) {
        depth += (head[end] == "<") - (head[end] == ">");
        if (depth == 0) break;
      }
      head.erase(head.begin(), head.begin() + std::ptrdiff_t(std::min(end + 1, head.size())));
    }
    if (head.empty()) return Kind::other;
    const std::string& last = head.back();
    if (has("namespace") || head[0] == "extern") return Kind::declarations;
    if (has("enum")) return Kind::other;
    if ((head[0] == "class" || head[0] == "struct" || head[0] == "union") && last != "()") return Kind::declarations;
    if (last == "[]") {  // [&] { … }, not a[] { … }
      const bool array = head.size() > 1 && (is_name(head[head.size() - 2]) || head[head.size() - 2] == "[]");
      return array ? Kind::other : Kind::function;
    }
    for (std::size_t i = 0; i + 1 < head.size(); ++i) {
      if (head[i] == "()" && head[i + 1] == ":")  // a constructor's members, then its body
        return last == "()" || last == "{}" ? Kind::function : Kind::other;
    }
    const auto parameters = std::find(head.rbegin(), head.rend(), "()");
    if (parameters == head.rend()) return Kind::other;
    static constexpr std::array behind{"const", "noexcept", "override", "final",    "mutable",
                                       "&",     "&&",       "->",       "requires", "try"};
    return parameters == head.rbegin() || std::ranges::count(behind, *(parameters - 1)) > 0 ? Kind::function
                                                                                            : Kind::other;
  }

  /// The text before the first list of arguments.
  static std::string name_in(const std::vector<std::string>& head) {
    const auto parameters = std::ranges::find(head, "()");
    return parameters == head.begin() || parameters == head.end() || !is_name(*(parameters - 1)) ? ""
                                                                                                 : *(parameters - 1);
  }

  void take(const Token& token) {
    const std::string& text = token.text;
    Frame& frame = frames_.back();
    if (text == "(" || text == "[" || text == "{") {
      if (frame.head.empty()) frame.line = token.line;
      const Kind kind = frame.kind == Kind::function ? Kind::function
                        : text == "{"                ? opened_by(frame.head)
                                                     : Kind::other;
      frames_.push_back({kind, text, {}, token.line});
    } else if (text == ")" || text == "]" || text == "}") {
      close(token);
    } else if (text == ";" || (text == "," && frame.kind == Kind::other) || is_access(frame, text)) {
      frame.head.clear();
    } else if (frame.kind != Kind::function) {
      if (frame.head.empty()) frame.line = token.line;
      frame.head.push_back(text);
    }
  }

  static bool is_access(const Frame& frame, const std::string& text) {
    return text == ":" && frame.head.size() == 1 &&
           (frame.head[0] == "public" || frame.head[0] == "private" || frame.head[0] == "protected");
  }

  void close(const Token& token) {
    const Frame closed = frames_.back();
    frames_.pop_back();
    const std::string both = closed.open + token.text;
    if (frames_.empty() || (both != "()" && both != "[]" && both != "{}"))
      throw std::runtime_error("line " + std::to_string(token.line) + " closes a bracket that is not open");
    Frame& frame = frames_.back();
    const bool body = closed.kind == Kind::function && frame.kind != Kind::function;
    if (body) found.push_back({name_in(frame.head), frame.line, token.line - frame.line + 1});
    if (closed.open == "{" && frame.kind == Kind::declarations && closed.kind != Kind::other)
      frame.head.clear();
    else
      frame.head.push_back(both);
  }

  std::vector<Frame> frames_;
};

std::vector<std::string> named(const std::string& text) {
  std::vector<std::string> names;
  for (const Function& function : Functions(text).found)
    names.push_back(function.name + " " + std::to_string(function.lines));
  return names;
}
using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("functions are found, and their lines counted, however they are written") {
  CHECK(named("int f() {\n  return 1;\n}\n") == Names{"f 3"});
  CHECK(named("template <class T, class U>\nauto g(T t)\n    -> U {\n}\n") == Names{"g 4"});
  CHECK(named("namespace a {\nnamespace {\nvoid f() {}\n}\n}\n") == Names{"f 1"});
  CHECK(named("class A : public B<int> {\n public:\n  A() : a_{1}, b_(2), c_{3} {\n  }\n  ~A() = default;\n"
              "  A& operator=(const A&) { return *this; }\n  bool h() const noexcept override {\n\n}\n"
              "  int a_{1};\n std::vector<int> b_ = {1, 2};\n};\n") == Names{"A 2", " 1", "h 3"});
  CHECK(named("struct P {\n  struct Q {};\n  void f() const& {\n  }\n};\nstruct Q make() {\n}\n") ==
        Names{"f 2", "make 2"});
  CHECK(named("[[nodiscard]] bool f(T t = {}, int a[] = {}) {\n  struct S {\n    void g() {}\n  };\n}\n") ==
        Names{"f 5"});
  CHECK(named("enum class E { a, b };\nextern \"C\" {\nvoid f() {}\n}\n") == Names{"f 1"});
}

TEST_CASE("a lambda is part of its function, or a function itself outside of functions") {
  CHECK(named("void f() {\n  const auto g = [&](int x) {\n    return x;\n  };\n  call([&] { g(1); });\n}\n") ==
        Names{"f 6"});
  CHECK(named("const auto g = [](int x) -> T<int> {\n  return x;\n};\n") == Names{" 3"});
  CHECK(named("const auto g = [] {\n};\n") == Names{" 2"});
  CHECK(named("const Stage stage = Forward<half>{\n  .tiles = {{1, 2}, {3, 4}},\n  .launch = [](Call& c) {\n    c();\n"
              "  },\n  .other = 1,\n};\n") == Names{" 3"});
  CHECK(named("const auto t = make(1, [&] {\n\n});\n") == Names{" 3"});
}

TEST_CASE("a table is no function, however long it is") {
  CHECK(named("const std::map<std::string, std::function<void()>> table{\n  {\"a\", 1},\n  {\"b\", 2},\n};\n").empty());
  CHECK(named("constexpr Tiles built[] = {{1, 2},\n {3, 4}};\nint other[] {1, 2};\nalignas(16) float x[4] = {1};\n")
            .empty());
}

TEST_CASE("brackets in comments, literals and directives are ignored") {
  CHECK(
      named("// {\n/* { \n { */ void f() {  // }\n  g('{', '\\'', \"\\\"{\", 1'000, 0x1'F);\n}\n#define X {\\\n {\n") ==
      Names{"f 3"});
  CHECK(named("void f() {\n  g(R\"({\n{\n)\", R\"x(\")\" {)x\", u8R\"(})\");\n}\n") == Names{"f 5"});
  CHECK_THROWS(named("void f() {\n"));
  CHECK_THROWS(named("void f() }\n"));
  CHECK_THROWS(named("void f() { ( }\n"));
}

TEST_CASE("a long function is seen") {
  std::string lines;
  for (int i = 0; i < 79; ++i) lines += "  g();\n";
  CHECK(named("void f() {\n" + lines + "}\n") == Names{"f 81"});
}

TEST_CASE("no function of the engine and its trades has more than 80 lines, no file of cli more than 300") {
  const fs::path root = WORKBOOK_SOURCE;
  std::size_t functions = 0;
  for (const char* folder : {"judge", "grading", "gates", "bench", "cli"}) {
    for (const auto& entry : fs::directory_iterator(root / "common" / folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".cpp" && extension != ".hpp" && extension != ".cu") continue;
      const std::string file = entry.path().lexically_relative(root).generic_string();
      const std::string text = book::read_file(entry.path());
      CAPTURE(file);
      if (file.starts_with("common/cli/")) CHECK(std::ranges::count(text, '\n') <= 300);
      for (const Function& function : Functions(text).found) {
        ++functions;
        CAPTURE(function.name, function.line);
        CHECK(function.lines <= (function.name == "main" ? 60 : 80));
      }
    }
  }
  CHECK(functions > 700);
}
