// Prints what chapters declare of their mistakes, as JSON, for the gate that compares them with the mutants:
//
//   {"of_any_call": [ID, …], "chapters": [{"chapter": NAME, "uses": […], "ids": […], "without_mutant": {ID: WHY}}, …]}
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/judge/mistakes.hpp"
#include "tests/support/subject.hpp"

int main() {
  nlohmann::json chapters = nlohmann::json::array();
  for (const workbook::judge::ChapterMistakes& chapter : workbook::judge::declared()) {
    nlohmann::json without_mutant = nlohmann::json::object();
    for (const auto& [why, ids] : chapter.without_mutant)
      for (const std::string& id : ids) without_mutant[id] = why;
    chapters.push_back({{"chapter", chapter.chapter},
                        {"uses", chapter.uses},
                        {"ids", chapter.ids()},
                        {"without_mutant", without_mutant}});
  }
  std::cout << nlohmann::json{{"of_any_call", workbook::test::diagnoses_of_any_call()}, {"chapters", chapters}} << "\n";
}
