// Chapter 14: heads that share K and V, packed into the rows of a tile.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <iterator>

#include "tests/support/forward_properties.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

// ---- Groups ----

constexpr int never = 1, always = 2;  // the number "pack" of the stage's variants; 0: where it pays

Numbers packing(int pack) {
  return pack == 0 ? Numbers{} : Numbers{{"pack", double(pack)}};
}
/// H = groups·G heads of Q that share `groups` heads of K and V.
Shape grouped(std::int64_t B, std::int64_t groups, std::int64_t G, std::int64_t Nq, std::int64_t Nk, std::int64_t d) {
  return {B, groups * G, groups, Nq, Nk, d};
}
/// O and the LSE, on small tiles.
AttentionResult expect_group(Input given, int pack, std::optional<Element> element = {}) {
  const Shape& s = given.problem.shape;
  given.name += fmt::format(", {} heads of Q share one of K and V", s.H / s.Hkv);
  return expect_right(given, small_tiles(s.d, packing(pack)), element);
}
/// Every kind of input with every mask, three heads a group, packed or not.
void expect_every_kind_in_groups(int pack) {
  std::uint64_t seed = 300;
  const Shape shape = grouped(1, 2, 3, 25, 70, 64);
  for (const InputKind& kind : input_kinds())
    for (const bool causal : masks()) expect_group(input(kind.name, shape, ++seed, causal), pack);
  for (const float scale : {-0.2f, 0.0f}) expect_group(with_scale(input("normal", shape, ++seed), scale), pack);
  expect_group(input("value mean", grouped(1, 2, 3, 70, 40, 64), ++seed, true), pack);
}

/// The sum of `count` over the tiles of rows of all blocks, if `packed` heads are put together. It gets the number of
/// keys that the tile's last row sees.
template <class Count>
std::int64_t over_row_tiles(const Problem& problem, const Tiles& tiles, std::int64_t packed, const Count& count) {
  const Shape& s = problem.shape;
  std::int64_t sum = 0;
  for (std::int64_t first = 0; first < packed * s.Nq; first += tiles.Br) {
    const std::int64_t last_query = (std::min(first + tiles.Br, packed * s.Nq) - 1) / packed;
    sum += count(visible_keys(last_query, s.Nq, s.Nk, problem.causal()));
  }
  return s.B * s.H / packed * sum;
}
/// Tiles of keys that all blocks go through; and keys that they read: the last tile may be short.
std::int64_t tiles_visited(const Problem& problem, const Tiles& tiles, std::int64_t packed) {
  return over_row_tiles(problem, tiles, packed, [&](std::int64_t seen) { return tiles_of(seen, tiles.Bc); });
}
std::int64_t keys_visited(const Problem& problem, const Tiles& tiles, std::int64_t packed) {
  return over_row_tiles(problem, tiles, packed, [&](std::int64_t seen) {
    return std::min(problem.shape.Nk, tiles_of(seen, tiles.Bc) * tiles.Bc);
  });
}

constexpr const char* other_tiles =
    "your code counts a K/V tile that none of the rows needs, or omits one that some row needs; it must count the K/V "
    "tiles up to the last key that the last existing row attends to";

/// K and V are read as often as if this many heads were packed.
void expect_keys_read(const Problem& problem, const Tiles& tiles, int pack, std::int64_t packed,
                      const std::string& cause, const std::string& diagnosis) {
  Numbers numbers = tiles.numbers();
  numbers.merge(packing(pack));
  const worker::Reply reply = attention(problem, numbers).reply;
  const double bytes = double(keys_visited(problem, tiles, packed) * problem.shape.d * 2);
  expect_count(reply, "block_barriers", double(tiles_visited(problem, tiles, packed)),
               fmt::format("one barrier per K/V tile that the rows of a Q tile need, H={}, Hkv={}, {}", problem.shape.H,
                           problem.shape.Hkv, text(problem, tiles)),
               cause, diagnosis);
  for (const char* tensor : {"K", "V"})
    expect_count(
        reply, fmt::format("{}.async_bytes", tensor), bytes,
        fmt::format(
            "each Q tile of {1} rows of {2} packed heads reads {0} up to the last key that it attends to; H={3}, "
            "Hkv={4}, {5}",
            tensor, tiles.Br, packed, problem.shape.H, problem.shape.Hkv, text(problem, tiles)),
        cause, diagnosis);
}

}  // namespace

