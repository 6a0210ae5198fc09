// The functions that implement Hopper's asynchronous instructions. common/cuda/ptx.hpp documents each instruction.
// Declarations only, as in runtime.hpp.
#pragma once

#include <cstdint>

#include "common/simt/api.hpp"
#include "common/simt/runtime.hpp"
#include "common/simt/tensor_map.hpp"

namespace simt {

/// The address bits that matrix descriptors use for shared memory, in bytes; below 2^18.
SIMT_API std::uint32_t shared_offset(const void* pointer);

// mbarriers (mbarrier.cpp).
SIMT_API void mbarrier_init(std::uint64_t* barrier, int arrivals);
SIMT_API void mbarrier_fence_init();
SIMT_API void mbarrier_arrive(std::uint64_t* barrier);
SIMT_API void mbarrier_arrive_expect(std::uint64_t* barrier, std::int64_t bytes);
SIMT_API void mbarrier_wait(std::uint64_t* barrier, int parity);

// Named barriers (named_barrier.cpp).
SIMT_API void named_barrier(int number, int threads, bool waits);

// TMA (bulk_copies.cpp).
SIMT_API void bulk_load(void* to, const TensorMap& map, std::uint64_t* barrier, const int* coordinates, int count);
SIMT_API void bulk_store(const TensorMap& map, const void* from, const int* coordinates, int count);
/// Bulk copies of contiguous bytes, without a tensor map. `adds`: a bulk reduction that adds floats to device memory.
SIMT_API void bulk_load_line(void* to, const void* from, std::int64_t bytes, std::uint64_t* barrier);
SIMT_API void bulk_store_line(void* to, const void* from, std::int64_t bytes, bool adds);
SIMT_API void bulk_commit();
/// Waits until the bulk stores have read shared memory (reads_alone), or until they have also written device memory.
SIMT_API void bulk_wait(int groups_left, bool reads_alone);

// Generic and asynchronous proxy (clocks.cpp).
SIMT_API void fence_proxy_async();

// setmaxnreg (register_pool.cpp) and elect.sync (collectives.cpp).
SIMT_API void set_registers(int count, bool increase);
SIMT_API bool elect_lane(std::uint32_t mask);

// wgmma (wgmma.cpp). d: n / 2 registers. Descriptors have the format of the PTX ISA.
struct WgmmaForm {
  ElementType element;
  std::uint16_t n;
  bool a_transposed, b_transposed;  ///< rows of shared memory run along k; transposed: along m or n
  bool accumulate;
  friend bool operator==(const WgmmaForm&, const WgmmaForm&) = default;
};
SIMT_API void wgmma_fence();
SIMT_API void wgmma_shared(float* d, WgmmaForm form, std::uint64_t a, std::uint64_t b);
SIMT_API void wgmma_registers(float* d, WgmmaForm form, const std::uint32_t* a, std::uint64_t b);
SIMT_API void wgmma_commit();
SIMT_API void wgmma_wait(int groups_left);

}  // namespace simt
