// What a launch with Options::trace records beside its counters: what each line of the kernel asks of memory, its worst
// access to shared memory, and in block 0 who waits for what and what values rows have. Internal. Without the option
// there is no tracer, and who would call it tests a pointer.
#pragma once

#include <map>
#include <utility>

#include "common/simt/execution.hpp"
#include "common/simt/global_memory.hpp"

namespace simt {

class Tracer {
 public:
  /// Does `work`, and enters what it adds to the block's counters for this place in the code.
  template <class Work>
  void count(Block& block, const void* pc, const Work& work) {
    const Counters before = sum(block);
    work();
    enter(block, pc, before);
  }
  /// One access to shared memory of `bytes` by each lane of `mask`, or of 16-byte rows of a matrix; kept if none at
  /// this place has had more conflicts. `lanes_at_once`: of those that one pass serves.
  void consider(Block& block, const void* pc, const std::uint64_t* address, std::uint32_t mask, unsigned bytes,
                int lanes_at_once, bool rows);

  /// A warp of block 0 begins to wait, for `what`; for one that waits there already nothing happens.
  void begin_wait(const Warp& warp, const void* pc, const std::string& what);
  void end_wait(const Warp& warp);
  /// A wait that ends at once.
  void pass_wait(const Warp& warp, const void* pc, const std::string& what) {
    begin_wait(warp, pc, what);
    end_wait(warp);
  }

  /// A copy by TMA to shared memory starts in block 0; what end_copy() is given when it has landed.
  std::size_t begin_copy(const Lane& lane, const std::string& what, const std::string& barrier);
  void end_copy(const Block& block, std::size_t flight) {
    flights_[flight - 1].end = time_;
    flights_[flight - 1].last_interval = block.intervals.size();
  }

  /// A row's value at this time, in block 0.
  void note_value(const Block& block, const char* label, long long row, float value);

  /// In block 0 an interval ends here too: a tile has arrived. What warps did since they last met may count in the
  /// next.
  void cut(Block& block);
  /// So many registers do block 0's warps have, after setmaxnreg.
  void note_registers(const Block& block, int registers) {
    if (block.number == 0) registers_ = registers;
  }

  /// Adds what this tracer saw to the launch's record.
  void merge_into(Launch& launch) const;

 private:
  struct PlacedWait {
    const void* pc;
    Wait wait;
  };
  static Counters sum(const Block& block);
  void enter(const Block& block, const void* pc, const Counters& before);

  std::map<const void*, TracedLine> lines_;  ///< without their sources
  std::vector<PlacedWait> waits_;
  std::map<int, std::size_t> waiting_;  ///< by warp: which of waits_
  std::uint32_t time_ = 0;
  std::vector<Flight> flights_;
  std::vector<NotedValue> values_;
  int registers_ = 0;
};

/// Does `work`; with a tracer, for this place in the code.
template <class Work>
void count_at(Block& block, const void* pc, const Work& work) {
  if (block.tracer == nullptr) [[likely]]
    return work();
  block.tracer->count(block, pc, work);
}

}  // namespace simt
