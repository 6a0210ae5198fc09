// Chapter 6's kernels, exercise by exercise: each gradient for itself, and the causal skipping.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "tests/06_backward/gradients.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

/// How many tiles the two kernels must stream, and how many of these need a mask, counted pair by pair.
/// Query i attends to the keys j <= i + offset.
struct TileCount {
  std::int64_t q_tiles = 0, kv_tiles = 0, masked = 0;
};
TileCount count_tiles(const Shape& s, std::int64_t offset, const GradientTiles& tiles) {
  const auto& [resident, streamed] = tiles;
  TileCount count;
  const auto attends = [&](std::int64_t i, std::int64_t j) { return j < s.Nk && j <= i + offset; };
  for (std::int64_t first = 0; first < s.Nk; first += resident) {  // resident K/V tiles
    for (std::int64_t tile = 0; tile < s.Nq; tile += streamed) {
      bool any = false, all = true;
      for (std::int64_t j = first; j < std::min(first + resident, s.Nk); ++j) {
        for (std::int64_t i = tile; i < std::min(tile + streamed, s.Nq); ++i)
          (attends(i, j) ? any : all) = attends(i, j);
      }
      count.q_tiles += any;
      count.masked += any && !all;
    }
  }
  for (std::int64_t first = 0; first < s.Nq; first += resident) {  // resident Q tiles
    for (std::int64_t tile = 0; tile < s.Nk; tile += streamed) {
      bool any = false, all = true;
      for (std::int64_t i = first; i < std::min(first + resident, s.Nq); ++i) {
        for (std::int64_t j = tile; j < tile + streamed; ++j) {  // keys past the end need a mask, too
          (attends(i, j) ? any : all) = attends(i, j);
        }
      }
      count.kv_tiles += any;
      count.masked += any && !all;
    }
  }
  return count;
}

/// Lengths with the diagonal at every offset within a tile of 32, and some more.
std::vector<std::pair<std::int64_t, std::int64_t>> lengths_of_every_kind() {
  std::vector<std::pair<std::int64_t, std::int64_t>> all{{256, 256}, {128, 320}, {320, 128}, {100, 330}, {330, 100}};
  for (std::int64_t more = -16; more < 16; ++more) all.emplace_back(70, 70 + more);
  return all;
}

void expect_causal(const std::vector<std::string>& which, std::uint64_t seed) {
  for (const auto& [Nq, Nk] : {std::pair{96, 96}, {50, 110}, {110, 50}}) {
    expect_simple(input("normal", {1, 1, 1, Nq, Nk, 64}, ++seed, {.causal = true}), which);
    expect_backward(input("normal", {1, 1, 1, Nq, Nk, 32}, ++seed, {.causal = true}), {4, 2}, which);
  }
}

/// However the work is divided.
void expect_any_plan(const std::vector<std::string>& which, std::int64_t Nq, std::int64_t Nk, std::uint64_t& seed) {
  for (const std::int64_t d : head_dims()) {
    for (const Plan& plan : plans(d)) {
      expect_backward(input("normal", {1, 1, 1, Nq, Nk, d}, ++seed), plan, which);
      expect_backward(input("normal", {1, 2, 2, 70, 100, d}, ++seed, {.causal = true, .scale = -0.2f}), plan, which);
    }
  }
  expect_backward(input("normal", {1, 1, 1, 100, 70, 32}, ++seed, {.causal = true}), {1, 1}, which);
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
    expect_simple(input(kind, {1, 2, 2, 70, 100, 64}, ++seed), {"dV", "dK", "dQ"});
    expect_backward(input(kind, {1, 1, 1, 40, 70, 128}, ++seed), {4, 2}, {"dV", "dK", "dQ"});
  }
  expect_backward(input("normal", {1, 1, 1, 40, 70, 32}, ++seed, {.scale = -0.3f}), {}, {"dV", "dK", "dQ"});
  expect_every_kind_of({"dV", "dK", "dQ"});
}

TEST_CASE("D is subtracted before anything is rounded", "[6.3]") {
  // Where V has a mean, dP and D are large and close to each other; a mean of K multiplies what is lost.
  for (const std::int64_t d : {32, 64})
    expect_backward(input("normal", {1, 1, 1, 64, 96, d}, 110, {.K_mean = 1, .V_mean = 3}), {2, 1}, {"dQ", "dK", "dV"},
                    {.in_float = true});
}

