// Chapter 17, the forward pass: RoPE, and dropout of P.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/17_rope_dropout/mask_cases.hpp"
#include "tests/support/forward_properties.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

Input masked(const std::string& kind, const Shape& shape, std::uint64_t seed, const Mask& mask) {
  return {make_input(kind, {shape, mask, 0, seed}), fmt::format("{}, seed {}", kind, seed), kind};
}
AttentionResult expect_masked(const std::string& kind, const Shape& shape, std::uint64_t seed, const Mask& mask) {
  return expect_right(masked(kind, shape, seed, mask), small_tiles(shape.d));
}
/// The masks on some lengths, and every kind of input with the first of them.
void expect_masks(const std::vector<Mask>& masks, std::uint64_t seed) {
  for (const auto& [Nq, Nk] : some_lengths)
    for (const Mask& mask : masks) expect_masked("normal", {1, 2, 2, Nq, Nk, 64}, ++seed, mask);
  for (const InputKind& kind : input_kinds()) expect_masked(kind.name, {1, 1, 1, 40, 70, 64}, ++seed, masks[0]);
  for (const float scale : {-0.2f, 0.0f})
    expect_right(with_scale(masked("normal", {1, 1, 1, 40, 70, 64}, ++seed, masks[0]), scale), small_tiles(64));
  expect_every_kind_in_this_part();
}

}  // namespace

// ---- 17.1 Philox ----

namespace {

using Words = std::array<std::uint32_t, 6>;  // a counter and a key
std::array<std::uint32_t, 4> philox(Words w) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t left = std::uint64_t(0xD2511F53) * w[0], right = std::uint64_t(0xCD9E8D57) * w[2];
    w[0] = std::uint32_t(right >> 32) ^ w[1] ^ w[4], w[1] = std::uint32_t(right);
    w[2] = std::uint32_t(left >> 32) ^ w[3] ^ w[5], w[3] = std::uint32_t(left);
    w[4] += 0x9E3779B9, w[5] += 0xBB67AE85;
  }
  return {w[0], w[1], w[2], w[3]};
}

}  // namespace

