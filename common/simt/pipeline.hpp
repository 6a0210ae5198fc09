// cp.async through CUDA's pipeline primitives (cuda_pipeline.h).
#pragma once

// NOLINTBEGIN(bugprone-reserved-identifier):
// CUDA's names begin with underscores.

#include <cstddef>

#include "common/simt/qualifiers.hpp"
#include "common/simt/runtime.hpp"

/// Copies `size` (4, 8 or 16) bytes from global to shared memory. The last `zero_fill` bytes are not read but filled
/// with zeros.
__forceinline__ void __pipeline_memcpy_async(void* __restrict__ shared, const void* __restrict__ global,
                                             std::size_t size, std::size_t zero_fill = 0) {
  simt::copy_async(shared, global, size, zero_fill);
}
/// Commits the preceding copies as a group.
__forceinline__ void __pipeline_commit() {
  simt::copy_async_commit();
}
/// Waits until all committed groups of this thread except the newest `groups` are complete.
__forceinline__ void __pipeline_wait_prior(std::size_t groups) {
  simt::copy_async_wait(groups);
}
// NOLINTEND(bugprone-reserved-identifier)
