// Chapter 6's naive backward, and what each query brings to the kernels.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/attention/half.hpp"
#include "tests/06_backward/gradients.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr float log2_e = 1.4426950408889634f;

BackwardResult naive(const Input& in) {
  return float_backward(in.given, "naive_backward");
}
Input float_input(const std::string& kind, const Shape& shape, std::uint64_t seed, const Options& options = {}) {
  return input(kind, shape, seed, options, float32);
}

/// The loss Σ dO∘O, in float64.
double loss(const Problem& problem, const Tensor<double>& dO) {
  const Forward forward = forward_oracle(problem);
  double sum = 0;
  for (std::size_t i = 0; i < dO.values.size(); ++i) sum += dO.values[i] * forward.O.values[i];
  return sum;
}

/// What prepare_rows gave for each query.
struct Rows {
  Tensor<float> log2_lse, D;
  worker::Reply reply;
};
Rows prepare_rows(const Tensor<double>& O, const Tensor<double>& dO, const std::vector<float>& lse) {
  const auto [B, H, Nq, d] = O.sizes;
  const auto codes = [](const Tensor<double>& tensor) {
    return to_codes(std::vector<float>(tensor.values.begin(), tensor.values.end()), float16);
  };
  const std::vector<std::uint16_t> O_codes = codes(O), dO_codes = codes(dO);
  worker::Call request("prepare_rows");
  request.number("B", double(B)).number("H", double(H)).number("Hkv", double(H));
  request.number("Nq", double(Nq)).number("Nk", 1).number("d", double(d));
  request.input("O", O_codes).input("dO", dO_codes).input("lse", lse);
  request.output<double>("rows", lse.size());  // two floats each
  Rows rows{Tensor<float>({B, H, Nq, 1}), Tensor<float>({B, H, Nq, 1}), call(request)};
  const std::vector<float> pairs = rows.reply.output<float>("rows");
  for (std::size_t i = 0; i < lse.size(); ++i) {
    rows.log2_lse.values[i] = pairs[2 * i];
    rows.D.values[i] = pairs[2 * i + 1];
  }
  return rows;
}
Rows prepare_rows(const BackwardProblem& given) {
  const std::vector<double>& lse = given.saved.lse.values;
  return prepare_rows(given.saved.O, given.dO, {lse.begin(), lse.end()});
}

void expect_D(const Input& in) {
  const auto& [problem, dO, saved] = in.given;
  const std::int64_t d = problem.shape.d;
  Tensor<double> D(saved.lse.sizes);
  for (std::size_t i = 0; i < dO.values.size(); ++i) D.values[i / std::size_t(d)] += dO.values[i] * saved.O.values[i];
  const GradientBounds bounds =
      gradient_bounds(backward_oracle(problem, dO, saved), problem, dO, saved, gradient_precision(true));
  judge::Layout layout;
  layout.tensor = "D";
  layout.axes[3] = "";
  expect_close(prepare_rows(in.given).D, {D, bounds.D, layout, describe(problem, in.name)});
}

}  // namespace

// ---- 6.1 head_gradients ----

TEST_CASE("the naive backward agrees with the oracle", "[6.1]") {
  std::uint64_t seed = 0;
  for (const bool causal : {false, true}) {
    for (const auto& [Nq, Nk] : {std::pair{24, 24}, {20, 30}, {33, 20}, {1, 1}}) {
      const Input in = float_input("normal", {2, 2, 2, Nq, Nk, 32}, ++seed, {causal});
      expect_gradients(naive(in), in.given, in.name, {}, float32_precision(), {"dV", "dQ", "dK"});
    }
  }
  const Input wide = float_input("normal", {1, 1, 1, 20, 30, 128}, ++seed);
  expect_gradients(naive(wide), wide.given, wide.name, {}, float32_precision());
  const Input negative = float_input("normal", {1, 1, 1, 20, 30, 16}, ++seed, {.scale = -0.3f});
  expect_gradients(naive(negative), negative.given, negative.name, {}, float32_precision());
  expect_every_kind_in_this_part(
      [](const Input& in) {
        note_kinds(in.kind, in.given.problem);
        expect_gradients(naive(in), in.given, in.name, {}, float32_precision());
      },
      float32);
}