TEST_CASE("negative logits do not overflow in the tail", "[6.3]") {
  // Of the three only dQ adds up over keys, those that do not exist among them.
  expect_simple(input("negative logits", {1, 1, 1, 40, 70, 64}, 120, {.zeros = true}), {"dV", "dK", "dQ"});
  expect_backward(input("negative logits", {1, 1, 1, 33, 17, 32}, 121), {4, 2}, {"dV", "dK", "dQ"});
}

TEST_CASE("a masked pair has P = 0 at any scale", "[6.3]") {
  // The first queries see few keys: exp(S - LSE) of the others is infinite, and 0 times that NaN.
  expect_simple(input("large logits", {1, 1, 1, 40, 40, 64}, 128, {.causal = true}), {"dV", "dK", "dQ"});
  // -inf as its score does not do: a negative scale makes +inf of it, and a scale of 0 NaN.
  for (const auto& [Nq, Nk] : {std::pair{40, 70}, {70, 40}}) {
    const Shape shape{1, 1, 1, Nq, Nk, 64};
    // Only what is right with a positive scale can be wrong because of what does not count.
    expect_simple(input("normal", shape, 125, {.causal = true, .scale = 0.3f}), {"dV", "dK", "dQ"});
    for (const float scale : {-0.3f, 0.0f}) {
      const Input in = input("normal", shape, 125, {.causal = true, .scale = scale});
      expect(all_finite(backward(in.given, {{"simple", 1}})),
             fmt::format(
                 "with a scale of {} and causal=yes a gradient is infinite or NaN, but with a scale of 0.3 all are "
                 "right (Nq={}, Nk={})",
                 scale, Nq, Nk),
             "your code sets masked scores to -inf before it scales them, and a negative scale turns this into +inf, a "
             "scale of 0 into NaN; it must set P itself to 0",
             "mask-times-scale");
      expect_simple(in, {"dV", "dK", "dQ"});
    }
  }
}

// ---- 6.4 P_and_dS_of_keys ----

TEST_CASE("dV is Pᵀ dO", "[6.4]") {
  std::uint64_t seed = 130;
  expect_simple(input("normal", {1, 2, 2, 130, 64, 64}, ++seed), {"dV"});
  expect_simple(input("normal", {2, 1, 1, 33, 47, 64}, ++seed), {"dV"});
  expect_backward(input("normal", {1, 1, 1, 70, 64, 32}, ++seed), {4, 2}, {"dV"});
  expect_backward(input("normal", {1, 1, 1, 70, 64, 128}, ++seed), {}, {"dV"});
  expect_every_kind_of({"dV", "dK"});
}

TEST_CASE("dK is scale dSᵀ Q", "[6.4]") {
  std::uint64_t seed = 140;
  expect_simple(input("normal", {1, 2, 2, 130, 64, 64}, ++seed), {"dK"});
  expect_simple(input("normal", {2, 1, 1, 33, 47, 64}, ++seed), {"dK"});
  expect_backward(input("normal", {1, 1, 1, 70, 64, 32}, ++seed), {4, 2}, {"dK"});
  expect_backward(input("normal", {1, 1, 1, 70, 64, 128}, ++seed), {}, {"dK"});
}

TEST_CASE("the causal mask of dK and dV is aligned bottom-right", "[6.4]") {
  expect_causal({"dV", "dK"}, 150);
}

// ---- 6.5 dS_of_queries ----

TEST_CASE("dQ is scale dS K", "[6.5]") {
  std::uint64_t seed = 170;
  expect_simple(input("normal", {1, 2, 2, 64, 130, 64}, ++seed), {"dQ"});
  expect_simple(input("normal", {2, 1, 1, 47, 33, 64}, ++seed), {"dQ"});
  expect_backward(input("normal", {1, 1, 1, 64, 70, 32}, ++seed), {4, 2}, {"dQ"});
  expect_backward(input("normal", {1, 1, 1, 64, 70, 128}, ++seed), {}, {"dQ"});
  expect_every_kind_of({"dQ"});
}

