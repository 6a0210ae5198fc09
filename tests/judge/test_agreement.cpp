// Whether wrong values are those of a known wrong solution.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "common/judge/agreement.hpp"
#include "common/judge/compare.hpp"

using workbook::judge::Agreement, workbook::judge::agreement, workbook::judge::Answer;

namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

Answer answer(std::vector<double> O, std::map<std::string, double> counters = {}) {
  return {{{"O", {std::move(O), 1e-3}}}, std::move(counters)};
}
const Answer books = answer({1, 2, 3, 4});

}  // namespace

TEST_CASE("equal wrong values agree; the book's and other values do not") {
  const Answer wrong = answer({1, 2, 30, 40});
  const Agreement same = agreement(wrong, books, wrong);
  CHECK(same.verdict == Agreement::agrees);
  CHECK(same.wrong == 2);
  CHECK(same.wrong_reals == 2);
  CHECK(same.largest == 0);
  CHECK(!same.of_counters);
  CHECK(agreement(books, books, wrong).verdict == Agreement::contradicts);
  CHECK(agreement(answer({1, 2, 30, 41}), books, wrong).verdict == Agreement::contradicts);
  CHECK(agreement(answer({1, 2, 3, 40}), books, wrong).verdict == Agreement::contradicts);
}

TEST_CASE("values that differ by rounding agree if they are ten times closer to the wrong solution than it is off") {
  CHECK(agreement(answer({1.001, 2, 30.01, 40}), books, answer({1, 2, 30, 40})).verdict == Agreement::agrees);
  const Answer slightly_wrong = answer({1.01, 2.01, 3.01, 4.01});
  CHECK(agreement(slightly_wrong, books, slightly_wrong).verdict == Agreement::agrees);
  CHECK(agreement(answer({1.008, 2.012, 3.008, 4.012}), books, slightly_wrong).verdict == Agreement::neutral);
}

TEST_CASE("NaN and unwritten elements must be the same, and NaN equals no number") {
  const double unwritten = workbook::judge::unwritten_value;
  const Answer not_a_number = answer({1, nan_value, nan_value, 4}), not_written = answer({1, unwritten, unwritten, 4});
  const Agreement found = agreement(not_a_number, books, not_a_number);
  CHECK(found.verdict == Agreement::agrees);
  CHECK(found.wrong == 2);
  CHECK(found.wrong_reals == 0);
  CHECK(agreement(not_a_number, books, not_written).verdict == Agreement::contradicts);
  CHECK(agreement(not_written, books, not_written).verdict == Agreement::agrees);
}

TEST_CASE("reports agree if they are the same but for lines and order") {
  const auto reported = [](std::vector<std::size_t> counts, int line) {
    Answer answer;
    for (const std::size_t count : counts) {
      simt::Report& report = answer.reports.emplace_back();
      report.mistake = simt::Mistake::uninitialised_global;
      report.variable = "state m";
      report.count = count;
      report.side.source.line = line;
    }
    return answer;
  };
  const Agreement same = agreement(reported({30, 12}, 7), books, reported({12, 30}, 8));
  CHECK(same.verdict == Agreement::agrees);
  CHECK(same.of_reports);
  CHECK(same.wrong == 42);
  CHECK(agreement(reported({30}, 7), books, reported({31}, 7)).verdict == Agreement::contradicts);
  CHECK(agreement(reported({30}, 7), books, books).verdict == Agreement::contradicts);
  CHECK(agreement(books, books, reported({30}, 7)).verdict == Agreement::contradicts);
}

TEST_CASE("every output has to agree") {
  const auto two = [](std::vector<double> O, std::vector<double> lse) {
    return Answer{{{"O", {std::move(O), 1e-3}}, {"lse", {std::move(lse), 1e-4}}}, {}};
  };
  const Answer right = two({1, 2}, {3}), wrong = two({5, 6}, {7});
  CHECK(agreement(wrong, right, wrong).verdict == Agreement::agrees);
  CHECK(agreement(two({5, 6}, {3}), right, wrong).verdict == Agreement::contradicts);
  CHECK(agreement(two({5, 6}, {7}), right, two({5, 6}, {3})).verdict == Agreement::contradicts);
}

TEST_CASE("where all values are right, the counters decide") {
  const Answer right = answer({1, 2}, {{"barriers", 4}, {"loads", 10}}),
               wrong = answer({1, 2}, {{"barriers", 8}, {"loads", 20}});
  const Agreement found = agreement(wrong, right, wrong);
  CHECK(found.verdict == Agreement::agrees);
  CHECK(found.of_counters);
  CHECK(found.wrong == 2);
  CHECK(agreement(right, right, wrong).verdict == Agreement::contradicts);
  CHECK(agreement(answer({1, 2}, {{"barriers", 8}, {"loads", 10}}), right, wrong).verdict == Agreement::neutral);
  CHECK(agreement(wrong, right, right).verdict == Agreement::neutral);
}
