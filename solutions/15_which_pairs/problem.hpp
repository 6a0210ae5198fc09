// Chapter 15, given: a call as the kernels take it: its heads and sinks, its mask, its score modification, and its
// packed sequences.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/attention/setting.hpp"
#include "masks.hpp"
#include "scores.hpp"
#include "sequences.hpp"

namespace ch15 {
namespace {

/// The heads of a call. Each of `heads` heads of Q has tiles_per_head tiles (of Q, or of K and V in the backward pass).
/// `group` adjacent heads of Q share a head of K and V, as in chapter 14.
struct Problem {
  int tiles_per_head, heads, group;
  const float* sink;  // (heads), or nullptr: no sinks
  const int* starts;  // where each packed sequence starts, or nullptr: one sequence
};

/// The sequence of a thread block with tile `tile` of a head: all rows, or those of a packed sequence. In the latter
/// case restricts the mask to that sequence.
__device__ inline Sequence enter_sequence(WindowMask& mask, const Problem& problem, int tile, int Br) {
  if (problem.starts == nullptr) return {0, mask.Nq, tile};
  const Sequence sequence = sequence_of(problem.starts, tile, Br);
  mask.Nq = mask.Nk = sequence.length;
  return sequence;
}

/// The padded rows of the backward pass (gradient_sums.hpp): the rows of each sequence are padded to a multiple of 64.
struct RowOfSequences {
  const int* __restrict__ starts;  // or nullptr: one sequence
  int Nq;
  __device__ int operator()(int padded) const {
    if (starts == nullptr) return padded;
    const Sequence sequence = sequence_of(starts, padded / 64, 64);
    const int row = sequence.tile * 64 + padded % 64;
    return row < sequence.length ? sequence.first + row : Nq;
  }
};
/// The number of padded rows before the sequence that starts at row `first`.
__device__ __forceinline__ int padded_before(const int* __restrict__ starts, int first) {
  int rows = 0;
  for (int s = 0; starts != nullptr && starts[s] < first; ++s) rows += (starts[s + 1] - starts[s] + 63) / 64 * 64;
  return rows;
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
    call.mask.alibi ? function(WithAlibi<decltype(score_mod)>{score_mod, scale}) : function(score_mod);
  };
  cap > 0 ? with_optional_alibi(Softcap{scale, cap, scale / cap}) : with_optional_alibi(Scaled{scale});
}

}  // namespace
}  // namespace ch15
