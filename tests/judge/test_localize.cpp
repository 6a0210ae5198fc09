// One conclusion for an exercise, computed from the data of verdicts and independent of their texts.
#include "common/judge/localize.hpp"

#include <catch2/catch_test_macros.hpp>

#include "common/judge/run.hpp"

using namespace workbook;
using namespace workbook::judge;

namespace {

TensorFinding right(const std::string& tensor) {
  TensorFinding finding;
  finding.tensor = tensor;
  finding.elements = 64;
  return finding;
}
TensorFinding wrong(const std::string& tensor, std::vector<AxisFinding> where = {}) {
  TensorFinding finding = right(tensor);
  finding.right = false;
  finding.off = 8;
  finding.where = std::move(where);
  return finding;
}

Observation observation(std::map<std::string, double> numbers, std::vector<TensorFinding> tensors) {
  Observation observation;
  observation.numbers = std::move(numbers);
  observation.tensors = std::move(tensors);
  return observation;
}

Verdict passed(std::vector<Observation> observations) {
  Verdict verdict;
  verdict.result = Result::passed;
  verdict.observations = std::move(observations);
  return verdict;
}
Verdict failed(std::vector<Observation> observations, std::optional<Cause> cause = {}) {
  Verdict verdict = passed(std::move(observations));
  verdict.result = Result::failed;
  verdict.cause = std::move(cause);
  return verdict;
}

Conclusion of(const std::vector<Verdict>& verdicts) {
  std::vector<const Verdict*> pointers;
  for (const Verdict& verdict : verdicts) pointers.push_back(&verdict);
  return conclude(pointers);
}

bool says(const Conclusion& conclusion, const std::string& text) {
  for (const std::string& fact : conclusion.facts)
    if (fact.find(text) != std::string::npos) return true;
  return false;
}

simt::Report race() {
  simt::Report report{};
  report.mistake = simt::Mistake::read_after_write;
  report.variable = "tile[3][16]";
  report.what = "the read does not wait for the write";
  report.advice = "a __syncthreads() between them";
  report.side = {"reads", {"chapters/03_tiled_wmma/tiled_wmma.cu", 118, "ch03::multiply_QK", ""}, 1, 0xffu};
  report.other =
      simt::Side{"writes", {"solutions/03_tiled_wmma/tiled_wmma.cu", 90, "ch03::load_tile", "the book's 3.5"}, 0, 1u};
  report.block = {2, 1, 0};
  report.count = 77;
  return report;
}

/// One of each kind, with every field set.
std::vector<Verdict> samples() {
  std::vector<Verdict> all;
  int number = 0;
  for (const Result result : kResults) {
    Verdict verdict;
    verdict.chapter = "03_tiled_wmma";
    verdict.exercise = number % 2 == 0 ? "3.6" : kWhole;
    verdict.test = "test " + std::to_string(number);
    verdict.backend = Backend::sim;
    verdict.result = result;
    verdict.hidden = number % 3 == 0;
    verdict.finished = number % 4 != 0;
    verdict.message = "the simulator: race: read after write, no CUDA device lies outside: your output";
    if (number % 2 == 0) verdict.cause = Cause{"no-scale", "no scale: your output", "matches exactly", {"race"}};
    if (number % 3 != 0) verdict.reports = {race(), race()};
    verdict.reports_left_out = std::size_t(number);
    verdict.observations = {observation({{"d", 64}, {"mask", 1}, {"scale", INFINITY}},
                                        {right("lse"), wrong("O", {{"row", 100, 16, 95, false, 32, 16, 31}})})};
    verdict.observations[0].only_l_is_wrong = number % 2 == 0;
    verdict.unavailable = result == Result::skipped;
    verdict.blocked_by = result == Result::blocked ? "3.5" : "";
    verdict.place = SourceLocation{"chapters/03_tiled_wmma/tiled_wmma.cu", 118};
    verdict.seconds = 0.25;
    all.push_back(verdict);
    ++number;
  }
  return all;
}

/// Scrambles all texts for people.
Verdict scrambled(Verdict verdict) {
  const auto scramble = [](std::string& text) {
    for (char& c : text) c = char('a' + (static_cast<unsigned char>(c) * 7 + 3) % 26);
  };
  scramble(verdict.message);
  if (verdict.cause) scramble(verdict.cause->sentence), scramble(verdict.cause->measure);
  for (simt::Report& report : verdict.reports) {
    scramble(report.variable), scramble(report.what), scramble(report.advice);
    for (simt::Side* side : {&report.side, &*report.other})
      scramble(side->action), scramble(side->source.function), scramble(side->source.known_as);
  }
  if (verdict.place) scramble(verdict.place->file);
  return verdict;
}

}  // namespace

