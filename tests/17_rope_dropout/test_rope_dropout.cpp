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

#include "common/attention/half.hpp"
#include "tests/17_rope_dropout/masks.hpp"
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

/// Wrong versions of a part. The first one that gives exactly the returned values is reported as the cause.
template <class Of>
struct Other {
  const char *id, *sentence;
  Of of;
};
template <class Of, class Fits>
void expect_part(const std::string& wrong, const std::vector<Other<Of>>& others, const Fits& fits) {
  if (wrong.empty()) return expect(true, "");
  const auto found = std::ranges::find_if(others, [&](const Other<Of>& other) { return fits(other.of); });
  expect(false, wrong, found == others.end() ? "" : found->sentence, found == others.end() ? "unknown" : found->id);
}

}  // namespace

// ---- 17.1 Philox ----

namespace {

using Words = std::array<std::uint32_t, 6>;  // a counter and a key
/// Philox with deviations.
struct Philox {
  int rounds = 10;
  bool key_first = false, key_steps = true, multipliers_swapped = false, halves_swapped = false, words_swapped = false,
       keys_swapped = false, steps_swapped = false, new_x_in_z = false, new_x_in_w = false;
  std::array<std::uint32_t, 4> operator()(Words w) const {
    const std::uint32_t M[2] = {multipliers_swapped ? 0xCD9E8D57 : 0xD2511F53,
                                multipliers_swapped ? 0xD2511F53 : 0xCD9E8D57};
    for (int round = 0; round < rounds; ++round) {
      const auto step = [&] {
        const std::uint32_t by[2] = {0x9E3779B9, 0xBB67AE85};
        if (key_steps) w[4] += by[steps_swapped ? 1 : 0], w[5] += by[steps_swapped ? 0 : 1];
      };
      if (key_first) step();
      const auto product = [&](int n) {
        const std::uint64_t wide = std::uint64_t(M[n]) * w[std::size_t(2 * n)];
        return halves_swapped ? wide << 32 | wide >> 32 : wide;
      };
      std::uint64_t left = product(0), right = product(1);
      const std::uint32_t key_x = w[keys_swapped ? 5 : 4], key_y = w[keys_swapped ? 4 : 5];
      if (words_swapped) std::swap(left, right);
      w[0] = std::uint32_t(right >> 32) ^ w[1] ^ key_x, w[1] = std::uint32_t(right);
      const std::uint64_t of_new_x = product(0);
      w[2] = std::uint32_t((new_x_in_z ? of_new_x : left) >> 32) ^ w[3] ^ key_y;
      w[3] = std::uint32_t(new_x_in_w ? of_new_x : left);
      if (!key_first) step();
    }
    return {w[0], w[1], w[2], w[3]};
  }
};
const std::vector<Other<Philox>> other_philoxes{
    {"philox-rounds", "your Philox runs 9 or 11 rounds; it must run exactly 10", {.rounds = 9}},
    {"philox-rounds", "your Philox runs 9 or 11 rounds; it must run exactly 10", {.rounds = 11}},
    {"philox-key-first",
     "your code increments the Philox key before the first round; it must increment it after each round",
     {.key_first = true}},
    {"philox-one-key",
     "your code uses the same Philox key in all rounds; it must increment both words of the key after each round",
     {.key_steps = false}},
    {"philox-multipliers",
     "your code exchanges the two multipliers; A must be `multiplier_x` · x, and B `multiplier_z` · z",
     {.multipliers_swapped = true}},
    {"philox-halves",
     "your code exchanges the high and low words of both products; x and z must use the high words, y and w the low "
     "words",
     {.halves_swapped = true}},
    {"philox-words",
     "your code stores the words of A in x and y, and those of B in z and w; x and y must be computed from B, z and w "
     "from A",
     {.words_swapped = true}},
    {"philox-keys",
     "your code exchanges the two words of the Philox key in each round; key.x must be combined with high(B), and "
     "key.y with high(A)",
     {.keys_swapped = true}},
    {"philox-key-steps",
     "your code exchanges the increments of the two key words; it must add `key_step_x` to key.x and `key_step_y` to "
     "key.y",
     {.steps_swapped = true}},
    {"philox-sequential",
     "your code overwrites x before it computes A, so both high(A) and low(A) use the new x; A must be computed from "
     "the old x",
     {.new_x_in_z = true, .new_x_in_w = true}},
    {"philox-new-x",
     "your code computes low(A) from the new x; it must use the old x, as for high(A)",
     {.new_x_in_w = true}},
    {"philox-new-x",
     "your code computes high(A) from the new x; it must use the old x, as for low(A)",
     {.new_x_in_z = true}},
};

}  // namespace

