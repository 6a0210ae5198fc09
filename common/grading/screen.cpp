#include "common/grading/screen.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "common/book/markers.hpp"

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

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

/// A source without comments and with empty texts; spliced lines joined. `line_of[i]`: where character i stands.
struct Stripped {
  std::string text;
  std::vector<int> line_of;
};

class Stripper {
 public:
  explicit Stripper(std::string_view source) {
    // Splices first, as the language has it: a backslash before a newline (g++ lets spaces stand between).
    int line = 1;
    for (std::size_t i = 0; i < source.size(); ++i) {
      if (source[i] == '\\') {
        std::size_t end = i + 1;
        while (end < source.size() && (source[end] == ' ' || source[end] == '\t' || source[end] == '\r')) ++end;
        if (end < source.size() && source[end] == '\n') {
          ++line;
          i = end;
          continue;
        }
      }
      joined_ += source[i];
      lines_.push_back(line);
      if (source[i] == '\n') ++line;
    }
    while (at_ < joined_.size()) step();
  }
  Stripped take() { return std::move(result_); }

 private:
  bool here(std::string_view text) const { return joined_.compare(at_, text.size(), text) == 0; }
  void keep() {
    result_.text += joined_[at_];
    result_.line_of.push_back(lines_[at_]);
    ++at_;
  }
  void drop_until(std::string_view end) {
    const std::size_t found = joined_.find(end, at_);
    at_ = found == std::string::npos ? joined_.size() : found + end.size();
  }
  /// A text or character from its opening quote on; its content goes. In an #include line it stays: that is a path.
  void quoted(char quote) {
    const bool path = quote == '"' && in_include();
    keep();
    while (at_ < joined_.size() && joined_[at_] != quote && joined_[at_] != '\n') {
      if (joined_[at_] == '\\' && !path) ++at_;
      if (path) {
        keep();
      } else if (at_ < joined_.size()) {
        ++at_;
      }
    }
    if (at_ < joined_.size() && joined_[at_] == quote) keep();
  }
  bool in_include() const {
    const std::size_t begin = result_.text.rfind('\n') + 1;  // npos + 1 is 0
    const std::string_view line = std::string_view(result_.text).substr(begin);
    return line.find("include") != std::string_view::npos || line.find("embed") != std::string_view::npos;
  }
  void step() {
    if (here("//")) {
      drop_until("\n");
      if (at_ > 0 && joined_[at_ - 1] == '\n') --at_;
      if (at_ < joined_.size()) keep();
    } else if (here("/*")) {
      at_ += 2;
      drop_until("*/");
      result_.text += ' ';
      result_.line_of.push_back(lines_[std::min(at_, joined_.size()) - 1]);
    } else if (here("R\"") && (result_.text.empty() || !is_name(result_.text.back()) ||
                               std::string_view("uUL8").find(result_.text.back()) != std::string_view::npos)) {
      const std::size_t open = joined_.find('(', at_);
      const std::string end =
          open == std::string::npos ? "\"" : fmt::format("){}\"", joined_.substr(at_ + 2, open - at_ - 2));
      at_ += 2;
      drop_until(end);
    } else if (joined_[at_] == '"') {
      quoted('"');
    } else if (joined_[at_] == '\'' && (result_.text.empty() || !is_name(result_.text.back()))) {
      quoted('\'');  // otherwise it separates digits: 1'000
    } else {
      keep();
    }
  }

  std::string joined_;
  std::vector<int> lines_;
  std::size_t at_ = 0;
  Stripped result_;
};

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
      (name.starts_with("WORKBOOK_") && name != "WORKBOOK_TODO")) {
    return "what tells the simulator from a GPU";
  }
  if (is({"syscall", "dlsym", "dlopen", "dlvsym", "dl_iterate_phdr", "_Pragma", "__pragma", "ifunc", "__ifunc__"}) ||
      begins({"__wrap_", "__real_", "__builtin_apply", "__libc_"})) {
    return "a way round the language";
  }
  return "";
}

class Screen {
 public:
  Screen(std::string_view source, std::string_view given) : stripped_(Stripper(source).take()) {
    for (const std::string& line : book::parse_reader("", given).lines) given_.insert(line);
    original_ = book::parse_reader("", source).lines;
  }

