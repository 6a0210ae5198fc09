// CUDA's built-in vector types. Copying one is a single access of its full size, as on the GPU, so that the simulator
// counts a 16-byte load as one. For this reason they are copied through one integer or vector of that size.
#pragma once

#include <cstdint>

namespace simt {
/// An integer or vector of `Size` bytes that may alias anything.
template <int Size>
struct Whole;
template <>
struct Whole<2> {
  using type __attribute__((may_alias)) = std::uint16_t;
};
template <>
struct Whole<4> {
  using type __attribute__((may_alias)) = std::uint32_t;
};
template <>
struct Whole<8> {
  using type __attribute__((may_alias)) = std::uint64_t;
};
template <>
struct Whole<16> {
  using type __attribute__((vector_size(16), may_alias)) = std::uint64_t;
};
}  // namespace simt

// NOLINTBEGIN(bugprone-macro-parentheses): macros take types.
/// The copy members of a struct, each a single access. (A macro, because with a base class the struct's aggregate
/// initialisation would take the base first.)
#define SIMT_COPIED_WHOLE(name)                                              \
  name() = default;                                                          \
  __attribute__((always_inline)) name(const name& other) {                   \
    *reinterpret_cast<::simt::Whole<sizeof(name)>::type*>(this) =            \
        *reinterpret_cast<const ::simt::Whole<sizeof(name)>::type*>(&other); \
  }                                                                          \
  __attribute__((always_inline)) name& operator=(const name& other) {        \
    *reinterpret_cast<::simt::Whole<sizeof(name)>::type*>(this) =            \
        *reinterpret_cast<const ::simt::Whole<sizeof(name)>::type*>(&other); \
    return *this;                                                            \
  }

#define SIMT_VECTOR_TYPES(T, name)                                            \
  struct alignas(2 * sizeof(T)) name##2 {                                     \
    T x, y;                                                                   \
    SIMT_COPIED_WHOLE(name##2)                                                \
    constexpr name##2(T x_, T y_) : x(x_), y(y_) {}                           \
  };                                                                          \
  struct name##3 { /* 12 bytes: three accesses on the GPU too */              \
    T x, y, z;                                                                \
  };                                                                          \
  struct alignas(4 * sizeof(T)) name##4 {                                     \
    T x, y, z, w;                                                             \
    SIMT_COPIED_WHOLE(name##4)                                                \
    constexpr name##4(T x_, T y_, T z_, T w_) : x(x_), y(y_), z(z_), w(w_) {} \
  };                                                                          \
  constexpr name##2 make_##name##2(T x, T y) {                                \
    return name##2(x, y);                                                     \
  }                                                                           \
  constexpr name##3 make_##name##3(T x, T y, T z) {                           \
    return name##3 {x, y, z};                                                 \
  }                                                                           \
  constexpr name##4 make_##name##4(T x, T y, T z, T w) {                      \
    return name##4(x, y, z, w);                                               \
  }

SIMT_VECTOR_TYPES(float, float)
SIMT_VECTOR_TYPES(int, int)
SIMT_VECTOR_TYPES(unsigned, uint)
SIMT_VECTOR_TYPES(short, short)
SIMT_VECTOR_TYPES(unsigned short, ushort)
#undef SIMT_VECTOR_TYPES

#define SIMT_VECTOR_OF_TWO(T, name)                 \
  struct alignas(2 * sizeof(T)) name##2 {           \
    T x, y;                                         \
    SIMT_COPIED_WHOLE(name##2)                      \
    constexpr name##2(T x_, T y_) : x(x_), y(y_) {} \
  };                                                \
  constexpr name##2 make_##name##2(T x, T y) {      \
    return name##2(x, y);                           \
  }

SIMT_VECTOR_OF_TWO(double, double)
SIMT_VECTOR_OF_TWO(long long, longlong)
SIMT_VECTOR_OF_TWO(unsigned long long, ulonglong)
#undef SIMT_VECTOR_OF_TWO
// NOLINTEND(bugprone-macro-parentheses)

/// The size of a grid or block; omitted dimensions are 1.
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};
