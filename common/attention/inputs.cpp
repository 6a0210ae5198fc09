#include "common/attention/inputs.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "common/attention/random.hpp"

namespace workbook {
namespace {

/// Independent random streams for Q, K, V and for the other values that a kind draws.
std::uint64_t stream(std::uint64_t seed, std::uint64_t number) {
  return Random((seed ^ number << 56) + grading_seed()).bits();
}

void fill_normal(Tensor<float>& tensor, std::uint64_t seed, double mean = 0) {
  Random random(seed);
  for (float& value : tensor.values) value = float(mean + random.normal());
}

/// The tensors that a kind modifies. Q, K and V initially have their sizes and unit normal values.
struct Draft {
  Problem& problem;
  std::uint64_t seed;

  Random random(std::uint64_t number) const { return Random(stream(seed, number)); }
  float* Q(std::int64_t head, std::int64_t i) const { return &problem.Q.values[(head * Nq() + i) * d()]; }
  float* K(std::int64_t head, std::int64_t j) const {
    return &problem.K.values[(problem.shape.kv_head(head) * Nk() + j) * d()];
  }
  /// The number of keys that a head fills: the first head of a group fills the shared keys.
  std::int64_t own_keys(std::int64_t head) const {
    return head > 0 && problem.shape.kv_head(head - 1) == problem.shape.kv_head(head) ? 0 : Nk();
  }
  std::int64_t heads() const { return problem.shape.B * problem.shape.H; }
  std::int64_t Nq() const { return problem.shape.Nq; }
  std::int64_t Nk() const { return problem.shape.Nk; }
  std::int64_t d() const { return problem.shape.d; }
  double scale() const { return problem.scale; }
};

/// Scores along a profile: scaled score (i, j) = slope_i·profile(j) + noise, with slope_i in [1, steepest]. Coordinate
/// 0 carries the profile. The others carry the noise: signs in Q times small normal numbers in K. The noise has
/// standard deviation `noise` and never exceeds 6 standard deviations. d = 1 has no noise.
template <class Profile>
void fill_profile(const Draft& draft, double steepest, double noise, const Profile& profile) {
  Random random = draft.random(4);
  const double d = double(draft.d());
  const double factor = 1 / std::sqrt(draft.scale());  // splits the profile between Q and K
  const double noise_K = draft.d() > 1 ? noise / (draft.scale() * std::sqrt(d - 1)) : 0;
  for (std::int64_t head = 0; head < draft.heads(); ++head) {
    for (std::int64_t i = 0; i < draft.Nq(); ++i) {
      float* Q = draft.Q(head, i);
      Q[0] = float(factor * (1 + (steepest - 1) * random.uniform()));
      for (std::int64_t c = 1; c < draft.d(); ++c) Q[c] = float(random.sign());
    }
    for (std::int64_t j = 0; j < draft.own_keys(head); ++j) {
      float* K = draft.K(head, j);
      K[0] = float(factor * profile(j));
      for (std::int64_t c = 1; c < draft.d(); ++c) K[c] = float(noise_K * K[c]);  // K[c] was unit normal
    }
  }
}

constexpr double ramp_height = 16;

/// The noise of a ramp over Nk keys: well below the rise over 16 keys, so that every tile of 16 or more keys raises the
/// maximum.
double ramp_noise(std::int64_t Nk) {
  return std::min(0.3, 2 * ramp_height / double(Nk));
}

void value_mean(const Draft& draft) {
  fill_normal(draft.problem.V, stream(draft.seed, 3), /*mean=*/3);
}

void rising_maximum(const Draft& draft) {  // from -8 to 8
  const double Nk = double(draft.Nk());
  fill_profile(draft, 1.25, ramp_noise(draft.Nk()),
               [&](std::int64_t j) { return ramp_height * ((double(j) + 1) / Nk - 0.5); });
}

void falling_maximum(const Draft& draft) {  // key 0 at 10, the others from 8 down to -8
  const double Nk = double(draft.Nk());
  fill_profile(draft, 1.25, ramp_noise(draft.Nk()),
               [&](std::int64_t j) { return ramp_height * (0.5 - double(j) / Nk) + (j == 0 ? 2 : 0); });
}

void negative_logits(const Draft& draft) {  // from -112 to -128: exp without the maximum subtracted is 0 in float
  Random random = draft.random(5);
  fill_profile(draft, 1, 0.8, [&](std::int64_t) { return -112 - 16 * random.uniform(); });
}

/// Q_i = ±g·e + noise and K_j = t_j·g·e + noise along one direction e, with scale·g² = 100 and t_j uniform in [-1, 1],
/// except for two keys at the ends of the interval. Keys near the ends compete, so that P is not one-hot; half of the
/// rows prefer one end, half the other.
void large_logits(const Draft& draft) {
  Random random = draft.random(4);
  const double d = double(draft.d());
  const double g = std::sqrt(100 / draft.scale()), noise = 0.11 / std::sqrt(draft.scale());
  std::vector<double> e(draft.d());
  for (double& value : e) value = random.sign() / std::sqrt(d);
  for (std::int64_t head = 0; head < draft.heads(); ++head) {
    for (std::int64_t i = 0; i < draft.Nq(); ++i) {
      float* Q = draft.Q(head, i);
      const double end = random.sign();
      for (std::int64_t c = 0; c < draft.d(); ++c) Q[c] = float(end * g * e[c] + noise * Q[c]);
    }
    for (std::int64_t j = 0; j < draft.own_keys(head); ++j) {
      float* K = draft.K(head, j);
      double t = 2 * random.uniform() - 1;
      if (j == draft.Nk() / 3)
        t = 1;
      else if (j == 2 * draft.Nk() / 3)
        t = -1;
      for (std::int64_t c = 0; c < draft.d(); ++c) K[c] = float(t * g * e[c] + noise * K[c]);
    }
  }
}

/// From d = 16 on, keys on a sphere are far apart: K_j has |K_j|² = 50/scale, and Q_i equals one of the visible keys.
/// Therefore scaled score (i, hot) = 50, and the others are 50·cos(angle). For smaller d, key 0 is the hot key of all
/// rows.
void one_hot(const Draft& draft) {
  Random random = draft.random(4);
  const double d = double(draft.d());
  const double radius = std::sqrt(50 / draft.scale());
  for (std::int64_t head = 0; head < draft.heads(); ++head) {
    for (std::int64_t j = 0; j < draft.own_keys(head); ++j) {
      float* K = draft.K(head, j);
      double squares = 0;
      for (std::int64_t c = 0; c < draft.d(); ++c) squares += double(K[c]) * K[c];
      for (std::int64_t c = 0; c < draft.d(); ++c)
        K[c] = draft.d() >= 16 ? float(radius / std::sqrt(squares) * K[c]) : float(j == 0 ? radius / std::sqrt(d) : 0);
    }
    for (std::int64_t i = 0; i < draft.Nq(); ++i) {
      const std::vector<std::int64_t> seen = attended_keys(draft.problem, head * draft.Nq() + i);
      const std::int64_t hot = seen.empty() ? 0 : seen[std::size_t(random.below(std::int64_t(seen.size())))];
      std::copy_n(draft.K(head, draft.d() >= 16 ? hot : 0), draft.d(), draft.Q(head, i));
    }
  }
}

void uniform(const Draft& draft) {
  std::fill(draft.problem.Q.values.begin(), draft.problem.Q.values.end(), 0.0f);
}

/// Removes the component of Q and K along one direction e. The last key and every second row (including the last one)
/// get components along e whose product is 15/scale. A spiked row therefore has scaled score 15 at the last key, and
/// nothing else changes.
void late_spike(const Draft& draft) {
  Random random = draft.random(4);
  const double d = double(draft.d());
  const double g = std::sqrt(15 / draft.scale());
  std::vector<double> e(draft.d());
  for (double& value : e) value = random.sign() / std::sqrt(d);
  const auto set_component = [&](float* row, double along_e) {
    double old = 0;
    for (std::int64_t c = 0; c < draft.d(); ++c) old += row[c] * e[c];
    for (std::int64_t c = 0; c < draft.d(); ++c) row[c] = float(row[c] + (along_e - old) * e[c]);
  };
  for (std::int64_t head = 0; head < draft.heads(); ++head) {
    for (std::int64_t i = 0; i < draft.Nq(); ++i)
      set_component(draft.Q(head, i), (draft.Nq() - 1 - i) % 2 == 0 ? g : 0);
    for (std::int64_t j = 0; j < draft.own_keys(head); ++j)
      set_component(draft.K(head, j), j == draft.Nk() - 1 ? g : 0);
  }
}

struct Generator {
  InputKind kind;
  void (*fill)(const Draft&);
};

const std::vector<Generator>& generators() {
  static const std::vector<Generator> all{
      {{"normal", "wrong formulas: no scale, a transposed operand, a skipped tile"}, [](const Draft&) {}},
      {{"value mean", "an output scaled wrongly (l not rescaled, no final division): V has mean 3, so O is far from 0"},
       value_mean},
      {{"rising maximum", "a running sum or output that is not rescaled when a later tile raises the maximum"},
       rising_maximum},
      {{"falling maximum",
        "a maximum taken from the current tile instead of the running one: the first key is the largest"},
       falling_maximum},
      {{"large logits", "exp without the maximum subtracted, and finite mask values: scaled scores reach about ±100"},
       large_logits},
      {{"one hot", "a row of K or V read at the wrong index: each O is almost one row of V"}, one_hot},
      {{"uniform", "a mask or a tail that is off by one key: P = 1/n, so all keys have the same weight"}, uniform},
      {{"late spike", "skipped keys in the last, partial tile: the very last key dominates every second row"},
       late_spike},
      {{"negative logits", "a maximum that starts at 0: all scaled scores are below -100, where exp is 0 in float"},
       negative_logits},
  };
  return all;
}

}  // namespace

const std::vector<InputKind>& input_kinds() {
  static const std::vector<InputKind> kinds = [] {
    std::vector<InputKind> result;
    for (const Generator& generator : generators()) result.push_back(generator.kind);
    return result;
  }();
  return kinds;
}

Problem make_input(const std::string& kind, const InputOptions& options) {
  const Shape& shape = options.shape;
  check(shape, /*any_d=*/true);
  if (!std::isfinite(options.scale) || options.scale < 0)
    fail_input("scale = {}: allowed: positive numbers, or 0 for 1/sqrt(d)", options.scale);
  const auto& all = generators();
  const auto generator = std::find_if(all.begin(), all.end(), [&](const Generator& g) { return g.kind.name == kind; });
  if (generator == all.end()) {
    std::string names;
    for (const InputKind& known : input_kinds()) names += (names.empty() ? "\"" : ", \"") + known.name + "\"";
    fail_input("input kind \"{}\": allowed: {}", kind, names);
  }

  Problem problem{{shape, options.scale > 0 ? options.scale : default_scale(shape.d), options.mask},
                  Tensor<float>({shape.B, shape.H, shape.Nq, shape.d}),
                  Tensor<float>({shape.B, shape.Hkv, shape.Nk, shape.d}),
                  Tensor<float>({shape.B, shape.Hkv, shape.Nk, shape.d})};
  fill_normal(problem.Q, stream(options.seed, 1));
  fill_normal(problem.K, stream(options.seed, 2));
  fill_normal(problem.V, stream(options.seed, 3));
  generator->fill({problem, options.seed});
  return problem;
}

std::uint64_t grading_seed() {
  static const char* const given = std::getenv("WORKBOOK_SEED");
  return given == nullptr ? 0 : std::strtoull(given, nullptr, 16);
}

std::vector<float> normal_values(std::size_t count, std::uint64_t seed) {
  Random random(seed + grading_seed());
  std::vector<float> values(count);
  for (float& value : values) value = float(random.normal());
  return values;
}

}  // namespace workbook
