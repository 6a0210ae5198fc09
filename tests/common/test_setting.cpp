// Shared K/V heads and masks: oracle and bounds against the definition in float64, pair by pair, without
// common/attention/mask.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "common/attention/cache_pages.hpp"
#include "common/attention/mask_text.hpp"
#include "common/attention/oracle.hpp"
#include "tests/common/error_ratio.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

struct Defined {
  Tensor<double> O, lse, dQ, dK, dV;
};

/// Query i of head h attends to key j of head h / (H / Hkv) if j <= i + Nk - Nq, or always without the mask.
Defined defined(const Problem& p, const Tensor<double>& dO) {
  const auto [B, H, Hkv, Nq, Nk, d] = p.shape;
  Defined all{Tensor<double>({B, H, Nq, d}), Tensor<double>({B, H, Nq, 1}, -infinity), Tensor<double>({B, H, Nq, d}),
              Tensor<double>({B, Hkv, Nk, d}), Tensor<double>({B, Hkv, Nk, d})};
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t h = 0; h < H; ++h) {
      const std::int64_t shared = h / (H / Hkv);
      for (std::int64_t i = 0; i < Nq; ++i) {
        const std::int64_t n = p.causal() ? std::min(Nk, std::max<std::int64_t>(0, i + Nk - Nq + 1)) : Nk;
        std::vector<double> P(static_cast<std::size_t>(n));
        double sum = 0;
        for (std::int64_t j = 0; j < n; ++j) {
          double S = 0;
          for (std::int64_t c = 0; c < d; ++c) S += double(p.Q(b, h, i, c)) * p.K(b, shared, j, c);
          sum += P[std::size_t(j)] = std::exp(double(p.scale) * S);
        }
        if (n == 0) continue;
        all.lse(b, h, i, 0) = std::log(sum);
        double D = 0;
        for (std::int64_t j = 0; j < n; ++j) {
          P[std::size_t(j)] /= sum;
          for (std::int64_t c = 0; c < d; ++c) all.O(b, h, i, c) += P[std::size_t(j)] * p.V(b, shared, j, c);
        }
        for (std::int64_t c = 0; c < d; ++c) D += dO(b, h, i, c) * all.O(b, h, i, c);
        for (std::int64_t j = 0; j < n; ++j) {
          double dP = 0;
          for (std::int64_t c = 0; c < d; ++c) dP += dO(b, h, i, c) * p.V(b, shared, j, c);
          const double dS = P[std::size_t(j)] * (dP - D) * p.scale;
          for (std::int64_t c = 0; c < d; ++c) {
            all.dQ(b, h, i, c) += dS * p.K(b, shared, j, c);
            all.dK(b, shared, j, c) += dS * p.Q(b, h, i, c);
            all.dV(b, shared, j, c) += P[std::size_t(j)] * dO(b, h, i, c);
          }
        }
      }
    }
  }
  return all;
}

double largest_difference(const Tensor<double>& a, const Tensor<double>& b) {
  REQUIRE(a.sizes == b.sizes);
  double largest = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i)
    if (a.values[i] != b.values[i]) largest = std::max(largest, std::abs(a.values[i] - b.values[i]));
  return largest;
}

/// The same problem with one K/V head per query head, by copying.
Problem repeated(const Problem& grouped) {
  Problem all = grouped;
  const std::int64_t group = all.shape.H / all.shape.Hkv;
  all.shape.Hkv = all.shape.H;
  for (const auto& [from, to] : {std::pair{&grouped.K, &all.K}, {&grouped.V, &all.V}}) {
    *to = Tensor<float>({from->sizes[0], all.shape.H, from->sizes[2], from->sizes[3]});
    const std::int64_t head = from->sizes[2] * from->sizes[3];
    for (std::int64_t h = 0; h < all.shape.B * all.shape.H; ++h)
      std::copy_n(from->values.begin() + h / group * head, head, to->values.begin() + h * head);
  }
  return all;
}

const std::vector<Shape> grouped_shapes{{2, 6, 2, 9, 14, 5}, {1, 4, 1, 12, 7, 8}, {3, 2, 2, 1, 11, 3}};

}  // namespace

