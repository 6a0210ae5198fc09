#include "tests/support/kernel_stage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/attention/element.hpp"
#include "common/attention/half.hpp"

namespace workbook::test {

Input input(const std::string& kind, const Shape& shape, std::uint64_t seed, bool causal) {
  return {make_input(kind, {shape, causal, 0, seed}), fmt::format("{}, seed {}", kind, seed)};
}

Input with_zeros(Input given) {
  const Shape& s = given.problem.shape;
  for (std::int64_t row = 0; row < s.B * s.H * s.Nq; row += 2)
    std::fill_n(given.problem.Q.values.begin() + row * s.d, s.d, 0.0f);
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
  given.name += fmt::format(", Q and K zero outside columns {} to {}", first, first + count - 1);
  return given;
}

Input with_V_of_ones(Input given) {
  std::ranges::fill(given.problem.V.values, 1.0f);
  given.name += ", V all ones";
  return given;
}

Input with_rows_apart(Input given) {
  const Shape& s = given.problem.shape;
  for (std::int64_t row = 0; row < s.B * s.H * s.Nq; ++row)
    for (std::int64_t c = 0; c < s.d; ++c)
      given.problem.Q.values[std::size_t(row * s.d + c)] *= float(row % s.Nq % 32) / 8;
  given.name += ", Q of row i times (i % 32)/8";
  return given;
}

void expect_lse(const Input& given, const Numbers& numbers, const judge::Tiling& tiling) {
  const Problem problem = in_element(given.problem);
  const AttentionResult result = attention(problem, numbers);
  const Forward oracle = forward_oracle(problem);
  judge::Layout layout;
  layout.tensor = "lse";
  layout.axes[3] = "";
  layout.Br = tiling.Br;
  layout.Bc = tiling.Bc;
  expect_close(result.lse, {oracle.lse, lse_bounds(oracle, problem, precision()), layout, lse_mistakes(problem, tiling),
                            describe(problem, given.name)});
}

bool is_right(const Problem& given, const AttentionResult& result) {
  const Problem problem = in_element(given);
  const Forward oracle = forward_oracle(problem);
  return judge::compare(result.O, oracle.O, output_bounds(oracle, problem, precision()), {}).close &&
         judge::compare(result.lse, oracle.lse, lse_bounds(oracle, problem, precision()), {}).close;
}

Padded attention_padded(const Problem& problem, const Numbers& numbers, std::int64_t rows_behind, float behind) {
  const Shape& s = problem.shape;
  worker::Call request("forward");
  request.number("B", 1).number("H", 1).number("Hkv", 1);
  request.number("Nq", double(s.Nq)).number("Nk", double(s.Nk)).number("d", double(s.d));
  request.number("scale", problem.scale).number("mask", problem.mask.kind);
  for (const auto& [name, value] : numbers) request.number(name, value);
  const auto padded = [&](const Tensor<float>& tensor) {
    std::vector<std::uint16_t> codes = to_codes(tensor.values, "float16");
    codes.resize(codes.size() + std::size_t(rows_behind * s.d), float_to_half(behind));
    return codes;
  };
  const std::vector<std::uint16_t> Q = padded(problem.Q), K = padded(problem.K), V = padded(problem.V);
  request.input("Q", Q).input("K", K).input("V", V);
  request.output<std::uint16_t>("O", std::size_t(s.q_size())).output<float>("lse", std::size_t(s.lse_size()));
  const worker::Reply reply = call(request);
  return {reply.output<std::uint16_t>("O"), reply.output<float>("lse")};
}

void expect_nothing_from_behind(const Problem& problem, const Numbers& numbers, std::int64_t rows_behind) {
  const auto d = std::size_t(problem.shape.d);
  const Padded zeros = attention_padded(problem, numbers, rows_behind, 0);
  for (const float behind : {1000.0f, std::numeric_limits<float>::quiet_NaN()}) {
    const Padded other = attention_padded(problem, numbers, rows_behind, behind);
    for (std::size_t at = 0; at < zeros.O.size(); ++at) {
      expect(
          other.O[at] == zeros.O[at],
          fmt::format("with Nq={}, Nk={}, row {}, column {} of O is {} when memory behind the last row of Q, K and V "
                      "holds zeros, and {} when it holds {}",
                      problem.shape.Nq, problem.shape.Nk, at / d, at % d, half_to_float(zeros.O[at]),
                      half_to_float(other.O[at]), behind),
          "rows of a tile that do not exist hold what lies behind the tensor: they must be zeros, for 0 · NaN is NaN",
          "tail-not-zeroed");
    }
    expect(other.lse == zeros.lse, "the LSE depends on what lies behind the last row of Q, K and V",
           "rows of a tile that do not exist must be zeros", "tail-not-zeroed");
  }
}

void expect_no_bank_conflicts(const worker::Reply& reply) {
  for (const char* way : {"store", "load"}) {
    const double wavefronts = counter(reply, fmt::format("shared.{}_wavefronts", way)),
                 ideal = counter(reply, fmt::format("shared.{}_ideal", way));
    expect(
        wavefronts == ideal,
        fmt::format("the {}s of shared memory take {} wavefronts, {} without bank conflicts", way, wavefronts, ideal),
        "rows that are accessed together start in the same banks", "bank-conflicts");
  }
}

void expect_wide(const worker::Reply& reply, const std::string& tensor, const std::string& way, double bytes,
                 const std::string& why) {
  const std::string name = tensor + "." + way;
  expect_count(reply, name + "_bytes", bytes, why, "some of it is moved more or less often than it must be", "traffic");
  expect_count(reply, name + "_sectors", bytes / 32, why + ", 32 bytes a sector",
               "neighbouring lanes do not take neighbouring bytes, so that each sector is asked for several times",
               "uncoalesced");
  expect_count(reply, name + "_requests", bytes / 512, why + ", 32 lanes with 16 bytes each a request",
               "a thread takes fewer than 16 bytes at a time", "narrow-access");
}

void expect_order_changes_nothing(const Problem& problem, const Numbers& numbers) {
  const AttentionResult first = attention(problem);
  expect_written(first.O.values[0], "O");
  for (const auto& [workers, lane_seed] : {std::pair{1, 0}, {3, 0}, {0, 1}, {2, 2}, {1, 3}}) {
    Numbers with = numbers;
    with["workers"] = workers;
    with["lane_seed"] = lane_seed;
    const AttentionResult other = attention(problem, with);
    const std::string how = fmt::format("with {} workers and lanes in the order of seed {}", workers, lane_seed);
    expect(other.O.values == first.O.values && other.lse.values == first.lse.values,
           how + " O or the LSE is another, bit for bit",
           "two threads write one place, or add to it in an order that nothing fixes", "order-dependent");
    expect(other.reply.counters == first.reply.counters, how + " the counters are others",
           "what a thread accesses depends on when it runs", "order-dependent");
  }
}

void expect_every_head(Numbers numbers, bool causal) {
  // With one query and one key P is 1 and O is V, exactly.
  const std::int64_t heads = 65600, d = 32;
  Problem problem;
  problem.shape = {heads, 1, 1, 1, 1, d};
  problem.scale = default_scale(d);
  problem.mask = causal;
  problem.Q = problem.K = Tensor<float>({heads, 1, 1, d}, 1.0f);
  problem.V = Tensor<float>({heads, 1, 1, d});
  for (std::size_t at = 0; at < problem.V.values.size(); ++at) problem.V.values[at] = float(at / d % 2039);
  numbers["unobserved"] = 1;
  be_patient(6);
  const AttentionResult result = attention(problem, numbers);
  for (std::int64_t head = 0; head < heads; ++head) {
    const float got = result.O.values[std::size_t(head * d)], wanted = problem.V.values[std::size_t(head * d)];
    if (got == wanted && head + 1 < heads) continue;
    expect(got == wanted,
           fmt::format("with B·H = {} and one key, O of head {} is {}, expected {}, the value of that key", heads, head,
                       got, wanted),
           "heads from 65536 on are not computed, or confused with others: a grid has at most 65535 blocks in y and z, "
           "and 16 bits do not hold a head's number",
           "heads-above-65535");
  }
}

void expect_no_extra_memory(std::uint64_t seed, bool causal, const std::string& stored) {
  for (const std::int64_t N : {64, 256}) {
    const AttentionResult result = attention(input("normal", {1, 1, 1, N, N, 64}, seed, causal).problem);
    expect_written(result.O.values[0], "O");
    expect(
        result.reply.extra_bytes == 0,
        fmt::format("at N = {} the stage allocated {} bytes of device memory beside Q, K, V, O and the LSE; it needs "
                    "none",
                    N, result.reply.extra_bytes),
        stored + " is stored in device memory", "extra-memory");
  }
}

}  // namespace workbook::test
