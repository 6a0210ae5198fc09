// Chapter 21: K and V in 8 bits, e4m3, with one scale per K/V head. The codes are converted to half in registers, by
// integer instructions that every GPU has, and the scales are applied to the scores and to O.
//
// Source: Micikevicius et al. 2022 (FP8 formats), section 3; vLLM, the option kv_cache_dtype=fp8.
// Test it: ./workbook test 21.9
#pragma once

#include <cstdint>

#include "20_split_kv/phases.hpp"
#include "paged_cache.hpp"

namespace ch21 {
namespace {

using namespace ch20;  // the phases of chapter 20

/// Two codes of e4m3, in bits 0 to 7 and 8 to 15, as two halves that are 2^8 times smaller. e4m3 has a sign, 4 bits of
/// exponent with bias 7, and 3 bits of fraction; half has a sign, 5 bits with bias 15, and 10 bits.
__device__ __forceinline__ std::uint32_t halves_of(std::uint32_t codes) {
  // TODO(21.9) Move the second code to bits 16 to 23. Then move both signs to the top of their halves, and exponent and
  // fraction so that the exponents end where those of half do (about 2 lines).
  // BEGIN 21.9
  WORKBOOK_TODO(21.9);
  // END 21.9
}

/// Loads 8 elements into four registers; zeros if not `exists`. Codes become halves that are 2^8 times smaller.
template <class Element>
__device__ __forceinline__ void load_8(Fragment<Element, 4>& to, const Element* from, bool exists) {
  load_16(to, from, exists);
}
__device__ __forceinline__ void load_8(Fragment<half, 4>& to, const std::uint8_t* from, bool exists) {
  const uint2 codes = exists ? *reinterpret_cast<const uint2*>(from) : uint2{0, 0};
  to[0] = halves_of(codes.x & 0xffff), to[1] = halves_of(codes.x >> 16);
  to[2] = halves_of(codes.y & 0xffff), to[3] = halves_of(codes.y >> 16);
}

/// What the scores, and O, must be multiplied by, because K and V in registers are too small.
struct Factors {
  float K, V;
};

// TODO(21.10) The factors of a K/V head: `scales` has those of K of all Hkv heads, then those of V. And O times a
// factor (about 9 lines).
// BEGIN 21.10
__device__ __forceinline__ Factors factors_of(const float*, int /*head*/, int /*Hkv*/) {
  WORKBOOK_TODO(21.10);
}
template <class Element, int d, int parts>
__device__ __forceinline__ void scale_O(Registers<Element, d, parts>&, float /*factor*/) {
  WORKBOOK_TODO(21.10);
}
// END 21.10

}  // namespace
}  // namespace ch21
