// Chapter 15: which pairs count, and what becomes of a score.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "tests/15_which_pairs/mask_cases.hpp"
#include "tests/15_which_pairs/packed_sequences.hpp"
#include "tests/support/forward_properties.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

// ---- Inputs ----

/// On small tiles.
AttentionResult expect_masked(const std::string& kind, const Shape& shape, std::uint64_t seed, const Mask& mask) {
  return expect_right(masked(kind, shape, seed, mask), small_tiles(shape.d));
}
/// Kinds of input that tell masks apart, and those whose scores a change of them may spoil.
void expect_some_kinds(const Shape& shape, std::uint64_t seed, const Mask& mask) {
  for (const char* kind : {"uniform", "normal", "value mean", "large logits"}) expect_masked(kind, shape, ++seed, mask);
}

worker::Reply ask(const char* operation, const Window& window, std::size_t numbers, std::int64_t Br = 0) {
  worker::Call request(operation);
  request.number("Nq", double(window.Nq)).number("Nk", double(window.Nk));
  request.number("left", double(window.left)).number("right", double(window.right)).number("Br", double(Br));
  request.output<std::int32_t>("numbers", numbers);
  return call(request);
}

}  // namespace

// ---- 15.1 the keys that a query sees ----

TEST_CASE("each query has the key range of its window", "[15.1]") {
  for (const Window& window : windows) {
    const auto numbers = ask("ranges", window, std::size_t(2 * window.Nq)).output<std::int32_t>("numbers");
    for (std::int64_t i = 0; i < window.Nq; ++i) {
      const std::int64_t first = numbers[std::size_t(2 * i)], last = numbers[std::size_t(2 * i + 1)];
      const bool none = window.last(i) <= window.first(i) && last <= first && first >= 0;
      expect(none || (first == window.first(i) && last == window.last(i)),
             fmt::format("your key range of query {} is {} to {}, expected {} to {}; {}", i, first, last - 1,
                         window.first(i), window.last(i) - 1, window.text()));
    }
  }
}

TEST_CASE("windows agree with the oracle", "[15.1]") {
  expect_every_kind_in_this_part();
  std::uint64_t seed = 10;
  for (const Window& w : {windows[3], windows[4], windows[5], windows[7]})
    expect_some_kinds({1, 1, 1, w.Nq, w.Nk, 64}, seed += 10, Mask::within(w.left, w.right));
}

// ---- 15.2 empty, full or partial ----

namespace {

const char* const class_names[] = {"empty", "full", "partial"};

int class_by_pairs(const Window& window, std::int64_t first_query, std::int64_t first_key) {
  std::int64_t seen = 0, queries = std::max<std::int64_t>(0, std::min<std::int64_t>(window.Nq - first_query, 32));
  for (std::int64_t i = 0; i < queries; ++i)
    for (std::int64_t j = 0; j < 32; ++j) seen += window.attends(first_query + i, first_key + j);
  return seen == 0 ? 0 : seen == 32 * queries ? 1 : 2;
}

}  // namespace

TEST_CASE("each tile is classified by all of its pairs", "[15.2]") {
  for (const Window& window : windows) {
    const std::int64_t rows = tiles_of(window.Nq, 32) + 1, columns = tiles_of(window.Nk, 32);
    const auto numbers = ask("classes", window, std::size_t(rows * columns)).output<std::int32_t>("numbers");
    for (std::int64_t n = 0; n < rows * columns; ++n) {
      const std::int64_t query = n / columns * 32, key = n % columns * 32;
      const int right = class_by_pairs(window, query, key), got = numbers[std::size_t(n)];
      expect(
          got == right,
          fmt::format("your code calls the tile of queries {} to {} and keys {} to {} {}, expected {}; {}", query,
                      std::min(query + 32, window.Nq) - 1, key, key + 31,
                      got >= 0 && got < 3 ? class_names[got] : "none of the three", class_names[right], window.text()));
    }
  }
  expect_every_kind_in_this_part();
}

