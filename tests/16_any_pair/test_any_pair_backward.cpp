// Chapter 16, backward: the transposed lists, and the ranks of K/V tiles.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <string>
#include <vector>

#include "tests/16_any_pair/mask_cases.hpp"
#include "tests/support/backward_properties.hpp"

using namespace workbook;
using namespace workbook::test;
using namespace workbook::test::gradients;

namespace {

Input of_problem(const Problem& problem, const std::string& name, std::uint64_t seed, Element element = float16) {
  Tensor<float> dO(problem.Q.sizes);
  dO.values = normal_values(dO.values.size(), seed + 1000);
  return {worker::backward_problem(problem, dO, element), name};
}
Input masked(const std::string& kind, const Shape& shape, std::uint64_t seed, const Mask& mask,
             Element element = float16) {
  Input in =
      of_problem(make_input(kind, {shape, mask, 0, seed}), fmt::format("{}, seed {}", kind, seed), seed, element);
  in.kind = kind;
  return in;
}
void expect_masked(const std::string& kind, const Shape& shape, std::uint64_t seed, const Mask& mask) {
  expect_right_small(masked(kind, shape, seed, mask));
}
const std::vector<std::pair<std::int64_t, std::int64_t>> some_lengths{{130, 130}, {70, 161}, {161, 70}};

}  // namespace

// ---- 16.8 P and dS ----

TEST_CASE("P and dS of unmasked pairs", "[16.8]") {
  std::uint64_t seed = 10;
  for (const auto& [Nq, Nk] : some_lengths)
    for (const Mask& mask : masks_for(Nk))
      for (const char* kind : {"normal", "value mean"}) expect_masked(kind, {1, 2, 2, Nq, Nk, 64}, ++seed, mask);
  for (const Mask& mask : masks_for(161)) expect_masked("normal", {1, 1, 1, 70, 161, 128}, ++seed, mask);
  expect_lse_and_D_of_query();
  expect_every_kind();
}

TEST_CASE("masked pairs contribute to no gradient", "[16.8]") {
  std::uint64_t seed = 60;
  for (const float scale : {-0.3f, 0.0f, 2.0f})
    for (const Mask& mask : masks_for(90)) {
      Problem problem = make_input("normal", {{1, 1, 1, 70, 90, 64}, mask, 0, ++seed});
      problem.scale = scale;
      expect_right_small(of_problem(problem, fmt::format("normal, seed {}, scale {}", seed, scale), seed));
    }
  for (const char* kind : {"large logits", "negative logits", "one hot"})
    for (const Mask& mask : masks_for(90)) expect_masked(kind, {1, 1, 1, 70, 90, 64}, ++seed, mask);
  expect_masked_pairs();
  expect_no_keys_past_the_end();
}

// ---- 16.9 ranks ----

TEST_CASE("a rank is the number of earlier non-empty blocks", "[16.9]") {
  for (const auto& [rows, columns] : {std::pair{4, 5}, {1, 9}, {6, 1}, {3, 40}}) {
    std::vector<std::int32_t> classes;
    for (int n = 0; n < rows * columns; ++n) classes.push_back((n * n + n / 3) % 3);
    const auto got = numbers_of("ranks", {{"rows", rows}, {"columns", columns}}, classes, classes.size());
    for (int row = 0; row < rows; ++row) {
      std::int32_t rank = 0;
      for (int column = 0; column < columns; ++column) {
        const auto at = std::size_t(row * columns + column);
        if (classes[at] == 0) continue;
        expect(got[at] == rank, fmt::format("your code returns rank {} for K/V tile {} of {} in Q tile {}, expected {}",
                                            got[at], column, columns, row, rank));
        ++rank;
      }
    }
  }
}

TEST_CASE("in deterministic mode dQ is right, whatever the mask", "[16.9]") {
  std::uint64_t seed = 90;
  for (const std::int64_t d : head_dims())
    for (const Mask& mask : masks_for(300))
      for (const int workers : {1, 4})
        expect_right(masked("normal", {1, 2, 2, 200, 300, d}, ++seed, mask), all_gradients,
                     usual_sizes(d, deterministic_mode), {.workers = workers});
  expect_every_kind({"dQ"}, deterministic_mode);
}

// ---- The whole chapter ----

TEST_CASE("the gradients of all masks agree with the oracle", "[whole]") {
  expect_every_kind_whole();
  std::uint64_t seed = 200;
  for (const std::int64_t d : head_dims())
    for (const auto& [Nq, Nk] : {std::pair{200, 333}, {333, 200}})
      for (const Mask& mask : masks_for(Nk)) {
        expect_right(masked("normal", {1, 2, 2, Nq, Nk, d}, ++seed, mask), all_gradients, usual_sizes(d));
        expect_masked("rising maximum", {1, 1, 1, Nq, Nk, d}, ++seed, mask);
      }
}

