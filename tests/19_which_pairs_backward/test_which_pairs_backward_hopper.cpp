// Chapter 19: which pairs count in chapter 13's kernel: the steps of a block, the mask from the side of the keys, P and
// what stays for dS, and gradients under every mask.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/15_which_pairs/asked_gradients.hpp"

using namespace workbook;
using namespace workbook::test;
using namespace workbook::test::gradients;

namespace {

constexpr Moves moves{.in = "bulk_load", .out = "bulk_store", .whole_tiles = true, .added_by_threads = false};

BackwardResult expect_masked(const std::string& kind, const Shape& shape, std::uint64_t seed, const Mask& mask,
                             const std::vector<std::string>& which = all_gradients, const Numbers& variant = {}) {
  return expect_right(masked(kind, shape, seed, mask), which, {.variant = variant});
}

worker::Call seen(const char* operation, const Window& w) {
  worker::Call request(operation);
  request.number("Nq", double(w.Nq)).number("Nk", double(w.Nk)).number("left", double(w.left));
  request.number("right", double(w.right));
  return request;
}

/// A sequence of a head: its mask, where its rows begin, and where its padded rows do.
struct OneSequence {
  Window window;
  std::int64_t first, padded;
};
std::vector<OneSequence> sequences_of(const Window& w, const std::vector<std::int64_t>& lengths) {
  if (lengths.empty()) return {{w, 0, 0}};
  std::vector<OneSequence> sequences;
  std::int64_t first = 0, padded = 0;
  for (const std::int64_t length : lengths) {
    sequences.push_back({{length, length, w.left, w.right}, first, padded});
    first += length, padded += tiles_of(length, 128) * 128;
  }
  return sequences;
}

/// The steps of all blocks are what is counted pair by pair; column blocks of 128 keys, row blocks of 64 queries.
void expect_steps(const Window& w, const std::vector<std::int64_t>& lengths, std::int64_t kv_heads, std::int64_t group,
                  std::int64_t heads_at_once) {
  const std::vector<OneSequence> sequences = sequences_of(w, lengths);
  std::int64_t column_blocks = 0, padded = 0;
  std::vector<std::int32_t> starts;
  for (const OneSequence& each : sequences) {
    column_blocks += tiles_of(each.window.Nk, 128), padded = each.padded + tiles_of(each.window.Nq, 128) * 128;
    starts.push_back(std::int32_t(each.first));
  }
  if (!lengths.empty()) starts.push_back(std::int32_t(sequences.back().first + lengths.back()));
  const std::int64_t most = group * tiles_of(w.Nq, 64) + 1, blocks = column_blocks * kv_heads, size = 3 + 4 * most;
  worker::Call request = seen("steps", w);
  request.number("kv_heads", double(kv_heads)).number("group", double(group)).number("most", double(most));
  request.number("heads_at_once", double(heads_at_once)).number("column_blocks", double(column_blocks));
  request.number("padded", double(padded)).number("count", double(blocks)).input("starts", starts);
  request.output<std::int32_t>("numbers", std::size_t(blocks * size));
  const auto numbers = call(request).output<std::int32_t>("numbers");
  std::vector<std::vector<std::int32_t>> got, must;
  for (std::int64_t b = 0; b < blocks; ++b)
    got.emplace_back(numbers.begin() + std::ptrdiff_t(b * size), numbers.begin() + std::ptrdiff_t((b + 1) * size));
  for (std::int64_t kv = 0; kv < kv_heads; ++kv)
    for (const auto& [of, first, padded_first] : sequences)
      for (std::int64_t key = 0; key < of.Nk; key += 128) {
        std::vector<std::int32_t> block{std::int32_t(kv), std::int32_t(first), std::int32_t(key)};
        for (std::int64_t head = kv * group; head < (kv + 1) * group; ++head)
          for (std::int64_t n = 0; n < tiles_of(of.Nq, 64); ++n) {
            std::int64_t last_seen = -1;
            bool visited = false;
            for (std::int64_t i = 64 * n; i < std::min(of.Nq, 64 * n + 64); ++i) {
              if (of.first(i) < of.last(i)) last_seen = std::max(last_seen, of.last(i) - 1);
              for (std::int64_t j = key; j < std::min(of.Nk, key + 128); ++j) visited = visited || of.sees(i, j);
            }
            if (!visited) continue;
            for (const std::int64_t each :
                 {head, n, head * padded + padded_first + 64 * n, last_seen / 128 - key / 128})
              block.push_back(std::int32_t(each));
          }
        block.resize(std::size_t(size), -1);
        must.push_back(block);
      }
  std::ranges::sort(got), std::ranges::sort(must);
  for (std::size_t b = 0; b < got.size(); ++b)
    expect(got[b] == must[b],
           fmt::format("a block says: {}, and it has to be {} (its head of K and V, the first row of its sequence, its "
                       "first key; of each step head, row block, padded row and turn, -1: none), {}, lengths {}, "
                       "group {}",
                       fmt::join(got[b], " "), fmt::join(must[b], " "), w.text(), fmt::join(lengths, " "), group),
           "a block's steps are not all row blocks of its heads of Q of which some query sees one of its keys",
           "steps");
}
void expect_all_steps() {
  for (const Window& w : windows) expect_steps(w, {}, 1, 1, 1);
  for (const std::int64_t group : {1, 3}) {
    expect_steps({200, 400, no_end, 0}, {}, 3, group, 2);
    expect_steps({400, 200, 100, 40}, {}, 2, group, 1);
    expect_steps({360, 360, no_end, no_end}, {100, 0, 1, 130, 129}, 2, group, 2);
    expect_steps({360, 360, 30, 3}, {100, 0, 1, 130, 129}, 1, group, 1);
  }
}

/// Whether pairs of a window count, in the tile of 64 keys and 128 queries from these on.
void expect_pairs(const Window& w, std::int64_t first_key, std::int64_t first_query) {
  worker::Call request = seen("pairs", w);
  request.number("first_key", double(first_key)).number("first_query", double(first_query));
  request.output<std::int32_t>("numbers", 64 * 128);
  const auto numbers = call(request).output<std::int32_t>("numbers");
  for (std::int64_t row = 0; row < 64; ++row)
    for (std::int64_t column = 0; column < 128; ++column) {
      const std::int64_t key = first_key + row, query = first_query + column;
      if (query >= w.Nq) continue;  // its LSE is +inf
      const bool counts = w.sees(query, key), said = numbers[std::size_t(row * 128 + column)] != 0;
      expect(said == counts,
             fmt::format("the pair of query {} and key {} {}, and {}: {}", query, key,
                         said ? "counts" : "does not count", counts ? "it has to" : "it must not", w.text()),
             "the queries that a thread has for one of its keys are not those that see it", "pairs");
    }
}

void expect_row_blocks(const Input& in) {
  const Problem& problem = in.given.problem;
  const Sizes sizes = usual_sizes(problem.shape.d);
  const worker::Reply reply = backward(in.given, sizes.numbers()).reply;
  const BlockCount count = count_seen(problem.mask, problem.shape, sizes);
  const double heads = double(problem.shape.B * problem.shape.H), tile = double(sizes.passing * problem.shape.d * 2),
               must = heads * double(count.visited) * tile;
  for (const char* tensor : {"Q", "dO"}) {
    const std::string name = fmt::format("{}.bulk_load_bytes", tensor);
    const bool more = counter(reply, name) > must;
    expect_count(reply, name, must,
                 fmt::format("{} row blocks of the column blocks of a head have a query that sees a key, {}, {}",
                             count.visited, describe(problem), sizes.text()),
                 more ? "row blocks of which no query sees any key of the column block are not skipped"
                      : "row blocks are skipped of which some query sees a key of the column block",
                 more ? "tiles-not-skipped" : "tiles-skipped");
  }
  // Heads of a group are masked alike, and a block's note counts once.
  const double notes = counter(reply, "note.masked tile"),
               masks = double(problem.shape.B * problem.shape.Hkv * count.masked);
  expect(notes == masks,
         fmt::format("{} row blocks were masked, and {} have to be ({}, {})", notes, masks, describe(problem),
                     sizes.text()),
         notes > masks ? "row blocks of which every query sees every key need no mask"
                       : "a row block needs a mask if one of its pairs does not count",
         notes > masks ? "masked-too-much" : "masked-too-little");
}

}  // namespace

