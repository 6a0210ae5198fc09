// Chapter 19, given: a call as the kernels take it: its heads, its mask, its score modification, and its packed
// sequences.
#pragma once

#include <algorithm>
#include <cstdint>

#include "masks.hpp"
#include "scores.hpp"
#include "sequences.hpp"

namespace ch19 {
namespace {

/// The heads of a call. Each head of K and V has kv_tiles K/V tiles. `group` adjacent ones of the `heads` heads of Q
/// share it, as in chapter 14.
struct Problem {
  int kv_tiles, heads, group;
  const int* starts;  // where each packed sequence starts, or nullptr: one sequence
};

/// The sequence of K/V tile `tile` of a head: all rows, or those of a packed sequence. In the latter case restricts the
/// mask to that sequence.
__device__ inline Sequence enter_sequence(WindowMask& mask, const Problem& problem, int tile, int Bc) {
  if (problem.starts == nullptr) return {0, mask.Nk, tile};
  const Sequence sequence = sequence_of(problem.starts, tile, Bc);
  mask.Nq = mask.Nk = sequence.length;
  return sequence;
}

/// The mask of a call. An unlimited side is Nq + Nk, which is larger than Nk.
inline WindowMask window_mask(const workbook::Setting& call) {
  using workbook::Mask;
  const std::int64_t Nq = call.shape.Nq, Nk = call.shape.Nk, all = Nq + Nk;
  const std::int64_t left = call.mask.kind == Mask::window ? std::min(call.mask.left, all) : all;
  const std::int64_t right = call.mask.kind == Mask::none ? all : std::min(call.mask.right, all);
  return {int(Nq), int(Nk), int(left), int(right)};
}

/// Calls function(score_mod) with the score modification of a call.
template <class Function>
void with_score_mod(const workbook::Setting& call, const Function& function) {
  const float scale = call.scale * log2_e, cap = call.mask.softcap * log2_e;
  const auto with_optional_alibi = [&](auto score_mod) {
    call.mask.alibi ? function(WithAlibi<decltype(score_mod)>{score_mod}) : function(score_mod);
  };
  cap > 0 ? with_optional_alibi(Softcap{cap, 2 * log2_e * scale / cap}) : with_optional_alibi(Scaled{scale});
}

}  // namespace
}  // namespace ch19
