// ldmatrix, stmatrix and mma: the instructions below WMMA, which define the matrix element of each register.
//
// Each lane checks its own arguments (the address of its row, the registers that it stores) on arrival. The last lane
// to arrive moves the elements for all lanes, or multiplies. Rows are read for the whole warp, as WMMA's operands are.
// Each lane writes its own elements, as if stmatrix were a sequence of ordinary stores.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>

#include "common/simt/address.hpp"
#include "common/simt/detect.hpp"
#include "common/simt/matrix.hpp"
#include "common/simt/program.hpp"
#include "common/simt/scheduler.hpp"
#include "common/simt/shared_memory.hpp"
#include "common/simt/tensor_math.hpp"
#include "common/simt/tracer.hpp"

namespace simt {

namespace {

constexpr int kRows = 8;       // of a matrix that ldmatrix or stmatrix moves
constexpr int kRowBytes = 16;  // per row

/// The location of a register's elements in an 8x8 matrix: row lane / 4, columns 2 (lane % 4) and the next.
struct PairLocation {
  int row, column;
};
constexpr PairLocation pair_location(int lane) {
  return {lane / 4, lane % 4 * 2};
}

/// Checks the row address of a lane; ends the lane if it is invalid.
void check_row(Lane& lane, std::uintptr_t row, Access access, const char* instruction, const void* pc) {
  SharedMemory& shared = *lane.block->shared;
  const bool inside = shared.contains(row);
  if (!inside || row % kRowBytes != 0) [[unlikely]] {
    Finding finding = finding_of(lane, inside ? Mistake::misaligned : Mistake::outside_shared, pc, action_of(access));
    if (inside) finding.variable = shared.variable(row);
    finding.what = inside ? words(instruction, " needs rows at multiples of 16 bytes; this row starts ",
                                  row % kRowBytes, " bytes after one")
                          : "a row of " + std::string(instruction) + " is not in shared memory";
    finding.advice =
        inside ? "use a row stride that is a multiple of 16 bytes, and columns at multiples of 8 elements"
               : "each lane must pass the shared-memory address of one row: lane 8 i + r passes row r of matrix i";
    refuse(lane, std::move(finding));
  }
  if (observed == nullptr) return;
  if (access == Access::matrix_read) {
    shared.check(lane, row, kRowBytes, access, ~0u, pc);
  } else {
    shared.check_bounds(lane, row, kRowBytes, access, pc);
  }
}

/// Reports uninitialised registers in the lanes for which `unset(lane)` is true.
template <class Unset>
void report_unset(const Warp& warp, const char* action, std::string what, std::string advice, Unset unset) {
  if (warp.block->damaged) return;
  std::uint32_t lanes = 0;
  for (int lane = 0; lane < kWarpSize; ++lane) lanes |= std::uint32_t(unset(lane)) << lane;
  const Lane& lane = warp.lanes[std::countr_zero(lanes)];
  Finding finding =
      finding_of(lane, Mistake::unset_fragment, lane.waits_at, action, std::move(what), std::move(advice));
  finding.side.lanes = lanes;
  note_finding(lane, std::move(finding));
}

// --- The same instruction for all lanes ------------------------------------------------------------------------------

/// Whether two code addresses belong to one line: compilers duplicate calls. Cached, because the lookup is slow.
bool same_line(const void* a, const void* b) {
  static thread_local std::map<const void*, SourceLine> known;
  const auto line_of = [](const void* pc) -> const SourceLine& {
    const auto [at, fresh] = known.try_emplace(pc);
    if (fresh) at->second = source_line(pc);
    return at->second;
  };
  const SourceLine &x = line_of(a), &y = line_of(b);
  return x.line == y.line && x.file == y.file;
}

/// Whether all lanes execute the same instruction at the same line; reports it if not. False if they execute different
/// ones, so that there is nothing to carry out.
bool same_instruction(const Warp& warp, Collective operation) {
  const auto& form = warp.instruction.form;
  const Lane* lanes = warp.lanes;
  std::uint32_t other_form = 0, other_place = 0;
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if (form[lane].operation != operation) {  // it has called another function, which was reported on its arrival
      warp.block->damaged = true;
      return false;
    }
    other_form |= std::uint32_t(!(form[lane] == form[0])) << lane;
    other_place |= std::uint32_t(lanes[lane].waits_at != lanes[0].waits_at) << lane;
  }
  if ((other_form | other_place) == 0) [[likely]]
    return true;
  for (std::uint32_t m = other_place & ~other_form; m != 0; m &= m - 1) {
    const int lane = std::countr_zero(m);
    if (same_line(lanes[lane].waits_at, lanes[0].waits_at)) other_place &= ~(1u << lane);
  }
  const std::uint32_t others = other_form | other_place;
  if (others == 0) return true;
  if (!warp.block->damaged) {
    const Lane& other = lanes[std::countr_zero(others)];
    Finding finding = finding_of(lanes[0], Mistake::divergent_collective, lanes[0].waits_at, "calls");
    finding.side.lanes = ~others;
    finding.other = {other.waits_at, "calls", warp.index, others};
    if (finding.side.pc < finding.other.pc) {  // reported in the order of the code, not of the lanes
      std::swap(finding.side.pc, finding.other.pc);
      std::swap(finding.side.lanes, finding.other.lanes);
    }
    const std::string name = name_of(operation);
    finding.what = "the lanes of the warp do not execute the same " + name;
    finding.advice = "all 32 lanes must execute the same " + name + ": move it out of the branch";
    note_finding(lanes[0], std::move(finding));
  }
  if (other_form != 0) warp.block->damaged = true;  // some registers stay uninitialised
  return other_form == 0;
}

// --- Matrices between shared memory and registers --------------------------------------------------------------------

/// All rows of one instruction must be in one member; reports it if not.
void check_one_member(const Warp& warp, int rows, Access access) {
  const SharedMemory& shared = *warp.block->shared;
  const std::uintptr_t* row = warp.instruction.row;
  const auto [lowest, highest] = std::minmax_element(row, row + rows);
  if (shared.same_member(*lowest, *highest)) [[likely]]
    return;
  int other = 1;
  while (other < rows - 1 && shared.same_member(row[0], row[other])) ++other;
  const Lane& lane = warp.lanes[other];
  Finding finding = finding_of(lane, Mistake::outside_shared, lane.waits_at, action_of(access));
  finding.variable = shared.variable(row[other]);
  finding.what =
      "this row is in " + finding.variable.name + ", but the first row is in " + shared.variable(row[0]).name;
  finding.advice = "check the row index; rows of two members need two instructions";
  note_finding(lane, std::move(finding));
}

void load(Warp& warp, int matrices, bool transposed) {
  const auto& in = warp.instruction;
  std::uint16_t matrix[kRows][kRows];
  for (int i = 0; i < matrices; ++i) {
    for (int r = 0; r < kRows; ++r) std::memcpy(matrix[r], at_address<const void>(in.row[kRows * i + r]), kRowBytes);
    for (int lane = 0; lane < kWarpSize; ++lane) {
      const auto [row, column] = pair_location(lane);
      std::uint16_t pair[2];
      for (int e = 0; e < 2; ++e) pair[e] = transposed ? matrix[column + e][row] : matrix[row][column + e];
      std::memcpy(in.registers[lane] + std::ptrdiff_t(4) * i, pair, 4);
    }
  }
}

void store(Warp& warp, int matrices, bool transposed) {
  const auto& in = warp.instruction;
  Block& block = *warp.block;
  const auto put = [&](Lane& lane, std::uintptr_t to, const void* from, std::size_t bytes) {
    if (block.launch->observing) block.shared->check(lane, to, bytes, Access::matrix_write, lane.bit, lane.waits_at);
    std::memcpy(at_address<void>(to), from, bytes);
  };
  for (int i = 0; i < matrices; ++i) {
    for (int lane = 0; lane < kWarpSize; ++lane) {
      const auto [row, column] = pair_location(lane);
      const std::uintptr_t* rows = in.row + std::ptrdiff_t(kRows) * i;
      std::uint16_t pair[2];
      std::memcpy(pair, &in.a[lane][i], 4);
      if (transposed) {
        for (int e = 0; e < 2; ++e)
          put(warp.lanes[lane], rows[column + e] + std::uintptr_t(2) * unsigned(row), &pair[e], 2);
      } else {
        put(warp.lanes[lane], rows[row] + std::uintptr_t(2) * unsigned(column), pair, 4);
      }
    }
  }
}

void move_matrices(Warp& warp, bool stores) {
  const auto& in = warp.instruction;
  const auto form = in.form[0];
  Block& block = *warp.block;
  const auto unset = [&](int lane) { return any_unset(in.a[lane], 2 * form.matrices, form.element); };
  for (int lane = 0; stores && lane < kWarpSize; ++lane) {
    if (!unset(lane)) [[likely]]
      continue;
    report_unset(warp, "stores a matrix", "it stores registers that were never loaded or computed",
                 "load or compute them first", unset);
    break;
  }
  if (block.launch->observing) {
    check_one_member(warp, kRows * form.matrices, stores ? Access::matrix_write : Access::matrix_read);
    const void* pc = warp.lanes[0].waits_at;
    count_at(block, pc, [&] { count_matrix_rows(block, in.row, form.matrices, stores, pc); });
  }
  stores ? store(warp, form.matrices, form.transposed) : load(warp, form.matrices, form.transposed);
}

// --- mma -------------------------------------------------------------------------------------------------------------

/// For each `step`-th element of each lane's fragment, lane after lane: its row-major index in the matrix.
template <int elements, int step>
constexpr auto indices(FragmentType type) {
  std::array<std::uint16_t, std::size_t(elements / step)> at{};
  constexpr int of_lane = elements / kWarpSize;
  for (int i = 0; i < elements; i += step) {
    const auto [row, column] = fragment_position(type, i / of_lane, i % of_lane);
    at[std::size_t(i / step)] = static_cast<std::uint16_t>(row * columns_of(type) + column);
  }
  return at;
}
/// Converts between the order of the lanes and row-major order, `step` adjacent elements at a time.
template <int step, std::size_t count>
void to_rows(const std::array<std::uint16_t, count>& at, const float* lanes, float* rows) {
  for (std::size_t i = 0; i < count; ++i) std::memcpy(rows + at[i], lanes + i * step, step * sizeof(float));
}
template <int step, std::size_t count>
void to_lanes(const std::array<std::uint16_t, count>& at, const float* rows, float* lanes) {
  for (std::size_t i = 0; i < count; ++i) std::memcpy(lanes + i * step, rows + at[i], step * sizeof(float));
}

constexpr int kResults = 16 * 8;
constexpr auto results = indices<kResults, 2>({FragmentType::accumulator, ElementType::float32, 16, 8, 16, 0});

/// The operands as matrices (16, k) and (k, 8), from all lanes' registers. The two elements of a register are adjacent
/// in a row of a, and in a column of b.
template <int k, ElementType layout>
void gather(const Warp& warp, ElementType element, float* a, float* b) {
  constexpr int step = k / 8;
  static constexpr auto at_a = indices<16 * k, step>({FragmentType::a, layout, 16, 8, k, 0});
  static constexpr auto at_b = indices<8 * k, 1>({FragmentType::b, layout, 16, 8, k, 0});
  alignas(64) float lanes[16 * k];
  widen(warp.instruction.a, element, lanes, 16 * k);
  to_rows<step>(at_a, lanes, a);
  widen(warp.instruction.b, element, lanes, 8 * k);
  to_rows<1>(at_b, lanes, b);
}

void multiply(Warp& warp) {
  const auto& in = warp.instruction;
  const ElementType element = in.form[0].element;
  const bool tf32 = element == ElementType::tf32;
  const int in_register = tf32 ? 1 : 2, k = tf32 ? 8 : 16;
  alignas(64) float a[16 * 16], b[16 * 8], c[kResults], lanes[kResults];
  for (std::ptrdiff_t lane = 0; lane < kWarpSize; ++lane) std::memcpy(lanes + 4 * lane, in.registers[lane], 16);

  const bool unset_a = any_unset(in.a, kWarpSize * 4 * in_register, element),
             unset_b = any_unset(in.b, kWarpSize * 2 * in_register, element),
             unset_d = any_unset(lanes, kResults, ElementType::float32), unset = unset_a || unset_b || unset_d;
  const char *load_it = "load it with ldmatrix, or compute it, first", *verb = "multiplies";
  if (unset_a) [[unlikely]] {
    report_unset(warp, verb, "matrix A has registers that were never loaded or computed", load_it,
                 [&](int lane) { return any_unset(in.a[lane], 4 * in_register, element); });
  } else if (unset_b) [[unlikely]] {
    report_unset(warp, verb, "matrix B has registers that were never loaded or computed", load_it,
                 [&](int lane) { return any_unset(in.b[lane], 2 * in_register, element); });
  } else if (unset_d) [[unlikely]] {
    report_unset(warp, verb, "the accumulator D has registers that were never set",
                 "fill it with 0 before the first mma",
                 [&](int lane) { return any_unset(lanes + std::ptrdiff_t(4) * lane, 4, ElementType::float32); });
  }

  tf32 ? gather<8, ElementType::tf32>(warp, element, a, b) : gather<16, ElementType::half>(warp, element, a, b);
  to_rows<2>(results, lanes, c);
  multiply_matrices(16, 8, k, a, b, c);
  if (unset) [[unlikely]]
    make_nans_ordinary(c, kResults);
  to_lanes<2>(results, c, lanes);
  for (std::ptrdiff_t lane = 0; lane < kWarpSize; ++lane) std::memcpy(in.registers[lane], lanes + 4 * lane, 16);
  count_at(*warp.block, warp.lanes[0].waits_at, [&warp, &counters = warp.block->counters] {
    ++counters.multiply_calls;
    ++counters.tensor_instructions;
    counters.multiplies_beside_copies += copies_in_flight(warp);
    count_waits_together(warp.lanes[0], counters.mbarrier_waits_together);
  });
}

/// The lanes of the warp carry out the instruction whose operands they have stored.
void together(Lane& lane, Warp::Instruction::Form form, const void* pc) {
  lane.warp->instruction.form[lane.index] = form;
  rendezvous(~0u, form.operation, pc);
  lane.warp->instruction.form[lane.index] = {};
}

}  // namespace

