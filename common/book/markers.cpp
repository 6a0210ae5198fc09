#include "common/book/markers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

namespace workbook::book {

namespace {

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
constexpr std::string_view white_space = " \t\v\f\r";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

std::string_view trim_left(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(white_space), text.size()));
}
std::string_view trim_right(std::string_view text) {
  return text.substr(0, text.find_last_not_of(white_space) + 1);
}
std::string_view trim(std::string_view text) {
  return trim_left(trim_right(text));
}

/// N or M of an id: digits without a leading zero.
bool is_number(std::string_view text) {
  return !text.empty() && text[0] != '0' && std::all_of(text.begin(), text.end(), is_digit);
}

bool is_id(std::string_view text) {
  const std::size_t point = text.find('.');
  return point != std::string_view::npos && is_number(text.substr(0, point)) && is_number(text.substr(point + 1));
}

enum class Kind { none, todo, stub, begin, end };

/// The kind of a line: a marker with its intended id, or none.
struct Marker {
  Kind kind = Kind::none;
  std::string id;    ///< as written; may be invalid
  std::string text;  ///< after TODO(id) or STUB:

  /// Whether an id was intended: "// END 4.4", not "// END loop".
  bool numbered() const { return !id.empty() && is_digit(id[0]); }
};

Marker read_marker(std::string_view line) {
  std::string_view text = trim(line);
  if (!text.starts_with("//")) return {};
  text = trim_left(text.substr(2));
  if (text.starts_with("STUB:")) {
    text.remove_prefix(5);
    if (text.starts_with(' ')) text.remove_prefix(1);
    return {Kind::stub, "", std::string(text)};
  }
  if (text.starts_with("TODO(")) {
    const std::size_t close = text.find(')');
    if (close == std::string_view::npos) return {};
    Marker marker{Kind::todo, std::string(text.substr(5, close - 5)), ""};
    if (!marker.numbered()) return {};  // TODO(name) is a common way to sign a comment
    std::string_view rest = text.substr(close + 1);
    if (rest.starts_with(':')) rest.remove_prefix(1);
    marker.text = trim(rest);
    return marker;
  }
  for (const auto& [word, kind] : {std::pair<std::string_view, Kind>("BEGIN", Kind::begin), {"END", Kind::end}}) {
    if (!text.starts_with(word)) continue;
    const std::string_view rest = text.substr(word.size());
    if (!rest.empty() && white_space.find(rest[0]) == std::string_view::npos) return {};
    Marker marker{kind, std::string(trim_left(rest)), ""};
    const bool prose = marker.id.find_first_of(white_space) != std::string::npos && !marker.numbered();
    return prose ? Marker{} : marker;
  }
  return {};
}

/// A marker that a formatter has joined to the comments around it: "// is for (about 3 lines). BEGIN 4.2 My idea:".
Marker joined_marker(std::string_view line) {
  line = trim(line);
  if (!line.starts_with("//")) return {};
  for (const auto& [word, kind] : {std::pair<std::string_view, Kind>(" BEGIN ", Kind::begin), {" END ", Kind::end}})
    for (std::size_t at = line.find(word); at != line.npos; at = line.find(word, at + 1)) {
      const std::string_view rest = line.substr(at + word.size()), id = rest.substr(0, rest.find(' '));
      if (is_id(id)) return {kind, std::string(id), ""};
    }
  return {};
}
/// A comment and the next one, if the line ends between a marker's word and its id.
std::string around_line_end(std::string_view line, std::string_view next) {
  line = trim(line), next = trim(next);
  const bool within = line.ends_with(" BEGIN") || line.ends_with(" END");
  return within && next.starts_with("//") ? fmt::format("{} {}", line, trim_left(next.substr(2))) : "";
}

MarkedFile split(std::string name, std::string_view text) {
  MarkedFile file;
  file.name = std::move(name);
  file.byte_order_mark = text.starts_with(byte_order_mark);
  if (file.byte_order_mark) text.remove_prefix(byte_order_mark.size());
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    std::string_view line = text.substr(0, newline), end;
    if (newline != std::string_view::npos) end = line.ends_with('\r') ? "\r\n" : "\n";
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (newline == std::string_view::npos && line.size() < text.size()) end = "\r";
    file.lines.emplace_back(line);
    file.ends.emplace_back(end);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
  }
  return file;
}

