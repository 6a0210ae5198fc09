// Chapter 22: the state of the online softmax in memory, what a rank computes in each step, the ring, and the sums of
// dK and dV.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <set>

#include "common/attention/random.hpp"
#include "tests/support/backward_properties.hpp"
#include "tests/support/forward_properties.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

using Numbers64 = std::vector<std::int64_t>;

constexpr float infinity = std::numeric_limits<float>::infinity();

/// The number "ranks" of the stages' variants; 4 is their own.
Numbers ranks(int count) {
  return count == 4 ? Numbers{} : Numbers{{"ranks", double(count)}};
}
constexpr int all_ranks[] = {1, 2, 3, 4, 8};

AttentionResult expect_ring(Input given, int count) {
  const Shape& s = given.problem.shape;
  given.name += fmt::format(", {} ranks, {} heads of Q share one of K and V", count, s.H / s.Hkv);
  return expect_right(given, small_tiles(s.d, ranks(count)));
}
/// Every kind of input with every mask, for one head and two ranks.
void expect_every_kind_in_a_ring() {
  std::uint64_t seed = 200;
  for (const InputKind& kind : input_kinds())
    for (const bool causal : masks()) expect_ring(input(kind.name, {1, 1, 1, 70, 140, 64}, ++seed, causal), 2);
  for (const float scale : {-0.2f, 0.0f})
    expect_ring(with_scale(input("normal", {1, 1, 1, 40, 140, 64}, ++seed), scale), 2);
  expect_ring(input("value mean", {1, 1, 1, 140, 70, 64}, ++seed, true), 2);  // rows without keys
}

BackwardResult expect_ring_gradients(gradients::Input given, int count) {
  const Shape& s = given.given.problem.shape;
  given.name += fmt::format(", {} ranks, {} heads of Q share one of K and V", count, s.H / s.Hkv);
  return gradients::expect_right(given, gradients::all_gradients, gradients::usual_sizes(s.d, ranks(count)));
}
void expect_every_kind_of_gradients_in_a_ring() {
  std::uint64_t seed = 300;
  for (const InputKind& kind : input_kinds())
    for (const bool causal : masks())
      expect_ring_gradients(gradients::input(kind.name, {1, 1, 1, 140, 140, 64}, ++seed, {.causal = causal}), 2);
  for (const float scale : {-0.2f, 0.0f})
    expect_ring_gradients(gradients::input("normal", {1, 1, 1, 140, 140, 64}, ++seed, {.scale = scale}), 2);
}

// ---- Operations: the state ----

/// The state of `rows` rows that have seen keys.
struct GivenState {
  GivenState(std::int64_t rows, std::int64_t d, std::uint64_t seed)
      : rows(rows),
        d(d),
        O(normal_values(std::size_t(rows * d), seed)),
        m(normal_values(std::size_t(rows), seed + 1)),
        l(normal_values(std::size_t(rows), seed + 2)) {
    for (float& value : l) value = 1 + std::abs(value);
  }
  worker::Call call(const char* operation) const {
    worker::Call with(operation);
    with.number("rows", double(rows)).number("d", double(d)).input("O", O).input("m", m).input("l", l);
    return with;
  }
  std::int64_t rows, d;
  std::vector<float> O, m, l;
};

