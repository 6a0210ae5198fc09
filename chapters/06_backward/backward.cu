// Chapter 6, given: the kernels of backward.cuh for fp16, with gradients in fp16 and in fp32. Chapter 7 has them for
// bf16.
#include "backward.cuh"

namespace ch06 {

template void backward(const BackwardCall<half>&, float2*, const GradientTiles&);
template void backward(const BackwardCall<half, float>&, float2*, const GradientTiles&);
template std::size_t shared_bytes<half>(int, const GradientTiles&);

}  // namespace ch06
