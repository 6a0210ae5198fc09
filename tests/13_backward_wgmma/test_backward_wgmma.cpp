// Chapter 13: the backward pass by wgmma and TMA, phase by phase and whole.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/attention/element.hpp"
#include "tests/06_backward/gradients.hpp"
#include "tests/support/context.hpp"
#include "tests/support/ragged.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

constexpr std::int64_t Bc = 128, head_dims[] = {64, 128};
constexpr int last_step = 4, consumer_warps = 8;
std::int64_t Br_of(std::int64_t d) {
  return d == 64 ? 128 : 64;
}
const std::vector<std::string> all_gradients = {"dV", "dK", "dQ"};

/// How the stage is called.
struct Call {
  int step = last_step;  ///< to the chapter's kernel (backward_wgmma.hpp)
  bool in_turns = false;
  int workers = 0, lane_seed = 0;  ///< of the simulator

  Numbers numbers() const {
    Numbers all;
    if (step < last_step) all["step"] = step;
    if (in_turns) all["deterministic"] = 1;
    if (workers != 0) all["workers"] = workers;
    if (lane_seed != 0) all["lane_seed"] = lane_seed;
    return all;
  }
  std::string text() const {
    return fmt::format("step {}{}{}", step, in_turns ? ", by turns" : "",
                       lane_seed != 0 ? fmt::format(", lanes in the order of seed {}", lane_seed) : "");
  }
};

/// The stage against the oracle.
BackwardResult expect_right(const Input& in, const std::vector<std::string>& which = all_gradients,
                            const Call& how = {}) {
  const BackwardResult result = backward(in.given, how.numbers());
  note_kinds(in.kind, in.given.problem);
  expect_gradients(result, in.given, fmt::format("{}, {}", in.name, how.text()), {Bc, Br_of(in.given.problem.shape.d)},
                   precision(), which);
  return result;
}
BackwardResult expect_right(const Input& in, const Call& how) {
  return expect_right(in, all_gradients, how);
}

/// Every kind of input for the part of the stage that one exercise writes.
void expect_every_kind(const std::vector<std::string>& which = all_gradients, const Call& how = {}) {
  expect_every_kind_in_this_part([&](const Input& in) { expect_right(in, which, how); });
}

/// The kernels for bf16 against the oracle.
void expect_bf16(const std::string& kind, const Shape& shape, std::uint64_t seed, bool causal) {
  const std::string element = "bfloat16";
  const Input in = input(kind, shape, seed, {causal}, element);
  const auto send = [](const worker::Call& request) { return call(request); };
  const BackwardResult result = worker::backward("backward_bfloat16", encoded(in.given, element), element, {}, send);
  expect_gradients(result, in.given, in.name + ", bf16", {Bc, Br_of(shape.d)}, precision_of(element), all_gradients);
}

/// Inputs of which a tensor is small but for some of its rows, or columns.
template <class Big>
Input only_where(Input in, const char* which, const Big& big, const std::string& name) {
  Problem problem = in.given.problem;
  const Shape& s = problem.shape;
  Tensor<float> dO({s.B, s.H, s.Nq, s.d});
  dO.values = normal_values(dO.values.size(), 17);
  const auto shrink = [&](Tensor<float>& tensor, std::int64_t rows) {
    for (std::size_t at = 0; at < tensor.values.size(); ++at)
      if (!big(std::int64_t(at) / s.d % rows, std::int64_t(at) % s.d)) tensor.values[at] /= 16;
  };
  const std::string tensors = which;
  if (tensors.find('Q') != std::string::npos) shrink(problem.Q, s.Nq);
  if (tensors.find('K') != std::string::npos) shrink(problem.K, s.Nk);
  if (tensors.find("dO") != std::string::npos) shrink(dO, s.Nq);
  in.given = worker::backward_problem(problem, dO, "float16");
  in.kind.clear();
  in.name += ", " + name;
  return in;
}
/// dO is small but for these queries.
Input only_queries(const Input& in, std::int64_t first, std::int64_t count) {
  return only_where(
      in, "dO", [=](std::int64_t row, std::int64_t) { return row >= first && row < first + count; },
      fmt::format("dO small but for queries {} to {}", first, first + count - 1));
}

/// Pairs of a row block and a column block with a visible pair, and those of them that need a mask, counted for one
/// head.
struct BlockCount {
  std::int64_t visited = 0, masked = 0;
};
BlockCount count_blocks(const Shape& s, bool causal) {
  BlockCount count;
  const std::int64_t Br = Br_of(s.d), offset = causal ? s.Nk - s.Nq : s.Nk;
  for (std::int64_t key = 0; key < s.Nk; key += Bc) {
    for (std::int64_t query = 0; query < s.Nq; query += Br) {
      if (key > query + Br - 1 + offset) continue;
      ++count.visited;
      count.masked += key + Bc > s.Nk || key + Bc - 1 > query + offset;
    }
  }
  return count;
}

