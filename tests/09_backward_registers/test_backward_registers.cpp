// Chapter 9: the backward pass in registers, phase by phase and whole.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/backward_properties.hpp"

using namespace workbook;
using namespace workbook::test;
using namespace workbook::test::gradients;

namespace {

/// The warps that share 32 keys of a K/V tile.
std::int64_t team_of(const Sizes& sizes) {
  return 32 * sizes.warps / sizes.Bc;
}

/// mma, ldmatrix and stmatrix of one Q tile and one K/V tile: five matmuls, each operand loaded for 32 rows of the
/// result.
struct Instructions {
  double mma, ldmatrix, stmatrix;
};
Instructions instructions_of(std::int64_t d, const Sizes& s) {
  const std::int64_t team = team_of(s);
  const double warps = double(s.warps), half = double(s.Br) / 2, columns = double(d) / double(team);
  const double formed = team == 1 ? 2 : 1;                                // halves of a Q tile that a warp forms
  const double scores = formed * 2 * (double(d) / 16) * (2 + half / 16);  // Sᵀ and dPᵀ
  const double products = 2 * 2 * (half / 16) * (columns / 16);           // dV and dK, both halves
  const double exchanged = team == 1 ? 0 : 2 * 2 * (half / 16);           // P and dS of the other half
  const double dQ = double(s.Bc) / 16 * (2 + double(d * s.Br / 32 / s.warps) / 16);  // 32 rows of it
  return {5 * double(s.Bc * s.Br * d) / (16 * 8 * 16), warps * (scores + products + exchanged + dQ),
          warps * formed * (half / 16) * 2 * (team == 1 ? 1 : 2)};
}
void expect_instructions() {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    for (const Sizes& sizes : all_sizes(d)) {
      const Instructions expected = instructions_of(d, sizes);
      const Growth growth(d, sizes);
      growth.expect(
          "multiply_calls", expected.mma, "mma of five matmuls",
          "your code computes a part of the five matmuls more than once or not at all; it must compute each part once",
          "products");
      growth.expect("shared.matrix_loads", expected.ldmatrix, "ldmatrix of their operands",
                    "your code loads an operand more than once for 32 rows of the result, or not at all; it must load "
                    "each operand once",
                    "matrix-loads");
    }
  }
}

}  // namespace

// ---- 9.1 LSE and D of each query ----

TEST_CASE("the LSE is taken in units of log2", "[9.1]") {
  for (const char* kind : {"normal", "large logits"}) {
    expect_right_small(input(kind, {1, 2, 2, 70, 100, 64}, 101));
    expect_right_small(input(kind, {1, 1, 1, 33, 40, 32}, 102));
  }
  expect_every_kind();
}

TEST_CASE("fully masked queries contribute to no gradient", "[9.1]") {
  // A query whose LSE is -inf though no mask hides its keys, as after a merge of parts.
  Input in = input("normal", {1, 1, 1, 64, 50, 32}, 106);  // no query is filled up
  in.given.saved.lse(0, 0, 7, 0) = -std::numeric_limits<double>::infinity();
  const BackwardResult got = backward(in.given, small_sizes(32).numbers());
  for (std::int64_t c = 0; c < 32; ++c)
    expect(got.dQ(0, 0, 7, c) == 0 && std::isfinite(got.dV(0, 0, 0, c)),
           fmt::format("the LSE of query 7 is -inf, but its dQ is {}, and dV of key 0 is {} (column {}); the query "
                       "must not contribute to any gradient",
                       got.dQ(0, 0, 7, c), got.dV(0, 0, 0, c), c),
           "your code computes an infinite P from an LSE of -inf; x must be +inf there, so that P is 0",
           "masked-lse-kept");
  expect_rows_without_keys();
}

TEST_CASE("the gradient of the LSE is subtracted from D", "[9.1]") {
  expect_lse_gradient();
}

// ---- 9.2 multiply_transposed ----

