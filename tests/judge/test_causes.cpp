// Which known wrong solution is the cause of an exercise's failed tests.
#include "common/judge/causes.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace workbook::judge;

namespace {

const std::vector<WrongVersion> versions{
    {1, "5.1/1", "Your code adds."}, {2, "5.1/2", "Your code adds."}, {3, "5.1/3", "Your code divides."}};

Evidence evidence(int version, std::size_t wrong, std::size_t wrong_reals, double rms = 0) {
  return {version, wrong, wrong_reals, /*largest=*/rms, rms, /*of_counters=*/false};
}
Evidence evidence(int version, std::size_t wrong) {
  return evidence(version, wrong, wrong);
}

}  // namespace

TEST_CASE("a wrong solution that every failed test shows is the cause of all") {
  const auto causes = causes_of({{"a", {evidence(1, 5), evidence(3, 5)}}, {"b", {evidence(3, 7)}}}, versions);
  REQUIRE(causes.size() == 2);
  for (const char* test : {"a", "b"}) {
    CHECK(causes.at(test).id == "5.1/3");
    CHECK(causes.at(test).sentence == "Your code divides.");
    CHECK(causes.at(test).also.empty());
    CHECK(causes.at(test).text() == "Your code divides (your output equals that mistake's exactly).");
  }
}

TEST_CASE("a test that does not show the cause has none") {
  const auto causes = causes_of({{"a", {evidence(3, 5)}}, {"b", {evidence(3, 0)}}}, versions);
  CHECK(causes.contains("a"));
  CHECK_FALSE(causes.contains("b"));
}

TEST_CASE("if no wrong solution explains all tests, each is explained by itself, or none is") {
  CHECK(causes_of({{"a", {evidence(1, 5)}}, {"b", {evidence(3, 7)}}, {"c", {}}}, versions).empty());
  const auto causes = causes_of({{"a", {evidence(1, 5)}}, {"b", {evidence(3, 7)}}}, versions);
  REQUIRE(causes.size() == 2);
  CHECK(causes.at("a").id == "5.1/1");
  CHECK(causes.at("b").id == "5.1/3");
}

TEST_CASE("wrong solutions with one sentence are one cause; others that agree as well are named too") {
  CHECK(causes_of({{"a", {evidence(1, 5), evidence(2, 5)}}}, versions).at("a").also.empty());
  const Cause both = causes_of({{"a", {evidence(1, 5), evidence(2, 5), evidence(3, 5)}}}, versions).at("a");
  CHECK(both.id == "5.1/1");
  CHECK(both.also == std::vector<std::string>{"5.1/3"});
  CHECK(both.sentence == "Your code adds. Or: Your code divides.");
  CHECK(causes_of({{"a", {evidence(1, 5), evidence(3, 5, 5, 0.5)}}}, versions).at("a").also.empty());
}

TEST_CASE("a single element, or NaN alone, is evidence only for a unique cause") {
  CHECK(causes_of({{"a", {evidence(3, 1)}}}, versions).at("a").id == "5.1/3");
  CHECK(causes_of({{"a", {evidence(1, 1), evidence(3, 1)}}}, versions).empty());
  CHECK(causes_of({{"a", {evidence(3, 9, 0)}}}, versions).at("a").id == "5.1/3");
  CHECK(causes_of({{"a", {evidence(1, 9, 0), evidence(3, 9, 0)}}}, versions).empty());
  CHECK(causes_of({{"a", {evidence(1, 1)}}, {"b", {evidence(1, 1)}}}, versions).size() == 2);
}

TEST_CASE("equal reports are called so") {
  Evidence reported = evidence(3, 5);
  reported.of_reports = true;
  CHECK(causes_of({{"a", {reported}}}, versions).at("a").measure == "the simulator reports the same for that mistake");
}

TEST_CASE("no evidence, no cause") {
  CHECK(causes_of({}, versions).empty());
  CHECK(causes_of({{"a", {}}}, versions).empty());
  CHECK(causes_of({{"a", {evidence(1, 0)}}}, versions).empty());
}
