// Chapter 14, backward: dK and dV as sums over the heads of a group, by one writer.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/backward_properties.hpp"

using namespace workbook;
using namespace workbook::test;
using namespace workbook::test::gradients;

namespace {

/// H = groups·G heads of Q that share `groups` heads of K and V.
Shape grouped(std::int64_t B, std::int64_t groups, std::int64_t G, std::int64_t Nq, std::int64_t Nk, std::int64_t d) {
  return {B, groups * G, groups, Nq, Nk, d};
}
/// The input, of which head h of Q has (1 + h % G)/4 times its Q and (1 + (h + 1) % G)/2 times its dO: the scores and
/// gradients of a group's heads differ by far, and so do their LSE and D.
Input heads_apart(const Input& in) {
  Problem problem = in.given.problem;
  const Shape& s = problem.shape;
  const std::int64_t G = s.H / s.Hkv, size = s.Nq * s.d;
  Tensor<float> dO(problem.Q.sizes);
  for (std::int64_t at = 0; at < s.B * s.H * size; ++at) {
    const std::int64_t h = at / size;
    problem.Q.values[std::size_t(at)] *= float(1 + h % G) / 4;
    dO.values[std::size_t(at)] = float(in.given.dO.values[std::size_t(at)]) * float(1 + (h + 1) % G) / 2;
  }
  return {worker::backward_problem(problem, dO, float16), in.name + ", heads of a group apart"};
}
/// Every kind of input with every mask, three heads a group.
void expect_every_kind_in_groups(const std::vector<std::string>& which = all_gradients, const Numbers& variant = {}) {
  std::uint64_t seed = 500;
  for (const InputKind& kind : input_kinds())
    for (const bool causal : {false, true})
      expect_right_small(input(kind.name, grouped(1, 2, 3, 40, 70, 64), ++seed, {causal}), which, variant);
  for (const float scale : {-0.2f, 0.0f})
    expect_right_small(input("normal", grouped(1, 2, 3, 40, 70, 64), ++seed, {.scale = scale}), which, variant);
  expect_right_small(input("value mean", grouped(1, 2, 3, 70, 40, 64), ++seed, {true}), which, variant);
}

/// What the kernels do for one head of Q, H times: rows of Q that are loaded, and Q tiles.
BlockCount count_all_blocks(const Shape& s, bool causal, const Sizes& sizes) {
  BlockCount count = count_blocks(s, causal, sizes);
  count.visited *= s.B * s.H, count.masked *= s.B * s.H, count.queries *= s.B * s.H;
  return count;
}
void expect_bytes(const worker::Reply& reply, const std::string& name, std::int64_t expected, const std::string& why,
                  const Problem& problem, const std::string& cause, const std::string& diagnosis = "traffic") {
  expect_count(reply, name, double(expected), fmt::format("{} ({})", why, describe(problem)), cause, diagnosis);
}

}  // namespace

// ---- 14.7 one writer ----

TEST_CASE("dK and dV are sums over the heads of a group", "[14.7]") {
  for (const std::int64_t d : head_dims())
    for (const std::int64_t G : {2, 3, 4})
      for (const std::int64_t groups : {1, 2})
        expect_right_small(heads_apart(input("value mean", grouped(1, groups, G, 40, 40, d), 60)), {"dV", "dK"});
  expect_every_kind_in_groups({"dV", "dK"});
}

TEST_CASE("heads of K and V are indexed across the batch in the backward pass", "[14.7]") {
  for (const std::int64_t d : head_dims())
    for (const bool causal : {false, true})
      expect_right_small(input("value mean", grouped(3, 2, 2, 40, 70, d), 61, {causal}));
}