/// Lengths with the diagonal at many places within a row block, and some more.
std::vector<std::pair<std::int64_t, std::int64_t>> lengths_of_every_kind() {
  std::vector<std::pair<std::int64_t, std::int64_t>> all;
  for (const std::int64_t more : {-33, -16, -9, -1, 1, 7, 16, 65}) all.emplace_back(150, 150 + more);
  for (const auto& [Nq, Nk] : {std::pair{256, 256}, {128, 320}, {320, 128}, {100, 330}, {330, 100}})
    all.emplace_back(Nq, Nk);
  return all;
}

bool same_bits(const BackwardResult& a, const BackwardResult& b, bool with_dQ) {
  return (!with_dQ || a.dQ.values == b.dQ.values) && a.dK.values == b.dK.values && a.dV.values == b.dV.values;
}

/// What a call's counters grow by when one row block more meets one column block, without a mask.
class Growth {
 public:
  explicit Growth(std::int64_t d, const Call& how = {}) {
    for (const int i : {0, 1})
      replies_[i] = backward(input("normal", {1, 1, 1, Br_of(d) * (i + 1), Bc, d}, 7).given, how.numbers()).reply;
  }
  double of(const std::string& name) const { return counter(replies_[1], name) - counter(replies_[0], name); }

 private:
  worker::Reply replies_[2];
};
void expect_growth(const Growth& growth, const std::string& name, double must, const std::string& why,
                   const std::string& cause, const char* id) {
  const double got = growth.of(name);
  expect(got == must,
         fmt::format("{} grows by {} for one row block more, and has to grow by {}: {}", name, got, must, why), cause,
         id);
}

/// wgmma of one row block and one column block, one a warp.
void expect_wgmma() {
  require_counters();
  for (const std::int64_t d : head_dims) {
    const double Br = double(Br_of(d)), each = double(2 * d) / 16 + 2 * Br / 16 + double(Bc) / 16;
    const Growth growth(d);
    expect_growth(
        growth, "wgmma_instructions", consumer_warps * each,
        fmt::format("d/16 for S and for dP, Br/16 for dV and for dK, Bc/16 for dQ, by each of 8 warps; d={}", d),
        "a product has more or fewer instructions than parts of 16", "wgmma-count");
    expect_growth(growth, "wgmma_operations", 5 * 2 * Br * double(Bc * d),
                  fmt::format("operations of five products of Br·Bc·d; d={}", d), "a product has another shape",
                  "wgmma-count");
  }
}

/// How often threads wait for barriers in shared memory, and arrive there: a block against 3 row blocks.
void expect_waits(const Call& how) {
  require_counters();
  for (const std::int64_t d : head_dims) {
    const double row_blocks = 3;
    const worker::Reply reply =
        backward(input("normal", {1, 1, 1, 3 * Br_of(d), 100, d}, 8).given, how.numbers()).reply;
    expect_count(reply, "mbarrier_waits", 256 * (2 + 2 * row_blocks) + row_blocks,
                 fmt::format("each thread of a consumer waits for K and V once, for Q and dO once a row block; the "
                             "producer for each stage; d={}, {}",
                             d, how.text()),
                 "some tile is waited for twice, or not at all", "waits");
    const double most = 2 + 2 * row_blocks + row_blocks * consumer_warps, got = counter(reply, "mbarrier_arrivals");
    expect(got <= most,
           fmt::format("threads arrive {} times at the barriers of one block, at most {} are of use: d={}, {}", got,
                       most, d, how.text()),
           "one lane of a warp arrives for all of it", "arrivals");
    expect_count(reply, "named_barriers", 5 * row_blocks + 5,
                 fmt::format("a row block: one for dS, two for the places of dQ, two for what is in them; at the end "
                             "one for K, and one before each of four stores; d={}, {}",
                             d, how.text()),
                 "consumers meet more or less often than once a row block", "barriers");
  }
}

}  // namespace

// ---- 13.1 scores ----

TEST_CASE("every 16 columns of Q, K, V and dO count", "[13.1]") {
  for (const std::int64_t d : head_dims)
    for (std::int64_t first = 0; first < d; first += 16)
      expect_right(only_where(
                       input("normal", {1, 1, 1, 32, 100, d}, 120), "Q dO",
                       [=](std::int64_t, std::int64_t c) { return c >= first && c < first + 16; },
                       fmt::format("Q and dO small but for columns {} to {}", first, first + 15)),
                   {"dV", "dK"});
}