// ---- 14.1 which head of K and V ----

TEST_CASE("each head of Q uses the K and V of its group", "[14.1]") {
  for (const int pack : {never, always})
    for (const std::int64_t G : {2, 3, 4})
      for (const std::int64_t groups : {1, 2, 3})
        expect_group(input("value mean", grouped(1, groups, G, 20, 40, 64), 10), pack);
  expect_every_kind_in_groups(never);
}

TEST_CASE("heads are indexed across the batch", "[14.1]") {
  for (const int pack : {never, always})
    for (const std::int64_t d : head_dims()) expect_group(input("value mean", grouped(3, 2, 2, 20, 40, d), 11), pack);
}

// ---- 14.2 packed rows ----

TEST_CASE("packed rows map to the right queries and heads", "[14.2]") {
  for (const std::int64_t heads : {8, 3, 2, 1}) {
    for (const std::int64_t Nq : {40, 5, 1}) {
      worker::Call request("rows");
      request.number("heads", double(heads)).number("Nq", double(Nq));
      request.output<std::int32_t>("query", std::size_t(heads * Nq));
      request.output<std::int64_t>("memory_row", std::size_t(heads * Nq));
      const worker::Reply reply = call(request);
      const auto query = reply.output<std::int32_t>("query");
      const auto memory_row = reply.output<std::int64_t>("memory_row");
      bool head_by_head = true, exchanged = true;
      for (std::int64_t r = 0; r < heads * Nq; ++r) {
        const auto at = std::size_t(r);
        head_by_head &= query[at] == r % Nq && memory_row[at] == r;
        exchanged &= query[at] == r % heads && memory_row[at] == r / heads * Nq + r % heads;
      }
      for (std::int64_t r = 0; r < heads * Nq; ++r) {
        const std::int64_t i = r / heads, h = r % heads;
        const auto at = std::size_t(r);
        expect(query[at] == i && memory_row[at] == h * Nq + i,
               fmt::format("{} heads with {} queries each: for packed row {} your code returns query {} and memory_row "
                           "{}, expected query {} (of head {}) and memory_row {}·{} + {} = {}",
                           heads, Nq, r, query[at], memory_row[at], i, h, h, Nq, i, h * Nq + i),
               head_by_head
                   ? "your code orders the packed rows head by head; adjacent packed rows must be the heads of "
                     "the same query"
               : exchanged ? "your code exchanges quotient and remainder of the packed row; the query must be the "
                             "quotient by the number of packed heads, and the head the remainder"
                           : "",
               head_by_head ? "rows-head-by-head"
               : exchanged  ? "rows-exchanged"
                            : "unknown");
      }
    }
  }
}

TEST_CASE("each row of Q reaches its own row of O", "[14.2]") {
  expect_every_kind_in_groups(always);
}

// ---- 14.3 load_rows ----

TEST_CASE("packed rows use every column of Q", "[14.3]") {
  for (const std::int64_t d : head_dims())
    for (std::int64_t first = 0; first < d; first += 16)
      expect_group(with_columns(input("normal", grouped(1, 2, 3, 20, 64, d), 20), first, 16), always);
  expect_every_kind_in_groups(always);
}

TEST_CASE("packed rows of Q take no more sectors", "[14.3]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    for (const int pack : {never, always}) {
      const Tiles tiles = usual_tiles(d, packing(pack));
      const Problem problem = input("normal", grouped(1, 2, 8, 64, 64, d), 21).problem;
      expect_wide(attention(problem, tiles.numbers()).reply, "Q", "async", double(16 * 64 * d * 2),
                  fmt::format("Q is read once, d={}, {}", d, pack == always ? "packed" : "not packed"));
    }
  }
}

