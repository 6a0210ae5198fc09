// Times a stage of attention on the device: the operation "bench" of every stage of kernels (stage.hpp). The inputs are
// generated on the device. Calls rotate through several sets of tensors that together exceed L2, so that no call finds
// its inputs there. The caller receives part of one set with its results and checks them, since a time is valid only
// with correct results. Extra memory is allocated once, after the sets.
//
// On the simulator the stage runs once, for its counters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "common/cuda/operations.hpp"

namespace workbook::cuda {

/// A tensor on the device, of elements of 2 or 4 bytes.
struct TensorOnDevice {
  const void* data = nullptr;
  std::size_t elements = 0, element_bytes = 0;
};
/// Copies the last `elements` of a tensor to the call's output `name`. Throws Error if an element of the tensor was
/// never written.
void give_back_rows(const Arguments& call, const char* name, const TensorOnDevice& tensor, std::size_t elements);

/// Times work(i), i = 0, 1, …, after three warm-up calls, and fills the whole output "seconds" of a call.
void time_calls(const Arguments& call, const std::function<void(int)>& work);

/// A stage to be timed, with sets of its tensors.
class TimedStage {
 public:
  virtual ~TimedStage() = default;
  /// Bytes of one set.
  virtual std::size_t set_bytes(const Shape& shape) const = 0;
  /// Allocates another set.
  virtual void add_set(const Setting& setting, std::uint64_t seed) = 0;
  /// Marks the sets as complete: memory allocated from here on is the stage's.
  virtual void prepare(const Setting& setting) = 0;
  /// Starts the stage on one set, without waiting for it.
  virtual void launch(std::size_t set) = 0;
  /// Returns the last `rows` rows of the first set, with the inputs they are computed from.
  virtual void give_back(const Arguments& call, std::int64_t rows) = 0;
};

/// Times a stage. The call has the numbers of Arguments::setting(), and
///   budget    total seconds for the timed calls, of which there are at least 3 (default 0.2)
///   rows      number of rows of the last head that are returned for a check (default 0: none)
///   profile   1: no timing; one call runs under the profiler
/// and the output seconds, which receives the times of as many calls as the budget allows, from the front.
void time_stage(const Arguments& call, TimedStage& stage);

}  // namespace workbook::cuda