const Claims of_9_2 = {
    {"[9.2]", "all columns of Q, K, V and dO contribute", [] { expect_every_column(); }},
    {"[9.2]", "each pair has its own score", [] { expect_pair_scores(); }},
    {"[9.2]", "S and dP use no redundant instructions", [] { expect_instructions(); }},
};

// ---- 9.3 form_P_and_dS ----

const Claims of_9_3 = {
    {"[9.3]", "P is recomputed from the LSE", [] { expect_P_from_the_lse(); }},
    {"[9.3]", "each pair uses the LSE and D of its query", [] { expect_lse_and_D_of_query(); }},
    {"[9.3]", "D is subtracted before anything is rounded", [] { expect_D_before_rounding(); }},
    {"[9.3]", "a masked pair has P = 0 at any scale", [] { expect_masked_pairs(); }},
};

// ---- 9.4 the mask ----

const Claims of_9_4 = {
    {"[9.4]", "causal agrees with the oracle for Nq above, at and below Nk", [] { expect_causal(70); }},
    {"[9.4]", "missing keys contribute nothing to dQ", [] { expect_no_keys_past_the_end(); }},
};

TEST_CASE("fully masked Q tiles are not loaded", "[9.4]") {
  require_counters();
  for (const auto& [Nq, Nk] : lengths_of_every_kind(70)) {
    for (const bool causal : {false, true}) {
      if (!causal && Nq == 70 && Nk != 71) continue;
      const BackwardProblem given = input("normal", {1, 1, 1, Nq, Nk, 32}, 195, {causal}).given;
      for (const Sizes& sizes : all_sizes(32))
        expect_blocks_loaded(backward(given, sizes.numbers()).reply, {}, given.problem, sizes);
    }
  }
}

TEST_CASE("only Q tiles on the diagonal or at the end are masked", "[9.4]") {
  require_counters();
  for (const auto& [Nq, Nk] : lengths_of_every_kind(70)) {
    const BackwardProblem given = input("normal", {1, 1, 1, Nq, Nk, 32}, 196, {true}).given;
    expect_blocks_masked(backward(given, small_sizes(32).numbers()).reply, given.problem, small_sizes(32));
  }
  for (const std::int64_t Nk : {64, 70}) {  // the last K/V tile is full, and short
    const BackwardProblem given = input("normal", {1, 1, 1, 70, Nk, 32}, 197).given;
    expect_blocks_masked(backward(given, small_sizes(32).numbers()).reply, given.problem, small_sizes(32));
  }
}

// ---- 9.5 operands ----

const Claims of_9_5 = {
    {"[9.5]", "dV is Pᵀ dO", [] { expect_dV(); }},
    {"[9.5]", "dK is scale dSᵀ Q", [] { expect_dK(); }},
    {"[9.5]", "P and dS are rounded once", [] { expect_rounded_once(); }},
    {"[9.5]", "dK and dV use no redundant instructions", [] { expect_instructions(); }},
};

// ---- 9.6 the exchange through shared memory ----

TEST_CASE("a team of two exchanges P and dS", "[9.6]") {
  for (const Sizes& sizes : all_sizes(128)) {
    for (const std::int64_t first : {0, 16, 32, 48})
      expect_right(only_queries(input("normal", {1, 1, 1, 64, 128, 128}, 220), first, 16), {"dV", "dK"}, sizes);
    expect_right(input("one hot", {1, 1, 1, 70, 100, 128}, 221), {"dV", "dK"}, sizes);
  }
  expect_right(input("normal", {1, 1, 1, 64, 128, 64}, 222), {"dQ"});
  expect_every_kind();
}

TEST_CASE("dS is stored once, without a bank conflict", "[9.6]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    for (const Sizes& sizes : all_sizes(d)) {
      const Growth growth(d, sizes);
      growth.expect("shared.matrix_stores", instructions_of(d, sizes).stmatrix, "stmatrix",
                    "your code stores dS, or P of a team of two, more than once or not by stmatrix_x4; it must store "
                    "each 16 × 16 part once",
                    "matrix-stores");
      growth.expect_no_bank_conflict("store");
    }
  }
}

