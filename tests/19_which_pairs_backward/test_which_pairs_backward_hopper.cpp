// Chapter 19: chapter 15's masks in chapter 13's kernel: gradients under every mask, and what they cost. Its parts by
// themselves: test_pairs.cpp, test_probabilities.cpp and test_addresses.cpp.
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

#include "tests/15_which_pairs/mask_gradient_cases.hpp"

using namespace workbook;
using namespace workbook::test;
using namespace workbook::test::gradients;

namespace {

BackwardResult expect_masked(const std::string& kind, const Shape& shape, std::uint64_t seed, const Mask& mask,
                             const std::vector<std::string>& which = all_gradients, const Numbers& variant = {}) {
  return expect_right(masked(kind, shape, seed, mask), which, {.variant = variant});
}

/// Every kind of input once, every second one causal.
void expect_kinds(const std::vector<std::string>& which = all_gradients) {
  std::uint64_t seed = 2000;
  for (const InputKind& kind : input_kinds())
    expect_right(input(kind.name, {1, 1, 1, 40, 70, 64}, ++seed, {seed % 2 == 0}), which);
  for (const float scale : {-0.2f, 0.0f})
    expect_right(input("normal", {1, 1, 1, 40, 70, 64}, ++seed, {.scale = scale}), which);
  expect_right(input("value mean", {1, 1, 1, 70, 40, 64}, ++seed, {.causal = true}), which);
}

/// K/V tiles of which some query sees a key, of one head.
std::int64_t seen_kv_tiles(const Mask& mask, const Shape& shape, std::int64_t Bc) {
  std::int64_t blocks = 0;
  if (!mask.lengths.empty()) {
    Mask alone = mask;
    alone.lengths.clear();
    Shape one = shape;
    for (const std::int64_t length : mask.lengths) {
      one.Nq = one.Nk = length;
      blocks += seen_kv_tiles(alone, one, Bc);
    }
    return blocks;
  }
  for (std::int64_t first = 0; first < shape.Nk; first += Bc) {
    bool seen = false;
    for (std::int64_t i = 0; i < shape.Nq; ++i)
      mask.for_keys(shape, i, [&](std::int64_t key) { seen = seen || (first <= key && key < first + Bc); });
    blocks += seen;
  }
  return blocks;
}
/// Only Q tiles that hold a query which does not see all of a consumer's keys are masked. Heads of a group are
/// masked alike, and a block's note counts once.
void expect_masks(const worker::Reply& reply, const Input& in) {
  if (reply.counters.empty()) return;
  const Problem& problem = in.given.problem;
  const Sizes sizes = usual_sizes(problem.shape.d);
  const BlockCount count = count_blocks(problem.mask, problem.shape, sizes);
  const double notes = counter(reply, "note.masked tile"),
               masks = double(problem.shape.B * problem.shape.Hkv * count.masked);
  expect(notes == masks,
         fmt::format("your code masks {} Q tiles, expected {} ({}, {})", notes, masks, describe(problem), sizes.text()),
         notes > masks ? "your code masks a full Q tile; it must mask only Q tiles with a masked pair"
                       : "your code does not mask a partial Q tile; it must mask every Q tile with a masked pair",
         notes > masks ? "masked-too-much" : "masked-too-little");
}
/// Q and dO come once for each K/V tile that some query of a Q tile sees, with a line each; K and V once for
/// each K/V tile that some query sees, of each head of K and V. Of a K/V tile that nobody sees nothing comes.
worker::Reply expect_loads(const Input& in) {
  const Problem& problem = in.given.problem;
  const Shape& s = problem.shape;
  const Sizes sizes = usual_sizes(s.d);
  const worker::Reply reply = backward(in.given, sizes.numbers()).reply;
  const BlockCount count = count_blocks(problem.mask, s, sizes);
  const double rows = double(s.B * s.H * count.visited * sizes.Br), row = double(s.d * 2),
               keys = double(s.B * s.Hkv * seen_kv_tiles(problem.mask, s, sizes.Bc) * sizes.Bc);
  const std::string where = fmt::format("{}, {}", describe(problem), sizes.text());
  for (const char* tensor : {"Q", "dO"}) {
    const std::string name = fmt::format("{}.bulk_load_bytes", tensor);
    const bool more = counter(reply, name) > rows * row;
    expect_count(
        reply, name, rows * row,
        fmt::format("{} blocks of a Q tile and a K/V tile have an unmasked pair in each head, {}", count.visited,
                    where),
        more ? "your code does not skip Q tiles whose queries attend to none of the K/V tile's keys; it must skip them"
             : "your code skips a Q tile with an unmasked pair; it must process each of them",
        more ? "tiles-not-skipped" : "tiles-skipped");
  }
  for (const char* line : {"lse_log2", "D"})
    expect_count(reply, fmt::format("{}.bulk_load_bytes", line), rows * 4,
                 fmt::format("Br statistics are loaded with each Q tile, {}", where),
                 "your code does not load the statistics exactly once per tile; it must load them with each tile",
                 "traffic");
  for (const char* tensor : {"K", "V"})
    expect_count(
        reply, fmt::format("{}.bulk_load_bytes", tensor), keys * row,
        fmt::format("whole K/V tiles with an unmasked pair, of each K/V head, {}", where),
        "your code does not load each K/V tile with an unmasked pair exactly once, and no other; it must do so",
        "traffic");
  return reply;
}

}  // namespace