TEST_CASE("a report that may follow from the wrong values of an exercise's first test is no cause of its own") {
  Verdict values = failed({});
  values.finished = true;
  values.exercise = "21.2";
  const Verdict outside = failed({}, Cause{"out-of-bounds", "your code indexes outside an array"});
  CHECK(of({values, outside}).may_follow);
  CHECK_FALSE(of({outside, values}).may_follow);
  CHECK_FALSE(of({values, failed({}, Cause{"race", "two threads write one element"})}).may_follow);
  Verdict explained = values;
  explained.cause = Cause{"", "Your code returns the request before"};
  CHECK_FALSE(of({explained, outside}).may_follow);
}

TEST_CASE("a verdict goes through JSON whole, each report with all its fields") {
  for (const Verdict& verdict : samples()) {
    const nlohmann::json json = to_json(verdict);
    const Verdict back = verdict_from_json(nlohmann::json::parse(json.dump()));
    CHECK(to_json(back) == json);
    CHECK(back.observations == verdict.observations);
    REQUIRE(back.reports.size() == verdict.reports.size());
    for (const simt::Report& report : back.reports) {
      CHECK(report.text() == race().text());
      CHECK(report.mistake == simt::Mistake::read_after_write);
      CHECK(report.side.lanes == 0xffu);
      CHECK(report.other->source.function == "ch03::load_tile");
      CHECK(report.count == 77);
    }
  }
}

TEST_CASE("every kind of report has a unique name, and is found by it") {
  for (int i = 0; i <= int(simt::kLastMistake); ++i)
    CHECK(simt::mistake_named(simt::name(simt::Mistake(i))) == simt::Mistake(i));
  CHECK_THROWS_AS(simt::mistake_named("?"), std::invalid_argument);
}

TEST_CASE("a location in the book is named by its exercise") {
  const std::string text = race().text();
  CHECK(text.find("reads at chapters/03_tiled_wmma/tiled_wmma.cu:118, warp 1") != std::string::npos);
  CHECK(text.find("writes at the book's 3.5, warp 0") != std::string::npos);
  CHECK(text.find("solutions/") == std::string::npos);
}

TEST_CASE("scrambled texts change no result, no conclusion, no report's kind and nothing that is hidden") {
  const std::vector<Verdict> plain = samples();
  std::vector<Verdict> strange;
  for (const Verdict& verdict : plain) strange.push_back(verdict_from_json(to_json(scrambled(verdict))));
  ChapterRun a, b;
  a.tests = plain, b.tests = strange;
  for (const Result result : kResults) CHECK(a.count(result) == b.count(result));
  CHECK(a.none_failed() == b.none_failed());
  CHECK(all_passed({a}) == all_passed({b}));
  for (std::size_t i = 0; i < plain.size(); ++i) {
    CHECK(plain[i].result == strange[i].result);
    CHECK(plain[i].hidden == strange[i].hidden);
    CHECK(plain[i].finished == strange[i].finished);
    CHECK(plain[i].unavailable == strange[i].unavailable);
    CHECK(plain[i].blocked_by == strange[i].blocked_by);
    CHECK(plain[i].cause_id() == strange[i].cause_id());
    CHECK(plain[i].observations == strange[i].observations);
    REQUIRE(plain[i].reports.size() == strange[i].reports.size());
    for (std::size_t r = 0; r < plain[i].reports.size(); ++r)
      CHECK(plain[i].reports[r].mistake == strange[i].reports[r].mistake);
  }
  const Conclusion from_plain = of(plain), from_strange = of(strange);
  CHECK(from_plain.facts == from_strange.facts);
  CHECK_FALSE(from_plain.facts.empty());
  REQUIRE(from_plain.causes.size() == from_strange.causes.size());
  for (std::size_t i = 0; i < from_plain.causes.size(); ++i)
    CHECK(from_plain.causes[i].id == from_strange.causes[i].id);
}

