// Chapter 6's lab: right for scores near 0, and right for all.
#include <catch2/catch_test_macros.hpp>

#include "tests/06_backward/gradients.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

void expect_lab(const Input& in) {
  Precision precision = gradient_precision(false);
  precision.probability = 0;  // P and dS stay float
  expect_gradients(backward(in.given, {}, "lab"), in.given, in.name, {}, precision);
}

}  // namespace

TEST_CASE("the lab's gradients are right for scores near 0", "[6.9]") {
  expect_lab(input("normal", {1, 2, 2, 17, 24, 64}, 90));
}

TEST_CASE("the lab's gradients are right for scores of any size", "[6.9]") {
  expect_lab(input("large logits", {1, 1, 1, 16, 24, 64}, 91));
  expect_lab(input("negative logits", {1, 1, 1, 16, 24, 64}, 92));
}
