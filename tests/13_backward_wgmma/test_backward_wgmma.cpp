// Chapter 13: the backward pass with wgmma and TMA, each phase and the whole.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/backward_properties.hpp"

using namespace workbook;
using namespace workbook::test;
using namespace workbook::test::gradients;

namespace {

constexpr int last_step = 4, consumer_warps = 8;
constexpr Moves moves{.in = "bulk_load", .out = "bulk_store", .whole_tiles = true, .added_by_threads = false};
/// The rows of a Q tile.
std::int64_t Br_of(std::int64_t d) {
  return usual_sizes(d).Br;
}
/// Selects the kernels of a step (backward_wgmma.hpp).
Numbers step_to(int step) {
  return step == last_step ? Numbers{} : Numbers{{"step", double(step)}};
}
BackwardResult expect_step(int step, const Input& in) {
  return expect_right(in, all_gradients, {.variant = step_to(step)});
}

/// wgmma instructions for one Q tile and one K/V tile, counted once per warp.
void expect_wgmma() {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    const Sizes sizes = usual_sizes(d);
    const double Br = double(sizes.Br), Bc = double(sizes.Bc), each = double(2 * d) / 16 + 2 * Br / 16 + Bc / 16;
    const Growth growth(d, sizes);
    growth.expect("wgmma_instructions", consumer_warps * each,
                  "d/16 for S and for dP, Br/16 for dV and for dK, Bc/16 for dQ, by each of 8 warps",
                  "your code issues more or fewer MMAs than one per 16 of the summed dimension", "wgmma-count");
    growth.expect("wgmma_operations", 5 * 2 * Br * Bc * double(d), "operations of five matmuls of Br·Bc·d",
                  "a matmul of your code has a wrong shape; each must have 2·Br·Bc·d operations", "wgmma-count");
  }
}

/// How often threads wait for mbarriers and arrive at them, for one block and 3 Q tiles.
void expect_waits(int step) {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    const double q_tiles = 3;
    const worker::Reply reply =
        backward(input("normal", {1, 1, 1, 3 * Br_of(d), 100, d}, 8).given, step_to(step)).reply;
    expect_count(reply, "mbarrier_waits", 256 * (2 + 2 * q_tiles) + q_tiles,
                 fmt::format("each thread of a consumer waits for K and V once, for Q and dO once per Q tile; the "
                             "producer waits for each stage; d={}, step {}",
                             d, step),
                 "your code waits for a tile twice, or not at all", "waits");
    expect_waits_apart(
        reply, 2 * consumer_warps,
        fmt::format("each warp for K with the first Q and for V with the first dO, d={}, step {}", d, step));
    const double most = 2 + 2 * q_tiles + q_tiles * consumer_warps, got = counter(reply, "mbarrier_arrivals");
    expect(got <= most,
           fmt::format(
               "threads arrive {} times at the mbarriers of one block; at most {} arrivals are needed: d={}, step {}",
               got, most, d, step),
           "only one lane per warp must arrive", "arrivals");
    expect_count(reply, "named_barriers", 5 * q_tiles + 5,
                 fmt::format("per Q tile: one for dS, two for empty and two for full buffers of dQ; at the end "
                             "one for K, and one before each of four stores; d={}, step {}",
                             d, step),
                 "your consumers synchronise more or less often than once per Q tile", "barriers");
  }
}

}  // namespace

// ---- 13.1 scores ----

const Claims of_13_1 = {
    {"[13.1]", "all columns of Q, K, V and dO contribute", [] { expect_every_column(); }},
    {"[13.1]", "each pair has its own score", [] { expect_pair_scores(); }},
    {"[13.1]", "S and dP take one wgmma for each 16 columns", [] { expect_wgmma(); }},
};

// ---- 13.2 the producer ----

TEST_CASE("every tile arrives with its LSE and D", "[13.2]") {
  for (const std::int64_t d : head_dims()) {
    // Without padding, the second head's statistics would not begin at a multiple of 16 bytes.
    expect_right(input("normal", {1, 2, 2, 70, 140, d}, 12));
    expect_right(input("normal", {1, 2, 2, 300, 140, d}, 10));
    expect_right(input("value mean", {1, 1, 1, 200, 200, d}, 11, {true}));
  }
  expect_every_kind();
}

