// Chapter 18: chapter 15's masks in chapter 11's kernel.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <tuple>
#include <vector>

#include "tests/15_which_pairs/asked_masks.hpp"
#include "tests/support/forward_properties.hpp"
#include "tests/support/warp_specialised.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

/// Built for both d.
const Tiles small{128, 64, 12};

Input masked(const std::string& kind, const Shape& shape, std::uint64_t seed, const Mask& mask) {
  return {make_input(kind, {shape, mask, 0, seed}), fmt::format("{}, seed {}", kind, seed), kind};
}
AttentionResult expect_masked(const std::string& kind, const Shape& shape, std::uint64_t seed, const Mask& mask) {
  return expect_right(masked(kind, shape, seed, mask), small);
}

}  // namespace

TEST_CASE("a tile of which some row does not see a key is not full", "[18.1]") {
  std::uint64_t seed = 10;
  for (const Window& w : windows)
    expect_masked("uniform", {1, 1, 1, w.Nq, w.Nk, 64}, ++seed, Mask::within(w.left, w.right));
}

TEST_CASE("each pair of a partial tile counts or does not", "[18.2]") {
  std::uint64_t seed = 40;
  for (const Window& w : {windows[4], windows[6], windows[7], windows[8]})
    expect_masked("value mean", {1, 1, 1, w.Nq, w.Nk, 128}, ++seed, Mask::within(w.left, w.right));
}

TEST_CASE("a box ends with its sequence", "[18.3]") {
  expect_masked("normal", {1, 2, 2, 98, 98, 64}, 50, packed(Mask::none, {33, 0, 1, 64}));
}

TEST_CASE("every tile of queries is somebody's, with the keys that it sees", "[18.4]") {
  expect_masked("normal", {2, 6, 2, 150, 200, 64}, 60, Mask::causal);
}

TEST_CASE("a consumer multiplies no tile that its rows do not see", "[18.5]") {
  require_counters();
  // Keys 64·i to 64·i + 63 for queries that stand at them: consumer c of a block sees tile c, and the one before it.
  for (const auto& [mask, tiles] :
       {std::pair{Mask(Mask::causal), 1 + 2 + 3 + 4}, {Mask::within(64, 0), 1 + 2 + 2 + 2}, {Mask::within(0, 0), 4}}) {
    const worker::Reply reply = attention(masked("normal", {1, 1, 1, 256, 256, 64}, 70, mask), small).reply;
    expect_count(reply, "wgmma_instructions", double(tiles * 4 * (64 / 16 + 64 / 16)),
                 fmt::format("4 consumers of 64 queries need {} tiles of 64 keys together, {}", tiles, mask.name()),
                 "a consumer multiplies a tile of which none of its queries sees a key", "wgmma-count");
  }
}

namespace {

constexpr std::int64_t packed_heads = 2;

/// Rows [first, first + length) of every tensor, as a problem of its own.
Problem cut(const Problem& problem, std::int64_t first, std::int64_t length) {
  Problem part = problem;
  part.mask.lengths.clear();
  part.shape.Nq = part.shape.Nk = length;
  const auto tensors = part.tensors();
  Problem whole = problem;
  for (std::size_t n = 0; n < 3; ++n) {
    const Tensor<float>& from = *whole.tensors()[n];
    *tensors[n] = Tensor<float>({from.sizes[0], from.sizes[1], length, from.sizes[3]});
    for (std::int64_t h = 0; h < from.sizes[1]; ++h)
      for (std::int64_t i = 0; i < length; ++i)
        std::copy_n(&from.values[from.index(0, h, first + i, 0)], from.sizes[3], &(*tensors[n])(0, h, i, 0));
  }
  return part;
}

}  // namespace

TEST_CASE("all masks and changes of scores agree with the oracle", "[whole]") {
  expect_every_kind();
  std::uint64_t seed = 200;
  for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal), Mask::within(50, 0), Mask::within(20, 30)})
    for (const float softcap : {0.0f, 5.0f})
      for (const bool alibi : {false, true})
        for (const std::int64_t d : head_dims()) {
          const Mask both = changed(mask, softcap, alibi);
          seed += 2;
          expect_right(masked("normal", {1, 2, 2, 70, 333, d}, seed, both), alibi ? usual_tiles(d) : small);
          expect_masked("rising maximum", {1, 2, 2, 200, 64, d}, seed + 1, with_sink(both, 2));
        }
  expect_rows_without_keys();
  expect_any_scale();
}

TEST_CASE("heads that share K and V agree with the oracle, whatever the mask", "[whole]") {
  std::uint64_t seed = 220;
  for (const std::int64_t d : head_dims())
    for_every_mask_and_group(d, [&](const Shape& shape, const Mask& mask) {
      const Input given = masked("value mean", shape, ++seed, mask);
      expect_right(given, small);
      expect_right(given, usual_tiles(d), bfloat16);
    });
  // Through the batch, by several tiles of keys and of queries.
  for (const std::int64_t d : head_dims())
    expect_right(masked("normal", {2, 6, 2, 250, 300, d}, 229, with_sink(changed(Mask::causal, 0, true), 6)),
                 usual_tiles(d));
}

