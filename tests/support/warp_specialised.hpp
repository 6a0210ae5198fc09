// What a forward stage counts in which one warp group has TMA bring tiles and the others, consumers of 64 queries each,
// multiply them by wgmma.
#pragma once

#include "tests/support/forward_properties.hpp"
#include "tests/support/forward_stage.hpp"

namespace workbook::test {

// A consumer, four warps, has 64 queries, and four more warps are the producer's.
inline std::int64_t consumers(const Tiles& tiles) {
  return tiles.Br / 64;
}

/// What a call counts with three tiles of keys.
inline worker::Reply over_three_tiles(std::int64_t queries, std::int64_t d, const Tiles& tiles) {
  return attention(input("normal", {1, 1, 1, queries, 3 * tiles.Bc, d}, 8).problem, tiles.numbers()).reply;
}

/// wgmma, one a warp, that one tile of queries costs: S and O of each tile of keys, in parts of `k`.
inline void expect_wgmma(std::int64_t d, const Tiles& tiles, int k, const char* which) {
  const worker::Reply reply = over_three_tiles(tiles.Br, d, tiles);
  expect_count(
      reply, "wgmma_instructions", double(4 * consumers(tiles) * 3 * (d / k + tiles.Bc / k)),
      fmt::format("wgmma instructions, one per warp: d/{0} for S and Bc/{0} for O for each of 3 K/V tiles, d={1}, {2}",
                  k, d, tiles.text()),
      fmt::format("your code computes {} with more or fewer wgmmas than it has k-slices of {}; each slice needs one",
                  which, k),
      "wgmma-count");
  expect_count(
      reply, "wgmma_operations", double(3 * 4) * tiles.Br * tiles.Bc * double(d),
      fmt::format("operations of wgmma: 2·Br·Bc·d for S and for O of each K/V tile, d={}, {}", d, tiles.text()),
      "your code issues wgmmas of another shape; M·N·k must add up to the tile's products", "wgmma-count");
}

/// How often threads wait for barriers in shared memory: for Q, and for K and V of each tile; the producer for each
/// stage to be empty.
inline void expect_waits(const Tiles& tiles, std::int64_t d) {
  const worker::Reply reply = over_three_tiles(100, d, tiles);
  const double kv_tiles = 3, threads = 128.0 * consumers(tiles);
  expect_count(reply, "mbarrier_waits", threads * (1 + 2 * kv_tiles) + 2 * kv_tiles,
               fmt::format("each thread of a consumer waits once for Q, and once for K and V per tile; the producer "
                           "waits once per stage; d={}, {}",
                           d, tiles.text()),
               "your code waits for a tile twice or not at all; it must wait once", "waits");
  // The producer arrives for Q, K and V; one lane of each warp leaves K and V of each tile, where that is of use.
  const double most = 1 + 2 * kv_tiles + 2 * kv_tiles * 4 * consumers(tiles);
  const double arrivals = counter(reply, "mbarrier_arrivals");
  expect(arrivals <= most,
         fmt::format("threads arrive {} times at the barriers of one thread block, at most {} are needed: d={}, {}",
                     arrivals, most, d, tiles.text()),
         "your code lets several lanes of a warp arrive; one lane must arrive for its warp", "arrivals");
  expect_early_release(reply, fmt::format("d={}, {}", d, tiles.text()));
  expect_waits_apart(reply, 4 * double(consumers(tiles)),
                     fmt::format("each warp once, for Q, d={}, {}", d, tiles.text()));
}

/// How often a warp waits for S and leaves O += P V under way: once for each tile of keys but the first.
inline void expect_partial_waits(const Tiles& tiles, std::int64_t d) {
  // Each consumer has rows.
  const double waits = counter(over_three_tiles(tiles.Br - 20, d, tiles), "wgmma_partial_waits");
  const double expected = 4.0 * consumers(tiles) * (3 - 1);
  expect(waits == expected,
         fmt::format("warps wait {} times for one wgmma group and leave a newer one in flight; expected {}: each warp "
                     "waits for S of every tile but the first, while O += P V runs; d={}, {}",
                     waits, expected, d, tiles.text()),
         waits < expected
             ? "your code starts the softmax when no wgmma is in flight, so the tensor cores idle; it must leave O += "
               "P V in flight"
             : "your code waits in this way more often than once per K/V tile; one wait per tile is enough",
         "overlap");
}

/// Each consumer has one issue window per tile: it waits for the window, issues the wgmma, and signals the next
/// consumer. A wgmma multiplies `k` columns.
inline void expect_ping_pong(const Tiles& tiles, std::int64_t d, int k, int barriers_of_O = 1) {
  const worker::Reply reply = over_three_tiles(tiles.Br - 20, d, tiles);
  // An issue window is one phase of a consumer's barrier. Each consumer has one more barrier before its store of O, and
  // another one before O is written if O has a separate buffer.
  expect_count(
      reply, "named_barriers", double(consumers(tiles) * (3 + barriers_of_O)),
      fmt::format("{} consumers · (3 issue windows and {} for O), {}", consumers(tiles), barriers_of_O, tiles.text()),
      "your code opens too many or too few issue windows; each consumer needs one per K/V tile", "issue-windows");
  expect_issue_windows(reply, 4.0 * double(consumers(tiles) * tiles.Bc) / k, tiles.text());
}

}  // namespace workbook::test