/// What each lane holds of 32 rows, of which `rows` have a state.
void expect_lanes(std::int64_t rows, std::int64_t d) {
  const GivenState given(rows, d, std::uint64_t(rows + d));
  worker::Call of_lanes = given.call("load_state");
  of_lanes.output<float>("lane_O", std::size_t(32 * d)).output<float>("lane_m", 128).output<float>("lane_l", 128);
  const worker::Reply reply = call(of_lanes);
  const auto O = reply.output<float>("lane_O"), m = reply.output<float>("lane_m"), l = reply.output<float>("lane_l");
  const auto where = [&](std::int64_t lane, std::int64_t i, std::int64_t r, std::int64_t row) {
    return fmt::format("d = {}, {} rows: lane {}, row tile {}, r = {}, which is row {}", d, rows, lane, i, r, row);
  };
  for (std::int64_t lane = 0; lane < 32; ++lane)
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t r = 0; r < 2; ++r) {
        const std::int64_t row = 16 * i + lane / 4 + 8 * r, at = (lane * 2 + i) * 2 + r;
        const bool exists = row < rows;
        const std::string here = where(lane, i, r, row);
        const float wanted_m = exists ? given.m[std::size_t(row)] : -infinity;
        expect(m[std::size_t(at)] == wanted_m,
               fmt::format("{}: m is {}, expected {}", here, m[std::size_t(at)], wanted_m));
        for (std::int64_t c = 0; c < d / 8; ++c)
          for (std::int64_t e = 0; e < 2; ++e) {
            const std::int64_t column = 8 * c + lane % 4 * 2 + e;
            const float wanted = exists ? given.O[std::size_t(row * d + column)] : 0;
            const float got = O[std::size_t(((lane * 2 + i) * (d / 8) + c) * 4 + 2 * r + e)];
            expect(got == wanted, fmt::format("{}: element {} of part {} of O is {}, expected {}, column {} of the row",
                                              here, 2 * r + e, c, got, wanted, column));
          }
      }
  for (std::int64_t row = 0; row < 32; ++row) {
    float sum = 0;
    std::string text;
    for (std::int64_t lane = row % 8 * 4; lane < row % 8 * 4 + 4; ++lane) {
      const float part = l[std::size_t((lane * 2 + row / 16) * 2 + row / 8 % 2)];
      sum += part, text += fmt::format("{}{}", text.empty() ? "" : " + ", part);
    }
    const float wanted = row < rows ? given.l[std::size_t(row)] : 0;
    expect(sum == wanted, fmt::format("d = {}, {} rows: the lanes of row {} hold l = {} = {}, expected {} in all", d,
                                      rows, row, text, sum, wanted));
  }
}

void expect_copied(std::int64_t first_row, std::int64_t rows, std::int64_t d) {
  const GivenState given(rows, d, std::uint64_t(7 * rows + d));
  worker::Call copied = given.call("copied_state");
  copied.number("first_row", double(first_row)).output<float>("stored_O", given.O.size());
  copied.output<float>("stored_m", given.m.size()).output<float>("stored_l", given.l.size());
  const worker::Reply reply = call(copied);
  for (const auto& [name, from, width] :
       {std::tuple{"O", &given.O, d}, std::tuple{"m", &given.m, std::int64_t(1)}, {"l", &given.l, std::int64_t(1)}}) {
    const auto stored = reply.output<float>(std::string("stored_") + name);
    for (std::size_t i = 0; i < stored.size(); ++i) {
      const std::int64_t row = std::int64_t(i) / width;
      const float wanted = row < first_row ? 0 : (*from)[i];
      expect(stored[i] == wanted,
             fmt::format("d = {}, {} rows, stored from row {} on: element {} of {}, row {}, is {} after load_state and "
                         "store_state, expected {}",
                         d, rows, first_row, i, name, row, stored[i], wanted));
    }
  }
}

// ---- Operations: steps ----

struct Step {
  std::int64_t source, first_query, keys, finished;
  bool causal;
  std::string text() const {
    return fmt::format("source {}, queries from {} on, {} keys, {}, finished {}", source, first_query, keys,
                       causal ? "causal" : "not causal", finished);
  }
};

