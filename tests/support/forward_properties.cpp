#include "tests/support/forward_properties.hpp"

#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "common/attention/half.hpp"
#include "common/attention/inputs.hpp"
#include "common/worker/description.hpp"
#include "tests/support/context.hpp"
#include "tests/support/ragged.hpp"

namespace workbook::test {
namespace {

constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

bool last_mask() {
  return masks().back();
}
/// The stage's head dimensions, one after another.
std::int64_t head_dim(std::uint64_t number) {
  const std::vector<std::int64_t> all = head_dims();
  return all[number % all.size()];
}

}  // namespace

// ---- Right, on any input ----

void expect_every_kind(std::optional<Element> element) {
  std::uint64_t seed = 100;
  for (const InputKind& kind : input_kinds()) {
    for (const bool causal : masks()) {
      for (const std::int64_t d : head_dims()) {
        const std::int64_t heads = d == 64 ? 2 : 1;
        ++seed;
        expect_right(input(kind.name, {1, heads, heads, 70, 133, d}, seed, causal),
                     seed % 2 == 0 ? usual_tiles(d) : small_tiles(d), element);
        if (d == 64) expect_right(input(kind.name, {2, 1, 1, 90, 64, d}, seed, causal), small_tiles(d), element);
      }
    }
  }
  expect_every_kind_in_this_part();
}

void expect_every_kind_in_this_part(const Numbers& variant) {
  std::uint64_t seed = 1000;
  constexpr std::int64_t d = 64;  // one kernel: each that a test asks for is compiled for every wrong answer
  const auto expect_one = [&](const Input& given) { expect_right(given, small_tiles(d, variant)); };
  for (const InputKind& kind : input_kinds())
    for (const bool causal : masks()) expect_one(input(kind.name, {1, 1, 1, 40, 70, d}, ++seed, causal));
  for (const float scale : {-0.2f, 0.0f}) expect_one(with_scale(input("normal", {1, 1, 1, 40, 70, d}, ++seed), scale));
  if (last_mask()) expect_one(input("value mean", {1, 1, 1, 70, 40, d}, ++seed, true));
}

void expect_element(Element element) {
  for (const bool causal : masks()) {
    for (const std::int64_t d : head_dims()) {
      expect_right(input("normal", {1, 2, 2, 70, 133, d}, 130, causal), {}, element);
      expect_right(input("rising maximum", {1, 1, 1, 133, 70, d}, 131, causal), small_tiles(d), element);
    }
    expect_right(input("large logits", {1, 1, 1, 64, 128, 64}, 132, causal), {}, element);
    expect_right(input("one hot", {1, 1, 1, 40, 140, 64}, 133, causal), small_tiles(64), element);
  }
}

void expect_any_two_lengths() {
  const std::int64_t most = context().backend == Backend::cuda ? kAnyProduct : 65 * 1023 * 64;
  const std::vector<std::optional<Element>> all_elements = elements();
  for_ragged(17, most, [&](const Shape& shape, bool causal, std::uint64_t number) {
    if (std::ranges::count(masks(), causal) == 0 || std::ranges::count(head_dims(), shape.d) == 0) return;
    const Input given = input("normal", shape, 140 + number, causal);
    const std::uint64_t pair = number / 6;
    expect_right(given, pair % 4 == 0 ? usual_tiles(shape.d) : small_tiles(shape.d),
                 all_elements[pair % all_elements.size()]);
  });
}

void expect_ragged_tails() {
  for (const auto& [Nq, Nk] : {std::pair{1, 1}, {1, 33}, {33, 1}, {65, 95}, {31, 97}, {70, 133}}) {
    for (const std::int64_t d : head_dims()) {
      const std::int64_t heads = d == 64 ? 2 : 1;
      for (const bool causal : masks()) {
        expect_right(input("late spike", {1, heads, heads, Nq, Nk, d}, 70, causal), d == 64 ? small_tiles(d) : Tiles{});
      }
    }
  }
}

void expect_tiles_do_not_matter() {
  for (const std::int64_t d : head_dims()) {
    for (const Tiles& tiles : all_tiles(d)) {
      for (const char* kind : {"rising maximum", "large logits"}) {
        expect_right(input(kind, {1, 2, 2, 70, 133, d}, 150), tiles);
        if (last_mask()) expect_right(input(kind, {1, 1, 1, 140, 90, d}, 151, true), tiles);
      }
    }
  }
}

void expect_tiles_for_every_size(int least_KiB) {
  std::vector<Numbers> all{{}};
  for (const worker::StageDescription& each : stage_of("forward").variants)
    all.push_back({{each.number, double(each.value)}});
  for (const int KiB : {64, 99, 163, 227}) {  // a T4's, those of RTX cards, an A100's, an H100's
    if (KiB < least_KiB) continue;
    for (const Numbers& variant : all) {
      for (const std::int64_t d : head_dims()) {
        Numbers numbers = variant;
        numbers["shared_limit"] = double(KiB * 1024);
        const Input given = input("normal", {1, 1, 1, 140, 100, d}, 158, last_mask());
        std::string name = fmt::format("{}, {} KiB of shared memory", given.name, KiB);
        for (const auto& [number, value] : variant) name += fmt::format(", {} {}", number, value);
        expect_attention(given.problem, name, numbers);
      }
    }
  }
}

void expect_agrees_with_previous() {
  for (const std::int64_t d : {64, 128})
    for (const char* kind : {"normal", "rising maximum", "value mean"})
      expect_same_as_previous(input(kind, {1, 2, 2, 100, 140, d}, 100));
  expect_same_as_previous(input("rising maximum", {1, 2, 2, 140, 33, 64}, 44));
}

void expect_any_scale() {
  for (const float scale : {0.3f, 0.05f, 0.0f, -0.05f, -0.3f}) {
    for (const bool causal : masks()) {
      for (const std::int64_t Nk : {64, 70, 100, 200}) {
        const Input scaled = with_scale(input("normal", {1, 1, 1, 40, Nk, 64}, 60, causal), scale);
        const Tiles tiles = nearest_tiles(64, {64, 64});
        if (scale <= 0 && Nk % tiles.Bc != 0) {
          const std::vector<float> O = attention(scaled, tiles).O.values;
          expect(
              !std::ranges::all_of(O, [](float x) { return std::isnan(x); }),
              fmt::format(
                  "with Nk={} and a scale of {}, every element of O is NaN; with Nk=64 or a positive scale, none was",
                  Nk, scale),
              "your code multiplies the −∞ of keys beyond Nk by the scale, which gives NaN for a scale of 0 and +∞ for "
              "a negative one; it must mask the score after scaling",
              "mask-scaled");
        }
        expect_right(scaled, tiles);
      }
    }
  }
}

void expect_rows_without_keys() {
  for (const auto& [Nq, Nk] : {std::pair{100, 30}, {40, 39}, {200, 129}, {239, 1}}) {
    for (const std::int64_t d : head_dims()) {
      const AttentionResult result = expect_right(input("value mean", {1, 1, 1, Nq, Nk, d}, 40, true));
      for (std::int64_t i = 0; i < Nq - Nk; ++i) {
        expect(result.lse(0, 0, i, 0) == -std::numeric_limits<float>::infinity() && result.O(0, 0, i, 0) == 0,
               fmt::format("query {} attends to no key, and has O = {} and LSE = {}: they must be 0 and -inf", i,
                           result.O(0, 0, i, 0), result.lse(0, 0, i, 0)),
               "", "row-without-keys");
      }
    }
  }
}

void expect_every_head() {
  // With one query and one key P is 1 and O is V, exactly.
  const std::int64_t heads = 65600, d = 32;
  Problem problem = input("uniform", {heads, 1, 1, 1, 1, d}, 1, last_mask()).problem;
  for (std::size_t at = 0; at < problem.V.values.size(); ++at) problem.V.values[at] = float(at / d % 2039);
  expect_many_heads(heads, small_tiles(d).numbers(), [&](const Numbers& numbers) {
    const AttentionResult result = attention(problem, numbers);
    return [=, got = result.O.values, wanted = problem.V.values](std::int64_t head) {
      const auto at = std::size_t(head * d);
      if (got[at] == wanted[at]) return std::string();
      return fmt::format("with B·H = {} and one key, O of head {} is {}, expected {}, the value of that key", heads,
                         head, got[at], wanted[at]);
    };
  });
}

void expect_offsets_beyond_32_bits() {
  const std::int64_t d = head_dims().back();
  const Shape shape{1, 16, 16, 70, 90, d};
  for (const bool causal : masks()) {
    Numbers numbers = small_tiles(d).numbers();
    numbers["skipped_batches"] = batches_beyond_32_bits(shape.H * shape.Nq * d);
    expect_attention(input("normal", shape, 3, causal).problem, "normal, after 2^32 elements of other heads", numbers);
  }
}

// ---- Right, in each of its parts ----

void expect_every_column(std::int64_t width) {
  for (const std::int64_t d : head_dims()) {
    for (std::int64_t first = 0; first < d; first += width)
      expect_right(with_columns(input("normal", {1, 1, 1, 32, 64, d}, 20), first, width), small_tiles(d));
  }
  for (const Tiles& tiles : all_tiles(64)) expect_right(input("one hot", {1, 1, 1, 64, 192, 64}, 41), tiles);
}

void expect_every_value() {
  for (const std::int64_t d : head_dims()) {
    for (std::int64_t first = 0; first < 128; first += 16)
      expect_right(with_values_of(input("normal", {1, 1, 1, 64, 128, d}, 50), first, 16), {64, 64});
  }
  for (const Tiles& tiles : all_tiles(64)) expect_right(input("one hot", {1, 1, 1, 40, 140, 64}, 51), tiles);
}

void expect_row_maxima() {
  for (const std::int64_t d : {64, 128}) {
    Input apart = input("normal", {1, 1, 1, 64, 100, d}, 54);
    add_to_scores(
        apart, [](std::int64_t i) { return 7 * (i % 32 - 16); }, [](std::int64_t) { return 1; });
    apart.name += ", scores of row i about 7·(i % 32 − 16)";
    expect_right(apart, {64, 64});
  }
}

void expect_rising_maximum() {
  for (const bool causal : masks()) {
    for (const std::int64_t d : {64, 128}) expect_right(input("rising maximum", {1, 1, 1, 64, 200, d}, 51, causal));
    expect_right(input("rising maximum", {1, 1, 1, 64, 128, 64}, 50, causal), small_tiles(64));
    expect_right(input("falling maximum", {1, 1, 1, 64, 200, 64}, 53, causal));
  }
}

void expect_finite() {
  expect_right(with_zeros(input("large logits", {1, 1, 1, 64, 128, 64}, 55)));
  expect_right(input("large logits", {1, 1, 1, 64, 128, 64}, 55));
  expect_right(input("large logits", {1, 1, 1, 64, 90, 128}, 56), small_tiles(128));
  expect_right(input("negative logits", {1, 1, 1, 64, 70, 64}, 59), small_tiles(64));
  if (last_mask()) expect_right(input("large logits", {1, 1, 1, 100, 130, 64}, 28, true));
  // A maximum that follows each tile down would rescale by more than a float holds, in every second row.
  Input falling = input("normal", {1, 1, 1, 40, 200, 64}, 57);
  add_to_scores(
      falling, [](std::int64_t i) { return i % 2 == 0 ? 0 : 10; }, [](std::int64_t j) { return j == 3 ? 0 : -15; });
  falling.name += ", scores of every second row about -150 but for key 3";
  expect_right(falling);
}

void expect_precise_P() {
  // P rounded to bfloat16 is off by more than the bounds in the root mean square. With three keys an l that is summed
  // from the rounded P is off in the LSE.
  expect_right(input("normal", {1, 1, 1, 64, 512, 64}, 61), {64, 64});
  expect_right(input("value mean", {1, 1, 1, 64, 512, 64}, 62), {64, 64});
  expect_right(input("normal", {1, 1, 1, 64, 3, head_dim(0)}, 63), {64, 64});
}

void expect_precise_sums() {
  // An O rounded to fp16 in each tile is off by more than the bounds in the root mean square.
  expect_right(input("value mean", {1, 1, 1, 32, 2048, 64}, 82), small_tiles(64));
}

void expect_divided_once() {
  // Without the division O is l, divided twice it is 1 / l.
  for (const std::int64_t d : head_dims()) {
    expect_right(with_V_of_ones(input("normal", {1, 1, 1, 40, 90, d}, 92)), {64, 64});
    expect_right(with_rows_apart(input("value mean", {1, 1, 1, 64, 90, d}, 93)), {64, 64});
  }
}

void expect_lse_over_all_keys() {
  for (const char* kind : {"normal", "large logits", "negative logits", "uniform"}) {
    expect_lse(input(kind, {1, 2, 2, 70, 133, 64}, 90));
    expect_lse(input(kind, {1, 1, 1, 33, 20, head_dim(0)}, 91), small_tiles(head_dim(0)));
  }
}

void expect_every_element_written() {
  for (const auto& [Nq, Nk] : {std::pair{1, 3}, {63, 65}, {70, 40}, {129, 64}}) {
    for (const Tiles& tiles : {Tiles{}, small_tiles(64)})
      expect_right(input("value mean", {2, 2, 2, Nq, Nk, 64}, 94), tiles);
    expect_right(input("value mean", {1, 2, 2, Nq, Nk, 128}, 95), {64, 64});
  }
}

void expect_no_race() {
  for (const std::int64_t d : head_dims())
    for (const int lane_seed : {0, 1, 2})
      expect_right(input("rising maximum", {1, 1, 1, 70, 150, d}, 83), {64, 64}, {}, lane_seed);
}

// ---- Independent of what is none of its business ----

void expect_rows_independent(std::int64_t block) {
  const std::int64_t Nq = block == 1 ? 130 : 2 * block + 44, d = 64;
  const Input given = input("rising maximum", {1, 1, 1, Nq, 100, d}, 104);
  const AttentionResult before = attention(given, Tiles{});
  expect_written(before.O.values[0], "O");
  for (const std::int64_t row : {std::int64_t{0}, std::int64_t{17}, std::int64_t{47}, Nq - 1, block}) {
    for (const float factor : {-3.0f, nan_value}) {
      Input others = given;
      for (std::int64_t i = 0; i < Nq; ++i)
        for (std::int64_t c = 0; c < d; ++c) others.problem.Q(0, 0, i, c) *= i / block == row / block ? 1 : factor;
      const AttentionResult after = attention(others, Tiles{});
      for (std::int64_t i = row / block * block; i < std::min(Nq, row / block * block + block); ++i) {
        for (std::int64_t c = 0; c < d; ++c) {
          const float is = after.O(0, 0, i, c), was = before.O(0, 0, i, c);
          expect(is == was,
                 fmt::format("O of row {}, column {} is {} when the other rows of Q are multiplied by {}, and was {}",
                             i, c, is, factor, was),
                 "your code mixes rows: a maximum, a sum, a scale factor or an O of one query reaches another; each "
                 "row's state must be its own and start anew in each Q tile",
                 "rows-mixed");
        }
      }
    }
  }
}

namespace {

/// The result of a problem of one head, with `padding_rows` rows of `padding` after the last row of Q, K and V.
AttentionResult attention_padded(const Problem& problem, std::int64_t padding_rows, float padding) {
  const auto padded = [&](const Tensor<float>& tensor) {
    std::vector<std::uint16_t> codes = to_codes(tensor.values, float16);
    codes.resize(codes.size() + std::size_t(padding_rows * problem.shape.d), float_to_half(padding));
    return codes;
  };
  EncodedProblem given = encoded(problem, float16);
  given.codes = {padded(problem.Q), padded(problem.K), padded(problem.V)};
  return worker::forward(given, usual_tiles(problem.shape.d).numbers(), call);
}

}  // namespace

void expect_nothing_past_the_end() {
  constexpr std::int64_t padding_rows = 128;
  for (const auto& [Nq, Nk] : {std::pair{5, 70}, {70, 5}}) {
    const Problem problem = input("value mean", {1, 1, 1, Nq, Nk, 64}, 4).problem;
    const auto d = std::size_t(problem.shape.d);
    const AttentionResult zeros = attention_padded(problem, padding_rows, 0);
    // With zero padding, missing rows are zeros. If the result is wrong nevertheless, the cause is not the padding.
    const bool rows_exist = !is_right(problem, zeros);
    const char* const cause = rows_exist ? ""
                                         : "your code loads memory after the tensor into rows of the tile beyond Nq or "
                                           "Nk; they must be zeros, because 0 · NaN = NaN";
    const char* const id = rows_exist ? "unknown" : "tail-not-zeroed";
    for (const float padding : {1000.0f, nan_value}) {
      const AttentionResult other = attention_padded(problem, padding_rows, padding);
      for (std::size_t at = 0; at < zeros.O.values.size(); ++at) {
        const float is = other.O.values[at], was = zeros.O.values[at];
        expect(is == was || (std::isnan(is) && std::isnan(was)),
               fmt::format("with Nq={}, Nk={}, row {}, column {} of O is {} when the memory after the last row of Q, K "
                           "and V holds zeros, and {} when it holds {}",
                           Nq, Nk, at / d, at % d, was, is, padding),
               cause, id);
      }
      expect(other.lse.values == zeros.lse.values, "the LSE depends on the memory after the last row of Q, K and V",
             cause, id);
    }
  }
}

void expect_no_future() {
  for (const std::int64_t d : head_dims()) {
    const Tiles tiles = usual_tiles(d);
    for (const std::int64_t query : {0, 77, 128})
      expect_no_influence_from_the_future(input("value mean", {1, 1, 1, 160, 200, d}, 47, true).problem, query,
                                          tiles.numbers());
    const Input given = input("value mean", {1, 1, 1, 256, 300, d}, 48, true);
    const Shape& s = given.problem.shape;
    const AttentionResult before = attention(given, tiles);
    const std::int64_t first = visited_tiles(given.problem, tiles, 0) * tiles.Bc, last_query = tiles.Br - 1;
    if (first >= s.Nk) continue;
    Input changed = given;
    for (Tensor<float>* tensor : {&changed.problem.K, &changed.problem.V})
      std::fill(tensor->values.begin() + first * d, tensor->values.end(), nan_value);
    const AttentionResult after = attention(changed, tiles);
    for (std::int64_t i = 0; i <= last_query; ++i)
      for (std::int64_t c = 0; c < d; ++c)
        expect(after.O(0, 0, i, c) == before.O(0, 0, i, c) && after.lse(0, 0, i, 0) == before.lse(0, 0, i, 0),
               fmt::format("column {} of O of query {} was {} and became {} when the keys that the first Q tile does "
                           "not attend to, from key {} on, became NaN ({})",
                           c, i, before.O(0, 0, i, c), after.O(0, 0, i, c), first, text(given.problem, tiles)),
               "your code computes a K/V tile that no query of the Q tile attends to, where P = 0 and 0 · NaN = NaN; "
               "the loop must end before that tile",
               "future-tile-used");
  }
}

void expect_order_changes_nothing() {
  const Problem problem = input("rising maximum", {1, 3, 3, 70, 100, 64}, 105, last_mask()).problem;
  const AttentionResult first = attention(problem);
  expect_written(first.O.values[0], "O");
  for (const auto& [workers, lane_seed] : {std::pair{1, 0}, {3, 0}, {0, 1}, {2, 2}, {1, 3}}) {
    Numbers with = usual_tiles(64).numbers();
    with["workers"] = workers;
    with["lane_seed"] = lane_seed;
    const AttentionResult other = attention(problem, with);
    const std::string how = fmt::format("with {} workers and lanes in the order of seed {}", workers, lane_seed);
    expect(other.O.values == first.O.values && other.lse.values == first.lse.values,
           how + " O or the LSE is another, bit for bit",
           "your code lets two threads write one element, or add to it in no fixed order; each element must have one "
           "writer and one order of additions",
           "order-dependent");
    expect(other.reply.counters == first.reply.counters, how + " the counters are others",
           "the addresses that a thread of your code accesses depend on when it runs; they must depend on the input "
           "and the thread's indices alone",
           "order-dependent");
  }
}

void expect_repeatable(int runs, bool in_other_orders) {
  const Problem problem = in_other_orders ? input("rising maximum", {1, 1, 1, 140, 150, 64}, 158).problem
                                          : input("rising maximum", {1, 1, 1, 40, 70, 64}, 106, last_mask()).problem;
  Numbers numbers = small_tiles(64).numbers();
  const AttentionResult first = attention(problem, numbers);
  expect_written(first.O.values[0], "O");
  for (int run = 1; run < runs; ++run) {
    if (in_other_orders) numbers["lane_seed"] = run;
    const AttentionResult again = attention(problem, numbers);
    expect(again.O.values == first.O.values && again.lse.values == first.lse.values,
           in_other_orders ? fmt::format("O or the LSE in the order of seed {} is not that of the natural order", run)
                           : fmt::format("O or the LSE of run {} is not that of the first", run + 1),
           "your code reads memory before or while it is written; the read must wait for the write",
           in_other_orders ? "order-dependent" : "not-repeatable");
  }
}

// ---- And it costs what it must ----

namespace {

void expect_moved(const Moves& moves, const Input& given, const Tiles& tiles) {
  const Problem& problem = given.problem;
  const Shape& s = problem.shape;
  const worker::Reply reply = expect_attention(problem, given.name, tiles.numbers()).reply;
  const double row = double(s.d) * 2, heads = double(s.B * s.H);
  const std::string how = text(problem, tiles);
  const auto expect_bytes = [&](const std::string& name, double bytes, const std::string& why) {
    expect_count(reply, name + "_bytes", bytes, fmt::format("{}, {}", why, how),
                 "your code moves the tensor more or less often than needed; the message names the expected number",
                 "traffic");
    if (name.find("bulk") == std::string::npos)  // 32 bytes a sector
      expect_count(reply, name + "_sectors", bytes / 32, fmt::format("{}, {}", why, how),
                   "your code moves the tensor more or less often than needed; the message names the expected number",
                   "traffic");
  };
  if (std::string_view(moves.in) != "bulk_load")
    expect_matmuls(counter(reply, "tensor_instructions"), s, problem.causal(), 2, fmt::format("S and O, {}", how));
  const double keys = double(over_q_tiles(s, tiles, [&](std::int64_t t) {
    const std::int64_t taken = std::max(moves.least_tiles, visited_tiles(problem, tiles, t)) * tiles.Bc;
    return moves.whole_tiles ? taken : std::min(taken, s.Nk);
  }));
  const std::int64_t part = moves.query_part > 0 ? moves.query_part : tiles.Br;
  const double queries =
      moves.whole_tiles ? double(over_q_tiles(s, tiles,
                                              [&](std::int64_t t) {
                                                return tiles_of(std::min(tiles.Br, s.Nq - t * tiles.Br), part) * part;
                                              }))
                        : heads * double(s.Nq);
  const std::string in = moves.in;
  expect_bytes("Q." + in, queries * row, "Q is read once");
  for (const std::string tensor : {"K", "V"})
    expect_bytes(
        fmt::format("{}.{}", tensor, in), keys * row,
        fmt::format("{} is read once for each of ⌈Nq/Br⌉ = {} Q tiles, up to the last tile with an unmasked pair",
                    tensor, tiles_of(s.Nq, tiles.Br)));
  const double O = heads * double(s.Nq) * row, lse = heads * double(s.Nq) * 4;
  const bool stored = std::string_view(moves.out) == "store";
  expect_bytes(fmt::format("O.{}", moves.out), O, "O is written once");
  expect_count(reply, "lse.store_bytes", lse, "the LSE is written once, " + how,
               "your code moves the tensor more or less often than needed; the message names the expected number",
               "traffic");
  for (const std::string way : {"load", "async"})
    expect_bytes("global." + way, way == in ? (queries + 2 * keys) * row : 0, "nothing else is read");
  expect_count(reply, "global.store_bytes", (stored ? O : 0) + lse, "nothing else is written, " + how,
               "your code moves the tensor more or less often than needed; the message names the expected number",
               "traffic");
}

}  // namespace

void expect_moves(const Moves& moves) {
  require_counters();
  for (const bool causal : masks()) {
    for (const auto& [Nq, Nk] : {std::pair{200, 150}, {256, 256}, {200, 333}, {333, 200}})
      for (const Tiles& tiles : all_tiles(64))
        expect_moved(moves, input("normal", {1, 2, 2, Nq, Nk, 64}, 107, causal), tiles);
    for (const std::int64_t d : head_dims())
      for (const auto& [Nq, Nk] : {std::pair{1, 300}, {300, 1}, {150, 130}})
        expect_moved(moves, input("normal", {1, 2, 2, Nq, Nk, d}, 108, causal), usual_tiles(d));
  }
}

void expect_wide_tiles(const std::string& way) {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    const std::int64_t Nq = 256, Nk = 192, q_tiles = tiles_of(Nq, usual_tiles(d).Br);
    const worker::Reply reply = expect_right(input("normal", {1, 1, 1, Nq, Nk, d}, 5), usual_tiles(d)).reply;
    for (const char* tensor : {"Q", "K", "V"}) {
      if (way != "async") continue;
      expect_count(
          reply, fmt::format("{}.load_bytes", tensor), 0,
          fmt::format("{} goes from device to shared memory by cp.async, not through registers, d={}", tensor, d),
          "your code reads a tile with ordinary loads; it must use asynchronous copies", "not-asynchronous");
    }
    expect_wide(reply, "Q", way, double(Nq * d * 2), fmt::format("Q is read once, d={}", d));
    for (const char* tensor : {"K", "V"}) {
      expect_wide(reply, tensor, way, double(q_tiles * Nk * d * 2),
                  fmt::format("{} is read for each of {} query tiles, d={}", tensor, q_tiles, d));
    }
  }
}

