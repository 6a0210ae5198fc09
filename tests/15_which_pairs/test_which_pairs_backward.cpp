// Chapter 15, backward: which queries see a key, what a changed score's gradient is, and that of a sink.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tests/15_which_pairs/mask_gradient_cases.hpp"

using namespace workbook;
using namespace workbook::test;
using namespace workbook::test::gradients;

namespace {

// ---- Inputs, and what a call has to go through ----

void expect_masked(const std::string& kind, const Shape& shape, std::uint64_t seed, const Mask& mask,
                   const std::vector<std::string>& which = all_gradients) {
  expect_right_small(masked(kind, shape, seed, mask), which);
}

void expect_q_tiles(const Input& in, const Sizes& sizes) {
  const Problem& problem = in.given.problem;
  const worker::Reply reply = backward(in.given, sizes.numbers()).reply;
  const BlockCount count = count_blocks(problem.mask, problem.shape, sizes);
  const double heads = double(problem.shape.B * problem.shape.H),
               must = heads * double(count.queries * problem.shape.d * 2);
  for (const char* tensor : {"Q", "dO"}) {
    const std::string name = fmt::format("{}.async_bytes", tensor);
    const bool more = counter(reply, name) > must;
    expect_count(
        reply, name, must,
        fmt::format("{} blocks of a Q tile and a K/V tile have an unmasked pair in each head, {}, {}", count.visited,
                    describe(problem), sizes.text()),
        more ? "your code does not skip Q tiles whose queries attend to none of the K/V tile's keys; it must skip them"
             : "your code skips a Q tile with an unmasked pair; it must process each of them",
        more ? "tiles-not-skipped" : "tiles-skipped");
  }
  // Heads of a group are masked alike, and a block's note counts once.
  const double notes = counter(reply, "note.masked tile"),
               masks = double(problem.shape.B * problem.shape.Hkv * count.masked);
  expect(notes == masks,
         fmt::format("your code masks {} Q tiles, expected {} ({}, {})", notes, masks, describe(problem), sizes.text()),
         notes > masks ? "your code masks a full Q tile; it must mask only Q tiles with a masked pair"
                       : "your code does not mask a partial Q tile; it must mask every Q tile with a masked pair",
         notes > masks ? "masked-too-much" : "masked-too-little");
}

}  // namespace

// ---- 15.9 the queries that see a key ----

TEST_CASE("each K/V tile has the query range of its window", "[15.9]") {
  for (const Window& w : windows) {
    for (const auto& [Bc, Br] : {std::pair{32, 32}, {64, 32}, {128, 64}, {1, 64}}) {
      const std::int64_t blocks = tiles_of(w.Nk, Bc);
      worker::Call request("queries");
      request.number("Nq", double(w.Nq)).number("Nk", double(w.Nk)).number("left", double(w.left));
      request.number("right", double(w.right)).number("Bc", Bc).number("Br", Br);
      request.output<std::int32_t>("numbers", std::size_t(4 * blocks));
      const auto numbers = call(request).output<std::int32_t>("numbers");
      for (std::int64_t b = 0; b < blocks; ++b) {
        const std::int64_t first_key = b * Bc, end_key = std::min(w.Nk, first_key + Bc);
        std::int64_t first = 0, last = 0;
        for (std::int64_t i = w.Nq - 1; i >= 0; --i)
          for (std::int64_t j = first_key; j < end_key; ++j)
            if (w.attends(i, j)) first = i, last = std::max(last, i + 1);
        const std::int32_t* const got = &numbers[std::size_t(4 * b)];
        const std::string of = fmt::format("keys {} to {}, {}", first_key, end_key - 1, w.text());
        expect(got[0] == first && got[1] == last, fmt::format("your query range is {} to {}, expected {} to {}; {}",
                                                              got[0], got[1] - 1, first, last - 1, of));
        const std::int64_t first_block = first / Br, last_block = tiles_of(last, Br);
        expect(got[2] == first_block && got[3] == last_block,
               fmt::format("your range of Q tiles is {} to {} (of {} queries each), expected {} to {}; {}", got[2],
                           got[3] - 1, Br, first_block, last_block - 1, of));
      }
    }
  }
  expect_every_kind();
}

