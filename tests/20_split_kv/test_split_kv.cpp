// Chapter 20: the cut, K and V in registers, a softmax per column, and the merges of warps and thread blocks.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <numeric>

#include "tests/support/forward_properties.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

/// The number "splits" of the stage's variants: thread blocks per head of K and V; 0: the default number.
Numbers splits(int count) {
  return count == 0 ? Numbers{} : Numbers{{"splits", double(count)}};
}
/// Nq queries of H = Hkv·G heads of Q.
Shape decoding(std::int64_t B, std::int64_t Hkv, std::int64_t G, std::int64_t Nk, std::int64_t d, std::int64_t Nq = 1) {
  return {B, Hkv * G, Hkv, Nq, Nk, d};
}
AttentionResult expect_split(Input given, int count, std::optional<Element> element = {}) {
  const Shape& s = given.problem.shape;
  given.name += fmt::format(", {} heads of Q share one of K and V", s.H / s.Hkv);
  return expect_right(given, small_tiles(s.d, splits(count)), element);
}
/// Every kind of input with every mask: three rows of Q for a head of K and V, in one thread block or in two.
void expect_every_kind_split() {
  std::uint64_t seed = 200;
  for (const InputKind& kind : input_kinds())
    for (const bool causal : masks()) {
      ++seed;
      expect_split(input(kind.name, decoding(1, 1, 3, 70, 64, 2), seed, causal), int(seed % 2) + 1);
    }
  for (const float scale : {-0.2f, 0.0f})
    expect_split(with_scale(input("normal", decoding(1, 1, 3, 70, 64), ++seed), scale), 2);
  expect_split(input("value mean", decoding(1, 1, 3, 20, 64, 24), ++seed, true), 2);
}

/// Sequence b of a batch, as a batch of one.
Problem sequence_of(Problem all, std::int64_t b) {
  for (Tensor<float>* tensor : all.tensors()) {
    const auto size = std::ptrdiff_t(tensor->values.size()) / tensor->sizes[0];
    const auto first = tensor->values.begin() + b * size;
    tensor->values = std::vector<float>(first, first + size);
    tensor->sizes[0] = 1;
  }
  all.shape.B = 1;
  return all;
}

// ---- Operations ----

struct CutSizes {
  std::int64_t heads, units, blocks;
  std::string text() const { return fmt::format("{} heads of {} units, {} thread blocks", heads, units, blocks); }
};
constexpr CutSizes cuts[] = {{3, 5, 4}, {1, 1, 1},  {8, 64, 132}, {2, 7, 14},
                             {5, 3, 2}, {4, 10, 4}, {6, 100, 7},  {64, 4096, 16384}};

worker::Reply cut(const CutSizes& sizes) {
  worker::Call request("cut");
  request.number("heads", double(sizes.heads)).number("units", double(sizes.units));
  request.number("blocks", double(sizes.blocks));
  request.output<std::int64_t>("begin", std::size_t(sizes.blocks + 1));
  request.output<std::int64_t>("block_with", std::size_t(sizes.heads * sizes.units));
  return call(request);
}

/// The registers of each lane after load_K or load_V, of a tensor whose element (key, column) is key·d + column.
/// skipped: keys before the tensor, which has no memory for them.
std::vector<std::uint16_t> loaded(const char* tensor, std::int64_t d, std::int64_t keys, std::int64_t first_key,
                                  std::int64_t skipped = 0, std::int64_t further = 0) {
  std::vector<std::uint16_t> given(std::size_t((keys + further) * d));
  std::iota(given.begin(), given.end(), std::uint16_t(0));
  worker::Call request("loaded");
  request.number("first_key", double(first_key)).number("end", double(keys)).number("d", double(d));
  request.number("skipped", double(skipped));
  request.number("values", tensor == std::string("V"));
  request.input("tensor", given);
  request.output<std::uint32_t>("words", std::size_t(32 * d / 4));
  std::vector<std::uint16_t> elements;
  for (const std::uint32_t word : call(request).output<std::uint32_t>("words"))
    elements.push_back(std::uint16_t(word)), elements.push_back(std::uint16_t(word >> 16));
  return elements;
}

