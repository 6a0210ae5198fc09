// TMA (PTX ISA, "Data Movement and Conversion Instructions": cp.async.bulk.tensor, cp.async.bulk and
// cp.reduce.async.bulk). Copies of boxes of a tensor to shared memory and back, tiled, with 2 to 5 dimensions: elements
// outside the tensor become zeros or are skipped. Bulk copies of contiguous bytes without a tensor map, which may also
// add floats to device memory. Not implemented: multicast to other blocks, im2col, reductions of boxes.
//
// The bytes of a load are pending from its issue until it completes (asynchrony.cpp says when). A store has two parts.
// Shared memory is being read until the issuing thread waits for the read. Device memory is written when the thread
// waits for the complete store, or after the block's threads have ended. The order in which floats are added is
// unspecified. With Order::shuffled the remaining reductions of all blocks are added at the end of the launch, in an
// order determined by the seed.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <utility>

#include "common/simt/address.hpp"
#include "common/simt/asynchrony.hpp"
#include "common/simt/global_memory.hpp"
#include "common/simt/program.hpp"
#include "common/simt/scheduler.hpp"
#include "common/simt/shared_memory.hpp"
#include "common/simt/tracer.hpp"
#include "common/simt/visibility.hpp"

namespace simt {

namespace {

constexpr unsigned kPiece = 16;  // the swizzle moves chunks of this size

/// Calls row(offset of its first byte in the box, address in global memory, elements before the first existing one,
/// existing elements) for every row of a box.
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
        reinterpret_cast<std::uintptr_t>(map.memory) - map.before + std::uint64_t(begin + first) * map.element_bytes;
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

/// Marks the sectors of one row as accessed; returns the number of new ones.
std::uint64_t touch_sectors(std::atomic<std::uint64_t>* bits, std::uint64_t first, std::uint64_t last) {
  std::uint64_t fresh = 0;
  for (std::uint64_t sector = first; sector <= last; ++sector) fresh += touch(bits, sector);
  return fresh;
}

/// Updates the tensor's counters for one row of a box, or for one bulk copy.
void count_row(Block& block, Tensor& tensor, std::uint64_t address, std::uint64_t bytes, BulkCopy::Kind kind) {
  GlobalObserver::Traffic& traffic = block.global->of(tensor);
  const std::uint64_t first = (address - tensor.low) / 32, last = (address + bytes - 1 - tensor.low) / 32;
  const bool reads = kind == BulkCopy::Kind::load;
  mark_elements(tensor, (reads ? tensor.elements_read : tensor.elements_written).get(), address, bytes);
  if (!reads) {
    if (kind == BulkCopy::Kind::add) {
      traffic.counters.bulk_reduce_bytes += bytes;
      traffic.counters.bulk_reduce_sectors += last - first + 1;
    } else {
      traffic.counters.bulk_store_bytes += bytes;
    }
    traffic.counters.unique_written_sectors += touch_sectors(tensor.sectors_written.get(), first, last);
    return;
  }
  traffic.counters.unique_read_sectors += touch_sectors(tensor.sectors_read.get(), first, last);
  if (tensor.tile_bytes != 0) block.global->read_tile(tensor, address, bytes);
}

Tensor& tensor_of(const BulkCopy& copy) {
  return *find_tensor(reinterpret_cast<std::uintptr_t>(copy.map.memory));
}

// --- Misuse ----------------------------------------------------------------------------------------------------------

Finding refused(const BulkCopy& copy, Mistake mistake, std::string what, std::string advice) {
  return finding_of(*copy.issuer, mistake, copy.pc, copy.action(), std::move(what), std::move(advice));
}

/// Checks the address in shared memory, for all kinds of copies; does not return if it is invalid.
void check_shared_address(const BulkCopy& copy, const char* noun, unsigned alignment, const char* aligned_how) {
  Lane& lane = *copy.issuer;
  SharedMemory& shared = *lane.block->shared;
  if (!shared.contains(copy.shared)) {
    refuse(lane, refused(copy, Mistake::outside_shared, std::string("the ") + noun + " is not in shared memory",
                         copy.is_line()
                             ? "pass the destination first, then the source: check which of the two is in shared memory"
                         : copy.stores() ? "pass the tensor map first, then the address in shared memory"
                                         : "pass the address in shared memory first, then the tensor map"));
  }
  if (copy.shared % alignment != 0) {
    Finding finding = refused(copy, Mistake::misaligned,
                              words("a ", noun, " in shared memory must start at a multiple of ", alignment,
                                    " bytes; this one starts ", copy.shared % alignment, " bytes after one"),
                              aligned_how);
    finding.variable = shared.variable(copy.shared);
    refuse(lane, std::move(finding));
  }
  const std::uint64_t bytes = copy.map.box_bytes();
  const Access access = copy.stores() ? Access::read : Access::write;
  shared.check_bounds(lane, copy.shared, 16, access, copy.pc);
  shared.check_bounds(lane, copy.shared + bytes - 16, 16, access, copy.pc);
  if (!shared.same_member(copy.shared, copy.shared + bytes - 16)) {
    Finding finding = refused(
        copy, Mistake::outside_shared,
        words("the ", noun, " has ", bytes, " bytes, starts in ", shared.variable(copy.shared).name, " and ends in ",
              shared.variable(copy.shared + bytes - 16).name),
        copy.is_line() ? "pass the size of the buffer in bytes" : "make the tensor map's box as large as the tile");
    finding.variable = shared.variable(copy.shared);
    refuse(lane, std::move(finding));
  }
}

/// Checks a tensor map that starts before its tensor: the rows of the box must not precede the tensor, and part of a
/// /// load must be inside the map. A GPU reads no elements outside of it. But an H200 accesses the first element of
/// the map even if no part of the box is inside (loads failed where that address was unmapped; stores never did).
void check_box_of_moved_map(const BulkCopy& copy, const Tensor& tensor) {
  std::uint64_t before = 0, rows = 0;
  for_each_row(copy, [&](std::uint64_t, std::uint64_t from, std::int64_t, std::int64_t number) {
    if (number == 0) return;
    ++rows;
    if (from < tensor.low) before = std::max(before, tensor.low - from);
  });
  if (before == 0 && (rows > 0 || copy.stores())) return;
  Finding finding = refused(
      copy, Mistake::outside_global,
      rows > 0 ? words("the box starts ", before, " bytes before ", tensor.name)
               : words("no part of the box is inside the tensor map, which starts ", copy.map.before, " bytes before ",
                       tensor.name),
      rows > 0 ? "check the coordinates: they count from the start of the tensor map, which is before the tensor"
               : "skip this copy: a GPU may access the address at which the tensor map starts");
  finding.variable = {tensor.name, " (global)"};
  refuse(*copy.issuer, std::move(finding));
}

void check_box(const BulkCopy& copy, int count) {
  Lane& lane = *copy.issuer;
  const TensorMap& map = copy.map;
  if (count != map.dimensions) {
    refuse(lane,
           refused(copy, Mistake::descriptor,
                   words("the tensor map has ", map.dimensions, " dimensions, but ", count, " coordinates are given"),
                   "pass one coordinate per dimension, the fastest-varying first"));
  }
  check_shared_address(copy, "box", 128,
                       "declare the tile with alignas(128), or alignas(1024) for the 128-byte swizzle");
  const auto memory = reinterpret_cast<std::uintptr_t>(map.memory);
  std::uint64_t last = memory - map.before + map.element_bytes;
  for (int i = 0; i < map.dimensions; ++i) last += (map.sizes[i] - 1) * map.strides[i];
  const Tensor* tensor = find_tensor(memory);
  if (tensor == nullptr || last > tensor->high) {
    refuse(lane, refused(copy, Mistake::outside_global,
                         tensor == nullptr ? "the tensor map points to memory that is not allocated"
                                           : words("the tensor map extends ", last - tensor->high,
                                                   " bytes past the end of ", tensor->name),
                         "check the sizes and strides of the tensor map"));
  }
  if (map.before > 0) check_box_of_moved_map(copy, *tensor);
}

/// For a bulk copy without tensor map, `map` holds the address and the size of the copy.
void check_line(const BulkCopy& copy, std::int64_t bytes) {
  Lane& lane = *copy.issuer;
  const auto memory = reinterpret_cast<std::uintptr_t>(copy.map.memory);
  if (bytes <= 0 || bytes % kPiece != 0 || bytes > std::int64_t(SharedMemory::kMostDynamic)) {
    refuse(lane, refused(copy, Mistake::misaligned,
                         words("a bulk copy of ", bytes, " bytes; the size must be a multiple of 16"),
                         "pad the size to a multiple of 16 bytes, or copy the rest with ordinary accesses"));
  }
  check_shared_address(copy, "buffer", kPiece, "declare it with alignas(16)");
  const Tensor* tensor = find_tensor(memory);
  if (tensor == nullptr || memory + std::uint64_t(bytes) > tensor->high) {
    Finding finding = refused(
        copy, Mistake::outside_global,
        words(bytes, " bytes, ",
              tensor == nullptr ? describe_stray(memory)
                                : words("which extend ", memory + std::uint64_t(bytes) - tensor->high,
                                        " bytes past the end of ", tensor->name)),
        "check the address in device memory and the size; a partial tail needs a shorter copy, or padded memory");
    if (tensor != nullptr) finding.variable = {tensor->name, " (global)"};
    refuse(lane, std::move(finding));
  }
  if (memory % kPiece != 0) {
    Finding finding =
        refused(copy, Mistake::misaligned,
                words("a bulk copy in device memory must start at a multiple of 16 bytes; this one starts ",
                      memory % kPiece, " bytes after one"),
                "use a row stride that is a multiple of 16 bytes");
    finding.variable = {tensor->name, " (global)"};
    refuse(lane, std::move(finding));
  }
}

// --- The life of a copy ----------------------------------------------------------------------------------------------

BulkCopy copy_of_box(BulkCopy::Kind kind, const TensorMap& map, const void* shared, const int* coordinates, int count,
                     const void* pc) {
  BulkCopy copy;
  copy.kind = kind;
  copy.map = map;
  std::copy_n(coordinates, std::min(count, map.dimensions), copy.coordinates);
  copy.shared = reinterpret_cast<std::uintptr_t>(shared);
  copy.issuer = running;
  copy.pc = pc;
  check_box(copy, count);
  return copy;
}

BulkCopy copy_of_line(BulkCopy::Kind kind, const void* global, const void* shared, std::int64_t bytes, const void* pc) {
  BulkCopy copy;
  copy.kind = kind;
  copy.map.memory = const_cast<void*>(global);
  copy.map.dimensions = 1;
  copy.map.element_bytes = 1;
  copy.map.sizes[0] = std::uint64_t(bytes);
  copy.map.strides[0] = 1;
  copy.map.box[0] = static_cast<std::uint32_t>(bytes);
  copy.shared = reinterpret_cast<std::uintptr_t>(shared);
  copy.issuer = running;
  copy.pc = pc;
  check_line(copy, bytes);
  return copy;
}

void land_load(Block& block, const BulkCopy& copy) {
  const bool observing = block.launch->observing;
  Tensor& tensor = tensor_of(copy);
  const std::uint64_t row_bytes = std::uint64_t(copy.map.box[0]) * copy.map.element_bytes;
  std::vector<std::byte> buffer(row_bytes);
  for_each_row(copy, [&](std::uint64_t offset, std::uint64_t from, std::int64_t first, std::int64_t count) {
    std::fill(buffer.begin(), buffer.end(), std::byte{0});
    if (count > 0) {
      const std::uint64_t bytes = std::uint64_t(count) * copy.map.element_bytes;
      if (observing) {
        check_global(*copy.issuer, from, bytes, Access::read, copy.pc, &tensor);
        count_at(block, copy.pc, [&] { count_row(block, tensor, from, bytes, copy.kind); });
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
    if (!block.damaged) {  // if the phase has already completed, complete_phase has reported it
      Finding finding =
          refused(copy, Mistake::barrier_bytes,
                  words(bytes, " bytes arrive, but phase ", barrier.phase, " of the mbarrier expects only ",
                        std::max<std::int64_t>(barrier.bytes, 0), " more"),
                  kExpectAll);
      name_expected(finding, block, barrier);
      note_finding(*copy.issuer, std::move(finding));
      block.damaged = true;  // consequences are not reported
    }
    barrier.bytes = std::max<std::int64_t>(0, barrier.bytes - std::int64_t(bytes));
  } else {
    barrier.bytes -= std::int64_t(bytes);
  }
  const std::int64_t phase = barrier.phase;
  all.complete_phase(barrier);
  if (barrier.phase != phase && block.tracer != nullptr) [[unlikely]]
    block.tracer->cut(block);
}

void land_store(Block& block, BulkCopy copy) {
  Tensor& tensor = tensor_of(copy);
  copy.bytes.resize(copy.map.box_bytes());
  for (std::uint64_t piece = 0; piece < copy.bytes.size(); piece += kPiece) {
    std::memcpy(copy.bytes.data() + piece, at_address<const void>(swizzled(copy.shared + piece, copy.map.swizzle)),
                kPiece);
  }
  if (block.launch->observing) {
    const Access access = copy.kind == BulkCopy::Kind::add ? Access::atomic : Access::write;
    for_each_row(copy, [&](std::uint64_t, std::uint64_t to, std::int64_t, std::int64_t count) {
      if (count == 0) return;
      const std::uint64_t bytes = std::uint64_t(count) * copy.map.element_bytes;
      check_global(*copy.issuer, to, bytes, access, copy.pc, &tensor);
      count_at(block, copy.pc, [&] { count_row(block, tensor, to, bytes, copy.kind); });
    });
  }
  if (block.launch->detecting) {
    const int warp = copy.issuer->warp->index;
    block.shared->finish_async_read(block, warp, copy.shared, copy.bytes.size(), false);
    // Bytes that other stores of the warp are still reading are marked again.
    for (const BulkCopy& other : block.asynchrony->copies) {
      if (!other.stores() || other.issuer->warp->index != warp) continue;
      const std::uintptr_t low = std::max(copy.shared, other.shared),
                           high = std::min(copy.shared + copy.bytes.size(), other.shared + other.map.box_bytes());
      if (low < high)
        block.shared->mark_async_read(block, low, high - low, {other.action(), other.pc, other.issuer->bit, warp});
    }
  }
  ++block.clock;
  block.asynchrony->writes.push_back(std::move(copy));
}

/// Other blocks may add to the same floats on other operating-system threads.
void add_floats(std::uintptr_t to, const std::byte* from, std::uint64_t bytes) {
  for (std::uint64_t i = 0; i < bytes; i += sizeof(float)) {
    float addend;
    std::memcpy(&addend, from + i, sizeof addend);
    std::atomic_ref<float>(*at_address<float>(to + i)).fetch_add(addend, std::memory_order_relaxed);
  }
}

/// A store that has read shared memory reaches device memory.
void write_out(const BulkCopy& copy) {
  for_each_row(copy, [&](std::uint64_t offset, std::uint64_t to, std::int64_t first, std::int64_t count) {
    const std::byte* from = copy.bytes.data() + offset + std::uint64_t(first) * copy.map.element_bytes;
    const std::uint64_t bytes = std::uint64_t(count) * copy.map.element_bytes;
    if (copy.kind == BulkCopy::Kind::add) return add_floats(to, from, bytes);
    if (count > 0) std::memcpy(at_address<void>(to), from, bytes);
  });
}

/// Orders stores that are otherwise unordered as Options::order specifies.
void arrange(Block& block, std::vector<BulkCopy>& stores) {
  if (block.launch->options.order == Order::reversed) std::reverse(stores.begin(), stores.end());
  if (block.launch->options.order != Order::shuffled) return;
  for (std::size_t i = stores.size(); i > 1; --i)
    std::swap(stores[i - 1], stores[random_below(block, static_cast<unsigned>(i))]);
}

void add_late_sums_of(LaunchState& launch) {
  std::vector<LateSum>& sums = launch.late_sums;
  // First an order that does not depend on the operating-system threads.
  std::stable_sort(sums.begin(), sums.end(), [](const LateSum& a, const LateSum& b) { return a.block < b.block; });
  std::mt19937_64 random(launch.options.seed);
  for (std::size_t i = sums.size(); i > 1; --i) std::swap(sums[i - 1], sums[random() % i]);
  for (const LateSum& sum : sums) add_floats(sum.to, sum.floats.data(), sum.floats.size());
  sums.clear();
  launch.late_bytes = 0;
}

}  // namespace

const char* BulkCopy::action() const {
  if (kind == Kind::load) return is_line() ? "starts a bulk load" : "loads a box";
  if (kind == Kind::add) return "starts a bulk reduction";
  return is_line() ? "starts a bulk store" : "stores a box";
}

void land(Block& block, BulkCopy copy) {
  if (copy.flight != 0) block.tracer->end_copy(block, copy.flight);
  copy.stores() ? land_store(block, std::move(copy)) : land_load(block, copy);
}

void end_stores(Block& block) {
  LaunchState& launch = *block.launch;
  std::vector<BulkCopy>& writes = block.asynchrony->writes;
  arrange(block, writes);
  constexpr std::size_t kMostLateBytes = std::size_t(64) << 20;
  for (BulkCopy& copy : writes) {
    if (copy.kind != BulkCopy::Kind::add || launch.options.order != Order::shuffled) {
      write_out(copy);
      continue;
    }
    const std::lock_guard<std::mutex> lock(launch.mutex);
    launch.late_bytes += copy.bytes.size();
    launch.late_sums.push_back(
        {block.number, reinterpret_cast<std::uintptr_t>(copy.map.memory), std::move(copy.bytes)});
    if (launch.late_bytes > kMostLateBytes) add_late_sums_of(launch);
  }
  writes.clear();
}

void add_late_sums(LaunchState& launch) {
  add_late_sums_of(launch);
}

// --- Stores and accesses to device memory ----------------------------------------------------------------------------

namespace {

bool writes_to(const BulkCopy& copy, std::uintptr_t address, std::size_t size) {
  if (address + size <= copy.low || address >= copy.high) return false;
  bool meets = false;
  for_each_row(copy, [&](std::uint64_t, std::uint64_t to, std::int64_t, std::int64_t count) {
    meets |= count > 0 && address < to + std::uint64_t(count) * copy.map.element_bytes && to < address + size;
  });
  return meets;
}

void report_unfinished(Lane& lane, const BulkCopy& copy, const Tensor& tensor, std::uintptr_t address, Access access,
                       const void* pc, std::string what) {
  if (lane.block->damaged) return;
  Finding finding = finding_of(lane, Mistake::unfinished_store, pc, action_of(access), std::move(what));
  finding.variable = {tensor.name, words(" (global), element ", (address - tensor.low) / tensor.element_size)};
  finding.other = {copy.pc, copy.action(), copy.issuer->warp->index, copy.issuer->bit};
  if (!copy.bytes.empty())
    finding.what += "; cp_async_bulk_wait_group_read only waits until shared memory has been read";
  finding.advice =
      std::string(copy.group < 0 ? "call cp_async_bulk_commit_group() after the store, and then " : "call ") +
      "cp_async_bulk_wait_group<0>() in the thread that issued the store, before this access";
  note_finding(lane, std::move(finding));
}

}  // namespace

bool check_against_stores(Lane& lane, const Tensor& tensor, std::uintptr_t address, std::size_t size, Access access,
                          const void* pc) {
  const bool writes = access == Access::write || access == Access::matrix_write || access == Access::atomic;
  // Waiting would not help: each element of an output is written once, and note_write reports a second write.
  if (tensor.role == Role::output && writes && access != Access::atomic) return true;
  bool free = true;
  lane.block->asynchrony->for_each_store([&](const BulkCopy& copy) {
    if (!writes_to(copy, address, size) || (copy.kind == BulkCopy::Kind::add && access == Access::atomic)) return;
    free = false;
    report_unfinished(
        lane, copy, tensor, address, access, pc,
        writes ? "nothing orders this write after TMA's write to the same location: either may come last"
               : "nothing orders this read after TMA's write to the same location: it may see the old value");
  });
  return free;
}

void check_publication(Lane& lane, const Tensor& tensor, std::uintptr_t address, Access access, const void* pc) {
  if (access != Access::write && access != Access::atomic) return;
  lane.block->asynchrony->for_each_store([&](BulkCopy& copy) {
    if (copy.issuer != &lane || !copy.fenced) return;
    report_unfinished(
        lane, copy, tensor, address, access, pc,
        "the thread signals other threads after a __threadfence(), but the fence does not wait for its bulk store");
    copy.fenced = false;
  });
}

void thread_fence() {
  Lane& lane = *running;
  ++lane.block->counters.fences;
  note_fence(lane);
  if (lane.block->asynchrony == nullptr) return;
  lane.block->asynchrony->for_each_store([&](BulkCopy& copy) { copy.fenced |= copy.issuer == &lane; });
}

// --- What kernels call -----------------------------------------------------------------------------------------------

namespace {

void start_load(BulkCopy copy, std::uint64_t* at, std::int64_t number) {
  Lane& lane = *copy.issuer;
  Block& block = *lane.block;
  Asynchrony& all = *block.asynchrony;
  Mbarrier& barrier = used_barrier(lane, at, copy.action(), copy.pc);
  refuse_refill(lane, copy.shared);
  if (!barrier.fenced && !block.damaged) {
    Finding finding =
        refused(copy, Mistake::barrier_misuse, "the initialisation of the copy's mbarrier may not be visible to TMA",
                "call fence_mbarrier_init() in the thread that initialises the mbarriers, after mbarrier_init and "
                "before the __syncthreads()");
    finding.variable.name = name_of(block, barrier);
    finding.other = side_of(barrier.init_pc, "initialises the mbarrier", barrier.init_thread);
    note_finding(lane, std::move(finding));
  }
  copy.barrier = all.index_of(barrier);
  copy.phase = barrier.phase;
  barrier.copy_pc = copy.pc;
  barrier.copy_thread = lane.linear;
  barrier.copy_waited = lane.last_wait;
  barrier.copy_arrivals = lane.last_arrivals;
  if (block.launch->observing) {
    GlobalObserver::Traffic& traffic = block.global->of(tensor_of(copy));
    traffic.touched = true;
    count_at(block, copy.pc, [&] {
      traffic.counters.bulk_load_bytes += copy.map.box_bytes();
      ++block.counters.bulk_loads;
      ++block.counters.bulk_requests;
    });
  }
  if (block.launch->detecting) block.shared->begin_async_write(lane, copy);
  if (block.tracer != nullptr) [[unlikely]] {
    copy.flight = block.tracer->begin_copy(lane, words(tensor_of(copy).name, " ", number), name_of(block, barrier));
  }
  all.copies.push_back(std::move(copy));
}

void start_store(BulkCopy copy) {
  Lane& lane = *copy.issuer;
  Block& block = *lane.block;
  copy.low = ~std::uintptr_t(0);
  copy.high = 0;
  for_each_row(copy, [&](std::uint64_t, std::uint64_t to, std::int64_t, std::int64_t count) {
    if (count == 0) return;
    copy.low = std::min<std::uintptr_t>(copy.low, to);
    copy.high = std::max<std::uintptr_t>(copy.high, to + std::uint64_t(count) * copy.map.element_bytes);
  });
  if (block.launch->observing) {
    block.global->of(tensor_of(copy)).touched = true;
    count_at(block, copy.pc, [&] {
      ++(copy.kind == BulkCopy::Kind::add ? block.counters.bulk_reductions : block.counters.bulk_stores);
      block.counters.bulk_reductions_ordered += copy.kind == BulkCopy::Kind::add && block.polling.address != 0;
      block.counters.bulk_requests += 2;
    });
  }
  if (block.launch->detecting) {
    const Asynchrony::Stored now{code_of(copy.pc), lane.linear, copy.shared, copy.shared + copy.map.box_bytes(),
                                 copy.action(),    block.clock};
    auto& stored = block.asynchrony->stored;
    std::erase_if(stored, [&](const auto& before) {
      return before.pc == now.pc && before.thread == now.thread && before.low == now.low;
    });
    stored.push_back(now);
    AsyncReader reader{copy.action(), copy.pc, lane.bit, lane.warp->index};
    for (std::uint64_t i = 0; i < copy.map.box_bytes(); i += kPiece)
      block.shared->begin_async_read(lane, copy.shared + i, kPiece, reader);
  }
  block.asynchrony->copies.push_back(std::move(copy));
}

}  // namespace

void bulk_load(void* to, const TensorMap& map, std::uint64_t* at, const int* coordinates, int count) {
  const void* pc = __builtin_return_address(0);
  asynchrony(*running);
  BulkCopy copy = copy_of_box(BulkCopy::Kind::load, map, to, coordinates, count, pc);
  start_load(std::move(copy), at, coordinates[1] / static_cast<int>(map.box[1]));
}

void bulk_store(const TensorMap& map, const void* from, const int* coordinates, int count) {
  const void* pc = __builtin_return_address(0);
  asynchrony(*running);
  start_store(copy_of_box(BulkCopy::Kind::store, map, from, coordinates, count, pc));
}

void bulk_load_line(void* to, const void* from, std::int64_t bytes, std::uint64_t* at) {
  const void* pc = __builtin_return_address(0);
  asynchrony(*running);
  BulkCopy copy = copy_of_line(BulkCopy::Kind::load, from, to, bytes, pc);
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(from) - tensor_of(copy).low;
  start_load(std::move(copy), at, std::int64_t(offset) / bytes);
}

void bulk_store_line(void* to, const void* from, std::int64_t bytes, bool adds) {
  const void* pc = __builtin_return_address(0);
  asynchrony(*running);
  start_store(copy_of_line(adds ? BulkCopy::Kind::add : BulkCopy::Kind::store, to, from, bytes, pc));
}

void bulk_commit() {
  Lane& lane = *running;
  for (BulkCopy& copy : asynchrony(lane).copies) {
    if (copy.stores() && copy.issuer == &lane && copy.group < 0) copy.group = lane.store_groups;
  }
  ++lane.store_groups;
}

void bulk_wait(int groups_left, bool reads_alone) {
  Lane& lane = *running;
  Asynchrony& all = asynchrony(lane);
  const auto covered = [&](const BulkCopy& copy) {
    return copy.stores() && copy.issuer == &lane && copy.group >= 0 && copy.group < lane.store_groups - groups_left;
  };
  for (std::size_t i = 0; i < all.copies.size();) covered(all.copies[i]) ? all.carry_out(i) : void(++i);
  if (reads_alone) return;
  std::vector<BulkCopy> complete;
  for (BulkCopy& copy : all.writes) {
    if (covered(copy)) complete.push_back(std::move(copy));
  }
  std::erase_if(all.writes, covered);
  arrange(*lane.block, complete);
  for (const BulkCopy& copy : complete) write_out(copy);
}

}  // namespace simt
