// Converts the records of a warp to counters: sectors of global accesses, wavefronts of shared accesses, and matrix
// accesses as the machine instructions that implement them.
#include <algorithm>
#include <cstring>

#include "common/simt/banks.hpp"
#include "common/simt/detect.hpp"
#include "common/simt/global_memory.hpp"
#include "common/simt/matrix.hpp"
#include "common/simt/scheduler.hpp"
#include "common/simt/tracer.hpp"

namespace simt {

namespace {

/// Whether all participating lanes access the same address as their partner, the lane whose number differs by `bit`.
bool same_in_pairs(const std::uint64_t* address, std::uint32_t mask, int bit) {
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const int partner = lane ^ bit;
    if ((mask >> lane & 1) && (mask >> partner & 1) && address[lane] != address[partner]) return false;
  }
  return true;
}

/// A load of 8 or 16 bytes per lane is served in groups twice as large if lanes share addresses: each lane with lane ^
/// 1, or each lane with lane ^ 2. (Measured on an H200; test_counters.cpp has the patterns.)
int lanes_per_wavefront_of_load(const std::uint64_t* address, std::uint32_t mask, unsigned size) {
  const int lanes = lanes_per_wavefront_of(size);
  if (size <= 4) return lanes;
  return same_in_pairs(address, mask, 1) || same_in_pairs(address, mask, 2) ? 2 * lanes : lanes;
}

/// The different 32-byte sectors that the lanes access: at most one each, because accesses are aligned.
int distinct_sectors(const std::uint64_t* address, std::uint32_t mask, std::uint64_t* sectors) {
  int count = 0;
  bool ascending = true;
  for (std::uint32_t m = mask; m != 0; m &= m - 1) {
    const std::uint64_t sector = address[std::countr_zero(m)] / 32;
    if (count > 0 && sectors[count - 1] == sector) continue;
    if (count > 0 && sectors[count - 1] > sector) ascending = false;
    sectors[count++] = sector;
  }
  if (ascending) return count;
  std::sort(sectors, sectors + count);
  return static_cast<int>(std::unique(sectors, sectors + count) - sectors);
}

/// An atomic requests a sector once for each lane that updates the same address; the address with the most lanes in the
/// sector decides. (Measured on an H200; test_counters.cpp has the patterns.)
std::uint64_t sectors_of_atomic(const std::uint64_t* address, std::uint32_t mask) {
  std::uint64_t addresses[kWarpSize];
  int count = 0;
  for (std::uint32_t m = mask; m != 0; m &= m - 1) addresses[count++] = address[std::countr_zero(m)];
  std::sort(addresses, addresses + count);
  std::uint64_t sum = 0;
  for (int i = 0; i < count;) {
    const std::uint64_t sector = addresses[i] / 32;
    int most = 0;
    while (i < count && addresses[i] / 32 == sector) {
      const int first = i;
      while (i < count && addresses[i] == addresses[first]) ++i;
      most = std::max(most, i - first);
    }
    sum += static_cast<std::uint64_t>(most);
  }
  return sum;
}

/// Sets the sectors' bits; returns how many were new.
std::uint64_t touch(std::atomic<std::uint64_t>* bits, std::uint64_t first_sector, const std::uint64_t* sectors,
                    int count) {
  std::uint64_t fresh = 0;
  for (int i = 0; i < count; ++i) {
    fresh += simt::touch(bits, sectors[i] - first_sector);
  }
  return fresh;
}

void count_global(Block& block, const Tensor& tensor, const std::uint64_t* address, std::uint32_t mask, unsigned size,
                  Access access) {
  std::uint64_t sectors[kWarpSize];
  const int count = distinct_sectors(address, mask, sectors);
  const std::uint64_t bytes = std::uint64_t(std::popcount(mask)) * size;
  GlobalObserver::Traffic& traffic = block.global->of(tensor);
  traffic.touched = true;
  GlobalCounters& c = traffic.counters;
  switch (access) {
    case Access::read:
    case Access::matrix_read:
      ++c.load_requests;
      c.load_sectors += count;
      c.load_bytes += bytes;
      break;
    case Access::async:
      ++c.async_requests;
      c.async_sectors += count;  // bytes and tiles are counted at issue: lanes may differ in zero fill
      break;
    case Access::write:
    case Access::matrix_write:
      ++c.store_requests;
      c.store_sectors += count;
      c.store_bytes += bytes;
      break;
    case Access::atomic:
      ++c.atomic_requests;
      c.atomic_sectors += sectors_of_atomic(address, mask);
      break;
  }
  const bool reads = access == Access::read || access == Access::matrix_read || access == Access::async;
  std::atomic<std::uint64_t>* elements = (reads ? tensor.elements_read : tensor.elements_written).get();
  for (std::uint32_t m = elements == nullptr ? 0 : mask; m != 0; m &= m - 1)
    mark_elements(tensor, elements, address[std::countr_zero(m)], size);
  const std::uint64_t first = tensor.low / 32;
  if (reads) {
    c.unique_read_sectors += touch(tensor.sectors_read.get(), first, sectors, count);
    if (tensor.tile_bytes != 0 && access != Access::async) {
      for (std::uint32_t m = mask; m != 0; m &= m - 1)
        block.global->read_tile(tensor, address[std::countr_zero(m)], size);
    }
  } else {
    c.unique_written_sectors += touch(tensor.sectors_written.get(), first, sectors, count);
  }
}

void add_shared(SharedCounters& c, Access access, std::uint64_t instructions, Wavefronts w) {
  if (access == Access::read || access == Access::matrix_read) {
    c.load_instructions += instructions;
    c.load_wavefronts += w.actual;
    c.load_ideal += w.ideal;
  } else {
    c.store_instructions += instructions;
    c.store_wavefronts += w.actual;
    c.store_ideal += w.ideal;
  }
}

void count_shared(Block& block, const Record& record) {
  SharedCounters& c = block.counters.shared;
  if (record.access == Access::atomic) {
    ++c.atomic_instructions;
  } else if (record.mask == ~0u && (record.ascending || (record.uniform && record.size <= 4))) {
    const auto groups = static_cast<std::uint32_t>(kWarpSize / lanes_per_wavefront_of(record.size));
    add_shared(c, record.access, 1, {groups, groups});
  } else {
    const int lanes = record.access == Access::read
                          ? lanes_per_wavefront_of_load(record.address, record.mask, record.size)
                          : lanes_per_wavefront_of(record.size);
    add_shared(c, record.access, 1, wavefronts(record.address, record.mask, record.size, lanes));
  }
}

/// The cost of a matrix access in shared memory: LDSM for 16-bit operands, otherwise one instruction for each
/// contiguous piece of the fragment.
MatrixCost cost_in_shared(const MatrixInMemory& matrix) {
  MatrixCost cost{};
  std::uint64_t address[kWarpSize] = {};
  if (matrix.loaded_by_ldsm()) {
    int matrices = 0;  // 8x8 matrices of 16-byte rows; one instruction loads up to four
    for (; matrix.ldsm_rows(matrices, address); ++matrices) cost.wavefronts += wavefronts(address, 0xff, 16, 8);
    cost.matrix_loads = static_cast<std::uint32_t>(matrices + 3) / 4;
    return cost;
  }
  const MachineLayout& layout = layout_of(*matrix.type);
  cost.instructions = static_cast<std::uint32_t>(matrix.pieces());
  for (int piece = 0; piece < matrix.pieces(); ++piece) {
    for (int lane = 0; lane < kWarpSize; ++lane) address[lane] = matrix.piece_address(layout, lane, piece);
    cost.wavefronts += wavefronts(address, ~0u, matrix.piece_bytes(), lanes_per_wavefront_of(matrix.piece_bytes()));
  }
  return cost;
}

void count_matrix(Block& block, const Record& record) {
  const int lane = std::countr_zero(record.mask);
  const MatrixInMemory matrix{record.address[lane], record.leading, record.row_major, record.type};
  if (record.space == Space::shared) {
    // Only the bank of the start address matters: the same few kinds recur.
    const MatrixCosts::Kind kind{record.type, record.leading, static_cast<std::uint8_t>(matrix.address % 128),
                                 record.row_major};
    const MatrixCost& cost = block.matrix_costs.of(kind, [&] { return cost_in_shared(matrix); });
    add_shared(block.counters.shared, record.access, cost.instructions, cost.wavefronts);
    block.counters.shared.matrix_loads += cost.matrix_loads;
    return;
  }
  const MachineLayout& layout = layout_of(*record.type);
  for (int piece = 0; piece < matrix.pieces(); ++piece) {
    std::uint64_t address[kWarpSize];
    for (int l = 0; l < kWarpSize; ++l) address[l] = matrix.piece_address(layout, l, piece);
    count_global(block, *record.tensor, address, record.mask, matrix.piece_bytes(), record.access);
  }
}

/// Lanes of one instruction may access different tensors (a pointer selected by a condition, or lanes that reach the
/// same line a different number of times): counted for each tensor.
void count_global(Block& block, const Record& record) {
  for (std::uint32_t left = record.mask; left != 0;) {
    const std::uint64_t first = record.address[std::countr_zero(left)];
    const Tensor& tensor = record.tensor->contains(first) ? *record.tensor : *find_tensor(first);
    std::uint32_t inside = 0;
    for (std::uint32_t m = left; m != 0; m &= m - 1) {
      if (tensor.contains(record.address[std::countr_zero(m)])) inside |= m & -m;
    }
    count_global(block, tensor, record.address, inside, record.size, record.access);
    left &= ~inside;
  }
}

void count(Warp& warp, const Record& record) {
  Block& block = *warp.block;
  if (record.type != nullptr) {
    check_matrix_lanes(warp, record);
    count_matrix(block, record);
  } else if (record.space == Space::shared) {
    if (record.access == Access::async) {
      ++block.counters.async_instructions;
    } else {
      count_shared(block, record);
    }
  } else {
    count_global(block, record);
  }
}

/// Passes the shared-memory accesses of a record to the tracer.
void consider(Block& block, const Record& record) {
  if (record.space != Space::shared || record.access == Access::atomic || record.access == Access::async) return;
  Tracer& tracer = *block.tracer;
  if (record.type == nullptr) {
    const int lanes = record.access == Access::read
                          ? lanes_per_wavefront_of_load(record.address, record.mask, record.size)
                          : lanes_per_wavefront_of(record.size);
    return tracer.consider(block, record.pc, record.address, record.mask, record.size, lanes, false);
  }
  const MatrixInMemory matrix{record.address[std::countr_zero(record.mask)], record.leading, record.row_major,
                              record.type};
  std::uint64_t address[kWarpSize] = {};
  if (matrix.loaded_by_ldsm()) {
    for (int index = 0; matrix.ldsm_rows(index, address); ++index)
      tracer.consider(block, record.pc, address, 0xff, 16, 8, true);
    return;
  }
  const MachineLayout& layout = layout_of(*matrix.type);
  for (int piece = 0; piece < matrix.pieces(); ++piece) {
    for (int lane = 0; lane < kWarpSize; ++lane) address[lane] = matrix.piece_address(layout, lane, piece);
    tracer.consider(block, record.pc, address, ~0u, matrix.piece_bytes(), lanes_per_wavefront_of(matrix.piece_bytes()),
                    false);
  }
}

}  // namespace

