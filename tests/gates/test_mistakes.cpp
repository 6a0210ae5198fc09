// Mistakes and mutants, checked both ways.
#include "common/gates/mistakes.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

using namespace workbook;
using namespace workbook::gates;

namespace {

/// Two chapters; the second can make the first's mistakes as well.
AllKnownMistakes two_chapters() {
  return {{{"01_sums", {}, {"no-plus", "overflow"}, {}}, {"02_products", {"01_sums"}, {"no-times"}, {}}}, {"race"}};
}
book::Mutant mutant(const std::string& id, const std::string& diagnosis) {
  book::Mutant result;
  result.id = id;
  result.diagnosis = diagnosis;
  result.file = "tests/mutants.toml";
  result.line = 7;
  return result;
}
const std::map<std::string, std::vector<book::Mutant>> all_made{
    {"01_sums", {mutant("1.1-minus", "no-plus")}},
    {"02_products", {mutant("2.1-large", "overflow"), mutant("2.1-plus", "no-times"), mutant("2.2-race", "race")}}};

}  // namespace

TEST_CASE("each mistake has a mutant in its chapter, or in one that uses it") {
  CHECK(unmatched(two_chapters(), all_made).empty());
  AllKnownMistakes own_race = two_chapters();  // what any call may end in needs no mutant of its own
  own_race.chapters[0].ids.emplace_back("race");
  CHECK(unmatched(own_race, all_made).empty());

  auto made = all_made;
  made["02_products"].erase(made["02_products"].begin());
  CHECK(unmatched(two_chapters(), made) ==
        std::vector<std::string>{
            "tests/01_sums/mistakes.cpp: no mutant makes the mistake \"overflow\", and nothing says why"});

  AllKnownMistakes known = two_chapters();
  known.chapters[0].without_mutant["overflow"] = "numbers are never that large";
  CHECK(unmatched(known, made).empty());
  known.chapters[0].without_mutant["overflow"] = "";
  CHECK(unmatched(known, made).size() == 1);
}

TEST_CASE("a mistake's mutant must be one that can make it") {
  auto made = all_made;
  made["01_sums"].push_back(mutant("1.1-times", "no-times"));
  made["02_products"].erase(made["02_products"].begin() + 1);
  CHECK(unmatched(two_chapters(), made) ==
        std::vector<std::string>{
            "tests/mutants.toml:7: mutant 1.1-times: no mistake that chapter 01_sums knows has the id \"no-times\"",
            "tests/02_products/mistakes.cpp: no mutant makes the mistake \"no-times\", and nothing says why"});
}

TEST_CASE("a mutant's diagnosis must be one that its chapter knows") {
  auto made = all_made;
  made["02_products"].push_back(mutant("2.1-other", "unheard-of"));
  CHECK(unmatched(two_chapters(), made) ==
        std::vector<std::string>{
            "tests/mutants.toml:7: mutant 2.1-other: no mistake that chapter 02_products knows has the id "
            "\"unheard-of\""});
}

TEST_CASE("a reason that is no longer needed is reported") {
  AllKnownMistakes known = two_chapters();
  known.chapters[1].without_mutant = {{"no-times", "hard to make"}, {"gone", "hard to make"}};
  CHECK(unmatched(known, all_made) ==
        std::vector<std::string>{
            "tests/02_products/mistakes.cpp: \"gone\" is said to have no mutant, but is no mistake of it",
            "tests/02_products/mistakes.cpp: \"no-times\" is said to have no mutant, but has one"});
}

TEST_CASE("mutants are counted by what of the problem they are wrong about") {
  std::map<std::string, std::vector<book::Mutant>> made{{"01_sums", {}}};
  const auto add = [&](const char* property, int times) {
    for (int i = 0; i < times; ++i) {
      made["01_sums"].push_back(mutant("1.1-x", "no-plus"));
      made["01_sums"].back().property = property;
    }
  };
  for (const char* property : kProperties) add(property, 1);
  add("", 5);
  CHECK(count_properties(made).problems == std::vector<std::string>{"9 mutants have a property, not 60"});
  add("scale", 51);
  CHECK(count_properties(made).problems.empty());
  CHECK(count_properties(made).counts.at("scale") == 52);
  add("sclae", 1);
  CHECK(count_properties(made).problems ==
        std::vector<std::string>{
            "tests/mutants.toml:7: mutant 1.1-x: \"sclae\" is no property that mutants are counted by"});
  made["01_sums"].erase(made["01_sums"].begin());
  CHECK(std::ranges::count(count_properties(made).problems, "no mutant has the property \"batches\"") == 1);
}
