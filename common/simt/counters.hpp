// What a launch did, in numbers: per launch and per tensor, as Nsight Compute counts it on a GPU. Each counter names
// its metric. Traffic is what the kernel requests: caches are not modelled, so that the unique sectors are the least
// that any cache could leave.
#pragma once

#include <cstdint>

namespace simt {

/// Accesses to global memory. A request is one instruction of one warp; a sector is 32 bytes, counted once a request.
struct GlobalCounters {
  std::uint64_t load_requests = 0;    ///< l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum, less async_requests
  std::uint64_t load_sectors = 0;     ///< l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum, less async_sectors
  std::uint64_t load_bytes = 0;       ///< bytes of all lanes; lanes that read the same bytes count each. No metric.
  std::uint64_t store_requests = 0;   ///< l1tex__t_requests_pipe_lsu_mem_global_op_st.sum
  std::uint64_t store_sectors = 0;    ///< l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum
  std::uint64_t store_bytes = 0;      ///< bytes of all lanes. No metric.
  std::uint64_t async_requests = 0;   ///< cp.async that read (not wholly zero-filled); Nsight has them among the loads
  std::uint64_t async_sectors = 0;    ///< sectors that cp.async reads; Nsight Compute has them among the loads' too
  std::uint64_t async_bytes = 0;      ///< bytes that cp.async reads, zero fill not counted
  std::uint64_t atomic_requests = 0;  ///< l1tex__t_requests_pipe_lsu_mem_global_op_red.sum + …_op_atom.sum
  /// l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum + …_op_atom.sum: a sector counts once for each of the lanes that
  /// update the same address in it.
  std::uint64_t atomic_sectors = 0;
  std::uint64_t bulk_load_bytes = 0;  ///< l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum: whole boxes
  /// l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum: what of the boxes exists.
  std::uint64_t bulk_store_bytes = 0;
  std::uint64_t bulk_reduce_bytes = 0;  ///< l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_red.sum: what is added
  std::uint64_t bulk_reduce_sectors =
      0;  ///< l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_red.sum: 32 bytes each
  /// Different sectors read, written: the compulsory traffic. With caches of any size at least this much goes to and
  /// from device memory, unless it is in L2 already (dram__sectors_read.sum, dram__sectors_write.sum from a cold L2).
  std::uint64_t unique_read_sectors = 0, unique_written_sectors = 0;

