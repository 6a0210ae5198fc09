// Shapes, tensors, matrices and the checks of bad input.

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <limits>

#include "common/attention/problem.hpp"

using namespace workbook;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {
constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
}

TEST_CASE("a size is the product of its parts") {
  CHECK(checked_size("x", {}) == 1);
  CHECK(checked_size("x", {2, 3, 4}) == 24);
  CHECK(checked_size("x", {huge / 8}) == huge / 8);
  CHECK(checked_size("x", {70000, 70000, 100}) == 490'000'000'000);
}

TEST_CASE("a size below 1 or too large for 63 bits of bytes is refused by name") {
  for (const std::int64_t bad : {std::int64_t(0), std::int64_t(-1), -huge})
    CHECK_THROWS_MATCHES(checked_size("tensor x", {4, bad}), InputError,
                         MessageMatches(ContainsSubstring("tensor x") && ContainsSubstring(std::to_string(bad))));
  CHECK_THROWS_AS(checked_size("x", {huge / 8 + 1}), InputError);
  CHECK_THROWS_AS(checked_size("x", {huge, huge, huge, huge}), InputError);
  CHECK_THROWS_AS(checked_size("x", {std::int64_t(1) << 31, std::int64_t(1) << 31}), InputError);
  CHECK_THROWS_AS(checked_size("x", {huge / 8, 0}), InputError);  // a product of 0 is not a way out
}

TEST_CASE("an invalid shape is refused with the argument, its value and the allowed range") {
  CHECK_NOTHROW(check(Shape{2, 3, 3, 1, 7, 64}));
  CHECK_NOTHROW(check(Shape{70000, 1, 1, 1, 1, 32}));
  const auto refused = [](const Shape& shape, const std::string& name, const std::string& value) {
    CHECK_THROWS_MATCHES(check(shape), InputError, MessageMatches(ContainsSubstring(name) && ContainsSubstring(value)));
  };
  refused({0, 1, 1, 1, 1, 64}, "B (batch)", "0");
  refused({1, -2, 1, 1, 1, 64}, "H (heads)", "-2");
  refused({1, 1, 0, 1, 1, 64}, "Hkv", "0");
  refused({1, 1, 1, 0, 1, 64}, "Nq", "0");
  refused({1, 1, 1, 1, -9, 64}, "Nk", "-9");
  refused({1, 1, 1, 1, 1, 48}, "d (head_dim) = 48", "32, 64 and 128");
  refused({1, 4, 3, 1, 1, 64}, "Hkv", "3");
  refused({1, 1, 1, huge / 4, 1, 64}, "Q", "too large");
  refused({1, 1, 1, 1, huge / 4, 64}, "K", "too large");
  refused({1, 1, 1, huge / 1000, huge / 1000, 64}, "too large", "elements");
}

TEST_CASE("any head dimension is accepted if the caller allows it") {
  CHECK_NOTHROW(check(Shape{1, 1, 1, 1, 1, 3}, true));
  CHECK_THROWS_AS(check(Shape{1, 1, 1, 1, 1, 3}), InputError);
  CHECK_THROWS_AS(check(Shape{1, 1, 1, 1, 1, 0}, true), InputError);
}

TEST_CASE("a tensor is row-major and filled") {
  Tensor<float> x({2, 3, 4, 5}, 7.0f);
  CHECK(x.values.size() == 120);
  CHECK(x(1, 2, 3, 4) == 7.0f);
  CHECK(x.index(0, 0, 0, 1) == 1);
  CHECK(x.index(0, 0, 1, 0) == 5);
  CHECK(x.index(0, 1, 0, 0) == 20);
  CHECK(x.index(1, 0, 0, 0) == 60);
  CHECK_THROWS_AS(Tensor<float>({1, 1, 0, 1}), InputError);
}

TEST_CASE("the causal mask is aligned to the bottom right") {
  // Nq = Nk: the diagonal.
  CHECK(visible_keys(0, 4, 4, true) == 1);
  CHECK(visible_keys(3, 4, 4, true) == 4);
  // More keys than queries: the last query attends to all keys.
  CHECK(visible_keys(0, 2, 5, true) == 4);
  CHECK(visible_keys(1, 2, 5, true) == 5);
  // More queries than keys: the first queries are fully masked.
  CHECK(visible_keys(0, 5, 2, true) == 0);
  CHECK(visible_keys(2, 5, 2, true) == 0);
  CHECK(visible_keys(3, 5, 2, true) == 1);
  CHECK(visible_keys(4, 5, 2, true) == 2);
  CHECK(visible_keys(0, 5, 2, false) == 2);
}

TEST_CASE("the default scale is 1/sqrt(d)") {
  CHECK(default_scale(64) == 0.125f);
  CHECK(default_scale(1) == 1.0f);
  CHECK(default_scale(128) == 0.08838834764831845f);
}

TEST_CASE("a matrix refuses an index outside, by its name") {
  std::vector<float> values{1, 2, 3, 4, 5, 6};
  const Matrix<float> A("A", std::span(values), 2, 3);
  CHECK(A(1, 2) == 6);
  CHECK(A.row(1)[0] == 4);
  CHECK(A.rows_from(1, 1)(0, 1) == 5);
  CHECK_THROWS_MATCHES(A(2, 0), std::out_of_range, MessageMatches(ContainsSubstring("A(2, 0)")));
  CHECK_THROWS_AS(A(0, 3), std::out_of_range);
  CHECK_THROWS_AS(A(-1, 0), std::out_of_range);
  CHECK_THROWS_AS(A.row(2), std::out_of_range);
  CHECK_THROWS_AS(A.rows_from(1, 2), std::out_of_range);
  CHECK_THROWS_AS(Matrix<float>("B", std::span(values), 2, 2), std::invalid_argument);
  const Matrix<const float> readable = A;
  CHECK(readable(0, 0) == 1);
}

TEST_CASE("a head of a tensor is a matrix") {
  std::vector<int> values(2 * 3 * 4 * 5);
  for (int i = 0; i < int(values.size()); ++i) values[i] = i;
  const Matrix<int> A = head("A", std::span(values), 1, 2, 3, 4, 5);
  CHECK(A.rows() == 4);
  CHECK(A.columns() == 5);
  CHECK(A(0, 0) == (1 * 3 + 2) * 20);
  CHECK(A(3, 4) == 119);
}

TEST_CASE("sizes read well in a message") {
  CHECK(sizes_text(std::array<std::int64_t, 3>{2, 4, 100}) == "(2, 4, 100)");
}
