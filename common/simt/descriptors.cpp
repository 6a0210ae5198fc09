// Checks whether the matrix descriptors of a wgmma match the contents of shared memory. For every 16 bytes loaded by
// TMA, their location in the box is known. Any wrong swizzle, stride, leading dimension offset or start address is
// detected, because a row of the operand is then not the next row of the box. For data written by threads this is
// unknown; but no two rows of a matrix may overlap.
#include <algorithm>
#include <cstdlib>

#include "common/simt/scheduler.hpp"
#include "common/simt/shared_memory.hpp"
#include "common/simt/wgmma.hpp"

namespace simt {

namespace {

const char* name_of(Swizzle swizzle) {
  // In the order of Swizzle.
  static constexpr const char* names[] = {"no swizzle", "the 32-byte swizzle", "the 64-byte swizzle",
                                          "the 128-byte swizzle"};
  return names[std::size_t(swizzle)];
}

struct Check {
  Lane& lane;
  const Wgmma& wgmma;
  const char* which;  ///< "A", "B"
  SharedMemory& shared = *lane.block->shared;

  Finding finding(Mistake mistake, std::string what, std::string advice) const {
    Finding f = finding_of(lane, mistake, wgmma.pc, "multiplies",
                           std::string("matrix ") + which + ": " + std::move(what), std::move(advice));
    f.side.lanes = ~0u;
    return f;
  }

  /// Errors that do not depend on the contents of shared memory; does not return if there is one.
  void form(const Operand& operand) const {
    const Descriptor& d = operand.descriptor;
    const std::uint32_t span = swizzle_span(d.swizzle);
    if (operand.transposed && span == 0) {
      refuse(lane, finding(Mistake::descriptor, "the simulator does not support transposed operands without swizzle",
                           "use the 32-, 64- or 128-byte swizzle"));
    }
    if (operand.transposed && wgmma.form.element == ElementType::e4m3) {
      refuse(lane, finding(Mistake::descriptor, "8-bit operands cannot be transposed",
                           "store the matrix so that its rows run along k"));
    }
    const std::uint32_t beyond = span == 0 ? 0 : d.start % (8 * span) / 128 * 128;
    if (beyond != 0 && d.base_offset == 0) {
      Finding f = finding(Mistake::descriptor,
                          words("its start address is ", beyond, " bytes past a multiple of ", 8 * span,
                                " bytes, the size of a swizzle atom"),
                          "align swizzled tiles to 1024 bytes: alignas(1024)");
      f.variable = shared.variable(shared.at_offset(d.start));
      if (shared.same_member(shared.at_offset(d.start), shared.at_offset(d.start - beyond)))
        f.advice =
            words("the offset added to a descriptor must be less than the ", span,
                  " bytes of a row: the next section starts a whole section further. If the tile itself starts there: ",
                  f.advice);
      refuse(lane, std::move(f));
    }
    if (operand.transposed && d.leading == 0 && operand.rows * 2 > int(span)) {
      Finding f = finding(Mistake::descriptor,
                          words("it has ", operand.rows, " columns in sections of ", span / 2,
                                ", but a leading dimension byte offset of 0: every section is the first one"),
                          "pass the bytes from one section to the next as the leading dimension byte offset");
      f.variable = shared.variable(shared.at_offset(d.start));
      refuse(lane, std::move(f));
    }
  }

  /// Eight rows of a swizzled operand are a swizzle atom. If two atoms overlap, the stride or leading dimension offset
  /// is wrong.
  void overlaps(const Operand& operand) const {
    const Descriptor& d = operand.descriptor;
    const auto pattern = std::int64_t(8) * swizzle_span(d.swizzle);
    const int eights = operand.lines() / 8;
    const int sections = operand.transposed && pattern != 0 ? std::max(1, operand.rows * 16 / int(pattern)) : 1;
    for (int section = 0; section < sections; ++section) {
      for (int eight = section == 0 ? 1 : 0; eight < eights; ++eight) {
        const std::int64_t across = section * std::int64_t(d.leading), down = eight * std::int64_t(d.stride);
        const std::int64_t apart = std::min(across + down, std::abs(across - down));
        if (apart >= pattern) continue;
        Finding f = finding(Mistake::descriptor,
                            words(section == 0 ? std::string("groups of eight rows start ")
                                  : eight == 0 ? words("sections of ", pattern / 16, " columns start ")
                                               : "a group of eight rows and one of the next section start ",
                                  apart, " bytes apart, but a swizzle atom has ", pattern, " bytes: they overlap"),
                            "pass the bytes between groups of eight rows as the stride dimension byte offset, and "
                            "those between sections as the leading dimension byte offset");
        f.variable = shared.variable(shared.at_offset(d.start));
        note_finding(lane, std::move(f));
        lane.block->damaged = true;
        return;
      }
    }
  }