TEST_CASE("with a window of 512 a K/V tile needs ten Q tiles", "[15.9]") {
  require_counters();
  const Sizes sizes = usual_sizes(64);
  const Input in = masked("normal", {1, 1, 1, 768, 768, 64}, 90, Mask::within(512, 0));
  if (sizes.Bc == 128 && sizes.Br == 64) {
    // Keys 0 to 127 are seen by queries 0 to 639, which are ten Q tiles; the second K/V tile has ten, too, and
    // then the queries come to an end: 8, 6, 4 and 2. Four of ten are masked, two at either end of the window.
    const worker::Reply reply = backward(in.given, sizes.numbers()).reply;
    expect_count(reply, "Q.async_bytes", (10 + 10 + 8 + 6 + 4 + 2) * 64 * 64 * 2, "Q tiles of 64 queries",
                 "your code loads a Q tile that attends to none of the keys, or omits one that attends to some",
                 "tiles-not-skipped");
    expect_count(
        reply, "note.masked tile", 4 + 4 + 2 + 2 + 2 + 2, "two Q tiles at either end of the window",
        "your code masks a full Q tile, does not mask a partial one, or processes a Q tile outside of the window",
        "masked-too-much");
  }
  expect_q_tiles(in, sizes);
}

TEST_CASE("only Q tiles with an unmasked pair are loaded, for every mask", "[15.9]") {
  require_counters();
  std::uint64_t seed = 91;
  for (const Window& w : windows)
    for (const Sizes& sizes : all_sizes(64))
      expect_q_tiles(masked("normal", {1, 2, 2, w.Nq, w.Nk, 64}, ++seed, Mask::within(w.left, w.right)), sizes);
  for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal), Mask::within(20, 3)})
    expect_q_tiles(masked("normal", {1, 1, 1, 230, 230, 64}, ++seed, packed(mask, {100, 0, 1, 64, 65})),
                   small_sizes(64));
}

// ---- 15.10 the derivative of a softcap ----

TEST_CASE("dS takes the derivative of a capped score", "[15.10]") {
  std::uint64_t seed = 100;
  for (const float cap : {1.5f, 20.0f})
    for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal)})
      for (const char* kind : {"normal", "value mean", "uniform"})
        expect_masked(kind, {1, 2, 2, 40, 70, 64}, ++seed, changed(mask, cap, false));
  expect_masked("normal", {1, 1, 1, 40, 70, 128}, ++seed, changed(Mask::within(30, 5), 4, false));
  expect_masked("normal", {1, 2, 2, 40, 70, 64}, ++seed, changed(Mask::causal, 2, true));
  expect_every_kind();
}

TEST_CASE("capped scores have no gradient", "[15.10]") {
  for (const char* kind : {"large logits", "negative logits", "one hot"})
    expect_masked(kind, {1, 1, 1, 40, 70, 64}, 120, changed(Mask::none, 10, false));
  // Far beyond what a float can hold as e^2x.
  expect_right_small(with_scale("large logits", {1, 1, 1, 40, 70, 64}, 121, changed(Mask::causal, 3, false), 2));
}

// ---- 15.11 P and dS of a pair ----

TEST_CASE("P is recomputed from the modified score", "[15.11]") {
  std::uint64_t seed = 130;
  for (const float cap : {4.0f, 0.0f})
    for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal), Mask::within(30, 20)})
      for (const auto& [Nq, Nk] : {std::pair{70, 70}, {40, 90}})
        for (const char* kind : {"normal", "uniform"})
          expect_masked(kind, {1, 2, 2, Nq, Nk, 64}, ++seed, changed(mask, cap, true));
  for (const std::int64_t d : head_dims())
    expect_masked("value mean", {1, 3, 3, 70, 100, d}, ++seed, changed(Mask::none, 4, true));
  expect_every_kind();
}

