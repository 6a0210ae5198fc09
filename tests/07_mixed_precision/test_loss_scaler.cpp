// Chapter 7, loss scaling: one step with a scale, the scale that adapts itself, and the master weights.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "common/attention/half.hpp"
#include "common/attention/inputs.hpp"
#include "tests/support/subject.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// ---- 7.3 -----------------------------------------------------------------------------------------------------------

struct Step {
  std::vector<float> given;  ///< what the optimiser was given; NaN if it was not called
  bool taken = false;
  double optimiser_calls = 0, backward_calls = 0, scale = 0;
};

Step scaled_step(const std::vector<float>& gradients, float scale) {
  worker::Call request("scaled_step");
  request.number("scale", scale).input("gradients", gradients);
  request.output<float>("given", gradients.size()).output<double>("facts", 4);
  const worker::Reply reply = call(request);
  const std::vector<double> facts = reply.output<double>("facts");
  return {reply.output<float>("given"), facts[0] != 0, facts[1], facts[2], facts[3]};
}

/// fp16's rounding of scale·gradient, divided by scale: exact for a scale that is a power of two.
float through_fp16(float gradient, float scale) {
  return half_to_float(float_to_half(scale * gradient)) / scale;
}

void expect_gradients(const std::vector<float>& gradients, float scale) {
  const Step step = scaled_step(gradients, scale);
  expect(step.backward_calls == 1,
         fmt::format("backward was called {} times in one step, expected once", step.backward_calls));
  expect(step.scale == scale, fmt::format("backward received the scale {}, expected {}", step.scale, scale),
         "your code does not pass the given scale to backward; it must, since it divides the gradients by this scale",
         "loss-not-scaled");
  expect(step.optimiser_calls == 1,
         fmt::format("all gradients are finite, but the optimiser was called {} times, expected once",
                     step.optimiser_calls),
         step.optimiser_calls == 0
             ? "your code never takes the step; it must call the optimiser if all gradients are finite"
             : "",
         step.optimiser_calls == 0 ? "never-taken" : "");
  expect(step.taken, "the step was taken, but your code returned false",
         "your code returns the wrong value; it must return whether it called the optimiser", "returns-wrong");

  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const float right = through_fp16(gradients[i], scale);
    if (step.given[i] != right)
      expect(false,
             fmt::format("with the scale {}, gradient {} of the loss is {}; the optimiser received {}, expected {}",
                         scale, i, gradients[i], step.given[i], right));
  }
}

void expect_skipped(float bad, std::size_t index, std::size_t n) {
  std::vector<float> gradients = normal_values(n, 3);
  gradients[index] = bad;
  const Step step = scaled_step(gradients, 1024);
  const std::string what = fmt::format("gradient {} of {} is {}", index, n, bad);
  expect(step.optimiser_calls == 0,
         what + fmt::format(", but the optimiser was called {} times", step.optimiser_calls));
  expect(!step.taken, what + ", and the step was skipped, but your code returned true",
         "your code returns the wrong value; it must return whether it called the optimiser", "returns-wrong");
}

// ---- 7.4 -----------------------------------------------------------------------------------------------------------

struct Options {
  double initial = 65536, growth = 2, backoff = 0.5;
  std::int64_t interval = 2000;
};
struct State {
  float scale;
  std::int32_t good_steps;
  bool operator==(const State&) const = default;
};

std::vector<State> scaler(const Options& options, const std::vector<std::int32_t>& bad) {
  worker::Call request("scaler");
  request.number("initial", options.initial).number("growth", options.growth).number("backoff", options.backoff);
  request.number("growth_interval", double(options.interval)).input("bad", bad);
  request.output<float>("scales", bad.size()).output<std::int32_t>("good_steps", bad.size());
  const worker::Reply reply = call(request);
  const auto scales = reply.output<float>("scales");
  const auto good_steps = reply.output<std::int32_t>("good_steps");
  std::vector<State> states;
  for (std::size_t i = 0; i < bad.size(); ++i) states.push_back({scales[i], good_steps[i]});
  return states;
}

