// Chapter 12, FP8: what a block keeps in shared memory, a consumer in registers, and the phases of the kernel that
// multiplies. What does not stand under an exercise is chapter 11's, or differs by the scales alone.
//
// Source: Shah et al. 2024 (FlashAttention-3), sections 3.1 to 3.3.
#pragma once

#include <cstdint>

#include "fp8.hpp"
#include "tiles.hpp"

namespace ch12 {
namespace {

using workbook::cuda::barrier_arrive, workbook::cuda::barrier_sync, workbook::cuda::cp_async_bulk_commit_group;
using workbook::cuda::cp_async_bulk_tensor_load, workbook::cuda::cp_async_bulk_tensor_store;
using workbook::cuda::cp_async_bulk_wait_group_read, workbook::cuda::cvt_rn_x2, workbook::cuda::exp2_ftz;
using workbook::cuda::fence_mbarrier_init, workbook::cuda::fence_proxy_async, workbook::cuda::Mbarrier;
using workbook::cuda::mbarrier_arrive, workbook::cuda::mbarrier_arrive_expect_tx, workbook::cuda::mbarrier_init;
using workbook::cuda::mbarrier_wait_parity, workbook::cuda::TensorMap, workbook::cuda::wgmma_commit_group;
using workbook::cuda::wgmma_fence, workbook::cuda::wgmma_mma_async, workbook::cuda::wgmma_wait_group;

constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;
constexpr unsigned all_lanes = 0xffffffff;
/// The kernel computes P·2^8, at most 256, and l·2^8.
constexpr float offset = 8;

/// A kernel's sizes. exp2_by_fma: in this many exponentials there is one that the FMA units compute; 0: none.
template <int d_, int consumers_, int exp2_by_fma_ = 0>
struct Kernel {
  static constexpr int d = d_, Bc = block_rows, consumers = consumers_, Br = 64 * consumers;
  static constexpr int exp2_by_fma = exp2_by_fma_;
  static constexpr int threads = 128 * (1 + consumers), stages = 2;
  static constexpr int producer_registers = consumers == 3 ? 32 : 24, consumer_registers = consumers == 3 ? 160 : 240;

  /// What a block keeps in shared memory. O has a place of its own: its elements have 16 bits, Q's 8.
  struct alignas(pattern_bytes) Shared {
    Tile<64, d> Q[consumers];
    Tile<Bc, d> K[stages];
    Tile<d, Bc> V[stages];  // transposed, keys in the order of key_at
    OutputTile<d> O[consumers];
    Mbarrier Q_full, K_full[stages], K_empty[stages], V_full[stages], V_empty[stages];
    SHARED_LAYOUT(Shared, Q, K, V, O, Q_full, K_full, K_empty, V_full, V_empty);
  };

