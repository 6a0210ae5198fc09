// Chapter 9: the backward pass in registers, phase by phase and whole.
#include <fmt/format.h>

#include <algorithm>
#include <array>
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

/// The keys of a column block, the queries of a row block, and the warps: solutions/09_.../backward_registers.hpp.
struct Sizes {
  std::int64_t Bc, Br, warps;

  std::int64_t team() const { return 32 * warps / Bc; }
  Numbers numbers() const { return {{"owned", double(Bc)}, {"passing", double(Br)}, {"warps", double(warps)}}; }
  std::string text() const { return fmt::format("Bc={}, Br={}, {} warps", Bc, Br, warps); }
};
/// Those that the stage, or its variant, has for d, and room for on this device; the first is what it takes by itself.
std::vector<Sizes> all_sizes(std::int64_t d, bool in_turns = false) {
  std::vector<Sizes> all;
  for (const worker::StageTiles& tiles : stage_of("backward", {{"deterministic", double(in_turns)}}).tiles)
    if (!tiles.d || *tiles.d == d)
      all.push_back({tiles.sizes.at("owned"), tiles.sizes.at("passing"), tiles.sizes.at("warps")});
  return all;
}
Sizes default_sizes(std::int64_t d, bool in_turns = false) {
  return all_sizes(d, in_turns).front();
}
Sizes small_sizes(std::int64_t d, bool in_turns = false) {
  return std::ranges::min(all_sizes(d, in_turns), {}, [](const Sizes& sizes) { return sizes.Bc * sizes.Br; });
}
const std::vector<std::string> all_gradients = {"dV", "dK", "dQ"};

/// How the stage is called, beside its sizes.
struct Call {
  bool in_turns = false;
  int workers = 0, lane_seed = 0;  ///< of the simulator
};
Numbers numbers_of(const Sizes& sizes, const Call& how) {
  Numbers numbers = sizes.numbers();
  if (how.in_turns) numbers["deterministic"] = 1;
  if (how.workers != 0) numbers["workers"] = how.workers;
  if (how.lane_seed != 0) numbers["lane_seed"] = how.lane_seed;
  return numbers;
}

/// The stage against the oracle.
BackwardResult expect_right(const Input& in, const Sizes& sizes, const std::vector<std::string>& which = all_gradients,
                            const Call& how = {}) {
  const BackwardResult result = backward(in.given, numbers_of(sizes, how));
  note_kinds(in.kind, in.given.problem);
  expect_gradients(result, in.given, fmt::format("{}, {}{}", in.name, sizes.text(), how.in_turns ? ", by turns" : ""),
                   {sizes.Bc, sizes.Br}, precision(), which);
  return result;
}
BackwardResult expect_right(const Input& in, const std::vector<std::string>& which = all_gradients) {
  return expect_right(in, default_sizes(in.given.problem.shape.d), which);
}
BackwardResult expect_right_small(const Input& in, const std::vector<std::string>& which = all_gradients) {
  return expect_right(in, small_sizes(in.given.problem.shape.d), which);
}

/// Every kind of input, small, for the part of the stage that one exercise writes.
void expect_every_kind(const std::vector<std::string>& which = all_gradients, bool in_turns = false) {
  expect_every_kind_in_this_part([&](const Input& in) {
    expect_right(in, small_sizes(in.given.problem.shape.d, in_turns), which, {.in_turns = in_turns});
  });
}

/// The kernels for bf16 against the oracle.
void expect_bf16(const std::string& kind, const Shape& shape, std::uint64_t seed, bool causal) {
  const std::string element = "bfloat16";
  const Input in = input(kind, shape, seed, {causal}, element);
  const Sizes sizes = default_sizes(shape.d);
  const auto send = [](const worker::Call& request) { return call(request); };
  const BackwardResult result =
      worker::backward("backward_bfloat16", encoded(in.given, element), element, sizes.numbers(), send);
  expect_gradients(result, in.given, fmt::format("{}, bf16, {}", in.name, sizes.text()), {sizes.Bc, sizes.Br},
                   precision_of(element), all_gradients);
}

std::int64_t blocks_of(std::int64_t rows, std::int64_t block) {
  return tiles_of(rows, block);
}

/// What the stage's counters grow by when one row block more passes by one column block of keys, without a mask.
class Growth {
 public:
  Growth(std::int64_t d, const Sizes& sizes) : row_blocks_(64 / sizes.Br) {  // rows are filled up to 64
    for (const int i : {0, 1})
      replies_[i] = backward(input("normal", {1, 1, 1, 64 * (i + 1), sizes.Bc, d}, 7).given, sizes.numbers()).reply;
  }
  double of(const std::string& name) const {
    return (counter(replies_[1], name) - counter(replies_[0], name)) / double(row_blocks_);
  }

 private:
  std::int64_t row_blocks_;
  worker::Reply replies_[2];
};

