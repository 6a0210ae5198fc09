// run: computes attention on Q, K and V with every stage, and prints each row as soon as the stage is done.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "common/attention/error.hpp"
#include "common/attention/npy.hpp"
#include "common/cli/verbs.hpp"
#include "common/judge/main_job.hpp"

namespace workbook::cli {
namespace fs = std::filesystem;
namespace {

using judge::StageRow;
using nlohmann::json;

/// "512M", "2GiB", "1000000": bytes.
std::uint64_t parse_bytes(const std::string& text) {
  std::size_t end = 0;
  double number = 0;
  try {
    number = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  std::string unit = text.substr(end);
  if (unit.ends_with("iB"))
    unit.resize(unit.size() - 2);
  else if (unit.ends_with("B"))
    unit.resize(unit.size() - 1);
  const double factor = unit.empty()  ? 1
                        : unit == "K" ? 1024
                        : unit == "M" ? 1024. * 1024
                        : unit == "G" ? 1024. * 1024 * 1024
                                      : 0;
  if (end == 0 || factor == 0 || !(number > 0) || number * factor > 1e18) {
    fail_input("--memory {}: not a size; allowed: a positive number, optionally followed by K, M or G (\"512M\")",
               text);
  }
  constexpr double least = 16. * 1024 * 1024;  // a stage's program uses about half of that before it computes anything
  if (number * factor < least) fail_input("--memory {}: too small to start a stage; allowed: at least 16M", text);
  return std::uint64_t(number * factor);
}

std::string cell(std::optional<double> value) {
  return value ? fmt::format("{:.1e}", *value) : "-";
}
std::string bytes_cell(std::optional<double> bytes) {
  return bytes && *bytes >= 0 ? bytes_text(*bytes) : "-";
}

/// The last cell of a row: the verdict, or why there is none.
std::string result_text(const Session& session, const StageRow& row) {
  if (!row.ran()) return session.colored(row.result, "yellow");
  return row.result == "ok" ? session.colored("ok", "green") : session.colored("OUTSIDE ITS BOUND", "red");
}

/// One row per stage, with every figure.
void print_stage_head() {
  fmt::print("{:<23} {:<9} {:<4} {:>7} {:>7} {:>7} {:>7} {:>8} {:>9} {:>9} {:>9} {:>7}\n", "stage", "source", "on",
             "max err", "allowed", "rms err", "allowed", "previous", "extra mem", "read", "written", "time");
}
void print_stage(const Session& session, const StageRow& row) {
  const std::string stage =
      row.pass == row.chapter->pass ? row.chapter->name() : fmt::format("{:02}, {}", row.chapter->number, row.pass);
  fmt::print("{:<23} {:<9} {:<4} ", stage, row.source, name(row.backend));
  if (row.ran())
    fmt::print("{:>7} {:>7} {:>7} {:>7} {:>8} {:>9} {:>9} {:>9} {:>6.2f}s  ", cell(row.max_error), cell(row.bound),
               cell(row.rms_error), cell(row.rms_bound), cell(row.previous_difference), bytes_cell(row.extra_bytes),
               bytes_cell(row.read_bytes), bytes_cell(row.written_bytes), row.seconds.value_or(0));
  fmt::print("{}\n", result_text(session, row));
}

/// Bytes that every implementation of the pass must move: each input is read once, each output is written once.
double least_bytes(const Problem& problem, const StageRow& row) {
  const Shape& s = problem.shape;
  const double Q = double(s.B * s.H * s.Nq * s.d), K = double(s.B * s.Hkv * s.Nk * s.d), lse = double(s.B * s.H * s.Nq);
  const double element = row.element == float32 ? 4 : 2;  // the tensors of float8 arrive in fp16
  // forward: Q, K, V -> O, LSE; backward: Q, K, V, O, dO, LSE -> dQ, dK, dV
  return row.pass == "backward" ? element * (4 * Q + 4 * K) + 4 * lse : element * (2 * Q + 2 * K) + 4 * lse;
}

/// The stage that a chapter's line shows: one that failed, else the one with the largest share of its bound, on a
/// kernel's backend if possible.
const StageRow& shown_of(const std::vector<const StageRow*>& stages) {
  return **std::ranges::max_element(stages, {}, [](const StageRow* row) {
    const double used = row->max_error && row->bound ? *row->max_error / *row->bound : 0;
    return std::tuple(row->result == "failed", row->ran(), row->backend != Backend::cpu, used);
  });
}
void print_chapter_head() {
  fmt::print("{:<46} {:>8} {:>8}  {:>9} {:>9}\n", "chapter", "error", "allowed", "moved", "at least");
}
void print_chapter(const Session& session, const Problem& problem, const StageRow& row) {
  fmt::print("{:>2} {:<43} ", row.chapter->number, row.chapter->title);
  if (row.ran())
    fmt::print("{:>8} {:>8}  {:>9} {:>9}  ", cell(row.max_error), cell(row.bound),
               row.read_bytes && row.written_bytes ? bytes_text(*row.read_bytes + *row.written_bytes) : "-",
               bytes_text(least_bytes(problem, row)));
  fmt::print("{}\n", result_text(session, row));
}

/// Prints rows as soon as they are available: every stage, or one line per chapter once its last stage is done.
class Table {
 public:
  Table(const Session& session, const Problem& problem, const RunOptions& options)
      : session_(session), problem_(problem), options_(options), every_stage_(options.all || !options.stage.empty()) {}

  void add(const StageRow& row) {
    if (!begun_) print_head();
    begun_ = true;
    if (every_stage_) {
      print_stage(session_, row);
    } else {
      if (!rows_.empty() && rows_.back().chapter != row.chapter) finish();
      rows_.push_back(row);
    }
    std::fflush(stdout);  // into a pipe too: the next stage may take minutes
  }
  /// Prints the line of the chapter whose stages have been added.
  void finish() {
    std::vector<const StageRow*> stages;
    for (const StageRow& row : rows_) stages.push_back(&row);
    if (!stages.empty()) {
      const StageRow& shown = shown_of(stages);
      const bool open = shown.result == worker::name(worker::Ending::todo);
      if (!open || !said_open_) print_chapter(session_, problem_, shown);  // the legend gives the number of the others
      said_open_ = said_open_ || open;
    }
    rows_.clear();
  }
  bool every_stage() const { return every_stage_; }

 private:
  void print_head() const {
    fmt::print("{}\n", input_text(problem_, options_));
    if (every_stage_) {
      fmt::print("\n");
      print_stage_head();
    } else {
      fmt::print(
          "Each chapter computes the output O of attention, or the gradients dQ, dK and dV, from these Q, K and "
          "V.\n\n");
      print_chapter_head();
    }
  }

  const Session& session_;
  const Problem& problem_;
  const RunOptions& options_;
  bool every_stage_, begun_ = false, said_open_ = false;
  std::vector<StageRow> rows_;  // of the chapter that is running
};

void print_legend(const std::vector<StageRow>& rows, bool every_stage) {
  std::vector<const StageRow*> open;  // the reader's stages with an open exercise: one line for all of them
  std::set<std::string> said;         // both passes of a chapter may have the same message
  for (const StageRow& row : rows) {
    if (row.result == worker::name(worker::Ending::todo)) {
      open.push_back(&row);
    } else if (!row.message.empty()) {
      const std::string text = fmt::format("\n{}: {}\n", row.chapter->name(), row.message);
      if (said.insert(text).second) fmt::print("{}", text);
    }
  }
  if (!open.empty()) fmt::print("\n{}: {}\n", open[0]->chapter->name(), open[0]->message);
  if (open.size() > 1)
    fmt::print("{} more open: {}; --stage {} runs only this chapter\n", open.size() - 1,
               open.size() == 2 ? open[1]->chapter->name()
                                : fmt::format("{} to {}", open[1]->chapter->name(), open.back()->chapter->name()),
               open[0]->chapter->number);
  if (every_stage)
    fmt::print(
        "\nmax err: the error of O (backward: of dQ, dK and dV, with a normally distributed dO) closest to its bound;\n"
        "previous: the largest difference from the stage above (backward: from the naive backward pass);\n"
        "extra mem: peak memory allocated by the stage; read, written: bytes moved by its kernels, counted by the\n"
        "simulator (sim), whose time is no measure of a GPU's. notes/numerics.md derives the bounds\n");
  else
    fmt::print(
        "\nerror: the largest difference from a float64 reference, where it is closest to its bound (allowed).\n"
        "moved: bytes that the kernels read and wrote, counted by the simulator; at least: every input read once,\n"
        "every output written once. --all shows each stage with all figures; --stage 4 shows one chapter.\n");
}

}  // namespace

int run(const Session& session, const RunOptions& options) {
  require_writable("--out", options.out);
  require_writable("--lse", options.lse);
  if (!options.out.empty() && fs::weakly_canonical(options.out) == fs::weakly_canonical(options.lse)) {
    fail_input("--lse {}: the same file as --out; allowed: another file", options.lse);
  }
  judge::MainJob job;
  job.stage = options.stage;
  job.own = options.chapters;
  job.backend = worker::backend_named(options.backend);
  job.element = element_named(options.element);
  job.pass = options.pass;
  job.numbers = numbers_set(options.set);
  if (!options.set.empty() && options.stage.empty())
    fail_input("--set {}: it needs --stage, since each chapter has parameters of its own", options.set.front());
  job.kv_heads = options.k.empty() ? fmt::format("--kv-heads {}", options.kv_heads) : "--k " + options.k;
  if (!options.memory.empty()) job.memory = parse_bytes(options.memory);
  stages_of(session, job);  // refuses an unknown stage before any input is read
  const Problem problem = make_problem(session, options);

  Table table(session, problem, options);
  const judge::MainResult result = run_stages(session, problem, job, [&](const StageRow& row) {
    if (!session.json) table.add(row);
  });
  if (!session.json) table.finish();

  if (result.O) {
    if (!options.out.empty()) write_npy(options.out, *result.O);
    if (!options.lse.empty()) write_npy(options.lse, *result.lse, 3);
  } else if (!options.out.empty() || !options.lse.empty()) {
    print_error("nothing was written: no stage computed a result\n");
  }
  if (session.json) {
    json document = result.tables.at("json");
    document["input"] = input_json(problem, options);
    document["stages"] = json::array();
    for (const StageRow& row : result.rows) document["stages"].push_back(to_json(row));
    print_json(document);
  } else {
    print_legend(result.rows, table.every_stage());
    fmt::print("{}", result.tables.at("text").get<std::string>());
  }

  const auto any = [&](auto condition) { return std::any_of(result.rows.begin(), result.rows.end(), condition); };
  // A stage that refuses a call (for its memory or its mask) does not fail the run, provided that another stage ran.
  if (any([](const StageRow& r) { return !r.ran() && r.supported && r.result != "refused"; })) return kTestFailed;
  if (any([](const StageRow& r) { return r.result == "failed"; })) return kTestFailed;
  return any([](const StageRow& r) { return r.ran(); }) ? kDone : kEnvironment;
}

}  // namespace workbook::cli
