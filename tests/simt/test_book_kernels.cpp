// Chapter 1's and chapter 3's kernels on the simulator: correct against the oracle, without a report, and with exactly
// the traffic that their formulas predict.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "common/attention/half.hpp"
#include "common/simt/simulator.hpp"
#include "tests/simt/half_problem.hpp"
#include "tests/simt/two_tensors.hpp"

using namespace workbook;

namespace {

/// 32-byte sectors of `rows` rows of d fp16 numbers, in tiles that are read separately.
double sectors(std::int64_t rows, std::int64_t d) {
  return double(rows * d * 2) / 32;
}

}  // namespace

TEST_CASE("chapter 3's kernel is right on every tile size, ragged or not") {
  for (const std::int64_t d : {32, 64, 128}) {
    for (const auto& [Br, Bc, warps] : {std::tuple{64, 64, 4}, {32, 64, 4}, {32, 64, 2}, {32, 32, 2}}) {
      for (const auto& [Nq, Nk] : {std::pair{1, 1}, {70, 133}}) {
        const zoo::HalfProblem half("rising maximum", {1, 2, 2, Nq, Nk, d});
        INFO("d=" << d << " Br=" << Br << " Bc=" << Bc << " warps=" << warps << " Nq=" << Nq << " Nk=" << Nk);
        CHECK(half.wrong(zoo::tiled_wmma(half.call, Br, Bc, warps)) == "");
      }
    }
  }
}

TEST_CASE("chapter 3's kernel is right for adversarial inputs") {
  for (const InputKind& kind : input_kinds()) {
    INFO(kind.name);
    const zoo::HalfProblem half(kind.name, {1, 1, 1, 65, 200, 64});
    CHECK(half.wrong(zoo::tiled_wmma(half.call, 64, 64, 4)) == "");
  }
}

TEST_CASE("chapter 3 reads Q once, K and V once for each Q tile, and writes O and the LSE once") {
  if (!simt::instrumented()) SKIP("this build does not count accesses");
  const std::int64_t BH = 2, Nq = 200, Nk = 150, d = 64, Br = 64, Bc = 64;
  const zoo::HalfProblem half("normal", {1, BH, BH, Nq, Nk, d});
  const auto counters = zoo::tiled_wmma(half.call, int(Br), int(Bc), 4).counters;
  const double q_tiles = double((Nq + Br - 1) / Br), kv_tiles = double((Nk + Bc - 1) / Bc);
  CHECK(counters.at("Q.load_sectors") == BH * sectors(Nq, d));
  CHECK(counters.at("K.load_sectors") == q_tiles * BH * sectors(Nk, d));
  CHECK(counters.at("V.load_sectors") == q_tiles * BH * sectors(Nk, d));
  CHECK(counters.at("O.store_sectors") == BH * sectors(Nq, d));
  CHECK(counters.at("lse.store_sectors") == double(BH * Nq * 4) / 32);
  // Three barriers per pair of tiles, and one more per Q tile.
  CHECK(counters.at("block_barriers") == BH * q_tiles * (3 * kv_tiles + 1));
}

TEST_CASE("chapter 1's three kernels are right, causal or not") {
  for (const bool causal : {false, true}) {
    for (const std::int64_t d : {32, 64, 128}) {
      for (const auto& [Nq, Nk] : {std::pair{1, 1}, {70, 133}, {90, 40}}) {
        const zoo::HalfProblem half("value mean", {1, 2, 2, Nq, Nk, d}, causal);
        INFO("causal=" << causal << " d=" << d << " Nq=" << Nq << " Nk=" << Nk);
        CHECK(half.wrong(zoo::naive_attention(half.call)) == "");
      }
    }
  }
}

TEST_CASE("chapter 1's three kernels write S and P once and read them once") {
  if (!simt::instrumented()) SKIP("this build does not count accesses");
  const std::int64_t BH = 2, Nq = 128, Nk = 192, d = 64;
  const zoo::HalfProblem half("normal", {1, BH, BH, Nq, Nk, d});
  const auto counters = zoo::naive_attention(half.call).counters;
  const double S_sectors = double(BH * Nq * Nk * 4) / 32, P_sectors = double(BH * Nq * Nk * 2) / 32;
  CHECK(counters.at("S.store_sectors") == S_sectors);
  CHECK(counters.at("S.load_sectors") == S_sectors);
  CHECK(counters.at("P.store_sectors") == P_sectors);
  CHECK(counters.at("P.load_sectors") == P_sectors);
}

TEST_CASE("chapter 3's warm-ups copy, transpose and multiply") {
  std::vector<std::uint16_t> codes(1003);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = float_to_half(float(i % 97) / 16 - 3);
  for (const std::size_t count : {1, 7, 8, 1003}) {
    const std::vector<std::uint16_t> from(codes.begin(), codes.begin() + std::ptrdiff_t(count));
    CHECK(zoo::copy(from) == from);
  }
  const std::int64_t rows = 33, columns = 70;
  const std::vector<float> matrix = normal_values(std::size_t(rows * columns), 4);
  const std::vector<float> transposed = zoo::transpose(matrix, rows, columns);
  bool equal = true;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      equal = equal && transposed[std::size_t(j * rows + i)] == matrix[std::size_t(i * columns + j)];
    }
  }
  CHECK(equal);
  const std::vector<std::uint16_t> A(codes.begin(), codes.begin() + 256), B(codes.begin() + 256, codes.begin() + 512);
  const std::vector<float> C = zoo::multiply_transposed(A, B);
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < 16; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < 16; ++k) sum += double(half_to_float(A[i * 16 + k])) * half_to_float(B[j * 16 + k]);
      CHECK(std::abs(C[i * 16 + j] - sum) < 1e-4);
    }
  }
}

TEST_CASE("an instruction whose lanes access two tensors is counted for each tensor") {
  if (!simt::instrumented()) SKIP("this build does not count accesses");
  simt::clear_launches();
  zoo::run_two_tensors();
  const simt::Launch& launch = simt::last_launch();
  REQUIRE(launch.tensor("a") != nullptr);
  REQUIRE(launch.tensor("b") != nullptr);
  CHECK(launch.tensor("a")->counters.load_bytes == 8 * 4);
  CHECK(launch.tensor("b")->counters.load_bytes == 24 * 4);
  CHECK(launch.tensor("a")->counters.load_sectors == 1);
  CHECK(launch.tensor("b")->counters.load_sectors == 3);
}
