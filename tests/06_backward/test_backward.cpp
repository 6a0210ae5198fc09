// Chapter 6 as a whole: the backward pass on any input, what it moves and keeps, and the variant with atomics.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <string>

#include "tests/06_backward/gradients.hpp"
#include "tests/support/context.hpp"

using namespace workbook;
using namespace workbook::test;

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
      judge::Layout layout;
      layout.tensor = fmt::format("{} (expected: the naive backward's)", name);
      expect_close(got, {widened(expected), allowed, layout, describe(problem, in.name)});
    };
    expect_same("dQ", kernels.dQ, naive.dQ, bounds.dQ, naive_bounds.dQ);
    expect_same("dK", kernels.dK, naive.dK, bounds.dK, naive_bounds.dK);
    expect_same("dV", kernels.dV, naive.dV, bounds.dV, naive_bounds.dV);
  }
}

TEST_CASE("gradients agree with the oracle on any shape", "[whole]") {
  constexpr std::pair<std::int64_t, std::int64_t> lengths[] = {
      {1, 1}, {1, 239}, {113, 203}, {128, 217}, {239, 1}, {257, 257}, {512, 256}, {799, 3}, {1023, 1024}, {1024, 1023}};
  extend_time_limit(3);
  std::uint64_t seed = 250;
  for (const std::int64_t d : head_dims()) {
    for (const bool causal : {false, true}) {
      for (const auto& [Nq, Nk] : lengths)
        if (Nk < 1000 || (Nk > Nq) == causal)  // of the longest, one with the mask and one without
          expect_backward(input("normal", {1, 1, 1, Nq, Nk, d}, ++seed, {causal}));
      expect_backward(input("value mean", {2, 3, 3, 40, 33, d}, ++seed, {causal}));
    }
  }
}

TEST_CASE("gradients agree with the oracle on every input", "[whole]") {
  std::uint64_t seed = 280;
  for (const InputKind& kind : input_kinds()) expect_backward(input(kind.name, {1, 1, 1, 70, 100, 64}, ++seed));
  expect_every_kind_of({"dQ", "dK", "dV"});
}

TEST_CASE("the gradients do not depend on the tile size", "[whole]") {
  for (const std::int64_t d : head_dims()) {
    for (const Plan& plan : plans(d))
      expect_backward(input("normal", {1, 2, 2, 70, 133, d}, 300, {.causal = true}), plan);
  }
}

TEST_CASE("results do not depend on workers or lane order", "[whole]") {
  const BackwardProblem given = input("normal", {1, 2, 2, 70, 100, 32}, 310, {.causal = true}).given;
  const BackwardResult first = backward(given);
  expect_written(first.dQ.values[0], "dQ");
  for (const auto& [workers, lane_seed] : {std::pair{1, 0}, {3, 0}, {0, 1}, {2, 2}}) {
    const BackwardResult other = backward(given, {{"workers", double(workers)}, {"lane_seed", double(lane_seed)}});
    const std::string how = fmt::format("with {} workers and lanes in the order of seed {}", workers, lane_seed);
    expect(same_bits(first, other), how + " a gradient differs in some bits",
           "two threads write one element, or add to it in no fixed order", "order-dependent");
    expect(other.reply.counters == first.reply.counters, how + " the counters differ",
           "the accesses of a thread depend on when it runs; they must not", "order-dependent");
  }
}

TEST_CASE("200 runs give the same bits", "[whole]") {
  // On the simulator in another order each time; on a GPU with more blocks than run together.
  const bool gpu = context().backend == Backend::cuda;
  const bool watched = std::ranges::any_of(context().worker_prefix, [](const std::string& word) {
    return word.ends_with("compute-sanitizer");  // with it a run takes a hundred times as long
  });
  for (const std::int64_t d : head_dims()) {
    if (d == 64) continue;
    const Shape shape = gpu ? Shape{4, 33, 33, 140, 140, d} : Shape{1, 1, 1, 33, 40, d};
    const BackwardProblem given = input("normal", shape, 320, {.causal = true}).given;
    const BackwardResult first = backward(given);
    const int runs = watched ? 3 : d == 32 ? 200 : 20;
    for (int run = 2; run <= runs; ++run) {
      const BackwardResult other = backward(given, {{"lane_seed", run}, {"workers", run % 3}});
      const bool same = same_bits(first, other);
      if (same && run < runs) continue;
      expect(same, fmt::format("run {} of the same call gives other bits than the first, d={}", run, d),
             "two threads write one element of a gradient, or a thread reads memory that no thread has written",
             "order-dependent");
    }
  }
}

