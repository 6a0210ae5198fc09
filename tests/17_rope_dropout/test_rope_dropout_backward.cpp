// Chapter 17, the backward pass: the same dropout mask as forward, and gradients that are rotated back.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "tests/17_rope_dropout/mask_cases.hpp"
#include "tests/support/backward_properties.hpp"

using namespace workbook;
using namespace workbook::test;
using namespace workbook::test::gradients;

namespace {

Input masked(const std::string& kind, const Shape& shape, std::uint64_t seed, const Mask& mask,
             Element element = float16, float scale = 0) {
  Problem problem = make_input(kind, {shape, mask, 0, seed});
  if (scale != 0) problem.scale = scale;
  Tensor<float> dO(problem.Q.sizes);
  dO.values = normal_values(dO.values.size(), seed + 1000);
  return {worker::backward_problem(problem, dO, element), fmt::format("{}, seed {}", kind, seed), kind};
}
void expect_masked(const std::string& kind, const Shape& shape, std::uint64_t seed, const Mask& mask) {
  expect_right_small(masked(kind, shape, seed, mask));
}
void expect_masks(const std::vector<Mask>& masks, std::uint64_t seed) {
  for (const auto& [Nq, Nk] : some_lengths)
    for (const Mask& mask : masks) expect_masked("normal", {1, 2, 2, Nq, Nk, 64}, ++seed, mask);
  for (const InputKind& kind : input_kinds()) expect_masked(kind.name, {1, 1, 1, 40, 70, 64}, ++seed, masks[0]);
  for (const Mask& mask : masks) {
    expect_right_small(masked("normal", {1, 1, 1, 40, 70, 64}, ++seed, mask, float16, -0.2f));
    expect_masked("normal", {1, 1, 1, 70, 161, 128}, ++seed, mask);
  }
  expect_every_kind();
}

}  // namespace

// ---- 17.7 and 17.8 ----

TEST_CASE("dV and dP exclude the pairs that the forward pass dropped", "[17.7]") {
  expect_masks(dropouts(), 10);
}
TEST_CASE("dQ and dK are rotated back", "[17.8]") {
  expect_masks(rotations(), 100);
}

// ---- The whole chapter ----

TEST_CASE("the gradients with RoPE and dropout agree with the oracle", "[whole]") {
  expect_every_kind_whole();
  std::uint64_t seed = 200;
  for (const std::int64_t d : head_dims())
    for (const auto& [Nq, Nk, heads] : {std::tuple{200, 333, 1}, {233, 100, 2}})
      for (const auto& masks : {rotations(), dropouts(), all_together()})
        for (const Mask& mask : masks)
          expect_right(masked("normal", {1, heads, heads, Nq, Nk, d}, ++seed, mask), all_gradients, usual_sizes(d));
}

TEST_CASE("the gradients in bf16 agree with the oracle", "[whole]") {
  expect_bf16();
  for (const std::int64_t d : head_dims())
    for (const Mask& mask : all_together())
      expect_right(masked("normal", {1, 2, 2, 70, 133, d}, 240, mask, bfloat16), all_gradients, {}, {}, bfloat16);
}

TEST_CASE("the gradients of any two lengths agree with the oracle", "[whole]") {
  expect_any_two_lengths(129 * 129 * 64);
  std::uint64_t seed = 250;
  for (const auto& [Nq, Nk] : {std::pair{1, 1}, {1, 130}, {31, 33}, {65, 64}, {7, 3}, {129, 200}})
    for (const Mask& mask : all_together()) expect_masked("normal", {1, 1, 1, Nq, Nk, 64}, ++seed, mask);
}

TEST_CASE("RoPE and dropout do not depend on how the work is divided", "[whole]") {
  expect_sizes_do_not_matter();
  for (const std::int64_t d : head_dims())
    for (const Sizes& sizes : all_sizes(d))
      for (const Mask& mask : all_together())
        expect_right(masked("normal", {1, 2, 2, 100, 140, d}, 270, mask), all_gradients, sizes);
}

TEST_CASE("the deterministic gradients agree with the oracle", "[whole]") {
  expect_right_deterministic();
  std::uint64_t seed = 280;
  for (const std::int64_t d : head_dims())
    for (const Mask& mask : all_together())
      expect_right(masked("normal", {1, 2, 2, 200, 300, d}, ++seed, mask), all_gradients,
                   usual_sizes(d, deterministic_mode), {.workers = 4});
}

TEST_CASE("50 deterministic runs are bitwise equal", "[whole]") {
  expect_repeatable_deterministic(10);
  const Numbers numbers = usual_sizes(64, deterministic_mode).numbers();
  const BackwardProblem given = masked("normal", {1, 1, 1, 40, 400, 64}, 300, all_together()[1]).given;
  const BackwardResult first = backward(given, numbers);
  for (int run = 2; run <= 50; ++run)
    expect(same_bits(backward(given, numbers), first),
           fmt::format("a gradient of run {} differs from that of run 1", run),
           "your K/V tiles add to dQ in a varying order, or your code reads a value before it is written; in "
           "deterministic mode the order must be fixed",
           "not-repeatable");
}

TEST_CASE("a row's rotation is read once per copy and once for its gradient", "[whole]") {
  require_counters();
  for (const std::int64_t d : head_dims())
    for (const Sizes& sizes : {usual_sizes(d), small_sizes(d)})
      for (const bool causal : {false, true}) {
        const Shape shape{1, 2, 2, 200, 333, d};
        const worker::Reply reply =
            backward(masked("normal", shape, 310, rotated(Mask(causal))).given, sizes.numbers()).reply;
        const BlockCount blocks = count_blocks(shape, causal, sizes);
        // Rows of K, of dK, of Q in each Q tile that a thread block loads, and of dQ; d/2 cosines and sines per row.
        const std::int64_t rows = shape.H * (2 * shape.Nk + shape.Nq + blocks.queries);
        expect_count(reply, "table.load_bytes", double(4 * d * rows),
                     fmt::format("one rotation per row of K, dK and dQ, and {} rows of Q in each head, d={}, causal={}",
                                 blocks.queries, d, causal),
                     "your code does not rotate each copied row and each row of dK and dQ exactly once; it must do so",
                     "table-read");
      }
}

const Claims of_the_whole = {
    {"[whole]", "offsets in the backward pass may exceed 32 bits", [] { gradients::expect_offsets_beyond_32_bits(); }},
    {"[whole]", "future queries and keys have zero influence", [] { gradients::expect_no_future(); }},
    {"[whole]", "dQ differs from run to run, within its bounds; dK and dV do not", [] { expect_only_dQ_differs(); }},
    {"[whole]", "the lane order changes only the last bits of dQ", [] { expect_order_changes_only_dQ(); }},
    {"[whole]", "every size of shared memory has tiles for the gradients", [] { expect_sizes_for_every_memory(99); }},
};
