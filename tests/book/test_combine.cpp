// Many versions of files in one: each function keeps its own bodies, and a compiler says whether the result is C++.
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "common/book/combine.hpp"

using workbook::book::combine, workbook::book::Combined, workbook::book::Files;

namespace {

constexpr const char* kernel = R"(#pragma once
#include "layout.hpp"
namespace ch99 {
namespace {
struct State {
  float m = 0;
  float rescale(float x) const { return x * m; }
};
constexpr int tile = 64;
constexpr int half(int n) { return n / 2; }
constexpr int sizes[] = {32, 64};
template <int d, int n = d / 2>
__global__ void __launch_bounds__(32) kernel(float* x) {
  // a comment with a { brace
  const auto twice = [&](int i) { return 2 * i; };
  if (x != nullptr) x[twice(0)] = '{' + n;
}
}  // namespace
int tiles(int keys) {
  return (keys + tile - 1) / tile;
}
}  // namespace ch99
)";

std::string changed_text(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

Files with(const std::string& from, const std::string& to) {
  return {{"kernel.cu", changed_text(kernel, from, to)}, {"layout.hpp", ""}};
}
const Files base{{"kernel.cu", kernel}, {"layout.hpp", ""}};

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("a function that differs between versions holds all of their bodies") {
  const Combined combined =
      combine(base, {{1, with("(keys + tile - 1) / tile", "keys / tile")}, {2, with("+ tile - 1", "+ tile")}});
  CHECK(combined.apart.empty());
  const std::string& text = combined.files.at("kernel.cu");
  CHECK(occurrences(text, "int tiles(int keys)") == 1);
  CHECK(occurrences(text, "switch (workbook::version())") == 1);
  CHECK(occurrences(text, "case 1:") == 1);
  CHECK(occurrences(text, "case 2:") == 1);
  CHECK(occurrences(text, "return keys / tile;") == 1);
  CHECK(occurrences(text, "return (keys + tile) / tile;") == 1);
  CHECK(occurrences(text, "return (keys + tile - 1) / tile;") == 1);
  CHECK(occurrences(text, "__global__") == 1);
  CHECK(combined.files.at("layout.hpp").empty());
}

TEST_CASE("members of classes, templates and functions with lambdas are combined") {
  const Combined combined =
      combine(base, {{1, with("x * m", "x + m")}, {2, with("2 * i", "i")}, {3, with("'{' + n", "n")}});
  CHECK(combined.apart.empty());
  const std::string& text = combined.files.at("kernel.cu");
  CHECK(occurrences(text, "switch (workbook::version())") == 2);
  CHECK(occurrences(text, "template <int d, int n = d / 2>") == 1);
}

TEST_CASE("a version that differs outside the bodies of functions that run is kept apart") {
  const Combined combined = combine(base, {{1, with("tile = 64", "tile = 32")},
                                           {2, with("n / 2;", "n / 4;")},
                                           {3, with("{32, 64}", "{64, 32}")},
                                           {4, with("int tiles(int keys)", "long tiles(int keys)")},
                                           {5, with("float m = 0", "float m = 1")}});
  CHECK(combined.apart == std::set{1, 2, 3, 4, 5});
  CHECK(combined.files == base);
}

TEST_CASE("each body has the line numbers of its own file") {
  const std::string added = changed_text(kernel, "  return (keys + tile - 1) / tile;", "  keys += 0;\n  return keys;");
  const std::string text = combine(base, {{1, {{"kernel.cu", added}, {"layout.hpp", ""}}}}).files.at("kernel.cu");
  CHECK(text.find("case 1:\n#line 19\n{\n  keys += 0;") != std::string::npos);
  CHECK(text.find("default:\n#line 19\n{\n  return (keys") != std::string::npos);
  CHECK(text.find("#line 21\n\n}  // namespace ch99") != std::string::npos);
}

TEST_CASE("with a naming, an error names the version that it is in") {
  const Files base{{"f.hpp", "int f() {\n  return 1;\n}\n"}}, other{{"f.hpp", "int f() {\n  return two;\n}\n"}};
  const std::string text = combine(base, {{7, other}}, "edit-").files.at("f.hpp");
  CHECK(text.find("#line 1 \"edit-7\"\n{\n  return two;") != std::string::npos);
  CHECK(text.find("#line 1 \"f.hpp\"\n{\n  return 1;") != std::string::npos);
}