TEST_CASE("the loss decreases along the negative gradient", "[whole]") {
  // L = ½ Σ (O - T)², so dO = O - T. A small step down the gradient lowers L by step · |gradient|², up to the
  // curvature.
  Problem problem = rounded_to(make_input("normal", {{1, 2, 2, 40, 48, 32}, true, 0, 330}), float16);
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
  const BackwardResult got = backward(worker::backward_problem(problem, dO, float16));
  double square = 0;
  for (const Tensor<float>* gradient : {&got.dQ, &got.dK, &got.dV})
    for (const float g : gradient->values) square += double(g) * g;
  const double step = 0.02 * before / square, predicted = step * square;
  const auto move = [&](Tensor<float>& tensor, const Tensor<float>& gradient) {
    for (std::size_t i = 0; i < tensor.values.size(); ++i) tensor.values[i] -= float(step) * gradient.values[i];
  };
  move(problem.Q, got.dQ), move(problem.K, got.dK), move(problem.V, got.dV);
  const double decrease = before - loss(problem, nullptr);
  expect(decrease > 0.9 * predicted && decrease < 1.1 * predicted,
         fmt::format("a step along the negative gradient lowers the loss {:.6g} by {:.4g}, expected {:.4g}", before,
                     decrease, predicted),
         "the result of the kernels is not the gradient of the loss", "not-the-gradient");
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
             fmt::format("dQ of query {}, column {}, changes from {} to {} if the keys from {} on become {}", at / d,
                         at % d, was, is, first, value),
             "a key after a query contributes to the query's dQ: the mask does not mask the pair, or the key's row of "
             "K is "
             "used although dS is 0",
             "mask");
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
             fmt::format("dK or dV of key {}, column {}, changes if Q and dO of queries 0 to {} become {}", at / d,
                         at % d, queries - 1, value),
             "queries before a key contribute to its gradients; the causal mask must mask these pairs", "mask");
    }
  }
}

TEST_CASE("fully masked queries have gradient 0 and contribute to no other gradient", "[whole]") {
  for (const std::int64_t d : head_dims()) {
    if (d == 64) continue;
    const std::int64_t heads = 2, Nq = 150, Nk = 40, masked = Nq - Nk;
    BackwardProblem given = input("normal", {1, heads, heads, Nq, Nk, d}, 345, {.causal = true}).given;
    const BackwardResult before = backward(given);
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t at = 0; at < masked * d; ++at) {
        const float value = before.dQ.values[std::size_t(h * Nq * d + at)];
        if (value == 0 && at + 1 < masked * d) continue;
        expect(value == 0,
               fmt::format("query {} is fully masked, and its dQ of column {} is {}, expected 0 (Nq={}, Nk={}, d={})",
                           at / d, at % d, value, Nq, Nk, d),
               "P of a fully masked row is not 0; its LSE of -inf must be replaced by +inf", "masked-row");
      }
      std::fill_n(&given.problem.Q(0, h, 0, 0), masked * d, 300.0f);
      std::fill_n(&given.dO(0, h, 0, 0), masked * d, 300.0);
    }
    expect(same_bits(before, backward(given)),
           fmt::format("a gradient changes with Q and dO of fully masked queries (Nq={}, Nk={}, d={})", Nq, Nk, d),
           "P of a fully masked row is not 0; it must be 0", "masked-row");
  }
}

