// Variants of a chapter: trees of the gates' own, all built in one build, then run several at a time. The reader's
// chapters/ is never written.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/book/mutants.hpp"
#include "common/gates/gate.hpp"
#include "common/judge/run.hpp"

namespace workbook::gates {

using Texts = book::Files;  ///< a chapter's file -> its text

/// What is run: a tree of a chapter, and how.
struct Variant {
  const book::Chapter* chapter = nullptr;
  judge::Tree tree;
  judge::RunRequest request;
};
/// Writes a variant's files to a folder. It runs on the chapter's first backend.
Variant write_variant(const judge::Workspace& workspace, const book::Chapter& chapter, const std::string& name,
                      const Texts& texts);
/// Writes many versions of a chapter to one folder, to be compiled as one program (judge/wrong_solutions.hpp); those
/// that cannot be combined get a folder each. A variant for each version, in order.
std::vector<Variant> write_versions(const judge::Workspace& workspace, const book::Chapter& chapter,
                                    const std::string& name, const std::vector<Texts>& versions);

/// A mutant that can be applied, as one of its chapter's versions.
struct MutantVariant {
  book::Mutant mutant;
  Variant variant;
};
/// All of a chapter's mutants, compiled as one program. One that cannot be applied is a problem.
std::vector<MutantVariant> mutant_variants(const judge::Workspace& workspace, const book::Chapter& chapter,
                                           Findings& findings);

struct VariantRun {
  bool compiled = false;
  std::string log;  ///< the compiler's, if it did not compile
  judge::Plan plan;
  judge::ChapterRun run;
};
/// Says what is wrong with the run of a variant, by its number. Called once for each, several at a time.
using JudgeVariant = std::function<void(std::size_t, const VariantRun&, Findings&)>;
/// The chapters' tests on each variant, judged; the findings are in the variants' order. They share the cores, but
/// those on a GPU run one by one.
std::vector<VariantRun> run_variants(const Inspection& inspection, const std::vector<Variant>& variants,
                                     const JudgeVariant& judge, Findings& findings);

/// The chapters' test programs, and what their workers need.
void build_tests(const judge::Workspace& workspace, const std::vector<const book::Chapter*>& chapters);

/// A verdict in a gate's problem, with its message.
std::string summary(const judge::Verdict& verdict);

}  // namespace workbook::gates
