// nvcuda::wmma, as in mma.h: half and bfloat16 operands with 16x16x16, 32x8x16 and 8x32x16, tf32 with 16x16x8; float
// accumulators, and half ones with half operands.
#pragma once

// NOLINTBEGIN(bugprone-reserved-identifier):
// CUDA's names begin with underscores.

#include <type_traits>

#include "common/simt/bfloat16.hpp"
#include "common/simt/half.hpp"
#include "common/simt/math.hpp"
#include "common/simt/qualifiers.hpp"
#include "common/simt/runtime.hpp"

namespace nvcuda {
namespace wmma {

struct row_major;
struct col_major;
struct matrix_a;
struct matrix_b;
struct accumulator;
namespace precision {
struct tf32;
}
enum layout_t { mem_row_major, mem_col_major };

}  // namespace wmma
}  // namespace nvcuda

namespace simt {

/// The part of a fragment that one lane holds: T is the element type, `count` is CUDA's num_elements.
template <class T, ElementType kElement, int kCount>
struct FragmentElements {
  using Element = T;
  static constexpr ElementType element = kElement;
  static constexpr int count = kCount;
};

/// The combinations that CUDA supports; others do not compile, as with nvcc.
template <class Use, int m, int n, int k, class T>
struct FragmentOf;

#define SIMT_FRAGMENTS(m, n, k, T, Element, element, count_a, count_b)                                               \
  template <>                                                                                                        \
  struct FragmentOf<nvcuda::wmma::matrix_a, m, n, k, T> : FragmentElements<Element, ElementType::element, count_a> { \
    static constexpr FragmentType::Use use = FragmentType::a;                                                        \
  };                                                                                                                 \
  template <>                                                                                                        \
  struct FragmentOf<nvcuda::wmma::matrix_b, m, n, k, T> : FragmentElements<Element, ElementType::element, count_b> { \
    static constexpr FragmentType::Use use = FragmentType::b;                                                        \
  };
#define SIMT_ACCUMULATOR(m, n, k, T, element)                                                               \
  template <>                                                                                               \
  struct FragmentOf<nvcuda::wmma::accumulator, m, n, k, T> : FragmentElements<T, ElementType::element, 8> { \
    static constexpr FragmentType::Use use = FragmentType::accumulator;                                     \
  };
SIMT_FRAGMENTS(16, 16, 16, __half, __half, half, 16, 16)
SIMT_FRAGMENTS(32, 8, 16, __half, __half, half, 16, 16)
SIMT_FRAGMENTS(8, 32, 16, __half, __half, half, 16, 16)
SIMT_FRAGMENTS(16, 16, 16, __nv_bfloat16, __nv_bfloat16, bfloat16, 8, 8)
SIMT_FRAGMENTS(32, 8, 16, __nv_bfloat16, __nv_bfloat16, bfloat16, 16, 4)
SIMT_FRAGMENTS(8, 32, 16, __nv_bfloat16, __nv_bfloat16, bfloat16, 4, 16)
SIMT_FRAGMENTS(16, 16, 8, nvcuda::wmma::precision::tf32, float, tf32, 4, 4)
SIMT_ACCUMULATOR(16, 16, 16, float, float32)
SIMT_ACCUMULATOR(32, 8, 16, float, float32)
SIMT_ACCUMULATOR(8, 32, 16, float, float32)
SIMT_ACCUMULATOR(16, 16, 16, __half, half)
SIMT_ACCUMULATOR(32, 8, 16, __half, half)
SIMT_ACCUMULATOR(8, 32, 16, __half, half)
SIMT_ACCUMULATOR(16, 16, 8, float, float32)
#undef SIMT_FRAGMENTS
#undef SIMT_ACCUMULATOR

}  // namespace simt

namespace nvcuda {
namespace wmma {

template <class Use, int m, int n, int k, class T, class Layout = void>
struct fragment {
  using Kind = simt::FragmentOf<Use, m, n, k, T>;
  using element_type = typename Kind::Element;
  static constexpr int num_elements = Kind::count;
  static constexpr simt::FragmentType simt_type{Kind::use, Kind::element, m, n, k, Kind::count};
  static_assert(std::is_void_v<Layout> == std::is_same_v<Use, accumulator>,
                "matrix_a and matrix_b need row_major or col_major, accumulators have no layout");

  element_type x[num_elements];

  /// Fills x with a pattern that detects use before a load.
  fragment() { simt::unset_registers(x, num_elements, Kind::element); }
};

template <class Use, int m, int n, int k, class T, class Layout>
__forceinline__ void fill_fragment(
    fragment<Use, m, n, k, T, Layout>& f,
    std::type_identity_t<typename fragment<Use, m, n, k, T, Layout>::element_type> value) {
  for (int i = 0; i < f.num_elements; ++i) f.x[i] = value;
}

/// An operand whose row i (row_major) or column i (col_major) starts at memory + i * leading.
template <class Use, int m, int n, int k, class T, class Layout>
__forceinline__ void load_matrix_sync(fragment<Use, m, n, k, T, Layout>& f,
                                      const typename fragment<Use, m, n, k, T, Layout>::element_type* memory,
                                      unsigned leading) {
  static_assert(!std::is_void_v<Layout>, "loading an accumulator needs a layout as the fourth argument");
  simt::matrix_load(f.x, f.simt_type, memory, leading, std::is_same_v<Layout, row_major>);
}
template <int m, int n, int k, class T>
__forceinline__ void load_matrix_sync(fragment<accumulator, m, n, k, T>& f, const T* memory, unsigned leading,
                                      layout_t layout) {
  simt::matrix_load(f.x, f.simt_type, memory, leading, layout == mem_row_major);
}
template <int m, int n, int k, class T>
__forceinline__ void store_matrix_sync(T* memory, const fragment<accumulator, m, n, k, T>& f, unsigned leading,
                                       layout_t layout) {
  simt::matrix_store(memory, f.simt_type, f.x, leading, layout == mem_row_major);
}

/// d = a b + c.
template <int m, int n, int k, class T, class A, class B, class D, class C>
__forceinline__ void mma_sync(fragment<accumulator, m, n, k, D>& d, const fragment<matrix_a, m, n, k, T, A>& a,
                              const fragment<matrix_b, m, n, k, T, B>& b, const fragment<accumulator, m, n, k, C>& c) {
  static_assert(std::is_same_v<T, __half> || (std::is_same_v<D, float> && std::is_same_v<C, float>),
                "half accumulators go with half operands only");
  simt::matrix_multiply(d.x, d.simt_type, a.x, a.simt_type, b.x, b.simt_type, c.x, c.simt_type);
}

inline float __float_to_tf32(float x) {
  return simt::round_to_tf32(x);
}

}  // namespace wmma
}  // namespace nvcuda
// NOLINTEND(bugprone-reserved-identifier)