TEST_CASE("missing keys contribute nothing to dQ", "[6.5]") {
  std::uint64_t seed = 180;
  for (const std::int64_t Nk : {1, 17, 47, 95}) {
    expect_simple(input("negative logits", {1, 1, 1, 40, Nk, 64}, ++seed, {.zeros = true}), {"dQ"});
    expect_backward(input("negative logits", {1, 1, 1, 40, Nk, 32}, ++seed), {4, 2}, {"dQ"});
  }
}

TEST_CASE("the causal mask of dQ is aligned bottom-right", "[6.5]") {
  expect_causal({"dQ"}, 190);
}

// ---- 6.6 streamed_rows ----

TEST_CASE("causal agrees with the oracle for Nq above, at and below Nk", "[6.6]") {
  std::uint64_t seed = 210;
  for (const auto& [Nq, Nk] : {std::pair{200, 90}, {150, 150}, {90, 200}, {1, 140}, {140, 1}, {33, 161}})
    expect_backward(input("normal", {1, 1, 1, Nq, Nk, 32}, ++seed, {.causal = true}));
  expect_backward(input("normal", {1, 1, 1, 100, 150, 64}, ++seed, {.causal = true}), {4, 2});
  expect_backward(input("normal", {1, 1, 1, 70, 90, 32}, ++seed));
  // The diagonal at every offset within a tile.
  for (std::int64_t more = -16; more < 16; ++more)
    expect_backward(input("normal", {1, 1, 1, 40, 40 + more, 32}, ++seed, {.causal = true}), {1, 1});
  expect_every_kind_of({"dV", "dK", "dQ"});
}

