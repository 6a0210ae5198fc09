// The verbs of ./workbook: what each is told, and what runs it. One file per verb; main.cpp reads the command line.
// Each returns an exit code (session.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/bench/measure.hpp"
#include "common/cli/input.hpp"
#include "common/cli/session.hpp"

namespace workbook::cli {

/// (none): the book at a glance.
int status(const Session& session);

struct RunOptions : ProblemOptions {
  std::string out, lse;   ///< .npy files to write
  std::string stage;      ///< a chapter; empty: all
  bool chapters = false;  ///< the reader's stages in place of the book's
  std::string memory;     ///< "1G": the most that a stage may use
  std::string backend;    ///< only this one: "cpu", "sim" or "cuda"
};
/// run: takes Q, K, V through every stage, checks each against the oracle and the previous stage, prints a table.
int run(const Session& session, const RunOptions& options);

struct TestOptions {
  std::vector<std::string> chapters;   ///< numbers or names, or exercise ids; empty: all chapters
  bool solutions = false;              ///< the book's code in place of the reader's
  std::string previous = "solutions";  ///< or "chapters"
  std::string only;                    ///< one test by name
  std::string backend;                 ///< only this one: "cpu", "sim" or "cuda"
  std::string sanitizer;               ///< a tool of compute-sanitizer that watches the cuda workers; empty: none
  bool debug = false;                  ///< the worker under a debugger
  double time_limit = 10;              ///< seconds per call
  std::string junit, summary;          ///< files to write: JUnit XML; a Markdown page, added to what is there
};
int test(const Session& session, const TestOptions& options);

/// hint: the next hint of an exercise; `all`: every one; `again`: those seen.
int hint(const Session& session, const std::string& exercise, bool all);

/// reset: an exercise back to its TODO; `file`: the whole file that holds it.
int reset(const Session& session, const std::string& exercise, bool file);

/// watch: tests a chapter again whenever one of its files is saved.
int watch(const Session& session, const std::string& chapter, double poll_seconds);

struct TraceOptions : ProblemOptions {
  std::string chapter;
  bool solutions = false;        ///< the book's code in place of the reader's
  std::int64_t Br = 0, Bc = 0;   ///< rows of a tile; 0: as the chapter has them
  std::vector<std::string> set;  ///< "warps=2": numbers for the chapter's operation beside the usual ones
  bool metrics = false;          ///< every counter with Nsight Compute's name for it
  std::string html;              ///< a page to write
};
/// trace: what a chapter's kernels do on the simulator: traffic, conflicts, barriers, a map of the tiles.
int trace(const Session& session, const TraceOptions& options);

/// doctor: what was found, what is missing, what therefore cannot run.
int doctor(const Session& session);

/// stubs: writes chapters/ from solutions/. With a list of files to merge: see stubs.hpp.
int stubs(const Session& session, bool force);

struct ReleaseOptions {
  std::vector<std::string> exercises, chapters;  ///< "2.1,2.3"; "2"
  std::string assignment;                        ///< assignment.toml in their place
  std::string title, due, out, hidden;
  bool no_hints = false, gradescope = false, github = false, force = false;
  bool verify = true;
};
/// release: a folder and an archive for students, with just these exercises open; and an autograder for Gradescope.
int release(const Session& session, const ReleaseOptions& options);

struct TrainOptions {
  std::string precision = "all";  ///< "fp32", "fp16", "fp16-scaled", "bf16" or "all"
  std::int64_t steps = 0;         ///< in all, those of a resumed run included; 0: 400, or 200 on the simulator
  std::string resume;             ///< a checkpoint
  std::string out;                ///< a folder; empty: .workbook/train
  std::string text;               ///< a file; empty: the book's own text
  std::uint64_t seed = 1;
  std::int64_t context = 128, sequences = 8, micro_batches = 1, shares = 256;
  double learning_rate = 2e-3, initial_scale = 65536;
  std::int64_t growth_interval = 2000;
  std::int64_t overflow_at = 0;              ///< the step of fp16-scaled that overflows; 0: none
  bool chapters = false, solutions = false;  ///< attention by the reader's chapters, or by the book's
  std::string backend;                       ///< on which: "sim" or "cuda"; empty: on the GPU where there is one
  bool settings_given = false;               ///< any of those from `precision` on that a checkpoint has of its own
};
/// train: a small language model in several precisions; loss curves as text, CSV and a plot.
int train(const Session& session, const TrainOptions& options);

struct BenchOptions : bench::MeasureRequest {
  std::string out;       ///< a folder; empty: bench/ in the build folder
  std::string from;      ///< a results.json to show again, in place of measuring
  bool publish = false;  ///< into notes/results.md
};
/// bench: times of the stages on a GPU, beside its own limits and PyTorch; JSON, CSV, a table, plots.
int bench(const Session& session, const BenchOptions& options);

struct GradeOptions {
  std::vector<std::string> submissions;  ///< folders, archives, files
  std::string assignment;                ///< assignment.toml; empty: the book's folder has it
  std::string hidden;                    ///< folder with hidden tests: NN_name/test_*.cpp
  std::string out = "graded";            ///< a folder for each submission, and the class's table
  std::string results;                   ///< Gradescope's results.json in place of that, for one submission
  std::string backend;                   ///< "cuda": on a GPU too
  std::string shard;                     ///< "2/8": the second of eight parts of the submissions
  std::size_t jobs = 1;                  ///< submissions at a time
  double time_limit = 10;                ///< seconds a call
  double total_time = 600;               ///< seconds a chapter's tests
  double build_time = 90;                ///< seconds a worker's compilation
  bool unsafe = false, again = false;
  bool prepare = false;  ///< only build what grading needs
};
/// grade: points and feedback for submissions. kDone once all are graded, whatever the points.
int grade(const Session& session, const GradeOptions& options);

struct CheckOptions {
  bool full = false;               ///< both compilers, the sanitizer builds, clang-tidy
  std::vector<std::string> gates;  ///< only these
  std::string chapter;             ///< gates that go through chapters take only this one; empty: all
};
int check(const Session& session, const CheckOptions& options);

}  // namespace workbook::cli
