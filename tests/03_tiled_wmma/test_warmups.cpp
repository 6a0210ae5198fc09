// Chapter 3's warm-ups: a ragged copy, a transpose through shared memory, matmuls on tensor cores.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "common/attention/element.hpp"
#include "common/attention/half.hpp"
#include "tests/support/forward_stage.hpp"
#include "tests/support/matmul.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

constexpr std::int64_t side = 32;  // of the tile that a block transposes

/// n codes of fp16 numbers, none of them NaN, adjacent ones different.
std::vector<std::uint16_t> numbered_codes(std::size_t n) {
  std::vector<std::uint16_t> codes(n);
  for (std::size_t i = 0; i < n; ++i) codes[i] = std::uint16_t(1 + (i * 7 + i / 29999) % 29999);
  return codes;
}

worker::Reply copy(const std::vector<std::uint16_t>& from) {
  worker::Call request("copy");
  request.input("from", from).output<std::uint16_t>("to", from.size());
  return call(request);
}

void expect_copy(std::size_t n) {
  const std::vector<std::uint16_t> from = numbered_codes(n), to = copy(from).output<std::uint16_t>("to");
  const auto i = std::size_t(std::mismatch(from.begin(), from.end(), to.begin()).first - from.begin());
  expect(i == n,
         i == n ? ""
                : fmt::format("of {} elements, element {} became {}, not {}", n, i, half_to_float(to[i]),
                              half_to_float(from[i])),
         "your code reads or writes an element at a wrong index", "copied-wrongly");
}

Tensor<float> numbered_matrix(std::int64_t rows, std::int64_t columns) {
  Tensor<float> matrix({1, 1, rows, columns});
  for (std::size_t i = 0; i < matrix.values.size(); ++i) matrix.values[i] = float(i);
  return matrix;
}

worker::Reply transpose(const Tensor<float>& matrix) {
  worker::Call request("transpose");
  request.number("rows", double(matrix.sizes[2])).number("columns", double(matrix.sizes[3]));
  request.input("from", matrix.values).output<float>("to", matrix.values.size());
  return call(request);
}

void expect_transpose(std::int64_t rows, std::int64_t columns) {
  const Tensor<float> matrix = numbered_matrix(rows, columns);
  Tensor<double> expected({1, 1, columns, rows});
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) expected(0, 0, j, i) = matrix(0, 0, i, j);
  }
  judge::Layout layout;
  layout.tensor = "to";
  layout.axes[0] = layout.axes[1] = "";
  expect_close(tensor(transpose(matrix), "to", {1, 1, columns, rows}),
               {expected,
                {Tensor<double>({1, 1, columns, rows}), 0, "a transpose is exact"},
                layout,
                fmt::format("from ({}, {}) to ({}, {}), element i is i", rows, columns, columns, rows)});
}

Tensor<float> half_matrix(std::uint64_t seed, std::int64_t rows = 16, std::int64_t columns = 16) {
  return half_tensor({1, 1, rows, columns}, seed);
}

Tensor<float> identity() {
  Tensor<float> matrix({1, 1, 16, 16});
  for (std::int64_t i = 0; i < 16; ++i) matrix(0, 0, i, i) = 1;
  return matrix;
}

void expect_matmul(const Tensor<float>& A, const Tensor<float>& B, const std::string& what) {
  Matmul{"multiply_transposed", true, A, B}.expect_right(what);
}

constexpr std::int64_t tile = 64;  // of multiply_tiles

Matmul tiled_matmul(const Tensor<float>& A, const Tensor<float>& B) {
  return {"multiply_tiles", true, A, B, {{"depth", double(A.sizes[3])}}};
}
Matmul tiled_matmul(std::int64_t depth, std::uint64_t seed) {
  return tiled_matmul(half_matrix(seed, tile, depth), half_matrix(seed + 1, tile, depth));
}
void expect_tiled_matmul(const Matmul& given, const std::string& what) {
  given.expect_right(fmt::format("depth={}, {}", given.A.sizes[3], what));
}
void expect_tiled_matmul(std::int64_t depth, std::uint64_t seed) {
  expect_tiled_matmul(tiled_matmul(depth, seed), fmt::format("normal A and B, seeds {} and {}", seed, seed + 1));
}

}  // namespace

TEST_CASE("the copy is complete for every length", "[3.1]") {
  for (const std::size_t n : {1, 7, 8, 9, 64, 1003, 4096}) expect_copy(n);
  // More than 1024 blocks of 256 threads take in one step.
  expect_copy(1024 * 256 * 8 + 2051);
}

TEST_CASE("the copy moves 16 bytes per thread", "[3.1]") {
  require_counters();
  const std::size_t n = 24 * 256;  // groups of eight for 24 warps
  const worker::Reply reply = copy(numbered_codes(n));
  for (const auto& [tensor, way] : {std::pair{"from", "load"}, {"to", "store"}})
    expect_wide(reply, tensor, way, double(n) * 2, "every byte once");
}

