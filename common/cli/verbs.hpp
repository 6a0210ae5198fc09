// The verbs of ./workbook and their options. Every program of the command parses the options of all verbs, so that
// errors and --help are printed before another program is built.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/bench/measure.hpp"
#include "common/cli/input.hpp"
#include "common/cli/options.hpp"
#include "common/cli/session.hpp"
#include "common/grading/class_run.hpp"

namespace workbook::cli {

struct StatusOptions {};

struct RunOptions : ProblemOptions {
  std::string out, lse;          ///< .npy files to write
  std::string stage;             ///< a chapter; empty: all
  bool chapters = false;         ///< the reader's stages instead of the book's
  bool all = false;              ///< one row per stage with every figure, as is always shown for a single chapter
  std::string memory;            ///< "1G": memory limit per stage
  std::string backend;           ///< only this one: "cpu", "sim" or "cuda"
  std::string element;           ///< only stages for it; empty: each chapter's own
  std::string pass;              ///< only stages of it; empty: both
  std::vector<std::string> set;  ///< "ranks=2": parameters of the stage
  std::string gpu;               ///< the GPU whose limits the simulator applies; empty: its default
};

struct TestOptions {
  std::vector<std::string> chapters;   ///< numbers or names, or exercise ids; empty: all chapters
  bool solutions = false;              ///< the book's code instead of the reader's
  std::string previous = "solutions";  ///< or "chapters"
  std::string only;                    ///< one test by name
  std::string backend;                 ///< only this one: "cpu", "sim" or "cuda"
  std::string gpu;                     ///< the GPU whose limits the simulator applies; empty: its default
  std::string sanitizer;               ///< the compute-sanitizer tool for the cuda workers; empty: none
  bool debug = false;                  ///< the worker under a debugger
  bool verbose = false;                ///< every failing test in full
  double time_limit = 10;              ///< seconds per call
  std::string junit, summary;          ///< files to write: JUnit XML, and Markdown that is appended
};

struct HintOptions {
  std::string exercise;
  bool all = false;
};

struct ResetOptions {
  std::string exercise;
  bool file = false;  ///< the whole file that holds it
};

struct WatchOptions {
  std::string chapter;  ///< or an exercise
  double poll = 0.5;    ///< seconds between two checks of the files
};

struct TraceOptions : ProblemOptions {
  std::string chapter;
  bool solutions = false;        ///< the book's code instead of the reader's
  std::int64_t Br = 0, Bc = 0;   ///< rows of a tile; 0: the chapter's default
  std::vector<std::string> set;  ///< "warps=2": additional parameters for the chapter's operation
  bool metrics = false;          ///< every counter with Nsight Compute's name for it
  std::string element;           ///< of Q, K, V and O; empty: the chapter's own
  std::string gpu;               ///< the GPU whose limits the simulator applies; empty: its default
  std::string html;              ///< a page to write
  std::string beside;            ///< the page's second trace: a chapter, "causal", "book"; empty: none
  std::string operation;         ///< another of the chapter's kernels; empty: its stage
  std::string pass;              ///< empty: the chapter's first
  bool lines = false;            ///< the requests of each source line, next to the book's and the previous chapter's
};

struct DoctorOptions {
  bool kernels = false;  ///< also the thread blocks of each chapter's kernels that fit on an SM
  std::string gpu;       ///< GPU class for `kernels`; empty: this machine's GPU, or the simulator's default
};

struct SolutionOptions {
  std::string exercise;
  bool anyway = false;  ///< also if the reader's code has not passed
};

struct StubsOptions {
  bool force = false;  ///< also overwrite files that hold work, after copying them
};

struct ReleaseOptions {
  std::vector<std::string> exercises, chapters;  ///< "2.1"; "2"
  std::string assignment;                        ///< an assignment.toml instead of the two
  std::string title, due, out, hidden;
  bool no_hints = false, gradescope = false, github = false, force = false;
  bool unverified = false;  ///< skip building and testing the release
};

struct TrainOptions {
  std::string precision = "all";  ///< "fp32", "fp16", "fp16-scaled", "bf16" or "all"
  std::int64_t steps = 0;         ///< in total, including those of a resumed run; 0: 400, or 200 on the simulator
  std::string resume;             ///< a checkpoint
  std::string out;                ///< a folder; empty: .workbook/train
  std::string text;               ///< a file; empty: the book's own text
  std::uint64_t seed = 1;
  std::int64_t head_dim = 32, context = 128, sequences = 8, micro_batches = 1, shares = 256;
  double learning_rate = 2e-3, initial_scale = 65536;
  std::int64_t growth_interval = 2000;
  std::int64_t overflow_at = 0;              ///< the step of fp16-scaled that overflows; 0: none
  bool chapters = false, solutions = false;  ///< attention by the reader's chapters, or by the book's
  std::vector<std::int64_t> attention;       ///< of these chapters alone; empty: of any
  std::string backend;                       ///< "sim" or "cuda"; empty: the GPU if there is one
  bool settings_given = false;               ///< whether an option was given that a checkpoint fixes
};

struct GenerateOptions {
  std::string from;       ///< a checkpoint; empty: .workbook/train/train.checkpoint
  std::string precision;  ///< the run; empty: the last one that has made a step
  std::string prompt = "The ";
  std::int64_t bytes = 0;  ///< 0: up to the end of the model's context
  double temperature = 0.7;
  std::uint64_t seed = 1;
  bool no_cache = false;
  bool chapters = false, solutions = false;  ///< attention by the reader's chapters, or by the book's
  std::string backend;                       ///< "sim" or "cuda"; empty: the GPU if there is one
};

struct LibraryOptions {
  std::vector<std::int64_t> chapters;
  bool solutions = false;
  std::string out;      ///< a folder; empty: .workbook/library
  std::string backend;  ///< "sim" or "cuda"; empty: the GPU if there is one
};

struct BenchOptions : bench::MeasureRequest {
  std::string causal = "both";   ///< or "yes", "no"
  std::string mask;              ///< only stages that support it; empty: see `causal`
  std::vector<std::string> set;  ///< "deterministic=1": parameters, as given
  std::vector<std::string> element_words;
  std::string out;       ///< a folder; empty: bench/ in the build folder
  std::string from;      ///< a results.json to show instead of measuring
  bool publish = false;  ///< write to notes/results.md
};

/// Options that grading takes unchanged, and words that are checked first.
struct GradeOptions : grading::ClassOptions {
  std::string assignment_file;  ///< empty: the book's folder has it
  std::string hidden_folder;    ///< NN_name/test_*.cpp
  std::string out_folder = "graded";
  std::string results_file;
  std::string backend;   ///< "cuda": also on a GPU
  std::string shard;     ///< "2/8": the second of eight parts of the submissions
  bool prepare = false;  ///< only build what grading needs
};

struct PicturesOptions {
  std::vector<std::string> folders;  ///< of chapters/; empty: all
  bool check = false;                ///< write nothing
};

struct CheckOptions {
  bool full = false;               ///< both compilers, the sanitizer builds, clang-tidy
  std::vector<std::string> gates;  ///< only these
  std::vector<std::string> also;   ///< in addition to the default gates
  std::string chapter;             ///< the only chapter that the gates check; empty: all
};

struct SiteOptions {
  std::string out;
  bool with_solutions = false;
};

// Each verb has its own file, linked into the program that implements it (CMakeLists.txt). Elsewhere it is nullptr.
[[gnu::weak]] int status(const Session& session, const StatusOptions& options);
[[gnu::weak]] int run(const Session& session, const RunOptions& options);
[[gnu::weak]] int test(const Session& session, const TestOptions& options);
[[gnu::weak]] int hint(const Session& session, const HintOptions& options);
[[gnu::weak]] int reset(const Session& session, const ResetOptions& options);
[[gnu::weak]] int watch(const Session& session, const WatchOptions& options);
[[gnu::weak]] int trace(const Session& session, const TraceOptions& options);
[[gnu::weak]] int doctor(const Session& session, const DoctorOptions& options);
[[gnu::weak]] int solution(const Session& session, const SolutionOptions& options);
[[gnu::weak]] int stubs(const Session& session, const StubsOptions& options);
[[gnu::weak]] int release(const Session& session, const ReleaseOptions& options);
[[gnu::weak]] int train(const Session& session, const TrainOptions& options);
[[gnu::weak]] int generate(const Session& session, const GenerateOptions& options);
[[gnu::weak]] int library(const Session& session, const LibraryOptions& options);
[[gnu::weak]] int bench(const Session& session, const BenchOptions& options);
[[gnu::weak]] int grade(const Session& session, const GradeOptions& options);
[[gnu::weak]] int pictures(const Session& session, const PicturesOptions& options);
[[gnu::weak]] int check(const Session& session, const CheckOptions& options);
[[gnu::weak]] int site(const Session& session, const SiteOptions& options);

/// A program is built when one of its verbs is first used, so that a reader's first `run` builds only what it needs.
/// The launcher starts the reader's program.
inline constexpr const char* kReader = "workbook_cli";
inline constexpr const char* kTest = "workbook_test";      ///< for testing and inspecting code
inline constexpr const char* kCourse = "workbook_course";  ///< instructors and maintainers
inline constexpr const char* kLab = "workbook_lab";        ///< training, benchmarks, pictures

/// Runs the verb if this program implements it. `finish` runs first, after parsing.
template <class Given>
Runner runner(
    int (*verb)(const Session&, const Given&), const std::shared_ptr<Given>& given,
    const std::function<void()>& finish = [] {}) {
  return [=](const Session& session) -> std::optional<int> {
    if (verb == nullptr) return std::nullopt;
    finish();
    return verb(session, *given);
  };
}

/// All verbs, in the order of --help.
std::vector<Verb> readers_verbs();
std::vector<Verb> other_verbs();

}  // namespace workbook::cli