// ---- 19.1 the steps of a block ----

TEST_CASE("a block's steps are all row blocks that see its keys, head after head", "[19.1]") {
  expect_all_steps();
  for (const std::int64_t d : head_dims())
    expect_right(heads_apart("normal", {1, 4, 2, 150, 200, d}, 10, Mask::within(60, 20), float16));
}

// ---- 19.2 full row blocks ----

TEST_CASE("the queries that see all of some keys", "[19.2]") {
  for (const Window& w : windows)
    for (const auto& [keys, queries] : {std::pair{64, 128}, {64, 64}, {16, 64}, {1, 16}}) {
      const std::int64_t count = tiles_of(w.Nk, keys), row_blocks = tiles_of(w.Nq, queries), size = 2 + row_blocks;
      worker::Call request = seen("full_queries", w);
      request.number("keys", keys).number("queries", queries).number("count", double(count));
      request.number("row_blocks", double(row_blocks)).output<std::int32_t>("numbers", std::size_t(count * size));
      const auto numbers = call(request).output<std::int32_t>("numbers");
      for (std::int64_t b = 0; b < count; ++b) {
        const auto sees_all = [&, first = b * keys, number = keys](std::int64_t query) {
          return w.sees(query, first) && w.sees(query, first + number - 1);
        };
        const std::int32_t* const got = &numbers[std::size_t(b * size)];
        for (std::int64_t i = 0; i < w.Nq; ++i)
          expect((got[0] <= i && i < got[1]) == sees_all(i),
                 fmt::format("queries {} to {} are said to see all keys {} to {}: query {} {}, {}", got[0], got[1] - 1,
                             b * keys, (b + 1) * keys - 1, i, sees_all(i) ? "does, too" : "does not", w.text()),
                 "the queries are not those that see both the first and the last key", "full");
        for (std::int64_t n = 0; n < row_blocks; ++n) {
          bool all = true;
          for (std::int64_t i = n * queries; i < std::min<std::int64_t>(w.Nq, (n + 1) * queries); ++i)
            all = all && sees_all(i);
          expect((got[2 + n] != 0) == all,
                 fmt::format("queries {} to {} {} all see keys {} to {}, {}", n * queries,
                             std::min<std::int64_t>(w.Nq, (n + 1) * queries) - 1,
                             all ? "do, and are said not to," : "do not, and are said to,", b * keys,
                             (b + 1) * keys - 1, w.text()),
                 "a row block is full if all of its queries that exist are among those", "full");
        }
      }
    }
  expect_right(masked("normal", {1, 1, 1, 300, 300, 64}, 20, Mask::within(150, 20)));
}