// ---- 9.7 dQ ----

const Claims of_9_7 = {
    {"[9.7]", "dQ is scale dS K", [] { expect_dQ(); }},
    {"[9.7]", "every key contributes to dQ", [] { expect_every_key_in_dQ(); }},
};

TEST_CASE("every atomic addition fills a line of 128 bytes", "[9.7]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    for (const Sizes& sizes : all_sizes(d)) {
      const std::int64_t Nq = 128, Nk = 256;
      const worker::Reply reply = backward(input("normal", {1, 1, 1, Nq, Nk, d}, 240).given, sizes.numbers()).reply;
      const double elements = double(Nq * d * (Nk / sizes.Bc));
      expect_count(reply, "dQ_sum.atomic_requests", elements / 32,
                   fmt::format("{} K/V tiles add to every element of dQ, 32 at a time, d={}, {}", Nk / sizes.Bc, d,
                               sizes.text()),
                   "your code adds a part of dQ more than once per K/V tile, or not at all; it must add each part once",
                   "traffic");
      expect_count(
          reply, "dQ_sum.atomic_sectors", elements / 8,
          fmt::format("32 lanes add to 128 consecutive bytes, 4 sectors, d={}, {}", d, sizes.text()),
          "the 32 lanes of a warp add to addresses that are not adjacent; element e of all 32 lanes must be contiguous",
          "uncoalesced");
    }
  }
}

TEST_CASE("dQ uses no redundant instructions", "[9.7]") {
  expect_instructions();
}

// ---- 9.8 the semaphore ----

TEST_CASE("a warp waits for its semaphore", "[9.8]") {
  // One warp alone, which does not have to wait.
  worker::Call alone("release");
  const std::int32_t released = call(alone.output<std::int32_t>("counter", 1)).output<std::int32_t>("counter")[0];
  expect(released == 1, fmt::format("after one release the counter is {}; it must be 1", released),
         "release must increment the counter once per warp: one lane adds 1", "releases");
  // Two blocks of two warps. Block 0 has rank 1 and starts waiting first; block 1 has rank 0 and adds 1 in every lane.
  worker::Call request("ordered_additions");
  request.number("workers", 2).output<std::int32_t>("got", 64);
  const worker::Reply reply = call(request);
  const std::vector<std::int32_t> got = reply.output<std::int32_t>("got");
  const auto early = std::find(got.begin(), got.end(), 0);
  expect(early == got.end(),
         fmt::format("thread {} continues before the counter equals its warp's rank, when the preceding additions are "
                     "not yet visible",
                     early - got.begin()),
         "wait_for returns before the counter equals semaphore.rank", "semaphore-not-waited");
}

TEST_CASE("each K/V tile releases its semaphore", "[9.8]") {
  expect_semaphores(true);
  expect_every_kind(all_gradients, deterministic_mode);
}

TEST_CASE("every lane adds between wait_for and release", "[9.8]") {
  require_counters();
  // Lane 0 polls and increments for the whole warp: __syncwarp() must order the other lanes.
  const Input in = input("normal", {1, 1, 1, 130, 260, 64}, 255);
  const Sizes sizes = usual_sizes(64, deterministic_mode);
  Numbers numbers = sizes.numbers();
  numbers["workers"] = 1;
  const worker::Reply reply = backward(in.given, numbers).reply;
  numbers["deterministic"] = 0;
  const worker::Reply other = backward(in.given, numbers).reply;
  const double pieces = double(count_blocks(in.given.problem.shape, false, sizes).visited * sizes.warps);
  const double barriers = counter(reply, "warp_barriers") - counter(other, "warp_barriers");
  expect(barriers == 2 * pieces,
         fmt::format("deterministic mode executes {} __syncwarp() more; {} pieces of dQ need {}", barriers, pieces,
                     2 * pieces),
         "the lanes of a warp are not synchronised: wait_for needs a __syncwarp() after the polling, and release one "
         "between the fences and the increment",
         "semaphore-without-syncwarp");
  // On the simulator every write is visible at once, so a missing fence changes no result: fences are counted instead.
  worker::Call alone("release");
  const double at_end = counter(call(alone.output<std::int32_t>("counter", 1)), "fences");
  const double of_waits = counter(reply, "fences") - counter(other, "fences") - pieces * at_end;
  expect(at_end >= 1, "release executes no __threadfence()",
         "the additions of a warp must be visible to the whole GPU before the counter's increment: each lane needs a "
         "__threadfence()",
         "semaphore-without-fence");
  expect(of_waits >= pieces, fmt::format("{} calls of wait_for execute {} __threadfence() in total", pieces, of_waits),
         "a warp's additions must come after the read of the counter: wait_for needs a __threadfence() after the "
         "polling, also if `seen` equals the value that it waits for",
         "semaphore-without-fence");
}

