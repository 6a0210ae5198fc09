// Every kind of input must have the property that its name promises, at every shape.

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "common/attention/inputs.hpp"

using namespace workbook;

namespace {

/// Calls body(head, query, scaled scores of its visible keys) for every row that is not fully masked.
void for_every_row(const Problem& problem,
                   const std::function<void(std::int64_t, std::int64_t, const std::vector<double>&)>& body) {
  const Shape& shape = problem.shape;
  for (std::int64_t head = 0; head < shape.B * shape.H; ++head)
    for (std::int64_t i = 0; i < shape.Nq; ++i) {
      std::vector<double> scores(visible_keys(i, shape.Nq, shape.Nk, problem.causal()));
      for (std::size_t j = 0; j < scores.size(); ++j)
        for (std::int64_t c = 0; c < shape.d; ++c)
          scores[j] += double(problem.scale) * problem.Q.values[(head * shape.Nq + i) * shape.d + c] *
                       problem.K.values[(head * shape.Nk + std::int64_t(j)) * shape.d + c];
      if (!scores.empty()) body(head, i, scores);
    }
}

double maximum(const std::vector<double>& scores) {
  return *std::max_element(scores.begin(), scores.end());
}

double probability(const std::vector<double>& scores, std::size_t key) {
  double l = 0;
  for (const double score : scores) l += std::exp(score - scores[key]);
  return 1 / l;
}

std::vector<InputOptions> many_options() {
  std::vector<InputOptions> all;
  std::uint64_t seed = 0;
  for (const std::int64_t d : {1, 3, 32, 64, 128})
    for (const bool causal : {false, true})
      for (const auto& [Nq, Nk] : std::vector<std::pair<std::int64_t, std::int64_t>>{
               {1, 1}, {1, 65}, {33, 1}, {48, 64}, {64, 48}, {20, 333}, {100, 100}, {3, 1000}})
        for (const float scale : {0.0f, 0.03f}) all.push_back({{1, 2, 2, Nq, Nk, d}, causal, scale, ++seed});
  return all;
}

std::string describe(const InputOptions& options) {
  return fmt::format("Nq={} Nk={} d={} mask={} scale={} seed={}", options.shape.Nq, options.shape.Nk, options.shape.d,
                     options.mask.name(), options.scale, options.seed);
}

}  // namespace

TEST_CASE("every kind works with every shape and gives finite numbers") {
  for (const InputKind& kind : input_kinds())
    for (const InputOptions& options : many_options()) {
      const Problem problem = make_input(kind.name, options);
      const Shape& shape = options.shape;
      REQUIRE(problem.shape == shape);
      REQUIRE(problem.mask == options.mask);
      REQUIRE(problem.scale == (options.scale == 0 ? default_scale(shape.d) : options.scale));
      REQUIRE(std::int64_t(problem.Q.values.size()) == shape.q_size());
      REQUIRE(std::int64_t(problem.K.values.size()) == shape.kv_size());
      REQUIRE(std::int64_t(problem.V.values.size()) == shape.kv_size());
      for (const auto* tensor : {&problem.Q, &problem.K, &problem.V})
        for (const float value : tensor->values)
          if (!(std::abs(value) < 65504)) FAIL(kind.name << ": " << value << " does not fit fp16");
    }
}

TEST_CASE("the same options give the same numbers, another seed gives others") {
  for (const InputKind& kind : input_kinds()) {
    InputOptions options{{1, 1, 1, 5, 9, 32}};
    const Problem a = make_input(kind.name, options), b = make_input(kind.name, options);
    CHECK(a.Q.values == b.Q.values);
    CHECK(a.K.values == b.K.values);
    CHECK(a.V.values == b.V.values);
    options.seed = 2;
    CHECK(make_input(kind.name, options).K.values != a.K.values);
    CHECK(make_input(kind.name, options).V.values != a.V.values);
  }
}

TEST_CASE("the generator gives the same numbers on every platform") {
  // Fixed values: a change here would change every input of the book.
  const std::vector<float> values = normal_values(4, 1);
  CHECK(values == std::vector<float>{-0x1.4b798p-4f, -0x1.006a8p-4f, -0x1.1a30bp+0f, 0x1.67bccp-1f});
  CHECK(normal_values(2, 1) == std::vector<float>(values.begin(), values.begin() + 2));
}

