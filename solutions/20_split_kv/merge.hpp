// Chapter 20: merging the results of a thread block's warps in shared memory, and those of the thread blocks that share
// a head; and writing a block's result.
//
// Source: Milakov and Gimelshein 2018, section 3 (merging).
#pragma once

#include "phases.hpp"

namespace ch20 {
namespace {

/// The shared memory of a thread block: O, m and l of each warp for 8 columns. A row has 16 bytes more than O, so that
/// lanes of different columns access different banks.
template <int d, int warps>
struct Shared {
  float O[warps][8][d + 4], m[warps][8], l[warps][8];
  bool is_last;
  SHARED_LAYOUT(Shared, O, m, l, is_last);
};

/// Writes O, m and l of part n to shared memory.
template <class Element, int d, int parts, int warps>
__device__ __forceinline__ void store_warp(Shared<d, warps>& smem, const Registers<Element, d, parts>& registers,
                                           int n) {
  const int warp = threadIdx.x / 32, quad = threadIdx.x % 32 / 4, in_quad = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int column = 2 * in_quad + r;
    float l = registers.l[n][r];
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) l += __shfl_xor_sync(all_lanes, l, lanes);
    if (quad == 0) smem.m[warp][column] = registers.m[n][r], smem.l[warp][column] = l;
#pragma unroll
    for (int c = 0; c < d / 64; ++c)
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const Fragment<float, 4>&part = registers.O[n][4 * c + i], &next = registers.O[n][4 * c + i + 1];
        *reinterpret_cast<float4*>(&smem.O[warp][column][64 * c + 8 * quad + 2 * i]) =
            make_float4(part[r], part[2 + r], next[r], next[2 + r]);
      }
  }
}

/// O and the LSE of one row of Q, 0 to 7, merged from all warps: the four elements of O from `column` on.
struct Merged {
  float4 O;
  float lse;  ///< in units of log2
};
template <int d, int warps>
__device__ __forceinline__ Merged merge_warps(const Shared<d, warps>& smem, int row, int column) {
  float4 O = make_float4(0, 0, 0, 0);
  float m = -INFINITY, l = 0;
  // TODO(20.8) m and l of the row, and its O, relative to the largest m of the warps, divided by l. A warp may have had
  // no keys (about 10 lines).
  // BEGIN 20.8
#pragma unroll
  for (int w = 0; w < warps; ++w) m = fmaxf(m, smem.m[w][row]);
  const float m_safe = m == -INFINITY ? 0 : m;
#pragma unroll
  for (int w = 0; w < warps; ++w) {
    const float factor = exp2_ftz(smem.m[w][row] - m_safe);
    const float4 of_warp = *reinterpret_cast<const float4*>(&smem.O[w][row][column]);
    l += factor * smem.l[w][row];
    O.x += factor * of_warp.x, O.y += factor * of_warp.y, O.z += factor * of_warp.z, O.w += factor * of_warp.w;
  }
  const float inverse = l == 0 ? 0 : 1 / l;
  O.x *= inverse, O.y *= inverse, O.z *= inverse, O.w *= inverse;
  // END 20.8
  return {O, m + log2f(l)};
}

/// Called by all threads of a block when they have written its partial result of a head that `blocks` blocks share.
/// Returns to all threads whether the block is the last of these; then the results of all of them may be read.
/// *finished, the number of blocks that have called it, is 0 again after the last.
template <int d, int warps>
__device__ __forceinline__ bool is_last_block(Shared<d, warps>& smem, unsigned* finished, unsigned blocks) {
  // TODO(20.10) When all threads have written, thread 0 makes their results visible to the whole device, increments the
  // counter by atomicInc(finished, blocks - 1), and calls __threadfence() again. smem.is_last tells the others the
  // answer (about 8 lines).
  // BEGIN 20.10
  __syncthreads();  // all threads have written
  if (threadIdx.x == 0) {
    __threadfence();  // what they have written is visible before the counter
    smem.is_last = atomicInc(finished, blocks - 1) == blocks - 1;
    __threadfence();  // the results of the other blocks are read after the counter
  }
  __syncthreads();  // smem.is_last is visible
  return smem.is_last;
  // END 20.10
}

/// The maximum of a value over the lanes of a warp.
__device__ __forceinline__ float maximum_of_warp(float x) {
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) x = fmaxf(x, __shfl_xor_sync(all_lanes, x, lanes));
  return x;
}

/// Stores four columns of O, rounded, 8 bytes.
template <class Element>
__device__ __forceinline__ void store_rounded(Element* to, const float4& O) {
  *reinterpret_cast<uint2*>(to) = make_uint2(cvt_rn_x2<Element>(O.x, O.y), cvt_rn_x2<Element>(O.z, O.w));
}