/// Whether git writes such a line before or after a side of a conflict. ======= alone could be a heading.
bool is_conflict_marker(std::string_view line) {
  for (const std::string_view marker : {"<<<<<<<", "|||||||", ">>>>>>>"}) {
    if (line.starts_with(marker) && (line.size() == marker.size() || line[marker.size()] == ' ')) return true;
  }
  return false;
}

/// The damages of a text, which `lines` are the lines of.
std::vector<Damage> damages_of(std::string_view text, const std::vector<std::string>& lines) {
  if (text.empty()) return {};
  for (const std::string_view wide : {std::string_view("\xFF\xFE\0\0", 4), std::string_view("\0\0\xFE\xFF", 4)})
    if (text.starts_with(wide)) return {{0, 0, "the file is encoded in UTF-32: save it as UTF-8"}};
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    return {{0, 0, "the file is encoded in UTF-16: save it as UTF-8"}};
  if (text.find('\n') == std::string_view::npos && text.find('\r') < text.size() - 1)
    return {{0, 0, "the lines end in CR alone, as on old Macs: save the file with line ends of LF or CRLF"}};
  std::vector<Damage> damages;
  for (int number = 1; number <= static_cast<int>(lines.size()); ++number) {
    const std::string_view line = lines[std::size_t(number) - 1];
    if (line.find('\0') != std::string_view::npos)
      return {{number, number, "this line contains a NUL byte: save the file as text in UTF-8"}};
    if (!is_conflict_marker(line)) continue;
    const bool continues = !damages.empty() && !line.starts_with('<');
    if (continues)
      damages.back().last_line = number;
    else
      damages.push_back({number, number,
                         "this line is a conflict marker of git: keep the lines of one side, and delete the lines that "
                         "begin with <<<<<<<, =======, >>>>>>>"});
  }
  return damages;
}

std::string_view indent_of(std::string_view line) {
  return line.substr(0, line.find_first_not_of(white_space));
}

/// Parses a file's markers line by line. Strict: errors say what was expected.
class Parser {
 public:
  explicit Parser(MarkedFile& file) : file_(file) {}

  void parse() {
    for (line_ = 1; line_ <= static_cast<int>(file_.lines.size()); ++line_) {
      const std::string& text = file_.lines[line_ - 1];
      const Marker marker = read_marker(text);
      if (state_ == State::body) {
        in_body(marker, text);
      } else {
        outside(marker, text);
      }
    }
    if (state_ == State::todo) no_begin();
    if (state_ == State::body) fail(region_.begin_line, "BEGIN {0} without END {0}", region_.id);
  }

 private:
  enum class State { outside, todo, body };  // todo: between a TODO line and its BEGIN

  template <class... Args>
  [[noreturn]] void fail(int line, fmt::format_string<Args...> format, Args&&... args) const {
    throw MarkerError(file_.name, line, fmt::format(format, std::forward<Args>(args)...));
  }

  [[noreturn]] void no_begin() const { fail(region_.todo_line, "TODO({0}) without BEGIN {0}", region_.id); }

  void check_id(const Marker& marker) const {
    if (is_id(marker.id)) return;
    fail(line_, "\"{}\" is not an exercise id: N.M, such as 4.2", marker.id);
  }

  void in_body(const Marker& marker, const std::string& text) {
    const bool ends_or_begins = marker.kind == Kind::begin || marker.kind == Kind::end;
    if (!ends_or_begins || !marker.numbered()) {
      region_.body.push_back(text);
      return;
    }
    check_id(marker);
    if (marker.kind == Kind::begin) {
      fail(line_, "BEGIN {} within region {}, which began on line {} and has no END yet", marker.id, region_.id,
           region_.begin_line);
    }
    if (marker.id != region_.id) {
      fail(line_, "END {} instead of END {} (BEGIN on line {})", marker.id, region_.id, region_.begin_line);
    }
    region_.end_line = line_;
    file_.regions.push_back(std::move(region_));
    state_ = State::outside;
  }

  void outside(const Marker& marker, const std::string& text) {
    switch (marker.kind) {
      case Kind::none:
        plain(text);
        break;
      case Kind::todo:
        todo(marker);
        break;
      case Kind::stub:
        stub(marker);
        break;
      case Kind::begin:
        begin(marker, text);
        break;
      case Kind::end:
        check_id(marker);
        fail(line_, "END {0} without BEGIN {0}", marker.id);
    }
  }