  // What a thread holds of a consumer's matrices: S (64, Bc), P as A of the next product, O (64, d). See place_in_D.
  using Scores = Fragment<float, Bc / 2>;
  using Probabilities = Fragment<E4m3, 4>[Bc / 32];
  using Output = Fragment<float, d / 2>;
};

/// A call's numbers. Query i sees all keys or, if causal, those up to i + (Nk - Nq).
struct Call {
  float* lse;                                   // (heads, Nq)
  const float *Q_scales, *K_scales, *V_scales;  // (heads, query_blocks), (heads, key_blocks) twice
  int Nq, Nk, heads, q_tiles, query_blocks, key_blocks;
  float scale;  // holds log2(e)
  bool causal;
};

/// What a block has to do: a tile of queries of a head against so many tiles of keys, from the last one to the first,
/// so that those with a mask come first. Blocks start in the order of their numbers. Four heads at a time, whose K and
/// V fit the L2 cache; of all these, with the causal mask, the longest first, so that short ones fill the gaps at the
/// end.
template <class T>
struct Work {
  static constexpr int heads_at_once = 4;
  int head, first_query, tiles;
  __device__ explicit Work(const Call& call) {
    const int first_head = blockIdx.x / (heads_at_once * call.q_tiles) * heads_at_once;
    const int heads = min(heads_at_once, call.heads - first_head);
    const int number = blockIdx.x - first_head * call.q_tiles;
    head = first_head + number % heads;
    first_query = (call.q_tiles - 1 - number / heads) * T::Br;
    const int seen = call.causal ? min(call.Nq, first_query + T::Br) + call.Nk - call.Nq : call.Nk;
    tiles = max(1, (seen + T::Bc - 1) / T::Bc);  // if it sees no key, one tile, all of it masked
  }
};

/// Where a thread is in a ring of stages: at this stage, whose barriers are in a phase of this parity.
template <int stages>
struct Position {
  int stage = 0, parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

template <class T>
__device__ __forceinline__ void make_barriers(typename T::Shared& smem) {
  mbarrier_init(smem.Q_full, 1);
  for (int i = 0; i < T::stages; ++i) {
    mbarrier_init(smem.K_full[i], 1), mbarrier_init(smem.V_full[i], 1);  // the producer
    mbarrier_init(smem.K_empty[i], 4 * T::consumers);                    // the consumers' warps
    mbarrier_init(smem.V_empty[i], 4 * T::consumers);
  }
  fence_mbarrier_init();
}
template <class T>
__device__ __forceinline__ void produce(typename T::Shared& smem, const TensorMap& Q, const TensorMap& K,
                                        const TensorMap& V, const Work<T>& work) {
  mbarrier_arrive_expect_tx(smem.Q_full, sizeof smem.Q);
  for (int i = 0; i < T::consumers; ++i)
    cp_async_bulk_tensor_load(smem.Q[i], Q, smem.Q_full, 0, work.first_query + 64 * i, work.head);
  Position<T::stages> at;
  const auto load = [&](auto& tiles, const TensorMap& tensor, auto& full, auto& empty, int column, int row) {
    mbarrier_wait_parity(empty[at.stage], at.parity ^ 1);
    mbarrier_arrive_expect_tx(full[at.stage], sizeof tiles[0]);
    cp_async_bulk_tensor_load(tiles[at.stage], tensor, full[at.stage], column, row, work.head);
  };
  for (int j = work.tiles - 1; j >= 0; --j) {
    load(smem.K, K, smem.K_full, smem.K_empty, 0, j * T::Bc);  // (Bc, d)
    load(smem.V, V, smem.V_full, smem.V_empty, j * T::Bc, 0);  // (d, Bc)
    at.advance();
  }
}

// The scales of a tile are one number for all of S, and so cost nothing: S·scale - m, which online_softmax computes in
// any case, has the product of all three factors for its scale.
//
// TODO(12.4) Starts S = Q Kᵀ of the codes, (64, d), (Bc, d) -> (64, Bc): a fence; a product for each 32 columns, of
// which the first does not add to S; a group. And by what S is to be multiplied: the call's scale times that of the
// block of Q that holds this consumer's queries; and the scale of K's tile j. A consumer may have no query that exists:
// then take the last block (about 13 lines).
// BEGIN 12.4
template <class T>
__device__ __forceinline__ void start_QK(typename T::Scores& S, const Tile<64, T::d>& Q,
                                         const Tile<T::Bc, T::d>& K) {
  WORKBOOK_TODO(12.4);
}
__device__ inline float scale_of_queries(const Call& call, int head, int first_query) {
  WORKBOOK_TODO(12.4);
}
__device__ inline float scale_of_keys(const Call& call, int head, int j) {
  WORKBOOK_TODO(12.4);
}
// END 12.4

/// S·scale, and -inf for keys that a row does not see. The consumer's first row sees the first `visible` keys of the
/// tile, each later row one more if causal, and none sees more than `keys`.
template <int n>
__device__ __forceinline__ void scale_and_mask(Fragment<float, n>& S, float scale, int keys, int visible) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const auto [row, column] = place_in_D(threadIdx.x % 128, e);
    const int end = min(keys, visible + row);
#pragma unroll
    for (int j = 0; j < n / 4; ++j) S[4 * j + e] = 8 * j + column < end ? S[4 * j + e] * scale : -INFINITY;
  }
}

/// The largest of S in row r = 0 or 1 of this lane: over the even columns and over the odd, so that neither waits for
/// the other; then over the quad.
template <int n>
__device__ __forceinline__ float largest_of_row(const Fragment<float, n>& S, int r) {
  float even = S[2 * r], odd = S[2 * r + 1];
#pragma unroll
  for (int j = 1; j < n / 4; ++j) even = fmaxf(even, S[4 * j + 2 * r]), odd = fmaxf(odd, S[4 * j + 2 * r + 1]);
  float largest = fmaxf(even, odd);
  largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, 1));
  return fmaxf(largest, __shfl_xor_sync(all_lanes, largest, 2));
}

