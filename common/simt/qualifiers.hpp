// CUDA's qualifiers for a host compiler. A `__global__` function becomes an ordinary function that the simulator calls
// once per thread.
#pragma once

// NOLINTBEGIN(bugprone-reserved-identifier):
// CUDA's names begin with underscores.

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#if defined(__clang__)  // clang++ warns of unused constants: the annotation uses them
#define __launch_bounds__(...) __attribute__((annotate("launch bounds", __VA_ARGS__)))
#else
#define __launch_bounds__(...)
#endif
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __constant__ static const

// One operating-system thread runs one block at a time, and the threads of a block never migrate: thread-local storage
// is per-block storage. At block scope `thread_local` implies static, as `__shared__` does. Reports take the names of
// the variables from the TLS symbols.
#define __shared__ thread_local

// `__noinline__` is not redefined: the standard library uses the same word in its attributes.
// NOLINTEND(bugprone-reserved-identifier)