// ---- 19.3 the mask from the side of the keys ----

TEST_CASE("each pair of a partial tile counts or does not", "[19.3]") {
  for (const Window& w : windows)
    for (std::int64_t key = 0; key < w.Nk; key += 64)
      for (std::int64_t query = 0; query < w.Nq; query += 64) expect_pairs(w, key, query);
  std::uint64_t seed = 30;
  for (const std::int64_t d : head_dims())
    for (const Window& w : {windows[4], windows[5], windows[7]})
      expect_masked("normal", {1, 1, 1, w.Nq, w.Nk, d}, ++seed, Mask::within(w.left, w.right));
  expect_uncounted_pairs();
  expect_no_keys_behind();
}

// ---- 19.4 P, and what stays for dS ----

TEST_CASE("P is recomputed from the changed score", "[19.4]") {
  std::uint64_t seed = 130;
  for (const float cap : {4.0f, 0.0f})
    for (const Mask& mask : {Mask(Mask::none), Mask::within(30, 20)})
      expect_masked("normal", {1, 2, 2, 70, 90, 64}, ++seed, changed(mask, cap, true));
  for (const std::int64_t d : head_dims())
    expect_masked("value mean", {1, 3, 3, 70, 150, d}, ++seed, changed(Mask::causal, 4, true));
  expect_P_from_the_lse();
}