TEST_CASE("masked pairs contribute to no gradient", "[15.11]") {
  std::uint64_t seed = 150;
  for (const Window& w : windows)
    expect_masked("normal", {1, 1, 1, w.Nq, w.Nk, 64}, ++seed, Mask::within(w.left, w.right));
  for (const float scale : {-0.3f, 0.0f, 2.0f})
    for (const float cap : {0.0f, 5.0f})
      expect_right_small(
          with_scale("normal", {1, 1, 1, 70, 40, 64}, ++seed, changed(Mask::within(20, 4), cap, false), scale));
  expect_masked_pairs();
  expect_no_keys_past_the_end();
}

TEST_CASE("each pair uses the LSE and D of its query", "[15.11]") {
  expect_lse_and_D_of_query();
  for (const std::int64_t d : head_dims())
    expect_right_small(with_rows_apart(masked("value mean", {1, 1, 1, 128, 64, d}, 170, Mask::within(40, 40))));
}

// ---- 15.12 the sink's gradient ----

TEST_CASE("the sink's gradient agrees with the oracle", "[15.12]") {
  std::uint64_t seed = 180;
  for (const float first : {-1.0f, 4.0f, 12.0f})
    for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal)})
      for (const char* kind : {"uniform", "normal", "value mean"})
        expect_dsink(masked(kind, {1, 2, 2, 70, 40, 64}, ++seed, with_sink(mask, 2, first)));
  for (const std::int64_t d : head_dims())
    expect_dsink(masked("value mean", {1, 2, 2, 130, 130, d}, ++seed,
                        with_sink(packed(changed(Mask::causal, 5, true), {33, 0, 97}), 2)));
  for (const InputKind& kind : input_kinds())
    expect_dsink(masked(kind.name, {1, 1, 1, 40, 70, 64}, ++seed, with_sink(Mask::within(30, 5), 1)));
  expect_every_kind();
}

TEST_CASE("each head's sink gradient is a sum over the whole batch", "[15.12]") {
  for (const std::int64_t heads : {1, 3})
    for (const std::int64_t Nq : {31, 64, 100})
      expect_dsink(masked("value mean", {2, heads, heads, Nq, 40, 64}, 200, with_sink(Mask::none, heads)));
  expect_right_small(masked("normal", {2, 3, 3, 100, 70, 128}, 201, with_sink(Mask::causal, 3)));
}

// ---- The whole chapter ----

TEST_CASE("the gradients of all masks and score modifications agree with the oracle", "[whole]") {
  expect_every_kind_whole();
  std::uint64_t seed = 300;
  for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal), Mask::within(50, 0), Mask::within(20, 30)})
    for (const float softcap : {0.0f, 5.0f})
      for (const bool alibi : {false, true})
        for (const std::int64_t d : head_dims()) {
          const Mask both = changed(mask, softcap, alibi);
          seed += 2;
          expect_right(masked("normal", {1, 2, 2, 70, 133, d}, seed, both), all_gradients,
                       alibi ? usual_sizes(d) : small_sizes(d));
          expect_masked("rising maximum", {1, 2, 2, 90, 64, d}, seed + 1, with_sink(both, 2));
        }
  for (const std::int64_t d : head_dims())
    expect_right(masked("normal", {1, 2, 2, 230, 230, d}, 350,
                        with_sink(packed(changed(Mask::within(40, 9), 5, true), {100, 0, 1, 64, 65}), 2)));
}