/// A call's sequence, distributed to the ranks as in shards.hpp, and the steps of the code under test.
struct Ring {
  Ring(std::int64_t Nq, std::int64_t Nk, std::int64_t count, bool causal)
      : Nq(Nq), Nk(Nk), count(count), causal(causal) {
    worker::Call of_steps("steps");
    of_steps.number("Nq", double(Nq)).number("Nk", double(Nk)).number("ranks", double(count));
    of_steps.number("causal", causal).output<std::int64_t>("steps", std::size_t(5 * count * count));
    const auto values = call(of_steps).output<std::int64_t>("steps");
    for (std::size_t i = 0; i < values.size(); i += 5)
      steps.push_back({values[i], values[i + 1], values[i + 2], values[i + 3], values[i + 4] != 0});
  }
  const Step& step(std::int64_t rank, std::int64_t number) const { return steps[std::size_t(rank * count + number)]; }
  std::string text(std::int64_t rank, std::int64_t number) const {
    return fmt::format("Nq = {}, Nk = {}, {}, {} ranks: step {} of rank {} ({})", Nq, Nk, causal ? "causal" : "no mask",
                       count, number, rank, step(rank, number).text());
  }
  /// The positions of a rank's keys, in the order of its rows.
  Numbers64 keys(std::int64_t rank) const {
    Numbers64 positions;
    for (const std::int64_t chunk : {rank, 2 * count - 1 - rank})
      for (std::int64_t p = chunk * length(); p < (chunk + 1) * length() && p < Nk; ++p) positions.push_back(p);
    return positions;
  }
  /// The positions of a rank's queries; those before position 0 are in chunk 0.
  Numbers64 queries(std::int64_t rank) const {
    Numbers64 positions;
    for (const std::int64_t chunk : {rank, 2 * count - 1 - rank})
      for (std::int64_t p = Nk - Nq; p < Nk; ++p)
        if (std::max<std::int64_t>(p, 0) / length() == chunk) positions.push_back(p);
    return positions;
  }
  std::int64_t first_half(std::int64_t rank) const {
    const Numbers64 all = queries(rank);
    return std::ranges::count_if(all, [&](std::int64_t p) { return std::max<std::int64_t>(p, 0) / length() == rank; });
  }
  std::int64_t length() const { return (Nk + 128 * count - 1) / (128 * count) * 64; }
  /// Whether a step computes the pair of a rank's query i and the source's key j.
  bool computes(const Step& step, std::int64_t queries, std::int64_t i, std::int64_t j) const {
    return i >= step.first_query && j < step.keys && (!step.causal || j <= i + step.keys - queries);
  }
  std::int64_t Nq, Nk, count;
  bool causal;
  std::vector<Step> steps;
};

void expect_pairs(const Ring& ring) {
  for (std::int64_t rank = 0; rank < ring.count; ++rank) {
    const Numbers64 queries = ring.queries(rank);
    const auto n = std::int64_t(queries.size());
    for (std::int64_t number = 0; number < ring.count; ++number) {
      const Step& step = ring.step(rank, number);
      const Numbers64 keys = ring.keys((step.source % ring.count + ring.count) % ring.count);
      expect(step.keys >= 0 && step.keys <= std::int64_t(keys.size()),
             fmt::format("{}: the source has {} keys", ring.text(rank, number), keys.size()));
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < std::int64_t(keys.size()); ++j) {
          const bool visible = !ring.causal || keys[std::size_t(j)] <= queries[std::size_t(i)];
          const bool computed = ring.computes(step, n, i, j);
          if (visible == computed) continue;  // the message of each pair would take longer than the pairs
          expect(false,
                 fmt::format("{}: the query at position {}, number {} of {} of the rank, {} the key at position {}, "
                             "number {} of the source; it must {}",
                             ring.text(rank, number), queries[std::size_t(i)], i, n,
                             computed ? "attends to" : "does not attend to", keys[std::size_t(j)], j,
                             visible ? "attend to it" : "not, by the causal mask"));
        }
    }
  }
}

/// Lengths around the length of a chunk, queries without keys and keys without queries.
void for_rings(const std::function<void(const Ring&)>& expect_one) {
  for (const bool causal : {false, true})
    for (const int count : {4, 1, 2, 3})
      for (const auto& [Nq, Nk] : {std::pair{512, 512}, {300, 300}, {100, 400}, {130, 70}, {5, 5}})
        expect_one(Ring(Nq, Nk, count, causal));
}

// ---- Operations: sums ----

