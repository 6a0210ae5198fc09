#include "common/grading/screen.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "common/book/markers.hpp"
#include "common/grading/tokens.hpp"

namespace workbook::grading {
namespace {

/// The headers of the C++ standard library, its C ones included.
constexpr std::array kStandardHeaders{"algorithm",
                                      "any",
                                      "array",
                                      "atomic",
                                      "barrier",
                                      "bit",
                                      "bitset",
                                      "cassert",
                                      "cctype",
                                      "cerrno",
                                      "cfenv",
                                      "cfloat",
                                      "charconv",
                                      "chrono",
                                      "cinttypes",
                                      "climits",
                                      "clocale",
                                      "cmath",
                                      "codecvt",
                                      "compare",
                                      "complex",
                                      "concepts",
                                      "condition_variable",
                                      "coroutine",
                                      "csetjmp",
                                      "csignal",
                                      "cstdarg",
                                      "cstddef",
                                      "cstdint",
                                      "cstdio",
                                      "cstdlib",
                                      "cstring",
                                      "ctime",
                                      "cuchar",
                                      "cwchar",
                                      "cwctype",
                                      "deque",
                                      "exception",
                                      "execution",
                                      "expected",
                                      "filesystem",
                                      "format",
                                      "forward_list",
                                      "fstream",
                                      "functional",
                                      "future",
                                      "initializer_list",
                                      "iomanip",
                                      "ios",
                                      "iosfwd",
                                      "iostream",
                                      "istream",
                                      "iterator",
                                      "latch",
                                      "limits",
                                      "list",
                                      "locale",
                                      "map",
                                      "memory",
                                      "memory_resource",
                                      "mutex",
                                      "new",
                                      "numbers",
                                      "numeric",
                                      "optional",
                                      "ostream",
                                      "queue",
                                      "random",
                                      "ranges",
                                      "ratio",
                                      "regex",
                                      "scoped_allocator",
                                      "semaphore",
                                      "set",
                                      "shared_mutex",
                                      "source_location",
                                      "span",
                                      "sstream",
                                      "stack",
                                      "stdexcept",
                                      "stop_token",
                                      "streambuf",
                                      "string",
                                      "string_view",
                                      "syncstream",
                                      "system_error",
                                      "thread",
                                      "tuple",
                                      "type_traits",
                                      "typeindex",
                                      "typeinfo",
                                      "unordered_map",
                                      "unordered_set",
                                      "utility",
                                      "valarray",
                                      "variant",
                                      "vector",
                                      "version",
                                      "math.h",
                                      "stdint.h",
                                      "stddef.h",
                                      "stdio.h",
                                      "stdlib.h",
                                      "string.h",
                                      "assert.h",
                                      "float.h",
                                      "limits.h"};

/// Headers of the book that a chapter's file may want.
constexpr std::array kBookHeaders{"common/cuda/todo.hpp",       "common/cuda/kernel.hpp",
                                  "common/cuda/ptx.hpp",        "common/cuda/memory.hpp",
                                  "common/attention/shape.hpp", "common/attention/matrix.hpp",
                                  "common/attention/half.hpp",  "common/attention/error.hpp"};

template <class List>
bool contains(const List& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

/// Why a name has no place in an answer; empty if it may stand.
std::string refused_name(const std::string& name) {
  const auto is = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* other) { return name == other; });
  };
  const auto begins = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* other) { return name.starts_with(other); });
  };
  if (is({"asm", "__asm", "__asm__"})) return "inline assembly";
  if (is({"simt", "cuda_on_sim", "worker_device"})) return "the simulator's internals";
  if (begins({"__tsan", "__asan", "__ubsan", "__msan", "__sanitizer", "__interceptor", "__cyg_profile"})) {
    return "the simulator's callbacks";
  }
  if (name.find("no_sanitize") != std::string::npos || name.find("sanitizer_instrumentation") != std::string::npos ||
      is({"no_instrument_function", "__no_instrument_function__"})) {
    return "an attribute that hides code from the simulator";
  }
  if (is({"__SANITIZE_THREAD__", "__SANITIZE_ADDRESS__", "__has_feature", "__CUDACC__", "__CUDA_ARCH__", "__NVCC__"}) ||
      (name.starts_with("WORKBOOK_") && name != "WORKBOOK_TODO" && name != "WORKBOOK_MEND" &&
       name != "WORKBOOK_ELEMENT")) {
    return "what tells the simulator from a GPU";
  }
  if (begins({"__builtin_mem", "__builtin___", "__builtin_bcopy", "__builtin_bzero", "__builtin_st"})) {
    return "a copy that the simulator does not see";
  }
  if (is({"syscall", "dlsym", "dlopen", "dlvsym", "dl_iterate_phdr", "_Pragma", "__pragma"}) ||
      begins({"__wrap_", "__real_", "__builtin_apply", "__libc_", "_Z"})) {
    return "a way round the language";
  }
  return "";
}

constexpr std::size_t kMostRefusals = 20;  ///< more tell nobody anything

/// Attributes that make code run, be found or be replaced otherwise than by a call.
constexpr std::array<std::string_view, 12> kRefusedAttributes{
    "section",     "alias",      "weak",  "weakref",       "ifunc", "symver",
    "constructor", "destructor", "naked", "init_priority", "copy",  "target_clones"};

