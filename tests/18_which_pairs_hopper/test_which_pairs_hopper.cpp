// Chapter 18: chapter 15's masks in chapter 11's kernel, part by part and whole.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <limits>
#include <tuple>
#include <vector>

#include "tests/15_which_pairs/mask_cases.hpp"
#include "tests/15_which_pairs/packed_sequences.hpp"
#include "tests/support/forward_properties.hpp"
#include "tests/support/numbered.hpp"
#include "tests/support/warp_specialised.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

/// Built for both d.
const Tiles small{128, 64, 12};

AttentionResult expect_masked(const std::string& kind, const Shape& shape, std::uint64_t seed, const Mask& mask,
                              int lane_seed = 0) {
  return expect_right(masked(kind, shape, seed, mask), small, {}, lane_seed);
}

std::int64_t down(std::int64_t key) {
  return std::max<std::int64_t>(0, key) / 32;
}
std::int64_t up(std::int64_t key) {
  return tiles_of(std::max<std::int64_t>(0, key), 32);
}

}  // namespace

// ---- 18.1 full tiles ----

TEST_CASE("a tile is full only if every query attends to all of its keys", "[18.1]") {
  std::vector<Window> all(std::begin(windows), std::end(windows));
  for (const auto& [left, right] : {std::pair{unlimited, unlimited}, {unlimited, std::int64_t(0)}, {200, 0}, {150, 90}})
    for (const auto& [Nq, Nk] : {std::pair{320, 320}, {128, 512}, {300, 129}}) all.push_back({Nq, Nk, left, right});
  for (const Window& window : all)
    for (const std::int64_t rows : {1, 16, 64}) {
      const std::int64_t count = tiles_of(window.Nq, rows);
      worker::Call request = window_call("full_tiles", window);
      request.number("rows", double(rows)).number("count", double(count));
      request.output<std::int32_t>("numbers", std::size_t(2 * count));
      const auto numbers = call(request).output<std::int32_t>("numbers");
      for (std::int64_t n = 0; n < count; ++n) {
        const std::int64_t first = n * rows, last = std::min((n + 1) * rows, window.Nq) - 1;
        const Numbered got{numbers[std::size_t(2 * n)], numbers[std::size_t(2 * n + 1)]},
            right{up(window.first(last)), down(window.last(first))};
        expect(
            got == right,
            fmt::format("for queries {} to {} your code returns the full tiles {} (of 32 keys each), expected {}; {}",
                        first, last, got.text(), right.text(), window.text()));
      }
    }
  expect_every_kind_in_this_part();
}

// ---- 18.2 the mask in D ----

namespace {

/// One tile (64, Bc), whose scores are numbered.
void expect_mask(const Window& window, std::int64_t first_query, std::int64_t first_key, std::int64_t Bc) {
  worker::Call request = window_call("masked_tile", window);
  request.number("first_query", double(first_query)).number("first_key", double(first_key)).number("Bc", double(Bc));
  const std::vector<float> S = call(request.output<float>("numbers", std::size_t(64 * Bc))).output<float>("numbers");
  for (std::int64_t n = 0; n < 64 * Bc; ++n) {
    const std::int64_t query = first_query + n / Bc, key = first_key + n % Bc;
    if (query >= window.Nq) continue;
    const float got = S[std::size_t(n)],
                right = window.attends(query, key) ? float(n) : -std::numeric_limits<float>::infinity();
    if (got == right) continue;
    expect(false,
           fmt::format("your code changes the score of query {} and key {}, row {} and column {} of a tile (64, {}), "
                       "from {} to {}, expected {}; the query attends to keys {}; {}",
                       query, key, n / Bc, n % Bc, Bc, n, got, right,
                       Numbered{window.first(query), window.last(query)}.text(), window.text()));
  }
}

}  // namespace

