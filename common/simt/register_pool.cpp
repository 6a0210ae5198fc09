// Registers moved between warps (PTX ISA, "Miscellaneous Instructions: setmaxnreg"). Initially the block's warps share
// the 65536 registers of an SM. setmaxnreg.dec returns registers to a pool; setmaxnreg.inc takes them from it, or waits
// until there are enough. Only nvcc knows how many registers code needs: here they are only counted.
#include "common/simt/asynchrony.hpp"
#include "common/simt/scheduler.hpp"
#include "common/simt/tracer.hpp"

namespace simt {

void move_registers(Warp& warp) {
  RegisterPool& pool = warp.block->asynchrony->registers;
  ++pool.calls[std::size_t(warp.index)];
}

namespace {

/// Wakes waiting warps whose request can be satisfied now.
void serve(Block& block) {
  RegisterPool& pool = block.asynchrony->registers;
  for (std::uint32_t m = pool.waiting; m != 0; m &= m - 1) {
    const auto w = std::size_t(std::countr_zero(m));
    const int wanted = (pool.requested[w] - pool.of_warp[w]) * kWarpSize;
    if (wanted > pool.free) continue;
    pool.free -= wanted;
    pool.of_warp[w] = pool.requested[w];
    pool.waiting &= ~(1u << w);
    for (int i = 0; i < kWarpSize; ++i) {
      Lane& lane = block.warps[w].lanes[i];
      if (lane.sleep == Sleep::registers) wake(lane);
    }
  }
}

}  // namespace

void set_registers(int count, bool increase) {
  Lane& lane = *running;
  Block& block = *lane.block;
  const void* pc = __builtin_return_address(0);
  const auto w = std::size_t(lane.warp->index);
  RegisterPool& pool = asynchrony(lane).registers;
  pool.call_pc[w] = pc;
  pool.requested[w] = count;
  rendezvous(~0u, Collective::set_registers, pc);
  const int has = pool.of_warp[w];
  const auto misuse = [&](std::string what, std::string advice) {
    refuse(lane, finding_of(lane, Mistake::register_count, pc, "calls setmaxnreg", std::move(what), std::move(advice)));
  };
  if (count < 24 || count > 256 || count % 8 != 0) {
    misuse(words(count, " registers per thread; allowed are 24 to 256, in steps of 8"), "pass an allowed count");
  }
  if (pool.waiting >> w & 1) {  // another lane of the warp has found too few free registers
    sleep(Sleep::registers, int(w), count);
    return;
  }
  if (has == count) return;
  if (increase != (count > has)) {
    misuse(
        words(increase ? "setmaxnreg.inc to " : "setmaxnreg.dec to ", count, " registers per thread, but the warp has ",
              has),
        increase
            ? "request more than the warp has: initially 65536 / threads of the block, rounded down to a multiple of 8"
            : "request fewer than the warp has: initially 65536 / threads of the block, rounded down to a multiple of "
              "8");
  }
  if (increase && (count - has) * kWarpSize > pool.free) {
    pool.waiting |= 1u << w;
    lane.waits_at = pc;
    sleep(Sleep::registers, int(w), count);
    return;
  }
  pool.free -= (count - has) * kWarpSize;
  pool.of_warp[w] = count;
  serve(block);
  if (block.tracer == nullptr) return;
  int all = 0;
  for (int of = 0; of < block.warp_count; ++of) all += pool.of_warp[std::size_t(of)] * kWarpSize;
  block.tracer->note_registers(block, all);
}

}  // namespace simt