TEST_CASE("every key and every query has a score of its own", "[13.1]") {
  for (const std::int64_t d : head_dims) {
    expect_right(input("normal", {1, 1, 1, 70, 100, d}, 125), {"dV", "dK"});
    expect_right(input("late spike", {1, 1, 1, 128, 128, d}, 126), {"dV", "dK"});
  }
  expect_every_kind({"dV", "dK"});
}

TEST_CASE("S and dP take one wgmma for each 16 columns", "[13.1]") {
  expect_wgmma();
}

// ---- 13.2 the producer ----

TEST_CASE("every tile arrives, with what its queries bring", "[13.2]") {
  for (const std::int64_t d : head_dims) {
    expect_right(input("normal", {1, 2, 2, 300, 140, d}, 10));
    expect_right(input("value mean", {1, 1, 1, 200, 200, d}, 11, {true}));
  }
  expect_every_kind();
}

TEST_CASE("a stage is filled again when all have left it", "[13.2]") {
  // Five row blocks in two places, or in one. The simulator reports what is overwritten too early, in whatever order.
  for (const int lane_seed : {0, 1, 2})
    for (const int step : {1, last_step})
      expect_right(input("normal", {1, 1, 1, 300, 100, 128}, 13), Call{.step = step, .lane_seed = lane_seed});
}

TEST_CASE("TMA brings each tile and each line once", "[13.2]") {
  require_counters();
  for (const std::int64_t d : head_dims) {
    const double row_blocks = 3, rows = row_blocks * double(Br_of(d)), row = double(d) * 2;
    const worker::Reply reply = backward(input("normal", {1, 1, 1, 3 * Br_of(d), Bc, d}, 15).given).reply;
    for (const auto& [tensor, bytes] : {std::pair{"Q", rows * row},
                                        {"dO", rows * row},
                                        {"K", Bc * row},
                                        {"V", Bc * row},
                                        {"lse_log2", rows * 4},
                                        {"D", rows * 4}})
      expect_count(reply, fmt::format("{}.bulk_load_bytes", tensor), bytes,
                   fmt::format("{} comes once, d={}", tensor, d),
                   "a tile or a line is copied more or less often than once", "traffic");
    expect_count(reply, "bulk_loads", 2 + 4 * row_blocks,
                 fmt::format("copies: K and V, then Q, LSE, dO and D of 3 row blocks, d={}", d),
                 "a tile is copied in parts, or more than once", "traffic");
  }
}

// ---- 13.3 P and dS ----

TEST_CASE("P is recomputed from the LSE", "[13.3]") {
  std::uint64_t seed = 130;
  for (const std::int64_t d : head_dims) {
    for (const char* kind : {"normal", "large logits", "value mean"})
      expect_right(input(kind, {1, 1, 1, 70, 100, d}, ++seed));
    expect_right(input("normal", {1, 1, 1, 40, 70, d}, ++seed, {.scale = -0.3f}));
  }
  expect_every_kind();
}

TEST_CASE("each query has its own LSE and D", "[13.3]") {
  // The queries' scores differ by far in size, and so do their LSE.
  for (const std::int64_t d : head_dims) {
    Input in = input("value mean", {1, 1, 1, 128, 64, d}, 140);
    Problem problem = in.given.problem;
    for (std::int64_t i = 0; i < 128; ++i)
      for (std::int64_t c = 0; c < d; ++c) problem.Q(0, 0, i, c) *= float(i % 16) / 4;
    Tensor<float> dO({1, 1, 128, d});
    dO.values = normal_values(dO.values.size(), 141);
    in.given = worker::backward_problem(problem, dO, "float16");
    in.name += ", Q of query i times (i % 16)/4";
    expect_right(in);
  }
}

TEST_CASE("D is subtracted before anything is rounded", "[13.3]") {
  for (const std::int64_t d : head_dims)
    expect_right(input("normal", {1, 1, 1, 64, 96, d}, 145, {.K_mean = 1, .V_mean = 3}), {"dQ", "dK"});
}

// ---- 13.4 the mask ----

TEST_CASE("causal agrees with the oracle for Nq above, at and below Nk", "[13.4]") {
  std::uint64_t seed = 160;
  for (const auto& [Nq, Nk] : lengths_of_every_kind())
    expect_right(input("normal", {1, 1, 1, Nq, Nk, 64}, ++seed, {true}));
  for (const auto& [Nq, Nk] : {std::pair{150, 180}, {180, 150}, {65, 129}})
    expect_right(input("normal", {1, 1, 1, Nq, Nk, 128}, ++seed, {true}));
  expect_every_kind();
}

