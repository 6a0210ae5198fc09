// trace: shows what a chapter's kernels do. One run on the simulator records every launch: the traffic of each tensor,
// bank conflicts, barriers, and the tiles that each thread block read.
#include <fmt/ranges.h>

#include <filesystem>
#include <map>

#include "common/attention/error.hpp"
#include "common/attention/mask_text.hpp"
#include "common/book/files.hpp"
#include "common/cli/trace_json.hpp"
#include "common/cli/trace_page.hpp"
#include "common/cli/trace_text.hpp"
#include "common/cli/verbs.hpp"
#include "common/judge/trace.hpp"

namespace workbook::cli {
namespace {

using book::Chapter;
using nlohmann::json;

/// "a chapter with kernels: 1, 3", listing the chapters that satisfy `serves`.
template <class Serves>
std::string kernel_chapters(const Session& session, const Serves& serves) {
  std::vector<int> numbers;
  for (const Chapter& chapter : session.book.chapters)
    if (chapter.runs_on(Backend::sim) && serves(chapter)) numbers.push_back(chapter.number);
  return numbers.empty() ? "a chapter with kernels (this book has none)"
                         : fmt::format("a chapter with kernels: {}", fmt::join(numbers, ", "));
}

/// A chapter that launches kernels; otherwise an InputError lists those that do.
const Chapter& kernel_chapter(const Session& session, const std::string& which) {
  const Chapter& chapter = session.book.chapter(which);
  if (chapter.runs_on(Backend::sim)) return chapter;
  fail_input("trace {}: chapter {} runs on the CPU and launches no kernels; allowed: {}", which, chapter.number,
             kernel_chapters(session, [](const Chapter&) { return true; }));
}

/// The types that its kernels support on the simulator, for messages.
std::vector<std::string> elements_of(const Chapter& chapter) {
  std::vector<std::string> all{name(chapter.element_on(Backend::sim))};
  for (const Element more : chapter.more_elements) all.push_back(name(more));
  return all;
}

/// Checks that the kernels used the tile sizes that --br and --bc requested.
void require_tiles(const Chapter& chapter, const judge::Trace& trace, const TraceOptions& options) {
  const auto check = [&](const char* flag, std::int64_t requested, const char* tensor) {
    if (requested == 0) return;
    const std::int64_t used = judge::tile_rows_taken(trace, tensor, requested);
    if (used == requested) return;
    if (used == 0)
      fail_input("{} {}: chapter {} has no tile size to choose; allowed: omit the option", flag, requested,
                 chapter.number);
    fail_input("{} {}: chapter {} only has tiles of {} rows; allowed: {}, or omit the option", flag, requested,
               chapter.number, used, used);
  };
  check("--br", options.Br, "Q");
  check("--bc", options.Bc, "K");
}

/// The tables of --lines.
struct RequestedLines {
  std::vector<judge::TraceBeside> beside;
  std::vector<judge::ComparedPart> parts;
};

json trace_json(const Chapter& chapter, const judge::Tree& tree, const Problem& problem, const TraceOptions& options,
                const judge::Traced& traced, const RequestedLines& lines) {
  json launches = json::array(), transfers = json::array();
  for (const auto& [from, to, bytes, step] : traced.trace.transfers)
    transfers.push_back({{"from", from}, {"to", to}, {"bytes", bytes}, {"step", step}});
  for (const judge::TracedLaunch& launch : traced.trace.launches) launches.push_back(launch_json(launch));
  return {{"chapter", chapter.name()},
          {"source", tree.name},
          {"backend", name(Backend::sim)},
          {"input", input_json(problem, options)},
          {"result", traced.result},
          {"message", traced.message.empty() ? json(nullptr) : json(traced.message)},
          {"launches", launches},
          {"transfers", transfers},
          {"reports", traced.trace.reports},
          {"lines", options.lines ? lines_json(lines.parts, lines.beside) : json::array()}};
}

std::string title_of(const Chapter& chapter, const judge::Tree& tree) {
  return fmt::format("Chapter {}: {} ({}, on the simulator)", chapter.number, chapter.title,
                     tree.name == "solutions" ? "the book's solution" : "your code");
}

/// The second trace, named by --beside, which runs on the same input.
struct Other {
  const Chapter* chapter;
  judge::Tree tree;
  Mask mask;
};
Other other_of(const Session& session, const Chapter& chapter, const judge::Tree& tree, const Problem& problem,
               const TraceOptions& options) {
  if (options.beside == "causal") {
    if (!chapter.does(Mask::causal))
      fail_input("--beside causal: chapter {} has no causal mask; allowed: a chapter", chapter.number);
    return {&chapter, tree, options.mask == Mask::causal ? Mask::none : Mask::causal};
  }
  const Chapter& other = options.beside == "book" ? chapter : kernel_chapter(session, options.beside);
  if (std::ranges::count(other.passes(), options.pass) == 0) {
    fail_input(
        "--beside {}: chapter {} computes the {} pass, chapter {} the {} pass; allowed: chapters of the same pass",
        options.beside, other.number, other.pass, chapter.number, options.pass);
  }
  if (!other.does(options.mask)) {
    fail_input("--beside {}: chapter {} has no {}; allowed: omit --{}", options.beside, other.number,
               lacking_part(other.masks, options.mask), lacking_option(other.masks, options.mask));
  }
  if (const std::string what = other.does_not_do(problem, Backend::sim); !what.empty())
    fail_input(
        "--beside {}: chapter {} does not support {} on the simulator; allowed: as many K/V heads as query heads",
        options.beside, other.number, what);
  const bool book = options.beside == "book" || options.solutions;
  if (book && !session.book.has_solutions(other)) {
    fail_input("--beside {}: this copy of the book has no solution of chapter {}", options.beside, other.number);
  }
  return {&other, book ? solutions_tree(session, other) : readers_tree(session, other), options.mask};
}

/// The chapter's lesson, relative to the page.
std::string lesson_of(const Session& session, const Chapter& chapter, const TraceOptions& options) {
  const std::filesystem::path lesson = session.book.root / "chapters" / chapter.name() / "README.md";
  const std::filesystem::path page = std::filesystem::absolute(options.html).lexically_normal();
  return lesson.lexically_normal().lexically_relative(page.parent_path()).generic_string();
}

/// Writes the page, with the second trace of --beside. Prints to stderr what cannot be shown.
void write_page(const Session& session, const Chapter& chapter, const judge::Tree& tree, const Problem& problem,
                const TraceOptions& options, const judge::Traced& traced, const RequestedLines& lines) {
  std::vector<TraceColumn> columns{{title_of(chapter, tree), lesson_of(session, chapter, options),
                                    input_text(problem, options), &traced.trace, lines.parts, lines.beside}};
  judge::Traced other_traced;
  if (!options.beside.empty()) {
    const Other other = other_of(session, chapter, tree, problem, options);
    Problem same = problem;
    same.mask = other.mask;
    TraceOptions with = options;
    with.mask = other.mask;
    judge::TraceRequest request;
    request.seed = options.seed;
    request.pass = options.pass;
    if (other.chapter == &chapter) request.operation = options.operation;
    other_traced = run_traced(session, *other.chapter, other.tree, same, request);
    if (other_traced.result == "ok") {
      columns.push_back({title_of(*other.chapter, other.tree),
                         lesson_of(session, *other.chapter, options),
                         input_text(same, with),
                         &other_traced.trace,
                         compare_lines(session, other_traced.trace, {}),
                         {}});
    } else {
      print_error("--beside {}: {}: {}\n", options.beside, other_traced.result, other_traced.message);
    }
  }
  book::write_file(std::filesystem::absolute(options.html),
                   trace_page(session.book.root / "notes" / "site" / "figures",
                              columns.size() == 1 ? columns[0].title
                                                  : fmt::format("Chapter {} compared with {}", chapter.number,
                                                                options.beside == "causal" || options.beside == "book"
                                                                    ? options.beside
                                                                    : "chapter " + options.beside),
                              columns));
}

/// InputError for a request that the chapter does not support on the simulator.
void require_served(const Session& session, const Chapter& chapter, const TraceOptions& options,
                    std::optional<Element> element) {
  if (std::ranges::count(chapter.passes(), options.pass) == 0)
    fail_input("--pass {}: chapter {} has no such pass; allowed: {}", options.pass, chapter.number,
               fmt::join(chapter.passes(), ", "));
  if (options.pass == "backward" && (options.Br > 0 || options.Bc > 0)) {
    fail_input("{}: chapter {} chooses its own tile sizes; allowed: omit the option", options.Br > 0 ? "--br" : "--bc",
               chapter.number);
  }
  if (element && !chapter.takes(*element, Backend::sim)) {
    fail_input("--element {}: chapter {} has no kernels for it; allowed: {}", options.element, chapter.number,
               fmt::join(elements_of(chapter), ", "));
  }
  if (!chapter.does(options.mask)) {
    fail_input("--{}: chapter {} has no {}; allowed: omit the option", lacking_option(chapter.masks, options.mask),
               chapter.number, lacking_part(chapter.masks, options.mask));
  }
  if (options.solutions && !session.book.has_solutions(chapter)) {
    fail_input("--solutions: this copy of the book has no solution of chapter {}; allowed: your own code",
               chapter.number);
  }
}

}  // namespace

int trace(const Session& session, const TraceOptions& given) {
  TraceOptions options = given;
  require_writable("--html", options.html);
  if (!options.beside.empty() && options.html.empty())
    fail_input("--beside {}: only a page shows two traces; allowed: with --html FILE", options.beside);
  const Chapter& chapter = kernel_chapter(session, options.chapter);
  if (options.pass.empty()) options.pass = chapter.pass;
  const std::optional<Element> element = element_named(options.element);
  require_served(session, chapter, options, element);
  const judge::TraceRequest request{options.Br,        options.Bc,  numbers_set(options.set), options.seed, element,
                                    options.operation, options.pass};
  require_counts(session);
  const Problem problem = make_problem(session, options);
  check(problem.shape);
  if (const std::string what = chapter.does_not_do(problem, Backend::sim); !what.empty())
    fail_input("{}: chapter {} does not support {} on the simulator; allowed: as many K/V heads as query heads, or {}",
               options.k.empty() ? fmt::format("--kv-heads {}", options.kv_heads) : "--k " + options.k, chapter.number,
               what, kernel_chapters(session, [&](const Chapter& other) {
                 return other.does_not_do(problem, Backend::sim).empty();
               }));
  const judge::Tree tree = options.solutions ? solutions_tree(session, chapter) : readers_tree(session, chapter);

  if (!options.beside.empty())
    other_of(session, chapter, tree, problem, options);  // refuses bad options before anything runs

  const judge::Traced traced = run_traced(session, chapter, tree, problem, request);
  if (traced.trace.too_large > 0) {
    fail_input("--seq, --heads: {} tokens and {} heads are too many to record ({}, at most {}); allowed: fewer of them",
               problem.shape.Nq, problem.shape.B * problem.shape.H, bytes_text(double(traced.trace.too_large)),
               bytes_text(double(judge::kMostOfRecord)));
  }
  if (traced.result == "threw" &&
      (options.Br > 0 || options.Bc > 0 || !options.set.empty() || !options.operation.empty())) {
    fail_input("--br, --bc, --set, --operation: chapter {} does not take these: {}", chapter.number, traced.message);
  }
  if (traced.result == "ok") require_tiles(chapter, traced.trace, options);

  RequestedLines lines;
  if (traced.result == "ok" && options.lines) lines.beside = traces_beside(session, chapter, tree, problem, request);
  if (traced.result == "ok") lines.parts = compare_lines(session, traced.trace, lines.beside);

  const bool nothing = traced.result == "ok" && traced.trace.launches.empty();
  if (!options.html.empty() && traced.result == "ok") {
    write_page(session, chapter, tree, problem, options, traced, lines);
  } else if (!options.html.empty()) {
    print_error("nothing was written: the run has no result\n");
  }
  if (session.json) {
    print_json(trace_json(chapter, tree, problem, options, traced, lines));
  } else {
    fmt::print("{}\n{}\n", session.colored(title_of(chapter, tree), "bold"), input_text(problem, options));
    if (traced.result == "ok") {
      if (nothing) fmt::print("\nno kernel was launched\n");
      print_trace(session, traced.trace, options.metrics);
      if (options.lines) print_lines(session, lines.parts, lines.beside);
      if (!options.html.empty()) fmt::print("\nwritten: {}\n", options.html);
    } else {
      fmt::print("\n{}: {}\n", session.colored(traced.result, "yellow"), traced.message);
      if (traced.result == "todo" && session.book.has_solutions(chapter)) {
        fmt::print("next: ./workbook test {}; the book's own: ./workbook trace {} --solutions\n", chapter.number,
                   chapter.number);
      }
    }
  }
  return traced.clean() && !nothing                                     ? kDone
         : traced.result == "refused" || traced.result == "unavailable" ? kEnvironment
                                                                        : kTestFailed;
}

}  // namespace workbook::cli
