// Chapter 8: the kernel in registers, phase by phase and whole.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "common/attention/element.hpp"
#include "tests/support/forward_properties.hpp"
#include "tests/support/matmul.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

// ---- 8.1 ----

struct Position {
  std::int64_t row, column;
  friend bool operator==(const Position&, const Position&) = default;
};

/// One of the three matrices: a lane's elements in the PTX layout.
struct Matrix {
  const char* name;
  int first, elements;  ///< in the table of the operation "fragment_layout"
  Position (*right)(int lane, int element);
};
const Matrix matrices[] = {
    {"A", 0, 8,
     [](int lane, int e) {
       return Position{lane / 4 + e / 2 % 2 * 8, lane % 4 * 2 + e % 2 + e / 4 * 8};
     }},
    {"B", 8, 4,
     [](int lane, int e) {
       return Position{lane % 4 * 2 + e % 2 + e / 2 * 8, lane / 4};
     }},
    {"D", 12, 4,
     [](int lane, int e) {
       return Position{lane / 4 + e / 2 * 8, lane % 4 * 2 + e % 2};
     }},
};

void expect_fragment_layout() {
  worker::Call request("fragment_layout");
  request.output<std::int32_t>("rows", 512).output<std::int32_t>("columns", 512);
  const worker::Reply reply = call(request);
  const auto rows = reply.output<std::int32_t>("rows"), columns = reply.output<std::int32_t>("columns");
  for (const Matrix& matrix : matrices)
    for (int lane = 0; lane < 32; ++lane)
      for (int e = 0; e < matrix.elements; ++e) {
        const auto i = std::size_t(16 * lane + matrix.first + e);
        const Position is{rows[i], columns[i]}, wanted = matrix.right(lane, e);
        expect(
            is == wanted,
            fmt::format("the position of element {} of {} in lane {} is row {}, column {}, expected row {}, column {}",
                        e, matrix.name, lane, is.row, is.column, wanted.row, wanted.column));
      }
}

}  // namespace

// ---- 8.1 places ----

TEST_CASE("each lane's elements match the PTX layout", "[8.1]") {
  expect_fragment_layout();
}

TEST_CASE("one mma multiplies the elements at these positions", "[8.1]") {
  Matmul{"multiply", false, half_tensor({1, 1, 16, 16}, 1), half_tensor({1, 1, 16, 8}, 2)}.expect_right(
      "C = A B, normal A and B, seeds 1 and 2");
}

// ---- 8.2 swizzled tiles and ldmatrix ----

TEST_CASE("tiles are loaded unchanged from swizzled rows", "[8.2]") {
  // One of 16 columns at a time, so that a chunk from another slot is visible in the result.
  for (const std::int64_t d : head_dims()) {
    expect_right(input("value mean", {1, 1, 1, 32, 32, d}, 10), {32, 32});
    expect_right(input("one hot", {1, 1, 1, 40, 64, d}, 11), {32, 32});
  }
  expect_right(input("normal", {1, 2, 2, 70, 133, 64}, 12));
}

TEST_CASE("each chunk of a row has its own slot", "[8.2]") {
  // Two chunks in one slot are a race, and one slot is never written: the simulator reports both.
  for (const std::int64_t d : head_dims())
    for (const Tiles& tiles : all_tiles(d)) expect_right(input("normal", {1, 1, 1, 32, 64, d}, 13), tiles);
  expect_every_kind_in_this_part();
}

TEST_CASE("cp.async and ldmatrix have no bank conflicts", "[8.2]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    for (const Tiles& tiles : all_tiles(d)) {
      const Problem problem = input("normal", {1, 1, 1, tiles.Br, 192, d}, 14).problem;
      for (const auto& [element, way] :
           {std::pair{float16, "load"}, {float16, "store"}, {bfloat16, "load"}, {bfloat16, "store"}}) {
        const worker::Reply reply = attention(problem, tiles.numbers(), element).reply;
        const double wavefronts = counter(reply, fmt::format("shared.{}_wavefronts", way)),
                     ideal = counter(reply, fmt::format("shared.{}_ideal", way));
        expect(
            wavefronts == ideal,
            fmt::format(
                "with d={}, {}, {}, the {}s of shared memory take {} wavefronts, expected {}, without bank conflicts",
                d, tiles.text(), name(element), way, wavefronts, ideal),
            d < 64 ? "your code stores the same chunk of different pairs of rows in the same banks; two rows share 128 "
                     "bytes, so the exclusive or must use the index of the pair"
                   : "your code stores the same chunk of eight rows in the same banks; the exclusive or must use the "
                     "row's index modulo 8",
            "swizzle-conflicts");
      }
    }
  }
}

