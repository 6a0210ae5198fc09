#include "common/worker/allocations.hpp"

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <mutex>

#include "common/worker/sealed.hpp"

namespace workbook::worker {
namespace {

/// A block of a call: its address, and its size with the number of the call. Neighbours on the heap are neighbours
/// here.
struct Block {
  std::uintptr_t address;  ///< 0: none
  std::uint64_t size_and_call;
};
constexpr unsigned kCallBits = 20;
constexpr std::uint64_t kLastCall = (1u << kCallBits) - 1;
constexpr std::size_t kBlocks = std::size_t(1) << 19;  // more at the same time are counted, and never given back
constexpr std::size_t kFullest = kBlocks / 4 * 3;

constexpr std::size_t kPage = 4096;

struct Pages {
  std::int64_t now, peak, kept, kept_before;
  std::uint64_t call, calls;  ///< the running one's number, 0 between calls; how many there were
  std::size_t used;           ///< blocks in the table
  bool sealed;
  alignas(kPage) Block blocks[kBlocks];
};
constexpr std::size_t kBytes = sizeof(Pages);

/// Zeros until it is written; only what is written is memory.
Pages& pages() {
  static Pages* const mapped = [] {
    while (true) {
      void* memory =
          ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED) std::abort();
      const auto address = reinterpret_cast<std::uintptr_t>(memory);
      if (address >> 32 == (address + kBytes) >> 32) return static_cast<Pages*>(memory);  // as the filter wants them
    }
  }();
  return *mapped;
}

std::mutex busy;  // operator new is called by all threads

/// While it lives, the sums can be written, and the places of the table from `first` to `last`; a `last` that lies
/// before `first` is beyond the table's end, where it begins again. Never the whole table: the system walks through
/// all pages that it opens, and a recursion that allocates would wait for it longer the deeper it is.
class Writing {
 public:
  Writing(std::size_t first, std::size_t last) : sealed_(pages().sealed), first_(first), last_(last) {
    if (sealed_) protect(PROT_READ | PROT_WRITE);
  }
  ~Writing() {
    if (sealed_) protect(PROT_READ);
  }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  void protect(int access) const {
    protect_pages(&pages(), offsetof(Pages, blocks), access);
    protect_places(first_, first_ <= last_ ? last_ : kBlocks - 1, access);
    if (last_ < first_) protect_places(0, last_, access);
  }
  static void protect_places(std::size_t first, std::size_t last, int access) {
    constexpr std::size_t a_page = kPage / sizeof(Block);
    static_assert(kPage % sizeof(Block) == 0);
    protect_pages(&pages().blocks[first / a_page * a_page], (last / a_page - first / a_page + 1) * kPage, access);
  }
  bool sealed_;
  std::size_t first_, last_;
};

/// No two blocks of a heap of 16 MB have the same one: the smallest take 32 bytes of it. With fewer places a long list
/// would be searched for each of its nodes.
std::size_t place_of(std::uintptr_t address) {
  return (address >> 5) % kBlocks;
}

/// The block's place in the table; kBlocks if it is not there.
std::size_t find(const void* block) {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const Pages& all = pages();
  if (all.used == 0) return kBlocks;
  for (std::size_t i = place_of(address); all.blocks[i].address != 0; i = (i + 1) % kBlocks)
    if (all.blocks[i].address == address) return i;
  return kBlocks;
}

/// The first place from `i` on that is empty.
std::size_t next_empty(std::size_t i) {
  while (pages().blocks[i].address != 0) i = (i + 1) % kBlocks;
  return i;
}

/// Empties a place, and moves what lies behind it because it was taken to where it belongs.
void empty(std::size_t i) {
  Block* blocks = pages().blocks;
  for (std::size_t j = (i + 1) % kBlocks; blocks[j].address != 0; j = (j + 1) % kBlocks) {
    const std::size_t wanted = place_of(blocks[j].address);
    const bool stays = i <= j ? i < wanted && wanted <= j : i < wanted || wanted <= j;
    if (stays) continue;
    blocks[i] = blocks[j];
    i = j;
  }
  blocks[i] = {0, 0};
}

}  // namespace

SealedPages count_pages() {
  return {&pages(), kBytes};
}

void begin_count(bool sealed) {
  const std::lock_guard lock(busy);
  Pages& all = pages();
  all.now = all.peak = 0;
  all.kept_before = all.kept;
  all.call = all.calls = all.calls % kLastCall + 1;
  all.sealed = sealed;
  if (sealed) protect_pages(&all, kBytes, PROT_READ);
}

Counted end_count() {
  const std::lock_guard lock(busy);
  Pages& all = pages();
  if (all.sealed) protect_pages(&all, kBytes, PROT_READ | PROT_WRITE);
  all.sealed = false;
  all.call = 0;
  all.kept += all.now;
  return {all.peak, all.kept_before};
}

void count_block(void* block, std::size_t size) {
  Pages& all = pages();
  if (all.call == 0 || block == nullptr) return;
  const std::lock_guard lock(busy);
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const std::size_t i = next_empty(place_of(address));
  const Writing writing(i, i);
  all.now += std::int64_t(size);
  if (all.now > all.peak) all.peak = all.now;
  if (all.used >= kFullest) return;
  all.blocks[i] = {address, size << kCallBits | all.call};
  ++all.used;
}

void forget_block(void* block) noexcept {
  Pages& all = pages();
  if (block == nullptr) return;
  const std::lock_guard lock(busy);
  const std::size_t i = find(block);
  if (i == kBlocks) return;
  const Writing writing(i, next_empty(i));
  const auto size = std::int64_t(all.blocks[i].size_and_call >> kCallBits);
  // Giving back what an earlier call kept changes nothing for the running one.
  const bool is_its_own = all.call != 0 && (all.blocks[i].size_and_call & kLastCall) == all.call;
  (is_its_own ? all.now : all.kept) -= size;
  empty(i);
  --all.used;
}

}  // namespace workbook::worker