TEST_CASE("heads that share K and V: oracle forward and backward are the definition's") {
  for (const Shape& shape : grouped_shapes) {
    for (const bool causal : {false, true}) {
      const Problem problem = make_input("normal", {shape, causal, 0.3f, 5});
      REQUIRE(problem.K.sizes == std::array{shape.B, shape.Hkv, shape.Nk, shape.d});
      const Tensor<double> dO = normal_tensor({shape.B, shape.H, shape.Nq, shape.d}, 6);
      const Defined expected = defined(problem, dO);
      const Forward forward = forward_oracle(problem);
      const Gradients gradients = backward_oracle(problem, dO);
      INFO(fmt::format("B={} H={} Hkv={} Nq={} Nk={} causal={}", shape.B, shape.H, shape.Hkv, shape.Nq, shape.Nk,
                       causal));
      CHECK(largest_difference(forward.O, expected.O) < 1e-13);
      CHECK(largest_difference(forward.lse, expected.lse) < 1e-13);
      CHECK(largest_difference(gradients.dQ, expected.dQ) < 1e-12);
      CHECK(largest_difference(gradients.dK, expected.dK) < 1e-12);
      CHECK(largest_difference(gradients.dV, expected.dV) < 1e-12);
    }
  }
}

TEST_CASE("heads that share K and V: the bounds of O, LSE and dQ are those with K and V repeated") {
  for (const Shape& shape : grouped_shapes) {
    const Problem grouped = make_input("value mean", {shape, true, 0, 7}), all = repeated(grouped);
    const Forward of_grouped = forward_oracle(grouped), of_all = forward_oracle(all);
    const Precision half = float16_precision();
    CHECK(of_grouped.O.values == of_all.O.values);
    CHECK(output_bounds(of_grouped, grouped, half).element.values == output_bounds(of_all, all, half).element.values);
    CHECK(lse_bounds(of_grouped, grouped, half).element.values == lse_bounds(of_all, all, half).element.values);
    const Tensor<double> dO = normal_tensor({shape.B, shape.H, shape.Nq, shape.d}, 8);
    const Saved saved{of_grouped.O, of_grouped.lse};
    const GradientBounds few = gradient_bounds(backward_oracle(grouped, dO, saved), grouped, dO, saved, half);
    const GradientBounds many = gradient_bounds(backward_oracle(all, dO, saved), all, dO, saved, half);
    CHECK(few.dQ.element.values == many.dQ.element.values);
    // A row of dK is the sum of its group's: its bound is above each one's, and below their sum and the roundings of
    // the longer sum.
    const std::int64_t group = shape.H / shape.Hkv, head = shape.Nk * shape.d;
    for (std::int64_t at = 0; at < std::int64_t(few.dK.element.values.size()); ++at) {
      double largest = 0, sum = 0;
      for (std::int64_t g = 0; g < group; ++g) {
        const double one = many.dK.element.values[std::size_t((at / head * group + g) * head + at % head)];
        largest = std::max(largest, one), sum += one;
      }
      const double bound = few.dK.element.values[std::size_t(at)];
      if (bound < 0.99 * largest / double(group) || bound > 1.5 * sum)
        FAIL_CHECK(bound << " of " << largest << ", " << sum);
    }
  }
}

TEST_CASE("all functions of a mask agree on the keys that a row attends to") {
  for (const NamedMask& each : all_masks()) {
    for (const Shape& shape : grouped_shapes) {
      for (std::int64_t row = 0; row < shape.lse_size(); ++row) {
        const std::vector<std::int64_t> seen = attended_keys({shape, 1, each.mask}, row);
        CHECK(std::int64_t(seen.size()) == each.mask.count(shape, row));
        std::size_t next = 0;
        for (std::int64_t key = 0; key < shape.Nk; ++key) {
          const bool listed = next < seen.size() && seen[next] == key;
          next += listed;
          if (each.mask.attends(shape, row, key) != listed) FAIL_CHECK(each.name << ", row " << row << ", key " << key);
        }
        CHECK(next == seen.size());  // rising, and within the keys
      }
    }
    CHECK(mask_named(each.name) == each.mask);
    CHECK(each.mask.name() == each.name);
  }
  CHECK_FALSE(mask_named("diagonal"));
}

