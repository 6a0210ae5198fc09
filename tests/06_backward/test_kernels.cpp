// Chapter 6's kernels, exercise by exercise: each gradient for itself, and the causal skipping.
#include <catch2/catch_test_macros.hpp>

#include "tests/06_backward/gradients.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

/// Inputs that only the tiles [first, first + count) of the rows that are summed over have a part in: dO is 0 for all
/// other queries.
Input only_queries(Input in, std::int64_t first, std::int64_t count) {
  const Shape& s = in.given.problem.shape;
  for (std::size_t at = 0; at < in.given.dO.values.size(); ++at) {
    const std::int64_t query = std::int64_t(at) / s.d % s.Nq;
    if (query < first || query >= first + count) in.given.dO.values[at] /= 64;
  }
  in.name += fmt::format(", dO small but for queries {} to {}", first, first + count - 1);
  return in;
}

/// How many (block, tile) pairs the two kernels must load, and how many of these need a mask: counted pair by pair.
/// Query i sees the keys j <= i + offset.
struct TileCount {
  std::int64_t query_tiles = 0, key_tiles = 0, masked = 0;
};
TileCount count_tiles(const Shape& s, std::int64_t offset, const GradientTiles& tiles) {
  const auto& [owned, passing] = tiles;
  TileCount count;
  const auto sees = [&](std::int64_t i, std::int64_t j) { return j < s.Nk && j <= i + offset; };
  for (std::int64_t first = 0; first < s.Nk; first += owned) {  // blocks that own keys
    for (std::int64_t tile = 0; tile < s.Nq; tile += passing) {
      bool any = false, all = true;
      for (std::int64_t j = first; j < std::min(first + owned, s.Nk); ++j) {
        for (std::int64_t i = tile; i < std::min(tile + passing, s.Nq); ++i) (sees(i, j) ? any : all) = sees(i, j);
      }
      count.query_tiles += any;
      count.masked += any && !all;
    }
  }
  for (std::int64_t first = 0; first < s.Nq; first += owned) {  // blocks that own queries
    for (std::int64_t tile = 0; tile < s.Nk; tile += passing) {
      bool any = false, all = true;
      for (std::int64_t i = first; i < std::min(first + owned, s.Nq); ++i) {
        for (std::int64_t j = tile; j < tile + passing; ++j) {  // keys that do not exist need a mask, too
          (sees(i, j) ? any : all) = sees(i, j);
        }
      }
      count.key_tiles += any;
      count.masked += any && !all;
    }
  }
  return count;
}

/// The offset of the causal mask, or one with which every query sees every key.
std::int64_t offset_of(const Shape& s, bool causal) {
  return causal ? s.Nk - s.Nq : s.Nk;
}

}  // namespace

// ---- 6.3 form_P_and_dS ----

TEST_CASE("P is recomputed from the LSE", "[6.3]") {
  std::uint64_t seed = 100;
  for (const char* kind : {"normal", "large logits", "value mean"}) {
    expect_backward(input(kind, {1, 2, 2, 70, 100, 64}, ++seed), {}, {"dV", "dK", "dQ"});
    expect_backward(input(kind, {1, 1, 1, 40, 70, 128}, ++seed), {4, 2}, {"dV", "dK", "dQ"});
  }
  expect_backward(input("normal", {1, 1, 1, 40, 70, 32}, ++seed, {.scale = -0.3f}), {}, {"dV", "dK", "dQ"});
}

TEST_CASE("D is subtracted before anything is rounded", "[6.3]") {
  // Where V has a mean, dP and D are large and close to each other; a mean of K multiplies what is lost.
  for (const std::int64_t d : {32, 64})
    expect_backward(input("normal", {1, 1, 1, 64, 96, d}, 110, {.K_mean = 1, .V_mean = 3}), {}, {"dQ", "dK", "dV"},
                    {.in_float = true});
}

TEST_CASE("negative logits do not overflow in the tail", "[6.3]") {
  // Of the three only dQ adds up over keys, those that do not exist among them.
  expect_backward(input("negative logits", {1, 1, 1, 40, 70, 64}, 120, {.zeros = true}), {}, {"dV", "dK", "dQ"});
  expect_backward(input("negative logits", {1, 1, 1, 33, 17, 32}, 121), {8, 2}, {"dV", "dK", "dQ"});
}