TEST_CASE("each pair of a partial tile is masked correctly", "[18.2]") {
  for (const Window& window : windows)
    for (const std::int64_t Bc : {64, 128})
      for (std::int64_t first_query = 0; first_query < window.Nq; first_query += 64)
        for (std::int64_t first_key = 0; first_key < window.Nk; first_key += Bc)
          expect_mask(window, first_query, first_key, Bc);
  expect_every_kind_in_this_part();
}

// ---- 18.3 TMA coordinates of sequences ----

TEST_CASE("the last row of a sequence is the last row of the dimension", "[18.3]") {
  struct RowsCase {
    std::int64_t head, N, first, length;
  };
  const RowsCase cases[] = {{0, 10, 0, 4},  {0, 10, 4, 6},    {2, 10, 4, 6},
                            {1, 98, 33, 1}, {3, 200, 0, 200}, {5, 7, 3, 0}};
  std::vector<std::int32_t> given;
  for (const RowsCase& c : cases)
    for (const std::int64_t number : {c.head, c.N, c.first, c.length}) given.push_back(std::int32_t(number));
  worker::Call request("sequence_rows");
  request.number("count", double(std::size(cases))).input("given", given);
  request.output<std::int32_t>("numbers", 2 * std::size(cases));
  const auto numbers = call(request).output<std::int32_t>("numbers");
  for (std::size_t n = 0; n < std::size(cases); ++n) {
    const auto& [head, N, first, length] = cases[n];
    const std::int64_t before_first = numbers[2 * n], end = numbers[2 * n + 1], right = head * N + first + length;
    expect(before_first == N - length && end == right,
           fmt::format(
               "{} rows from row {} of head {} on, N = {}: your code returns before_first {} and end {}, expected {} "
               "and {}",
               length, first, head, N, before_first, end, N - length, right));
  }
}

TEST_CASE("a box ends with its sequence", "[18.3]") {
  // 33 and 97 rows end within the first and the second box of Q and O, and within a K/V tile.
  for (const std::int64_t d : head_dims())
    expect_masked("normal", {1, 2, 2, 195, 195, d}, 50, packed(Mask::none, {33, 0, 1, 97, 64}));
  expect_every_kind_in_this_part();
}

// ---- 18.4 the tile scheduler ----