class Screen {
 public:
  Screen(std::string_view source, std::string_view given) : tokens_(tokens_of(source).all) {
    const std::vector<std::string> lines = book::parse_reader("", given).lines;
    const std::set<std::string> known(lines.begin(), lines.end());
    for (const std::string& line : book::parse_reader("", source).lines) is_given_.push_back(known.contains(line));
  }

  std::vector<Refusal> run() {
    for (std::size_t i = 0; i < tokens_.size() && refusals_.size() < kMostRefusals; ++i) {
      const Token& token = tokens_[i];
      follow_attributes(i);
      if (token.kind == Token::Kind::directive) directive(i);
      if (token.kind == Token::Kind::word) name(i);
      if (token.content == "##") refuse(token, "names pasted together (##)");
      if (token.content == "\\") refuse(token, "a backslash outside a text: a name that is written in another way");
    }
    return std::move(refusals_);
  }

 private:
  void refuse(const Token& token, const std::string& what) {
    const auto line = std::size_t(token.line);
    if (line >= 1 && line <= is_given_.size() && is_given_[line - 1]) return;
    const bool known = std::any_of(refusals_.begin(), refusals_.end(),
                                   [&](const Refusal& r) { return r.line == token.line && r.what == what; });
    if (!known) refusals_.push_back({token.line, what});
  }

  /// Keeps track of where attributes are: __attribute__((…)) and [[…]].
  void follow_attributes(std::size_t at) {
    const std::string& now = tokens_[at].content;
    if (now == "__attribute__" || now == "__attribute" ||
        (now == "[" && at + 1 < tokens_.size() && tokens_[at + 1].content == "[")) {
      in_attribute_ = true;
    } else if (now == ";" || now == "{" || now == "]") {
      in_attribute_ = false;
    }
  }

  /// The word at `i` within the directive at `from`, or "".
  std::string word_of(std::size_t from, std::size_t i) const {
    const bool there =
        from + i < tokens_.size() && tokens_[from + i].in_directive && tokens_[from + i].kind == Token::Kind::word;
    return there ? tokens_[from + i].content : "";
  }

  void directive(std::size_t at) {
    const Token& begin = tokens_[at];
    const std::string name = word_of(at, 1);
    if (name == "include") {
      include(at + 2);
    } else if (name == "pragma") {
      const std::string what = word_of(at, 2), more = word_of(at, 3);
      const bool allowed = what == "once" || what == "unroll" || what == "nounroll" ||
                           (what == "GCC" && (more == "unroll" || more == "ivdep"));
      if (!allowed) refuse(begin, fmt::format("#pragma {} {}", what, more).substr(0, 60));
    } else if (name == "define") {
      for (std::size_t i = at + 2;
           i < tokens_.size() && tokens_[i].in_directive && tokens_[i].kind != Token::Kind::directive; ++i)
        if (tokens_[i].content == "#") refuse(begin, "a macro that makes a text of code (#)");
    } else if (!name.empty() && !contains(std::array{"undef", "if", "ifdef", "ifndef", "elif", "elifdef", "elifndef",
                                                     "else", "endif", "error", "warning"},
                                          name)) {
      refuse(begin, fmt::format("#{}", name.substr(0, 60)));  // #include_next, #embed, #import, #line, #ident, …
    }
  }

  void include(std::size_t at) {
    if (at >= tokens_.size() || tokens_[at].kind != Token::Kind::path) {
      refuse(tokens_[at - 1], "an #include whose name is made by a macro");
      return;
    }
    const std::string& quoted = tokens_[at].content;
    const std::string path = quoted.size() < 2 ? "" : quoted.substr(1, quoted.size() - 2);
    const bool beside =
        quoted[0] == '"' && path.find('/') == std::string::npos && (path.ends_with(".hpp") || path.ends_with(".cuh"));
    if (beside || contains(kStandardHeaders, path) || contains(kBookHeaders, path)) return;
    refuse(tokens_[at], fmt::format("#include {}: allowed are the C++ standard library and the chapter's own headers",
                                    quoted.substr(0, 60)));
  }

  void name(std::size_t at) {
    const std::string& word = tokens_[at].content;
    if (tokens_[at].in_directive && word.starts_with("__attribute")) refuse(tokens_[at], "an attribute in a macro");
    const std::string why = refused_name(word);
    if (!why.empty()) refuse(tokens_[at], fmt::format("{} ({})", why, word.substr(0, 60)));
    std::string_view bare = word;
    if (bare.size() > 4 && bare.starts_with("__") && bare.ends_with("__")) bare = bare.substr(2, bare.size() - 4);
    if (contains(kRefusedAttributes, bare) && (bare != word || in_attribute_))
      refuse(tokens_[at], fmt::format("an attribute that is not for answers ({})", bare));
  }

  std::vector<Token> tokens_;
  std::vector<bool> is_given_;  ///< by line
  bool in_attribute_ = false;
  std::vector<Refusal> refusals_;
};

}  // namespace

std::vector<Refusal> screen_source(std::string_view source, std::string_view given) {
  return Screen(source, given).run();
}

}  // namespace workbook::grading
