// The counters of a launch and of each tensor, as Nsight Compute counts them on a GPU. Each counter names its metric.
// Traffic is what the kernel requests. Caches are not modelled, so the unique sectors are the lower bound for any
// cache.
#pragma once

#include <cstdint>

namespace simt {

/// Accesses to global memory. A request is one instruction of one warp; a sector is 32 bytes and counts once per
/// request.
struct GlobalCounters {
  std::uint64_t load_requests = 0;    ///< l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum, less async_requests
  std::uint64_t load_sectors = 0;     ///< l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum, less async_sectors
  std::uint64_t load_bytes = 0;       ///< bytes of all lanes; lanes that read the same bytes each count. No metric.
  std::uint64_t store_requests = 0;   ///< l1tex__t_requests_pipe_lsu_mem_global_op_st.sum
  std::uint64_t store_sectors = 0;    ///< l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum
  std::uint64_t store_bytes = 0;      ///< bytes of all lanes. No metric.
  std::uint64_t async_requests = 0;   ///< cp.async that read any bytes; Nsight Compute counts them as loads
  std::uint64_t async_sectors = 0;    ///< sectors that cp.async reads; Nsight Compute counts them as loads too
  std::uint64_t async_bytes = 0;      ///< bytes that cp.async reads, without zero fill
  std::uint64_t atomic_requests = 0;  ///< l1tex__t_requests_pipe_lsu_mem_global_op_red.sum + …_op_atom.sum
  /// l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum + …_op_atom.sum: a sector counts once for each lane that updates
  /// the same address in it.
  std::uint64_t atomic_sectors = 0;
  std::uint64_t bulk_load_bytes = 0;  ///< l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum: whole boxes
  /// l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum: the part of each box inside the tensor.
  std::uint64_t bulk_store_bytes = 0;
  std::uint64_t bulk_reduce_bytes = 0;  ///< l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_red.sum: bytes added
  std::uint64_t bulk_reduce_sectors =
      0;  ///< l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_red.sum: 32 bytes each
  /// Different sectors read and written: the compulsory traffic. With caches of any size, at least this much is
  /// transferred from and to device memory, unless it is in L2 already (dram__sectors_read.sum, dram__sectors_write.sum
  /// from a cold L2).
  std::uint64_t unique_read_sectors = 0, unique_written_sectors = 0;