TEST_CASE("normal values are normal") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const std::vector<float> values = normal_values(200000, seed);
    double sum = 0, squares = 0, fourth = 0, beyond_2 = 0, neighbours = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double x = values[i];
      sum += x;
      squares += x * x;
      fourth += x * x * x * x;
      beyond_2 += std::abs(x) > 2;
      if (i > 0) neighbours += x * values[i - 1];
    }
    const double count = double(values.size());
    CHECK(std::abs(sum / count) < 0.01);
    CHECK(std::abs(squares / count - 1) < 0.015);
    CHECK(std::abs(fourth / count - 2.9) < 0.06);  // 3 - 1.2/12 for a sum of twelve
    CHECK(std::abs(beyond_2 / count - 0.0455) < 0.003);
    CHECK(std::abs(neighbours / count) < 0.01);
  }
}

TEST_CASE("Q, K and V are independent of each other") {
  const Problem problem = make_input("normal", {{1, 1, 1, 500, 500, 32}});
  const auto correlation = [](const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += double(a[i]) * b[i];
    return sum / double(a.size());
  };
  CHECK(std::abs(correlation(problem.Q.values, problem.K.values)) < 0.04);
  CHECK(std::abs(correlation(problem.K.values, problem.V.values)) < 0.04);
  CHECK(std::abs(correlation(problem.Q.values, problem.V.values)) < 0.04);
  const Problem next = make_input("normal", {.shape = {1, 1, 1, 500, 500, 32}, .seed = 2});
  CHECK(std::abs(correlation(problem.Q.values, next.Q.values)) < 0.04);
}

TEST_CASE("value mean: V has mean 3") {
  const Problem problem = make_input("value mean", {{1, 1, 1, 4, 300, 64}});
  double sum = 0;
  for (const float value : problem.V.values) sum += value;
  CHECK(std::abs(sum / double(problem.V.values.size()) - 3) < 0.05);
}

TEST_CASE("rising maximum: every later tile of 16 keys raises the maximum, and the largest is in the last") {
  for (const InputOptions& options : many_options()) {
    std::int64_t tiles = 0, raising = 0, rows = 0, last = 0;
    const Problem problem = make_input("rising maximum", options);
    for_every_row(problem, [&](std::int64_t, std::int64_t, const std::vector<double>& scores) {
      double m = -std::numeric_limits<double>::infinity();
      std::size_t first = 0;
      for (; first + 16 <= scores.size(); first += 16) {
        const double tile_m = *std::max_element(&scores[first], &scores[first] + 16);
        ++tiles;
        raising += tile_m > m;
        m = std::max(m, tile_m);
      }
      ++rows;
      const auto largest = std::max_element(scores.begin(), scores.end()) - scores.begin();
      last += largest >= std::ptrdiff_t(scores.size()) - 16;
    });
    INFO(describe(options));
    CHECK(double(raising) >= 0.99 * double(tiles));
    CHECK(double(last) >= 0.99 * double(rows));
  }
}

TEST_CASE("falling maximum: the first key is the largest") {
  for (const InputOptions& options : many_options()) {
    bool first_is_largest = true;
    for_every_row(make_input("falling maximum", options),
                  [&](std::int64_t, std::int64_t, const std::vector<double>& scores) {
                    first_is_largest = first_is_largest && maximum(scores) == scores[0];
                  });
    INFO(describe(options));
    CHECK(first_is_largest);
  }
}