TEST_CASE("a window is bottom-right aligned, as wide as the sequence it is another mask, and packed sequences cut it") {
  const auto seen = [](const Shape& shape, const Mask& mask, std::int64_t row) {
    return attended_keys({shape, 1, mask}, row);
  };
  using Keys = std::vector<std::int64_t>;
  const Shape shape{1, 1, 1, 4, 6, 64};
  CHECK(seen(shape, Mask::within(1, 0), 0) == Keys{1, 2});
  CHECK(seen(shape, Mask::within(1, 2), 3) == Keys{4, 5});
  CHECK(seen({1, 1, 1, 6, 4, 64}, Mask::within(3, 0), 1).empty());
  const std::int64_t far = std::numeric_limits<std::int64_t>::max();
  for (const Shape& each : grouped_shapes)
    for (std::int64_t row = 0; row < each.lse_size(); ++row) {
      CHECK(seen(each, Mask::within(far, far), row) == seen(each, Mask::none, row));
      CHECK(seen(each, Mask::within(far, 0), row) == seen(each, Mask::causal, row));
    }
  Mask packed = Mask::causal;
  packed.lengths = {2, 3};
  const Shape five{1, 1, 1, 5, 5, 64};
  CHECK(seen(five, packed, 1) == Keys{0, 1});
  CHECK(seen(five, packed, 2) == Keys{2});
  CHECK(seen(five, packed, 4) == Keys{2, 3, 4});
  packed.kind = Mask::none;
  CHECK(seen(five, packed, 2) == Keys{2, 3, 4});
}

TEST_CASE("documents, prefixes and strides let those pairs count that they say, wherever the diagonal begins") {
  for (const auto& [Nq, Nk] : {std::pair<std::int64_t, std::int64_t>{9, 9}, {4, 9}, {12, 9}}) {
    const Shape shape{1, 2, 2, Nq, Nk, 64};
    const std::int64_t document[] = {0, 0, 0, 1, 1, 1, 1, 2, 2};
    for (std::int64_t row = 0; row < shape.lse_size(); ++row) {
      const std::int64_t at = row % Nq + Nk - Nq;
      std::vector<std::int64_t> own, prefix, strided;
      for (std::int64_t key = 0; key < Nk; ++key) {
        if (key <= at && document[at] == document[key]) own.push_back(key);
        if (key <= at || key < 3) prefix.push_back(key);
        if (key <= at && (at - key) % 5 < 2) strided.push_back(key);
      }
      CHECK(attended_keys({shape, 1, Mask::of_documents({3, 4, 2})}, row) == own);
      CHECK(attended_keys({shape, 1, Mask::of_prefix(3)}, row) == prefix);
      CHECK(attended_keys({shape, 1, Mask::in_strides(2, 5)}, row) == strided);
      CHECK(attended_keys({shape, 1, Mask::in_strides(7, 5)}, row) == attended_keys({shape, 1, Mask::causal}, row));
    }
  }
}

TEST_CASE("each request of a cache attends to its own keys, and the causal mask ends at its last one") {
  const Shape shape{3, 2, 1, 2, 9, 64};
  Mask cache = Mask::none;
  cache.cache = {9, 0, 4};
  const auto count = [&](std::int64_t b, std::int64_t query) { return cache.count(shape, (b * 2 + 1) * 2 + query); };
  CHECK((count(0, 0) == 9 && count(1, 1) == 0 && count(2, 0) == 4));
  cache.kind = Mask::causal;
  CHECK((count(0, 0) == 8 && count(0, 1) == 9 && count(1, 1) == 0 && count(2, 0) == 3 && count(2, 1) == 4));
  cache.page_size = 16, cache.page_seed = 7;
  CHECK(cache.name() == "causal+cache=9,0,4+pages=16,7");
  CHECK(mask_of(cache.name()) == cache);
  CHECK(part_not_in({Mask::none, Mask::causal}, cache) == "cache");
  CHECK(part_not_in({Mask::causal, part_named("cache").value()}, cache).empty());
  for (const char* other : {"cache=", "cache=1,x", "causal+cache=-1", "causal+pages=16,7", "cache=4+pages=16",
                            "cache=4+pages=0,1", "cache=4+pages=257,1"})
    CHECK(!mask_of(other));
  const auto refused = [](const Setting& setting, const std::string& said) {
    CHECK_THROWS_MATCHES(check(setting), InputError, Catch::Matchers::Message(said));
  };
  CHECK_NOTHROW(check(Setting{shape, 1, cache}));
  refused({{2, 2, 1, 2, 9, 64}, 1, cache}, "the number of lengths in cache = 3: allowed: 2, one for each request");
  refused({{3, 2, 1, 2, 8, 64}, 1, cache}, "cache = 9,0,4: allowed: whole numbers from 0 to 8, the number of keys");
  cache.rope = true;
  refused({shape, 1, cache},
          "cache with causal+rope+cache=9,0,4+pages=16,7: allowed with a cache: none, causal, "
          "softcap and sink");
}

