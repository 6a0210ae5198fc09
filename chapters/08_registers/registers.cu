// Chapter 8, given: the kernel of registers.cuh for fp16.
#include "registers.cuh"

namespace ch08 {

void registers(const ForwardCall<half>& call, const Tiles& tiles) {
  workbook::cuda::with_sizes<built>(call.shape.d, tiles, [&](auto d, auto t) { start<d, t.Br, t.Bc, t.warps>(call); });
}

std::size_t shared_bytes(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles,
                                           [](auto d, auto t) { return sizeof(Shared<half, d, t.Bc, t.warps>); });
}

}  // namespace ch08