// ---- 19.1 the steps of a block ----

TEST_CASE("Q tiles of several heads contribute to dK and dV", "[19.1]") {
  std::uint64_t seed = 9;
  for (const std::int64_t d : head_dims()) {
    expect_right(heads_apart("normal", {1, 2, 1, 150, 200, d}, ++seed, Mask::within(60, 20), float16));
    expect_right(heads_apart("normal", {1, 3, 1, 20, 200, d}, ++seed, Mask::within(30, 0), float16));
  }
  expect_kinds();
}

// ---- 19.2 full Q tiles ----

TEST_CASE("a Q tile is masked if and only if one of its pairs is masked", "[19.2]") {
  // Of several K/V tiles, each by two consumers of 64 keys.
  for (const std::int64_t d : head_dims())
    for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal), Mask::within(150, 20)}) {
      const Input in = masked("normal", {1, 1, 1, 200, 270, d}, 20, mask);
      expect_masks(expect_right(in).reply, in);
    }
  expect_kinds();
}

// ---- 19.3 the mask from the side of the keys ----

TEST_CASE("each pair of a partial tile is masked correctly", "[19.3]") {
  std::uint64_t seed = 30;
  for (const std::int64_t d : head_dims())
    for (const Window& w : {windows[4], windows[5], windows[7]})
      expect_masked("normal", {1, 1, 1, w.Nq, w.Nk, d}, ++seed, Mask::within(w.left, w.right));
  expect_masked_pairs();
  expect_no_keys_past_the_end();
  expect_kinds();
}

// ---- 19.4 P, and what stays for dS ----

TEST_CASE("P is recomputed from the modified score", "[19.4]") {
  std::uint64_t seed = 130;
  for (const float cap : {4.0f, 0.0f})
    expect_masked("normal", {1, 2, 2, 70, 90, 64}, ++seed, changed(Mask::none, cap, true));
  for (const std::int64_t d : head_dims())
    expect_masked("value mean", {1, 3, 3, 70, 150, d}, ++seed, changed(Mask::causal, 4, true));
  for (const std::int64_t d : head_dims())
    for (const char* kind : {"normal", "value mean"}) expect_right(input(kind, {1, 1, 1, 70, 100, d}, ++seed));
  expect_kinds();
}

TEST_CASE("dS takes the derivative of a capped score", "[19.4]") {
  std::uint64_t seed = 100;
  for (const float cap : {1.5f, 20.0f})
    for (const char* kind : {"normal", "value mean"})
      expect_masked(kind, {1, 1, 1, 40, 70, 64}, ++seed, changed(Mask::causal, cap, false));
  expect_masked("normal", {1, 1, 1, 40, 70, 128}, ++seed, changed(Mask::within(30, 5), 4, true));
  // Far beyond what a float can hold as e^2x.
  expect_right(with_scale("large logits", {1, 1, 1, 40, 70, 64}, 121, changed(Mask::causal, 3, false), 2));
}

const Claims of_19_4 = {
    {"[19.4]", "each pair uses the LSE and D of its query", [] { expect_lse_and_D_of_query(); }},
};

// ---- 19.5 the producer's places ----

