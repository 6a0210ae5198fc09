// Chapter 19, part by part: the steps of a block, the queries that see some keys, and those of a thread's keys.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/19_which_pairs_backward/asked_blocks.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

// ---- 19.1 the steps of a block ----

struct Walk {
  Int first_head, group;
  Numbered q_tiles;
  Int count() const { return group * (q_tiles.last - q_tiles.first); }
};
struct At {
  Int head, q_tile;
  friend bool operator==(const At&, const At&) = default;
};
At next_step(const Walk& w, At at) {
  return at.q_tile + 1 == w.q_tiles.last ? At{at.head + 1, w.q_tiles.first} : At{at.head, at.q_tile + 1};
}
struct OtherWalk {
  const char *id, *sentence;
  Int (*count)(const Walk&) = [](const Walk& w) { return w.count(); };
  At (*next)(const Walk&, At) = next_step;
  std::vector<Int> numbers(const Walk& w, Int most) const {
    std::vector<Int> all{count(w)};
    At at{w.first_head, w.q_tiles.first};
    for (Int n = 0; n < most; ++n) {
      const bool any = n < all[0];
      all.insert(all.end(), {any ? at.head : -1, any ? at.q_tile : -1});
      if (any) at = next(w, at);
    }
    return all;
  }
};
const OtherWalk other_walks[] = {
    {.id = "walk-one-head",
     .sentence = "the steps of one head are counted: there are as many for each of the `group` heads",
     .count = [](const Walk& w) { return w.q_tiles.last - w.q_tiles.first; }},
    {.id = "walk-counted-from-0",
     .sentence = "Q tiles are counted from 0: those before q_tiles.first see none of the keys",
     .count = [](const Walk& w) { return w.group * w.q_tiles.last; }},
    {.id = "walk-last-counted",
     .sentence = "q_tiles.last is counted too: it is the number behind the last one",
     .count = [](const Walk& w) { return w.group * (w.q_tiles.last - w.q_tiles.first + 1); }},
    {.id = "walk-never-empty",
     .sentence = "there is always a step: where no query sees the keys there is to be none",
     .count = [](const Walk& w) { return std::max<Int>(1, w.count()); }},
    {.id = "walk-from-0",
     .sentence = "the next head begins with Q tile 0: each of them begins with q_tiles.first",
     .next =
         [](const Walk& w, At at) {
           return at.q_tile + 1 == w.q_tiles.last ? At{at.head + 1, 0} : At{at.head, at.q_tile + 1};
         }},
    {.id = "walk-same-head",
     .sentence = "behind the last Q tile come the same head's again: it is the next head's turn",
     .next =
         [](const Walk& w, At at) {
           return at.q_tile + 1 == w.q_tiles.last ? At{at.head, w.q_tiles.first} : At{at.head, at.q_tile + 1};
         }},
    {.id = "walk-last-left-out",
     .sentence = "the next head comes one Q tile early: q_tiles.last - 1 belongs to the walk",
     .next =
         [](const Walk& w, At at) {
           return at.q_tile + 2 == w.q_tiles.last ? At{at.head + 1, w.q_tiles.first} : At{at.head, at.q_tile + 1};
         }},
    {.id = "walk-one-behind",
     .sentence = "Q tile q_tiles.last is visited: it is the number behind the last one",
     .next =
         [](const Walk& w, At at) {
           return at.q_tile == w.q_tiles.last ? At{at.head + 1, w.q_tiles.first} : At{at.head, at.q_tile + 1};
         }},
    {.id = "walk-no-next-head",
     .sentence = "no other head ever comes: behind Q tile q_tiles.last - 1 the next head's first one does",
     .next =
         [](const Walk&, At at) {
           return At{at.head, at.q_tile + 1};
         }},
    {.id = "walk-heads-first",
     .sentence = "the head changes with each step: all Q tiles of one head come first",
     .next =
         [](const Walk& w, At at) {
           return at.head + 1 < w.first_head + w.group ? At{at.head + 1, at.q_tile} : At{w.first_head, at.q_tile + 1};
         }},
    {.id = "walk-heads-apart",
     .sentence = "the next head is taken to be `group` further: the heads that share K and V are neighbours",
     .next =
         [](const Walk& w, At at) {
           return at.q_tile + 1 == w.q_tiles.last ? At{at.head + w.group, w.q_tiles.first} : At{at.head, at.q_tile + 1};
         }},
};