TEST_CASE("a pair that does not count has P = 0, whatever the scale", "[13.4]") {
  for (const auto& [Nq, Nk] : {std::pair{40, 70}, {70, 40}}) {
    for (const float scale : {-0.3f, 0.0f, 0.3f})
      expect_right(input("normal", {1, 1, 1, Nq, Nk, 64}, 150, {.causal = true, .scale = scale}));
  }
  expect_right(input("negative logits", {1, 1, 1, 40, 70, 64}, 151, {.zeros = true}));
}

TEST_CASE("keys that do not exist have no part in dQ", "[13.4]") {
  expect_right(input("negative logits", {1, 1, 1, 40, 70, 64}, 190, {.zeros = true}), {"dQ"});
  expect_right(input("negative logits", {1, 1, 1, 33, 17, 64}, 191), {"dQ"});
  expect_right(input("negative logits", {1, 1, 1, 33, 100, 128}, 192), {"dQ"});
}

TEST_CASE("only row blocks that see a key are loaded", "[13.4]") {
  require_counters();
  for (const auto& [Nq, Nk] : lengths_of_every_kind()) {
    for (const bool causal : {false, true}) {
      if (!causal && Nq == 150) continue;
      const Shape s{1, 1, 1, Nq, Nk, 128};
      const worker::Reply reply = backward(input("normal", s, 195, {causal}).given).reply;
      const BlockCount count = count_blocks(s, causal);
      const double must = double(count.visited * Br_of(s.d) * s.d * 2), got = counter(reply, "Q.bulk_load_bytes");
      const std::string where = fmt::format("Nq={}, Nk={}, causal={}", Nq, Nk, causal ? "yes" : "no");
      expect_count(
          reply, "Q.bulk_load_bytes", must,
          fmt::format("{} row blocks of all column blocks have a query that sees a key, {}", count.visited, where),
          got > must ? "row blocks of which no query sees any key are not skipped"
                     : "row blocks are skipped of which some query sees a key",
          got > must ? "tiles-not-skipped" : "tiles-skipped");
      const double masked = counter(reply, "note.masked tile"), masks = double(count.masked);
      expect(masked == masks, fmt::format("{} row blocks are masked, and {} have to be, {}", masked, masks, where),
             masked > masks ? "row blocks of which every query sees every key need no mask"
                            : "a row block needs a mask if its first query does not see the column block's last key",
             masked > masks ? "masked-too-much" : "masked-too-little");
    }
  }
}

// ---- 13.5 operands ----

TEST_CASE("dV is Pᵀ dO", "[13.5]") {
  for (const std::int64_t d : head_dims) {
    expect_right(input("one hot", {1, 1, 1, 70, 128, d}, 200), {"dV"});
    for (std::int64_t first = 0; first < Br_of(d); first += 16)
      expect_right(only_queries(input("normal", {1, 1, 1, Br_of(d), 128, d}, 201), first, 16), {"dV"});
  }
}

TEST_CASE("dK is scale dSᵀ Q", "[13.5]") {
  for (const std::int64_t d : head_dims) {
    expect_right(input("value mean", {1, 1, 1, 70, 128, d}, 205), {"dK"});
    for (std::int64_t first = 0; first < Br_of(d); first += 16)
      expect_right(only_queries(input("normal", {1, 1, 1, Br_of(d), 128, d}, 206), first, 16), {"dK"});
  }
}

TEST_CASE("P and dS are rounded once", "[13.5]") {
  for (const std::int64_t d : head_dims) expect_right(input("normal", {1, 1, 1, 256, 64, d}, 210));
  expect_right(input("value mean", {1, 1, 1, 128, 64, 64}, 211));
  expect_every_kind({"dV", "dK"});
}

TEST_CASE("dK and dV take one wgmma for each 16 queries", "[13.5]") {
  expect_wgmma();
}

// ---- 13.6 dS and dQ ----

TEST_CASE("dQ is scale dS K", "[13.6]") {
  for (const std::int64_t d : head_dims) {
    expect_right(input("value mean", {1, 2, 2, 70, 128, d}, 230), {"dQ"});
    expect_right(input("normal", {1, 1, 1, 130, 128, d}, 231), {"dQ"});
  }
  expect_every_kind({"dQ"});
}