/// mma and ldmatrix of one row block and one column block: five products, each operand loaded for 32 rows of the
/// result.
struct Instructions {
  double mma, ldmatrix, stmatrix;
};
Instructions instructions_of(std::int64_t d, const Sizes& s) {
  const double warps = double(s.warps), half = double(s.Br) / 2, columns = double(d) / double(s.team());
  const double formed = s.team() == 1 ? 2 : 1;                            // halves of a row block that a warp forms
  const double scores = formed * 2 * (double(d) / 16) * (2 + half / 16);  // Sᵀ and dPᵀ
  const double products = 2 * 2 * (half / 16) * (columns / 16);           // dV and dK, both halves
  const double exchanged = s.team() == 1 ? 0 : 2 * 2 * (half / 16);       // P and dS of the other half
  const double dQ = double(s.Bc) / 16 * (2 + double(d * s.Br / 32 / s.warps) / 16);  // 32 rows of it
  return {5 * double(s.Bc * s.Br * d) / (16 * 8 * 16), warps * (scores + products + exchanged + dQ),
          warps * formed * (half / 16) * 2 * (s.team() == 1 ? 1 : 2)};
}
void expect_instructions() {
  require_counters();
  for (const std::int64_t d : fitting_head_dims()) {
    for (const Sizes& sizes : all_sizes(d)) {
      const Instructions expected = instructions_of(d, sizes);
      const Growth growth(d, sizes);
      const auto expect_growth = [&](const char* name, double must, const char* cause, const char* id) {
        const double got = growth.of(name);
        expect(got == must,
               fmt::format("{} grows by {} for one row block more, and has to grow by {} (d={}, {})", name, got, must,
                           d, sizes.text()),
               cause, id);
      };
      expect_growth("multiply_calls", expected.mma,
                    "five products of a row block and a column block take so many mma: one of them is computed twice, "
                    "or not at all",
                    "products");
      expect_growth("shared.matrix_loads", expected.ldmatrix,
                    "an operand is loaded more often than once for 32 rows of the result, or it is not loaded",
                    "matrix-loads");
    }
  }
}

/// Inputs of which dO is small but for some queries.
Input only_queries(Input in, std::int64_t first, std::int64_t count) {
  const Shape& s = in.given.problem.shape;
  for (std::size_t at = 0; at < in.given.dO.values.size(); ++at) {
    const std::int64_t query = std::int64_t(at) / s.d % s.Nq;
    if (query < first || query >= first + count) in.given.dO.values[at] /= 64;
  }
  in.kind.clear();
  in.name += fmt::format(", dO small but for queries {} to {}", first, first + count - 1);
  return in;
}

/// Pairs of a row block and a column block with a visible pair, and those of them that need a mask, counted pair by
/// pair for one head. Keys that do not exist need one.
struct BlockCount {
  std::int64_t visited = 0, masked = 0, queries = 0;  ///< queries: rows of Q that are loaded
};
BlockCount count_blocks(const Shape& s, bool causal, const Sizes& sizes) {
  BlockCount count;
  const std::int64_t offset = causal ? s.Nk - s.Nq : s.Nk;
  for (std::int64_t key = 0; key < s.Nk; key += sizes.Bc) {
    bool begun = false;
    for (std::int64_t query = 0; query < s.Nq; query += sizes.Br) {
      const std::int64_t last =
          query + sizes.Br - 1;  // a row block is loaded if its last query would see the first key
      begun = begun || key <= last + offset;
      if (!begun) continue;
      ++count.visited;
      count.masked += key + sizes.Bc > s.Nk || key + sizes.Bc - 1 > query + offset;
      count.queries += std::min(s.Nq, query + sizes.Br) - query;
    }
  }
  return count;
}

/// Lengths with the diagonal at every place within a row block, and some more.
std::vector<std::pair<std::int64_t, std::int64_t>> lengths_of_every_kind() {
  std::vector<std::pair<std::int64_t, std::int64_t>> all{{256, 256}, {128, 320}, {320, 128}, {100, 330}, {330, 100}};
  for (std::int64_t more = -20; more < 20; more += 3) all.emplace_back(70, 70 + more);
  return all;
}

bool same_bits(const BackwardResult& a, const BackwardResult& b, bool with_dQ) {
  return (!with_dQ || a.dQ.values == b.dQ.values) && a.dK.values == b.dK.values && a.dV.values == b.dV.values;
}

}  // namespace

// ---- 9.1 what a query brings ----

TEST_CASE("the LSE is taken in units of log2", "[9.1]") {
  for (const char* kind : {"normal", "large logits"}) {
    expect_right_small(input(kind, {1, 2, 2, 70, 100, 64}, 101));
    expect_right_small(input(kind, {1, 1, 1, 33, 40, 32}, 102));
  }
  expect_every_kind();
}

TEST_CASE("queries that see nothing have no part in any gradient", "[9.1]") {
  // A query whose LSE is -inf though no mask hides its keys, as after a merge of parts.
  Input in = input("normal", {1, 1, 1, 64, 50, 32}, 106);  // no query is filled up
  in.given.saved.lse(0, 0, 7, 0) = -std::numeric_limits<double>::infinity();
  const BackwardResult got = backward(in.given, small_sizes(32).numbers());
  for (std::int64_t c = 0; c < 32; ++c)
    expect(got.dQ(0, 0, 7, c) == 0 && std::isfinite(got.dV(0, 0, 0, c)),
           fmt::format(
               "the LSE of query 7 is -inf, and dQ of it is {}, dV of key 0 is {} (column {}): the query must have "
               "no part in any gradient",
               got.dQ(0, 0, 7, c), got.dV(0, 0, 0, c), c),
           "P = exp2(S - (-inf)) is infinite: what is stored as its LSE has to make it 0", "masked-lse-kept");
  for (const auto& [Nq, Nk] : {std::pair{100, 30}, {70, 1}, {64, 63}}) {
    for (const std::int64_t d : {32, 128}) expect_right_small(input("value mean", {1, 1, 1, Nq, Nk, d}, 105, {true}));
  }
}

