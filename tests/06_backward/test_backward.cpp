// Chapter 6's kernels: each gradient for itself, the causal skipping, and the whole backward pass with what it moves.
#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "common/attention/half.hpp"
#include "tests/06_backward/gradients.hpp"
#include "tests/support/context.hpp"

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
struct TileCount {
  std::int64_t query_tiles = 0, key_tiles = 0, masked = 0;
};
TileCount count_tiles(const Shape& s, bool causal, const GradientTiles& tiles) {
  const auto& [owned, passing] = tiles;
  TileCount count;
  const auto sees = [&](std::int64_t i, std::int64_t j) { return j < visible_keys(i, s.Nq, s.Nk, causal); };
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
                    true);
}

TEST_CASE("negative logits do not overflow in the tail", "[6.3]") {
  expect_backward(input("negative logits", {1, 1, 1, 40, 70, 64}, 120));
  expect_backward(input("negative logits", {1, 1, 1, 33, 17, 32}, 121), {8, 2});
}

// ---- 6.4 accumulate_keys ----

TEST_CASE("dV is Pᵀ dO", "[6.4]") {
  std::uint64_t seed = 130;
  for (const std::int64_t d : {32, 64, 128}) {
    for (const Plan& plan : plans(d)) expect_backward(input("normal", {1, 1, 1, 64, 64, d}, ++seed), plan, {"dV"});
  }
}

TEST_CASE("dK is scale dSᵀ Q", "[6.4]") {
  std::uint64_t seed = 140;
  for (const std::int64_t d : {32, 64, 128}) {
    for (const Plan& plan : plans(d)) expect_backward(input("normal", {1, 1, 1, 64, 64, d}, ++seed), plan, {"dK"});
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
    for (const Plan& plan : plans(d)) expect_backward(input("normal", {1, 1, 1, 64, 64, d}, ++seed), plan, {"dQ"});
  }
}

