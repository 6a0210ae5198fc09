#include "tests/support/backward_properties.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "common/attention/inputs.hpp"
#include "common/worker/description.hpp"
#include "tests/support/context.hpp"
#include "tests/support/ragged.hpp"

namespace workbook::test::gradients {
namespace {

constexpr Element bf16 = bfloat16;

BackwardResult expect_bf16_right(const std::string& kind, const Shape& shape, std::uint64_t seed, bool causal,
                                 const Sizes& sizes = {}) {
  return expect_right(input(kind, shape, seed, {causal}, bf16), all_gradients, sizes, {}, bf16);
}
const char* yes_or_no(bool yes) {
  return yes ? "yes" : "no";
}

}  // namespace

// ---- Right, on any input ----

void expect_every_kind_whole() {
  std::uint64_t seed = 298;
  for (const InputKind& kind : input_kinds()) {
    seed += 3;
    for (const std::int64_t d : head_dims()) {
      if (d == 64)
        expect_right(input(kind.name, {1, 2, 2, 70, 133, d}, seed, {seed % 2 == 0}));
      else if (d == 128)
        expect_right_small(input(kind.name, {2, 1, 1, 90, 140, d}, seed + 1, {seed % 4 < 2}));
      else
        expect_right_small(input(kind.name, {2, 1, 1, 90, 64, d}, seed + 2, {seed % 2 == 1}));
    }
  }
  expect_every_kind();
}

void expect_bf16() {
  for (const bool causal : {false, true}) {
    for (const std::int64_t d : head_dims()) expect_bf16_right("normal", {1, 2, 2, 70, 133, d}, 330, causal);
    expect_bf16_right("large logits", {1, 1, 1, 133, 70, 64}, 331, causal);
    const auto deterministic = [&] {
      return expect_bf16_right("normal", {1, 2, 2, 70, 300, 64}, 332, causal, usual_sizes(64, deterministic_mode));
    };
    expect(same_bits(deterministic(), deterministic()), "in deterministic mode, the gradients of two runs differ",
           "your code adds the K/V tiles' parts of dQ in an order that varies, or reads memory before it is written; "
           "the semaphore must fix the order of the additions",
           "not-repeatable");
  }
}

void expect_any_two_lengths(std::int64_t most) {
  const bool many = context().backend == Backend::cuda;
  const std::vector<std::int64_t> dims = head_dims();
  for_ragged(many ? 13 : 43, many ? kAnyProduct : most, [&](const Shape& shape, bool causal, std::uint64_t number) {
    if (std::ranges::count(dims, shape.d) == 0) return;
    expect_right(input("normal", shape, 340 + number, {causal}), all_gradients, {}, {.workers = 4});
    if (many || shape.Nq * shape.Nk < 100'000) expect_bf16_right("normal", shape, 340 + number, causal);
  });
}

void expect_sizes_do_not_matter() {
  for (const std::int64_t d : head_dims()) {
    for (const Sizes& sizes : all_sizes(d)) {
      expect_right(input("normal", {1, 2, 2, 100, 140, d}, 350), all_gradients, sizes);
      expect_right(input("value mean", {1, 1, 1, 140, 100, d}, 351, {true}), all_gradients, sizes);
    }
  }
}

void expect_sizes_for_every_memory(int least_KiB) {
  std::vector<Numbers> all{{}};
  for (const worker::StageDescription& each : stage_of("backward").variants)
    all.push_back({{each.number, double(each.value)}});
  for (const int KiB : {64, 99, 163, 227}) {  // a T4's, those of RTX cards, an A100's, an H100's
    if (KiB < least_KiB) continue;
    for (const std::int64_t d : head_dims()) {
      const Input in = input("normal", {1, 1, 1, 70, 90, d}, 385);
      for (Numbers numbers : all) {
        std::string name = fmt::format("{}, {} KiB of shared memory", in.name, KiB);
        for (const auto& [number, value] : numbers) name += fmt::format(", {} {}", number, value);
        numbers["shared_limit"] = double(KiB * 1024);
        expect_gradients(backward(in.given, numbers), in.given, name, {}, precision(), all_gradients);
      }
    }
  }
}

void expect_right_deterministic() {
  for (const bool causal : {false, true}) {
    for (const std::int64_t d : head_dims()) {
      const Sizes sizes = d == 128 ? small_sizes(d, deterministic_mode) : usual_sizes(d, deterministic_mode);
      const std::int64_t heads = d == head_dims().front() ? 5 : 1;
      expect_right(input("normal", {1, heads, heads, 150, 260, d}, 360, {causal}), all_gradients, sizes);
      if (causal) expect_right(input("normal", {1, 1, 1, 300, 140, d}, 361, {causal}), all_gradients, sizes);
    }
  }
}

void expect_offsets_beyond_32_bits() {
  const std::int64_t d = head_dims().back();
  const Shape shape{1, 16, 16, 70, 90, d};
  Sizes sizes = small_sizes(d);
  sizes.variant["skipped_batches"] = batches_beyond_32_bits(shape.H * shape.Nq * d);
  for (const bool causal : {false, true}) {
    Input in = input("normal", shape, 9, {causal});
    in.name += ", after 2^32 elements of other heads";
    expect_right(in, all_gradients, sizes);
  }
}

// ---- Right, in each of its parts ----

void expect_every_column() {
  for (const std::int64_t d : head_dims())
    for (std::int64_t first = 0; first < d; first += 16)
      expect_right_small(only_where(
                             input("normal", {1, 1, 1, 32, 100, d}, 120), "Q dO",
                             [=](std::int64_t, std::int64_t c) { return c >= first && c < first + 16; },
                             fmt::format("columns {} to {}", first, first + 15)),
                         {"dV", "dK"});
}

void expect_pair_scores() {
  for (const std::int64_t d : head_dims()) {
    expect_right_small(input("normal", {1, 1, 1, 70, 100, d}, 125), {"dV", "dK"});
    expect_right(input("late spike", {1, 1, 1, 128, 128, d}, 126), {"dV", "dK"});
  }
  expect_every_kind({"dV", "dK"});
}

void expect_P_from_the_lse() {
  std::uint64_t seed = 130;
  for (const std::int64_t d : head_dims()) {
    const std::int64_t heads = d == 64 ? 2 : 1;
    for (const char* kind : {"normal", "large logits", "value mean"})
      expect_right_small(input(kind, {1, heads, heads, 70, 100, d}, ++seed));
    expect_right_small(input("normal", {1, 1, 1, 40, 70, d}, ++seed, {.scale = -0.3f}));
  }
  expect_every_kind();
}

void expect_lse_and_D_of_query() {
  for (const std::int64_t d : head_dims())
    expect_right_small(with_rows_apart(input("value mean", {1, 1, 1, 128, 64, d}, 140)));
}

void expect_D_before_rounding() {
  // Where V has a mean, dP and D are large and close to each other; a mean of K multiplies what is lost.
  for (const std::int64_t d : head_dims())
    expect_right_small(input("normal", {1, 1, 1, 64, 96, d}, 145, {.K_mean = 1, .V_mean = 3}), {"dQ", "dK"});
}

void expect_masked_pairs() {
  for (const auto& [Nq, Nk] : {std::pair{40, 70}, {70, 40}})
    for (const float scale : {-0.3f, 0.0f, 0.3f})
      expect_right_small(input("normal", {1, 1, 1, Nq, Nk, 64}, 150, {.causal = true, .scale = scale}));
  expect_right_small(input("negative logits", {1, 1, 1, 40, 70, 64}, 151, {.zeros = true}));
  expect_right_small(input("large logits", {1, 1, 1, 70, 70, 64}, 152, {.causal = true}));
}

void expect_causal(std::int64_t Nq) {
  std::uint64_t seed = 160;
  for (const auto& [queries, keys] : lengths_of_every_kind(Nq)) {
    if (queries == keys && queries != Nq) continue;
    expect_right_small(input("normal", {1, 1, 1, queries, keys, head_dims().front()}, ++seed, {true}));
  }
  for (const auto& [queries, keys] : {std::pair{200, 200}, {130, 260}, {260, 130}})
    expect_right(input("normal", {1, 1, 1, queries, keys, 64}, ++seed, {true}));
  for (const auto& [queries, keys] : {std::pair{150, 180}, {180, 150}, {65, 129}})
    expect_right(input("normal", {1, 1, 1, queries, keys, 128}, ++seed, {true}));
  expect_every_kind();
}

void expect_no_keys_past_the_end() {
  expect_right_small(input("negative logits", {1, 1, 1, 40, 70, 64}, 190, {.zeros = true}), {"dQ"});
  expect_right(input("negative logits", {1, 1, 1, 33, 17, head_dims().front()}, 191), {"dQ"});
  expect_right(input("negative logits", {1, 1, 1, 33, 100, 128}, 192), {"dQ"});
}

void expect_rows_without_keys() {
  for (const auto& [Nq, Nk] : {std::pair{300, 30}, {130, 1}, {64, 63}})
    for (const std::int64_t d : head_dims()) expect_right_small(input("value mean", {1, 1, 1, Nq, Nk, d}, 105, {true}));
}

void expect_lse_gradient() {
  for (const bool causal : {false, true}) {
    const Shape s{1, 2, 2, 70, 50, 64};
    const Input in = input("normal", s, 110, {causal});
    const std::vector<float> dlse = normal_values(std::size_t(s.lse_size()), 111);
    // D - dLSE is the D of another O: O - dLSE·dO / |dO|².
    const auto with = [&](double sign, bool of_first_head = false) {
      BackwardProblem given = in.given;
      for (std::int64_t row = 0; row < s.lse_size(); ++row) {
        const auto first = std::size_t(row * s.d);
        double squares = 0;
        for (std::size_t c = first; c < first + std::size_t(s.d); ++c)
          squares += given.dO.values[c] * given.dO.values[c];
        for (std::size_t c = first; c < first + std::size_t(s.d); ++c)
          given.saved.O.values[c] -=
              sign * dlse[std::size_t(of_first_head ? row % s.Nq : row)] * given.dO.values[c] / squares;
      }
      return given;
    };
    const Sizes sizes = small_sizes(s.d);
    const auto send = [&](const worker::Call& request) {
      worker::Call with_dlse = request;
      with_dlse.input("dlse", dlse);
      return call(with_dlse);
    };
    const BackwardResult got =
        worker::backward("backward_dlse", encoded(in.given, float16), float16, sizes.numbers(), send);
    const auto distance = [&](double sign, bool of_first_head = false) {
      const BackwardProblem given = with(sign, of_first_head);
      const Gradients oracle = backward_oracle(given.problem, given.dO, given.saved);
      double sum = 0;
      for (std::size_t i = 0; i < oracle.dK.values.size(); ++i)
        sum += std::abs(oracle.dK.values[i] - double(got.dK.values[i]));
      return sum;
    };
    const double right = distance(1), wrong = distance(-1), ignored = distance(0);
    expect(wrong > right / 8, "dK is that of D + dLSE", "your code adds dLSE to D; it must subtract it", "dlse-added");
    expect(distance(1, true) > right / 8, "dK is that of the first head's dLSE in every head",
           "your code uses the first head's dLSE in every head; dLSE is (heads, Nq), as the LSE is",
           "dlse-of-the-first-head");
    expect(ignored > right / 8, "dK is that of a loss that does not depend on the LSE",
           "your code leaves dLSE out of D; it must subtract it", "dlse-left-out");
    expect_gradients(got, with(1), in.name + ", with a gradient of the LSE", sizes.tiles(), precision(), all_gradients);
  }
}

namespace {

void expect_each_16_queries(const std::string& gradient, std::uint64_t seed) {
  for (const std::int64_t d : head_dims()) {
    const std::int64_t Nq = std::max<std::int64_t>(64, usual_sizes(d).Br);
    for (std::int64_t first = 0; first < Nq; first += 16)
      expect_right(only_queries(input("normal", {1, 1, 1, Nq, 128, d}, seed), first, 16), {gradient});
  }
}

}  // namespace

void expect_dV() {
  for (const std::int64_t d : head_dims()) expect_right_small(input("one hot", {1, 1, 1, 70, 128, d}, 200), {"dV"});
  expect_each_16_queries("dV", 201);
}

void expect_dK() {
  for (const std::int64_t d : head_dims()) expect_right_small(input("value mean", {1, 1, 1, 70, 128, d}, 205), {"dK"});
  expect_each_16_queries("dK", 206);
}

void expect_rounded_once() {
  expect_right_small(input("normal", {1, 1, 1, 256, 64, 64}, 210));
  expect_right_small(input("normal", {1, 1, 1, 256, 64, 128}, 210));
  expect_right_small(input("value mean", {1, 1, 1, 128, 32, head_dims().front()}, 211));
  expect_every_kind({"dV", "dK"});
}

void expect_dQ() {
  for (const std::int64_t d : head_dims()) {
    for (const Sizes& sizes : all_sizes(d))
      expect_right(input("value mean", {1, 2, 2, 70, 128, d}, 230), {"dQ"}, sizes);
    expect_right(input("normal", {1, 1, 1, 130, 128, d}, 231), {"dQ"});
  }
  expect_every_kind({"dQ"});
}

void expect_every_key_in_dQ() {
  for (const std::int64_t d : head_dims())
    for (std::int64_t first = 0; first < 128; first += 16)
      expect_right(only_where(
                       input("normal", {1, 1, 1, 32, 128, d}, 235), "K",
                       [=](std::int64_t row, std::int64_t) { return row >= first && row < first + 16; },
                       fmt::format("keys {} to {}", first, first + 15)),
                   {"dQ"});
}

void expect_no_race(const Shape& shape, std::uint64_t seed, const std::vector<Numbers>& variants, int orders) {
  for (const Numbers& variant : variants)
    for (int lane_seed = 0; lane_seed < orders; ++lane_seed)
      expect_right(input("normal", shape, seed), all_gradients, {.variant = variant}, {.lane_seed = lane_seed});
}

// ---- Independent of what is none of its business ----

void expect_no_future() {
  for (const std::int64_t d : head_dims()) {
    const std::int64_t N = 100, from = 60;
    const BackwardProblem before = input("normal", {1, 1, 1, N, N, d}, 355, {true}).given;
    const BackwardResult expected = backward(before, small_sizes(d).numbers());
    for (const float factor : {-2.0f, 50.0f}) {
      BackwardProblem later = before, earlier = before;
      for (std::int64_t at = 0; at < N * d; ++at) {
        const auto i = std::size_t(at);
        if (at >= from * d) later.problem.K.values[i] *= factor, later.problem.V.values[i] *= factor;
        if (at < from * d) earlier.problem.Q.values[i] *= factor, earlier.dO.values[i] *= double(factor);
      }
      const BackwardResult of_queries = backward(later, small_sizes(d).numbers());
      const BackwardResult of_keys = backward(earlier, small_sizes(d).numbers());
      const auto expect_same = [&](const char* name, const Tensor<float>& was, const Tensor<float>& is, bool early,
                                   const char* changed) {
        for (std::int64_t at = early ? 0 : from * d; at < (early ? from : N) * d; ++at)
          expect(is.values[std::size_t(at)] == was.values[std::size_t(at)],
                 fmt::format("{} {}, column {} is {} when {} multiplied by {}, and was {}", name, at / d, at % d,
                             is.values[std::size_t(at)], changed, factor, was.values[std::size_t(at)]),
                 "your code lets a masked pair of query and key contribute to a gradient; its P and dS must be 0",
                 "future-leaks");
      };
      expect_same("dQ of query", expected.dQ, of_queries.dQ, true, "K and V from key 60 on are");
      expect_same("dK of key", expected.dK, of_keys.dK, false, "Q and dO of the queries before 60 are");
      expect_same("dV of key", expected.dV, of_keys.dV, false, "Q and dO of the queries before 60 are");
    }
  }
}

void expect_repeatable_deterministic(int runs) {
  const std::int64_t d = head_dims().front();
  const Sizes sizes = usual_sizes(d, deterministic_mode);
  Numbers numbers = sizes.numbers();
  // A Q tile, and five K/V tiles. The simulator's workers take blocks in their order, so that one worker alone
  // adds in order even if nothing waits; several do so only if they wait.
  const Input in = input("normal", {1, 1, 1, sizes.Br, 5 * sizes.Bc - 1, d}, 365);
  numbers["workers"] = 1;
  const BackwardResult first = backward(in.given, numbers);
  expect_written(first.dQ.values[0], "dQ");
  for (int run = 2; run <= runs; ++run) {
    numbers["workers"] = 2 + run % 4, numbers["lane_seed"] = run % 8;
    expect(same_bits(backward(in.given, numbers), first),
           fmt::format("a gradient of run {} is not that of the first", run),
           "your code adds the K/V tiles' parts of dQ in an order that varies, or reads memory before it is written; "
           "the semaphore must fix the order of the additions",
           "not-repeatable");
  }
}

void expect_only_dQ_differs() {
  const Input in = input("value mean", {1, 1, 1, 70, 400, 64}, 370);
  const BackwardResult first = expect_right(in);
  for (int run = 0; run < 2; ++run)
    expect(same_bits(expect_right(in), first, false), "dK or dV is not the same in every run",
           "your code reads memory before or while it is written; the read must wait for the write", "not-repeatable");
}

void expect_order_changes_only_dQ() {
  for (const std::int64_t d : {64, 128}) {
    const Input in = input("normal", {1, 2, 2, 150, 150, d}, 375, {true});
    const BackwardResult one = expect_right(in, all_gradients, {}, {.workers = 1});
    const BackwardResult two = expect_right(in, all_gradients, {}, {.workers = 3, .lane_seed = 4});
    expect(same_bits(one, two, false), "dK or dV depends on the order of lanes or thread blocks",
           "your code lacks a barrier between the threads that write and those that read; the result must not depend "
           "on their order",
           "order-dependent");
  }
}

// ---- And it costs what it must ----

void expect_moves(const Moves& moves) {
  require_counters();
  for (const bool causal : {false, true}) {
    for (const auto& [Nq, Nk] : {std::pair{256, 256}, {100, 233}, {233, 100}}) {
      const Shape s{1, 1, 1, Nq, Nk, 64};
      const Sizes sizes = usual_sizes(64);
      const worker::Reply reply = expect_right(input("normal", s, 380, {causal}), all_gradients, sizes).reply;
      const BlockCount count = count_blocks(s, causal, sizes);
      const auto expect_bytes = [&](const std::string& name, double expected, const std::string& why) {
        expect_count(reply, name, expected, fmt::format("{}, Nq={}, Nk={}, causal={}", why, Nq, Nk, yes_or_no(causal)),
                     "your code moves the tensor more or less often than needed; the message names the expected number",
                     "traffic");
      };
      const double row = double(s.d * 2), passed = double(count.visited * sizes.Br);
      const double keys = double(moves.whole_tiles ? tiles_of(Nk, sizes.Bc) * sizes.Bc : Nk);
      const double queries = moves.whole_tiles ? passed : double(count.queries);
      for (const char* tensor : {"K", "V"})
        expect_bytes(fmt::format("{}.{}_bytes", tensor, moves.in), keys * row, fmt::format("{} is read once", tensor));
      for (const char* tensor : {"Q", "dO"})
        expect_bytes(fmt::format("{}.{}_bytes", tensor, moves.in), queries * row,
                     fmt::format("{} is read by every K/V tile that needs it", tensor));
      for (const char* tensor : {"dK", "dV"})
        expect_bytes(fmt::format("{}.{}_bytes", tensor, moves.out), double(Nk) * row,
                     fmt::format("{} is written once", tensor));
      expect_bytes("dQ.store_bytes", double(Nq) * row, "dQ is written once");
      const double added = passed * double(s.d) * 4;
      expect_bytes(moves.added_by_threads ? "dQ_sum.atomic_sectors" : "dQ_sum.bulk_reduce_bytes",
                   moves.added_by_threads ? added / 32 : added, "a Q tile's dQ receives one addition per K/V tile");
    }
  }
}

void expect_blocks_loaded(const worker::Reply& reply, const Moves& moves, const Problem& problem, const Sizes& sizes) {
  const BlockCount count = count_blocks(problem.shape, problem.causal(), sizes);
  const std::int64_t rows = moves.whole_tiles ? count.visited * sizes.Br : count.queries;
  const std::string name = fmt::format("Q.{}_bytes", moves.in);
  const double must = double(rows * problem.shape.d * 2), got = counter(reply, name);
  expect_count(reply, name, must,
               fmt::format("{} pairs of Q tile and K/V tile have a query that attends to a key, {}, {}", count.visited,
                           describe(problem), sizes.text()),
               got > must
                   ? "your code visits Q tiles whose queries attend to no key of the K/V tile; it must skip them"
                   : "your code skips Q tiles in which a query attends to a key of the K/V tile; it must visit them",
               got > must ? "tiles-not-skipped" : "tiles-skipped");
}

void expect_blocks_masked(const worker::Reply& reply, const Problem& problem, const Sizes& sizes) {
  const BlockCount count = count_blocks(problem.shape, problem.causal(), sizes);
  const double masked = counter(reply, "note.masked tile"), must = double(count.masked);
  expect(masked == must,
         fmt::format("{} of {} Q tiles were masked, expected {} ({}, {})", masked, count.visited, must,
                     describe(problem), sizes.text()),
         masked > must ? "your code masks Q tiles whose queries all attend to every key of the K/V tile; it must apply "
                         "the mask to the other tiles only"
                       : "your code leaves Q tiles unmasked; it must mask a Q tile whose first query does not attend "
                         "to the K/V tile's last key",
         masked > must ? "masked-too-much" : "masked-too-little");
}

void expect_semaphores(bool of_each_warp) {
  // The simulator begins blocks in order, with one worker each after the other's end: nobody waits.
  require_counters();
  for (const std::int64_t Nk : {100, 260}) {
    for (const std::int64_t d : head_dims()) {
      const bool causal = (d == 64) == (Nk == 260);
      const Shape s{1, 1, 1, 130, Nk, d};
      const Sizes sizes = d == 128 ? small_sizes(d, deterministic_mode) : usual_sizes(d, deterministic_mode);
      const BackwardResult got = expect_right(input("normal", s, 250, {causal}), all_gradients, sizes, {.workers = 1});
      const double releases = double(count_blocks(s, causal, sizes).visited * (of_each_warp ? sizes.warps : 1));
      const double tickets = double(tiles_of(Nk, sizes.Bc));
      expect_count(got.reply, "semaphores.atomic_requests", releases + tickets,
                   fmt::format("{} releases of semaphores{}, and {} tickets, Nk={}, d={}, causal={}", releases,
                               of_each_warp ? " of warps" : "", tickets, Nk, d, yes_or_no(causal)),
                   "your code releases a Q tile's semaphore more or less often than once; each addition must be "
                   "followed by one release",
                   "releases");
      // Nothing but TMA adds where it adds at all.
      expect_count(got.reply, "bulk_reductions_ordered", counter(got.reply, "bulk_reductions"),
                   "additions between the wait for the semaphore and its release: all of them",
                   "your code adds to dQ before the wait for the semaphore or after its release; all additions must be "
                   "between the two",
                   "out-of-order");
    }
  }
}

void expect_extra_memory(std::int64_t a_query, std::int64_t an_element) {
  const std::int64_t d = head_dims().front();
  for (const std::int64_t N : {128, 256, 384}) {
    const BackwardResult got = expect_right(input("normal", {1, 2, 2, N, N, d}, 390), all_gradients);
    const std::int64_t expected = 2 * N * (a_query + d * an_element);
    expect(got.reply.extra_bytes == expected,
           fmt::format("at N = {} the kernels allocate {} bytes of device memory in addition to inputs and outputs, "
                       "expected {}: {} per query, and {} per element of dQ",
                       N, got.reply.extra_bytes, expected, a_query, an_element),
           "your code stores P, S or dS in device memory; they must stay on chip", "extra-memory");
  }
}

}  // namespace workbook::test::gradients