/// The key, relative to the first, and the column of element e of a lane's registers of K or V.
struct Place {
  std::int64_t key, column;
};
Place place_in(const char* tensor, std::int64_t d, int lane, std::int64_t e) {
  const int quad = lane / 4, in_quad = lane % 4;
  const std::int64_t in_chunk = e % 8;
  if (tensor == std::string("K")) {
    const std::int64_t chunk = e / 8 % (d / 32), r = e / 8 / (d / 32);
    return {quad + 8 * r, 32 * chunk + 8 * in_quad + in_chunk};
  }
  const std::int64_t chunk = e / 8 % (d / 64), r = e / 8 / (d / 64);
  return {2 * in_quad + r % 2 + 8 * (r / 2), 64 * chunk + 8 * quad + in_chunk};
}

void expect_loaded(const char* tensor, std::int64_t keys, std::int64_t first_key, std::int64_t skipped = 0,
                   std::int64_t further = 0) {
  for (const std::int64_t d : head_dims()) {
    const std::vector<std::uint16_t> got = loaded(tensor, d, keys, first_key, skipped, further);
    for (int lane = 0; lane < 32; ++lane) {
      for (std::int64_t e = 0; e < d / 2; ++e) {
        const Place place = place_in(tensor, d, lane, e);
        const std::int64_t key = first_key + place.key, is = got[std::size_t(lane * (d / 2) + e)];
        const bool exists = key < keys;
        const std::int64_t wanted = exists ? key * d + place.column : 0;
        const std::int64_t chunks = d / (tensor == std::string("K") ? 32 : 64);
        expect(
            is == wanted,
            fmt::format("in lane {} of a warp that loads keys {} to {} of {}, element {} of register group {}[{}][{}] "
                        "is {}, expected {} (d={}; each element of the tensor is key·d + column)",
                        lane, first_key, first_key + 15, keys, e % 8, tensor, e / 8 / chunks, e / 8 % chunks,
                        exists || is == 0 ? fmt::format("key {}, column {}", is / d, is % d) : fmt::format("{}", is),
                        exists ? fmt::format("key {}, column {}", key, place.column)
                               : fmt::format("0, because key {} does not exist", key),
                        d));
      }
    }
  }
}

/// K or V is read once, whatever the number of splits, 16 bytes per lane.
void expect_read_once(const char* tensor) {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    for (const int count : {1, 3}) {
      const Problem problem = input("normal", decoding(2, 2, 4, 192, d), 22).problem;
      expect_wide(attention(problem, small_tiles(d, splits(count)).numbers()).reply, tensor, "load",
                  double(2 * 2 * 192 * d * 2),
                  fmt::format("{} is read once, d={}, {} thread blocks per head", tensor, d, count));
    }
  }
}

/// Groups of thread blocks, of which the last adds what all have written, launched several times.
worker::Reply last(int groups, int blocks, int launches) {
  worker::Call request("last");
  request.number("groups", groups).number("blocks", blocks).number("launches", launches);
  request.output<std::uint32_t>("lasts", std::size_t(groups)).output<std::uint32_t>("counters", std::size_t(groups));
  request.output<float>("sums", std::size_t(groups * 64));
  return call(request);
}

/// Scores of key j about slope·j, in every row: the maximum moves from key to key.
Input with_slopes(Input given, float slope) {
  add_to_scores(
      given, [](std::int64_t) { return 1; }, [=](std::int64_t j) { return slope * float(j); });
  given.name += fmt::format(", scores about {}·j for key j", slope);
  return given;
}

}  // namespace

// ---- 20.1 the cut ----

