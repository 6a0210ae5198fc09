#include "common/gates/variants.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "common/book/files.hpp"
#include "common/gates/kept.hpp"
#include "common/judge/wrong_solutions.hpp"
#include "common/worker/share_cores.hpp"

namespace workbook::gates {

using book::Chapter;
using judge::Workspace;

Variant write_variant(const Workspace& workspace, const Chapter& chapter, const std::string& name, const Texts& texts) {
  Variant variant;
  variant.chapter = &chapter;
  variant.tree = {"check/" + name, workspace.toolchain.build_folder / "check" / name / chapter.name()};
  variant.request.backend = first_backend(workspace, chapter);
  for (const auto& [file, text] : texts) book::write_if_changed(variant.tree.folder / file, text);
  return variant;
}

std::vector<Variant> write_versions(const Workspace& workspace, const Chapter& chapter, const std::string& name,
                                    const std::vector<Texts>& versions) {
  std::map<int, Texts> numbered;
  for (std::size_t i = 0; i < versions.size(); ++i) numbered[int(i) + 1] = versions[i];
  const Backend backend = first_backend(workspace, chapter);
  const judge::Versions written = judge::write_versions(workspace, chapter, backend, "check/" + name, numbered);
  Variant together{&chapter, written.tree, {}};
  together.request.backend = backend;
  together.tree.as_written = solutions_tree(workspace, chapter).folder;  // its regions occur once
  together.request.grafts = false;
  std::vector<Variant> variants;
  for (const auto& [number, texts] : numbered) {
    if (written.apart.contains(number)) {
      const std::string own = fmt::format("{}/{}", name, number);
      variants.push_back(write_variant(workspace, chapter, own, texts));
      variants.back().tree = judge::quick_tree(workspace, chapter, backend, "check/" + own);
    } else {
      variants.push_back(together);
      variants.back().request.version = number;
    }
  }
  return variants;
}

std::vector<MutantVariant> mutant_variants(const Workspace& workspace, const Chapter& chapter, Findings& findings) {
  std::vector<book::Mutant> mutants;
  std::vector<Texts> versions;
  for (const book::Mutant& mutant : book::load_mutants(workspace.book, chapter)) {
    try {
      versions.push_back(book::apply(workspace.book, chapter, mutant));
      mutants.push_back(mutant);
    } catch (const std::runtime_error& error) {
      findings.problems.push_back(error.what());
    }
  }
  const std::vector<Variant> variants = write_versions(workspace, chapter, "mutants", versions);
  std::map<std::string, std::vector<judge::WrongVersion>> wrong;
  for (std::size_t i = 0; i < mutants.size(); ++i)
    if (const int version = variants[i].request.version)
      wrong[judge::exercise_of(mutants[i])].push_back({version, mutants[i].id, mutants[i].sentence});
  std::vector<MutantVariant> all;
  for (std::size_t i = 0; i < mutants.size(); ++i) {
    all.push_back({mutants[i], variants[i]});
    all.back().variant.request.wrong_versions = wrong;
  }
  return all;
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

/// Runs a variant that is built, and keeps what it came to if nothing is wrong with it.
void run_built(Running& all, std::size_t i, const judge::Built& built, const std::optional<FilesRead>& read) {
  VariantRun& ran = all.runs[i];
  const std::string& job = ran.plan.stand_in ? ran.plan.exercises.at(ran.plan.request.exercise).worker : ran.plan.whole;
  const auto own = built.find(job);
  ran.compiled = own != built.end() && own->second.ok;
  if (own != built.end() && !own->second.ok) ran.log = own->second.log;
  ran.run = run_plan(all.inspection.workspace, ran.plan, built, all.variants[i].request);
  all.found[i] = {};
  all.judge(i, ran, all.found[i]);
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
  for (const Findings& found : all.found) findings.add(found);
  findings.trees += int(variants.size());
  return std::move(all.runs);
}

void build_tests(const Workspace& workspace, const std::vector<const Chapter*>& chapters) {
  std::vector<std::string> targets;
  for (const Chapter* chapter : chapters) {
    const std::vector<std::string> more = test_targets(workspace, *chapter);
    targets.insert(targets.end(), more.begin(), more.end());
  }
  worker::build_targets(workspace.toolchain, targets);
  judge::build_quick_header(workspace);
}

std::string summary(const judge::Verdict& verdict) {
  std::string text = fmt::format("\"{}\" ({}): {}", verdict.test, verdict.exercise, name(verdict.result));
  std::istringstream lines(verdict.message);
  for (std::string line; std::getline(lines, line);) text += "\n      " + line;
  return text;
}

}  // namespace workbook::gates
