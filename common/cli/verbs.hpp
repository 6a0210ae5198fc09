// The verbs of ./workbook, and what the command line says to each. Every program of the command reads the lines of all:
// what is wrong with one, and --help, is said before another program is built.
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
  std::string out, lse;   ///< .npy files to write
  std::string stage;      ///< a chapter; empty: all
  bool chapters = false;  ///< the reader's stages instead of the book's
  bool all = false;       ///< one row per stage with every figure; a single chapter is always shown so
  std::string memory;     ///< "1G": the most that a stage may use
  std::string backend;    ///< only this one: "cpu", "sim" or "cuda"
  std::string element;    ///< only stages for it; empty: each chapter's own
  std::string pass;       ///< only stages of it; empty: both
  std::string gpu;        ///< whose limits the simulator takes on; empty: its own
};

struct TestOptions {
  std::vector<std::string> chapters;   ///< numbers or names, or exercise ids; empty: all chapters
  bool solutions = false;              ///< the book's code in place of the reader's
  std::string previous = "solutions";  ///< or "chapters"
  std::string only;                    ///< one test by name
  std::string backend;                 ///< only this one: "cpu", "sim" or "cuda"
  std::string gpu;                     ///< whose limits the simulator takes on; empty: its own
  std::string sanitizer;               ///< a tool of compute-sanitizer that watches the cuda workers; empty: none
  bool debug = false;                  ///< the worker under a debugger
  bool verbose = false;                ///< every failing test in full
  double time_limit = 10;              ///< seconds per call
  std::string junit, summary;          ///< files to write: JUnit XML; a Markdown page, added to what is there
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
  double poll = 0.5;    ///< seconds between looks
};

struct TraceOptions : ProblemOptions {
  std::string chapter;
  bool solutions = false;        ///< the book's code in place of the reader's
  std::int64_t Br = 0, Bc = 0;   ///< rows of a tile; 0: as the chapter has them
  std::vector<std::string> set;  ///< "warps=2": numbers for the chapter's operation beside the usual ones
  bool metrics = false;          ///< every counter with Nsight Compute's name for it
  std::string element;           ///< of Q, K, V and O; empty: the chapter's own
  std::string gpu;               ///< whose limits the simulator takes on; empty: its own
  std::string html;              ///< a page to write
  std::string beside;            ///< what the page shows beside: a chapter, "causal", "book"; empty: nothing
  std::string operation;         ///< another of the chapter's kernels; empty: its stage
  std::string pass;              ///< empty: the chapter's first
  bool lines = false;            ///< what each line asked for, beside the book's and the chapter before
};

struct DoctorOptions {
  bool kernels = false;  ///< also what of each chapter's kernels fits a multiprocessor
  std::string gpu;       ///< `kernels` of this class; empty: of the GPU that is here, or of the simulator's own
};

struct SolutionOptions {
  std::string exercise;
  bool anyway = false;  ///< also before the reader's has passed
};

struct StubsOptions {
  bool force = false;  ///< also over files that hold work, after a copy
};

struct ReleaseOptions {
  std::vector<std::string> exercises, chapters;  ///< "2.1,2.3"; "2"
  std::string assignment;                        ///< assignment.toml in their place
  std::string title, due, out, hidden;
  bool no_hints = false, gradescope = false, github = false, force = false;
  bool unverified = false;  ///< do not build and test it first
};

struct TrainOptions {
  std::string precision = "all";  ///< "fp32", "fp16", "fp16-scaled", "bf16" or "all"
  std::int64_t steps = 0;         ///< in all, those of a resumed run included; 0: 400, or 200 on the simulator
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
  std::string backend;                       ///< on which: "sim" or "cuda"; empty: on the GPU where there is one
  bool settings_given = false;               ///< any of those from `precision` on that a checkpoint has of its own
};

struct LibraryOptions {
  std::vector<std::int64_t> chapters;
  bool solutions = false;
  std::string out;      ///< a folder; empty: .workbook/library
  std::string backend;  ///< "sim" or "cuda"; empty: for the GPU where there is one
};

struct BenchOptions : bench::MeasureRequest {
  std::string causal = "both";   ///< or "yes", "no"
  std::string mask;              ///< only stages with it; empty: as `causal` says
  std::vector<std::string> set;  ///< "deterministic=1": numbers, as they are given
  std::vector<std::string> element_words;
  std::string out;       ///< a folder; empty: bench/ in the build folder
  std::string from;      ///< a results.json to show again, in place of measuring
  bool publish = false;  ///< into notes/results.md
};

/// What is given as it is, and words that are looked at first.
struct GradeOptions : grading::ClassOptions {
  std::string assignment_file;  ///< empty: the book's folder has it
  std::string hidden_folder;    ///< NN_name/test_*.cpp
  std::string out_folder = "graded";
  std::string results_file;
  std::string backend;   ///< "cuda": on a GPU too
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
  std::vector<std::string> also;   ///< beside those that run anyway
  std::string chapter;             ///< gates that go through chapters take only this one; empty: all
  bool fresh = false;              ///< takes no result from an earlier check
};

struct SiteOptions {
  std::string out;
  bool with_solutions = false;
};

// Each is in a file of its own, and in the program that has the verb (CMakeLists.txt): elsewhere it is nullptr.
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
[[gnu::weak]] int library(const Session& session, const LibraryOptions& options);
[[gnu::weak]] int bench(const Session& session, const BenchOptions& options);
[[gnu::weak]] int grade(const Session& session, const GradeOptions& options);
[[gnu::weak]] int pictures(const Session& session, const PicturesOptions& options);
[[gnu::weak]] int check(const Session& session, const CheckOptions& options);
[[gnu::weak]] int site(const Session& session, const SiteOptions& options);

/// A program is built when one of its verbs is used for the first time: a reader's first `run` waits for no more than
/// it needs. The launcher starts the reader's.
inline constexpr const char* kReader = "workbook_cli";
inline constexpr const char* kTest = "workbook_test";      ///< a reader who tests code, or looks into it
inline constexpr const char* kCourse = "workbook_course";  ///< instructors and maintainers
inline constexpr const char* kLab = "workbook_lab";        ///< training, benchmarks, pictures

/// Runs the verb, where this program has it. `finish` comes first, once the line has been read.
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

/// In the order of --help.
std::vector<Verb> readers_verbs();
std::vector<Verb> other_verbs();

}  // namespace workbook::cli
