// Chapter 12, FP8: the layout of shared memory and of a consumer's registers, and the phases of the kernel that
// multiplies. Code outside the exercises is chapter 11's, or differs only by the scales.
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
/// The exponent that is added to P: the kernel computes P·2^8, at most 256, and l·2^8.
constexpr float offset = 8;

/// A kernel's sizes. exp2_by_fma: the FMA units compute one in exp2_by_fma exponentials; 0: none.
template <int d_, int consumers_, int exp2_by_fma_ = 0>
struct Kernel {
  static constexpr int d = d_, Bc = block_rows, consumers = consumers_, Br = 64 * consumers;
  static constexpr int exp2_by_fma = exp2_by_fma_;
  static constexpr int threads = 128 * (1 + consumers), stages = 2;
  static constexpr int producer_registers = consumers == 3 ? 32 : 24, consumer_registers = consumers == 3 ? 160 : 240;

  /// Shared memory of a thread block. O cannot reuse Q's buffer: its elements have 16 bits, Q's 8.
  struct alignas(pattern_bytes) Shared {
    Tile<64, d> Q[consumers];
    Tile<Bc, d> K[stages];
    Tile<d, Bc> V[stages];  // transposed, keys in the order of key_at
    OutputTile<d> O[consumers];
    Mbarrier Q_full, K_full[stages], K_empty[stages], V_full[stages], V_empty[stages];
    SHARED_LAYOUT(Shared, Q, K, V, O, Q_full, K_full, K_empty, V_full, V_empty);
  };

  // A thread's registers: S (64, Bc); P as the A operand of the P V matmul; O (64, d). See coordinates_in_D.
  using Scores = Fragment<float, Bc / 2>;
  using Probabilities = Fragment<E4m3, 4>[Bc / 32];
  using Output = Fragment<float, d / 2>;
};

/// The kernel's arguments. Query i sees all keys or, if causal, the keys up to i + (Nk - Nq).
struct Call {
  float* lse;                                   // (heads, Nq)
  const float *Q_scales, *K_scales, *V_scales;  // (heads, query_blocks), (heads, key_blocks) twice
  int Nq, Nk, heads, q_tiles, query_blocks, key_blocks;
  float scale;  // includes log2(e)
  bool causal;
};

/// The work of a thread block: a Q tile of a head, and the number of its K/V tiles. K/V tiles are processed from the
/// last to the first, so that partial tiles come first. Block indices iterate over one group of heads at a time, whose
/// K and V stay in the L2 cache. Within a group, causal Q tiles are in decreasing order of length (longest processing
/// time first), so that short tiles fill the idle SMs at the end.
template <class T>
struct WorkTile {
  static constexpr int heads_per_group = 4;
  int head, first_query, kv_tiles;
  __device__ explicit WorkTile(const Call& call) {
    const int first_head = blockIdx.x / (heads_per_group * call.q_tiles) * heads_per_group;
    const int heads = min(heads_per_group, call.heads - first_head);
    const int index_in_group = blockIdx.x - first_head * call.q_tiles;
    head = first_head + index_in_group % heads;
    first_query = (call.q_tiles - 1 - index_in_group / heads) * T::Br;
    const int visible_keys = call.causal ? min(call.Nq, first_query + T::Br) + call.Nk - call.Nq : call.Nk;
    kv_tiles = max(1, (visible_keys + T::Bc - 1) / T::Bc);  // at least one: without keys it is fully masked
  }
};

/// A position in a ring of stages: the stage, and the parity of the phase for which a consumer waits there.
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
                                        const TensorMap& V, const WorkTile<T>& work) {
  mbarrier_arrive_expect_tx(smem.Q_full, sizeof smem.Q);
  for (int i = 0; i < T::consumers; ++i)
    cp_async_bulk_tensor_load(smem.Q[i], Q, smem.Q_full, 0, work.first_query + 64 * i, work.head);
  Position<T::stages> position;
  const auto load = [&](auto& tiles, const TensorMap& tensor, auto& full, auto& empty, int column, int row) {
    mbarrier_wait_parity(empty[position.stage], position.parity ^ 1);
    mbarrier_arrive_expect_tx(full[position.stage], sizeof tiles[0]);
    cp_async_bulk_tensor_load(tiles[position.stage], tensor, full[position.stage], column, row, work.head);
  };
  for (int j = work.kv_tiles - 1; j >= 0; --j) {
    load(smem.K, K, smem.K_full, smem.K_empty, 0, j * T::Bc);  // (Bc, d)
    load(smem.V, V, smem.V_full, smem.V_empty, j * T::Bc, 0);  // (d, Bc)
    position.advance();
  }
}

