// Chapter 8, given: the kernel of registers.cuh for fp16.
#include "registers.cuh"

namespace ch08 {

template void registers(const ForwardCall<half>&, const Tiles&);

std::size_t shared_bytes(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles,
                                           [](auto d, auto t) { return sizeof(Shared<half, d, t.Bc, t.warps>); });
}

}  // namespace ch08
