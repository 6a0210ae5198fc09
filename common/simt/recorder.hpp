// Groups the accesses of a warp's lanes into warp instructions. Internal.
//
// Lanes run one after another, so the accesses of one warp instruction are far apart in time. Accesses of two lanes
// belong together if both are the k-th execution of one code address since the warp's last rendezvous. A lane on the
// same path as the lanes before it finds its record next to its previous one. A lane that skips a few records, as 31
// lanes do where one lane writes a result, finds its record a few entries further. The count stays correct as long as
// the lane does not reach a code address that it has skipped before. Any other lane keeps its own counts per code
// address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "common/simt/runtime.hpp"

namespace simt {

struct Tensor;

/// Which memory an instruction addresses, and how.
enum class Access : std::uint8_t { read, write, atomic, async, matrix_read, matrix_write };
enum class Space : std::uint8_t { shared, global };

/// One instruction of a warp.
struct Record {
  const void* pc;
  const Tensor* tensor;         ///< global accesses: the allocation of the first lane
  std::uint32_t mask;           ///< lanes that executed it
  bool ascending;               ///< lane i accesses origin + i * size
  bool uniform;                 ///< all lanes access the same address
  std::uint64_t origin, first;  ///< address minus lane * size, and address, of the first lane recorded
  std::uint8_t size;            ///< bytes per lane
  Access access;
  Space space;
  bool row_major;             ///< matrix accesses
  std::uint32_t leading;      ///< matrix accesses: elements between lines
  const FragmentType* type;   ///< matrix accesses
  std::uint64_t address[32];  ///< by lane
};

/// The position of a lane in its warp's records.
struct RecorderPosition {
  std::uint32_t next = 0;     ///< next record on the common path; for a strayed lane, the number of its records
  std::uint32_t epoch = 0;    ///< the recorder's epoch that `next` belongs to
  bool strayed = false;       ///< it keeps its own counts
  std::uint64_t skipped = 0;  ///< code addresses of the records that it has skipped: one hashed bit each
};

class Recorder {
 public:
  static constexpr std::size_t kMost = 8192;  ///< instructions that a lane may be ahead of the counted records

  /// The record for this access of lane `lane`, with its mask and address updated.
  __attribute__((always_inline)) Record& add(RecorderPosition& position, int lane, const void* pc,
                                             std::uint64_t address, unsigned size, Access access, Space space) {
    if (position.epoch != epoch_) [[unlikely]]
      position = {0, epoch_, false, 0};
    if (!position.strayed && position.next < used_) [[likely]] {
      Record& record = records_[position.next];
      if (record.pc == pc && record.space == space && !(position.skipped & bit_of(pc))) [[likely]] {
        ++position.next;
        enter(record, lane, address);
        return record;
      }
    }
    return search(position, lane, pc, address, size, access, space);
  }

  /// The record that a lane on the common path will probably need next: a hint, possibly null.
  const Record* expected(const RecorderPosition& position) const {
    return position.epoch == epoch_ && position.next < used_ ? &records_[position.next] : nullptr;
  }
  /// Whether the lane should wait for the other lanes of its warp, so that records can be counted and erased.
  bool far_ahead(const RecorderPosition& position) const { return position.next >= kMost; }
  std::size_t size() const { return used_; }
  const Record* begin() const { return records_.data(); }
  const Record* end() const { return records_.data() + used_; }
  /// Erases all records; every lane is on the common path again.
  void clear() {
    used_ = 0;
    ++epoch_;
    if (any_strayed_) forget_strays();
  }

 private:
  struct Chain {
    std::vector<std::uint32_t> records;  ///< by occurrence
    std::uint32_t counts[32] = {};       ///< executions so far, of strayed lanes
  };
  /// The bit of `skipped` for a code address.
  static std::uint64_t bit_of(const void* pc) {
    return std::uint64_t(1) << (reinterpret_cast<std::uintptr_t>(pc) * 0x9E3779B97F4A7C15ull >> 58);
  }
  static void enter(Record& record, int lane, std::uint64_t address) {
    record.mask |= 1u << lane;
    record.address[lane] = address;
    record.ascending &= address - static_cast<std::uint64_t>(lane) * record.size == record.origin;
    record.uniform &= address == record.first;
  }
  static std::uint64_t key(const void* pc, Space space) {
    return reinterpret_cast<std::uintptr_t>(pc) * 2 + (space == Space::global);
  }
  __attribute__((noinline)) Record& search(RecorderPosition& position, int lane, const void* pc, std::uint64_t address,
                                           unsigned size, Access access, Space space);
  bool has_skipped(const RecorderPosition& position, int lane, const void* pc) const;
  Record* skip_ahead(RecorderPosition& position, const void* pc, Space space);
  Record& append(int lane, const void* pc, std::uint64_t address, unsigned size, Access access, Space space);
  void index_records();
  void forget_strays();

  std::vector<Record> records_;
  std::size_t used_ = 0;
  std::uint32_t epoch_ = 1;
  bool any_strayed_ = false;                         ///< chains_ is in use
  std::unordered_map<std::uint64_t, Chain> chains_;  ///< by key, of all records
};

}  // namespace simt
