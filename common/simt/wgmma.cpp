// wgmma (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions: wgmma"): four warps execute an MMA together,
// asynchronously. The operands are in shared memory, as given by matrix descriptors, or A is in registers.
//
// A wgmma is recorded when a lane issues it, and is executed at the wait that covers its group, once all 128 lanes are
// there (or cannot continue). Until then its registers and the rows that the descriptors name are in use.
#include "common/simt/wgmma.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/simt/address.hpp"
#include "common/simt/asynchrony.hpp"
#include "common/simt/e4m3.hpp"
#include "common/simt/scheduler.hpp"
#include "common/simt/shared_memory.hpp"
#include "common/simt/tensor_math.hpp"

namespace simt {

namespace {

constexpr int kGroupLanes = 128, kGroupRows = 64;

int member_of(const Lane& lane) {
  return lane.linear % kGroupLanes;
}
Warpgroup& group_of(const Lane& lane) {
  return lane.block->asynchrony->warpgroups[std::size_t(lane.warp->index / 4)];
}
/// The number of the first wgmma after this many groups.
int end_of(const Warpgroup& group, int groups) {
  return groups == group.first_group ? group.first_wgmma
                                     : group.group_ends[std::size_t(groups - 1 - group.first_group)];
}
int k_of(const WgmmaForm& form) {
  return form.element == ElementType::e4m3 ? 32 : 16;
}

// --- Execution -------------------------------------------------------------------------------------------------------

/// Converts 16 bytes of shared memory to floats; returns how many.
int widen_piece(std::uintptr_t address, ElementType element, float* values) {
  const auto* bytes = at_address<const std::uint8_t>(address);
  if (element == ElementType::e4m3) {
    for (int i = 0; i < 16; ++i) values[i] = e4m3_to_float(bytes[i]);
    return 16;
  }
  widen(bytes, element, values, 8);
  return 8;
}

/// An operand in shared memory as a matrix (rows, k), or transposed (k, rows).
void gather(const Operand& operand, const SharedMemory& shared, ElementType element, int k, bool as_columns,
            float* matrix) {
  for_each_piece(operand, [&](int line, int piece, std::uint32_t offset) {
    float values[16];
    const int count = widen_piece(shared.at_offset(offset), element, values);
    for (int i = 0; i < count; ++i) {
      const int row = operand.transposed ? piece * count + i : line,
                column = operand.transposed ? line : piece * count + i;
      matrix[as_columns ? column * operand.rows + row : row * k + column] = values[i];
    }
  });
}

/// A from registers, as in mma: rows quad and quad + 8, with adjacent elements in a register.
void gather_registers(const Wgmma& wgmma, int k, float* a) {
  const int in_register = wgmma.form.element == ElementType::e4m3 ? 4 : 2;
  for (int lane = 0; lane < kGroupLanes; ++lane) {
    const int row = lane / 32 * 16 + lane % 32 / 4, in_quad = lane % 4;
    for (int r = 0; r < 4; ++r) {
      const std::uint32_t word = wgmma.a_registers[lane][r];
      float values[4];
      if (in_register == 4) {
        for (int i = 0; i < 4; ++i) values[i] = e4m3_to_float(static_cast<std::uint8_t>(word >> 8 * i));
      } else {
        widen(&word, wgmma.form.element, values, 2);
      }
      float* to = a + std::ptrdiff_t(row + r % 2 * 8) * k + std::ptrdiff_t(in_register) * (in_quad + r / 2 * 4);
      std::copy_n(values, in_register, to);
    }
  }
}

/// Converts between the lanes' registers and row-major order.
template <class Move>
void for_each_pair(const Wgmma& wgmma, float* rows, Move move) {
  const int n = wgmma.form.n;
  for (int lane = 0; lane < kGroupLanes; ++lane) {
    const int row = lane / 32 * 16 + lane % 32 / 4, column = lane % 4 * 2;
    for (int j = 0; j < n / 8; ++j) {
      float* registers = wgmma.d[lane] + std::ptrdiff_t(4) * j;
      float* place = rows + std::ptrdiff_t(row) * n + std::ptrdiff_t(8) * j + column;
      move(registers, place);
      move(registers + 2, place + std::ptrdiff_t(8) * n);
    }
  }
}

void report_unset(const Block& block, int group, const Wgmma& wgmma, const char* what, const char* advice) {
  if (block.damaged) return;
  const Lane& lane = block.lanes[std::ptrdiff_t(group) * kGroupLanes];
  Finding finding = finding_of(lane, Mistake::unset_fragment, wgmma.pc, "multiplies", what, advice);
  finding.side.lanes = ~0u;
  note_finding(lane, std::move(finding));
}

/// Whether the registers of A have the pattern of uninitialised registers.
bool unset_registers(const Wgmma& wgmma) {
  if (wgmma.form.element == ElementType::e4m3) return false;  // every 8-bit code is a number or an ordinary NaN
  for (int lane = 0; lane < kGroupLanes; ++lane) {
    if (any_unset(wgmma.a_registers[lane], 8, wgmma.form.element)) return true;
  }
  return false;
}

void execute(Block& block, int number, int last_group) {
  Warpgroup& group = block.asynchrony->warpgroups[std::size_t(number)];
  const int end = end_of(group, last_group), begin = end_of(group, group.executed);
  std::vector<float> a(std::size_t(kGroupRows) * 32), b, d;
  const Wgmma* loaded = nullptr;  // the wgmma whose D is in d
  const auto store = [&] {
    if (loaded == nullptr) return;
    for_each_pair(*loaded, d.data(), [](float* registers, const float* place) {
      registers[0] = place[0];
      registers[1] = place[1];
    });
  };
  for (int i = begin; i < end; ++i) {
    const Wgmma& wgmma = group.wgmmas[std::size_t(i - group.first_wgmma)];
    const WgmmaForm& form = wgmma.form;
    const int n = form.n, k = k_of(form);
    if (loaded == nullptr || loaded->d[0] != wgmma.d[0] || loaded->form.n != n) {
      store();
      d.assign(std::size_t(kGroupRows) * std::size_t(n), 0.0f);
      loaded = &wgmma;
      if (form.accumulate) {
        for_each_pair(wgmma, d.data(), [](const float* registers, float* place) {
          place[0] = registers[0];
          place[1] = registers[1];
        });
        if (any_unset(d.data(), kGroupRows * n, ElementType::float32)) {
          report_unset(block, number, wgmma, "the accumulator D has registers that were never set",
                       "fill it with 0 first, or pass accumulate = false to the first wgmma");
          make_nans_ordinary(d.data(), kGroupRows * n);
        }
      }
    } else if (!form.accumulate) {
      std::fill(d.begin(), d.end(), 0.0f);
    }
    if (wgmma.a_in_registers) {
      if (unset_registers(wgmma)) {
        report_unset(block, number, wgmma, "matrix A has registers that were never loaded or computed",
                     "compute them first");
      }
      gather_registers(wgmma, k, a.data());
    } else {
      gather(operand_a(wgmma), *block.shared, form.element, k, false, a.data());
    }
    b.resize(std::size_t(k) * std::size_t(n));
    gather(operand_b(wgmma), *block.shared, form.element, k, true, b.data());
    if (form.element == ElementType::e4m3)
      multiply_e4m3(kGroupRows, n, a.data(), b.data(), d.data());
    else
      multiply_rows_by_columns(kGroupRows, n, k, a.data(), b.data(), d.data());
  }
  store();
  group.executed = last_group;
}

/// The number of groups that all lanes have committed.
int committed_by_all(const Warpgroup& group) {
  int all = group.first_group;
  while (all - group.first_group < int(group.committers.size()) &&
         group.committers[std::size_t(all - group.first_group)] == kGroupLanes) {
    ++all;
  }
  return all;
}

/// Executes the groups up to `last` and wakes the lanes that wait for them.
void execute_and_wake(Block& block, int number, int last) {
  Warpgroup& group = block.asynchrony->warpgroups[std::size_t(number)];
  execute(block, number, last);
  std::vector<Lane*> left;
  for (Lane* lane : group.waiting) {
    if (lane->sleep_detail <= last) {
      wake(*lane);
    } else {
      left.push_back(lane);
    }
  }
  group.waiting = std::move(left);
}

// --- Issue -----------------------------------------------------------------------------------------------------------

[[noreturn]] void refuse_wgmma(Lane& lane, Mistake mistake, const void* pc, std::string what, std::string advice) {
  Finding finding = finding_of(lane, mistake, pc, "multiplies", std::move(what), std::move(advice));
  finding.side.lanes = ~0u;
  refuse(lane, std::move(finding));
}

/// Whether this wgmma continues the lane's previous one: the same accumulator, in the same group.
bool continues(const Warpgroup& group, int index, int member, const float* d) {
  if (index == 0) return false;
  const int number = group.first_wgmma + index;
  if (std::binary_search(group.group_ends.begin(), group.group_ends.end(), number)) return false;
  return group.wgmmas[std::size_t(index - 1)].d[member] == d;
}

void check_fence(Lane& lane, const Wgmma& wgmma, int member, bool goes_on) {
  PendingRegisters& registers = lane.block->asynchrony->pending;
  const bool d = !goes_on && registers.need_fence(lane, wgmma.d[member], wgmma.form.n / 2);
  const bool a = wgmma.a_in_registers && registers.need_fence(lane, wgmma.a_registers[member], 4);
  if ((!d && !a) || lane.block->damaged) return;
  note_finding(lane,
               finding_of(lane, Mistake::wgmma_order, wgmma.pc, "multiplies",
                          std::string(d ? "D" : "matrix A") +
                              " was written, or used by an earlier wgmma, without a wgmma_fence since",
                          "call wgmma_fence() after the last write to registers of D and A, before the first wgmma"));
}

void mark_registers(Lane& lane, const Wgmma& wgmma, int member, bool goes_on, bool begin) {
  PendingRegisters& registers = lane.block->asynchrony->pending;
  const auto mark = [&](const void* first, int count) {
    begin ? registers.begin(lane, first, count) : registers.end(lane, first, count);
  };
  if (!goes_on) mark(wgmma.d[member], wgmma.form.n / 2);
  if (wgmma.a_in_registers) mark(wgmma.a_registers[member], 4);
}

/// Checks the operands in shared memory for this lane's warp and its knowledge.
void check_operands(Lane& lane, Wgmma& wgmma) {
  const int w = lane.warp->index % 4;
  if (wgmma.judged[w] == lane.knows) return;
  wgmma.judged[w] = lane.knows;
  SharedMemory& shared = *lane.block->shared;
  AsyncReader reader{"multiplies", wgmma.pc, 0, lane.warp->index - w, !wgmma.entered, lane.block->damaged};
  wgmma.entered = true;
  const auto read = [&](const Operand& operand) {
    for_each_piece(operand, [&](int, int, std::uint32_t offset) {
      shared.begin_async_read(lane, shared.at_offset(offset), 16, reader);
    });
  };
  if (!wgmma.a_in_registers) read(operand_a(wgmma));
  read(operand_b(wgmma));
}

void count(Block& block, const Wgmma& wgmma) {
  const int k = k_of(wgmma.form);
  constexpr int kPieceBytes = 32;  // per row, along k
  block.counters.wgmma_operations += 2ull * kGroupRows * wgmma.form.n * unsigned(k);
  block.counters.wgmma_wavefronts +=
      unsigned(((wgmma.a_in_registers ? 0 : kGroupRows) + wgmma.form.n) * kPieceBytes / 128);
}

void issue(float* d, const WgmmaForm& form, bool a_in_registers, std::uint64_t a, const std::uint32_t* a_registers,
           std::uint64_t b, const void* pc) {
  Lane& lane = *running;
  Block& block = *lane.block;
  asynchrony(lane);
  Warpgroup& group = group_of(lane);
  const int member = member_of(lane);
  if (lane.linear / kGroupLanes * kGroupLanes + kGroupLanes > block.threads) {
    refuse_wgmma(lane, Mistake::inactive_lane, pc, "wgmma needs all 128 threads of a warpgroup",
                 "launch blocks of a multiple of 128 threads");
  }
  const int index = group.lanes[std::size_t(member)].issued++ - group.first_wgmma;
  const bool fresh = index == int(group.wgmmas.size());
  if (fresh) {
    Wgmma wgmma;
    wgmma.form = form;
    wgmma.a_in_registers = a_in_registers;
    wgmma.a = a;
    wgmma.b = b;
    wgmma.pc = pc;
    check_descriptors(lane, wgmma);
    group.wgmmas.push_back(wgmma);
    count(block, wgmma);
  }
  Wgmma& wgmma = group.wgmmas[std::size_t(index)];
  if (!(wgmma.form == form && wgmma.a_in_registers == a_in_registers && wgmma.a == a && wgmma.b == b)) {
    Finding finding = finding_of(lane, Mistake::divergent_collective, pc, "multiplies",
                                 "the 128 threads of a warpgroup do not issue the same wgmma",
                                 "operands may depend on the warpgroup, not on the warp or the lane");
    finding.other = {wgmma.pc, "multiplies"};
    refuse(lane, std::move(finding));
  }
  if (form.accumulate) observe_registers(d, std::size_t(4) * (form.n / 2), Access::read, pc);
  observe_registers(d, std::size_t(4) * (form.n / 2), Access::write, pc);
  if (a_in_registers) observe_registers(a_registers, 16, Access::read, pc);
  wgmma.d[member] = d;
  wgmma.a_registers[member] = a_registers;
  ++wgmma.issued;
  block.counters.wgmma_instructions += lane.index == 0;
  count_waits_together(lane, block.counters.mbarrier_waits_together);
  block.counters.wgmma_after_window += lane.index == 0 && lane.issue_window == Lane::IssueWindow::closed;
  const bool goes_on = continues(group, index, member, d);
  if (block.launch->detecting) {
    check_fence(lane, wgmma, member, goes_on);
    mark_registers(lane, wgmma, member, goes_on, true);
    check_operands(lane, wgmma);
  }
}

// --- Waiting ---------------------------------------------------------------------------------------------------------

/// The groups up to `last` have read shared memory; bytes that are still being read are marked again.
void end_reads(Lane& lane, Warpgroup& group, int last) {
  if (group.read >= last) return;
  Block& block = *lane.block;
  SharedMemory& shared = *block.shared;
  const int warp = lane.warp->index / 4 * 4, end = end_of(group, last);
  const auto each = [&](int from, int to, auto act) {
    for (int i = std::max(from, group.first_wgmma); i < to; ++i) {
      const Wgmma& wgmma = group.wgmmas[std::size_t(i - group.first_wgmma)];
      const auto read = [&](int, int, std::uint32_t offset) { act(wgmma, shared.at_offset(offset)); };
      if (!wgmma.a_in_registers) for_each_piece(operand_a(wgmma), read);
      for_each_piece(operand_b(wgmma), read);
    }
  };
  each(end_of(group, group.read), end,
       [&](const Wgmma&, std::uintptr_t address) { shared.finish_async_read(block, warp, address, 16, true); });
  each(end, group.first_wgmma + int(group.wgmmas.size()), [&](const Wgmma& wgmma, std::uintptr_t address) {
    shared.mark_async_read(block, address, 16, {"multiplies", wgmma.pc, 0, warp});
  });
  group.read = last;
  group.read_stamp = ++block.clock;
}

/// Erases the groups that all lanes have waited for.
void trim(Warpgroup& group) {
  int done = group.executed;
  for (const WgmmaProgress& lane : group.lanes) done = std::min(done, lane.complete);
  const int groups = done - group.first_group;
  if (groups < 16) return;
  const int wgmmas = group.group_ends[std::size_t(groups - 1)] - group.first_wgmma;
  group.wgmmas.erase(group.wgmmas.begin(), group.wgmmas.begin() + wgmmas);
  group.group_ends.erase(group.group_ends.begin(), group.group_ends.begin() + groups);
  group.committers.erase(group.committers.begin(), group.committers.begin() + groups);
  group.first_wgmma += wgmmas;
  group.first_group = done;
}

void complete_for(Lane& lane, Warpgroup& group, int last) {
  WgmmaProgress& progress = group.lanes[std::size_t(member_of(lane))];
  if (lane.block->launch->detecting) {
    const int end = end_of(group, last), begin = end_of(group, progress.complete);
    for (int i = begin; i < end; ++i) {
      const Wgmma& wgmma = group.wgmmas[std::size_t(i - group.first_wgmma)];
      // As at the issue: the first of its group, or with another accumulator than the previous one.
      const bool starts =
          i == begin || std::binary_search(group.group_ends.begin(), group.group_ends.end(), i) ||
          group.wgmmas[std::size_t(i - 1 - group.first_wgmma)].d[member_of(lane)] != wgmma.d[member_of(lane)];
      mark_registers(lane, wgmma, member_of(lane), !starts, false);
    }
    end_reads(lane, group, last);
    lane.block->asynchrony->pending.wait(lane);
    lane.knows = lane.block->asynchrony->clocks.with(lane.knows, kFirstTensorAgent + Agent(lane.warp->index / 4),
                                                     group.read_stamp);
  }
  progress.complete = last;
  lane.shuffles_at_read = lane.warp->shuffles;
  if (member_of(lane) == 0) trim(group);
}

}  // namespace

bool advance_wgmmas(Block& block) {
  for (int number = 0; number < int(block.asynchrony->warpgroups.size()); ++number) {
    Warpgroup& group = block.asynchrony->warpgroups[std::size_t(number)];
    if (group.waiting.empty()) continue;
    int wanted = group.executed;
    for (const Lane* lane : group.waiting) wanted = std::max(wanted, lane->sleep_detail);
    const int last = std::min(wanted, committed_by_all(group));
    if (last <= group.executed) continue;
    const std::size_t before = group.waiting.size();
    execute_and_wake(block, number, last);
    if (group.waiting.size() < before) return true;
  }
  return false;
}

void end_wgmmas(Lane& lane) {
  const Warpgroup& group = group_of(lane);
  const WgmmaProgress& progress = group.lanes[std::size_t(member_of(lane))];
  const int covered = end_of(group, progress.complete);
  if (progress.issued <= covered || lane.block->damaged) return;
  const Wgmma& wgmma = group.wgmmas[std::size_t(progress.issued - 1 - group.first_wgmma)];
  Finding finding = finding_of(lane, Mistake::wgmma_order, wgmma.pc, "multiplies");
  const bool committed = progress.committed > 0 &&
                         group.group_ends[std::size_t(progress.committed - 1 - group.first_group)] >= progress.issued;
  finding.what = committed ? "the thread ends without waiting for the wgmma"
                           : "the thread ends, and no wgmma_commit_group has committed the wgmma";
  finding.advice = committed ? "call wgmma_wait_group<0>() before the result is used"
                             : "call wgmma_commit_group() after the last wgmma, then wgmma_wait_group";
  note_finding(lane, std::move(finding));
}

void end_registers(Lane& lane) {
  if (lane.watches_registers) lane.block->asynchrony->pending.clear(lane);
}

void check_registers(Lane& lane, std::uintptr_t address, unsigned size, bool writes, const void* pc) {
  PendingRegisters& pending = lane.block->asynchrony->pending;
  if (!pending.touch(lane, address, size, writes)) return;
  Warpgroup& group = group_of(lane);
  const int member = member_of(lane);
  const WgmmaProgress& progress = group.lanes[std::size_t(member)];
  // The newest wgmma that uses them.
  int i = progress.issued - 1;
  bool of_d = true;
  for (; i >= group.first_wgmma; --i) {
    const Wgmma& wgmma = group.wgmmas[std::size_t(i - group.first_wgmma)];
    const auto d = reinterpret_cast<std::uintptr_t>(wgmma.d[member]),
               a = reinterpret_cast<std::uintptr_t>(wgmma.a_registers[member]);
    of_d = address + size > d && address < d + std::uintptr_t(2) * wgmma.form.n;
    if (of_d || (wgmma.a_in_registers && address + size > a && address < a + 16)) break;
  }
  if (i < group.first_wgmma) return;
  const Wgmma& wgmma = group.wgmmas[std::size_t(i - group.first_wgmma)];
  if (!lane.block->damaged) {
    const auto end = std::upper_bound(group.group_ends.begin(),
                                      group.group_ends.begin() + (progress.committed - group.first_group), i);
    const bool committed = end != group.group_ends.begin() + (progress.committed - group.first_group);
    const int newer = progress.committed - 1 - group.first_group - int(end - group.group_ends.begin());
    Finding finding = finding_of(lane, Mistake::pending_registers, pc, writes ? "writes" : "reads",
                                 std::string(of_d ? "the wgmma is still computing it" : "the wgmma may still read it"));
    finding.variable.name = of_d ? "D" : "A";
    finding.other = {wgmma.pc, "multiplies", lane.warp->index, ~0u};
    finding.what += committed ? words(", in a group with ", newer, " newer after it")
                              : ", and no wgmma_commit_group has committed it";
    finding.advice = committed ? words("call wgmma_wait_group<", newer, "> between the wgmma and this access")
                               : "call wgmma_commit_group() after the last wgmma, then wgmma_wait_group<0>";
    note_finding(lane, std::move(finding));
  }
  // One report per wgmma is enough.
  if (of_d) pending.forget(lane, wgmma.d[member], wgmma.form.n / 2);
  if (!of_d) pending.forget(lane, wgmma.a_registers[member], 4);
}

// --- What kernels call -----------------------------------------------------------------------------------------------

void wgmma_fence() {
  Lane& lane = *running;
  asynchrony(lane).pending.fence(lane);
}

void wgmma_shared(float* d, WgmmaForm form, std::uint64_t a, std::uint64_t b) {
  issue(d, form, false, a, nullptr, b, __builtin_return_address(0));
}

void wgmma_registers(float* d, WgmmaForm form, const std::uint32_t* a, std::uint64_t b) {
  issue(d, form, true, 0, a, b, __builtin_return_address(0));
}

void wgmma_commit() {
  Lane& lane = *running;
  asynchrony(lane);
  Warpgroup& group = group_of(lane);
  WgmmaProgress& progress = group.lanes[std::size_t(member_of(lane))];
  const int index = progress.committed++ - group.first_group;
  if (index == int(group.group_ends.size())) {
    group.group_ends.push_back(progress.issued);
    group.committers.push_back(0);
  } else if (group.group_ends[std::size_t(index)] != progress.issued) {
    refuse_wgmma(lane, Mistake::divergent_collective, __builtin_return_address(0),
                 "the 128 threads of a warpgroup do not commit the same wgmma to a group",
                 "let all 128 threads execute the same wgmma and the same commits");
  }
  ++group.committers[std::size_t(index)];
  // Randomly at the commit: a correct program gives the same result.
  if (group.committers[std::size_t(index)] == kGroupLanes && lane.block->launch->options.order == Order::shuffled &&
      random_below(*lane.block, 2) == 0) {
    execute_and_wake(*lane.block, lane.warp->index / 4, group.first_group + index + 1);
  }
}

void wgmma_wait(int groups_left) {
  Lane& lane = *running;
  asynchrony(lane);
  Warpgroup& group = group_of(lane);
  const int member = member_of(lane);
  const int last = group.lanes[std::size_t(member)].committed - groups_left;
  if (last <= group.lanes[std::size_t(member)].complete) return;
  lane.block->counters.wgmma_partial_waits += lane.index == 0 ? std::uint64_t(groups_left) : 0;
  lane.block->counters.wgmma_waits_in_window += lane.issue_window == Lane::IssueWindow::open && lane.index == 0;
  lane.waits_at = __builtin_return_address(0);
  if (group.executed < last) {
    const bool all = int(group.waiting.size()) == kGroupLanes - 1 && committed_by_all(group) >= last;
    if (all) {
      execute_and_wake(*lane.block, lane.warp->index / 4, last);
    } else {
      group.waiting.push_back(&lane);
      sleep(Sleep::wgmmas, lane.warp->index / 4, last);
    }
  }
  complete_for(lane, group, last);
}

}  // namespace simt
