// Chapter 20: the registers of a warp, and the phases of the kernel for 16 keys: loading K and V, Sᵀ = K Qᵀ, the
// softmax, Oᵀ += Vᵀ Pᵀ. Element is half or __nv_bfloat16.
//
// In all comments, quad = lane / 4 and in_quad = lane % 4. A column is a row of Q: Sᵀ is (16 keys, 8 columns), Oᵀ is
// (d, 8 columns). `parts` is 1 or 2: parts of 8 columns.
#pragma once

#include <cstdint>

#include "cut.hpp"
#include "split_kv.hpp"

namespace ch20 {
namespace {

using workbook::cuda::cvt_rn_x2, workbook::cuda::exp2_ftz, workbook::cuda::Fragment;
using workbook::cuda::mma_m16n8k16, workbook::cuda::movmatrix_trans;

constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;
constexpr unsigned all_lanes = 0xffffffff;

/// The registers of a warp. A dot product is a sum over d in any order, so lane in_quad holds the 8 elements
/// 32c + 8 in_quad to 32c + 8 in_quad + 7 of a row of Q or K: 16 bytes that are adjacent in memory.
template <class Element, int d, int parts>
struct Registers {
  Fragment<Element, 4> Q[parts][d / 32];  ///< of row 8n + quad
  Fragment<Element, 4> K[2][d / 32];      ///< of keys quad and quad + 8
  Fragment<Element, 4> V[4][d / 64];    ///< of keys 2 in_quad + {0, 1, 8, 9}: elements 64c + 8 quad to 64c + 8 quad + 7
  Fragment<float, 4> O[parts][d / 16];  ///< part 4c + i: elements 64c + 8 quad + 2i and the next, columns 2 in_quad
                                        ///< and the next
  float m[parts][2], l[parts][2];  ///< of columns 8n + 2 in_quad and the next; l is the sum over this lane's keys only
};

/// The rows of Q that a thread block computes. Row r is query r / group of head r % group, as in chapter 14.
struct Rows {
  int first, count;  ///< the block's first row; group·Nq, the rows of all blocks
  int group, Nq, Nk;
  bool causal;
  /// The index of a row in memory, where rows are stored head by head.
  __device__ std::int64_t memory_row(int row) const {
    const int query = (first + row) / group;
    return std::int64_t(first + row - group * query) * Nq + query;
  }
  __device__ bool exists(int row) const { return first + row < count; }
  /// The number of keys that a row attends to, at least 0; and that any of the first `rows` rows attends to.
  __device__ int visible_keys(int row) const { return causal ? max(0, (first + row) / group + 1 + Nk - Nq) : Nk; }
  __device__ int end_of_keys(int rows) const { return visible_keys(min(rows, count - first) - 1); }
};

/// Loads 16 bytes into four registers; zeros if not `exists`.
template <class Element>
__device__ __forceinline__ void load_16(Fragment<Element, 4>& to, const Element* from, bool exists) {
  const uint4 bytes = exists ? *reinterpret_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
  to[0] = bytes.x, to[1] = bytes.y, to[2] = bytes.z, to[3] = bytes.w;
}

template <class Element, int d, int parts>
__device__ __forceinline__ void clear(Registers<Element, d, parts>& registers) {
#pragma unroll
  for (int n = 0; n < parts; ++n) {
#pragma unroll
    for (Fragment<float, 4>& part : registers.O[n]) part.fill(0);
#pragma unroll
    for (int r = 0; r < 2; ++r) registers.m[n][r] = -INFINITY, registers.l[n][r] = 0;
  }
}

/// Q is at the head's group. Rows that do not exist become zeros.
template <class Element, int d, int parts>
__device__ __forceinline__ void load_Q(Registers<Element, d, parts>& registers, const Element* __restrict__ Q,
                                       const Rows& rows) {
  const int quad = threadIdx.x % 32 / 4, in_quad = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < parts; ++n) {
    const int row = 8 * n + quad;
    const Element* const at = Q + (rows.exists(row) ? rows.memory_row(row) * d : 0) + 8 * in_quad;
#pragma unroll
    for (int c = 0; c < d / 32; ++c) load_16(registers.Q[n][c], at + 32 * c, rows.exists(row));
  }
}

/// Loads this lane's elements of the 16 keys from first_key on. K and V are at the head's first key. Keys from `end` on
/// become zeros, and are not read.
template <class Element, int d, int parts>
__device__ __forceinline__ void load_K(Registers<Element, d, parts>& registers, const Element* __restrict__ K,
                                       int first_key, int end) {
  const int quad = threadIdx.x % 32 / 4, in_quad = threadIdx.x % 4;
  // TODO(20.2) registers.K[r][c], as Registers describes it (about 5 lines).
  // BEGIN 20.2
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int key = first_key + quad + 8 * r;
#pragma unroll
    for (int c = 0; c < d / 32; ++c)
      load_16(registers.K[r][c], K + std::int64_t(key) * d + 32 * c + 8 * in_quad, key < end);
  }
  // END 20.2
}
template <class Element, int d, int parts>
__device__ __forceinline__ void load_V(Registers<Element, d, parts>& registers, const Element* __restrict__ V,
                                       int first_key, int end) {
  const int quad = threadIdx.x % 32 / 4, in_quad = threadIdx.x % 4;
  // TODO(20.3) registers.V[r][c], as Registers describes it (about 5 lines).
  // BEGIN 20.3
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int key = first_key + 2 * in_quad + r % 2 + 8 * (r / 2);
#pragma unroll
    for (int c = 0; c < d / 64; ++c)
      load_16(registers.V[r][c], V + std::int64_t(key) * d + 64 * c + 8 * quad, key < end);
  }
  // END 20.3
}

