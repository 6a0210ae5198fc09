// Chapter 21, the paged KV cache: the kernel as a sequence of chapter 20's phases and of requests.hpp and pages.hpp,
// and its launch. paged_cache_bf16.cu compiles this file once more, for bf16.
//
// Source: Kwon et al. 2023 (PagedAttention), section 4.1; Dao et al. 2023 (Flash-Decoding).
// Test it: ./workbook test 21
#include "paged_cache.hpp"

#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "20_split_kv/merge.hpp"
#include "common/cuda/convert.hpp"
#include "common/cuda/dispatch.hpp"
#include "pages.hpp"
#include "requests.hpp"

namespace ch21 {
namespace {

using namespace ch20;              // the phases of chapter 20
using Element = WORKBOOK_ELEMENT;  // half; paged_cache_bf16.cu compiles the kernels again, with __nv_bfloat16

/// A head of K and V has group·Nq rows of Q. Blocks of Br rows are heads of their own in the cut, as in chapter 20.
struct Sizes {
  int group, Nq, Hkv, row_blocks;
  bool causal;
};

/// A block's part of one head: its rows of Q, and its keys, from first_key to end_key - 1.
struct Part {
  Rows rows;
  int first_key, end_key;
};
/// The part of a head that has the units from `begin` to `end` - 1. The head has all of them.
__device__ __forceinline__ Part part_of(const RequestCut& cut, const Cache& cache, const Sizes& sizes,
                                        std::int64_t head, std::int64_t begin, std::int64_t end, int Br) {
  Part part{{int(head % sizes.row_blocks) * Br, sizes.group * sizes.Nq, sizes.group, sizes.Nq, 0, sizes.causal}, 0, 0};
  // TODO(21.6) The number of keys in the cache, for part.rows.Nk; the first key; and the end of the keys: that of the
  // units, or where none of the Br rows attends to a key, whichever is first (about 4 lines).
  // BEGIN 21.6
  WORKBOOK_TODO(21.6);
  // END 21.6
  return part;
}

/// Block b computes its range of units, head by head, as in chapter 20. Warp w takes every `warps`-th unit of 16 keys.
/// The offsets of its keys are one unit ahead of K and V, which are one unit ahead of the scores. Stored is Element, or
/// std::uint8_t for codes, which have scales.
template <class Stored, int d, int Br, int warps>
__global__ void __launch_bounds__(32 * warps, 8 / warps * blocks_per_sm(d))
    attention(const Element* __restrict__ Q,     // (B·H, Nq, d)
              const Stored* __restrict__ K,      // the pages
              const Stored* __restrict__ V,      // the pages
              Element* __restrict__ O,           // (B·H, Nq, d)
              float* __restrict__ lse,           // (B·H, Nq)
              const float* __restrict__ scales,  // (2, Hkv), or nullptr
              Partial partial, RequestCut cut, Cache cache, Sizes sizes, float scale) {
  constexpr int parts = Br / 8, step = warps * unit;
  auto& smem = workbook::cuda::dynamic_shared<Shared<d, warps>>();
  const int warp = threadIdx.x / 32;
  const std::int64_t end_of_block = cut.end(blockIdx.x);
  for (std::int64_t begin = cut.begin(blockIdx.x), end; begin < end_of_block; begin = end) {
    const std::int64_t head = cut.head_with(begin), request = head / cut.heads, kv_head = head / sizes.row_blocks;
    end = min(end_of_block, cut.end_of_head(head));  // of this block's units of the head
    const auto [rows, first_key, end_key] = part_of(cut, cache, sizes, head, begin, end, Br);
    const std::int64_t of_head = kv_head % sizes.Hkv * cache.head_stride;
    const Stored *const K_head = K + of_head, *const V_head = V + of_head;
    const Factors factors = scales != nullptr ? factors_of(scales, int(kv_head % sizes.Hkv), sizes.Hkv) : Factors{1, 1};

    Registers<Element, d, parts> registers;
    clear(registers);
    load_Q(registers, Q + kv_head * rows.count * d, rows);
    int key = first_key + warp * unit;
    const std::int64_t offset = offset_of_key(cache, request, key, end_key);
    std::int64_t next = offset_of_key(cache, request, key + step, end_key);
    load_K(registers, K_head, offset, end_key - key);
    load_V(registers, V_head, offset, end_key - key);
    for (; key < end_key; key += step) {
      Fragment<float, 4> S[parts];
      multiply_KQ(S, registers);                              // Sᵀ = K Qᵀ, (16, Br) per warp
      load_K(registers, K_head, next, end_key - key - step);  // the next 16 keys
      scale_and_mask(S, scale * factors.K, rows, key, end_key);
      exponentiate(registers, S);   // P = exp2(S - m), O = O·rescale
      accumulate_VP(registers, S);  // Oᵀ += Vᵀ Pᵀ, (d, Br)
      load_V(registers, V_head, next, end_key - key - step);
      next = offset_of_key(cache, request, key + 2 * step, end_key);
    }

    if (scales != nullptr) scale_O(registers, factors.V);
    const std::int64_t of_group = kv_head * rows.count;  // rows of O before the head's group
    write_result(smem, registers, partial, cut, head, rows, O + of_group * d, lse + of_group);
  }
}

Cache cache_of(const ForwardCall<Element>& call) {
  const auto& [page_size, page_stride, head_stride, key_stride] = call.cache;
  const std::int64_t pages_per_request = (call.shape.Nk + page_size - 1) / page_size;
  return {call.cache_lengths, call.pages, pages_per_request, page_stride,
          head_stride,        key_stride, int(page_size),    int(call.shape.Nk)};
}

template <int d, int Br, int warps, class Stored>
void launch(const ForwardCall<Element>& call, const Stored* K, const Stored* V, const float* scales,
            const Partial& partial, const RequestCut& cut) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const Sizes sizes{int(H / Hkv), int(Nq), int(Hkv), int(cut.heads / Hkv), call.causal()};
  workbook::cuda::launch(attention<Stored, d, Br, warps>,
                         workbook::cuda::grid_of(cut.blocks, "the thread blocks of the cut"), dim3(32 * warps),
                         sizeof(Shared<d, warps>), call.Q, K, V, call.O, call.lse, scales, partial, cut, cache_of(call),
                         sizes, call.scale * log2_e);
}
template <int d, int Br, int warps>
void start(const ForwardCall<Element>& call, const Codes& codes, const Partial& partial, const RequestCut& cut) {
  if (codes.K == nullptr)
    launch<d, Br, warps>(call, call.K, call.V, nullptr, partial, cut);
  else if constexpr (std::is_same_v<Element, half>)
    launch<d, Br, warps>(call, codes.K, codes.V, codes.scales, partial, cut);
  else
    throw std::invalid_argument("K and V in 8 bits: allowed with half");
}

}  // namespace