// ---- 6.4 accumulate_keys ----

TEST_CASE("dV is Pᵀ dO", "[6.4]") {
  std::uint64_t seed = 130;
  for (const std::int64_t d : {32, 64, 128}) {
    for (const Plan& plan : plans(d)) expect_backward(input("normal", {1, 1, 1, 130, 64, d}, ++seed), plan, {"dV"});
  }
}

TEST_CASE("dK is scale dSᵀ Q", "[6.4]") {
  std::uint64_t seed = 140;
  for (const std::int64_t d : {32, 64, 128}) {
    for (const Plan& plan : plans(d)) expect_backward(input("normal", {1, 1, 1, 130, 64, d}, ++seed), plan, {"dK"});
  }
}

TEST_CASE("the causal mask of dK and dV is aligned bottom-right", "[6.4]") {
  std::uint64_t seed = 150;
  for (const auto& [Nq, Nk] : {std::pair{96, 96}, {50, 110}, {110, 50}}) {
    expect_backward(input("normal", {1, 1, 1, Nq, Nk, 64}, ++seed, {.causal = true}), {}, {"dV", "dK"});
    expect_backward(input("normal", {1, 1, 1, Nq, Nk, 32}, ++seed, {.causal = true}), {4, 2}, {"dV", "dK"});
  }
}

TEST_CASE("dK and dV add up over all query tiles", "[6.4]") {
  // In turn, dO of each tile of queries is large and that of the others small.
  for (const Plan& plan : {Plan{4, 1}, Plan{4, 2}}) {
    for (std::int64_t first = 0; first < 128; first += 32) {
      expect_backward(only_queries(input("normal", {1, 1, 1, 128, 40, 32}, 160), first, 32), plan, {"dV", "dK"});
    }
  }
}

// ---- 6.5 accumulate_queries ----

TEST_CASE("dQ is scale dS K", "[6.5]") {
  std::uint64_t seed = 170;
  for (const std::int64_t d : {32, 64, 128}) {
    for (const Plan& plan : plans(d)) expect_backward(input("normal", {1, 1, 1, 64, 130, d}, ++seed), plan, {"dQ"});
  }
}

TEST_CASE("keys that do not exist have no part in dQ", "[6.5]") {
  std::uint64_t seed = 180;
  for (const std::int64_t Nk : {1, 17, 47, 95}) {
    expect_backward(input("negative logits", {1, 1, 1, 40, Nk, 64}, ++seed, {.zeros = true}), {}, {"dQ"});
    expect_backward(input("negative logits", {1, 1, 1, 40, Nk, 32}, ++seed), {4, 2}, {"dQ"});
  }
}

TEST_CASE("the causal mask of dQ is aligned bottom-right", "[6.5]") {
  std::uint64_t seed = 190;
  for (const auto& [Nq, Nk] : {std::pair{96, 96}, {50, 110}, {110, 50}}) {
    expect_backward(input("normal", {1, 1, 1, Nq, Nk, 64}, ++seed, {.causal = true}), {}, {"dQ"});
    expect_backward(input("normal", {1, 1, 1, Nq, Nk, 32}, ++seed, {.causal = true}), {4, 2}, {"dQ"});
  }
}

TEST_CASE("dQ adds up over all key tiles", "[6.5]") {
  // In turn, V of each tile of keys is large and that of the others small.
  for (const Plan& plan : {Plan{4, 1}, Plan{4, 2}}) {
    for (std::int64_t first = 0; first < 128; first += 32) {
      Problem problem = make_input("normal", {{1, 1, 1, 40, 128, 32}, false, 0, 200});
      for (std::int64_t j = 0; j < 128; ++j) {
        for (std::int64_t c = 0; c < 32; ++c) {
          if (j < first || j >= first + 32) problem.V(0, 0, j, c) /= 64;
        }
      }
      Tensor<float> dO({1, 1, 40, 32});
      dO.values = normal_values(dO.values.size(), 201);
      const Input in{worker::backward_problem(problem, dO, "float16"),
                     fmt::format("normal, seed 200, V small but for keys {} to {}", first, first + 31)};
      expect_backward(in, plan, {"dQ"});
    }
  }
}

// ---- 6.6 rows_that_pass ----