TEST_CASE("every tile arrives with its LSE and D", "[19.5]") {
  std::uint64_t seed = 200;
  for (const std::int64_t d : head_dims()) {
    expect_right(heads_apart("value mean", {2, 2, 1, 70, 150, d}, ++seed, Mask(Mask::none), float16));
    expect_right(masked("value mean", {1, 1, 1, 230, 230, d}, ++seed, packed(Mask::causal, {100, 0, 1, 64, 65})));
  }
  expect_kinds();
}

TEST_CASE("TMA loads each tile and its statistics once", "[19.5]") {
  require_counters();
  for (const std::int64_t d : head_dims())
    for (const Mask& mask : {Mask::within(64, 0), packed(Mask::causal, {100, 0, 33, 67})})
      expect_loads(masked("normal", {1, 2, 1, 200, 200, d}, 210, mask));
}

// ---- 19.6 the address of dQ, and its semaphore ----

TEST_CASE("every Q tile's dQ reaches the sum", "[19.6]") {
  std::uint64_t seed = 240;
  for (const std::int64_t d : head_dims()) {
    expect_masked("normal", {1, 2, 1, 200, 260, d}, ++seed, Mask::within(130, 40), {"dQ"});
    expect_masked("normal", {1, 1, 1, 230, 230, d}, ++seed, packed(Mask::none, {100, 0, 1, 129}), {"dQ"});
  }
  expect_kinds({"dQ"});
}

const Claims of_19_6 = {
    {"[19.6]", "each K/V tile releases its semaphore", [] { expect_semaphores(false); }},
};

// ---- The whole chapter ----

TEST_CASE("the gradients agree with the oracle", "[whole]") {
  std::uint64_t seed = 290;
  for (const InputKind& kind : input_kinds()) {
    const std::int64_t d = head_dims()[++seed / 2 % head_dims().size()];
    expect_right(input(kind.name, {1, 1, 1, 90, 140, d}, seed, {seed % 2 == 0}));
  }
  expect_kinds();
}

TEST_CASE("all masks and score modifications agree with the oracle", "[whole]") {
  std::uint64_t seed = 300;
  for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal), Mask::within(50, 0), Mask::within(20, 30)})
    for (const float softcap : {0.0f, 5.0f})
      for (const bool alibi : {false, true}) {
        const Mask both = changed(mask, softcap, alibi);
        seed += 2;
        const std::int64_t H = alibi ? 2 : 1;  // each head has its slope
        expect_masked("normal", {1, H, H, 40, 133, alibi ? 64 : 128}, seed, both);
        expect_masked("rising maximum", {1, 1, 1, 100, 64, alibi ? 128 : 64}, seed + 1, with_sink(both, 1));
      }
  for (const std::int64_t d : head_dims())
    expect_masked("normal", {1, 2, 2, 166, 166, d}, 350,
                  with_sink(packed(changed(Mask::within(40, 9), 5, true), {100, 0, 1, 65}), 2));
}

TEST_CASE("grouped heads' gradients agree with the oracle for every mask", "[whole]") {
  std::uint64_t seed = 330;
  for (const std::int64_t d : head_dims()) {
    std::int64_t number = d / 128;  // every second one with d = 64, the others with d = 128
    for_every_mask_and_group(d, [&](const Shape& shape, const Mask& mask) {
      if (shape.H == shape.Hkv || (shape.H == 8 && mask.sink.empty())) return;
      if (number++ % 2 == 1) return;
      const std::int64_t which = number / 2 % 3;  // fp16, deterministic and bf16 in rotation
      const Element element = which == 0 ? bfloat16 : float16;
      expect_right(heads_apart("value mean", shape, ++seed, mask, element), all_gradients,
                   which == 1 ? usual_sizes(d, deterministic_mode) : Sizes(), {}, element);
      if (!mask.sink.empty() && shape.H == 3) expect_dsink(heads_apart("value mean", shape, seed, mask, float16));
    });
  }
  // Through the batch, by several K/V tiles and Q tiles.
  const Mask rich = with_sink(changed(Mask::within(100, 0), 5, true), 2, -1.0f);
  expect_right(heads_apart("normal", {2, 2, 1, 140, 150, 64}, 340, rich, float16), all_gradients,
               usual_sizes(64, deterministic_mode));
}

