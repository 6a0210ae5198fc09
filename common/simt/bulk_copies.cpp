// The copy engine ("Data Movement and Conversion Instructions: Tensor copy", cp.async.bulk.tensor): boxes of a tensor
// to shared memory and back, tiled, with 1 to 5 dimensions. What lies outside of the tensor becomes zeros, or is left
// out. Not here: multicast to other blocks, im2col, reductions.
//
// A load's bytes are pending from its issue until it lands (asynchrony.cpp says when). A store is carried out when its
// thread waits for it; until then shared memory is being read.
#include <algorithm>
#include <cstring>

#include "common/simt/address.hpp"
#include "common/simt/asynchrony.hpp"
#include "common/simt/global_memory.hpp"
#include "common/simt/scheduler.hpp"
#include "common/simt/shared_memory.hpp"
#include "common/simt/tracer.hpp"

namespace simt {

namespace {

constexpr unsigned kPiece = 16;  // bytes that swizzling keeps together

/// Calls row(first byte of it in the box, where in global memory, elements before the first that exists, elements that
/// exist) for every row of a box.
template <class Row>
void for_each_row(const BulkCopy& copy, Row row) {
  const TensorMap& map = copy.map;
  const std::int64_t inner = map.box[0], begin = copy.coordinates[0];
  const std::int64_t first = std::clamp<std::int64_t>(-begin, 0, inner);
  const std::int64_t last = std::clamp<std::int64_t>(std::int64_t(map.sizes[0]) - begin, first, inner);
  std::uint32_t at[kMostDimensions] = {};
  for (std::uint64_t offset = 0;; offset += std::uint64_t(inner) * map.element_bytes) {
    bool inside = true;
    std::uint64_t from =
        reinterpret_cast<std::uintptr_t>(map.memory) + std::uint64_t(begin + first) * map.element_bytes;
    for (int i = 1; i < map.dimensions; ++i) {
      const std::int64_t c = std::int64_t(copy.coordinates[i]) + at[i];
      inside &= c >= 0 && c < std::int64_t(map.sizes[i]);
      from += std::uint64_t(c) * map.strides[i];
    }
    row(offset, from, first, inside ? last - first : 0);
    int i = 1;
    while (i < map.dimensions && ++at[i] == map.box[i]) at[i++] = 0;
    if (i >= map.dimensions) return;
  }
}

/// Marks the sectors of one row as touched; how many are new.
std::uint64_t touch_sectors(std::atomic<std::uint64_t>* bits, std::uint64_t first, std::uint64_t last) {
  std::uint64_t fresh = 0;
  for (std::uint64_t sector = first; sector <= last; ++sector) {
    const std::uint64_t bit = std::uint64_t(1) << sector % 64;
    fresh += !(bits[sector / 64].fetch_or(bit, std::memory_order_relaxed) & bit);
  }
  return fresh;
}

/// What one row of a box does to the tensor's counters.
void count_row(Block& block, Tensor& tensor, std::uint64_t address, std::uint64_t bytes, bool store) {
  GlobalObserver::Traffic& traffic = block.global->of(tensor);
  const std::uint64_t first = (address - tensor.low) / 32, last = (address + bytes - 1 - tensor.low) / 32;
  if (store) {
    traffic.counters.bulk_store_bytes += bytes;
    traffic.counters.unique_written_sectors += touch_sectors(tensor.sectors_written.get(), first, last);
    return;
  }
  traffic.counters.unique_read_sectors += touch_sectors(tensor.sectors_read.get(), first, last);
  if (tensor.tile_bytes != 0) block.global->read_tile(tensor, address, bytes);
}

Finding refused(const Lane& lane, Mistake mistake, const void* pc, bool store, std::string what, std::string advice) {
  Finding finding = finding_of(lane, mistake, pc, store ? "stores a box" : "loads a box");
  finding.what = std::move(what);
  finding.advice = std::move(advice);
  return finding;
}

/// What holds for loads and stores alike; does not return if it does not.
void check_box(Lane& lane, const TensorMap& map, std::uintptr_t address, int count, bool store, const void* pc) {
  SharedMemory& shared = *lane.block->shared;
  if (count != map.dimensions) {
    refuse(lane, refused(lane, Mistake::descriptor, pc, store,
                         "the tensor map has " + std::to_string(map.dimensions) + " dimensions, and " +
                             std::to_string(count) + " coordinates are given",
                         "pass one coordinate for each dimension, the fastest first"));
  }
  if (!shared.contains(address)) {
    refuse(lane, refused(lane, Mistake::outside_shared, pc, store, "the box is not in shared memory",
                         store ? "pass the tensor map first, then the address in shared memory"
                               : "pass the address in shared memory first, then the tensor map"));
  }
  if (address % 128 != 0) {
    Finding finding = refused(lane, Mistake::misaligned, pc, store,
                              "a box in shared memory begins at a multiple of 128 bytes; this one begins " +
                                  std::to_string(address % 128) + " bytes past one",
                              "declare the tile with alignas(128), or alignas(1024) if it is swizzled by 128 bytes");
    finding.variable = shared.variable(address);
    refuse(lane, std::move(finding));
  }
  const std::uint64_t bytes = map.box_bytes();
  const Access access = store ? Access::read : Access::write;
  shared.check_bounds(lane, address, 16, access, pc);
  shared.check_bounds(lane, address + bytes - 16, 16, access, pc);
  if (!shared.same_member(address, address + bytes - 16)) {
    Finding finding =
        refused(lane, Mistake::outside_shared, pc, store,
                "the box has " + std::to_string(bytes) + " bytes, begins in " + shared.variable(address).name +
                    " and ends in " + shared.variable(address + bytes - 16).name,
                "make the tensor map's box as large as the tile");
    finding.variable = shared.variable(address);
    refuse(lane, std::move(finding));
  }
  const auto memory = reinterpret_cast<std::uintptr_t>(map.memory);
  std::uint64_t last = memory + map.element_bytes;
  for (int i = 0; i < map.dimensions; ++i) last += (map.sizes[i] - 1) * map.strides[i];
  const Tensor* tensor = find_tensor(memory);
  if (tensor == nullptr || last > tensor->high) {
    refuse(lane, refused(lane, Mistake::outside_global, pc, store,
                         tensor == nullptr ? "the tensor map names memory that is not allocated"
                                           : "the tensor map reaches " + std::to_string(last - tensor->high) +
                                                 " bytes past the end of " + tensor->name,
                         "check the sizes and strides of the tensor map"));
  }
}

BulkCopy copy_of(Lane& lane, const TensorMap& map, std::uintptr_t address, const int* coordinates, const void* pc) {
  BulkCopy copy;
  copy.map = map;
  std::copy_n(coordinates, map.dimensions, copy.coordinates);
  copy.shared = address;
  copy.issuer = &lane;
  copy.pc = pc;
  return copy;
}

void land_load(Block& block, const BulkCopy& copy) {
  const bool observing = block.launch->observing;
  Tensor& tensor = *find_tensor(reinterpret_cast<std::uintptr_t>(copy.map.memory));
  const std::uint64_t row_bytes = std::uint64_t(copy.map.box[0]) * copy.map.element_bytes;
  std::vector<std::byte> buffer(row_bytes);
  for_each_row(copy, [&](std::uint64_t offset, std::uint64_t from, std::int64_t first, std::int64_t count) {
    std::fill(buffer.begin(), buffer.end(), std::byte{0});
    if (count > 0) {
      const std::uint64_t bytes = std::uint64_t(count) * copy.map.element_bytes;
      if (observing) {
        check_global(*copy.issuer, from, bytes, Access::read, copy.pc, &tensor);
        count_at(block, copy.pc, [&] { count_row(block, tensor, from, bytes, false); });
      }
      std::memcpy(buffer.data() + std::uint64_t(first) * copy.map.element_bytes, at_address<const void>(from), bytes);
    }
    for (std::uint64_t piece = 0; piece < row_bytes; piece += kPiece) {
      std::memcpy(at_address<void>(swizzled(copy.shared + offset + piece, copy.map.swizzle)), buffer.data() + piece,
                  kPiece);
    }
  });
  if (block.number == 0 && observing) block.global->of(tensor).arrived_bytes += copy.map.box_bytes();

  Asynchrony& all = *block.asynchrony;
  Mbarrier& barrier = all.barrier(copy.barrier);
  const std::uint64_t bytes = copy.map.box_bytes();
  if (block.launch->detecting) {
    block.shared->finish_async_write(block, copy);
  }
  barrier.gathering.add(kFirstBarrierAgent + Agent(copy.barrier), ++block.clock);
  if (barrier.phase != copy.phase || (barrier.missing == 0 && barrier.bytes < std::int64_t(bytes))) {
    if (!block.damaged) {
      Finding finding = refused(*copy.issuer, Mistake::barrier_bytes, copy.pc, false, "", "");
      finding.variable.name = name_of(block, barrier);
      finding.what = barrier.phase != copy.phase
                         ? std::to_string(bytes) + " bytes come that phase " + std::to_string(copy.phase) +
                               " of the barrier did not expect: it ended without them"
                         : std::to_string(bytes) + " bytes come, and phase " + std::to_string(barrier.phase) +
                               " of the barrier expects " + std::to_string(std::max<std::int64_t>(barrier.bytes, 0)) +
                               " more";
      finding.advice =
          "call mbarrier_arrive_expect_tx with the bytes of all boxes whose copies end this phase, those outside of "
          "the tensor included";
      if (barrier.expect_pc != nullptr) {
        finding.other_pc = barrier.expect_pc;
        finding.other_action = "expects bytes";
        finding.other_warp = barrier.expect_thread / kWarpSize;
        finding.other_lanes = 1u << barrier.expect_thread % kWarpSize;
      }
      note_finding(*copy.issuer, std::move(finding));
      block.damaged = true;  // what follows from it is not reported
    }
    barrier.bytes = std::max<std::int64_t>(0, barrier.bytes - std::int64_t(bytes));
    all.complete_phase(barrier);
    return;
  }
  barrier.bytes -= std::int64_t(bytes);
  all.complete_phase(barrier);
}

void land_store(Block& block, const BulkCopy& copy) {
  Tensor& tensor = *find_tensor(reinterpret_cast<std::uintptr_t>(copy.map.memory));
  const std::uint64_t row_bytes = std::uint64_t(copy.map.box[0]) * copy.map.element_bytes;
  std::vector<std::byte> buffer(row_bytes);
  for_each_row(copy, [&](std::uint64_t offset, std::uint64_t to, std::int64_t first, std::int64_t count) {
    if (count == 0) return;
    for (std::uint64_t piece = 0; piece < row_bytes; piece += kPiece) {
      std::memcpy(buffer.data() + piece,
                  at_address<const void>(swizzled(copy.shared + offset + piece, copy.map.swizzle)), kPiece);
    }
    const std::uint64_t bytes = std::uint64_t(count) * copy.map.element_bytes;
    if (block.launch->observing) {
      check_global(*copy.issuer, to, bytes, Access::write, copy.pc, &tensor);
      count_at(block, copy.pc, [&] { count_row(block, tensor, to, bytes, true); });
    }
    std::memcpy(at_address<void>(to), buffer.data() + std::uint64_t(first) * copy.map.element_bytes, bytes);
  });
  if (block.launch->detecting)
    block.shared->finish_async_read(block, copy.issuer->warp->index, copy.shared, copy.map.box_bytes(), false);
  ++block.clock;
}

}  // namespace

void land(Block& block, const BulkCopy& copy) {
  if (copy.flight != 0) block.tracer->end_copy(copy.flight);
  copy.store ? land_store(block, copy) : land_load(block, copy);
}

// --- What kernels call -----------------------------------------------------------------------------------------------

void bulk_load(void* to, const TensorMap& map, std::uint64_t* at, const int* coordinates, int count) {
  Lane& lane = *running;
  Block& block = *lane.block;
  const void* pc = __builtin_return_address(0);
  const auto address = reinterpret_cast<std::uintptr_t>(to);
  Asynchrony& all = asynchrony(lane);
  check_box(lane, map, address, count, false, pc);
  Mbarrier& barrier = used_barrier(lane, at, "loads a box", pc);
  if (!barrier.fenced && !block.damaged) {
    Finding finding = refused(lane, Mistake::barrier_misuse, pc, false,
                              "the copy engine may not see the barrier that the copy ends at",
                              "call fence_mbarrier_init() in the thread that makes the barriers, after it and before "
                              "the __syncthreads()");
    finding.variable.name = name_of(block, barrier);
    finding.other_pc = barrier.init_pc;
    finding.other_action = "makes the barrier";
    finding.other_warp = barrier.init_thread / kWarpSize;
    finding.other_lanes = 1u << barrier.init_thread % kWarpSize;
    note_finding(lane, std::move(finding));
  }
  BulkCopy copy = copy_of(lane, map, address, coordinates, pc);
  copy.barrier = all.index_of(barrier);
  copy.phase = barrier.phase;
  barrier.copy_pc = pc;
  barrier.copy_thread = lane.linear;
  if (block.launch->observing) {
    GlobalObserver::Traffic& traffic = block.global->of(*find_tensor(reinterpret_cast<std::uintptr_t>(map.memory)));
    traffic.touched = true;
    count_at(block, pc, [&] {
      traffic.counters.bulk_load_bytes += map.box_bytes();
      ++block.counters.bulk_loads;
      ++block.counters.bulk_requests;
    });
  }
  if (block.launch->detecting) block.shared->begin_async_write(lane, copy);
  if (block.tracer != nullptr) [[unlikely]] {
    const Tensor& tensor = *find_tensor(reinterpret_cast<std::uintptr_t>(map.memory));
    const int tile = count < 2 ? 0 : coordinates[1] / static_cast<int>(map.box[1]);
    copy.flight = block.tracer->begin_copy(lane, tensor.name + " " + std::to_string(tile), name_of(block, barrier));
  }
  all.copies.push_back(copy);
}

void bulk_store(const TensorMap& map, const void* from, const int* coordinates, int count) {
  Lane& lane = *running;
  Block& block = *lane.block;
  const void* pc = __builtin_return_address(0);
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  Asynchrony& all = asynchrony(lane);
  check_box(lane, map, address, count, true, pc);
  BulkCopy copy = copy_of(lane, map, address, coordinates, pc);
  copy.store = true;
  if (block.launch->observing) {
    block.global->of(*find_tensor(reinterpret_cast<std::uintptr_t>(map.memory))).touched = true;
    count_at(block, pc, [&] {
      ++block.counters.bulk_stores;
      block.counters.bulk_requests += 2;
    });
  }
  if (block.launch->detecting) {
    AsyncReader reader{"stores a box", pc, lane.bit, lane.warp->index};
    for (std::uint64_t i = 0; i < map.box_bytes(); i += kPiece)
      block.shared->begin_async_read(lane, address + i, kPiece, reader);
  }
  all.copies.push_back(copy);
}

void bulk_commit() {
  Lane& lane = *running;
  for (BulkCopy& copy : asynchrony(lane).copies) {
    if (copy.store && copy.issuer == &lane && copy.group < 0) copy.group = lane.store_groups;
  }
  ++lane.store_groups;
}

void bulk_wait(int groups_left) {
  Lane& lane = *running;
  std::vector<BulkCopy>& copies = asynchrony(lane).copies;
  for (std::size_t i = 0; i < copies.size();) {
    const BulkCopy copy = copies[i];
    if (!copy.store || copy.issuer != &lane || copy.group < 0 || copy.group >= lane.store_groups - groups_left) {
      ++i;
      continue;
    }
    copies.erase(copies.begin() + static_cast<std::ptrdiff_t>(i));
    land(*lane.block, copy);
  }
}

}  // namespace simt