TEST_CASE("dS takes the derivative of a capped score", "[19.4]") {
  std::uint64_t seed = 100;
  for (const float cap : {1.5f, 20.0f})
    for (const char* kind : {"normal", "value mean", "large logits"})
      expect_masked(kind, {1, 1, 1, 40, 70, 64}, ++seed, changed(Mask::causal, cap, false));
  expect_masked("normal", {1, 1, 1, 40, 70, 128}, ++seed, changed(Mask::within(30, 5), 4, true));
  // Far beyond what a float can hold as e^2x.
  expect_right(with_scale("large logits", {1, 1, 1, 40, 70, 64}, 121, changed(Mask::causal, 3, false), 2));
}

const Claims of_19_4 = {
    {"[19.4]", "each query has its own LSE and D", [] { expect_own_lse_and_D(); }},
};

// ---- 19.5 the producer's places ----

TEST_CASE("every tile arrives, with what its queries bring", "[19.5]") {
  std::uint64_t seed = 200;
  for (const std::int64_t d : head_dims()) {
    expect_right(heads_apart("value mean", {2, 4, 2, 150, 200, d}, ++seed, Mask(Mask::none), float16));
    expect_right(
        heads_apart("value mean", {1, 2, 2, 230, 230, d}, ++seed, packed(Mask::causal, {100, 0, 1, 64, 65}), float16));
  }
}

// ---- 19.6 dQ's place and turn ----

TEST_CASE("every row block's dQ reaches the sum", "[19.6]") {
  std::uint64_t seed = 240;
  expect_all_steps();
  for (const std::int64_t d : head_dims()) {
    expect_masked("normal", {1, 2, 1, 300, 260, d}, ++seed, Mask::within(130, 40), {"dQ"});
    expect_masked("normal", {1, 2, 2, 230, 230, d}, ++seed, packed(Mask::none, {100, 0, 1, 129}), {"dQ"});
  }
}

const Claims of_19_6 = {
    {"[19.6]", "each column block ends its turn", [] { expect_turns(false); }},
};

// ---- The whole chapter ----

const Claims of_the_whole = {
    {"[whole]", "the gradients agree with the oracle", [] { expect_every_kind_whole(); }},
};

TEST_CASE("all masks and changes of scores agree with the oracle", "[whole]") {
  std::uint64_t seed = 300;
  for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal), Mask::within(50, 0), Mask::within(20, 30)})
    for (const float softcap : {0.0f, 5.0f})
      for (const bool alibi : {false, true})
        for (const std::int64_t d : head_dims()) {
          const Mask both = changed(mask, softcap, alibi);
          seed += 2;
          expect_masked("normal", {1, 2, 2, 70, 133, d}, seed, both);
          expect_masked("rising maximum", {1, 2, 2, 150, 64, d}, seed + 1, with_sink(both, 2));
        }
  for (const std::int64_t d : head_dims())
    expect_masked("normal", {1, 2, 2, 230, 230, d}, 350,
                  with_sink(packed(changed(Mask::within(40, 9), 5, true), {100, 0, 1, 64, 65}), 2));
}

TEST_CASE("heads that share K and V have the oracle's gradients, whatever the mask", "[whole]") {
  std::uint64_t seed = 330;
  for (const std::int64_t d : head_dims())
    for_every_mask_and_group(d, [&](const Shape& shape, const Mask& mask) {
      expect_right(heads_apart("value mean", shape, ++seed, mask, float16));
      expect_right(heads_apart("value mean", shape, seed, mask, bfloat16), all_gradients, {}, {}, bfloat16);
      expect_right(heads_apart("value mean", shape, seed, mask, float16), all_gradients, usual_sizes(d, by_turns));
      if (!mask.sink.empty()) expect_dsink(heads_apart("value mean", shape, seed, mask, float16));
    });
  // Through the batch, by several column blocks and row blocks.
  const Mask rich = with_sink(changed(Mask::within(100, 0), 5, true), 6, -1.0f);
  for (const Numbers& variant : {Numbers(), by_turns})
    expect_right(heads_apart("normal", {2, 6, 2, 150, 300, 64}, 340, rich, float16), all_gradients,
                 usual_sizes(64, variant));
}

