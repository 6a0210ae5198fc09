// Synchronisation of threads: block and warp barriers, shuffles, votes.
#pragma once

// NOLINTBEGIN(bugprone-reserved-identifier,bugprone-macro-parentheses,performance-unnecessary-value-param):
// CUDA's names begin with underscores; macros take types; CUDA's functions take their 2 or 4 bytes by value.

#include <cstdint>
#include <type_traits>

#include "common/simt/bfloat16.hpp"
#include "common/simt/half.hpp"
#include "common/simt/qualifiers.hpp"
#include "common/simt/runtime.hpp"

inline constexpr int warpSize = 32;

#define threadIdx (::simt::thread_index())
#define blockIdx (::simt::block_index())
#define blockDim (::simt::block_size())
#define gridDim (::simt::grid_size())

__forceinline__ void __syncthreads(simt::Where where = simt::Where::current()) {
  simt::block_barrier(simt::BarrierResult::none, false, where);
}
__forceinline__ int __syncthreads_count(int predicate, simt::Where where = simt::Where::current()) {
  return simt::block_barrier(simt::BarrierResult::count, predicate != 0, where);
}
__forceinline__ int __syncthreads_and(int predicate, simt::Where where = simt::Where::current()) {
  return simt::block_barrier(simt::BarrierResult::all, predicate != 0, where);
}
__forceinline__ int __syncthreads_or(int predicate, simt::Where where = simt::Where::current()) {
  return simt::block_barrier(simt::BarrierResult::any, predicate != 0, where);
}
__forceinline__ void __syncwarp(unsigned mask = 0xffffffffu) {
  simt::warp_barrier(mask);
}

namespace simt {

/// Values are transferred as 64 bits.
template <class T>
__forceinline__ T shuffle(Shuffle kind, unsigned mask, T value, int operand, int width) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 2, 4 or 8 bytes");
  using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;
  // Kernels are compiled with -fno-strict-aliasing.
  const std::uint64_t moved = warp_shuffle(kind, mask, reinterpret_cast<const Bits&>(value), operand, width);
  const Bits bits = static_cast<Bits>(moved);
  return reinterpret_cast<const T&>(bits);
}

}  // namespace simt

// Exactly the types that CUDA supports: code that compiles here must compile there.
#define SIMT_SHUFFLES(T)                                                                             \
  __forceinline__ T __shfl_sync(unsigned mask, T value, int source_lane, int width = warpSize) {     \
    return simt::shuffle(simt::Shuffle::index, mask, value, source_lane, width);                     \
  }                                                                                                  \
  __forceinline__ T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {   \
    return simt::shuffle(simt::Shuffle::up, mask, value, static_cast<int>(delta), width);            \
  }                                                                                                  \
  __forceinline__ T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) { \
    return simt::shuffle(simt::Shuffle::down, mask, value, static_cast<int>(delta), width);          \
  }                                                                                                  \
  __forceinline__ T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize) {   \
    return simt::shuffle(simt::Shuffle::exclusive_or, mask, value, lane_mask, width);                \
  }
SIMT_SHUFFLES(int)
SIMT_SHUFFLES(unsigned)
SIMT_SHUFFLES(long)
SIMT_SHUFFLES(unsigned long)
SIMT_SHUFFLES(long long)
SIMT_SHUFFLES(unsigned long long)
SIMT_SHUFFLES(float)
SIMT_SHUFFLES(double)
SIMT_SHUFFLES(__half)
SIMT_SHUFFLES(__half2)
SIMT_SHUFFLES(__nv_bfloat16)
SIMT_SHUFFLES(__nv_bfloat162)
#undef SIMT_SHUFFLES

__forceinline__ unsigned __ballot_sync(unsigned mask, int predicate) {
  return simt::warp_vote(simt::Vote::ballot, mask, predicate != 0);
}
__forceinline__ int __any_sync(unsigned mask, int predicate) {
  return static_cast<int>(simt::warp_vote(simt::Vote::any, mask, predicate != 0));
}
__forceinline__ int __all_sync(unsigned mask, int predicate) {
  return static_cast<int>(simt::warp_vote(simt::Vote::all, mask, predicate != 0));
}
/// The lanes that have not ended. (On the GPU: those that currently run together. Code should not depend on it.)
__forceinline__ unsigned __activemask() {
  return simt::active_mask();
}

// Memory order: the simulator runs one thread after another, so every write is visible at once, except those of TMA.
inline void __threadfence() {
  simt::thread_fence();
}
inline void __threadfence_block() {}
// NOLINTEND(bugprone-reserved-identifier,bugprone-macro-parentheses,performance-unnecessary-value-param)