TEST_CASE("rows past the end are not read", "[14.3]") {
  // Q ends after the last row of the last group: the simulator reports a read past it.
  for (const std::int64_t d : head_dims())
    for (const std::int64_t Nq : {1, 7, 33})
      for (const std::int64_t G : {2, 5}) {
        const Input given = input("normal", grouped(1, 1, G, Nq, 70, d), 22);
        const worker::Reply reply = expect_group(given, always).reply;
        if (reply.counters.empty()) continue;  // nothing counts on the GPU
        expect_count(
            reply, "Q.async_bytes", double(G * Nq * d * 2),
            fmt::format("each of {} rows of Q is read once, d={}", G * Nq, d),
            "your code reads rows that do not exist, or reads a row twice; it must read each existing row once",
            "traffic");
      }
}

// ---- 14.4 the mask of packed rows ----

TEST_CASE("the visible keys and K/V tiles depend on the queries of the rows", "[14.4]") {
  constexpr std::int64_t Br = 32, Bc = 32;
  for (const std::int64_t heads : {1, 3, 8}) {
    for (const auto& [Nq, Nk] : {std::pair{40, 40}, {20, 90}, {90, 20}, {1, 100}, {100, 64}}) {
      for (const bool causal : masks()) {
        const std::int64_t rows = heads * Nq;
        const auto seen = [&](std::int64_t row) { return visible_keys(row / heads, Nq, Nk, causal); };
        worker::Call request("visible");
        request.number("heads", double(heads)).number("Nq", double(Nq)).number("Nk", double(Nk));
        request.number("causal", causal).number("Br", double(Br));
        request.output<std::int32_t>("keys", std::size_t(rows));
        request.output<std::int32_t>("tiles", std::size_t(tiles_of(rows, Br)));
        const worker::Reply reply = call(request);
        const std::string of = fmt::format("{} heads, Nq={}, Nk={}, causal={}", heads, Nq, Nk, causal ? "yes" : "no");
        const auto keys = reply.output<std::int32_t>("keys");
        for (std::int64_t row = 0; row < rows; ++row)
          expect(keys[std::size_t(row)] == seen(row),
                 fmt::format("your code returns {} visible keys for packed row {}, which is query {}; expected {}; {}",
                             keys[std::size_t(row)], row, row / heads, seen(row), of));
        std::int64_t first = 0;
        for (const std::int32_t tiles : reply.output<std::int32_t>("tiles")) {
          const std::int64_t last = std::min(first + Br, rows) - 1, needed = tiles_of(seen(last), Bc);
          expect(tiles == needed,
                 fmt::format("your code returns {} K/V tiles of {} keys for packed rows {} to {}, expected {}; {}",
                             tiles, Bc, first, last, needed, of),
                 other_tiles, "packed-tiles");
          first += Br;
        }
      }
    }
  }
}

TEST_CASE("each packed row attends to the keys of its query", "[14.4]") {
  for (const std::int64_t G : {2, 3, 8})
    for (const auto& [Nq, Nk] : {std::pair{40, 40}, {20, 90}, {90, 20}, {1, 100}})
      expect_group(input("value mean", grouped(1, 1, G, Nq, Nk, 64), 30, true), always);
  expect_every_kind_in_groups(always);
}

TEST_CASE("a block reads exactly the K/V tiles that its last row needs", "[14.4]") {
  require_counters();
  for (const std::int64_t d : head_dims())
    for (const std::int64_t G : {1, 3, 8})
      for (const auto& [Nq, Nk] : {std::pair{70, 70}, {60, 64}, {40, 200}, {200, 40}, {1, 100}})
        for (const bool causal : masks())
          expect_keys_read(input("normal", grouped(1, 2, G, Nq, Nk, d), 31, causal).problem,
                           small_tiles(d, packing(always)), always, G, other_tiles, "packed-tiles");
}

TEST_CASE("fully masked rows give O = 0 and LSE = -inf, never NaN", "[14.4]") {
  expect_rows_without_keys();
  for (const std::int64_t G : {2, 5}) expect_group(input("value mean", grouped(1, 1, G, 70, 30, 64), 32, true), always);
}

// ---- 14.5 store_rows ----

TEST_CASE("every element of O and of the LSE is written exactly once", "[14.5]") {
  for (const std::int64_t d : head_dims())
    for (const std::int64_t Nq : {1, 7, 33, 64})
      for (const std::int64_t G : {2, 3, 8}) expect_group(input("value mean", grouped(2, 2, G, Nq, 40, d), 40), always);
  expect_every_kind_in_groups(always);
}