TEST_CASE("heads do not mix", "[whole]") {
  // Even where they are NaN: N is no multiple of a tile, and the rows behind a head's last one are the next head's.
  const std::int64_t N = 40, d = 32, changed_head = 1;
  const BackwardProblem given = input("normal", {2, 2, 2, N, N, d}, 350).given;
  const BackwardResult before = backward(given);
  for (const float value : {2.0f, std::numeric_limits<float>::quiet_NaN()}) {
    BackwardProblem changed = given;
    for (Tensor<float>* tensor : {&changed.problem.Q, &changed.problem.K, &changed.problem.V})
      std::fill_n(&(*tensor)(0, changed_head, 0, 0), N * d, value);
    std::fill_n(&changed.dO(0, changed_head, 0, 0), N * d, double(value));
    const BackwardResult after = backward(changed);
    for (std::int64_t head = 0; head < 4; ++head) {
      bool same = true;
      for (std::int64_t at = head * N * d; at < (head + 1) * N * d; ++at) {
        const auto i = std::size_t(at);
        same = same && before.dQ.values[i] == after.dQ.values[i] && before.dK.values[i] == after.dK.values[i] &&
               before.dV.values[i] == after.dV.values[i];
      }
      expect(same != (head == changed_head),
             fmt::format("gradients of head {} {} if only the inputs of head {} become {}", head,
                         same ? "stay the same" : "change", changed_head, value),
             "the blocks of a head read or write rows of another head", "heads-mixed");
    }
  }
}

TEST_CASE("more heads than gridDim.y allows", "[whole]") {
  // With one query and one key whose score and LSE are 0, P is 1. So dV is dO = x, a number of the head; with V = 0 and
  // O = 1/d, dS is -D = -x; all of it exact.
  const std::int64_t heads = 65600, d = 32;
  const float scale = 0.25f;
  BackwardProblem given;
  given.problem.shape = {heads, 1, 1, 1, 1, d};
  given.problem.scale = scale;
  given.problem.V = Tensor<float>({heads, 1, 1, d}, 0.0f);
  given.problem.Q = given.problem.K = Tensor<float>({heads, 1, 1, d}, 1.0f);
  given.saved.O = Tensor<double>({heads, 1, 1, d}, 1.0 / double(d));
  given.saved.lse = Tensor<double>({heads, 1, 1, 1}, 0.0);
  given.dO = Tensor<double>({heads, 1, 1, d});
  const auto x = [](std::int64_t head) { return float(head % 2039); };
  for (std::int64_t at = 0; at < heads * d; ++at) {
    given.dO.values[std::size_t(at)] = x(at / d);
    if (at % 2 == 1) given.problem.Q.values[std::size_t(at)] = -1;
  }
  expect_many_heads(heads, Plan{1, 1}.numbers(32), [&](const Numbers& numbers) {
    return [=, result = backward(given, numbers), Q = given.problem.Q.values](std::int64_t head) {
      for (std::int64_t column = 0; column < d; ++column) {
        const auto i = std::size_t(head * d + column);
        const float wanted = x(head), dS = -wanted;
        if (result.dV.values[i] == wanted && result.dQ.values[i] == scale * dS &&
            result.dK.values[i] == scale * dS * Q[i])
          continue;
        return fmt::format(
            "with B·H = {}, one query and one key, dV, dQ and dK of head {}, column {}, are {}, {} and {}, expected "
            "{}, "
            "{} and {}",
            heads, head, column, result.dV.values[i], result.dQ.values[i], result.dK.values[i], wanted, scale * dS,
            scale * dS * Q[i]);
      }
      return std::string();
    };
  });
}

TEST_CASE("fp16 and fp32 gradients differ by one rounding", "[whole]") {
  for (const std::int64_t d : head_dims()) {
    if (d == 64) continue;
    const BackwardProblem given = input("normal", {1, 2, 2, 50, 70, d}, 360, {.causal = true}).given;
    const BackwardResult half = backward(given), full = backward(given, {{"float_gradients", 1}});
    const std::pair<const Tensor<float>*, const Tensor<float>*> pairs[] = {
        {&half.dQ, &full.dQ}, {&half.dK, &full.dK}, {&half.dV, &full.dV}};
    for (const auto& [rounded, exact] : pairs) {
      expect(rounded->values == from_codes(to_codes(exact->values, float16), float16),
             fmt::format("with d={} a gradient in fp16 is not the rounded gradient in float", d),
             "the gradient is rounded before it is scaled, or twice; it must be rounded once, after the scale",
             "rounded-twice");
    }
  }
}

TEST_CASE("a negative scale and a scale of 0", "[whole]") {
  // With a scale of 0 all visible keys weigh the same, and nothing depends on Q and K.
  for (const bool causal : {true, false}) {
    for (const float scale : {-0.2f, 0.4f, 0.0f})
      expect_backward(input("normal", {1, 1, 1, 50, 70, 64}, 370, {.causal = causal, .scale = scale}));
  }
}