TEST_CASE("grouped heads' gradients agree with the oracle for every mask", "[whole]") {
  std::uint64_t seed = 330;
  for (const std::int64_t d : head_dims())
    for_every_mask_and_group(d, [&](const Shape& shape, const Mask& mask) {
      expect_right_small(heads_apart("value mean", shape, ++seed, mask, float16));
      // An odd number of masks: each has both over the groups.
      if (seed % 2 == 0)
        expect_right(heads_apart("value mean", shape, seed, mask, bfloat16), all_gradients, {}, {}, bfloat16);
      else
        expect_right(heads_apart("value mean", shape, seed, mask, float16), all_gradients,
                     usual_sizes(d, deterministic_mode));
      if (!mask.sink.empty()) expect_dsink(heads_apart("value mean", shape, seed, mask, float16));
    });
  // Through the batch, by several K/V tiles and Q tiles.
  const Mask rich = with_sink(changed(Mask::within(100, 0), 5, true), 6, -1.0f);
  for (const Numbers& variant : {Numbers(), deterministic_mode})
    expect_right(heads_apart("normal", {2, 6, 2, 150, 300, 64}, 340, rich, float16), all_gradients,
                 usual_sizes(64, variant));
}

TEST_CASE("the gradients in bf16 agree with the oracle", "[whole]") {
  expect_bf16();
  for (const std::int64_t d : head_dims()) {
    const Mask all = with_sink(changed(Mask::within(40, 9), 5, true), 2);
    expect_right(masked("normal", {1, 2, 2, 70, 133, d}, 360, all, bfloat16), all_gradients, {}, {}, bfloat16);
    expect_right(masked("normal", {1, 2, 2, 100, 100, d}, 361, packed(all, {63, 0, 37}), bfloat16), all_gradients, {},
                 {}, bfloat16);
  }
}

TEST_CASE("the gradients of any two lengths agree with the oracle", "[whole]") {
  expect_any_two_lengths(129 * 129 * 64);
  std::uint64_t seed = 370;
  for (const auto& [Nq, Nk] : {std::pair{1, 1}, {1, 130}, {31, 33}, {65, 64}, {7, 3}, {129, 200}})
    for (const auto& [left, right] : {std::pair{0, 0}, {3, 2}, {64, 0}, {0, 64}})
      expect_masked("normal", {1, 1, 1, Nq, Nk, 64}, ++seed, Mask::within(left, right));
}

const Claims of_sequences = {
    {"[whole]", "each packed sequence has the same gradients as alone", [] { expect_sequences_as_alone(64); }},
    {"[whole]", "other packed sequences change no bit of a gradient", [] { expect_independent_sequences(); }},
};

TEST_CASE("the deterministic gradients agree with the oracle", "[whole]") {
  expect_right_deterministic();
  std::uint64_t seed = 420;
  const Sizes sizes = usual_sizes(64, deterministic_mode);
  for (const auto& [mask, H, Hkv] : {std::tuple{Mask::within(100, 0), 5, 5},
                                     {Mask::within(30, 150), 5, 5},
                                     {Mask::within(30, 150), 6, 2},
                                     {packed(Mask::causal, {100, 0, 200}), 5, 5},
                                     {packed(Mask::causal, {100, 0, 200}), 5, 1}}) {
    const Input in = masked("normal", {1, H, Hkv, 300, 300, 64}, ++seed, mask);
    const BackwardResult got = expect_right(in, all_gradients, sizes, {.workers = 1});
    expect_right(in, all_gradients, sizes, {.workers = 4});
    if (got.reply.counters.empty()) continue;
    std::int64_t tickets = mask.lengths.empty() ? tiles_of(300, sizes.Bc) : 0;
    for (const std::int64_t length : mask.lengths) tickets += tiles_of(length, sizes.Bc);
    const std::int64_t releases = count_blocks(mask, in.given.problem.shape, sizes).visited * sizes.warps;
    expect_count(
        got.reply, "semaphores.atomic_requests", double(H * releases + Hkv * tickets),
        fmt::format("{} semaphore increments by warps in each head of Q, and {} tickets in each K/V head, mask {}",
                    releases, tickets, mask.name()),
        "your code does not increment each Q tile's semaphores exactly once per K/V tile; each warp must do so",
        "releases");
  }
}