TEST_CASE("the gradient of the LSE is subtracted from D", "[9.1]") {
  for (const bool causal : {false, true}) {
    const Shape s{1, 2, 2, 70, 50, 64};
    const Input in = input("normal", s, 110, {causal});
    const std::vector<float> dlse = normal_values(std::size_t(s.lse_size()), 111);
    // D - dLSE is the D of another O: O - dLSE·dO / |dO|².
    const auto with = [&](double sign) {
      BackwardProblem given = in.given;
      for (std::int64_t row = 0; row < s.lse_size(); ++row) {
        const auto first = std::size_t(row * s.d);
        double squares = 0;
        for (std::size_t c = first; c < first + std::size_t(s.d); ++c)
          squares += given.dO.values[c] * given.dO.values[c];
        for (std::size_t c = first; c < first + std::size_t(s.d); ++c)
          given.saved.O.values[c] -= sign * dlse[std::size_t(row)] * given.dO.values[c] / squares;
      }
      return given;
    };
    Numbers numbers = small_sizes(s.d).numbers();
    numbers["with_dlse"] = 1;
    const auto send = [&](const worker::Call& request) {
      worker::Call with_dlse = request;
      with_dlse.input("dlse", dlse);
      return call(with_dlse);
    };
    const BackwardResult got =
        worker::backward("backward_dlse", encoded(in.given, "float16"), "float16", numbers, send);
    const auto distance = [&](double sign) {
      const BackwardProblem given = with(sign);
      const Gradients oracle = backward_oracle(given.problem, given.dO, given.saved);
      double sum = 0;
      for (std::size_t i = 0; i < oracle.dK.values.size(); ++i)
        sum += std::abs(oracle.dK.values[i] - double(got.dK.values[i]));
      return sum;
    };
    const double right = distance(1), wrong = distance(-1), ignored = distance(0);
    expect(wrong > right / 8, "dK is that of D + dLSE", "dLSE is added to D, not subtracted from it", "dlse-added");
    expect(ignored > right / 8, "dK is that of a loss that does not depend on the LSE", "dLSE is left out of D",
           "dlse-left-out");
    expect_gradients(got, with(1), in.name + ", with a gradient of the LSE", {32, 32}, precision(), all_gradients);
  }
}

// ---- 9.2 multiply_transposed ----

TEST_CASE("every 16 columns of Q, K, V and dO count", "[9.2]") {
  // All but 16 columns are small in Q, or in dO.
  for (const std::int64_t d : fitting_head_dims()) {
    for (std::int64_t first = 0; first < d; first += 16) {
      Input in = input("normal", {1, 1, 1, 32, 64, d}, 120);
      Problem problem = in.given.problem;
      Tensor<float> dO({1, 1, 32, d});
      dO.values = normal_values(dO.values.size(), 121);
      for (std::int64_t i = 0; i < 32; ++i) {
        for (std::int64_t c = 0; c < d; ++c) {
          const bool big = c >= first && c < first + 16;
          problem.Q(0, 0, i, c) *= big ? 3.0f : 0.125f;
          dO(0, 0, i, c) *= big ? 3.0f : 0.125f;
        }
      }
      in.given = worker::backward_problem(problem, dO, "float16");
      in.kind.clear();
      in.name += fmt::format(", Q and dO small but for columns {} to {}", first, first + 15);
      expect_right_small(in, {"dV", "dK"});
    }
  }
}

TEST_CASE("every key and every query has a score of its own", "[9.2]") {
  for (const std::int64_t d : fitting_head_dims()) {
    expect_right_small(input("normal", {1, 1, 1, 70, 100, d}, 125), {"dV", "dK"});
    expect_right(input("late spike", {1, 1, 1, 64, 128, d}, 126), {"dV", "dK"});
  }
  expect_every_kind({"dV", "dK"});
}

TEST_CASE("S and dP take no more instructions than they must", "[9.2]") {
  expect_instructions();
}

// ---- 9.3 form_P_and_dS ----

TEST_CASE("P is recomputed from the LSE", "[9.3]") {
  std::uint64_t seed = 130;
  for (const char* kind : {"normal", "large logits", "value mean"}) {
    expect_right_small(input(kind, {1, 2, 2, 70, 100, 64}, ++seed));
    expect_right_small(input(kind, {1, 1, 1, 40, 70, 128}, ++seed));
  }
  expect_right_small(input("normal", {1, 1, 1, 40, 70, 32}, ++seed, {.scale = -0.3f}));
  expect_every_kind();
}

TEST_CASE("each query has its own LSE and D", "[9.3]") {
  // The queries' scores differ by far in size, and so do their LSE.
  for (const std::int64_t d : fitting_head_dims()) {
    Input in = input("value mean", {1, 1, 1, 64, 64, d}, 140);
    Problem problem = in.given.problem;
    for (std::int64_t i = 0; i < 64; ++i)
      for (std::int64_t c = 0; c < d; ++c) problem.Q(0, 0, i, c) *= float(i % 16) / 4;
    Tensor<float> dO({1, 1, 64, d});
    dO.values = normal_values(dO.values.size(), 141);
    in.given = worker::backward_problem(problem, dO, "float16");
    in.kind.clear();
    in.name += ", Q of query i times (i % 16)/4";
    expect_right_small(in);
  }
}

