// Chapter 19, given: what a call asks for, as the kernel takes it: its mask, its change of scores and its packed
// sequences.
#pragma once

#include <algorithm>
#include <cstdint>

#include "masks.hpp"
#include "scores.hpp"
#include "sequences.hpp"

namespace ch19 {
namespace {

/// How many K/V tiles a head of K and V has; and what it brings beside Q, K and V: the `heads` heads of Q, of which
/// `group` neighbours share it, as in chapter 14; and where packed sequences start.
struct Given {
  int kv_tiles, heads, group;
  const int* starts;  // nullptr: one sequence
};

/// The rows that belong together with those of a head's K/V tile number `block`: all of them, or those of a packed
/// sequence, of which alone `seen` knows then.
__device__ inline Sequence enter_sequence(SeenKeys& seen, const Given& given, int block, int Bc) {
  if (given.starts == nullptr) return {0, seen.Nk, block};
  const Sequence own = sequence_of(given.starts, block, Bc);
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
    call.mask.alibi ? take(WithAlibi<decltype(change)>{change}) : take(change);
  };
  cap > 0 ? perhaps_alibi(Softcap{cap, 2 * log2_e * scale / cap}) : perhaps_alibi(Scaled{scale});
}

}  // namespace
}  // namespace ch19
