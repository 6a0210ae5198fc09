// CUDA's qualifiers for a host compiler. A `__global__` function becomes an ordinary function that the simulator calls
// once per thread; nothing here knows how.
#pragma once

// NOLINTBEGIN(bugprone-reserved-identifier):
// CUDA's names begin with underscores.

#define __global__
#define __device__
#define __host__
#ifndef __forceinline__  // a build that shows who calls whom names another
#define __forceinline__ inline __attribute__((always_inline))
#endif
#if defined(__clang__)  // which warns of constants that nothing uses: says that these are
#define __launch_bounds__(...) __attribute__((annotate("launch bounds", __VA_ARGS__)))
#else
#define __launch_bounds__(...)
#endif
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __constant__ static const

// One operating-system thread runs one block at a time, and a block's threads never leave it: thread-local storage is
// per-block storage. At block scope `thread_local` implies static, as `__shared__` does. The names of the variables in
// reports are those of the TLS symbols.
#define __shared__ thread_local

// `__noinline__` is left alone: the standard library uses the same word in its attributes.
// NOLINTEND(bugprone-reserved-identifier)