void expect_added(std::int64_t rows, std::int64_t d, bool starts, float scale, std::int64_t further = 0) {
  const std::vector<float> C = normal_values(32 * 64, 1), before = normal_values(std::size_t((rows + further) * d), 2);
  worker::Call of_warp("add_gradient");
  of_warp.number("d", double(d))
      .number("rows", double(rows))
      .number("starts", starts)
      .number("scale", scale)
      .number("further", double(further));
  of_warp.input("C", C).input("sums", before).output<float>("added", before.size());
  const auto added = call(of_warp).output<float>("added");
  for (std::int64_t row = 0; row < rows + further; ++row)
    for (std::int64_t column = 0; column < d; ++column) {
      const auto at = std::size_t(row * d + column);
      const float term = C[std::size_t(row * 64 + column % 64)], was = starts ? 0 : before[at];
      const float wanted = row < rows ? was + term * scale : was;
      expect(
          std::abs(added[at] - wanted) <= 1e-6f * (std::abs(was) + std::abs(term * scale)),
          fmt::format("d = {}, {} rows, scale {}: row {}, column {} of the sums is {} afterwards, expected {}: C has "
                      "{} there, and {}",
                      d, rows, scale, row, column, added[at], wanted, term,
                      starts ? "the sum starts" : fmt::format("the sum was {}", was)));
    }
}

// ---- Operations: transfers ----

struct Transfers {
  Transfers(const Shape& shape, int count, bool backward, bool causal = true) : count(count), with(shape) {
    require_counters();
    const Problem problem = make_input("normal", {.shape = shape, .mask = causal ? Mask::causal : Mask::none});
    worker::Call of_ring("transfers");
    worker::add_numbers(of_ring, problem);
    of_ring.number("ranks", count).number("backward", backward);
    of_ring.output<std::int64_t>("transfers", 5 * 512).output<std::int64_t>("beside", 512);
    const worker::Reply reply = call(of_ring);
    const auto values = reply.output<std::int64_t>("transfers"), kernels = reply.output<std::int64_t>("beside");
    for (std::size_t i = 0; i < values.size() && values[i + 4] != 0; i += 5) {
      bytes += values[i + 2];
      sent_by[values[i]] += values[i + 2];
      if (values[i + 1] != (values[i] + 1) % count && astray.empty())
        astray =
            fmt::format("rank {} sends to rank {}, expected {}", values[i], values[i + 1], (values[i] + 1) % count);
    }
    for (const std::int64_t each : kernels)
      if (each >= 0) beside.push_back(each);
  }
  std::string text() const {
    return fmt::format("N = {}, Hkv = {}, d = {}, {} ranks", with.Nk, with.Hkv, with.d, count);
  }
  int count;
  Shape with;
  std::int64_t bytes = 0;
  std::map<std::int64_t, std::int64_t> sent_by;
  std::string astray;  ///< the first transfer that does not go to the next rank
  Numbers64 beside;    ///< of each receive: the kernels beside it, and 1000 for each of them that was issued before it
};

/// Each receive of K and V runs beside the kernel of one step, which is issued after it.
void expect_beside(const Transfers& sent) {
  const auto after_kernels = std::ranges::count_if(sent.beside, [](std::int64_t each) { return each >= 1000; });
  expect(after_kernels == 0,
         fmt::format("{}: {} receives are issued after a kernel that they may run beside", sent.text(), after_kernels),
         "your code launches the kernel of a step before it issues the next transfer; a kernel that starts first can "
         "occupy all SMs, so the transfer must be issued first",
         "transfer-after-kernel");
  const auto beside = std::ranges::count(sent.beside, 1), wanted = std::ptrdiff_t(sent.count * (sent.count - 1));
  const bool too_many = std::ranges::any_of(sent.beside, [](std::int64_t each) { return each > 1; });
  expect(beside == wanted && !too_many,
         fmt::format("{}: {} receives may run beside the kernel of one step, expected {}, those of K and V{}",
                     sent.text(), beside, wanted, too_many ? "; others may run beside several" : ""),
         too_many ? ""
                  : "your code orders the receive of the next K and V before or after the kernel of the present "
                    "step; it must wait only for the step that has used its buffer",
         too_many ? "" : "not-beside");
}

