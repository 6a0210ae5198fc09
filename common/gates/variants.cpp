#include "common/gates/variants.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "common/book/files.hpp"
#include "common/gates/instances.hpp"
#include "common/gates/kept.hpp"
#include "common/worker/share_cores.hpp"

namespace workbook::gates {

using book::Chapter;
using judge::Workspace;

Texts solution_texts(const Workspace& workspace, const Chapter& chapter) {
  Texts texts;
  for (const std::string& file : chapter.files) texts[file] = book::read_file(workspace.book.solution(chapter, file));
  return texts;
}

Variant write_variant(const Workspace& workspace, const Chapter& chapter, const std::string& name, const Texts& texts) {
  Variant variant;
  variant.chapter = &chapter;
  variant.tree = {"check/" + name, workspace.toolchain.build_folder / "check" / name / chapter.name()};
  variant.request.backend = first_backend(workspace, chapter);
  for (const auto& [file, text] : texts) book::write_if_changed(variant.tree.folder / file, text);
  return variant;
}

namespace {

/// Variants on their way: what they have come to, and what goes into it.
struct Running {
  const Inspection& inspection;
  const std::vector<Variant>& variants;
  const JudgeVariant& judge;
  Digests digests{inspection.workspace};
  std::vector<VariantRun> runs{variants.size()};
  std::vector<Findings> found{variants.size()};
  std::vector<std::string> keys{variants.size()};
};

/// Takes the run of a variant from an earlier check, if nothing is wrong with it.
bool take_kept(Running& all, std::size_t i) {
  const judge::Workspace& workspace = all.inspection.workspace;
  if (all.inspection.results == nullptr) return false;
  VariantRun& ran = all.runs[i];
  all.keys[i] = key_of(workspace, ran.plan, all.variants[i].request, all.digests);
  const auto kept = all.inspection.results->find(all.keys[i], ran.plan, all.digests);
  if (!kept) return false;
  ran.run = *kept;
  ran.compiled = true;
  Findings found;
  all.judge(i, ran, found);
  if (!found.problems.empty()) return false;
  found.kept = 1;
  all.found[i] = found;
  return true;
}

/// Whether a variant that was built with a part of its kernels has to be built with more of them: it has asked for
/// more, or something else is wrong.
bool needs_more(const VariantRun& ran, const Findings& found) {
  return !ran.plan.tree.flags.empty() &&
         (!ran.compiled || asked_for_more(ran.run) || (ran.plan.tree.asked && !found.problems.empty()));
}

/// Runs a variant that is built, and keeps what it came to if nothing is wrong with it.
void run_built(Running& all, std::size_t i, const judge::Built& built, const std::optional<FilesRead>& read) {
  VariantRun& ran = all.runs[i];
  const auto whole = built.find(ran.plan.whole);
  ran.compiled = whole != built.end() && whole->second.ok;
  if (whole != built.end() && !whole->second.ok) ran.log = whole->second.log;
  ran.run = run_plan(all.inspection.workspace, ran.plan, built, all.variants[i].request);
  all.found[i] = {};
  all.judge(i, ran, all.found[i]);
  if (needs_more(ran, all.found[i])) return;  // it is run again
  if (all.inspection.results != nullptr && read && all.found[i].problems.empty() && all.digests.stood_still())
    all.inspection.results->keep(all.keys[i], *read, ran.run);
}

/// Builds these variants in one build, and runs them.
void build_and_run(Running& all, const std::vector<std::size_t>& to_run) {
  const Workspace& workspace = all.inspection.workspace;
  std::vector<judge::Plan> plans;
  for (const std::size_t i : to_run) plans.push_back(all.runs[i].plan);
  workspace.progress(fmt::format("building {} variants", plans.size()));
  const judge::Built built = build_plans(workspace, plans);
  const auto read = read_for(workspace, plans, built, all.digests);
  const auto on_gpu = [&](std::size_t i) { return all.variants[to_run[i]].request.backend == Backend::cuda; };
  worker::share_cores(to_run.size(), [&](std::size_t i) {
    if (!on_gpu(i)) run_built(all, to_run[i], built, read[i]);
  });
  for (std::size_t i = 0; i < to_run.size(); ++i) {
    if (on_gpu(i)) run_built(all, to_run[i], built, read[i]);
  }
}

}  // namespace

std::vector<VariantRun> run_variants(const Inspection& inspection, const std::vector<Variant>& variants,
                                     const JudgeVariant& judge, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  Running all{inspection, variants, judge};
  std::vector<std::size_t> to_run;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    all.runs[i].plan = make_plan(workspace, *variants[i].chapter, variants[i].tree, variants[i].request);
    if (!take_kept(all, i)) to_run.push_back(i);
  }
  build_and_run(all, to_run);
  for (const bool in_full : {false, false, true}) {
    std::vector<std::size_t> again;
    for (const std::size_t i : to_run) {
      if (!needs_more(all.runs[i], all.found[i])) continue;
      judge::Tree tree = all.runs[i].plan.tree;
      if (in_full || !ask_for_more(all.runs[i].run, tree)) {
        tree.flags.clear();
        tree.asked.reset();
      }
      all.runs[i].plan = make_plan(workspace, *variants[i].chapter, tree, variants[i].request);
      again.push_back(i);
    }
    findings.again += int(again.size());
    if (!again.empty()) build_and_run(all, again);
  }
  for (const Findings& found : all.found) findings.add(found);
  findings.trees += int(variants.size());
  return std::move(all.runs);
}

std::vector<std::string> quick_flags(const Workspace& workspace, Backend backend) {
  const auto how = workspace.toolchain.backends.find(backend);
  return how == workspace.toolchain.backends.end() ? std::vector<std::string>() : how->second.quick_flags();
}

void build_tests(const Workspace& workspace, const std::vector<const Chapter*>& chapters) {
  std::vector<std::string> targets;
  for (const Chapter* chapter : chapters) {
    const std::vector<std::string> more = test_targets(workspace, *chapter);
    targets.insert(targets.end(), more.begin(), more.end());
  }
  if (!quick_flags(workspace, Backend::sim).empty()) targets.emplace_back(worker::kQuickPrecompiled);
  worker::build_targets(workspace.toolchain, targets);
}

std::string summary(const judge::Verdict& verdict) {
  std::string text = fmt::format("\"{}\" ({}): {}", verdict.test, verdict.exercise, name(verdict.result));
  std::istringstream lines(verdict.message);
  for (std::string line; std::getline(lines, line);) text += "\n      " + line;
  return text;
}

}  // namespace workbook::gates