TEST_CASE("bf16 agrees with the oracle", "[whole]") {
  expect_bf16();
  const Mask all = with_sink(changed(Mask::within(40, 9), 5, true), 2);
  expect_right(masked("normal", {1, 2, 2, 70, 133, 128}, 360, all, bfloat16), all_gradients, {}, {}, bfloat16);
  expect_right(masked("normal", {1, 2, 2, 100, 100, 64}, 361, packed(all, {63, 0, 37}), bfloat16), all_gradients, {},
               {}, bfloat16);
}

TEST_CASE("any two lengths agree with the oracle", "[whole]") {
  expect_any_two_lengths(129 * 65 * 64);
  std::uint64_t seed = 370;
  for (const auto& [Nq, Nk] : {std::pair{1, 1}, {1, 130}, {65, 64}, {7, 3}, {129, 200}})
    for (const auto& [left, right] : {std::pair{0, 0}, {3, 2}, {64, 0}, {0, 64}})
      if (++seed % 2 == 0 || Nq < 65) expect_masked("normal", {1, 1, 1, Nq, Nk, 64}, seed, Mask::within(left, right));
}

TEST_CASE("the sink's gradient agrees with the oracle", "[whole]") {
  std::uint64_t seed = 180;
  for (const char* kind : {"uniform", "value mean"})
    expect_dsink(masked(kind, {2, 2, 2, 70, 40, 64}, ++seed, with_sink(Mask::causal, 2, 4)));
  for (const std::int64_t d : head_dims())
    expect_dsink(masked("value mean", {1, 2, 2, 130, 130, d}, ++seed,
                        with_sink(packed(changed(Mask::causal, 5, true), {33, 0, 97}), 2)));
}

TEST_CASE("each packed sequence has the same gradients as alone", "[whole]") {
  expect_sequences_as_alone(64, {130, 0, 1});
  expect_sequences_as_alone(128, {50, 0, 65});
}

const Claims of_the_whole_2 = {
    {"[whole]", "other packed sequences change no bit of a gradient", [] { expect_independent_sequences(); }},
};

TEST_CASE("Q tiles with an unmasked pair are visited, those with a masked pair are masked", "[whole]") {
  require_counters();
  const auto expect_q_tiles = [](const Shape& shape, std::uint64_t number, const Mask& mask) {
    const Input in = masked("normal", shape, number, mask);
    expect_masks(expect_loads(in), in);
  };
  std::uint64_t seed = 435;
  for (const std::int64_t d : head_dims()) {
    for (const Mask& mask : {Mask(Mask::causal), Mask::within(64, 31), Mask::within(150, 0)})
      expect_q_tiles({1, d == 64 ? 2 : 1, 1, 200, 270, d}, 435, mask);
    expect_q_tiles({1, 1, 1, 240, 240, d}, ++seed, packed(Mask::within(64, 0), {100, 0, 140}));
    expect_q_tiles({1, 1, 1, 40, 400, d}, ++seed, Mask::within(20, 0));  // nobody sees the first 340 keys
  }
  for (const Window& w : windows)
    if (++seed % 3 == 0) expect_q_tiles({1, 1, 1, w.Nq, w.Nk, 128}, seed, Mask::within(w.left, w.right));
}

TEST_CASE("keys that no query attends to have gradients of 0", "[whole]") {
  for (const std::int64_t d : head_dims())
    for (const Numbers& variant : {Numbers(), deterministic_mode}) {
      const BackwardResult got =
          expect_masked("normal", {1, 2, 1, 40, 400, d}, 450, Mask::within(20, 0), all_gradients, variant);
      for (const auto& [name, tensor] : {std::pair{"dK", &got.dK}, {"dV", &got.dV}})
        expect(std::all_of(tensor->values.begin(), tensor->values.begin() + std::ptrdiff_t(340 * d),
                           [](float x) { return x == 0; }),
               fmt::format("{} of a key to which no query attends is not 0, d={}", name, d),
               "your code does not write zeros in a thread block without steps; its dK and dV must be 0",
               "row-without-keys");
    }
}

const Claims of_the_whole_3 = {
    {"[whole]", "fully masked queries contribute to no gradient", [] { expect_rows_without_keys(); }},
    {"[whole]", "future queries and keys have zero influence", [] { gradients::expect_no_future(); }},
    {"[whole]", "dQ differs from run to run, within its bounds; dK and dV do not", [] { expect_only_dQ_differs(); }},
    {"[whole]", "the lane order changes only the last bits of dQ", [] { expect_order_changes_only_dQ(); }},
    {"[whole]", "extra memory grows linearly with N", [] { expect_extra_memory(8, 4); }},
};

