// Selects the kernels that a file is compiled with for the simulator: most of the compile time goes into kernels that a
// run with one head dimension never launches.
//
//   (nothing)                        everything is compiled
//   -DWORKBOOK_HEAD_DIM=64           `run`: only this head dimension; any other ends the process
//   -DWORKBOOK_WITHOUT_BFLOAT16      with it: no kernels of files whose element is bf16
#pragma once

#include <cstdint>
#include <cstdlib>
#include <type_traits>

#include "common/cuda/convert.hpp"

namespace workbook::cuda {
namespace instances {

#ifdef WORKBOOK_HEAD_DIM
template <int d>
inline constexpr bool is_compiled = d == WORKBOOK_HEAD_DIM;
/// A d for which the result type of work is evaluated, so that the others are not instantiated.
template <int least>
inline constexpr int any_d = WORKBOOK_HEAD_DIM < least ? least : WORKBOOK_HEAD_DIM;
#else
template <int d>
inline constexpr bool is_compiled = true;
template <int least>
inline constexpr int any_d = least;
#endif

template <int least, class Work>
using Result = std::invoke_result_t<Work&, std::integral_constant<int, any_d<least>>>;

template <int d, int least, class Work>
Result<least, Work> call(Work& work) {
  if constexpr (is_compiled<d>)
    return work(std::integral_constant<int, d>());
  else
    std::abort();
}

}  // namespace instances

template <int least = 32, class Work>
auto with_head_dim(std::int64_t d, Work work) -> instances::Result<least, Work> {
  if constexpr (least == 32)
    if (d == 32) return instances::call<32, least>(work);
  if (d == 64) return instances::call<64, least>(work);
  if (d == 128) return instances::call<128, least>(work);
  refuse_head_dim(d, least);
}

#ifdef WORKBOOK_WITHOUT_BFLOAT16
/// Replaces the launch. Once this is inlined, no code refers to the kernel, and it is not compiled.
template <class... Parameters, class... Arguments>
requires std::is_same_v<WORKBOOK_ELEMENT, __nv_bfloat16>
[[noreturn]] __attribute__((always_inline)) inline void launch(void (*)(Parameters...), dim3, dim3, std::size_t,
                                                               Arguments&&...) {
  std::abort();
}
#endif

}  // namespace workbook::cuda