TEST_CASE("without a failure there is no conclusion") {
  const Conclusion conclusion = of({passed({observation({{"d", 64}}, {right("O")})})});
  CHECK(conclusion.causes.empty());
  CHECK(conclusion.facts.empty());
}

TEST_CASE("the cause that explains most failures is first, and each is named once") {
  const Cause scale{"no-scale", "no scale", "", {"base-2"}}, base{"base-2", "base 2", "to 3e-7", {}};
  Verdict reported = failed({}, Cause{"race", "a race", "", {}});
  reported.reports = {race()};
  const Conclusion conclusion = of({failed({}, scale), failed({}, base), failed({}, base), reported, failed({})});
  REQUIRE(conclusion.causes.size() == 2);
  CHECK(conclusion.causes[0].id == "base-2");  // no-scale may be base-2 as well: one mistake for three tests
  CHECK(conclusion.causes[0].measure == "to 3e-7");
  CHECK(conclusion.causes[1].id == "race");
}

TEST_CASE("a direct check is not named beside one matching wrong solution, nor are several beside it") {
  const Verdict direct = failed({}, Cause{"too-small", "the scale is too small", "", {}});
  const Verdict one = failed({}, Cause{"no-sign", "negative elements are ignored", "exactly", {}});
  const Verdict several = failed({}, Cause{"no-sign", "negative elements are ignored", "exactly", {"first-only"}});
  REQUIRE(of({direct, one}).causes.size() == 1);
  CHECK(of({direct, one}).causes[0].id == "no-sign");
  REQUIRE(of({direct, several}).causes.size() == 1);
  CHECK(of({direct, several}).causes[0].id == "too-small");
}

TEST_CASE("a match with a wrong solution is not named beside a report of the simulator") {
  Verdict seen = failed({}, Cause{"race", "a race", "", {}});
  seen.reports = {race()};
  const Verdict match = failed({observation({{"d", 64}}, {wrong("O")})}, Cause{"no-scale", "no scale", "to 3e-7", {}});
  CHECK(of({seen, match}).causes.size() == 1);
  CHECK(of({seen, match}).causes[0].id == "race");
}

TEST_CASE("if values are wrong, a counter is not named as the cause") {
  Cause cost{"shared-traffic", "Q is loaded too often", "", {}};
  cost.of_cost = true;
  const Verdict counted = failed({}, cost);
  CHECK(of({counted}).causes.size() == 1);
  const Conclusion wrong_too = of({counted, failed({observation({{"d", 64}}, {wrong("O")})})});
  CHECK(wrong_too.causes.empty());
  CHECK(wrong_too.facts ==
        std::vector<std::string>{"the counters are wrong too, possibly for the same reason: Q is loaded too often"});
  CHECK(of({counted, counted, failed({}, Cause{"rows-mixed", "rows are mixed up", "", {}})}).causes.size() == 2);
}

TEST_CASE("the simulator's reports precede causes that the values suggest") {
  Verdict reported = failed({}, Cause{"race", "a race", "", {}});
  reported.reports = {race()};
  CHECK(of({failed({}, Cause{"no-scale", "no scale", "", {}}), reported}).causes.at(0).id == "race");
}

TEST_CASE("an out-of-bounds access is named after a cause that another test finds") {
  Verdict outside = failed({}, Cause{"out-of-bounds", "an index leaves its array", "", {}});
  outside.reports = {race()};
  outside.reports[0].mistake = simt::Mistake::outside_global;
  const Verdict asked = failed({}, Cause{"first-missing", "the first row is not counted", "", {}});
  const Conclusion conclusion = of({outside, asked, outside});
  REQUIRE(conclusion.causes.size() == 2);
  CHECK(conclusion.causes[0].id == "first-missing");
  CHECK(conclusion.causes[1].id == "out-of-bounds");
  Cause cost{"shared-traffic", "Q is loaded too often", "", {}};
  cost.of_cost = true;
  CHECK(of({outside, failed({}, cost)}).causes.at(0).id == "out-of-bounds");
}

