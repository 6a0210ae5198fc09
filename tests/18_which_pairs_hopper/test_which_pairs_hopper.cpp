// Chapter 18: chapter 15's masks in chapter 11's kernel, part by part and whole.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <tuple>
#include <vector>

#include "tests/15_which_pairs/masks.hpp"
#include "tests/15_which_pairs/packed_sequences.hpp"
#include "tests/support/forward_properties.hpp"
#include "tests/support/slips.hpp"
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

// ---- 18.1 ----

/// The range of tiles of 32 keys that a wrong full_tiles returns for queries a to b - 1.
struct FullTiles {
  const char *id, *sentence;
  Numbered (*tiles)(const Window& w, std::int64_t a, std::int64_t b);
};
using Query = std::int64_t;
const FullTiles other_full_tiles[] = {
    {"full-rounded",
     "your code rounds the start of the range down, so it includes a tile whose first keys are masked for the last "
     "query; it must round up",
     [](const Window& w, Query a, Query b) {
       return Numbered{down(w.first(b - 1)), down(w.last(a))};
     }},
    {"full-rounded",
     "your code rounds the end of the range up, so it includes a tile whose last keys are masked for the first query; "
     "it must round down",
     [](const Window& w, Query a, Query b) {
       return Numbered{up(w.first(b - 1)), up(w.last(a))};
     }},
    {"full-rounded",
     "your code rounds the start of the range down and the end up, so it includes partial tiles; it must round the "
     "start up and the end down",
     [](const Window& w, Query a, Query b) {
       return Numbered{down(w.first(b - 1)), up(w.last(a))};
     }},
    {"full-by-another-query",
     "your code computes both ends from the first query; the last query's key range starts last, so it must determine "
     "`first`",
     [](const Window& w, Query a, Query) {
       return Numbered{up(w.first(a)), down(w.last(a))};
     }},
    {"full-by-another-query",
     "your code computes both ends from the last query; the first query's key range ends first, so it must determine "
     "`last`",
     [](const Window& w, Query, Query b) {
       return Numbered{up(w.first(b - 1)), down(w.last(b - 1))};
     }},
    {"full-by-another-query",
     "your code computes `first` from the first query and `last` from the last query; it must do the opposite, because "
     "every query must attend to a full tile's keys",
     [](const Window& w, Query a, Query b) {
       return Numbered{up(w.first(a)), down(w.last(b - 1))};
     }},
    {"full-as-needed",
     "your code returns the tiles that at least one query needs; every query must attend to every key of a full tile",
     [](const Window& w, Query a, Query b) {
       return Numbered{down(w.first(a)), up(w.last(b - 1))};
     }},
    {"full-query-past-end", "your code uses the query one past the last; it must use query `queries.last` − 1",
     [](const Window& w, Query a, Query b) {
       return Numbered{up(w.first(b)), down(w.last(a))};
     }},
    {"full-in-keys", "your code returns a range of keys; it must return a range of tiles, of Bc keys each",
     [](const Window& w, Query a, Query b) {
       return Numbered{w.first(b - 1), w.last(a)};
     }},
};

/// Checks the range of full tiles.
void check_full_tiles(Slips<FullTiles>& slips, std::string& sentence, std::string& id, const Window& w, Query a,
                      Query b, const Numbered& got) {
  slips.keep([&](const FullTiles& slip) { return slip.tiles(w, a, b) == got; });
  const Numbered right{up(w.first(b - 1)), down(w.last(a))};
  if (!slips.wrong.empty() || got == right) return;
  slips.wrong =
      fmt::format("for queries {} to {} your code returns the full tiles {} (of 32 keys each), expected {}; {}", a,
                  b - 1, got.text(), right.text(), w.text());
  id = "tile-called-partial";
  sentence =
      "your code omits a full tile, so the mask is applied to it in vain; it must return every tile in which each "
      "query attends to each key";
  for (std::int64_t tile = std::max<std::int64_t>(0, got.first); tile < std::min(got.last, up(w.Nk)); ++tile)
    for (Query i = a; i < b; ++i)
      for (std::int64_t key = 32 * tile; key < 32 * tile + 32; ++key)
        if (id == "tile-called-partial" && !w.attends(i, key)) {
          id = "tile-called-full";
          sentence =
              fmt::format("your code calls tile {} full, but query {} does not attend to its key {}", tile, i, key);
        }
}

}  // namespace

// ---- 18.1 full tiles ----