TEST_CASE("K in a cache has each key in its page, and NaN elsewhere") {
  Setting setting{{2, 1, 1, 1, 5, 2}, 1, Mask::none};
  const std::vector<std::uint16_t> K{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19};
  setting.mask.cache = {5, 1};
  std::vector<std::uint16_t> contiguous(K);
  std::fill(contiguous.begin() + 12, contiguous.end(), std::uint16_t(-1));
  CHECK(stored_in_cache(setting, std::span<const std::uint16_t>(K)) == contiguous);
  setting.mask.page_size = 2;
  for (setting.mask.page_seed = 0; setting.mask.page_seed < 6; ++setting.mask.page_seed) {
    const CachePages pages(setting);
    const auto stored = stored_in_cache(setting, std::span<const std::uint16_t>(K));
    CHECK(pages.per_request == 3);
    CHECK(stored.size() == std::size_t(pages.count * 4));
    CHECK(std::ranges::count(stored, std::uint16_t(-1)) == std::ptrdiff_t(stored.size()) - 12);
    for (const auto& [b, j] : {std::pair{0, 0}, {0, 3}, {0, 4}, {1, 0}})
      CHECK(stored[std::size_t(pages.table[std::size_t(b * 3 + j / 2)] * 4 + j % 2 * 2)] == 10 * b + 2 * j);
    CHECK((pages.table[4] == -1 && pages.table[5] == -1));
  }
}

TEST_CASE("a softcap, ALiBi and a sink match their formulas") {
  Mask mask;
  const Shape shape{1, 2, 2, 3, 5, 64};
  mask.softcap = 2, mask.alibi = true;  // slopes 2^-4 and 2^-8; row 4 is query 1 of head 1, at key 3
  CHECK(std::abs(mask.changed(shape, 4, 0, 1) - (2 * std::tanh(0.5) - 3.0 / 256)) < 1e-15);
  CHECK(std::abs(mask.changed(shape, 1, 4, 1) - (2 * std::tanh(0.5) - 1.0 / 16)) < 1e-15);
  CHECK(std::abs((mask.changed(shape, 1, 4, 1 + 1e-6) - mask.changed(shape, 1, 4, 1 - 1e-6)) / 2e-6 -
                 mask.derivative(1)) < 1e-8);
  // With a sink the weights add up to what is left of 1: V = 1 gives O = 1 - e^(sink - LSE).
  Problem problem = make_input("normal", {shape, Mask::causal, 0, 3});
  std::fill(problem.V.values.begin(), problem.V.values.end(), 1.0F);
  problem.mask.sink = {0.5F, -1};
  const Forward with = forward_oracle(problem);
  for (std::int64_t row = 0; row < 6; ++row)
    CHECK(
        std::abs(with.O.values[std::size_t(row * 64)] - (1 - std::exp(double(problem.mask.sink[std::size_t(row / 3)]) -
                                                                      with.lse.values[std::size_t(row)]))) < 1e-12);
}

TEST_CASE("a stage serves a mask if it serves all of its parts, and the first other one is named") {
  Mask mask = Mask::within(3, 0);
  mask.softcap = 2;
  const Mask window = part_named("window").value(), softcap = part_named("softcap").value();
  CHECK(part_not_in({Mask::none, Mask::causal}, mask) == "window");
  CHECK(part_not_in({Mask::none, window}, mask) == "softcap");
  CHECK(part_not_in({Mask::none, window, part_named("packed").value()}, Mask::of_documents({4, 5})) == "documents");
  CHECK(part_not_in({part_named("documents").value()}, Mask::of_documents({4, 5})).empty());
  CHECK(part_not_in({Mask::none, window, softcap}, mask).empty());
  mask.sink = {1}, mask.lengths = {4, 5};
  CHECK(part_not_in({Mask::none, window, softcap}, mask) == "sink");
  CHECK(part_not_in({Mask::none, window, softcap, part_named("sink").value()}, mask) == "packed");
  CHECK(mask.name() == "window=3,0+softcap=2+sink+lengths=4,5");
}

