// Chapter 19, part by part: the steps of a block, the queries that see some keys, and those of a thread's keys.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/19_which_pairs_backward/block_cases.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

// ---- 19.1 the steps of a block ----

/// The number of steps; then head and Q tile of each, and -1 after the last.
std::vector<Int> steps_of(const BlocksCase& c, const Block& block, Int most) {
  const Numbered q_tiles = block.q_tiles(64);
  const Int each = q_tiles.last - q_tiles.first, count = c.group * each;
  std::vector<Int> all{count};
  for (Int n = 0; n < most; ++n) {
    const bool any = n < count;
    all.insert(all.end(), {any ? block.kv_head * c.group + n / each : -1, any ? q_tiles.first + n % each : -1});
  }
  return all;
}

/// "3 steps: (0, 2) (0, 3) (1, 2)": head and Q tile of each.
std::string steps_text(const std::vector<Int>& numbers) {
  std::string text = fmt::format("{} steps:", numbers[0]);
  for (std::size_t n = 1; n + 1 < numbers.size() && numbers[n] >= 0; n += 2)
    text += fmt::format(" ({}, {})", numbers[n], numbers[n + 1]);
  return text;
}

void expect_steps(const BlocksCase& c) {
  const Int most = c.most_steps(64), size = 4 + 2 * most;
  const std::vector<std::int32_t> starts = c.starts();
  worker::Call request = c.request("steps", 64);
  request.input("starts", starts);
  const auto numbers =
      call(request.output<std::int32_t>("numbers", std::size_t(c.blocks() * size))).output<std::int32_t>("numbers");
  for (Int b = 0; b < c.blocks(); ++b) {
    const std::int32_t* const of = &numbers[std::size_t(b * size)];
    const Block block = block_of(c, of[0], of[1], of[2]);
    const std::vector<Int> got(of + 3, of + size), wanted = steps_of(c, block, most);
    expect(got == wanted,
           fmt::format("your steps (head, Q tile) for {} are {}, expected {}; heads of Q {} to {}, Q tiles {}; {}",
                       block.text(), steps_text(got), steps_text(wanted), block.kv_head * c.group,
                       (block.kv_head + 1) * c.group - 1, block.q_tiles(64).text(), c.text()));
  }
}

}  // namespace

TEST_CASE("a thread block's steps are all Q tiles that attend to its keys, head after head", "[19.1]") {
  for (const BlocksCase& c : blocks_cases) expect_steps(c);
  for (const Window& w : windows) expect_steps({w, 1, 1, 1});
}

// ---- 19.2 the queries that see all of some keys ----

namespace {

/// The queries that attend to all of the keys a to b - 1; none if one of the keys does not exist.
Numbered full_queries(const Window& w, Int a, Int b) {
  if (b > w.Nk) return {0, 0};
  const Int diagonal = w.Nq - w.Nk;
  return {std::clamp<Int>(b - 1 - w.right + diagonal, 0, w.Nq), std::clamp<Int>(a + w.left + diagonal + 1, 0, w.Nq)};
}

void expect_full(const Window& w, Int keys, Int queries) {
  const Int count = tiles_of(w.Nk, keys), q_tiles = tiles_of(w.Nq, queries), size = 2 + q_tiles;
  worker::Call request = window_call("full_queries", w);
  request.number("keys", double(keys)).number("queries", double(queries)).number("count", double(count));
  request.number("q_tiles", double(q_tiles)).output<std::int32_t>("numbers", std::size_t(count * size));
  const auto numbers = call(request).output<std::int32_t>("numbers");
  for (Int b = 0; b < count; ++b) {
    const std::int32_t* const of = &numbers[std::size_t(b * size)];
    const auto existing = [&](Int query) { return std::clamp<Int>(query, 0, w.Nq); };
    const Numbered got{existing(of[0]), existing(of[1])}, wanted = full_queries(w, b * keys, (b + 1) * keys);
    const std::string of_keys = fmt::format("all of the keys {} to {}, {}", b * keys, (b + 1) * keys - 1, w.text());
    expect(got == wanted,
           fmt::format("your code returns the queries {} for {}, expected {}", got.text(), of_keys, wanted.text()));
    for (Int n = 0; n < q_tiles; ++n) {
      const Int first = n * queries, last = first + queries;
      const bool is = of[2 + n] != 0, must = wanted.first <= first && std::min(w.Nq, last) <= wanted.last;
      expect(is == must, fmt::format("your code calls the Q tile of queries {} to {} (those below {} exist) {} for {}",
                                     first, last - 1, w.Nq, is ? "full" : "not full", of_keys));
    }
  }
}

}  // namespace

TEST_CASE("the queries that attend to all keys of a range", "[19.2]") {
  std::vector<Window> all(std::begin(windows), std::end(windows));
  all.push_back({300, 300, 150, 90}), all.push_back({130, 320, 100, 200});
  for (const Window& w : all)
    for (const auto& [keys, queries] : {std::pair<Int, Int>{1, 16}, {16, 64}, {64, 64}, {64, 128}})
      expect_full(w, keys, queries);
}

// ---- 19.3 the mask from the side of the keys ----

namespace {

/// Whether pairs of a window count, in the tile of 64 keys and 128 queries from these on.
void expect_pairs(const Window& w, Int first_key, Int first_query) {
  worker::Call request = window_call("pairs", w);
  request.number("first_key", double(first_key)).number("first_query", double(first_query));
  request.output<std::int32_t>("numbers", 64 * 128);
  const auto numbers = call(request).output<std::int32_t>("numbers");
  for (Int row = 0; row < 64; ++row)
    for (Int column = 0; column < 128; ++column) {
      const Int key = first_key + row, query = first_query + column;
      if (query >= w.Nq) continue;  // its LSE is +inf
      const bool counts = w.attends(query, key), said = numbers[std::size_t(row * 128 + column)] != 0;
      if (said == counts) continue;
      expect(false, fmt::format(
                        "your code {} the pair of query {} and key {}, expected {}: row {} and column {} of a tile, {}",
                        said ? "unmasks" : "masks", query, key, counts ? "unmasked" : "masked", row, column, w.text()));
    }
  expect(true, "");
}

}  // namespace

TEST_CASE("each key of a partial tile has its range of queries", "[19.3]") {
  for (const Window& w : windows)
    for (Int key = 0; key < w.Nk; key += 64)
      for (Int query = 0; query < w.Nq; query += 64) expect_pairs(w, key, query);
}