TEST_CASE("a tile is full only if every query attends to all of its keys", "[18.1]") {
  Slips<FullTiles> slips{{std::begin(other_full_tiles), std::end(other_full_tiles)}};
  std::string sentence, id = "unknown";
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
      for (std::int64_t n = 0; n < count; ++n)
        check_full_tiles(slips, sentence, id, window, n * rows, std::min((n + 1) * rows, window.Nq),
                         {numbers[std::size_t(2 * n)], numbers[std::size_t(2 * n + 1)]});
    }
  slips.expect_none(sentence, id);
  expect_every_kind_in_this_part();
}

// ---- 18.2 the mask in D ----

namespace {

/// One score of a tile: of this query and key, in this row, this group of 8 columns and this column of the group.
struct TilePair {
  const Window& window;
  std::int64_t first_query, first_key, row, eights, column;
  std::int64_t query() const { return first_query + row; }
  std::int64_t key() const { return first_key + 8 * eights + column; }
  bool counts() const { return window.attends(query(), key()); }
  std::int64_t first() const { return window.first(query()); }
  std::int64_t last() const { return window.last(query()); }
};
struct OtherMask {
  const char *id, *sentence;
  bool (*counts)(const TilePair&);
};
const OtherMask other_masks[] = {
    {"mask-missing",
     "your code masks no pair; it must set the score to −∞ if 8j is before the shifted range or past its "
     "end",
     [](const TilePair&) { return true; }},
    {"mask-without-left", "your code does not mask keys before the range; it must test both ends of the range",
     [](const TilePair& a) { return a.key() < a.last(); }},
    {"mask-without-right",
     "your code does not mask keys past the end of the range; it must test both ends of the range",
     [](const TilePair& a) { return a.first() <= a.key(); }},
    {"mask-one-key-more",
     "your code keeps the key one past the range; ranges are half-open, so the key at the range's `last` must be "
     "masked",
     [](const TilePair& a) { return a.first() <= a.key() && a.key() <= a.last(); }},
    {"mask-one-key-more",
     "your code keeps the key before the range; every key below the range's `first` must be masked",
     [](const TilePair& a) { return a.first() - 1 <= a.key() && a.key() < a.last(); }},
    {"mask-one-key-fewer", "your code masks the first key of the range; this key must be unmasked",
     [](const TilePair& a) { return a.first() < a.key() && a.key() < a.last(); }},
    {"mask-one-key-fewer",
     "your code masks the last key of the range; the key before the range's `last` must be unmasked",
     [](const TilePair& a) { return a.first() <= a.key() && a.key() < a.last() - 1; }},
    {"mask-eights-apart",
     "your code treats the keys of consecutive j as 16 apart; they are 8 apart, so it must compare 8j with the shifted "
     "range",
     [](const TilePair& a) { return a.window.attends(a.query(), a.key() + 8 * a.eights); }},
    {"mask-eights-apart",
     "your code treats the keys of consecutive j as adjacent; they are 8 apart, so it must compare 8j with the shifted "
     "range",
     [](const TilePair& a) { return a.window.attends(a.query(), a.key() - 7 * a.eights); }},
    {"mask-one-part",
     "your code tests the key of j = 0 for every j; it must test the key of S[4j + e], which is 8j further on",
     [](const TilePair& a) { return a.window.attends(a.query(), a.first_key + a.column); }},
    {"mask-of-the-first-tile",
     "your code does not subtract `first_key`; it must subtract `first_key` and `column` from both ends of the range",
     [](const TilePair& a) { return a.window.attends(a.query(), a.key() - a.first_key); }},
    {"mask-of-the-first-queries",
     "your code uses the row of the accumulator as the query; it must add `first_query` to the row",
     [](const TilePair& a) { return a.window.attends(a.row, a.key()); }},
    {"mask-of-the-first-row",
     "your code masks every row as the first row; each row must use the key range of its own query",
     [](const TilePair& a) { return a.window.attends(a.first_query, a.key()); }},
    {"mask-of-the-first-column",
     "your code does not subtract `column`; it must subtract `first_key` and `column` from both ends of the range",
     [](const TilePair& a) { return a.window.attends(a.query(), a.key() - a.column); }},
    {"mask-end-by-eights",
     "your code does not subtract `column` from the end of the range; it must subtract it from both ends",
     [](const TilePair& a) { return a.first() <= a.key() && a.key() - a.column < a.last(); }},
    {"mask-end-by-eights",
     "your code does not subtract `column` from the start of the range; it must subtract it from both ends",
     [](const TilePair& a) { return a.first() <= a.key() - a.column && a.key() < a.last(); }},
    {"mask-inverted", "your code sets unmasked pairs to −∞ and keeps masked pairs; it must do the opposite",
     [](const TilePair& a) { return !a.counts(); }},
};

/// One tile (64, Bc).
void check_mask(Slips<OtherMask>& slips, std::string& sentence, std::string& id, const Window& window,
                std::int64_t first_query, std::int64_t first_key, std::int64_t Bc) {
  worker::Call request = window_call("masked_tile", window);
  request.number("first_query", double(first_query)).number("first_key", double(first_key)).number("Bc", double(Bc));
  const std::vector<float> S = call(request.output<float>("numbers", std::size_t(64 * Bc))).output<float>("numbers");
  for (std::int64_t n = 0; n < 64 * std::int64_t(Bc); ++n) {
    const TilePair pair{window, first_query, first_key, n / Bc, n % Bc / 8, n % 8};
    if (pair.query() >= window.Nq) continue;
    const float got = S[std::size_t(n)], right = pair.counts() ? float(n) : -std::numeric_limits<float>::infinity();
    slips.keep([&](const OtherMask& slip) { return slip.counts(pair) ? got == float(n) : std::isinf(got) && got < 0; });
    if (!slips.wrong.empty() || got == right) continue;
    slips.wrong = fmt::format(
        "your code changes the score of query {} and key {}, row {} and column {} of a tile (64, {}), from {} to {}, "
        "expected {}; the query attends to keys {}; {}",
        pair.query(), pair.key(), pair.row, n % Bc, Bc, n, got, right, Numbered{pair.first(), pair.last()}.text(),
        window.text());
    if (got == float(n) || (std::isinf(got) && got < 0)) continue;
    sentence = pair.counts() ? "your code changes the score of an unmasked pair; it must keep this score"
                             : "your code sets the score of a masked pair to another value; it must be −∞";
    id = "mask-number";
  }
}

}  // namespace

