// Chapter 16: masks from any predicate of a query and a key, as lists of blocks. The forward pass.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/16_any_pair/mask_cases.hpp"
#include "tests/support/forward_properties.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

// ---- Inputs ----

Input masked(const std::string& kind, const Shape& shape, std::uint64_t seed, const Mask& mask) {
  return {make_input(kind, {shape, mask, 0, seed}), fmt::format("{}, seed {}", kind, seed), kind};
}
AttentionResult expect_masked(const std::string& kind, const Shape& shape, std::uint64_t seed, const Mask& mask) {
  return expect_right(masked(kind, shape, seed, mask), small_tiles(shape.d));
}
/// Tests each mask of these kinds: with whole tiles, and with the first diagonal at, before and after key 0.
void expect_kinds(const std::vector<Mask::Kind>& kinds, std::uint64_t seed, std::int64_t d = 64) {
  for (const auto& [Nq, Nk] : {std::pair{64, 96}, {130, 130}, {70, 161}, {161, 70}})
    for (const Mask& mask : masks_for(Nk))
      if (std::ranges::find(kinds, mask.kind) != kinds.end())
        for (const char* kind : {"normal", "uniform", "value mean"})
          expect_masked(kind, {1, 2, 2, Nq, Nk, d}, ++seed, mask);
}

using N = std::int64_t;

/// Evaluates the predicate of each mask of this kind for all pairs.
void expect_predicate(Mask::Kind kind) {
  for (const auto& [Nq, Nk] : {std::pair{70, 70}, {40, 90}, {90, 40}}) {
    for (const Mask& mask : masks_for(Nk)) {
      if (mask.kind != kind) continue;
      std::vector<std::int32_t> document{0};
      for (std::size_t n = 0; n < mask.lengths.size(); ++n)
        document.insert(document.end(), std::size_t(mask.lengths[n]), std::int32_t(n));
      document.erase(document.begin());
      if (document.empty()) document = {0};
      const auto got = numbers_of("pairs",
                                  {{"Nq", Nq},
                                   {"Nk", Nk},
                                   {"kind", double(kind - Mask::documents)},
                                   {"left", double(mask.left)},
                                   {"right", double(mask.right)}},
                                  document, std::size_t(Nq) * std::size_t(Nk));
      const Shape shape{1, 1, 1, Nq, Nk, 64};
      for (N i = 0; i < Nq; ++i)
        for (N key = 0; key < Nk; ++key) {
          const bool right = mask.attends(shape, i, key), is = got[std::size_t(i * Nk + key)] != 0;
          expect(is == right,
                 fmt::format("your code {} key {} for the query with diagonal {}, expected {}; {}, Nq={}, Nk={}",
                             is ? "unmasks" : "masks", key, i + Nk - Nq, right ? "unmasked" : "masked", mask.name(), Nq,
                             Nk));
        }
    }
  }
}

}  // namespace

// ---- 16.1 and 16.2, predicates ----

TEST_CASE("documents: a query attends to its own document, up to its diagonal", "[16.1]") {
  expect_predicate(Mask::documents);
}
TEST_CASE("documents agree with the oracle", "[16.1]") {
  expect_kinds({Mask::documents}, 10);
  expect_every_kind_in_this_part();
}
TEST_CASE("prefixes and strides: which pairs are unmasked", "[16.2]") {
  expect_predicate(Mask::prefix);
  expect_predicate(Mask::strided);
}
TEST_CASE("prefixes and strides agree with the oracle", "[16.2]") {
  expect_kinds({Mask::prefix, Mask::strided}, 40);
  expect_every_kind_in_this_part();
}

// ---- 16.3 classes ----

namespace {
const char* const class_names[] = {"empty", "full", "partial"};
}