TEST_CASE("dK and dV are written once, by one block, and K and V are read once", "[14.7]") {
  require_counters();
  for (const std::int64_t G : {1, 4, 6}) {
    for (const std::int64_t d : head_dims()) {
      const Shape s = grouped(2, 2, G, 70, 200, d);
      const Input in = input("normal", s, 62, {G == 4});
      const worker::Reply reply = backward(in.given, usual_sizes(d).numbers()).reply;
      const std::int64_t bytes = s.B * s.Hkv * s.Nk * s.d * 2;
      for (const char* tensor : {"dK", "dV"}) {
        const double atomics = counter(reply, fmt::format("{}.atomic_requests", tensor));
        expect(atomics == 0, fmt::format("your warps add to {} by {} atomic instructions, expected 0", tensor, atomics),
               "your code adds the heads' parts of dK or dV in device memory; one thread block must accumulate all "
               "heads of a group in registers",
               "gradients-by-atomics");
        expect_bytes(reply, fmt::format("{}.store_bytes", tensor), bytes,
                     "B·Hkv·Nk·d elements, each written once; dK and dV together are 4·B·Hkv·Nk·d bytes",
                     in.given.problem, "your code does not write each row of dK and dV exactly once; it must do so");
      }
      for (const char* tensor : {"K", "V"})
        expect_bytes(
            reply, fmt::format("{}.async_bytes", tensor), bytes, "one thread block reads each K/V tile, once",
            in.given.problem,
            "your code does not read each K/V tile exactly once; one thread block must process all heads of the group");
    }
  }
}

// ---- 14.8 the Q tiles of a group ----

TEST_CASE("the steps iterate over the Q tiles of a group head by head", "[14.8]") {
  for (const auto& [first_head, heads, begin, end] :
       {std::array{0, 1, 0, 1}, {0, 2, 1, 4}, {6, 3, 0, 5}, {4, 4, 2, 3}, {5, 1, 3, 8}, {8, 8, 4, 4}, {8, 8, 5, 4}}) {
    const int each = std::max(0, end - begin), steps = heads * each;
    const std::string of = fmt::format("first_head={}, heads={}, begin={}, end={}", first_head, heads, begin, end);
    worker::Call request("group_tiles");
    request.number("first_head", first_head).number("group", heads).number("begin", begin).number("end", end);
    request.output<std::int32_t>("count", 1).output<std::int32_t>("steps", std::size_t(2 * std::max(1, steps)));
    const worker::Reply reply = call(request);
    const std::int32_t count = reply.output<std::int32_t>("count")[0];
    expect(count == steps, fmt::format("your code returns {} steps, expected {} Q tiles of each of {} heads, {}; {}",
                                       count, each, heads, steps, of));
    const auto at = reply.output<std::int32_t>("steps");
    for (int step = 0; step < steps; ++step) {
      const int head = first_head + step / each, number = begin + step % each;
      const int got_head = at[std::size_t(2 * step)], got = at[std::size_t(2 * step + 1)];
      expect(got_head == head && got == number,
             fmt::format("your code returns Q tile {1} of head {2} for step {0}, expected Q tile {3} of head {4}; {5}",
                         step, got, got_head, number, head, of));
    }
  }
}

TEST_CASE("every head of a group contributes to dK and dV", "[14.8]") {
  for (const std::int64_t d : head_dims()) {
    constexpr std::int64_t G = 4;
    for (std::int64_t one = 0; one < G; ++one) {
      Input in = input("normal", grouped(1, 1, G, 70, 70, d), 63, {one % 2 == 1});
      for (std::size_t at = 0; at < in.given.dO.values.size(); ++at)
        if (std::int64_t(at) / (70 * d) != one) in.given.dO.values[at] /= 64;
      in.kind.clear();
      in.name += fmt::format(", dO small but for head {}", one);
      expect_right_small(in);
    }
  }
  expect_every_kind_in_groups();
}

