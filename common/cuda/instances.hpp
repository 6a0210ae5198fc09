// What a kernel file is compiled with for the simulator where not all of its kernels are wanted. Most of a compiler's
// time goes into kernels that a run of one head dimension never asks for, and into those of sizes that the one test of
// a wrong answer never asks for, or asks for after it has found out.
//
//   -DWORKBOOK_INSTANCES=64        `run`: only the choices of this head dimension are compiled; any other is noted as
//                                  left out, and ends the process
//   -DWORKBOOK_WITHOUT_BFLOAT16    with it: nor are the kernels of files whose element is bf16
//   -DWORKBOOK_INSTANCES           the book's own gates: everything is compiled, and every choice of a head dimension
//   is
//                                  noted, until a kernel has run with a second one: that ends the process
//   -DWORKBOOK_INSTANCES=123,456   only the choices with these numbers, as with a head dimension
//
// A choice is a call of with_head_dim with one d, whose work knows the tiles too. It is noted in the file that
// $WORKBOOK_INSTANCES_FILE names, a line each: its number, or "left out:", its number and the file of the call. Every
// launch notes its file too, and every call of a chapter's operations, with the number 0. (gates/instances.hpp)
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/cuda/asked.hpp"
#include "common/cuda/convert.hpp"
#include "common/simt/simulator.hpp"

namespace workbook::cuda {
namespace instances {

// The macro's numbers; without any, the 1 that the compiler gives it.
inline constexpr std::uint64_t kOnly[] = {WORKBOOK_INSTANCES};
inline constexpr bool kAll = std::size(kOnly) == 1 && kOnly[0] == 1;

/// A number for the call of with_head_dim with this work and d: the same in every build of the chapter.
template <int d, class Work>
constexpr std::uint64_t number_of() {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : std::string_view(__PRETTY_FUNCTION__)) hash = (hash ^ std::uint8_t(c)) * 1099511628211u;
  return hash;
}

template <int d, class Work>
constexpr bool is_compiled() {
  for (const std::uint64_t only : kOnly)
    if (only == d || only == number_of<d, Work>()) return true;
  return kAll;
}

/// A choice that is noted when its work is done.
struct Noted {
  std::uint64_t number;
  int d;
  std::size_t launches_before = simt::launches().size();
  static inline int d_of_first_launch = 0;

  ~Noted() {
    if (simt::launches().size() != launches_before) {
      if (d_of_first_launch == 0) d_of_first_launch = d;
      if (d_of_first_launch != d) std::_Exit(0);
    }
    note_asked(std::to_string(number), "");
  }
};

/// What work gives. (Asked of a d that is compiled where there is one: the others are then not even looked at.)
template <class Work>
constexpr int any_d() {
  return is_compiled<32, Work>() ? 32 : is_compiled<64, Work>() ? 64 : 128;
}
template <class Work>
using Result = std::invoke_result_t<Work&, std::integral_constant<int, any_d<Work>()>>;

template <int d, class Work>
Result<Work> call(Work& work, const char* file) {
  constexpr std::uint64_t number = number_of<d, Work>();
  if constexpr (!is_compiled<d, Work>()) {
    note_asked("left out: " + std::to_string(number), file);
    std::abort();
  } else if constexpr (kAll) {
    const Noted noted{number, d};
    return work(std::integral_constant<int, d>());
  } else {
    return work(std::integral_constant<int, d>());
  }
}

}  // namespace instances

template <class Work>
auto with_head_dim(std::int64_t d, Work work, const char* file = __builtin_FILE()) -> instances::Result<Work> {
  if (d == 32) return instances::call<32>(work, file);
  if (d == 64) return instances::call<64>(work, file);
  if (d == 128) return instances::call<128>(work, file);
  refuse_head_dim(d);
}

#ifdef WORKBOOK_WITHOUT_BFLOAT16
/// In place of the launch that goes on: once this is inlined, nothing names the kernel any more, and it is not
/// compiled.
template <class... Parameters, class... Arguments>
requires std::is_same_v<WORKBOOK_ELEMENT, __nv_bfloat16>
[[noreturn]] __attribute__((always_inline)) inline void launch(void (*)(Parameters...), const detail::Grid& grid, dim3,
                                                               std::size_t, Arguments&&...) {
  note_asked("left out: bf16", grid.file);
  std::abort();
}
#endif

}  // namespace workbook::cuda
