// The known mistakes of the backward pass: each mistake that affects the result is diagnosed, also in an independent
// implementation, and nothing else is.
#include <fmt/format.h>

#include "common/attention/element.hpp"
#include "common/attention/half.hpp"
#include "common/attention/inputs.hpp"
#include "tests/06_backward/mistakes.hpp"
#include "tests/judge/named_mistakes.hpp"

using namespace workbook;
using namespace workbook::judge;
using namespace workbook::test::ch06;

namespace {

struct BackwardSetup {
  std::string kind = "normal";
  Shape shape;
  bool causal = false;
  float scale = 0;     ///< 0: 1/√d
  float V_mean = 0;    ///< added to K and V: dP and D are then large and close to each other
  bool zeros = false;  ///< every second query is 0: its scores are, whatever those of the others
  /// Another than float32: a tiled stage that gives its gradients in float.
  Element element = float32;
  std::int64_t owned = 0, passing = 0;

  std::string name() const {
    return fmt::format("{}, B={} H={} Nq={} Nk={} d={} causal={} scale={} V_mean={} {} owned={} passing={}", kind,
                       shape.B, shape.H, shape.Nq, shape.Nk, shape.d, causal, scale, V_mean, workbook::name(element),
                       owned, passing);
  }
};

/// What a backward stage is given for a setup, and how far off its gradients may be.
struct Given {
  Problem problem;
  Tensor<double> dO;
  Saved saved;
  Gradients oracle;
  GradientBounds bounds;
  Precision precision;
};
float nearest(float x, Element element) {
  return has_codes(element) ? from_codes(to_codes({&x, 1}, element), element)[0] : x;
}
Given given(const BackwardSetup& setup) {
  Given result;
  result.problem = make_input(setup.kind, {.shape = setup.shape, .mask = setup.causal, .scale = 0, .seed = 3});
  if (setup.scale != 0) result.problem.scale = setup.scale;
  for (Tensor<float>* tensor : {&result.problem.K, &result.problem.V})
    for (float& x : tensor->values) x += setup.V_mean;
  for (Index i = 0; i < setup.shape.Nq && setup.zeros; i += 2)
    for (Index head = 0; head < setup.shape.B * setup.shape.H; ++head)
      std::fill_n(&result.problem.Q(head / setup.shape.H, head % setup.shape.H, i, 0), setup.shape.d, 0.0F);
  result.problem = rounded_to(result.problem, setup.element);
  const auto stored = [&](float x) { return double(nearest(x, setup.element)); };
  const Forward forward = forward_oracle(result.problem);
  result.saved = {Tensor<double>(forward.O.sizes), Tensor<double>(forward.lse.sizes)};
  for (std::size_t i = 0; i < forward.O.values.size(); ++i)
    result.saved.O.values[i] = stored(float(forward.O.values[i]));
  for (std::size_t i = 0; i < forward.lse.values.size(); ++i) result.saved.lse.values[i] = float(forward.lse.values[i]);
  result.dO = Tensor<double>(forward.O.sizes);
  const std::vector<float> normal = normal_values(result.dO.values.size(), 17);
  for (std::size_t i = 0; i < normal.size(); ++i) result.dO.values[i] = stored(normal[i]);
  result.precision = precision_of(setup.element);
  if (has_codes(setup.element)) result.precision.output = 0x1p-24;
  result.oracle = backward_oracle(result.problem, result.dO, result.saved);
  result.bounds = gradient_bounds(result.oracle, result.problem, result.dO, result.saved, result.precision);
  return result;
}

Case gradient_case(const std::string& gradient, const BackwardSetup& setup, const Given& in) {
  const bool of_queries = gradient == "dQ", of_keys = gradient == "dK";
  return {gradient + ": " + setup.name(),
          of_queries ? in.oracle.dQ
          : of_keys  ? in.oracle.dK
                     : in.oracle.dV,
          of_queries ? in.bounds.dQ
          : of_keys  ? in.bounds.dK
                     : in.bounds.dV,
          gradient_mistakes(6, {gradient, {in.problem, in.dO, in.saved}, setup.owned, setup.passing, in.precision})};
}
Case gradient_case(const std::string& gradient, const BackwardSetup& setup) {
  return gradient_case(gradient, setup, given(setup));
}

constexpr Shape square{.B = 1, .H = 2, .Hkv = 2, .Nq = 40, .Nk = 40, .d = 32};
constexpr Shape many_keys{.B = 1, .H = 1, .Hkv = 1, .Nq = 40, .Nk = 90, .d = 32};
constexpr Shape many_queries{.B = 1, .H = 1, .Hkv = 1, .Nq = 90, .Nk = 40, .d = 32};
constexpr Shape several_tiles{.B = 1, .H = 1, .Hkv = 1, .Nq = 100, .Nk = 100, .d = 32};
/// Nk − Nq is less than a tile: its wrong sign masks a part of the tiles on the diagonal, not all of one and no other.
constexpr Shape a_few_keys_more{.B = 1, .H = 1, .Hkv = 1, .Nq = 100, .Nk = 106, .d = 32};

/// In float without tiles, as chapter 6's naive backward; in half precision with tiles, as its kernels.
std::vector<BackwardSetup> backward_setups() {
  std::vector<BackwardSetup> result;
  for (const bool causal : {false, true}) {
    for (const Shape& shape : {square, many_keys, many_queries}) result.push_back({.shape = shape, .causal = causal});
    for (const Shape& shape : {several_tiles, many_keys, many_queries})
      result.push_back({.shape = shape, .causal = causal, .element = float16, .owned = 32, .passing = 16});
  }
  result.push_back({.shape = a_few_keys_more, .causal = true, .element = float16, .owned = 32, .passing = 16});
  result.push_back({.kind = "value mean", .shape = square});
  // Up to 70: exp(S) is no infinity yet, and exp(S - LSE) of a key that is not seen is one.
  result.push_back({.kind = "large logits", .shape = square, .causal = true, .scale = 0.12F});
  result.push_back({.shape = square, .scale = -0.3F});
  result.push_back({.kind = "negative logits", .shape = several_tiles, .element = float16, .owned = 32, .passing = 16});
  result.push_back({.kind = "negative logits",
                    .shape = several_tiles,
                    .zeros = true,
                    .element = float16,
                    .owned = 32,
                    .passing = 16});
  for (const Element element : {float16, bfloat16})
    result.push_back({.shape = several_tiles, .V_mean = 3, .element = element, .owned = 32, .passing = 16});
  return result;
}

// ---- A backward pass written once more, directly ----

/// What it does wrong; every flag is a mistake of its own.
struct Slips {
  bool without_D = false, D_of_dO = false, plus_D = false, codes_as_fp16 = false;
  bool scores_not_scaled = false, gradients_not_scaled = false, dS_scaled = false;
  bool dK_of_dS = false, dQ_of_P = false, without_P = false;
  bool without_lse = false, lse_of_base_2 = false, maximum_for_lse = false;
  bool not_masked = false;
  std::int64_t mask_offset = 0;  ///< number of additional unmasked keys
  bool top_left = false;
};

struct FloatGradients {
  Tensor<float> dQ, dK, dV;
};
FloatGradients backward_pass(const Given& in, const Slips& slips) {
  const Problem& p = in.problem;
  const auto [B, H, Hkv, Nq, Nk, d] = p.shape;
  FloatGradients result{Tensor<float>({B, H, Nq, d}), Tensor<float>({B, H, Nk, d}), Tensor<float>({B, H, Nk, d})};
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t h = 0; h < H; ++h) {
      std::vector<double> P(std::size_t(Nq * Nk)), dS(P.size());
      for (std::int64_t i = 0; i < Nq; ++i) {
        double D = 0;
        for (std::int64_t c = 0; c < d; ++c) {
          const double dO = in.dO(b, h, i, c), O = slips.D_of_dO ? dO : in.saved.O(b, h, i, c);
          const auto misread = [](double x) { return half_to_float(float_to_bfloat16(float(x))); };
          D += slips.codes_as_fp16 ? misread(dO) * misread(O) : dO * O;
        }
        if (slips.without_D) D = 0;
        if (slips.plus_D) D = -D;
        std::vector<double> S, dP;
        double m = -std::numeric_limits<double>::infinity();
        const std::int64_t last = i + (slips.top_left ? 0 : Nk - Nq) + slips.mask_offset;
        const auto sees = [&](std::int64_t j) { return !p.causal() || slips.not_masked || j <= last; };
        for (std::int64_t j = 0; j < Nk; ++j) {
          double score = 0, product = 0;
          for (std::int64_t c = 0; c < d; ++c) {
            score += double(p.Q(b, h, i, c)) * p.K(b, h, j, c);
            product += in.dO(b, h, i, c) * p.V(b, h, j, c);
          }
          S.push_back(slips.scores_not_scaled ? score : p.scale * score);
          dP.push_back(product);
          if (sees(j)) m = std::max(m, S.back());
        }
        double lse = in.saved.lse(b, h, i, 0);
        if (slips.without_lse) lse = 0;
        if (slips.maximum_for_lse) lse = m;
        for (std::int64_t j = 0; j < Nk; ++j) {
          if (!sees(j) || in.saved.lse(b, h, i, 0) == -std::numeric_limits<double>::infinity()) continue;
          const auto at = std::size_t(i * Nk + j);
          const double score = S[std::size_t(j)];
          P[at] = slips.lse_of_base_2 ? std::exp2(score / std::log(2) - lse) : std::exp(score - lse);
          dS[at] = (slips.without_P ? 1 : P[at]) * (dP[std::size_t(j)] - D) * (slips.dS_scaled ? p.scale : 1);
        }
      }
      const double scale = slips.gradients_not_scaled ? 1 : p.scale;
      for (std::int64_t c = 0; c < d; ++c) {
        for (std::int64_t i = 0; i < Nq; ++i) {
          double sum = 0;
          for (std::int64_t j = 0; j < Nk; ++j)
            sum += (slips.dQ_of_P ? P : dS)[std::size_t(i * Nk + j)] * p.K(b, h, j, c);
          result.dQ(b, h, i, c) = float(scale * sum);
        }
        for (std::int64_t j = 0; j < Nk; ++j) {
          double dK = 0, dV = 0;
          for (std::int64_t i = 0; i < Nq; ++i) {
            dK += dS[std::size_t(slips.dK_of_dS ? j * Nk + i : i * Nk + j)] * p.Q(b, h, i, c);
            dV += P[std::size_t(i * Nk + j)] * in.dO(b, h, i, c);
          }
          result.dK(b, h, j, c) = float(scale * dK);
          result.dV(b, h, j, c) = float(dV);
        }
      }
    }
  }
  return result;
}

