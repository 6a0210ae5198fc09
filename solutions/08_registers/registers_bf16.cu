// Chapter 8, given: the kernel of registers.cuh for bf16, the same text.
#include "registers.cuh"

namespace ch08 {

void registers_bf16(const ForwardCall<__nv_bfloat16>& call) {
  workbook::cuda::with_head_dim(call.shape.d,
                                [&](auto d) { start<d, built[0].Br, built[0].Bc, built[0].warps>(call); });
}

}  // namespace ch08