namespace {

/// A call of `work_tiles`: heads of packed sequences, or of one, tiles of 128 queries and 64 keys.
struct WorksCase {
  Window window;
  std::int64_t heads, heads_per_group;
  std::vector<std::int64_t> lengths = {};
  std::int64_t q_tiles() const {
    if (lengths.empty()) return tiles_of(window.Nq, 128);
    std::int64_t tiles = 0;
    for (const std::int64_t length : lengths) tiles += tiles_of(length, 128);
    return tiles;
  }
  std::string text() const {
    return fmt::format("{} heads, heads_per_group {}, {}{}", heads, heads_per_group, window.text(),
                       lengths.empty() ? "" : fmt::format(", lengths {}", fmt::join(lengths, ", ")));
  }
};
struct WorkIs {
  std::int64_t head = -1, first_row = 0, first_query = 0, first = 0, last = 0, Nq = 0, Nk = 0;
  friend bool operator==(const WorkIs& a, const WorkIs& b) {
    const auto all = [](const WorkIs& w) { return std::tie(w.head, w.first_row, w.first_query, w.Nq, w.Nk); };
    if (a.head < 0 && b.head < 0) return true;
    return all(a) == all(b) && Numbered{a.first, a.last} == Numbered{b.first, b.last};
  }
  std::string text() const {
    if (head < 0) return "head -1";
    return fmt::format("head {}, first_row {}, first_query {}, Nq {}, Nk {}, K/V tiles {}", head, first_row,
                       first_query, Nq, Nk, Numbered{first, last}.text());
  }
};

/// The work tile of an index: groups of heads one after another, in each of them the last Q tiles first.
WorkIs work_of(const WorksCase& c, std::int64_t number) {
  const std::int64_t tiles = c.q_tiles();
  if (number >= c.heads * tiles) return {};
  const std::int64_t first_head = number / (c.heads_per_group * tiles) * c.heads_per_group,
                     of_these = number - first_head * tiles;
  const std::int64_t heads = std::min(c.heads_per_group, c.heads - first_head);
  std::int64_t tile = tiles - 1 - of_these / heads, row = 0;  // the tile is counted over all sequences, then in its own
  Window seen = c.window;
  for (const std::int64_t length : c.lengths) {
    seen.Nq = seen.Nk = length;
    if (tile < tiles_of(length, 128)) break;
    tile -= tiles_of(length, 128), row += length;
  }
  const std::int64_t query = tile * 128, end = seen.last(std::min(seen.Nq, query + 128) - 1);
  return {first_head + of_these % heads,
          row,
          query,
          seen.first(query) / 64,
          tiles_of(std::max<std::int64_t>(0, end), 64),
          seen.Nq,
          seen.Nk};
}

void expect_works(const WorksCase& c) {
  std::vector<std::int32_t> starts{0};
  for (const std::int64_t length : c.lengths) starts.push_back(starts.back() + std::int32_t(length));
  const std::int64_t count = c.heads * c.q_tiles(), some_more = 3;
  worker::Call request = window_call("work_tiles", c.window);
  request.number("heads", double(c.heads)).number("heads_per_group", double(c.heads_per_group));
  request.number("q_tiles", double(c.q_tiles())).number("count", double(count + some_more));
  request.input("starts", starts).output<std::int32_t>("numbers", std::size_t(7 * (count + some_more)));
  const auto numbers = call(request).output<std::int32_t>("numbers");
  for (std::int64_t n = 0; n < count + some_more; ++n) {
    const auto* of = &numbers[std::size_t(7 * n)];
    const WorkIs got{of[0], of[1], of[2], of[3], of[4], of[5], of[6]}, right = work_of(c, n);
    expect(got == right, fmt::format("for tile index {} of {} your code returns {}, expected {}; {}", n, count,
                                     got.text(), right.text(), c.text()));
  }
}

}  // namespace

TEST_CASE("every Q tile is scheduled once, with the K/V tiles that its queries need", "[18.4]") {
  for (const WorksCase& c : {WorksCase{{300, 300, unlimited, unlimited}, 6, 4},
                             {{300, 400, unlimited, 0}, 6, 4},
                             {{500, 100, unlimited, 0}, 3, 4},
                             {{500, 500, 200, 100}, 5, 2}})
    expect_works(c);
  const std::vector<std::int64_t> lengths{150, 1, 0, 260, 128};
  for (const auto& [left, right] : {std::pair{unlimited, unlimited}, {unlimited, std::int64_t(0)}, {100, 30}})
    expect_works({{539, 539, left, right}, 3, 2, lengths});
  expect_every_kind_in_this_part();
}

// ---- 18.5 skipped K/V tiles ----

namespace {

/// 256 queries and keys in blocks of 128 and consumers of 64: the number of tiles of 64 keys that the four consumers
/// need together, and the number of issue windows.
struct SkippingCase {
  Mask mask;
  std::int64_t tiles, issue_windows;
};
const SkippingCase skipping_cases[] = {
    {Mask::causal, 1 + 2 + 3 + 4, 2 * (2 + 4)},
    {Mask::within(64, 0), 1 + 2 + 2 + 2, 2 * (2 + 3)},
    {Mask::within(0, 64), 2 + 2 + 2 + 1, 2 * (3 + 2)},
    {Mask::within(0, 0), 4, 2 * (2 + 2)},
};
Input skipping_input(const Mask& mask) {
  return masked("normal", {1, 1, 1, 256, 256, 64}, 70, mask);
}

}  // namespace

