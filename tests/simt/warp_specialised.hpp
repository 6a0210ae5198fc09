// The forward pass as Hopper wants it, on host memory: a producer that starts copies, and consumers that multiply by
// wgmma while their softmax goes on (warp_specialised.cu). One mistake of 13 can be planted in it.
#pragma once

#include "tests/simt/book_kernels.hpp"

namespace zoo {

/// What is wrong with the kernel. On an H200 eight of them give right numbers and two hang; compute-sanitizer says
/// nothing to any (notes/simulator.md).
enum class Planted {
  nothing,
  no_proxy_fence,
  no_wgmma_fence,
  no_wait_for_S,
  no_wait_for_O,
  K_left_early,
  tiles_at_512,
  O_not_swizzled,
  no_barrier_before_store,
  no_wait_for_store,
  section_forgotten,
  no_init_fence,
  wrong_parity_hangs,
  one_stage_hangs,
};
inline constexpr int kPlanted = 14;
const char* name(Planted planted);

/// d = 64 or 128.
HostResult warp_specialised(const HostCall& call, Planted planted = Planted::nothing);

}  // namespace zoo