namespace {

/// Ends the test as failed unless exactly the tiles with an unmasked pair are streamed.
void expect_visible_tiles() {
  require_counters();
  for (const auto& [d, wish] : {std::pair{32, Plan{4, 1}}, {32, Plan{1, 1}}, {128, Plan{8, 2}}}) {
    if (plans(d).empty()) continue;
    const Plan plan = wish.resolved(d);
    for (const auto& [Nq, Nk] : lengths_of_every_kind()) {
      if (std::max(Nq, Nk) < 100 && plan.warps != 1) continue;  // several blocks and tiles
      for (const bool causal : {true, false}) {
        const Shape shape{1, 1, 1, Nq, Nk, d};
        const GradientTiles tiles = plan.tiles(d);
        const Numbers numbers = plan.numbers(d);
        const TileCount needed = count_tiles(shape, offset_of(shape, causal), tiles);
        const TileCount top_left = count_tiles(shape, causal ? 0 : Nk, tiles);
        const worker::Reply reply = backward(input("normal", shape, 220, {causal}).given, numbers).reply;
        const std::string how = fmt::format("Nq={}, Nk={}, causal={}, resident tiles of {} rows, streamed tiles of {}",
                                            Nq, Nk, causal ? "yes" : "no", tiles.Bc, tiles.Br);
        // Rows of Q that are streamed, beside those that are read once as resident tiles.
        std::int64_t from_tiles = 0, from_rows = 0;
        for (std::int64_t first = 0; first < Nk; first += tiles.Bc) {
          const std::int64_t begin = causal ? std::max<std::int64_t>(0, first - (Nk - Nq)) : 0;
          from_tiles += std::max<std::int64_t>(0, Nq - begin / tiles.Br * tiles.Br);
          from_rows += std::max<std::int64_t>(0, Nq - begin);
        }
        const double rows = counter(reply, "Q.async_bytes") / double(2 * d) - double(Nq);
        expect(rows != double(from_rows) || from_rows == from_tiles,
               fmt::format("the dK and dV kernel streams {} queries, expected {}: from the first row of a tile on ({})",
                           rows, from_tiles, how),
               "your code does not round `begin`; it must round `begin` down to a multiple of `tile`",
               "begin-not-rounded");
        // Beside the streamed tiles, a whole tensor is read once as resident tiles, and dO once for D.
        const auto expect_tiles = [&](const char* tensor, std::int64_t once, std::int64_t TileCount::*pass) {
          const std::int64_t wanted = needed.*pass + once;
          const double got = counter(reply, fmt::format("{}.tiles", tensor));
          const bool moved = got == double(top_left.*pass + once), more = got > double(wanted);
          expect(got == double(wanted),
                 fmt::format("{} tiles of {} are read, expected {}: {} with an unmasked pair, and {} resident tiles or "
                             "tiles for D ({})",
                             got, tensor, wanted, needed.*pass, once, how),
                 moved  ? "your code aligns the causal mask top-left (j <= i); it must be aligned bottom-right: j <= i "
                          "+ (Nk - Nq)"
                 : more ? "your code loads tiles in which every pair is masked; it must skip them"
                        : "your code skips a tile with an unmasked pair; it must load it",
                 moved  ? "mask-top-left"
                 : more ? "tiles-not-skipped"
                        : "tiles-skipped");
        };
        const std::int64_t of_queries = tiles_of(Nq, tiles.Br), of_keys = tiles_of(Nk, tiles.Br);
        expect_tiles("Q", of_queries, &TileCount::q_tiles);
        expect_tiles("dO", 2 * of_queries, &TileCount::q_tiles);
        expect_tiles("K", of_keys, &TileCount::kv_tiles);
        expect_tiles("V", of_keys, &TileCount::kv_tiles);
      }
    }
  }
}

/// Ends the test as failed unless exactly the tiles with a masked pair are masked.
void expect_masked_tiles() {
  require_counters();
  for (const auto& [Nq, Nk] : lengths_of_every_kind()) {
    for (const bool causal : {true, false}) {
      const Shape shape{1, 1, 1, Nq, Nk, 32};
      const Plan plan = (std::max(Nq, Nk) < 100 ? Plan{1, 1} : Plan{4, 1}).resolved(32);
      const TileCount needed = count_tiles(shape, offset_of(shape, causal), plan.tiles(32));
      const worker::Reply reply = backward(input("normal", shape, 230, {causal}).given, plan.numbers(32)).reply;
      const double got = counter(reply, "note.masked tile");
      expect(
          got == double(needed.masked),
          fmt::format("{} tiles are masked, expected {}, those with a masked pair (Nq={}, Nk={}, causal={}, resident "
                      "tiles of {} rows, streamed tiles of {})",
                      got, needed.masked, Nq, Nk, causal ? "yes" : "no", plan.tiles(32).Bc, plan.tiles(32).Br),
          got > double(needed.masked) ? "your code masks tiles in which every pair is unmasked; it must not mask them"
                                      : "your code does not mask a tile with a masked pair; it must mask it",
          got > double(needed.masked) ? "masked-too-much" : "masked-too-little");
    }
  }
}

/// Ends the test as failed unless the loops have one iteration per tile with an unmasked pair. A tile past the end
/// loads nothing; only its barrier shows it. Each block of one warp has one barrier besides, before its loop.
void expect_no_empty_iterations() {
  require_counters();
  const Plan plan = Plan{1, 1}.resolved(32);
  const GradientTiles tiles = plan.tiles(32);
  for (const auto& [Nq, Nk] : {std::pair{128, 128}, {96, 160}, {160, 96}, {100, 70}}) {
    for (const bool causal : {true, false}) {
      const Shape shape{1, 1, 1, Nq, Nk, 32};
      const TileCount needed = count_tiles(shape, offset_of(shape, causal), tiles);
      const worker::Reply reply = backward(input("normal", shape, 225, {causal}).given, plan.numbers(32)).reply;
      const double expected = double(needed.q_tiles + needed.kv_tiles),
                   got = counter(reply, "block_barriers") - double(tiles_of(Nk, tiles.Bc) + tiles_of(Nq, tiles.Bc));
      expect(got == expected,
             fmt::format("the loops of both kernels have {} iterations, expected {} (Nq={}, Nk={}, causal={}, resident "
                         "tiles of {} rows, streamed tiles of {})",
                         got, expected, Nq, Nk, causal ? "yes" : "no", tiles.Bc, tiles.Br),
             got > expected
                 ? "your code streams a tile past the end; `end` must not exceed Nq if queries stream, Nk if "
                   "keys stream"
                 : "your code skips a tile with an unmasked pair; it must load it",
             got > expected ? "tiles-not-skipped" : "tiles-skipped");
    }
  }
}

}  // namespace

TEST_CASE("only tiles with an unmasked pair are loaded", "[6.6]") {
  expect_visible_tiles();
  expect_no_empty_iterations();
}

TEST_CASE("only tiles with a masked pair are masked", "[6.6]") {
  expect_masked_tiles();
}

// ---- 6.7 and 6.8, the loops ----

