// The record of a launch with Options::trace, beyond its counters: the requests of each line of the kernel and its
// worst access to shared memory; and for block 0 the waits and the annotated values of rows. Internal. Without the
// option there is no tracer; callers test a pointer.
#pragma once

#include <map>
#include <utility>

#include "common/simt/execution.hpp"
#include "common/simt/global_memory.hpp"

namespace simt {

class Tracer {
 public:
  /// Runs `work` and attributes its changes of the block's counters to this code address.
  template <class Work>
  void count(Block& block, const void* pc, const Work& work) {
    const Counters before = sum(block);
    work();
    enter(block, pc, before);
  }
  /// An access to shared memory: `bytes` by each lane of `mask`, or 16-byte rows of a matrix. It is kept if it has more
  /// conflicts than all earlier ones at this code address. `lanes_per_wavefront`: lanes served by one wavefront.
  void consider(Block& block, const void* pc, const std::uint64_t* address, std::uint32_t mask, unsigned bytes,
                int lanes_per_wavefront, bool rows);

  /// A warp of block 0 starts to wait for `what`; no effect if the warp is already waiting there.
  void begin_wait(const Warp& warp, const void* pc, const std::string& what);
  void end_wait(const Warp& warp);
  /// A wait that is satisfied immediately.
  void pass_wait(const Warp& warp, const void* pc, const std::string& what) {
    begin_wait(warp, pc, what);
    end_wait(warp);
  }

  /// A TMA load is issued in block 0. Returns the argument for end_copy() at its completion.
  std::size_t begin_copy(const Lane& lane, const std::string& what, const std::string& barrier);
  void end_copy(const Block& block, std::size_t flight) {
    flights_[flight - 1].end = time_;
    flights_[flight - 1].last_interval = block.intervals.size();
  }

  /// The current value of a row in block 0.
  void note_value(const Block& block, const char* label, long long row, float value);

  /// Ends an interval in block 0, because a tile has arrived. Work of the warps since their last synchronisation may be
  /// counted in the next interval.
  void cut(Block& block);
  /// The number of registers of block 0's warps after setmaxnreg.
  void note_registers(const Block& block, int registers) {
    if (block.number == 0) registers_ = registers;
  }

  /// Adds this tracer's data to the launch's record.
  void merge_into(Launch& launch) const;

 private:
  struct PlacedWait {
    const void* pc;
    Wait wait;
  };
  static Counters sum(const Block& block);
  void enter(const Block& block, const void* pc, const Counters& before);

  std::map<const void*, TracedLine> lines_;  ///< source lines not resolved
  std::vector<PlacedWait> waits_;
  std::map<int, std::size_t> waiting_;  ///< by warp: index into waits_
  std::uint32_t time_ = 0;
  std::vector<Flight> flights_;
  std::vector<NotedValue> values_;
  int registers_ = 0;
};

/// Runs `work`; with a tracer, attributed to this code address.
template <class Work>
void count_at(Block& block, const void* pc, const Work& work) {
  if (block.tracer == nullptr) [[likely]]
    return work();
  block.tracer->count(block, pc, work);
}

}  // namespace simt