TEST_CASE("every key has its part in dQ", "[13.6]") {
  for (const std::int64_t d : head_dims)
    for (std::int64_t first = 0; first < 128; first += 16)
      expect_right(only_where(
                       input("normal", {1, 1, 1, 32, 128, d}, 235), "K",
                       [=](std::int64_t row, std::int64_t) { return row >= first && row < first + 16; },
                       fmt::format("K small but for keys {} to {}", first, first + 15)),
                   {"dQ"});
}

TEST_CASE("dS is stored once, without a bank conflict", "[13.6]") {
  require_counters();
  for (const std::int64_t d : head_dims) {
    const Growth growth(d);
    expect_growth(growth, "shared.matrix_stores", double(consumer_warps * Br_of(d)) / 16,
                  fmt::format("stmatrix, 16 keys by 16 queries an instruction, d={}", d),
                  "dS is stored more or less often than once, 16 x 16 elements an instruction", "matrix-stores");
    const double wavefronts = growth.of("shared.store_wavefronts"), ideal = growth.of("shared.store_ideal");
    expect(wavefronts == ideal,
           fmt::format("the stores of one row block take {} passes through the banks; {} would do (d={})", wavefronts,
                       ideal, d),
           "the rows that stmatrix stores lie in the same banks: chunks are stored where swizzled() says",
           "swizzle-conflicts");
  }
}

TEST_CASE("dQ takes one wgmma for each 16 keys", "[13.6]") {
  expect_wgmma();
}

// ---- 13.7 the writer ----

TEST_CASE("every row block's dQ reaches the sum", "[13.7]") {
  for (const std::int64_t d : head_dims) {
    expect_right(input("normal", {1, 2, 2, 300, 260, d}, 240), {"dQ"});
    for (std::int64_t first = 0; first < 3 * Br_of(d); first += Br_of(d))
      expect_right(only_queries(input("normal", {1, 1, 1, 3 * Br_of(d), 40, d}, 241), first, Br_of(d)), {"dQ"});
  }
  expect_every_kind({"dQ"});
}

TEST_CASE("each half of dQ is added once, by TMA", "[13.7]") {
  require_counters();
  for (const std::int64_t d : head_dims) {
    const std::int64_t Nk = 256;
    const double row_blocks = 3, column_blocks = 2, elements = row_blocks * double(Br_of(d) * d);
    const worker::Reply reply = backward(input("normal", {1, 1, 1, 3 * Br_of(d), Nk, d}, 243).given).reply;
    expect_count(reply, "bulk_reductions", 2 * row_blocks * column_blocks,
                 fmt::format("two halves of 3 row blocks by 2 column blocks, d={}", d),
                 "a half of dQ is added more or less often than once", "traffic");
    expect_count(reply, "dQ_sum.bulk_reduce_bytes", column_blocks * elements * 4,
                 fmt::format("each column block adds 4 bytes to every element of dQ, d={}", d),
                 "a half of dQ is added in part, or twice", "dQ-added");
    expect_count(reply, "dQ_sum.atomic_requests", 0, "no thread adds by itself", "dQ is added by threads", "traffic");
  }
}

TEST_CASE("a place is overwritten when it has been read", "[13.7]") {
  for (const int lane_seed : {0, 1, 2, 3})
    expect_right(input("normal", {1, 1, 1, 300, 260, 128}, 245), Call{.lane_seed = lane_seed});
}

TEST_CASE("each column block ends its turn", "[13.7]") {
  // The simulator begins blocks in order, with one worker each after the other's end: nobody waits.
  require_counters();
  for (const std::int64_t Nk : {100, 260}) {
    for (const std::int64_t d : head_dims) {
      const Shape s{1, 1, 1, 130, Nk, d};
      const bool causal = d == 64;
      const BackwardResult got = expect_right(input("normal", s, 250, {causal}), Call{.in_turns = true, .workers = 1});
      const double turns = double(count_blocks(s, causal).visited), tickets = double(tiles_of(Nk, Bc));
      expect_count(
          got.reply, "turns.atomic_requests", turns + tickets,
          fmt::format("{} turns and {} tickets, Nk={}, d={}, causal={}", turns, tickets, Nk, d, causal ? "yes" : "no"),
          "a column block ends its turn in a row block more or less often than once", "turns");
    }
  }
}

// ---- 13.8 in order ----

TEST_CASE("in order, it agrees with the oracle", "[13.8]") {
  for (const int step : {1, 2}) {
    for (const std::int64_t d : head_dims) {
      expect_right(input("normal", {1, 1, 1, 200, 150, d}, 260), Call{.step = step});
      expect_right(input("value mean", {1, 1, 1, 150, 200, d}, 261, {true}), Call{.step = step});
    }
  }
  expect_every_kind(all_gradients, {.step = 2});
}