void expect_sent(const Transfers& sent, std::int64_t wanted, const std::string& formula, const std::string& cause) {
  expect(sent.bytes == wanted,
         fmt::format("{}: the ranks send {} bytes in all, expected {} = {}", sent.text(), sent.bytes, wanted, formula),
         cause, "transfers");
  expect(sent.astray.empty(), fmt::format("{}: {}", sent.text(), sent.astray),
         "your code sends to a rank other than the next one; K and V, and the sums, go from rank r to rank r + 1",
         "astray");
}

}  // namespace

// ---- 22.1 the state ----

TEST_CASE("each lane holds the state of its rows", "[22.1]") {
  for (const std::int64_t d : {64, 128}) expect_lanes(32, d);
}
TEST_CASE("rows that do not exist have seen no key", "[22.1]") {
  for (const std::int64_t d : {64, 128})
    for (const std::int64_t rows : {1, 5, 8, 16, 17, 31}) expect_lanes(rows, d);
}
TEST_CASE("a state that is loaded and stored does not change", "[22.1]") {
  for (const std::int64_t d : {64, 128})
    for (const auto& [first_row, rows] : {std::pair{0, 32}, {0, 7}, {9, 32}, {16, 20}, {3, 3}})
      expect_copied(first_row, rows, d);
}
TEST_CASE("a step continues from the state of the one before", "[22.1]") {
  expect_every_kind_in_a_ring();
  expect_ring(input("rising maximum", {1, 2, 1, 140, 140, 128}, 11, true), 3);
}

// ---- 22.2 steps ----

TEST_CASE("each step uses the shard of the rank before", "[22.2]") {
  for (const int count : {4, 1, 2, 3, 8}) {
    const Ring ring(512, 512, count, false);
    for (std::int64_t rank = 0; rank < count; ++rank)
      for (std::int64_t number = 0; number < count; ++number) {
        const std::int64_t wanted = (rank - number + count) % count;
        expect(ring.step(rank, number).source == wanted,
               fmt::format("{}: its source must be rank {}, {} before it", ring.text(rank, number), wanted, number));
      }
  }
}
TEST_CASE("each visible pair is computed once", "[22.2]") {
  for_rings(expect_pairs);
}
TEST_CASE("a query is finished with its last key", "[22.2]") {
  for_rings([](const Ring& ring) {
    for (std::int64_t rank = 0; rank < ring.count; ++rank) {
      const auto n = std::int64_t(ring.queries(rank).size()), first_half = ring.first_half(rank);
      for (std::int64_t number = 0; number < ring.count; ++number) {
        const bool last = number + 1 == ring.count, early = ring.causal && number >= rank;
        const std::int64_t wanted = last ? n : early ? first_half : 0;
        expect(ring.step(rank, number).finished == wanted,
               fmt::format(
                   "{}: expected finished = {}, since {}", ring.text(rank, number), wanted,
                   last    ? "this is the last step"
                   : early ? fmt::format("the first half of the queries, {}, has seen chunks 0 to {}", first_half, rank)
                           : "no query has seen all of its keys"));
      }
    }
  });
}
TEST_CASE("all ranks compute equally many pairs", "[22.2]") {
  for (const int count : {2, 4}) {
    const Ring ring(128 * count, 128 * count, count, true);
    for (std::int64_t number = 0; number < count; ++number) {
      Numbers64 pairs(std::size_t(count), 0);
      for (std::int64_t rank = 0; rank < count; ++rank) {
        const Step& step = ring.step(rank, number);
        for (std::int64_t i = 0; i < 128; ++i)
          for (std::int64_t j = 0; j < 128; ++j) pairs[std::size_t(rank)] += ring.computes(step, 128, i, j);
      }
      const std::int64_t wanted = number == 0 ? 128 * 129 / 2 : 128 * 64;
      for (std::int64_t rank = 0; rank < count; ++rank)
        expect(pairs[std::size_t(rank)] == wanted,
               fmt::format("{}: {} pairs of a query and a key, expected {}, as many as every other rank",
                           ring.text(rank, number), pairs[std::size_t(rank)], wanted));
    }
  }
}
TEST_CASE("ranks may have few rows, or none", "[22.2]") {
  for (const bool causal : masks())
    for (const int count : {2, 3, 8})
      for (const auto& [Nq, Nk] : {std::pair{1, 1}, {3, 3}, {17, 17}, {1, 90}, {40, 90}, {90, 40}, {5, 1}})
        expect_ring(input("value mean", {1, 2, 2, Nq, Nk, 64}, 20, causal), count);
  expect_every_kind_in_a_ring();
}

