// Chapter 22: which tokens a rank holds, and what it computes in each step of the ring.
//
// Source: Zhu 2024 (ring-flash-attention), the zigzag order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/attention/shape.hpp"

namespace ch22 {

/// Positions first to end - 1 of the sequence.
struct Range {
  std::int64_t first, end;
  std::int64_t size() const { return end - first; }
};

/// The sequence in 2·ranks chunks of equal length, a multiple of 64 (the last ones may be shorter, or empty). Rank r
/// holds chunk r and chunk 2·ranks - 1 - r. Key j is at position j. The queries are the last ones: query i is at
/// position i + Nk - Nq; those before position 0, which see no key with the causal mask, belong to chunk 0.
struct Shards {
  std::int64_t Nq, Nk;
  int ranks;

  std::int64_t chunk_length() const { return (Nk + 128 * ranks - 1) / (128 * ranks) * 64; }
  Range keys_of_chunk(int chunk) const {
    const std::int64_t begin = chunk * chunk_length();
    return {std::min(begin, Nk), std::min(begin + chunk_length(), Nk)};
  }
  /// As indices of queries.
  Range queries_of_chunk(int chunk) const {
    const Range positions = keys_of_chunk(chunk);
    const std::int64_t offset = Nk - Nq, last = 2 * ranks - 1;
    return {chunk == 0 ? 0 : std::clamp<std::int64_t>(positions.first - offset, 0, Nq),
            chunk == last ? Nq : std::clamp<std::int64_t>(positions.end - offset, 0, Nq)};
  }
  /// The two chunks of a rank, in the order of its rows.
  int chunk(int rank, int half) const { return half == 0 ? rank : 2 * ranks - 1 - rank; }
  std::int64_t queries(int rank) const {
    return queries_of_chunk(chunk(rank, 0)).size() + queries_of_chunk(chunk(rank, 1)).size();
  }
  std::int64_t keys(int rank) const {
    return keys_of_chunk(chunk(rank, 0)).size() + keys_of_chunk(chunk(rank, 1)).size();
  }
};

/// A step of a rank: its queries from first_query on attend to the first `keys` of the source's keys. If causal, the
/// rank's last query attends to all of these keys, the one before it to all but the last key, and so on. After the
/// step, the queries before `finished` have seen all of their keys.
struct Step {
  int source;
  std::int64_t first_query, keys, finished;
  bool causal;
};

/// Step `number` of a rank, 0 to ranks - 1. Its source is `number` ranks before it in the ring.
inline Step step_of(const Shards& shards, bool causal, int rank, int number) {
  // TODO(22.2) Without a mask, all queries attend to all keys of each source. With the causal mask, the rank's own keys
  // need the mask; of a source before it, the first half of the keys is visible, to all queries; of a later source all
  // keys, to the second half of the queries. When has each half of the queries seen all of its keys (about 10 lines)?
  // BEGIN 22.2
  const int source = (rank + shards.ranks - number) % shards.ranks;
  const std::int64_t queries = shards.queries(rank), keys = shards.keys(source);
  const std::int64_t finished_at_end = number == shards.ranks - 1 ? queries : 0;
  if (!causal) return {source, 0, keys, finished_at_end, false};
  const std::int64_t first_half = shards.queries_of_chunk(rank).size();
  const std::int64_t finished = std::max(number >= rank ? first_half : 0, finished_at_end);  // source 0 was the last
  if (source == rank) return {source, 0, keys, finished, true};
  if (source < rank) return {source, 0, shards.keys_of_chunk(source).size(), finished, false};
  return {source, first_half, keys, finished, false};
  // END 22.2
}

}  // namespace ch22