// ---- 9.9 the loop ----

TEST_CASE("ragged tails are computed correctly", "[9.9]") {
  std::uint64_t seed = 260;
  // With one key or one query many mistakes look alike: the other lengths come first.
  for (const auto& [Nq, Nk] : {std::pair{70, 133}, {65, 95}, {31, 97}, {1, 33}, {33, 1}, {1, 1}}) {
    expect_right(input("normal", {1, 2, 2, Nq, Nk, 64}, ++seed));
    expect_right_small(input("normal", {1, 1, 1, Nq, Nk, 32}, ++seed, {true}));
    expect_right(input("normal", {1, 1, 1, Nq, Nk, 128}, ++seed, {true}));
  }
  expect_every_kind();
}

TEST_CASE("every Q tile contributes once", "[9.9]") {
  for (const std::int64_t d : {32, 128}) {
    for (std::int64_t first = 0; first < 192; first += 64)
      expect_right(only_queries(input("normal", {1, 1, 1, 192, 40, d}, 275), first, 64));
  }
}

TEST_CASE("one barrier per Q tile", "[9.9]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    for (const Sizes& sizes : all_sizes(d)) {
      const Shape s{1, 2, 2, 100, 140, d};
      const worker::Reply reply = backward(input("normal", s, 280).given, sizes.numbers()).reply;
      const double kv_tiles = double(s.H * tiles_of(s.Nk, sizes.Bc)), q_tiles = double(tiles_of(s.Nq, sizes.Br));
      expect_count(
          reply, "block_barriers", kv_tiles * (q_tiles + 1),
          fmt::format("{} K/V tiles · ({} Q tiles + the last dS), d={}, {}", kv_tiles, q_tiles, d, sizes.text()),
          "your code has a __syncthreads() that protects nothing, or one too few; it must have one per Q tile and one "
          "before the last dQ",
          "barriers");
      const double teams = team_of(sizes) == 1 ? 0 : double(sizes.Bc / 32);
      expect_count(
          reply, "named_barriers", kv_tiles * q_tiles * teams,
          fmt::format("each team of two synchronises once per Q tile, d={}, {}", d, sizes.text()),
          "the warps of a team exchange P and dS more than once per Q tile or not at all; they must do so once",
          "barriers");
    }
  }
}

TEST_CASE("the buffers do not race in any lane order", "[9.9]") {
  for (const std::int64_t d : head_dims()) expect_no_race({1, 1, 1, 130, 140, d}, 285, {{}}, 2);
}

TEST_CASE("the next Q tile is copied while this one is multiplied", "[9.9]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    for (const Sizes& sizes : all_sizes(d)) {
      const std::int64_t q_tiles = 4;
      const Shape s{1, 1, 1, q_tiles * sizes.Br, sizes.Bc, d};
      const worker::Reply reply = backward(input("normal", s, 288).given, sizes.numbers()).reply;
      // dQ, one of a Q tile's five matmuls, is computed one iteration later, and the last one after the loop.
      expect_beside_copies(counter(reply, "multiply_calls"), counter(reply, "multiplies_beside_copies"),
                           (4.0 / 5 + 2.0 / 5) / double(q_tiles),
                           fmt::format("all but those of the last of {} Q tiles, and the two last dQ, d={}, {}",
                                       q_tiles, d, sizes.text()));
    }
  }
}

