// The cp.async copies that one thread has under way. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace simt {

/// One copy of 4, 8 or 16 bytes into shared memory.
struct AsyncCopy {
  std::uintptr_t to, from;
  std::uint8_t size, zero_fill;  ///< bytes; the last zero_fill of them are zeros
  const void* pc;
};

/// In the order of issue, with the ends of the committed groups.
struct AsyncCopies {
  std::vector<AsyncCopy> copies;
  std::vector<std::uint32_t> group_ends;  ///< number of copies at each commit

  /// How many groups are newer than the one that writes to this address: 0 for the newest; -1 if it is in none.
  int groups_after(std::uintptr_t address) const {
    std::size_t index = copies.size();  // of the newest copy to there
    while (index > 0 && address - copies[index - 1].to >= copies[index - 1].size) --index;
    int newer = -1;
    for (const std::uint32_t end : group_ends) newer += index <= end;
    return newer;
  }

  void clear() {
    copies.clear();
    group_ends.clear();
  }
};

}  // namespace simt