Case D_case(const BackwardSetup& setup) {
  const Given in = given(setup);
  const std::int64_t d = setup.shape.d;
  Tensor<double> D(in.saved.lse.sizes);
  for (std::size_t i = 0; i < in.dO.values.size(); ++i)
    D.values[i / std::size_t(d)] += in.dO.values[i] * in.saved.O.values[i];
  return {"D: " + setup.name(), D, in.bounds.D, D_mistakes(in.saved.O, in.dO)};
}

Case log2_lse_case(const BackwardSetup& setup) {
  const Given in = given(setup);
  Case result{
      "LSE: " + setup.name(), in.saved.lse, {in.saved.lse, 0, "a few roundings"}, log2_lse_mistakes(in.saved.lse)};
  double squares = 0;
  for (std::size_t i = 0; i < result.expected.values.size(); ++i) {
    double &x = result.expected.values[i], &bound = result.bounds.element.values[i];
    const bool masked = std::isinf(x);
    x = masked ? std::numeric_limits<double>::infinity() : x / std::log(2);
    bound = masked ? 0 : 0x1p-21 * std::abs(x);
    squares += bound * bound;
  }
  result.bounds.rms = std::sqrt(squares / double(result.expected.values.size()));
  return result;
}

}  // namespace

TEST_CASE("every known mistake in a gradient is named") {
  for (const char* gradient : {"dQ", "dK", "dV"}) {
    std::vector<Case> cases;
    for (const BackwardSetup& setup : backward_setups()) cases.push_back(gradient_case(gradient, setup));
    // dV takes no notice of dS, so that a P which is not masked gives what no mask at all does. The others take P for
    // dS where both have changed places.
    check_all_named(cases, {std::string(gradient) == "dV" ? "P-not-masked" : "dS-for-P"});
  }
}

