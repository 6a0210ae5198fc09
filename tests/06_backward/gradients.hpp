// What both test files of chapter 6 need: backward problems, and the two stages against the oracle.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/attention/element.hpp"
#include "tests/support/backward_stage.hpp"
#include "tests/support/outcome.hpp"
#include "tests/support/subject.hpp"

namespace workbook::test {

using namespace gradients;

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
    return {{"Bc", 32.0 * plan.warps / plan.team}, {"Br", 32.0 * plan.team}, {"warps", double(plan.warps)}};
  }
};
/// Those of the stage, or its variant, that the device has room for; the first is what it takes by itself.
inline std::vector<Plan> plans(std::int64_t d, const Numbers& variant = {}) {
  std::vector<Plan> all;
  for (const Sizes& sizes : all_sizes(d, variant)) all.push_back({int(sizes.warps), int(sizes.Br / 32)});
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
                   fmt::format("{}, resident tiles of {} rows, streamed tiles of {}{}{}", in.name, tiles.Bc, tiles.Br,
                               how.in_float ? ", gradients in float" : "",
                               how.atomic   ? ", atomic variant"
                               : how.simple ? ", the simple kernels"
                                            : ""),
                   tiles, gradient_precision(how.in_float), which);
  return result;
}

/// The same of the chapter's first kernels, which are for d = 64.
inline BackwardResult expect_simple(const Input& in, const std::vector<std::string>& which) {
  return expect_backward(in, {1, 1}, which, {.simple = true});
}

/// Of chapter 6's kernels, small.
inline void expect_every_kind_of(const std::vector<std::string>& which) {
  expect_every_kind_in_this_part([&](const Input& in) { expect_backward(in, {1, 1}, which); });
}

inline bool all_finite(const BackwardResult& result) {
  return std::ranges::all_of(std::array{&result.dQ, &result.dK, &result.dV}, [](const Tensor<float>* gradient) {
    return std::ranges::all_of(gradient->values, [](float value) { return std::isfinite(value); });
  });
}

/// The record of a call's launches, as common/cuda/trace_record.hpp describes it.
inline nlohmann::json recorded_launches(const BackwardProblem& given, Numbers numbers) {
  numbers["trace"] = 1;
  const auto send = [](const worker::Call& request) {
    worker::Call recorded = request;
    recorded.output<std::uint8_t>("trace", 1 << 20);
    return call(recorded);
  };
  const worker::Reply reply = worker::backward("backward", encoded(given, float16), float16, numbers, send).reply;
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

}  // namespace workbook::test