TEST_CASE("only Q tiles with an unmasked pair are loaded, of every head", "[14.8]") {
  require_counters();
  for (const auto& [Nq, Nk] : {std::pair{70, 70}, {70, 200}, {200, 70}, {100, 64}, {64, 100}}) {
    for (const bool causal : {false, true}) {
      for (const std::int64_t G : {1, 3}) {
        for (const Sizes& sizes : all_sizes(64)) {
          const BackwardProblem given = input("normal", grouped(1, 2, G, Nq, Nk, 64), 64, {causal}).given;
          const worker::Reply reply = backward(given, sizes.numbers()).reply;
          const BlockCount count = count_all_blocks(given.problem.shape, causal, sizes);
          for (const char* tensor : {"Q", "dO"}) {
            const std::string name = fmt::format("{}.async_bytes", tensor);
            const bool more = counter(reply, name) > double(count.queries * 64 * 2);
            expect_bytes(
                reply, name, count.queries * 64 * 2,
                fmt::format("{} steps of all thread blocks have an unmasked pair, {}", count.visited, sizes.text()),
                given.problem,
                more ? "your code does not skip Q tiles whose queries attend to none of the K/V tile's keys; it must "
                       "skip them"
                     : "your code skips a Q tile with an unmasked pair; it must process each of them",
                more ? "tiles-not-skipped" : "tiles-skipped");
          }
        }
      }
    }
  }
}

// ---- 14.9 a step's Q tile ----

TEST_CASE("each head of Q uses its own Q, dO, LSE and D", "[14.9]") {
  for (const std::int64_t d : head_dims())
    for (const std::int64_t Nq : {70, 64, 31})  // 31 last: heads an odd number of rows apart are misaligned
      expect_right_small(heads_apart(input("value mean", grouped(2, 2, 3, Nq, 40, d), 65)));
  expect_every_kind_in_groups();
}

TEST_CASE("each head of Q gets its own dQ", "[14.9]") {
  for (const std::int64_t d : head_dims())
    for (const Sizes& sizes : all_sizes(d))
      expect_right(heads_apart(input("value mean", grouped(1, 2, 3, 70, 133, d), 66)), {"dQ"}, sizes);
  expect_every_kind_in_groups({"dQ"});
}

TEST_CASE("the mask depends on the Q tile within its head", "[14.9]") {
  std::uint64_t seed = 67;
  for (const auto& [Nq, Nk] : {std::pair{70, 70}, {40, 100}, {100, 40}, {96, 96}, {33, 65}})
    for (const std::int64_t G : {2, 3}) {
      const Input in = input("normal", grouped(1, 1, G, Nq, Nk, 64), ++seed, {true});
      const worker::Reply reply = expect_right_small(in).reply;
      // A block notes each number of a Q tile that it masks, once for all heads.
      Problem of_one = in.given.problem;
      of_one.shape.H = of_one.shape.Hkv;
      if (!reply.counters.empty()) expect_blocks_masked(reply, of_one, small_sizes(64));
    }
  expect_right(input("normal", grouped(1, 1, 3, 200, 260, 128), ++seed, {true}));
}

TEST_CASE("the buffers do not race for any number of Q tiles", "[14.9]") {
  // 1 to 5 Q tiles per head: after an odd number the next head starts in the other buffer.
  for (const std::int64_t d : head_dims()) {
    const std::int64_t Br = small_sizes(d).Br;
    for (const std::int64_t q_tiles : {1, 2, 3, 5})
      for (int lane_seed = 0; lane_seed < 2; ++lane_seed)
        expect_right(input("normal", grouped(1, 1, 3, q_tiles * Br - 3, 40, d), 80), all_gradients, small_sizes(d),
                     {.lane_seed = lane_seed});
  }
  expect_right(input("normal", grouped(1, 1, 2, 190, 140, 64), 81));
  expect_right(input("normal", grouped(1, 1, 2, 190, 140, 128), 81));
}

