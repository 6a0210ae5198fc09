// A forward pass in the style of Hopper, on host memory: a producer that issues TMA loads, and consumers whose wgmma
// overlaps with their softmax (warp_specialised.cu). One of 13 mistakes can be planted in it.
#pragma once

#include "tests/simt/host_call.hpp"

namespace zoo {

/// The planted mistake. On an H200 eight of them give correct numbers and two hang; compute-sanitizer reports none of
/// them (notes/simulator.md).
enum class Planted {
  nothing,
  no_proxy_fence,
  no_wgmma_fence,
  no_wait_for_S,
  no_wait_for_O,
  K_released_early,
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