TEST_CASE("a mask is read back from its name, and from nothing like it") {
  Mask mask = Mask::within(3, 0);
  mask.softcap = 2.5;
  mask.lengths = {4, 5};
  CHECK(mask_of(mask.name()) == mask);
  Mask alibi = Mask::causal;
  alibi.alibi = true;
  CHECK(mask_of("causal+alibi") == alibi);
  CHECK(mask_of("none") == Mask(Mask::none));
  for (const char* part : {"softcap=50", "alibi", "lengths=3,4+alibi", "rope", "dropout=0.1,7"})
    CHECK(mask_of(part) == mask_of(std::string("none+") + part));
  Mask dropout = Mask::causal;
  dropout.rope = true, dropout.dropped = 26, dropout.seed = 7;
  CHECK(dropout.name() == "causal+rope+dropout=0.101562,7");
  CHECK(mask_of(dropout.name()) == dropout);
  CHECK(mask_of("causal+rope+dropout=0.1,7") == dropout);
  CHECK(part_not_in({Mask::none, Mask::causal}, dropout) == "rope");
  Mask empty_sequence = Mask::none;
  empty_sequence.lengths = {4, 0};
  CHECK(mask_of("none+lengths=4,0") == empty_sequence);
  for (const Mask& each : {Mask::of_documents({3, 4}), Mask::of_prefix(0), Mask::in_strides(2, 5)})
    CHECK(mask_of(each.name()) == each);
  for (const char* other : {"",
                            "causal+",
                            "causal+sink",
                            "causal+none",
                            "window=3",
                            "window=3,-1",
                            "window=3,0,1",
                            "window=3,",
                            "none+softcap=0",
                            "none+softcap=1,2",
                            "causal+softcap=5+softcap=6",
                            "none+alibi+alibi",
                            "none+lengths=",
                            "none+lengths=4,x",
                            "documents",
                            "documents=",
                            "documents=4,0",
                            "documents=4+lengths=4",
                            "prefix",
                            "none+dropout=0.1",
                            "none+dropout=1,7",
                            "none+rope=1",
                            "prefix=1,2",
                            "strided=1",
                            "strided=0,3",
                            "strided=1,0"})
    CHECK(!mask_of(other));
}

TEST_CASE("a window side of 2^31 keys or more is unlimited, also after a call converts it to double") {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t side : {no_end, no_end + 1, most - 1024, most}) {
    CHECK(mask_of(fmt::format("window={},0", side)) == Mask::within(no_end, 0));
    CHECK(Mask::within(0, side).right == no_end);
  }
  CHECK(mask_of("window=99999999999999999999,0") == Mask::within(no_end, 0));
  CHECK(mask_of(Mask::within(most, 3).name()) == Mask::within(most, 3));
  CHECK(Mask::within(no_end - 1, 0).left == no_end - 1);
  const Shape wide{1, 1, 1, 3 * no_end, 3 * no_end, 64};
  std::int64_t first = -1, last = -1;
  Mask::within(most, most).for_ranges(wide, 3 * no_end - 1, [&](const KeyRange& keys) {
    first = keys.first, last = keys.last;
  });
  CHECK((first == 0 && last == 3 * no_end));
}

TEST_CASE("a mask's invalid numbers are refused with the argument, the value and the allowed range") {
  const auto refused = [](const std::string& text, const std::string& said) {
    CHECK_THROWS_MATCHES(mask_from(text), InputError, Catch::Matchers::Message("mask = " + text + ": " + said));
  };
  const std::string most = std::to_string(std::numeric_limits<std::int64_t>::max());
  const std::string cap = ": allowed: a number from 0.001 to 1000";
  const std::string length = "whole numbers from 0 to 2147483647";
  refused("strided=4," + most, "strided = 4," + most + ": allowed: whole numbers from 1 to 2147483647");
  refused("strided=0,4", "strided = 0,4: allowed: whole numbers from 1 to 2147483647");
  refused("strided=4,0", "strided = 4,0: allowed: whole numbers from 1 to 2147483647");
  refused("prefix=" + most, "prefix = " + most + ": allowed: " + length);
  refused("causal+lengths=" + most + "," + most + ",2",
          "lengths = " + most + "," + most + ",2: allowed: " + length + ", as is the sum of the lengths");
  refused("documents=2147483647,1", "documents = 2147483647,1: allowed: " + length + ", as is the sum of the lengths");
  refused("causal+softcap=5+softcap=6", "softcap is given twice; allowed: once");
  refused("causal+softcap=inf", "softcap = inf" + cap);
  refused("causal+softcap=nan", "softcap = nan" + cap);
  refused("causal+softcap=1e30", "softcap = 1e30" + cap);
  refused("causal+softcap=1001", "softcap = 1001" + cap);
  refused("causal+softcap=0", "softcap = 0" + cap);
  refused("none+dropout=0.1,9007199254740992",
          "dropout's seed = 9007199254740992: allowed: whole numbers from 0 to 9007199254740991");
  for (const char* text : {"none+dropout=nan,7", "none+dropout=inf,7", "none+dropout=0.1,7.5", "window=nan,0"})
    refused(text, std::string("allowed: ") + mask_texts + cache_texts);
  for (const char* p : {"0.001", "0.00195", "1e-30"})
    refused("none+dropout=" + std::string(p) + ",7", "dropout = " + std::string(p) + ": allowed: " + dropout_text);
  CHECK(mask_from("none+dropout=0.002,7").dropped == 1);
  CHECK(mask_from("none+dropout=0,7").dropped == 0);
  CHECK(mask_from("prefix=2147483647").left == longest_length);
  CHECK(mask_from("strided=4,2147483647").right == longest_length);
  CHECK(mask_from("causal+softcap=1000").softcap == largest_softcap);
  CHECK(mask_from("causal+softcap=0.001").softcap == least_softcap);
}

