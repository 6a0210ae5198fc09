// A forward stage in a chapter's tests: what it says of itself on this device, inputs for it, calls of it against the
// oracle, and how many tiles a call has to go through. What every such stage has to be: forward_properties.hpp.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/subject.hpp"

namespace workbook::test {

// ---- What the stage says of itself ----

/// Sizes of a stage's tiles. As a wish, 0 stands for any, and no sizes at all for those that the stage takes by itself.
struct Tiles {
  std::int64_t Br = 0, Bc = 0, warps = 0;
  Numbers variant = {};  ///< the number that asks for other kernels of the chapter: {{"kernel", 1}}

  Numbers numbers() const;
  std::string text() const;
};
/// The tiles that the stage has for d, and room for on this device; the first are those that it takes by itself. None:
/// it does not do d here.
std::vector<Tiles> all_tiles(std::int64_t d, const Numbers& variant = {});
/// Those that it takes by itself; and the smallest, of these the ones with most warps. Where there are none, the test
/// is skipped: the device has no room for any.
Tiles usual_tiles(std::int64_t d, const Numbers& variant = {});
Tiles small_tiles(std::int64_t d, const Numbers& variant = {});
/// Of all tiles for d those that are nearest to the wish: the same ones, if the device has room for them.
Tiles nearest_tiles(std::int64_t d, const Tiles& wish);
/// The head dimensions that the stage does on this device.
std::vector<std::int64_t> head_dims();
/// The masks that it does: none, and the causal one if it does that.
std::vector<bool> masks();
/// The elements that the chapter has stages for: its own as nothing, and others.
std::vector<std::optional<Element>> elements();

// ---- Inputs ----

/// A problem of a named kind, and what it is called in messages.
struct Input {
  Problem problem;
  std::string name;
  std::string kind = {};  ///< empty where it has been changed
};
Input input(const std::string& kind, const Shape& shape, std::uint64_t seed, bool causal = false);

/// The same with every second query 0, and so its scores: what overflows for the others is not NaN throughout.
Input with_zeros(Input given);
/// The same with Q and K zero but for `count` columns from `first` on, which are doubled: the scores are those of these
/// columns alone.
Input with_columns(Input given, std::int64_t first, std::int64_t count);
/// The same with a V that is small but for `count` keys from `first` on.
Input with_values_of(Input given, std::int64_t first, std::int64_t count);
/// The same with V = 1: O is 1, whatever the weights are.
Input with_V_of_ones(Input given);
/// The same with query i times (i % 32)/8: each of 32 rows has an l of its own.
Input with_rows_apart(Input given);
/// The same with another scale.
Input with_scale(Input given, float scale);

/// Adds to the scaled scores of query i and key j about row(i)·key(j), in every head: through column 0 of Q and K,
/// which holds nothing else.
template <class Row, class Key>
void add_to_scores(Input& given, const Row& row, const Key& key) {
  given.kind.clear();
  Problem& problem = given.problem;
  const Shape& s = problem.shape;
  for (std::int64_t b = 0; b < s.B; ++b) {
    for (std::int64_t h = 0; h < s.H; ++h)
      for (std::int64_t i = 0; i < s.Nq; ++i) problem.Q(b, h, i, 0) = float(row(i));
    for (std::int64_t h = 0; h < s.Hkv; ++h)
      for (std::int64_t j = 0; j < s.Nk; ++j) problem.K(b, h, j, 0) = float(key(j)) / problem.scale;
  }
}

// ---- Against the oracle ----

/// O and the LSE of the stage, with the tiles that are nearest to `wish`. lane_seed: the simulator's lanes, warps and
/// copies in another order.
AttentionResult expect_right(const Input& given, const Tiles& wish = {}, std::optional<Element> element = {},
                             int lane_seed = 0);
/// The LSE alone; O is not looked at.
void expect_lse(const Input& given, const Tiles& wish = {});
/// O alone against that of the previous chapter's stage, which is within its own bounds of the oracle, as this is.
void expect_same_as_previous(const Input& given);

/// What comes back with the tiles nearest to `wish`, for tests that count.
AttentionResult attention(const Input& given, const Tiles& wish);
/// Whether O and the LSE that came back for this problem are right. Ends no test: for one that counts something, and
/// says why only where no wrong number explains the count as well.
bool is_right(const Problem& given, const AttentionResult& result);

// ---- What a call has to go through ----

/// How many tiles of keys the queries of tile `t` see: up to the one with the last key of its last query.
std::int64_t visited_tiles(const Problem& problem, const Tiles& tiles, std::int64_t t);
/// The sum over the query tiles of all heads.
template <class Count>
std::int64_t over_q_tiles(const Shape& s, const Tiles& tiles, const Count& count) {
  std::int64_t sum = 0;
  for (std::int64_t t = 0; t < tiles_of(s.Nq, tiles.Br); ++t) sum += count(t);
  return s.B * s.H * sum;
}
/// "Nq=200, Nk=150, d=64, causal=no, Br=128, Bc=64, 4 warps"
std::string text(const Problem& problem, const Tiles& tiles);

/// What `count` of a reply grows by when Nk grows from 128 to 192: for one block's queries and 64 more keys.
template <class Count>
double growth_of(const Count& count, const std::string& kind, std::int64_t d, const Tiles& tiles) {
  const auto at = [&](std::int64_t Nk) {
    return count(attention(input(kind, {1, 1, 1, tiles.Br, Nk, d}, 7), tiles).reply);
  };
  const double before = at(128);
  return at(192) - before;
}
/// The same of a counter.
double growth(const std::string& name, std::int64_t d, const Tiles& tiles, const std::string& kind = "normal");

/// The cause where O is rescaled although no score exceeds m by more than `slack`.
inline constexpr const char* m_follows_too_early =
    "your code updates m for a score that exceeds it by less than `slack`; it must compare scaled scores with m + "
    "`slack`, and set m to the largest score";

/// Stores to and loads from shared memory take no more wavefronts than without bank conflicts.
void expect_no_bank_conflicts(const worker::Reply& reply);

/// `tensor` is moved by "load", "store" or "async" accesses of `bytes` bytes, 32 bytes a sector and 512 bytes a
/// request: no byte twice, neighbouring lanes at neighbouring bytes, 16 bytes a lane.
void expect_wide(const worker::Reply& reply, const std::string& tensor, const std::string& way, double bytes,
                 const std::string& why);

}  // namespace workbook::test
