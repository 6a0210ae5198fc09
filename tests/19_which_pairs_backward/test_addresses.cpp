// Chapter 19, part by part: what the producer brings, and where and when dQ is added.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "common/attention/half.hpp"
#include "tests/19_which_pairs_backward/blocks.hpp"

using namespace workbook;
using namespace workbook::test;

// ---- 19.5 and 19.6: padded rows ----

namespace {

/// A Q tile of a head of Q, against a block of keys.
struct QTile {
  const BlocksCase& c;
  const Block& block;
  Int head, number, d, Br;
  Int row() const { return number * Br; }
  /// The last key that a query of the sequence sees, of which there may be none; and that any of the Q tile's sees.
  Int last_of(Int query) const { return block.sequence.window.last(query) - 1; }
  Int last_key() const { return last_of(row() + Br - 1); }
  /// Its first padded row.
  Int padded() const { return head * c.padded() + block.sequence.padded + row(); }
};
/// What may be taken for a Q tile's first padded row.
struct OtherRow {
  const char *id, *sentence;
  Int (*row)(const QTile& b);
};
const OtherRow other_rows[] = {
    {"padded-of-the-kv-head",
     "your code uses the padded rows of the head with the index of the K/V head; it must use those of the step's head "
     "of Q",
     [](const QTile& b) { return b.padded() + (b.block.kv_head - b.head) * b.c.padded(); }},
    {"padded-first-head",
     "your code uses the padded rows of the first head that shares the K/V head for every head; it must use those of "
     "the step's head",
     [](const QTile& b) { return b.padded() + (b.block.kv_head * b.c.group - b.head) * b.c.padded(); }},
    {"padded-without-heads",
     "your code omits the head from the padded row; each preceding head has `call.padded` padded rows, which must be "
     "counted",
     [](const QTile& b) { return b.padded() - b.head * b.c.padded(); }},
    {"padded-heads-of-Nq",
     "your code counts Nq rows per preceding head; each head has `call.padded` padded rows, and all of them must be "
     "counted",
     [](const QTile& b) { return b.padded() + b.head * (b.c.window.Nq - b.c.padded()); }},
    {"padded-first-sequence",
     "your code uses the padded rows of the first sequence for every sequence; the padded row must include "
     "`work.first_padded_row`",
     [](const QTile& b) { return b.padded() - b.block.sequence.padded; }},
    {"padded-from-first-row",
     "your code starts the sequence's padded rows at its row in Q; they must start at the sequence's first padded row",
     [](const QTile& b) { return b.padded() - b.block.sequence.padded + b.block.sequence.first; }},
    {"padded-first-row-block",
     "your code uses the padded rows of the sequence's first Q tile in every step; the padded row must include the "
     "first row of the step's Q tile",
     [](const QTile& b) { return b.padded() - b.row(); }},
    {"padded-without-Br", "your code uses the Q tile's index as its first row; it must multiply the index by T::Br",
     [](const QTile& b) { return b.padded() - b.row() + b.number; }},
    {"padded-of-the-keys",
     "your code adds the first key of the K/V tile to the padded row; it must add the first row of the step's Q tile",
     [](const QTile& b) { return b.padded() - b.row() + b.block.first_key; }},
};
Int right_row(const QTile& b) {
  return b.padded();
}

// ---- 19.5 the addresses of the TMA loads ----

/// A box by its coordinates of rows; row i of it has before_first + i and end.
struct Box {
  Int before_first, end;
};
Box right_box(const QTile& b) {
  const Window& w = b.block.sequence.window;
  return {b.c.window.Nq - w.Nq + b.row(), b.head * b.c.window.Nq + b.block.sequence.first + w.Nq};
}
/// What may come in place of it and of its line.
struct OtherTile {
  const char *id, *sentence;
  Box (*box)(const QTile& b) = right_box;
  Int (*line)(const QTile& b) = right_row;