TEST_CASE("a setting is refused if its scale, its lengths or its sinks do not fit") {
  const auto refused = [](const Setting& setting, const std::string& said) {
    CHECK_THROWS_MATCHES(check(setting), InputError, Catch::Matchers::Message(said));
  };
  const Shape shape{1, 2, 2, 5, 5, 64};
  Mask packed = Mask::causal, sinks = Mask::causal;
  packed.lengths = {2, 2}, sinks.sink = {0, 1};
  CHECK_NOTHROW(check(Setting{shape, -0.125F, sinks}));
  for (const float scale : {INFINITY, -INFINITY, NAN})
    refused({shape, scale, Mask::causal}, fmt::format("scale = {}: allowed: finite numbers", scale));
  refused({shape, 1, packed},
          "lengths = 2,2: the lengths add up to 4, with Nq = 5, Nk = 5: allowed: lengths that add up to both");
  refused({shape, 1, Mask::of_documents({2, 4})},
          "documents = 2,4: the lengths add up to 6, with Nq = 5, Nk = 5: allowed: lengths that add up to Nk");
  packed.lengths = {-1, 6};
  refused({shape, 1, packed},
          "lengths = -1,6: allowed: whole numbers from 0 to 2147483647, as is the sum of the lengths");
  packed.lengths = {5, 0};  // a sequence may be empty
  CHECK_NOTHROW(check(Setting{shape, 1, packed}));
  refused({{1, 1, 1, 5, 5, 64}, 1, sinks}, "the number of sinks = 2: allowed: 1, one for each head");
  Mask alibi = Mask::causal;
  alibi.alibi = true;
  refused({{1, 6, 6, 5, 5, 64}, 1, alibi}, "H (heads) = 6 with alibi: allowed: powers of two");
  for (const std::int64_t H : {1, 2, 64}) CHECK_NOTHROW(check(Setting{{1, H, H, 5, 5, 64}, 1, alibi}));
  sinks.sink[1] = INFINITY;
  refused({shape, 1, sinks}, "sink[1] = inf: allowed: finite numbers up to 2^127");
  Mask window = Mask::within(-1, 3);
  refused({shape, 1, window}, "window = -1,3: allowed: whole numbers from 0 on; 2147483648 or more: no end");
  CHECK_THROWS_AS(check(Setting{{1, 1, 1, largest_number + 1, 1, 1}, 1, Mask::none}, true), InputError);
  CHECK_NOTHROW(check(Setting{{1, 1, 1, largest_number, 1, 1}, 1, Mask::none}, true));
}

TEST_CASE("every number of a setting is sent and returned") {
  Setting sent{{2, 6, 3, 5, 7, 64}, -0.25f, Mask::causal};
  sent.mask.rope = true, sent.mask.dropped = 26, sent.mask.seed = (1LL << 53) - 1;
  std::vector<std::pair<std::string, double>> numbers;
  for_numbers(sent, [&](const char* name, auto value) { numbers.emplace_back(name, double(value)); });
  const Setting back = setting_from([&](std::string_view name) {
    for (const auto& [each, value] : numbers)
      if (each == name) return value;
    throw std::runtime_error("not sent");
  });
  CHECK(back.shape == sent.shape);
  CHECK(back.scale == sent.scale);
  CHECK(back.mask == sent.mask);
}
