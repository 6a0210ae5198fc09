// Variants of a chapter: trees of the gates' own, all built in one build, then run several at a time. The reader's
// chapters/ is never written.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/gates/gate.hpp"
#include "common/judge/run.hpp"

namespace workbook::gates {

using Texts = std::map<std::string, std::string>;  ///< a chapter's file -> its text

/// The solution's files.
Texts solution_texts(const judge::Workspace& workspace, const book::Chapter& chapter);

/// What is run: a tree of a chapter, and how.
struct Variant {
  const book::Chapter* chapter = nullptr;
  judge::Tree tree;
  judge::RunRequest request;
};
/// Writes a variant's files into a folder of its own. It runs on the chapter's first backend.
Variant write_variant(const judge::Workspace& workspace, const book::Chapter& chapter, const std::string& name,
                      const Texts& texts);

struct VariantRun {
  bool compiled = false;
  std::string log;  ///< the compiler's, if it did not compile
  judge::Plan plan;
  judge::ChapterRun run;
};
/// Says what is wrong with the run of a variant, by its number. It is called once or twice for each, several at a time.
using JudgeVariant = std::function<void(std::size_t, const VariantRun&, Findings&)>;
/// The chapters' tests on each variant, judged; the findings are in the variants' order. They share the cores, but
/// those on a GPU run one by one. A run that an earlier check has kept is taken from there unless something is wrong
/// with it, and one that nothing is wrong with is kept.
std::vector<VariantRun> run_variants(const Inspection& inspection, const std::vector<Variant>& variants,
                                     const JudgeVariant& judge, Findings& findings);

/// What compiles a variant's kernels in two thirds of the time, or nothing where that is not known to be right.
std::vector<std::string> quick_flags(const judge::Workspace& workspace, Backend backend);

/// The chapters' test programs, and what their workers need.
void build_tests(const judge::Workspace& workspace, const std::vector<const book::Chapter*>& chapters);

/// A verdict in a gate's problem, with its message.
std::string summary(const judge::Verdict& verdict);

}  // namespace workbook::gates