  std::vector<Refusal> run() {
    const std::string& text = stripped_.text;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view line = std::string_view(text).substr(at, end - at);
      const std::size_t first = line.find_first_not_of(" \t\r\f\v");
      if (first != std::string_view::npos) {
        if (line[first] == '#') directive(at, line.substr(first + 1));
        if (line.substr(first, 2) == "%:") directive(at, line.substr(first + 2));
        names(at, line);
      }
      at = end + 1;
    }
    return std::move(refusals_);
  }

 private:
  void refuse(std::size_t at, const std::string& what) {
    const int line = stripped_.line_of[at];
    if (line >= 1 && std::size_t(line) <= original_.size() && given_.contains(original_[std::size_t(line) - 1])) return;
    const bool known = std::any_of(refusals_.begin(), refusals_.end(),
                                   [&](const Refusal& r) { return r.line == line && r.what == what; });
    if (!known) refusals_.push_back({line, what});
  }

  void directive(std::size_t at, std::string_view rest) {
    const auto skip = [&](std::string_view& text) {
      const std::size_t from = text.find_first_not_of(" \t\r\f\v");
      text.remove_prefix(std::min(from, text.size()));
    };
    skip(rest);
    std::string name;
    while (!rest.empty() && is_name(rest[0])) {
      name += rest[0];
      rest.remove_prefix(1);
    }
    skip(rest);
    if (name == "include") {
      include(at, rest);
    } else if (name == "pragma") {
      const bool allowed = rest.starts_with("once") || rest.starts_with("unroll") || rest.starts_with("nounroll") ||
                           rest.starts_with("GCC unroll") || rest.starts_with("GCC ivdep");
      if (!allowed) refuse(at, fmt::format("#pragma {}", std::string(rest.substr(0, 40))));
    } else if (!name.empty() && !contains(std::array{"define", "undef", "if", "ifdef", "ifndef", "elif", "elifdef",
                                                     "elifndef", "else", "endif", "error", "warning"},
                                          name)) {
      refuse(at, fmt::format("#{}", name));  // #include_next, #embed, #import, #line, #ident, …
    }
  }

  void include(std::size_t at, std::string_view rest) {
    if (rest.size() < 2 || (rest[0] != '<' && rest[0] != '"')) {
      refuse(at, "an #include whose name is made by a macro");
      return;
    }
    const std::size_t end = rest.find(rest[0] == '<' ? '>' : '"', 1);
    const std::string path(rest.substr(1, end == std::string_view::npos ? end : end - 1));
    const bool beside =
        rest[0] == '"' && path.find('/') == std::string::npos && (path.ends_with(".hpp") || path.ends_with(".cuh"));
    if (beside || contains(kStandardHeaders, path) || contains(kBookHeaders, path)) return;
    refuse(at, fmt::format("#include {}: allowed are the C++ standard library and the chapter's own headers",
                           std::string(rest.substr(0, std::min<std::size_t>(rest.size(), 60)))));
  }

  void names(std::size_t at, std::string_view line) {
    for (std::size_t i = 0; i < line.size();) {
      if (line[i] == '#' && i + 1 < line.size() && line[i + 1] == '#') {
        refuse(at + i, "names pasted together (##)");
        i += 2;
        continue;
      }
      if (line.substr(i, 4) == "%:%:") refuse(at + i, "names pasted together (##)");
      if (!is_name(line[i])) {
        ++i;
        continue;
      }
      std::size_t end = i;
      while (end < line.size() && is_name(line[end])) ++end;
      const std::string name(line.substr(i, end - i));
      const std::string why = refused_name(name);
      if (!why.empty()) refuse(at + i, fmt::format("{} ({})", why, name));
      i = end;
    }
  }

  Stripped stripped_;
  std::set<std::string> given_;
  std::vector<std::string> original_;
  std::vector<Refusal> refusals_;
};

}  // namespace

std::vector<Refusal> screen_source(std::string_view source, std::string_view given) {
  return Screen(source, given).run();
}

}  // namespace workbook::grading