/// "3 steps: (0, 2) (0, 3) (1, 2)": head and Q tile of each.
std::string steps_text(const std::vector<Int>& numbers) {
  std::string text = fmt::format("{} steps:", numbers[0]);
  for (std::size_t n = 1; n + 1 < numbers.size() && numbers[n] >= 0; n += 2)
    text += fmt::format(" ({}, {})", numbers[n], numbers[n + 1]);
  return text;
}

void check_steps(Slips<OtherWalk>& slips, const BlocksCase& c) {
  const Int most = c.most_steps(64), size = 4 + 2 * most;
  const std::vector<std::int32_t> starts = c.starts();
  worker::Call request = c.request("steps", 64);
  request.input("starts", starts);
  const auto numbers =
      call(request.output<std::int32_t>("numbers", std::size_t(c.blocks() * size))).output<std::int32_t>("numbers");
  const OtherWalk right{.id = "", .sentence = ""};
  for (Int b = 0; b < c.blocks(); ++b) {
    const std::int32_t* const of = &numbers[std::size_t(b * size)];
    const Block block = block_of(c, of[0], of[1], of[2]);
    const Walk walk{block.kv_head * c.group, c.group, block.q_tiles(64)};
    const std::vector<Int> got(of + 3, of + size), wanted = right.numbers(walk, most);
    slips.keep([&](const OtherWalk& slip) { return slip.numbers(walk, most) == got; });
    if (!slips.wrong.empty() || got == wanted) continue;
    slips.wrong = fmt::format("{} has, head and Q tile of each, {}; right is {}; heads of Q {} to {}, Q tiles {}; {}",
                              block.text(), steps_text(got), steps_text(wanted), walk.first_head,
                              walk.first_head + c.group - 1, walk.q_tiles.text(), c.text());
  }
}

}  // namespace

TEST_CASE("a thread block's steps are all Q tiles that attend to its keys, head after head", "[19.1]") {
  Slips<OtherWalk> slips{{std::begin(other_walks), std::end(other_walks)}};
  for (const BlocksCase& c : blocks_cases) check_steps(slips, c);
  for (const Window& w : windows) check_steps(slips, {w, 1, 1, 1});
  slips.expect_none("the steps are not all Q tiles of the heads of Q of which some query sees one of the keys",
                    "steps");
}

// ---- 19.2 the queries that see all of some keys ----