TEST_CASE("a block is classified by all of its pairs", "[16.3]") {
  const auto one_of = [](N query, N key, bool otherwise) {
    return [=](N i, N j) { return i == query && j == key ? !otherwise : otherwise; };
  };
  const auto expect_classes = [](N Nq, N Nk, const std::string& what, const auto& counts) {
    std::vector<std::int32_t> given;
    for (N pair = 0; pair < Nq * Nk; ++pair) given.push_back(counts(pair / Nk, pair % Nk) ? 1 : 0);
    const ClassedBlocks right(Nq, Nk, 32, 64, counts);
    const auto got =
        numbers_of("classes", {{"Nq", double(Nq)}, {"Nk", double(Nk)}}, given, std::size_t(right.rows * right.columns));
    for (std::size_t n = 0; n < got.size(); ++n) {
      const int must = right.classes[n], is = got[n];
      const N query = N(n) / right.columns * 32, key = N(n) % right.columns * 64;
      expect(is == must,
             fmt::format(
                 "your code calls the block of queries {} to {} and keys {} to {} {}, expected {}; {}, Nq={}, Nk={}",
                 query, std::min(Nq, query + 32) - 1, key, key + 63,
                 is >= 0 && is < 3 ? class_names[is] : "none of the three", class_names[must], what, Nq, Nk));
    }
  };
  for (const auto& [Nq, Nk] : {std::pair<N, N>{64, 128}, {70, 150}, {5, 64}, {33, 65}}) {
    expect_classes(Nq, Nk, "every pair is unmasked", [](N, N) { return true; });
    expect_classes(Nq, Nk, "every pair is masked", [](N, N) { return false; });
    expect_classes(Nq, Nk, "the first query of each block is masked", [](N i, N) { return i % 32 != 0; });
    expect_classes(Nq, Nk, "the first 32 keys of each block are masked", [](N, N j) { return j % 64 >= 32; });
    expect_classes(Nq, Nk, "every second key is masked", [](N, N j) { return j % 2 != 0; });
    for (const auto& [query, key] : {std::pair<N, N>{0, 0}, {Nq - 1, Nk - 1}, {4, 63}, {3, 31}, {2, 32}})
      for (const bool otherwise : {false, true})
        expect_classes(Nq, Nk, fmt::format("only pair ({}, {}) is {}", query, key, otherwise ? "masked" : "unmasked"),
                       one_of(query, key, otherwise));
    expect_classes(Nq, Nk, "causal", [](N i, N j) { return j <= i; });
  }
  expect_every_kind_in_this_part();
}

// ---- 16.4 and 16.5 lists ----

namespace {
std::vector<std::int32_t> some_classes(N count, std::uint32_t seed) {
  std::vector<std::int32_t> classes;
  for (N n = 0; n < count; ++n) classes.push_back(std::int32_t((seed = seed * 1664525U + 1013904223U) >> 24) % 3);
  return classes;
}
}  // namespace

TEST_CASE("lists hold the blocks of their class, in order", "[16.4]") {
  for (const N length : {1, 31, 32, 33, 100})
    for (const N step : {1, 3})
      for (const std::int32_t wanted : {1, 2}) {
        std::vector<std::int32_t> classes = some_classes(length * step + 40, std::uint32_t(length)), right;
        std::fill(classes.begin() + length * step, classes.end(), wanted);  // past the end of the line
        for (N n = 0; n < length; ++n)
          if (classes[std::size_t(n * step)] == wanted) right.push_back(std::int32_t(n));
        const auto got =
            numbers_of("lists", {{"step", double(step)}, {"length", double(length)}, {"wanted", double(wanted)}},
                       classes, std::size_t(length) + 65);
        const std::string where = fmt::format("a line of {} blocks, {} apart", length, step);
        const std::vector<std::int32_t> list(got.begin() + 1, got.begin() + 1 + N(right.size()));
        expect(N(got[0]) == N(right.size()), fmt::format("your code counts {} {} blocks, expected {}; {}", got[0],
                                                         class_names[wanted], right.size(), where));
        expect(list == right, fmt::format("your list is {}, expected {}; {}", list, right, where));
      }
  expect_every_kind_in_this_part();
}

TEST_CASE("rows and columns of blocks are listed", "[16.5]") {
  for (const auto& [rows, columns] : {std::pair{3, 5}, {5, 3}, {1, 4}, {4, 1}})
    for (const bool transposed : {false, true})
      for (int n = 0; n < (transposed ? columns : rows); ++n) {
        const auto got =
            numbers_of("line", {{"rows", rows}, {"columns", columns}, {"transposed", transposed ? 1 : 0}, {"line", n}},
                       some_classes(rows * columns, 1), 3);
        const std::vector<std::int32_t> right = transposed ? std::vector<std::int32_t>{n, columns, rows}
                                                           : std::vector<std::int32_t>{n * columns, 1, columns};
        expect(
            got == right,
            fmt::format("for {} {} of {} x {} blocks your code returns the offset {}, length {} and step {}, expected "
                        "offset {}, length {} and step {}",
                        transposed ? "column" : "row", n, rows, columns, got[0], got[2], got[1], right[0], right[2],
                        right[1]));
      }
  expect_every_kind_in_this_part();
}

// ---- 16.6 iterators ----