TEST_CASE("D is subtracted before anything is rounded", "[9.3]") {
  for (const std::int64_t d : {32, 64})
    expect_right_small(input("normal", {1, 1, 1, 64, 96, d}, 145, {.K_mean = 1, .V_mean = 3}), {"dQ", "dK"});
}

TEST_CASE("a pair that does not count has P = 0, whatever the scale", "[9.3]") {
  for (const auto& [Nq, Nk] : {std::pair{40, 70}, {70, 40}}) {
    for (const float scale : {-0.3f, 0.0f, 0.3f})
      expect_right_small(input("normal", {1, 1, 1, Nq, Nk, 64}, 150, {.causal = true, .scale = scale}));
  }
  expect_right_small(input("negative logits", {1, 1, 1, 40, 70, 64}, 151, {.zeros = true}));
}

// ---- 9.4 the mask ----

TEST_CASE("causal agrees with the oracle for Nq above, at and below Nk", "[9.4]") {
  std::uint64_t seed = 160;
  for (const auto& [Nq, Nk] : lengths_of_every_kind()) {
    if (Nq == 256) continue;
    expect_right_small(input("normal", {1, 1, 1, Nq, Nk, 32}, ++seed, {true}));
  }
  for (const auto& [Nq, Nk] : {std::pair{200, 200}, {130, 260}, {260, 130}})
    expect_right(input("normal", {1, 1, 1, Nq, Nk, 64}, ++seed, {true}));
  expect_right(input("normal", {1, 1, 1, 150, 180, 128}, ++seed, {true}));
  expect_every_kind();
}

TEST_CASE("keys that do not exist have no part in dQ", "[9.4]") {
  expect_right_small(input("negative logits", {1, 1, 1, 40, 70, 64}, 190, {.zeros = true}), {"dQ"});
  expect_right(input("negative logits", {1, 1, 1, 33, 17, 32}, 191), {"dQ"});
  expect_right(input("negative logits", {1, 1, 1, 33, 100, 128}, 192), {"dQ"});
}

TEST_CASE("only row blocks that see a key are loaded", "[9.4]") {
  require_counters();
  for (const auto& [Nq, Nk] : lengths_of_every_kind()) {
    for (const bool causal : {false, true}) {
      if (!causal && Nq == 70 && Nk != 70) continue;
      const Shape s{1, 1, 1, Nq, Nk, 32};
      for (const Sizes& sizes : all_sizes(32)) {
        const worker::Reply reply = backward(input("normal", s, 195, {causal}).given, sizes.numbers()).reply;
        const BlockCount count = count_blocks(s, causal, sizes);
        expect_count(
            reply, "Q.async_bytes", double(count.queries * s.d * 2),
            fmt::format("{} row blocks of all column blocks have a query that sees a key, Nq={}, Nk={}, "
                        "causal={}, {}",
                        count.visited, Nq, Nk, causal ? "yes" : "no", sizes.text()),
            counter(reply, "Q.async_bytes") > double(count.queries * s.d * 2)
                ? "row blocks of which no query sees any key are not skipped"
                : "row blocks are skipped of which some query sees a key",
            counter(reply, "Q.async_bytes") > double(count.queries * s.d * 2) ? "tiles-not-skipped" : "tiles-skipped");
      }
    }
  }
}

TEST_CASE("only row blocks that the diagonal or the end crosses are masked", "[9.4]") {
  require_counters();
  for (const auto& [Nq, Nk] : lengths_of_every_kind()) {
    const Shape s{1, 1, 1, Nq, Nk, 32};
    const Sizes sizes = small_sizes(32);
    const worker::Reply reply = backward(input("normal", s, 196, {true}).given, sizes.numbers()).reply;
    const auto masked = std::int64_t(counter(reply, "note.masked tile"));
    const BlockCount count = count_blocks(s, true, sizes);
    expect(masked == count.masked,
           fmt::format("{} of {} row blocks were masked, and {} have to be (Nq={}, Nk={}, causal=yes, {})", masked,
                       count.visited, count.masked, Nq, Nk, sizes.text()),
           masked > count.masked
               ? "row blocks of which every query sees every key need no mask"
               : "a row block needs a mask if its first query does not see the column block's last key",
           masked > count.masked ? "masked-too-much" : "masked-too-little");
  }
}

// ---- 9.5 operands ----

TEST_CASE("dV is Pᵀ dO", "[9.5]") {
  for (const std::int64_t d : fitting_head_dims()) {
    expect_right_small(input("one hot", {1, 1, 1, 70, 64, d}, 200), {"dV"});
    for (const std::int64_t first : {0, 16, 32, 48})
      expect_right(only_queries(input("normal", {1, 1, 1, 64, 128, d}, 201), first, 16), {"dV"});
  }
}

TEST_CASE("dK is scale dSᵀ Q", "[9.5]") {
  for (const std::int64_t d : fitting_head_dims()) {
    expect_right_small(input("value mean", {1, 1, 1, 70, 64, d}, 205), {"dK"});
    for (const std::int64_t first : {0, 16, 32, 48})
      expect_right(only_queries(input("normal", {1, 1, 1, 64, 128, d}, 206), first, 16), {"dK"});
  }
}

TEST_CASE("P and dS are rounded once", "[9.5]") {
  expect_right_small(input("normal", {1, 1, 1, 256, 64, 64}, 210));
  expect_right_small(input("value mean", {1, 1, 1, 128, 32, 32}, 211));
  expect_every_kind({"dV", "dK"});
}

