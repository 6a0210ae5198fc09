// Chapter 7, the bf16 path: the conversions, and chapters 5 and 6 with them.
#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "common/attention/element.hpp"
#include "common/attention/half.hpp"
#include "common/attention/inputs.hpp"
#include "tests/support/context.hpp"
#include "tests/support/forward_properties.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// ---- the conversions ----

std::vector<std::uint16_t> cast_to_bf16(const std::vector<float>& x) {
  worker::Call request("to_bf16");
  request.input("x", x).output<std::uint16_t>("codes", x.size());
  return call(request).output<std::uint16_t>("codes");
}

bool is_nan(std::uint16_t code) {
  return (code & 0x7fff) > 0x7f80;
}

std::uint32_t bits_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

void expect_rounded(const std::vector<float>& x) {
  const std::vector<std::uint16_t> got = cast_to_bf16(x);
  const auto right = [&](std::size_t i) {
    return std::isnan(x[i]) ? is_nan(got[i]) : got[i] == float_to_bfloat16(x[i]);
  };
  std::size_t wrong = 0, first = x.size();
  for (std::size_t i = x.size(); i-- > 0;) {
    if (right(i)) continue;
    ++wrong;
    first = i;
  }
  if (wrong == 0) return expect(true, "");
  expect(false,
         fmt::format("{} of {} floats are rounded to the wrong bf16; the code of the first, float {}: {} ({:a}), is "
                     "{:#06x} ({}), expected {:#06x} ({})",
                     wrong, x.size(), first, x[first], x[first], got[first], bfloat16_to_float(got[first]),
                     float_to_bfloat16(x[first]), bfloat16_to_float(float_to_bfloat16(x[first]))));
}

void expect_read(const std::vector<std::uint16_t>& codes) {
  worker::Call request("to_float");
  request.input("codes", codes).output<float>("x", codes.size());
  const std::vector<float> got = call(request).output<float>("x");
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const float right = bfloat16_to_float(codes[i]);
    if (bits_of(got[i]) != bits_of(right))
      expect(false, fmt::format("the value of code {:#06x} is {}, expected {}", codes[i], got[i], right));
  }
  expect(true, "");
}

/// Wrong conversions make the kernels wrong too. This check runs first, so that the report names the conversions.
void expect_conversions() {
  expect_rounded({1, 2, 1 + 0x1p-8f, 1 + 0x3p-8f, -1 - 0x1p-8f, 1 + 0x1.8p-8f, 1e30f, 1e-30f});
  expect_read({0x3f80, 0x4000, 0xbf81, 0x7149, 0x0da2, 0x8000});
}

// ---- chapters 5 and 6 ----

struct Options {
  bool causal = false;
  float V_size = 1, dO_size = 1;  ///< V and dO are multiplied by these
};

Input attention_input(const std::string& kind, const Shape& shape, std::uint64_t seed, const Options& options = {}) {
  Input given = input(kind, shape, seed, options.causal);
  for (float& value : given.problem.V.values) value *= options.V_size;
  if (options.V_size != 1) given.name += fmt::format(", V · {}", options.V_size);
  return given;
}

BackwardResult expect_backward(const std::string& kind, const Shape& shape, std::uint64_t seed,
                               const Options& options = {}) {
  const Input given = attention_input(kind, shape, seed, options);
  Tensor<float> dO({shape.B, shape.H, shape.Nq, shape.d});
  dO.values = normal_values(dO.values.size(), seed + 1000);
  for (float& value : dO.values) value *= options.dO_size;
  const BackwardProblem problem = worker::backward_problem(given.problem, dO, context().element);
  const BackwardResult result = backward(problem);
  std::string name = given.name;
  if (options.dO_size != 1) name += fmt::format(", dO · {}", options.dO_size);
  // With dO of these sizes, a result that is not finite, or 0 throughout, shows that a value went through fp16.
  for (const auto& [gradient, tensor] : {std::pair{"dQ", &result.dQ}, {"dK", &result.dK}, {"dV", &result.dV}}) {
    const auto& values = tensor->values;
    const auto lost = [&](const char* what, const char* cause, const char* diagnosis) {
      expect(false,
             fmt::format("{} {}, although bf16 can represent all numbers ({})", gradient, what,
                         describe(given.problem, name)),
             cause, diagnosis);
    };
    if (options.dO_size > 1 && !std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); }))
      lost("is not finite",
           "a number beyond 65504 passes through fp16 in your code; it must be rounded directly to bf16",
           "overflow-in-fp16");
    if (options.dO_size < 1 && std::all_of(values.begin(), values.end(), [](float x) { return x == 0; }))
      lost("is 0 throughout",
           "a number below 6e-8 passes through fp16 in your code; it must be rounded directly to bf16",
           "underflow-in-fp16");
  }
  const GradientTiles tiles = shape.d == 128 ? GradientTiles{128, 64} : GradientTiles{128, 32};
  expect_gradients(result, problem, name, tiles, precision());
  return result;
}

}  // namespace