// A multiprocessor gives 16 exp2 a cycle, and 128 multiply-adds. So some of the exponentials may be computed by the
// latter, as FlashAttention-4 does (Zadouri et al. 2026): x = n + f with an integer n and f from -1/2 to
// 1/2, and 2^x = 2^n · 2^f, of which the first is an exponent and the second a polynomial.
//
// 2^f = c0 + c1 f + c2 f² + c3 f³ + c4 f⁴ to within 2^-18 of itself for f from -1/2 to 1/2: the best coefficients
// (minimax). For P itself half of them would do, as it is rounded to 3 bits. But l sums what is not rounded, and the
// LSE is its logarithm.
constexpr float c0 = 0.99999926f, c1 = 0.69312181f, c2 = 0.24024745f, c3 = 0.055917869f, c4 = 0.0095701026f;

// TODO(12.9) 2^x for x up to 126 without exp2; below -126 what it is there, and NaN for NaN. n comes from rounding: a
// float from 2^23 to 2^24 has no digits behind the point, so x + 1.5·2^23 is rounded to an integer, whose lowest bits
// are n. And 2^n as a float has n + 127 in its exponent, from bit 23 on (about 8 lines).
// BEGIN 12.9
__device__ __forceinline__ float exp2_by_fma(float x) {
  WORKBOOK_TODO(12.9);
}
// END 12.9

/// 2^x of a lane's exponential number `number`, of which one in `by_fma` goes to the FMA units.
template <int by_fma>
__device__ __forceinline__ float exp2_of(float x, int number) {
  if constexpr (by_fma > 0) return number % by_fma == by_fma - 1 ? exp2_by_fma(x) : exp2_ftz(x);
  return exp2_ftz(x);
}

// e4m3 is a floating-point format: a number has the same 3 bits of mantissa whether it is 200 or 2. So P·2^8 is no more
// precise than P where both are normal. The offset moves the range: P·2^8 is 256 at most, is normal from 2^-6 on, that
// is P from 2^-14 on, and becomes 0 below 2^-10, that is P below 2^-18. Without it P would lose its digits from 2^-6
// on.
//
// S -> P·2^8 = exp2(S·scale - m + 8) in both rows of a lane, scale > 0. It costs nothing, since 8 is added to m, not to
// each element. l is then 2^8 times as large as well. exp2 of a lane's element number j is exp2_of<by_fma>(…, j).
template <int by_fma, int n>
__device__ __forceinline__ void online_softmax(Fragment<float, n>& S, float (&m)[2], float (&l)[2], float (&rescale)[2],
                                               float scale) {
  // TODO(12.5) As chapter 11's, with slack 0: m; rescale, what brings O and l to the new m; P·2^8; l. m is -inf until a
  // row sees its first key, and is the row's maximum, without the offset (about 16 lines).
  // BEGIN 12.5
  WORKBOOK_TODO(12.5);
  // END 12.5
}