TEST_CASE("the iterator returns every block once, the partial blocks first", "[16.6]") {
  for (const auto& [partials, fulls] : {std::pair{0, 4}, {2, 3}, {5, 0}, {20, 30}, {33, 64}, {32, 1}}) {
    std::vector<std::int32_t> given;
    for (int n = 0; n < partials + fulls; ++n) given.push_back(7 * n + 3);
    const auto got =
        numbers_of("iterator", {{"partial_count", partials}, {"full_count", fulls}}, given, 32 * given.size());
    for (int n = 0; n < partials + fulls; ++n)
      for (int lane = 0; lane < 32; ++lane) {
        const int is = got[std::size_t(32 * n + lane)], must = given[std::size_t(n)];
        expect(is == must, fmt::format("lane {} returns {} for block {} of {} partial and {} full blocks, expected {}",
                                       lane, is, n, partials, fulls, must));
      }
  }
}

namespace {

/// Expects a forward pass to read K and V of each non-empty block, and 4 bytes for its index in each warp.
void expect_reads(const Input& given, const Tiles& tiles) {
  const Shape& shape = given.problem.shape;
  const ClassedBlocks blocks = blocks_of(given.problem, tiles.Br, tiles.Bc);
  const worker::Reply reply = attention(given, tiles).reply;
  const N heads = shape.B * shape.H;
  N keys = 0;
  for (N block = 0; block < blocks.rows * blocks.columns; ++block)
    if (blocks.classes[std::size_t(block)] != 0)
      keys += std::min(tiles.Bc, shape.Nk - block % blocks.columns * tiles.Bc);
  const std::string what = fmt::format("{} of {} blocks are non-empty, {}", blocks.visited(),
                                       blocks.rows * blocks.columns, describe(given.problem, given.name));
  for (const char* tensor : {"K", "V"})
    expect_count(
        reply, fmt::format("{}.async_bytes", tensor), double(heads * keys * shape.d * 2), what,
        "your code loads an empty block, or skips a non-empty one; it must load K and V of each non-empty block",
        "blocks-read");
  expect_count(
      reply, "note.masked tile", double(heads * blocks.count(2)), what + "; the mask is applied in partial ones",
      "your code applies the mask in full blocks, or not in partial ones; it must apply it in partial blocks only",
      "blocks-masked");
  // Once for each head.
  const N indices = heads * tiles.warps;
  expect_count(reply, "partial_blocks.load_bytes", double(4 * indices * blocks.count(2)), what + "; 4 bytes per index",
               "your warps do not load each index exactly once; a warp must load 32 indices at once, one per lane",
               "index-bytes");
  expect_count(reply, "full_blocks.load_bytes", double(4 * indices * blocks.count(1)), what + "; 4 bytes per index",
               "your warps do not load each index exactly once; a warp must load 32 indices at once, one per lane",
               "index-bytes");
}

}  // namespace

TEST_CASE("a warp reads 4 bytes per index", "[16.6]") {
  require_counters();
  expect_reads(masked("normal", {1, 1, 1, 33, 1200, 64}, 61, Mask::in_strides(3, 7)), small_tiles(64));
  expect_reads(masked("normal", {1, 1, 1, 64, 1200, 64}, 62, Mask::in_strides(70, 180)), small_tiles(64));
  expect_every_kind_in_this_part();
}

// ---- 16.7 partial blocks ----

TEST_CASE("the mask is applied to each pair of a partial block", "[16.7]") {
  expect_kinds({Mask::documents, Mask::prefix, Mask::strided}, 70);
  expect_kinds({Mask::strided}, 110, 128);
  expect_every_kind_in_this_part();
}
const Claims of_16_7 = {
    {"[16.7]", "fully masked rows give O = 0 and LSE = -inf, never NaN", [] { expect_rows_without_keys(); }},
    {"[16.7]", "a scale of any sign", [] { expect_any_scale(); }},
};

// ---- The whole chapter ----

TEST_CASE("all masks agree with the oracle", "[whole]") {
  expect_every_kind();
  std::uint64_t seed = 200;
  for (const N d : head_dims())
    for (const auto& [Nq, Nk] : {std::pair{200, 333}, {333, 200}})
      for (const Mask& mask : masks_for(Nk)) {
        expect_right(masked("normal", {2, 2, 2, Nq, Nk, d}, ++seed, mask), usual_tiles(d));
        expect_masked("rising maximum", {1, 1, 1, Nq, Nk, d}, ++seed, mask);
      }
  for (const InputKind& kind : input_kinds())
    for (const Mask& mask : masks_for(90)) expect_masked(kind.name, {1, 1, 1, 70, 90, 64}, ++seed, mask);
  // More than 32 blocks of either class, on small tiles.
  for (const Mask& mask : {Mask::in_strides(3, 7), Mask::of_prefix(1300)})
    expect_masked("normal", {1, 1, 1, 40, 1400, 64}, ++seed, mask);
}

