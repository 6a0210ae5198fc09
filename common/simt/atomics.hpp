// CUDA's atomic functions, for the types that CUDA supports.
#pragma once

// NOLINTBEGIN(bugprone-reserved-identifier,bugprone-macro-parentheses,performance-unnecessary-value-param):
// CUDA's names begin with underscores; macros take types; CUDA's functions take their 2 or 4 bytes by value.

#include <bit>
#include <cstdint>

#include "common/simt/bfloat16.hpp"
#include "common/simt/half.hpp"
#include "common/simt/runtime.hpp"

namespace simt {

template <class T>
inline constexpr AtomicType atomic_type = [] {
  static_assert(sizeof(T) == 0, "CUDA has no atomic of this type");
  return AtomicType::int32;
}();
template <>
inline constexpr AtomicType atomic_type<int> = AtomicType::int32;
template <>
inline constexpr AtomicType atomic_type<unsigned> = AtomicType::uint32;
template <>
inline constexpr AtomicType atomic_type<unsigned long long> = AtomicType::uint64;
template <>
inline constexpr AtomicType atomic_type<float> = AtomicType::float32;
template <>
inline constexpr AtomicType atomic_type<double> = AtomicType::float64;

template <class T>
inline T atomic_on(AtomicOperation operation, T* address, T operand, T compare = T()) {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(
        static_cast<std::uint32_t>(atomic(operation, atomic_type<T>, address, std::bit_cast<std::uint32_t>(operand),
                                          std::bit_cast<std::uint32_t>(compare))));
  } else {
    return std::bit_cast<T>(atomic(operation, atomic_type<T>, address, std::bit_cast<std::uint64_t>(operand),
                                   std::bit_cast<std::uint64_t>(compare)));
  }
}

}  // namespace simt

#define SIMT_ATOMIC(name, operation, T)                                         \
  inline T name(T* address, T operand) {                                        \
    return simt::atomic_on(simt::AtomicOperation::operation, address, operand); \
  }
SIMT_ATOMIC(atomicAdd, add, int)
SIMT_ATOMIC(atomicAdd, add, unsigned)
SIMT_ATOMIC(atomicAdd, add, unsigned long long)
SIMT_ATOMIC(atomicAdd, add, float)
SIMT_ATOMIC(atomicAdd, add, double)
SIMT_ATOMIC(atomicMax, maximum, int)
SIMT_ATOMIC(atomicMax, maximum, unsigned)
SIMT_ATOMIC(atomicMax, maximum, unsigned long long)
SIMT_ATOMIC(atomicMin, minimum, int)
SIMT_ATOMIC(atomicMin, minimum, unsigned)
SIMT_ATOMIC(atomicMin, minimum, unsigned long long)
SIMT_ATOMIC(atomicExch, exchange, int)
SIMT_ATOMIC(atomicExch, exchange, unsigned)
SIMT_ATOMIC(atomicExch, exchange, unsigned long long)
SIMT_ATOMIC(atomicExch, exchange, float)
SIMT_ATOMIC(atomicAnd, bit_and, int)
SIMT_ATOMIC(atomicAnd, bit_and, unsigned)
SIMT_ATOMIC(atomicOr, bit_or, int)
SIMT_ATOMIC(atomicOr, bit_or, unsigned)
SIMT_ATOMIC(atomicXor, bit_xor, int)
SIMT_ATOMIC(atomicXor, bit_xor, unsigned)
SIMT_ATOMIC(atomicInc, increment, unsigned)
#undef SIMT_ATOMIC
inline int atomicSub(int* address, int operand) {
  return atomicAdd(address, -operand);
}
inline unsigned atomicSub(unsigned* address, unsigned operand) {
  return atomicAdd(address, 0u - operand);
}

#define SIMT_COMPARE_AND_SWAP(T)                                                              \
  inline T atomicCAS(T* address, T compare, T value) {                                        \
    return simt::atomic_on(simt::AtomicOperation::compare_and_swap, address, value, compare); \
  }
SIMT_COMPARE_AND_SWAP(int)
SIMT_COMPARE_AND_SWAP(unsigned)
SIMT_COMPARE_AND_SWAP(unsigned long long)
#undef SIMT_COMPARE_AND_SWAP

#define SIMT_ATOMIC_ADD_16(T, T2, type, type2)                                                                     \
  inline T atomicAdd(T* address, T operand) {                                                                      \
    return T::simt_code(static_cast<std::uint16_t>(                                                                \
        simt::atomic(simt::AtomicOperation::add, simt::AtomicType::type, address, operand.simt_code())));          \
  }                                                                                                                \
  inline T2 atomicAdd(T2* address, T2 operand) {                                                                   \
    const std::uint64_t old = simt::atomic(simt::AtomicOperation::add, simt::AtomicType::type2, address,           \
                                           operand.x.simt_code() | std::uint64_t(operand.y.simt_code()) << 16);    \
    return T2(T::simt_code(static_cast<std::uint16_t>(old)), T::simt_code(static_cast<std::uint16_t>(old >> 16))); \
  }
SIMT_ATOMIC_ADD_16(__half, __half2, half, half2)
SIMT_ATOMIC_ADD_16(__nv_bfloat16, __nv_bfloat162, bfloat16, bfloat162)
#undef SIMT_ATOMIC_ADD_16
// NOLINTEND(bugprone-reserved-identifier,bugprone-macro-parentheses,performance-unnecessary-value-param)