/// Sᵀ = K Qᵀ: (16, d), (8·parts, d) -> (16, 8·parts), unscaled. Elements 0 and 1 of a part are of key quad, elements 2
/// and 3 of key quad + 8; elements 0 and 2 are of column 2 in_quad, elements 1 and 3 of the next.
template <class Element, int d, int parts>
__device__ __forceinline__ void multiply_KQ(Fragment<float, 4> (&S)[parts], Registers<Element, d, parts>& registers) {
#pragma unroll
  for (Fragment<float, 4>& part : S) part.fill(0);
#pragma unroll
  for (int c = 0; c < d / 32; ++c) {
    // TODO(20.4) Each half of the 8 elements of a row is one step of 16 elements of d: 4 of each lane of the quad. Form
    // the operand A of the step, and multiply it by Qᵀ (about 8 lines).
    // BEGIN 20.4
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Fragment<Element, 4> A;
      A[0] = registers.K[0][c][2 * half], A[2] = registers.K[0][c][2 * half + 1];
      A[1] = registers.K[1][c][2 * half], A[3] = registers.K[1][c][2 * half + 1];
#pragma unroll
      for (int n = 0; n < parts; ++n)
        mma_m16n8k16(S[n], A, registers.Q[n][c][2 * half], registers.Q[n][c][2 * half + 1]);
    }
    // END 20.4
  }
}

/// Scales S, in units of log2, and makes the scores of masked pairs -inf.
template <int parts>
__device__ __forceinline__ void scale_and_mask(Fragment<float, 4> (&S)[parts], float scale, const Rows& rows,
                                               int first_key, int end) {
  const int quad = threadIdx.x % 32 / 4, in_quad = threadIdx.x % 4;
  const bool masked = first_key + unit > end || (rows.causal && first_key + unit > rows.visible_keys(0));
#pragma unroll
  for (int n = 0; n < parts; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      S[n][e] *= scale;
      const int key = first_key + quad + e / 2 * 8, row = 8 * n + 2 * in_quad + e % 2;
      if (masked && key >= min(rows.visible_keys(row), end)) S[n][e] = -INFINITY;
    }
}

/// m becomes the maximum of each column, S becomes P = exp2(S - m), and O and l are rescaled.
template <class Element, int d, int parts>
__device__ __forceinline__ void exponentiate(Registers<Element, d, parts>& registers, Fragment<float, 4> (&S)[parts]) {
#pragma unroll
  for (int n = 0; n < parts; ++n) {
    float rescale[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float& m = registers.m[n][r];
      // TODO(20.5) The keys of a column are in the 8 lanes with the same in_quad. The new m, equal in these lanes;
      // rescale[r], the factor of O and l; P instead of S; this lane's share of l (about 9 lines).
      // BEGIN 20.5
      float largest = fmaxf(S[n][r], S[n][2 + r]);
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, lanes));
      const float m_new = fmaxf(m, largest), m_safe = m_new == -INFINITY ? 0 : m_new;
      rescale[r] = exp2_ftz(m - m_safe), m = m_new;
      S[n][r] = exp2_ftz(S[n][r] - m_safe), S[n][2 + r] = exp2_ftz(S[n][2 + r] - m_safe);
      registers.l[n][r] = registers.l[n][r] * rescale[r] + S[n][r] + S[n][2 + r];
      // END 20.5
    }
    if (__any_sync(all_lanes, rescale[0] != 1 || rescale[1] != 1))
#pragma unroll
      for (Fragment<float, 4>& part : registers.O[n])
#pragma unroll
        for (int e = 0; e < 4; ++e) part[e] *= rescale[e % 2];
  }
}

/// Oᵀ += Vᵀ Pᵀ: (d, 16), (16, 8·parts) -> (d, 8·parts).
template <class Element, int d, int parts>
__device__ __forceinline__ void accumulate_VP(Registers<Element, d, parts>& registers,
                                              const Fragment<float, 4> (&P)[parts]) {
  std::uint32_t B[parts][2];
#pragma unroll
  for (int n = 0; n < parts; ++n) {
    // TODO(20.6) An accumulator has two adjacent columns in a lane, an operand B two adjacent rows. B[n] is P rounded
    // to Element, as an operand: movmatrix_trans transposes a part (8, 8) (about 2 lines).
    // BEGIN 20.6
    B[n][0] = movmatrix_trans(cvt_rn_x2<Element>(P[n][0], P[n][1]));
    B[n][1] = movmatrix_trans(cvt_rn_x2<Element>(P[n][2], P[n][3]));
    // END 20.6
  }
#pragma unroll
  for (int c = 0; c < d / 64; ++c)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // TODO(20.7) Register i of V[r][c] has two adjacent elements of one key. Form the operand A of Vᵀ, whose rows
      // quad and quad + 8 are the first and the second of them, and multiply it by Pᵀ (about 8 lines).
      // BEGIN 20.7
      const auto first = [](std::uint32_t a, std::uint32_t b) { return (a & 0xffff) | b << 16; };
      const auto second = [](std::uint32_t a, std::uint32_t b) { return a >> 16 | (b & 0xffff0000); };
      const std::uint32_t v[4] = {registers.V[0][c][i], registers.V[1][c][i], registers.V[2][c][i],
                                  registers.V[3][c][i]};
      Fragment<Element, 4> A;
      A[0] = first(v[0], v[1]), A[1] = second(v[0], v[1]), A[2] = first(v[2], v[3]), A[3] = second(v[2], v[3]);
#pragma unroll
      for (int n = 0; n < parts; ++n) mma_m16n8k16(registers.O[n][4 * c + i], A, B[n][0], B[n][1]);
      // END 20.7
    }
}

}  // namespace
}  // namespace ch20