TEST_CASE("bf16 agrees with the oracle", "[whole]") {
  expect_bf16();
  for (const std::int64_t d : head_dims()) {
    const Mask all = with_sink(changed(Mask::within(40, 9), 5, true), 2);
    expect_right(masked("normal", {1, 2, 2, 70, 133, d}, 360, all, bfloat16), all_gradients, {}, {}, bfloat16);
    expect_right(masked("normal", {1, 2, 2, 100, 100, d}, 361, packed(all, {63, 0, 37}), bfloat16), all_gradients, {},
                 {}, bfloat16);
  }
}

TEST_CASE("any two lengths agree with the oracle", "[whole]") {
  expect_any_two_lengths(129 * 300 * 64);
  std::uint64_t seed = 370;
  for (const auto& [Nq, Nk] : {std::pair{1, 1}, {1, 130}, {65, 64}, {7, 3}, {129, 200}, {300, 129}})
    for (const auto& [left, right] : {std::pair{0, 0}, {3, 2}, {64, 0}, {0, 64}})
      expect_masked("normal", {1, 1, 1, Nq, Nk, 64}, ++seed, Mask::within(left, right));
}

TEST_CASE("the sink's gradient agrees with the oracle", "[whole]") {
  std::uint64_t seed = 180;
  for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal)})
    for (const char* kind : {"uniform", "value mean"})
      expect_dsink(masked(kind, {2, 2, 2, 70, 40, 64}, ++seed, with_sink(mask, 2, 4)));
  for (const std::int64_t d : head_dims())
    expect_dsink(masked("value mean", {1, 2, 2, 130, 130, d}, ++seed,
                        with_sink(packed(changed(Mask::causal, 5, true), {33, 0, 97}), 2)));
}

TEST_CASE("packed sequences have the gradients that each has by itself", "[whole]") {
  for (const std::int64_t d : head_dims()) expect_sequences_as_alone(d);
  expect_sequences_as_alone(64, {130, 1, 0, 129});
}

const Claims of_the_whole_2 = {
    {"[whole]", "a neighbour changes no bit of a gradient", [] { expect_no_neighbour(); }},
};

TEST_CASE("row blocks pass by where a pair counts, and are masked where one does not", "[whole]") {
  require_counters();
  std::uint64_t seed = 435;
  for (const std::int64_t d : head_dims()) {
    for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal), Mask::within(64, 31), Mask::within(200, 0)})
      for (const std::int64_t Hkv : {1, 2}) expect_row_blocks(masked("normal", {1, 2, Hkv, 300, 333, d}, ++seed, mask));
    expect_row_blocks(masked("normal", {1, 1, 1, 300, 300, d}, ++seed, packed(Mask::within(64, 0), {100, 0, 200})));
  }
  for (const Window& w : windows)
    expect_row_blocks(masked("normal", {1, 1, 1, w.Nq, w.Nk, 128}, ++seed, Mask::within(w.left, w.right)));
}

TEST_CASE("keys that nobody sees have gradients of 0", "[whole]") {
  for (const std::int64_t d : head_dims())
    for (const Numbers& variant : {Numbers(), by_turns}) {
      const BackwardResult got =
          expect_masked("normal", {1, 2, 1, 40, 400, d}, 450, Mask::within(20, 0), all_gradients, variant);
      for (const auto& [name, tensor] : {std::pair{"dK", &got.dK}, {"dV", &got.dV}})
        expect(std::all_of(tensor->values.begin(), tensor->values.begin() + std::ptrdiff_t(340 * d),
                           [](float x) { return x == 0; }),
               fmt::format("{} of a key that no query sees is not 0, d={}", name, d),
               "a block whose keys nobody sees has to write zeros", "row-without-keys");
    }
}