TEST_CASE("packed sequences are what each is by itself", "[whole]") {
  const std::vector<std::int64_t> lengths{50, 1, 133, 64, 200};
  for (const std::int64_t d : head_dims())
    for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal), changed(Mask::within(20, 3), 0, true)}) {
      const Input given = masked("normal", {1, packed_heads, packed_heads, 448, 448, d}, 81, packed(mask, lengths));
      const Tiles tiles = d == 64 ? small : usual_tiles(d);
      const AttentionResult together = expect_right(given, tiles);
      std::int64_t first = 0;
      for (const std::int64_t length : lengths) {
        const AttentionResult alone = attention(cut(given.problem, first, length), tiles.numbers());
        for (std::int64_t h = 0; h < packed_heads; ++h)
          for (std::int64_t i = 0; i < length; ++i)
            expect(
                std::equal(&alone.O.values[alone.O.index(0, h, i, 0)], &alone.O.values[alone.O.index(0, h, i, 0)] + d,
                           &together.O.values[together.O.index(0, h, first + i, 0)]),
                fmt::format("row {} of the sequence of {} rows from row {} on is not what it is where that sequence is "
                            "alone, mask {}",
                            i, length, first, mask.name()),
                "what is computed for a sequence depends on what is packed beside it", "sequences-mixed");
        first += length;
      }
    }
}

TEST_CASE("a neighbour changes no bit, whatever it holds", "[whole]") {
  for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal)})
    for (const std::int64_t d : head_dims()) {
      Input given = masked("normal", {1, packed_heads, packed_heads, 120, 120, d}, 82, packed(mask, {50, 33, 37}));
      const AttentionResult before = attention(given, small);
      for (const auto& tensor : given.problem.tensors())
        for (std::int64_t h = 0; h < packed_heads; ++h)
          for (std::int64_t i = 0; i < 120; ++i)
            if (i < 50 || i >= 83) std::fill_n(&(*tensor)(0, h, i, 0), d, std::numeric_limits<float>::quiet_NaN());
      const AttentionResult after = attention(given, small);
      for (std::int64_t h = 0; h < packed_heads; ++h)
        for (std::int64_t i = 50; i < 83; ++i)
          for (std::int64_t c = 0; c < d; ++c)
            expect(after.O(0, h, i, c) == before.O(0, h, i, c),
                   fmt::format("O of row {}, which is in the second of three sequences, column {}, was {} and became "
                               "{} when the other two became NaN",
                               i, c, before.O(0, h, i, c), after.O(0, h, i, c)),
                   "what is computed for a sequence depends on what is packed beside it", "sequences-mixed");
    }
}

TEST_CASE("bf16 agrees with the oracle", "[whole]") {
  expect_element(bfloat16);
  for (const std::int64_t d : head_dims())
    expect_right(masked("normal", {1, 2, 2, 70, 133, d}, 230, with_sink(changed(Mask::within(40, 9), 5, true), 2)),
                 small, bfloat16);
  expect_right(masked("normal", {1, 2, 2, 100, 100, 64}, 231, packed(Mask::causal, {63, 37})), {}, bfloat16);
}

TEST_CASE("any two lengths agree with the oracle", "[whole]") {
  expect_any_two_lengths();
  std::uint64_t seed = 240;
  for (const auto& [Nq, Nk] : {std::pair{1, 1}, {1, 130}, {31, 33}, {65, 64}, {7, 3}, {129, 200}, {300, 129}})
    for (const auto& [left, right] : {std::pair{0, 0}, {3, 2}, {64, 0}, {0, 64}})
      expect_masked("normal", {1, 1, 1, Nq, Nk, 64}, ++seed, Mask::within(left, right));
}

TEST_CASE("a block takes one tile of queries after another", "[whole]") {
  // More tiles than multiprocessors; of those that see no key, too.
  for (const std::int64_t d : head_dims()) {
    expect_right(masked("rising maximum", {1, 72, 24, 200, 100, d}, 159, Mask::causal), usual_tiles(d));
    expect_right(masked("normal", {1, 40, 40, 300, 100, d}, 160, with_sink(Mask::causal, 40)), small);
  }
}

const Claims of_the_whole = {
    {"[whole]", "future positions have zero influence", [] { expect_no_future(); }},
    {"[whole]", "a row's answer depends on no other row of Q", [] { expect_rows_independent(); }},
    {"[whole]", "the number of workers and the order of lanes change nothing", [] { expect_order_changes_nothing(); }},
    {"[whole]", "50 orders give one answer", [] { expect_repeatable(50, /*in_other_orders=*/true); }},
    {"[whole]", "extra memory does not grow with N", [] { expect_no_extra_memory("S or P", sizeof(std::int32_t)); }},
};