  void plain(std::string_view text) {
    if (state_ != State::todo) return;
    text = trim(text);
    if (text.empty()) return;
    if (!text.starts_with("//")) no_begin();
    text = trim(text.substr(2));
    if (text.empty()) return;
    if (!region_.todo.empty()) region_.todo += ' ';
    region_.todo += text;
  }

  void todo(const Marker& marker) {
    if (state_ == State::todo) no_begin();
    check_id(marker);
    if (const Region* first = file_.find(marker.id)) {
      fail(line_, "region {} is given twice, first on line {}", marker.id, first->todo_line);
    }
    region_ = Region{};
    region_.id = marker.id;
    region_.todo_line = line_;
    region_.todo = marker.text;
    state_ = State::todo;
  }

  void stub(const Marker& marker) {
    if (state_ != State::todo) fail(line_, "STUB: without a TODO(N.M) line before it");
    region_.stub_lines.push_back(marker.text);
  }

  void begin(const Marker& marker, std::string_view text) {
    check_id(marker);
    if (state_ != State::todo) fail(line_, "BEGIN {0} without its TODO({0}) line", marker.id);
    if (marker.id != region_.id) fail(line_, "BEGIN {} instead of BEGIN {}", marker.id, region_.id);
    region_.begin_line = line_;
    region_.indent = indent_of(text);
    state_ = State::body;
  }

  MarkedFile& file_;
  int line_ = 0;
  State state_ = State::outside;
  Region region_;  ///< the one being read, if not outside
};

class CodeReader {
 public:
  /// keep_positions: what is removed becomes spaces, so that every other character keeps its position.
  explicit CodeReader(std::string text, bool keep_positions)
      : text_(std::move(text)), keep_positions_(keep_positions) {}

  std::string read() {
    while (at_ < text_.size()) {
      if (starts("//")) {
        skip_line_comment();
      } else if (starts("/*")) {
        add(" ");
        skip_to(after("*/", at_ + 2));
      } else if (text_[at_] == '"' && is_raw()) {
        skip_raw_string();
      } else if (text_[at_] == '"' || (text_[at_] == '\'' && !is_digit_separator())) {
        skip_literal(text_[at_]);
      } else {
        code_ += text_[at_++];
      }
    }
    return std::move(code_);
  }

 private:
  bool starts(std::string_view what) const { return std::string_view(text_).substr(at_).starts_with(what); }

  std::size_t after(std::string_view what, std::size_t from) const {
    const std::size_t found = text_.find(what, from);
    return found == std::string::npos ? text_.size() : found + what.size();
  }

  /// The last word of the code read so far.
  std::string_view last_word() const {
    std::size_t start = code_.size();
    while (start > 0 && (is_word(code_[start - 1]) || code_[start - 1] == '\'')) --start;
    return std::string_view(code_).substr(start);
  }

  bool is_raw() const {
    const std::string_view word = last_word();
    return word == "R" || word == "u8R" || word == "uR" || word == "UR" || word == "LR";
  }

  bool is_digit_separator() const { return !last_word().empty() && is_digit(last_word()[0]); }

  /// Adds what stands for removed text.
  void add(std::string_view placeholder) {
    if (!keep_positions_) code_ += placeholder;
  }

  /// Skips text but keeps its line ends.
  void skip_to(std::size_t end) {
    for (; at_ < end; ++at_) {
      if (text_[at_] == '\n')
        code_ += '\n';
      else if (keep_positions_)
        code_ += ' ';
    }
  }

  void skip_line_comment() {
    do {
      skip_to(after("\n", at_));
    } while (at_ < text_.size() && at_ >= 2 && text_[at_ - 2] == '\\');  // a backslash continues the comment
  }

  void skip_raw_string() {
    const std::size_t open = text_.find('(', at_);
    add("\"\"");
    skip_to(open == std::string::npos ? text_.size() : after(")" + text_.substr(at_ + 1, open - at_ - 1) + "\"", open));
  }

  void skip_literal(char quote) {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote && text_[end] != '\n') end += text_[end] == '\\' ? 2 : 1;
    if (end < text_.size() && text_[end] == quote) ++end;
    add("\"\"");
    skip_to(std::min(end, text_.size()));
  }

  std::string text_, code_;
  bool keep_positions_;
  std::size_t at_ = 0;
};

