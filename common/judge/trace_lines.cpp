#include "common/judge/trace_lines.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/book/text.hpp"
#include "common/judge/trace_timeline.hpp"

namespace workbook::judge {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostElements = 4;

LineCosts costs_of(const TracedLine& line) {
  LineCosts costs;
  costs.wavefronts = line.counter("shared.load_wavefronts") + line.counter("shared.store_wavefronts");
  costs.ideal = line.counter("shared.load_ideal") + line.counter("shared.store_ideal");
  costs.ldsm = line.counter("shared.matrix_loads");
  for (const char* name : {"load_sectors", "async_sectors", "store_sectors", "atomic_sectors"})
    costs.sectors += line.counter(std::string("global.") + name);
  costs.sectors += line.counter("global.bulk_reduce_sectors");
  for (const char* name : {"bulk_load_bytes", "bulk_store_bytes"})
    costs.sectors += (line.counter(std::string("global.") + name) + 31) / 32;
  return costs;
}

std::string folded(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\t';
    if (!space || (!result.empty() && result.back() != ' ')) result += space ? ' ' : c;
  }
  return result;
}

/// A source file of the record, read once.
struct Source {
  std::vector<std::string> lines;
  std::vector<book::Region> regions;
};

/// The parts of one kernel, without comparisons.
std::vector<ComparedPart> parts_of(const Workspace& workspace, const Trace& trace) {
  std::map<std::string, Source> sources;
  const auto source_of = [&](const std::string& file) -> const Source& {
    const auto [at, fresh] = sources.try_emplace(file);
    const fs::path path = workspace.book.root / file;
    if (fresh && fs::is_regular_file(path)) {
      const book::MarkedFile marked = book::parse_reader(file, book::read_file(path));
      at->second = {marked.lines, marked.regions};
    }
    return at->second;
  };
  std::map<std::pair<std::string, int>, ComparedLine> lines;  // of all launches
  std::map<std::pair<std::string, int>, std::string> functions;
  for (const TracedLaunch& launch : trace.launches) {
    for (const TracedLine& line : launch.lines) {
      ComparedLine& to = lines[{line.file, line.line}];
      to.line = line.line;
      to.costs += costs_of(line);
      functions[{line.file, line.line}] = short_name(line.function);
      const auto more = [](const TracedAccess& access) { return access.wavefronts - access.ideal; };
      if (line.worst && (!to.worst || more(*line.worst) > more(*to.worst))) to.worst = line.worst;
    }
  }
  std::vector<ComparedPart> parts;
  for (auto& [location, line] : lines) {
    if (line.costs == LineCosts{}) continue;
    const Source& source = source_of(location.first);
    if (line.line >= 1 && std::size_t(line.line) <= source.lines.size())
      line.text = folded(source.lines[std::size_t(line.line) - 1]);
    const auto region = std::ranges::find_if(
        source.regions, [&](const book::Region& r) { return r.begin_line < line.line && line.line < r.end_line; });
    const std::string exercise = region == source.regions.end() ? "" : region->id, function = functions.at(location);
    const std::string file = workspace.shown((workspace.book.root / location.first).lexically_normal());
    auto part = std::ranges::find_if(parts, [&](const ComparedPart& p) {
      return p.file == file && p.exercise == exercise && (!exercise.empty() || p.function == function);
    });
    if (part == parts.end()) part = parts.insert(parts.end(), ComparedPart{file, exercise, function, {}, {}, {}});
    part->costs += line.costs;
    part->lines.push_back(std::move(line));
  }
  return parts;
}

const ComparedPart* counterpart(const ComparedPart& part, const std::vector<ComparedPart>& others, bool same_chapter) {
  const auto found = std::ranges::find_if(others, [&](const ComparedPart& other) {
    if (!same_chapter) return other.function == part.function;
    return fs::path(other.file).filename() == fs::path(part.file).filename() && other.exercise == part.exercise &&
           (!part.exercise.empty() || other.function == part.function);
  });
  return found == others.end() ? nullptr : &*found;
}

/// The line of the same text in the other part; of several, the one that comes as many such lines after the first.
std::optional<LineCosts> counterpart(const ComparedPart& part, std::size_t index, const ComparedPart& other) {
  const std::string& text = part.lines[index].text;
  auto before = std::count_if(part.lines.begin(), part.lines.begin() + std::ptrdiff_t(index),
                              [&](const ComparedLine& line) { return line.text == text; });
  for (const ComparedLine& line : other.lines) {
    if (!text.empty() && line.text == text && before-- == 0) return line.costs;
  }
  return std::nullopt;
}

}  // namespace

