// CUDA's qualifiers for a host compiler. A `__global__` function becomes an ordinary function that the simulator calls
// once per thread; nothing here knows how.
#pragma once

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __constant__ static const

// One operating-system thread runs one block at a time, and a block's threads never leave it: thread-local storage is
// per-block storage. At block scope `thread_local` implies static, as `__shared__` does. The names of the variables in
// reports are those of the TLS symbols.
#define __shared__ thread_local

// `__noinline__` is left alone: the standard library uses the same word in its attributes.