TEST_CASE("50 deterministic runs are bitwise equal", "[whole]") {
  expect_repeatable_deterministic(10);
  const Numbers numbers = usual_sizes(64, deterministic_mode).numbers();
  const Mask mask = with_sink(changed(Mask::within(200, 0), 5, true), 2);
  const BackwardProblem given = masked("normal", {1, 2, 1, 40, 300, 64}, 430, mask).given;
  const BackwardResult first = backward(given, numbers);
  for (int run = 2; run <= 50; ++run) {
    const BackwardResult next = backward(given, numbers);
    expect(same_bits(next, first) && next.dsink.values == first.dsink.values,
           fmt::format("a gradient of run {} differs from that of run 1", run),
           "your K/V tiles add to dQ in a varying order, or your code reads a value before it is written; in "
           "deterministic mode the order must be fixed",
           "not-repeatable");
  }
}

TEST_CASE("Q tiles with an unmasked pair are visited, those with a masked pair are masked", "[whole]") {
  require_counters();
  std::uint64_t seed = 435;
  for (const std::int64_t d : head_dims()) {
    for (const Mask& mask : {Mask(Mask::none), Mask(Mask::causal), Mask::within(64, 31), Mask::within(200, 0)})
      for (const std::int64_t Hkv : {1, 2})
        expect_q_tiles(masked("normal", {1, 2, Hkv, 300, 333, d}, ++seed, mask), usual_sizes(d));
    expect_q_tiles(masked("normal", {1, 1, 1, 300, 300, d}, ++seed, packed(Mask::within(64, 0), {100, 0, 200})),
                   usual_sizes(d));
  }
}

TEST_CASE("dK and dV are written once, without additions", "[whole]") {
  require_counters();
  for (const auto& [mask, H] : {std::pair{Mask(Mask::causal), 2},
                                {Mask::within(40, 3), 2},
                                {packed(Mask::none, {100, 0, 33, 67}), 2},
                                {Mask(Mask::causal), 8},
                                {packed(Mask::within(40, 3), {100, 0, 33, 67}), 6}}) {
    const Input in = masked("normal", {2, H, 2, 200, 200, 64}, 440, mask);
    const worker::Reply reply = backward(in.given, usual_sizes(64).numbers()).reply;
    for (const char* tensor : {"dK", "dV"}) {
      expect_count(
          reply, fmt::format("{}.atomic_requests", tensor), 0,
          fmt::format("no thread adds to {} in device memory", tensor),
          "your code adds parts of dK or dV in device memory; one thread block must accumulate them in registers",
          "gradients-by-atomics");
      expect_count(reply, fmt::format("{}.store_bytes", tensor), 4 * 200 * 64 * 2,
                   fmt::format("B·Hkv·Nk·d elements, each written once, H={}, Hkv=2, mask {}; dK and dV together are "
                               "4·B·Hkv·Nk·d bytes",
                               H, mask.name()),
                   "your code does not write each row of dK and dV exactly once; it must do so", "traffic");
    }
    for (const char* tensor : {"K", "V"})
      expect_count(reply, fmt::format("{}.async_bytes", tensor), 4 * 200 * 64 * 2,
                   "one thread block reads each K/V tile",
                   "your code does not read each K/V tile exactly once; it must do so", "traffic");
  }
}

const Claims of_the_whole = {
    {"[whole]", "offsets in the backward pass may exceed 32 bits", [] { gradients::expect_offsets_beyond_32_bits(); }},
    {"[whole]", "the gradients do not depend on how the work is divided", [] { expect_sizes_do_not_matter(); }},
    {"[whole]", "future queries and keys have zero influence", [] { gradients::expect_no_future(); }},
    {"[whole]", "dQ differs from run to run, within its bounds; dK and dV do not", [] { expect_only_dQ_differs(); }},
    {"[whole]", "the lane order changes only the last bits of dQ", [] { expect_order_changes_only_dQ(); }},
    {"[whole]", "each tensor's backward traffic matches its formula", [] { gradients::expect_moves({}); }},
    {"[whole]", "every size of shared memory has tiles for the gradients", [] { expect_sizes_for_every_memory(99); }},
    {"[whole]", "extra memory of the backward pass grows linearly with N", [] { expect_extra_memory(8, 4); }},
};