TEST_CASE("the gradients of grouped heads agree with the oracle for every mask", "[whole]") {
  std::uint64_t seed = 230;
  for (const std::int64_t d : head_dims())
    for (const std::int64_t Hkv : {1, 2})
      for (const Mask& mask : masks_for(133)) {
        const Shape shape{2, 4, Hkv, 100, 133, d};
        expect_right_small(masked("normal", shape, ++seed, mask));
        if ((d == 64) == (Hkv == 1))  // each mask has both
          expect_right(masked("normal", shape, seed, mask), all_gradients, usual_sizes(d, deterministic_mode),
                       {.workers = 4});
        else
          expect_right(masked("normal", shape, seed, mask, bfloat16), all_gradients, {}, {}, bfloat16);
      }
}

TEST_CASE("the gradients in bf16 agree with the oracle", "[whole]") {
  expect_bf16();
  for (const std::int64_t d : head_dims())
    for (const Mask& mask : masks_for(133))
      expect_right(masked("normal", {1, 2, 2, 70, 133, d}, 240, mask, bfloat16), all_gradients, {}, {}, bfloat16);
}

TEST_CASE("the gradients of any two lengths agree with the oracle", "[whole]") {
  expect_any_two_lengths(129 * 129 * 64);
  std::uint64_t seed = 250;
  for (const auto& [Nq, Nk] : {std::pair{1, 1}, {1, 130}, {31, 33}, {65, 64}, {7, 3}, {129, 200}})
    for (const Mask& mask : masks_for(Nk)) expect_masked("normal", {1, 1, 1, Nq, Nk, 64}, ++seed, mask);
}

TEST_CASE("a key that no query attends to has no gradient and changes none", "[whole]") {
  const Shape shape{1, 2, 2, 40, 400, 64};
  const Sizes sizes = small_sizes(64);
  for (const Mask& mask : {Mask::of_documents({100, 260, 40}), Mask::in_strides(64, 300)}) {
    BackwardProblem given = masked("normal", shape, 270, mask).given;
    const ClassedBlocks blocks = blocks_of(given.problem, shape.Nq, sizes.Bc);
    const auto is_read = [&](std::int64_t key) { return blocks.classes[std::size_t(key / sizes.Bc)] != 0; };
    const BackwardResult before = backward(given, sizes.numbers());
    // In a K/V tile that some query sees, dS = 0 is multiplied by what a key holds, and 0·NaN would be NaN.
    for (Tensor<float>* tensor : {&given.problem.K, &given.problem.V})
      for (std::int64_t h = 0; h < shape.H; ++h)
        for (std::int64_t key = 0; key < shape.Nk; ++key)
          if (!is_read(key)) std::fill_n(&(*tensor)(0, h, key, 0), shape.d, std::numeric_limits<float>::quiet_NaN());
    const BackwardResult after = backward(given, sizes.numbers());
    expect(after.dK.values == before.dK.values && after.dV.values == before.dV.values,
           fmt::format("dK or dV changes if keys to which no query attends are NaN, mask {}", mask.name()),
           "your code uses a masked pair, or reads an empty block; neither may affect a gradient", "unseen-key-used");
    expect(std::ranges::none_of(after.dQ.values, [](float x) { return x != x; }),
           fmt::format("dQ is NaN if keys to which no query attends are NaN, mask {}", mask.name()),
           "your code reads an empty block; it must skip empty blocks", "unseen-key-used");
    for (std::int64_t key = 0; key < shape.Nk; ++key)
      for (std::int64_t h = 0; h < shape.H && !is_read(key); ++h)
        expect(after.dK(0, h, key, 0) == 0 && after.dV(0, h, key, 0) == 0,
               fmt::format("dK is {1} and dV is {2} of key {0}, to which no query attends; expected 0", key,
                           after.dK(0, h, key, 0), after.dV(0, h, key, 0)),
               "your code does not write zeros for a K/V tile without Q tiles; it must set its dK and dV to 0",
               "unseen-key-used");
  }
}

