// Chapter 6, given: the kernel of prepare_rows.cuh for fp16. Chapter 7 has it for bf16.
#include "prepare_rows.cuh"

namespace ch06 {

template void prepare_rows(const DeviceCall<half>&);
template void prepare_rows(const DeviceCall<half, float>&);

}  // namespace ch06
