// Hidden tests of chapter 2, as an instructor may write them: the properties of the public tests, on inputs of their
// own. These stand here for the tests of grading, and as an example; those of a course lie outside the repository.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

#include "tests/support/subject.hpp"

using namespace workbook;
using namespace workbook::test;

TEST_CASE("hidden: the state of other scores", "[2.1]") {
  std::vector<float> x;
  for (int i = 0; i < 77; ++i) x.push_back(float((i * 7919) % 101) / 7 - 5);
  double m = x[0], l = 0;
  for (const float score : x) m = std::max(m, double(score));
  for (const float score : x) l += std::exp(score - m);
  worker::Call request("online_softmax");
  request.number("block", 13).input("x", x).output<float>("state", 2);
  const std::vector<float> state = call(request).output<float>("state");
  expect(state[0] == float(m), fmt::format("m is {}, expected {}", state[0], m));
  expect(std::abs(state[1] - l) <= 1e-5 * l, fmt::format("l is {}, expected {}", state[1], l));
}

TEST_CASE("hidden: other shapes", "[2.3]") {
  const Problem problem = make_input("value mean", {{1, 3, 3, 53, 71, 32}, true, 0, 4711});
  expect_attention(problem, "value mean", {{"Br", 24}, {"Bc", 20}});
}

TEST_CASE("hidden: the whole chapter on another seed", "[whole]") {
  const Problem problem = make_input("late spike", {{2, 1, 1, 40, 90, 64}, false, 0, 815});
  expect_attention(problem, "late spike", {{"Br", 16}, {"Bc", 32}});
}
