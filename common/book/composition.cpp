#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <regex>
#include <set>

#include "common/book/markers.hpp"
#include "common/book/text.hpp"
#include "common/worker/hash.hpp"

namespace workbook::book {
namespace {

std::string line_directive(int line, std::string_view name) {
  std::string quoted;
  for (const char c : name) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return fmt::format("#line {} \"{}\"\n", line, quoted);
}

/// "4.4" -> "4_4".
std::string as_name(std::string id) {
  std::ranges::replace(id, '.', '_');
  return id;
}

/// Every name that follows "define" or "undef" in a text, in any context. A superset of the macros that the text
/// defines.
std::set<std::string> macros_in(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    text += line;
    if (text.ends_with('\\'))
      text.pop_back();
    else
      text += '\n';
  }
  // Where the next word begins after white space and comments at each position. From the end, so that the time is
  // linear whatever the text is.
  std::vector<std::size_t> next(text.size() + 2, text.size());
  std::size_t close = text.size(), later_close = close;  // the next */ from the next position, and from the one after
  for (std::size_t i = text.size(); i-- > 0;) {
    const std::string_view two = std::string_view(text).substr(i, 2);
    next[i] = std::isspace(static_cast<unsigned char>(text[i])) != 0 ? next[i + 1]
              : two == "/*"                                          ? next[std::min(later_close + 2, text.size())]
                                                                     : i;
    later_close = close;
    if (two == "*/") close = i;
  }
  const auto is_in_name = [&](std::size_t i) {
    const auto c = static_cast<unsigned char>(text[i]);
    return std::isalnum(c) != 0 || c == '_' || c == '$' || c >= 0x80;
  };
  std::set<std::string> names;
  for (const std::string_view directive : {"define", "undef"})
    for (std::size_t at = text.find(directive); at != text.npos; at = text.find(directive, at + 1)) {
      const std::size_t begin = next[at + directive.size()];
      std::size_t end = begin;
      while (end < text.size() && is_in_name(end)) ++end;
      if (end > begin && begin > at + directive.size() && std::isdigit(static_cast<unsigned char>(text[begin])) == 0)
        names.insert(text.substr(begin, end - begin));
    }
  return names;
}

/// The guards around a part of the reader's file.
struct Guard {
  std::string before, after, seen;  ///< seen: a macro that is defined after it
};

std::string guarded(const std::vector<std::string>& lines, int first_line, const std::string& name,
                    const Guard& guard) {
  return guard.before + line_directive(first_line, name) + join_lines(lines) +
         "\n" +  // a backslash at the end then continues this line only
         guard.after + "#define " + guard.seen + "\n";
}

/// A check at the file's end that the compiler has reached the code after a part.
std::string require_seen(const std::string& seen, const std::string& what) {
  return fmt::format(
      "#ifndef {}\n#error {}: a comment, a string literal or an #if that begins there does not end there\n#endif\n",
      seen, what);
}

Guard guard_of(const Region& region, std::string_view token) {
  Guard guard;
  const std::string name = fmt::format("exercise_{}_closes_what_it_opens_{}", as_name(region.id), token);
  for (const std::string& macro : macros_in(region.body)) {
    guard.before += fmt::format("#pragma push_macro(\"{}\")\n", macro);
    guard.after += fmt::format("#pragma pop_macro(\"{}\")\n", macro);
  }
  guard.before += fmt::format("struct {};\n", name);
  guard.after += fmt::format("static_assert(sizeof({}*) > 0);\n", name);
  guard.seen = name + "_seen";
  return guard;
}

constexpr std::size_t kLongest = 20000;  ///< maximum number of lines of a file in which additions are searched

/// For each line of `a` the index of the matching line of `b` in the longest common subsequence; -1: none.
std::vector<int> common_lines(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<std::vector<std::uint16_t>> length(a.size() + 1, std::vector<std::uint16_t>(b.size() + 1, 0));
  for (std::size_t i = a.size(); i-- > 0;)
    for (std::size_t j = b.size(); j-- > 0;)
      length[i][j] =
          a[i] == b[j] ? std::uint16_t(length[i + 1][j + 1] + 1) : std::max(length[i + 1][j], length[i][j + 1]);
  std::vector<int> found(a.size(), -1);
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i] == b[j])
      found[i++] = int(j++);
    else
      length[i + 1][j] >= length[i][j + 1] ? ++i : ++j;
  }
  return found;
}

/// The header that a line includes, if it does nothing else: "<time.h>".
std::string included_by(const std::string& line) {
  if (line.size() > 200) return "";  // a regular expression takes a stack frame for each character
  static const std::regex pattern(R"(\s*#\s*include\s*(<[A-Za-z0-9_][A-Za-z0-9_./+-]*>)\s*(//.*|/\*[^*]*\*/\s*)?)");
  std::smatch found;
  return std::regex_match(line, found, pattern) && found[1].str().find("..") == std::string::npos ? found[1].str() : "";
}

}  // namespace