  /// The row of the box, through all heads, counted from 1 on; 0 where it holds zeros.
  Int row(const QTile& b, Int i) const {
    const auto [before_first, end] = box(b);
    const Int N = b.c.window.Nq, first = before_first + i, row = first + end - N;
    return first < N && row >= 0 && end <= b.c.group * b.c.kv_heads * N ? row + 1 : 0;
  }
};
template <auto more>
Box box_and(const QTile& b) {
  Box box = right_box(b);
  more(b, box);
  return box;
}
const OtherTile other_tiles[] = {
    {.id = "box-of-the-kv-head",
     .sentence = "your code loads the box of the head with the index of the K/V head; it must load the box of the "
                 "step's head of Q",
     .box = box_and<[](const QTile& b, Box& box) { box.end += (b.block.kv_head - b.head) * b.c.window.Nq; }>},
    {.id = "box-first-head",
     .sentence = "your code loads the box of the first head that shares the K/V head for every head; it must load the "
                 "box of the step's head",
     .box =
         box_and<[](const QTile& b, Box& box) { box.end += (b.block.kv_head * b.c.group - b.head) * b.c.window.Nq; }>},
    {.id = "box-not-ended",
     .sentence = "your code ends the box with the head, so the box contains rows of the next sequence; it must end "
                 "with the sequence",
     .box =
         [](const QTile& b) {
           return Box{b.block.sequence.first + b.row(), (b.head + 1) * b.c.window.Nq};
         }},
    {.id = "box-not-ended",
     .sentence = "your code passes the number of rows of the whole head as the sequence's length; it must pass Nq of "
                 "the sequence",
     .box =
         [](const QTile& b) {
           return Box{b.row(), (b.head + 1) * b.c.window.Nq + b.block.sequence.first};
         }},
    {.id = "box-first-sequence",
     .sentence = "your code starts the box's sequence at row 0 of the head; it must start at `work.first_row`",
     .box = box_and<[](const QTile& b, Box& box) { box.end -= b.block.sequence.first; }>},
    {.id = "box-first-row-block",
     .sentence = "your code loads the box of the sequence's first Q tile in every step; the box must start at the "
                 "first row of the step's Q tile",
     .box = box_and<[](const QTile& b, Box& box) { box.before_first -= b.row(); }>},
    {.id = "box-first-row-block",
     .sentence = "your code loads box and statistics of the sequence's first Q tile in every step; both must start at "
                 "the first row of the step's Q tile",
     .box = box_and<[](const QTile& b, Box& box) { box.before_first -= b.row(); }>,
     .line = [](const QTile& b) { return b.padded() - b.row(); }},
    {.id = "box-without-Br",
     .sentence = "your code starts the box at the Q tile's index; it must start at the Q tile's first row, the index "
                 "times T::Br",
     .box = box_and<[](const QTile& b, Box& box) { box.before_first += b.number - b.row(); }>},
    {.id = "box-without-Br",
     .sentence = "your code uses the Q tile's index as its first row, for the box and the statistics; it must multiply "
                 "the index by T::Br",
     .box = box_and<[](const QTile& b, Box& box) { box.before_first += b.number - b.row(); }>,
     .line = [](const QTile& b) { return b.padded() - b.row() + b.number; }},
    {.id = "box-of-the-keys",
     .sentence = "your code starts the box at the first key of the K/V tile; it must start at the first row of the "
                 "step's Q tile",
     .box = box_and<[](const QTile& b, Box& box) { box.before_first += b.block.first_key - b.row(); }>},
};

std::vector<OtherTile> all_other_tiles() {
  std::vector<OtherTile> all(std::begin(other_tiles), std::end(other_tiles));
  for (const OtherRow& other : other_rows)
    all.push_back({.id = other.id, .sentence = other.sentence, .line = other.row});
  return all;
}

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
/// What a step brings: of each row of Q its first and its last element, the line of LSE, and the same of dO and D.
std::vector<float> brought(const OtherTile& what, const QTile& b) {
  std::vector<float> all(std::size_t(6 * b.Br));
  for (Int i = 0; i < b.Br; ++i) {
    const auto row = float(what.row(b, i)), line = float(what.line(b) + i) + 0.5f;
    const float of[] = {row, row > 0 ? row + 1000 : 0, line};
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

void check_tiles(Slips<OtherTile>& slips, const BlocksCase& c, Int d) {
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
  const OtherTile right{.id = "", .sentence = ""};
  for (Int b = 0; b < c.blocks(); ++b) {
    const std::int32_t* const of = &blocks[std::size_t(3 * b)];
    const Block block = block_of(c, of[0], of[1], of[2]);
    const Numbered q_tiles = block.q_tiles(Br);
    const Int each = q_tiles.last - q_tiles.first;
    for (Int n = 0; n < c.group * each; ++n) {
      const QTile step{c, block, block.kv_head * c.group + n / each, q_tiles.first + n % each, d, Br};
      const float* const first = &values[std::size_t((b * most + n) * 6 * Br)];
      const std::vector<float> got(first, first + 6 * Br), wanted = brought(right, step);
      slips.keep([&](const OtherTile& slip) { return brought(slip, step) == got; });
      if (!slips.wrong.empty() || got == wanted) continue;
      slips.wrong = fmt::format(
          "for Q tile {} of head {} of Q, of the {} queries of the sequence from row {} on, and {}, your code loads "
          "{}; expected {}. (In the test, row r through all heads has Q = r + 1 and dO = -(r + 1), rows out of bounds "
          "are 0, and padded row r has LSE = r + 0.5 and D = -(r + 0.5)); d = {}, {}",
          step.number, step.head, block.sequence.window.Nq, block.sequence.first, block.text(), text_of(got, Br),
          text_of(wanted, Br), d, c.text());
    }
  }
}

}  // namespace

TEST_CASE("a box holds rows of its sequence, and comes with their statistics", "[19.5]") {
  Slips<OtherTile> slips;
  slips.fitting = all_other_tiles();
  const std::vector<Int> lengths{100, 0, 36, 132, 4};
  for (const Int d : {64, 128}) {
    check_tiles(slips, {{200, 200, unlimited, 0}, 2, 2, 2}, d);
    check_tiles(slips, {{272, 272, unlimited, unlimited}, 1, 3, 1, lengths}, d);
    check_tiles(slips, {{272, 272, 60, 0}, 2, 1, 1, lengths}, d);
  }
  slips.expect_none();
}

// ---- 19.6 the address of dQ, and its semaphore ----

namespace {

/// A wrong address of dQ, or a wrong semaphore.
struct OtherSemaphore {
  std::string id, sentence;
  Int (*row)(const QTile& b) = right_row;            ///< the padded row of dQ_sum
  Int (*semaphore_row)(const QTile& b) = right_row;  ///< of the semaphore
  Int (*dQ)(Int row, Int d) = [](Int row, Int d) { return row * d; };
  Int (*index)(Int row, Int Br) = [](Int row, Int) { return 1 + row / 64; };
  Int (*rank)(const QTile& b) = [](const QTile& b) { return b.last_key() / 128 - b.block.first_key / 128; };
  std::vector<Int> numbers(const QTile& b) const { return {dQ(row(b), b.d), index(semaphore_row(b), b.Br), rank(b)}; }
};
const OtherSemaphore other_semaphores[] = {
    {.id = "dq-in-rows",
     .sentence = "your code counts rows in the address of dQ; it must count floats, d per padded row",
     .dQ = [](Int row, Int) { return row; }},
    {.id = "semaphore-at-ticket",
     .sentence = "your code starts the semaphores at `call.semaphores[0]`, which is the ticket counter; they must "
                 "start after it",
     .index = [](Int row, Int) { return row / 64; }},
    {.id = "semaphore-per-row",
     .sentence = "your code uses one semaphore per padded row; it must use one per 64 padded rows",
     .index = [](Int row, Int) { return 1 + row; }},
    {.id = "semaphore-per-q-tile",
     .sentence = "your code uses one semaphore per T::Br padded rows; it must use one per 64 padded rows",
     .index = [](Int row, Int Br) { return 1 + row / Br; }},
    {.id = "rank-of-first-query",
     .sentence =
         "your code computes the last key from the Q tile's first query; the Q tile's last query must determine it",
     .rank = [](const QTile& b) { return b.last_of(b.row()) / 128 - b.block.first_key / 128; }},
    {.id = "rank-of-next-query",
     .sentence =
         "your code computes the last key from the query after the Q tile; the Q tile's last query must determine it",
     .rank = [](const QTile& b) { return b.last_of(b.row() + b.Br) / 128 - b.block.first_key / 128; }},
    {.id = "rank-of-next-key",
     .sentence = "your code uses the key one past the range of the Q tile's last query; ranges are half-open, so it "
                 "must use the key before the range's `last`",
     .rank = [](const QTile& b) { return (b.last_key() + 1) / 128 - b.block.first_key / 128; }},
    {.id = "rank-from-first",
     .sentence = "your code counts ranks from the first K/V tile; rank 0 must belong to the last K/V tile that the Q "
                 "tile attends to",
     .rank = [](const QTile& b) { return b.block.first_key / 128; }},
    {.id = "rank-negative",
     .sentence = "your code computes the rank with the wrong sign; earlier K/V tiles must have higher ranks",
     .rank = [](const QTile& b) { return b.block.first_key / 128 - b.last_key() / 128; }},
    {.id = "rank-of-all-keys",
     .sentence = "your code gives rank 0 to the last K/V tile of the sequence; rank 0 must belong to the last K/V tile "
                 "that the Q tile attends to",
     .rank = [](const QTile& b) { return tiles_of(b.block.sequence.window.Nk, 128) - 1 - b.block.first_key / 128; }},
    {.id = "rank-constant",
     .sentence = "your code gives all K/V tiles of a Q tile the same rank; the rank must decrease by 1 from one K/V "
                 "tile to the next",
     .rank = [](const QTile& b) { return b.last_key() / 128; }},
    {.id = "rank-in-keys",
     .sentence = "your code subtracts the K/V tile from a key; it must first divide the key by T::Bc, to get the key's "
                 "K/V tile",
     .rank = [](const QTile& b) { return b.last_key() - b.block.first_key / 128; }},
    {.id = "rank-in-q-tiles",
     .sentence = "your code divides the last key by T::Br; a K/V tile has T::Bc keys, so it must divide by T::Bc",
     .rank = [](const QTile& b) { return b.last_key() / b.Br - b.block.first_key / 128; }},
};
std::vector<OtherSemaphore> all_other_semaphores() {
  std::vector<OtherSemaphore> all(std::begin(other_semaphores), std::end(other_semaphores));
  for (const auto& [id, sentence, row] : other_rows) {
    all.push_back({.id = id, .sentence = sentence, .row = row, .semaphore_row = row});
    all.push_back({.id = id, .sentence = fmt::format("in the address of dQ, {}", sentence), .row = row});
    all.push_back(
        {.id = id, .sentence = fmt::format("in the index of the semaphore, {}", sentence), .semaphore_row = row});
  }
  return all;
}

void check_semaphores(Slips<OtherSemaphore>& slips, const BlocksCase& c, Int d) {
  const Int Br = d == 64 ? 128 : 64, most = c.most_steps(Br), size = 3 + 5 * most;
  const std::vector<std::int32_t> starts = c.starts();
  worker::Call request = c.request("semaphores", Br);
  request.number("d", double(d))
      .input("starts", starts)
      .output<std::int32_t>("numbers", std::size_t(c.blocks() * size));
  const auto numbers = call(request).output<std::int32_t>("numbers");
  const OtherSemaphore right{.id = "", .sentence = ""};
  for (Int b = 0; b < c.blocks(); ++b) {
    const std::int32_t* const of = &numbers[std::size_t(b * size)];
    const Block block = block_of(c, of[0], of[1], of[2]);
    for (Int n = 0; n < most && of[3 + 5 * n] >= 0; ++n) {
      const std::int32_t* const at = of + 3 + 5 * n;
      const QTile step{c, block, at[0], at[1], d, Br};
      const std::vector<Int> got(at + 2, at + 5), wanted = right.numbers(step);
      slips.keep([&](const OtherSemaphore& slip) { return slip.numbers(step) == got; });
      if (!slips.wrong.empty() || got == wanted) continue;
      slips.wrong = fmt::format(
          "for Q tile {} of head {} your code returns {}, expected {} (dQ's offset in dQ_sum in floats, the "
          "semaphore's index in `semaphores`, `rank`); for {}; {} padded rows per head, {} before the sequence; d = "
          "{}, {}",
          step.number, step.head, fmt::join(got, ", "), fmt::join(wanted, ", "), block.text(), c.padded(),
          block.sequence.padded, d, c.text());
    }
  }
}

}  // namespace

TEST_CASE("dQ is added at its Q tile's address, at its semaphore value", "[19.6]") {
  Slips<OtherSemaphore> slips;
  slips.fitting = all_other_semaphores();
  for (const Int d : {64, 128}) {
    for (const BlocksCase& c : blocks_cases) check_semaphores(slips, c, d);
    for (const Window& w : windows) check_semaphores(slips, {w, 1, 1, 1}, d);
    check_semaphores(slips, {{400, 600, 100, 30}, 1, 2, 1}, d);
    check_semaphores(slips, {{256, 256, unlimited, 0}, 1, 1, 1}, d);  // its last key ends a K/V tile
  }
  slips.expect_none(
      "your address of dQ, semaphore or `rank` is not that of the step's Q tile; all three must be those of the step's "
      "Q tile",
      "dq-address");
}