TEST_CASE("a window of 512 reads 10 tiles for 128 queries, 4 of them masked", "[15.2]") {
  require_counters();
  const Tiles tiles = nearest_tiles(64, {128, 64});
  const Input given = masked("normal", {1, 1, 1, 128, 768, 64}, 21, Mask::within(512, 0));
  const worker::Reply reply = attention(given, tiles).reply;
  expect_count(reply, "K.async_bytes", 10 * 64 * 64 * 2,
               "the queries' diagonals are keys 640 to 767, so they attend to keys 128 to 767",
               "your code loads a K/V tile that no query of the block needs, or omits one that some query needs",
               "block-tiles");
  expect_count(reply, "note.masked tile", 4, "two tiles at either end of the window are partial",
               "your code masks a full tile, or does not mask a partial one; it must mask partial tiles only",
               "tile-called-partial");
}

TEST_CASE("a warp skips tiles that are empty for it", "[15.2]") {
  require_counters();
  for (const auto& [mask, warp_tiles] :
       {std::pair{Mask(Mask::causal), 1 + 1 + 2 + 2}, {Mask::within(32, 0), 1 + 1 + 2 + 1}}) {
    const Tiles tiles = nearest_tiles(64, {128, 64});
    const worker::Reply reply = attention(masked("normal", {1, 1, 1, 128, 128, 64}, 22, mask), tiles).reply;
    expect_count(
        reply, "tensor_instructions", double(warp_tiles * 2 * 2 * (64 / 8) * (64 / 16)),
        fmt::format("4 warps of 32 queries need {} K/V tiles of 64 keys together, {}", warp_tiles, mask.name()),
        "a warp of your code multiplies a tile that is empty for it; it must skip this tile", "tile-called-partial");
  }
}

// ---- 15.3 the tiles of a block ----

TEST_CASE("a thread block's K/V tiles cover the keys of all of its queries", "[15.3]") {
  std::vector<Window> all(std::begin(windows), std::end(windows));
  all.push_back({200, 64, unlimited, 0});  // the last key of the first thread block's last query would be -105
  for (const Window& window : all) {
    for (const std::int64_t Br : {32, 64}) {
      const std::int64_t blocks = tiles_of(window.Nq, Br);
      const auto numbers = ask("tiles", window, std::size_t(2 * blocks), Br).output<std::int32_t>("numbers");
      for (std::int64_t b = 0; b < blocks; ++b) {
        const std::int64_t first = window.first(b * Br) / 32,
                           last = tiles_of(
                               std::max<std::int64_t>(0, window.last(std::min((b + 1) * Br, window.Nq) - 1)), 32);
        const std::int64_t got_first = numbers[std::size_t(2 * b)], got_last = numbers[std::size_t(2 * b + 1)];
        if (last <= first && got_last <= got_first && got_last >= 0) continue;  // none
        expect(got_first == first && got_last == last,
               fmt::format("for queries {} to {} your code returns K/V tiles {} to {}, expected {} to {}; {}", b * Br,
                           std::min((b + 1) * Br, window.Nq) - 1, got_first, got_last - 1, first, last - 1,
                           window.text()));
      }
    }
  }
  expect_every_kind_in_this_part();
}

TEST_CASE("K and V are read only within the window", "[15.3]") {
  require_counters();
  for (const auto& [left, right] : {std::pair{100, 0}, {30, 30}}) {
    const Tiles tiles = small_tiles(64);
    const Input given = masked("normal", {1, 1, 1, 70, 300, 64}, 31, Mask::within(left, right));
    const Window window{70, 300, left, right};
    std::int64_t keys = 0;
    for (std::int64_t first = 0; first < 70; first += tiles.Br)
      keys += std::min<std::int64_t>(
                  300, tiles_of(window.last(std::min<std::int64_t>(first + tiles.Br, 70) - 1), tiles.Bc) * tiles.Bc) -
              window.first(first) / tiles.Bc * tiles.Bc;
    const AttentionResult result = attention(given, tiles);
    for (const char* tensor : {"K", "V"})
      expect_count(
          result.reply, fmt::format("{}.async_bytes", tensor), double(keys * 64 * 2),
          fmt::format("each thread block reads the K/V tiles from its first key to its last, {}", window.text()),
          "your code loads a K/V tile that no query of the block needs, or omits one that some query needs",
          "block-tiles");
  }
}

