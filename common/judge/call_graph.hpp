// Which function calls another one or holds its address, before inlining. The sources are the compiler's call graph
// (GCC's -fcallgraph-info) and the relocations of the object file. Shows whether an answer calls the book's answer to
// another exercise, under any name.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/book/markers.hpp"

namespace workbook::judge {

/// The compiler flags for a chapter's call graph. They remove always_inline from the book's functions.
const std::vector<std::string>& call_graph_flags();

/// The call graph that the compiler has written beside an object file (FILE.ci), and the references in the object file
/// in the same form. Empty where there is none.
std::string calls_of(const std::filesystem::path& object);

class CallGraph {
 public:
  /// Adds the text that calls_of() returns for an object.
  void add(const std::string& text);
  bool empty() const { return locations_.empty(); }
  bool has(const std::string& function) const { return locations_.contains(function); }
  /// All functions that these functions call, directly or indirectly. Contains "__indirect_call" where the target of a
  /// call is unknown.
  std::set<std::string> reached(const std::set<std::string>& from) const;
  /// These functions, those that call them directly or indirectly, and all that these call: the code that may run
  /// together with them.
  std::set<std::string> around(const std::set<std::string>& functions) const;
  /// The functions that a region of this file contains, or the function that contains the region.
  std::set<std::string> functions_of(const std::string& file, const book::Region& region) const;

 private:
  struct Location {
    std::string file;
    int line;
  };
  std::map<std::string, Location> locations_;           ///< where each function is defined
  std::map<std::string, std::set<std::string>> calls_;  ///< by caller
};

/// By exercise of `open`: the others whose functions run together with it in no operation of the book.
std::map<std::string, std::set<std::string>> not_needed(const CallGraph& book,
                                                        const std::map<std::string, book::MarkedFile>& files,
                                                        const std::set<std::string>& open);

/// The exercises of `open` whose answers call a function of another exercise that the book's answer does not call. On a
/// graft they would call the book's answer. `book`, `own`: the whole chapter; `files`: the book's files, name -> text.
std::set<std::string> calls_of_others(const CallGraph& book, const CallGraph& own,
                                      const std::map<std::string, book::MarkedFile>& files,
                                      const std::set<std::string>& open);

}  // namespace workbook::judge
