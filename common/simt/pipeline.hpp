// cp.async through CUDA's pipeline primitives (cuda_pipeline.h).
#pragma once

// NOLINTBEGIN(bugprone-reserved-identifier):
// CUDA's names begin with underscores.

#include <cstddef>

#include "common/simt/qualifiers.hpp"
#include "common/simt/runtime.hpp"

/// Copies `size` (4, 8 or 16) bytes from global to shared memory, the last `zero_fill` of them zeros that are not read.
__forceinline__ void __pipeline_memcpy_async(void* __restrict__ shared, const void* __restrict__ global,
                                             std::size_t size, std::size_t zero_fill = 0) {
  simt::copy_async(shared, global, size, zero_fill);
}
/// Ends a group of copies.
__forceinline__ void __pipeline_commit() {
  simt::copy_async_commit();
}
/// Waits until all of this thread's groups but the last `groups` have arrived.
__forceinline__ void __pipeline_wait_prior(std::size_t groups) {
  simt::copy_async_wait(groups);
}
// NOLINTEND(bugprone-reserved-identifier)
