// run: the main job. Takes Q, K, V, sends them through every stage, checks each against the oracle and the stage
// before.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>

#include "common/attention/element.hpp"
#include "common/attention/error.hpp"
#include "common/attention/npy.hpp"
#include "common/attention/text.hpp"
#include "common/attention/tolerance.hpp"
#include "common/book/compare.hpp"
#include "common/book/files.hpp"
#include "common/cli/testing.hpp"
#include "common/cli/verbs.hpp"
#include "common/worker/stage.hpp"
#include "common/worker/worker.hpp"

namespace workbook::cli {
namespace fs = std::filesystem;
namespace {

using book::Chapter;
using nlohmann::json;

constexpr std::int64_t kBr = 64, kBc = 64;  // tile sizes for the stages that have them

/// One row of the table.
struct Row {
  const Chapter* chapter = nullptr;
  std::string source, backend;
  std::string result = "ok";  ///< "ok", "failed", or why there is no result: "todo", "refused", "not compiled", …
  std::string message;
  bool supported = true;
  std::optional<double> max_error, bound, rms_error, rms_bound, previous_difference, extra_bytes, seconds;
  std::optional<double> read_bytes, written_bytes, tiles;  ///< counted on the simulator
  bool ran() const { return result == "ok" || result == "failed"; }
};

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

/// The bytes of README, lessons and notes: the book's own text.
std::string books_text(const book::Book& book) {
  std::vector<fs::path> files{book.root / "README.md"};
  for (const char* folder : {"chapters", "notes"}) {
    if (!fs::is_directory(book.root / folder)) continue;  // a release may come without the notes
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(book.root / folder)) {
      if (entry.path().extension() == ".md") found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  std::string text;
  for (const fs::path& file : files) text += book::read_file(file);
  return text;
}

void require_finite(const std::string& name, const Tensor<float>& tensor) {
  const auto bad = std::find_if(tensor.values.begin(), tensor.values.end(), [](float x) { return !std::isfinite(x); });
  if (bad == tensor.values.end()) return;
  std::int64_t at = bad - tensor.values.begin();
  std::int64_t index[4];
  for (int axis = 3; axis >= 0; --axis) {
    index[axis] = at % tensor.sizes[std::size_t(axis)];
    at /= tensor.sizes[std::size_t(axis)];
  }
  fail_input(
      "{}: the element at (batch {}, head {}, row {}, column {}) is {}; allowed: finite numbers only, since one NaN "
      "or infinity spreads over every row that reads it and nothing could be checked",
      name, index[0], index[1], index[2], index[3], *bad);
}

/// One of --q, --k, --v; what is wrong with the file is said with the flag in front.
Tensor<float> read_input(const std::string& flag, const std::string& path) {
  Tensor<float> tensor;
  try {
    tensor = read_npy(path);
  } catch (const InputError& error) {
    fail_input("{} {}", flag, error.what());
  }
  require_finite(flag + " " + path, tensor);
  return tensor;
}

Problem problem_from_files(const RunOptions& options) {
  Problem problem;
  problem.Q = read_input("--q", options.q);
  problem.K = read_input("--k", options.k);
  problem.V = read_input("--v", options.v);
  const auto sizes = [](const Tensor<float>& t) {
    return fmt::format("({}, {}, {}, {})", t.sizes[0], t.sizes[1], t.sizes[2], t.sizes[3]);
  };
  const auto& q = problem.Q.sizes;
  const auto& k = problem.K.sizes;
  if (k != problem.V.sizes) {
    fail_input("--v {}: shape {} does not fit K's {}; allowed: the same shape", options.v, sizes(problem.V),
               sizes(problem.K));
  }
  const auto same = [&](const char* what, std::size_t axis) {
    if (q[axis] == k[axis]) return;
    fail_input("--k {}: {} {} does not fit Q's {}; allowed: the same ({} beside Q's {})", options.k, what, k[axis],
               q[axis], sizes(problem.K), sizes(problem.Q));
  };
  same("batch", 0);
  same("head count", 1);  // until the chapter on grouped queries
  same("head_dim", 3);
  problem.shape = {q[0], q[1], k[1], q[2], k[2], q[3]};
  check(problem.shape, true);
  problem.causal = options.causal;
  problem.scale = options.scale_given ? float(options.scale) : default_scale(problem.shape.d);
  return problem;
}

Problem problem_from_text(const Session& session, const RunOptions& options) {
  std::string text;
  if (options.text.empty()) {
    text = books_text(session.book);
  } else {
    try {
      text = book::read_file(options.text);
    } catch (const std::runtime_error& error) {
      fail_input("--text {}: {}", options.text, error.what());
    }
  }
  constexpr std::int64_t widest = 4096;  // the three projections are (H·d)² numbers each
  if (options.heads > widest / options.head_dim) {
    fail_input("--heads {}: a text is embedded in H·d numbers, at most {}; allowed with --head-dim {}: 1 to {}",
               options.heads, widest, options.head_dim, widest / options.head_dim);
  }
  if (std::int64_t(text.size()) < options.seq) {
    fail_input("--seq {}: {} has {} bytes; allowed: at most that many, or another file with --text", options.seq,
               options.text.empty() ? "the book's own text" : options.text, text.size());
  }
  const Shape shape{1, options.heads, options.heads, options.seq, options.seq, options.head_dim};
  check(shape);
  // In fp16 numbers, so that every stage is given the same ones.
  return rounded_to(embed_text(text, shape, options.causal,
                               options.scale_given ? float(options.scale) : default_scale(shape.d), options.seed),
                    "float16");
}

Problem make_problem(const Session& session, const RunOptions& options) {
  const int files = !options.q.empty() + !options.k.empty() + !options.v.empty();
  if (files != 0 && files != 3) fail_input("--q, --k and --v: {} of them given; allowed: all three or none", files);
  if (files == 3 && (!options.text.empty() || options.shape_given)) {
    fail_input("--q, --k, --v come with their own shape; not allowed beside them: --text, --seq, --heads, --head-dim");
  }
  return files == 3 ? problem_from_files(options) : problem_from_text(session, options);
}

/// Before anything is computed: can the output be written?
void require_writable(const char* flag, const std::string& path) {
  if (path.empty()) return;
  const fs::path folder = fs::absolute(path).parent_path();
  if (!fs::is_directory(folder))
    fail_input("{} {}: the folder {} does not exist; allowed: a file in a folder that does", flag, path,
               folder.string());
  if (fs::is_directory(path)) fail_input("{} {}: that is a folder; allowed: a file name", flag, path);
  if (fs::exists(path) && !fs::is_regular_file(path)) {
    fail_input("{} {}: that is no regular file and would be replaced by one; allowed: a file name", flag, path);
  }
  if (::access(folder.c_str(), W_OK) != 0)
    fail_input("{} {}: the folder {} cannot be written to", flag, path, folder.string());
}

double largest_difference(const Tensor<float>& a, const Tensor<float>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    const double difference = std::abs(double(a.values[i]) - double(b.values[i]));
    if (!(difference <= largest)) largest = difference;  // keeps a NaN
  }
  return largest;
}

/// The worse of two tensors' comparisons, by the share of the bound that is used.
void take(Row& row, const book::Comparison& O, const book::Comparison& lse) {
  row.max_error = O.max_error;
  row.bound = O.bound;
  row.rms_error = O.rms_error;
  row.rms_bound = O.rms_bound;
  if (O.close && lse.close) return;
  row.result = "failed";
  row.message = O.close ? lse.text : O.text;
}

json input_json(const Problem& problem, const RunOptions& options) {
  const Shape& s = problem.shape;
  json input{{"source", !options.q.empty()     ? "npy"
                        : options.text.empty() ? "book"
                                               : "text"},
             {"B", s.B},
             {"H", s.H},
             {"Hkv", s.Hkv},
             {"Nq", s.Nq},
             {"Nk", s.Nk},
             {"d", s.d},
             {"causal", problem.causal},
             {"scale", number_json(problem.scale)}};
  input["seed"] = options.q.empty() ? json(options.seed) : json(nullptr);
  return input;
}

json row_json(const Row& row) {
  return {{"chapter", row.chapter->name()},
          {"source", row.source},
          {"backend", row.backend},
          {"pass", row.chapter->pass},
          {"supported", row.supported},
          {"result", row.result},
          {"message", row.message.empty() ? json(nullptr) : json(row.message)},
          {"max_error", number_json(row.max_error)},
          {"rms_error", number_json(row.rms_error)},
          {"bound", number_json(row.bound)},
          {"rms_bound", number_json(row.rms_bound)},
          {"previous_difference", number_json(row.previous_difference)},
          {"extra_bytes", row.extra_bytes ? json(std::int64_t(*row.extra_bytes)) : json(nullptr)},
          {"global_read_bytes", number_json(row.read_bytes)},
          {"global_write_bytes", number_json(row.written_bytes)},
          {"tiles", row.tiles ? json(std::int64_t(*row.tiles)) : json(nullptr)},
          {"seconds", number_json(row.seconds)}};
}

std::string cell(std::optional<double> value) {
  return value ? fmt::format("{:.1e}", *value) : "-";
}
std::string bytes_cell(std::optional<double> bytes) {
  return bytes && *bytes >= 0 ? bytes_text(*bytes) : "-";
}

void print_table(const Session& session, const Problem& problem, const RunOptions& options,
                 const std::vector<Row>& rows) {
  const Shape& s = problem.shape;
  fmt::print("Attention over {}: B={}, H={}, Nq={}, Nk={}, d={}, {}, scale {:.6g}\n\n",
             !options.q.empty()     ? options.q
             : options.text.empty() ? "the book's own text"
                                    : options.text,
             s.B, s.H, s.Nq, s.Nk, s.d, problem.causal ? "causal" : "not causal", problem.scale);
  fmt::print("{:<22} {:<10} {:<4} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11} {:>10} {:>10} {:>9}\n", "stage", "source", "on",
             "max err", "allowed", "rms err", "allowed", "previous", "extra mem", "read", "written", "time");
  for (const Row& row : rows) {
    fmt::print("{:<22} {:<10} {:<4} ", row.chapter->name(), row.source, row.backend);
    if (row.ran()) {
      fmt::print("{:>9} {:>9} {:>9} {:>9} {:>9} {:>11} {:>10} {:>10} {:>8.3f}s  {}\n", cell(row.max_error),
                 cell(row.bound), cell(row.rms_error), cell(row.rms_bound), cell(row.previous_difference),
                 bytes_cell(row.extra_bytes), bytes_cell(row.read_bytes), bytes_cell(row.written_bytes),
                 row.seconds.value_or(0),
                 row.result == "ok" ? session.colored("ok", "green") : session.colored("OUTSIDE ITS BOUND", "red"));
    } else {
      fmt::print("{}\n", session.colored(row.result, "yellow"));
    }
  }
  for (const Row& row : rows) {
    if (!row.message.empty()) fmt::print("\n{}: {}\n", row.chapter->name(), row.message);
  }
  fmt::print(
      "\nmax err: error of the element of O that uses most of its bound; previous: largest difference to the stage "
      "above;\nextra mem: the most that the stage allocated while it ran; read, written: what its kernels asked of "
      "global memory,\ncounted by the simulator (sim), whose time says nothing about a GPU's. How the bounds come "
      "about: notes/numerics.md\n");
}

/// A chapter on one of its backends.
struct Stage {
  const Chapter* chapter;
  std::string backend;
};

/// Every chapter on its backends; on a GPU where there is one, or where it was asked for by name.
std::vector<Stage> wanted_stages(const Session& session, const RunOptions& options) {
  std::vector<const Chapter*> chapters;
  if (options.stage.empty()) {
    for (const Chapter& chapter : session.book.chapters) chapters.push_back(&chapter);
  } else {
    try {
      chapters.push_back(&session.book.chapter(options.stage));
    } catch (const book::ManifestError& error) {
      fail_input("--stage {}: {}", options.stage, error.what());
    }
  }
  std::vector<Stage> stages;
  for (const Chapter* chapter : chapters) {
    for (const std::string& backend : chapter->backends) {
      const bool wanted = options.backend.empty() ? backend != "cuda" || gpu_present() : backend == options.backend;
      if (wanted) stages.push_back({chapter, backend});
    }
  }
  if (stages.empty()) fail_input("--backend {}: none of these stages runs on it", options.backend);
  return stages;
}

worker::WorkerJob stage_job(const Session& session, const Stage& stage, const RunOptions& options) {
  const bool own = options.chapters || !session.book.has_solutions(*stage.chapter);
  return whole_job(session, *stage.chapter,
                   own ? readers_tree(session, *stage.chapter) : solutions_tree(session, *stage.chapter),
                   stage.backend);
}

/// What stages that see the same numbers are given and checked against, once one of them needs it.
struct Checked {
  std::optional<Problem> problem;
  std::optional<Forward> oracle;
};

/// Time, memory, and what the simulator counted.
void take_counters(Row& row, const worker::Reply& reply) {
  row.seconds = reply.seconds;
  if (reply.extra_bytes >= 0) row.extra_bytes = double(reply.extra_bytes);
  const auto counted = [&](const char* name) -> std::optional<double> {
    const auto found = reply.counters.find(name);
    return found == reply.counters.end() ? std::nullopt : std::optional(found->second);
  };
  if (const auto read = counted("global.load_bytes"))
    row.read_bytes = *read + counted("global.async_bytes").value_or(0);
  row.written_bytes = counted("global.store_bytes");
  row.tiles = counted("K.tiles");
}

}  // namespace

int run(const Session& session, const RunOptions& options) {
  require_writable("--out", options.out);
  require_writable("--lse", options.lse);
  if (!options.out.empty() && fs::weakly_canonical(options.out) == fs::weakly_canonical(options.lse)) {
    fail_input("--lse {}: that is also --out; allowed: another file", options.lse);
  }
  const std::uint64_t memory = options.memory.empty() ? 1ull << 46 : parse_bytes(options.memory);
  const std::vector<Stage> stages = wanted_stages(session, options);
  const Problem problem = make_problem(session, options);

  session.show_progress("building the stages");
  std::vector<std::string> targets;
  std::vector<worker::WorkerJob> jobs;
  for (const Stage& stage : stages) {
    if (!can_build(session, stage.backend)) continue;
    const std::vector<std::string>& more = session.toolchain.backends.at(stage.backend).targets;
    targets.insert(targets.end(), more.begin(), more.end());
    jobs.push_back(stage_job(session, stage, options));
  }
  worker::build_targets(session.toolchain, targets);
  const auto built = worker::build_workers(session.toolchain, jobs);

  std::map<std::string, Checked> checked;  // by element
  std::vector<Row> rows;
  std::optional<Tensor<float>> previous, last_lse;
  for (const Stage& stage : stages) {
    const Chapter& chapter = *stage.chapter;
    Row row;
    row.chapter = &chapter;
    row.backend = stage.backend;
    row.source = options.chapters || !session.book.has_solutions(chapter) ? "chapters" : "solutions";
    session.show_progress(fmt::format("running {} on {}", chapter.name(), stage.backend));
    if (!can_build(session, stage.backend)) {
      row.supported = false;
      row.result = "unavailable";
      row.message = session.toolchain.unavailable.at(stage.backend);
    } else if (const worker::WorkerBuilt& executable = built.at(stage_job(session, stage, options).name);
               !executable.ok) {
      row.result = "not compiled";
      row.message = executable.log;
    } else if (problem.causal && !chapter.causal) {
      row.supported = false;
      row.result = "does not do causal";
    } else {
      worker::Limits limits;
      limits.time = std::chrono::duration<double>(24 * 3600.0);
      limits.memory = stage.backend == "cuda" ? 0 : memory;  // CUDA reserves far more addresses than it uses
      worker::Worker worker(executable.executable, limits);
      const std::string element = chapter.element_on(stage.backend);
      try {
        const Problem rounded = rounded_to(problem, element);
        const bool same = rounded.Q.values == problem.Q.values && rounded.K.values == problem.K.values &&
                          rounded.V.values == problem.V.values;
        Checked& check = checked[same ? "float32" : element];
        if (!check.problem) check.problem = rounded;
        std::map<std::string, double> tiles;
        if (stage.backend == "cpu") tiles = {{"Br", kBr}, {"Bc", kBc}};  // kernels have their own default
        worker::AttentionResult result = worker::forward(*check.problem, element, tiles,
                                                         [&](const worker::Call& call) { return worker.call(call); });
        if (!check.oracle) {
          session.show_progress("the oracle, in float64");
          check.oracle = forward_oracle(*check.problem);
        }
        const Precision precision = precision_of(element);
        book::Layout O_layout, lse_layout;
        O_layout.tensor = "O";
        lse_layout.tensor = "lse";
        lse_layout.axes[3] = "";
        take(
            row,
            book::compare(result.O, check.oracle->O, output_bounds(*check.oracle, *check.problem, precision), O_layout),
            book::compare(result.lse, check.oracle->lse, lse_bounds(*check.oracle, *check.problem, precision),
                          lse_layout));
        if (previous) row.previous_difference = largest_difference(result.O, *previous);
        take_counters(row, result.reply);
        previous = std::move(result.O);
        last_lse = std::move(result.lse);
      } catch (const InputError& error) {
        row.result = "refused";
        row.message = error.what();
      } catch (const worker::Failure& failure) {
        row.result = worker::name(failure.ending);
        row.supported = failure.ending != worker::Ending::unavailable;
        row.message = failure.ending == worker::Ending::todo
                          ? fmt::format("exercise {} is still open: ./workbook test {}", failure.todo, chapter.number)
                          : failure.what();
      }
    }
    rows.push_back(std::move(row));
  }
  session.show_progress("");

  if (previous) {
    if (!options.out.empty()) write_npy(options.out, *previous);
    if (!options.lse.empty()) write_npy(options.lse, *last_lse, 3);
  } else if (!options.out.empty() || !options.lse.empty()) {
    fmt::print(stderr, "nothing was written: no stage gave a result\n");
  }
  if (session.json) {
    json stages_json = json::array();
    for (const Row& row : rows) stages_json.push_back(row_json(row));
    print_json({{"input", input_json(problem, options)}, {"stages", stages_json}});
  } else {
    print_table(session, problem, options, rows);
  }

  const auto any = [&](auto condition) { return std::any_of(rows.begin(), rows.end(), condition); };
  // A stage that says beforehand that it cannot (memory, causal) is no failure, as long as another one ran.
  if (any([](const Row& r) { return !r.ran() && r.supported && r.result != "refused"; })) return kTestFailed;
  if (any([](const Row& r) { return r.result == "failed"; })) return kTestFailed;
  return any([](const Row& r) { return r.ran(); }) ? kDone : kEnvironment;
}

}  // namespace workbook::cli
