// Which function calls which or has another's address, without inlining: by the compiler's call graph (GCC's
// -fcallgraph-info) and what the linker is told. Whether an answer calls the book's answer to another exercise, by
// whatever names.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/book/markers.hpp"

namespace workbook::judge {

/// The flags that a chapter is compiled with for its call graph. always_inline is taken from the book's functions.
const std::vector<std::string>& call_graph_flags();

/// What the compiler has written beside an object file (FILE.ci), and the references in that file, in the same form;
/// empty where there is none.
std::string calls_of(const std::filesystem::path& object);

class CallGraph {
 public:
  /// Adds calls_of an object.
  void add(const std::string& text);
  bool empty() const { return places_.empty(); }
  bool has(const std::string& function) const { return places_.contains(function); }
  /// All that these functions call, and what that calls; "__indirect_call" among it where nobody knows what is called.
  std::set<std::string> reached(const std::set<std::string>& from) const;
  /// The functions that a region of this file holds, or that hold it.
  std::set<std::string> functions_of(const std::string& file, const book::Region& region) const;

 private:
  struct Place {
    std::string file;
    int line;
  };
  std::map<std::string, Place> places_;                 ///< where each function is defined
  std::map<std::string, std::set<std::string>> calls_;  ///< by caller
};

/// The exercises of `open` whose answers call, other than the book's do, what holds another of them: on a graft they
/// would call the book's answer. `book`, `own`: the whole chapter; `files`: the book's, name -> text.
std::set<std::string> calls_of_others(const CallGraph& book, const CallGraph& own,
                                      const std::map<std::string, book::MarkedFile>& files,
                                      const std::set<std::string>& open);

}  // namespace workbook::judge