// A consumer's rows belong to one block of Q, and a K tile is one block of K. So the scales are one factor of its S,
// and cost nothing: online_softmax computes S·scale - m in any case. Its scale is load_Q_scale times load_K_scale.
//
// TODO(12.4) start_QK issues S = Q Kᵀ of the codes, (64, d), (Bc, d) -> (64, Bc): a fence; one wgmma for each 32
// columns, where the first one overwrites S; commit the group. load_Q_scale returns the call's scale times the scale of
// the block that contains this consumer's queries. If the consumer has no query below Nq, take the last block.
// load_K_scale returns the scale of K tile j (about 13 lines).
// BEGIN 12.4
template <class T>
__device__ __forceinline__ void start_QK(typename T::Scores& S, const Tile<64, T::d>& Q,
                                         const Tile<T::Bc, T::d>& K) {
  WORKBOOK_TODO(12.4);
}
__device__ inline float load_Q_scale(const Call& call, int head, int first_query) {
  WORKBOOK_TODO(12.4);
}
__device__ inline float load_K_scale(const Call& call, int head, int j) {
  WORKBOOK_TODO(12.4);
}
// END 12.4

/// Multiplies S by scale, and sets it to -inf for keys that a row does not see. The consumer's first row sees the first
/// `visible` keys of the tile, each later row one key more, and no row sees more than `keys`.
template <int n>
__device__ __forceinline__ void scale_and_mask(Fragment<float, n>& S, float scale, int keys, int visible) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const auto [row, column] = coordinates_in_D(threadIdx.x % 128, e);
    const int end = min(keys, visible + row);
#pragma unroll
    for (int j = 0; j < n / 4; ++j) S[4 * j + e] = 8 * j + column < end ? S[4 * j + e] * scale : -INFINITY;
  }
}

/// The maximum of S in row r = 0 or 1 of this lane: over even and over odd columns in two independent chains, then over
/// the quad.
template <int n>
__device__ __forceinline__ float row_max(const Fragment<float, n>& S, int r) {
  float even = S[2 * r], odd = S[2 * r + 1];
#pragma unroll
  for (int j = 1; j < n / 4; ++j) even = fmaxf(even, S[4 * j + 2 * r]), odd = fmaxf(odd, S[4 * j + 2 * r + 1]);
  float largest = fmaxf(even, odd);
  largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, 1));
  return fmaxf(largest, __shfl_xor_sync(all_lanes, largest, 2));
}

// An SM computes 16 exp2 per cycle, but 128 multiply-adds. So multiply-adds may compute some of the exponentials, as in
// FlashAttention-4 (Zadouri et al. 2026): x = n + f with an integer n and f from -1/2 to 1/2, and 2^x = 2^n · 2^f. The
// first factor is an exponent, the second a polynomial.
//
// 2^f = c0 + c1 f + c2 f² + c3 f³ + c4 f⁴ with a relative error of at most 2^-18, by minimax coefficients. P alone
// would need fewer, since it is rounded to 3 bits. But l sums the unrounded values, and the LSE is its logarithm.
constexpr float c0 = 0.99999926f, c1 = 0.69312181f, c2 = 0.24024745f, c3 = 0.055917869f, c4 = 0.0095701026f;

// TODO(12.9) 2^x for x up to 126, without exp2. Below -126 return 2^-126, and NaN for NaN. To round x to n: a float
// from 2^23 to 2^24 has no fractional bits, so the addition x + 1.5·2^23 rounds to an integer, and the lowest bits of
// the sum are n. As a float, 2^n has the exponent field n + 127, from bit 23 on (about 8 lines).
// BEGIN 12.9
__device__ __forceinline__ float exp2_by_fma(float x) {
  WORKBOOK_TODO(12.9);
}
// END 12.9

/// 2^x of exponential number `index` of a lane's row. The FMA units compute one in `by_fma`.
template <int by_fma>
__device__ __forceinline__ float exp2_mixed(float x, int index) {
  if constexpr (by_fma > 0) return index % by_fma == by_fma - 1 ? exp2_by_fma(x) : exp2_ftz(x);
  return exp2_ftz(x);
}