TEST_CASE("O is written 16 bytes per lane", "[14.5]") {
  expect_wide_O();
  require_counters();
  for (const std::int64_t d : head_dims()) {
    const Problem problem = input("normal", grouped(1, 2, 8, 64, 64, d), 41).problem;
    expect_wide(attention(problem, usual_tiles(d, packing(always)).numbers()).reply, "O", "store",
                double(16 * 64 * d * 2), fmt::format("O is written once, packed, d={}", d));
  }
}

// ---- 14.6 when packing pays ----

TEST_CASE("a single query is packed, a long sequence is not", "[14.6]") {
  expect_every_kind_in_groups(0);
  require_counters();
  const Tiles tiles = usual_tiles(64);
  const auto with = [](std::int64_t Nq) { return input("normal", grouped(1, 2, 8, Nq, 256, 64), 50).problem; };
  // Packed or not, 128 queries of 8 heads are 8 tiles. What differs is the LSE: adjacent rows of one head share
  // their sectors of 32 bytes.
  const auto in_packs = [&](std::int64_t Nq) {
    const worker::Reply reply = attention(with(Nq), tiles.numbers()).reply;
    return counter(reply, "lse.store_sectors") * 4 > counter(reply, "lse.store_bytes") / 4;
  };
  for (const auto& [Nq, packed] : {std::pair{1, 8}, {16, 8}, {tiles.Br, 1}, {2 * tiles.Br, 1}}) {
    if (Nq >= tiles.Br)
      expect(
          !in_packs(Nq),
          fmt::format("your code packs the heads although {} queries of one head fill whole Q tiles of {} rows", Nq,
                      tiles.Br),
          "your code packs heads even if packing does not raise the fill ratio; it must pack only if fill(Nq) < 0.9 · "
          "fill(G·Nq)",
          "packed-without-need");
    const bool whole_alone = Nq == 1 && in_packs(16);
    expect_keys_read(with(Nq), tiles, 0, packed,
                     whole_alone
                         ? "your code computes the fill ratio by integer division, so it is 0 or 1; it must divide "
                           "in `double`"
                         : "your code does not pack heads although a Q tile of one head is nearly empty; it "
                           "must pack them if fill(Nq) < 0.9 · fill(G·Nq)",
                     whole_alone ? "shares-in-integers" : "not-packed");
  }
}

TEST_CASE("heads are packed where the fill ratio rises by more than a ninth", "[14.6]") {
  require_counters();
  for (const std::int64_t G : {2, 3, 4, 8}) {
    const Tiles tiles = small_tiles(64);
    for (std::int64_t Nq = 1; Nq <= 3 * tiles.Br; Nq += 5) {
      const auto used = [&](std::int64_t rows) { return double(rows) / double(tiles_of(rows, tiles.Br) * tiles.Br); };
      const bool pays = used(Nq) < 0.9 * used(G * Nq);
      expect_keys_read(input("uniform", grouped(1, 1, G, Nq, 64, 64), 51).problem, tiles, 0, pays ? G : 1,
                       "your code packs heads by another rule; it must pack them if fill(Nq) < 0.9 · fill(G·Nq)",
                       "packing-rule");
    }
  }
}

TEST_CASE("packing can be forced and disabled", "[14.6]") {
  require_counters();
  const Tiles tiles = small_tiles(64);
  // By the rule the first are packed; the others are not: 19 tiles instead of 20 save too little.
  for (const auto& [G, Nq] : {std::pair{8, 1}, {2, 9 * 32 + 16}})
    for (const int pack : {never, always})
      expect_keys_read(
          input("uniform", grouped(1, 1, G, Nq, 32, 64), 52).problem, tiles, pack, pack == always ? G : 1,
          "your code ignores `packing`; it must return 1 head for `Packing::never` and the whole group for "
          "`Packing::always`, whatever the rule says",
          "packing-ignored");
}

// ---- The whole chapter ----

