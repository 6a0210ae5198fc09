// Chapter 1's given GPU version: its results, and its traffic, the baseline of the later chapters.
#include <catch2/catch_test_macros.hpp>

#include "tests/support/subject.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

void expect_kernels(const std::string& kind, const Shape& shape, bool causal, std::uint64_t seed) {
  expect_attention(make_input(kind, {shape, causal, 0, seed}), fmt::format("{}, seed {}", kind, seed));
}

/// Elements from one row of S, or of P, to the next.
std::int64_t score_stride(std::int64_t Nk) {
  return (Nk + 15) / 16 * 16;
}

void expect_traffic(const worker::Reply& reply, const std::string& counter, double sectors, const std::string& why) {
  expect_count(reply, counter, sectors, why, "the kernels must move each tensor as often as the lesson's table says",
               "traffic");
}

}  // namespace

TEST_CASE("the given kernels agree with the oracle", "[kernel][whole]") {
  std::uint64_t seed = 0;
  for (const InputKind& kind : input_kinds()) {
    for (const bool causal : {false, true}) {
      expect_kernels(kind.name, {1, 2, 2, 70, 133, 64}, causal, ++seed);
      expect_kernels(kind.name, {2, 1, 1, 90, 40, 32}, causal, ++seed);
    }
  }
  for (const auto& [Nq, Nk] : {std::pair{1, 1}, {1, 100}, {64, 64}, {65, 63}}) {
    for (const std::int64_t d : {32, 64, 128}) expect_kernels("value mean", {1, 2, 2, Nq, Nk, d}, true, ++seed);
  }
  expect_kernels("rising maximum", {1, 1, 1, 2, 5000, 64}, false,
                 ++seed);  // rows that do not fit shared memory's first size
}

TEST_CASE("the given kernels write S and P once and read them once", "[kernel][whole]") {
  require_counters();
  for (const auto& [Nq, Nk] : {std::pair{128, 192}, {100, 150}}) {
    const std::int64_t heads = 2, d = 64, tile = 64;
    const Problem problem = make_input("normal", {{1, heads, heads, Nq, Nk, d}, false, 0, 50});
    const worker::Reply reply = attention(problem).reply;
    const double scores = double(heads * Nq * score_stride(Nk)), row = double(d) * 2 / 32;
    for (const char* way : {"store", "load"}) {
      expect_traffic(reply, fmt::format("S.{}_sectors", way), scores * 4 / 32, "S is written once and read once");
      expect_traffic(reply, fmt::format("P.{}_sectors", way), scores * 2 / 32, "P is written once and read once");
    }
    const std::int64_t q_tiles = (Nq + tile - 1) / tile, kv_tiles = (Nk + tile - 1) / tile;
    expect_traffic(reply, "Q.load_sectors", double(kv_tiles * heads * Nq) * row, "Q is read once per K/V tile");
    expect_traffic(reply, "K.load_sectors", double(q_tiles * heads * Nk) * row, "K is read once per Q tile");
    expect_traffic(reply, "V.load_sectors", double(q_tiles * heads * Nk) * row, "V is read once per Q tile");
    expect_traffic(reply, "O.store_sectors", double(heads * Nq) * row, "O is written once");
  }
}

TEST_CASE("the given kernels need memory for S and P", "[kernel][whole]") {
  const std::int64_t heads = 2, Nq = 96, Nk = 150;
  const AttentionResult result = attention(make_input("normal", {{1, heads, heads, Nq, Nk, 32}, false, 0, 51}));
  const std::int64_t expected = heads * Nq * score_stride(Nk) * (4 + 2);
  expect_written(result.O.values[0], "O");
  expect(result.reply.extra_bytes == expected,
         fmt::format("the stage allocates {1} bytes, expected {0}: S in float and P in half", expected,
                     result.reply.extra_bytes),
         "", "extra-memory");
}