// e4m3 has 3 mantissa bits for 200 as for 2, so P·2^8 is no more precise than P where both are normal. The offset moves
// the range. P·2^8 is at most 256, is normal from 2^-6 on (P from 2^-14 on), and becomes 0 below 2^-10 (P below 2^-18).
// Without the offset P would lose bits below 2^-6.
//
// S -> P·2^8 = exp2(S·scale - m + 8) in both rows of a lane, scale > 0. It is free, since 8 is added to m once per row.
// l then is 2^8 times as large as well. exp2 of element number j of a lane's row is exp2_mixed<by_fma>(…, j).
template <int by_fma, int n>
__device__ __forceinline__ void online_softmax(Fragment<float, n>& S, float (&m)[2], float (&l)[2], float (&rescale)[2],
                                               float scale) {
  // TODO(12.5) Chapter 11's online_softmax with slack 0: m; rescale, the factor of O and l for the new m; P·2^8; l. m
  // is -inf until a row sees its first key, then the row's maximum, without the offset (about 16 lines).
  // BEGIN 12.5
  WORKBOOK_TODO(12.5);
  // END 12.5
}

// The tensor cores accumulate 8-bit operands with 13 bits below the leading one. A term below 2^-13 of the sum is lost,
// and larger terms are truncated toward zero. Over all keys O would be such a sum. So the tensor cores sum over the
// keys of one tile only, and these parts are accumulated into O in fp32, as in vLLM's version of FlashAttention-3.
//
// O is kept in units of V's scale, the scale of the tile that was added last. So a part is added as it is. When the
// next tile has another scale, O changes to its units. That is one factor for all of O, like rescale.
//
// Scales are powers of two, so the inverse is exact: the same exponent with the other sign. A division would be correct
// too, but would take a dozen instructions.
__device__ inline float inverse(float power_of_two) {
  return __uint_as_float((254u << 23) - __float_as_uint(power_of_two));  // biased exponents e and 254 - e
}

// TODO(12.6) start_PV issues part = P V of the codes, (64, Bc), (d, Bc)ᵀ -> (64, d): a fence; one wgmma for each 32
// keys, where the first one overwrites part; commit the group. add_part, called when the part is complete:
// O = O·rescale + part in fp32. change_units multiplies both factors of rescale by what converts O from units of
// V_scale to units of next_V_scale, and sets V_scale to next_V_scale (about 17 lines).
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
__device__ inline void change_units(float (&rescale)[2], float& V_scale, float next_V_scale) {
  WORKBOOK_TODO(12.6);
}
// END 12.6

/// Writes O·V_scale / l as fp16, and the LSE, (m + log2 l) ln 2, of rows first_query to first_query + 63 of a head. O
/// goes to device memory by TMA, which skips rows past Nq. Both l and O include the offset.
template <class T>
__device__ __forceinline__ void write_output(OutputTile<T::d>& smem_O, const TensorMap& tensor_O, const Call& call,
                                             const typename T::Output& O, const float (&m)[2], const float (&l)[2],
                                             float V_scale, int head, int first_query, int consumer) {
  const int thread = threadIdx.x % 128, in_quad = thread % 4, barrier = 1 + T::consumers + consumer;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = l[r];
    sum += __shfl_xor_sync(all_lanes, sum, 1);
    sum += __shfl_xor_sync(all_lanes, sum, 2);
    const int row = coordinates_in_D(thread, 2 * r).row, query = first_query + row;
    if (in_quad == 0 && query < call.Nq)
      call.lse[std::int64_t(head) * call.Nq + query] = (m[r] - offset + log2f(sum)) * ln_2;
    // If multiply-adds compute exponentials (12.9), l of a fully masked row is not 0: its terms are 2^-126.
    const float factor = m[r] == -INFINITY ? 0 : V_scale / sum;
#pragma unroll
    for (int c = 0; c < T::d / 8; ++c) {  // 8 columns are a chunk of 16 bytes
      half* chunk = &smem_O[c / 8][row][(c ^ row) % 8 * 8];
      reinterpret_cast<std::uint32_t*>(chunk)[in_quad] =
          cvt_rn_x2<half>(O[4 * c + 2 * r] * factor, O[4 * c + 2 * r + 1] * factor);
    }
  }
  fence_proxy_async();
  barrier_sync(barrier, 128);  // all rows of this consumer are in smem_O
  if (thread == 0) {
    cp_async_bulk_tensor_store(tensor_O, smem_O, 0, first_query, 0, head);
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group_read<0>();  // shared memory is freed when the block exits
  }
}

}  // namespace
}  // namespace ch12
