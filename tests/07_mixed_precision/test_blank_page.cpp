// Chapter 7, the blank page: the reader's own kernel is correct and stays within its limits.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>

#include "common/attention/element.hpp"
#include "tests/support/forward_stage.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

// The first call of a test has 16 keys, which are one tile in every design. So the wrong answer of a known mistake does
// not depend on how the design divides keys and columns among tiles, warps and lanes.

AttentionResult blank_page(const Problem& problem) {
  const Shape& s = problem.shape;
  worker::Call request("blank_page");
  request.number("B", double(s.B)).number("H", double(s.H)).number("Nq", double(s.Nq)).number("Nk", double(s.Nk));
  request.number("scale", problem.scale);
  const auto Q = to_codes(problem.Q.values, float16), K = to_codes(problem.K.values, float16),
             V = to_codes(problem.V.values, float16);
  request.input("Q", Q).input("K", K).input("V", V);
  request.output<std::uint16_t>("O", std::size_t(s.q_size())).output<float>("lse", std::size_t(s.lse_size()));
  const worker::Reply reply = call(request);
  Tensor<float> O({s.B, s.H, s.Nq, s.d});
  O.values = from_codes(reply.output<std::uint16_t>("O"), float16);
  return {O, tensor(reply, "lse", {s.B, s.H, s.Nq, 1}), reply};
}

/// In fp16, whatever the element type of the chapter's other kernels is.
void expect_right(const std::string& kind, const Shape& shape, std::uint64_t seed) {
  const Input given = input(kind, shape, seed);
  const Problem problem = rounded_to(given.problem, float16);
  const AttentionResult got = blank_page(problem);
  const Precision precision = precision_of(float16);
  const Forward oracle = forward_oracle(problem);
  judge::Layout O_layout, lse_layout;
  O_layout.tensor = "O";
  lse_layout.tensor = "lse";
  lse_layout.axes[3] = "";
  const std::string about = describe(problem, given.name);
  expect_all_close({{got.O, {oracle.O, output_bounds(oracle, problem, precision), O_layout, about}},
                    {got.lse, {oracle.lse, lse_bounds(oracle, problem, precision), lse_layout, about}}});
}

std::int64_t groups(std::int64_t rows) {
  return (rows + 63) / 64;
}

}  // namespace

TEST_CASE("your kernel is correct for any lengths and number of heads", "[7.7]") {
  for (const auto& [Nq, Nk] : {std::pair{64, 16}, {33, 64}, {70, 133}, {200, 63}, {129, 257}, {1, 130}, {1, 1}})
    expect_right("normal", {1, 2, 2, Nq, Nk, 64}, 90);
  expect_right("normal", {2, 3, 3, 33, 65, 64}, 91);
}

TEST_CASE("your kernel is correct for adversarial inputs", "[7.7]") {
  for (const InputKind& kind : input_kinds())
    for (const int Nk : {16, 200}) expect_right(kind.name, {1, 1, 1, 70, Nk, 64}, 92);
}

TEST_CASE("your kernel stays within its traffic limits", "[7.7]") {
  require_counters();
  for (const auto& [Nq, Nk] : {std::pair{64, 64}, {200, 130}}) {
    const Input given = input("normal", {1, 2, 2, Nq, Nk, 64}, 93);
    const worker::Reply reply = blank_page(rounded_to(given.problem, float16)).reply;
    const auto moved = [&](const std::string& tensor, const char* way) {
      return counter(reply, fmt::format("{}.{}_bytes", tensor, way));
    };
    const auto read = [&](const std::string& tensor) { return moved(tensor, "load") + moved(tensor, "async"); };
    const double Q_bytes = 2.0 * Nq * 64 * 2, K_bytes = 2.0 * Nk * 64 * 2;
    for (const auto& [name, bytes, most] : {std::tuple{"Q is read", read("Q"), Q_bytes},
                                            {"K is read", read("K"), K_bytes * double(groups(Nq))},
                                            {"V is read", read("V"), K_bytes * double(groups(Nq))},
                                            {"O is written", moved("O", "store"), Q_bytes},
                                            {"the LSE is written", moved("lse", "store"), 2.0 * Nq * 4}}) {
      expect(bytes > 0 && bytes <= most,
             fmt::format("{}: {} bytes, at most {} (Nq={}, Nk={}, 2 heads, d=64)", name, bytes, most, Nq, Nk),
             "your kernel reads or writes a tensor more often than its limit; it must stay within the limit",
             "traffic");
    }
    expect(reply.extra_bytes == 0, fmt::format("{} bytes of device memory are allocated", reply.extra_bytes),
           "your code allocates device memory; it must not", "extra-memory");
  }
}

TEST_CASE("your kernel stays within its barrier limit", "[7.7]") {
  require_counters();
  for (const auto& [Nq, Nk] : {std::pair{64, 64}, {200, 300}}) {
    const Input given = input("normal", {1, 1, 1, Nq, Nk, 64}, 94);
    const double barriers = counter(blank_page(rounded_to(given.problem, float16)).reply, "block_barriers");
    const double most = double(groups(Nq) * (2 * groups(Nk) + 2));
    expect(barriers <= most,
           fmt::format("{} calls of __syncthreads, at most {} are allowed = {} groups of 64 queries · (2 · {} groups "
                       "of 64 keys + 2)",
                       barriers, most, groups(Nq), groups(Nk)),
           "your kernel synchronises its thread blocks more often than its limit; it must stay within the limit",
           "barriers");
  }
}