TEST_CASE("a stage is refilled only after every consumer has released it", "[13.2]") {
  // Five Q tiles in two stages, or in one.
  expect_no_race({1, 1, 1, 300, 100, 128}, 13, {step_to(1), {}}, 3);
}

TEST_CASE("TMA loads each tile and its statistics once", "[13.2]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    const double q_tiles = 3, rows = q_tiles * double(Br_of(d)), row = double(d) * 2;
    const worker::Reply reply = backward(input("normal", {1, 1, 1, 3 * Br_of(d), 128, d}, 15).given).reply;
    for (const auto& [tensor, bytes] : {std::pair{"Q", rows * row},
                                        {"dO", rows * row},
                                        {"K", 128 * row},
                                        {"V", 128 * row},
                                        {"lse_log2", rows * 4},
                                        {"D", rows * 4}})
      expect_count(reply, fmt::format("{}.bulk_load_bytes", tensor), bytes,
                   fmt::format("{} is loaded once, d={}", tensor, d),
                   "your code loads a tile or its statistics more or less often than once", "traffic");
    expect_count(reply, "bulk_loads", 2 + 4 * q_tiles,
                 fmt::format("copies: K and V, then Q, LSE, dO and D of 3 Q tiles, d={}", d),
                 "your code loads a tile in parts, or more than once", "traffic");
  }
}

// ---- 13.3 P and dS ----

const Claims of_13_3 = {
    {"[13.3]", "P is recomputed from the LSE", [] { expect_P_from_the_lse(); }},
    {"[13.3]", "each pair uses the LSE and D of its query", [] { expect_lse_and_D_of_query(); }},
    {"[13.3]", "D is subtracted before anything is rounded", [] { expect_D_before_rounding(); }},
};

// ---- 13.4 the mask ----

const Claims of_13_4 = {
    {"[13.4]", "causal agrees with the oracle for Nq above, at and below Nk", [] { expect_causal(150); }},
    {"[13.4]", "a masked pair has P = 0 at any scale", [] { expect_masked_pairs(); }},
    {"[13.4]", "missing keys contribute nothing to dQ", [] { expect_no_keys_past_the_end(); }},
};

TEST_CASE("fully masked Q tiles are not loaded", "[13.4]") {
  require_counters();
  for (const auto& [Nq, Nk] : lengths_of_every_kind(150)) {
    for (const bool causal : {false, true}) {
      if (!causal && Nq == 150) continue;
      const BackwardProblem given = input("normal", {1, 1, 1, Nq, Nk, 128}, 195, {causal}).given;
      const worker::Reply reply = backward(given).reply;
      expect_blocks_loaded(reply, moves, given.problem, usual_sizes(128));
      expect_blocks_masked(reply, given.problem, usual_sizes(128));
    }
  }
}

// ---- 13.5 operands ----

const Claims of_13_5 = {
    {"[13.5]", "dV is Pᵀ dO", [] { expect_dV(); }},
    {"[13.5]", "dK is scale dSᵀ Q", [] { expect_dK(); }},
    {"[13.5]", "P and dS are rounded once", [] { expect_rounded_once(); }},
    {"[13.5]", "dK and dV take one wgmma for each 16 queries", [] { expect_wgmma(); }},
};

// ---- 13.6 dS and dQ ----

const Claims of_13_6 = {
    {"[13.6]", "dQ is scale dS K", [] { expect_dQ(); }},
    {"[13.6]", "every key contributes to dQ", [] { expect_every_key_in_dQ(); }},
};

TEST_CASE("dS is stored once, without a bank conflict", "[13.6]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    const Growth growth(d, usual_sizes(d));
    growth.expect("shared.matrix_stores", double(consumer_warps * Br_of(d)) / 16,
                  "stmatrix, 16 keys by 16 queries per instruction",
                  "your code stores dS more or less often than once, 16 x 16 elements per instruction",
                  "matrix-stores");
    growth.expect_no_bank_conflict("store");
  }
}

TEST_CASE("dQ takes one wgmma for each 16 keys", "[13.6]") {
  expect_wgmma();
}

// ---- 13.7 the writer ----

