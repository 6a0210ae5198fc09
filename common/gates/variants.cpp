#include "common/gates/variants.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "common/book/files.hpp"
#include "common/gates/share_cores.hpp"

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

std::vector<VariantRun> run_variants(const Workspace& workspace, const std::vector<Variant>& variants) {
  std::vector<judge::Plan> plans;
  for (const Variant& variant : variants)
    plans.push_back(make_plan(workspace, *variant.chapter, variant.tree, variant.request));
  workspace.progress(fmt::format("building {} variants", variants.size()));
  const judge::Built built = build_plans(workspace, plans);
  std::vector<VariantRun> runs(variants.size());
  const auto run = [&](std::size_t i) {
    const auto whole = built.find(plans[i].whole);
    runs[i].compiled = whole != built.end() && whole->second.ok;
    if (whole != built.end() && !whole->second.ok) runs[i].log = whole->second.log;
    runs[i].run = run_plan(workspace, plans[i], built, variants[i].request);
    runs[i].plan = plans[i];
  };
  const auto on_gpu = [&](std::size_t i) { return variants[i].request.backend == Backend::cuda; };
  share_cores(variants.size(), [&](std::size_t i) {
    if (!on_gpu(i)) run(i);
  });
  for (std::size_t i = 0; i < variants.size(); ++i) {
    if (on_gpu(i)) run(i);
  }
  return runs;
}

void build_tests(const Workspace& workspace, const std::vector<const Chapter*>& chapters) {
  std::vector<std::string> targets;
  for (const Chapter* chapter : chapters) {
    const std::vector<std::string> more = test_targets(workspace, *chapter);
    targets.insert(targets.end(), more.begin(), more.end());
  }
  worker::build_targets(workspace.toolchain, targets);
}

std::string summary(const judge::Verdict& verdict) {
  std::string text = fmt::format("\"{}\" ({}): {}", verdict.test, verdict.exercise, name(verdict.result));
  std::istringstream lines(verdict.message);
  for (std::string line; std::getline(lines, line);) text += "\n      " + line;
  return text;
}

}  // namespace workbook::gates