TEST_CASE("each K/V tile releases its semaphores in every head", "[14.9]") {
  expect_every_kind_in_groups(all_gradients, deterministic_mode);
  require_counters();
  for (const bool causal : {false, true}) {
    const Shape s = grouped(1, 2, 3, 130, 260, 64);
    const Sizes sizes = usual_sizes(64, deterministic_mode);
    const Input in = input("normal", s, 82, {causal});
    const BackwardResult got = expect_right(in, all_gradients, sizes, {.workers = 1});
    const std::int64_t increments = count_all_blocks(s, causal, sizes).visited * sizes.warps;
    const std::int64_t tickets = s.Hkv * tiles_of(s.Nk, sizes.Bc);
    expect_count(
        got.reply, "semaphores.atomic_requests", double(increments + tickets),
        fmt::format("{} semaphore increments by warps in the Q tiles of all heads, and {} tickets, causal={}",
                    increments, tickets, causal),
        "your code does not increment each Q tile's semaphores exactly once per K/V tile; each warp must do so",
        "releases");
  }
}

// ---- The whole chapter ----

TEST_CASE("the gradients of any group and any two lengths agree with the oracle", "[whole]") {
  expect_any_two_lengths(129 * 129 * 64);
  std::uint64_t seed = 400;
  for (const std::int64_t G : {1, 2, 3, 4, 7, 8})
    for (const auto& [Nq, Nk] : {std::pair{1, 1}, {1, 130}, {33, 31}, {65, 64}, {70, 3}})
      for (const bool causal : {false, true}) {
        const std::int64_t d = seed % 2 == 0 ? 64 : 128;
        ++seed;
        expect_right(input("normal", grouped(1 + seed % 2, 1 + G % 2, G, Nq, Nk, d), seed, {causal}));
      }
}

TEST_CASE("the gradients in bf16 agree with the oracle", "[whole]") {
  expect_bf16();
  for (const bool causal : {false, true})
    for (const std::int64_t d : head_dims())
      expect_right(input("normal", grouped(1, 2, 4, 70, 133, d), 410, {causal}, bfloat16), all_gradients, {}, {},
                   bfloat16);
}

TEST_CASE("other groups change no bit of a gradient", "[whole]") {
  // Everything of the middle one of three groups is NaN: nothing of it may come to the other two.
  for (const std::int64_t d : head_dims()) {
    for (const bool causal : {false, true}) {
      constexpr std::int64_t G = 3, Nq = 70, Nk = 133;
      const Numbers numbers =
          (d == 128 ? small_sizes(d, deterministic_mode) : usual_sizes(d, deterministic_mode)).numbers();
      const BackwardProblem given = input("normal", grouped(1, 3, G, Nq, Nk, d), 415, {causal}).given;
      const BackwardResult alone = backward(given, numbers);
      BackwardProblem poisoned = given;
      const auto poison = [](auto& values) {
        const auto third = std::ptrdiff_t(values.size() / 3);
        std::fill_n(values.begin() + third, third, std::numeric_limits<float>::quiet_NaN());
      };
      poison(poisoned.problem.Q.values), poison(poisoned.problem.K.values), poison(poisoned.problem.V.values);
      poison(poisoned.dO.values), poison(poisoned.saved.O.values), poison(poisoned.saved.lse.values);
      const BackwardResult beside = backward(poisoned, numbers);
      expect_written(alone.dQ.values[0], "dQ");
      const auto expect_same = [&](const char* name, const Tensor<float>& a, const Tensor<float>& b) {
        const std::size_t third = a.values.size() / 3;
        for (std::size_t at = 0; at < a.values.size(); ++at)
          expect(at / third == 1 || a.values[at] == b.values[at],
                 fmt::format("element {} of {} is {} if another group contains NaN, and {} otherwise (d={}, causal={})",
                             at, name, b.values[at], a.values[at], d, causal),
                 "your gradient depends on another group; it must depend on the heads of its own group only",
                 "groups-mixed");
      };
      expect_same("dQ", alone.dQ, beside.dQ);
      expect_same("dK", alone.dK, beside.dK);
      expect_same("dV", alone.dV, beside.dV);
    }
  }
}

