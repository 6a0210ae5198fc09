// The header of every kernel file: includes CUDA's headers under nvcc, and the simulator's under any other compiler.
// The same source is compiled for both, in separate build folders. In addition to CUDA itself it uses four names of
// namespace workbook::cuda, where the two need different code:
//
//   launch(kernel, grid, block, shared_bytes, arguments…)      instead of <<<>>>                        launch.hpp
//   dynamic_shared<Smem>(), dynamic_shared_array<float>()      instead of extern __shared__
//   exp2_ftz(x), and the instructions of ptx.hpp               instead of inline PTX                    ptx.hpp
//   note("masked tile", j), note_value("m", row, m)            annotations for the trace; nothing on the GPU
//
// and SHARED_LAYOUT within a struct of shared memory, which names its members for the simulator
// (common/simt/shared.hpp). Independent of attention.
#pragma once

#if defined(__CUDACC__)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>
#include <math_constants.h>
#include <mma.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#define SHARED_LAYOUT(...) static_assert(true)

namespace workbook::cuda {

/// The thread block's dynamic shared memory as a T. The launch must provide sizeof(T) bytes.
template <class T>
__device__ __forceinline__ T& dynamic_shared() {
  if constexpr (alignof(T) > 128) {  // tiles that TMA loads with a swizzle
    static_assert(alignof(T) <= 1024);
    extern __shared__ __align__(1024) unsigned char workbook_aligned_shared[];
    return *reinterpret_cast<T*>(workbook_aligned_shared);
  } else {
    extern __shared__ __align__(128) unsigned char workbook_dynamic_shared[];
    return *reinterpret_cast<T*>(workbook_dynamic_shared);
  }
}
/// The same as an array of T that covers all bytes provided by the launch.
template <class T>
__device__ __forceinline__ T* dynamic_shared_array() {
  extern __shared__ __align__(128) unsigned char workbook_dynamic_shared[];
  return reinterpret_cast<T*>(workbook_dynamic_shared);
}

__device__ __forceinline__ void note(const char*, long long) {}
__device__ __forceinline__ void note_value(const char*, long long, float) {}

}  // namespace workbook::cuda

#else

#include <cstddef>
#include <cstdint>

#include "common/simt/cuda.hpp"

namespace workbook::cuda {

template <class T>
__forceinline__ T& dynamic_shared() {
  return simt::shared_struct<T>();
}
template <class T>
__forceinline__ T* dynamic_shared_array() {
  return static_cast<T*>(simt::dynamic_shared(0, nullptr));
}
inline void note(const char* label, long long value) {
  simt::note(label, value);
}
/// Records a row's current value, held in a register. The page of `./workbook trace` shows the values of thread block 0
/// over time.
inline void note_value(const char* label, long long row, float value) {
  simt::note_value(label, row, value);
}

}  // namespace workbook::cuda

#endif

#include "common/cuda/launch.hpp"
#include "common/cuda/open_exercise.hpp"
#include "common/cuda/ptx.hpp"

namespace workbook::cuda {

/// 2^x in one instruction; results below 2^-126 become 0.
__device__ __forceinline__ float exp2_ftz(float x) {
  return ex2_approx_ftz(x);
}

}  // namespace workbook::cuda

#ifndef __CUDACC__
// From here on, in a chapter's own files, __forceinline__ does not force inlining on the simulator. A phase shared by
// four kernels is then compiled once instead of into each kernel, which halves the compile time. Source locations and
// access counts do not change. The functions above are mostly one call each and remain forced.
#undef __forceinline__
#define __forceinline__ inline  // NOLINT(bugprone-reserved-identifier): CUDA's name
#endif
