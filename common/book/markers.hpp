// Solution markers: finds the regions of a file, makes its stub, and inserts a reader's region into the solution.
//
//     // TODO(4.4) Rescale what this row has accumulated to the new maximum (about 3 lines).
//     // STUB: WORKBOOK_TODO(4.4);    <- optional: lines of the stub instead of WORKBOOK_TODO(4.4);
//     // STUB: return 0;                 one of them must be WORKBOOK_TODO(4.4), so that the stub counts as open, or
//                                        WORKBOOK_FIX(4.4), which has no effect: the other lines run and are wrong
//     // BEGIN 4.4
//     ...
//     // END 4.4
//
// Functions of text only: independent of files on disk, compilers and attention.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace workbook::book {

/// Invalid markers: what() is "FILE:LINE: message".
class MarkerError : public std::runtime_error {
 public:
  MarkerError(std::string file, int line, const std::string& message)
      : std::runtime_error(file + ":" + std::to_string(line) + ": " + message), file(std::move(file)), line(line) {}
  std::string file;
  int line;
};

/// One region. Lines are numbered from 1. The body is the lines between BEGIN and END, without these.
struct Region {
  /// Whether the exercise is a lab: its stub is a separate kernel that runs but is wrong.
  bool is_lab() const;

  std::string id;  ///< "4.4"
  int todo_line = 0, begin_line = 0, end_line = 0;
  std::string todo;                     ///< the text after TODO(4.4), continuation comment lines joined by spaces
  std::string indent;                   ///< white space before // BEGIN
  std::vector<std::string> stub_lines;  ///< from // STUB: lines; empty: WORKBOOK_TODO(id);
  std::vector<std::string> body;        ///< lines without their ends
};

/// What makes a text unreadable as source: another encoding, other line ends, or a conflict that git has left in it.
struct Damage {
  int first_line = 0, last_line = 0;  ///< 0: the whole file
  std::string text;                   ///< what it is, and what to do
};

/// A file split into lines, with its regions in order.
struct MarkedFile {
  std::string name;                ///< for messages and #line
  std::vector<std::string> lines;  ///< without their ends
  std::vector<std::string> ends;   ///< of each line: "\n", "\r\n", or "" for a last line without one
  bool byte_order_mark = false;
  std::vector<Region> regions;
  std::vector<Damage> damages;  ///< of a reader's file, in order
  const Region* find(std::string_view id) const;
  /// What damages a region, or makes it impossible to find one: the first damage of the whole file or within the
  /// region; of a region that is not there, the first damage. nullptr: none.
  const Damage* damage_of(std::string_view id) const;
  /// The first damage outside the regions, which damages none of them, but the file does not compile; nullptr: none.
  const Damage* damage_outside() const;
  /// The damage for a message: "FILE:LINE: TEXT".
  std::string message(const Damage& damage) const;
};

/// Parses a file. MarkerError for: BEGIN without END, END without BEGIN, nested regions, END of another id, a repeated
/// id, BEGIN without its TODO line, TODO without BEGIN, an id that is not N.M. CRLF line ends and a leading byte-order
/// mark are accepted and are not part of the lines. Only lines that consist of white space and a // marker are markers.
/// Comments such as "// TODO(anna) …" or "// END of the loop", /* */ and string literals are not.
MarkedFile parse_marked(std::string name, std::string_view text);

/// Parses a reader's file, which may be damaged. Returns the regions with both BEGIN and END, even if other regions are
/// broken, so that one lost marker affects only one exercise. A TODO line may be missing (todo_line is then
/// begin_line). A marker without a line of its own may be at the end of a comment, where clang-format joins it to the
/// TODO. Also finds what damages the file as a whole. Never throws MarkerError.
MarkedFile parse_reader(std::string name, std::string_view text);

/// The body of a region in the stub: WORKBOOK_TODO(id); or its stub lines, indented like BEGIN.
std::vector<std::string> stub_body(const Region& region);

/// The stub: keeps TODO, BEGIN and END lines, drops STUB lines, and replaces each body by stub_body. MarkerError if a
/// stub body is not open, since the unsolved exercise would count as solved.
std::string make_stub(const MarkedFile& solution);

/// C++ without comments, with string and character literals replaced by "". Lines are kept.
std::string code_of(std::string text);
/// C++ with spaces for comments and literals: every other character keeps its position.
std::string code_at_its_positions(std::string text);

/// Whether the region is unsolved: its body contains WORKBOOK_TODO( or WORKBOOK_FIX( outside comments, or only
/// comments and white space.
bool is_open(const Region& region);

/// `base` with the bodies of the regions `ids` from `reader`. #line directives make the compiler report the reader's
/// file and line within a region and the base's outside. Guards around each body make the compiler check that the body
/// is self-contained: a type declared before it is used after it, its macros are undone, and the file's end tests a
/// macro defined after it. `token` is part of the guards' names; grading uses an unpredictable one, so that a body
/// cannot use them. MarkerError if a region is not in both.
std::string with_bodies(const MarkedFile& base, const MarkedFile& reader, const std::vector<std::string>& ids,
                        std::string_view token = "reader");

/// The reader's additions between given lines: headers and functions.
struct Additions {
  struct Block {
    std::size_t after;  ///< number of given lines (outside_regions) before it
    int line;           ///< its first line in the reader's file
    std::vector<std::string> lines;
  };
  std::vector<std::string> headers;  ///< "<time.h>", from lines that contain only the #include
  std::vector<Block> blocks;
  int changed_line = 0;  ///< line in the reader's file of the first missing or changed given line; 0: none
};
Additions additions_of(const MarkedFile& reader, const MarkedFile& given);

/// `given` with these additions at their positions, each between guards that compile only between functions. Existing
/// headers are included first.
std::string with_additions(const MarkedFile& given, const Additions& additions, const MarkedFile& reader,
                           std::string_view token);

/// The file with region `id`'s body replaced by `body`, with the line ends of the BEGIN line. Everything else stays
/// byte-identical (reset, gates, mutants). MarkerError if the region does not exist.
std::string replace_body(const MarkedFile& file, std::string_view id, const std::vector<std::string>& body);

/// One line outside the regions' bodies, in the form for comparison: without white space after a marker.
struct OutsideLine {
  int number;  ///< from 1
  std::string_view text;
};
std::vector<OutsideLine> outside_lines(const MarkedFile& file);

/// The text without the regions' bodies, but with their marker lines: the part that must not change. STUB lines, line
/// ends and white space after a marker are ignored. Equal for a solution, its stub, and the solved stub.
std::string outside_regions(const MarkedFile& file);

/// The line of `file` where outside_regions(file) first differs from outside_regions(other); 0 if they are equal.
int first_difference(const MarkedFile& file, const MarkedFile& other);

/// The lines, each terminated by LF, without a byte-order mark.
std::string join_lines(const std::vector<std::string>& lines);

}  // namespace workbook::book