TEST_CASE("Philox gives the known answers", "[17.1]") {
  // Random123's kat_vectors, then numbers of any kind.
  std::vector<Words> inputs{{0, 0, 0, 0, 0, 0},
                            {~0u, ~0u, ~0u, ~0u, ~0u, ~0u},
                            {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0}};
  const std::array<std::uint32_t, 4> known[] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                                {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                                {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
  for (std::uint32_t n = 0; n < 29; ++n) inputs.push_back({n, 7 * n, n * n, 0, 17, n / 2});
  std::vector<std::int32_t> given;
  for (const Words& words : inputs) given.insert(given.end(), words.begin(), words.end());
  const auto got = numbers_of("draw", {{"n", double(inputs.size())}}, given, 4 * inputs.size());
  const auto gives = [&](const Philox& philox, std::size_t n) {
    return std::ranges::equal(philox(inputs[n]), std::span(got).subspan(4 * n, 4), {}, {},
                              [](std::int32_t word) { return std::uint32_t(word); });
  };
  std::string wrong;
  for (std::size_t n = 0; n < inputs.size() && wrong.empty(); ++n) {
    const auto right = n < 3 ? known[n] : Philox()(inputs[n]);
    if (gives({}, n) && right == Philox()(inputs[n])) continue;
    wrong = fmt::format(
        "for the counter {:08x} {:08x} {:08x} {:08x} and the Philox key {:08x} {:08x} your code returns {:08x} {:08x} "
        "{:08x} {:08x}, expected {:08x} {:08x} {:08x} {:08x}",
        inputs[n][0], inputs[n][1], inputs[n][2], inputs[n][3], inputs[n][4], inputs[n][5], std::uint32_t(got[4 * n]),
        std::uint32_t(got[4 * n + 1]), std::uint32_t(got[4 * n + 2]), std::uint32_t(got[4 * n + 3]), right[0], right[1],
        right[2], right[3]);
  }
  expect_part(wrong, other_philoxes, [&](const Philox& other) {
    for (std::size_t n = 0; n < inputs.size(); ++n)
      if (!gives(other, n)) return false;
    return true;
  });
}

// ---- 17.2 bits ----

namespace {

/// A block of 32 queries and 32 keys of a head, and a pair in it.
struct DropoutPair {
  int dropped, head, first_query, first_key, query, key;  // the last two from the block's first on
};
/// Whether a pair is kept, with deviations: which byte of which word, of which counter.
using KeptPair = bool (*)(const DropoutPair& p, std::uint32_t low, std::uint32_t high);
int byte_for(const DropoutPair& p, std::uint32_t low, std::uint32_t high, int key_counter, int query_counter, int head,
             int word, int byte) {
  const auto drawn = Philox()({std::uint32_t(p.first_key / 4 + key_counter),
                               std::uint32_t(p.first_query / 4 + query_counter), std::uint32_t(head), 0, low, high});
  return int(drawn[std::size_t(word)] >> 8 * byte & 255);
}
int byte_of(const DropoutPair& p, std::uint32_t low, std::uint32_t high) {
  return byte_for(p, low, high, p.key % 8, p.query % 8, p.head, p.query / 8, p.key / 8);
}
const std::vector<Other<KeptPair>> other_bits{
    {"bits-opposite", "your code sets the bits of dropped pairs; a bit must be 1 if its pair is kept",
     [](const DropoutPair& p, std::uint32_t l, std::uint32_t h) { return byte_of(p, l, h) < p.dropped; }},
    {"bits-one-too-many",
     "your code drops a pair when its byte equals `dropped`; it must drop the pair only if the byte is less than "
     "`dropped`",
     [](const DropoutPair& p, std::uint32_t l, std::uint32_t h) { return byte_of(p, l, h) > p.dropped; }},
    {"bits-of-one-head",
     "your code omits the head from the counter, so all heads drop the same pairs; the counter must contain the head",
     [](const DropoutPair& p, std::uint32_t l, std::uint32_t h) {
       return byte_for(p, l, h, p.key % 8, p.query % 8, 0, p.query / 8, p.key / 8) >= p.dropped;
     }},
    {"bits-word-and-byte",
     "your code exchanges word and byte; the query must select the word, and the key the byte, in both layouts",
     [](const DropoutPair& p, std::uint32_t l, std::uint32_t h) {
       return byte_for(p, l, h, p.key % 8, p.query % 8, p.head, p.key / 8, p.query / 8) >= p.dropped;
     }},
    {"bits-counters-swapped",
     "your code exchanges query and key in the counter; x must contain the key, and y the query",
     [](const DropoutPair& p, std::uint32_t l, std::uint32_t h) {
       const auto drawn = Philox()({std::uint32_t(p.first_query / 4 + p.query % 8),
                                    std::uint32_t(p.first_key / 4 + p.key % 8), std::uint32_t(p.head), 0, l, h});
       return int(drawn[std::size_t(p.query / 8)] >> 8 * (p.key / 8) & 255) >= p.dropped;
     }},
    {"bits-index-in-block",
     "your code uses rows as queries in the counter in both layouts; if `transposed`, a row must be a key and a column "
     "a query",
     [](const DropoutPair& p, std::uint32_t l, std::uint32_t h) {
       return byte_for(p, l, h, p.query % 8, p.key % 8, p.head, p.query / 8, p.key / 8) >= p.dropped;
     }},
    {"bits-mirrored",
     "your code exchanges query and key in the counter and in word and byte; in S a row must be a query, and in Sᵀ, if "
     "`transposed`, a key",
     [](const DropoutPair& p, std::uint32_t l, std::uint32_t h) {
       return byte_for(p, l, h, p.query % 8, p.key % 8, p.head, p.key / 8, p.query / 8) >= p.dropped;
     }},
    {"bits-of-first-block",
     "your code omits the block's first query and key from the counter, so all blocks drop the same pairs; the counter "
     "must depend on both",
     [](const DropoutPair& p, std::uint32_t l, std::uint32_t h) {
       return byte_of({p.dropped, p.head, 0, 0, p.query, p.key}, l, h) >= p.dropped;
     }},
    {"bits-of-first-block",
     "your code omits `first_query` from the counter, so blocks with the same keys drop the same pairs; the counter "
     "must depend on the block's first query",
     [](const DropoutPair& p, std::uint32_t l, std::uint32_t h) {
       return byte_of({p.dropped, p.head, 0, p.first_key, p.query, p.key}, l, h) >= p.dropped;
     }},
    {"bits-of-first-block",
     "your code omits `first_key` from the counter, so blocks with the same queries drop the same pairs; the counter "
     "must depend on the block's first key",
     [](const DropoutPair& p, std::uint32_t l, std::uint32_t h) {
       return byte_of({p.dropped, p.head, p.first_query, 0, p.query, p.key}, l, h) >= p.dropped;
     }},
    {"bits-counter-step",
     "your code lets consecutive blocks of 32 queries or keys differ by 1 in the counter; they must differ by 8, "
     "because each block uses eight values",
     [](const DropoutPair& p, std::uint32_t l, std::uint32_t h) {
       return byte_of({p.dropped, p.head, p.first_query / 8, p.first_key, p.query, p.key}, l, h) >= p.dropped;
     }},
    {"bits-counter-step",
     "your code lets consecutive blocks of 32 queries or keys differ by 1 in the counter; they must differ by 8, "
     "because each block uses eight values",
     [](const DropoutPair& p, std::uint32_t l, std::uint32_t h) {
       return byte_of({p.dropped, p.head, p.first_query / 8, p.first_key / 8, p.query, p.key}, l, h) >= p.dropped;
     }},
    {"bits-without-seed", "your code does not use the seed; the Philox key must be `dropout.seed`",
     [](const DropoutPair& p, std::uint32_t, std::uint32_t) { return byte_of(p, 0, 0) >= p.dropped; }},
};

/// And which pair is taken for the one of a bit: row and column in the block, of row tile i, part j and element e.
using PairOfBit = std::pair<int, int> (*)(int lane, int i, int j, int e);
const PairOfBit pair_of_bit = [](int lane, int i, int j, int e) {
  return std::pair{16 * i + lane / 4 + e / 2 * 8, 8 * j + lane % 4 * 2 + e % 2};
};
const std::vector<Other<PairOfBit>> other_pairs{
    {"bits-of-one-column",
     "your code uses the random bits of the even column for both columns of a lane; the column in the counter must "
     "include `odd`",
     [](int lane, int i, int j, int e) {
       return std::pair{16 * i + lane / 4 + e / 2 * 8, 8 * j + lane % 4 * 2};
     }},
    {"bits-of-elements",
     "your code exchanges the bits of elements 1 and 2; element 1 must be in the next column, and element 2 eight rows "
     "below element 0",
     [](int lane, int i, int j, int e) {
       return std::pair{16 * i + lane / 4 + e % 2 * 8, 8 * j + lane % 4 * 2 + e / 2};
     }},
};

/// Lanes and bits of one block, in which a row is a query or, transposed, a key.
void expect_bits(bool transposed) {
  std::string wrong;
  std::vector<bool> fits(other_bits.size(), true), fit_pairs(other_pairs.size(), true);
  const std::int32_t seed[] = {77, 5};
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
        const auto pair_by = [&](PairOfBit of) {
          const auto [row, column] = of(lane, bit / 16, bit / 4 % 4, bit % 4);
          return DropoutPair{
              dropped, head, first_query, first_key, transposed ? column : row, transposed ? row : column};
        };
        const DropoutPair pair = pair_by(pair_of_bit);
        const bool is = (std::uint32_t(got[std::size_t(lane)]) >> bit & 1) != 0;
        for (std::size_t n = 0; n < fits.size(); ++n)
          if (is != other_bits[n].of(pair, 77, 5)) fits[n] = false;
        for (std::size_t n = 0; n < fit_pairs.size(); ++n)
          if (is != (byte_of(pair_by(other_pairs[n].of), 77, 5) >= dropped)) fit_pairs[n] = false;
        if (is != (byte_of(pair, 77, 5) >= dropped) && wrong.empty())
          wrong = fmt::format(
              "in lane {} your bit of query {} and key {} of head {} is that of a {} pair, but its byte is {}, and "
              "pairs with a byte less than {} are dropped; {}",
              lane, first_query + pair.query, first_key + pair.key, head, is ? "kept" : "dropped", byte_of(pair, 77, 5),
              dropped, transposed ? "a row is a key" : "a row is a query");
      }
  }
  const auto found = std::size_t(std::ranges::find(fits, true) - fits.begin());
  if (!wrong.empty() && found < fits.size())
    expect(false, wrong, other_bits[found].sentence, std::string(other_bits[found].id));
  expect_part(wrong, other_pairs, [&](PairOfBit of) { return fit_pairs[of == other_pairs[0].of ? 0 : 1]; });
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

namespace {
using Rotation = double (*)(double position, double c, bool sine);
const std::vector<Other<Rotation>> other_rotations{
    {"angle-of-c", "your code uses the exponent −c/d; it must be −2c/d",
     [](double position, double c, bool sine) {
       const double angle = position * std::pow(10000, -c / 64);
       return sine ? std::sin(angle) : std::cos(angle);
     }},
    {"angle-of-first-pair",
     "your code computes the exponent by an integer division, so it is 0 for every c; it must divide floating-point "
     "numbers",
     [](double position, double, bool sine) { return sine ? std::sin(position) : std::cos(position); }},
    {"angle-grows", "your code uses a positive exponent, so the angle grows with c; the exponent must be negative",
     [](double position, double c, bool sine) {
       const double angle = position * std::pow(10000, 2 * c / 64);
       return sine ? std::sin(angle) : std::cos(angle);
     }},
    {"sine-first", "your code exchanges cosine and sine; the cosine must be in x, and the sine in y",
     [](double position, double c, bool sine) {
       const double angle = position * std::pow(10000, -2 * c / 64);
       return sine ? std::cos(angle) : std::sin(angle);
     }},
    {"angle-of-next", "your code returns the angle of the next position; the angle at position 0 must be 0",
     [](double position, double c, bool sine) {
       const double angle = (position + 1) * std::pow(10000, -2 * c / 64);
       return sine ? std::sin(angle) : std::cos(angle);
     }},
    {"angle-opposite", "your code returns the sine of the opposite angle; the angle must have the sign of the position",
     [](double position, double c, bool sine) {
       const double angle = -position * std::pow(10000, -2 * c / 64);
       return sine ? std::sin(angle) : std::cos(angle);
     }},
};
}  // namespace

TEST_CASE("each pair of columns has its angle at each position", "[17.4]") {
  const std::vector<float> positions{0, 1, 2, 100, -3, 4095, 131071, 1 << 20};
  const auto got = numbers_of("rotations", {{"n", double(positions.size())}}, positions, 64 * positions.size());
  const auto off = [&](Rotation of, std::size_t at) {
    return std::abs(double(got[at]) - of(positions[at / 64], double(at / 2 % 32), at % 2 != 0));
  };
  const Rotation right = [](double position, double c, bool sine) {
    const double angle = position * std::pow(10000, -2 * c / 64);
    return sine ? std::sin(angle) : std::cos(angle);
  };
  constexpr double allowed = 0x1p-23;  // a rounding to float, of numbers up to 1, and a last place of double's sine
  std::string wrong;
  bool near_right = true;  // but for large positions
  for (std::size_t at = 0; at < got.size(); ++at) {
    near_right = near_right && (off(right, at) <= 1e-5 || std::abs(positions[at / 64]) > 200);
    if (!(off(right, at) <= allowed) && wrong.empty())
      wrong =
          fmt::format("your {} of RoPE pair {} at position {} is {}, expected {}; difference {:.1g}, allowed {:.1g}",
                      at % 2 != 0 ? "sine" : "cosine", at / 2 % 32, positions[at / 64], got[at],
                      right(positions[at / 64], double(at / 2 % 32), at % 2 != 0), off(right, at), allowed);
  }
  if (!wrong.empty() && near_right)
    expect(false, wrong,
           "your code computes the angle in float, which is too coarse at large positions; it must compute the angle "
           "in double",
           "angle-in-float");
  expect_part(wrong, other_rotations, [&](Rotation other) {
    for (std::size_t at = 0; at < got.size(); ++at)
      if (std::abs(positions[at / 64]) < 200 && !(off(other, at) <= 1e-4)) return false;
    return true;
  });
}
TEST_CASE("the table rotates rows of Q and K", "[17.4]") {
  expect_masks(rotations(), 200);
}

// ---- 17.5 a pair of chunks ----

namespace {
/// Eight pairs, and their cosines and sines.
struct Chunks {
  std::array<double, 8> x, y, cos, sin;
};
using Rotated = std::pair<double, double> (*)(const Chunks& c, std::size_t k);
const std::vector<Other<Rotated>> other_rotated_pairs{
    {"rotated-back",
     "your code rotates by the opposite angle; x must become x·cos − y·sin, and y must become y·cos + x·sin",
     [](const Chunks& c, std::size_t k) {
       return std::pair{c.x[k] * c.cos[k] + c.y[k] * c.sin[k], c.y[k] * c.cos[k] - c.x[k] * c.sin[k]};
     }},
    {"rotated-sign-of-y", "your code subtracts x·sin in the rotated y; it must add x·sin",
     [](const Chunks& c, std::size_t k) {
       return std::pair{c.x[k] * c.cos[k] - c.y[k] * c.sin[k], c.y[k] * c.cos[k] - c.x[k] * c.sin[k]};
     }},
    {"rotated-sign-of-x", "your code adds y·sin in the rotated x; it must subtract y·sin",
     [](const Chunks& c, std::size_t k) {
       return std::pair{c.x[k] * c.cos[k] + c.y[k] * c.sin[k], c.y[k] * c.cos[k] + c.x[k] * c.sin[k]};
     }},
    {"rotated-one-after-the-other", "your code computes y from the rotated x; it must use the old x",
     [](const Chunks& c, std::size_t k) {
       const double x = half_to_float(float_to_half(float(c.x[k] * c.cos[k] - c.y[k] * c.sin[k])));
       return std::pair{x, c.y[k] * c.cos[k] + x * c.sin[k]};
     }},
    {"rotated-adjacent",
     "your code rotates adjacent elements as a RoPE pair; the partner of x[k] must be y[k], half a head further on",
     [](const Chunks& c, std::size_t k) {
       const std::size_t even = k / 2 * 2;
       const auto of = [&](const std::array<double, 8>& v) {
         return k % 2 == 0 ? v[even] * c.cos[k] - v[even + 1] * c.sin[k] : v[even + 1] * c.cos[k] + v[even] * c.sin[k];
       };
       return std::pair{of(c.x), of(c.y)};
     }},
    {"rotated-by-adjacent-angle",
     "your code rotates RoPE pair k + 1 by the angle of RoPE pair k; each RoPE pair must use its own cosine and sine",
     [](const Chunks& c, std::size_t k) {
       const double cos = c.cos[k / 2 * 2], sin = c.sin[k / 2 * 2];
       return std::pair{c.x[k] * cos - c.y[k] * sin, c.y[k] * cos + c.x[k] * sin};
     }},
    {"rotated-by-adjacent-angle",
     "your code rotates y[k + 1] by the angle of RoPE pair k; it must use the angle of RoPE pair k + 1, as for x[k + "
     "1]",
     [](const Chunks& c, std::size_t k) {
       const double cos = c.cos[k / 2 * 2], sin = c.sin[k / 2 * 2];
       return std::pair{c.x[k] * c.cos[k] - c.y[k] * c.sin[k], c.y[k] * cos + c.x[k] * sin};
     }},
    {"rotated-by-adjacent-angle",
     "your code rotates x[k + 1] by the angle of RoPE pair k; it must use the angle of RoPE pair k + 1, as for y[k + "
     "1]",
     [](const Chunks& c, std::size_t k) {
       const double cos = c.cos[k / 2 * 2], sin = c.sin[k / 2 * 2];
       return std::pair{c.x[k] * cos - c.y[k] * sin, c.y[k] * c.cos[k] + c.x[k] * c.sin[k]};
     }},
    {"rotated-cosines-first",
     "your code reads a vector as two cosines, then two sines; it must read cosine, sine, cosine, sine",
     [](const Chunks& c, std::size_t k) {
       const std::size_t even = k / 2 * 2;
       const double cos = k % 2 == 0 ? c.cos[even] : c.sin[even], sin = k % 2 == 0 ? c.cos[even + 1] : c.sin[even + 1];
       return std::pair{c.x[k] * cos - c.y[k] * sin, c.y[k] * cos + c.x[k] * sin};
     }},
    {"rotated-half-alone", "your code rotates only x; it must store the rotated y too",
     [](const Chunks& c, std::size_t k) {
       return std::pair{c.x[k] * c.cos[k] - c.y[k] * c.sin[k], c.y[k]};
     }},
};
}  // namespace

TEST_CASE("elements half a head apart are rotated as a pair", "[17.5]") {
  Chunks chunks{};
  std::vector<float> given(32);
  for (std::size_t k = 0; k < 8; ++k) {
    chunks.x[k] = double(k) - 2.5, chunks.y[k] = 0.25 * double(k * k) - 3;
    chunks.cos[k] = float(std::cos(0.3 * double(k + 1))), chunks.sin[k] = float(std::sin(0.3 * double(k + 1)));
    given[k] = float(chunks.x[k]), given[8 + k] = float(chunks.y[k]);
    given[16 + 2 * k] = float(chunks.cos[k]), given[17 + 2 * k] = float(chunks.sin[k]);
  }
  const auto got = numbers_of("chunks", {}, given, 16);
  const auto is = [&](Rotated of, std::size_t k) {
    const auto [x, y] = of(chunks, k);
    return std::abs(double(got[k]) - x) <= 0.01 && std::abs(double(got[8 + k]) - y) <= 0.01;  // fp16
  };
  const Rotated right = [](const Chunks& c, std::size_t k) {
    return std::pair{c.x[k] * c.cos[k] - c.y[k] * c.sin[k], c.y[k] * c.cos[k] + c.x[k] * c.sin[k]};
  };
  std::string wrong;
  std::vector<std::size_t> off;  // of each two elements one may be right
  for (std::size_t k = 0; k < 8; ++k)
    if (!is(right, k)) off.push_back(k);
  if (!off.empty()) {
    const std::size_t k = off[0];
    const auto [x, y] = right(chunks, k);
    wrong = fmt::format(
        "your code rotates x[{0}] = {1} and y[{0}] = {2} with cosine {3} and sine {4} to {5} and {6}, expected {7} and "
        "{8}; wrong k: {9}",
        k, chunks.x[k], chunks.y[k], chunks.cos[k], chunks.sin[k], got[k], got[8 + k], x, y, fmt::join(off, ", "));
  }
  expect_part(wrong, other_rotated_pairs, [&](Rotated other) {
    return off.size() >= 4 && std::ranges::all_of(off, [&](std::size_t k) { return is(other, k); });
  });
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
    {"[whole]", "future positions have zero influence", [] { expect_no_future(); }},
    {"[whole]", "a row's answer depends on no other row of Q", [] { expect_rows_independent(); }},
    {"[whole]", "results do not depend on workers or lane order", [] { expect_order_changes_nothing(); }},
    {"[whole]", "50 runs are bitwise equal", [] { expect_repeatable(50); }},
    {"[whole]", "the tiles fit 64, 99, 163 and 227 KB of shared memory", [] { expect_tiles_for_every_size(); }},
    {"[whole]", "Q, K and V are copied 16 bytes per thread", [] { expect_wide_tiles("async"); }},
};