TEST_CASE("the gradient model is right as it is made, with heads that share K and V too") {
  std::vector<BackwardSetup> all = backward_setups();
  all.push_back({.shape = {.B = 2, .H = 4, .Hkv = 2, .Nq = 20, .Nk = 30, .d = 32}, .causal = true});
  for (const BackwardSetup& setup : all) {
    const Given in = given(setup);
    for (const char* gradient : {"dQ", "dK", "dV"}) {
      INFO(gradient << ": " << setup.name());
      const GradientModel model(gradient, {in.problem, in.dO, in.saved}, setup.owned, setup.passing, in.precision);
      CHECK_FALSE(gradient_case(gradient, setup, in).exposes(model.compute()));
    }
  }
}

TEST_CASE("every known mistake in D and in the LSE of base 2 is named") {
  constexpr Shape shape{.B = 1, .H = 2, .Hkv = 2, .Nq = 70, .Nk = 30, .d = 64};
  check_all_named(
      {D_case({.shape = shape, .element = float16}), D_case({.shape = shape, .V_mean = 3, .element = float16})}, {});
  check_all_named({log2_lse_case({.shape = shape}), log2_lse_case({.shape = shape, .causal = true})}, {});
}

TEST_CASE("mistakes that another program makes in the backward pass are named") {
  struct Made {
    Slips slips;
    std::string gradient, id;
    BackwardSetup setup = {.shape = square};
  };
  const BackwardSetup masked{.shape = many_keys, .causal = true};
  const BackwardSetup in_bf16{.shape = several_tiles, .element = bfloat16, .owned = 32, .passing = 16};
  for (const Made& made : {Made{{.without_D = true}, "dQ", "D-missing"},
                           {{.without_D = true}, "dK", "D-missing"},
                           Made{{.D_of_dO = true}, "dQ", "D-of-dO"},
                           {{.plus_D = true}, "dK", "D-added"},
                           Made{{.codes_as_fp16 = true}, "dQ", "D-read-as-fp16", in_bf16},
                           {{.codes_as_fp16 = true}, "dK", "D-read-as-fp16", in_bf16},
                           Made{{.scores_not_scaled = true}, "dV", "scores-not-scaled"},
                           Made{{.gradients_not_scaled = true}, "dQ", "no-scale"},
                           {{.gradients_not_scaled = true}, "dK", "no-scale"},
                           Made{{.dS_scaled = true}, "dQ", "scale-twice"},
                           {{.dK_of_dS = true}, "dK", "not-transposed"},
                           Made{{.dQ_of_P = true}, "dQ", "P-for-dS"},
                           {{.without_P = true}, "dK", "no-P"},
                           Made{{.without_lse = true}, "dV", "no-lse"},
                           {{.lse_of_base_2 = true}, "dV", "natural-lse"},
                           Made{{.maximum_for_lse = true}, "dV", "max-for-lse"},
                           {{.maximum_for_lse = true}, "dQ", "max-for-lse"},
                           Made{{.not_masked = true}, "dV", "no-mask", masked},
                           {{.mask_offset = 1}, "dQ", "mask-one-more", masked},
                           Made{{.mask_offset = -1}, "dK", "mask-one-fewer", masked},
                           {{.top_left = true}, "dQ", "mask-top-left", masked},
                           Made{{.top_left = true}, "dV", "mask-top-left", masked}}) {
    INFO(made.id << " in " << made.gradient);
    const Given in = given(made.setup);
    const FloatGradients got = backward_pass(in, made.slips);
    CHECK(gradient_case(made.gradient, made.setup, in)
              .id(made.gradient == "dQ"   ? got.dQ
                  : made.gradient == "dK" ? got.dK
                                          : got.dV) == made.id);
  }
}