TEST_CASE("the memory traffic of each kernel matches its formula", "[whole]") {
  require_counters();
  struct Move {
    double loaded = 0, copied = 0, stored = 0;  // bytes: by loads, by cp.async, by stores
  };
  for (const auto& [d, wish] : {std::pair{64, Plan{4, 1}}, {64, Plan{4, 2}}, {128, Plan{8, 2}}}) {
    if (plans(d).empty()) continue;
    const Plan plan = wish.resolved(d);
    for (const auto& [Nq, Nk, causal] : {std::tuple{100, 152, false}, {100, 152, true}, {330, 200, true}}) {
      const std::int64_t heads = 2, offset = Nk - Nq;
      const auto& [resident, streamed] = plan.tiles(d);
      // What passes by: whole tiles from the first query on that sees the block's first key; keys up to the last one
      // that the block's last query sees, in whole tiles.
      std::int64_t queries = 0, keys = 0;
      for (std::int64_t first = 0; first < Nk; first += resident)
        queries += Nq - (causal ? std::max<std::int64_t>(0, first - offset) / streamed * streamed : 0);
      for (std::int64_t first = 0; first < Nq; first += resident) {
        const std::int64_t last = std::min<std::int64_t>(first + resident, Nq) - 1;
        keys += std::min<std::int64_t>(Nk, tiles_of(visible_keys(last, Nq, Nk, causal), streamed) * streamed);
      }
      const double row = double(heads * d * 2), rows = double(heads * 8);  // bytes of a row in all heads
      const std::pair<std::string, std::map<std::string, Move>> expected[] = {
          {"prepare",
           {{"O", {.loaded = row * Nq}},
            {"dO", {.loaded = row * Nq}},
            {"lse", {.loaded = double(heads * Nq * 4)}},
            {"rows", {.stored = rows * Nq}}}},
          {"key_gradients",
           {{"K", {.copied = row * Nk}},
            {"V", {.copied = row * Nk}},
            {"Q", {.copied = row * double(queries)}},
            {"dO", {.copied = row * double(queries)}},
            {"rows", {.copied = rows * double(queries)}},
            {"dK", {.stored = row * Nk}},
            {"dV", {.stored = row * Nk}}}},
          {"query_gradients",
           {{"Q", {.copied = row * Nq}},
            {"dO", {.copied = row * Nq}},
            {"rows", {.copied = rows * Nq}},
            {"K", {.copied = row * double(keys)}},
            {"V", {.copied = row * double(keys)}},
            {"dQ", {.stored = row * Nq}}}},
      };
      const std::string how =
          fmt::format("Nq={}, Nk={}, d={}, causal={}, resident tiles of {} rows, streamed tiles of {}", Nq, Nk, d,
                      causal ? "yes" : "no", resident, streamed);
      const nlohmann::json launches =
          recorded_launches(input("normal", {1, heads, heads, Nq, Nk, d}, 380, {causal}).given, plan.numbers(d));
      expect(launches.size() == std::size(expected),
             fmt::format("{} kernels are launched, expected 3 ({})", launches.size(), how), "", "traffic");
      for (std::size_t kernel = 0; kernel < launches.size(); ++kernel) {
        const auto& [name, moves] = expected[kernel];
        const std::string launched = launches[kernel].at("kernel");
        expect(launched.find(name) != std::string::npos,
               fmt::format("kernel {} is {}, expected {}", kernel + 1, launched, name), "", "traffic");
        const nlohmann::json& all = launches[kernel].at("counters");
        constexpr int products[] = {0, 4, 3};  // S, dP, dV, dK; S, dP, dQ
        expect_matmuls(all.at("tensor_instructions"), {1, heads, heads, Nq, Nk, d}, causal, products[kernel],
                       fmt::format("{}, {}", name, how));
        Move together;
        for (const auto& [tensor, move] : moves) {
          together.loaded += move.loaded, together.copied += move.copied, together.stored += move.stored;
          nlohmann::json counters;
          for (const nlohmann::json& each : launches[kernel].at("tensors"))
            if (each.at("name") == tensor) counters = each.at("counters");
          const std::tuple<const char*, const char*, double> ways[] = {
              {"load", "loaded", move.loaded}, {"async", "copied", move.copied}, {"store", "stored", move.stored}};
          for (const auto& [way, word, bytes] : ways) {
            const double got = counters.value(fmt::format("{}_bytes", way), 0.0);
            expect(got == bytes,
                   fmt::format("{}: {} bytes of {} are {}, expected {} ({})", name, got, tensor, word, bytes, how),
                   "the kernel must move each tensor as often as expected", "traffic");
            const double sectors = counters.value(fmt::format("{}_sectors", way), 0.0);
            if (tensor == "lse" || tensor == "rows") continue;  // 4 and 8 bytes a query fill no whole sectors
            expect(sectors == bytes / 32,
                   fmt::format("{}: {} sectors of {} are {}, expected {} ({})", name, sectors, tensor, word, bytes / 32,
                               how),
                   "adjacent lanes must access adjacent bytes", "uncoalesced");
          }
        }
        expect(all.at("global.load_bytes") == together.loaded && all.at("global.async_bytes") == together.copied &&
                   all.at("global.store_bytes") == together.stored && all.at("global.atomic_sectors") == 0,
               fmt::format("{} moves more than its tensors: {} bytes loaded, {} copied and {} stored, expected {}, {} "
                           "and {} ({})",
                           name, all.at("global.load_bytes").dump(), all.at("global.async_bytes").dump(),
                           all.at("global.store_bytes").dump(), together.loaded, together.copied, together.stored, how),
               "the kernel keeps something else in device memory", "traffic");
      }
    }
  }
}

