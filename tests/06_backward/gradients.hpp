// What both test files of chapter 6 need: backward problems, and the two stages against the oracle.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/attention/element.hpp"
#include "tests/support/outcome.hpp"
#include "tests/support/subject.hpp"

namespace workbook::test {

/// The warps of a block and of a team: solutions/06_backward/backward.hpp. As a wish, 0 stands for what the stage takes
/// by itself.
struct Plan {
  int warps = 0, team = 0;

  /// Of the stage's sizes for d those that are nearest to the wish: the same, if the device has room for them.
  Plan resolved(std::int64_t d, const Numbers& variant = {}) const;
  GradientTiles tiles(std::int64_t d) const {
    const Plan plan = resolved(d);
    return {32 * plan.warps / plan.team, 32 * plan.team};
  }
  Numbers numbers(std::int64_t d, const Numbers& variant = {}) const {
    const Plan plan = resolved(d, variant);
    return {{"owned", 32.0 * plan.warps / plan.team}, {"passing", 32.0 * plan.team}, {"warps", double(plan.warps)}};
  }
};
/// Those of the stage, or its variant, that the device has room for; the first is what it takes by itself.
inline std::vector<Plan> plans(std::int64_t d, const Numbers& variant = {}) {
  std::vector<Plan> all;
  for (const worker::StageTiles& tiles : stage_of("backward", variant).tiles)
    if (!tiles.d || *tiles.d == d) all.push_back({tiles.sizes.at("warps"), tiles.sizes.at("passing") / 32});
  return all;
}
inline Plan Plan::resolved(std::int64_t d, const Numbers& variant) const {
  const std::vector<Plan> all = plans(d, variant);
  if (all.empty())
    end_test({Result::skipped, fmt::format("a block of this GPU has no room for any tiles of d = {}", d)});
  if (warps == 0) return all.front();
  return std::ranges::min(all, {}, [this](const Plan& plan) {
    return std::abs(std::log2(double(plan.warps) / warps)) + std::abs(std::log2(double(plan.team) / team));
  });
}
/// The head dimensions that the device has room for.
inline std::vector<std::int64_t> fitting_head_dims() {
  std::vector<std::int64_t> some;
  for (const std::int64_t d : {32, 64, 128})
    if (!plans(d).empty()) some.push_back(d);
  return some;
}

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
inline Input input(const std::string& kind, const Shape& shape, std::uint64_t seed, const Options& options = {},
                   const std::string& element = "float16") {
  Problem problem = make_input(kind, {shape, options.causal, 0, seed});
  if (options.scale) problem.scale = *options.scale;
  for (std::int64_t row = 0; row < shape.B * shape.H * shape.Nq && options.zeros; row += 2)
    std::fill_n(problem.Q.values.begin() + row * shape.d, shape.d, 0.0f);
  for (float& value : problem.K.values) value += options.K_mean;
  for (float& value : problem.V.values) value += options.V_mean;
  Tensor<float> dO({shape.B, shape.H, shape.Nq, shape.d});
  dO.values = normal_values(dO.values.size(), seed + 1000);
  std::string name = fmt::format("{}, seed {}", kind, seed);
  if (options.scale) name += fmt::format(", scale {}", *options.scale);
  if (options.zeros) name += ", every second query 0";
  if (options.V_mean != 0) name += fmt::format(", K + {}, V + {}", options.K_mean, options.V_mean);
  const bool changed = options.zeros || options.K_mean != 0 || options.V_mean != 0;
  return {worker::backward_problem(problem, dO, element), name, changed ? "" : kind};
}

inline Precision gradient_precision(bool in_float) {
  Precision result = precision();
  if (in_float) result.output = 0x1p-24;  // P and dS are rounded to fp16, the gradients are not
  return result;
}

/// How the operation "backward" is called, beside its plan.
struct How {
  bool in_float = false;           ///< the gradients are float, not fp16
  bool atomic = false;             ///< the variant that adds dQ by atomics
  bool simple = false;             ///< the chapter's first kernels: d = 64, Plan{1, 1}
  int workers = 0, lane_seed = 0;  ///< of the simulator: another order; 0: the usual one
};

/// The kernels against the oracle.
inline BackwardResult expect_backward(const Input& in, const Plan& plan = {},
                                      const std::vector<std::string>& which = {"dQ", "dK", "dV"}, const How& how = {}) {
  const std::int64_t d = in.given.problem.shape.d;
  if (plans(d).empty()) return {};  // the device has no room for this d; a test with no other asserts nothing
  Numbers variant;
  if (how.atomic) variant["atomic"] = 1;
  if (how.simple) variant["simple"] = 1;
  const Plan taken = plan.resolved(d, variant);
  Numbers numbers = taken.numbers(d, variant);
  numbers["float_gradients"] = how.in_float;
  numbers["atomic"] = how.atomic;
  numbers["simple"] = how.simple;
  numbers["workers"] = how.workers;
  numbers["lane_seed"] = how.lane_seed;
  const BackwardResult result = backward(in.given, numbers);
  const GradientTiles tiles{32 * taken.warps / taken.team, 32 * taken.team};
  note_kinds(in.kind, in.given.problem);
  expect_gradients(result, in.given,
                   fmt::format("{}, {} rows a block, {} rows a tile{}{}", in.name, tiles.owned, tiles.passing,
                               how.in_float ? ", gradients in float" : "",
                               how.atomic   ? ", atomic variant"
                               : how.simple ? ", the first kernels"
                                            : ""),
                   tiles, gradient_precision(how.in_float), which);
  return result;
}

/// The same of the chapter's first kernels, which are for d = 64.
inline BackwardResult expect_simple(const Input& in, const std::vector<std::string>& which) {
  return expect_backward(in, {1, 1}, which, {.simple = true});
}

/// Gives the part of a stage that one exercise writes every kind of input, small.
template <class Expect>
void expect_every_kind_in_this_part(const Expect& expect_one, const std::string& element = "float16") {
  std::uint64_t seed = 2000;
  const auto expect_input = [&](const std::string& kind, std::int64_t Nq, std::int64_t Nk, const Options& options) {
    expect_one(input(kind, {1, 1, 1, Nq, Nk, 64}, ++seed, options, element));
  };
  for (const InputKind& kind : input_kinds())
    for (const bool causal : {false, true}) expect_input(kind.name, 40, 70, {causal});
  for (const float scale : {-0.2f, 0.0f}) expect_input("normal", 40, 70, {.scale = scale});
  expect_input("value mean", 70, 40, {.causal = true});
}
/// Of chapter 6's kernels, small.
inline void expect_every_kind_of(const std::vector<std::string>& which) {
  expect_every_kind_in_this_part([&](const Input& in) { expect_backward(in, {1, 1}, which); });
}

/// The record of a call's launches, as common/cuda/trace_record.hpp describes it.
inline nlohmann::json recorded_launches(const BackwardProblem& given, Numbers numbers) {
  numbers["trace"] = 1;
  const auto send = [](const worker::Call& request) {
    worker::Call recorded = request;
    recorded.output<std::uint8_t>("trace", 1 << 20);
    return call(recorded);
  };
  const worker::Reply reply = worker::backward("backward", encoded(given, "float16"), "float16", numbers, send).reply;
  std::string text;
  for (const std::byte byte : reply.outputs.at("trace")) {
    if (byte == std::byte{0xFF}) break;  // an output's filling
    text += char(byte);
  }
  return nlohmann::json::parse(text).at("launches");
}

/// Ends the test as passed, with something that it has measured: `./workbook test` shows it.
[[noreturn]] inline void report(const std::string& measured) {
  end_test({Result::passed, measured});
}

inline std::int64_t tiles_of(std::int64_t rows, std::int64_t tile) {
  return (rows + tile - 1) / tile;
}

}  // namespace workbook::test