  std::uint64_t read_sectors() const { return load_sectors + async_sectors; }
  std::uint64_t read_bytes() const { return load_bytes + async_bytes + bulk_load_bytes; }
  std::uint64_t written_bytes() const { return store_bytes + bulk_store_bytes + bulk_reduce_bytes; }
  friend bool operator==(const GlobalCounters&, const GlobalCounters&) = default;
};

/// Accesses to shared memory. A wavefront is one pass through the 32 banks: an instruction takes at least one, 8-byte
/// accesses at least two, 16-byte accesses at least four (loads half of that where neighbouring lanes ask for the
/// same), and more when different words of one bank are asked for.
struct SharedCounters {
  std::uint64_t load_instructions = 0;    ///< smsp__sass_inst_executed_op_shared_ld.sum (LDSM not among them)
  std::uint64_t store_instructions = 0;   ///< smsp__sass_inst_executed_op_shared_st.sum, stmatrix among them
  std::uint64_t matrix_loads = 0;         ///< smsp__sass_inst_executed_op_ldsm.sum
  std::uint64_t matrix_stores = 0;        ///< STSM, which Nsight Compute counts among no stores. No metric.
  std::uint64_t load_wavefronts = 0;      ///< l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum, LDSM's included
  std::uint64_t store_wavefronts = 0;     ///< l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum
  std::uint64_t load_ideal = 0;           ///< load_wavefronts, were there no bank conflicts
  std::uint64_t store_ideal = 0;          ///< store_wavefronts, were there no bank conflicts
  std::uint64_t atomic_instructions = 0;  ///< smsp__inst_executed_op_shared_atom.sum (integers)
  friend bool operator==(const SharedCounters&, const SharedCounters&) = default;
};

struct Counters {
  GlobalCounters global;
  SharedCounters shared;
  /// HMMA, two for each mma_sync and one for each mma: sm__inst_executed_pipe_tensor.sum less
  /// …_tensor_op_hmma_type_hfma2.sum, as nvcc puts constants into registers by HFMA2.MMA, which the tensor pipe
  /// executes.
  std::uint64_t tensor_instructions = 0;
  std::uint64_t multiply_calls = 0;      ///< mma_sync and mma, counted once a warp. No metric.
  std::uint64_t async_instructions = 0;  ///< smsp__inst_executed_op_ldgsts_pred_on_any.sum
  /// Waits for cp.async that leave newer ones under way; products (mma_sync and mma) while some are under way: once a
  /// warp. No metric.
  std::uint64_t async_partial_waits = 0, multiplies_beside_copies = 0;
  std::uint64_t bulk_loads = 0;       ///< smsp__sass_inst_executed_op_tma_ld.sum
  std::uint64_t bulk_stores = 0;      ///< smsp__sass_inst_executed_op_tma_st.sum, those wholly outside too
  std::uint64_t bulk_reductions = 0;  ///< smsp__sass_inst_executed_op_tma_red.sum: stores that add
  /// Those by a block that has read a volatile place in device memory since its last atomic of integers: in its turn.
  /// No metric.
  std::uint64_t bulk_reductions_in_turn = 0;
  std::uint64_t bulk_requests = 0;       ///< l1tex__tmain_requests.sum: one a load, two a store, that adds or not
  std::uint64_t wgmma_instructions = 0;  ///< sm__inst_executed_pipe_tensor_op_gmma.sum: four each, one a warp
  std::uint64_t wgmma_operations = 0;    ///< sm__ops_path_tensor_op_hgmma_src_fp16.sum and its like: 2 m n k
  /// l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum: 128 bytes of operands in shared memory each.
  std::uint64_t wgmma_wavefronts = 0;
  /// Groups that waits for wgmma leave under way, newer ones, once a warp: what follows runs beside these. No metric.
  std::uint64_t wgmma_partial_waits = 0;
  /// What warps that take turns do at the wrong time, once a warp: wgmma issued after a barrier.arrive, which passes
  /// the turn on, and before the next barrier.sync; waits for wgmma after a barrier.sync and before the next
  /// barrier.arrive, while nobody else may issue. No metric.
  std::uint64_t wgmma_after_turn = 0, wgmma_waits_in_turn = 0;
  std::uint64_t mbarrier_arrivals = 0;  ///< of threads. No metric.
  std::uint64_t mbarrier_waits = 0;     ///< of threads, those that do not wait too. No metric.
  /// Products (mma, wgmma) of warps that have waited at mbarriers more than once since the product before. No metric.
  std::uint64_t mbarrier_waits_together = 0;
  /// Shuffles of a warp between the end of its last read of operands (ldmatrix, wgmma waited for) and its arrival at an
  /// mbarrier: so long it keeps a stage that it has read. No metric.
  std::uint64_t shuffles_before_arrival = 0;
  std::uint64_t named_barriers = 0;  ///< barrier.sync and .arrive, counted once a phase. No metric.
  std::uint64_t block_barriers = 0;  ///< __syncthreads, counted once a block. No metric.
  std::uint64_t warp_barriers = 0;   ///< __syncwarp, counted once a warp. No metric.
  std::uint64_t fences = 0;          ///< __threadfence, of threads. No metric.
  std::uint64_t shuffles = 0;        ///< SHFL instructions: __shfl_*_sync, once a warp. No metric of its own.
  std::uint64_t votes = 0;           ///< VOTE instructions: once a warp. No metric of its own.
  std::uint64_t exponentials = 0;    ///< exp2_ftz, of threads. No metric: MUFU.EX2 is some of the XU pipe's.
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