// ---- 8.3 multiply_QK ----

void expect_loaded_once() {
  require_counters();
  // An ldmatrix_x4 loads 16 x 16 elements.
  for (const std::int64_t d : head_dims()) {
    for (const Tiles& tiles : all_tiles(d)) {
      const auto warps = double(tiles.warps);
      const double KV = 2 * (64.0 / 16) * (double(d) / 16),
                   Q = d <= 64 ? 0 : 64.0 / double(tiles.Bc) * 2 * (double(d) / 16), expected = warps * (KV + Q);
      const double got = growth("shared.matrix_loads", d, tiles);
      expect(got == expected,
             fmt::format("with d={}, {}, 64 more keys take {} ldmatrix, expected {}: each warp loads each 16 × 16 part "
                         "of K and V once{}",
                         d, tiles.text(), got, expected, Q > 0 ? ", and Q once per tile" : ""),
             "your code loads a part of Q, K or V more than once, or fewer than four matrices at a time; it must load "
             "each part once by ldmatrix_x4",
             "matrix-loads");
      const double products = growth("tensor_instructions", d, tiles),
                   needed = warps * 2 * 2 * (64.0 / 8) * (double(d) / 16);
      expect(products == needed,
             fmt::format("with d={}, {}, 64 more keys take {} mma, expected {}", d, tiles.text(), products, needed),
             "your code computes some part of the matmuls more than once or not at all; it must compute each part once",
             "products");
    }
  }
}

TEST_CASE("all columns of Q and K contribute", "[8.3]") {
  expect_every_column();
}

TEST_CASE("each key has its own score", "[8.3]") {
  expect_every_kind_in_this_part();
  for (const Tiles& tiles : all_tiles(64)) {
    expect_right(input("one hot", {1, 1, 1, 64, 192, 64}, 21), tiles);
    expect_right(input("normal", {1, 2, 2, 70, 133, 128}, 22), tiles);
    expect_right(input("normal", {1, 2, 2, 70, 133, 32}, 23), tiles);
  }
}

TEST_CASE("Q, K and V are loaded once for 32 rows", "[8.3]") {
  expect_loaded_once();
}

// ---- 8.4 online_softmax ----

TEST_CASE("a maximum that rises in the last tile", "[8.4]") {
  expect_rising_maximum();
  expect_every_kind_in_this_part();
}

TEST_CASE("a row's maximum may be in any lane of its quad", "[8.4]") {
  // One key's scores exceed all others: the lane that holds them changes with the key.
  for (const std::int64_t key : {0, 1, 2, 4, 6, 7, 9, 12}) {
    Input one = input("normal", {1, 1, 1, 32, 32, 64}, 34);
    add_to_scores(
        one, [](std::int64_t i) { return 4 + i % 5; }, [=](std::int64_t j) { return j == key ? 8 : 0; });
    one.name += fmt::format(", the scores of key {} about 32 to 64 higher", key);
    expect_right(one, {32, 32});
  }
}

TEST_CASE("each row has its own maximum", "[8.4]") {
  expect_row_maxima();
}

TEST_CASE("a maximum costs two shuffles", "[8.4]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    const Tiles tiles = nearest_tiles(d, {128, 64});
    const double shuffles = growth("shuffles", d, tiles), expected = double(64 / tiles.Bc * tiles.warps * 4 * 2);
    expect(shuffles == expected,
           fmt::format("with d={}, 64 more keys take {} shuffles, expected {}: two for each of the 4 rows of a lane, "
                       "in each of {} warps, {}",
                       d, shuffles, expected, tiles.warps, tiles.text()),
           "your code has more or fewer shuffles than needed; a row's maximum must take two within its quad, and l "
           "none before the end",
           "shuffles");
  }
}