namespace {

/// Keys a to b - 1, as full_queries is asked about them.
struct Keys {
  const Window& w;
  Int a, b;
  Int diagonal() const { return w.Nq - w.Nk; }
  bool exist() const { return b <= w.Nk; }
  Numbered by_ends() const { return {b - 1 - w.right + diagonal(), a + w.left + diagonal() + 1}; }
  Numbered right() const { return exist() ? by_ends() : Numbered{0, 0}; }
};
bool all_see(const Numbered& full, const Numbered& those, Int Nq) {
  return full.first <= those.first && std::min(Nq, those.last) <= full.last;
}
struct OtherFull {
  const char *id, *sentence;
  Numbered (*queries)(const Keys& keys) = [](const Keys& keys) { return keys.right(); };
  bool (*all)(const Numbered& full, const Numbered& those, Int Nq) = all_see;
};
const OtherFull other_full[] = {
    {.id = "all-see-keys-behind",
     .sentence = "keys that do not exist are taken for seen: where keys.last is more than Nk no query sees all of them",
     .queries = [](const Keys& k) { return k.by_ends(); }},
    {.id = "all-see-any",
     .sentence = "the queries are those that see any of the keys: each is to see all of them",
     .queries =
         [](const Keys& k) {
           return k.exist() ? Numbered{k.a - k.w.right + k.diagonal(), k.b + k.w.left + k.diagonal()} : Numbered{0, 0};
         }},
    {.id = "all-see-any",
     .sentence = "the first query is the one that sees the first key: it has to see the last one, keys.last - 1",
     .queries =
         [](const Keys& k) {
           return k.exist() ? Numbered{k.a - k.w.right + k.diagonal(), k.right().last} : Numbered{0, 0};
         }},
    {.id = "all-see-any",
     .sentence = "the last query is the one that sees the last key: it has to see the first one",
     .queries =
         [](const Keys& k) {
           return k.exist() ? Numbered{k.right().first, k.b + k.w.left + k.diagonal()} : Numbered{0, 0};
         }},
    {.id = "all-see-key-behind",
     .sentence = "the first query is the one that sees key keys.last: the last key is keys.last - 1",
     .queries =
         [](const Keys& k) {
           return k.exist() ? Numbered{k.right().first + 1, k.right().last} : Numbered{0, 0};
         }},
    {.id = "all-see-one-fewer",
     .sentence = "the last query that sees all keys is left out: the end is the number behind it",
     .queries =
         [](const Keys& k) {
           return k.exist() ? Numbered{k.right().first, k.right().last - 1} : Numbered{0, 0};
         }},
    {.id = "all-see-one-more",
     .sentence = "the range begins a query early: the one before does not see the last key, keys.last - 1",
     .queries =
         [](const Keys& k) {
           return k.exist() ? Numbered{k.right().first - 1, k.right().last} : Numbered{0, 0};
         }},
    {.id = "all-see-left-for-right",
     .sentence =
         "left and right are exchanged: a key is seen by queries from `right` before its own to `left` behind it",
     .queries =
         [](const Keys& k) {
           return k.exist() ? Numbered{k.b - 1 - k.w.left + k.diagonal(), k.a + k.w.right + k.diagonal() + 1}
                            : Numbered{0, 0};
         }},
    {.id = "all-see-diagonal",
     .sentence = "the diagonal has the wrong sign: key j stands at query j + (Nq - Nk)",
     .queries =
         [](const Keys& k) {
           return k.exist() ? Numbered{k.right().first - 2 * k.diagonal(), k.right().last - 2 * k.diagonal()}
                            : Numbered{0, 0};
         }},
    {.id = "all-see-diagonal",
     .sentence = "queries are not counted from the diagonal: key j stands at query j + (Nq - Nk)",
     .queries =
         [](const Keys& k) {
           return k.exist() ? Numbered{k.right().first - k.diagonal(), k.right().last - k.diagonal()} : Numbered{0, 0};
         }},
    {.id = "all-see-queries-behind",
     .sentence = "queries that do not exist are asked too: where Q tiles end with Nq, those that exist are enough",
     .all = [](const Numbered& full, const Numbered& those,
               Int) { return full.first <= those.first && those.last <= full.last; }},
    {.id = "all-see-some-query",
     .sentence = "one query that sees all keys is taken to be enough: all of `queries` have to",
     .all = [](const Numbered& full, const Numbered& those,
               Int) { return full.first < those.last && those.first < full.last; }},
    {.id = "all-see-one-end",
     .sentence = "the last of `queries` is not asked: both ends have to be among the queries that see all keys",
     .all = [](const Numbered& full, const Numbered& those, Int) { return full.first <= those.first; }},
    {.id = "all-see-one-end",
     .sentence = "the first of `queries` is not asked: both ends have to be among the queries that see all keys",
     .all = [](const Numbered& full, const Numbered& those, Int Nq) { return std::min(Nq, those.last) <= full.last; }},
};
/// The same for the queries that exist.
Numbered existing(const Numbered& queries, Int Nq) {
  return {std::clamp<Int>(queries.first, 0, Nq), std::clamp<Int>(queries.last, 0, Nq)};
}
/// What is said of each Q tile of `queries`.
std::vector<bool> said_of(const OtherFull& slip, const Keys& keys, Int queries) {
  std::vector<bool> all;
  // Where a key does not exist, the range is {0, 0} as it is; elsewhere its ends may lie outside of the queries.
  Numbered full = slip.queries(keys);
  full = {std::max<Int>(0, full.first), std::min(keys.w.Nq, full.last)};
  for (Int n = 0; n < tiles_of(keys.w.Nq, queries); ++n)
    all.push_back(slip.all(full, {n * queries, (n + 1) * queries}, keys.w.Nq));
  return all;
}

void check_full(Slips<OtherFull>& slips, std::string& sentence, std::string& id, const Window& w, Int keys,
                Int queries) {
  const Int count = tiles_of(w.Nk, keys), q_tiles = tiles_of(w.Nq, queries), size = 2 + q_tiles;
  worker::Call request = asked("full_queries", w);
  request.number("keys", double(keys)).number("queries", double(queries)).number("count", double(count));
  request.number("q_tiles", double(q_tiles)).output<std::int32_t>("numbers", std::size_t(count * size));
  const auto numbers = call(request).output<std::int32_t>("numbers");
  const OtherFull right{.id = "", .sentence = ""};
  for (Int b = 0; b < count; ++b) {
    const Keys those{w, b * keys, (b + 1) * keys};
    const std::int32_t* const of = &numbers[std::size_t(b * size)];
    const Numbered got = existing({of[0], of[1]}, w.Nq), wanted = existing(those.right(), w.Nq);
    const std::vector<bool> said(of + 2, of + size), must = said_of(right, those, queries);
    slips.keep([&](const OtherFull& slip) {
      return existing(slip.queries(those), w.Nq) == got && said_of(slip, those, queries) == said;
    });
    if (!slips.wrong.empty() || (got == wanted && said == must)) continue;
    const std::string of_keys = fmt::format("all of the keys {} to {}, {}", those.a, those.b - 1, w.text());
    if (!(got == wanted)) {
      slips.wrong = fmt::format("the queries {} are said to see {}: right is {}", got.text(), of_keys, wanted.text());
      sentence = "the queries are not those that see both the first and the last key", id = "full-queries";
      continue;
    }
    for (Int n = 0; n < q_tiles; ++n)
      if (const bool is = said[std::size_t(n)]; is != must[std::size_t(n)]) {
        slips.wrong = fmt::format("it is said of the queries {} to {}, of which those below {} exist, that {} see {}",
                                  n * queries, (n + 1) * queries - 1, w.Nq, is ? "all" : "not all", of_keys);
        sentence = "a Q tile is full if all of its queries that exist are among those", id = "full-row-blocks";
      }
  }
}

}  // namespace

