// Calls that the simulator runs without counting and checking, for tests that need more blocks than it observes in
// reasonable time.
#pragma once

#if !defined(__CUDACC__)
#include "common/simt/simulator.hpp"
#endif

namespace workbook::cuda {

/// While it lives, the simulator neither counts nor checks, which takes less than half of the time. Nothing on the GPU.
class Unobserved {
 public:
  explicit Unobserved([[maybe_unused]] bool unobserved) {
#if !defined(__CUDACC__)
    simt::options().count = simt::options().detect = !unobserved;
#endif
  }
  ~Unobserved() {
#if !defined(__CUDACC__)
    simt::options().count = simt::options().detect = true;
#endif
  }
  Unobserved(const Unobserved&) = delete;
  Unobserved& operator=(const Unobserved&) = delete;
};

}  // namespace workbook::cuda