TEST_CASE("m moves only when a score exceeds it by more than slack", "[8.4]") {
  // The scores rise by this much from the first tile to the second: 5 is about 7 in units of log2, 7 about 10.
  for (const auto& [rise, rescaled] : {std::pair{5, 1}, {7, 2}}) {
    for (const std::int64_t d : head_dims()) {
      Input rising = input("uniform", {1, 1, 1, 32, 64, d}, 36);
      add_to_scores(
          rising, [](std::int64_t) { return 1; }, [=](std::int64_t j) { return j < 32 ? 0 : rise; });
      rising.name += fmt::format(", scores rise by {} at key 32", rise);
      const AttentionResult result = expect_right(rising, {32, 32});
      if (result.reply.counters.empty()) continue;  // nothing counts on the GPU
      const double tiles = counter(result.reply, "note.rescaled tile");
      expect(tiles == rescaled,
             fmt::format("with d={} and scores that rise by {} at the second tile, O is rescaled in {} of 2 tiles, "
                         "expected {} (in the first, m rises from -inf)",
                         d, rise, tiles, rescaled),
             tiles > rescaled
                 ? m_follows_too_early
                 : "your code keeps m although a score exceeds it by more than `slack`; it must raise m then",
             "slack-ignored");
    }
  }
}

const Claims of_8_4 = {
    {"[8.4]", "large logits stay finite", [] { expect_finite(); }},
    {"[8.4]", "fully masked rows give O = 0 and LSE = -inf, never NaN", [] { expect_rows_without_keys(); }},
    {"[8.4]", "a scale of any sign", [] { expect_any_scale(); }},
};

TEST_CASE("probabilities keep their precision", "[8.5]") {
  expect_precise_P();
}

// ---- 8.5 accumulate_PV ----

TEST_CASE("every key's value reaches O", "[8.5]") {
  expect_every_value();
  expect_every_kind_in_this_part();
}

TEST_CASE("P is multiplied with the right keys", "[8.5]") {
  // One key of 16 has all the weight: V of another is not near.
  for (const Tiles& tiles : all_tiles(64)) expect_right(input("one hot", {1, 1, 1, 40, 140, 64}, 51), tiles);
  for (const std::int64_t d : {32, 128}) expect_right(input("late spike", {1, 1, 1, 40, 100, d}, 52), {32, 32});
}

TEST_CASE("sums keep their precision over many tiles", "[8.5]") {
  expect_precise_sums();
}

TEST_CASE("each part of V is loaded once for 32 rows", "[8.5]") {
  expect_loaded_once();
}

// ---- 8.6 write_output ----

TEST_CASE("the LSE is a natural logarithm over all keys", "[8.6]") {
  expect_lse_over_all_keys();
}

TEST_CASE("O is divided by l exactly once", "[8.6]") {
  expect_divided_once();
  expect_every_kind_in_this_part();
}

const Claims of_8_6 = {
    {"[8.6]", "every element of O is written once, and nothing else", [] { expect_every_element_written(); }},
    {"[8.6]", "O is written 16 bytes per lane", [] { expect_wide_O(); }},
};

// ---- 8.7 the pipeline ----

TEST_CASE("ragged tails are computed correctly", "[8.7]") {
  expect_ragged_tails();
  expect_every_kind_in_this_part();
}

TEST_CASE("data past the last key never reaches O", "[8.7]") {
  expect_nothing_past_the_end();
}

TEST_CASE("the stages do not race, whatever the order of the lanes", "[8.7]") {
  for (const std::int64_t d : head_dims())
    for (const int lane_seed : {0, 1, 2})
      expect_right(input("rising maximum", {1, 1, 1, 70, 150, d}, 74), {}, {}, lane_seed);
}

