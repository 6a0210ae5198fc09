// Chapter 20: merging the results of a thread block's warps in shared memory.
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
  SHARED_LAYOUT(Shared, O, m, l);
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
  // TODO(20.8) The row's O, relative to the largest m of the warps, divided by l; and m + log2 l. A warp may have had
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

}  // namespace
}  // namespace ch20
