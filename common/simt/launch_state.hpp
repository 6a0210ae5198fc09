// The state of a running launch that its operating-system threads share. Internal.
#pragma once

#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "common/simt/execution.hpp"
#include "common/simt/simulator.hpp"

namespace simt {

/// A variable and the accessed part of it.
struct Variable {
  std::string name, part;
};

/// An error as detected, with code addresses; they are resolved to source lines when the launch has ended.
struct Finding {
  struct Side {
    const void* pc = nullptr;  ///< a return address
    const char* action = "";   ///< what the instruction does
    int warp = -1;
    std::uint32_t lanes = 0;
    SourceLine source = {};  ///< used if there is no pc
  };
  Mistake mistake;
  Side side, other;
  Variable variable;
  std::string what, advice;
  std::uint64_t block = 0;  ///< number in the grid
};

/// The findings of a launch, without duplicates: findings of the same kind at the same code addresses in the same
/// variable are one error.
class Findings {
 public:
  void add(Finding finding);
  /// As reports, sorted by file and line.
  std::vector<Report> reports(dim3 grid) const;
  bool empty() const { return found_.empty(); }

 private:
  struct Key {  ///< without the part of the variable: one loop over a tile is one error
    Mistake mistake;
    const void *pc, *other_pc;
    int line, other_line;
    std::string variable;
    auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr): there is none
  };
  struct Entry {
    Finding first;
    std::uint64_t count = 0;
  };
  std::mutex mutex_;
  std::map<Key, Entry> found_;
};

/// A bulk reduction that its block did not wait for: the addends, kept until the end of the launch.
struct LateSum {
  std::uint64_t block;
  std::uintptr_t to;
  std::vector<std::byte> floats;
};

/// What a block has signalled (visibility.hpp): the threads whose writes were visible to the device then, and those
/// whose writes were not.
struct Signalled {
  std::bitset<kMaxThreads> visible, invisible;
};

/// State shared by the operating-system threads of a launch.
struct LaunchState {
  dim3 grid, block;
  std::size_t shared_bytes;
  void (*body)(void*);
  void* parameters;
  std::size_t parameter_bytes;
  Options options;
  bool observing;  ///< accesses are counted
  bool detecting;  ///< races and uninitialised reads are detected
  std::uint64_t block_count;
  std::atomic<std::uint64_t> next_block{0};
  Findings findings;
  std::atomic<std::uint64_t> changes{0};         ///< number of changes that may unblock another block
  std::mutex mutex;                              ///< protects the following members
  std::size_t running = 0;                       ///< number of operating-system threads that run a block
  std::map<std::uint64_t, std::string> polling;  ///< blocks that have only polled a location since the last change
  std::uint64_t looking_since = 0;
  int rounds = 0;
  bool stuck = false;                            ///< all running blocks do
  std::string open_exercise;                     ///< empty: none was met
  std::map<std::uint64_t, Signalled> signalled;  ///< by block
  std::map<std::uintptr_t, BlockSet> signals;    ///< by address: blocks whose signals its readers have seen
  std::vector<LateSum> late_sums;
  std::size_t late_bytes = 0;
  std::exception_ptr failure;  ///< of the simulator, which ends the launch
  Launch result;

  /// Records the exception that is being handled, and begins no further block.
  void fail() {
    next_block = block_count;
    const std::lock_guard<std::mutex> lock(mutex);
    failure = std::current_exception();
  }
};

/// Set by interrupt().
extern std::atomic<bool> interrupted;

/// Adds the remaining bulk reductions in an order determined by the seed (bulk_copies.cpp).
void add_late_sums(LaunchState& launch);

}  // namespace simt
