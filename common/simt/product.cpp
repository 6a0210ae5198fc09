#include "common/simt/product.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "common/simt/unset.hpp"

// The same code for several processors, chosen when the library is loaded. Results are the same on all of them.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SIMT_FOR_EACH_PROCESSOR __attribute__((target_clones("avx2", "default")))
#else
#define SIMT_FOR_EACH_PROCESSOR
#endif

namespace simt {

namespace {

template <class Code>
__attribute__((always_inline)) inline bool any_equal(const Code* codes, int count, Code ignore, Code unset) {
  Code found = 0;
  for (int i = 0; i < count; ++i) found |= static_cast<Code>(codes[i] | ignore) == static_cast<Code>(unset | ignore);
  return found != 0;
}

SIMT_FOR_EACH_PROCESSOR
void widen_halves(const std::uint16_t* codes, float* values, int count) {
  for (int i = 0; i < count; ++i) {
    const std::uint32_t magnitude = codes[i] & 0x7fffu;
    // The half's exponent and fraction in float's places, times 2^112: exact, for subnormal halves too.
    std::uint32_t bits = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
    bits |= magnitude >= 0x7c00u ? 0x7f800000u : 0u;
    values[i] = std::bit_cast<float>(bits | (codes[i] & 0x8000u) << 16);
  }
}

SIMT_FOR_EACH_PROCESSOR
void widen_bfloat16s(const std::uint16_t* codes, float* values, int count) {
  for (int i = 0; i < count; ++i) values[i] = std::bit_cast<float>(std::uint32_t(codes[i]) << 16);
}

/// c (m, n) += a (m, k) b (k, n), all row-major.
template <int M, int N, int K>
__attribute__((always_inline)) inline void multiply_rows(const float* a, const float* b, float* c) {
  for (std::ptrdiff_t i = 0; i < M; i += 4) {
    float sum[4][N];
    std::memcpy(sum, c + i * N, sizeof sum);
    for (int k = 0; k < K; ++k) {
      for (int r = 0; r < 4; ++r) {
        const float factor = a[(i + r) * K + k];
        for (int j = 0; j < N; ++j) sum[r][j] += factor * b[k * N + j];
      }
    }
    std::memcpy(c + i * N, sum, sizeof sum);
  }
}

/// The same, eight columns and eight rows at a time: each row one vector (g++ finds none in the loops above), several
/// of them to hide the latency of the additions.
__attribute__((always_inline)) inline void multiply_by_eights(int m, std::ptrdiff_t n, std::ptrdiff_t k, const float* a,
                                                              const float* b, float* c) {
  using Eight = float __attribute__((vector_size(32)));
  for (std::ptrdiff_t j = 0; j < n; j += 8) {
    for (std::ptrdiff_t i = 0; i < m; i += 8) {
      Eight sum[8];
      for (int r = 0; r < 8; ++r) std::memcpy(&sum[r], c + (i + r) * n + j, 32);
      for (std::ptrdiff_t l = 0; l < k; ++l) {
        Eight row;
        std::memcpy(&row, b + l * n + j, 32);
        for (int r = 0; r < 8; ++r) {
          const float x = a[(i + r) * k + l];
          sum[r] += Eight{x, x, x, x, x, x, x, x} * row;
        }
      }
      for (int r = 0; r < 8; ++r) std::memcpy(c + (i + r) * n + j, &sum[r], 32);
    }
  }
}

}  // namespace

void widen(const void* elements, ElementType element, float* values, int count) {
  switch (element) {
    case ElementType::half:
      return widen_halves(static_cast<const std::uint16_t*>(elements), values, count);
    case ElementType::bfloat16:
      return widen_bfloat16s(static_cast<const std::uint16_t*>(elements), values, count);
    default:
      for (int i = 0; i < count; ++i) {
        std::uint32_t bits;
        std::memcpy(&bits, static_cast<const std::byte*>(elements) + std::ptrdiff_t(4) * i, 4);
        values[i] = std::bit_cast<float>(bits & 0xffffe000u);
      }
  }
}

SIMT_FOR_EACH_PROCESSOR
void multiply_matrices(int m, int n, int k, const float* a, const float* b, float* c) {
  if (m == 16 && n == 16) return k == 16 ? multiply_rows<16, 16, 16>(a, b, c) : multiply_rows<16, 16, 8>(a, b, c);
  if (m == 16) return k == 16 ? multiply_by_eights(16, 8, 16, a, b, c) : multiply_by_eights(16, 8, 8, a, b, c);
  if (m == 32) return multiply_rows<32, 8, 16>(a, b, c);
  return multiply_rows<8, 32, 16>(a, b, c);
}

SIMT_FOR_EACH_PROCESSOR
void multiply_rows_by_columns(int m, int n, int k, const float* a, const float* b, float* c) {
  multiply_by_eights(m, n, k, a, b, c);
}

void fill_unset(void* x, int count, ElementType element) {
  if (element == ElementType::e4m3) {
    std::fill_n(static_cast<std::uint8_t*>(x), count, std::uint8_t{0xff});  // a NaN, but one that computations give too
  } else if (element == ElementType::half || element == ElementType::bfloat16) {
    std::fill_n(static_cast<std::uint16_t*>(x), count, element == ElementType::half ? kUnsetHalf : kUnsetBfloat16);
  } else {
    std::fill_n(static_cast<std::uint32_t*>(x), count, kUnsetFloat);
  }
}

SIMT_FOR_EACH_PROCESSOR
bool any_unset(const void* x, int count, ElementType element) {
  switch (element) {
    case ElementType::half:
      return any_equal(static_cast<const std::uint16_t*>(x), count, kQuietHalf, kUnsetHalf);
    case ElementType::bfloat16:
      return any_equal(static_cast<const std::uint16_t*>(x), count, kQuietBfloat16, kUnsetBfloat16);
    default:
      return any_equal(static_cast<const std::uint32_t*>(x), count, kQuietFloat, kUnsetFloat);
  }
}

void make_nans_ordinary(float* values, int count) {
  for (int i = 0; i < count; ++i) {
    if (std::isnan(values[i])) values[i] = std::numeric_limits<float>::quiet_NaN();
  }
}

}  // namespace simt
