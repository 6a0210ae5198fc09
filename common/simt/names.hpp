// The names by which the object file of a kernel file refers to the simulator and to CUDA, mangled, for graders: lists
// of words that are the beginnings of names.
#pragma once

#include <string_view>

namespace simt {

/// Namespaces and types of the headers that kernels include.
inline constexpr std::string_view kKernelScopes =
    R"(4simt 8workbook4cuda 8workbook4nccl 6__half 7__half2 4dim3 13__nv_bfloat16 14__nv_bfloat162 13__nv_fp8_e4m3)";
/// CUDA functions without a namespace.
inline constexpr std::string_view kCudaFunctions = "__ atomic make_ rsqrtf exp10f cuda nccl";
/// The functions that kernels call in the simulator (runtime.hpp, asynchronous.hpp).
inline constexpr std::string_view kCalledByKernels =
    R"(12thread_index 13named_barrier 11block_index 10block_size 9grid_size 9in_kernel 13block_barrier 12warp_barrier
      12warp_shuffle 9warp_vote 11active_mask 6atomicE 10copy_async 17copy_async_commit 15copy_async_wait
      15unset_registers 11matrix_load 12matrix_store 15matrix_multiply 13load_matrices 14store_matrices
      18multiply_registers 14dynamic_shared 4note 10note_value 16assertion_failed 15end_thread_open 8run_grid
      6launch 13shared_offset 13mbarrier_init 19mbarrier_fence_init 15mbarrier_arrive 22mbarrier_arrive_expect
      13mbarrier_wait 9bulk_load 10bulk_store 11bulk_commit 9bulk_wait 17fence_proxy_async 13set_registers
      10elect_lane 11wgmma_fence 12wgmma_shared 15wgmma_registers 12wgmma_commit 10wgmma_wait 14bulk_load_line
      15bulk_store_line 12thread_fence 17count_exponential)";
/// Those of a launch and its refusals (common/cuda/refusals.hpp).
inline constexpr std::string_view kCalledByLaunches =
    "6detail7guarded 11refuse_grid 15refuse_head_dim 12refuse_tiles 16check_tensor_map";
/// What host code calls for streams, events, devices (cuda_streams.hpp), device memory and NCCL: in the simulator, in
/// workbook::cuda, in workbook::nccl, and in no namespace. In a kernel, those that allocate or move data throw.
inline constexpr std::string_view kCalledByHosts =
    "13create_stream 12create_event 7destroy 6record 4wait 11synchronize 18synchronize_device 7copy_on 7fill_on "
    "14current_stream 10set_device 6device";
inline constexpr std::string_view kMemoryOfHosts = "8allocate 7release";
inline constexpr std::string_view kRanks = "9run_ranks 11start_group 9end_group";
inline constexpr std::string_view kNccl =
    "8ncclSend 8ncclRecv 13ncclAllGather 17ncclReduceScatter 13ncclAllReduce 13ncclCommCount 16ncclCommUserRank";
/// Mathematical functions of double numbers that take and return values alone, and those that the simulator observes:
/// frexp, modf, sincos. Whole names.
inline constexpr std::string_view kObserved =
    R"(acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1 fabs fdim
      floor fma fmax fmin fmod frexp hypot ilogb ldexp llrint llround log log10 log1p log2 logb lrint lround modf nearbyint
      nextafter pow rint round roundeven scalbln scalbn sin sincos sinh sqrt tan tanh tgamma trunc)";
/// Parts of the names in the C++ library that access memory unobserved, or keep a state.
inline constexpr std::string_view kUnobservedOfLibrary =
    "streambuf stringbuf to_chars from_chars current_exception set_terminate get_terminate new_handler "
    "default_resource";

}  // namespace simt