TEST_CASE("in order, nothing is touched too early", "[13.8]") {
  // The simulator reports registers, tiles and places that are touched too early, whatever the numbers are.
  for (const int lane_seed : {0, 1, 2})
    expect_right(input("normal", {1, 1, 1, 300, 100, 128}, 262),
                 Call{.step = 1 + lane_seed % 2, .lane_seed = lane_seed});
}

TEST_CASE("in order, each tile is waited for once", "[13.8]") {
  for (const int step : {1, 2}) expect_waits({.step = step});
}

// ---- 13.9 overlapped ----

TEST_CASE("overlapped, it agrees with the oracle", "[13.9]") {
  for (const int step : {3, 4}) {
    for (const std::int64_t d : head_dims) {
      expect_right(input("normal", {1, 1, 1, 200, 150, d}, 270), Call{.step = step});
      expect_right(input("value mean", {1, 1, 1, 150, 200, d}, 271, {true}), Call{.step = step});
    }
  }
  expect_every_kind();
}

TEST_CASE("overlapped, nothing is touched too early", "[13.9]") {
  for (const int lane_seed : {0, 1, 2})
    for (const std::int64_t d : head_dims)
      expect_right(input("normal", {1, 1, 1, 300, 100, d}, 272),
                   Call{.step = 3 + lane_seed % 2, .lane_seed = lane_seed});
}

TEST_CASE("overlapped, each tile is waited for once", "[13.9]") {
  for (const int step : {3, 4}) expect_waits({.step = step});
}

TEST_CASE("overlapped, products run beside P, dV and the hand-over", "[13.9]") {
  require_counters();
  for (const auto& [step, d] : {std::pair{3, 64}, {4, 64}, {3, 128}, {4, 128}}) {
    const Growth growth(d, {.step = step});
    const double waits = step == 4 && d == 128 ? 4 : 3, got = growth.of("wgmma_partial_waits") / consumer_warps;
    expect(got == waits,
           fmt::format("a warp waits {} times a row block for some products and leaves newer ones under way; it has to "
                       "wait so {} times: for S beside dP, {}for dV beside dQ, for dQ beside dK; d={}, step {}",
                       got, waits, waits == 4 ? "for dP beside dV, " : "", d, step),
           got < waits ? "a product is waited for while nothing else is under way: the tensor cores rest until what "
                         "follows is done"
                       : "there are more waits of that kind than there is something to wait for",
           "overlap");
  }
}

// ---- The whole chapter ----

TEST_CASE("the gradients agree with the oracle", "[whole]") {
  std::uint64_t seed = 298;
  for (const InputKind& kind : input_kinds()) {
    seed += 3;
    expect_right(input(kind.name, {1, 2, 2, 70, 133, 64}, seed, {seed % 2 == 0}));
    expect_right(input(kind.name, {2, 1, 1, 90, 140, 128}, seed + 1, {seed % 4 < 2}));
  }
  expect_every_kind();
}

TEST_CASE("bf16 agrees with the oracle", "[whole]") {
  for (const bool causal : {false, true}) {
    for (const std::int64_t d : head_dims) expect_bf16("normal", {1, 2, 2, 70, 133, d}, 330, causal);
    expect_bf16("large logits", {1, 1, 1, 133, 70, 64}, 331, causal);
  }
}

