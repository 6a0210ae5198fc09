// A trace by source line: what each line of a kernel asked of memory, beside what other kernels' lines did. Lines of
// two kernels are matched within the same part, by their text; a part is an exercise's region, or a function outside of
// regions. What has no counterpart counts in its part's sum alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/judge/trace.hpp"
#include "common/judge/trace_facts.hpp"

namespace workbook::judge {

struct LineCosts {
  std::int64_t wavefronts = 0, ideal = 0;  ///< of shared memory: passes through the banks, and without conflicts
  std::int64_t ldsm = 0;                   ///< instructions
  std::int64_t sectors = 0;                ///< of device memory, read and written; atomics' too
  std::int64_t over() const { return wavefronts - ideal; }
  LineCosts& operator+=(const LineCosts& other);
  friend bool operator==(const LineCosts&, const LineCosts&) = default;
};

/// A line of the first kernel. `beside`: what its counterparts in the others ask for, if there are any.
struct ComparedLine {
  int line = 0;
  std::string text;  ///< of the source, white space folded
  LineCosts costs;
  std::vector<std::optional<LineCosts>> beside;
  std::optional<TracedAccess> worst;
};
struct ComparedPart {
  std::string file;      ///< as the reader knows it
  std::string exercise;  ///< "4.2"; empty: outside of all regions
  std::string function;  ///< "load_tile"
  std::vector<ComparedLine> lines;
  LineCosts costs;  ///< of all its lines
  std::vector<std::optional<LineCosts>> beside;
  std::string name() const;  ///< "multiply_QK (exercise 4.2)"
};

/// A kernel to compare with: another tree of the same chapter, or another chapter, whose functions count by their names
/// in whatever file they stand.
struct TraceBeside {
  std::string name;  ///< "book", "ch 3"
  bool same_chapter = false;
  Traced traced;
};
/// The book's own solution, if this tree is not it, and the solution of the chapter before of the same pass, if there
/// is one that can take this problem. Builds and runs them.
std::vector<TraceBeside> traces_beside(const Workspace& workspace, const book::Chapter& chapter, const Tree& tree,
                                       const Problem& problem, const TraceRequest& request);

/// All launches together. `root`: the book, where the files of the record are.
std::vector<ComparedPart> compare_lines(const Workspace& workspace, const Trace& trace,
                                        const std::vector<TraceBeside>& beside);

/// A part as a table: its lines, and their sum. The columns of kernels beside follow the part's own.
TraceTable lines_table(const ComparedPart& part, const std::vector<TraceBeside>& beside);
/// "line 118: 8 wavefronts where 1 would do: lanes 0, 4, 8 ask for bank 0, for S[0][0], S[1][0], …"
std::string worst_text(const ComparedLine& line);
extern const char* const lines_legend;

}  // namespace workbook::judge
