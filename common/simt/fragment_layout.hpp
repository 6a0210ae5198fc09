// The register layout of a matrix: which lane holds which element. This is the layout of mma.m16n8k16 in the PTX ISA,
// and of m16n8k32 for e4m3. Internal; none of it is inlined into kernels.
#pragma once

#include <utility>

#include "common/simt/runtime.hpp"

namespace simt {

constexpr int rows_of(const FragmentType& t) {
  return t.use == FragmentType::b ? t.k : t.m;
}
constexpr int columns_of(const FragmentType& t) {
  return t.use == FragmentType::a ? t.k : t.n;
}
constexpr int bytes_of(ElementType e) {
  return e == ElementType::e4m3 ? 1 : e == ElementType::half || e == ElementType::bfloat16 ? 2 : 4;
}

/// Row and column of element `e` of `lane`.
constexpr std::pair<int, int> fragment_position(const FragmentType& t, int lane, int e) {
  const int quad = lane / 4, in_quad = lane % 4;
  if (t.element == ElementType::tf32) {
    if (t.use == FragmentType::a) return {quad + 8 * (e & 1), in_quad + 4 * (e >> 1)};
    return {in_quad + 4 * (e & 1), quad + 8 * (e >> 1)};
  }
  if (t.element == ElementType::e4m3)  // A (16, 32): four adjacent elements per register
    return {quad + 8 * (e >> 2 & 1), 4 * in_quad + (e & 3) + 16 * (e >> 3)};
  switch (t.use) {
    case FragmentType::a:
      if (t.m == 8) return {quad, 2 * in_quad + (e & 1) + 8 * (e >> 1)};
      return {quad + 8 * (e >> 1 & 1) + 16 * (e >> 3), 2 * in_quad + (e & 1) + 8 * (e >> 2 & 1)};
    case FragmentType::b:
      return {2 * in_quad + (e & 1) + 8 * (e >> 1 & 1), quad + 8 * (e >> 2)};
    case FragmentType::accumulator:
      break;
  }
  if (t.m == 16) return {quad + 8 * (e >> 1 & 1), 2 * in_quad + (e & 1) + 8 * (e >> 2)};
  if (t.m == 32) return {quad + 8 * (e >> 1), 2 * in_quad + (e & 1)};
  return {2 * in_quad + (e & 1), quad + 8 * (e >> 1)};  // 8x32 is computed as the transpose of 32x8
}

}  // namespace simt
