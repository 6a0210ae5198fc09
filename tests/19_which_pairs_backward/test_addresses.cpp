// Chapter 19, part by part: what the producer brings, and where and when dQ is added.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "common/attention/half.hpp"
#include "tests/19_which_pairs_backward/block_cases.hpp"

using namespace workbook;
using namespace workbook::test;

// ---- 19.5 and 19.6: a Q tile ----

namespace {

/// A Q tile of a head of Q, against a block of keys.
struct QTile {
  const BlocksCase& c;
  const Block& block;
  Int head, number, Br;
  Int row() const { return number * Br; }
  /// The last key that a query of the Q tile sees, of which there may be none.
  Int last_key() const { return block.sequence.window.last(row() + Br - 1) - 1; }
  /// Its first padded row.
  Int padded() const { return head * c.padded() + block.sequence.padded + row(); }
};

// ---- 19.5 the addresses of the TMA loads ----

/// What the producer is given: row r through all heads of Q is r + 1, and 1000 more in its last column; of dO it is the
/// negative of that. Padded row r has the LSE r + 0.5, and its negative for D.
struct NumberedRows {
  std::vector<std::uint16_t> Q, dO;
  std::vector<float> lse, D;
  NumberedRows(const BlocksCase& c, Int d) {
    const Int heads = c.group * c.kv_heads;
    for (Int at = 0; at < heads * c.window.Nq * d; ++at) {
      const auto value = float(at / d + 1 + (at % d == d - 1 ? 1000 : 0));
      Q.push_back(float_to_half(value)), dO.push_back(float_to_half(-value));
    }
    for (Int at = 0; at < heads * c.padded(); ++at) lse.push_back(float(at) + 0.5f), D.push_back(-lse.back());
  }
};
/// What a step brings: of each row of Q its first and its last element, the line of LSE, and the same of dO and D. Rows
/// past the end of the sequence are zeros.
std::vector<float> brought(const QTile& b) {
  std::vector<float> all(std::size_t(6 * b.Br));
  const OneSequence& sequence = b.block.sequence;
  for (Int i = 0; i < b.Br; ++i) {
    const bool exists = b.row() + i < sequence.window.Nq;
    const auto row = float(exists ? b.head * b.c.window.Nq + sequence.first + b.row() + i + 1 : 0);
    const float of[] = {row, row > 0 ? row + 1000 : 0, float(b.padded() + i) + 0.5f};
    for (Int n = 0; n < 6; ++n) all[std::size_t(n * b.Br + i)] = n < 3 ? of[n] : -of[n - 3];
  }
  return all;
}
std::string text_of(const std::vector<float>& tile, Int Br) {
  const auto line = [&](Int n, const char* name) {
    const float* const of = &tile[std::size_t(n * Br)];
    return fmt::format("{} {}, {}, … {}", name, of[0], of[1], of[Br - 1]);
  };
  return line(0, "Q") + line(2, "; LSE") + line(3, "; dO") + line(5, "; D");
}

void expect_tiles(const BlocksCase& c, Int d) {
  const Int Br = d == 64 ? 128 : 64, most = c.most_steps(Br);
  const NumberedRows rows(c, d);
  const std::vector<std::int32_t> starts = c.starts();
  worker::Call request = c.request("tiles", Br);
  request.number("d", double(d)).input("starts", starts);
  request.input("Q", rows.Q).input("dO", rows.dO).input("lse", rows.lse).input("D", rows.D);
  request.output<float>("values", std::size_t(c.blocks() * most * 6 * Br));
  const worker::Reply reply = call(request.output<std::int32_t>("blocks", std::size_t(3 * c.blocks())));
  const auto values = reply.output<float>("values");
  const auto blocks = reply.output<std::int32_t>("blocks");
  for (Int b = 0; b < c.blocks(); ++b) {
    const std::int32_t* const of = &blocks[std::size_t(3 * b)];
    const Block block = block_of(c, of[0], of[1], of[2]);
    const Numbered q_tiles = block.q_tiles(Br);
    const Int each = q_tiles.last - q_tiles.first;
    for (Int n = 0; n < c.group * each; ++n) {
      const QTile step{c, block, block.kv_head * c.group + n / each, q_tiles.first + n % each, Br};
      const float* const first = &values[std::size_t((b * most + n) * 6 * Br)];
      const std::vector<float> got(first, first + 6 * Br), wanted = brought(step);
      if (got == wanted) continue;
      expect(false, fmt::format("for Q tile {} of head {} of Q, of the {} queries of the sequence from row {} on, and "
                                "{}, your code loads {}; expected {}. (In the test, row r through all heads has Q = r "
                                "+ 1 and dO = -(r + 1), rows out of bounds are 0, and padded row r has LSE = r + 0.5 "
                                "and D = -(r + 0.5)); d = {}, {}",
                                step.number, step.head, block.sequence.window.Nq, block.sequence.first, block.text(),
                                text_of(got, Br), text_of(wanted, Br), d, c.text()));
    }
  }
  expect(true, "");
}

}  // namespace

