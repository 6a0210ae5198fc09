// Timing a stage of attention on the device: what the operation "bench" of every stage of kernels consists of
// (stage.hpp). The inputs are made on the device; several sets of them, together larger than L2, are used in turn, so
// that no call finds its inputs there. Who asks for it gets back a part of one set with its results, and can check
// them: a time counts only with a right answer. Extra memory is allocated after the sets, once.
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

/// Times work(i), i = 0, 1, …, into the whole output "seconds" of a call, after three calls that do not count.
void time_calls(const Arguments& call, const std::function<void(int)>& work);

/// What a stage is timed on: sets of its tensors, and itself.
class TimedStage {
 public:
  virtual ~TimedStage() = default;
  /// Bytes of one set.
  virtual std::size_t set_bytes(const Shape& shape) const = 0;
  /// Makes one set more.
  virtual void add_set(const Setting& setting, std::uint64_t seed) = 0;
  /// The sets are made: what is allocated from here on is the stage's.
  virtual void prepare(const Setting& setting) = 0;
  /// The stage on one set, without waiting for it.
  virtual void launch(std::size_t set) = 0;
  /// Gives back the last `rows` rows of the first set, with what they are computed from.
  virtual void give_back(const Arguments& call, std::int64_t rows) = 0;
};

/// Times a stage. The call has the numbers of Arguments::setting(), and
///   budget    seconds that the timed calls may take together; there are at least 3 of them (default 0.2)
///   rows      how many rows of the last head are given back for a check (default 0: none)
///   profile   1: no timing, one call is made under the profiler's eyes
/// and the output seconds, filled with the time of each call from the front, as many as the budget allows.
void time_stage(const Arguments& call, TimedStage& stage);

}  // namespace workbook::cuda
