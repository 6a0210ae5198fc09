#include "common/gates/mistakes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "common/gates/groups.hpp"
#include "common/worker/command.hpp"

namespace workbook::gates {
namespace {

/// The chapters that chapter `name` uses, directly or not, and itself.
std::set<std::string> used_by(const AllKnownMistakes& known, const std::string& name) {
  std::set<std::string> used{name};
  for (const KnownMistakes& chapter : known.chapters)
    if (chapter.chapter == name)
      for (const std::string& other : chapter.uses) used.merge(used_by(known, other));
  return used;
}

}  // namespace

AllKnownMistakes ask_for_mistakes(const judge::Workspace& workspace) {
  worker::build_targets(workspace.toolchain, {"known_mistakes"});
  const worker::CommandResult result =
      worker::run_command({(workspace.toolchain.build_folder / "bin" / "known_mistakes").string()});
  if (result.exit_code != 0) throw std::runtime_error("known_mistakes failed:\n" + result.output);
  const nlohmann::json json = nlohmann::json::parse(result.output);
  AllKnownMistakes known;
  known.of_any_call = json.at("of_any_call");
  for (const nlohmann::json& chapter : json.at("chapters"))
    known.chapters.push_back(
        {chapter.at("chapter"), chapter.at("uses"), chapter.at("ids"), chapter.at("without_mutant")});
  return known;
}

std::vector<std::string> unmatched(const AllKnownMistakes& known,
                                   const std::map<std::string, std::vector<book::Mutant>>& mutants) {
  std::vector<std::string> problems;
  std::map<std::string, std::set<std::string>> ids, made;  // by chapter; made: by mutants that can make its mistakes
  for (const KnownMistakes& chapter : known.chapters)
    ids[chapter.chapter].insert(chapter.ids.begin(), chapter.ids.end());
  const std::set<std::string> of_any_call(known.of_any_call.begin(), known.of_any_call.end());
  for (const auto& [name, list] : mutants) {
    const std::set<std::string> used = used_by(known, name);
    for (const book::Mutant& mutant : list) {
      bool is_known = of_any_call.contains(mutant.diagnosis);
      for (const std::string& other : used) {
        is_known = is_known || ids[other].contains(mutant.diagnosis);
        made[other].insert(mutant.diagnosis);
      }
      if (!is_known)
        problems.push_back(fmt::format("{}:{}: mutant {}: no mistake that chapter {} knows has the id \"{}\"",
                                       mutant.file, mutant.line, mutant.id, name, mutant.diagnosis));
    }
  }
  for (const KnownMistakes& chapter : known.chapters) {
    const std::string file = fmt::format("tests/{}/mistakes.cpp", chapter.chapter);
    std::map<std::string, std::string> reasons;  // its own, and those of the chapters whose mistakes it makes anew
    for (const std::string& used : used_by(known, chapter.chapter))
      for (const KnownMistakes& other : known.chapters)
        if (other.chapter == used) reasons.insert(other.without_mutant.begin(), other.without_mutant.end());
    for (const std::string& id : ids[chapter.chapter])
      if (!made[chapter.chapter].contains(id) && !of_any_call.contains(id) && reasons[id].empty())
        problems.push_back(fmt::format("{}: no mutant makes the mistake \"{}\", and nothing says why", file, id));
    for (const auto& [id, why] : chapter.without_mutant) {
      if (!ids[chapter.chapter].contains(id))
        problems.push_back(fmt::format("{}: \"{}\" is said to have no mutant, but is no mistake of it", file, id));
      else if (made[chapter.chapter].contains(id))
        problems.push_back(fmt::format("{}: \"{}\" is said to have no mutant, but has one", file, id));
    }
  }
  return problems;
}

ByProperty count_properties(const std::map<std::string, std::vector<book::Mutant>>& mutants) {
  ByProperty result;
  for (const char* property : kProperties) result.counts[property] = 0;
  int all = 0;
  for (const auto& [chapter, list] : mutants) {
    for (const book::Mutant& mutant : list) {
      if (mutant.property.empty()) continue;
      const auto found = result.counts.find(mutant.property);
      if (found == result.counts.end()) {
        result.problems.push_back(fmt::format("{}:{}: mutant {}: \"{}\" is no property that mutants are counted by",
                                              mutant.file, mutant.line, mutant.id, mutant.property));
        continue;
      }
      ++found->second;
      ++all;
    }
  }
  for (const auto& [property, count] : result.counts)
    if (count == 0) result.problems.push_back(fmt::format("no mutant has the property \"{}\"", property));
  if (all < kMutantsByProperty)
    result.problems.push_back(fmt::format("{} mutants have a property, not {}", all, kMutantsByProperty));
  return result;
}

void check_mistakes(Inspection& inspection, Findings& findings) {
  const AllKnownMistakes known = ask_for_mistakes(inspection.workspace);
  std::map<std::string, std::vector<book::Mutant>> mutants;
  for (const book::Chapter& chapter : inspection.workspace.book.chapters) {
    mutants[chapter.name()] = book::load_mutants(inspection.workspace.book, chapter);
    findings.passed += int(mutants[chapter.name()].size());
  }
  for (const KnownMistakes& chapter : known.chapters) findings.passed += int(chapter.ids.size());
  findings.problems = unmatched(known, mutants);
  const ByProperty properties = count_properties(mutants);
  findings.problems.insert(findings.problems.end(), properties.problems.begin(), properties.problems.end());
  findings.detail = fmt::format("{} mistakes and mutants", findings.passed);
  for (const auto& [property, count] : properties.counts) findings.detail += fmt::format(", {}: {}", property, count);
}

}  // namespace workbook::gates