// ---- 15.4 partial tiles ----

TEST_CASE("each pair of a partial tile is masked correctly", "[15.4]") {
  std::uint64_t seed = 40;
  for (const Window& w : {windows[4], windows[6], windows[7], windows[8]})
    expect_masked("uniform", {1, 1, 1, w.Nq, w.Nk, 64}, ++seed, Mask::within(w.left, w.right));
  expect_masked("normal", {1, 1, 1, 70, 100, 128}, ++seed, Mask::within(40, 9));
  expect_masked("value mean", {1, 2, 2, 70, 100, 64}, ++seed, changed(Mask::within(40, 9), 0, true));
  expect_every_kind_in_this_part();
}

const Claims of_15_4 = {
    {"[15.4]", "fully masked rows give O = 0 and LSE = -inf, never NaN", [] { expect_rows_without_keys(); }},
    {"[15.4]", "a scale of any sign", [] { expect_any_scale(); }},
};

// ---- 15.5 ALiBi ----

TEST_CASE("ALiBi: scores fall with the distance", "[15.5]") {
  std::uint64_t seed = 50;
  for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal), Mask::within(30, 20)})
    for (const auto& [Nq, Nk] : {std::pair{70, 70}, {40, 90}})
      for (const char* kind : {"uniform", "normal"})
        expect_masked(kind, {1, 2, 2, Nq, Nk, 64}, ++seed, changed(mask, 0, true));
  expect_masked("normal", {1, 1, 1, 40, 70, 128}, ++seed, changed(Mask::none, 0, true));
  expect_every_kind_in_this_part();
}

TEST_CASE("each head has its slope", "[15.5]") {
  for (const std::int64_t H : {1, 3, 8})
    expect_masked("uniform", {2, H, H, 33, 64, 64}, 59, changed(Mask::causal, 0, true));
}

// ---- 15.6 softcap ----

TEST_CASE("softcap: no score exceeds the cap", "[15.6]") {
  std::uint64_t seed = 60;
  for (const float cap : {1.5f, 20.0f})
    for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal)})
      expect_some_kinds({1, 1, 1, 40, 70, 64}, seed += 10, changed(mask, cap, false));
  expect_masked("normal", {1, 1, 1, 40, 70, 128}, ++seed, changed(Mask::within(30, 5), 4, false));
  expect_every_kind_in_this_part();
}

TEST_CASE("large scores are capped on both sides", "[15.6]") {
  // One pair alone of which no float holds e^2x.
  Input one = masked("uniform", {1, 1, 1, 40, 70, 64}, 67, changed(Mask::none, 3, false));
  for (std::int64_t c = 0; c < 64; ++c) one.problem.Q(0, 0, 5, c) = one.problem.K(0, 0, 7, c) = 8;
  expect_right(one, small_tiles(64));
  for (const char* kind : {"large logits", "negative logits", "one hot"})
    expect_masked(kind, {1, 1, 1, 40, 70, 64}, 68, changed(Mask::none, 10, false));
  // Far beyond what a float can hold as e^2x.
  expect_right(with_scale(masked("large logits", {1, 1, 1, 40, 70, 64}, 69, changed(Mask::none, 3, false)), 8),
               small_tiles(64));
}

// ---- 15.7 the sink ----

TEST_CASE("the sink contributes to the LSE and not to O", "[15.7]") {
  std::uint64_t seed = 70;
  for (const float first : {-1.0f, 4.0f, 12.0f})
    for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal)})
      for (const char* kind : {"uniform", "normal", "value mean"})
        expect_masked(kind, {1, 2, 2, 40, 70, 64}, ++seed, with_sink(mask, 2, first));
  expect_masked("rising maximum", {2, 2, 2, 40, 70, 128}, ++seed, with_sink(Mask::within(30, 5), 2));
  expect_every_kind_in_this_part();
}

TEST_CASE("a fully masked row has its sink as LSE", "[15.7]") {
  expect_masked("value mean", {1, 2, 2, 70, 40, 64}, 79, with_sink(Mask::causal, 2));
}

// ---- 15.8 packed sequences ----