TEST_CASE("causal agrees with the oracle for Nq above, at and below Nk", "[6.6]") {
  std::uint64_t seed = 210;
  for (const auto& [Nq, Nk] : {std::pair{200, 90}, {150, 150}, {90, 200}, {1, 140}, {140, 1}, {33, 161}})
    expect_backward(input("normal", {1, 1, 1, Nq, Nk, 32}, ++seed, {.causal = true}));
  expect_backward(input("normal", {1, 1, 1, 100, 150, 64}, ++seed, {.causal = true}), {4, 2});
  expect_backward(input("normal", {1, 1, 1, 70, 90, 32}, ++seed));
}

TEST_CASE("causal loads only tiles with a visible pair", "[6.6]") {
  require_counters();
  for (const auto& [d, plan] : {std::pair{32, Plan{4, 1}}, {128, Plan{8, 2}}}) {
    for (const auto& [Nq, Nk] : {std::pair{256, 256}, {128, 320}, {320, 128}}) {
      for (const bool causal : {true, false}) {
        const Shape shape{1, 1, 1, Nq, Nk, d};
        const GradientTiles tiles = plan.tiles(d);
        const Numbers numbers = plan.numbers();
        const TileCount needed = count_tiles(shape, offset_of(shape, causal), tiles);
        const TileCount top_left = count_tiles(shape, causal ? 0 : Nk, tiles);
        const worker::Reply reply = backward(input("normal", shape, 220, {causal}).given, numbers).reply;
        const std::string how = fmt::format("Nq={}, Nk={}, causal={}, blocks of {} rows, tiles of {}", Nq, Nk,
                                            causal ? "yes" : "no", tiles.owned, tiles.passing);
        // Beside the tiles that pass by, all of a tensor is read once by the blocks that own it, and dO once for D.
        const auto expect_tiles = [&](const char* tensor, std::int64_t once, std::int64_t TileCount::*pass) {
          const std::int64_t wanted = needed.*pass + once;
          const double got = counter(reply, fmt::format("{}.tiles", tensor));
          const bool moved = got == double(top_left.*pass + once), more = got > double(wanted);
          expect(got == double(wanted),
                 fmt::format("{} tiles of {} are read, expected {}: {} that have a pair which counts, and {} once for "
                             "their own sake ({})",
                             got, tensor, wanted, needed.*pass, once, how),
                 moved  ? "so many pass if query i sees the keys j <= i; here it sees those with j <= i + Nk - Nq"
                 : more ? "a block loads tiles in which no query sees any of the keys"
                        : "a block skips a tile in which a query sees a key",
                 moved  ? "mask-top-left"
                 : more ? "tiles-not-skipped"
                        : "tiles-skipped");
        };
        const std::int64_t of_queries = tiles_of(Nq, tiles.passing), of_keys = tiles_of(Nk, tiles.passing);
        expect_tiles("Q", of_queries, &TileCount::query_tiles);
        expect_tiles("dO", 2 * of_queries, &TileCount::query_tiles);
        expect_tiles("K", of_keys, &TileCount::key_tiles);
        expect_tiles("V", of_keys, &TileCount::key_tiles);
      }
    }
  }
}

TEST_CASE("only tiles that the diagonal or the end crosses are masked", "[6.6]") {
  require_counters();
  for (const auto& [Nq, Nk] : {std::pair{256, 256}, {100, 330}, {330, 100}}) {
    for (const bool causal : {true, false}) {
      const Shape shape{1, 1, 1, Nq, Nk, 32};
      const Plan plan{4, 1};
      const TileCount needed = count_tiles(shape, offset_of(shape, causal), plan.tiles(32));
      const worker::Reply reply = backward(input("normal", shape, 230, {causal}).given, plan.numbers()).reply;
      const double got = counter(reply, "note.masked tile");
      expect(got == double(needed.masked),
             fmt::format("{} tiles are masked, {} have a pair that does not count (Nq={}, Nk={}, causal={})", got,
                         needed.masked, Nq, Nk, causal ? "yes" : "no"),
             got > double(needed.masked) ? "tiles are masked in which every pair counts"
                                         : "a tile is not masked in which a pair does not count",
             got > double(needed.masked) ? "masked-too-much" : "masked-too-little");
    }
  }
}