TEST_CASE("the deterministic gradients agree with the oracle", "[whole]") {
  expect_right_deterministic();
  for (const bool causal : {false, true})
    expect_right(input("normal", grouped(1, 5, 2, 70, 260, 64), 420, {causal}), all_gradients,
                 usual_sizes(64, deterministic_mode), {.workers = 4});
}

TEST_CASE("50 deterministic runs are bitwise equal", "[whole]") {
  expect_repeatable_deterministic(10);
  const Numbers numbers = usual_sizes(64, deterministic_mode).numbers();
  const BackwardProblem given = input("normal", grouped(1, 1, 3, 3, 300, 64), 425).given;
  const BackwardResult first = backward(given, numbers);
  for (int run = 2; run <= 50; ++run)
    expect(same_bits(backward(given, numbers), first),
           fmt::format("a gradient of run {} differs from that of run 1", run),
           "your K/V tiles add to dQ in a varying order, or your code reads a value before it is written; in "
           "deterministic mode the order must be fixed",
           "not-repeatable");
}

TEST_CASE("each tensor's backward traffic matches its formula", "[whole]") {
  expect_moves({});
  require_counters();
  for (const bool causal : {false, true}) {
    for (const std::int64_t G : {4, 7}) {
      const Shape s = grouped(2, 2, G, 100, 233, 64);
      const Sizes sizes = usual_sizes(64);
      const Input in = input("normal", s, 430, {causal});
      const worker::Reply reply = backward(in.given, sizes.numbers()).reply;
      const BlockCount count = count_all_blocks(s, causal, sizes);
      const std::int64_t keys = s.B * s.Hkv * s.Nk * s.d * 2;
      const auto expect_moved = [&](const std::string& name, std::int64_t bytes, const std::string& why) {
        expect_bytes(reply, name, bytes, why, in.given.problem,
                     "your code reads or writes a tensor more or less often than it must");
      };
      for (const char* tensor : {"K", "V"})
        expect_moved(fmt::format("{}.async_bytes", tensor), keys, "K and V are read once");
      for (const char* tensor : {"dK", "dV"})
        expect_moved(fmt::format("{}.store_bytes", tensor), keys, "dK and dV are written once");
      for (const char* tensor : {"Q", "dO"})
        expect_moved(fmt::format("{}.async_bytes", tensor), count.queries * s.d * 2,
                     "each K/V tile with an unmasked pair reads the Q tile's Q and dO");
      expect_moved("dQ.store_bytes", s.B * s.H * s.Nq * s.d * 2, "dQ is written once");
      expect_moved("dQ_sum.atomic_sectors", count.visited * sizes.Br * s.d * 4 / 32,
                   "each K/V tile with an unmasked pair adds to the Q tile's dQ once");
    }
  }
}

const Claims of_the_whole = {
    {"[14.7]", "offsets of K, V, dK and dV may exceed 32 bits", [] { expect_offsets_beyond_32_bits(); }},
    {"[14.9]", "offsets of Q, dO, the row statistics and dQ may exceed 32 bits",
     [] { expect_offsets_beyond_32_bits(); }},
    {"[whole]", "the gradients agree with the oracle",
     [] { expect_every_kind_whole(), expect_every_kind_in_groups(); }},
    {"[whole]", "the gradients do not depend on how the work is divided", [] { expect_sizes_do_not_matter(); }},
    {"[whole]", "future queries and keys have zero influence", [] { expect_no_future(); }},
    {"[whole]", "dQ differs from run to run, within its bounds; dK and dV do not", [] { expect_only_dQ_differs(); }},
    {"[whole]", "the lane order changes only the last bits of dQ", [] { expect_order_changes_only_dQ(); }},
    {"[whole]", "every size of shared memory has tiles for the gradients", [] { expect_sizes_for_every_memory(99); }},
    {"[whole]", "extra memory of the backward pass grows linearly with N", [] { expect_extra_memory(8, 4); }},
};