/// One warp merges a row of the partial results of all blocks that share a head. O and lse are at the head's group. The
/// type of the cut is Cut, or chapter 21's.
template <class Element, int d, int Br, class AnyCut>
__device__ __forceinline__ void merge_row(const Partial& partial, const AnyCut& cut, std::int64_t head,
                                          const Rows& rows, int row, Element* O, float* lse) {
  const std::int64_t first = cut.first_block(head), last = cut.last_block(head);
  const int lane = threadIdx.x % 32, column = lane * (d / 32);
  float m = -INFINITY, l = 0, sum[d / 32] = {};  // of the blocks so far, relative to m
  for (std::int64_t b = first; b <= last; b += 32) {
    const std::int64_t at = cut.partial(min(b + lane, last), head) * Br + row;  // of this lane's block, b + lane
    const float lse_of_block = b + lane <= last ? partial.lse[at] : -INFINITY;
    const float m_new = fmaxf(m, maximum_of_warp(lse_of_block)), m_safe = m_new == -INFINITY ? 0 : m_new;
    const float rescale = exp2_ftz(m - m_safe);
    m = m_new, l *= rescale;
#pragma unroll
    for (int e = 0; e < d / 32; ++e) sum[e] *= rescale;
    const int blocks = int(min(last - b + 1, std::int64_t(32)));
    // TODO(20.9) Each lane computes the weight of its block, exp2(LSE - m_safe); `at` is the row of its partial result.
    // Add the weights of lanes 0 to blocks - 1 to l, and the weighted partial O of each to sum: this lane's
    // columns, from `column` on (about 8 lines).
    // BEGIN 20.9
    const float weight = exp2_ftz(lse_of_block - m_safe);
#pragma unroll 8  // loads in flight
    for (int i = 0; i < blocks; ++i) {
      const float w = __shfl_sync(all_lanes, weight, i);
      const float* const O_of_block = partial.O + __shfl_sync(all_lanes, at, i) * d + column;
      l += w;
#pragma unroll
      for (int e = 0; e < d / 32; ++e) sum[e] += w * O_of_block[e];
    }
    // END 20.9
  }
  const float inverse = l == 0 ? 0 : 1 / l;
#pragma unroll
  for (int e = 0; e < d / 32; e += 2)
    *reinterpret_cast<std::uint32_t*>(&O[rows.memory_row(row) * d + column + e]) =
        cvt_rn_x2<Element>(sum[e] * inverse, sum[e + 1] * inverse);
  if (lane == 0) lse[rows.memory_row(row)] = (m + log2f(l)) * ln_2;
}

/// A block merges all rows of the head, one per warp.
template <class Element, int d, int Br, int warps, class AnyCut>
__device__ __forceinline__ void merge_blocks(const Partial& partial, const AnyCut& cut, std::int64_t head,
                                             const Rows& rows, Element* O, float* lse) {
  for (int row = threadIdx.x / 32; row < Br && rows.exists(row); row += warps)
    merge_row<Element, d, Br>(partial, cut, head, rows, row, O, lse);
}

/// Merges the warps of a block, and writes O and the LSE of its units of a head. If other blocks share the head, it
/// writes a partial result, and the last of these blocks merges. O and lse are at the head's group.
template <class Element, int d, int parts, int warps, class AnyCut>
__device__ __forceinline__ void write_result(Shared<d, warps>& smem, const Registers<Element, d, parts>& registers,
                                             const Partial& partial, const AnyCut& cut, std::int64_t head,
                                             const Rows& rows, Element* O, float* lse) {
  constexpr int Br = 8 * parts;
  const auto blocks = unsigned(cut.last_block(head) - cut.first_block(head) + 1);  // that share the head
  const std::int64_t slot = cut.partial(blockIdx.x, head) * Br;
#pragma unroll
  for (int n = 0; n < parts; ++n) {
    __syncthreads();  // the results of the previous part, or head, have been read
    store_warp<Element, d, parts, warps>(smem, registers, n);
    __syncthreads();  // the results of all warps are visible
    for (int i = threadIdx.x; i < 8 * d / 4; i += 32 * warps) {
      const int row = 8 * n + i / (d / 4), column = i % (d / 4) * 4;
      if (!rows.exists(row)) continue;
      const Merged merged = merge_warps(smem, row % 8, column);
      if (blocks > 1) {
        *reinterpret_cast<float4*>(&partial.O[(slot + row) * d + column]) = merged.O;
        if (column == 0) partial.lse[slot + row] = merged.lse;
      } else {
        store_rounded(&O[rows.memory_row(row) * d + column], merged.O);
        if (column == 0) lse[rows.memory_row(row)] = merged.lse * ln_2;
      }
    }
  }
  if (blocks > 1 && is_last_block(smem, partial.finished + head, blocks))
    merge_blocks<Element, d, Br, warps>(partial, cut, head, rows, O, lse);
}

}  // namespace
}  // namespace ch20
