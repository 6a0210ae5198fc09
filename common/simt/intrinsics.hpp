// CUDA's built-in functions: arithmetic, barriers, shuffles, votes, atomics; printf and assert.
#pragma once

#include <cassert>
#include <cstdio>

#include "common/simt/atomics.hpp"
#include "common/simt/bfloat16.hpp"
#include "common/simt/half.hpp"
#include "common/simt/math.hpp"
#include "common/simt/warp.hpp"

/// A load through the read-only data cache: an ordinary load here.
template <class T>
__forceinline__ T __ldg(const T* address) {  // NOLINT(bugprone-reserved-identifier): CUDA's name
  return *address;
}

// printf is the host's. assert reports the line, block and thread, and ends the thread.
#undef assert
#define assert(condition) ((condition) ? (void)0 : ::simt::assertion_failed(#condition, ::simt::Where::current()))