TEST_CASE("every thread block has equally many units", "[20.1]") {
  for (const CutSizes& sizes : cuts) {
    const worker::Reply reply = cut(sizes);
    const auto begin = reply.output<std::int64_t>("begin");
    const std::int64_t all = sizes.heads * sizes.units, least = all / sizes.blocks;
    const std::int64_t most = (all + sizes.blocks - 1) / sizes.blocks;
    expect(begin[0] == 0, fmt::format("{}: your code returns begin(0) = {}, expected 0", sizes.text(), begin[0]));
    expect(begin.back() == all,
           fmt::format("{}: your code returns begin({}) = {}, expected the number of all units, {}", sizes.text(),
                       sizes.blocks, begin.back(), all));
    for (std::int64_t b = 0; b < sizes.blocks; ++b) {
      const std::int64_t count = begin[std::size_t(b + 1)] - begin[std::size_t(b)];
      expect(count == least || count == most,
             fmt::format("{}: block {} has the units from {} to {}, which are {}; expected {} or {}", sizes.text(), b,
                         begin[std::size_t(b)], begin[std::size_t(b + 1)] - 1, count, least, most),
             "your code does not divide the units equally; block b must have 1 / blocks of all units, rounded "
             "up or down",
             "unequal-blocks");
    }
  }
}

TEST_CASE("the block of a unit is found without a search", "[20.1]") {
  for (const CutSizes& sizes : cuts) {
    const worker::Reply reply = cut(sizes);
    const auto begin = reply.output<std::int64_t>("begin"), block_with = reply.output<std::int64_t>("block_with");
    for (std::int64_t u = 0; u < sizes.heads * sizes.units; ++u) {
      const std::int64_t b = block_with[std::size_t(u)];
      const auto wanted =
          std::max<std::ptrdiff_t>(0, std::upper_bound(begin.begin(), begin.end() - 1, u) - begin.begin() - 1);
      expect(
          b == wanted,
          fmt::format("{}: `block_with` returns block {} for unit {}, but `begin` gives it to block {}, which has the "
                      "units from {} to {}; the two must agree",
                      sizes.text(), b, u, wanted, begin[std::size_t(wanted)], begin[std::size_t(wanted + 1)] - 1));
    }
  }
}

TEST_CASE("every key counts once for any number of splits", "[20.1]") {
  for (const int count : {0, 1, 2, 3, 8, 128})
    for (const std::int64_t Nk : {16, 100, 300})
      expect_split(input("value mean", decoding(1, 2, 3, Nk, 64), 10), count);
  // 8 heads of 25 units on the default number of thread blocks: heads begin and end within blocks.
  expect_split(input("value mean", decoding(2, 4, 2, 400, 64), 11), 0);
  expect_every_kind_split();
}

// ---- 20.2 and 20.3 K and V in registers ----

TEST_CASE("each lane holds its elements of K", "[20.2]") {
  for (const std::int64_t first_key : {0, 16, 32}) expect_loaded("K", 48, first_key);
  expect_loaded("K", 48, 16, std::int64_t(1) << 26);  // offsets beyond 2^32 elements
}
TEST_CASE("keys past the end of K are not read", "[20.2]") {
  // The tensor ends after the last key: the simulator reports a read past it.
  for (const std::int64_t first_key : {16, 0}) expect_loaded("K", 5, first_key, 0, 32);
  for (const std::int64_t keys : {1, 7, 9, 25}) expect_loaded("K", keys, keys / 16 * 16);
  for (const std::int64_t Nk : {1, 9, 33}) expect_split(input("value mean", decoding(1, 1, 3, Nk, 64), 20), 1);
  expect_every_kind_split();
}
TEST_CASE("K is read 16 bytes per lane", "[20.2]") {
  expect_read_once("K");
  for (const std::int64_t d : head_dims()) expect_split(input("normal", decoding(1, 2, 4, 100, d), 21), 2);
}

TEST_CASE("each lane holds its elements of V", "[20.3]") {
  for (const std::int64_t first_key : {0, 16, 32}) expect_loaded("V", 48, first_key);
  expect_loaded("V", 48, 16, std::int64_t(1) << 26);  // offsets beyond 2^32 elements
}
TEST_CASE("keys past the end of V are not read", "[20.3]") {
  for (const std::int64_t first_key : {16, 0}) expect_loaded("V", 5, first_key, 0, 32);
  for (const std::int64_t keys : {1, 7, 9, 25}) expect_loaded("V", keys, keys / 16 * 16);
  for (const std::int64_t Nk : {1, 9, 33}) expect_split(input("value mean", decoding(1, 1, 3, Nk, 64), 23), 1);
  expect_every_kind_split();
}
TEST_CASE("V is read 16 bytes per lane", "[20.3]") {
  expect_read_once("V");
  for (const std::int64_t d : head_dims()) expect_split(input("normal", decoding(1, 2, 4, 100, d), 24), 2);
}