void expect_states(const Options& options, const std::vector<std::int32_t>& bad, const std::vector<State>& expected) {
  const std::vector<State> got = scaler(options, bad);
  for (std::size_t at = 0; at < bad.size(); ++at)
    expect(got[at] == expected[at],
           fmt::format("after step {} ({}), the scale is {} and the count of good steps is {}, expected {} and {}",
                       at + 1, bad[at] ? "bad" : "good", got[at].scale, got[at].good_steps, expected[at].scale,
                       expected[at].good_steps));
}

// ---- 7.6 -----------------------------------------------------------------------------------------------------------

struct Weights {
  std::vector<float> master, momentum;
  std::vector<std::uint16_t> codes;
  worker::Reply reply;
};

/// The parameters of several updates with the same gradients.
struct Updates {
  float rate = 1, decay = 0;
  int steps = 1;
  bool flag = false;                        ///< whether a gradient was not finite
  std::vector<float> momentum_before = {};  ///< empty: zeros
};
Weights updated(const std::vector<float>& master, const std::vector<float>& gradients, const Updates& updates) {
  std::vector<float> momentum = updates.momentum_before;
  momentum.resize(master.size());
  worker::Call request("update_weights");
  request.number("learning_rate", updates.rate).number("decay", updates.decay);
  request.number("steps", updates.steps).number("flag", updates.flag ? 1 : 0);
  request.input("master", master).input("momentum", momentum).input("gradients", gradients);
  request.output<float>("master_out", master.size()).output<float>("momentum_out", master.size());
  request.output<std::uint16_t>("weights", master.size());
  const worker::Reply reply = call(request);
  return {reply.output<float>("master_out"), reply.output<float>("momentum_out"),
          reply.output<std::uint16_t>("weights"), reply};
}

void expect_weights(const std::vector<float>& master, const std::vector<float>& gradients, float rate, int steps) {
  const Weights got = updated(master, gradients, {.rate = rate, .steps = steps});
  for (std::size_t i = 0; i < master.size(); ++i) {
    // In float64; the reader's float may round each step.
    const double expected = double(master[i]) - double(steps) * double(rate) * double(gradients[i]);
    const double size = std::abs(double(master[i])) + std::abs(expected);
    const double allowed = steps * size * 2 * 0x1p-24 + std::numeric_limits<float>::denorm_min();
    const std::string what = fmt::format("weight {} starts at {}, its gradient is {} in each of {} steps of rate {}; ",
                                         i, master[i], gradients[i], steps, rate);
    expect(std::abs(double(got.master[i]) - expected) <= allowed,
           what + fmt::format("the master weight is {}, not {}", got.master[i], expected));
    const std::uint16_t right = float_to_half(got.master[i]);
    expect(got.codes[i] == right, what + fmt::format("the master weight is {}, its fp16 copy is {}, expected {}",
                                                     got.master[i], half_to_float(got.codes[i]), half_to_float(right)));
  }
}

}  // namespace

TEST_CASE("the optimiser receives the unscaled gradients", "[7.3]") {
  std::vector<float> gradients = normal_values(1001, 1);
  expect_gradients(gradients, 1024);
  for (float& gradient : gradients) gradient *= 1e-3f;
  expect_gradients(gradients, 65536);
  expect_gradients(gradients, 1);
}

TEST_CASE("gradients below fp16's smallest number survive the step", "[7.3]") {
  std::vector<float> gradients = normal_values(1001, 2);
  for (float& gradient : gradients) gradient *= 1e-8f;  // below half of fp16's smallest number
  expect_gradients(gradients, 65536);
}

TEST_CASE("a step with a non-finite gradient is skipped", "[7.3]") {
  for (const std::size_t index : {0, 1, 500, 1000})
    for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()})
      expect_skipped(bad, index, 1001);
  expect_skipped(1e3f, 7, 1001);  // finite, but 1024 times as large beyond fp16
}

TEST_CASE("a gradient that overflows when unscaled skips the step", "[7.3]") {
  // The largest float times 2^-120 is just below 256, which fp16 makes 256 of; 256 · 2^120 is beyond fp32.
  std::vector<float> gradients(100, 1);
  gradients[40] = std::numeric_limits<float>::max();
  const Step step = scaled_step(gradients, 0x1p-120f);
  expect(step.optimiser_calls == 0 && !step.taken,
         "with the scale 2^-120, a gradient is 256 in fp16 and infinite when unscaled, but the optimiser was called");
}