TEST_CASE("one barrier per tile", "[8.7]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    for (const Tiles& tiles : all_tiles(d)) {
      const std::int64_t heads = 2, Nq = 200, Nk = 150;
      const worker::Reply reply =
          attention(input("normal", {1, heads, heads, Nq, Nk, d}, 75).problem, tiles.numbers()).reply;
      const std::int64_t q_tiles = tiles_of(Nq, tiles.Br), kv_tiles = tiles_of(Nk, tiles.Bc);
      expect_count(
          reply, "block_barriers", double(heads * q_tiles * kv_tiles),
          fmt::format("{} heads · {} query tiles · {} K/V tiles, d={}, {}", heads, q_tiles, kv_tiles, d, tiles.text()),
          "your code has a __syncthreads() that protects nothing, or one too few; it must have one per tile",
          "barriers");
      const std::int64_t warps = heads * q_tiles * tiles.warps;
      const double waits = counter(reply, "async_partial_waits");
      expect(waits >= double(warps),
             fmt::format(
                 "{} waits of {} warps leave copies of K_0 and V_0 in flight; each warp must wait for Q only, d={}, {}",
                 waits, warps, d, tiles.text()),
             "your code waits for K_0 and V_0 before it reads Q; one group must be allowed to stay in flight",
             "waits-for-all");
    }
  }
}

TEST_CASE("the next tiles are copied during the matmuls", "[8.7]") {
  for (const std::int64_t d : head_dims()) expect_matmuls_beside_copies(d, 1);
}

TEST_CASE("tiles are copied by cp.async, 16 bytes per thread", "[8.7]") {
  expect_wide_tiles("async");
}

// ---- The whole chapter ----

const Claims of_the_whole = {
    {"[whole]", "registers agrees with the oracle", [] { expect_every_kind(); }},
    {"[whole]", "bf16 agrees with the oracle", [] { expect_element(bfloat16); }},
    {"[whole]", "any two lengths agree with the oracle", [] { expect_any_two_lengths(); }},
    {"[whole]", "offsets may exceed 32 bits", [] { expect_offsets_beyond_32_bits(); }},
    {"[whole]", "the answer does not depend on Br, Bc or the number of warps", [] { expect_tiles_do_not_matter(); }},
    {"[whole]", "future positions have zero influence", [] { expect_no_future(); }},
    {"[whole]", "a row's answer depends on no other row of Q", [] { expect_rows_independent(); }},
    {"[whole]", "results do not depend on workers or lane order", [] { expect_order_changes_nothing(); }},
};

TEST_CASE("200 runs are bitwise equal", "[whole]") {
  // tests/cuda/test_any_lengths.cpp does it with blocks on all of a GPU, and for bf16.
  expect_repeatable(200);
}

TEST_CASE("Q is read once, K and V up to the diagonal; O and the LSE are written once", "[whole]") {
  expect_moves();
}

TEST_CASE("shared memory holds no S and no P", "[whole]") {
  require_counters();
  // What is stored there: Q, K and V by cp.async, 16 bytes a lane, and O once by stmatrix. Ordinary stores: none. What
  // is loaded: parts of Q, K and V by ldmatrix, and O once, 16 bytes a lane.
  for (const std::int64_t d : head_dims()) {
    for (const auto& [tiles, element] :
         {std::pair{usual_tiles(d), float16}, {small_tiles(d), float16}, {usual_tiles(d), bfloat16}}) {
      const std::int64_t Nk = 192;
      const worker::Reply reply =
          attention(input("rising maximum", {1, 1, 1, tiles.Br, Nk, d}, 157).problem, tiles.numbers(), element).reply;
      const double O_parts = double(tiles.Br * d) / 256, rows_of_16 = double(tiles.Br * d) / 256;
      const auto expect_shared = [&](const std::string& name, double expected, const std::string& why) {
        expect_count(reply, "shared." + name, expected,
                     fmt::format("{}, d={}, {}, {}", why, d, tiles.text(), workbook::name(element)),
                     "your code stores or loads something other than tiles of Q, K, V and O in shared memory; S and P "
                     "must stay in registers",
                     "shared-traffic");
      };
      expect_shared("store_instructions", 0, "no ordinary stores");
      expect_shared("matrix_stores", O_parts, "O is stored once, 16 × 16 elements per instruction");
      expect_shared("load_instructions", rows_of_16, "O is read once, 16 bytes per lane");
    }
  }
}

const Claims of_the_whole_2 = {
    {"[whole]", "the tiles fit 64, 99, 163 and 227 KB of shared memory", [] { expect_tiles_for_every_size(); }},
    {"[whole]", "extra memory does not grow with N", [] { expect_no_extra_memory(); }},
};
