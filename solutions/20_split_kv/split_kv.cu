// Chapter 20, split-KV decoding: the kernel as a sequence of the phases of phases.hpp and merge.hpp, the kernel that
// merges the thread blocks, and the launches. split_kv_bf16.cu compiles this file once more, for bf16.
//
// Source: Dao et al. 2023 (Flash-Decoding); Milakov and Gimelshein 2018, section 3 (merging).
// Test it: ./workbook test 20
#include "split_kv.hpp"

#include <cstdint>

#include "common/cuda/convert.hpp"
#include "common/cuda/dispatch.hpp"
#include "merge.hpp"

namespace ch20 {
namespace {

using Element = WORKBOOK_ELEMENT;  // half; split_kv_bf16.cu compiles the kernels again, with __nv_bfloat16

/// A head of K and V has group·Nq rows of Q. Blocks of Br rows are heads of their own in the Cut: the head of K and V
/// is head / row_blocks.
struct Sizes {
  int group, Nq, Nk, row_blocks;
  bool causal;
};
__device__ __forceinline__ Rows rows_of(const Sizes& sizes, std::int64_t head, int Br) {
  return {int(head % sizes.row_blocks) * Br, sizes.group * sizes.Nq, sizes.group, sizes.Nq, sizes.Nk, sizes.causal};
}

/// Block b computes its range of units, head by head. Warp w takes every `warps`-th unit of 16 keys. While a warp
/// computes, its next K and V are on their way into registers.
template <int d, int Br, int warps>
__global__ void __launch_bounds__(32 * warps, 8 / warps) attention(const Element* __restrict__ Q,  // (B·H, Nq, d)
                                                                   const Element* __restrict__ K,  // (B·Hkv, Nk, d)
                                                                   const Element* __restrict__ V,  // (B·Hkv, Nk, d)
                                                                   Element* __restrict__ O,        // (B·H, Nq, d)
                                                                   float* __restrict__ lse,        // (B·H, Nq)
                                                                   Partial partial, Cut cut, Sizes sizes, float scale) {
  constexpr int parts = Br / 8;
  auto& smem = workbook::cuda::dynamic_shared<Shared<d, warps>>();
  const int warp = threadIdx.x / 32;
  const std::int64_t end_of_block = cut.begin(blockIdx.x + 1);
  for (std::int64_t begin = cut.begin(blockIdx.x), end; begin < end_of_block; begin = end) {
    const std::int64_t head = begin / cut.units, first_unit = head * cut.units, kv_head = head / sizes.row_blocks;
    end = min(end_of_block, first_unit + cut.units);  // of this block's units of the head
    const Rows rows = rows_of(sizes, head, Br);
    const int first_key = int(begin - first_unit) * unit,
              end_key = min(int(end - first_unit) * unit, rows.end_of_keys(Br));
    const Element *const K_head = K + kv_head * sizes.Nk * d, *const V_head = V + kv_head * sizes.Nk * d;

    Registers<Element, d, parts> registers;
    clear(registers);
    load_Q(registers, Q + kv_head * rows.count * d, rows);
    int key = first_key + warp * unit;
    load_K(registers, K_head, key, end_key);
    load_V(registers, V_head, key, end_key);
    for (; key < end_key; key += warps * unit) {
      Fragment<float, 4> S[parts];
      multiply_KQ(S, registers);                               // Sᵀ = K Qᵀ, (16, Br) per warp
      load_K(registers, K_head, key + warps * unit, end_key);  // the next 16 keys
      scale_and_mask(S, scale, rows, key, end_key);
      exponentiate(registers, S);   // P = exp2(S - m), O = O·rescale
      accumulate_VP(registers, S);  // Oᵀ += Vᵀ Pᵀ, (d, Br)
      load_V(registers, V_head, key + warps * unit, end_key);
    }

    const bool shared = cut.first_block(head) != cut.last_block(head);
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
        if (shared) {
          *reinterpret_cast<float4*>(&partial.O[(slot + row) * d + column]) = merged.O;
          if (column == 0) partial.lse[slot + row] = merged.lse;
        } else {
          const std::int64_t at = kv_head * rows.count + rows.memory_row(row);
          store_rounded(&O[at * d + column], merged.O);
          if (column == 0) lse[at] = merged.lse * ln_2;
        }
      }
    }
  }
}

constexpr int rows_per_merge = 4;