const Region& must_find(const MarkedFile& file, std::string_view id) {
  if (const Region* region = file.find(id)) return *region;
  throw MarkerError(file.name, 1, fmt::format("there is no region {}: its markers are missing", id));
}

void append_lines(std::string& text, const std::vector<std::string>& lines, std::size_t from, std::size_t to) {
  for (std::size_t i = from; i < to; ++i) text += lines[i] + '\n';
}

}  // namespace

std::vector<OutsideLine> outside_lines(const MarkedFile& file) {
  std::vector<OutsideLine> outside;
  auto region = file.regions.begin();
  for (int number = 1; number <= static_cast<int>(file.lines.size()); ++number) {
    while (region != file.regions.end() && number > region->end_line) ++region;
    const bool in_region = region != file.regions.end() && number >= region->todo_line;
    const std::string_view text = file.lines[number - 1];
    if (in_region && number > region->begin_line && number < region->end_line) continue;
    const Kind kind = read_marker(text).kind;
    if (in_region && number < region->begin_line && kind == Kind::stub) continue;
    outside.push_back({number, kind == Kind::none ? text : trim_right(text)});
  }
  return outside;
}

const Region* MarkedFile::find(std::string_view id) const {
  const auto found =
      std::find_if(regions.begin(), regions.end(), [&](const Region& region) { return region.id == id; });
  return found == regions.end() ? nullptr : &*found;
}

namespace {
/// Whether a damage is of the whole file, or touches the region.
bool touches(const Damage& damage, const Region& region) {
  return damage.first_line == 0 || (damage.first_line <= region.end_line && damage.last_line >= region.todo_line);
}
}  // namespace

const Damage* MarkedFile::damage_of(std::string_view id) const {
  const Region* const region = find(id);
  const auto found = std::ranges::find_if(
      damages, [&](const Damage& damage) { return region == nullptr || touches(damage, *region); });
  return found == damages.end() ? nullptr : &*found;
}

const Damage* MarkedFile::damage_outside() const {
  const auto found = std::ranges::find_if(damages, [&](const Damage& damage) {
    return std::ranges::none_of(regions, [&](const Region& region) { return touches(damage, region); });
  });
  return found == damages.end() ? nullptr : &*found;
}

std::string MarkedFile::message(const Damage& damage) const {
  const std::string place = damage.first_line == 0 ? name : fmt::format("{}:{}", name, damage.first_line);
  return place + ": " + damage.text;
}

MarkedFile parse_marked(std::string name, std::string_view text) {
  MarkedFile file = split(std::move(name), text);
  Parser(file).parse();
  return file;
}

MarkedFile parse_reader(std::string name, std::string_view text) {
  MarkedFile file = split(std::move(name), text);
  file.damages = damages_of(text, file.lines);
  std::optional<Region> open;
  int todo_line = 0;  // line of the last TODO since the last region
  std::string todo_id;
  std::set<std::string> begun, repeated;
  std::set<std::pair<Kind, std::string>> alone;  // markers on lines of their own, which prevail over joined ones
  for (const std::string& line : file.lines)
    if (const Marker marker = read_marker(line); is_id(marker.id)) alone.insert({marker.kind, marker.id});
  for (int number = 1; number <= static_cast<int>(file.lines.size()); ++number) {
    const std::string& line = file.lines[number - 1];
    Marker marker = read_marker(line);
    Marker joined = joined_marker(line);
    const bool last = number == static_cast<int>(file.lines.size());
    const int todo = number;
    if (joined.kind == Kind::none && !last) {
      joined = joined_marker(around_line_end(line, file.lines[number]));
      if (joined.kind == Kind::begin && !alone.contains({joined.kind, joined.id})) ++number;  // the line with the id
    }
    if (joined.kind != Kind::none && !alone.contains({joined.kind, joined.id})) {
      if (marker.kind == Kind::todo) todo_line = todo, todo_id = marker.id;
      marker = joined;
    }
    if (!is_id(marker.id)) continue;
    if (marker.kind == Kind::todo && (!open || open->id != marker.id)) {
      todo_line = number;
      todo_id = marker.id;
    } else if (marker.kind == Kind::begin) {
      if (!begun.insert(marker.id).second) repeated.insert(marker.id);
      open = Region{};
      open->id = marker.id;
      open->begin_line = number;
      open->todo_line = todo_id == marker.id ? todo_line : number;
      open->indent = indent_of(line);
      todo_id.clear();
    } else if (marker.kind == Kind::end) {
      if (open && open->id == marker.id) {
        open->end_line = number;
        open->body.assign(file.lines.begin() + open->begin_line, file.lines.begin() + number - 1);
        file.regions.push_back(std::move(*open));
      }
      open.reset();
    }
  }
  std::erase_if(file.regions, [&](const Region& region) { return repeated.contains(region.id); });
  return file;
}