  /// All of the operand must be in one member.
  void bounds(const Operand& operand) const {
    const std::uintptr_t first = shared.at_offset(operand.descriptor.start);
    for_each_piece(operand, [&](int line, int, std::uint32_t offset) {
      const std::uintptr_t address = shared.at_offset(offset);
      const bool inside = shared.contains(address) && shared.contains(address + 15);
      if (inside && shared.same_member(first, address)) return;
      Finding f = finding(Mistake::outside_shared,
                          words("row ", line, " of ", operand.lines(),
                                inside ? " is in " + shared.variable(address).name : " is not in shared memory",
                                ", but the first row is in ", shared.variable(first).name),
                          "check n, the descriptor's offsets, and the number of rows of the tile");
      f.variable = shared.variable(first);
      refuse(lane, std::move(f));
    });
    for_each_piece(operand, [&](int, int, std::uint32_t offset) {
      shared.check_bounds(lane, shared.at_offset(offset), 16, Access::read, wgmma.pc);
    });
  }

  /// Compares the operand with the rows of the box that TMA has loaded.
  void origins(const Operand& operand) const {
    const std::uint32_t span = swizzle_span(operand.descriptor.swizzle);
    const int across = span == 0 || !operand.transposed ? operand.pieces() : int(span) / 16;
    const Origin* first_of_all = nullptr;
    for (int section = 0; section * across < operand.pieces(); ++section) {
      const Origin* first = shared.origin(shared.at_offset(operand.at(0, section * across)));
      if (first == nullptr) continue;
      if (section == 0) first_of_all = first;
      if (section > 0 && first_of_all != nullptr && first->copy == first_of_all->copy &&
          first->offset == first_of_all->offset) {
        return mismatch(operand, *first, words("section ", section, " is the first section again"));
      }
      for (int line = 0; line < operand.lines(); ++line) {
        for (int piece = 0; piece < across; ++piece) {
          const Origin* here = shared.origin(shared.at_offset(operand.at(line, section * across + piece)));
          if (here == nullptr || here->copy != first->copy) continue;
          const std::uint32_t row = first->offset / first->row_bytes, column = first->offset % first->row_bytes;
          const std::uint32_t wanted_row = row + std::uint32_t(line),
                              wanted_column = column + std::uint32_t(piece) * 16;
          const std::uint32_t has_row = here->offset / here->row_bytes, has_column = here->offset % here->row_bytes;
          if (has_row == wanted_row && has_column == wanted_column) continue;
          return mismatch(operand, *here,
                          words("expected bytes ", wanted_column, " to ", wanted_column + 15, " of row ", wanted_row,
                                " of the box, found bytes ", has_column, " to ", has_column + 15, " of row ", has_row));
        }
      }
    }
  }

  void mismatch(const Operand& operand, const Origin& origin, const std::string& what) const {
    if (lane.block->damaged) return;
    Finding f = finding(Mistake::descriptor, what, "");
    f.variable = shared.variable(shared.at_offset(operand.descriptor.start));
    if (origin.swizzle != operand.descriptor.swizzle) {
      f.what += std::string("; the descriptor specifies ") + name_of(operand.descriptor.swizzle) + ", TMA used " +
                name_of(origin.swizzle);
      f.advice = "use the same swizzle in the tensor map and in the descriptor";
    } else {
      f.advice =
          "check the descriptor's stride dimension byte offset (between groups of eight rows), its leading dimension "
          "byte offset, and its start address";
    }
    note_finding(lane, std::move(f));
    lane.block->damaged = true;
  }

  void all(const Operand& operand) const {
    form(operand);
    bounds(operand);
    if (!lane.block->launch->detecting) return;
    origins(operand);
    if (!lane.block->damaged) overlaps(operand);
  }
};

}  // namespace

void check_descriptors(Lane& lane, const Wgmma& wgmma) {
  const int n = wgmma.form.n;
  if (n < 8 || n > 256 || n % 8 != 0) {
    refuse(lane, finding_of(lane, Mistake::descriptor, wgmma.pc, "multiplies",
                            words("a wgmma with n = ", n, "; allowed are 8 to 256, in steps of 8")));
  }
  if (!wgmma.a_in_registers) Check{lane, wgmma, "A"}.all(operand_a(wgmma));
  Check{lane, wgmma, "B"}.all(operand_b(wgmma));
}

}  // namespace simt