// ---- 20.4 Sᵀ = K Qᵀ ----

TEST_CASE("every column of Q and K counts", "[20.4]") {
  for (const std::int64_t d : head_dims())
    for (std::int64_t first = 0; first < d; first += 4)
      expect_split(with_columns(input("normal", decoding(1, 1, 8, 32, d), 30), first, 4), 1);
}
TEST_CASE("each query has its own scores", "[20.4]") {
  for (const std::int64_t G : {1, 3, 8, 11, 16}) expect_split(input("one hot", decoding(1, 2, G, 40, 64), 31), 1);
  expect_every_kind_split();
}

// ---- 20.5 the softmax of columns ----

TEST_CASE("the maximum is over all keys of a column", "[20.5]") {
  // The scores of the keys of one unit lie far apart: relative to another key's maximum they overflow.
  for (std::int64_t largest = 0; largest < 16; ++largest) {
    Input given = input("normal", decoding(1, 1, 8, 32, 64), 40);
    add_to_scores(
        given, [](std::int64_t) { return 1; }, [=](std::int64_t j) { return j % 16 == largest ? 140 : -10 * (j % 4); });
    given.name += fmt::format(", scores of keys {} and {} larger by 140", largest, largest + 16);
    expect_split(given, 1);
  }
  expect_split(input("negative logits", decoding(1, 1, 8, 70, 64), 41), 1);
}
TEST_CASE("a maximum that rises late rescales O and l", "[20.5]") {
  for (const char* kind : {"rising maximum", "falling maximum", "late spike"})
    for (const std::int64_t d : head_dims()) expect_split(input(kind, decoding(1, 1, 8, 200, d), 42), 1);
  for (const float slope : {0.05f, -0.05f, 0.5f, -1.0f})
    expect_split(with_slopes(input("value mean", decoding(1, 1, 5, 200, 64), 43), slope), 1);
}
TEST_CASE("large logits stay finite", "[20.5]") {
  expect_split(input("large logits", decoding(1, 1, 8, 128, 64), 44), 1);
  expect_split(with_zeros(input("large logits", decoding(1, 1, 4, 128, 64, 2), 45)), 1);
  // The first queries attend to no key of a unit, or to none at all.
  expect_split(input("value mean", decoding(1, 1, 2, 60, 64, 63), 46, true), 1);
  Input apart = input("normal", decoding(1, 1, 1, 100, 64, 16), 47);
  add_to_scores(
      apart, [](std::int64_t i) { return 7 * (i - 8); }, [](std::int64_t) { return 1; });
  apart.name += ", scores of row i about 7·(i − 8)";
  expect_split(apart, 1);
  expect_every_kind_split();
}

// ---- 20.6 P as an operand ----

TEST_CASE("each key's weight reaches its value", "[20.6]") {
  for (std::int64_t first = 0; first < 32; ++first)
    expect_split(with_values_of(input("normal", decoding(1, 1, 8, 32, 64), 50), first, 1), 1);
  for (const std::int64_t G : {8, 16}) expect_split(input("one hot", decoding(1, 2, G, 100, 64), 51), 1);
}
TEST_CASE("P is rounded once, and l is not", "[20.6]") {
  // P rounded to bf16 is off by more than the bounds in the root mean square.
  expect_split(input("normal", decoding(1, 8, 8, 512, 64), 52), 1);
  expect_split(input("value mean", decoding(1, 8, 8, 512, 64), 53), 1);
  expect_split(input("normal", decoding(1, 8, 8, 3, 64), 54), 1);
  expect_split(input("normal", decoding(1, 1, 8, 32, 64), 55), 1, bfloat16);
  expect_every_kind_split();
}

