// Chapter 20, split-KV decoding: the kernel as a sequence of the phases of phases.hpp and merge.hpp, and its launch.
// split_kv_bf16.cu compiles this file once more, for bf16.
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
__global__ void __launch_bounds__(32 * warps, 8 / warps * blocks_per_sm(d))
    attention(const Element* __restrict__ Q,  // (B·H, Nq, d)
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

    const std::int64_t of_group = kv_head * rows.count;  // rows of O before the head's group
    write_result(smem, registers, partial, cut, head, rows, O + of_group * d, lse + of_group);
  }
}

template <int d, int Br, int warps>
void start(const ForwardCall<Element>& call, const Partial& partial, const Cut& cut) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const Sizes sizes{int(H / Hkv), int(Nq), int(Nk), int(cut.heads / (B * Hkv)), call.causal()};
  workbook::cuda::launch(attention<d, Br, warps>, workbook::cuda::grid_of(cut.blocks, "the thread blocks of the cut"),
                         dim3(32 * warps), sizeof(Shared<d, warps>), call.Q, call.K, call.V, call.O, call.lse, partial,
                         cut, sizes, call.scale * log2_e);
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