TEST_CASE("extra memory grows linearly with N", "[whole]") {
  for (const std::int64_t N : {64, 128, 256}) {
    const Input in = input("normal", {1, 2, 2, N, N, 32}, 390);
    const BackwardResult kernels = backward(in.given);
    expect_written(kernels.dQ.values[0], "dQ");
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
           "the naive backward must store P and dS, and nothing else", "extra-memory");
  }
}

TEST_CASE("one barrier per tile, and one more for a team of two warps", "[whole]") {
  require_counters();
  for (const auto& [d, wish] : {std::pair{64, Plan{4, 1}}, {64, Plan{4, 2}}, {128, Plan{8, 2}}}) {
    if (plans(d).empty()) continue;
    const Plan plan = wish.resolved(d);
    const std::int64_t heads = 2, Nq = 100, Nk = 152;
    const GradientTiles tiles = plan.tiles(d);
    const worker::Reply reply =
        backward(input("normal", {1, heads, heads, Nq, Nk, d}, 400).given, plan.numbers(d)).reply;
    const std::int64_t shared = plan.team - 1;
    // A block: one barrier for the index, each tile, and one before the results where a team has two warps.
    const auto of_blocks = [&](std::int64_t own, std::int64_t pass) {
      return tiles_of(own, tiles.Bc) * (1 + (1 + shared) * tiles_of(pass, tiles.Br) + shared);
    };
    const std::int64_t expected = heads * (of_blocks(Nk, Nq) + of_blocks(Nq, Nk));
    expect_count(
        reply, "block_barriers", double(expected),
        fmt::format("{} heads, resident tiles of {} rows, streamed tiles of {}: one barrier per streamed tile{}", heads,
                    tiles.Bc, tiles.Br, shared ? ", and one more for the team" : ""),
        "your code has a __syncthreads() that protects nothing, or lacks one", "barriers");
  }
}

TEST_CASE("the first kernels agree with the oracle on any shape", "[whole]") {
  std::uint64_t seed = 440;
  for (const bool causal : {false, true}) {
    for (const auto& [Nq, Nk] : {std::pair{1, 1}, {70, 100}, {100, 33}, {64, 96}})
      expect_simple(input("normal", {2, 3, 3, Nq, Nk, 64}, ++seed, {causal}), {"dQ", "dK", "dV"});
  }
}

TEST_CASE("every shared memory size has tiles", "[whole]") {
  // The most that a thread block may have on GPUs of compute capability 7.5, 8.6 and 8.9, 8.0, and 9.0. The tiles that
  // run are the first that fit; without any the call is refused.
  std::uint64_t seed = 460;
  for (const int kilobytes : {64, 99, 163, 227}) {
    for (const std::int64_t d : head_dims()) {
      if (kilobytes == 64 && d == 128) continue;
      const Input in = input("normal", {1, 2, 2, 70, 133, d}, ++seed, {.causal = true});
      const BackwardResult result = backward(in.given, {{"shared_limit", kilobytes * 1024.0}});
      expect_gradients(result, in.given, fmt::format("{}, {} KB of shared memory a block", in.name, kilobytes), {},
                       gradient_precision(false));
    }
  }
}

