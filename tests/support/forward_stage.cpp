#include "tests/support/forward_stage.hpp"

#include <cmath>
#include <utility>

#include "common/worker/description.hpp"
#include "tests/support/context.hpp"
#include "tests/support/outcome.hpp"

namespace workbook::test {

Numbers Tiles::numbers() const {
  Numbers all = variant;
  for (const auto& [name, size] : {std::pair{"Br", Br}, {"Bc", Bc}, {"warps", warps}})
    if (size > 0) all[name] = double(size);
  return all;
}
std::string Tiles::text() const {
  std::string text = fmt::format("Br={}, Bc={}, {} warps", Br, Bc, warps);
  for (const auto& [name, value] : variant) text += fmt::format(", {} {}", name, value);
  return text;
}

std::vector<Tiles> all_tiles(std::int64_t d, const Numbers& variant) {
  const worker::StageDescription& stage = stage_of("forward", variant);
  std::vector<Tiles> all;
  for (const worker::StageTiles& tiles : stage.tiles) {
    if (tiles.d && *tiles.d != d) continue;
    const auto size = [&](const char* name) {
      const auto found = tiles.sizes.find(name);
      return std::int64_t(found == tiles.sizes.end() ? 0 : found->second);
    };
    all.push_back({size("Br"), size("Bc"), size("warps"), variant});
  }
  if (stage.tiles.empty() && stage.does(d) && !stage.head_dims) all.push_back({0, 0, 0, variant});  // untiled
  return all;
}

namespace {

/// How far apart the sizes are, as powers of two; the warps count less.
double distance(const Tiles& a, const Tiles& b) {
  const auto apart = [](std::int64_t x, std::int64_t y) {
    return x == 0 || y == 0 ? 0 : std::abs(std::log2(double(x) / double(y)));
  };
  return apart(a.Br, b.Br) + apart(a.Bc, b.Bc) + apart(a.warps, b.warps) / 4;
}

/// Ends the test where the device has room for none.
std::vector<Tiles> some_tiles(std::int64_t d, const Numbers& variant) {
  std::vector<Tiles> all = all_tiles(d, variant);
  if (all.empty())
    end_test({Result::skipped, fmt::format("a block of this GPU has no room for any tiles of d = {}", d)});
  return all;
}

}  // namespace

Tiles usual_tiles(std::int64_t d, const Numbers& variant) {
  return some_tiles(d, variant).front();
}
Tiles small_tiles(std::int64_t d, const Numbers& variant) {
  return std::ranges::min(some_tiles(d, variant), {},
                          [](const Tiles& tiles) { return std::pair(tiles.Br * tiles.Bc, -tiles.warps); });
}
Tiles nearest_tiles(std::int64_t d, const Tiles& wish) {
  if (wish.Br == 0) return usual_tiles(d, wish.variant);
  return std::ranges::min(some_tiles(d, wish.variant), {}, [&](const Tiles& tiles) { return distance(tiles, wish); });
}

std::vector<std::int64_t> head_dims() {
  std::vector<std::int64_t> some;
  for (const int d : stage_of("forward").head_dims.value_or(std::vector<int>{32, 64, 128}))
    if (!all_tiles(d).empty()) some.push_back(d);
  return some;
}
std::vector<bool> masks() {
  return stage_of("forward").has(Mask::causal) ? std::vector{false, true} : std::vector{false};
}
std::vector<std::optional<Element>> elements() {
  std::vector<std::optional<Element>> all{std::nullopt};
  for (const Element element : {float16, bfloat16})
    if (element != context().element && !stage_of("forward", {}, element).pass.empty()) all.emplace_back(element);
  return all;
}

// ---- Inputs ----

Input input(const std::string& kind, const Shape& shape, std::uint64_t seed, bool causal) {
  return {make_input(kind, {shape, causal, 0, seed}), fmt::format("{}, seed {}", kind, seed), kind};
}

Input with_zeros(Input given) {
  const Shape& s = given.problem.shape;
  for (std::int64_t row = 0; row < s.B * s.H * s.Nq; row += 2)
    std::fill_n(given.problem.Q.values.begin() + row * s.d, s.d, 0.0f);
  given.kind.clear();
  given.name += ", every second query 0";
  return given;
}

Input with_columns(Input given, std::int64_t first, std::int64_t count) {
  for (Tensor<float>* tensor : {&given.problem.Q, &given.problem.K}) {
    for (std::size_t at = 0; at < tensor->values.size(); ++at) {
      const std::int64_t column = std::int64_t(at) % given.problem.shape.d;
      tensor->values[at] = column >= first && column < first + count ? 2 * tensor->values[at] : 0;
    }
  }
  given.kind.clear();
  given.name += fmt::format(", Q and K zero outside columns {} to {}", first, first + count - 1);
  return given;
}

Input with_V_of_ones(Input given) {
  std::ranges::fill(given.problem.V.values, 1.0f);
  given.kind.clear();
  given.name += ", V all ones";
  return given;
}

Input with_rows_apart(Input given) {
  const Shape& s = given.problem.shape;
  for (std::int64_t row = 0; row < s.B * s.H * s.Nq; ++row)
    for (std::int64_t c = 0; c < s.d; ++c)
      given.problem.Q.values[std::size_t(row * s.d + c)] *= float(row % s.Nq % 32) / 8;
  given.kind.clear();
  given.name += ", Q of row i times (i % 32)/8";
  return given;
}

Input with_values_of(Input given, std::int64_t first, std::int64_t count) {
  const Shape& s = given.problem.shape;
  for (std::size_t at = 0; at < given.problem.V.values.size(); ++at) {
    const std::int64_t key = std::int64_t(at) / s.d % s.Nk;
    float& value = given.problem.V.values[at];
    value = key >= first && key < first + count ? value + 8 : value / 8;
  }
  given.kind.clear();
  given.name += fmt::format(", V small but for keys {} to {}", first, first + count - 1);
  return given;
}

Input with_scale(Input given, float scale) {
  given.problem.scale = scale;
  given.kind.clear();
  given.name += fmt::format(", scale {}", scale);
  return given;
}

// ---- Against the oracle ----

AttentionResult attention(const Input& given, const Tiles& wish) {
  return attention(given.problem, nearest_tiles(given.problem.shape.d, wish).numbers());
}

AttentionResult expect_right(const Input& given, const Tiles& wish, std::optional<Element> element, int lane_seed) {
  const Tiles tiles = nearest_tiles(given.problem.shape.d, wish);
  Numbers numbers = tiles.numbers();
  std::string name = given.name;
  if (tiles.warps > 0) name += fmt::format(", {} warps", tiles.warps);
  for (const auto& [number, value] : tiles.variant) name += fmt::format(", {} {}", number, value);
  if (lane_seed != 0) {
    numbers["lane_seed"] = lane_seed;
    name += fmt::format(", threads and copies in the order of seed {}", lane_seed);
  }
  note_kinds(given.kind, given.problem);
  return expect_attention(given.problem, name, numbers, element);
}

namespace {

judge::Layout layout_of(const std::string& tensor, const Tiles& tiles) {
  judge::Layout layout;
  layout.tensor = tensor;
  layout.Br = tiles.Br;
  layout.Bc = tiles.Bc;
  return layout;
}

}  // namespace

void expect_lse(const Input& given, const Tiles& wish) {
  const Problem problem = in_element(given.problem);
  const Tiles tiles = nearest_tiles(problem.shape.d, wish);
  const AttentionResult result = attention(problem, tiles.numbers());
  const Forward oracle = forward_oracle(problem);
  judge::Layout layout = layout_of("lse", tiles);
  layout.axes[3] = "";
  expect_close(result.lse,
               {oracle.lse, lse_bounds(oracle, problem, precision()), layout, describe(problem, given.name)});
}

void expect_same_as_previous(const Input& given) {
  const Problem problem = in_element(given.problem);
  const Tiles tiles = usual_tiles(problem.shape.d);
  const AttentionResult now = expect_right(given), before = previous_attention(problem);
  const Forward oracle = forward_oracle(problem);
  Bounds bounds = output_bounds(oracle, problem, precision());
  const Bounds before_bounds = output_bounds(oracle, problem, precision_of(context().previous_element));
  for (std::size_t i = 0; i < bounds.element.values.size(); ++i)
    bounds.element.values[i] += before_bounds.element.values[i];
  bounds.rms += before_bounds.rms;
  const auto layout = layout_of(fmt::format("O (expected: chapter {}'s)", context().chapter - 1), tiles);
  expect_close(now.O, {widened(before.O), bounds, layout, describe(problem, given.name)});
}

bool is_right(const Problem& given, const AttentionResult& result) {
  const Problem problem = in_element(given);
  const Forward oracle = forward_oracle(problem);
  return judge::compare(result.O, oracle.O, output_bounds(oracle, problem, precision()), {}).close &&
         judge::compare(result.lse, oracle.lse, lse_bounds(oracle, problem, precision()), {}).close;
}

// ---- What a call has to go through ----

std::int64_t visited_tiles(const Problem& problem, const Tiles& tiles, std::int64_t t) {
  const Shape& s = problem.shape;
  const std::int64_t last_query = std::min((t + 1) * tiles.Br, s.Nq) - 1;
  return tiles_of(visible_keys(last_query, s.Nq, s.Nk, problem.causal()), tiles.Bc);
}

std::string text(const Problem& problem, const Tiles& tiles) {
  return describe(problem) + ", " + tiles.text();
}

double growth(const std::string& name, std::int64_t d, const Tiles& tiles, const std::string& kind) {
  return growth_of([&](const worker::Reply& reply) { return counter(reply, name); }, kind, d, tiles);
}

void expect_no_bank_conflicts(const worker::Reply& reply) {
  for (const char* way : {"store", "load"}) {
    const double wavefronts = counter(reply, fmt::format("shared.{}_wavefronts", way)),
                 ideal = counter(reply, fmt::format("shared.{}_ideal", way));
    expect(
        wavefronts == ideal,
        fmt::format("the {}s of shared memory take {} wavefronts, {} without bank conflicts", way, wavefronts, ideal),
        "your code stores rows that are accessed together so that they start in the same banks; padding or a swizzle "
        "must spread them over all banks",
        "bank-conflicts");
  }
}

void expect_wide(const worker::Reply& reply, const std::string& tensor, const std::string& way, double bytes,
                 const std::string& why) {
  const std::string name = tensor + "." + way;
  expect_count(
      reply, name + "_bytes", bytes, why,
      "your code moves part of the tensor more or less often than needed; the message names the expected number",
      "traffic");
  expect_count(reply, name + "_sectors", bytes / 32, why + ", 32 bytes a sector",
               "adjacent lanes of your code do not access adjacent bytes, so each sector is requested several "
               "times; the access must be coalesced",
               "uncoalesced");
  expect_count(reply, name + "_requests", bytes / 512, why + ", 32 lanes with 16 bytes each a request",
               "a thread of your code accesses fewer than 16 bytes at a time; it must access 16", "narrow-access");
}

}  // namespace workbook::test
