#include "common/simt/tensor_math.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "common/simt/unset.hpp"

// Compiled for several processors, selected when the library is loaded. Results are the same on all of them.
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
    // The half's exponent and fraction moved to the fields of a float, times 2^112: exact, for subnormal halves too.
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

/// The same for eight columns and eight rows at a time. Each row is one vector (g++ does not vectorise the loops
/// above); several rows hide the latency of the additions.
__attribute__((always_inline)) inline void multiply_8_columns(int m, std::ptrdiff_t n, std::ptrdiff_t k, const float* a,
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

// Vectors of eight columns for sums of e4m3.
using Eight = float __attribute__((vector_size(32)));
using EightInts = std::int32_t __attribute__((vector_size(32)));

constexpr int kSumBits = 13;       // below the leading bit of the largest addend
constexpr int kNoExponent = -100;  // of zero: smaller than any relevant exponent, and 2^(13 + 100) is a float

/// The exponents of `count` e4m3 numbers: subnormal numbers get the exponent of the smallest normal number.
void exponents_of_e4m3(const float* values, int count, std::int32_t* exponents) {
  for (int i = 0; i < count; ++i) {
    const int exponent = int(std::bit_cast<std::uint32_t>(values[i]) >> 23 & 0xff) - 127;
    exponents[i] = values[i] == 0 ? 2 * kNoExponent : std::max(exponent, -6);
  }
}

/// Eight sums of a row: c + a b, a (32), b (32, n) from one column on, with their exponents.
__attribute__((always_inline)) inline void add_eight_e4m3(std::ptrdiff_t n, const float* a,
                                                          const std::int32_t* a_exponents, const float* b,
                                                          const EightInts* b_exponents, float* c) {
  Eight sum;
  std::memcpy(&sum, c, sizeof sum);
  const EightInts bits = reinterpret_cast<EightInts>(sum), c_exponents = (bits >> 23 & 0xff) - 127;
  EightInts top = c_exponents > kNoExponent ? c_exponents : EightInts{} + kNoExponent;
  for (std::ptrdiff_t k = 0; k < 32; ++k) {
    const EightInts exponents = b_exponents[k] + a_exponents[k];
    top = exponents > top ? exponents : top;
  }
  // 2^(13 - top) and its inverse, constructed from the bits of their exponents.
  const Eight scale = reinterpret_cast<Eight>((kSumBits - top + 127) << 23);
  const Eight unit = reinterpret_cast<Eight>((top - kSumBits + 127) << 23);
  EightInts integer = __builtin_convertvector(sum * scale, EightInts);
  for (std::ptrdiff_t k = 0; k < 32; ++k) {
    Eight row;
    std::memcpy(&row, b + k * n, sizeof row);
    integer += __builtin_convertvector(row * a[k] * scale, EightInts);  // each term a·b is exact
  }
  const EightInts whole = reinterpret_cast<EightInts>(__builtin_convertvector(integer, Eight));
  constexpr std::int32_t kKept = ~((1 << (23 - kSumBits)) - 1);
  const Eight result = reinterpret_cast<Eight>(whole & kKept) * unit;
  const EightInts finite = c_exponents < 128;
  sum = finite ? result : sum;
  std::memcpy(c, &sum, sizeof sum);
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
  if (m == 16) return k == 16 ? multiply_8_columns(16, 8, 16, a, b, c) : multiply_8_columns(16, 8, 8, a, b, c);
  if (m == 32) return multiply_rows<32, 8, 16>(a, b, c);
  return multiply_rows<8, 32, 16>(a, b, c);
}

SIMT_FOR_EACH_PROCESSOR
void multiply_rows_by_columns(int m, int n, int k, const float* a, const float* b, float* c) {
  multiply_8_columns(m, n, k, a, b, c);
}

SIMT_FOR_EACH_PROCESSOR
void multiply_e4m3(int m, int n, const float* a, const float* b, float* c) {
  constexpr int kRows = 64;  // rows of a wgmma
  const auto is_nan = [](float x) { return x != x; };
  if (std::any_of(a, a + std::ptrdiff_t(m) * 32, is_nan) || std::any_of(b, b + std::ptrdiff_t(32) * n, is_nan))
    return multiply_8_columns(m, n, 32, a, b, c);
  std::int32_t a_exponents[kRows * 32];  // small enough for a simulated thread's stack, unlike the exponents of b
  exponents_of_e4m3(a, m * 32, a_exponents);
  for (std::ptrdiff_t j = 0; j < n; j += 8) {
    EightInts b_exponents[32];
    for (std::ptrdiff_t k = 0; k < 32; ++k)
      exponents_of_e4m3(b + k * n + j, 8, reinterpret_cast<std::int32_t*>(&b_exponents[k]));
    for (std::ptrdiff_t i = 0; i < m; ++i)
      add_eight_e4m3(n, a + 32 * i, a_exponents + 32 * i, b + j, b_exponents, c + i * n + j);
  }
}

void fill_unset(void* x, int count, ElementType element) {
  if (element == ElementType::e4m3) {
    std::fill_n(static_cast<std::uint8_t*>(x), count,
                std::uint8_t{0xff});  // a NaN, but one that computations produce too
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