TEST_CASE("each thread block finds its sequence", "[15.8]") {
  for (const std::int64_t Br : {32, 128}) {
    for (const std::vector<std::int64_t>& lengths :
         {std::vector<std::int64_t>{100, 37}, {32, 64, 128, 1}, {1, 1, 1}, {129}, {300, 5, 128}}) {
      std::vector<std::int32_t> starts{0}, expected;
      for (const std::int64_t length : lengths) {
        for (std::int64_t tile = 0; tile < tiles_of(length, Br); ++tile)
          expected.insert(expected.end(), {starts.back(), std::int32_t(length), std::int32_t(tile)});
        starts.push_back(starts.back() + std::int32_t(length));
      }
      worker::Call request("sequences");
      request.number("Br", double(Br)).number("blocks", double(expected.size() / 3)).input("starts", starts);
      request.output<std::int32_t>("numbers", expected.size());
      const auto numbers = call(request).output<std::int32_t>("numbers");
      for (std::size_t at = 0; at < expected.size(); at += 3)
        expect(std::equal(&numbers[at], &numbers[at] + 3, &expected[at]),
               fmt::format("for block {} your code returns {{first {}, length {}, tile {}}}, expected {{{}, {}, {}}}; "
                           "lengths {}, Br={}",
                           at / 3, numbers[at], numbers[at + 1], numbers[at + 2], expected[at], expected[at + 1],
                           expected[at + 2], fmt::join(lengths, ", "), Br));
    }
  }
  expect_every_kind_in_this_part();
}

TEST_CASE("each packed sequence gives the same result as alone", "[15.8]") {
  for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal), changed(Mask::within(20, 3), 0, true)})
    expect_as_alone(mask, {50, 1, 33, 64}, 64, small_tiles(64));
}

TEST_CASE("other packed sequences change no bit of O", "[15.8]") {
  expect_independent_sequences(Mask::causal, 64, small_tiles(64));
}

// ---- The whole chapter ----

TEST_CASE("all masks and score modifications agree with the oracle", "[whole]") {
  expect_every_kind();
  std::uint64_t seed = 200;
  for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal), Mask::within(50, 0), Mask::within(20, 30)})
    for (const float softcap : {0.0f, 5.0f})
      for (const bool alibi : {false, true})
        for (const std::int64_t d : head_dims()) {
          const Mask both = changed(mask, softcap, alibi);
          seed += 2;
          expect_right(masked("normal", {1, 2, 2, 70, 133, d}, seed, both), alibi ? usual_tiles(d) : small_tiles(d));
          expect_masked("rising maximum", {1, 2, 2, 90, 64, d}, seed + 1, with_sink(both, 2));
        }
}

TEST_CASE("grouped heads agree with the oracle for every mask", "[whole]") {
  std::uint64_t seed = 220;
  for (const std::int64_t d : head_dims())
    for_every_mask_and_group(d, [&](const Shape& shape, const Mask& mask) {
      const Input given = masked("value mean", shape, ++seed, mask);
      expect_right(given, small_tiles(d));
      expect_right(given, usual_tiles(d), bfloat16);
    });
  // Through the batch, by several tiles of keys and of queries.
  expect_right(masked("normal", {2, 6, 2, 150, 200, 64}, 229, with_sink(changed(Mask::causal, 0, true), 6)));
}

TEST_CASE("bf16 agrees with the oracle", "[whole]") {
  expect_element(bfloat16);
  for (const std::int64_t d : head_dims())
    expect_right(masked("normal", {1, 2, 2, 70, 133, d}, 230, with_sink(changed(Mask::within(40, 9), 5, true), 2)),
                 small_tiles(d), bfloat16);
  expect_right(masked("normal", {1, 2, 2, 100, 100, 64}, 231, packed(Mask::causal, {63, 37})), {}, bfloat16);
}

TEST_CASE("any two lengths agree with the oracle", "[whole]") {
  expect_any_two_lengths();
  std::uint64_t seed = 240;
  for (const auto& [Nq, Nk] : {std::pair{1, 1}, {1, 130}, {31, 33}, {65, 64}, {7, 3}, {129, 200}})
    for (const auto& [left, right] : {std::pair{0, 0}, {3, 2}, {64, 0}, {0, 64}})
      expect_masked("normal", {1, 1, 1, Nq, Nk, 64}, ++seed, Mask::within(left, right));
}