TEST_CASE("large logits: scaled scores reach about 100, on both sides") {
  for (const InputOptions& options : many_options()) {
    double highest = -1000, lowest = 1000;
    for_every_row(make_input("large logits", options),
                  [&](std::int64_t, std::int64_t, const std::vector<double>& scores) {
                    highest = std::max(highest, maximum(scores));
                    lowest = std::min(lowest, *std::min_element(scores.begin(), scores.end()));
                  });
    INFO(describe(options) << ": " << lowest << " to " << highest);
    const double largest = std::max(highest, -lowest);
    CHECK((80 <= largest && largest <= 120));
    if (options.shape.Nk >= 64 && options.shape.Nq >= 20) CHECK((highest > 80 && lowest < -80));
  }
  // Keys near the end compete: P is not one-hot in most rows.
  std::int64_t rows = 0, shared = 0;
  for_every_row(make_input("large logits", {{1, 1, 1, 100, 1000, 64}}),
                [&](std::int64_t, std::int64_t, const std::vector<double>& scores) {
                  const auto key = std::max_element(scores.begin(), scores.end()) - scores.begin();
                  ++rows;
                  shared += probability(scores, std::size_t(key)) < 0.9;
                });
  CHECK(2 * shared > rows);
}

TEST_CASE("one hot: one key takes almost all weight, and not the same one in all rows") {
  for (const InputOptions& options : many_options()) {
    std::int64_t rows = 0, hot = 0;
    std::set<std::ptrdiff_t> keys;
    for_every_row(make_input("one hot", options), [&](std::int64_t, std::int64_t, const std::vector<double>& scores) {
      const auto key = std::max_element(scores.begin(), scores.end()) - scores.begin();
      ++rows;
      hot += probability(scores, std::size_t(key)) > 0.99;
      keys.insert(key);
    });
    INFO(describe(options));
    CHECK(double(hot) >= 0.99 * double(rows));
    if (options.shape.d >= 32 && options.shape.Nk >= 48 && options.shape.Nq >= 20) CHECK(keys.size() >= 10);
  }
}

TEST_CASE("uniform: all scores are 0") {
  for (const InputOptions& options : many_options())
    for_every_row(make_input("uniform", options), [&](std::int64_t, std::int64_t, const std::vector<double>& scores) {
      for (const double score : scores) REQUIRE(score == 0);
    });
}

TEST_CASE("late spike: the very last key dominates every second row that attends to it") {
  for (const InputOptions& options : many_options()) {
    std::int64_t spiked = 0, dominated = 0, others = 0, others_dominated = 0;
    for_every_row(make_input("late spike", options),
                  [&](std::int64_t, std::int64_t i, const std::vector<double>& scores) {
                    const std::int64_t Nk = options.shape.Nk;
                    if (std::int64_t(scores.size()) < Nk || Nk < 10) return;
                    const bool dominates = probability(scores, std::size_t(Nk - 1)) > 0.9;
                    if ((options.shape.Nq - 1 - i) % 2 == 0) {
                      ++spiked;
                      dominated += dominates;
                    } else {
                      ++others;
                      others_dominated += dominates;
                    }
                  });
    INFO(describe(options));
    CHECK(dominated == spiked);
    CHECK(others_dominated == 0);
    if (options.shape.Nk >= 10) CHECK(spiked > 0);
  }
}

TEST_CASE("negative logits: exp of every scaled score is 0 in float") {
  for (const InputOptions& options : many_options()) {
    float largest_exp = 0;
    for_every_row(make_input("negative logits", options),
                  [&](std::int64_t, std::int64_t, const std::vector<double>& scores) {
                    largest_exp = std::max(largest_exp, std::exp(float(maximum(scores))));
                  });
    INFO(describe(options));
    CHECK(largest_exp == 0);
  }
}

TEST_CASE("a kind names the mistakes it exposes, and an unknown kind is refused with the list of kinds") {
  for (const InputKind& kind : input_kinds()) CHECK(kind.exposes.size() > 10);
  CHECK_THROWS_MATCHES(make_input("nromal", {}), InputError,
                       Catch::Matchers::MessageMatches(Catch::Matchers::ContainsSubstring("nromal") &&
                                                       Catch::Matchers::ContainsSubstring("\"late spike\"")));
  CHECK_THROWS_AS(make_input("normal", {.shape = {1, 1, 1, 0, 1, 64}}), InputError);
  CHECK_THROWS_AS(make_input("normal", {.shape = {}, .scale = -1}), InputError);
  CHECK_THROWS_AS(make_input("normal", {.shape = {}, .scale = std::numeric_limits<float>::infinity()}), InputError);
  CHECK_THROWS_AS(make_input("normal", {.shape = {}, .scale = std::numeric_limits<float>::quiet_NaN()}), InputError);
}