TEST_CASE("tiles are copied by cp.async, 16 bytes per thread", "[9.9]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    const Shape s{1, 1, 1, 192, 256, d};
    const Sizes sizes = usual_sizes(d);
    const worker::Reply reply = backward(input("normal", s, 290).given, sizes.numbers()).reply;
    const double kv_tiles = double(tiles_of(s.Nk, sizes.Bc));
    for (const auto& [tensor, bytes] : {std::pair{"Q", kv_tiles * double(s.Nq * d * 2)},
                                        {"dO", kv_tiles * double(s.Nq * d * 2)},
                                        {"K", double(s.Nk * d * 2)},
                                        {"V", double(s.Nk * d * 2)},
                                        {"row_stats", kv_tiles * double(s.Nq * 8)}}) {
      expect_count(reply, std::string(tensor) + ".async_bytes", bytes, fmt::format("{}, d={}", tensor, d),
                   "your code copies a tensor more or less often than needed; it must copy each tile once", "traffic");
      expect_count(reply, std::string(tensor) + ".async_sectors", bytes / 32, fmt::format("{}, d={}", tensor, d),
                   "adjacent lanes of your code do not copy adjacent bytes; they must", "uncoalesced");
    }
  }
}

// ---- The whole chapter ----

const Claims of_the_whole = {
    {"[whole]", "the gradients agree with the oracle", [] { expect_every_kind_whole(); }},
    {"[whole]", "bf16 agrees with the oracle", [] { expect_bf16(); }},
    {"[whole]", "any two lengths agree with the oracle", [] { expect_any_two_lengths(129 * 129 * 128); }},
    {"[whole]", "offsets may exceed 32 bits", [] { expect_offsets_beyond_32_bits(); }},
    {"[whole]", "the gradients do not depend on how the work is divided", [] { expect_sizes_do_not_matter(); }},
    {"[whole]", "future queries and keys have zero influence", [] { expect_no_future(); }},
    {"[whole]", "the deterministic gradients agree with the oracle", [] { expect_right_deterministic(); }},
    {"[whole]", "200 deterministic runs are bitwise equal", [] { expect_repeatable_deterministic(200); }},
    {"[whole]", "dQ differs from run to run, within its bounds; dK and dV do not", [] { expect_only_dQ_differs(); }},
    {"[whole]", "the lane order changes only the last bits of dQ", [] { expect_order_changes_only_dQ(); }},
    {"[whole]", "five matmuls, and each operand is loaded once for 32 rows", [] { expect_instructions(); }},
};

TEST_CASE("a team of one stores no P to shared memory", "[whole]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    for (const Sizes& sizes : all_sizes(d)) {
      const Growth growth(d, sizes);
      growth.expect(
          "shared.matrix_stores", instructions_of(d, sizes).stmatrix, "stmatrix",
          "your code stores P or dS more often than other warps need it; a team of one must store only dS, once",
          "shared-traffic");
      growth.expect("shared.store_instructions", 0, "ordinary stores to shared memory",
                    "your code stores P or dS element by element; it must use stmatrix_x4", "shared-traffic");
    }
  }
}

TEST_CASE("no bank conflict", "[whole]") {
  require_counters();
  for (const std::int64_t d : head_dims())
    for (const Sizes& sizes : all_sizes(d))
      for (const char* way : {"load", "store"}) Growth(d, sizes).expect_no_bank_conflict(way);
}

const Claims of_the_whole_2 = {
    {"[whole]", "each tensor's traffic matches its formula", [] { expect_moves({}); }},
    {"[whole]", "every shared memory size has tiles", [] { expect_sizes_for_every_memory(99); }},
    {"[whole]", "extra memory grows linearly with N", [] { expect_extra_memory(8, 4); }},
};
