// Dynamic shared memory as a struct with named members.
//
//   template <int Br, int Bc, int d>
//   struct Smem {
//     half Q[Br][d + 8];
//     half K[Bc][d + 8];
//     float S[Br][Bc + 4];
//     float m[Br];
//     SHARED_LAYOUT(Smem, (Q, d), (K, d), (S, Bc), m);
//   };
//
// SHARED_LAYOUT describes the struct's members to the simulator; for nvcc it is empty. `(Q, d)` declares that the first
// d columns of Q are used and the rest of each row is padding that no thread may access. `(Q, d, d + 8)` declares the
// same for a flat array with rows of d + 8. A plain name declares nothing about columns. Members of a union may
// overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/simt/runtime.hpp"

namespace simt {

/// Describes a member of type T. `columns` 0: take the last dimension of a two-dimensional array.
template <class T>
constexpr SharedMember shared_member(const char* name, std::size_t offset, std::size_t used = 0,
                                     std::size_t columns = 0) {
  constexpr std::size_t rank = std::rank_v<T>;
  using Element = std::remove_all_extents_t<T>;
  std::size_t last = 0, rows = 0, matrices = 0;
  if constexpr (rank > 1) last = std::extent_v<T, rank - 1>;
  if constexpr (rank > 2) rows = std::extent_v<T, rank - 2>;
  if constexpr (rank > 3) matrices = std::extent_v<T, rank - 3>;
  if (columns == 0) columns = last;
  return {name,
          static_cast<std::uint32_t>(offset),
          static_cast<std::uint32_t>(sizeof(T)),
          static_cast<std::uint32_t>(sizeof(Element)),
          static_cast<std::uint32_t>(columns),
          static_cast<std::uint32_t>(used != 0 ? used : columns),
          static_cast<std::uint32_t>(rows),
          static_cast<std::uint32_t>(matrices)};
}

template <class T>
T& shared_struct() {
  if constexpr (requires { T::simt_layout(); }) {
    return *static_cast<T*>(dynamic_shared(sizeof(T), T::simt_layout()));
  } else {
    return *static_cast<T*>(dynamic_shared(sizeof(T), nullptr));
  }
}

}  // namespace simt

#define SHARED_LAYOUT(Struct, ...)                                                                                     \
  static const ::simt::SharedLayout* simt_layout() {                                                                   \
    static constexpr ::simt::SharedMember simt_members[] = {SIMT_FOR_EACH(SIMT_MEMBER, Struct, __VA_ARGS__)};          \
    static constexpr ::simt::SharedLayout simt_all{#Struct, simt_members, sizeof simt_members / sizeof *simt_members}; \
    return &simt_all;                                                                                                  \
  }                                                                                                                    \
  static_assert(true)

// One entry: `name` or `(name, used columns)` or `(name, used columns, columns)`.
#define SIMT_MEMBER(Struct, entry) SIMT_JOIN(SIMT_MEMBER_, SIMT_HAS_PARENTHESES(entry))(Struct, entry),
#define SIMT_MEMBER_0(Struct, name) SIMT_DESCRIBE(Struct, name)
#define SIMT_MEMBER_1(Struct, entry) SIMT_DESCRIBE_SPREAD(Struct, SIMT_STRIP entry)
#define SIMT_STRIP(...) __VA_ARGS__
#define SIMT_DESCRIBE_SPREAD(...) SIMT_DESCRIBE(__VA_ARGS__)
#define SIMT_DESCRIBE(Struct, name, ...) \
  ::simt::shared_member<decltype(Struct::name)>(#name, offsetof(Struct, name) __VA_OPT__(, ) __VA_ARGS__)

#define SIMT_JOIN(a, b) SIMT_JOIN_NOW(a, b)
#define SIMT_JOIN_NOW(a, b) a##b
#define SIMT_HAS_PARENTHESES(x) SIMT_SECOND(SIMT_PROBE x, 0, 0)
#define SIMT_PROBE(...) ~, 1
#define SIMT_SECOND(...) SIMT_SECOND_NOW(__VA_ARGS__)
#define SIMT_SECOND_NOW(a, b, ...) b

// Applies the macro `f` to each argument, up to 256: every SIMT_EXPAND makes the preprocessor rescan the text.
#define SIMT_PARENTHESES ()
#define SIMT_EXPAND(...) SIMT_EXPAND_3(SIMT_EXPAND_3(SIMT_EXPAND_3(SIMT_EXPAND_3(__VA_ARGS__))))
#define SIMT_EXPAND_3(...) SIMT_EXPAND_2(SIMT_EXPAND_2(SIMT_EXPAND_2(SIMT_EXPAND_2(__VA_ARGS__))))
#define SIMT_EXPAND_2(...) SIMT_EXPAND_1(SIMT_EXPAND_1(SIMT_EXPAND_1(SIMT_EXPAND_1(__VA_ARGS__))))
#define SIMT_EXPAND_1(...) __VA_ARGS__
#define SIMT_FOR_EACH(f, with, ...) __VA_OPT__(SIMT_EXPAND(SIMT_FOR_EACH_STEP(f, with, __VA_ARGS__)))
#define SIMT_FOR_EACH_STEP(f, with, first, ...) \
  f(with, first) __VA_OPT__(SIMT_FOR_EACH_AGAIN SIMT_PARENTHESES(f, with, __VA_ARGS__))
#define SIMT_FOR_EACH_AGAIN() SIMT_FOR_EACH_STEP