/// One warp per row: merges the partial results of the blocks that share the row's head.
template <int d, int Br>
__global__ void __launch_bounds__(32 * rows_per_merge)
    merge(Partial partial, Element* __restrict__ O, float* __restrict__ lse, Cut cut, Sizes sizes) {
  const std::int64_t index = std::int64_t(blockIdx.x) * rows_per_merge + threadIdx.x / 32;
  const std::int64_t head = index / Br;
  const int row = int(index % Br), column = threadIdx.x % 32 * (d / 32);
  if (head >= cut.heads) return;
  const Rows rows = rows_of(sizes, head, Br);
  const std::int64_t first = cut.first_block(head), last = cut.last_block(head);
  if (first == last || !rows.exists(row)) return;  // a block that has the whole head has written O
  const int lane = threadIdx.x % 32;
  // Lane b has the LSE of block first + b, of block first + b + 32, and so on.
  float m = -INFINITY, l = 0, sum[d / 32] = {};
  for (std::int64_t b = first + lane; b <= last; b += 32) m = fmaxf(m, partial.lse[cut.partial(b, head) * Br + row]);
  m = maximum_of_warp(m);
  const float m_safe = m == -INFINITY ? 0 : m;
  for (std::int64_t b = first; b <= last; b += 32) {
    const std::int64_t at = b + lane <= last ? cut.partial(b + lane, head) * Br + row : 0;
    const int blocks = int(min(last - b + 1, std::int64_t(32)));
    // TODO(20.9) `at` is the row of the partial result of this lane's block, b + lane, if that is not past the last.
    // Its weight is exp2(LSE - m_safe). Add the weights of these blocks to l, and the weighted partial O of each, which
    // are `blocks`, to sum: this lane's columns, from `column` on (about 7 lines).
    // BEGIN 20.9
    const float weight = b + lane <= last ? exp2_ftz(partial.lse[at] - m_safe) : 0;
    for (int i = 0; i < blocks; ++i) {
      const float w = __shfl_sync(all_lanes, weight, i);
      const float* const O_of_block = partial.O + __shfl_sync(all_lanes, at, i) * d + column;
      l += w;
#pragma unroll
      for (int e = 0; e < d / 32; ++e) sum[e] += w * O_of_block[e];
    }
    // END 20.9
  }
  const std::int64_t at = head / sizes.row_blocks * rows.count + rows.memory_row(row);
  const float inverse = l == 0 ? 0 : 1 / l;
#pragma unroll
  for (int e = 0; e < d / 32; e += 2)
    *reinterpret_cast<std::uint32_t*>(&O[at * d + column + e]) =
        cvt_rn_x2<Element>(sum[e] * inverse, sum[e + 1] * inverse);
  if (lane == 0) lse[at] = (m + log2f(l)) * ln_2;
}

template <int d, int Br, int warps>
void start(const ForwardCall<Element>& call, const Partial& partial, const Cut& cut) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const Sizes sizes{int(H / Hkv), int(Nq), int(Nk), int(cut.heads / (B * Hkv)), call.causal()};
  workbook::cuda::launch(attention<d, Br, warps>, workbook::cuda::grid_of(cut.blocks, "the thread blocks of the cut"),
                         dim3(32 * warps), sizeof(Shared<d, warps>), call.Q, call.K, call.V, call.O, call.lse, partial,
                         cut, sizes, call.scale * log2_e);
  if (cut.heads % cut.blocks == 0) return;  // every block has whole heads
  const std::int64_t merge_blocks = (cut.heads * Br + rows_per_merge - 1) / rows_per_merge;
  workbook::cuda::launch(merge<d, Br>, workbook::cuda::grid_of(merge_blocks, "B·Hkv·⌈G·Nq/Br⌉·Br/4"),
                         dim3(32 * rows_per_merge), 0, partial, call.O, call.lse, cut, sizes);
}

}  // namespace

// E is the element type that this file is compiled for.
template <class E>
void split_kv(const ForwardCall<E>& call, const Partial& partial, const Tiles& tiles, int splits, int multiprocessors) {
  const Cut cut = cut_of(call.shape, tiles, splits, multiprocessors);
  const bool few = call.shape.H / call.shape.Hkv * call.shape.Nq <= 8;  // rows of Q: half a tile has room for them
  workbook::cuda::with_sizes<built>(call.shape.d, tiles, [&](auto d, auto t) {
    few ? start<d, t.Br / 2, t.warps>(call, partial, cut) : start<d, t.Br, t.warps>(call, partial, cut);
  });
}
template <class E>
std::size_t shared_bytes(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles, [](auto d, auto t) { return sizeof(Shared<d, t.warps>); });
}
template void split_kv(const ForwardCall<Element>&, const Partial&, const Tiles&, int, int);
template std::size_t shared_bytes<Element>(int, const Tiles&);

}  // namespace ch20