TEST_CASE("a masked key has P = 0, whatever the scale", "[6.1]") {
  // -inf as the score of such a key does not do: a negative scale makes +inf of it, and a scale of 0 NaN.
  for (const auto& [Nq, Nk] : {std::pair{20, 30}, {33, 20}}) {
    const auto in = [&, shape = Shape{1, 1, 1, Nq, Nk, 16}](bool causal, float scale) {
      return float_input("normal", shape, 45, {.causal = causal, .scale = scale});
    };
    const auto finite = [](const Input& input) { return all_finite(naive(input)); };
    for (const float scale : {-0.3f, 0.0f}) {
      const bool only_masked = !finite(in(true, scale)) && finite(in(true, 0.3f)) && finite(in(false, scale));
      expect(!only_masked,
             fmt::format(
                 "with a scale of {} and causal=yes a gradient is infinite or NaN, but not with a scale of 0.3, and "
                 "not with causal=no (Nq={}, Nk={})",
                 scale, Nq, Nk),
             "your code sets masked scores to -inf before it scales them, and a negative scale turns this into +inf, a "
             "scale of 0 into NaN; it must set P itself to 0",
             "mask-times-scale");
      expect_gradients(naive(in(true, scale)), in(true, scale).given, in(true, scale).name, {}, float32_precision());
    }
  }
}

TEST_CASE("the naive gradients equal central differences", "[6.1]") {
  // Along a random direction the loss changes by the sum of gradient times direction. The error of a central difference
  // is h²/6 times the third derivative, and 2^-9 makes h² 4e-6.
  const float h = 0x1p-9f;
  const Input in = float_input("normal", {1, 1, 1, 9, 12, 8}, 20, {.causal = true});
  const BackwardResult got = naive(in);
  const std::pair<const char*, const Tensor<float>*> gradients[] = {{"dQ", &got.dQ}, {"dK", &got.dK}, {"dV", &got.dV}};
  Tensor<float> Problem::*inputs[] = {&Problem::Q, &Problem::K, &Problem::V};
  for (int which = 0; which < 3; ++which) {
    const auto& [name, gradient] = gradients[which];
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      Problem above = in.given.problem, below = above;
      std::vector<float>&up = (above.*inputs[which]).values, &down = (below.*inputs[which]).values;
      const std::vector<float> direction = normal_values(up.size(), 100 * seed);
      double predicted = 0, size = 0;
      for (std::size_t i = 0; i < up.size(); ++i) {
        up[i] += h * direction[i];
        down[i] -= h * direction[i];
        const double step = double(up[i]) - down[i];  // as it is after rounding
        predicted += double(gradient->values[i]) * step;
        size += std::abs(double(gradient->values[i]) * step);
      }
      const double change = loss(above, in.given.dO) - loss(below, in.given.dO);
      expect(std::abs(change - predicted) <= 1e-4 * size,
             fmt::format("along random direction {} of {}, the loss Σ dO∘O changes by {:.6g} for a step of {:.3g}; "
                         "{} predicts {:.6g}",
                         seed, name[1], change, 2 * h, name, predicted),
             std::string(name) + " is not the gradient of the loss", "not-the-gradient");
    }
  }
}

TEST_CASE("the rows of dK sum to 0 over the keys", "[6.1]") {
  // Each row of dS sums to 0, since a softmax does not change when all of its scores grow alike: so Σ_j dK_j = 0. The
  // bounds of the rows add up.
  for (const bool causal : {false, true}) {
    const Input in = float_input("value mean", {1, 1, 1, 20, 25, 16}, 30, {causal});
    const auto& [problem, dO, saved] = in.given;
    const GradientBounds bounds =
        gradient_bounds(backward_oracle(problem, dO, saved), problem, dO, saved, float32_precision());
    const BackwardResult got = naive(in);
    for (std::int64_t c = 0; c < 16; ++c) {
      double sum = 0, allowed = 0, size = 0;
      for (std::int64_t j = 0; j < 25; ++j) {
        sum += got.dK(0, 0, j, c);
        size += std::abs(double(got.dK(0, 0, j, c)));
        allowed += bounds.dK.element(0, 0, j, c);
      }
      allowed += 1e-6 * size;  // the oracle's own sum is not 0: O and the LSE are rounded to float
      expect(std::abs(sum) <= allowed,
             fmt::format("column {} of dK sums to {:.3g} over the keys, allowed is {:.3g}, causal={}", c, sum, allowed,
                         causal ? "yes" : "no"),
             "the rows of your dS do not sum to 0; with dS = P∘(dP − D) and D = rowsum(dO∘O) they do", "dS-rows");
    }
  }
}