TEST_CASE("each pair of a partial tile is masked correctly", "[18.2]") {
  Slips<OtherMask> slips{{std::begin(other_masks), std::end(other_masks)}};
  std::string sentence, id = "unknown";
  for (const Window& window : windows)
    for (const std::int64_t Bc : {64, 128})
      for (std::int64_t first_query = 0; first_query < window.Nq; first_query += 64)
        for (std::int64_t first_key = 0; first_key < window.Nk; first_key += Bc)
          check_mask(slips, sentence, id, window, first_query, first_key, Bc);
  slips.expect_none(sentence, id);
  expect_every_kind_in_this_part();
}

// ---- 18.3 TMA coordinates of sequences ----

namespace {

struct RowsCase {
  std::int64_t head, N, first, length;
};
struct OtherRows {
  const char *id, *sentence;
  bool (*gives)(const RowsCase&, std::int64_t before_first, std::int64_t end);
};
std::int64_t right_end(const RowsCase& c) {
  return c.head * c.N + c.first + c.length;
}
/// With the right first coordinate.
template <class End>
bool ends_at(const RowsCase& c, std::int64_t before_first, std::int64_t end, End other) {
  return before_first == c.N - c.length && end == other(c);
}
const OtherRows other_rows[] = {
    {"rows-exchanged",
     "your code exchanges the two coordinates; `before_first` must be r of the sequence's first row, and `end` the end "
     "counted through all heads",
     [](const RowsCase& c, std::int64_t before_first, std::int64_t end) {
       return before_first == right_end(c) && end == c.N - c.length;
     }},
    {"rows-not-ended",
     "your box has the right address, but does not end with its sequence; the row after the sequence must have r = N",
     [](const RowsCase& c, std::int64_t before_first, std::int64_t end) {
       return before_first + end == c.N + c.head * c.N + c.first;
     }},
    {"rows-of-the-first-head",
     "your code omits the preceding heads from `end`; `end` must count rows through all heads, N for each",
     [](const RowsCase& c, std::int64_t before_first, std::int64_t end) {
       return ends_at(c, before_first, end, [](const RowsCase& x) { return x.first + x.length; });
     }},
    {"rows-from-the-beginning",
     "your code sets `end` to the sequence's first row; it must be one past the sequence's last row",
     [](const RowsCase& c, std::int64_t before_first, std::int64_t end) {
       return ends_at(c, before_first, end, [](const RowsCase& x) { return x.head * x.N + x.first; });
     }},
    {"rows-of-the-first-sequence",
     "your code omits the preceding sequences of the head from `end`; `end` must include the rows before `first`",
     [](const RowsCase& c, std::int64_t before_first, std::int64_t end) {
       return ends_at(c, before_first, end, [](const RowsCase& x) { return x.head * x.N + x.length; });
     }},
    {"rows-N-too-far",
     "your code subtracts N from `end`; the map already starts N rows before the tensor, so `end` must be one past the "
     "sequence's last row",
     [](const RowsCase& c, std::int64_t before_first, std::int64_t end) {
       return ends_at(c, before_first, end, [](const RowsCase& x) { return right_end(x) - x.N; });
     }},
    {"rows-of-short-heads",
     "your code counts `length` rows per preceding head in `end`; each head has N rows, and all of them must be "
     "counted",
     [](const RowsCase& c, std::int64_t before_first, std::int64_t end) {
       return ends_at(c, before_first, end, [](const RowsCase& x) { return (x.head + 1) * x.length + x.first; });
     }},
    {"rows-number-of-the-head",
     "your code returns the head's index as `end`, as in chapter 11; `end` must count rows through all heads",
     [](const RowsCase& c, std::int64_t before_first, std::int64_t end) {
       return end == c.head && (before_first == c.first || before_first == c.N - c.length);
     }},
    {"rows-first-twice", "your code includes `first` in both coordinates; only `end` must include it",
     [](const RowsCase& c, std::int64_t before_first, std::int64_t end) {
       return before_first == c.N - c.length + c.first && end == right_end(c);
     }},
    {"rows-at-their-place",
     "your code gives the sequence's first row its row in the head as r; the sequence's last row must have r = N − 1",
     [](const RowsCase& c, std::int64_t before_first, std::int64_t end) {
       return before_first == c.first && end == right_end(c);
     }},
    {"rows-from-0", "your code gives the sequence's first row r = 0; the sequence's last row must have r = N − 1",
     [](const RowsCase& c, std::int64_t before_first, std::int64_t end) {
       return before_first == 0 && end == right_end(c);
     }},
};

}  // namespace