TEST_CASE("dK and dV take no more instructions than they must", "[9.5]") {
  expect_instructions();
}

// ---- 9.6 what goes through shared memory ----

TEST_CASE("a team of two exchanges P and dS", "[9.6]") {
  for (const Sizes& sizes : all_sizes(128)) {
    for (const std::int64_t first : {0, 16, 32, 48})
      expect_right(only_queries(input("normal", {1, 1, 1, 64, 128, 128}, 220), first, 16), sizes, {"dV", "dK"});
    expect_right(input("one hot", {1, 1, 1, 70, 100, 128}, 221), sizes, {"dV", "dK"});
  }
  expect_right(input("normal", {1, 1, 1, 64, 128, 64}, 222), {"dQ"});
  expect_every_kind();
}

TEST_CASE("dS is stored once, without a bank conflict", "[9.6]") {
  require_counters();
  for (const std::int64_t d : fitting_head_dims()) {
    for (const Sizes& sizes : all_sizes(d)) {
      const Growth growth(d, sizes);
      const double must = instructions_of(d, sizes).stmatrix, got = growth.of("shared.matrix_stores");
      expect(got == must,
             fmt::format("stmatrix: {} for one row block more, and it has to be {} (d={}, {})", got, must, d,
                         sizes.text()),
             "dS, and in a team of two P, are stored once, 16 x 16 elements an instruction", "matrix-stores");
      const double wavefronts = growth.of("shared.store_wavefronts"), ideal = growth.of("shared.store_ideal");
      expect(wavefronts == ideal,
             fmt::format("the stores of one row block take {} passes through the banks; {} would do (d={}, {})",
                         wavefronts, ideal, d, sizes.text()),
             "the rows that stmatrix stores lie in the same banks: chunks are stored where swizzled() says",
             "swizzle-conflicts");
    }
  }
}

// ---- 9.7 dQ ----

TEST_CASE("dQ is scale dS K", "[9.7]") {
  for (const std::int64_t d : fitting_head_dims()) {
    for (const Sizes& sizes : all_sizes(d))
      expect_right(input("value mean", {1, 2, 2, 70, 100, d}, 230), sizes, {"dQ"});
    expect_right(input("normal", {1, 1, 1, 130, 128, d}, 231), {"dQ"});
  }
  expect_every_kind({"dQ"});
}

TEST_CASE("every key has its part in dQ", "[9.7]") {
  for (const std::int64_t d : fitting_head_dims()) {
    for (std::int64_t first = 0; first < 128; first += 32) {
      Input in = input("normal", {1, 1, 1, 32, 128, d}, 235);
      Problem problem = in.given.problem;
      for (std::int64_t j = 0; j < 128; ++j)
        for (std::int64_t c = 0; c < d; ++c) problem.K(0, 0, j, c) *= j >= first && j < first + 32 ? 2.0f : 0.125f;
      Tensor<float> dO({1, 1, 32, d});
      dO.values = normal_values(dO.values.size(), 236);
      in.given = worker::backward_problem(problem, dO, "float16");
      in.kind.clear();
      in.name += fmt::format(", K small but for keys {} to {}", first, first + 31);
      expect_right(in, {"dQ"});
    }
  }
}

TEST_CASE("every addition fills a line of 128 bytes", "[9.7]") {
  require_counters();
  for (const std::int64_t d : fitting_head_dims()) {
    for (const Sizes& sizes : all_sizes(d)) {
      const std::int64_t Nq = 128, Nk = 256;
      const worker::Reply reply = backward(input("normal", {1, 1, 1, Nq, Nk, d}, 240).given, sizes.numbers()).reply;
      const double elements = double(Nq * d * (Nk / sizes.Bc));
      expect_count(reply, "dQ_sum.atomic_requests", elements / 32,
                   fmt::format("{} column blocks add to every element of dQ, 32 at a time, d={}, {}", Nk / sizes.Bc, d,
                               sizes.text()),
                   "a part of dQ is added more or less often than once for each column block", "traffic");
      expect_count(reply, "dQ_sum.atomic_sectors", elements / 8,
                   fmt::format("32 lanes add to 128 bytes side by side, 4 sectors, d={}, {}", d, sizes.text()),
                   "the lanes of a warp add to places that do not lie side by side", "uncoalesced");
    }
  }
}

TEST_CASE("dQ takes no more instructions than it must", "[9.7]") {
  expect_instructions();
}

// ---- 9.8 turns ----

TEST_CASE("a warp waits for its turn", "[9.8]") {
  // Alone, nobody waits for it.
  worker::Call alone("end_turn");
  const std::int32_t ended = call(alone.output<std::int32_t>("number", 1)).output<std::int32_t>("number")[0];
  expect(ended == 1, fmt::format("after the first turn of a warp its place holds {}, and has to hold 1", ended),
         "a warp ends its turn once: one lane adds 1", "turns");
  // Two blocks of a warp. The first has the second turn, and begins first; the second adds 1 in every lane, later.
  worker::Call request("take_turns");
  request.number("workers", 2).output<std::int32_t>("got", 32);
  const worker::Reply reply = call(request);
  const std::vector<std::int32_t> got = reply.output<std::int32_t>("got");
  const auto early = std::find(got.begin(), got.end(), 0);
  expect(
      early == got.end(),
      fmt::format("lane {} goes on before its turn: what the turn before adds is not there yet", early - got.begin()),
      "wait_for returns before the place holds this warp's number", "turn-not-waited");
}