TEST_CASE("the scaler follows GradScaler step for step", "[7.4]") {
  // What torch.amp.GradScaler(init_scale=1024, growth_factor=2, backoff_factor=0.5, growth_interval=3) does: for each
  // step whether a gradient was not finite, then the scale and the count of good steps after it.
  struct Transition {
    std::int32_t bad;
    float scale;
    std::int32_t good_steps;
  };
  const std::vector<Transition> script{
      {0, 1024, 1}, {0, 1024, 2}, {0, 2048, 0},               // three good steps: it grows
      {0, 2048, 1}, {0, 2048, 2}, {1, 1024, 0},               // a bad one just before it would have grown
      {0, 1024, 1}, {0, 1024, 2}, {0, 2048, 0},               // counting has begun again
      {1, 1024, 0}, {1, 512, 0},  {1, 256, 0},                // bad steps in a row
      {0, 256, 1},  {1, 128, 0},  {0, 128, 1},  {1, 64, 0},   // good and bad in turn
      {0, 64, 1},   {0, 64, 2},   {1, 32, 0},                 //
      {0, 32, 1},   {0, 32, 2},   {0, 64, 0},                 //
      {0, 64, 1},   {0, 64, 2},   {0, 128, 0},                // growth again and again
      {0, 128, 1},  {0, 128, 2},  {0, 256, 0},                //
      {0, 256, 1},  {0, 256, 2},  {0, 512, 0},                //
      {1, 256, 0},                                            // a bad step right after growth
      {0, 256, 1},  {0, 256, 2},  {0, 512, 0},                //
      {0, 512, 1},  {1, 256, 0},  {1, 128, 0},  {0, 128, 1},  //
      {0, 128, 2},  {0, 256, 0},  {0, 256, 1},  {0, 256, 2},  //
      {0, 512, 0},  {1, 256, 0},  {0, 256, 1},                //
  };
  REQUIRE(script.size() >= 40);
  std::vector<std::int32_t> bad;
  std::vector<State> expected;
  for (const Transition& transition : script) {
    bad.push_back(transition.bad);
    expected.push_back({transition.scale, transition.good_steps});
  }
  expect_states({1024, 2, 0.5, 3}, bad, expected);
}

TEST_CASE("by default the scale is 2^16 and grows after 2000 good steps", "[7.4]") {
  std::vector<std::int32_t> bad(4001, 0);
  bad[2500] = 1;
  std::vector<State> expected;
  for (int i = 0; i < 1999; ++i) expected.push_back({65536, i + 1});
  expected.push_back({131072, 0});
  for (int i = 2000; i < 2500; ++i) expected.push_back({131072, i - 1999});
  expected.push_back({65536, 0});
  for (int i = 2501; i < 4001; ++i) expected.push_back({65536, i - 2500});
  expect_states({}, bad, expected);
}

TEST_CASE("other factors and intervals are respected", "[7.4]") {
  expect_states({100, 1.5, 0.25, 2}, {0, 0, 0, 0, 1, 0, 0},
                {{100, 1}, {150, 0}, {150, 1}, {225, 0}, {56.25, 0}, {56.25, 1}, {84.375, 0}});
  expect_states({8, 2, 0.5, 1}, {0, 0, 1, 0}, {{16, 0}, {32, 0}, {16, 0}, {32, 0}});
}

TEST_CASE("the scale stays finite", "[7.4]") {
  // A scale that would become infinite does not change, as in GradScaler.
  expect_states({0x1p126, 2, 0.5, 1}, {0, 0, 0, 1}, {{0x1p127f, 0}, {0x1p127f, 0}, {0x1p127f, 0}, {0x1p126f, 0}});
  expect_states({3e38, 2, 0.5, 2}, {0, 0, 0, 0}, {{3e38f, 1}, {3e38f, 0}, {3e38f, 1}, {3e38f, 0}});
}