void execute_instruction(Warp& warp, Collective operation) {
  if (!same_instruction(warp, operation)) return;
  if (operation == Collective::multiply_registers) return multiply(warp);
  move_matrices(warp, operation == Collective::store_matrices);
}

// --- What kernels call -----------------------------------------------------------------------------------------------

void unset_registers(void* x, int count, ElementType element) {
  observe_registers(x, std::size_t(unsigned(count * bytes_of(element))), Access::write, __builtin_return_address(0));
  fill_unset(x, count, element);
}

void load_matrices(void* registers, int count, bool transposed, const void* row) {
  Lane& lane = *running;
  Warp::Instruction& in = lane.warp->instruction;
  const void* pc = __builtin_return_address(0);
  const auto address = reinterpret_cast<std::uintptr_t>(row);
  if (lane.index < kRows * count) check_row(lane, address, Access::matrix_read, "ldmatrix", pc);
  in.row[lane.index] = address;
  observe_registers(registers, std::size_t(4) * unsigned(count), Access::write, pc);
  in.registers[lane.index] = static_cast<std::byte*>(registers);
  together(lane, {Collective::load_matrices, static_cast<std::uint8_t>(count), transposed, ElementType::half}, pc);
  lane.shuffles_at_read = lane.warp->shuffles;
}