TEST_CASE("the deterministic gradients agree with the oracle", "[whole]") {
  std::uint64_t seed = 420;
  for (const bool causal : {false, true})
    for (const std::int64_t d : head_dims()) {
      const std::int64_t heads = d == 64 ? 3 : 1;
      expect_right(input("normal", {1, heads, heads, 140, 260, d}, ++seed, {causal}), all_gradients,
                   usual_sizes(d, deterministic_mode));
    }
  const Sizes sizes = usual_sizes(64, deterministic_mode);
  for (const auto& [mask, H, Hkv] : {std::tuple{Mask::within(100, 0), 2, 2},
                                     {Mask::within(30, 150), 2, 1},
                                     {packed(Mask::causal, {100, 0, 170}), 2, 1}}) {
    const Input in = masked("normal", {1, H, Hkv, 270, 270, 64}, ++seed, mask);
    const BackwardResult got = expect_right(in, all_gradients, sizes, {.workers = 4});
    if (got.reply.counters.empty()) continue;
    std::int64_t tickets = mask.lengths.empty() ? tiles_of(270, sizes.Bc) : 0;
    for (const std::int64_t length : mask.lengths) tickets += tiles_of(length, sizes.Bc);
    const std::int64_t releases = count_blocks(mask, in.given.problem.shape, sizes).visited;
    expect_count(got.reply, "semaphores.atomic_requests", double(H * releases + Hkv * tickets),
                 fmt::format("{} semaphore increments in each head of Q, and {} tickets in each K/V head, mask {}",
                             releases, tickets, mask.name()),
                 "your code does not increment each Q tile's semaphore exactly once per K/V tile; it must do so",
                 "releases");
  }
}

TEST_CASE("in deterministic mode, all runs are bitwise equal", "[whole]") {
  expect_repeatable_deterministic(5);
  Numbers numbers = usual_sizes(64, deterministic_mode).numbers();
  const Mask mask = with_sink(changed(Mask::within(230, 0), 5, true), 2);
  const BackwardProblem given = masked("normal", {1, 2, 1, 40, 260, 64}, 430, mask).given;
  const BackwardResult first = backward(given, numbers);
  // The simulator's order of blocks and lanes is that which the call asks for; a GPU has its own.
  const int runs = first.reply.counters.empty() ? 50 : 5;
  for (int run = 2; run <= runs; ++run) {
    numbers["workers"] = 1 + run % 4, numbers["lane_seed"] = run % 8;
    const BackwardResult next = backward(given, numbers);
    expect(same_bits(next, first) && next.dsink.values == first.dsink.values,
           fmt::format("a gradient of run {} differs from that of run 1", run),
           "your K/V tiles add to dQ in a varying order, or your code reads a value before it is written; in "
           "deterministic mode the order must be fixed",
           "not-repeatable");
  }
}

TEST_CASE("dK and dV are written once, without additions", "[whole]") {
  require_counters();
  for (const auto& [mask, H] : {std::pair{Mask(Mask::causal), 2},
                                {packed(Mask::none, {100, 0, 33, 67}), 2},
                                {packed(Mask::within(40, 3), {100, 0, 33, 67}), 4}}) {
    const worker::Reply reply =
        backward(masked("normal", {1, H, 2, 200, 200, 64}, 440, mask).given, usual_sizes(64).numbers()).reply;
    for (const char* tensor : {"dK", "dV"}) {
      expect_count(
          reply, fmt::format("{}.atomic_requests", tensor), 0,
          fmt::format("no thread adds to {} in device memory", tensor),
          "your code adds parts of dK or dV in device memory; one thread block must accumulate them in registers",
          "gradients-by-atomics");
      expect_count(reply, fmt::format("{}.bulk_store_bytes", tensor), 2 * 200 * 64 * 2,
                   fmt::format("B·Hkv·Nk·d elements, each written once, H={}, Hkv=2, mask {}", H, mask.name()),
                   "your code does not write each row of dK and dV exactly once; it must do so", "traffic");
    }
  }
}