TEST_CASE("the queries that attend to all keys of a range", "[19.2]") {
  Slips<OtherFull> slips{{std::begin(other_full), std::end(other_full)}};
  std::string sentence, id = "unknown";
  std::vector<Window> all(std::begin(windows), std::end(windows));
  all.push_back({300, 300, 150, 90}), all.push_back({130, 320, 100, 200});
  for (const Window& w : all)
    for (const auto& [keys, queries] : {std::pair<Int, Int>{64, 128}, {64, 64}, {16, 64}, {1, 16}})
      check_full(slips, sentence, id, w, keys, queries);
  slips.expect_none(sentence, id);
}

// ---- 19.3 the mask from the side of the keys ----

namespace {

/// A pair in a tile: of this row, which is a key, and this column, which is a query.
struct PairOfTile {
  const Window& w;
  Int first_key, first_query, row, column;
  Int key() const { return first_key + row; }
  Int query() const { return first_query + column; }
  Int half() const { return row % 16 / 8; }                       ///< r: which of its lane's two keys it is
  Int lane_column() const { return column % 8 / 2 * 2; }          ///< its lane's first query in the tile
  Int lane_query() const { return first_query + lane_column(); }  ///< the same, in the sequence
  bool exists() const { return key() < w.Nk; }
  /// Whether a query is among those that stand within the window of a key, which may lie behind the last one.
  bool within(Int query, Int key) const {
    const Int at = key + w.Nq - w.Nk;
    return at - w.right <= query && query <= std::min(w.Nq - 1, at + w.left);
  }
  bool sees(Int query, Int key) const { return key < w.Nk && within(query, key); }
  bool counts() const { return sees(query(), key()); }
};
struct OtherPairs {
  const char *id, *sentence;
  bool (*counts)(const PairOfTile& p);
};
const OtherPairs other_pairs[] = {
    {"of-keys-first-key", "both of a lane's keys have the queries of the first one: the second one lies 8 rows below",
     [](const PairOfTile& p) { return p.sees(p.query(), p.key() - 8 * p.half()); }},
    {"of-keys-neighbours", "a lane's second key is taken to be the next one: it lies 8 rows below the first one",
     [](const PairOfTile& p) { return p.sees(p.query(), p.key() - 7 * p.half()); }},
    {"of-keys-exchanged", "a lane's two keys have each other's queries",
     [](const PairOfTile& p) { return p.sees(p.query(), p.key() + 8 - 16 * p.half()); }},
    {"of-keys-behind", "keys that do not exist are seen: where a key is Nk or more there are no queries",
     [](const PairOfTile& p) { return p.within(p.query(), p.key()); }},
    {"of-keys-behind", "whether it exists is asked of a lane's first key alone: the second one lies 8 rows below",
     [](const PairOfTile& p) { return p.key() - 8 * p.half() < p.w.Nk && p.within(p.query(), p.key()); }},
    {"of-keys-not-moved", "queries are counted from the sequence's first one on: `query` is to be subtracted",
     [](const PairOfTile& p) { return p.sees(p.query() - p.lane_query(), p.key()); }},
    {"of-keys-from-the-row-block",
     "queries are counted from the Q tile's first one on: the lane's first one, `query`, is to be subtracted",
     [](const PairOfTile& p) { return p.sees(p.query() - p.lane_column(), p.key()); }},
    {"of-keys-one-end-moved",
     "`query` is subtracted from the range's beginning alone: its end has to be counted as that",
     [](const PairOfTile& p) {
       const Int at = p.key() + p.w.Nq - p.w.Nk;
       return p.exists() && std::max<Int>(0, at - p.w.right) <= p.query() &&
              p.query() - p.lane_query() < std::clamp<Int>(at + p.w.left + 1, 0, p.w.Nq);
     }},
    {"of-keys-one-end-moved",
     "`query` is subtracted from the range's end alone: its beginning has to be counted as that",
     [](const PairOfTile& p) {
       const Int at = p.key() + p.w.Nq - p.w.Nk;
       return p.exists() && std::max<Int>(0, at - p.w.right) <= p.query() - p.lane_query() &&
              p.query() < std::clamp<Int>(at + p.w.left + 1, 0, p.w.Nq);
     }},
    {"of-keys-row-in-tile", "a key is taken for its row in the tile: it is first_key + row",
     [](const PairOfTile& p) { return p.sees(p.query(), p.row); }},
    {"of-keys-moved-by-8", "of a lane's second key 8 more are subtracted: queries are the same columns for both keys",
     [](const PairOfTile& p) { return p.sees(p.query() + 8 * p.half(), p.key()); }},
    {"of-keys-last-query", "the last query that sees a key is left out: one key is the range {key, key + 1}",
     [](const PairOfTile& p) { return p.counts() && p.query() != p.key() + p.w.Nq - p.w.Nk + p.w.left; }},
    {"of-keys-last-query", "the last query that sees a key is left out: a range ends one behind it",
     [](const PairOfTile& p) {
       const Int last = std::min(p.w.Nq - 1, p.key() + p.w.Nq - p.w.Nk + p.w.left);
       return p.counts() && p.query() != last;
     }},
    {"of-keys-eight-keys", "the queries are those that see any of eight keys: of each of the two keys it is its own",
     [](const PairOfTile& p) {
       const Int at = p.key() + p.w.Nq - p.w.Nk;
       return p.exists() && at - p.w.right <= p.query() && p.query() < at + 8 + p.w.left;
     }},
};

/// Whether pairs of a window count, in the tile of 64 keys and 128 queries from these on.
void check_pairs(Slips<OtherPairs>& slips, const Window& w, Int first_key, Int first_query) {
  worker::Call request = asked("pairs", w);
  request.number("first_key", double(first_key)).number("first_query", double(first_query));
  request.output<std::int32_t>("numbers", 64 * 128);
  const auto numbers = call(request).output<std::int32_t>("numbers");
  for (Int row = 0; row < 64; ++row)
    for (Int column = 0; column < 128; ++column) {
      const PairOfTile pair{w, first_key, first_query, row, column};
      if (pair.query() >= w.Nq) continue;  // its LSE is +inf
      const bool counts = pair.counts(), said = numbers[std::size_t(row * 128 + column)] != 0;
      slips.keep([&](const OtherPairs& slip) { return slip.counts(pair) == said; });
      if (slips.wrong.empty() && said != counts)
        slips.wrong = fmt::format("the pair of query {} and key {} {}, and {}: row {} and column {} of a tile, {}",
                                  pair.query(), pair.key(), said ? "counts" : "does not count",
                                  counts ? "it has to" : "it must not", row, column, w.text());
    }
}

}  // namespace

TEST_CASE("each key of a partial tile has its range of queries", "[19.3]") {
  Slips<OtherPairs> slips{{std::begin(other_pairs), std::end(other_pairs)}};
  for (const Window& w : windows)
    for (Int key = 0; key < w.Nk; key += 64)
      for (Int query = 0; query < w.Nq; query += 64) check_pairs(slips, w, key, query);
  slips.expect_none("the queries that a thread has for one of its keys are not those that see it", "pairs");
}