std::string with_bodies(const MarkedFile& base, const MarkedFile& reader, const std::vector<std::string>& ids,
                        std::string_view token) {
  std::string text = line_directive(1, base.name), end;
  std::size_t written = 0;  // lines of the base
  const auto write_to = [&](int line) {
    for (; written < std::size_t(line); ++written) text += base.lines[written] + '\n';
  };
  for (const Region& hole : base.regions) {
    if (std::ranges::find(ids, hole.id) == ids.end()) continue;
    const Region* piece = reader.find(hole.id);
    if (piece == nullptr)
      throw MarkerError(reader.name, 1, "there is no region " + hole.id + ": its markers are missing");
    write_to(hole.begin_line);
    const Guard guard = guard_of(*piece, token);
    text += guarded(piece->body, piece->begin_line + 1, reader.name, guard);
    text += line_directive(hole.end_line, base.name);
    written = std::size_t(hole.end_line) - 1;
    end += require_seen(guard.seen, "exercise " + hole.id);
  }
  for (const std::string& id : ids)
    if (base.find(id) == nullptr) throw MarkerError(base.name, 1, "there is no region " + id);
  write_to(int(base.lines.size()));
  return text + end;
}

Additions additions_of(const MarkedFile& reader, const MarkedFile& given) {
  Additions additions;
  const std::vector<OutsideLine> mine = outside_lines(reader), theirs = outside_lines(given);
  if (mine.size() > kLongest || theirs.size() > kLongest) return additions;
  std::vector<std::string> a, b;
  for (const OutsideLine& line : mine) a.push_back(trimmed(std::string(line.text)));
  for (const OutsideLine& line : theirs) b.push_back(trimmed(std::string(line.text)));
  const std::vector<int> found = common_lines(a, b);
  std::size_t next = 0;  // index of the next given line
  for (std::size_t i = 0; i <= a.size();) {
    std::size_t end = i;
    while (end < a.size() && found[end] < 0) ++end;
    const std::size_t until = end < a.size() ? std::size_t(found[end]) : b.size();
    // Lines [i, end) replace the given lines [next, until).
    const bool changed = std::any_of(b.begin() + std::ptrdiff_t(next), b.begin() + std::ptrdiff_t(until),
                                     [](const std::string& line) { return !line.empty(); });
    if (changed && additions.changed_line == 0)
      additions.changed_line = i < mine.size() ? mine[i].number : int(reader.lines.size());
    Additions::Block block{until, i < mine.size() ? mine[i].number : 0, {}};
    bool any = false;
    for (std::size_t at = i; at < end; ++at) {
      const std::string header = included_by(std::string(mine[at].text));
      if (!header.empty()) additions.headers.push_back(header);
      any = any || (header.empty() && !a[at].empty());
      block.lines.emplace_back(header.empty() ? mine[at].text : "");
    }
    if (any && !changed) additions.blocks.push_back(std::move(block));
    next = until + 1;
    i = end + 1;
  }
  return additions;
}

std::string with_additions(const MarkedFile& given, const Additions& additions, const MarkedFile& reader,
                           std::string_view token) {
  std::string text, end;
  for (const std::string& header : additions.headers)
    text += fmt::format("#if __has_include({0})\n#include {0}\n#endif\n", header);
  text += line_directive(1, given.name);
  const std::vector<OutsideLine> outside = outside_lines(given);
  std::size_t block = 0, passed = 0;
  for (std::size_t line = 1; line <= given.lines.size() + 1; ++line) {
    const bool is_outside = passed < outside.size() && outside[passed].number == int(line);
    while (block < additions.blocks.size() && additions.blocks[block].after == passed &&
           (is_outside || line > given.lines.size())) {
      const Additions::Block& own = additions.blocks[block];
      // The hash makes names unique per file, since one source may include several files with additions.
      const std::string name = fmt::format("lines_between_functions_{}_{}_{}", worker::hash(given.name), block, token);
      const Guard guard{fmt::format("namespace {}_begin {{}}\n", name), fmt::format("namespace {}_end {{}}\n", name),
                        name + "_seen"};
      text += guarded(own.lines, own.line, reader.name, guard) + line_directive(int(line), given.name);
      end += require_seen(guard.seen, fmt::format("the lines added at line {}", own.line));
      ++block;
    }
    passed += is_outside;
    if (line <= given.lines.size()) text += given.lines[line - 1] + '\n';
  }
  return text + end;
}

}  // namespace workbook::book