TEST_CASE("every Q tile's dQ reaches the sum", "[13.7]") {
  for (const std::int64_t d : head_dims()) {
    for (const bool causal : {false, true})
      expect_right(input("normal", {1, 2, 2, 300, 260, d}, 240, {causal}), {"dQ"});
    for (std::int64_t first = 0; first < 3 * Br_of(d); first += Br_of(d))
      expect_right(only_queries(input("normal", {1, 1, 1, 3 * Br_of(d), 40, d}, 241), first, Br_of(d)), {"dQ"});
  }
  expect_every_kind({"dQ"});
}

TEST_CASE("each half of dQ is added once, by TMA", "[13.7]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    const std::int64_t Nk = 256;
    const double q_tiles = 3, kv_tiles = 2, elements = q_tiles * double(Br_of(d) * d);
    const worker::Reply reply = backward(input("normal", {1, 1, 1, 3 * Br_of(d), Nk, d}, 243).given).reply;
    expect_count(reply, "bulk_reductions", 2 * q_tiles * kv_tiles,
                 fmt::format("two halves of 3 Q tiles for 2 K/V tiles, d={}", d),
                 "your code adds a half of dQ more or less often than once", "traffic");
    expect_count(reply, "dQ_sum.bulk_reduce_bytes", kv_tiles * elements * 4,
                 fmt::format("each K/V tile adds 4 bytes to every element of dQ, d={}", d),
                 "your code adds a half of dQ in part, or twice", "dQ-added");
    expect_count(reply, "dQ_sum.atomic_requests", 0, "no thread adds to dQ_sum", "your threads add dQ; TMA must add it",
                 "traffic");
  }
}

const Claims of_13_7 = {
    {"[13.7]", "a dQ buffer is overwritten only after TMA has read it",
     [] {
       expect_no_race({1, 1, 1, 300, 260, 128}, 245, {{}}, 4);
     }},
    {"[13.7]", "each K/V tile releases its semaphore", [] { expect_semaphores(false); }},
};

// ---- 13.8 in order ----

TEST_CASE("in order, it agrees with the oracle", "[13.8]") {
  for (const int step : {1, 2}) {
    for (const std::int64_t d : head_dims()) {
      expect_step(step, input("normal", {1, 1, 1, 200, 150, d}, 260));
      expect_step(step, input("value mean", {1, 1, 1, 150, 200, d}, 261, {true}));
    }
  }
  expect_every_kind(all_gradients, step_to(2));
}

TEST_CASE("in order, no buffer is accessed too early", "[13.8]") {
  // The simulator reports registers, tiles and buffers that are accessed too early, whatever the values are.
  expect_no_race({1, 1, 1, 300, 100, 128}, 262, {step_to(1), step_to(2)}, 2);
}

TEST_CASE("in order, each tile is waited for once", "[13.8]") {
  for (const int step : {1, 2}) expect_waits(step);
}

// ---- 13.9 overlapped ----

TEST_CASE("overlapped, it agrees with the oracle", "[13.9]") {
  for (const int step : {3, 4}) {
    for (const std::int64_t d : head_dims()) {
      expect_step(step, input("normal", {1, 1, 1, 200, 150, d}, 270));
      expect_step(step, input("value mean", {1, 1, 1, 150, 200, d}, 271, {true}));
    }
  }
  expect_every_kind();
}

TEST_CASE("overlapped, no buffer is accessed too early", "[13.9]") {
  for (const std::int64_t d : head_dims()) expect_no_race({1, 1, 1, 300, 100, d}, 272, {step_to(3), {}}, 2);
}

TEST_CASE("overlapped, each tile is waited for once", "[13.9]") {
  for (const int step : {3, 4}) expect_waits(step);
}

TEST_CASE("overlapped, matmuls run during P, dV and the hand-over", "[13.9]") {
  require_counters();
  for (const auto& [step, d] : {std::pair{3, 64}, {4, 64}, {3, 128}, {4, 128}}) {
    Sizes sizes = usual_sizes(d);
    sizes.variant = step_to(step);
    const Growth growth(d, sizes);
    const double left = step == 4 && d == 128 ? 5 : 3, got = growth.of("wgmma_partial_waits") / consumer_warps;
    expect(got == left,
           fmt::format("the waits of a warp leave {} newer groups in flight per Q tile; they must leave "
                       "{}: dP at the wait for S, {}dQ at that for dV, dK at that for dQ; d={}, step {}",
                       got, left, left == 5 ? "both halves of dV at that for dP, " : "", d, step),
           got < left
               ? "a wait of your code leaves fewer groups in flight than it could, so the tensor cores may idle, or "
                 "the wait for S, dV or dQ is missing; each of these waits must leave the newer groups in flight"
               : "a wait of your code leaves the group in flight that it must wait for, or there is a superfluous wait",
           "overlap");
  }
}

