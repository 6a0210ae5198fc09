// Chapter 19, part by part: the steps of a block, the queries that see some keys, and those of a thread's keys.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/19_which_pairs_backward/blocks.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

// ---- 19.1 the steps of a block ----

struct Iteration {
  Int first_head, group;
  Numbered q_tiles;
  Int count() const { return group * (q_tiles.last - q_tiles.first); }
};
struct At {
  Int head, q_tile;
  friend bool operator==(const At&, const At&) = default;
};
At next_step(const Iteration& w, At at) {
  return at.q_tile + 1 == w.q_tiles.last ? At{at.head + 1, w.q_tiles.first} : At{at.head, at.q_tile + 1};
}
struct OtherIteration {
  const char *id, *sentence;
  Int (*count)(const Iteration&) = [](const Iteration& w) { return w.count(); };
  At (*next)(const Iteration&, At) = next_step;
  std::vector<Int> numbers(const Iteration& w, Int most) const {
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
const OtherIteration other_iterations[] = {
    {.id = "steps-one-head",
     .sentence = "your code counts the steps of one head of Q only; it must count the steps of all `group` heads that "
                 "share the K/V head",
     .count = [](const Iteration& w) { return w.q_tiles.last - w.q_tiles.first; }},
    {.id = "steps-counted-from-0",
     .sentence = "your code counts Q tiles from 0; the Q tiles before `q_tiles.first` attend to none of the keys and "
                 "must not be counted",
     .count = [](const Iteration& w) { return w.group * w.q_tiles.last; }},
    {.id = "steps-last-counted",
     .sentence = "your code counts one Q tile too many per head; `q_tiles.last` is one past the last Q tile and must "
                 "not be counted",
     .count = [](const Iteration& w) { return w.group * (w.q_tiles.last - w.q_tiles.first + 1); }},
    {.id = "steps-never-empty",
     .sentence = "your code counts at least one step; if no query attends to the keys, the number of steps must be 0",
     .count = [](const Iteration& w) { return std::max<Int>(1, w.count()); }},
    {.id = "steps-from-0",
     .sentence = "your code starts the next head at Q tile 0; every head must start at `q_tiles.first`",
     .next =
         [](const Iteration& w, At at) {
           return at.q_tile + 1 == w.q_tiles.last ? At{at.head + 1, 0} : At{at.head, at.q_tile + 1};
         }},
    {.id = "steps-same-head",
     .sentence = "your code repeats the same head after its last Q tile; it must continue with the next head",
     .next =
         [](const Iteration& w, At at) {
           return at.q_tile + 1 == w.q_tiles.last ? At{at.head, w.q_tiles.first} : At{at.head, at.q_tile + 1};
         }},
    {.id = "steps-last-left-out",
     .sentence = "your code changes the head one Q tile too early; Q tile `q_tiles.last` − 1 must be a step too",
     .next =
         [](const Iteration& w, At at) {
           return at.q_tile + 2 == w.q_tiles.last ? At{at.head + 1, w.q_tiles.first} : At{at.head, at.q_tile + 1};
         }},
    {.id = "steps-one-past-end",
     .sentence =
         "your code also visits Q tile `q_tiles.last`, one past the last Q tile; it must change the head before that",
     .next =
         [](const Iteration& w, At at) {
           return at.q_tile == w.q_tiles.last ? At{at.head + 1, w.q_tiles.first} : At{at.head, at.q_tile + 1};
         }},
    {.id = "steps-no-next-head",
     .sentence = "your code never changes the head; after the last Q tile it must continue with the first Q tile of "
                 "the next head",
     .next =
         [](const Iteration&, At at) {
           return At{at.head, at.q_tile + 1};
         }},
    {.id = "steps-heads-first",
     .sentence = "your code changes the head in every step; it must process all Q tiles of a head before the next head",
     .next =
         [](const Iteration& w, At at) {
           return at.head + 1 < w.first_head + w.group ? At{at.head + 1, at.q_tile} : At{w.first_head, at.q_tile + 1};
         }},
    {.id = "steps-heads-apart",
     .sentence = "your code advances the head by the number of heads that share the K/V head; these heads are "
                 "adjacent, so it must advance by 1",
     .next =
         [](const Iteration& w, At at) {
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

void check_steps(Slips<OtherIteration>& slips, const BlocksCase& c) {
  const Int most = c.most_steps(64), size = 4 + 2 * most;
  const std::vector<std::int32_t> starts = c.starts();
  worker::Call request = c.request("steps", 64);
  request.input("starts", starts);
  const auto numbers =
      call(request.output<std::int32_t>("numbers", std::size_t(c.blocks() * size))).output<std::int32_t>("numbers");
  const OtherIteration right{.id = "", .sentence = ""};
  for (Int b = 0; b < c.blocks(); ++b) {
    const std::int32_t* const of = &numbers[std::size_t(b * size)];
    const Block block = block_of(c, of[0], of[1], of[2]);
    const Iteration iteration{block.kv_head * c.group, c.group, block.q_tiles(64)};
    const std::vector<Int> got(of + 3, of + size), wanted = right.numbers(iteration, most);
    slips.keep([&](const OtherIteration& slip) { return slip.numbers(iteration, most) == got; });
    if (!slips.wrong.empty() || got == wanted) continue;
    slips.wrong =
        fmt::format("your steps (head, Q tile) for {} are {}, expected {}; heads of Q {} to {}, Q tiles {}; {}",
                    block.text(), steps_text(got), steps_text(wanted), iteration.first_head,
                    iteration.first_head + c.group - 1, iteration.q_tiles.text(), c.text());
  }
}

}  // namespace

TEST_CASE("a thread block's steps are all Q tiles that attend to its keys, head after head", "[19.1]") {
  Slips<OtherIteration> slips{{std::begin(other_iterations), std::end(other_iterations)}};
  for (const BlocksCase& c : blocks_cases) check_steps(slips, c);
  for (const Window& w : windows) check_steps(slips, {w, 1, 1, 1});
  slips.expect_none("your steps are not the Q tiles `q_tiles` of each head of the group, head after head; they must be",
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
    {.id = "all-see-keys-past-end",
     .sentence = "your code ignores keys past the end; if one of the keys does not exist, the range must be empty",
     .queries = [](const Keys& k) { return k.by_ends(); }},
    {.id = "all-see-any",
     .sentence =
         "your code returns the queries that attend to at least one of the keys; they must attend to all of the keys",
     .queries =
         [](const Keys& k) {
           return k.exist() ? Numbered{k.a - k.w.right + k.diagonal(), k.b + k.w.left + k.diagonal()} : Numbered{0, 0};
         }},
    {.id = "all-see-any",
     .sentence = "your code starts the range at the first query that attends to the first key; it must start at the "
                 "first query that attends to the last key",
     .queries =
         [](const Keys& k) {
           return k.exist() ? Numbered{k.a - k.w.right + k.diagonal(), k.right().last} : Numbered{0, 0};
         }},
    {.id = "all-see-any",
     .sentence = "your code ends the range after the last query that attends to the last key; it must end after the "
                 "last query that attends to the first key",
     .queries =
         [](const Keys& k) {
           return k.exist() ? Numbered{k.right().first, k.b + k.w.left + k.diagonal()} : Numbered{0, 0};
         }},
    {.id = "all-see-next-key",
     .sentence = "your code starts the range with the first query that attends to key `keys.last`; the last key is "
                 "`keys.last` − 1, and must determine the start",
     .queries =
         [](const Keys& k) {
           return k.exist() ? Numbered{k.right().first + 1, k.right().last} : Numbered{0, 0};
         }},
    {.id = "all-see-one-fewer",
     .sentence = "your code omits the last query that attends to all keys; ranges are half-open, so the end must be "
                 "one past this query",
     .queries =
         [](const Keys& k) {
           return k.exist() ? Numbered{k.right().first, k.right().last - 1} : Numbered{0, 0};
         }},
    {.id = "all-see-one-more",
     .sentence =
         "your code starts the range one query too early; the first query of the range must attend to the last key",
     .queries =
         [](const Keys& k) {
           return k.exist() ? Numbered{k.right().first - 1, k.right().last} : Numbered{0, 0};
         }},
    {.id = "all-see-left-for-right",
     .sentence = "your code exchanges `left` and `right`; the queries that attend to a key must extend from `right` "
                 "before the key's aligned query to `left` after it",
     .queries =
         [](const Keys& k) {
           return k.exist() ? Numbered{k.b - 1 - k.w.left + k.diagonal(), k.a + k.w.right + k.diagonal() + 1}
                            : Numbered{0, 0};
         }},
    {.id = "all-see-diagonal",
     .sentence =
         "your code adds Nk − Nq to a key; key j is the diagonal of query j + (Nq − Nk), so it must add Nq − Nk",
     .queries =
         [](const Keys& k) {
           return k.exist() ? Numbered{k.right().first - 2 * k.diagonal(), k.right().last - 2 * k.diagonal()}
                            : Numbered{0, 0};
         }},
    {.id = "all-see-diagonal",
     .sentence =
         "your code aligns key j with query j; key j is the diagonal of query j + (Nq − Nk), so it must add Nq − Nk",
     .queries =
         [](const Keys& k) {
           return k.exist() ? Numbered{k.right().first - k.diagonal(), k.right().last - k.diagonal()} : Numbered{0, 0};
         }},
    {.id = "all-see-queries-past-end",
     .sentence = "your code calls a Q tile that extends past the last query partial; `is_full` must ignore queries "
                 "that do not exist",
     .all = [](const Numbered& full, const Numbered& those,
               Int) { return full.first <= those.first && those.last <= full.last; }},
    {.id = "all-see-some-query",
     .sentence = "your code calls a Q tile full if at least one of its queries attends to all keys; all of its "
                 "existing queries must do so",
     .all = [](const Numbered& full, const Numbered& those,
               Int) { return full.first < those.last && those.first < full.last; }},
    {.id = "all-see-one-end",
     .sentence = "your code tests only the first of `queries`; the last existing query must attend to all keys too",
     .all = [](const Numbered& full, const Numbered& those, Int) { return full.first <= those.first; }},
    {.id = "all-see-one-end",
     .sentence = "your code tests only the last of `queries`; the first query must attend to all keys too",
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
  worker::Call request = window_call("full_queries", w);
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
      slips.wrong =
          fmt::format("your code returns the queries {} for {}, expected {}", got.text(), of_keys, wanted.text());
      sentence =
          "your range is not that of the queries that attend to all keys; it must contain the queries that attend to "
          "both the first and the last key",
      id = "full-queries";
      continue;
    }
    for (Int n = 0; n < q_tiles; ++n)
      if (const bool is = said[std::size_t(n)]; is != must[std::size_t(n)]) {
        slips.wrong = fmt::format("your code calls the Q tile of queries {} to {} (those below {} exist) {} for {}",
                                  n * queries, (n + 1) * queries - 1, w.Nq, is ? "full" : "not full", of_keys);
        sentence =
            "your code calls a partial Q tile full, or a full one partial; a Q tile is full if all of its existing "
            "queries are in the range that `full_queries` returns",
        id = "full-row-blocks";
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
  bool attends(Int query, Int key) const { return key < w.Nk && within(query, key); }
  bool counts() const { return attends(query(), key()); }
};
struct OtherPairs {
  const char *id, *sentence;
  bool (*counts)(const PairOfTile& p);
};
const OtherPairs other_pairs[] = {
    {"of-keys-first-key",
     "your code uses the query range of the lane's first key for both keys; the second key is `key` + 8, and must have "
     "its own range",
     [](const PairOfTile& p) { return p.attends(p.query(), p.key() - 8 * p.half()); }},
    {"of-keys-neighbours",
     "your code uses the next key as the lane's second key; the second key must be 8 rows below the first",
     [](const PairOfTile& p) { return p.attends(p.query(), p.key() - 7 * p.half()); }},
    {"of-keys-exchanged",
     "your code exchanges the query ranges of the lane's two keys; `queries[r]` must be the range of `key` + 8r",
     [](const PairOfTile& p) { return p.attends(p.query(), p.key() + 8 - 16 * p.half()); }},
    {"of-keys-past-end",
     "your code gives keys past the end a range of queries; the range of a key that does not exist must be empty",
     [](const PairOfTile& p) { return p.within(p.query(), p.key()); }},
    {"of-keys-past-end", "your code tests only whether the lane's first key exists; it must test each of the two keys",
     [](const PairOfTile& p) { return p.key() - 8 * p.half() < p.w.Nk && p.within(p.query(), p.key()); }},
    {"of-keys-not-moved", "your code does not subtract `query` from the range; it must subtract `query` from both ends",
     [](const PairOfTile& p) { return p.attends(p.query() - p.lane_query(), p.key()); }},
    {"of-keys-from-the-row-block",
     "your code subtracts the Q tile's first query; it must subtract `query`, the lane's first query",
     [](const PairOfTile& p) { return p.attends(p.query() - p.lane_column(), p.key()); }},
    {"of-keys-one-end-moved",
     "your code subtracts `query` only from the start of the range; it must subtract it from the end too",
     [](const PairOfTile& p) {
       const Int at = p.key() + p.w.Nq - p.w.Nk;
       return p.exists() && std::max<Int>(0, at - p.w.right) <= p.query() &&
              p.query() - p.lane_query() < std::clamp<Int>(at + p.w.left + 1, 0, p.w.Nq);
     }},
    {"of-keys-one-end-moved",
     "your code subtracts `query` only from the end of the range; it must subtract it from the start too",
     [](const PairOfTile& p) {
       const Int at = p.key() + p.w.Nq - p.w.Nk;
       return p.exists() && std::max<Int>(0, at - p.w.right) <= p.query() - p.lane_query() &&
              p.query() < std::clamp<Int>(at + p.w.left + 1, 0, p.w.Nq);
     }},
    {"of-keys-row-in-tile",
     "your code uses the row in the tile as the key; it must use `key`, which includes `first_key`",
     [](const PairOfTile& p) { return p.attends(p.query(), p.row); }},
    {"of-keys-moved-by-8",
     "your code subtracts 8 more for the second key; both keys have the same queries, so it must subtract `query` for "
     "both",
     [](const PairOfTile& p) { return p.attends(p.query() + 8 * p.half(), p.key()); }},
    {"of-keys-last-query",
     "your code passes an empty range of keys to `query_range`, which omits the last query; a single key must be "
     "passed as {key, key + 1}",
     [](const PairOfTile& p) { return p.counts() && p.query() != p.key() + p.w.Nq - p.w.Nk + p.w.left; }},
    {"of-keys-last-query",
     "your code omits the last query of the range; ranges are half-open, so the end must stay one past the last query",
     [](const PairOfTile& p) {
       const Int last = std::min(p.w.Nq - 1, p.key() + p.w.Nq - p.w.Nk + p.w.left);
       return p.counts() && p.query() != last;
     }},
    {"of-keys-eight-keys",
     "your code computes the queries that attend to at least one of eight keys; each range must be that of a single "
     "key",
     [](const PairOfTile& p) {
       const Int at = p.key() + p.w.Nq - p.w.Nk;
       return p.exists() && at - p.w.right <= p.query() && p.query() < at + 8 + p.w.left;
     }},
};

/// Whether pairs of a window count, in the tile of 64 keys and 128 queries from these on.
void check_pairs(Slips<OtherPairs>& slips, const Window& w, Int first_key, Int first_query) {
  worker::Call request = window_call("pairs", w);
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
        slips.wrong =
            fmt::format("your code {} the pair of query {} and key {}, expected {}: row {} and column {} of a tile, {}",
                        said ? "unmasks" : "masks", pair.query(), pair.key(), counts ? "unmasked" : "masked", row,
                        column, w.text());
    }
}

}  // namespace

TEST_CASE("each key of a partial tile has its range of queries", "[19.3]") {
  Slips<OtherPairs> slips{{std::begin(other_pairs), std::end(other_pairs)}};
  for (const Window& w : windows)
    for (Int key = 0; key < w.Nk; key += 64)
      for (Int query = 0; query < w.Nq; query += 64) check_pairs(slips, w, key, query);
  slips.expect_none(
      "your `queries[r]` is not the range of the queries that attend to key + 8r; it must be this range, minus `query`",
      "pairs");
}