TEST_CASE("the atomic variant agrees with the oracle and adds to every dQ once per K/V tile", "[whole]") {
  std::uint64_t seed = 410;
  for (const bool causal : {false, true}) {
    expect_backward(input("normal", {1, 2, 2, 70, 133, 64}, ++seed, {causal}), {4, 1}, {"dQ", "dK", "dV"},
                    {.in_float = false, .atomic = true});
    expect_backward(input("normal", {1, 1, 1, 50, 90, 128}, ++seed, {causal}), {8, 2}, {"dQ", "dK", "dV"},
                    {.in_float = true, .atomic = true});
    // exp2(-LSE) is infinite, and so is dS of a key that does not exist.
    expect_backward(input("negative logits", {1, 1, 1, 40, 70, 64}, ++seed, {.causal = causal, .zeros = true}), {4, 1},
                    {"dQ", "dK", "dV"}, {.in_float = true, .atomic = true});
  }
  require_counters();
  const std::int64_t heads = 2, Nq = 96, Nk = 300, d = 64;
  Numbers numbers = Plan{4, 1}.numbers(d, {{"atomic", 1}});
  const auto resident = std::int64_t(numbers.at("Bc"));
  numbers["atomic"] = 1;
  const worker::Reply reply = backward(input("normal", {1, heads, heads, Nq, Nk, d}, 420).given, numbers).reply;
  expect_count(reply, "dQ_sum.atomic_sectors", double(heads * tiles_of(Nk, resident) * Nq * d * 4) / 32,
               fmt::format("{} heads · {} K/V tiles · {} · {} floats", heads, tiles_of(Nk, resident), Nq, d),
               "the kernel must add to each element of dQ once per K/V tile", "traffic");
  expect(
      reply.extra_bytes == heads * Nq * (8 + 4 * d),
      fmt::format("the atomic variant allocates {} bytes, expected {}: 8 for each query and 4 for each element of dQ",
                  reply.extra_bytes, heads * Nq * (8 + 4 * d)),
      "", "extra-memory");
}

TEST_CASE("the atomic variant's dQ differs from run to run, within its bounds; dK and dV do not", "[whole]") {
  // Several K/V tiles add to each dQ, in no fixed order.
  constexpr int runs = 20;
  const std::int64_t Nq = 64, Nk = 1024, d = 64;
  const Input in = input("normal", {1, 1, 1, Nq, Nk, d}, 430);
  const BackwardResult first = expect_backward(in, {4, 1}, {"dQ", "dK", "dV"}, {.in_float = true, .atomic = true});
  double spread = 0, largest = 0;
  std::vector<bool> differs(first.dQ.values.size());
  for (int run = 1; run < runs; ++run) {
    const BackwardResult other = expect_backward(
        in, {4, 1}, {"dQ", "dK", "dV"}, {.in_float = true, .atomic = true, .workers = 2 + run % 3, .lane_seed = run});
    for (std::size_t i = 0; i < differs.size(); ++i) {
      const double difference = std::abs(double(other.dQ.values[i]) - first.dQ.values[i]);
      differs[i] = differs[i] || difference > 0;
      spread = std::max(spread, difference);
      largest = std::max(largest, std::abs(double(first.dQ.values[i])));
    }
    expect(other.dK.values == first.dK.values && other.dV.values == first.dV.values,
           fmt::format("dK or dV of the atomic variant differs in run {}", run + 1),
           "one thread writes each element of dK and dV, so all runs must give the same bits", "order-dependent");
  }
  const auto different = double(std::count(differs.begin(), differs.end(), true));
  report(fmt::format(
      "Nq={}, Nk={}, d={}, dQ in float: in {} runs {:.0f} % of dQ's elements differ, by at most {:.2g} (the "
      "largest element is {:.2g}). The chapter's own kernels: no difference (\"200 runs give the same bits\").",
      Nq, Nk, d, runs, 100 * different / double(differs.size()), spread, largest));
}
