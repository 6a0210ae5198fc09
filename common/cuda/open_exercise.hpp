// WORKBOOK_TODO in kernel files. On the host it throws, as elsewhere. In a kernel it records the exercise and ends the
// thread; then the launch (simulator) or the next synchronize() (GPU) throws the same exception.
#pragma once

#include "common/cuda/todo.hpp"
#if defined(__CUDACC__)
#include "common/cuda/ptx.hpp"
#endif

namespace workbook::cuda {

#if defined(__CUDACC__)

/// One per file, registered by the launches of this file (launch.hpp).
static __device__ char open_exercise_id[32];

[[noreturn]] inline __host__ __device__ void open_exercise(const char* id) {
#if defined(__CUDA_ARCH__)
  for (int i = 0; i < 31; ++i) {
    open_exercise_id[i] = id[i];
    if (id[i] == 0) break;
  }
  __threadfence_system();
  exit_thread();
#else
  throw Todo(id);
#endif
}

#else

[[noreturn]] inline void open_exercise(const char* id) {
  if (simt::in_kernel()) simt::end_thread_open(id);
  throw Todo(id);
}

#endif

}  // namespace workbook::cuda

#undef WORKBOOK_TODO
/// A macro, so that the id can be written as a number; the preprocessor turns 4.4 into "4.4".
#define WORKBOOK_TODO(id) ::workbook::cuda::open_exercise(#id)