TEST_CASE("the deterministic gradients agree with the oracle", "[whole]") {
  expect_right_deterministic();
  std::uint64_t seed = 280;
  const Sizes sizes = usual_sizes(64, deterministic_mode);
  for (const Mask& mask : masks_for(300)) {
    const BackwardResult got =
        expect_right(masked("normal", {1, 5, 5, 300, 300, 64}, ++seed, mask), all_gradients, sizes, {.workers = 4});
    if (got.reply.counters.empty()) continue;
    const Setting setting{{1, 5, 5, 300, 300, 64}, 1, mask};
    const ClassedBlocks blocks = blocks_of(setting, sizes.Br, sizes.Bc);
    expect_count(
        got.reply, "semaphores.atomic_requests", double(5 * (blocks.visited() * sizes.warps + blocks.columns)),
        fmt::format("{} blocks of each head are non-empty, and thread blocks draw {} tickets, mask {}",
                    blocks.visited(), blocks.columns, mask.name()),
        "your code does not increment each Q tile's semaphores exactly once per non-empty block; each warp must do so",
        "releases");
  }
}

TEST_CASE("50 deterministic runs are bitwise equal", "[whole]") {
  expect_repeatable_deterministic(10);
  const Numbers numbers = usual_sizes(64, deterministic_mode).numbers();
  const BackwardProblem given = masked("normal", {1, 1, 1, 40, 400, 64}, 300, Mask::in_strides(70, 180)).given;
  const BackwardResult first = backward(given, numbers);
  for (int run = 2; run <= 50; ++run)
    expect(same_bits(backward(given, numbers), first),
           fmt::format("a gradient of run {} differs from that of run 1", run),
           "your K/V tiles add to dQ in a varying order, or your code reads a value before it is written; in "
           "deterministic mode the order must be fixed",
           "not-repeatable");
}

TEST_CASE("each Q tile of a non-empty block is read once, for 4 bytes of index", "[whole]") {
  require_counters();
  std::uint64_t seed = 310;
  for (const std::int64_t d : head_dims())
    for (const Sizes& sizes : {usual_sizes(d), small_sizes(d)})
      for (const Mask& mask : masks_for(333)) {
        const Input in = masked("normal", {1, 2, 2, 200, 333, d}, ++seed, mask);
        const ClassedBlocks blocks = blocks_of(in.given.problem, sizes.Br, sizes.Bc);
        const worker::Reply reply = backward(in.given, sizes.numbers()).reply;
        std::int64_t queries = 0;
        for (std::int64_t n = 0; n < blocks.rows * blocks.columns; ++n)
          if (blocks.classes[std::size_t(n)] != 0) queries += std::min(sizes.Br, 200 - n / blocks.columns * sizes.Br);
        const std::string what = fmt::format("{} of {} blocks are non-empty, {}", blocks.visited(),
                                             blocks.rows * blocks.columns, describe(in.given.problem, in.name));
        for (const char* tensor : {"Q", "dO"})
          expect_count(
              reply, fmt::format("{}.async_bytes", tensor), double(2 * queries * d * 2), what,
              "your code loads an empty block, or skips a non-empty one; it must load Q and dO of each non-empty block",
              "blocks-read");
        for (const auto& [list, of_class] : {std::pair{"full_blocks", 1}, {"partial_blocks", 2}})
          expect_count(
              reply, fmt::format("{}.load_bytes", list), double(4 * 2 * sizes.warps * blocks.count(of_class)),
              what + "; 4 bytes per index",
              "your warps do not load each index exactly once; a warp must load 32 indices at once, one per lane",
              "index-bytes");
      }
}

TEST_CASE("dK and dV are written once, without additions", "[whole]") {
  require_counters();
  for (const Mask& mask : masks_for(200)) {
    const Input in = masked("normal", {2, 6, 2, 200, 200, 64}, 340, mask);
    const worker::Reply reply = backward(in.given, usual_sizes(64).numbers()).reply;
    for (const char* tensor : {"dK", "dV"}) {
      expect_count(
          reply, fmt::format("{}.atomic_requests", tensor), 0,
          fmt::format("no thread adds to {} in device memory", tensor),
          "your code adds parts of dK or dV in device memory; one thread block must accumulate them in registers",
          "gradients-by-atomics");
      expect_count(reply, fmt::format("{}.store_bytes", tensor), 4 * 200 * 64 * 2,
                   fmt::format("B·Hkv·Nk·d elements, each written once, mask {}", mask.name()),
                   "your code does not write each row of dK and dV exactly once; it must do so", "traffic");
    }
  }
}

const Claims of_the_whole = {
    {"[whole]", "the gradients do not depend on how the work is divided", [] { expect_sizes_do_not_matter(); }},
    {"[whole]", "future queries and keys have zero influence", [] { gradients::expect_no_future(); }},
    {"[whole]", "dQ differs from run to run, within its bounds; dK and dV do not", [] { expect_only_dQ_differs(); }},
    {"[whole]", "the lane order changes only the last bits of dQ", [] { expect_order_changes_only_dQ(); }},
    {"[whole]", "every size of shared memory has tiles for the gradients", [] { expect_sizes_for_every_memory(99); }},
};
