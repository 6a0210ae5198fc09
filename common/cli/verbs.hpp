// The verbs of ./workbook: what each is told, and what runs it. One file per verb; main.cpp reads the command line.
// Each returns an exit code (session.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/cli/session.hpp"

namespace workbook::cli {

/// (none): the book at a glance.
int status(const Session& session);

struct RunOptions {
  std::string text;      ///< a file whose bytes are attended over; empty: the book's own text
  std::string q, k, v;   ///< .npy files
  std::string out, lse;  ///< .npy files to write
  std::string stage;     ///< a chapter; empty: all
  std::int64_t seq = 1024, heads = 4, head_dim = 64;
  bool shape_given = false;  ///< --seq, --heads or --head-dim was given
  bool causal = false;
  double scale = 0;  ///< 0: 1/√d
  bool scale_given = false;
  std::uint64_t seed = 1;
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
  bool debug = false;                  ///< the worker under a debugger
  double time_limit = 10;              ///< seconds per call
};
int test(const Session& session, const TestOptions& options);

/// hint: the next hint of an exercise; `all`: every one; `again`: those seen.
int hint(const Session& session, const std::string& exercise, bool all);

/// reset: an exercise back to its TODO; `file`: the whole file that holds it.
int reset(const Session& session, const std::string& exercise, bool file);

/// watch: tests a chapter again whenever one of its files is saved.
int watch(const Session& session, const std::string& chapter, double poll_seconds);

/// doctor: what was found, what is missing, what therefore cannot run.
int doctor(const Session& session);

/// stubs: writes chapters/ from solutions/. With a list of files to merge: see stubs.hpp.
int stubs(const Session& session, bool force);

struct CheckOptions {
  bool full = false;               ///< both compilers, the sanitizer builds, clang-tidy
  std::vector<std::string> gates;  ///< only these
};
int check(const Session& session, const CheckOptions& options);

}  // namespace workbook::cli