// A sum of the tensor cores over 8-bit products has 13 bits behind the leading one. What is added to a sum 2^13 times
// as large is lost, and so is a part of what is added to any: always towards zero. O would be such a sum, over all
// keys. So the tensor cores sum over the keys of a tile alone, and O, in fp32, is the sum of these parts, as in vLLM's
// version of FlashAttention-3.
//
// O is kept in units of V's scale, that of the tile that was added last: a part is added as it is, and nothing is
// multiplied by a scale for each key. When the next tile's scale is another, O has to be brought to it. That is a
// factor for all of O, as rescale is.
//
// Scales are powers of two, so the inverse of one is exact: the same exponent with the other sign. A division would be
// right too, and take a dozen instructions.
__device__ inline float inverse(float power_of_two) {
  return __uint_as_float((254u << 23) - __float_as_uint(power_of_two));  // biased exponents e and 254 - e
}

// TODO(12.6) Starts part = P V of the codes, (64, Bc), (d, Bc)ᵀ -> (64, d): a fence, a product for each 32 keys, of
// which the first is added to nothing, a group. Then, when it is complete, O = O·rescale + part, in fp32. And the
// change of units: both factors of rescale get what brings O from V_scale to V_next, and V_scale becomes V_next (about
// 17 lines).
// BEGIN 12.6
template <class T>
__device__ __forceinline__ void start_PV(typename T::Output& part, const typename T::Probabilities& P,
                                         const Tile<T::d, T::Bc>& V) {
  WORKBOOK_TODO(12.6);
}
template <int n>
__device__ __forceinline__ void add_part(Fragment<float, n>& O, const float (&rescale)[2],
                                         const Fragment<float, n>& part) {
  WORKBOOK_TODO(12.6);
}
__device__ inline void change_units(float (&rescale)[2], float& V_scale, float V_next) {
  WORKBOOK_TODO(12.6);
}
// END 12.6

/// O·V_scale / l as fp16 and the LSE, (m + log2 l) ln 2, to device memory: rows first_query to first_query + 63 of a
/// head, by TMA. l holds the offset, and so does O. number: the consumer's.
template <class T>
__device__ __forceinline__ void write_output(OutputTile<T::d>& smem_O, const TensorMap& tensor_O, const Call& call,
                                             const typename T::Output& O, const float (&m)[2], const float (&l)[2],
                                             float V_scale, int head, int first_query, int number) {
  const int thread = threadIdx.x % 128, in_quad = thread % 4, barrier = 1 + T::consumers + number;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = l[r];
    sum += __shfl_xor_sync(all_lanes, sum, 1);
    sum += __shfl_xor_sync(all_lanes, sum, 2);
    const int row = place_in_D(thread, 2 * r).row, query = first_query + row;
    if (in_quad == 0 && query < call.Nq)
      call.lse[std::int64_t(head) * call.Nq + query] = (m[r] - offset + log2f(sum)) * ln_2;
    const float factor = sum == 0 ? 0 : V_scale / sum;
#pragma unroll
    for (int c = 0; c < T::d / 8; ++c) {  // 8 columns are a chunk of 16 bytes
      half* chunk = &smem_O[c / 8][row][(c ^ row) % 8 * 8];
      reinterpret_cast<std::uint32_t*>(chunk)[in_quad] =
          cvt_rn_x2<half>(O[4 * c + 2 * r] * factor, O[4 * c + 2 * r + 1] * factor);
    }
  }
  fence_proxy_async();
  barrier_sync(barrier, 128);  // all of the consumer's rows are there
  if (thread == 0) {
    cp_async_bulk_tensor_store(tensor_O, smem_O, 0, first_query, 0, head);
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group_read<0>();  // a block's shared memory ends with its last thread
  }
}

}  // namespace
}  // namespace ch12
