// How far a kernel is from the one before it, and how long kernel files and kernels are: what makes them steps that one
// can read as a diff.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "common/book/files.hpp"
#include "common/book/markers.hpp"

using namespace workbook;
namespace fs = std::filesystem;

namespace {

using Lines = std::vector<std::string>;

std::string without_spaces(std::string line) {
  std::erase_if(line, [](char c) { return c == ' ' || c == '\t'; });
  return line;
}

/// The lines of a solution's file without the lines that mark an exercise.
Lines lines_of(const std::string& file) {
  const fs::path path = fs::path(WORKBOOK_SOURCE) / "solutions" / file;
  const book::MarkedFile marked = book::parse_marked(file, book::read_file(path));
  Lines lines;
  for (int line = 1; line <= int(marked.lines.size()); ++line) {
    const bool marks = std::ranges::any_of(marked.regions, [&](const book::Region& region) {
      return (region.todo_line <= line && line <= region.begin_line) || line == region.end_line;
    });
    if (!marks) lines.push_back(marked.lines[std::size_t(line - 1)]);
  }
  return lines;
}

/// How many lines change from `before` to `after`, indentation apart: between two lines that both have, the larger of
/// what is removed and what is added.
int changed_lines(const Lines& before, const Lines& after) {
  const std::size_t n = before.size(), m = after.size();
  std::vector<std::vector<int>> common(n + 1, std::vector<int>(m + 1, 0));  // of before from i and after from j on
  for (std::size_t i = n; i-- > 0;)
    for (std::size_t j = m; j-- > 0;)
      common[i][j] = before[i] == after[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
  int changed = 0, removed = 0, added = 0;
  const auto end_hunk = [&] {
    changed += std::max(removed, added);
    removed = added = 0;
  };
  std::size_t i = 0, j = 0;
  while (i < n || j < m) {
    if (i < n && j < m && before[i] == after[j]) {
      end_hunk();
      ++i, ++j;
    } else if (j == m || (i < n && common[i + 1][j] >= common[i][j + 1])) {
      ++removed, ++i;
    } else {
      ++added, ++j;
    }
  }
  end_hunk();
  return changed;
}
int changed_between(const std::string& before, const std::string& after) {
  Lines lines[2] = {lines_of(before), lines_of(after)};
  for (Lines& file : lines) std::ranges::transform(file, file.begin(), without_spaces);
  return changed_lines(lines[0], lines[1]);
}

/// The longest function that begins with __global__, in lines: up to the brace in the first column.
int longest_kernel(const Lines& lines) {
  int longest = 0;
  for (std::size_t first = 0; first < lines.size(); ++first) {
    if (!lines[first].starts_with("__global__")) continue;
    const auto end = std::find(lines.begin() + std::ptrdiff_t(first), lines.end(), "}");
    longest = std::max(longest, int(end - lines.begin()) - int(first) + 1);
  }
  return longest;
}

int longest_kernel(const std::string& file) {
  return longest_kernel(lines_of(file));
}

}  // namespace

TEST_CASE("a kernel ends at its closing brace") {
  CHECK(longest_kernel(Lines{"__global__ void f() {", "  if (x) {", "  }", "  g();", "}", "void h() {", "}"}) == 5);
}

TEST_CASE("a changed line counts once, an indented one not at all") {
  CHECK(changed_lines({"a", "b", "c"}, {"a", "b", "c"}) == 0);
  CHECK(changed_lines({"a", "b", "c"}, {"a", "x", "c"}) == 1);
  CHECK(changed_lines({"a", "c"}, {"a", "x", "y", "c", "z"}) == 3);
  CHECK(changed_lines({"a", "b", "c", "d"}, {"a", "x", "d"}) == 2);
  CHECK(without_spaces("  x + 1") == without_spaces("x + 1"));
}

TEST_CASE("the kernels of chapter 4 are small steps") {
  CHECK(changed_between("04_q_split/plain_split.cu", "04_q_split/prefetch.cu") <= 60);
  CHECK(changed_between("04_q_split/prefetch.cu", "04_q_split/q_split.cu") <= 60);
}

TEST_CASE("chapter 5 is chapter 4's kernel and a mask") {
  const int changed = changed_between("04_q_split/layout.hpp", "05_causal/layout.hpp") +
                      changed_between("04_q_split/phases.hpp", "05_causal/phases.hpp") +
                      changed_between("04_q_split/q_split.cu", "05_causal/causal.cu");
  CHECK(changed <= 120);
}

TEST_CASE("chapter 14 is chapter 8's kernel and a mapping of its rows") {
  CHECK(changed_between("08_registers/registers.cu", "14_grouped_queries/grouped.cu") <= 60);
  CHECK(changed_between("08_registers/phases.hpp", "14_grouped_queries/phases.hpp") <= 60);
}

TEST_CASE("chapter 15 is chapter 8's kernel and a mask") {
  CHECK(changed_between("08_registers/registers.cu", "15_which_pairs/which_pairs.cu") <= 60);
  CHECK(changed_between("08_registers/phases.hpp", "15_which_pairs/phases.hpp") <= 60);
}

TEST_CASE("chapter 16 is chapter 15's kernel and an iterator") {
  CHECK(changed_between("15_which_pairs/which_pairs.cu", "16_any_pair/any_pair.cu") <= 60);
}

TEST_CASE("chapter 17 is chapter 8's kernel, with positions and dropout") {
  CHECK(changed_between("08_registers/registers.cu", "17_rope_dropout/rope_dropout.cu") <= 60);
  CHECK(changed_between("09_backward_registers/backward_registers.cu", "17_rope_dropout/rope_dropout_backward.cu") <=
        61);
}

TEST_CASE("kernel files and kernels are short enough to read in one sitting") {
  // What is not: given code, and phases of which each is read by itself.
  const std::set<std::string> longer{"01_naive_attention/naive_attention.cu",
                                     "08_registers/phases.hpp",
                                     "09_backward_registers/phases.hpp",
                                     "10_copy_engine/phases.hpp",
                                     "11_wgmma/phases.hpp",
                                     "12_fp8/phases.hpp",
                                     "14_grouped_queries/grouped_backward.cu",
                                     "15_which_pairs/which_pairs_backward.cu",
                                     "16_any_pair/any_pair_backward.cu",
                                     "17_rope_dropout/rope_dropout_backward.cu",
                                     "18_which_pairs_hopper/phases.hpp"};
  const fs::path solutions = fs::path(WORKBOOK_SOURCE) / "solutions";
  for (const auto& entry : fs::recursive_directory_iterator(solutions)) {
    const std::string file = entry.path().lexically_relative(solutions).generic_string();
    const std::string extension = entry.path().extension();
    if ((extension != ".cu" && extension != ".hpp") || longer.contains(file)) continue;
    INFO(file);
    const std::string text = book::read_file(entry.path());
    CHECK(std::ranges::count(text, '\n') <= 250);
    CHECK(longest_kernel(file) <= 60);
  }
  CHECK(longest_kernel("04_q_split/q_split.cu") > 50);  // all of it is found
}
