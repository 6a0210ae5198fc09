// Q, K and V from a text: shapes, seeds, and scores as a language model's.

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "common/attention/text.hpp"

using namespace workbook;

namespace {

const std::string text = [] {
  const std::string sentence =
      "Attention is a weighted mean: each query asks all keys, and the answers are blended by how well they fit. "
      "What the weights are is decided by a softmax, whose sum runs over the whole sequence. ";
  return sentence + sentence + sentence;
}();

/// Scaled score of query i and key j in head h.
double score(const Problem& problem, std::int64_t h, std::int64_t i, std::int64_t j) {
  double sum = 0;
  for (std::int64_t c = 0; c < problem.shape.d; ++c) sum += double(problem.Q(0, h, i, c)) * problem.K(0, h, j, c);
  return problem.scale * sum;
}

}  // namespace

TEST_CASE("a text gives tensors of the requested shape, the same for the same seed") {
  const Shape shape{1, 2, 2, 100, 100, 32};
  const Problem a = embed_text(text, shape, true, 0, 1);
  CHECK(a.shape == shape);
  CHECK(a.causal());
  CHECK(a.scale == default_scale(32));
  CHECK(a.Q.sizes == std::array<std::int64_t, 4>{1, 2, 100, 32});
  CHECK(a.V.sizes == std::array<std::int64_t, 4>{1, 2, 100, 32});
  CHECK(embed_text(text, shape, true, 0, 1).K.values == a.K.values);
  CHECK(embed_text(text, shape, true, 0, 2).K.values != a.K.values);
  CHECK(embed_text("B" + text, shape, true, 0, 1).K.values != a.K.values);
  CHECK(embed_text(text + "more", shape, true, 0, 1).K.values == a.K.values);
  CHECK(embed_text(text, shape, false, 0.5f, 1).scale == 0.5f);
}

TEST_CASE("fewer queries are the last ones, and fewer heads of K and V one for each group") {
  const Problem all = embed_text(text, {1, 4, 4, 50, 50, 32}, true, 0, 1);
  const Problem some = embed_text(text, {1, 4, 2, 3, 50, 32}, true, 0, 1);
  CHECK(some.Q.sizes == std::array<std::int64_t, 4>{1, 4, 3, 32});
  CHECK(some.K.sizes == std::array<std::int64_t, 4>{1, 2, 50, 32});
  CHECK(some.V.sizes == some.K.sizes);
  bool same = true;
  for (std::int64_t c = 0; c < 32; ++c) {
    for (std::int64_t h = 0; h < 4; ++h)
      for (std::int64_t i = 0; i < 3; ++i) same = same && some.Q(0, h, i, c) == all.Q(0, h, 47 + i, c);
    for (std::int64_t group = 0; group < 2; ++group)
      for (std::int64_t j = 0; j < 50; ++j)
        same = same && some.K(0, group, j, c) == all.K(0, 2 * group, j, c) &&
               some.V(0, group, j, c) == all.V(0, 2 * group, j, c);
  }
  CHECK(same);
}

TEST_CASE("a token depends only on its byte and its position") {
  // Hence a byte does not affect earlier positions.
  const Shape shape{1, 1, 1, 50, 50, 64};
  std::string changed = text;
  changed[30] = '#';
  const Problem a = embed_text(text, shape, false, 0, 1), b = embed_text(changed, shape, false, 0, 1);
  for (std::int64_t i = 0; i < 50; ++i) CHECK((a.Q(0, 0, i, 0) == b.Q(0, 0, i, 0)) == (i != 30));
}

TEST_CASE("scores resemble a language model's") {
  for (const std::int64_t d : {32, 64, 128})
    for (const std::int64_t H : {1, 4}) {
      const Problem problem = embed_text(text, {1, H, H, 200, 200, d}, false, 0, 7);
      for (std::int64_t h = 0; h < H; ++h) {
        double sum = 0, squares = 0, same = 0, other = 0;
        std::int64_t same_count = 0, other_count = 0;
        for (std::int64_t i = 0; i < 200; ++i)
          for (std::int64_t j = 0; j < 200; ++j) {
            const double s = score(problem, h, i, j);
            sum += s;
            squares += s * s;
            (text[i] == text[j] ? same : other) += s;
            ++(text[i] == text[j] ? same_count : other_count);
          }
        const double mean = sum / 40000, deviation = std::sqrt(squares / 40000 - mean * mean);
        INFO("d=" << d << " H=" << H << " mean " << mean << " deviation " << deviation);
        CHECK((1 < deviation && deviation < 3));
        CHECK(std::abs(mean) < 3);
        CHECK(same / double(same_count) > other / double(other_count) + 0.5);  // alike tokens attend to each other
      }
    }
}

TEST_CASE("a text of any bytes will do, a text that is too short will not") {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(char(i));
  const Problem problem = embed_text(bytes, {1, 1, 1, 256, 256, 32}, false, 0, 1);
  for (const float value : problem.Q.values) REQUIRE(std::isfinite(value));
  CHECK_NOTHROW(embed_text("x", {1, 1, 1, 1, 1, 64}, true, 0, 1));
  CHECK_THROWS_MATCHES(embed_text("four", {1, 1, 1, 5, 5, 64}, true, 0, 1), InputError,
                       Catch::Matchers::MessageMatches(Catch::Matchers::ContainsSubstring("4 bytes") &&
                                                       Catch::Matchers::ContainsSubstring("N = 5")));
  CHECK_THROWS_AS(embed_text("", {1, 1, 1, 1, 1, 64}, true, 0, 1), InputError);
  CHECK_THROWS_AS(embed_text(text, {1, 1, 1, 6, 5, 64}, true, 0, 1), InputError);
  CHECK_THROWS_AS(embed_text(text, {2, 1, 1, 5, 5, 64}, true, 0, 1), InputError);
  CHECK_THROWS_AS(embed_text(text, {1, 1, 1, 5, 5, 64}, true, -1, 1), InputError);
}
