// What the tests of several kernel chapters share: named inputs, rows behind the last one, and how wide accesses are.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/subject.hpp"

namespace workbook::test {

using Numbers = std::map<std::string, double>;

/// The cause where O is rescaled although no score exceeds m by more than `slack`.
inline constexpr const char* m_follows_too_early =
    "m follows scores that exceed it by less than `slack`, or compares them before they are scaled";

/// One of the named inputs, and its seed for the message.
struct Input {
  Problem problem;
  std::string name;
};
Input input(const std::string& kind, const Shape& shape, std::uint64_t seed, bool causal = false);

/// The same with every second query 0, and so its scores: what overflows for the others is not NaN throughout.
Input with_zeros(Input given);

/// The same with Q and K zero but for `count` columns from `first` on, which are doubled: the scores are those of these
/// columns alone.
Input with_columns(Input given, std::int64_t first, std::int64_t count);
/// The same with V = 1: O is 1, whatever the weights are.
Input with_V_of_ones(Input given);
/// The same with query i times (i % 32)/8: each of 32 rows has an l of its own.
Input with_rows_apart(Input given);

/// Adds to the scaled scores of query i and key j about row(i)·key(j), in every head: through column 0 of Q and K,
/// which holds nothing else.
template <class Row, class Key>
void add_to_scores(Problem& problem, const Row& row, const Key& key) {
  const Shape& s = problem.shape;
  for (std::int64_t b = 0; b < s.B; ++b) {
    for (std::int64_t h = 0; h < s.H; ++h) {
      for (std::int64_t i = 0; i < s.Nq; ++i) problem.Q(b, h, i, 0) = float(row(i));
      for (std::int64_t j = 0; j < s.Nk; ++j) problem.K(b, h, j, 0) = float(key(j)) / problem.scale;
    }
  }
}

/// Fails unless the LSE of the problem, rounded to the stage's element, is right; O is not looked at. `numbers`: the
/// stage's tiles, `tiling` the same for what messages say.
void expect_lse(const Input& given, const Numbers& numbers, const judge::Tiling& tiling);

/// Whether O and the LSE that came back for this problem are right. Ends no test: for one that counts something, and
/// says why only where no wrong number explains the count as well.
bool is_right(const Problem& given, const AttentionResult& result);

/// The codes of O (Nq, d) and the LSE (Nq) of a problem of one head, with `rows_behind` rows of `behind` after the last
/// one of Q, K and V.
struct Padded {
  std::vector<std::uint16_t> O;
  std::vector<float> lse;
};
Padded attention_padded(const Problem& problem, const Numbers& numbers, std::int64_t rows_behind, float behind);
/// Fails unless O and the LSE are the same, bit for bit, whatever lies behind the last row of Q, K and V.
void expect_nothing_from_behind(const Problem& problem, const Numbers& numbers, std::int64_t rows_behind);

/// Stores to and loads from shared memory take no more wavefronts than without bank conflicts.
void expect_no_bank_conflicts(const worker::Reply& reply);

/// `tensor` is moved by "load", "store" or "async" accesses of `bytes` bytes, 32 bytes a sector and 512 bytes a
/// request: no byte twice, neighbouring lanes at neighbouring bytes, 16 bytes a lane.
void expect_wide(const worker::Reply& reply, const std::string& tensor, const std::string& way, double bytes,
                 const std::string& why);

/// Fails unless O, the LSE and the counters are the same, bit for bit, whatever the simulator's workers and lane order.
/// `numbers`: the stage's own tiles.
void expect_order_changes_nothing(const Problem& problem, const Numbers& numbers);

/// Fails unless each of 65600 heads of one query and one key, d = 32, gets its own value, exactly. `numbers`: the
/// stage's smallest tiles.
void expect_every_head(Numbers numbers, bool causal = false);

/// Fails if the stage allocates device memory beside Q, K, V, O and the LSE, at N = 64 or 256. `stored`: what it most
/// likely stores there.
void expect_no_extra_memory(std::uint64_t seed, bool causal, const std::string& stored);

}  // namespace workbook::test