TEST_CASE("without a mask and causal, O and the LSE equal chapter 14's, bit for bit", "[whole]") {
  // Two heads share K and V for the second time; chapter 14 does not pack their 256 rows.
  for (const auto& [Hkv, Nq, causal] : {std::tuple{2, 133, false}, {2, 133, true}, {1, 256, true}})
    for (const std::int64_t d : head_dims()) {
      const Problem problem = in_element(input("normal", {1, 2, Hkv, Nq, 150, d}, 250, causal).problem);
      const AttentionResult now = attention(problem, usual_tiles(d).numbers()), before = previous_attention(problem);
      expect_written(now.O.values[0], "O");
      expect(now.O.values == before.O.values && now.lse.values == before.lse.values,
             fmt::format("O or the LSE differs from that of chapter 14's kernel, d={}, {}", d, problem.mask.name()),
             "your code computes other values than chapter 14 without a mask or with the causal mask; they must be "
             "equal bit for bit",
             "other-bits");
    }
}

TEST_CASE("heads that share K and V read as much as separate heads", "[whole]") {
  require_counters();
  const Tiles tiles = small_tiles(64);
  for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal), Mask::within(40, 9)}) {
    const Input shared = masked("normal", {2, 4, 1, 70, 133, 64}, 255, mask);
    const Input own = masked("normal", {2, 4, 4, 70, 133, 64}, 255, mask);
    const worker::Reply reply = attention(shared, tiles).reply, must = attention(own, tiles).reply;
    for (const char* counted : {"Q.async_bytes", "K.async_bytes", "V.async_bytes", "O.store_bytes", "lse.store_bytes"})
      expect_count(reply, counted, counter(must, counted),
                   fmt::format("each head of Q has its own thread blocks, which read what they need, {}", mask.name()),
                   "a head of Q reads other tiles if it shares K and V; it must read the same tiles", "traffic");
  }
}

TEST_CASE("windows and packed sequences are read only by the thread blocks that need them", "[whole]") {
  require_counters();
  const Tiles tiles = small_tiles(64);
  const auto expect_keys = [&](const Input& given, std::int64_t keys, const std::string& why) {
    const worker::Reply reply = attention(given, tiles).reply;
    for (const char* tensor : {"K", "V"})
      expect_count(reply, fmt::format("{}.async_bytes", tensor), double(keys * 64 * 2), why,
                   "your code loads a K/V tile that no query of the block needs, or omits one that some query needs",
                   "traffic");
  };
  std::int64_t keys = 0;
  for (const std::int64_t length : {96, 37, 64}) keys += tiles_of(length, tiles.Br) * length;
  expect_keys(masked("normal", {1, 2, 2, 197, 197, 64}, 260, packed(Mask::none, {96, 37, 64})), 2 * keys,
              "each of the ⌈length/Br⌉ blocks of a sequence reads the keys of that sequence");
  // Blocks of 32 queries, which stand at keys 128 to 255: each begins 64 keys, two tiles, before its first query.
  expect_keys(masked("normal", {1, 1, 1, 128, 256, 64}, 261, Mask::within(64, 0)), 4 * 3 * 32,
              "each block of 32 queries needs three tiles of 32 keys");
}

const Claims of_the_whole = {
    {"[whole]", "offsets may exceed 32 bits", [] { expect_offsets_beyond_32_bits(); }},
    {"[whole]", "without a mask and causal, it reads what chapter 8 reads", [] { expect_moves(); }},
    {"[whole]", "future positions have zero influence", [] { expect_no_future(); }},
    {"[whole]", "a row's answer depends on no other row of Q", [] { expect_rows_independent(); }},
    {"[whole]", "results do not depend on workers or lane order", [] { expect_order_changes_nothing(); }},
    {"[whole]", "50 runs are bitwise equal", [] { expect_repeatable(50); }},
    {"[whole]", "the tiles fit 64, 99, 163 and 227 KB of shared memory", [] { expect_tiles_for_every_size(); }},
    {"[whole]", "extra memory does not grow with N", [] { expect_no_extra_memory(); }},
};