void expect_matmuls_beside_copies(std::int64_t d, double alone) {
  require_counters();
  for (const Tiles& tiles : all_tiles(d)) {
    const std::int64_t kv_tiles = 4;
    const Input given = input("normal", {1, 1, 1, tiles.Br, kv_tiles * tiles.Bc, d}, 5);
    const worker::Reply reply = expect_attention(given.problem, given.name, tiles.numbers()).reply;
    expect_beside_copies(counter(reply, "multiply_calls"), counter(reply, "multiplies_beside_copies"),
                         alone / double(kv_tiles),
                         fmt::format("all but {} of the last of {} K/V tiles, d={}, {}",
                                     alone == 1 ? "those" : "O += P V", kv_tiles, d, tiles.text()));
  }
}

void expect_wide_O() {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    const AttentionResult result = expect_right(input("normal", {1, 2, 2, 128, 64, d}, 96), Tiles{});
    expect_wide(result.reply, "O", "store", double(2 * 128 * d * 2), fmt::format("O is written once, d={}", d));
  }
}

void expect_early_release(const worker::Reply& reply, const std::string& how) {
  expect_count(reply, "shuffles_before_arrival", 0,
               "shuffles of warps between their last read of a tile and their arrival at its barrier, " + how,
               "your code releases a stage too late, after the softmax; a warp must release it right after its last "
               "read, so that the producer can fill it again",
               "stage-kept");
}

