// Calls that the simulator runs without counting and checking, for tests with more thread blocks than it can observe in
// reasonable time.
#pragma once

#if !defined(__CUDACC__)
#include "common/simt/simulator.hpp"
#endif

namespace workbook::cuda {

/// During its lifetime, the simulator neither counts nor checks, which more than halves its time. If `unobserved`
/// exceeds 1, only the first `unobserved` and the last `unobserved` thread blocks of each launch run. 0: no effect. No
/// effect on the GPU.
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