const char* const lines_legend =
    "By source line. shared: wavefronts, cycles of the 32 banks; over: wavefronts caused by bank conflicts; sectors: "
    "32 bytes of device memory. Lines of two kernels are matched by their text within the same exercise or function; a "
    "line without a counterpart counts only in the sum";

LineCosts& LineCosts::operator+=(const LineCosts& other) {
  wavefronts += other.wavefronts;
  ideal += other.ideal;
  ldsm += other.ldsm;
  sectors += other.sectors;
  return *this;
}

std::string ComparedPart::name() const {
  return exercise.empty() ? function : fmt::format("{} (exercise {})", function, exercise);
}

std::vector<TraceBeside> traces_beside(const Workspace& workspace, const book::Chapter& chapter, const Tree& tree,
                                       const Problem& problem, const TraceRequest& request) {
  std::vector<TraceBeside> beside;
  if (tree.name != "solutions" && workspace.book.has_solutions(chapter)) {
    beside.push_back(
        {"book", true, run_traced(workspace, chapter, solutions_tree(workspace, chapter), problem, request)});
  }
  if (!request.operation.empty()) return beside;  // the previous chapter has no such operation
  const book::Chapter* before = nullptr;
  const std::string& pass = request.pass.empty() ? chapter.pass : request.pass;
  for (const book::Chapter& other : workspace.book.chapters) {
    if (other.number < chapter.number && other.pass == pass && other.runs_on(Backend::sim)) before = &other;
  }
  if (before == nullptr || !before->does_not_do(problem, Backend::sim).empty() ||
      !workspace.book.has_solutions(*before))
    return beside;
  TraceRequest plain;
  plain.seed = request.seed;
  beside.push_back({fmt::format("ch {}", before->number), false,
                    run_traced(workspace, *before, solutions_tree(workspace, *before), problem, plain)});
  return beside;
}

std::vector<ComparedPart> compare_lines(const Workspace& workspace, const Trace& trace,
                                        const std::vector<TraceBeside>& beside) {
  std::vector<ComparedPart> parts = parts_of(workspace, trace);
  for (const TraceBeside& kernel : beside) {
    const std::vector<ComparedPart> others = parts_of(workspace, kernel.traced.trace);
    for (ComparedPart& part : parts) {
      const ComparedPart* other = counterpart(part, others, kernel.same_chapter);
      part.beside.push_back(other == nullptr ? std::nullopt : std::optional(other->costs));
      for (std::size_t i = 0; i < part.lines.size(); ++i) {
        part.lines[i].beside.push_back(other == nullptr ? std::nullopt : counterpart(part, i, *other));
      }
    }
  }
  return parts;
}

TraceTable lines_table(const ComparedPart& part, const std::vector<TraceBeside>& beside) {
  TraceTable table{{{"line", "", "shared", "over", "LDSM", "sectors"}}, 2};
  for (const TraceBeside& kernel : beside) {
    table.rows[0].insert(table.rows[0].end(), {kernel.name + ": shared", "over", "sectors"});
  }
  const auto add = [&](const std::string& line, const std::string& text, const LineCosts& costs,
                       const std::vector<std::optional<LineCosts>>& others) {
    std::vector<std::string>& row = table.rows.emplace_back(
        std::vector<std::string>{line, text, fmt::format("{}", costs.wavefronts), fmt::format("{}", costs.over()),
                                 fmt::format("{}", costs.ldsm), fmt::format("{}", costs.sectors)});
    for (const auto& other : others) {
      for (const auto member :
           {other ? other->wavefronts : -1, other ? other->over() : -1, other ? other->sectors : -1})
        row.push_back(member < 0 ? "-" : fmt::format("{}", member));
    }
  };
  for (const ComparedLine& line : part.lines) add(fmt::format("{}", line.line), line.text, line.costs, line.beside);
  add("all", "", part.costs, part.beside);
  return table;
}

std::string worst_text(const ComparedLine& line) {
  if (!line.worst) return "";
  const TracedAccess& worst = *line.worst;
  std::vector<std::string> requesting, elements;
  for (const int i : worst.in_bank) {
    requesting.push_back(fmt::format("{}", worst.lanes.at(std::size_t(i))));
    if (elements.size() < kMostElements) elements.push_back(worst.places.at(std::size_t(i)));
  }
  return fmt::format("line {}: {} wavefronts instead of {}: {} {} access bank {}: {}{}", line.line, worst.wavefronts,
                     worst.ideal, worst.rows ? "rows" : "lanes", fmt::join(requesting, ", "), worst.bank,
                     fmt::join(elements, ", "), worst.in_bank.size() > kMostElements ? ", ..." : "");
}

}  // namespace workbook::judge