// ---- 20.7 Oᵀ += Vᵀ Pᵀ ----

TEST_CASE("every element of V counts", "[20.7]") {
  for (const std::int64_t d : head_dims()) {
    for (std::int64_t first = 0; first < 16; ++first)
      expect_split(with_values_of(input("value mean", decoding(1, 1, 8, 16, d), 60), first, 1), 1);
    expect_split(input("normal", decoding(1, 2, 8, 100, d), 61), 1);
  }
}
TEST_CASE("each query has its own output", "[20.7]") {
  for (const std::int64_t G : {1, 2, 8, 9, 16})
    expect_split(with_rows_apart(input("value mean", decoding(1, 1, G, 90, 64, 2), 62)), 1);
  expect_every_kind_split();
}

// ---- 20.8 merging the warps ----

TEST_CASE("warps with different maxima are merged", "[20.8]") {
  for (const Tiles& tiles : all_tiles(64)) {
    for (const float slope : {1.0f, -1.0f, 0.05f}) {
      const Input given = with_slopes(input("value mean", decoding(1, 2, 4, 256, 64), 70), slope);
      Tiles one_block = tiles;
      one_block.variant = splits(1);
      expect_right(given, one_block);
    }
  }
  expect_every_kind_split();
}
TEST_CASE("warps without keys change nothing", "[20.8]") {
  for (const std::int64_t Nk : {1, 16, 17, 40, 130})
    for (const std::int64_t d : head_dims())
      expect_right(input("value mean", decoding(1, 2, 4, Nk, d), 71), usual_tiles(d, splits(1)));
  // More queries than keys: the first rows attend to no key at all.
  const AttentionResult result = expect_split(input("value mean", decoding(1, 1, 2, 3, 64, 5), 72, true), 1);
  for (std::int64_t i = 0; i < 2; ++i)
    expect(result.lse(0, 0, i, 0) == -std::numeric_limits<float>::infinity() && result.O(0, 0, i, 0) == 0,
           fmt::format("query {} attends to no key, and has O = {} and LSE = {}; they must be 0 and -inf", i,
                       result.O(0, 0, i, 0), result.lse(0, 0, i, 0)),
           "", "row-without-keys");
}
TEST_CASE("O is divided once", "[20.8]") {
  for (const std::int64_t d : head_dims()) {
    expect_split(with_V_of_ones(input("normal", decoding(1, 1, 8, 90, d), 73)), 1);
    expect_lse(input("normal", decoding(1, 1, 8, 90, d), 74), small_tiles(d, splits(1)));
  }
}

// ---- 20.9 merging the thread blocks ----