TEST_CASE("one matching wrong solution is named instead of an out-of-bounds access; several are named beside none") {
  Verdict outside = failed({}, Cause{"out-of-bounds", "an index leaves its array", "", {}});
  outside.reports = {race()};
  outside.reports[0].mistake = simt::Mistake::outside_global;
  const Verdict one = failed({}, Cause{"first-missing", "the first row is not counted", "exactly", {}});
  const Verdict several = failed({}, Cause{"first-missing", "the first row is not counted", "exactly", {"second"}});
  for (const Conclusion& conclusion : {of({outside, one}), of({one, outside, outside})}) {
    REQUIRE(conclusion.causes.size() == 1);
    CHECK(conclusion.causes[0].id == "first-missing");
  }
  CHECK(of({outside, several}).causes.at(0).id == "out-of-bounds");
}

TEST_CASE("a deadlock is not named beside a known cause") {
  Verdict waiting = failed({}, Cause{"deadlock", "some threads wait for others", "", {}});
  waiting.reports = {race()};
  waiting.reports[0].mistake = simt::Mistake::deadlock;
  CHECK(of({waiting}).causes.at(0).id == "deadlock");
  const Conclusion conclusion = of({waiting, failed({}, Cause{"not-released", "no semaphore is released", "", {}})});
  REQUIRE(conclusion.causes.size() == 1);
  CHECK(conclusion.causes[0].id == "not-released");
}

TEST_CASE("a hidden test reveals neither its measure nor its inputs") {
  Verdict hidden =
      failed({observation({{"d", 64}}, {right("lse"), wrong("O")})}, Cause{"no-scale", "no scale", "to 3e-7", {}});
  hidden.hidden = true;
  const Conclusion conclusion = of({hidden});
  CHECK(conclusion.facts.empty());
  REQUIRE(conclusion.causes.size() == 1);
  CHECK(conclusion.causes[0].measure.empty());
}

TEST_CASE("correct and wrong outputs halve the search") {
  const auto twice = [](const Observation& tried) { return of({failed({tried, tried})}); };
  CHECK(says(twice(observation({}, {wrong("O"), right("lse")})), "the LSE is right, O is wrong: m and l are right"));
  TensorFinding scaled = wrong("O");
  scaled.scaled_together = "row";
  CHECK(says(of({failed({observation({}, {scaled})})}), "each row of O is right except for a factor"));
  CHECK_FALSE(says(of({failed({observation({}, {scaled})}), failed({observation({}, {wrong("O")})})}), "factor"));
  scaled.scaled_together = "columns 0 to 3 of every 8";
  CHECK(says(of({failed({observation({}, {scaled})})}),
             "columns 0 to 3 of every 8 of a row have a different factor than the columns after them"));
  TensorFinding moved = wrong("O");
  moved.elsewhere = "row 0 holds what belongs in row 16";
  CHECK(says(of({failed({observation({}, {moved}), observation({}, {wrong("O")})})}),
             "row 0 holds what belongs in row 16"));
  CHECK_FALSE(
      says(of({failed({observation({}, {moved}), observation({}, {wrong("O")}), observation({}, {wrong("O")})})}),
           "belongs"));
  CHECK(says(twice(observation({}, {right("m"), wrong("l")})), "m is right, l is wrong"));
  CHECK(says(twice(observation({}, {right("dV"), wrong("dQ"), wrong("dK")})),
             "dV is right, dK and dQ are wrong: P is right"));
  Observation l = observation({}, {wrong("O"), wrong("lse")});
  CHECK(twice(l).facts.empty());  // wrong everywhere: nothing to localize
  l.only_l_is_wrong = true;
  CHECK(says(of({failed({l})}), "only l is wrong"));
  // With one key O is right, whatever the score is: one call is no evidence.
  CHECK_FALSE(says(of({failed({observation({}, {right("O"), wrong("lse")})})}), "is right"));
  // A tensor that is right only in right calls is no evidence.
  CHECK_FALSE(says(of({failed({observation({}, {wrong("O")})}), passed({observation({}, {right("lse")})})}), "right"));
  // Wrong in another test: not right.
  CHECK_FALSE(
      says(of({failed({observation({}, {wrong("O"), right("lse")})}), failed({observation({}, {wrong("lse")})})}),
           "is right"));
}

