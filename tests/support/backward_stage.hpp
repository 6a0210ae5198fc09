// A backward stage in a chapter's tests: the sizes that it says it has on this device, inputs for it, calls of it
// against the oracle, and what a call has to go through. What every such stage has to be: backward_properties.hpp.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/subject.hpp"

namespace workbook::test::gradients {

// ---- What the stage says of itself ----

/// Rows of a K/V tile and of a Q tile, and warps of a thread block. As a request: 0 means the stage's default
/// sizes.
struct Sizes {
  std::int64_t Bc = 0, Br = 0, warps = 0;
  Numbers variant = {};  ///< the number that asks for other kernels of the chapter: {{"deterministic", 1}}

  Numbers numbers() const;
  std::string text() const;
  GradientTiles tiles() const { return {Bc, Br}; }
};
/// Those that the stage has for d, and room for on this device; the first are those that it takes by itself.
std::vector<Sizes> all_sizes(std::int64_t d, const Numbers& variant = {});
/// Those that it takes by itself, and the smallest. Where there are none, the test is skipped: the device has no room
/// for any.
Sizes usual_sizes(std::int64_t d, const Numbers& variant = {});
Sizes small_sizes(std::int64_t d, const Numbers& variant = {});
/// The head dimensions that the stage does on this device.
std::vector<std::int64_t> head_dims();
/// The deterministic variant: dQ is accumulated in a fixed order.
inline const Numbers deterministic_mode{{"deterministic", 1}};

// ---- Inputs ----

struct Options {
  bool causal = false;
  std::optional<float> scale = {};  ///< 1/√d
  float K_mean = 0, V_mean = 0;     ///< added to every element: D gets large, and an error of it is multiplied
  bool zeros = false;               ///< every second query is 0: what overflows for the others is not NaN throughout
};

/// A named input with a unit normal dO, as the code under test sees it.
struct Input {
  BackwardProblem given;
  std::string name;
  std::string kind = {};  ///< empty where it has been changed
};
Input input(const std::string& kind, const Shape& shape, std::uint64_t seed, const Options& options = {},
            Element element = float16);

/// The same, of which each tensor named in `tensors` ("Q dO") is small but for the rows and columns where big(row,
/// column); what follows from them is computed anew.
template <class Big>
Input only_where(Input in, const std::string& tensors, const Big& big, const std::string& name) {
  Problem problem = in.given.problem;
  const Shape& s = problem.shape;
  Tensor<float> dO({s.B, s.H, s.Nq, s.d});
  dO.values.assign(in.given.dO.values.begin(), in.given.dO.values.end());
  for (const auto& [letter, tensor, rows] :
       {std::tuple{"Q", &problem.Q, s.Nq}, {"K", &problem.K, s.Nk}, {"V", &problem.V, s.Nk}, {"dO", &dO, s.Nq}}) {
    if (tensors.find(letter) == std::string::npos) continue;
    for (std::size_t at = 0; at < tensor->values.size(); ++at)
      if (!big(std::int64_t(at) / s.d % rows, std::int64_t(at) % s.d)) tensor->values[at] /= 16;
  }
  in.given = worker::backward_problem(problem, dO, float16);
  in.kind.clear();
  in.name += fmt::format(", {} small but for {}", tensors, name);
  return in;
}
/// The same, with a dO that is small but for `count` queries from `first` on.
Input only_queries(Input in, std::int64_t first, std::int64_t count);
/// The same with query i times (i % 16)/4: the scores of queries differ by far in size, and so do their LSE.
Input with_rows_apart(const Input& in);

// ---- Against the oracle ----

inline const std::vector<std::string> all_gradients = {"dV", "dK", "dQ"};

/// The order of the simulator; 0: the usual one.
struct Order {
  int workers = 0, lane_seed = 0;
};
/// The gradients named in `which` of the stage, or of that for another element.
BackwardResult expect_right(const Input& in, const std::vector<std::string>& which = all_gradients,
                            const Sizes& wish = {}, const Order& order = {}, std::optional<Element> element = {});
/// The same with the smallest sizes of the stage, or of its variant.
BackwardResult expect_right_small(const Input& in, const std::vector<std::string>& which = all_gradients,
                                  const Numbers& variant = {});

/// Gives the part of a stage that one exercise writes every kind of input, small.
template <class Expect>
void expect_every_kind_in_this_part(const Expect& expect_one, Element element = float16) {
  std::uint64_t seed = 2000;
  const auto expect_input = [&](const std::string& kind, std::int64_t Nq, std::int64_t Nk, const Options& options) {
    expect_one(input(kind, {1, 1, 1, Nq, Nk, 64}, ++seed, options, element));
  };
  for (const InputKind& kind : input_kinds())
    for (const bool causal : {false, true}) expect_input(kind.name, 40, 70, {causal});
  for (const float scale : {-0.2f, 0.0f}) expect_input("normal", 40, 70, {.scale = scale});
  expect_input("value mean", 70, 40, {.causal = true});
  expect_input("large logits", 70, 70, {.causal = true});  // exp(S - LSE) of pairs that do not count is infinite
}
/// The same for a stage, or its variant, with its smallest sizes.
void expect_every_kind(const std::vector<std::string>& which = all_gradients, const Numbers& variant = {});

bool same_bits(const BackwardResult& a, const BackwardResult& b, bool with_dQ = true);

// ---- What a call has to go through, where one kernel owns keys and queries pass by ----

/// Of one head: pairs of a Q tile and a K/V tile with a visible pair, those of them that need a mask, as keys do
/// that do not exist, and how many rows of Q are loaded.
struct BlockCount {
  std::int64_t visited = 0, masked = 0, queries = 0;
};
BlockCount count_blocks(const Shape& s, bool causal, const Sizes& sizes);

/// Lengths with the diagonal at every place within a Q tile, for so many queries, and some more.
std::vector<std::pair<std::int64_t, std::int64_t>> lengths_of_every_kind(std::int64_t Nq);

/// What the counters grow by when one Q tile more passes by one K/V tile, without a mask.
class Growth {
 public:
  Growth(std::int64_t d, const Sizes& sizes);
  double of(const std::string& name) const;
  /// `why`: what it counts, and the formula.
  void expect(const std::string& name, double must, const std::string& why, const std::string& cause,
              const std::string& id) const;
  /// The loads, or the stores, of shared memory meet no bank conflict.
  void expect_no_bank_conflict(const std::string& way) const;

 private:
  std::int64_t q_tiles_;
  std::string where_;
  worker::Reply replies_[2];
};

}  // namespace workbook::test::gradients