TEST_CASE("fully masked rows contribute to no gradient", "[6.1]") {
  const std::int64_t Nq = 12, Nk = 5, d = 16, masked = Nq - Nk;
  Input in = float_input("normal", {1, 2, 2, Nq, Nk, d}, 40, {.causal = true});
  const BackwardResult before = naive(in);
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t i = 0; i < masked; ++i) {
      for (std::int64_t c = 0; c < d; ++c) {
        const float value = before.dQ(0, h, i, c);
        if (value == 0 && i + 1 < masked) continue;
        expect(value == 0,
               fmt::format(
                   "query {} is fully masked, and its dQ of column {} is {}, expected 0 (Nq={}, Nk={}, causal=yes)", i,
                   c, value, Nq, Nk),
               "your code computes exp(S - LSE) in a fully masked row, whose LSE is -inf; its P must be 0",
               "masked-row");
      }
      std::fill_n(&in.given.dO(0, h, i, 0), d, 77.0);
    }
  }
  const BackwardResult after = naive(in);
  expect(before.dK.values == after.dK.values && before.dV.values == after.dV.values,
         fmt::format("dK or dV changes with dO of fully masked queries (Nq={}, Nk={}, causal=yes)", Nq, Nk),
         "your code computes a P of a fully masked row that is not 0; it must be 0", "masked-row");
}

// ---- 6.2 prepare_rows ----

TEST_CASE("D is the sum over a row of dO∘O", "[6.2]") {
  std::uint64_t seed = 50;
  for (const std::int64_t d : {32, 64, 128}) {
    for (const auto& [H, Nq] : {std::pair{1, 1}, {3, 37}, {2, 130}})
      expect_D(input("normal", {1, H, H, Nq, 10, d}, ++seed));
  }
  expect_every_kind_of({"dV", "dK", "dQ"});
}

TEST_CASE("D is summed in float32", "[6.2]") {
  // Where V has a mean, so has O, and D is far larger than the differences that matter.
  for (const std::int64_t d : {32, 64, 128})
    expect_D(input("normal", {1, 1, 1, 60, 20, d}, 60, {.K_mean = 1, .V_mean = 3}));
}

TEST_CASE("a fully masked row gets an LSE of +inf", "[6.2]") {
  for (const std::int64_t d : {32, 128}) {
    const Input in = input("normal", {1, 2, 2, 40, 12, d}, 70, {.causal = true});
    const Rows rows = prepare_rows(in.given);
    Tensor<double> expected = in.given.saved.lse;
    Bounds bounds{expected, 0, "one rounding of a multiplication in float32"};
    double squares = 0;
    for (std::size_t i = 0; i < expected.values.size(); ++i) {
      const double x = expected.values[i];
      expected.values[i] = x == -infinity ? infinity : x * log2_e;
      bounds.element.values[i] = x == -infinity ? 0 : 0x1p-23 * std::abs(x * log2_e);
      squares += bounds.element.values[i] * bounds.element.values[i];
    }
    bounds.rms = std::sqrt(squares / double(expected.values.size()));
    judge::Layout layout;
    layout.tensor = "LSE in units of log2";
    layout.axes[3] = "";
    expect_close(rows.log2_lse, {expected, bounds, layout, describe(in.given.problem, in.name)});
  }
}

TEST_CASE("O and dO are read once, 16 bytes per lane", "[6.2]") {
  require_counters();
  for (const std::int64_t d : {32, 64, 128}) {
    const Rows rows = prepare_rows(input("normal", {1, 2, 2, 128, 1, d}, 80).given);
    const double bytes = 2. * 128 * double(d) * 2;
    for (const char* tensor : {"O", "dO"}) {
      const std::string name = std::string(tensor) + ".load", why = fmt::format("{} is read once, d={}", tensor, d);
      expect_count(rows.reply, name + "_bytes", bytes, why, "your code must read each element exactly once", "traffic");
      expect_count(rows.reply, name + "_sectors", bytes / 32, why + ", 32 bytes per sector",
                   "adjacent lanes must access adjacent bytes", "uncoalesced");
      expect_count(rows.reply, name + "_requests", bytes / 512, why + ", 32 lanes with 16 bytes each per request",
                   "each lane must load 16 bytes per access", "narrow-access");
    }
  }
}
