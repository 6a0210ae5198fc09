// What an operation allocates, to the byte. The sums, and the size of every block, lie in pages of their own, which can
// be written only while the count itself is at work: code that writes where it likes ends there, and does not change
// them. Knows nothing of operations.
#pragma once

#include <cstddef>
#include <cstdint>

namespace workbook::worker {

/// Where the pages lie that only the count may write, and how many bytes they have.
struct SealedPages {
  void* begin;
  std::size_t bytes;
};
SealedPages count_pages();

/// From now on blocks are counted for this call. `sealed`: the pages can be written only while a block is counted,
/// which takes two calls of the system for each.
void begin_count(bool sealed);

struct Counted {
  std::int64_t peak;         ///< the most that the call has had, in bytes
  std::int64_t kept_before;  ///< what earlier calls had left when it began
};
Counted end_count();

/// A block that operator new has got, and one that operator delete is about to give back. Of other blocks than those of
/// a call, nothing is kept.
void count_block(void* block, std::size_t size);
void forget_block(void* block) noexcept;

}  // namespace workbook::worker
