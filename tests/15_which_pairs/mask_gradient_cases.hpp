// Gradients under the masks of the tests of chapter 15: inputs, what a call has to go through, the gradient of the
// sinks, and packed sequences. For the tests of the chapters that have them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <numeric>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tests/15_which_pairs/mask_cases.hpp"
#include "tests/support/backward_properties.hpp"

namespace workbook::test::gradients {

// ---- Inputs, and what a call has to go through ----

inline Input of_problem(const Problem& problem, const std::string& name, std::uint64_t seed,
                        Element element = float16) {
  Tensor<float> dO(problem.Q.sizes);
  dO.values = normal_values(dO.values.size(), seed + 1000);
  return {worker::backward_problem(problem, dO, element), name};
}
inline Input masked(const std::string& kind, const Shape& shape, std::uint64_t seed, const Mask& mask,
                    Element element = float16) {
  Input in =
      of_problem(make_input(kind, {shape, mask, 0, seed}), fmt::format("{}, seed {}", kind, seed), seed, element);
  in.kind = kind;
  return in;
}
inline Input with_scale(const std::string& kind, const Shape& shape, std::uint64_t seed, const Mask& mask,
                        float scale) {
  Problem problem = make_input(kind, {shape, mask, 0, seed});
  problem.scale = scale;
  return of_problem(problem, fmt::format("{}, seed {}, scale {}", kind, seed, scale), seed);
}
/// The heads of Q of a group apart: head h has (1 + h % G)/2 times its Q, so that their scores, LSE and D differ by
/// far.
inline Input heads_apart(const std::string& kind, const Shape& s, std::uint64_t seed, const Mask& mask,
                         Element element) {
  Problem problem = make_input(kind, {s, mask, 0, seed});
  for (std::size_t at = 0; at < problem.Q.values.size(); ++at)
    problem.Q.values[at] *= float(1 + std::int64_t(at) / (s.Nq * s.d) % (s.H / s.Hkv)) / 2;
  return of_problem(problem, fmt::format("{}, seed {}, heads of a group apart", kind, seed), seed, element);
}

/// Pairs of a Q tile and a K/V tile that have a pair that counts, of one head; those that need a mask; and the
/// rows of Q of the former. Counted pair by pair.
inline BlockCount count_blocks(const Mask& mask, const Shape& shape, const Sizes& sizes) {
  BlockCount count;
  if (!mask.lengths.empty()) {
    Mask alone = mask;
    alone.lengths.clear();
    for (const std::int64_t length : mask.lengths) {
      Shape one = shape;
      one.Nq = one.Nk = length;
      const BlockCount more = count_blocks(alone, one, sizes);
      count.visited += more.visited, count.masked += more.masked, count.queries += more.queries;
    }
    return count;
  }
  const std::int64_t kv_tiles = tiles_of(shape.Nk, sizes.Bc);
  for (std::int64_t first = 0; first < shape.Nq; first += sizes.Br) {
    const std::int64_t queries = std::min(shape.Nq - first, sizes.Br);
    std::vector<std::int64_t> pairs(std::size_t(kv_tiles), 0);
    for (std::int64_t i = first; i < first + queries; ++i)
      mask.for_keys(shape, i, [&](std::int64_t key) { ++pairs[std::size_t(key / sizes.Bc)]; });
    for (const std::int64_t seen : pairs) {
      count.visited += seen > 0, count.queries += seen > 0 ? queries : 0;
      count.masked += seen > 0 && seen < queries * sizes.Bc;
    }
  }
  return count;
}

// ---- The gradient of the sinks ----

inline void expect_dsink(const Input& in) {
  const auto& [problem, dO, saved] = in.given;
  const Sizes sizes = small_sizes(problem.shape.d);
  const BackwardResult got = backward(in.given, sizes.numbers());
  const Gradients oracle = backward_oracle(problem, dO, saved);
  judge::Layout layout;
  layout.tensor = "dsink";
  layout.axes[0] = layout.axes[2] = layout.axes[3] = "";
  expect_close(got.dsink, {oracle.dsink, gradient_bounds(oracle, problem, dO, saved, precision()).dsink, layout,
                           describe(problem, in.name)});
}

// ---- Packed sequences ----

/// Rows [first, first + length) of every tensor, as a call of its own.
inline BackwardProblem cut(const BackwardProblem& given, std::int64_t first, std::int64_t length) {
  BackwardProblem part = given;
  part.problem.mask.lengths.clear();
  part.problem.shape.Nq = part.problem.shape.Nk = length;
  const auto take = [&](auto& tensor) {
    auto whole = tensor;
    tensor = std::remove_reference_t<decltype(tensor)>({whole.sizes[0], whole.sizes[1], length, whole.sizes[3]});
    for (std::int64_t h = 0; h < whole.sizes[1]; ++h)
      std::copy_n(whole.values.begin() + std::ptrdiff_t(whole.index(0, h, first, 0)), length * whole.sizes[3],
                  tensor.values.begin() + std::ptrdiff_t(tensor.index(0, h, 0, 0)));
  };
  take(part.problem.Q), take(part.problem.K), take(part.problem.V), take(part.dO);
  take(part.saved.O), take(part.saved.lse);
  return part;
}
/// Row i of `a` and row first + i of `b` are the same in every head.
inline bool same_rows(const Tensor<float>& a, const Tensor<float>& b, std::int64_t first) {
  for (std::int64_t h = 0; h < a.sizes[1]; ++h)
    if (!std::equal(&a(0, h, 0, 0), &a(0, h, 0, 0) + a.sizes[2] * a.sizes[3], &b(0, h, first, 0))) return false;
  return true;
}

/// In deterministic mode, with the stage's default sizes.
inline void expect_sequences_as_alone(std::int64_t d,
                                      const std::vector<std::int64_t>& lengths = {50, 0, 1, 33, 64, 0}) {
  const std::int64_t rows = std::accumulate(lengths.begin(), lengths.end(), std::int64_t(0));
  for (const Mask& mask : {Mask(Mask::none), changed(Mask::within(20, 3), 4, true)}) {
    const Sizes sizes = usual_sizes(d, deterministic_mode);
    const Input in = masked("normal", {1, 2, 2, rows, rows, d}, 400, packed(mask, lengths));
    const BackwardResult together = expect_right(in, all_gradients, sizes);
    std::int64_t first = 0;
    for (const std::int64_t length : lengths) {
      if (length > 0) {
        const BackwardResult alone = backward(cut(in.given, first, length), sizes.numbers());
        expect(same_rows(alone.dQ, together.dQ, first) && same_rows(alone.dK, together.dK, first) &&
                   same_rows(alone.dV, together.dV, first),
               fmt::format("a gradient of the sequence of {} rows from row {} on differs from that of a call with this "
                           "sequence alone, mask {}",
                           length, first, mask.name()),
               "your result for a packed sequence depends on the other sequences; it must not", "sequences-mixed");
      }
      first += length;
    }
  }
}

/// Of three sequences the first and the last become NaN: the gradients of the second stay what they were.
inline void expect_independent_sequences() {
  for (const std::int64_t d : head_dims()) {
    const Numbers numbers =
        (d == 128 ? small_sizes(d, deterministic_mode) : usual_sizes(d, deterministic_mode)).numbers();
    const Mask mask = packed(changed(Mask::causal, 5, false), {50, 33, 37});
    const BackwardProblem given = masked("normal", {1, 2, 2, 120, 120, d}, 410, mask).given;
    const BackwardResult before = backward(given, numbers);
    BackwardProblem poisoned = given;
    const auto poison = [&](auto& tensor) {
      for (std::size_t at = 0; at < tensor.values.size(); ++at)
        if (const auto row = std::int64_t(at) / tensor.sizes[3] % 120; row < 50 || row >= 83)
          tensor.values[at] = std::numeric_limits<float>::quiet_NaN();
    };
    poison(poisoned.problem.Q), poison(poisoned.problem.K), poison(poisoned.problem.V);
    poison(poisoned.dO), poison(poisoned.saved.O), poison(poisoned.saved.lse);
    const BackwardResult after = backward(poisoned, numbers);
    for (const auto& [name, was, is] :
         {std::tuple{"dQ", &before.dQ, &after.dQ}, {"dK", &before.dK, &after.dK}, {"dV", &before.dV, &after.dV}})
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t i = 50; i < 83; ++i)
          for (std::int64_t c = 0; c < d; ++c)
            expect((*is)(0, h, i, c) == (*was)(0, h, i, c),
                   fmt::format("{} of row {} (in the second of three sequences), column {}, is {}, but {} if the other "
                               "two sequences are NaN (d={})",
                               name, i, c, (*was)(0, h, i, c), (*is)(0, h, i, c), d),
                   "your result for a packed sequence depends on the other sequences; it must not", "sequences-mixed");
  }
}

}  // namespace workbook::test::gradients