TEST_CASE("a condition that all wrong calls meet and no correct one does is named") {
  std::vector<Observation> right_ones, wrong_ones;
  for (const double d : {32, 64})
    for (const double Nk : {64, 100, 128})
      right_ones.push_back(observation({{"d", d}, {"Nk", Nk}, {"Bc", 64}}, {right("O")}));
  wrong_ones.push_back(observation({{"d", 128}, {"Nk", 64}, {"Bc", 64}}, {wrong("O")}));
  wrong_ones.push_back(observation({{"d", 128}, {"Nk", 100}, {"Bc", 64}}, {wrong("O")}));
  const Conclusion conclusion = of({passed(right_ones), failed(wrong_ones)});
  CHECK(says(conclusion, "only with d = 128: all 2 such calls are wrong; the 6 other calls are all right"));
  CHECK_FALSE(says(conclusion, "Bc"));

  SECTION("not where a wrong call has it not") {
    wrong_ones.push_back(observation({{"d", 64}, {"Nk", 100}, {"Bc", 64}}, {wrong("O")}));
    CHECK_FALSE(says(of({passed(right_ones), failed(wrong_ones)}), "only with d"));
  }
  SECTION("not from one right call, nor from one wrong one") {
    CHECK(of({passed({right_ones[0]}), failed(wrong_ones)}).facts.empty());
    CHECK(of({passed(right_ones), failed({wrong_ones[0]})}).facts.empty());
  }
}

TEST_CASE("a coincidence is not reported") {
  // One wrong call in five with several heads: heads are tried with another input than the rest.
  std::vector<Observation> right_ones, wrong_ones{observation({{"B", 1}, {"H", 2}, {"Nk", 133}}, {wrong("O")})};
  for (const double Nk : {64, 65, 66, 67})
    right_ones.push_back(observation({{"B", 1}, {"H", 2}, {"Nk", Nk}}, {right("O")}));
  for (const double Nk : {10, 20}) right_ones.push_back(observation({{"B", 1}, {"H", 1}, {"Nk", Nk}}, {right("O")}));
  CHECK(of({passed(right_ones), failed(wrong_ones)}).facts.empty());
  // Two wrong calls of two with the mask, which is tried with sizes of its own: no two calls differ in it alone.
  wrong_ones = {observation({{"mask", 1}, {"Nk", 90}}, {wrong("O")}),
                observation({{"mask", 1}, {"Nk", 91}}, {wrong("O")})};
  right_ones = {observation({{"mask", 0}, {"Nk", 64}}, {right("O")}),
                observation({{"mask", 0}, {"Nk", 65}}, {right("O")})};
  CHECK(of({passed(right_ones), failed(wrong_ones)}).facts.empty());
  right_ones.push_back(observation({{"mask", 0}, {"Nk", 90}}, {right("O")}));
  CHECK(says(of({passed(right_ones), failed(wrong_ones)}), "only with the causal mask"));
  // Sizes that differ in more than one way: nothing says which of them matters.
  right_ones.clear(), wrong_ones.clear();
  for (const double Nq : {64, 96, 128})
    right_ones.push_back(observation({{"Nq", Nq}, {"Nk", 128}, {"Br", 32}}, {right("O")}));
  for (const double Nq : {63, 65, 70})
    wrong_ones.push_back(observation({{"Nq", Nq}, {"Nk", 33}, {"Br", 32}}, {wrong("O")}));
  CHECK(of({passed(right_ones), failed(wrong_ones)}).facts.empty());
}

TEST_CASE("ragged tiles, and a few right answers among many wrong ones") {
  std::vector<Observation> right_ones, wrong_ones;
  for (const double Nk : {64, 128, 192, 256, 320, 384})
    right_ones.push_back(observation({{"Nk", Nk}, {"Bc", 64}}, {right("O")}));
  for (const double Nk : {1, 65, 100, 200, 333})
    wrong_ones.push_back(observation({{"Nk", Nk}, {"Bc", 64}}, {wrong("O")}));
  CHECK(says(of({passed(right_ones), failed(wrong_ones)}),
             "only if Nk is not a multiple of Bc: all 5 such calls are wrong"));
  right_ones.push_back(observation({{"Nk", 63}, {"Bc", 64}}, {right("O")}));  // some inputs hide the mistake
  CHECK(says(of({passed(right_ones), failed(wrong_ones)}),
             "only if Nk is not a multiple of Bc: of 6 such calls, 5 are wrong; the 6 other"));
}

