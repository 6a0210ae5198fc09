// Chapter 3, tiled WMMA, given: the shared memory of a thread block, the registers of a thread, and helpers that move
// four or eight adjacent elements at once.
#pragma once

#include "common/cuda/kernel.hpp"

namespace ch03 {

using Element = half;  // of Q, K, V, P and O
using workbook::cuda::note_value;

constexpr int lanes = 32;                    // per warp
constexpr int chunk = 16 / sizeof(Element);  // elements per 16-byte vector
template <int warps>
constexpr int threads = lanes* warps;          // per thread block
constexpr float log2_e = 1.4426950408889634f;  // exp(x) = exp2(x · log2(e))
constexpr float ln_2 = 0.6931471805599453f;    // log(x) = log2(x) · ln(2)

// Shared memory has 32 banks of 4 bytes. Loading a fragment of halves accesses 16 bytes in each of eight consecutive
// rows at a time. This uses every bank once if the rows start in eight disjoint groups of four banks. Rows of d = 64
// halves, 128 bytes, would all start in bank 0; padded by 16 bytes, each starts four banks after the previous one. The
// same padding serves lanes that read 16 bytes each from consecutive rows of floats.
constexpr int pad_half = 16 / sizeof(Element), pad_float = 16 / sizeof(float);
// Storing a fragment of floats accesses eight floats in each of four rows at a time. Padded by 32 bytes, these rows
// start in four disjoint groups of eight banks.
constexpr int pad_accumulator = 32 / sizeof(float);

/// The shared memory of a thread block. A `_part` is the partial result of one warp, from its keys of the tile.
template <int d, int Br, int Bc, int warps>
struct Shared {
  Element Q[Br][d + pad_half], K[Bc][d + pad_half], V[Bc][d + pad_half];
  float S[Br][Bc + pad_float];
  Element P[Br][Bc + pad_half];
  float O_part[warps][Br][d + pad_accumulator], m_part[warps][Br], l_part[warps][Br];
  float rescale[Br], l[Br];
  SHARED_LAYOUT(Shared, (Q, d), (K, d), (V, d), (S, Bc), (P, Bc), (O_part, d), m_part, l_part, rescale, l);
};

/// A thread block may use at most 227 KiB on an H100.
template <int d, int Br, int Bc, int warps>
constexpr bool fits = sizeof(Shared<d, Br, Bc, warps>) <= 227 * 1024;

/// The running m and l of a lane's rows: lane, lane + 32, … of the tile. Every warp has all rows, and all warps compute
/// the same values.
template <int Br>
struct RowState {
  float m[Br / lanes], l[Br / lanes];
  std::int64_t first_row;  // index of the tile's first row in its head
};

/// One thread's elements of O (Br, d): four adjacent columns of every row_stride-th row, as fp32 in registers.
template <int d, int Br, int warps>
struct OutputShare {
  static constexpr int threads_per_row = d / 4, row_stride = threads<warps> / threads_per_row, count = Br / row_stride;
  static __device__ int row(int i) { return threadIdx.x / threads_per_row + i * row_stride; }
  static __device__ int column() { return threadIdx.x % threads_per_row * 4; }
  float4 values[count];
};

/// Records the current m, l and column 0 of O of all rows for the page of `./workbook trace --html`. Does nothing on a
/// GPU.
template <int d, int Br, int warps>
__device__ __forceinline__ void note_rows(const OutputShare<d, Br, warps>& O, const RowState<Br>& state) {
  for (int i = 0; i < Br / lanes && threadIdx.x < lanes; ++i) {
    const std::int64_t row = state.first_row + threadIdx.x + lanes * i;
    note_value("m", row, state.m[i]), note_value("l", row, state.l[i]);
  }
  for (int i = 0; i < O.count && O.column() == 0; ++i) note_value("O[0]", state.first_row + O.row(i), O.values[i].x);
}

/// `first` and the next three floats as one float4, read or written by one instruction. The address of `first` is a
/// multiple of 16 bytes.
__device__ __forceinline__ float4& float4_at(float& first) {
  return reinterpret_cast<float4&>(first);
}

/// a·x + y, elementwise.
__device__ __forceinline__ float4 multiply_add(float a, float4 x, float4 y) {
  return {a * x.x + y.x, a * x.y + y.y, a * x.z + y.z, a * x.w + y.w};
}

/// Rounds eight floats to fp16 and stores them with one instruction, as 16-byte vector number `index` of `to`:
/// to[8·index] to to[8·index + 7]. `to` is aligned to 16 bytes.
__device__ __forceinline__ void store_rounded(const float* values, Element* to, int index) {
  uint4 rounded;
  auto* pairs = reinterpret_cast<half2*>(&rounded);
  for (int i = 0; i < chunk / 2; ++i) pairs[i] = __floats2half2_rn(values[2 * i], values[2 * i + 1]);
  reinterpret_cast<uint4*>(to)[index] = rounded;
}

}  // namespace ch03