namespace {

/// Ends the test as failed unless the kernel of this name waits so often at barriers of the block: once before its
/// loop, once in each step and, where two warps share rows, once more in each and once after the last.
void expect_barriers(const std::string& name, std::int64_t Nq, std::int64_t Nk) {
  require_counters();
  for (const auto& [d, wish] : {std::pair{32, Plan{4, 1}}, {32, Plan{4, 2}}, {128, Plan{8, 2}}}) {
    if (plans(d).empty()) continue;
    const Plan plan = wish.resolved(d);
    const std::int64_t heads = 2, more = plan.team - 1;
    const GradientTiles tiles = plan.tiles(d);
    const bool of_keys = name == "key_gradients";
    const std::int64_t steps = tiles_of(of_keys ? Nq : Nk, tiles.Br);
    const std::int64_t expected = heads * tiles_of(of_keys ? Nk : Nq, tiles.Bc) * (1 + (1 + more) * steps + more);
    for (const auto& launch :
         recorded_launches(input("normal", {1, heads, heads, Nq, Nk, d}, 240).given, plan.numbers(d))) {
      if (launch.at("kernel").get<std::string>().find(name) == std::string::npos) continue;
      const double got = launch.at("counters").value("block_barriers", 0.0);
      expect(got == double(expected),
             fmt::format(
                 "{} has {} barriers, expected {}: {} heads, resident tiles of {} rows, {} streamed tiles{} (Nq={}, "
                 "Nk={}, d={})",
                 name, got, expected, heads, tiles.Bc, steps, more ? ", teams of two warps" : "", Nq, Nk, d),
             got > double(expected) ? "your loop has a __syncthreads() that protects nothing"
                                    : "your loop lacks a __syncthreads()",
             "barriers");
      expect_beside_copies(launch.at("counters").value("multiply_calls", 0.0),
                           launch.at("counters").value("multiplies_beside_copies", 0.0), 1 / double(steps),
                           fmt::format("{}, all but those of the last of {} tiles, d={}", name, steps, d));
    }
  }
}

}  // namespace

TEST_CASE("dK and dV do not depend on how the work is divided", "[6.7]") {
  std::uint64_t seed = 250;
  expect_any_plan({"dV", "dK"}, 130, 64, seed);
  // The variant with atomics masks a short K/V tile without the causal mask too, and then every query counts.
  expect_backward(input("normal", {1, 1, 1, 70, 40, 32}, ++seed), {}, {"dV", "dK"}, {.atomic = true});
  expect_every_kind_of({"dV", "dK"});
}

TEST_CASE("dK and dV sum over all Q tiles", "[6.7]") {
  // In turn, dO of each tile of queries is large and that of the others small.
  for (const Plan& plan : {Plan{4, 1}, Plan{4, 2}}) {
    for (std::int64_t first = 0; first < 128; first += 32) {
      expect_backward(only_queries(input("normal", {1, 1, 1, 128, 40, 32}, 160), first, 32), plan, {"dV", "dK"});
    }
  }
}

TEST_CASE("the dK and dV loop has one barrier per Q tile, and one more for a team", "[6.7]") {
  expect_barriers("key_gradients", 100, 152);
}

TEST_CASE("the dK and dV loop skips and masks the right Q tiles", "[6.7]") {
  expect_visible_tiles();
  expect_masked_tiles();
}

TEST_CASE("dQ does not depend on how the work is divided", "[6.8]") {
  std::uint64_t seed = 280;
  expect_any_plan({"dQ"}, 64, 130, seed);
  expect_backward(input("negative logits", {1, 1, 1, 40, 47, 64}, ++seed, {.zeros = true}), {}, {"dQ"});
  expect_every_kind_of({"dQ"});
}

TEST_CASE("dQ sums over all K/V tiles", "[6.8]") {
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
      const Input in{worker::backward_problem(problem, dO, float16),
                     fmt::format("normal, seed 200, V small but for keys {} to {}", first, first + 31)};
      expect_backward(in, plan, {"dQ"});
    }
  }
}

TEST_CASE("the dQ loop has one barrier per K/V tile, and one more for a team", "[6.8]") {
  expect_barriers("query_gradients", 152, 100);
}

TEST_CASE("the dQ loop skips and masks the right K/V tiles", "[6.8]") {
  expect_visible_tiles();
  expect_masked_tiles();
}
