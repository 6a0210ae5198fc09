// Blocks of K/V tiles, and the Q tiles that they visit, for the tests of chapter 19.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/15_which_pairs/mask_cases.hpp"
#include "tests/support/numbered.hpp"
#include "tests/support/subject.hpp"

namespace workbook::test {

using Int = std::int64_t;

// ---- Blocks of keys, and what they meet ----

/// A sequence of a head: its mask, where its rows begin, and where its padded rows do.
struct OneSequence {
  Window window;
  Int first, padded;
};

/// What operations are asked about: heads that share K and V, of packed sequences or of one.
struct BlocksCase {
  Window window;
  Int kv_heads, group, per_group;
  std::vector<Int> lengths = {};

  std::vector<OneSequence> sequences() const {
    if (lengths.empty()) return {{window, 0, 0}};
    std::vector<OneSequence> all;
    Int first = 0, padded = 0;
    for (const Int length : lengths) {
      all.push_back({{length, length, window.left, window.right}, first, padded});
      first += length, padded += tiles_of(length, 128) * 128;
    }
    return all;
  }
  /// The padded rows of a head.
  Int padded() const { return sequences().back().padded + tiles_of(sequences().back().window.Nq, 128) * 128; }
  Int kv_tiles() const {
    Int blocks = 0;
    for (const OneSequence& each : sequences()) blocks += tiles_of(each.window.Nk, 128);
    return blocks;
  }
  Int blocks() const { return kv_tiles() * kv_heads; }
  Int most_steps(Int Br) const { return group * tiles_of(window.Nq, Br) + 2; }
  std::string text() const {
    return fmt::format("{} K/V heads, {} heads of Q each, {}{}", kv_heads, group, window.text(),
                       lengths.empty() ? "" : fmt::format(", lengths {}", fmt::join(lengths, ", ")));
  }
  worker::Call request(const char* operation, Int Br) const {
    worker::Call request = window_call(operation, window);
    request.number("kv_heads", double(kv_heads)).number("group", double(group)).number("most", double(most_steps(Br)));
    request.number("heads_per_group", double(per_group)).number("kv_tiles", double(kv_tiles()));
    request.number("padded", double(padded())).number("count", double(blocks()));
    return request;
  }
  /// What the request's input "starts" has to be.
  std::vector<std::int32_t> starts() const {
    std::vector<std::int32_t> all;
    for (const OneSequence& each : sequences()) all.push_back(std::int32_t(each.first));
    if (!lengths.empty()) all.push_back(std::int32_t(window.Nq));
    return all;
  }
};

/// A block: the keys of a sequence from first_key on, of one head of K and V.
struct Block {
  OneSequence sequence;
  Int kv_head, first_key;
  std::string text() const {
    return fmt::format("the thread block of K/V head {}, keys {} to {} of the sequence from row {} on", kv_head,
                       first_key, std::min(first_key + 128, sequence.window.Nk) - 1, sequence.first);
  }
  /// The Q tiles of which some query sees one of its keys, pair by pair.
  Numbered q_tiles(Int Br) const {
    const Window& w = sequence.window;
    Numbered all{0, 0};
    for (Int i = 0; i < w.Nq; ++i)
      for (Int j = first_key; j < std::min(w.Nk, first_key + 128); ++j)
        if (w.attends(i, j)) all = {all.first < all.last ? all.first : i / Br, i / Br + 1};
    return all;
  }
};
inline Block block_of(const BlocksCase& c, Int kv_head, Int first_row, Int first_key) {
  for (const OneSequence& each : c.sequences())
    if (each.first == first_row && first_key < each.window.Nk) return {each, kv_head, first_key};
  return {};
}

inline const std::vector<Int> some_lengths{100, 0, 1, 130, 129};
inline const BlocksCase blocks_cases[] = {
    {{200, 400, unlimited, 0}, 3, 3, 2},
    {{400, 200, 100, 40}, 2, 1, 1},
    {{300, 300, 60, 20}, 1, 4, 1},
    {{40, 400, 20, 0}, 1, 2, 1},
    {{70, 70, unlimited, unlimited}, 2, 2, 2},
    {{360, 360, unlimited, unlimited}, 2, 3, 2, some_lengths},
    {{360, 360, 30, 3}, 2, 2, 1, some_lengths},
};

}  // namespace workbook::test