const Claims of_the_whole_3 = {
    {"[whole]", "queries that see nothing have no part in any gradient", [] { expect_rows_without_keys(); }},
    {"[whole]", "future queries and keys have zero influence", [] { gradients::expect_no_future(); }},
    {"[whole]", "dQ differs from run to run, within its bounds; dK and dV do not", [] { expect_only_dQ_differs(); }},
    {"[whole]", "the order of lanes changes nothing but dQ's last bits", [] { expect_order_changes_only_dQ(); }},
    {"[whole]", "extra memory grows like N", [] { expect_extra_memory(8, 4); }},
};

TEST_CASE("by turns the gradients agree with the oracle", "[whole]") {
  expect_right_by_turns();
  std::uint64_t seed = 420;
  const Sizes sizes = usual_sizes(64, by_turns);
  for (const auto& [mask, H, Hkv] : {std::tuple{Mask::within(100, 0), 5, 5},
                                     {Mask::within(30, 150), 6, 2},
                                     {packed(Mask::causal, {100, 0, 200}), 5, 5},
                                     {packed(Mask::causal, {100, 0, 200}), 5, 1}}) {
    const Input in = masked("normal", {1, H, Hkv, 300, 300, 64}, ++seed, mask);
    const BackwardResult got = expect_right(in, all_gradients, sizes, {.workers = 1});
    expect_right(in, all_gradients, sizes, {.workers = 4});
    if (got.reply.counters.empty()) continue;
    std::int64_t tickets = mask.lengths.empty() ? tiles_of(300, sizes.owned) : 0;
    for (const std::int64_t length : mask.lengths) tickets += tiles_of(length, sizes.owned);
    const std::int64_t turns = count_seen(mask, in.given.problem.shape, sizes).visited;
    expect_count(
        got.reply, "turns.atomic_requests", double(H * turns + Hkv * tickets),
        fmt::format("{} turns in the row blocks of each head of Q, and {} tickets of each head of K and V, mask "
                    "{}",
                    turns, tickets, mask.name()),
        "a turn in a row block is ended more or less often than once", "turns");
  }
}

TEST_CASE("50 runs by turns are equal to the last bit", "[whole]") {
  expect_repeatable_by_turns(10);
  const Numbers numbers = usual_sizes(64, by_turns).numbers();
  const Mask mask = with_sink(changed(Mask::within(200, 0), 5, true), 2);
  const BackwardProblem given = masked("normal", {1, 2, 1, 40, 300, 64}, 430, mask).given;
  const BackwardResult first = backward(given, numbers);
  for (int run = 2; run <= 50; ++run) {
    const BackwardResult next = backward(given, numbers);
    expect(same_bits(next, first) && next.dsink.values == first.dsink.values,
           fmt::format("a gradient of run {} is not that of the first", run),
           "column blocks add to dQ in another order, or something is read before it is written", "not-repeatable");
  }
}

TEST_CASE("dK and dV are written once, without additions", "[whole]") {
  require_counters();
  for (const auto& [mask, H] : {std::pair{Mask(Mask::causal), 2},
                                {packed(Mask::none, {100, 0, 33, 67}), 2},
                                {packed(Mask::within(40, 3), {100, 0, 33, 67}), 6}}) {
    const worker::Reply reply =
        backward(masked("normal", {2, H, 2, 200, 200, 64}, 440, mask).given, usual_sizes(64).numbers()).reply;
    for (const char* tensor : {"dK", "dV"}) {
      expect_count(reply, fmt::format("{}.atomic_requests", tensor), 0, fmt::format("{} is not added to", tensor),
                   "parts of a sum are added up in device memory: one block forms it in registers",
                   "gradients-by-atomics");
      expect_count(reply, fmt::format("{}.bulk_store_bytes", tensor), 4 * 200 * 64 * 2,
                   fmt::format("B·Hkv·Nk·d elements, each written once, H={}, Hkv=2, mask {}", H, mask.name()),
                   "dK or dV is written more or less often than once", "traffic");
    }
  }
}
