// Chapter 6, given: the kernels of backward.cuh for fp16, with gradients in fp16 and in fp32. Chapter 7 has them for
// bf16.
#include "backward.cuh"

namespace ch06 {

template void backward(const DeviceCall<half>&, Tiles);
template void backward(const DeviceCall<half, float>&, Tiles);

}  // namespace ch06
