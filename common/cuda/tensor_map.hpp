// Tensor maps describe tensors in device memory to TMA. One function creates them for both backends with the same
// checks. Kernels receive them as `const __grid_constant__ TensorMap`.
//
//   const TensorMap K = tensor_map(K_memory, {64, N, heads}, {d * 2, N * d * 2}, {64, Bc, 1}, Swizzle::bytes_128);
//
// The fastest dimension comes first. A copy moves a box, whose rows (along the fastest dimension) are contiguous in
// shared memory. Elements outside the tensor are loaded as zeros and never stored. A swizzle stores each 16 bytes at
// the address whose bits 4 to 6 are XORed with bits 7 to 9 (64-byte swizzle: bits 4 and 5 with 7 and 8; 32-byte: bit 4
// with bit 7).
//
// Two dimensions may advance along the same rows: sizes {64, N, 4·N + 1}, both with the stride of a row, and `before`
// of N rows. Then row i of the n <= N rows that end before row e of the tensor has the coordinates N - n + i and e. The
// rows after them are out of bounds, wherever in the tensor they are.
//
// Source: CUDA Driver API, "Tensor Map Object Management", cuTensorMapEncodeTiled.
#pragma once

#if defined(__CUDACC__)
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <string>

#include "common/cuda/error.hpp"
#else
#include "common/simt/bfloat16.hpp"
#include "common/simt/e4m3.hpp"
#include "common/simt/half.hpp"
#include "common/simt/tensor_map.hpp"
#endif

#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <vector>

#include "common/cuda/refusals.hpp"

namespace workbook::cuda {

#if defined(__CUDACC__)
using TensorMap = CUtensorMap;
/// The name gives the length of a row of the box.
enum class Swizzle : std::uint8_t { none, bytes_32, bytes_64, bytes_128 };
#else
using simt::Swizzle;
using simt::TensorMap;
#endif

#if defined(__CUDACC__)
namespace detail {
template <class T>
constexpr CUtensorMapDataType tensor_element() {
  if constexpr (std::is_same_v<T, __half>) return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  if constexpr (std::is_same_v<T, float>) return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  return CU_TENSOR_MAP_DATA_TYPE_UINT8;
}
}  // namespace detail
#endif

/// The tensor at `memory`, of `sizes` elements, the fastest dimension first. strides[i] is the number of bytes between
/// consecutive elements of dimension i + 1. The element with all coordinates 0 is `before` bytes before `memory`. If
/// `before` is not 0, every element of a copied box must be in the tensor or outside `sizes`, and a loaded box must
/// have at least one element in the tensor. T is float, half, __nv_bfloat16 or __nv_fp8_e4m3. Throws Error.
template <class T>
TensorMap tensor_map(const T* memory, const std::vector<std::uint64_t>& sizes,
                     const std::vector<std::uint64_t>& strides, const std::vector<std::uint32_t>& box,
                     Swizzle swizzle = Swizzle::none, std::uint64_t before = 0) {
  check_tensor_map(memory, before, sizeof(T), sizes, strides, box, static_cast<unsigned>(swizzle));
  TensorMap map{};
#if defined(__CUDACC__)
  // The driver's function, without linking the driver's library.
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) {
      throw Error("tensor_map: the driver has no cuTensorMapEncodeTiled, which needs a GPU of compute capability 9.0");
    }
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  const std::vector<cuuint64_t> dimensions(sizes.begin(), sizes.end()), bytes(strides.begin(), strides.end());
  const std::vector<cuuint32_t> part(box.begin(), box.end());
  constexpr CUtensorMapSwizzle kModes[] = {CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_32B,
                                           CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_128B};
  const CUresult result =
      encode(&map, detail::tensor_element<T>(), cuuint32_t(sizes.size()),
             reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(memory) - before), dimensions.data(),
             bytes.data(), part.data(), steps, CU_TENSOR_MAP_INTERLEAVE_NONE, kModes[static_cast<unsigned>(swizzle)],
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw Error("tensor_map: cuTensorMapEncodeTiled failed with error " + std::to_string(result));
  }
#else
  map.memory = const_cast<T*>(memory);
  map.before = before;
  map.dimensions = static_cast<int>(sizes.size());
  map.element_bytes = sizeof(T);
  map.swizzle = swizzle;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    map.sizes[i] = sizes[i];
    map.strides[i] = i == 0 ? sizeof(T) : strides[i - 1];
    map.box[i] = box[i];
  }
#endif
  return map;
}

}  // namespace workbook::cuda
