// One launch while it runs: what its operating-system threads share. Internal.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "common/simt/simulator.hpp"

namespace simt {

/// A variable, and which part of it.
struct Variable {
  std::string name, part;
};

/// A mistake as it is noticed: addresses in the code, resolved only when the launch has ended.
struct Finding {
  struct Side {
    const void* pc = nullptr;  ///< a return address
    const char* action = "";   ///< what it does
    int warp = -1;
    std::uint32_t lanes = 0;
    SourceLine source = {};  ///< where there is no pc
  };
  Mistake mistake;
  Side side, other;
  Variable variable;
  std::string what, advice;
  std::uint64_t block = 0;  ///< number in the grid
};

/// The findings of a launch, each mistake once: the same kind at the same places in the same variable is one.
class Findings {
 public:
  void add(Finding finding);
  /// As reports, sorted by file and line.
  std::vector<Report> reports(dim3 grid) const;
  bool empty() const { return found_.empty(); }

 private:
  struct Key {  ///< not the part of the variable: one loop over a tile is one mistake
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

/// What an adding store by TMA leaves behind when its block ends before anybody has waited for it.
struct LateSum {
  std::uint64_t block;
  std::uintptr_t to;
  std::vector<std::byte> floats;
};

/// Everything that the operating-system threads of a launch need.
struct LaunchState {
  dim3 grid, block;
  std::size_t shared_bytes;
  void (*body)(void*);
  void* parameters;
  std::size_t parameter_bytes;
  Options options;
  bool observing;  ///< accesses are counted
  bool detecting;  ///< races and uninitialised reads are looked for
  std::uint64_t block_count;
  std::atomic<std::uint64_t> next_block{0};
  Findings findings;
  std::atomic<std::uint64_t> changes{0};         ///< by which one block may let another go on
  std::mutex mutex;                              ///< of what follows
  std::size_t running = 0;                       ///< operating-system threads that have a block
  std::map<std::uint64_t, std::string> looking;  ///< blocks that only look at a place since that many changes
  std::uint64_t looking_since = 0;
  int rounds = 0;
  bool stuck = false;         ///< all of them do
  std::string open_exercise;  ///< empty: none was met
  std::vector<LateSum> late_sums;
  std::size_t late_bytes = 0;
  Launch result;
};

/// Adds what was left behind, in an order that the seed decides (bulk_copies.cpp).
void add_late_sums(LaunchState& launch);

}  // namespace simt