TEST_CASE("right gradients, and wrong ones that no known mistake gives, are not diagnosed") {
  for (const BackwardSetup& setup : backward_setups()) {
    INFO(setup.name());
    const Given in = given(setup);
    const FloatGradients right = backward_pass(in, {});
    for (const auto& [gradient, got] : {std::pair{"dQ", &right.dQ}, {"dK", &right.dK}, {"dV", &right.dV}}) {
      INFO(gradient);
      Case test_case = gradient_case(gradient, setup, in);
      test_case.mistakes = remembered(std::move(test_case.mistakes));
      CHECK_FALSE(test_case.diagnose(to_float(test_case.expected)));
      CHECK_FALSE(test_case.diagnose(*got));

      Tensor<float> random = *got, larger = *got, noisy = *got, reversed = *got;
      random.values = normal_values(random.values.size(), 99);
      for (float& x : larger.values) x *= 1.07F;
      for (std::size_t i = 0; i < noisy.values.size(); ++i)
        noisy.values[i] += float(20 * noise(i) * test_case.bounds.element.values[i]);
      std::ranges::reverse(reversed.values);
      for (const Tensor<float>* wrong : {&random, &larger, &noisy, &reversed}) CHECK(test_case.id(*wrong) == "none");
    }
  }
}

TEST_CASE("of mistakes that give the same numbers in one gradient the others decide") {
  // Both give keys 16 to 31 the dK and dV of keys 0 to 15; only one of them is in S and dP, and so in dQ.
  const BackwardSetup setup{.shape = several_tiles, .element = float16, .owned = 32, .passing = 32};
  const Given in = given(setup);
  for (const std::string id : {"first-keys-twice", "first-keys-again"}) {
    INFO(id);
    std::vector<Case> cases;
    std::vector<std::vector<judge::Mistake>> mistakes;
    std::vector<Tensor<float>> got;
    for (const char* gradient : {"dV", "dK", "dQ"}) {
      cases.push_back(gradient_case(gradient, setup, in));
      mistakes.push_back(
          gradient_mistakes(9, {gradient, {in.problem, in.dO, in.saved}, setup.owned, setup.passing, in.precision}));
      const auto made = std::ranges::find(mistakes.back(), id, &judge::Mistake::id);
      got.push_back(to_float(made == mistakes.back().end() ? cases.back().expected : made->output()));
    }
    std::vector<judge::Answered> answer;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const bool right = id == "first-keys-again" && i == 2;
      answer.push_back({&got[i], &cases[i].expected, &cases[i].bounds, &mistakes[i], right});
    }
    const auto in_dV = judge::diagnose(got[0], cases[0].expected, cases[0].bounds, mistakes[0]);
    REQUIRE(in_dV);
    CHECK(in_dV->also.size() == 1);
    const auto in_all = judge::diagnose(answer);
    REQUIRE(in_all);
    CHECK(in_all->id == id);
    CHECK(in_all->also.empty());
  }
}
