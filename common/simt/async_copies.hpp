// The cp.async copies that one thread has in flight. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace simt {

/// One copy of 4, 8 or 16 bytes into shared memory.
struct AsyncCopy {
  std::uintptr_t to, from;
  std::uint8_t size, zero_fill;  ///< in bytes; the last zero_fill bytes are filled with zeros
  const void* pc;
};

/// Copies in the order of issue, and the end index of each committed group.
struct AsyncCopies {
  std::vector<AsyncCopy> copies;
  std::vector<std::uint32_t> group_ends;  ///< number of copies at each commit
  std::size_t complete = 0;               ///< number of groups that the thread has waited for

  /// The number of committed groups after the group that writes to this address: 0 for the newest group; -1 if the copy
  /// is in no group.
  int groups_after(std::uintptr_t address) const {
    std::size_t index = copies.size();  // past the newest copy that writes there
    while (index > 0 && address - copies[index - 1].to >= copies[index - 1].size) --index;
    int newer = -1;
    for (const std::uint32_t end : group_ends) newer += index <= end;
    return newer;
  }
  /// Whether more groups of this thread are complete than precede the copy of `other` that writes to this address. If
  /// all threads copy alike, this thread has waited for its own copies of that group.
  bool waited_for(const AsyncCopies& other, std::uintptr_t address) const {
    const int newer = other.groups_after(address);
    return complete + std::size_t(newer + 1) > other.complete + other.group_ends.size();
  }

  void clear() {
    copies.clear();
    group_ends.clear();
    complete = 0;
  }
};

}  // namespace simt