TEST_CASE("any two lengths agree with the oracle", "[whole]") {
  // Some of them: tests/cuda/test_any_lengths.cpp has them all.
  const bool many = context().backend == Backend::cuda;
  for_ragged(many ? 13 : 43, many ? kAnyProduct : 129 * 1000 * 64,
             [=](const Shape& shape, bool causal, std::uint64_t number) {
               if (shape.d == 32) return;  // the chapter has no kernel for it
               expect_right(input("normal", shape, 340 + number, {causal}), Call{.workers = 4});
               if (many || shape.Nq * shape.Nk < 100'000) expect_bf16("normal", shape, 340 + number, causal);
             });
}

TEST_CASE("every step gives the same gradients", "[whole]") {
  for (const std::int64_t d : head_dims) {
    const Input in = input("value mean", {1, 1, 1, 200, 150, d}, 350, {true});
    const BackwardResult last = expect_right(in);
    for (const int step : {1, 2, 3})
      expect(same_bits(expect_right(in, Call{.step = step}), last, false),
             fmt::format("dK or dV of step {} is not that of step {} to the last bit, d={}", step, last_step, d),
             "a step sums in another order, or rounds elsewhere", "order-dependent");
  }
}

TEST_CASE("queries that see nothing have no part in any gradient", "[whole]") {
  for (const auto& [Nq, Nk] : {std::pair{300, 30}, {130, 1}, {64, 63}})
    for (const std::int64_t d : head_dims) expect_right(input("value mean", {1, 1, 1, Nq, Nk, d}, 105, {true}));
}

TEST_CASE("the gradient of the LSE is subtracted from D", "[whole]") {
  const Shape s{1, 2, 2, 70, 50, 64};
  const Input in = input("normal", s, 110, {true});
  const std::vector<float> dlse = normal_values(std::size_t(s.lse_size()), 111);
  // D - dLSE is the D of another O: O - dLSE·dO / |dO|².
  BackwardProblem given = in.given;
  for (std::int64_t row = 0; row < s.lse_size(); ++row) {
    const auto first = std::size_t(row * s.d);
    double squares = 0;
    for (std::size_t c = first; c < first + std::size_t(s.d); ++c) squares += given.dO.values[c] * given.dO.values[c];
    for (std::size_t c = first; c < first + std::size_t(s.d); ++c)
      given.saved.O.values[c] -= dlse[std::size_t(row)] * given.dO.values[c] / squares;
  }
  const auto send = [&](const worker::Call& request) {
    worker::Call with_dlse = request;
    with_dlse.input("dlse", dlse);
    return call(with_dlse);
  };
  const BackwardResult got = worker::backward("backward_dlse", encoded(in.given, "float16"), "float16", {}, send);
  expect_gradients(got, given, in.name + ", with a gradient of the LSE", {Bc, Br_of(s.d)}, precision(), all_gradients);
}

TEST_CASE("future queries and keys have zero influence", "[whole]") {
  for (const std::int64_t d : head_dims) {
    const Shape s{1, 1, 1, 100, 100, d};
    const BackwardProblem before = input("normal", s, 355, {true}).given;
    const BackwardResult expected = backward(before);
    for (const float factor : {-2.0f, 50.0f}) {
      BackwardProblem changed = before;
      for (std::int64_t j = 60; j < s.Nk; ++j)
        for (std::int64_t c = 0; c < d; ++c) changed.problem.K(0, 0, j, c) *= factor;
      const BackwardResult got = backward(changed);
      for (std::int64_t i = 0; i < 60; ++i)
        for (std::int64_t c = 0; c < d; ++c)
          expect(got.dQ(0, 0, i, c) == expected.dQ(0, 0, i, c),
                 fmt::format("dQ of query {}, column {} is {} when K from key 60 on is multiplied by {}, and was {}", i,
                             c, got.dQ(0, 0, i, c), factor, expected.dQ(0, 0, i, c)),
                 "a key that a query does not see has a part in its gradient", "future-leaks");
    }
  }
}

TEST_CASE("by turns the gradients agree with the oracle", "[whole]") {
  for (const bool causal : {false, true}) {
    for (const std::int64_t d : head_dims) {
      expect_right(input("normal", {1, 3, 3, 150, 260, d}, 360, {causal}), Call{.in_turns = true});
      if (causal) expect_right(input("normal", {1, 1, 1, 300, 140, d}, 361, {causal}), Call{.in_turns = true});
    }
  }
}

TEST_CASE("50 runs by turns are equal to the last bit", "[whole]") {
  const Input in = input("normal", {1, 1, 1, 3, 300, 64}, 365);
  const Call in_turns{.in_turns = true};
  const BackwardResult first = backward(in.given, in_turns.numbers());
  expect_written(first.dQ.values[0], "dQ");
  for (int run = 2; run <= 50; ++run)
    expect(same_bits(backward(in.given, in_turns.numbers()), first, true),
           fmt::format("a gradient of run {} is not that of the first", run),
           "column blocks add to dQ in another order, or something is read before it is written", "not-repeatable");
}

TEST_CASE("dQ differs from run to run, within its bounds; dK and dV do not", "[whole]") {
  const Input in = input("value mean", {1, 1, 1, 70, 400, 64}, 370);
  const BackwardResult first = expect_right(in);
  for (int run = 0; run < 2; ++run)
    expect(same_bits(expect_right(in), first, false), "dK or dV is not the same in every run",
           "something is read before it is written, or while it is", "not-repeatable");
}

TEST_CASE("the order of lanes changes nothing but dQ's last bits", "[whole]") {
  for (const std::int64_t d : head_dims) {
    const Input in = input("normal", {1, 2, 2, 150, 150, d}, 375, {true});
    const BackwardResult one = expect_right(in, Call{.workers = 1});
    const BackwardResult two = expect_right(in, Call{.workers = 3, .lane_seed = 4});
    expect(same_bits(one, two, false), "dK or dV depends on the order of lanes or blocks", "a barrier is missing",
           "order-dependent");
  }
}

TEST_CASE("five products, and each operand is where it was formed", "[whole]") {
  expect_wgmma();
  for (const std::int64_t d : head_dims) {
    const Growth growth(d);
    // In rows of d elements: for each consumer 64 of K and Br of Q, 64 of V and Br of dO, Br of dO, Br of Q; and for
    // its half of dQ 64 · 128 of dS and 128 · 64 of K.
    const double rows = 4 * (64 + double(Br_of(d))) + 4 * double(Br_of(d));
    expect_growth(growth, "wgmma_wavefronts", (rows * double(d) + 2 * 2 * 64 * 128) * 2 / 128,
                  fmt::format("128 bytes of operands in shared memory each, d={}", d),
                  "P or dS is a left operand in shared memory, or an operand is read again", "shared-traffic");
    for (const char* loads : {"shared.matrix_loads", "multiply_calls"})
      expect_growth(growth, loads, 0, fmt::format("no lane loads an operand, d={}", d),
                    "a product is computed by mma, or an operand loaded by ldmatrix", "shared-traffic");
  }
}

TEST_CASE("each tensor is moved as often as it must be", "[whole]") {
  require_counters();
  for (const bool causal : {false, true}) {
    for (const auto& [Nq, Nk] : {std::pair{256, 256}, {100, 233}, {233, 100}}) {
      const Shape s{1, 1, 1, Nq, Nk, 64};
      const worker::Reply reply = backward(input("normal", s, 380, {causal}).given).reply;
      const double blocks = double(count_blocks(s, causal).visited), row = double(s.d * 2), Br = double(Br_of(s.d));
      const auto expect_bytes = [&](const std::string& name, double expected, const std::string& why) {
        expect_count(reply, name, expected,
                     fmt::format("{}, Nq={}, Nk={}, causal={}", why, Nq, Nk, causal ? "yes" : "no"),
                     "a tensor is moved more or less often than it must be", "traffic");
      };
      const double keys = double(tiles_of(Nk, Bc) * Bc) * row;
      for (const char* tensor : {"K", "V"})
        expect_bytes(fmt::format("{}.bulk_load_bytes", tensor), keys, fmt::format("whole tiles of {}, once", tensor));
      for (const char* tensor : {"Q", "dO"})
        expect_bytes(fmt::format("{}.bulk_load_bytes", tensor), blocks * Br * row,
                     fmt::format("whole tiles of {} by every column block that they see", tensor));
      for (const char* tensor : {"dK", "dV"})
        expect_bytes(fmt::format("{}.bulk_store_bytes", tensor), double(Nk) * row,
                     fmt::format("{} is written once", tensor));
      expect_bytes("dQ.store_bytes", double(Nq) * row, "dQ is written once");
      expect_bytes("dQ_sum.bulk_reduce_bytes", blocks * Br * double(s.d) * 4,
                   "a row block's dQ is added to once for each column block");
    }
  }
}

TEST_CASE("shared memory holds no P", "[whole]") {
  require_counters();
  // A row block: dS by stmatrix, once; dQ, once for the writer, 16 bytes a lane; then 4 bytes a lane in the last
  // kernel.
  for (const std::int64_t d : head_dims) {
    const Growth growth(d);
    expect_growth(growth, "shared.matrix_stores", double(consumer_warps * Br_of(d)) / 16,
                  fmt::format("dS alone, d={}", d), "P goes through shared memory, too", "shared-traffic");
    expect_growth(growth, "shared.store_instructions", consumer_warps * (8 + 16),
                  fmt::format("dQ for the writer, and rounded in the last kernel, d={}", d),
                  "something else goes through shared memory", "shared-traffic");
  }
}

TEST_CASE("extra memory grows like N", "[whole]") {
  for (const std::int64_t N : {128, 256, 384}) {
    const Input in = input("normal", {1, 2, 2, N, N, 64}, 390);
    const BackwardResult got = backward(in.given);
    expect_written(got.dQ.values[0], "dQ");
    const std::int64_t expected = 2 * N * (8 + 64 * 4);
    expect(got.reply.extra_bytes == expected,
           fmt::format("at N = {} the kernels allocate {} bytes of device memory beside their inputs and outputs, "
                       "expected {}: 8 for each query, and 4 for each element of dQ",
                       N, got.reply.extra_bytes, expected),
           "P, S or dS is stored in device memory", "extra-memory");
  }
}