// ---- 22.3 the ring ----

TEST_CASE("ranks in a ring agree with the oracle", "[22.3]") {
  std::uint64_t seed = 30;
  for (const int count : all_ranks)
    for (const bool causal : masks()) {
      expect_ring(input("rising maximum", {1, 2, 2, 150, 150, 64}, ++seed, causal), count);
      expect_ring(input("value mean", {2, 4, 2, 100, 100, 64}, ++seed, causal), count);
    }
  expect_ring(input("normal", {1, 4, 1, 300, 300, 128}, ++seed, true), 3);
  expect_every_kind_in_a_ring();
}
TEST_CASE("each shard of K and V is sent R - 1 times", "[22.3]") {
  for (const int count : {2, 3, 4}) {
    const std::int64_t N = 128 * count;
    const Transfers sent({2, 4, 2, N, N, 64}, count, false);
    expect_sent(sent, 4 * (count - 1) * 2 * 2 * N * 64, "4·(R - 1)·B·Hkv·N·d",
                "your code sends K and V in too few or too many steps; each step but the last must send one shard");
    for (std::int64_t rank = 0; rank < count; ++rank) {
      const auto by = sent.sent_by.find(rank);
      const std::int64_t is = by == sent.sent_by.end() ? 0 : by->second;
      expect(is == sent.bytes / count, fmt::format("{}: rank {} sends {} bytes, expected {}, a share of 1/R",
                                                   sent.text(), rank, is, sent.bytes / count));
    }
  }
}
TEST_CASE("the next shard travels while a step computes", "[22.3]") {
  for (const int count : {2, 3, 4}) {
    const std::int64_t N = 128 * count;
    expect_beside(Transfers({1, 2, 2, N, N, 64}, count, false));
  }
}

// ---- 22.4 the sums of dK and dV ----

TEST_CASE("each lane adds its elements to the sums", "[22.4]") {
  for (const std::int64_t d : {64, 128})
    for (const float scale : {1.0f, 0.125f, -2.0f}) expect_added(32, d, false, scale);
}
TEST_CASE("the first step overwrites the sums", "[22.4]") {
  // Nothing has written the sums: the simulator reports a read of them.
  for (const std::int64_t d : {64, 128}) expect_added(32, d, true, 0.5f);
}
TEST_CASE("rows that do not exist are not added", "[22.4]") {
  expect_added(5, 64, false, 1, 27);
  for (const std::int64_t rows : {1, 5, 8, 16, 17, 31})
    for (const bool starts : {false, true}) expect_added(rows, 64, starts, 1);
}
TEST_CASE("the gradients of a step agree with the oracle", "[22.4]") {
  expect_every_kind_of_gradients_in_a_ring();
  expect_ring_gradients(gradients::input("normal", {1, 2, 1, 140, 140, 128}, 40, {.causal = true}), 2);
}

// ---- 22.5 the ring of the backward pass ----