  std::uint64_t read_sectors() const { return load_sectors + async_sectors; }
  std::uint64_t read_bytes() const { return load_bytes + async_bytes + bulk_load_bytes; }
  std::uint64_t written_bytes() const { return store_bytes + bulk_store_bytes + bulk_reduce_bytes; }
  friend bool operator==(const GlobalCounters&, const GlobalCounters&) = default;
};

/// Accesses to shared memory. A wavefront is one pass through the 32 banks. An instruction takes at least one
/// wavefront; 8-byte accesses take at least two, 16-byte accesses at least four. Loads take half of that where adjacent
/// lanes read the same address. Different words of one bank take more.
struct SharedCounters {
  std::uint64_t load_instructions = 0;    ///< smsp__sass_inst_executed_op_shared_ld.sum (without LDSM)
  std::uint64_t store_instructions = 0;   ///< smsp__sass_inst_executed_op_shared_st.sum, including stmatrix
  std::uint64_t matrix_loads = 0;         ///< smsp__sass_inst_executed_op_ldsm.sum
  std::uint64_t matrix_stores = 0;        ///< STSM, which Nsight Compute does not count as a store. No metric.
  std::uint64_t load_wavefronts = 0;      ///< l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum, including LDSM
  std::uint64_t store_wavefronts = 0;     ///< l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum
  std::uint64_t load_ideal = 0;           ///< load_wavefronts without bank conflicts
  std::uint64_t store_ideal = 0;          ///< store_wavefronts without bank conflicts
  std::uint64_t atomic_instructions = 0;  ///< smsp__inst_executed_op_shared_atom.sum (integers)
  friend bool operator==(const SharedCounters&, const SharedCounters&) = default;
};

struct Counters {
  GlobalCounters global;
  SharedCounters shared;
  /// HMMA, two for each mma_sync and one for each mma: sm__inst_executed_pipe_tensor.sum less
  /// …_tensor_op_hmma_type_hfma2.sum, because nvcc materialises constants by HFMA2.MMA, which executes on the tensor
  /// pipe.
  std::uint64_t tensor_instructions = 0;
  std::uint64_t multiply_calls = 0;      ///< mma_sync and mma, once per warp. No metric.
  std::uint64_t async_instructions = 0;  ///< smsp__inst_executed_op_ldgsts_pred_on_any.sum
  /// async_partial_waits: waits for cp.async that leave newer copies in flight. multiplies_beside_copies: mma_sync and
  /// mma while copies are in flight. Once per warp. No metric.
  std::uint64_t async_partial_waits = 0, multiplies_beside_copies = 0;
  std::uint64_t bulk_loads = 0;       ///< smsp__sass_inst_executed_op_tma_ld.sum
  std::uint64_t bulk_stores = 0;      ///< smsp__sass_inst_executed_op_tma_st.sum, including boxes entirely outside
  std::uint64_t bulk_reductions = 0;  ///< smsp__sass_inst_executed_op_tma_red.sum: bulk reductions
  /// Bulk reductions of a block that has read a volatile location in device memory since its last integer atomic, as
  /// for a semaphore. No metric.
  std::uint64_t bulk_reductions_ordered = 0;
  std::uint64_t bulk_requests = 0;       ///< l1tex__tmain_requests.sum: one per load, two per store or reduction
  std::uint64_t wgmma_instructions = 0;  ///< sm__inst_executed_pipe_tensor_op_gmma.sum: four per wgmma, one per warp
  std::uint64_t wgmma_operations = 0;    ///< sm__ops_path_tensor_op_hgmma_src_fp16.sum and its like: 2 m n k
  /// l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum: one per 128 bytes of operands in shared memory.
  std::uint64_t wgmma_wavefronts = 0;
  /// Groups that wgmma waits leave in flight, once per warp: the code after the wait overlaps with them. No metric.
  std::uint64_t wgmma_partial_waits = 0;
  /// Ping-pong scheduling, once per warp. wgmma_after_window: wgmma issued between a barrier.arrive, which signals the
  /// next warpgroup, and the next barrier.sync. wgmma_waits_in_window: waits for wgmma between a barrier.sync and the
  /// next barrier.arrive, while no other warpgroup may issue. No metric.
  std::uint64_t wgmma_after_window = 0, wgmma_waits_in_window = 0;
  std::uint64_t mbarrier_arrivals = 0;  ///< per thread. No metric.
  std::uint64_t mbarrier_waits = 0;     ///< per thread, including those that do not block. No metric.
  /// mma and wgmma of warps that have waited at mbarriers more than once since the previous one. No metric.
  std::uint64_t mbarrier_waits_together = 0;
  /// Shuffles of a warp between its last read of operands (ldmatrix, wgmma waited for) and its arrival at an mbarrier:
  /// the longer this is, the later the stage is released. No metric.
  std::uint64_t shuffles_before_arrival = 0;
  std::uint64_t named_barriers = 0;  ///< barrier.sync and .arrive, once per phase. No metric.
  std::uint64_t block_barriers = 0;  ///< __syncthreads, once per block. No metric.
  std::uint64_t warp_barriers = 0;   ///< __syncwarp, once per warp. No metric.
  std::uint64_t fences = 0;          ///< __threadfence, per thread. No metric.
  std::uint64_t shuffles = 0;        ///< SHFL instructions: __shfl_*_sync, once per warp. No metric of its own.
  std::uint64_t votes = 0;           ///< VOTE instructions, once per warp. No metric of its own.
  std::uint64_t exponentials = 0;    ///< exp2_ftz, per thread. No metric: the XU pipe executes more than MUFU.EX2.
  friend bool operator==(const Counters&, const Counters&) = default;
};

static_assert(sizeof(Counters) % sizeof(std::uint64_t) == 0);
/// Adds every counter.
inline void add(std::uint64_t* to, const std::uint64_t* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] += from[i];
}
inline Counters& operator+=(Counters& a, const Counters& b) {
  add(reinterpret_cast<std::uint64_t*>(&a), reinterpret_cast<const std::uint64_t*>(&b), sizeof a / 8);
  return a;
}
inline GlobalCounters& operator+=(GlobalCounters& a, const GlobalCounters& b) {
  add(reinterpret_cast<std::uint64_t*>(&a), reinterpret_cast<const std::uint64_t*>(&b), sizeof a / 8);
  return a;
}

}  // namespace simt
