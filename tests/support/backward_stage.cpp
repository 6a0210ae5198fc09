#include "tests/support/backward_stage.hpp"

#include <algorithm>

#include "common/attention/inputs.hpp"
#include "common/worker/description.hpp"
#include "tests/support/context.hpp"
#include "tests/support/outcome.hpp"

namespace workbook::test::gradients {

Numbers Sizes::numbers() const {
  Numbers all = variant;
  for (const auto& [name, size] : {std::pair{"Bc", Bc}, {"Br", Br}, {"warps", warps}})
    if (size > 0) all[name] = double(size);
  return all;
}
std::string Sizes::text() const {
  std::string text = fmt::format("Bc = {}, Br = {}, {} warps", Bc, Br, warps);
  for (const auto& [name, value] : variant) text += fmt::format(", {} {}", name, value);
  return text;
}

std::vector<Sizes> all_sizes(std::int64_t d, const Numbers& variant) {
  std::vector<Sizes> all;
  for (const worker::StageTiles& tiles : stage_of("backward", variant).tiles)
    if (!tiles.d || *tiles.d == d)
      all.push_back({tiles.sizes.at("Bc"), tiles.sizes.at("Br"), tiles.sizes.at("warps"), variant});
  return all;
}

namespace {

/// Ends the test where the device has room for none.
std::vector<Sizes> some_sizes(std::int64_t d, const Numbers& variant) {
  std::vector<Sizes> all = all_sizes(d, variant);
  if (all.empty())
    end_test({Result::skipped, fmt::format("a block of this GPU has no room for any tiles of d = {}", d)});
  return all;
}

}  // namespace

Sizes usual_sizes(std::int64_t d, const Numbers& variant) {
  return some_sizes(d, variant).front();
}
Sizes small_sizes(std::int64_t d, const Numbers& variant) {
  return std::ranges::min(some_sizes(d, variant), {}, [](const Sizes& sizes) { return sizes.Bc * sizes.Br; });
}

std::vector<std::int64_t> head_dims() {
  std::vector<std::int64_t> some;
  for (const int d : stage_of("backward").head_dims.value_or(std::vector<int>{32, 64, 128}))
    if (!all_sizes(d).empty()) some.push_back(d);
  return some;
}

// ---- Inputs ----

Input input(const std::string& kind, const Shape& shape, std::uint64_t seed, const Options& options, Element element) {
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

Input only_queries(Input in, std::int64_t first, std::int64_t count) {
  const Shape& s = in.given.problem.shape;
  for (std::size_t at = 0; at < in.given.dO.values.size(); ++at) {
    const std::int64_t query = std::int64_t(at) / s.d % s.Nq;
    if (query < first || query >= first + count) in.given.dO.values[at] /= 64;
  }
  in.kind.clear();
  in.name += fmt::format(", dO small but for queries {} to {}", first, first + count - 1);
  return in;
}

Input with_rows_apart(const Input& in) {
  Problem problem = in.given.problem;
  const Shape& s = problem.shape;
  for (std::int64_t row = 0; row < s.B * s.H * s.Nq; ++row)
    for (std::int64_t c = 0; c < s.d; ++c) problem.Q.values[std::size_t(row * s.d + c)] *= float(row % s.Nq % 16) / 4;
  Tensor<float> dO({s.B, s.H, s.Nq, s.d});
  dO.values.assign(in.given.dO.values.begin(), in.given.dO.values.end());
  return {worker::backward_problem(problem, dO, float16), in.name + ", Q of query i times (i % 16)/4"};
}

// ---- Against the oracle ----

BackwardResult expect_right(const Input& in, const std::vector<std::string>& which, const Sizes& wish,
                            const Order& order, std::optional<Element> element) {
  const Sizes sizes = wish.Bc > 0 ? wish : usual_sizes(in.given.problem.shape.d, wish.variant);
  Numbers numbers = sizes.numbers();
  std::string name = in.name;
  if (element) name += ", " + workbook::name(*element);
  if (order.workers != 0) numbers["workers"] = order.workers;
  if (order.lane_seed != 0) {
    numbers["lane_seed"] = order.lane_seed;
    name += fmt::format(", lanes in the order of seed {}", order.lane_seed);
  }
  BackwardResult result = backward(in.given, numbers, "backward", element);
  note_kinds(in.kind, in.given.problem);
  expect_gradients(result, in.given, fmt::format("{}, {}", name, sizes.text()), sizes.tiles(), precision(element),
                   which);
  return result;
}
BackwardResult expect_right_small(const Input& in, const std::vector<std::string>& which, const Numbers& variant) {
  return expect_right(in, which, small_sizes(in.given.problem.shape.d, variant));
}

void expect_every_kind(const std::vector<std::string>& which, const Numbers& variant) {
  expect_every_kind_in_this_part([&](const Input& in) { expect_right_small(in, which, variant); });
}

bool same_bits(const BackwardResult& a, const BackwardResult& b, bool with_dQ) {
  return (!with_dQ || a.dQ.values == b.dQ.values) && a.dK.values == b.dK.values && a.dV.values == b.dV.values;
}

// ---- What a call has to go through ----

BlockCount count_blocks(const Shape& s, bool causal, const Sizes& sizes) {
  BlockCount count;
  const std::int64_t offset = causal ? s.Nk - s.Nq : s.Nk;
  for (std::int64_t key = 0; key < s.Nk; key += sizes.Bc) {
    for (std::int64_t query = 0; query < s.Nq; query += sizes.Br) {
      if (key > query + sizes.Br - 1 + offset) continue;  // not even its last query would see the first key
      ++count.visited;
      count.masked += key + sizes.Bc > s.Nk || key + sizes.Bc - 1 > query + offset;
      count.queries += std::min(s.Nq, query + sizes.Br) - query;
    }
  }
  return count;
}

std::vector<std::pair<std::int64_t, std::int64_t>> lengths_of_every_kind(std::int64_t Nq) {
  std::vector<std::pair<std::int64_t, std::int64_t>> all{{256, 256}, {128, 320}, {320, 128}, {100, 330}, {330, 100}};
  for (std::int64_t more = -20; more < 20; more += 3) all.emplace_back(Nq, Nq + more);
  return all;
}

Growth::Growth(std::int64_t d, const Sizes& sizes) : where_(fmt::format("d={}, {}", d, sizes.text())) {
  const std::int64_t rows = std::max<std::int64_t>(64, sizes.Br);  // rows are filled up to 64
  q_tiles_ = rows / sizes.Br;
  for (const int i : {0, 1})
    replies_[i] = backward(input("normal", {1, 1, 1, rows * (i + 1), sizes.Bc, d}, 7).given, sizes.numbers()).reply;
}
double Growth::of(const std::string& name) const {
  return (counter(replies_[1], name) - counter(replies_[0], name)) / double(q_tiles_);
}
void Growth::expect(const std::string& name, double must, const std::string& why, const std::string& cause,
                    const std::string& id) const {
  const double got = of(name);
  test::expect(
      got == must,
      fmt::format("{} grows by {} for one Q tile more, and has to grow by {}: {} ({})", name, got, must, why, where_),
      cause, id);
}
void Growth::expect_no_bank_conflict(const std::string& way) const {
  const double wavefronts = of(fmt::format("shared.{}_wavefronts", way)),
               ideal = of(fmt::format("shared.{}_ideal", way));
  test::expect(wavefronts == ideal,
               fmt::format("the {}s of one Q tile take {} passes through the banks; {} would do ({})", way, wavefronts,
                           ideal, where_),
               "your code accesses rows together that lie in the same banks; it must store the chunks at the address "
               "that swizzled() returns",
               "swizzle-conflicts");
}

}  // namespace workbook::test::gradients
