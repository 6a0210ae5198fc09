// run: the main job. Takes Q, K, V, sends them through every stage, and prints a row as each is done.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

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
    fail_input("--memory {}: not a size; allowed: a positive number, with K, M or G after it if you like (\"512M\")",
               text);
  }
  constexpr double least = 16. * 1024 * 1024;  // a stage's program takes about half of that before it computes anything
  if (number * factor < least) fail_input("--memory {}: too little to start a stage; allowed: at least 16M", text);
  return std::uint64_t(number * factor);
}

std::string cell(std::optional<double> value) {
  return value ? fmt::format("{:.1e}", *value) : "-";
}
std::string bytes_cell(std::optional<double> bytes) {
  return bytes && *bytes >= 0 ? bytes_text(*bytes) : "-";
}

void print_head(const Problem& problem, const RunOptions& options) {
  fmt::print("{}\n\n", input_text(problem, options));
  fmt::print("{:<21} {:<9} {:<4} {:>7} {:>7} {:>7} {:>7} {:>8} {:>9} {:>9} {:>9} {:>7}\n", "stage", "source", "on",
             "max err", "allowed", "rms err", "allowed", "previous", "extra mem", "read", "written", "time");
}

void print_row(const Session& session, const StageRow& row) {
  const std::string stage =
      row.pass == row.chapter->pass ? row.chapter->name() : fmt::format("{:02}, {}", row.chapter->number, row.pass);
  fmt::print("{:<21} {:<9} {:<4} ", stage, row.source, name(row.backend));
  if (row.ran()) {
    fmt::print("{:>7} {:>7} {:>7} {:>7} {:>8} {:>9} {:>9} {:>9} {:>6.2f}s  {}\n", cell(row.max_error), cell(row.bound),
               cell(row.rms_error), cell(row.rms_bound), cell(row.previous_difference), bytes_cell(row.extra_bytes),
               bytes_cell(row.read_bytes), bytes_cell(row.written_bytes), row.seconds.value_or(0),
               row.result == "ok" ? session.colored("ok", "green") : session.colored("OUTSIDE ITS BOUND", "red"));
  } else {
    fmt::print("{}\n", session.colored(row.result, "yellow"));
  }
  std::fflush(stdout);  // into a pipe too: the next stage may take minutes
}

void print_legend(const std::vector<StageRow>& rows) {
  std::vector<const StageRow*> open;  // the reader's stages that wait for an exercise: one line for them all
  std::set<std::string> said;         // both passes of a chapter may say the same
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
    fmt::print("{} more open: {}; --stage {} runs this chapter alone\n", open.size() - 1,
               open.size() == 2 ? open[1]->chapter->name()
                                : fmt::format("{} to {}", open[1]->chapter->name(), open.back()->chapter->name()),
               open[0]->chapter->number);
  fmt::print(
      "\nmax err: error of the element of O that uses most of its bound; previous: largest difference to the stage "
      "above;\nof a backward stage: the same of dQ, dK and dV for a normal dO, and previous: to the naive "
      "backward;\nextra mem: the most that the stage allocated while it ran; read, written: what its kernels asked of "
      "global memory,\ncounted by the simulator (sim), whose time says nothing about a GPU's. How the bounds come "
      "about: notes/numerics.md\n");
}

}  // namespace

int run(const Session& session, const RunOptions& options) {
  require_writable("--out", options.out);
  require_writable("--lse", options.lse);
  if (!options.out.empty() && fs::weakly_canonical(options.out) == fs::weakly_canonical(options.lse)) {
    fail_input("--lse {}: that is also --out; allowed: another file", options.lse);
  }
  judge::MainJob job;
  job.stage = options.stage;
  job.own = options.chapters;
  job.backend = worker::backend_named(options.backend);
  job.element = element_named(options.element);
  job.pass = options.pass;
  job.kv_heads = options.k.empty() ? fmt::format("--kv-heads {}", options.kv_heads) : "--k " + options.k;
  if (!options.memory.empty()) job.memory = parse_bytes(options.memory);
  stages_of(session, job);  // an unknown one is said before anything is read
  const Problem problem = make_problem(session, options);

  bool begun = false;
  const judge::MainResult result = run_stages(session, problem, job, [&](const StageRow& row) {
    if (session.json) return;
    if (!begun) print_head(problem, options);
    begun = true;
    print_row(session, row);
  });

  if (result.O) {
    if (!options.out.empty()) write_npy(options.out, *result.O);
    if (!options.lse.empty()) write_npy(options.lse, *result.lse, 3);
  } else if (!options.out.empty() || !options.lse.empty()) {
    fmt::print(stderr, "nothing was written: no stage gave a result\n");
  }
  if (session.json) {
    json document = result.tables.at("json");
    document["input"] = input_json(problem, options);
    document["stages"] = json::array();
    for (const StageRow& row : result.rows) document["stages"].push_back(to_json(row));
    print_json(document);
  } else {
    print_legend(result.rows);
    fmt::print("{}", result.tables.at("text").get<std::string>());
  }

  const auto any = [&](auto condition) { return std::any_of(result.rows.begin(), result.rows.end(), condition); };
  // A stage that says beforehand that it cannot (memory, a mask) is no failure, as long as another one ran.
  if (any([](const StageRow& r) { return !r.ran() && r.supported && r.result != "refused"; })) return kTestFailed;
  if (any([](const StageRow& r) { return r.result == "failed"; })) return kTestFailed;
  return any([](const StageRow& r) { return r.ran(); }) ? kDone : kEnvironment;
}

}  // namespace workbook::cli
