// Calls that the simulator runs without counting and checking, for tests that need more blocks than it observes in
// reasonable time.
#pragma once

#if !defined(__CUDACC__)
#include "common/simt/simulator.hpp"
#endif

namespace workbook::cuda {

/// While it lives, the simulator neither counts nor checks, which takes less than half of the time; if `unobserved` is
/// more than 1, of each launch only so many first and so many last blocks run. 0: as ever. Nothing on the GPU.
class Unobserved {
 public:
  explicit Unobserved([[maybe_unused]] long long unobserved) {
#if !defined(__CUDACC__)
    simt::options().count = simt::options().detect = unobserved == 0;
    simt::options().ends = unobserved > 1 ? unobserved : 0;
#endif
  }
  ~Unobserved() {
#if !defined(__CUDACC__)
    simt::options().count = simt::options().detect = true;
    simt::options().ends = 0;
#endif
  }
  Unobserved(const Unobserved&) = delete;
  Unobserved& operator=(const Unobserved&) = delete;
};

}  // namespace workbook::cuda