TEST_CASE("pairs keep their order, and an odd last element is converted too", "[7.2]") {
  for (const std::size_t n : {1, 2, 3, 5, 64, 511, 1000}) {
    std::vector<float> x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = float(i % 251 + 1);  // bf16 has these numbers
    expect_rounded(x);
  }
}

TEST_CASE("pairs of floats are rounded to the nearest bf16, ties to even", "[7.2]") {
  // Halfway between every two bf16 numbers, and the floats on both sides of it; of both signs.
  std::vector<float> x;
  for (std::uint32_t code = 0; code < 0x7f80; ++code) {
    for (const std::uint32_t low : {0x7fffu, 0x8000u, 0x8001u}) {
      const float value = std::bit_cast<float>(code << 16 | low);
      if (code < 0x80) continue;  // a float's subnormal numbers: a kernel may flush them
      x.push_back(value);
      x.push_back(-value);
    }
  }
  x.insert(x.end(), {infinity, -infinity, 0.0f, -0.0f, 65536, 1e-7f});
  expect_rounded(x);
}

TEST_CASE("a single float is rounded to the nearest bf16, ties to even", "[7.2]") {
  // An odd last element goes through the conversion of one float.
  for (const float last :
       {1 + 0x1p-8f, 1 + 0x3p-8f, 1 + 0x1.01p-8f, 1 + 0x1.fp-9f, -1 - 0x3p-8f, 0x1.fep127f, 65536.0f})
    for (const std::size_t n : {1, 3}) {
      std::vector<float> x(n, 2);
      x.back() = last;
      expect_rounded(x);
    }
}

TEST_CASE("NaN stays NaN in bf16", "[7.2]") {
  std::vector<float> x;
  for (const std::uint32_t bits : {0x7fc00000u, 0x7f800001u, 0x7fffffffu, 0xffc00000u, 0xffffffffu, 0x7f80ffffu})
    x.insert(x.end(), {std::bit_cast<float>(bits), 1});
  expect_rounded(x);
}

TEST_CASE("every bf16 code is converted to float exactly", "[7.2]") {
  std::vector<std::uint16_t> codes;
  for (std::uint32_t code = 0; code < 0x10000; ++code)
    if (!is_nan(std::uint16_t(code))) codes.push_back(std::uint16_t(code));
  codes.resize(codes.size() - 1);  // an odd number of codes
  expect_read(codes);
}

TEST_CASE("stochastic rounding rounds up with the right probability", "[7.2]") {
  // All 65536 values of the low 16 bits of a random number, so that the share that is rounded up is exact. The upper 16
  // bits take half of the values only, so they would give another share. `steps`: the discarded 65536ths of a step.
  std::vector<std::int32_t> random(65536);
  for (std::size_t i = 0; i < random.size(); ++i)
    random[i] = std::bit_cast<std::int32_t>(std::uint32_t(i) | std::uint32_t(i / 2 + 0x4000) << 16);
  const std::size_t all = random.size();
  for (const auto& [lower, steps] : {std::pair{1.0f, 0x6000u},
                                     {1.0f, 0x4000u},
                                     {1.0f, 0u},
                                     {-1.5f, 0x8000u},
                                     {0x1.fep0f, 1u},
                                     {-0x1.02p-40f, 0xffffu},
                                     {3.0e38f, 0x2000u},
                                     {0.0f, 0u}}) {
    const std::uint32_t bits = bits_of(lower) & 0xffff0000u;
    const std::vector<float> x(random.size(), std::bit_cast<float>(bits | steps));
    worker::Call request("to_bf16_stochastic");
    request.input("x", x).input("random", random).output<std::uint16_t>("codes", x.size());
    const auto codes = call(request).output<std::uint16_t>("codes");
    const auto count = [&](std::uint32_t more) {
      return std::size_t(std::ranges::count(codes, std::uint16_t((bits >> 16) + more)));
    };
    const std::size_t up = count(1), down = count(0);
    expect(up == steps && up + down == all,
           fmt::format("{:a} is {}/65536 of a step beyond {:a}: of all 65536 values of `random`, {} round it away from "
                       "zero, {} toward zero, {} to another number",
                       x[0], steps, std::bit_cast<float>(bits), up, down, all - up - down));
  }
}

TEST_CASE("stochastic rounding preserves infinity and NaN", "[7.2]") {
  std::vector<float> x;
  std::vector<std::int32_t> random;
  for (const std::uint32_t bits : {0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7f800001u, 0x7fffffffu, 0xffffffffu}) {
    for (const std::int32_t threshold : {0, 1, 0x8000, 0xffff}) {
      x.push_back(std::bit_cast<float>(bits));
      random.push_back(threshold);
    }
  }
  worker::Call request("to_bf16_stochastic");
  request.input("x", x).input("random", random).output<std::uint16_t>("codes", x.size());
  const auto codes = call(request).output<std::uint16_t>("codes");
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool right = std::isnan(x[i]) ? is_nan(codes[i]) : codes[i] == bits_of(x[i]) >> 16;
    expect(right,
           fmt::format("{} with the random number {} is rounded to the code {:#06x}; it must not change", x[i],
                       random[i], codes[i]),
           "your code adds random bits to infinity or NaN; both must remain what they are", "nan-becomes-number");
  }
}