TEST_CASE("grouped heads agree with the oracle for every mask", "[whole]") {
  std::uint64_t seed = 255;
  for (const N d : head_dims())
    for (const N Hkv : {1, 2})
      for (const Mask& mask : masks_for(133)) {
        const Input given = masked("value mean", {2, 4, Hkv, 70, 133, d}, ++seed, mask);
        expect_right(given, small_tiles(d));
        expect_right(given, usual_tiles(d), bfloat16);
      }
}

TEST_CASE("bf16 agrees with the oracle", "[whole]") {
  expect_element(bfloat16);
  for (const N d : head_dims())
    for (const Mask& mask : masks_for(133))
      expect_right(masked("normal", {1, 2, 2, 70, 133, d}, 260, mask), small_tiles(d), bfloat16);
}

TEST_CASE("any two lengths agree with the oracle", "[whole]") {
  expect_any_two_lengths();
  std::uint64_t seed = 270;
  for (const auto& [Nq, Nk] : {std::pair{1, 1}, {1, 130}, {31, 33}, {65, 64}, {7, 3}, {129, 200}})
    for (const Mask& mask : masks_for(Nk)) expect_masked("normal", {1, 1, 1, Nq, Nk, 64}, ++seed, mask);
}

TEST_CASE("each non-empty block is read once, for 4 bytes of index", "[whole]") {
  require_counters();
  std::uint64_t seed = 300;
  for (const N d : head_dims())
    for (const Tiles& tiles : {usual_tiles(d), small_tiles(d)})
      for (const Mask& mask : masks_for(333))
        expect_reads(masked("normal", {1, 2, 2, 200, 333, d}, ++seed, mask), tiles);
  expect_reads(masked("normal", {1, 2, 2, 200, 333, 64}, ++seed, Mask::none), small_tiles(64));
  expect_reads(masked("normal", {1, 2, 2, 200, 333, 64}, ++seed, Mask::causal), small_tiles(64));
}

TEST_CASE("the lists are built once for all heads", "[whole]") {
  require_counters();
  const auto stored = [](N heads) {
    return counter(
        attention(masked("normal", {1, heads, heads, 200, 200, 64}, 320, Mask::in_strides(70, 180)), small_tiles(64))
            .reply,
        "classes.store_bytes");
  };
  expect(stored(1) == 7 * 7 && stored(3) == 7 * 7,
         fmt::format("with 1 and 3 heads your code writes {} and {} bytes of classes, expected 7 x 7 in both",
                     stored(1), stored(3)),
         "your code does not classify each block exactly once for all heads; it must do so", "blocks-classed-again");
}

TEST_CASE("a key that no query attends to changes no bit", "[whole]") {
  const Shape shape{1, 2, 2, 40, 400, 64};
  for (const Mask& mask : {Mask::of_documents({100, 260, 40}), Mask::in_strides(64, 300)}) {
    Input given = masked("normal", shape, 330, mask);
    const Tiles tiles = small_tiles(64);
    const ClassedBlocks blocks = blocks_of(given.problem, shape.Nq, tiles.Bc);
    const AttentionResult before = attention(given, tiles);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    N poisoned = 0;
    for (N h = 0; h < shape.H; ++h)
      for (N key = 0; key < shape.Nk; ++key) {
        bool seen = false;
        for (N i = 0; i < shape.Nq; ++i) seen = seen || mask.attends(shape, i, key);
        if (seen) continue;
        ++poisoned;
        std::fill_n(&given.problem.K(0, h, key, 0), shape.d, nan);
        // In a block that is not empty its V is multiplied by 0, and 0·NaN would be NaN.
        const bool read = blocks.classes[std::size_t(key / tiles.Bc)] != 0;
        std::fill_n(&given.problem.V(0, h, key, 0), shape.d, read ? 100.0f : nan);
      }
    const AttentionResult after = attention(given, tiles);
    expect_written(after.O.values[0], "O");
    expect(after.O.values == before.O.values && after.lse.values == before.lse.values && poisoned > 0,
           fmt::format("O or the LSE changes if {} keys to which no query attends are NaN, mask {}", poisoned,
                       mask.name()),
           "your code uses a masked pair, or reads an empty block; neither may affect the result", "unseen-key-used");
  }
}

const Claims of_the_whole = {
    {"[whole]", "future positions have zero influence", [] { expect_no_future(); }},
    {"[whole]", "a row's answer depends on no other row of Q", [] { expect_rows_independent(); }},
    {"[whole]", "results do not depend on workers or lane order", [] { expect_order_changes_nothing(); }},
    {"[whole]", "50 runs are bitwise equal", [] { expect_repeatable(50); }},
    {"[whole]", "the tiles fit 64, 99, 163 and 227 KB of shared memory", [] { expect_tiles_for_every_size(); }},
};