bool Region::is_lab() const {
  return std::ranges::any_of(stub_lines,
                             [](const std::string& line) { return line.find("WORKBOOK_FIX(") != std::string::npos; });
}

std::vector<std::string> stub_body(const Region& region) {
  if (region.stub_lines.empty()) return {fmt::format("{}WORKBOOK_TODO({});", region.indent, region.id)};
  std::vector<std::string> body;
  for (const std::string& line : region.stub_lines) body.push_back(line.empty() ? "" : region.indent + line);
  return body;
}

std::string make_stub(const MarkedFile& solution) {
  std::string text;
  std::size_t done = 0;  // lines already copied or skipped
  for (const Region& region : solution.regions) {
    append_lines(text, solution.lines, done, region.todo_line);
    for (int i = region.todo_line; i < region.begin_line; ++i) {
      if (read_marker(solution.lines[i]).kind != Kind::stub) text += solution.lines[i] + '\n';
    }
    Region stub = region;
    stub.body = stub_body(region);
    if (!is_open(stub)) {
      throw MarkerError(solution.name, region.todo_line,
                        fmt::format("the STUB lines of {0} need WORKBOOK_TODO({0}) or WORKBOOK_FIX({0}); otherwise "
                                    "the open exercise would count as solved",
                                    region.id));
    }
    text += join_lines(stub.body);
    done = region.end_line - 1;
  }
  append_lines(text, solution.lines, done, solution.lines.size());
  return text;
}

std::string code_of(std::string text) {
  return CodeReader(std::move(text), false).read();
}
std::string code_at_its_positions(std::string text) {
  return CodeReader(std::move(text), true).read();
}

bool is_open(const Region& region) {
  const std::string code = code_of(join_lines(region.body));
  if (code.find_first_not_of(" \t\v\f\r\n") == std::string::npos) return true;
  for (const std::string_view todo : {"WORKBOOK_TODO", "WORKBOOK_FIX"}) {
    for (std::size_t at = code.find(todo); at != std::string::npos; at = code.find(todo, at + 1)) {
      if (at > 0 && is_word(code[at - 1])) continue;
      const std::size_t next = code.find_first_not_of(" \t\v\f\r\n", at + todo.size());
      if (next != std::string::npos && code[next] == '(') return true;
    }
  }
  return false;
}

std::string replace_body(const MarkedFile& file, std::string_view id, const std::vector<std::string>& body) {
  const Region& region = must_find(file, id);
  std::string text(file.byte_order_mark ? byte_order_mark : "");
  for (int i = 0; i < region.begin_line; ++i) text += file.lines[i] + file.ends[i];
  for (const std::string& line : body) text += line + file.ends[region.begin_line - 1];
  for (std::size_t i = region.end_line - 1; i < file.lines.size(); ++i) text += file.lines[i] + file.ends[i];
  return text;
}

std::string outside_regions(const MarkedFile& file) {
  std::string text;
  for (const OutsideLine& line : outside_lines(file)) text.append(line.text) += '\n';
  return text;
}

int first_difference(const MarkedFile& file, const MarkedFile& other) {
  const std::vector<OutsideLine> mine = outside_lines(file), theirs = outside_lines(other);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    if (i == theirs.size() || mine[i].text != theirs[i].text) return mine[i].number;
  }
  if (mine.size() == theirs.size()) return 0;
  return std::max<int>(1, static_cast<int>(file.lines.size()));  // the rest is missing: the file's last line
}

std::string join_lines(const std::vector<std::string>& lines) {
  std::string text;
  append_lines(text, lines, 0, lines.size());
  return text;
}

}  // namespace workbook::book
