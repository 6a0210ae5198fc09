// Chapter 8, given: the kernel of registers.cuh for bf16, the same text.
#include "registers.cuh"

template void ch08::registers(const ForwardCall<__nv_bfloat16>&, const Tiles&);