TEST_CASE("each column block ends its turn", "[9.8]") {
  require_counters();
  // The simulator begins blocks in order, with one worker each after the other's end: nobody waits.
  for (const bool causal : {false, true}) {
    for (const std::int64_t d : fitting_head_dims()) {
      const Sizes sizes = d == 128 ? small_sizes(d, true) : default_sizes(d, true);
      const Shape s{1, 1, 1, 130, 260, d};
      const BackwardResult got = expect_right(input("normal", s, 250, {causal}), sizes, all_gradients, {true, 1});
      const double turns = double(count_blocks(s, causal, sizes).visited * s.H * sizes.warps);
      const double tickets = double(s.H * blocks_of(s.Nk, sizes.Bc));
      expect_count(got.reply, "turns.atomic_requests", turns + tickets,
                   fmt::format("{} turns of a warp in a row block, and {} tickets, d={}, causal={}", turns, tickets, d,
                               causal ? "yes" : "no"),
                   "a warp ends its turn more or less often than once", "turns");
    }
  }
  expect_every_kind(all_gradients, true);
}

TEST_CASE("no lane adds before its turn or after it", "[9.8]") {
  require_counters();
  // What lane 0 sees and says for its warp has to be true of all lanes.
  const Input in = input("normal", {1, 1, 1, 130, 260, 64}, 255);
  const Sizes sizes = default_sizes(64, true);
  const worker::Reply reply = backward(in.given, numbers_of(sizes, {true, 1})).reply;
  const worker::Reply other = backward(in.given, numbers_of(sizes, {false, 1})).reply;
  const double turns = double(count_blocks(in.given.problem.shape, false, sizes).visited * sizes.warps);
  const double met = counter(reply, "warp_barriers") - counter(other, "warp_barriers");
  expect(met == 2 * turns,
         fmt::format("{} __syncwarp more than without turns; {} turns of a warp take {}", met, turns, 2 * turns),
         "the lanes of a warp do not wait for each other: once before the additions, when the turn has come, and once "
         "after them, before it ends",
         "turn-without-syncwarp");
  // The simulator's threads see every write at once, so that a fence that is missing spoils no number: it is counted.
  worker::Call alone("end_turn"), turns_of_two("take_turns");
  const double at_end = counter(call(alone.output<std::int32_t>("number", 1)), "fences");
  turns_of_two.number("workers", 2).output<std::int32_t>("got", 32);
  const double of_waits = counter(call(turns_of_two), "fences") - at_end;
  expect(
      at_end >= 1, "a warp ends its turn without any __threadfence()",
      "the additions of a turn have to come before the number that ends it, for all threads of the GPU: that is what "
      "__threadfence() says",
      "turn-without-fence");
  expect(of_waits >= 2, fmt::format("two warps wait for their turns with {} __threadfence() together", of_waits),
         "what a warp adds in its turn has to come after the number that it has waited for: that is what "
         "__threadfence() says",
         "turn-without-fence");
}

// ---- 9.9 the loop ----

TEST_CASE("ragged tails are part of the answer", "[9.9]") {
  std::uint64_t seed = 260;
  for (const auto& [Nq, Nk] : {std::pair{1, 1}, {1, 33}, {33, 1}, {65, 95}, {31, 97}, {70, 133}}) {
    expect_right(input("normal", {1, 2, 2, Nq, Nk, 64}, ++seed));
    expect_right_small(input("normal", {1, 1, 1, Nq, Nk, 32}, ++seed, {true}));
    expect_right(input("normal", {1, 1, 1, Nq, Nk, 128}, ++seed, {true}));
  }
  expect_every_kind();
}

TEST_CASE("every row block counts once", "[9.9]") {
  for (const std::int64_t d : {32, 128}) {
    for (std::int64_t first = 0; first < 192; first += 64)
      expect_right(only_queries(input("normal", {1, 1, 1, 192, 40, d}, 275), first, 64));
  }
}

TEST_CASE("one barrier a row block", "[9.9]") {
  require_counters();
  for (const std::int64_t d : fitting_head_dims()) {
    for (const Sizes& sizes : all_sizes(d)) {
      const Shape s{1, 2, 2, 100, 140, d};
      const worker::Reply reply = backward(input("normal", s, 280).given, sizes.numbers()).reply;
      const double column_blocks = double(s.H * blocks_of(s.Nk, sizes.Bc)),
                   row_blocks = double(blocks_of(s.Nq, sizes.Br));
      expect_count(reply, "block_barriers", column_blocks * (row_blocks + 1),
                   fmt::format("{} column blocks · ({} row blocks + the last dS), d={}, {}", column_blocks, row_blocks,
                               d, sizes.text()),
                   "there is a __syncthreads() that protects nothing, or one too few", "barriers");
      const double teams = sizes.team() == 1 ? 0 : double(sizes.Bc / 32);
      expect_count(reply, "named_barriers", column_blocks * row_blocks * teams,
                   fmt::format("each team of two meets once a row block, d={}, {}", d, sizes.text()),
                   "the warps of a team exchange more or less often than once a row block", "barriers");
    }
  }
}

