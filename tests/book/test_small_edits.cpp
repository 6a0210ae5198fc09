#include "common/book/small_edits.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

using namespace workbook::book;

namespace {

std::vector<SmallEdit> edits_of(const std::vector<std::string>& body) {
  Region region;
  region.body = body;
  return small_edits(region);
}

/// Whether one of the edits gives this line, with this in its sentence.
bool gives(const std::vector<std::string>& body, const std::string& line, const std::string& says) {
  return std::ranges::any_of(edits_of(body), [&](const SmallEdit& edit) {
    return edit.text == line && edit.sentence.find(says) != std::string::npos;
  });
}

}  // namespace

TEST_CASE("operators and signs are exchanged") {
  const std::vector<std::string> body{"  const int row = lane / 4 + 8 * half;"};
  CHECK(gives(body, "  const int row = lane % 4 + 8 * half;", "exchanges / and % where it computes row"));
  CHECK(gives(body, "  const int row = lane / 4 - 8 * half;", "wrong sign where it computes row"));
  CHECK(gives({"  for (int j = 0; j < n; ++j) l += p[j];"}, "  for (int j = 0; j <= n; ++j) l += p[j];",
              "off by one in the loop over j"));
  CHECK(gives({"#pragma unroll", "  for (int c = 0; c < d / 32; ++c) load(K[c], row + 32 * c);"},
              "  for (int c = 0; c < d / 32; ++c) load(K[c], row + 16 * c);", "wrong constant in the loop over c"));
  CHECK(gives({"  l += p;"}, "  l = p;", "overwrites instead of accumulating where it computes l"));
}

TEST_CASE("factors, terms, conditions and statements are removed") {
  CHECK(gives({"  x = a * b + c;"}, "  x = a  + c;", "leaves out a factor"));
  CHECK(gives({"  x = a * b + c;"}, "  x =  b + c;", "leaves out a factor"));
  CHECK(gives({"  x = a * b + c;"}, "  x = a * b ;", "leaves out a term"));
  CHECK(gives({"  x = m == 0 ? a : b;"}, "  x = b;", "leaves out a condition"));
  CHECK(gives({"  const int k = masked ? first : last;"}, "  const int k = masked ? last : first;",
              "exchanges the two sides of a condition"));
  CHECK(gives({"  __syncthreads();"}, "", "lacks a statement: the one in the call of __syncthreads"));
  CHECK(gives({"  row.l *= scale;"}, "", "lacks a statement: the one where it computes row.l"));
  CHECK_FALSE(gives({"  const float l = 0;"}, "", ""));  // needed by what follows
  CHECK_FALSE(gives({"      a + b);"}, "", ""));         // a part of a statement
}

TEST_CASE("arguments, minimum and maximum, indices and variables are exchanged") {
  CHECK(gives({"  copy(tile, K, first);"}, "  copy(K, tile, first);", "exchanges two arguments in the call of copy"));
  CHECK(gives({"  const float m = max(a, b);"}, "  const float m = a;", "takes the maximum of one value alone"));
  CHECK(gives({"  const float m = max(a, b);"}, "  const float m = min(a, b);", "exchanges minimum and maximum"));
  CHECK_FALSE(gives({"  const float m = max(a, b);"}, "  const float m = max(b, a);", ""));
  CHECK(gives({"  S[j] = x;"}, "  S[j + 1] = x;", "an index of S that is off by one"));
  CHECK(gives({"  const int a = 1, b = 2;", "  x = f(a);"}, "  x = f(b);", "uses a wrong variable, such as b,"));
}

TEST_CASE("comments and literals are not edited, and lines of a statement share its position") {
  CHECK(edits_of({"  // a / b"}).empty());
  CHECK(gives({"  const int x =", "      a / b;"}, "      a % b;", "where it computes x"));
}

TEST_CASE("of a long region there are fewer edits, but of all its lines") {
  std::vector<std::string> body(100, "  x = (a + 1) * (b - 2) / (c % 3);");
  const std::vector<SmallEdit> edits = edits_of(body);
  CHECK(edits.size() == 30);  // each is compiled with 100 lines
  body.resize(20);
  std::vector<bool> edited(body.size());
  for (const SmallEdit& edit : edits_of(body)) edited[edit.line] = true;
  CHECK(std::ranges::count(edited, true) == 20);
}
