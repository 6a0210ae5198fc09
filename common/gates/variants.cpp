#include "common/gates/variants.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "common/book/files.hpp"
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

/// Runs a variant that is built, and judges what it comes to.
void run_built(const Workspace& workspace, const Variant& variant, const judge::Built& built, VariantRun& ran) {
  const std::string& job = ran.plan.stand_in ? ran.plan.exercises.at(ran.plan.request.exercise).worker : ran.plan.whole;
  const auto own = built.find(job);
  ran.compiled = own != built.end() && own->second.ok;
  if (own != built.end() && !own->second.ok) ran.log = own->second.log;
  ran.run = run_plan(workspace, ran.plan, built, variant.request);
}

}  // namespace

std::vector<VariantRun> run_variants(const Inspection& inspection, const std::vector<Variant>& variants,
                                     const JudgeVariant& judge, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  std::vector<VariantRun> runs(variants.size());
  std::vector<Findings> found(variants.size());
  std::vector<judge::Plan> plans;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    runs[i].plan = make_plan(workspace, *variants[i].chapter, variants[i].tree, variants[i].request);
    plans.push_back(runs[i].plan);
  }
  workspace.progress(fmt::format("building {} variants", plans.size()));
  const judge::Built built = build_plans(workspace, plans);
  const auto run_one = [&](std::size_t i) {
    run_built(workspace, variants[i], built, runs[i]);
    judge(i, runs[i], found[i]);
  };
  const auto on_gpu = [&](std::size_t i) { return variants[i].request.backend == Backend::cuda; };
  worker::share_cores(variants.size(), [&](std::size_t i) {
    if (!on_gpu(i)) run_one(i);
  });
  for (std::size_t i = 0; i < variants.size(); ++i) {
    if (on_gpu(i)) run_one(i);
  }
  for (const Findings& each : found) findings.add(each);
  return runs;
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