TEST_CASE("every shape is transposed", "[3.2]") {
  for (const auto& [rows, columns] : {std::pair{64, 96}, {32, 32}, {1, 1}, {33, 70}, {5, 100}, {100, 5}, {31, 1}})
    expect_transpose(rows, columns);
}

TEST_CASE("the transpose has no bank conflicts", "[3.2]") {
  require_counters();
  const worker::Reply reply = transpose(numbered_matrix(64, 96));
  for (const char* way : {"store", "load"}) {
    const double wavefronts = counter(reply, fmt::format("shared.{}_wavefronts", way)),
                 ideal = counter(reply, fmt::format("shared.{}_ideal", way));
    expect(ideal > 0, "shared memory is not used",
           "your code writes `to` directly from `from`; it must use a tile in shared memory", "no-shared-memory");
    const bool one_bank = wavefronts == 32 * ideal;
    expect(
        wavefronts == ideal,
        fmt::format("the {}s of shared memory take {} wavefronts, expected {}, without bank conflicts", way, wavefronts,
                    ideal),
        one_bank
            ? "in your code the elements of a column are in one bank; the row length must be no multiple of 32 floats"
            : "in your code elements of a column share banks; the row length must be an odd number of floats",
        one_bank ? "bank-conflicts" : "even-rows");
  }
}

TEST_CASE("the transpose reads and writes along rows", "[3.2]") {
  require_counters();
  const std::int64_t rows = 64, columns = 96;
  const worker::Reply reply = transpose(numbered_matrix(rows, columns));
  for (const char* side : {"from.load", "to.store"}) {
    expect_count(
        reply, fmt::format("{}_sectors", side), double(rows * columns * 4) / 32, "every sector of 32 bytes once",
        "in your code the lanes of a warp access a column of device memory; x must be the column in `from` and in `to`",
        "uncoalesced");
  }
}

TEST_CASE("one warp multiplies A by the transpose of B", "[3.3]") {
  expect_matmul(half_matrix(1), half_matrix(2), "normal A and B, seeds 1 and 2");
  expect_matmul(half_matrix(3), identity(), "normal A, seed 3, and the identity");
  expect_matmul(identity(), half_matrix(4), "the identity, and normal B, seed 4");
}

TEST_CASE("the accumulator starts at zero", "[3.3]") {
  expect_matmul(Tensor<float>({1, 1, 16, 16}), half_matrix(5), "A = 0, normal B, seed 5");
}

// ---- 3.4 multiply_tiles ----

TEST_CASE("the tiled matmul is correct for every depth", "[3.4]") {
  std::uint64_t seed = 10;
  for (const std::int64_t depth : {64, 128, 192, 320}) expect_tiled_matmul(depth, seed += 2);
}

TEST_CASE("each warp computes its columns, each fragment its rows", "[3.4]") {
  // One row of A and one of B: one element of C.
  for (const auto& [row, column] : {std::pair{0, 0}, {17, 40}, {35, 20}, {63, 63}}) {
    Tensor<float> A({1, 1, tile, 128}), B({1, 1, tile, 128});
    for (std::int64_t k = 0; k < 128; ++k) A(0, 0, row, k) = float(k % 5 + 1), B(0, 0, column, k) = float(k % 3 + 1);
    expect_tiled_matmul(tiled_matmul(A, B), fmt::format("zeros but for row {} of A and row {} of B", row, column));
  }
}

TEST_CASE("tiles of A and B are read once, 16 bytes per thread", "[3.4]") {
  require_counters();
  const std::int64_t depth = 256;
  const double bytes = double(tile * depth * 2);
  const worker::Reply reply = tiled_matmul(depth, 20).reply();
  for (const std::string tensor : {"A", "B"}) expect_wide(reply, tensor, "load", bytes, tensor + " is read once");
}

TEST_CASE("the tiled matmul has two barriers per step and no bank conflicts", "[3.4]") {
  require_counters();
  const worker::Reply two = tiled_matmul(128, 22).reply(), three = tiled_matmul(192, 22).reply();
  const double barriers = counter(three, "block_barriers") - counter(two, "block_barriers");
  expect(barriers == 2, fmt::format("another 64 columns of A and B cost {} barriers, expected 2", barriers),
         "one barrier must follow the loads, and one must precede the next loads; your code has one that protects "
         "nothing, or lacks one",
         "barriers");
  expect_no_bank_conflicts(three);
}

TEST_CASE("the warm-up kernels reproduce their inputs", "[whole]") {
  expect_copy(1003);
  expect_copy(1024 * 256 * 8 + 3);
  expect_transpose(33, 70);
  const Tensor<float> A = half_matrix(6);
  const Tensor<float> C = Matmul{"multiply_transposed", true, A, identity()}.C();
  expect(C.values == A.values, "A times the identity is not A", "", "unknown");
  expect_matmul(A, half_matrix(7), "normal A and B, seeds 6 and 7");
  expect_tiled_matmul(448, 8);
}