TEST_CASE("every consumer has one issue window per K/V tile of its block", "[18.5]") {
  require_counters();
  for (const auto& [mask, tiles, issue_windows] : skipping_cases) {
    const worker::Reply reply = attention(skipping_input(mask), small).reply;
    expect_count(
        reply, "named_barriers", double(issue_windows + 4 * 2),
        fmt::format(
            "each consumer has an issue window per K/V tile of its block, {} together, and 2 barriers for O, {}",
            issue_windows, mask.name()),
        "a consumer of your code has more or fewer issue windows than its block has K/V tiles; it must have one per "
        "tile",
        "issue-windows");
    // Each of a block's two consumers has half of the issue windows. The producer arrives for K and V of each tile, for
    // Q, and at the end.
    expect_count(
        reply, "mbarrier_arrivals", double(4 * (2 * issue_windows + 4) + 2 * issue_windows / 2 + 2 * 2),
        fmt::format("each of a consumer's 4 warps releases Q once, and K and V of each of its block's tiles, {}",
                    mask.name()),
        "a consumer of your code does not release Q and each K/V tile exactly once; it must do so", "arrivals");
  }
}

TEST_CASE("a consumer skips K/V tiles that its rows do not need", "[18.5]") {
  require_counters();
  for (const auto& [mask, tiles, issue_windows] : skipping_cases)
    expect_count(attention(skipping_input(mask), small).reply, "wgmma_instructions",
                 double(tiles * 4 * (64 / 16 + 64 / 16)),
                 fmt::format("4 consumers of 64 queries need {} K/V tiles of 64 keys together, {}", tiles, mask.name()),
                 "a consumer of your code multiplies a K/V tile that none of its queries needs; it must skip this tile",
                 "wgmma-count");
}

TEST_CASE("consumers of one block need different K/V tiles, or none", "[18.5]") {
  for (const int lane_seed : {0, 1, 2}) {
    for (const SkippingCase& each : skipping_cases) expect_right(skipping_input(each.mask), small, {}, lane_seed);
    // The first 200 queries attend to no key: neither a whole block nor one consumer of the next block has a K/V tile.
    expect_masked("value mean", {1, 1, 1, 300, 100, 64}, 71, Mask::causal, lane_seed);
    expect_masked("normal", {1, 1, 1, 20, 300, 64}, 72, Mask::within(100, 30), lane_seed);
  }
  expect_every_kind_in_this_part();
}

TEST_CASE("the next Q tile continues in the same rings", "[18.5]") {
  // More Q tiles than SMs. Of three K/V tiles, the first consumer skips the last one, and the second consumer the
  // first. A single block with whole tiles comes first, so that a known mistake can be diagnosed in it.
  expect_masked("normal", {1, 1, 1, 128, 192, 64}, 74, Mask::within(20, 0));
  for (const int lane_seed : {0, 1, 2})
    expect_masked("normal", {140, 1, 1, 100, 130, 64}, 73, Mask::within(20, 0), lane_seed);
}

// ---- The whole chapter ----

TEST_CASE("all masks and score modifications agree with the oracle", "[whole]") {
  expect_every_kind();
  std::uint64_t seed = 200;
  for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal), Mask::within(150, 0), Mask::within(20, 30)})
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

TEST_CASE("grouped heads agree with the oracle for every mask", "[whole]") {
  std::uint64_t seed = 220;
  for (const std::int64_t d : head_dims())
    for_every_mask_and_group(d, [&](const Shape& shape, const Mask& mask) {
      const Input given = masked("value mean", shape, ++seed, mask);
      expect_right(given, small);
      expect_right(given, usual_tiles(d), bfloat16);
    });
  // Through the batch, with several K/V tiles and Q tiles.
  for (const std::int64_t d : head_dims())
    expect_right(masked("normal", {2, 6, 2, 250, 300, d}, 229, with_sink(changed(Mask::causal, 0, true), 6)),
                 usual_tiles(d));
}

TEST_CASE("each packed sequence gives the same result as alone", "[whole]") {
  for (const std::int64_t d : head_dims())
    for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal), changed(Mask::within(20, 3), 0, true)})
      expect_as_alone(mask, {50, 1, 133, 64, 200}, d, d == 64 ? small : usual_tiles(d));
}

