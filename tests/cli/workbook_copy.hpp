// A copy of the book in a separate folder, on which the command runs as a program, as a reader runs it.
//
// The folder is in the build folder and persists between runs, so that only a test's changes are compiled again. Its
// name has a space and non-ASCII letters, as a reader's may. Each test program has its own folder. Every test begins
// with a fresh book: the stubs as `./workbook stubs` writes them, and no .workbook.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/attention/problem.hpp"

namespace workbook::test {

/// The result of a command.
struct Ran {
  int exit_code = 0;  ///< 128 + signal if it was killed
  bool timed_out = false;
  std::string out, err;

  /// stdout as one JSON document; the test fails otherwise.
  nlohmann::json document() const;
};

struct RunOptions {
  std::map<std::string, std::string> environment = {};
  std::filesystem::path folder = {};  ///< working directory; empty: the book's copy
  double time = 240;                  ///< seconds, then it is killed
  std::string input = {};             ///< text on its stdin
};

class WorkbookCopy {
 public:
  WorkbookCopy();

  Ran run(const std::vector<std::string>& arguments, const RunOptions& options = {}) const;

  /// The command in the background, with stdout in a file; the destructor ends it.
  class Background;

  std::filesystem::path root() const;
  std::filesystem::path operator/(const std::string& relative) const { return root() / relative; }
  bool exists(const std::string& relative) const;
  std::string read(const std::string& relative) const;
  void write(const std::string& relative, const std::string& text) const;
  /// Replaces a text that occurs in the file exactly once.
  void edit(const std::string& relative, const std::string& from, const std::string& to) const;
  /// The first line that contains `text`.
  int line_of(const std::string& relative, const std::string& text) const;

  // The reader's work. An exercise is named by its id.
  std::string readers_file(const std::string& id) const;   ///< "chapters/01_naive_attention/naive_attention.cpp"
  std::string solution_file(const std::string& id) const;  ///< "solutions/…"
  std::string solution_body(const std::string& id) const;  ///< the region in solutions/, lines joined
  std::string readers_body(const std::string& id) const;
  void fill_in(const std::string& id, const std::string& body) const;  ///< the region in chapters/
  void solve(const std::string& id) const { fill_in(id, solution_body(id)); }
};

/// Checks that the command refuses these arguments: exit code 2, nothing on stdout, no file written next to the book,
/// and each of `said` on stderr: argument, value, what is allowed.
void expect_refused(const WorkbookCopy& book, const std::vector<std::string>& arguments,
                    const std::vector<std::string>& said);

class WorkbookCopy::Background {
 public:
  Background(const WorkbookCopy& book, const std::vector<std::string>& arguments);
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  std::string out() const;
  /// Waits until `text` has been printed `times` times; false after `seconds`.
  bool prints(const std::string& text, int times, double seconds) const;

 private:
  int pid_ = -1;
  std::filesystem::path out_;
};

/// The number of occurrences of `part` in `text`.
int occurrences(const std::string& text, const std::string& part);

/// The reader's code is compiled with sanitizers in this build.
bool sanitized();
/// The simulator counts accesses and detects races in this build.
bool counts();

/// A file name in an empty folder for files that a test writes outside the book. The next WorkbookCopy empties the
/// folder.
std::filesystem::path scratch(const std::string& name);

}  // namespace workbook::test