TEST_CASE("thread blocks with different maxima are merged", "[20.9]") {
  for (const int count : {2, 3, 8})
    for (const float slope : {1.0f, -1.0f, 0.05f})
      for (const std::int64_t d : head_dims())
        expect_split(with_slopes(input("value mean", decoding(2, 2, 4, 256, d), 80), slope), count);
  // 8 heads of 25 units and one of 700 units on the default number of thread blocks, which cross the heads.
  expect_split(input("value mean", decoding(2, 4, 2, 400, 64), 84), 0);
  expect_split(input("value mean", decoding(1, 1, 2, 11200, 64), 85), 0);
  expect_every_kind_split();
}
TEST_CASE("partial results without visible keys change nothing", "[20.9]") {
  // Query i attends to i + 1 keys: the later blocks have partial results with an LSE of -inf for the first queries.
  expect_split(input("value mean", decoding(1, 2, 3, 100, 64, 100), 81, true), 3);
  const AttentionResult result = expect_split(input("value mean", decoding(1, 1, 2, 60, 64, 63), 82, true), 2);
  for (std::int64_t i = 0; i < 3; ++i)
    expect(result.lse(0, 0, i, 0) == -std::numeric_limits<float>::infinity() && result.O(0, 0, i, 0) == 0,
           fmt::format("query {} attends to no key, and has O = {} and LSE = {}; they must be 0 and -inf", i,
                       result.O(0, 0, i, 0), result.lse(0, 0, i, 0)),
           "", "row-without-keys");
}
TEST_CASE("the partial results are read and written as the formulas say", "[20.9]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    for (const int count : {1, 2, 3, 8}) {
      const Input given = input("normal", decoding(2, 2, 4, 256, d), 83);
      const worker::Reply reply = expect_split(given, count).reply;
      const double rows = count == 1 ? 0 : double(2 * 8 * count);  // B·H rows of each split
      const std::string why = fmt::format(
          "splits·B·H·4·d bytes of partial O, or none with one thread block per head; "
          "d={}, splits={}",
          d, count);
      expect_count(reply, "partial_O.store_bytes", rows * double(d) * 4, why, "", "traffic");
      expect_count(reply, "partial_O.load_bytes", rows * double(d) * 4, why,
                   "your code does not read each partial O exactly once; the merge of a row must read the results of "
                   "the blocks that share the row's head, each once, and no others",
                   "partials-read");
      expect_count(reply, "partial_lse.store_bytes", rows * 4,
                   fmt::format("splits·B·H·4 bytes of partial LSE, d={}, splits={}", d, count), "", "traffic");
    }
    // By default, 132 multiprocessors have 16 or 33 blocks for each of 8 heads, or one for each of 256 or 512.
    const std::int64_t at_a_time = 128 / d;
    for (const auto& [shape, rows] : {std::pair(decoding(1, 8, 1, 528 * at_a_time, d), 132 * at_a_time / 8 * 8),
                                      std::pair(decoding(32 * at_a_time, 8, 1, 32, d), std::int64_t(0))})
      expect_count(
          expect_split(input("normal", shape, 86), 0).reply, "partial_O.store_bytes", double(rows * d * 4),
          fmt::format("the bytes of {} rows of partial O: no thread block has parts of two heads; {} heads, d={}", rows,
                      shape.B * shape.Hkv, d),
          "", "traffic");
  }
}

// ---- 20.10 the last thread block ----

TEST_CASE("one thread block of those that share a head merges", "[20.10]") {
  for (const int blocks : {1, 2, 3, 40})
    for (const int launches : {1, 2, 3}) {
      const worker::Reply reply = last(3, blocks, launches);
      for (const std::uint32_t count : reply.output<std::uint32_t>("lasts"))
        expect(count == std::uint32_t(launches),
               fmt::format("{} thread blocks share a head; in {} launches, is_last_block has returned true in {} of "
                           "them, expected {}",
                           blocks, launches, count, launches));
    }
}
TEST_CASE("the last thread block sees what the others have written", "[20.10]") {
  for (const int blocks : {1, 2, 3, 40}) {
    const worker::Reply reply = last(3, blocks, 1);
    for (const float sum : reply.output<float>("sums"))
      expect(sum == float(blocks * (blocks + 1) / 2),
             fmt::format("thread block i of {} writes i + 1; the sum in the last one is {}, expected {}", blocks, sum,
                         blocks * (blocks + 1) / 2));
  }
  for (const int count : {2, 3, 8}) expect_split(input("normal", decoding(2, 2, 4, 256, 64), 90), count);
  expect_every_kind_split();
}
TEST_CASE("the counters are 0 again after a call", "[20.10]") {
  for (const int blocks : {1, 2, 5})
    for (const std::uint32_t counter : last(4, blocks, 1).output<std::uint32_t>("counters"))
      expect(
          counter == 0,
          fmt::format("{} thread blocks share a head; after the launch its counter is {}, expected 0", blocks, counter),
          "your code leaves the counter of a head as it is after the last thread block; it must be 0 again for the "
          "next call",
          "counter-not-zero");
}

// ---- The whole chapter ----

TEST_CASE("split keys agree with the oracle", "[whole]") {
  expect_every_kind();
  expect_every_kind_split();
  for (const int count : {0, 1, 2, 3, 8, 128})
    for (const std::int64_t d : head_dims())
      expect_split(input("rising maximum", decoding(2, 2, 4, 300, d), 100), count);
}