void expect_issue_windows(const worker::Reply& reply, double last, const std::string& how) {
  expect_count(reply, "wgmma_after_window", last,
               "wgmma instructions, one per warp, that consumers issue outside their issue window: only those of the "
               "last O += P V, " +
                   how,
               "your code issues wgmmas of its issue window after the window has ended, among those of the other "
               "consumer; all of them must be issued before it signals the other consumer",
               "issue-windows");
  expect_count(reply, "wgmma_waits_in_window", 0, "waits for a wgmma within an issue window, " + how,
               "your code waits for a wgmma before it ends its issue window; it must signal the other consumer as soon "
               "as the wgmmas are issued",
               "issue-windows");
}

void expect_no_extra_memory(const std::string& stored, std::int64_t needed) {
  for (const std::int64_t N : {64, 256}) {
    const AttentionResult result = expect_right(input("normal", {1, 1, 1, N, N, 64}, 110, last_mask()), Tiles{});
    expect(
        result.reply.extra_bytes == needed,
        fmt::format("at N = {} the stage allocated {} bytes of device memory in addition to Q, K, V, O and the LSE; it "
                    "needs {}",
                    N, result.reply.extra_bytes, needed == 0 ? "none" : fmt::format("{}", needed)),
        "your code stores " + stored + " in device memory; it must stay on chip", "extra-memory");
  }
}

}  // namespace workbook::test