TEST_CASE("Philox gives the known answers", "[17.1]") {
  const auto own = std::uint32_t(grading_seed());
  // Random123's kat_vectors, then numbers of any kind.
  std::vector<Words> inputs{{0, 0, 0, 0, 0, 0},
                            {~0u, ~0u, ~0u, ~0u, ~0u, ~0u},
                            {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0}};
  const std::array<std::uint32_t, 4> known[] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                                {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                                {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
  for (std::uint32_t n = 0; n < 29; ++n) inputs.push_back({n + own, 7 * n, n * n, 0, 17 + own, n / 2});
  std::vector<std::int32_t> given;
  for (const Words& words : inputs) given.insert(given.end(), words.begin(), words.end());
  const auto got = numbers_of("draw", {{"n", double(inputs.size())}}, given, 4 * inputs.size());
  for (std::size_t n = 0; n < inputs.size(); ++n) {
    const auto right = n < 3 ? known[n] : philox(inputs[n]);
    std::array<std::uint32_t, 4> is{};
    std::copy_n(got.begin() + std::ptrdiff_t(4 * n), 4, is.begin());
    expect(is == right && right == philox(inputs[n]),
           fmt::format("for the counter {:08x} {:08x} {:08x} {:08x} and the Philox key {:08x} {:08x} your code returns "
                       "{:08x}, expected {:08x}",
                       inputs[n][0], inputs[n][1], inputs[n][2], inputs[n][3], inputs[n][4], inputs[n][5],
                       fmt::join(is, " "), fmt::join(right, " ")));
  }
}

// ---- 17.2 bits ----

namespace {

/// Lanes and bits of one block, in which a row is a query or, transposed, a key.
void expect_bits(bool transposed) {
  const std::int32_t seed[] = {std::int32_t(77 + grading_seed()), 5};
  for (const auto& [dropped, head, first_query, first_key] :
       {std::array{128, 0, 0, 0}, {26, 3, 64, 96}, {230, 1, 32, 0}, {128, 65536, 0, 1 << 20}}) {
    const auto got = numbers_of<std::int32_t>("bits",
                                              {{"dropped", dropped},
                                               {"head", head},
                                               {"first_query", first_query},
                                               {"first_key", first_key},
                                               {"transposed", transposed ? 1 : 0}},
                                              {seed[0], seed[1]}, 32);
    for (int lane = 0; lane < 32; ++lane)
      for (int bit = 0; bit < 32; ++bit) {
        const int e = bit % 4, row = bit / 16 * 16 + lane / 4 + e / 2 * 8,
                  column = bit / 4 % 4 * 8 + lane % 4 * 2 + e % 2;
        const int query = transposed ? column : row, key = transposed ? row : column;  // from the block's first on
        const auto drawn = philox({std::uint32_t(first_key / 4 + key % 8), std::uint32_t(first_query / 4 + query % 8),
                                   std::uint32_t(head), 0, std::uint32_t(seed[0]), std::uint32_t(seed[1])});
        const int byte = int(drawn[std::size_t(query / 8)] >> 8 * (key / 8) & 255);
        const bool is = (std::uint32_t(got[std::size_t(lane)]) >> bit & 1) != 0;
        if (is == (byte >= dropped)) continue;
        expect(false, fmt::format(
                          "in lane {} your bit of query {} and key {} of head {} is that of a {} pair, but its byte is "
                          "{}, and pairs with a byte less than {} are dropped; {}",
                          lane, first_query + query, first_key + key, head, is ? "kept" : "dropped", byte, dropped,
                          transposed ? "a row is a key" : "a row is a query"));
      }
  }
  expect(true, "");
}

}  // namespace

TEST_CASE("each pair of a block uses its own byte", "[17.2]") {
  expect_bits(false);
}
TEST_CASE("a transposed block drops the same pairs", "[17.2]") {
  expect_bits(true);
  expect_masks(dropouts(), 20);
}

// ---- 17.3 dropout ----

TEST_CASE("dropout is applied to P after the row sum", "[17.3]") {
  expect_masks(dropouts(), 100);
  for (const Mask& mask : dropouts()) expect_masked("normal", {2, 2, 2, 70, 161, 128}, 150, mask);
}

// ---- 17.4 the table ----

TEST_CASE("each pair of columns has its angle at each position", "[17.4]") {
  const std::vector<float> positions{0, 1, 2, 100, -3, 4095, 131071, 1 << 20};
  const auto got = numbers_of("rotations", {{"n", double(positions.size())}}, positions, 64 * positions.size());
  constexpr double allowed = 0x1p-23;  // a rounding to float, of numbers up to 1, and a last place of double's sine
  for (std::size_t at = 0; at < got.size(); ++at) {
    const double angle = positions[at / 64] * std::pow(10000, -2 * double(at / 2 % 32) / 64);
    const double right = at % 2 != 0 ? std::sin(angle) : std::cos(angle), off = std::abs(double(got[at]) - right);
    expect(off <= allowed,
           fmt::format("your {} of RoPE pair {} at position {} is {}, expected {}; difference {:.1g}, allowed {:.1g}",
                       at % 2 != 0 ? "sine" : "cosine", at / 2 % 32, positions[at / 64], got[at], right, off, allowed));
  }
}
TEST_CASE("the table rotates rows of Q and K", "[17.4]") {
  expect_masks(rotations(), 200);
}

// ---- 17.5 a pair of chunks ----

TEST_CASE("elements half a head apart are rotated as a pair", "[17.5]") {
  std::array<double, 8> x{}, y{}, cos{}, sin{};  // eight pairs, and their cosines and sines
  std::vector<float> given(32);
  for (std::size_t k = 0; k < 8; ++k) {
    x[k] = double(k) - 2.5, y[k] = 0.25 * double(k * k) - 3;
    cos[k] = float(std::cos(0.3 * double(k + 1))), sin[k] = float(std::sin(0.3 * double(k + 1)));
    given[k] = float(x[k]), given[8 + k] = float(y[k]);
    given[16 + 2 * k] = float(cos[k]), given[17 + 2 * k] = float(sin[k]);
  }
  const auto got = numbers_of("chunks", {}, given, 16);
  for (std::size_t k = 0; k < 8; ++k) {
    const double right_x = x[k] * cos[k] - y[k] * sin[k], right_y = y[k] * cos[k] + x[k] * sin[k];
    expect(std::abs(double(got[k]) - right_x) <= 0.01 && std::abs(double(got[8 + k]) - right_y) <= 0.01,  // fp16
           fmt::format("your code rotates x[{0}] = {1} and y[{0}] = {2} with cosine {3} and sine {4} to {5} and {6}, "
                       "expected {7} and {8}",
                       k, x[k], y[k], cos[k], sin[k], got[k], got[8 + k], right_x, right_y));
  }
  expect_masks(rotations(), 300);
}

TEST_CASE("cosines and sines are read 16 bytes at a time", "[17.5]") {
  require_counters();
  const std::vector<float> given(32);
  worker::Call request("chunks");
  request.input("given", given).output<float>("numbers", 16);
  expect_count(call(request), "given.load_requests", 16 + 4,
               "16 elements, one by one, then eight cosines and sines, 64 bytes",
               "your code reads the table 8 bytes at a time; it must read the rotations of two RoPE pairs as one "
               "vector of 16 bytes",
               "table-narrow");
}

// ---- 17.6 positions ----

TEST_CASE("queries and keys are rotated by their positions", "[17.6]") {
  expect_masks(rotations(), 400);
  // Tiles of several warps, and several tiles of queries.
  for (const Mask& mask : rotations())
    for (const auto& [Nq, Nk] : {std::pair{150, 150}, {150, 300}, {300, 150}})
      expect_right(masked("normal", {1, 1, 1, Nq, Nk, 64}, 450, mask), usual_tiles(64));
}

TEST_CASE("scores depend only on the distance between positions", "[17.6]") {
  // All rows of Q are equal, and so are all rows of K. Then pairs at the same distance must have the same score.
  const std::int64_t N = 96, d = 64;
  Input given = masked("normal", {1, 1, 1, N, N, d}, 470, rotated(Mask::causal));
  for (Tensor<float>* tensor : {&given.problem.Q, &given.problem.K})
    for (std::int64_t i = 1; i < N; ++i) std::copy_n(&(*tensor)(0, 0, 0, 0), d, &(*tensor)(0, 0, i, 0));
  given.kind.clear();
  expect_right(given, small_tiles(d));
}

// ---- The whole chapter ----

TEST_CASE("RoPE and dropout agree with the oracle", "[whole]") {
  expect_every_kind();
  std::uint64_t seed = 500;
  for (const std::int64_t d : head_dims())
    for (const auto& [Nq, Nk] : {std::pair{200, 333}, {333, 200}})
      for (const auto& masks : {rotations(), dropouts(), all_together()})
        for (const Mask& mask : masks)
          expect_right(masked("normal", {1, 2, 2, Nq, Nk, d}, ++seed, mask), usual_tiles(d));
  for (const InputKind& kind : input_kinds())
    for (const Mask& mask : all_together()) expect_masked(kind.name, {1, 1, 1, 70, 90, 64}, ++seed, mask);
}

TEST_CASE("bf16 agrees with the oracle", "[whole]") {
  expect_element(bfloat16);
  for (const std::int64_t d : head_dims())
    for (const Mask& mask : all_together())
      expect_right(masked("normal", {1, 2, 2, 70, 133, d}, 560, mask), small_tiles(d), bfloat16);
}

TEST_CASE("any two lengths agree with the oracle", "[whole]") {
  expect_any_two_lengths();
  std::uint64_t seed = 570;
  for (const auto& [Nq, Nk] : {std::pair{1, 1}, {1, 130}, {31, 33}, {65, 64}, {7, 3}, {129, 200}})
    for (const Mask& mask : all_together()) expect_masked("normal", {1, 1, 1, Nq, Nk, 64}, ++seed, mask);
}

TEST_CASE("the dropped pairs do not depend on the tile sizes", "[whole]") {
  // With a V that has a 1 for each key in a column of its own, O is P.
  const std::int64_t N = 64;
  Input given = masked("uniform", {1, 3, 3, N, N, 64}, 580, dropped(Mask::none, 100));
  std::fill(given.problem.V.values.begin(), given.problem.V.values.end(), 0.0f);
  for (std::int64_t h = 0; h < 3; ++h)
    for (std::int64_t j = 0; j < N; ++j) given.problem.V(0, h, j, j) = 1;
  given.kind.clear();
  std::vector<std::vector<bool>> zeros;
  for (const Tiles& tiles : all_tiles(64)) {
    const AttentionResult got = expect_right(given, tiles);
    std::vector<bool>& own = zeros.emplace_back();
    for (const float P : got.O.values) own.push_back(P == 0);
    expect(own == zeros[0], "the dropped pairs differ between tile sizes",
           "your dropped pairs depend on the tile size; they must depend only on seed, head, query and key",
           "dropped-by-tiles");
  }
  const double share = double(std::ranges::count(zeros[0], true)) / double(zeros[0].size());
  expect(std::abs(share - 100 / 256.0) < 0.03,
         fmt::format("your code drops {:.1f} % of P, expected about {:.1f} %", 100 * share, 100 * 100 / 256.0),
         "your code drops another fraction of the pairs; a pair must be dropped if its byte is less than `dropped`",
         "dropped-share");
}

namespace {
/// Of a forward pass that rotates: the table is filled once, and read once for each row that a block copies.
void expect_table_read(const Shape& shape, const Tiles& tiles, const Mask& mask) {
  const Input given = masked("normal", shape, 590, mask);
  const worker::Reply reply = attention(given, tiles).reply;
  std::int64_t rows = shape.B * shape.H * shape.Nq;
  rows += over_q_tiles(shape, tiles, [&](std::int64_t t) {
    return std::min(shape.Nk, visited_tiles(given.problem, tiles, t) * tiles.Bc);
  });
  const std::string what = text(given.problem, tiles);
  expect_count(reply, "table.store_bytes", double(std::max(shape.Nq, shape.Nk) * shape.d * 4),
               "d/2 cosines and sines of 4 bytes for each position, " + what,
               "your code does not write each entry of the table exactly once; it must do so", "table-filled");
  expect_count(reply, "table.load_bytes", double(rows * shape.d * 4),
               fmt::format("{} rows of Q and K are copied, 4·d bytes each, {}", rows, what),
               "your code does not rotate each copied row exactly once; each thread must rotate what it has copied",
               "table-read");
}
}  // namespace

TEST_CASE("the table is read once per copied row", "[whole]") {
  require_counters();
  for (const std::int64_t d : head_dims())
    for (const Tiles& tiles : {usual_tiles(d), small_tiles(d)})
      for (const Mask& mask : rotations())
        for (const auto& [Nq, Nk] : {std::pair{200, 333}, {333, 200}})
          expect_table_read({1, 2, 2, Nq, Nk, d}, tiles, mask);
}

TEST_CASE("bits are drawn once per computed block of 32 x 32 pairs", "[whole]") {
  require_counters();
  for (const std::int64_t d : head_dims())
    for (const Tiles& tiles : {usual_tiles(d), small_tiles(d)})
      for (const Mask& mask : both([](const Mask& plain) { return dropped(plain, 26); })) {
        const Input given = masked("normal", {1, 2, 2, 200, 333, d}, 600, mask);
        const worker::Reply reply = attention(given, tiles).reply;
        const std::int64_t blocks = over_q_tiles(given.problem.shape, tiles, [&](std::int64_t t) {
          return visited_tiles(given.problem, tiles, t) * (tiles.Bc / 32) * (tiles.Br / 32);
        });
        expect_count(
            reply, "note.drawn block", double(blocks),
            "two calls of Philox per lane for each block, " + text(given.problem, tiles),
            "your code does not call `kept_pairs` exactly once per block of 32 queries and 32 keys; it must do so",
            "drawn-blocks");
      }
}

TEST_CASE("rotating in shared memory causes no bank conflict", "[whole]") {
  require_counters();
  for (const std::int64_t d : head_dims())
    expect_no_bank_conflicts(
        attention(masked("normal", {1, 1, 1, 128, 128, d}, 610, rotated(Mask::none)), usual_tiles(d)).reply);
}

TEST_CASE("without RoPE and dropout nothing else is read or written", "[whole]") {
  expect_moves();
}

const Claims of_the_whole = {
    {"[whole]", "offsets may exceed 32 bits", [] { expect_offsets_beyond_32_bits(); }},
    {"[whole]", "future positions have zero influence", [] { expect_no_future(); }},
    {"[whole]", "a row's answer depends on no other row of Q", [] { expect_rows_independent(); }},
    {"[whole]", "results do not depend on workers or lane order", [] { expect_order_changes_nothing(); }},
    {"[whole]", "50 runs are bitwise equal", [] { expect_repeatable(50); }},
    {"[whole]", "the tiles fit 64, 99, 163 and 227 KB of shared memory", [] { expect_tiles_for_every_size(); }},
    {"[whole]", "Q, K and V are copied 16 bytes per thread", [] { expect_wide_tiles("async"); }},
};