void store_matrices(void* row, const void* registers, int count, bool transposed, ElementType element) {
  Lane& lane = *running;
  Warp::Instruction& in = lane.warp->instruction;
  const void* pc = __builtin_return_address(0);
  const auto address = reinterpret_cast<std::uintptr_t>(row);
  if (lane.index < kRows * count) check_row(lane, address, Access::matrix_write, "stmatrix", pc);
  in.row[lane.index] = address;
  observe_registers(registers, std::size_t(4) * unsigned(count), Access::read, pc);
  std::memcpy(in.a[lane.index], registers, std::size_t(4) * static_cast<unsigned>(count));
  together(lane, {Collective::store_matrices, static_cast<std::uint8_t>(count), transposed, element}, pc);
}

void multiply_registers(float* d, const void* a, std::uint32_t b0, std::uint32_t b1, ElementType element) {
  Lane& lane = *running;
  Warp::Instruction& in = lane.warp->instruction;
  const void* pc = __builtin_return_address(0);
  observe_registers(a, sizeof in.a[0], Access::read, pc);
  observe_registers(d, 16, Access::read, pc);
  observe_registers(d, 16, Access::write, pc);
  std::memcpy(in.a[lane.index], a, sizeof in.a[0]);
  in.b[lane.index][0] = b0;
  in.b[lane.index][1] = b1;
  in.registers[lane.index] = reinterpret_cast<std::byte*>(d);
  together(lane, {Collective::multiply_registers, 0, false, element}, pc);
}

}  // namespace simt
