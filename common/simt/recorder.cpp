#include "common/simt/recorder.hpp"

#include <algorithm>

namespace simt {

Record& Recorder::append(int lane, const void* pc, std::uint64_t address, unsigned size, Access access, Space space) {
  if (used_ == records_.size()) records_.resize(std::max<std::size_t>(64, 2 * records_.size()));
  Record& record = records_[used_];
  record.pc = pc;
  record.tensor = nullptr;
  record.mask = 0;
  record.ascending = record.uniform = true;
  record.origin = address - static_cast<std::uint64_t>(lane) * size;
  record.first = address;
  record.size = static_cast<std::uint8_t>(size);
  record.access = access;
  record.space = space;
  record.type = nullptr;
  if (any_strayed_) chains_[key(pc, space)].records.push_back(static_cast<std::uint32_t>(used_));
  ++used_;
  return record;
}

// Called when the first lane strays: from now on the records are also indexed by code address and occurrence.
void Recorder::index_records() {
  any_strayed_ = true;
  for (std::size_t i = 0; i < used_; ++i) {
    chains_[key(records_[i].pc, records_[i].space)].records.push_back(static_cast<std::uint32_t>(i));
  }
}

void Recorder::forget_strays() {
  any_strayed_ = false;
  chains_.clear();
}

// Whether a lane on the common path has skipped a record of this code address. (Two addresses may share a bit of
// `skipped`.)
bool Recorder::has_skipped(const RecorderPosition& position, int lane, const void* pc) const {
  constexpr std::uint32_t kMostSearched = 256;  // beyond: true, the lane strays, which is correct but slower
  if (position.next > kMostSearched) return true;
  for (std::uint32_t i = 0; i < position.next; ++i) {
    if (records_[i].pc == pc && !(records_[i].mask >> lane & 1)) return true;
  }
  return false;
}

// For a lane on the common path whose next record is at another code address: searches a few records ahead. Null if the
// result is ambiguous, or if there is no record; `next` is then at the end.
Record* Recorder::skip_ahead(RecorderPosition& position, const void* pc, Space space) {
  constexpr std::size_t kFurther = 12;
  const std::size_t end = std::min(used_, position.next + kFurther);
  std::uint64_t skipped = 0;
  std::size_t i = position.next;
  while (i < end && !(records_[i].pc == pc && records_[i].space == space)) skipped |= bit_of(records_[i++].pc);
  if (i == end && end != used_) return nullptr;
  position.skipped |= skipped;
  position.next = static_cast<std::uint32_t>(i);
  return i < used_ ? &records_[i] : nullptr;
}

Record& Recorder::search(RecorderPosition& position, int lane, const void* pc, std::uint64_t address, unsigned size,
                         Access access, Space space) {
  Record* record = nullptr;
  if (!position.strayed && (!(position.skipped & bit_of(pc)) || !has_skipped(position, lane, pc))) {
    record = skip_ahead(position, pc, space);
    if (record == nullptr && position.next == used_) record = &append(lane, pc, address, size, access, space);
  }
  if (record == nullptr) {
    if (!any_strayed_) index_records();
    if (!position.strayed) {  // so far it has executed exactly the records that it is in
      position.strayed = true;
      for (std::uint32_t i = 0; i < position.next; ++i) {
        const Record& r = records_[i];
        chains_[key(r.pc, r.space)].counts[lane] += r.mask >> lane & 1;
      }
    }
    Chain& chain = chains_[key(pc, space)];
    const std::uint32_t occurrence = chain.counts[lane]++;
    record = occurrence < chain.records.size() ? &records_[chain.records[occurrence]]
                                               : &append(lane, pc, address, size, access, space);
  }
  ++position.next;
  enter(*record, lane, address);
  return *record;
}

}  // namespace simt
