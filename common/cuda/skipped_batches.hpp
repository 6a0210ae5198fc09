// Calls whose tensors begin far before the memory that they have, for tests with more than 2^32 elements per tensor.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "common/cuda/calls.hpp"

#if !defined(__CUDACC__)
#include "common/simt/simulator.hpp"
#endif

namespace workbook::cuda {

/// `skipped` batches that precede the B batches of a call. The kernels receive a shape of skipped + B batches. During
/// this object's lifetime, the simulator skips the thread blocks of the first ones, and no memory is allocated for
/// them. This requires grids in which each batch has equally many consecutive thread blocks. 0: no effect. Throws
/// std::invalid_argument on the GPU, which cannot skip thread blocks.
class SkippedBatches {
 public:
  SkippedBatches(long long skipped, const Setting& setting) : skipped_(skipped), setting_(setting) {
    setting_.shape.B = skipped;
    if (skipped == 0) return;
#if defined(__CUDACC__)
    throw std::invalid_argument("skipped_batches: only the simulator skips thread blocks");
#else
    simt::options().skipped = std::uint64_t(skipped);
    simt::options().of = std::uint64_t(skipped + setting.shape.B);
#endif
  }
  ~SkippedBatches() {
#if !defined(__CUDACC__)
    simt::options().skipped = 0;
#endif
  }
  SkippedBatches(const SkippedBatches&) = delete;
  SkippedBatches& operator=(const SkippedBatches&) = delete;

  /// The call with all batches.
  template <class Element>
  ForwardCall<Element> extend(ForwardCall<Element> call) const {
    const Shape& shape = setting_.shape;
    call.shape.B += skipped_;
    move(shape.q_size(), call.Q, call.O), move(shape.kv_size(), call.K, call.V), move(shape.lse_size(), call.lse);
    return call;
  }
  template <class Element, class Gradient>
  BackwardCall<Element, Gradient> extend(BackwardCall<Element, Gradient> call) const {
    const Shape& shape = setting_.shape;
    call.shape.B += skipped_;
    move(shape.q_size(), call.Q, call.O, call.dO, call.dQ), move(shape.kv_size(), call.K, call.V, call.dK, call.dV);
    move(shape.lse_size(), call.lse);
    return call;
  }
  /// The setting of the skipped batches alone; B is 0 without any.
  const Setting& setting() const {
    return setting_;
  }

 private:
  template <class... T>
  static void move(std::int64_t elements, T*&... arrays) {
    ((arrays = reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(arrays) - std::uintptr_t(elements) * sizeof(T))),
     ...);
  }
  long long skipped_;
  Setting setting_;
};

}  // namespace workbook::cuda