TEST_CASE("the scale stays positive and its inverse finite", "[7.4]") {
  // GradScaler continues down to 0, and no step is ever taken again. The book deviates from that.
  expect_states({0x1p-125, 2, 0.5, 2}, {1, 1, 1, 0, 0},
                {{0x1p-126f, 0}, {0x1p-126f, 0}, {0x1p-126f, 0}, {0x1p-126f, 1}, {0x1p-125f, 0}});
  // A scale that cannot fall by a whole factor does not change, and the count begins again.
  expect_states({0x1p-125, 2, 0.25, 3}, {0, 1, 0, 0, 0},
                {{0x1p-125f, 1}, {0x1p-125f, 0}, {0x1p-125f, 1}, {0x1p-125f, 2}, {0x1p-124f, 0}});
  std::vector<std::int32_t> bad(300, 1);
  std::vector<State> expected;
  for (int i = 0; i < 300; ++i) expected.push_back({std::ldexp(1.0f, std::max(16 - i - 1, -126)), 0});
  expect_states({}, bad, expected);
}

TEST_CASE("updates far below fp16's spacing accumulate", "[7.6]") {
  // Near 1, fp16's numbers are 2^-10 apart, or 2^-11 below 1. 100 updates of 1e-4 are 10 steps and more. Near 1/100
  // they are 2^-17 apart: that weight moves in fp16 too.
  expect_weights({1, -1, 0.5f, 2, 0.01f}, {1, -1, 0.1f, -3, -1}, 1e-4f, 100);
}

TEST_CASE("the fp16 copy is the master weight, rounded to nearest even", "[7.6]") {
  expect_weights(normal_values(500, 5), normal_values(500, 6), 1e-2f, 1);
  // Halfway points, subnormal numbers, and one that is too large.
  expect_weights({1 + 0x1p-11f, 1 + 3 * 0x1p-11f, 0x1.8p-24f, 0x1p-25f, 1e5f}, {0, 0, 0, 0, 0}, 1, 1);
}

TEST_CASE("every weight is updated once, for every length", "[7.6]") {
  for (const std::size_t n : {4, 5, 1, 3, 127, 512, 515, 3002}) {  // first with a group of four, to identify the tail
    const Weights got = updated(std::vector<float>(n, 2), std::vector<float>(n, 1), {.rate = 0.5f});
    const std::size_t wrong =
        std::size_t(std::ranges::find_if(got.master, [](float w) { return w != 1.5f; }) - got.master.begin());
    const bool in_tail = n > 4 && wrong >= n / 4 * 4;
    expect(wrong == n,
           wrong == n ? ""
                      : fmt::format("{} weights of 2, gradient 1, rate 0.5: weight {} is {}, expected 1.5", n, wrong,
                                    got.master[wrong]),
           in_tail ? "your code omits the n mod 4 weights of the tail or updates them more than once; it must update "
                     "each weight once"
                   : "",
           in_tail ? "tail-not-updated" : "unknown");
  }
  // More weights than the grid has threads.
  const std::size_t n = 1024 * 128 * 4 + 515;
  const Weights got = updated(std::vector<float>(n, 2), std::vector<float>(n, 1), {.rate = 0.5f});
  expect(std::ranges::count(got.master, 1.5f) == std::ptrdiff_t(n),
         fmt::format("of {} weights, {} were updated once", n, std::ranges::count(got.master, 1.5f)));
}

TEST_CASE("momentum is the decayed sum of the gradients", "[7.6]") {
  const std::vector<float> master = normal_values(301, 7), gradients = normal_values(301, 8),
                           before = normal_values(301, 9);
  constexpr double decay = 0.75, rate = 0.125;
  const int steps = 5;
  const Weights got = updated(master, gradients, {float(rate), float(decay), steps, false, before});
  for (std::size_t i = 0; i < master.size(); ++i) {
    double weight = master[i], momentum = before[i];
    for (int step = 0; step < steps; ++step) momentum = decay * momentum + gradients[i], weight -= rate * momentum;
    // No intermediate value is larger.
    const double most = std::abs(before[i]) + steps * std::abs(double(gradients[i])), error = steps * 4 * 0x1p-24;
    expect(std::abs(double(got.master[i]) - weight) <= error * (std::abs(master[i]) + steps * rate * most) &&
               std::abs(double(got.momentum[i]) - momentum) <= error * most,
           fmt::format("weight {} of {}, momentum {}, gradient {} in each of {} steps: the weight is {} and the "
                       "momentum {}, expected {} and {}",
                       i, master[i], before[i], gradients[i], steps, got.master[i], got.momentum[i], weight, momentum));
  }
}