// ---- The whole chapter ----

const Claims of_the_whole = {
    {"[whole]", "the gradients agree with the oracle", [] { expect_every_kind_whole(); }},
    {"[whole]", "bf16 agrees with the oracle", [] { expect_bf16(); }},
    {"[whole]", "any two lengths agree with the oracle", [] { expect_any_two_lengths(129 * 1000 * 64); }},
};

TEST_CASE("every step gives the same gradients", "[whole]") {
  for (const std::int64_t d : head_dims()) {
    const Input in = input("value mean", {1, 1, 1, 200, 150, d}, 350, {true});
    const BackwardResult last = expect_right(in);
    for (const int step : {1, 2, 3})
      expect(same_bits(expect_step(step, in), last, false),
             fmt::format("dK or dV of step {} differs from that of step {}, d={}", step, last_step, d),
             "a version of your code sums in another order, or rounds elsewhere; dK and dV must have the same bits in "
             "all versions",
             "order-dependent");
  }
}

const Claims of_the_whole_2 = {
    {"[whole]", "fully masked queries contribute to no gradient", [] { expect_rows_without_keys(); }},
    {"[whole]", "the gradient of the LSE is subtracted from D", [] { expect_lse_gradient(); }},
    {"[whole]", "future queries and keys have zero influence", [] { expect_no_future(); }},
    {"[whole]", "the deterministic gradients agree with the oracle", [] { expect_right_deterministic(); }},
    {"[whole]", "50 deterministic runs are bitwise equal", [] { expect_repeatable_deterministic(50); }},
    {"[whole]", "dQ differs from run to run, within its bounds; dK and dV do not", [] { expect_only_dQ_differs(); }},
    {"[whole]", "the lane order changes only the last bits of dQ", [] { expect_order_changes_only_dQ(); }},
};

TEST_CASE("five matmuls, with P and dS as register operands", "[whole]") {
  expect_wgmma();
  for (const std::int64_t d : head_dims()) {
    const Growth growth(d, usual_sizes(d));
    // In rows of d elements: for each consumer 64 of K and Br of Q, 64 of V and Br of dO, Br of dO, Br of Q; and for
    // its half of dQ 64 · 128 of dS and 128 · 64 of K.
    const double rows = 4 * (64 + double(Br_of(d))) + 4 * double(Br_of(d));
    growth.expect("wgmma_wavefronts", (rows * double(d) + 2 * 2 * 64 * 128) * 2 / 128,
                  "128 bytes of operands in shared memory per wavefront",
                  "your code reads P or dS from shared memory, or reads an operand twice; P and dS must be register "
                  "operands of dV and dK",
                  "shared-traffic");
    for (const char* loads : {"shared.matrix_loads", "multiply_calls"})
      growth.expect(loads, 0, "no lane loads an operand", "your code uses mma or ldmatrix; every matmul must use wgmma",
                    "shared-traffic");
  }
}

TEST_CASE("each tensor's traffic matches its formula", "[whole]") {
  expect_moves(moves);
}

TEST_CASE("shared memory holds no P", "[whole]") {
  require_counters();
  // Per Q tile: dS once, by stmatrix; dQ once for the writer, 16 bytes per lane, and once in the last kernel, 4 bytes
  // per lane.
  for (const std::int64_t d : head_dims()) {
    const Growth growth(d, usual_sizes(d));
    growth.expect("shared.matrix_stores", double(consumer_warps * Br_of(d)) / 16, "only dS",
                  "your code stores P to shared memory too; only dS must be stored there", "shared-traffic");
    growth.expect(
        "shared.store_instructions", consumer_warps * (8 + 16), "dQ for the writer, and rounded in the last kernel",
        "your code stores something else to shared memory; only dQ must be stored there by these instructions",
        "shared-traffic");
  }
}

TEST_CASE("extra memory grows linearly with N", "[whole]") {
  expect_extra_memory(8, 4);
}