TEST_CASE("the places do not race, whatever the order of the lanes", "[9.9]") {
  for (const std::int64_t d : fitting_head_dims()) {
    for (const int lane_seed : {0, 1}) {
      Input in = input("normal", {1, 1, 1, 130, 140, d}, 285);
      in.kind.clear();
      in.name += fmt::format(", lanes in the order of seed {}", lane_seed);
      expect_right(in, default_sizes(d), all_gradients, {.lane_seed = lane_seed});
    }
  }
}

TEST_CASE("tiles are copied 16 bytes a thread, without a load", "[9.9]") {
  require_counters();
  for (const std::int64_t d : fitting_head_dims()) {
    const Shape s{1, 1, 1, 192, 256, d};
    const Sizes sizes = default_sizes(d);
    const worker::Reply reply = backward(input("normal", s, 290).given, sizes.numbers()).reply;
    const double column_blocks = double(blocks_of(s.Nk, sizes.Bc));
    for (const auto& [tensor, bytes] : {std::pair{"Q", column_blocks * double(s.Nq * d * 2)},
                                        {"dO", column_blocks * double(s.Nq * d * 2)},
                                        {"K", double(s.Nk * d * 2)},
                                        {"V", double(s.Nk * d * 2)},
                                        {"rows", column_blocks * double(s.Nq * 8)}}) {
      expect_count(reply, std::string(tensor) + ".async_bytes", bytes, fmt::format("{}, d={}", tensor, d),
                   "a tensor is copied more or less often than it must be", "traffic");
      expect_count(reply, std::string(tensor) + ".async_sectors", bytes / 32, fmt::format("{}, d={}", tensor, d),
                   "neighbouring lanes do not copy neighbouring bytes", "uncoalesced");
    }
  }
}

// ---- The whole chapter ----

TEST_CASE("the gradients agree with the oracle", "[whole]") {
  std::uint64_t seed = 298;
  for (const InputKind& kind : input_kinds()) {
    seed += 3;
    expect_right(input(kind.name, {1, 2, 2, 70, 133, 64}, seed, {seed % 2 == 0}));
    expect_right_small(input(kind.name, {1, 1, 1, 40, 90, 128}, seed + 1, {seed % 4 < 2}));
    expect_right_small(input(kind.name, {2, 1, 1, 90, 64, 32}, seed + 2, {seed % 2 == 1}));
  }
  expect_every_kind();
}

TEST_CASE("bf16 agrees with the oracle", "[whole]") {
  for (const bool causal : {false, true}) {
    for (const std::int64_t d : fitting_head_dims()) expect_bf16("normal", {1, 2, 2, 70, 133, d}, 330, causal);
    expect_bf16("large logits", {1, 1, 1, 133, 70, 64}, 331, causal);
  }
}

TEST_CASE("any two lengths agree with the oracle", "[whole]") {
  // Some of them: tests/cuda/test_any_lengths.cpp has them all.
  const bool many = context().backend == Backend::cuda;
  for_ragged(many ? 13 : 43, many ? kAnyProduct : 129 * 129 * 128,
             [](const Shape& shape, bool causal, std::uint64_t number) {
               expect_right(input("normal", shape, 340 + number, {causal}));
               expect_bf16("normal", shape, 340 + number, causal);
             });
}

TEST_CASE("the gradients do not depend on how the work is divided", "[whole]") {
  for (const std::int64_t d : fitting_head_dims()) {
    for (const Sizes& sizes : all_sizes(d)) {
      expect_right(input("normal", {1, 2, 2, 100, 140, d}, 350), sizes);
      expect_right(input("value mean", {1, 1, 1, 140, 100, d}, 351, {true}), sizes);
    }
  }
}