TEST_CASE("other packed sequences change no bit of O", "[whole]") {
  for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal)})
    for (const std::int64_t d : head_dims()) expect_independent_sequences(mask, d, small);
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

TEST_CASE("a persistent block processes one Q tile after another", "[whole]") {
  // More Q tiles than SMs, some of them fully masked.
  for (const std::int64_t d : head_dims()) {
    expect_right(masked("rising maximum", {1, 72, 24, 200, 150, d}, 159, Mask::causal), usual_tiles(d));
    expect_right(masked("normal", {1, 50, 50, 300, 100, d}, 160, with_sink(Mask::causal, 50)), small);
  }
  // Six K/V tiles, and the second consumer has no rows.
  for (const int lane_seed : {0, 1, 2}) expect_masked("normal", {140, 1, 1, 20, 350, 64}, 161, Mask::none, lane_seed);
}

TEST_CASE("full tiles are not masked", "[whole]") {
  require_counters();
  // 128 queries aligned with keys 640 to 767: each consumer's window of 512 starts and ends within a tile.
  const Input given = masked("normal", {1, 1, 1, 128, 768, 64}, 260, Mask::within(512, 0));
  expect_count(attention(given, small).reply, "note.masked tile", 4,
               "two of the block's 10 tiles at either end are partial for some consumer",
               "your code masks a full tile, or does not mask a partial one; it must mask partial tiles only",
               "tile-called-partial");
}

TEST_CASE("windows, packed sequences and shared heads are read only by the thread blocks that need them", "[whole]") {
  require_counters();
  const auto expect_read = [](const Input& given, const char* tensor, std::int64_t rows, const std::string& why) {
    expect_count(attention(given, small).reply, fmt::format("{}.bulk_load_bytes", tensor), double(rows * 64 * 2), why,
                 "your code loads a tile that no query of the block needs, or omits one that some query needs",
                 "traffic");
  };
  // Blocks of 128 queries, aligned with keys 256 to 511: each starts 64 keys, one tile, before its first query.
  const Input window = masked("normal", {1, 1, 1, 256, 512, 64}, 261, Mask::within(64, 0));
  std::int64_t keys = 0, queries = 0;
  for (const std::int64_t length : {96, 37, 164})
    keys += tiles_of(length, 128) * tiles_of(length, 64) * 64, queries += tiles_of(length, 64) * 64;
  const Input sequences = masked("normal", {1, 2, 2, 297, 297, 64}, 262, packed(Mask::none, {96, 37, 164}));
  const Input shared = masked("normal", {2, 4, 1, 200, 300, 64}, 263, Mask::causal);
  for (const char* tensor : {"K", "V"}) {
    expect_read(window, tensor, 2 * 3 * 64, "each block of 128 queries needs three tiles of 64 keys");
    expect_read(sequences, tensor, 2 * keys,
                "each of the ⌈length/128⌉ blocks of a sequence reads its keys, whole tiles");
    expect_read(shared, tensor, 2 * 4 * (4 + 5) * 64,
                "each of 8 heads has two Q tiles, which attend to 228 and 300 keys; every head reads K and V itself");
  }
  expect_read(sequences, "Q", 2 * queries, "each consumer with at least one existing row loads 64 queries");
}

const Claims of_the_whole = {
    {"[whole]", "without a mask and causal, it reads what chapter 11 reads, and no tile for rows without keys",
     [] { expect_moves({.in = "bulk_load", .out = "bulk_store", .whole_tiles = true, .query_part = 64}); }},
    {"[whole]", "future positions have zero influence", [] { expect_no_future(); }},
    {"[whole]", "a row's answer depends on no other row of Q", [] { expect_rows_independent(); }},
    {"[whole]", "results do not depend on workers or lane order", [] { expect_order_changes_nothing(); }},
    {"[whole]", "50 execution orders give one result", [] { expect_repeatable(50, /*in_other_orders=*/true); }},
    {"[whole]", "extra memory does not grow with N", [] { expect_no_extra_memory("S or P", sizeof(std::int32_t)); }},
};