void count_matrix_rows(Block& block, const std::uintptr_t* rows, int matrices, bool stores, const void* pc) {
  for (int i = 0; block.tracer != nullptr && i < matrices; ++i)
    block.tracer->consider(block, pc, rows + std::ptrdiff_t(8) * i, 0xff, 16, 8, true);
  Wavefronts sum{0, 0};
  for (int i = 0; i < matrices; ++i, rows += 8) {
    unsigned bank_groups = 0;  // groups of four banks at which the eight rows start
    for (int r = 0; r < 8; ++r) bank_groups |= 1u << (rows[r] / 16 % 8);
    sum += bank_groups == 0xff ? Wavefronts{1, 1} : wavefronts(rows, 0xff, 16, 8);
  }
  SharedCounters& c = block.counters.shared;
  if (stores) {
    add_shared(c, Access::matrix_write, 0, sum);
    ++c.matrix_stores;
  } else {
    add_shared(c, Access::matrix_read, 0, sum);
    ++c.matrix_loads;
  }
}

void flush(Warp& warp) {
  Block& block = *warp.block;
  if (block.tracer == nullptr) [[likely]] {
    for (const Record& record : warp.recorder) count(warp, record);
  } else {
    for (const Record& record : warp.recorder) {
      block.tracer->count(block, record.pc, [&] { count(warp, record); });
      consider(block, record);
    }
  }
  warp.recorder.clear();
}

}  // namespace simt
