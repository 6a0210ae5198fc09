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

  void clear() {
    copies.clear();
    group_ends.clear();
  }
};

}  // namespace simt
