// A trace by source line: the memory accesses of each line of a kernel, compared with those of other kernels. Lines of
// two kernels are matched by their text within the same part. A part is an exercise's region, or a function outside of
// regions. A line without a counterpart counts only in the sum of its part.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/judge/trace.hpp"
#include "common/judge/trace_facts.hpp"

namespace workbook::judge {

struct LineCosts {
  std::int64_t wavefronts = 0, ideal = 0;  ///< of shared memory: actual, and without bank conflicts
  std::int64_t ldsm = 0;                   ///< instructions
  std::int64_t sectors = 0;                ///< of device memory: reads, writes and atomics
  std::int64_t over() const { return wavefronts - ideal; }
  LineCosts& operator+=(const LineCosts& other);
  friend bool operator==(const LineCosts&, const LineCosts&) = default;
};

/// A line of the first kernel. `beside`: the costs of its counterparts in the other kernels, if there are any.
struct ComparedLine {
  int line = 0;
  std::string text;  ///< source text with white space collapsed
  LineCosts costs;
  std::vector<std::optional<LineCosts>> beside;
  std::optional<TracedAccess> worst;
};
struct ComparedPart {
  std::string file;      ///< the name that the reader knows
  std::string exercise;  ///< "4.2"; empty: outside of all regions
  std::string function;  ///< "load_tile"
  std::vector<ComparedLine> lines;
  LineCosts costs;  ///< of all its lines
  std::vector<std::optional<LineCosts>> beside;
  std::string name() const;  ///< "multiply_QK (exercise 4.2)"
};

/// A kernel to compare with: another tree of the same chapter, or another chapter, whose functions are matched by name
/// in any file.
struct TraceBeside {
  std::string name;  ///< "book", "ch 3"
  bool same_chapter = false;
  Traced traced;
};
/// Builds and runs the kernels to compare with: the book's solution if this tree is another one, and the solution of
/// the previous chapter with the same pass, if it supports this problem.
std::vector<TraceBeside> traces_beside(const Workspace& workspace, const book::Chapter& chapter, const Tree& tree,
                                       const Problem& problem, const TraceRequest& request);

/// The lines of all launches together, compared with those of the kernels in `beside`.
std::vector<ComparedPart> compare_lines(const Workspace& workspace, const Trace& trace,
                                        const std::vector<TraceBeside>& beside);

/// A part as a table: its lines and their sum. The columns of the other kernels follow the part's own.
TraceTable lines_table(const ComparedPart& part, const std::vector<TraceBeside>& beside);
/// "line 118: 8 wavefronts instead of 1: lanes 0, 4, 8 access bank 0: S[0][0], S[1][0], …"
std::string worst_text(const ComparedLine& line);
extern const char* const lines_legend;

}  // namespace workbook::judge