TEST_CASE("the gradients of ranks in a ring agree with the oracle", "[22.5]") {
  std::uint64_t seed = 50;
  // Equal shards: what is wrong shows in values, before the simulator reports anything.
  for (const bool causal : masks())
    expect_ring_gradients(gradients::input("value mean", {1, 2, 2, 256, 256, 64}, 49, {.causal = causal}), 2);
  for (const int count : all_ranks)
    for (const bool causal : masks()) {
      expect_ring_gradients(gradients::input("value mean", {1, 2, 2, 200, 200, 64}, ++seed, {.causal = causal}), count);
      expect_ring_gradients(gradients::input("normal", {2, 4, 1, 77, 77, 64}, ++seed, {.causal = causal}), count);
    }
  expect_ring_gradients(gradients::input("normal", {1, 2, 1, 260, 260, 128}, ++seed, {.causal = true}), 3);
  expect_every_kind_of_gradients_in_a_ring();
}
TEST_CASE("the sums of dK and dV are sent R times, in fp32", "[22.5]") {
  for (const int count : {1, 2, 3}) {
    const std::int64_t N = 128 * count;
    const Transfers sent({1, 2, 1, N, N, 64}, count, true);
    expect_sent(sent, N * 64 * (4 * (count - 1) + 8 * count), "(4·(R - 1) + 8·R)·B·Hkv·N·d",
                "your code sends shards or sums in too few or too many steps; K and V must be sent R - 1 times, and "
                "the sums of dK and dV R times, as floats");
  }
}
TEST_CASE("the next K and V travel while a step computes", "[22.5]") {
  for (const int count : {2, 3}) {
    const std::int64_t N = 128 * count;
    expect_beside(Transfers({1, 2, 1, N, N, 64}, count, true));
  }
}

// ---- the whole ----

TEST_CASE("the ring agrees with the oracle", "[whole]") {
  expect_every_kind_in_a_ring();
  std::uint64_t seed = 400;
  for (const int count : all_ranks)
    for (const std::int64_t d : head_dims())
      for (const bool causal : masks()) {
        expect_ring(input("rising maximum", {1, 2, 1, 300, 300, d}, ++seed, causal), count);
        expect_right(input("normal", {1, 2, 2, 200, 333, d}, ++seed, causal), usual_tiles(d, ranks(count)));
      }
}
TEST_CASE("the ring's gradients agree with the oracle", "[whole]") {
  expect_every_kind_of_gradients_in_a_ring();
  std::uint64_t seed = 500;
  for (const std::int64_t d : gradients::head_dims()) {
    expect_ring_gradients(gradients::input("normal", {1, 2, 1, 200, 200, d}, ++seed), 2);
    expect_ring_gradients(gradients::input("normal", {1, 2, 2, 500, 500, d}, ++seed, {.causal = true}), 4);
  }
}
TEST_CASE("rows of the first chunk have the bits of one rank", "[whole]") {
  // With the causal mask they see keys of their own chunk alone, in the same tiles.
  const Input given = input("rising maximum", {1, 2, 2, 384, 384, 64}, 60, true);
  const AttentionResult one = attention(given, small_tiles(64, ranks(1)));
  const AttentionResult three = attention(given, small_tiles(64, ranks(3)));
  for (std::int64_t h = 0; h < 2; ++h)
    for (std::int64_t i = 0; i < 64; ++i)
      for (std::int64_t c = 0; c < 64; ++c)
        expect(one.O(0, h, i, c) == three.O(0, h, i, c),
               fmt::format("O of row {}, column {}, head {} is {} with one rank and {} with three", i, c, h,
                           one.O(0, h, i, c), three.O(0, h, i, c)));
}
TEST_CASE("future positions have zero influence", "[whole]") {
  for (const int count : {1, 2, 4})
    for (const std::int64_t query : {0, 77, 128})
      expect_no_influence_from_the_future(input("value mean", {1, 1, 1, 160, 200, 64}, 47, true).problem, query,
                                          small_tiles(64, ranks(count)).numbers());
}

namespace {
const Claims of_the_whole = {
    {"[whole]", "fully masked rows give O = 0 and LSE = -inf, never NaN", [] { expect_rows_without_keys(); }},
    {"[whole]", "a row's answer depends on no other row of Q", [] { expect_rows_independent(); }},
    {"[whole]", "results do not depend on workers, order of lanes or order of ranks",
     [] { expect_order_changes_nothing(); }},
    {"[whole]", "20 runs are bitwise equal", [] { expect_repeatable(20); }},
    {"[whole]", "the tiles fit 64, 99, 163 and 227 KB of shared memory", [] { expect_tiles_for_every_size(); }},
};
}  // namespace
