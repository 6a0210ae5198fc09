// Selects the kernels that a file is compiled with for the simulator, and records which of them were requested. Most of
// the compile time goes into kernels that a run with one head dimension never requests, and into sizes that the test of
// a wrong answer never requests, or requests only after the test has failed.
//
//   (nothing)                        everything is compiled
//   -DWORKBOOK_INSTANCES=64          `run`: only the choices of this head dimension; any other ends the process
//   -DWORKBOOK_INSTANCES=123,456     the book's own gates: only the choices with these numbers
//   -DWORKBOOK_WITHOUT_BFLOAT16      with either: no kernels of files whose element is bf16
//
// A choice is a call of with_head_dim with one d, whose work also determines the tiles. If $WORKBOOK_INSTANCES_FILE
// names a file, each choice writes a line to it: its number, or "left out:", its number and the calling file. Every
// launch records its file too, as does every call of a chapter's operations, with the number 0. A file that is compiled
// in full records choices until a kernel has run with a second head dimension, which ends the process.
// (gates/instances.hpp)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/cuda/convert.hpp"
#include "common/cuda/requested_kernels.hpp"

namespace workbook::cuda {
namespace instances {

/// The name of the call of with_head_dim with this work and d, the same in every build of the chapter.
template <int d, class Work>
constexpr std::string_view choice() {
  return __PRETTY_FUNCTION__;
}

#ifdef WORKBOOK_INSTANCES
inline constexpr std::uint64_t kOnly[] = {WORKBOOK_INSTANCES};
constexpr bool is_wanted(int d, std::string_view choice) {
  const std::uint64_t number = number_of(choice);
  for (const std::uint64_t only : kOnly)
    if (only == std::uint64_t(d) || only == number) return true;
  return false;
}
template <int d, class Work>
inline constexpr bool is_compiled = is_wanted(d, choice<d, Work>());
#else
template <int d, class Work>
inline constexpr bool is_compiled = true;
#endif

/// A d for which the result type of work is evaluated: a compiled one if there is one, so that the others are not
/// instantiated.
template <class Work, int least>
constexpr int any_d() {
  return least == 32 && is_compiled<32, Work> ? 32 : is_compiled<64, Work> ? 64 : 128;
}
template <class Work, int least>
using Result = std::invoke_result_t<Work&, std::integral_constant<int, any_d<Work, least>()>>;

template <int d, int least, class Work>
Result<Work, least> call(Work& work, const char* file) {
  if constexpr (!is_compiled<d, Work>) {
    refuse_left_out(choice<d, Work>(), file);
  } else {
#ifndef WORKBOOK_INSTANCES
    const NotedChoice noted(choice<d, Work>(), d);
#endif
    return work(std::integral_constant<int, d>());
  }
}

}  // namespace instances

template <int least = 32, class Work>
auto with_head_dim(std::int64_t d, Work work, const char* file = __builtin_FILE()) -> instances::Result<Work, least> {
  if constexpr (least == 32)
    if (d == 32) return instances::call<32, least>(work, file);
  if (d == 64) return instances::call<64, least>(work, file);
  if (d == 128) return instances::call<128, least>(work, file);
  refuse_head_dim(d, least);
}

#ifdef WORKBOOK_WITHOUT_BFLOAT16
/// Replaces the launch. Once this is inlined, no code refers to the kernel, and it is not compiled.
template <class... Parameters, class... Arguments>
requires std::is_same_v<WORKBOOK_ELEMENT, __nv_bfloat16>
[[noreturn]] __attribute__((always_inline)) inline void launch(void (*)(Parameters...), const detail::Grid& grid, dim3,
                                                               std::size_t, Arguments&&...) {
  note_request("left out: bf16", grid.file);
  std::abort();
}
#endif

}  // namespace workbook::cuda