TEST_CASE("future queries and keys have zero influence", "[whole]") {
  // What comes after key 60 becomes another number, then NaN: dK and dV before it see queries only, dQ keys up to its
  // own.
  for (const std::int64_t d : {32, 128}) {
    const Shape s{1, 1, 1, 100, 100, d};
    const BackwardProblem before = input("normal", s, 355, {true}).given;
    const BackwardResult expected = backward(before, small_sizes(d).numbers());
    for (const float factor : {-2.0f, 50.0f}) {
      BackwardProblem changed = before;
      for (std::int64_t j = 60; j < s.Nk; ++j)
        for (std::int64_t c = 0; c < d; ++c) changed.problem.K(0, 0, j, c) *= factor;
      const BackwardResult got = backward(changed, small_sizes(d).numbers());
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
    for (const std::int64_t d : fitting_head_dims()) {
      const Sizes sizes = d == 128 ? small_sizes(d, true) : default_sizes(d, true);
      const std::int64_t heads = d == 32 ? 5 : 1;  // four heads' column blocks take their tickets together
      expect_right(input("normal", {1, heads, heads, 70, 150, d}, 360, {causal}), sizes, all_gradients, {true});
      if (causal) expect_right(input("normal", {1, 1, 1, 150, 70, d}, 361, {causal}), sizes, all_gradients, {true});
    }
  }
}

TEST_CASE("200 runs by turns are equal to the last bit", "[whole]") {
  const Sizes sizes = default_sizes(32, true);
  const Input in = input("normal", {1, 1, 1, 3, 260, 32}, 365);
  const BackwardResult first = backward(in.given, numbers_of(sizes, {true}));
  expect_written(first.dQ.values[0], "dQ");
  for (int run = 2; run <= 200; ++run)
    expect(same_bits(backward(in.given, numbers_of(sizes, {true})), first, true),
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
  for (const std::int64_t d : {64, 128}) {
    const Input in = input("normal", {1, 2, 2, 100, 150, d}, 375, {true});
    const BackwardResult one = expect_right(in, default_sizes(d), all_gradients, {.workers = 1});
    const BackwardResult two = expect_right(in, default_sizes(d), all_gradients, {.workers = 3, .lane_seed = 4});
    expect(same_bits(one, two, false), "dK or dV depends on the order of lanes or blocks", "a barrier is missing",
           "order-dependent");
  }
}

TEST_CASE("five products, and each operand is loaded for 32 rows", "[whole]") {
  expect_instructions();
}

TEST_CASE("shared memory holds no P where a warp is a team", "[whole]") {
  require_counters();
  for (const std::int64_t d : fitting_head_dims()) {
    for (const Sizes& sizes : all_sizes(d)) {
      const std::string where = fmt::format("d={}, {}", d, sizes.text());
      const Growth growth(d, sizes);
      const double must = instructions_of(d, sizes).stmatrix, got = growth.of("shared.matrix_stores");
      expect(got == must, fmt::format("stmatrix: {} a row block, and it has to be {} ({})", got, must, where),
             "P or dS is stored more often than others need it", "shared-traffic");
      const double stores = growth.of("shared.store_instructions");
      expect(stores == 0, fmt::format("{} ordinary stores to shared memory a row block ({})", stores, where),
             "P or dS goes through shared memory element by element", "shared-traffic");
    }
  }
}

TEST_CASE("no bank conflict", "[whole]") {
  require_counters();
  for (const std::int64_t d : fitting_head_dims()) {
    for (const Sizes& sizes : all_sizes(d)) {
      const Growth growth(d, sizes);
      for (const char* way : {"load", "store"}) {
        const double wavefronts = growth.of(fmt::format("shared.{}_wavefronts", way)),
                     ideal = growth.of(fmt::format("shared.{}_ideal", way));
        expect(wavefronts == ideal,
               fmt::format("the {}s of one row block take {} passes through the banks; {} would do (d={}, {})", way,
                           wavefronts, ideal, d, sizes.text()),
               "rows that are asked for together lie in the same banks", "swizzle-conflicts");
      }
    }
  }
}

TEST_CASE("each tensor is moved as often as it must be", "[whole]") {
  require_counters();
  for (const bool causal : {false, true}) {
    for (const auto& [Nq, Nk] : {std::pair{256, 256}, {100, 233}, {233, 100}}) {
      const Shape s{1, 1, 1, Nq, Nk, 64};
      const Sizes sizes = default_sizes(64);
      const worker::Reply reply = backward(input("normal", s, 380, {causal}).given, sizes.numbers()).reply;
      const BlockCount count = count_blocks(s, causal, sizes);
      const auto expect_bytes = [&](const std::string& name, double expected, const std::string& why) {
        expect_count(reply, name, expected,
                     fmt::format("{}, Nq={}, Nk={}, causal={}", why, Nq, Nk, causal ? "yes" : "no"),
                     "a tensor is moved more or less often than it must be", "traffic");
      };
      const double row = double(s.d * 2), queries = double(s.H * s.Nq), keys = double(s.H * s.Nk);
      for (const char* tensor : {"K", "V"})
        expect_bytes(fmt::format("{}.async_bytes", tensor), keys * row, fmt::format("{} is read once", tensor));
      for (const char* tensor : {"Q", "dO"})
        expect_bytes(fmt::format("{}.async_bytes", tensor), double(s.H * count.queries) * row,
                     fmt::format("{} is read by every column block that it sees", tensor));
      expect_bytes("dQ.store_bytes", queries * row, "dQ is written once");
      for (const char* tensor : {"dK", "dV"})
        expect_bytes(fmt::format("{}.store_bytes", tensor), keys * row, fmt::format("{} is written once", tensor));
      expect_bytes("dQ_sum.atomic_sectors", double(s.H * count.visited * sizes.Br * s.d) / 8,
                   "a row block's dQ is added to once for each column block");
    }
  }
}

TEST_CASE("every size of shared memory has its tiles", "[whole]") {
  // What a block may have on consumer GPUs, on an A100 and on an H100.
  for (const int limit : {99, 163, 227}) {
    for (const std::int64_t d : fitting_head_dims()) {
      const Input in = input("normal", {1, 1, 1, 70, 90, d}, 385);
      for (const bool in_turns : {false, true}) {
        Numbers numbers{{"shared_limit", limit * 1024}};
        if (in_turns) numbers["deterministic"] = 1;
        expect_gradients(backward(in.given, numbers), in.given,
                         fmt::format("{}, {} KB of shared memory{}", in.name, limit, in_turns ? ", by turns" : ""), {},
                         precision(), all_gradients);
      }
    }
  }
}

TEST_CASE("extra memory grows like N", "[whole]") {
  for (const std::int64_t N : {64, 128, 256}) {
    const Input in = input("normal", {1, 2, 2, N, N, 32}, 390);
    const BackwardResult got = backward(in.given);
    expect_written(got.dQ.values[0], "dQ");
    const std::int64_t expected = 2 * N * (8 + 32 * 4);
    expect(got.reply.extra_bytes == expected,
           fmt::format("at N = {} the kernels allocate {} bytes of device memory beside their inputs and outputs, "
                       "expected {}: 8 for each query, and 4 for each element of dQ",
                       N, got.reply.extra_bytes, expected),
           "P, S or dS is stored in device memory", "extra-memory");
  }
}