// E is the element type that this file is compiled for.
template <class E>
void paged_cache(const ForwardCall<E>& call, const Partial& partial, std::int64_t* first_unit, const Codes& codes,
                 const Tiles& tiles, int splits, int multiprocessors) {
  const workbook::Shape& shape = call.shape;
  const bool equal = call.cache_lengths == nullptr;
  const Cut all = cut_of(shape, tiles, splits, multiprocessors, equal);  // if all requests had Nk keys
  const RequestCut cut{first_unit, shape.B, all.heads / shape.B, all.blocks,
                       splits > 0 ? int(all.blocks / all.heads) : 0};
  workbook::cuda::launch(sum_units, dim3(1), dim3(32), 0, cache_of(call), shape.B, first_unit);
  const bool few = shape.H / shape.Hkv * shape.Nq <= 8;  // rows of Q: half a tile has room for them
  workbook::cuda::with_sizes<built>(shape.d, tiles, [&](auto d, auto t) {
    few ? start<d, t.Br / 2, t.warps>(call, codes, partial, cut) : start<d, t.Br, t.warps>(call, codes, partial, cut);
  });
}
template <class E>
std::size_t shared_bytes(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles, [](auto d, auto t) { return sizeof(Shared<d, t.warps>); });
}
template void paged_cache(const ForwardCall<Element>&, const Partial&, std::int64_t*, const Codes&, const Tiles&, int,
                          int);
template std::size_t shared_bytes<Element>(int, const Tiles&);

}  // namespace ch21