TEST_CASE("a box holds rows of its sequence, and comes with their statistics", "[19.5]") {
  const std::vector<Int> lengths{100, 0, 36, 132, 4};
  for (const Int d : {64, 128}) {
    expect_tiles({{200, 200, unlimited, 0}, 2, 2, 2}, d);
    expect_tiles({{272, 272, unlimited, unlimited}, 1, 3, 1, lengths}, d);
    expect_tiles({{272, 272, 60, 0}, 2, 1, 1, lengths}, d);
  }
}

// ---- 19.6 the address of dQ, and its semaphore ----

namespace {

void expect_semaphores(const BlocksCase& c, Int d) {
  const Int Br = d == 64 ? 128 : 64, most = c.most_steps(Br), size = 3 + 5 * most;
  const std::vector<std::int32_t> starts = c.starts();
  worker::Call request = c.request("semaphores", Br);
  request.number("d", double(d))
      .input("starts", starts)
      .output<std::int32_t>("numbers", std::size_t(c.blocks() * size));
  const auto numbers = call(request).output<std::int32_t>("numbers");
  for (Int b = 0; b < c.blocks(); ++b) {
    const std::int32_t* const of = &numbers[std::size_t(b * size)];
    const Block block = block_of(c, of[0], of[1], of[2]);
    for (Int n = 0; n < most && of[3 + 5 * n] >= 0; ++n) {
      const std::int32_t* const at = of + 3 + 5 * n;
      const QTile step{c, block, at[0], at[1], Br};
      const std::vector<Int> got(at + 2, at + 5),
          wanted{step.padded() * d, 1 + step.padded() / 64, step.last_key() / 128 - block.first_key / 128};
      if (got == wanted) continue;
      expect(false,
             fmt::format(
                 "for Q tile {} of head {} your code returns {}, expected {} (dQ's offset in dQ_sum in floats, the "
                 "semaphore's index in `semaphores`, `rank`); for {}; {} padded rows per head, {} before the sequence; "
                 "d = {}, {}",
                 step.number, step.head, fmt::join(got, ", "), fmt::join(wanted, ", "), block.text(), c.padded(),
                 block.sequence.padded, d, c.text()));
    }
  }
  expect(true, "");
}

}  // namespace

TEST_CASE("dQ is added at its Q tile's address, at its semaphore value", "[19.6]") {
  for (const Int d : {64, 128}) {
    expect_semaphores({{256, 256, unlimited, 0}, 1, 2, 1}, d);  // its last key ends a K/V tile
    expect_semaphores({{400, 600, 100, 30}, 1, 2, 1}, d);
    for (const BlocksCase& c : blocks_cases) expect_semaphores(c, d);
    for (const Window& w : windows) expect_semaphores({w, 1, 1, 1}, d);
  }
}