TEST_CASE("bf16 agrees with the oracle", "[whole]") {
  expect_element(bfloat16);
  for (const std::int64_t d : head_dims()) expect_split(input("normal", decoding(2, 2, 7, 300, d), 101), 3, bfloat16);
}

TEST_CASE("any group and any number of queries agree with the oracle", "[whole]") {
  expect_any_two_lengths();
  std::uint64_t seed = 102;
  for (const std::int64_t G : {1, 2, 4, 7, 8, 16})
    for (const std::int64_t Nq : {1, 2, 5})
      for (const bool causal : masks()) {
        ++seed;
        expect_split(input("normal", decoding(1, 2, G, 50 + std::int64_t(seed), 64, Nq), seed, causal), int(seed % 4));
      }
}

TEST_CASE("offsets may exceed 32 bits", "[whole]") {
  const std::int64_t d = head_dims().back();
  const Shape shape = decoding(1, 4, 4, 90, d, 3);
  Numbers numbers = small_tiles(d, splits(2)).numbers();
  numbers["skipped_batches"] = batches_beyond_32_bits(shape.H * shape.Nq * d);
  expect_attention(input("normal", shape, 3).problem, "normal, after 2^32 elements of other heads", numbers);
}

TEST_CASE("with a fixed number of splits, no answer depends on the batch", "[whole]") {
  const Problem all = input("normal", decoding(3, 2, 4, 200, 64), 105).problem;
  const AttentionResult together = attention(all, small_tiles(64, splits(3)).numbers());
  for (std::int64_t b = 0; b < 3; ++b) {
    const AttentionResult alone = attention(sequence_of(all, b), small_tiles(64, splits(3)).numbers());
    const std::vector<float>& O = alone.O.values;
    const auto in_batch = together.O.values.begin() + b * std::ptrdiff_t(O.size());
    const auto differ = std::mismatch(O.begin(), O.end(), in_batch);
    expect(differ.first == O.end(),
           fmt::format("sequence {} of 3: element {} of its O is {} alone, and {} in the batch, with 3 splits per head",
                       b, differ.first - O.begin(), differ.first == O.end() ? 0 : *differ.first,
                       differ.first == O.end() ? 0 : *differ.second));
  }
}

TEST_CASE("K and V are read once, whatever the number of splits", "[whole]") {
  require_counters();
  for (const std::int64_t d : head_dims()) {
    for (const int count : {0, 1, 2, 3, 8, 128}) {
      for (const std::int64_t G : {1, 8, 16}) {
        const std::int64_t B = 2, Hkv = 2, Nk = 250;
        const Problem problem = input("normal", decoding(B, Hkv, G, Nk, d), 104).problem;
        const worker::Reply reply = attention(problem, small_tiles(d, splits(count)).numbers()).reply;
        const double bytes = counter(reply, "K.load_bytes") + counter(reply, "V.load_bytes");
        expect(bytes == double(4 * B * Hkv * Nk * d),
               fmt::format("K and V are read in {} bytes, expected 4·B·Hkv·Nk·d = {}; G={}, d={}, splits={}", bytes,
                           4 * B * Hkv * Nk * d, G, d, count),
               "your code reads keys more than once, or not at all; each key must be read by one warp of one thread "
               "block",
               "traffic");
      }
    }
  }
}

const Claims of_the_whole = {
    {"[whole]", "future positions have zero influence", [] { expect_no_future(); }},
    {"[whole]", "fully masked rows give O = 0 and LSE = -inf, never NaN", [] { expect_rows_without_keys(); }},
    {"[whole]", "a row's answer depends on no other row of Q", [] { expect_rows_independent(); }},
    {"[whole]", "results do not depend on workers or lane order", [] { expect_order_changes_nothing(); }},
    {"[whole]", "50 runs are bitwise equal", [] { expect_repeatable(50); }},
    {"[whole]", "the tiles fit 64, 99, 163 and 227 KB of shared memory", [] { expect_tiles_for_every_size(); }},
};