TEST_CASE("keys that do not exist have no part in dQ", "[6.5]") {
  std::uint64_t seed = 180;
  for (const std::int64_t Nk : {1, 17, 47, 95}) {
    expect_backward(input("negative logits", {1, 1, 1, 40, Nk, 64}, ++seed), {}, {"dQ"});
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
  for (const auto& [Nq, Nk] : {std::pair{256, 256}, {128, 320}, {320, 128}}) {
    for (const bool causal : {true, false}) {
      const Shape shape{1, 1, 1, Nq, Nk, 32};
      const Plan plan{4, 1};
      const GradientTiles tiles = plan.tiles(32);
      Numbers numbers = plan.numbers();
      numbers["count_tiles"] = double(tiles.passing);
      const TileCount needed = count_tiles(shape, causal, tiles);
      const worker::Reply reply = backward(input("normal", shape, 220, {causal}).given, numbers).reply;
      const std::string how = fmt::format("Nq={}, Nk={}, causal={}, blocks of {} rows, tiles of {}", Nq, Nk,
                                          causal ? "yes" : "no", tiles.owned, tiles.passing);
      const auto expect_tiles = [&](const char* tensor, std::int64_t pass, std::int64_t own) {
        const double got = counter(reply, fmt::format("{}.tiles", tensor));
        expect(got == double(pass + own),
               fmt::format("{} tiles of {} are read, expected {}: {} that have a pair which counts, and {} once by the "
                           "blocks that own them ({})",
                           got, tensor, pass + own, pass, own, how),
               got > double(pass + own) ? "a block loads tiles in which no query sees any of the keys"
                                        : "a block skips a tile in which a query sees a key",
               got > double(pass + own) ? "tiles-not-skipped" : "tiles-skipped");
      };
      expect_tiles("Q", needed.query_tiles, Nq / tiles.passing);
      expect_tiles("V", needed.key_tiles, Nk / tiles.passing);
    }
  }
}

TEST_CASE("only tiles that the diagonal or the end crosses are masked", "[6.6]") {
  require_counters();
  for (const auto& [Nq, Nk] : {std::pair{256, 256}, {100, 330}, {330, 100}}) {
    for (const bool causal : {true, false}) {
      const Shape shape{1, 1, 1, Nq, Nk, 32};
      const Plan plan{4, 1};
      const TileCount needed = count_tiles(shape, causal, plan.tiles(32));
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

// ---- The whole chapter ----

TEST_CASE("the kernels agree with the naive backward", "[whole]") {
  for (const bool causal : {false, true}) {
    const Input in = input("value mean", {1, 2, 2, 100, 140, 64}, 240, {causal});
    const auto& [problem, dO, saved] = in.given;
    const BackwardResult kernels = backward(in.given), naive = float_backward(in.given, "naive_backward");
    const Gradients oracle = backward_oracle(problem, dO, saved);
    // Each is within its own bounds of the oracle, so the two differ by no more than the sum.
    GradientBounds bounds = gradient_bounds(oracle, problem, dO, saved, precision());
    const GradientBounds naive_bounds = gradient_bounds(oracle, problem, dO, saved, float32_precision());
    const auto expect_same = [&](const char* name, const Tensor<float>& got, const Tensor<float>& expected,
                                 Bounds allowed, const Bounds& more) {
      for (std::size_t i = 0; i < more.element.values.size(); ++i) allowed.element.values[i] += more.element.values[i];
      allowed.rms += more.rms;
      book::Layout layout;
      layout.tensor = fmt::format("{} (expected: the naive backward's)", name);
      expect_close(
          got, {widened(expected), allowed, layout,
                book::gradient_mistakes(name, problem, dO, saved, 128, 32, precision()), describe(problem, in.name)});
    };
    expect_same("dQ", kernels.dQ, naive.dQ, bounds.dQ, naive_bounds.dQ);
    expect_same("dK", kernels.dK, naive.dK, bounds.dK, naive_bounds.dK);
    expect_same("dV", kernels.dV, naive.dV, bounds.dV, naive_bounds.dV);
  }
}

TEST_CASE("gradients agree with the oracle on any shape", "[whole]") {
  std::uint64_t seed = 250;
  for (const bool causal : {false, true}) {
    for (const auto& [Nq, Nk] : {std::pair{1, 1}, {1, 239}, {239, 1}, {257, 257}, {799, 3}})
      expect_backward(input("normal", {1, 1, 1, Nq, Nk, 32}, ++seed, {causal}));
    expect_backward(input("normal", {1, 1, 1, 113, 203, 128}, ++seed, {causal}));
    expect_backward(input("value mean", {1, 1, 1, 128, 217, 64}, ++seed, {causal}));
    expect_backward(input("normal", {2, 3, 3, 40, 33, 64}, ++seed, {causal}));
  }
  expect_backward(input("normal", {1, 1, 1, 512, 256, 32}, ++seed, {.causal = true}));
  expect_backward(input("normal", {1, 1, 1, 1023, 1024, 32}, ++seed, {.causal = true}));
  expect_backward(input("normal", {1, 1, 1, 1024, 1023, 32}, ++seed));
}

TEST_CASE("gradients agree with the oracle on every input", "[whole]") {
  std::uint64_t seed = 280;
  for (const InputKind& kind : input_kinds()) expect_backward(input(kind.name, {1, 1, 1, 70, 100, 64}, ++seed));
}

TEST_CASE("the gradients do not depend on the tile size", "[whole]") {
  for (const std::int64_t d : {32, 64, 128}) {
    for (const Plan& plan : plans(d))
      expect_backward(input("normal", {1, 2, 2, 70, 133, d}, 300, {.causal = true}), plan);
  }
}

TEST_CASE("the number of workers and the order of lanes change nothing", "[whole]") {
  const BackwardProblem given = input("normal", {1, 2, 2, 70, 100, 32}, 310, {.causal = true}).given;
  const BackwardResult first = backward(given);
  expect(!std::isnan(first.dQ.values[0]), "dQ was not written: it still holds NaN", "", "not-written");
  for (const auto& [workers, lane_seed] : {std::pair{1, 0}, {3, 0}, {0, 1}, {2, 2}}) {
    const BackwardResult other = backward(given, {{"workers", double(workers)}, {"lane_seed", double(lane_seed)}});
    const std::string how = fmt::format("with {} workers and lanes in the order of seed {}", workers, lane_seed);
    expect(
        other.dQ.values == first.dQ.values && other.dK.values == first.dK.values && other.dV.values == first.dV.values,
        how + " a gradient is another, bit for bit",
        "two threads write one place, or add to it in an order that nothing fixes", "order-dependent");
    expect(other.reply.counters == first.reply.counters, how + " the counters are others",
           "what a thread accesses depends on when it runs", "order-dependent");
  }
}

TEST_CASE("200 runs give the same bits", "[whole]") {
  const BackwardProblem given = input("normal", {1, 1, 1, 33, 40, 32}, 320, {.causal = true}).given;
  const BackwardResult first = backward(given);
  for (int run = 1; run < 200; ++run) {
    const BackwardResult other = backward(given);
    const bool same =
        other.dQ.values == first.dQ.values && other.dK.values == first.dK.values && other.dV.values == first.dV.values;
    if (same && run + 1 < 200) continue;
    expect(same, fmt::format("run {} of the same call gives other bits than the first", run + 1),
           "a gradient has several writers, or memory is read that nobody has written", "order-dependent");
  }
}

TEST_CASE("the loss decreases along the negative gradient", "[whole]") {
  // L = ½ Σ (O - T)², so dO = O - T. A small step down the gradient lowers L by step · |gradient|², up to the
  // curvature.
  Problem problem = rounded_to(make_input("normal", {{1, 2, 2, 40, 48, 32}, true, 0, 330}), "float16");
  const std::vector<float> target = normal_values(std::size_t(problem.shape.q_size()), 331);
  const auto loss = [&](const Problem& at, Tensor<float>* dO) {
    const Forward forward = forward_oracle(at);
    double sum = 0;
    for (std::size_t i = 0; i < target.size(); ++i) {
      const double off = forward.O.values[i] - target[i];
      sum += off * off / 2;
      if (dO != nullptr) dO->values[i] = float(off);
    }
    return sum;
  };
  Tensor<float> dO({1, 2, 40, 32});
  const double before = loss(problem, &dO);
  const BackwardResult got = backward(worker::backward_problem(problem, dO, "float16"));
  double square = 0;
  for (const Tensor<float>* gradient : {&got.dQ, &got.dK, &got.dV})
    for (const float g : gradient->values) square += double(g) * g;
  const double step = 0.02 * before / square, predicted = step * square;
  const auto move = [&](Tensor<float>& tensor, const Tensor<float>& gradient) {
    for (std::size_t i = 0; i < tensor.values.size(); ++i) tensor.values[i] -= float(step) * gradient.values[i];
  };
  move(problem.Q, got.dQ), move(problem.K, got.dK), move(problem.V, got.dV);
  const double decrease = before - loss(problem, nullptr);
  expect(
      decrease > 0.9 * predicted && decrease < 1.1 * predicted,
      fmt::format("a step along the negative gradient lowers the loss {:.6g} by {:.4g}; the gradient predicts {:.4g}",
                  before, decrease, predicted),
      "what the kernels give is not the gradient of the loss", "not-the-gradient");
}

TEST_CASE("future queries and keys have zero influence", "[whole]") {
  // dQ of a query depends on no later key; dK and dV of a key on no earlier query. Whole tiles may even hold NaN.
  const std::int64_t Nq = 200, Nk = 200, d = 32, query = 63;
  const BackwardProblem given = input("normal", {1, 1, 1, Nq, Nk, d}, 340, {.causal = true}).given;
  const BackwardResult before = backward(given);
  for (const float value : {1000.0f, std::numeric_limits<float>::quiet_NaN()}) {
    // Keys from the block after the query's on, in a tile of their own.
    const std::int64_t first = std::isnan(value) ? 128 : query + 1;
    BackwardProblem later = given;
    for (std::int64_t j = first; j < Nk; ++j) {
      std::fill_n(&later.problem.K(0, 0, j, 0), d, value);
      std::fill_n(&later.problem.V(0, 0, j, 0), d, value);
    }
    const BackwardResult after = backward(later);
    for (std::int64_t at = 0; at < (query + 1) * d; ++at) {
      const float was = before.dQ.values[std::size_t(at)], is = after.dQ.values[std::size_t(at)];
      if (was == is && at + 1 < (query + 1) * d) continue;
      expect(was == is,
             fmt::format("dQ of query {}, column {}, was {} and became {} when keys from {} on became {}", at / d,
                         at % d, was, is, first, value),
             "the causal mask lets a query see keys that come after it", "mask");
    }
    BackwardProblem earlier = given;
    const std::int64_t queries = std::isnan(value) ? 128 : 150, key = std::isnan(value) ? 128 : 150;
    for (std::int64_t i = 0; i < queries; ++i) {
      std::fill_n(&earlier.problem.Q(0, 0, i, 0), d, value);
      std::fill_n(&earlier.dO(0, 0, i, 0), d, value);
    }
    const BackwardResult changed = backward(earlier);
    for (std::int64_t at = key * d; at < Nk * d; ++at) {
      const auto i = std::size_t(at);
      const bool same = before.dK.values[i] == changed.dK.values[i] && before.dV.values[i] == changed.dV.values[i];
      if (same && at + 1 < Nk * d) continue;
      expect(same,
             fmt::format("dK or dV of key {}, column {}, changes when Q and dO of queries 0 to {} become {}", at / d,
                         at % d, queries - 1, value),
             "the causal mask lets a key be seen by queries that come before it", "mask");
    }
  }
}

TEST_CASE("heads do not mix", "[whole]") {
  const std::int64_t N = 40, d = 32, changed_head = 1;
  const BackwardProblem given = input("normal", {2, 2, 2, N, N, d}, 350).given;
  BackwardProblem changed = given;
  for (std::int64_t i = 0; i < N; ++i) {
    for (Tensor<float>* tensor : {&changed.problem.Q, &changed.problem.K, &changed.problem.V})
      std::fill_n(&(*tensor)(0, changed_head, i, 0), d, 2.0f);
    std::fill_n(&changed.dO(0, changed_head, i, 0), d, 2.0);
  }
  const BackwardResult before = backward(given), after = backward(changed);
  for (std::int64_t head = 0; head < 4; ++head) {
    bool same = true;
    for (std::int64_t at = head * N * d; at < (head + 1) * N * d; ++at) {
      const auto i = std::size_t(at);
      same = same && before.dQ.values[i] == after.dQ.values[i] && before.dK.values[i] == after.dK.values[i] &&
             before.dV.values[i] == after.dV.values[i];
    }
    expect(same != (head == changed_head),
           fmt::format("gradients of head {} {} when the inputs of head {} alone change", head,
                       same ? "stay the same" : "change", changed_head),
           "a head reads or writes another one's rows", "heads-mixed");
  }
}

TEST_CASE("more heads than a grid has rows", "[whole]") {
  // With one query and one key P is 1: dV is dO, exactly, and with O = V dS is 0.
  const std::int64_t heads = 65600, d = 32;
  BackwardProblem given;
  given.problem.shape = {heads, 1, 1, 1, 1, d};
  given.problem.scale = default_scale(d);
  given.problem.Q = given.problem.K = given.problem.V = Tensor<float>({heads, 1, 1, d}, 0.0f);
  given.dO = given.saved.O = Tensor<double>({heads, 1, 1, d}, 0.0);
  given.saved.lse = Tensor<double>({heads, 1, 1, 1}, 0.0);
  for (std::size_t at = 0; at < given.dO.values.size(); ++at) given.dO.values[at] = double(at / std::size_t(d) % 2039);
  if (context().backend == "sim") {  // three launches of so many blocks take minutes there: what each query brings
    const std::vector<std::uint16_t> codes(std::size_t(heads * d), float_to_half(1));
    const std::vector<float> lse(std::size_t(heads), 0.0f);
    worker::Call request("prepare_rows");
    request.number("B", double(heads)).number("H", 1).number("Hkv", 1).number("Nq", 1).number("Nk", 1);
    request.number("d", double(d)).input("O", codes).input("dO", codes).input("lse", lse);
    request.output<double>("rows", lse.size());
    const std::vector<float> rows = call(request).output<float>("rows");
    for (std::int64_t head = 0; head < heads; ++head) {
      const float D = rows[std::size_t(2 * head + 1)];
      if (D == d && head + 1 < heads) continue;
      expect(D == d, fmt::format("with B·H = {}, D of head {} is {}, expected {}", heads, head, D, d),
             "heads from 65536 on are not computed, or confused with others", "heads-above-65535");
    }
    return;
  }
  const BackwardResult result = backward(given);
  for (std::int64_t head = 0; head < heads; ++head) {
    const auto at = std::size_t(head * d);
    const float dV = result.dV.values[at], wanted = float(given.dO.values[at]);
    const bool right = dV == wanted && result.dQ.values[at] == 0 && result.dK.values[at] == 0;
    if (right && head + 1 < heads) continue;
    expect(right,
           fmt::format("with B·H = {} and one key, dV of head {} is {}, expected {}, its dO; dQ and dK are {} and {}, "
                       "expected 0",
                       heads, head, dV, wanted, result.dQ.values[at], result.dK.values[at]),
           "heads from 65536 on are not computed, or confused with others", "heads-above-65535");
  }
}

TEST_CASE("fp16 and fp32 gradients differ by one rounding", "[whole]") {
  for (const std::int64_t d : {32, 128}) {
    const BackwardProblem given = input("normal", {1, 2, 2, 50, 70, d}, 360, {.causal = true}).given;
    const BackwardResult half = backward(given), full = backward(given, {{"float_gradients", 1}});
    const std::pair<const Tensor<float>*, const Tensor<float>*> pairs[] = {
        {&half.dQ, &full.dQ}, {&half.dK, &full.dK}, {&half.dV, &full.dV}};
    for (const auto& [rounded, exact] : pairs) {
      expect(rounded->values == from_codes(to_codes(exact->values, "float16"), "float16"),
             fmt::format("with d={} a gradient in fp16 is not the one in float, rounded", d),
             "it is rounded before the scale, or twice", "rounded-twice");
    }
  }
}

TEST_CASE("a negative scale and a scale of 0", "[whole]") {
  for (const float scale : {-0.2f, 0.4f})
    expect_backward(input("normal", {1, 1, 1, 50, 70, 64}, 370, {.causal = true, .scale = scale}));
  // With a scale of 0 all visible keys weigh the same, and nothing depends on Q and K.
  Problem problem = make_input("normal", {{1, 1, 1, 50, 70, 64}, false, 1, 371});
  problem.scale = 0;
  Tensor<float> dO({1, 1, 50, 64});
  dO.values = normal_values(dO.values.size(), 372);
  expect_backward({worker::backward_problem(problem, dO, "float16"), "normal, seed 371, scale 0"});
}

TEST_CASE("each kernel requests what its formula says", "[whole]") {
  require_counters();
  for (const auto& [d, plan] : {std::pair{64, Plan{4, 1}}, {64, Plan{4, 2}}, {128, Plan{8, 2}}}) {
    const std::int64_t heads = 2, Nq = 100, Nk = 152;
    const GradientTiles tiles = plan.tiles(d);
    const std::int64_t query_blocks = tiles_of(Nq, tiles.owned), key_blocks = tiles_of(Nk, tiles.owned);
    const worker::Reply reply =
        backward(input("normal", {1, heads, heads, Nq, Nk, d}, 380).given, plan.numbers()).reply;
    const double row = double(heads * d * 2);  // bytes of a row in all heads
    const auto expect_bytes = [&](const std::string& name, double expected, const std::string& why) {
      expect_count(reply, name, expected, fmt::format("{}, d={}, {} rows a block", why, d, tiles.owned),
                   "a tensor is moved more or less often than it must be", "traffic");
    };
    for (const char* tensor : {"Q", "dO"}) {
      const double bytes = row * double(Nq * (1 + key_blocks));
      const std::string why = fmt::format(
          "each of {} blocks that own keys lets all of {} pass; those that own queries "
          "read it once",
          key_blocks, tensor);
      expect_bytes(fmt::format("{}.async_bytes", tensor), bytes, why);
      expect_bytes(fmt::format("{}.async_sectors", tensor), bytes / 32, why);
    }
    for (const char* tensor : {"K", "V"}) {
      const double bytes = row * double(Nk * (1 + query_blocks));
      const std::string why = fmt::format(
          "each of {} blocks that own queries lets all of {} pass; those that own keys "
          "read it once",
          query_blocks, tensor);
      expect_bytes(fmt::format("{}.async_bytes", tensor), bytes, why);
      expect_bytes(fmt::format("{}.async_sectors", tensor), bytes / 32, why);
    }
    expect_bytes("O.load_bytes", row * Nq, "O is read once, for D");
    expect_bytes("dO.load_bytes", row * Nq, "dO is read once more, for D");
    expect_bytes("lse.load_bytes", double(heads * Nq * 4), "the LSE is read once, for rows");
    expect_bytes("rows.store_bytes", double(heads * Nq * 8), "8 bytes for each query are written once");
    expect_bytes("rows.async_bytes", double(heads * Nq * 8 * (1 + key_blocks)), "and pass with Q and dO");
    expect_bytes("dQ.store_bytes", row * Nq, "dQ is written once");
    expect_bytes("dK.store_bytes", row * Nk, "dK is written once");
    expect_bytes("dV.store_bytes", row * Nk, "dV is written once");
    expect_bytes("dQ.store_sectors", row * Nq / 32, "dQ is written once, whole sectors");
    expect_bytes("dK.store_sectors", row * Nk / 32, "dK is written once, whole sectors");
    expect_bytes("global.load_bytes", row * 2 * Nq + double(heads * Nq * 4), "nothing else is read");
    expect_bytes(
        "global.async_bytes",
        row * 2 * double(Nq * (1 + key_blocks) + Nk * (1 + query_blocks)) + double(heads * Nq * 8 * (1 + key_blocks)),
        "nothing else is read");
    expect_bytes("global.store_bytes", row * double(Nq + 2 * Nk) + double(heads * Nq * 8), "nothing else is written");
    expect_bytes("global.atomic_sectors", 0, "each gradient has one writer");
  }
}

TEST_CASE("extra memory grows like N", "[whole]") {
  for (const std::int64_t N : {64, 128, 256}) {
    const Input in = input("normal", {1, 2, 2, N, N, 32}, 390);
    const BackwardResult kernels = backward(in.given);
    expect(!std::isnan(kernels.dQ.values[0]), "dQ was not written: it still holds NaN", "", "not-written");
    expect(kernels.reply.extra_bytes == 2 * N * 8,
           fmt::format("at N = {} the kernels allocate {} bytes of device memory beside their inputs and outputs, "
                       "expected {}: 8 for each query",
                       N, kernels.reply.extra_bytes, 2 * N * 8),
           "P, S or dS is stored in device memory", "extra-memory");
    const std::int64_t naive = float_backward(in.given, "naive_backward").reply.extra_bytes;
    if (naive < 0) continue;  // a sanitizer build counts no memory
    const std::int64_t stored = 2 * 2 * N * N * 4;
    expect(naive >= stored && naive < stored + 4096,
           fmt::format("at N = {} the naive backward allocates {} bytes, expected those of P and dS, {}", N, naive,
                       stored),
           "P and dS are not what is stored", "extra-memory");
  }
}

TEST_CASE("one barrier for a tile, one more where two warps share rows", "[whole]") {
  require_counters();
  for (const Plan& plan : {Plan{4, 1}, Plan{4, 2}, Plan{8, 2}}) {
    const std::int64_t heads = 2, Nq = 100, Nk = 152;
    const GradientTiles tiles = plan.tiles(64);
    const worker::Reply reply =
        backward(input("normal", {1, heads, heads, Nq, Nk, 64}, 400).given, plan.numbers()).reply;
    const std::int64_t shared = plan.team - 1;
    // A block: one barrier for the index, each tile, and one before the results where a team has two warps.
    const auto of_blocks = [&](std::int64_t own, std::int64_t pass) {
      return tiles_of(own, tiles.owned) * (1 + (1 + shared) * tiles_of(pass, tiles.passing) + shared);
    };
    const std::int64_t expected = heads * (of_blocks(Nk, Nq) + of_blocks(Nq, Nk));
    expect_count(reply, "block_barriers", double(expected),
                 fmt::format("{} heads, {} rows a block, {} rows a tile: a barrier for each tile{}", heads, tiles.owned,
                             tiles.passing, shared ? ", and one in each for the team" : ""),
                 "there is a __syncthreads() that protects nothing, or one too few", "barriers");
  }
}

TEST_CASE("the atomic variant agrees with the oracle and adds every dQ once for each key tile", "[whole]") {
  std::uint64_t seed = 410;
  for (const bool causal : {false, true}) {
    expect_backward(input("normal", {1, 2, 2, 70, 133, 64}, ++seed, {causal}), {4, 1}, {"dQ", "dK", "dV"}, false,
                    "atomic_backward");
    expect_backward(input("normal", {1, 1, 1, 50, 90, 128}, ++seed, {causal}), {8, 2}, {"dQ", "dK", "dV"}, true,
                    "atomic_backward");
  }
  require_counters();
  const std::int64_t heads = 2, Nq = 96, Nk = 300, d = 64, owned = 128;
  const worker::Reply reply =
      backward(input("normal", {1, heads, heads, Nq, Nk, d}, 420).given, {}, "atomic_backward").reply;
  expect_count(reply, "dQ_sum.atomic_sectors", double(heads * tiles_of(Nk, owned) * Nq * d * 4) / 32,
               fmt::format("{} heads · {} key tiles · {} · {} floats", heads, tiles_of(Nk, owned), Nq, d),
               "dQ is added more or less often than once for each key tile", "traffic");
  expect(reply.extra_bytes == heads * Nq * (8 + 4 * d),
         fmt::format("it allocates {} bytes, expected 8 for each query and 4 for each element of dQ: {}",
                     reply.extra_bytes, heads * Nq * (8 + 4 * d)),
         "", "extra-memory");
}