TEST_CASE("nothing changes if the flag is set", "[7.6]") {
  const std::vector<float> master = normal_values(515, 10), before = normal_values(515, 11);
  std::vector<float> gradients = normal_values(515, 12);
  gradients[100] = std::numeric_limits<float>::infinity();
  const Weights got = updated(master, gradients, {1, 0.5f, 1, true, before});
  std::vector<std::uint16_t> copies;
  for (const float weight : master) copies.push_back(float_to_half(weight));
  expect(got.master == master && got.momentum == before && got.codes == copies,
         fmt::format("the flag is set, but the {} changed", got.master != master     ? "master weights"
                                                            : got.momentum != before ? "momentum"
                                                                                     : "fp16 copies"),
         "your code ignores the flag, so an infinite gradient reaches the weights; it must change nothing if the flag "
         "is not 0",
         "flag-ignored");
}

TEST_CASE("one pass: every element is read and written once, 16 bytes at a time", "[7.6]") {
  require_counters();
  const std::size_t n = 48 * 128;
  const std::vector<float> some = normal_values(n, 13);
  const worker::Reply reply = updated(some, some, {}).reply;
  for (const char* array : {"master.load", "momentum.load", "gradients.load", "master.store", "momentum.store"}) {
    expect_count(reply, fmt::format("{}_bytes", array), double(n) * 4, "every element once",
                 "your code reads or writes an array more than once; it must access each element once", "traffic");
    expect_count(
        reply, fmt::format("{}_sectors", array), double(n) * 4 / 32, "every sector of 32 bytes once",
        "adjacent lanes of your code do not access adjacent weights; they must, so that a request covers whole sectors",
        "uncoalesced");
    expect_count(reply, fmt::format("{}_requests", array), double(n) * 4 / 512,
                 "32 lanes with 16 bytes each per request",
                 "a thread of your code accesses fewer than 16 bytes at a time; it must access four floats at once",
                 "narrow-access");
  }
  expect_count(reply, "weights.load_bytes", 0, "the fp16 copy is never read",
               "your code reads the fp16 copy; it must only write it", "traffic");
  expect_count(
      reply, "weights.store_sectors", double(n) * 2 / 32, "every sector of 32 bytes once",
      "your code stores fewer than four adjacent weights of the copy at a time; it must store them by one 8-byte store",
      "uncoalesced");
}

TEST_CASE("training recovers from an overflow", "[whole]") {
  // The loss sum of (w - target)² / 2. The scale 2^30 overflows at first; it falls until steps are taken.
  const std::vector<float> target{1, -2, 0.5f, 1e-3f, 3e-6f};
  const int steps = 400;
  worker::Call request("train");
  request.number("initial", 0x1p30).number("growth_interval", 50).number("learning_rate", 0.1).input("target", target);
  request.output<float>("master", target.size()).output<float>("scales", steps).output<std::int32_t>("taken", steps);
  const worker::Reply reply = call(request);
  const auto master = reply.output<float>("master");
  const auto scales = reply.output<float>("scales");
  const auto taken = reply.output<std::int32_t>("taken");
  int skipped = 0;
  while (skipped < steps && taken[std::size_t(skipped)] == 0) ++skipped;
  // The largest gradient is 2, and fp16 ends at 65504: 2^14·2 is the first scaled gradient that fits.
  expect(skipped == 16, fmt::format("the first {} steps were skipped, expected 16", skipped));
  expect(scales[16] == 0x1p14f, fmt::format("the scale of the first step taken is {}, expected 2^14", scales[16]));
  for (std::size_t i = 0; i < target.size(); ++i) {
    const double allowed = std::max(std::abs(target[i]) * 0x1p-10, 0x1p-24);
    expect(std::abs(master[i] - target[i]) <= allowed,
           fmt::format("weight {} is {} at the end, its target is {}", i, master[i], target[i]));
  }
  expect(*std::max_element(scales.begin() + 16, scales.end()) > 0x1p14f, "the scale never grew again");
}
