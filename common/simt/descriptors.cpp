// Whether the descriptors of a wgmma fit what lies in shared memory. Of what TMA has brought, every 16
// bytes are known by their place in the box: so a wrong swizzle, stride, leading offset or beginning is seen, whichever
// of them it is, because a row of the operand is then not the next row of the box. Of what threads have written that
// much is not known; but no two rows of a matrix lie in the same place.
#include <algorithm>
#include <cstdlib>

#include "common/simt/scheduler.hpp"
#include "common/simt/shared_memory.hpp"
#include "common/simt/wgmma.hpp"

namespace simt {

namespace {

const char* name_of(Swizzle swizzle) {
  // In the order of Swizzle.
  static constexpr const char* names[] = {"no swizzle", "a swizzle of 32 bytes", "a swizzle of 64 bytes",
                                          "a swizzle of 128 bytes"};
  return names[std::size_t(swizzle)];
}

struct Check {
  Lane& lane;
  const Product& product;
  const char* which;  ///< "A", "B"
  SharedMemory& shared = *lane.block->shared;

  Finding finding(Mistake mistake, std::string what, std::string advice) const {
    Finding f = finding_of(lane, mistake, product.pc, "multiplies",
                           std::string("matrix ") + which + ": " + std::move(what), std::move(advice));
    f.side.lanes = ~0u;
    return f;
  }

  /// What cannot be whatever lies there; does not return then.
  void form(const Operand& operand) const {
    const Descriptor& d = operand.descriptor;
    const std::uint32_t span = swizzle_span(d.swizzle);
    if (operand.transposed && span == 0) {
      refuse(lane, finding(Mistake::descriptor, "transposed operands without swizzle are not simulated",
                           "swizzle the tile by 32, 64 or 128 bytes"));
    }
    if (operand.transposed && product.form.element == ElementType::e4m3) {
      refuse(lane, finding(Mistake::descriptor, "operands of 8 bits cannot be transposed",
                           "store the matrix so that its rows run along k"));
    }
    const std::uint32_t beyond = span == 0 ? 0 : d.start % (8 * span) / 128 * 128;
    if (beyond != 0 && d.base_offset == 0) {
      Finding f = finding(Mistake::descriptor,
                          words("its first row lies ", beyond, " bytes past a multiple of ", 8 * span,
                                ", where the pattern of the swizzle begins"),
                          "let swizzled tiles begin at multiples of 1024 bytes: alignas(1024)");
      f.variable = shared.variable(shared.at_offset(d.start));
      if (shared.same_member(shared.at_offset(d.start), shared.at_offset(d.start - beyond)))
        f.advice =
            words("add no more to a descriptor than the bytes of a row, ", span,
                  ": what lies in the next section begins a whole section further. If the tile itself begins there: ",
                  f.advice);
      refuse(lane, std::move(f));
    }
    if (operand.transposed && d.leading == 0 && operand.rows * 2 > int(span)) {
      Finding f = finding(Mistake::descriptor,
                          words("it has ", operand.rows, " columns in sections of ", span / 2,
                                ", and a leading offset of 0: all sections are the first one"),
                          "pass the bytes from one section to the next as the leading offset");
      f.variable = shared.variable(shared.at_offset(d.start));
      refuse(lane, std::move(f));
    }
  }

  /// Eight rows of a swizzled operand are a pattern; two patterns in the same place are a wrong stride or leading
  /// offset.
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
        Finding f = finding(
            Mistake::descriptor,
            words(section == 0 ? std::string("eight rows and the next eight begin ")
                  : eight == 0 ? words("sections of ", pattern / 16, " columns begin ")
                               : "eight rows of a section and other eight of the next begin ",
                  apart, " bytes apart, and a pattern of the swizzle has ", pattern, ": they lie one on the other"),
            "pass the bytes from eight rows to the next eight as the stride, those from one section to the next as the "
            "leading offset");
        f.variable = shared.variable(shared.at_offset(d.start));
        note_finding(lane, std::move(f));
        lane.block->damaged = true;
        return;
      }
    }
  }

  /// All of it in one member.
  void bounds(const Operand& operand) const {
    const std::uintptr_t first = shared.at_offset(operand.descriptor.start);
    for_each_piece(operand, [&](int line, int, std::uint32_t offset) {
      const std::uintptr_t address = shared.at_offset(offset);
      const bool inside = shared.contains(address) && shared.contains(address + 15);
      if (inside && shared.same_member(first, address)) return;
      Finding f = finding(Mistake::outside_shared,
                          words("line ", line, " of ", operand.lines(),
                                inside ? " lies in " + shared.variable(address).name : " is not in shared memory",
                                ", the first one in ", shared.variable(first).name),
                          "check n, the descriptor's offsets, and that the tile has as many rows");
      f.variable = shared.variable(first);
      refuse(lane, std::move(f));
    });
    for_each_piece(operand, [&](int, int, std::uint32_t offset) {
      shared.check_bounds(lane, shared.at_offset(offset), 16, Access::read, product.pc);
    });
  }

  /// Against where TMA has put the rows of its box.
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
        return mismatch(operand, *first, words("section ", section, " is the first one again"));
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
          return mismatch(
              operand, *here,
              words("where row ", wanted_row, " of the box, bytes ", wanted_column, " to ", wanted_column + 15,
                    ", should be, row ", has_row, ", bytes ", has_column, " to ", has_column + 15, " lie"));
        }
      }
    }
  }

  void mismatch(const Operand& operand, const Origin& origin, const std::string& what) const {
    if (lane.block->damaged) return;
    Finding f = finding(Mistake::descriptor, what, "");
    f.variable = shared.variable(shared.at_offset(operand.descriptor.start));
    if (origin.swizzle != operand.descriptor.swizzle) {
      f.what += std::string("; the descriptor says ") + name_of(operand.descriptor.swizzle) + ", TMA has used " +
                name_of(origin.swizzle);
      f.advice = "use the same swizzle in the tensor map and in the descriptor";
    } else {
      f.advice =
          "check the descriptor's stride (from eight rows to the next eight), its leading offset, and its beginning";
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

void check_descriptors(Lane& lane, const Product& product) {
  const int n = product.form.n;
  if (n < 8 || n > 256 || n % 8 != 0) {
    refuse(lane, finding_of(lane, Mistake::descriptor, product.pc, "multiplies",
                            words("a product of ", n, " columns; allowed are 8 to 256, in steps of 8")));
  }
  if (!product.a_in_registers) Check{lane, product, "A"}.all(operand_a(product));
  Check{lane, product, "B"}.all(operand_b(product));
}

}  // namespace simt
