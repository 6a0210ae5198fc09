// Chapter 18, given: what a call asks for, as the kernel takes it: its mask, its change of scores, its sinks and its
// packed sequences.
#pragma once

#include <algorithm>
#include <cstdint>

#include "masks.hpp"
#include "scores.hpp"
#include "sequences.hpp"

namespace ch18 {
namespace {

/// How many tiles of queries a head has; and what it brings beside Q, K and V: its number among `heads` heads of Q, of
/// which `group` neighbours share a head of K and V, as in chapter 14; their sinks (H), and where packed sequences
/// start.
struct Given {
  int q_tiles, heads, group;
  const float* sink;  // nullptr: none
  const int* starts;  // nullptr: one sequence
};

/// The rows that belong together with those of a head's tile number `tile`: all of them, or those of a packed sequence,
/// of which alone `seen` knows then.
__device__ inline Sequence enter_sequence(SeenKeys& seen, const Given& given, int tile, int Br) {
  if (given.starts == nullptr) return {0, seen.Nq, tile};
  const Sequence own = sequence_of(given.starts, tile, Br);
  seen.Nq = seen.Nk = own.length;
  return own;
}

/// The mask's window; a side that has no end has more keys than there are.
inline SeenKeys seen_keys(const workbook::Setting& call) {
  using workbook::Mask;
  const std::int64_t Nq = call.shape.Nq, Nk = call.shape.Nk, all = Nq + Nk;
  const std::int64_t left = call.mask.kind == Mask::window ? std::min(call.mask.left, all) : all;
  const std::int64_t right = call.mask.kind == Mask::none ? all : std::min(call.mask.right, all);
  return {int(Nq), int(Nk), int(left), int(right)};
}

/// take(change): the change of scores that the call's mask asks for.
template <class Take>
void with_change(const workbook::Setting& call, const Take& take) {
  const float scale = call.scale * log2_e, cap = call.mask.softcap * log2_e;
  const auto perhaps_alibi = [&](auto change) {
    call.mask.alibi ? take(WithAlibi<decltype(change)>{change, scale}) : take(change);
  };
  cap > 0 ? perhaps_alibi(Softcap{scale, cap, 2 * log2_e * scale / cap}) : perhaps_alibi(Scaled{scale});
}

}  // namespace
}  // namespace ch18