TEST_CASE("of several conditions only the one with the fewest exceptions is named") {
  // Wrong with the causal mask. The tests try that with d = 32 alone, and d = 32 without the mask as well.
  std::vector<Observation> right_ones, wrong_ones;
  for (const double d : {32, 32, 32, 32, 64, 64, 64, 64, 64, 64})
    right_ones.push_back(observation({{"d", d}, {"mask", 0}, {"Nk", 128}, {"Bc", 32}}, {right("O")}));
  for (int i = 0; i < 5; ++i)
    wrong_ones.push_back(observation({{"d", 32}, {"mask", 1}, {"Nk", 128}, {"Bc", 32}}, {wrong("O")}));
  const Conclusion conclusion = of({passed(right_ones), failed(wrong_ones)});
  CHECK(says(conclusion, "only with the causal mask: all 5 such calls are wrong; the 10 other calls are all right"));
  CHECK_FALSE(says(conclusion, "only with d"));
}

TEST_CASE("the launch is named only if the same problem is correct in another launch") {
  const auto call = [](double Nk, double warps, bool is_right) {
    return observation({{"Nk", Nk}, {"warps", warps}, {"Br", 32 * warps}}, {is_right ? right("O") : wrong("O")});
  };
  // Wrong for many keys. Those are tried with four warps alone.
  std::vector<Observation> right_ones, wrong_ones;
  for (const double Nk : {10, 20, 30}) right_ones.push_back(call(Nk, 1, true));
  for (const double Nk : {130, 192, 256}) wrong_ones.push_back(call(Nk, 4, false));
  CHECK(of({passed(right_ones), failed(wrong_ones)}).facts.empty());
  right_ones.push_back(call(192, 1, true));
  CHECK(says(of({passed(right_ones), failed(wrong_ones)}),
             "only with warps = 4: all 3 such calls are wrong; the 4 other calls are all right"));
}

TEST_CASE("a location that all wrong elements share is named, with the kernel's warps") {
  const AxisFinding rows{"row", 100, 16, 95, false, 32, 16, 31};
  TensorFinding O = wrong("O", {rows, {"column", 64, 32, 63, true}});
  O.rows_per_warp = 32;
  TensorFinding other = wrong("O", {rows, {"column", 128, 32, 127, true}});
  other.rows_per_warp = 32;
  const Conclusion conclusion = of({failed({observation({}, {O})}), failed({observation({}, {other})})});
  CHECK(says(conclusion, "O is wrong only in rows 16 to 31 of each warp"));
  CHECK(says(conclusion, "O is wrong only in columns from 32 on"));
  CHECK(of({failed({observation({}, {O})})}).facts.empty());  // a single call may be a coincidence
  other.where[1].first = 0;
  CHECK_FALSE(says(of({failed({observation({}, {O})}), failed({observation({}, {other})})}), "columns"));
}

TEST_CASE("computed NaN is distinguished from unwritten elements") {
  TensorFinding O = wrong("O");
  O.nan = O.off;
  CHECK(says(of({failed({observation({}, {O})})}), "from a computation"));
  O.elements = O.off;
  CHECK(says(of({failed({observation({}, {O})})}), "O is NaN everywhere in these calls"));
  O.nan = 0;
  O.unwritten = O.off;
  CHECK(says(of({failed({observation({}, {O})})}), "writes nothing"));
  O.unwritten = 1;
  CHECK_FALSE(says(of({failed({observation({}, {O})})}), "NaN"));
}

TEST_CASE("where only unwritten elements are wrong, a cause that was found in other values stays") {
  TensorFinding O = wrong("O");
  O.unwritten = O.off;
  const Cause cause{"22.2/25", "Your code finishes no query.", "your output equals that mistake's exactly"};
  CHECK(of({failed({observation({}, {O})}, cause)}).causes.empty());
  const Conclusion conclusion = of({failed({observation({}, {O})}), failed({}, cause)});
  REQUIRE(conclusion.causes.size() == 1);
  CHECK(conclusion.causes[0].id == "22.2/25");
}

TEST_CASE("a report of unwritten memory does not give way to other causes if a known mistake explains it") {
  Verdict reported = failed({}, Cause{"22.3/33", "Your code never starts.", "the simulator reports the same"});
  reported.reports = {race()};
  reported.reports[0].mistake = simt::Mistake::uninitialised_global;
  const Verdict checked = failed({}, Cause{"transfers", "Your code sends too much.", ""});
  CHECK(of({reported, checked}).causes[0].id == "22.3/33");
  reported.cause->measure.clear();
  CHECK(of({reported, checked}).causes[0].id == "transfers");
}
