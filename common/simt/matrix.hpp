// The layout of a WMMA matrix in memory and in the lanes' registers. Internal.
//
// CUDA does not specify the layout of a fragment. The counters need the hardware's layout (that of mma.m16n8k16 in the
// PTX ISA), because it determines the addresses of each instruction. Accumulators are kept in that layout. Operands A
// and B are kept as plain blocks of rows, which is faster and equally valid.
#pragma once

#include <cstdint>

#include "common/simt/execution.hpp"
#include "common/simt/fragment_layout.hpp"

namespace simt {

struct Place {
  std::uint8_t row, column;
};

/// fragment_position as a lookup table.
struct MachineLayout {
  static constexpr int kMostElements = 16;
  Place at[kWarpSize][kMostElements] = {};
  explicit constexpr MachineLayout(const FragmentType& type) {
    const int count = rows_of(type) * columns_of(type) / kWarpSize;
    for (int lane = 0; lane < kWarpSize; ++lane) {
      for (int e = 0; e < count; ++e) {
        const auto [row, column] = fragment_position(type, lane, e);
        at[lane][e] = {static_cast<std::uint8_t>(row), static_cast<std::uint8_t>(column)};
      }
    }
  }
};

inline const MachineLayout& layout_of(const FragmentType& type) {
  using enum ElementType;
  static constexpr MachineLayout a_square({FragmentType::a, half, 16, 16, 16, 16}),
      a_tall({FragmentType::a, half, 32, 8, 16, 16}), a_wide({FragmentType::a, half, 8, 32, 16, 16}),
      b_square({FragmentType::b, half, 16, 16, 16, 16}), b_tall({FragmentType::b, half, 32, 8, 16, 16}),
      b_wide({FragmentType::b, half, 8, 32, 16, 16}), a_tf32({FragmentType::a, tf32, 16, 16, 8, 4}),
      b_tf32({FragmentType::b, tf32, 16, 16, 8, 4}), c_square({FragmentType::accumulator, float32, 16, 16, 16, 8}),
      c_tall({FragmentType::accumulator, float32, 32, 8, 16, 8}),
      c_wide({FragmentType::accumulator, float32, 8, 32, 16, 8});
  switch (type.use) {
    case FragmentType::a:
      return type.element == tf32 ? a_tf32 : type.m == 16 ? a_square : type.m == 32 ? a_tall : a_wide;
    case FragmentType::b:
      return type.element == tf32 ? b_tf32 : type.m == 16 ? b_square : type.m == 32 ? b_tall : b_wide;
    default:
      return type.m == 16 ? c_square : type.m == 32 ? c_tall : c_wide;
  }
}

/// A matrix in memory.
struct MatrixInMemory {
  std::uint64_t address;
  unsigned leading;  ///< elements between lines
  bool row_major;
  const FragmentType* type;

  // A line is contiguous in memory: a row if row-major, otherwise a column.
  int lines() const { return row_major ? rows_of(*type) : columns_of(*type); }
  int line_bytes() const { return (row_major ? columns_of(*type) : rows_of(*type)) * bytes_of(type->element); }
  std::uint64_t line(int i) const { return address + std::uint64_t(i) * leading * bytes_of(type->element); }
  std::uint64_t element(Place p) const {
    const std::uint64_t bytes = bytes_of(type->element);
    return row_major ? line(p.row) + p.column * bytes : line(p.column) + p.row * bytes;
  }

  /// 16-bit operands are loaded from shared memory by LDSM, row- or column-major.
  bool loaded_by_ldsm() const { return type->use != FragmentType::accumulator && bytes_of(type->element) == 2; }
  /// The row addresses of the i-th 8x8 matrix that LDSM loads; false past the last matrix.
  bool ldsm_rows(int i, std::uint64_t* rows) const {
    const int across = line_bytes() / 16;
    if (i >= lines() / 8 * across) return false;
    for (int r = 0; r < 8; ++r) rows[r] = line(i / across * 8 + r) + std::uint64_t(16) * (i % across);
    return true;
  }

  /// Accesses without LDSM: pieces of a lane's fragment, each accessed by one instruction. Two adjacent elements of a
  /// line are one piece.
  bool paired() const {
    if (type->element == ElementType::tf32) return false;
    const bool pairs_in_row = type->use == FragmentType::a || (type->use == FragmentType::accumulator && type->m != 8);
    return pairs_in_row == row_major;
  }
  int elements_of_lane() const { return rows_of(*type) * columns_of(*type) / kWarpSize; }
  int pieces() const { return paired() ? elements_of_lane() / 2 : elements_of_lane(); }
  unsigned piece_bytes() const { return static_cast<unsigned>(bytes_of(type->element) * (paired() ? 2 : 1)); }
  std::uint64_t piece_address(const MachineLayout& layout, int lane, int piece) const {
    return element(layout.at[lane][paired() ? 2 * piece : piece]);
  }
};

/// Whether all lanes execute a matrix access with the same arguments; reports it if not.
void check_matrix_lanes(const Warp& warp, const Record& record);

}  // namespace simt
