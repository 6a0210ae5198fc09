// The gates of `check`: what must hold of the book before a change lands. Each says what it found, as data. Knows no
// terminal.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/judge/workspace.hpp"

namespace workbook::gates {

/// What one gate found.
struct Findings {
  std::vector<std::string> problems;
  std::string detail;           ///< one line when all is well
  int passed = 0, skipped = 0;  ///< tests or comparisons within the gate
  std::string skip_reason;      ///< the whole gate was skipped

  /// Takes in what a part of the gate has found. `detail` and `skip_reason` stay as they are.
  void add(const Findings& part);
  void expect(bool holds, const std::string& problem) {
    if (holds) {
      ++passed;
    } else {
      problems.push_back(problem);
    }
  }
};

/// How a mutant died.
struct MutantVerdict {
  std::string id, chapter, exercise;
  std::string killed_by;  ///< the test that ran
  std::string diagnosis;
  bool killed = false, diagnosis_right = false;
};

/// What the gates examine, and what they leave for the report.
struct Inspection {
  const judge::Workspace& workspace;
  std::vector<const book::Chapter*> chapters;  ///< those that the gates of chapters go through
  std::vector<MutantVerdict> mutants;          ///< of the gates of mutants
};

struct Gate {
  const char* name;
  enum class Runs {
    always,        ///< restricted to one chapter where it goes by chapters
    whole_book,    ///< not if only one chapter is asked for
    for_chapter,   ///< it takes long: only for one chapter, or if asked for
    in_full_check  ///< only if asked for: it takes long
  } runs;
  void (*run)(Inspection& inspection, Findings& findings);
  const char* within = "";  ///< a gate that checks all this and more: if that one runs, this one does not
};
struct CheckOptions {
  bool full = false;               ///< also the gates that take long
  std::vector<std::string> gates;  ///< only these, also those that take long; empty: all
  std::vector<std::string> also;   ///< beside those that run anyway
  std::optional<int> chapter;      ///< only this chapter, and no gate of the whole book
};

struct GateResult {
  std::string name;
  Findings findings;
  double seconds = 0, cpu_seconds = 0;  ///< cpu: of all processors, this process and those that it has started

  bool ok() const { return findings.problems.empty(); }
  bool skipped() const { return !findings.skip_reason.empty(); }
};

struct Checked {
  std::vector<GateResult> gates;
  std::vector<MutantVerdict> mutants;
  int passed = 0, failed = 0, skipped = 0;
};

/// Runs the gates that are asked for; `on_result` is called after each. An exception within one is a problem of it.
/// InputError for a gate or a chapter that there is not.
Checked run_gates(const judge::Workspace& workspace, const CheckOptions& options,
                  const std::function<void(const GateResult&)>& on_result = {});

}  // namespace workbook::gates
