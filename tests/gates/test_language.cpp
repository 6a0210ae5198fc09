// The gate "language": avoided phrases in pages and code, and sentences that are too long.
#include "common/gates/language.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

using namespace workbook::gates;

namespace {

const Avoided row_blocks{{{"row", "block"}, {"row", "blocks"}}, {}, "Q tile"};
const Avoided products{{{"product"}}, {{"dot", "product"}, {"product", "of", "sizes"}}, "matmul"};

std::vector<int> lines(const std::vector<Hit>& hits) {
  std::vector<int> numbers;
  for (const Hit& hit : hits) numbers.push_back(hit.line);
  return numbers;
}

}  // namespace

TEST_CASE("a phrase is found in any case, at the end of a line and in a comment that goes on") {
  CHECK(lines(find_avoided(words_of_page("A Row block.\nThe row\nblocks of Q\n"), row_blocks)) == std::vector{1, 2});
  CHECK(lines(find_avoided(words_of_code("int x;  // of a row\n        // block\n"), row_blocks)) == std::vector{1});
  CHECK(lines(find_avoided(words_of_code("fail(\"the row block {}\");\n"), row_blocks)) == std::vector{1});
}

TEST_CASE("words of another sentence, of another paragraph and parts of words are no phrase") {
  CHECK(find_avoided(words_of_page("in a row. Block 3\n"), row_blocks).empty());
  CHECK(find_avoided(words_of_page("a row\n\nblock by block\n"), row_blocks).empty());
  CHECK(find_avoided(words_of_page("an arrow block, a row blocked\n"), row_blocks).empty());
}

TEST_CASE("code is not prose: spans, blocks, link targets, identifiers") {
  CHECK(find_avoided(words_of_page("`product`, [tensors](product.hpp), $product$\n```cpp\nproduct();\n```\n"), products)
            .empty());
  CHECK(find_avoided(words_of_code("int product = 1;  // initial value\n"), products).empty());
  CHECK(lines(find_avoided(words_of_code("int product = 1;  // the product\n"), products)) == std::vector{1});
  CHECK(lines(find_avoided(words_of_page("```text\nproduct\n```\n"), products)) == std::vector{2});
}

TEST_CASE("a phrase within one that is right is right, and only there") {
  CHECK(find_avoided(words_of_page("a dot product, the product of sizes\n"), products).empty());
  CHECK(lines(find_avoided(words_of_page("a dot product\nand a product\n"), products)) == std::vector{2});
}

TEST_CASE("a sentence ends with a point, a paragraph, a list item, a table cell; a formula is one word") {
  CHECK(long_sentences("one two three. Four five six.\n\nseven eight\n- nine ten\n| a b c | d e |\n", 3).empty());
  CHECK(long_sentences("The sum $a + b + c + d$ is `f(x, y, z)`.\n", 5).empty());
  const std::vector<LongSentence> found = long_sentences("short one.\n\none two\nthree four five\n", 4);
  REQUIRE(found.size() == 1);
  CHECK(found[0].line == 3);
  CHECK(found[0].words == 5);
}
