// trace: what a chapter's kernels do. One run on the simulator, which records every launch: traffic of each tensor,
// bank conflicts, barriers, and which tiles each block read.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "common/attention/element.hpp"
#include "common/attention/error.hpp"
#include "common/attention/inputs.hpp"
#include "common/book/files.hpp"
#include "common/book/progress.hpp"
#include "common/cli/trace_page.hpp"
#include "common/cli/verbs.hpp"
#include "common/judge/run.hpp"
#include "common/judge/trace_facts.hpp"
#include "common/judge/trace_launch.hpp"
#include "common/worker/calls.hpp"
#include "common/worker/worker.hpp"

namespace workbook::cli {
namespace {

using book::Chapter;
using nlohmann::json;

constexpr std::size_t kMostText = std::size_t(16) << 20;  // bytes of the worker's record
constexpr std::int64_t kMostRows = 64;                    // of a map in the terminal

/// How the run ended, and what it did.
struct Traced {
  std::string result = "ok";  ///< as in run --json
  std::string message;
  Trace trace;
  bool clean() const {
    return result == "ok" && trace.reports.empty() &&
           std::all_of(trace.launches.begin(), trace.launches.end(), [](const auto& l) { return l.reports.empty(); });
  }
};

/// A chapter that launches kernels; InputError naming those that do.
const Chapter& kernel_chapter(const Session& session, const std::string& which) {
  const Chapter& chapter = session.book.chapter(which);
  if (chapter.runs_on(Backend::sim)) return chapter;
  std::vector<int> others;
  for (const Chapter& other : session.book.chapters) {
    if (other.runs_on(Backend::sim)) others.push_back(other.number);
  }
  fail_input("trace {}: chapter {} runs on the CPU and launches no kernels; allowed: {}", which, chapter.number,
             others.empty() ? "a chapter with kernels, of which this book has none"
                            : fmt::format("a chapter with kernels: {}", fmt::join(others, ", ")));
}

/// EnvironmentError where kernels cannot be counted.
void require_simulator(const Session& session) {
  if (!session.toolchain.can_build(Backend::sim)) {
    throw EnvironmentError("trace needs the simulator, which cannot run here: " +
                           session.toolchain.why_not(Backend::sim));
  }
  if (!session.toolchain.counts) {
    throw EnvironmentError("trace needs the simulator's counters, which are missing here: " +
                           session.toolchain.simulator);
  }
}

/// Where an open exercise stands, as "chapters/…:12"; empty if the reader's files do not say.
std::string place_of(const Session& session, const std::string& exercise) {
  const auto progress = book::load_progress(session.book);
  const auto found = progress.find(exercise);
  return found == progress.end() || found->second.line == 0
             ? ""
             : fmt::format("{}:{}", session.shown(found->second.file), found->second.line);
}

/// What --set gives: numbers that the chapter's operation knows, beside those that other options give it. InputError
/// for what is no NAME=NUMBER, or for one of those.
std::map<std::string, double> numbers_set(const TraceOptions& options) {
  constexpr const char* taken[] = {"B",      "H",  "Hkv", "Nq",    "Nk",      "d",        "scale",
                                   "causal", "Br", "Bc",  "trace", "workers", "lane_seed"};
  std::map<std::string, double> numbers;
  for (const std::string& text : options.set) {
    const std::size_t equals = text.find('=');
    const std::string digits = equals == std::string::npos ? "" : text.substr(equals + 1);
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool number = !digits.empty() && error == std::errc() && end == digits.data() + digits.size();
    if (equals == 0 || !number || !std::isfinite(value)) {
      fail_input("--set {}: allowed: NAME=NUMBER, e.g. warps=2", text);
    }
    const std::string name = text.substr(0, equals);
    if (std::find(std::begin(taken), std::end(taken), name) != std::end(taken)) {
      fail_input("--set {}: {} is not for --set; allowed: a number of the chapter's own, e.g. warps=2", text, name);
    }
    numbers[name] = value;
  }
  return numbers;
}

Traced run_traced(const Session& session, const Chapter& chapter, const judge::Tree& tree, const Problem& problem,
                  const TraceOptions& options) {
  Traced traced;
  session.progress(fmt::format("building chapter {}", chapter.number));
  worker::build_targets(session.toolchain, session.toolchain.backends.at(Backend::sim).targets);
  const worker::WorkerJob job = whole_job(session, chapter, tree, Backend::sim);
  const worker::WorkerBuilt built = worker::build_workers(session.toolchain, {job}).at(job.name);
  if (!built.ok) {
    traced.result = "not compiled";
    traced.message = built.log;
    return traced;
  }
  session.progress(fmt::format("simulating chapter {}", chapter.number));
  worker::Limits limits;
  limits.time = std::chrono::duration<double>(24 * 3600.0);
  limits.memory = 1ull << 46;
  worker::Worker worker(built.executable, limits);
  std::map<std::string, double> numbers{{"trace", 1}};
  if (options.Br > 0) numbers["Br"] = double(options.Br);
  if (options.Bc > 0) numbers["Bc"] = double(options.Bc);
  for (const auto& [name, value] : numbers_set(options)) numbers[name] = value;
  const std::string element = chapter.element_on(Backend::sim);
  const auto send = [&](const worker::Call& call) {
    worker::Call with_record = call;
    with_record.output<std::uint8_t>("trace", kMostText);
    return worker.call(with_record);
  };
  try {
    worker::Reply reply;
    if (chapter.pass == "backward") {
      Tensor<float> dO(problem.Q.sizes);  // any will do: what is counted does not depend on the numbers
      dO.values = normal_values(dO.values.size(), options.seed);
      reply =
          worker::backward("backward", worker::backward_problem(problem, dO, element), element, element, numbers, send)
              .reply;
    } else {
      reply = worker::forward(rounded_to(problem, element), element, numbers, send).reply;
    }
    const std::vector<std::byte>& bytes = reply.outputs.at("trace");
    const auto end = std::find(bytes.begin(), bytes.end(), std::byte{0xFF});  // an output's filling; in no UTF-8
    traced.trace = parse_trace({reinterpret_cast<const char*>(bytes.data()), std::size_t(end - bytes.begin())});
  } catch (const worker::Failure& failure) {
    traced.result = worker::name(failure.ending);
    traced.message = failure.what();
    if (failure.ending == worker::Ending::todo) {
      const std::string place = place_of(session, failure.todo);
      traced.message = fmt::format("exercise {} is still open{}{}", failure.todo, place.empty() ? "" : ": ", place);
    }
  }
  session.progress("");
  return traced;
}

/// What --br and --bc asked for must be what the kernels took.
void require_tiles(const Chapter& chapter, const Trace& trace, const TraceOptions& options) {
  const auto check = [&](const char* flag, std::int64_t asked, const char* tensor) {
    if (asked == 0) return;
    std::int64_t took = 0;
    for (const TracedLaunch& launch : trace.launches) {
      const TracedTensor* found = launch.tensor(tensor);
      if (found == nullptr || !found->tiling) continue;
      took = found->tiling->tile_rows;
      if (took == asked) return;
    }
    if (took == 0)
      fail_input("{} {}: chapter {} has no tiles to choose; allowed: leave it out", flag, asked, chapter.number);
    fail_input("{} {}: chapter {} takes tiles of {} rows only; allowed: {}, or leave it out", flag, asked,
               chapter.number, took, took);
  };
  check("--br", options.Br, "Q");
  check("--bc", options.Bc, "K");
}

// --- Text ------------------------------------------------------------------------------------------------------------

std::string table_text(const TraceTable& table) {
  std::vector<std::size_t> widths(table.rows[0].size(), 0);
  for (const auto& row : table.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : table.rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i < table.left ? fmt::format(" {:<{}}", row[i], widths[i]) : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

/// Characters of a line on the terminal; elsewhere those of a page.
std::int64_t line_width() {
  winsize size{};
  if (::isatty(1) != 0 && ::ioctl(1, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40) return size.ws_col;
  return 120;
}

std::string map_text(const TileMap& map) {
  const auto rows = std::int64_t(map.rows.size()), columns = std::int64_t(map.columns());
  const std::string row_name = map.row_tensor.empty() ? "block" : map.row_tensor;
  const std::size_t name_width =
      std::max(row_name.size() + 1 + fmt::format("{}", map.rows.empty() ? 0 : map.rows.back()).size(), std::size_t(8));
  DrawnMap drawn = draw(map, 1);
  const auto characters = [&] { return std::int64_t(drawn.width() > 1 ? drawn.width() + 1 : 1); };
  const std::int64_t room = line_width() - std::int64_t(name_width) - 5;
  for (std::int64_t scale = std::max(columns * characters() / std::max<std::int64_t>(room, 1), rows / kMostRows);;
       ++scale) {
    drawn = draw(map, std::max<std::int64_t>(scale, 1));
    if (std::int64_t(drawn.cells[0].size()) * characters() <= room && std::int64_t(drawn.cells.size()) <= kMostRows)
      break;
    if (scale > std::max(rows, columns)) break;  // one cell: it cannot be smaller
  }
  const std::size_t width = std::size_t(characters()) - (drawn.width() > 1 ? 1 : 0);
  std::string text = fmt::format("  tile map: {}\n", map_title(map));
  for (const auto& [mark, meaning] : map_legend(map, drawn)) {
    text += fmt::format("{}{} {}", text.ends_with("\n") ? "    " : "   ", mark.text, meaning);
  }
  text += "\n";
  if (const std::string note = map_note(map, drawn); !note.empty()) text += fmt::format("    {}\n", note);
  for (std::size_t i = 0; i < drawn.cells.size(); ++i) {
    const std::string name = fmt::format("{} {}", row_name, map.rows[i * std::size_t(drawn.scale)]);
    text += fmt::format("    {:>{}} ", name, name_width);
    for (std::size_t j = 0; j < drawn.cells[i].size(); ++j) {
      text += fmt::format("{}{:>{}}", width > 1 && j > 0 ? " " : "", drawn.cells[i][j].text, width);
    }
    text += "\n";
  }
  return text;
}

void print_launch(const Session& session, const TracedLaunch& launch, bool metrics) {
  fmt::print("\n{}\n  {}\n\n", session.colored(launch.kernel, "bold"), launch_shape(launch));
  fmt::print("{}", table_text(traffic_table(launch)));
  if (const TraceTable shared = shared_table(launch); shared.rows.size() > 1) fmt::print("\n{}", table_text(shared));
  fmt::print("\n");
  std::size_t width = 0;
  const auto facts = launch_facts(launch);
  for (const auto& [name, text] : facts) width = std::max(width, name.size());
  for (const auto& [name, text] : facts) fmt::print("  {:<{}}  {}\n", name, width, text);
  for (const TileMap& map : tile_maps(launch)) fmt::print("\n{}", map_text(map));
  if (metrics) fmt::print("\n{}", table_text(metrics_table(launch)));
  for (const std::string& report : launch.reports)
    fmt::print("\n{}\n{}", session.colored("the simulator reports", "red"), report);
}

void print_trace(const Session& session, const Trace& trace, bool metrics) {
  for (const TracedLaunch& launch : trace.launches) print_launch(session, launch, metrics);
  if (trace.launches.size() > 1) {
    fmt::print("\n{}\n{}", session.colored("all launches together", "bold"),
               table_text(all_traffic_table(trace.launches)));
  }
  for (const std::string& report : trace.reports)
    fmt::print("\n{}\n{}", session.colored("the simulator reports", "red"), report);
  fmt::print("\n{}.\n{}.\n", traffic_legend, shared_legend);
}

// --- JSON ------------------------------------------------------------------------------------------------------------

json map_json(const TileMap& map) {
  json rows = json::array();
  for (std::size_t i = 0; i < map.rows.size(); ++i) {
    json reads = json::array(), masked = json::array();
    for (std::size_t j = 0; j < map.columns(); ++j) {
      reads.push_back(map.cells[i][j].reads);
      if (map.cells[i][j].masked) masked.push_back(j);
    }
    rows.push_back({{"row", map.rows[i]}, {"reads", reads}, {"masked", masked}});
  }
  return {{"tensors", map.tensors},
          {"tile_rows", map.tile_rows},
          {"row_tensor", map.row_tensor.empty() ? json(nullptr) : json(map.row_tensor)},
          {"row_tile_rows", map.row_tensor.empty() ? json(nullptr) : json(map.row_tile_rows)},
          {"heads", map.matrices},
          {"divided", map.divided},
          {"rows", rows}};
}

json launch_json(const TracedLaunch& launch) {
  json tensors = json::array(), notes = json::array(), maps = json::array();
  for (const TracedTensor& tensor : launch.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"bytes", tensor.bytes},
                       {"times_read", number_json(tensor.times_read())},
                       {"times_written", number_json(tensor.times_written())},
                       {"counters", tensor.counters}});
  }
  for (const TracedNote& note : launch.notes) notes.push_back({{"label", note.label}, {"count", note.count()}});
  for (const TileMap& map : tile_maps(launch)) maps.push_back(map_json(map));
  return {{"kernel", launch.kernel},
          {"grid", launch.grid},
          {"block", launch.block},
          {"shared_bytes", launch.shared_bytes},
          {"counters", launch.counters},
          {"tensors", tensors},
          {"notes", notes},
          {"maps", maps},
          {"reports", launch.reports}};
}

json trace_json(const Chapter& chapter, const judge::Tree& tree, const Problem& problem, const TraceOptions& options,
                const Traced& traced) {
  json launches = json::array();
  for (const TracedLaunch& launch : traced.trace.launches) launches.push_back(launch_json(launch));
  return {{"chapter", chapter.name()},     {"source", tree.name},
          {"backend", name(Backend::sim)}, {"input", input_json(problem, options)},
          {"result", traced.result},       {"message", traced.message.empty() ? json(nullptr) : json(traced.message)},
          {"launches", launches},          {"reports", traced.trace.reports}};
}

}  // namespace

int trace(const Session& session, const TraceOptions& options) {
  require_writable("--html", options.html);
  const Chapter& chapter = kernel_chapter(session, options.chapter);
  if (chapter.pass == "backward" && (options.Br > 0 || options.Bc > 0)) {
    fail_input("{}: chapter {} chooses its own tiles; allowed: leave it out", options.Br > 0 ? "--br" : "--bc",
               chapter.number);
  }
  if (options.causal && !chapter.causal) {
    fail_input("--causal: chapter {} has no causal mask; allowed: leave it out", chapter.number);
  }
  if (options.solutions && !session.book.has_solutions(chapter)) {
    fail_input("--solutions: there is no solution of chapter {} here; allowed: your own code", chapter.number);
  }
  numbers_set(options);  // before anything is built
  require_simulator(session);
  const Problem problem = make_problem(session, options);
  check(problem.shape);
  const judge::Tree tree = options.solutions ? solutions_tree(session, chapter) : readers_tree(session, chapter);

  const Traced traced = run_traced(session, chapter, tree, problem, options);
  if (traced.trace.too_large > 0) {
    fail_input("--seq, --heads: {} tokens and {} heads are too many to record ({}, at most {}); allowed: fewer",
               problem.shape.Nq, problem.shape.B * problem.shape.H, bytes_text(double(traced.trace.too_large)),
               bytes_text(double(kMostText)));
  }
  if (traced.result == "threw" && (options.Br > 0 || options.Bc > 0 || !options.set.empty())) {
    fail_input("--br, --bc, --set: chapter {} does not take these: {}", chapter.number, traced.message);
  }
  if (traced.result == "ok") require_tiles(chapter, traced.trace, options);

  const std::string title = fmt::format("Chapter {}: {} ({}, on the simulator)", chapter.number, chapter.title,
                                        options.solutions ? "the book's solution" : "your code");
  const bool nothing = traced.result == "ok" && traced.trace.launches.empty();
  if (!options.html.empty() && traced.result == "ok") {
    book::write_file(std::filesystem::absolute(options.html),
                     trace_page({title, input_text(problem, options), &traced.trace}));
  } else if (!options.html.empty()) {
    fmt::print(stderr, "nothing was written: there is no result\n");
  }
  if (session.json) {
    print_json(trace_json(chapter, tree, problem, options, traced));
  } else {
    fmt::print("{}\n{}\n", session.colored(title, "bold"), input_text(problem, options));
    if (traced.result == "ok") {
      if (nothing) fmt::print("\nno kernel was launched\n");
      print_trace(session, traced.trace, options.metrics);
      if (!options.html.empty()) fmt::print("\nwritten: {}\n", options.html);
    } else {
      fmt::print("\n{}: {}\n", session.colored(traced.result, "yellow"), traced.message);
      if (traced.result == "todo" && session.book.has_solutions(chapter)) {
        fmt::print("next: ./workbook test {}; the book's own: ./workbook trace {} --solutions\n", chapter.number,
                   chapter.number);
      }
    }
  }
  return traced.clean() && !nothing ? kDone : traced.result == "refused" ? kEnvironment : kTestFailed;
}

}  // namespace workbook::cli
