// Solution markers: finding the regions of a file, making its stub, and putting one reader's region into the solution.
//
//     // TODO(4.4) Rescale what this row has accumulated to the new maximum (about 3 lines).
//     // STUB: WORKBOOK_TODO(4.4);    <- optional: lines that stand in the stub in place of WORKBOOK_TODO(4.4);
//     // STUB: return 0;                 one of them must be WORKBOOK_TODO(4.4), so that the stub counts as open; or
//                                        WORKBOOK_MEND(4.4), which does nothing: the other lines run, and are wrong
//     // BEGIN 4.4
//     ...
//     // END 4.4
//
// Text in, text out: knows nothing of files on disk, of compilers, of attention.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace workbook::book {

/// Markers that do not fit: what() is "FILE:LINE: what is wrong".
class MarkerError : public std::runtime_error {
 public:
  MarkerError(std::string file, int line, const std::string& message)
      : std::runtime_error(file + ":" + std::to_string(line) + ": " + message), file(std::move(file)), line(line) {}
  std::string file;
  int line;
};

/// One region. Lines are numbered from 1; the body is what lies strictly between BEGIN and END.
struct Region {
  /// A lab: the reader finds code that runs and is wrong, in a kernel of its own.
  bool is_lab() const;

  std::string id;  ///< "4.4"
  int todo_line = 0, begin_line = 0, end_line = 0;
  std::string todo;                     ///< the text after TODO(4.4), continuation comment lines joined by spaces
  std::string indent;                   ///< white space before // BEGIN
  std::vector<std::string> stub_lines;  ///< from // STUB: lines; empty: WORKBOOK_TODO(id);
  std::vector<std::string> body;        ///< lines without their ends
};

/// A file split into lines, with its regions in order.
struct MarkedFile {
  std::string name;                ///< for messages and #line
  std::vector<std::string> lines;  ///< without their ends
  std::vector<std::string> ends;   ///< of each line: "\n", "\r\n", or "" for a last line without one
  bool byte_order_mark = false;
  std::vector<Region> regions;
  const Region* find(std::string_view id) const;
};

/// Parses a file. MarkerError for: BEGIN without END, END without BEGIN, nested regions, END of another id, an id
/// twice, BEGIN without its TODO line, TODO without BEGIN, an id that is not N.M. CRLF line ends and a leading
/// byte-order mark are accepted and no part of the lines. Both /* */ and string literals are left alone: only lines
/// that consist of white space and a // marker count, and comments such as "// TODO(anna) …" or "// END of the loop"
/// are no markers.
MarkedFile parse_marked(std::string name, std::string_view text);

/// Parses a reader's file, in which anything may have happened: the regions whose BEGIN and END are whole, however
/// broken the others are, so that one lost marker costs one exercise. A TODO line may be gone (todo_line is then
/// begin_line). Never throws MarkerError.
MarkedFile parse_reader(std::string name, std::string_view text);

/// What a region's body is in the stub: WORKBOOK_TODO(id); or its stub lines, indented like BEGIN.
std::vector<std::string> stub_body(const Region& region);

/// The stub: TODO, BEGIN and END lines kept, STUB lines dropped, each body replaced by stub_body. MarkerError if a stub
/// body is not open: an unsolved exercise would count as solved.
std::string make_stub(const MarkedFile& solution);

/// C++ without comments and without what stands in texts and characters, which are "" here; its lines stay.
std::string code_of(std::string text);

/// True if the region still asks for work: its body contains WORKBOOK_TODO( or WORKBOOK_MEND( outside comments, or
/// nothing but comments and white space.
bool is_open(const Region& region);

/// `base` with the bodies of the regions `ids` taken from `reader`, with #line directives so that the compiler names
/// the reader's file and line within a region and the base's outside. Each body stands between guards, so that it is
/// the compiler that says whether it stays in its place: a type declared before it is named after it, macros that it
/// defines are taken back, and the file's end asks for what was defined behind it. `token` is part of their names: what
/// a body must not be able to name has one that nobody can foresee. MarkerError if a region is not in both.
std::string with_bodies(const MarkedFile& base, const MarkedFile& reader, const std::vector<std::string>& ids,
                        std::string_view token = "reader");

/// What a reader has written between the lines that were given: headers, functions of one's own.
struct Additions {
  struct Block {
    std::size_t after;  ///< so many given lines (outside_regions) stand before it
    int line;           ///< of the reader's file, where it begins
    std::vector<std::string> lines;
  };
  std::vector<std::string> headers;  ///< "<time.h>", from lines that include nothing else
  std::vector<Block> blocks;
  int changed_line = 0;  ///< the first given line that is gone, or stands otherwise: where, in the reader's file; or 0
};
Additions additions_of(const MarkedFile& reader, const MarkedFile& given);

/// `given` with these additions where they stood, each between guards that compile between functions alone. Headers
/// come first, those that are there.
std::string with_additions(const MarkedFile& given, const Additions& additions, const MarkedFile& reader,
                           std::string_view token);

/// The file with region `id`'s body replaced by `body` lines, which end as the BEGIN line does; everything else byte
/// for byte as it is (reset, gates, mutants). MarkerError if there is no such region.
std::string replace_body(const MarkedFile& file, std::string_view id, const std::vector<std::string>& body);

/// One line outside the regions' bodies, as it is compared: without white space behind a marker.
struct OutsideLine {
  int number;  ///< from 1
  std::string_view text;
};
std::vector<OutsideLine> outside_lines(const MarkedFile& file);

/// The text with every region's body removed and its marker lines left: what must not drift. STUB lines, line ends and
/// white space after a marker do not count. Equal for a solution, its stub, and the same stub filled in.
std::string outside_regions(const MarkedFile& file);

/// The line of `file` where outside_regions(file) first differs from outside_regions(other); 0 if nowhere.
int first_difference(const MarkedFile& file, const MarkedFile& other);

/// The lines joined by LF, each with its end, without byte-order mark.
std::string join_lines(const std::vector<std::string>& lines);

}  // namespace workbook::book