TEST_CASE("grouped queries agree with the oracle", "[whole]") {
  expect_every_kind();
  for (const int pack : {0, never, always}) {
    expect_every_kind_in_groups(pack);
    for (const bool causal : masks())
      for (const std::int64_t d : head_dims())
        for (const std::int64_t G : {2, 8})
          expect_right(input("rising maximum", grouped(2, 2, G, 37, 100, d), 100, causal),
                       usual_tiles(d, packing(pack)));
  }
}

TEST_CASE("bf16 agrees with the oracle", "[whole]") {
  expect_element(bfloat16);
  for (const int pack : {never, always})
    for (const bool causal : masks())
      for (const std::int64_t d : head_dims())
        expect_group(input("normal", grouped(1, 2, 3, 37, 100, d), 101, causal), pack, bfloat16);
}

TEST_CASE("any group and any two lengths agree with the oracle", "[whole]") {
  expect_any_two_lengths();
  std::uint64_t seed = 102;
  for (const std::int64_t G : {1, 2, 3, 5, 7, 8, 16})
    for (const auto& [Nq, Nk] : {std::pair{1, 1}, {1, 130}, {31, 33}, {65, 64}, {7, 3}})
      for (const bool causal : masks()) {
        ++seed;
        expect_group(input("normal", grouped(1, 1 + G % 2, G, Nq, Nk, 64), seed, causal), int(seed % 3));
      }
}

TEST_CASE("packed or not, O and the LSE are the same, bit for bit", "[whole]") {
  for (const bool causal : masks()) {
    for (const std::int64_t d : head_dims()) {
      const Problem problem = input("normal", grouped(1, 2, 4, 37, 100, d), 103, causal).problem;
      const auto with = [&](int pack) { return attention(problem, small_tiles(d, packing(pack)).numbers()); };
      const AttentionResult apart = with(never), together = with(always);
      expect_written(apart.O.values[0], "O");
      expect(apart.O.values == together.O.values && apart.lse.values == together.lse.values,
             fmt::format("O or the LSE of packed rows differs from that of unpacked rows, d={}, causal={}", d, causal),
             "your result for a row depends on the other rows of its Q tile; it must depend on its own query only",
             "rows-mixed");
    }
  }
}

TEST_CASE("Q, K and V are read, and O and the LSE written, as often as the formulas say", "[whole]") {
  expect_moves();
  require_counters();
  // B·Hkv·⌈G·Nq/Br⌉ tiles of rows read K and V, which is 4·Nk·d bytes.
  for (const auto& [G, Nq] : {std::pair{8, 1}, {4, 1}, {8, 40}, {3, 200}}) {
    for (const std::int64_t d : head_dims()) {
      const Tiles tiles = usual_tiles(d);  // it pays in all of these
      const Problem problem = input("normal", grouped(2, 2, G, Nq, 200, d), 104).problem;
      const worker::Reply reply = attention(problem, tiles.numbers()).reply;
      const double bytes = double(2 * 2 * tiles_of(G * Nq, tiles.Br)) * 4 * 200 * double(d);
      expect(counter(reply, "K.async_bytes") + counter(reply, "V.async_bytes") == bytes,
             fmt::format("K and V are read in {} bytes, expected B·Hkv·⌈G·Nq/Br⌉·4·Nk·d = {}, G={}, Nq={}, d={}",
                         counter(reply, "K.async_bytes") + counter(reply, "V.async_bytes"), bytes, G, Nq, d),
             "your code does not read K and V once per Q tile of packed rows; each Q tile must read them once",
             "traffic");
    }
  }
}

const Claims of_the_whole = {
    {"[whole]", "offsets may exceed 32 bits", [] { expect_offsets_beyond_32_bits(); }},
    {"[whole]", "future positions have zero influence", [] { expect_no_future(); }},
    {"[whole]", "a row's answer depends on no other row of Q", [] { expect_rows_independent(); }},
    {"[whole]", "results do not depend on workers or lane order", [] { expect_order_changes_nothing(); }},
    {"[whole]", "50 runs are bitwise equal", [] { expect_repeatable(50); }},
    {"[whole]", "the tiles fit 64, 99, 163 and 227 KB of shared memory", [] { expect_tiles_for_every_size(); }},
    {"[whole]", "extra memory does not grow with N", [] { expect_no_extra_memory(); }},
};