TEST_CASE("chapter 5 in bf16 agrees with the oracle", "[7.2]") {
  expect_conversions();
  for (const bool causal : {false, true}) {
    expect_right(attention_input("normal", {1, 2, 2, 130, 200, 64}, 1, {.causal = causal}));
    expect_right(attention_input("value mean", {1, 1, 1, 100, 300, 32}, 2, {.causal = causal}), {32, 32});
    expect_right(attention_input("rising maximum", {1, 1, 1, 70, 150, 128}, 3, {.causal = causal}), {64, 64});
    expect_right(attention_input("large logits", {1, 1, 1, 65, 130, 64}, 4, {.causal = causal}), {128, 32});
  }
  expect_every_kind_in_this_part();
}

TEST_CASE("chapter 6 in bf16 agrees with the oracle", "[7.2]") {
  expect_conversions();
  for (const bool causal : {false, true}) {
    expect_backward("normal", {1, 2, 2, 70, 100, 64}, 5, {.causal = causal});
    expect_backward("value mean", {1, 1, 1, 100, 65, 32}, 6, {.causal = causal});
    expect_backward("rising maximum", {1, 1, 1, 40, 90, 128}, 7, {.causal = causal});
  }
}

TEST_CASE("numbers that overflow fp16 stay finite in bf16", "[7.2]") {
  expect_conversions();
  // fp16 ends at 65504. V and dO go beyond; so do O, dP and dS.
  expect_right(attention_input("normal", {1, 1, 1, 70, 100, 64}, 8, {.V_size = 1e6f}));
  expect_backward("normal", {1, 1, 1, 70, 100, 64}, 9, {.dO_size = 1e6f});
  expect_backward("normal", {1, 1, 1, 70, 100, 64}, 10, {.V_size = 1e4f, .dO_size = 1e4f});
}

TEST_CASE("gradients far below fp16's smallest number survive in bf16", "[7.2]") {
  expect_conversions();
  // fp16 has nothing between 0 and 6e-8.
  expect_backward("normal", {1, 1, 1, 70, 100, 64}, 11, {.causal = true, .dO_size = 1e-12f});
}

TEST_CASE("bf16's error is about eight times that of fp16", "[whole]") {
  // The same numbers through this chapter and through chapter 5 in fp16: all of them are in both formats.
  for (const char* kind : {"normal", "value mean"}) {
    Problem problem = in_element(attention_input(kind, {1, 2, 2, 200, 300, 64}, 12, {.causal = true}).problem);
    for (Tensor<float>* tensor : {&problem.Q, &problem.K, &problem.V})
      for (float& value : tensor->values)
        if (std::abs(value) < 0x1p-17f) value = 0;
    const Forward oracle = forward_oracle(problem);
    const AttentionResult in_bf16 = attention(problem), in_fp16 = previous_attention(problem);
    const Bounds wide = output_bounds(oracle, problem, precision());
    const Bounds narrow = output_bounds(oracle, problem, precision_of(float16));
    double bf16_error = 0, fp16_error = 0;
    for (std::size_t i = 0; i < oracle.O.values.size(); ++i) {
      bf16_error += std::pow(in_bf16.O.values[i] - oracle.O.values[i], 2);
      fp16_error += std::pow(in_fp16.O.values[i] - oracle.O.values[i], 2);
      expect(std::abs(in_bf16.O.values[i] - in_fp16.O.values[i]) <= wide.element.values[i] + narrow.element.values[i],
             fmt::format("element {} of O is {} in bf16 and {} in fp16, further apart than both roundings explain "
                         "(input \"{}\")",
                         i, in_bf16.O.values[i], in_fp16.O.values[i], kind));
    }
    const double ratio = std::sqrt(bf16_error / fp16_error);
    expect(ratio > 4 && ratio < 12,
           fmt::format("the error of O in bf16 is {:.1f} times that in fp16 (root mean square, input \"{}\"), expected "
                       "about 8, since bf16 has three bits less",
                       ratio, kind));
  }
  expect_every_kind_in_this_part();
}

TEST_CASE("the bf16 backward pass takes O and LSE from the bf16 forward pass", "[whole]") {
  const Input given = attention_input("value mean", {2, 1, 1, 150, 170, 64}, 13, {.causal = true});
  const Problem problem = in_element(given.problem);
  const AttentionResult forward = expect_right(given);
  Tensor<float> dO({2, 1, 150, 64});
  dO.values = normal_values(dO.values.size(), 14);
  BackwardProblem backward_given = worker::backward_problem(problem, dO, context().element, forward_oracle(problem));
  backward_given.saved = {widened(forward.O), widened(forward.lse)};
  expect_gradients(backward(backward_given), backward_given, given.name, {128, 32}, precision());
}
