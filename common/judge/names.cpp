#include "common/judge/names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <optional>

#include "common/book/text.hpp"

namespace workbook::judge {
namespace {

/// Names, and beginnings of names, with the reason for their refusal.
struct Rule {
  std::string_view why, names, beginnings;
};
constexpr std::array kRules{
    Rule{"inline assembly", "asm __asm __asm__", ""},
    Rule{"the simulator's internals", "cuda_on_sim worker_device", ""},
    Rule{"the simulator's callbacks", "", "__tsan_ __asan_ __ubsan_ __sanitizer_ __interceptor_"},
    Rule{"an attribute that hides code from the simulator",
         "disable_sanitizer_instrumentation no_instrument_function __no_instrument_function__",
         "no_sanitize __no_sanitize"},
    Rule{"an access that the simulator does not record", "__builtin_bcopy __builtin_bzero __builtin_va_arg",
         "__builtin_mem __builtin___mem __builtin_st __builtin_ia32_"},
    Rule{"a construct outside standard C++",
         "__builtin_constant_p __builtin_object_size __builtin_dynamic_object_size __builtin_return_address "
         "__builtin_frame_address syscall redefine_extname",
         "__builtin_apply _Z __libc_"}};

/// Begins the name that stands for the book's own lines of a stage or of operations, and of the headers that it reads.
constexpr std::string_view kGiven = "#given ";
constexpr std::size_t kLongestShown = 60;  ///< bytes of a name

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' ||
         static_cast<unsigned char>(c) >= 128;
}

/// The position in the preprocessed text. A line `# 31 "…/x.cu" 1` marks the beginning of an included file.
struct Position {
  std::string_view file;
  int line = 0;
  bool begins = false;  ///< the file is included here

  /// The location in a chapter's file; empty in any other file.
  std::string location() const { return file.starts_with("chapters/") ? fmt::format("{}:{}", file, line) : ""; }
};
std::optional<Position> parse_line_marker(std::string_view line) {
  const std::size_t begin = line.find('"'), end = line.rfind('"');
  if (!line.starts_with("# ") || begin == line.npos || end <= begin) return {};
  return Position{line.substr(begin + 1, end - begin - 1), std::atoi(line.data() + 2),
                  line.find('1', end) != line.npos};
}

/// Counts one occurrence of a name at this position.
void count(NameCounts& counts, const std::string& name, const Position& here) {
  NameCount& found = counts[name];
  ++found.count;
  if (found.location.empty()) found.location = here.location();
}

}  // namespace

bool is_answer(const std::filesystem::path& source) {
  return source.stem() != "stage" && source.stem() != "operations";
}

std::string why_refused(std::string_view name) {
  if (name.starts_with(kGiven)) return "a macro of an answer changes it";
  if (name.starts_with("#")) return "a source file with the answers to other exercises";
  const auto rule = std::ranges::find_if(
      kRules, [&](const Rule& r) { return book::is_one_of(r.names, name) || book::begins_with(r.beginnings, name); });
  return rule == kRules.end() ? "" : std::string(rule->why);
}

NameCounts refused_names(std::string_view preprocessed) {
  NameCounts counts;
  std::map<std::string, bool, std::less<>> known;  // most names occur many times
  Position here;
  const auto first = parse_line_marker(preprocessed.substr(0, preprocessed.find('\n')));
  std::string given(kGiven);
  std::size_t begin = 0;
  const auto end_lines = [&](std::size_t end) {
    if (!is_answer(here.file) || here.file.starts_with("common/") || here.file.starts_with("tests/"))
      given += preprocessed.substr(begin, end - begin);
  };
  for (std::size_t i = 0; i < preprocessed.size();) {
    if (preprocessed[i] == '#' && (i == 0 || preprocessed[i - 1] == '\n')) {
      const std::size_t end = std::min(preprocessed.size(), preprocessed.find('\n', i));
      if (const auto marker = parse_line_marker(preprocessed.substr(i, end - i))) {
        if (marker->begins && (marker->file.ends_with(".cu") || marker->file.ends_with(".cpp")))
          count(counts, fmt::format("#include {}", marker->file.substr(marker->file.rfind('/') + 1)), here);
        end_lines(i);
        here = *marker;
        begin = end;
        --here.line;  // it gives the number of the next line
        i = end;
      }
    }
    if (i < preprocessed.size() && !is_word(preprocessed[i])) here.line += preprocessed[i++] == '\n';
    if (i >= preprocessed.size() || !is_word(preprocessed[i])) continue;
    std::size_t end = i;
    while (end < preprocessed.size() && is_word(preprocessed[end])) ++end;
    const std::string_view name = preprocessed.substr(i, std::min(kLongestShown, end - i));
    i = end;
    auto found = known.find(name);
    if (found == known.end()) found = known.emplace(name, !why_refused(name).empty()).first;
    if (found->second) count(counts, std::string(name), here);
  }
  end_lines(preprocessed.size());
  if (first && !is_answer(first->file)) counts[given] = {1, ""};
  return counts;
}

std::vector<Refusal> more_than(const NameCounts& own, const NameCounts& book) {
  std::vector<Refusal> more;
  for (const auto& [name, mine] : own) {
    const auto found = book.find(name);
    const NameCount books = found == book.end() ? NameCount{} : found->second;
    const std::string shown = name.starts_with(kGiven)        ? "changes given code"
                              : name.starts_with("#include ") ? "includes " + name.substr(9, kLongestShown)
                                                              : "uses " + name;
    if (mine.count > books.count)
      more.push_back({fmt::format("{} ({})", shown, why_refused(name)), books.location.empty() ? mine.location : ""});
  }
  return more;
}

}  // namespace workbook::judge
