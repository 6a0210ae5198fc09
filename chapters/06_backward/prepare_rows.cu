// Chapter 6, given: the kernel of prepare_rows.cuh for fp16. Chapter 7 has it for bf16.
#include "prepare_rows.cuh"

namespace ch06 {

template void prepare_rows(const BackwardCall<half>&, float2*);
template void prepare_rows(const BackwardCall<half, float>&, float2*);

}  // namespace ch06