TEST_CASE("the last row of a sequence is the last row of the dimension", "[18.3]") {
  const RowsCase cases[] = {{0, 10, 0, 4},  {0, 10, 4, 6},    {2, 10, 4, 6},
                            {1, 98, 33, 1}, {3, 200, 0, 200}, {5, 7, 3, 0}};
  std::vector<std::int32_t> given;
  for (const RowsCase& c : cases)
    for (const std::int64_t number : {c.head, c.N, c.first, c.length}) given.push_back(std::int32_t(number));
  worker::Call request("sequence_rows");
  request.number("count", double(std::size(cases))).input("given", given);
  request.output<std::int32_t>("numbers", 2 * std::size(cases));
  const auto numbers = call(request).output<std::int32_t>("numbers");
  Slips<OtherRows> slips{{std::begin(other_rows), std::end(other_rows)}};
  for (std::size_t n = 0; n < std::size(cases); ++n) {
    const RowsCase& c = cases[n];
    const std::int64_t before_first = numbers[2 * n], end = numbers[2 * n + 1];
    slips.keep([&](const OtherRows& slip) { return slip.gives(c, before_first, end); });
    if (!slips.wrong.empty() || (before_first == c.N - c.length && end == right_end(c))) continue;
    slips.wrong = fmt::format(
        "{} rows from row {} of head {} on, N = {}: your code returns before_first {} and end {}, expected {} and {}",
        c.length, c.first, c.head, c.N, before_first, end, c.N - c.length, right_end(c));
  }
  slips.expect_none();
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

/// A decoder of tile index `number`, right unless a flag is set.
struct OtherWork {
  const char *id, *sentence;
  bool first_tiles_first = false, head_by_head = false, full_groups = false, all_heads = false;
  bool mask_of_the_call = false, tile_of_all = false, rows_from_0 = false, one_query = false, kv_tiles_from_0 = false;
  bool all_kv_tiles = false, keys_of_the_call = false, unlimited = false, call_handed_on = false, heads_again = false;
  bool exchanged = false, groups_for_heads = false, one_tile_on = false, query_in_head = false;
  bool full_group_for_tile = false;

  /// The head and the tile, counted over all sequences.
  std::pair<std::int64_t, std::int64_t> head_and_tile(const WorksCase& c, std::int64_t number) const {
    const std::int64_t tiles = c.q_tiles(), heads_per_group = all_heads ? c.heads : c.heads_per_group;
    const std::int64_t first_head = number / (heads_per_group * tiles) * (groups_for_heads ? 1 : heads_per_group);
    const std::int64_t of_these = number - first_head * tiles;
    const std::int64_t heads = full_groups ? heads_per_group : std::min(heads_per_group, c.heads - first_head);
    std::int64_t head = of_these % heads, tile = of_these / (full_group_for_tile ? heads_per_group : heads);
    if (head_by_head) head = of_these / tiles, tile = of_these % tiles;
    if (exchanged) std::swap(head, tile);
    return {(heads_again ? 0 : first_head) + head, first_tiles_first ? tile : tiles - (one_tile_on ? 0 : 1) - tile};
  }
  WorkIs work(const WorksCase& c, std::int64_t number) const {
    if (number >= c.heads * c.q_tiles() && !unlimited) return {};
    const auto [head, counted] = head_and_tile(c, number);
    std::int64_t tile = counted, row = 0, length = c.window.Nq;
    for (const std::int64_t each : c.lengths) {
      length = each;
      if (tile < tiles_of(each, 128)) break;
      tile -= tiles_of(each, 128), row += each;
    }
    Window seen = c.window;
    if (!c.lengths.empty() && !mask_of_the_call) seen.Nq = seen.Nk = length;
    const std::int64_t query = (tile_of_all ? counted : tile) * 128 + (query_in_head ? row : 0);
    const std::int64_t end = one_query ? query + 1 : std::min(seen.Nq, query + 128);
    const Window& asked_for = keys_of_the_call ? c.window : seen;
    const std::int64_t first = kv_tiles_from_0 || all_kv_tiles ? 0 : asked_for.first(query) / 64;
    const std::int64_t last = tiles_of(all_kv_tiles ? seen.Nk : std::max<std::int64_t>(0, asked_for.last(end - 1)), 64);
    return {head,
            rows_from_0 ? 0 : row,
            query,
            first,
            last,
            call_handed_on ? c.window.Nq : seen.Nq,
            call_handed_on ? c.window.Nk : seen.Nk};
  }
};
const OtherWork other_works[] = {
    {.id = "work-first-tiles-first",
     .sentence =
         "your code processes the Q tiles in increasing order; the last Q tiles, which have the most causal K/V "
         "tiles, must be first",
     .first_tiles_first = true},
    {.id = "work-head-by-head",
     .sentence =
         "your code processes all Q tiles of a head before the next head; within a scheduling group, the head must "
         "change fastest",
     .head_by_head = true},
    {.id = "work-full-groups",
     .sentence =
         "your code assumes that every scheduling group has `heads_per_group` heads; the last group may have fewer, "
         "and the number must be limited to the remaining heads",
     .full_groups = true},
    {.id = "work-tile-of-a-full-group",
     .sentence =
         "your code computes the Q tile with `heads_per_group` heads in every scheduling group; the last group may "
         "have fewer, and its own number must be used",
     .full_group_for_tile = true},
    {.id = "work-all-heads",
     .sentence =
         "your code treats all heads as one scheduling group; a group must have at most `heads_per_group` heads",
     .all_heads = true},
    {.id = "work-mask-of-the-call",
     .sentence = "your code uses the call's mask for the K/V tiles and for the `WorkTile`; both must use the mask that "
                 "`enter_sequence` restricts to the sequence",
     .mask_of_the_call = true},
    {.id = "work-mask-of-the-call",
     .sentence =
         "your code stores the call's mask in the `WorkTile`; it must store the mask that `enter_sequence` restricts "
         "to the sequence",
     .call_handed_on = true},
    {.id = "work-mask-of-the-call",
     .sentence =
         "your code computes the K/V tiles with the call's mask; it must use the mask that `enter_sequence` restricts "
         "to the sequence",
     .keys_of_the_call = true},
    {.id = "work-heads-again",
     .sentence = "your code returns the head's index within its scheduling group; it must add the group's first head",
     .heads_again = true},
    {.id = "work-tile-of-all",
     .sentence = "your code computes the first query from the Q tile's index in the head; it must use the Q tile's "
                 "index within the sequence",
     .tile_of_all = true},
    {.id = "work-exchanged",
     .sentence = "your code exchanges quotient and remainder; dividing the index by the group's number of heads, the "
                 "remainder must select the head, and the quotient the Q tile",
     .exchanged = true},
    {.id = "work-group-for-head",
     .sentence = "your code uses the scheduling group's index as its first head; it must multiply this index by "
                 "`heads_per_group`",
     .groups_for_heads = true},
    {.id = "work-one-tile-on",
     .sentence =
         "your code starts one past the last Q tile; the first index of a scheduling group must be Q tile q_tiles − 1",
     .one_tile_on = true},
    {.id = "work-query-in-head",
     .sentence = "your code counts the first query from the head's first row; it must count the first query within the "
                 "sequence",
     .query_in_head = true},
    {.id = "work-rows-from-0",
     .sentence = "your code returns row 0 as the first row of every sequence; it must return the row at which the "
                 "sequence starts",
     .rows_from_0 = true},
    {.id = "work-of-one-query",
     .sentence =
         "your code computes the K/V tiles of the first query only; they must cover the key ranges of all queries of "
         "the Q tile",
     .one_query = true},
    {.id = "work-key-tiles-from-0",
     .sentence = "your code starts the K/V tiles at tile 0; they must start at the first tile that the queries need",
     .kv_tiles_from_0 = true},
    {.id = "work-all-key-tiles",
     .sentence = "your code returns all K/V tiles of the sequence; it must return only those that the queries need",
     .all_kv_tiles = true},
    {.id = "work-without-end",
     .sentence = "your code decodes indices past the last Q tile; it must return head −1 for them",
     .unlimited = true},
};

/// of_keys_alone: whether the K/V tiles are the only mistake of the first wrong work tile.
void check_works(Slips<OtherWork>& slips, bool& of_keys_alone, const WorksCase& c) {
  std::vector<std::int32_t> starts{0};
  for (const std::int64_t length : c.lengths) starts.push_back(starts.back() + std::int32_t(length));
  const std::int64_t count = c.heads * c.q_tiles(), some_more = 3;
  worker::Call request = window_call("work_tiles", c.window);
  request.number("heads", double(c.heads)).number("heads_per_group", double(c.heads_per_group));
  request.number("q_tiles", double(c.q_tiles())).number("count", double(count + some_more));
  request.input("starts", starts).output<std::int32_t>("numbers", std::size_t(7 * (count + some_more)));
  const auto numbers = call(request).output<std::int32_t>("numbers");
  const OtherWork right{.id = "", .sentence = ""};
  for (std::int64_t n = 0; n < count + some_more; ++n) {
    const auto* of = &numbers[std::size_t(7 * n)];
    const WorkIs got{of[0], of[1], of[2], of[3], of[4], of[5], of[6]}, wanted = right.work(c, n);
    // A decoder without an end may return anything past it.
    slips.keep([&](const OtherWork& slip) { return slip.work(c, n) == got || (slip.unlimited && n >= count); });
    if (!slips.wrong.empty() || got == wanted) continue;
    WorkIs but_for_keys = got;
    but_for_keys.first = wanted.first, but_for_keys.last = wanted.last;
    of_keys_alone = but_for_keys == wanted;
    slips.wrong = fmt::format("for tile index {} of {} your code returns {}, expected {}; {}", n, count, got.text(),
                              wanted.text(), c.text());
  }
}

}  // namespace

TEST_CASE("every Q tile is scheduled once, with the K/V tiles that its queries need", "[18.4]") {
  Slips<OtherWork> slips{{std::begin(other_works), std::end(other_works)}};
  bool of_keys_alone = false;
  const auto check_all = [&](const std::vector<WorksCase>& cases) {
    for (const WorksCase& c : cases) check_works(slips, of_keys_alone, c);
    of_keys_alone ? slips.expect_none(
                        "your code returns a K/V tile that no query of the Q tile needs, or omits one that "
                        "some query needs; `kv_tiles` must cover exactly the key ranges of its queries",
                        "block-tiles")
                  : slips.expect_none();
  };
  check_all({{{300, 300, unlimited, unlimited}, 6, 4},
             {{300, 400, unlimited, 0}, 6, 4},
             {{500, 100, unlimited, 0}, 3, 4},
             {{500, 500, 200, 100}, 5, 2}});
  const std::vector<std::int64_t> lengths{150, 1, 0, 260, 128};
  check_all({{{539, 539, unlimited, unlimited}, 3, 2, lengths},
             {{539, 539, unlimited, 0}, 3, 2, lengths},
             {{539, 539, 100, 30}, 3, 2, lengths}});
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
