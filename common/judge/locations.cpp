#include "common/judge/locations.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/book/files.hpp"
#include "common/book/text.hpp"

namespace workbook::judge {
namespace fs = std::filesystem;
namespace {

/// The exercise whose region contains a line of a book file; empty if no region does.
std::string exercise_at(const fs::path& file, int line) {
  const book::MarkedFile marked = book::parse_reader(file.filename().string(), book::read_file(file));
  const auto found = std::ranges::find_if(
      marked.regions, [&](const book::Region& region) { return region.begin_line <= line && line <= region.end_line; });
  return found == marked.regions.end() ? "" : found->id;
}

/// The line of the reader's file that corresponds to a given line of the book's file: at the same distance from the
/// preceding region. 0 if the texts of the two lines differ.
int same_line(const fs::path& books, const fs::path& own, int line) {
  const book::MarkedFile from = book::parse_reader(books.filename().string(), book::read_file(books));
  const book::MarkedFile to = book::parse_reader(own.filename().string(), book::read_file(own));
  int at = line;
  for (const book::Region& region : from.regions) {
    if (region.end_line >= line) break;
    const book::Region* theirs = to.find(region.id);
    if (theirs == nullptr) return 0;
    at = line - region.end_line + theirs->end_line;
  }
  const auto text = [](const book::MarkedFile& file, int number) { return file.lines[std::size_t(number - 1)]; };
  const bool both_have_it = line >= 1 && line <= int(from.lines.size()) && at >= 1 && at <= int(to.lines.size());
  return both_have_it && text(from, line) == text(to, at) ? at : 0;
}

void name_location(const Workspace& workspace, const Plan& plan, simt::SourceLine& source) {
  if (source.file.empty()) return;
  source.file = workspace.shown((workspace.book.root / source.file).lexically_normal());
  if (const auto known = plan.known_as.find(source.file); known != plan.known_as.end()) source.file = known->second;
  const fs::path path = workspace.book.root / source.file;
  const fs::path in_solutions = path.lexically_relative(workspace.book.root / "solutions");
  const bool of_solution = !in_solutions.empty() && *in_solutions.begin() != "..";
  if (!of_solution || plan.tree.name == "solutions" || !fs::is_regular_file(path)) return;
  const fs::path own = (plan.tree.folder / in_solutions.lexically_relative(plan.chapter->name())).lexically_normal();
  if (fs::is_regular_file(own) && book::read_file(own) == book::read_file(path)) {
    source.file = workspace.shown(own);  // the reader's identical file is compiled only once
    return;
  }
  const std::string exercise = exercise_at(path, source.line);
  if (const int line = exercise.empty() && fs::is_regular_file(own) ? same_line(path, own, source.line) : 0) {
    source.file = workspace.shown(own);
    source.line = line;
    return;
  }
  source.known_as = exercise.empty()
                        ? fmt::format("the book's {}:{}, outside your region", in_solutions.string(), source.line)
                        : "the book's " + exercise;
}

/// Whether a line belongs to given code rather than to an exercise.
bool is_given(const Workspace& workspace, const simt::SourceLine& source) {
  const fs::path path = workspace.book.root / source.file;
  return !source.known_as.empty() || (fs::is_regular_file(path) && exercise_at(path, source.line).empty());
}

/// Explains an invalid address in a given line: the exercise's code has passed it there.
void explain_given_line(const Workspace& workspace, simt::Report& report) {
  using enum simt::Mistake;
  constexpr simt::Mistake of_addresses[] = {outside_global, outside_shared, outside_array, misaligned};
  if (std::ranges::count(of_addresses, report.mistake) == 0 || !is_given(workspace, report.side.source)) return;
  report.advice =
      "this line is given code: check what your code passes to it (a pointer, the index of a head or a tile, a number "
      "of rows); " +
      report.advice;
}

}  // namespace

void name_locations(const Workspace& workspace, const Plan& plan, std::vector<simt::Report>& reports) {
  const auto name_side = [&](simt::Side& side) {
    name_location(workspace, plan, side.source);
    side.action = as_the_reader_knows(std::move(side.action), plan);  // "… the stream created at rank.hpp:27) reads"
  };
  for (simt::Report& report : reports) {
    name_side(report.side);
    if (report.other) name_side(*report.other);
    explain_given_line(workspace, report);
  }
}

std::string as_the_reader_knows(std::string log, const Plan& plan) {
  for (auto known = plan.known_as.rbegin(); known != plan.known_as.rend(); ++known)  // "a.cuh" before "a.cu"
    log = book::replaced(std::move(log), known->first, known->second);
  return log;
}

}  // namespace workbook::judge
