#include "common/gates/instances.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

namespace workbook::gates {

using book::Chapter;
using judge::Result;

namespace {
constexpr std::string_view kLeftOut = "left out: ";
}  // namespace

void note_instances(Inspection& inspection, const std::map<const Chapter*, std::set<std::string>>& tests) {
  const judge::Workspace& workspace = inspection.workspace;
  std::vector<Variant> variants;
  for (const auto& [chapter, names] : tests) {
    const Backend backend = first_backend(workspace, *chapter);
    if (backend != Backend::sim || !workspace.toolchain.counts_on(backend)) continue;
    for (const std::string& test : names) {
      if (inspection.noted[chapter].contains(test)) continue;
      Variant& variant = variants.emplace_back();
      variant.chapter = chapter;
      variant.tree = {"check/noted", solutions_tree(workspace, *chapter).folder, /*first_element_only=*/true};
      variant.tree.noted = true;
      variant.request.backend = backend;
      variant.request.only = test;
    }
  }
  const auto any = [](std::size_t, const VariantRun&, Findings&) {};  // a test may well end early here
  Findings found;
  const std::vector<VariantRun> runs = run_variants(inspection, variants, any, found);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const judge::ChapterRun& run = runs[i].run;
    const bool ran = runs[i].compiled && run.tests.size() == 1 && run.count(Result::skipped) == 0;
    if (ran) inspection.noted[variants[i].chapter][variants[i].request.only] = run.instances;
  }
}

std::set<std::string> tests_of(const book::Mutant& mutant, const std::vector<book::Mutant>& mutants) {
  std::set<std::string> tests{mutant.test};
  const auto first = std::ranges::find(mutants, mutant.exercise, &book::Mutant::exercise);
  if (first->id == mutant.id && mutant.exercise != book::kGivenCode && !mutant.whole.empty())
    tests.insert(mutant.whole);
  return tests;
}

void ask_for(const Inspection& inspection, const Chapter& chapter, const std::set<std::string>& tests,
             judge::Tree& tree) {
  const auto noted = inspection.noted.find(&chapter);
  if (noted == inspection.noted.end()) return;
  std::set<std::string> numbers, files;
  for (const std::string& test : tests) {
    const auto found = noted->second.find(test);
    if (found == noted->second.end()) return;
    for (const std::string& line : found->second) {
      const std::size_t space = line.find(' ');
      numbers.insert(line.substr(0, space));
      if (space + 1 < line.size()) files.insert(line.substr(space + 1));
    }
  }
  if (numbers.empty()) numbers.insert("0");  // no number of any
  tree.flags = quick_flags(inspection.workspace, first_backend(inspection.workspace, chapter));
  tree.flags.push_back(fmt::format("-DWORKBOOK_INSTANCES={}u", fmt::join(numbers, "u,")));
  // What chooses in a header is of any file.
  const bool in_header = std::ranges::any_of(files, [](const std::string& file) { return file.ends_with(".hpp"); });
  if (!files.empty() && !in_header) tree.asked = files;
}

bool asked_for_more(const judge::ChapterRun& run) {
  return std::ranges::any_of(run.instances, [](const std::string& line) { return line.starts_with(kLeftOut); });
}

bool ask_for_more(const judge::ChapterRun& run, judge::Tree& tree) {
  bool more = false;
  for (const std::string& line : run.instances) {
    if (!line.starts_with(kLeftOut)) continue;
    const std::string number = line.substr(kLeftOut.size(), line.find(' ', kLeftOut.size()) - kLeftOut.size());
    if (number.find_first_not_of("0123456789") != std::string::npos) return false;
    tree.flags.back() += fmt::format(",{}u", number);  // ask_for has put the numbers there
    more = true;
  }
  return more;
}

}  // namespace workbook::gates
