// One function for each machine instruction that the book's kernels use and that CUDA C++ does not provide. The names
// follow the PTX manual ("Parallel Thread Execution ISA", chapter 9.7, Instructions); each comment quotes the title of
// the section. Under nvcc a function body is that one instruction. Under any other compiler it calls the simulator's
// equivalent. All GPU assembly is in this file and in its two parts for Hopper, ptx_hopper.hpp and ptx_wgmma.hpp, which
// it includes.
//
// In all comments, quad = lane / 4 and in_quad = lane % 4, where lane is the lane's index in its warp, 0 to 31.
#pragma once

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#else
#include "common/simt/cuda.hpp"
#endif

#include <cstdint>
#include <type_traits>

namespace workbook::cuda {

// --- Registers -------------------------------------------------------------------------------------------------------

/// One lane's part of a matrix (the manual's "fragment"): n 32-bit registers. With T = half or __nv_bfloat16 a register
/// holds two adjacent elements, the first in its lower 16 bits; with __nv_fp8_e4m3 it holds four, the first in its
/// lowest 8 bits; with T = float it holds one. On the GPU this is a plain array.
///
/// The registers are uninitialised until they are loaded, computed or filled. The simulator detects instructions that
/// use them earlier, by a NaN that no computation produces and that arithmetic propagates. Both backends therefore
/// refuse `= {}`; use fill(0).
template <class T, int n>
struct Fragment {
  static_assert(sizeof(T) <= 2 || std::is_same_v<T, float>, "elements of 8 or 16 bits, or float");
  using Register = std::conditional_t<sizeof(T) <= 2, std::uint32_t, float>;

  Register x[n];

#if defined(__CUDACC__)
  explicit __device__ __forceinline__ Fragment() {}
#else
  explicit Fragment() {
    simt::unset_registers(x, n * int(4 / sizeof(T)), simt::element_type<T>);
  }
#endif
  __device__ __forceinline__ Register& operator[](int i) {
    return x[i];
  }
  __device__ __forceinline__ const Register& operator[](int i) const {
    return x[i];
  }
  __device__ __forceinline__ void fill(Register value) {
#pragma unroll
    for (int i = 0; i < n; ++i) x[i] = value;
  }
};

// --- Numbers ---------------------------------------------------------------------------------------------------------

/// 2^x; arguments and results below 2^-126 become 0. "Floating Point Instructions: ex2".
__device__ __forceinline__ float ex2_approx_ftz(float x) {
#if defined(__CUDACC__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return simt::exp2_ftz(x);
#endif
}

/// Rounds two floats to T (half or __nv_bfloat16), to nearest, ties to even, and packs them into a register: `low` into
/// the lower 16 bits, `high` into the upper 16. "Data Movement and Conversion Instructions: cvt" (.f16x2.f32,
/// .bf16x2.f32), whose first operand is the upper half.
template <class T>
__device__ __forceinline__ std::uint32_t cvt_rn_x2(float low, float high) {
  static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
#if defined(__CUDACC__)
  std::uint32_t pair;
  if constexpr (std::is_same_v<T, __half>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
#else
  return simt::register_of_pair(low, high, simt::element_type<T>);
#endif
}

/// mov from %tid.x: reads threadIdx.x at this point. The compiler otherwise reads threadIdx.x once and may keep values
/// derived from it in registers throughout a loop. "Special Registers: %tid".
__device__ __forceinline__ unsigned mov_tid_x() {
#if defined(__CUDACC__)
  unsigned x;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
  return x;
#else
  return threadIdx.x;
#endif
}

// --- Asynchronous copies ---------------------------------------------------------------------------------------------
// "Data Movement and Conversion Instructions: Non-bulk copy". Copies and groups belong to the thread that issues them.

#if defined(__CUDACC__)
/// The byte address in shared memory, which the instructions take instead of a pointer.
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}
#endif

/// cp.async.cg: starts a copy of 16 bytes from device memory to shared memory that bypasses L1. Both addresses are
/// multiples of 16. Only the first `source_bytes` of the source are read, and the rest is filled with zeros; with 0,
/// `from` is not read.
__device__ __forceinline__ void cp_async_16(void* to, const void* from, int source_bytes = 16) {
#if defined(__CUDACC__)
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(source_bytes)
               : "memory");
#else
  simt::copy_async(to, from, 16, 16 - std::size_t(source_bytes));
#endif
}

/// cp.async.commit_group: makes the copies since the last commit a group, which may be empty.
__device__ __forceinline__ void cp_async_commit_group() {
#if defined(__CUDACC__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  simt::copy_async_commit();
#endif
}

/// cp.async.wait_group: waits until at most the newest `groups` of this thread's groups are in flight. Data copied by
/// other threads also needs a __syncthreads.
template <int groups>
__device__ __forceinline__ void cp_async_wait_group() {
  static_assert(groups >= 0);
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
#else
  simt::copy_async_wait(groups);
#endif
}

// --- Matrices between shared memory and registers --------------------------------------------------------------------
// "Warp-level matrix load instruction: ldmatrix". All 32 lanes load one, two or four 8x8 matrices of 16-bit elements.
// Lane 8i + r passes the address of row r of matrix i: 16 bytes in shared memory, at a multiple of 16. With n matrices,
// the pointers of lanes 8n and up are ignored. Register i receives two adjacent elements of matrix i: row quad, columns
// 2 in_quad and 2 in_quad + 1; with .trans, column quad, rows 2 in_quad and 2 in_quad + 1.

template <class T>
__device__ __forceinline__ void ldmatrix_x1(Fragment<T, 1>& matrix, const T* row) {
#if defined(__CUDACC__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
               : "=r"(matrix[0])
               : "r"(shared_address(row))
               : "memory");
#else
  simt::load_matrices(matrix.x, 1, false, row);
#endif
}
template <class T>
__device__ __forceinline__ void ldmatrix_x1_trans(Fragment<T, 1>& matrix, const T* row) {
#if defined(__CUDACC__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
               : "=r"(matrix[0])
               : "r"(shared_address(row))
               : "memory");
#else
  simt::load_matrices(matrix.x, 1, true, row);
#endif
}
template <class T>
__device__ __forceinline__ void ldmatrix_x2(Fragment<T, 2>& matrices, const T* row) {
#if defined(__CUDACC__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(matrices[0]), "=r"(matrices[1])
               : "r"(shared_address(row))
               : "memory");
#else
  simt::load_matrices(matrices.x, 2, false, row);
#endif
}
template <class T>
__device__ __forceinline__ void ldmatrix_x2_trans(Fragment<T, 2>& matrices, const T* row) {
#if defined(__CUDACC__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(matrices[0]), "=r"(matrices[1])
               : "r"(shared_address(row))
               : "memory");
#else
  simt::load_matrices(matrices.x, 2, true, row);
#endif
}
template <class T>
__device__ __forceinline__ void ldmatrix_x4(Fragment<T, 4>& matrices, const T* row) {
#if defined(__CUDACC__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(shared_address(row))
               : "memory");
#else
  simt::load_matrices(matrices.x, 4, false, row);
#endif
}
template <class T>
__device__ __forceinline__ void ldmatrix_x4_trans(Fragment<T, 4>& matrices, const T* row) {
#if defined(__CUDACC__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(shared_address(row))
               : "memory");
#else
  simt::load_matrices(matrices.x, 4, true, row);
#endif
}

// "Warp-level matrix store instruction: stmatrix", of Hopper and later: the inverse of ldmatrix, with the same layout.
// For older GPUs it is emulated: each lane stores its two elements at the row address that another lane provides.

#if defined(__CUDACC__)
/// stmatrix of one matrix by ordinary stores. `row` is this lane's row address; lane matrix * 8 + r has that of row r.
template <bool transposed, class T>
__device__ __forceinline__ void store_8x8(T* row, std::uint32_t elements, int matrix) {
  const int lane = threadIdx.x % 32, quad = lane / 4, in_quad = lane % 4;
  const auto row_of = [&](int r) {
    const auto address = reinterpret_cast<unsigned long long>(row);
    return reinterpret_cast<unsigned char*>(__shfl_sync(0xffffffffu, address, 8 * matrix + r));
  };
  if constexpr (transposed) {
    auto* const first = row_of(2 * in_quad) + 2 * quad;
    auto* const second = row_of(2 * in_quad + 1) + 2 * quad;
    *reinterpret_cast<std::uint16_t*>(first) = static_cast<std::uint16_t>(elements);
    *reinterpret_cast<std::uint16_t*>(second) = static_cast<std::uint16_t>(elements >> 16);
  } else {
    *reinterpret_cast<std::uint32_t*>(row_of(quad) + 4 * in_quad) = elements;
  }
}
#endif

template <class T>
__device__ __forceinline__ void stmatrix_x1(T* row, const Fragment<T, 1>& matrix) {
#if !defined(__CUDACC__)
  simt::store_matrices(row, matrix.x, 1, false, simt::element_type<T>);
#elif __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(shared_address(row)), "r"(matrix[0])
               : "memory");
#else
  store_8x8<false>(row, matrix[0], 0);
#endif
}
template <class T>
__device__ __forceinline__ void stmatrix_x1_trans(T* row, const Fragment<T, 1>& matrix) {
#if !defined(__CUDACC__)
  simt::store_matrices(row, matrix.x, 1, true, simt::element_type<T>);
#elif __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(shared_address(row)), "r"(matrix[0])
               : "memory");
#else
  store_8x8<true>(row, matrix[0], 0);
#endif
}
template <class T>
__device__ __forceinline__ void stmatrix_x2(T* row, const Fragment<T, 2>& matrices) {
#if !defined(__CUDACC__)
  simt::store_matrices(row, matrices.x, 2, false, simt::element_type<T>);
#elif __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(shared_address(row)), "r"(matrices[0]),
               "r"(matrices[1])
               : "memory");
#else
#pragma unroll
  for (int i = 0; i < 2; ++i) store_8x8<false>(row, matrices[i], i);
#endif
}
template <class T>
__device__ __forceinline__ void stmatrix_x2_trans(T* row, const Fragment<T, 2>& matrices) {
#if !defined(__CUDACC__)
  simt::store_matrices(row, matrices.x, 2, true, simt::element_type<T>);
#elif __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(shared_address(row)),
               "r"(matrices[0]), "r"(matrices[1])
               : "memory");
#else
#pragma unroll
  for (int i = 0; i < 2; ++i) store_8x8<true>(row, matrices[i], i);
#endif
}
template <class T>
__device__ __forceinline__ void stmatrix_x4(T* row, const Fragment<T, 4>& matrices) {
#if !defined(__CUDACC__)
  simt::store_matrices(row, matrices.x, 4, false, simt::element_type<T>);
#elif __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
               : "memory");
#else
#pragma unroll
  for (int i = 0; i < 4; ++i) store_8x8<false>(row, matrices[i], i);
#endif
}
template <class T>
__device__ __forceinline__ void stmatrix_x4_trans(T* row, const Fragment<T, 4>& matrices) {
#if !defined(__CUDACC__)
  simt::store_matrices(row, matrices.x, 4, true, simt::element_type<T>);
#elif __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
               : "memory");
#else
#pragma unroll
  for (int i = 0; i < 4; ++i) store_8x8<true>(row, matrices[i], i);
#endif
}

/// Transposes an 8x8 matrix of 16-bit elements that all 32 lanes hold: the register has two adjacent elements, row
/// quad, columns 2 in_quad and the next. "Warp-level matrix transpose instruction: movmatrix".
__device__ __forceinline__ std::uint32_t movmatrix_trans(std::uint32_t matrix) {
#if defined(__CUDACC__)
  std::uint32_t transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(matrix));
  return transposed;
#else
  const unsigned lane = threadIdx.x % 32, quad = lane / 4, in_quad = lane % 4, shift = 16 * (quad % 2);
  const unsigned even = __shfl_sync(0xffffffffu, matrix, int(8 * in_quad + quad / 2));
  const unsigned odd = __shfl_sync(0xffffffffu, matrix, int(8 * in_quad + 4 + quad / 2));
  return (even >> shift & 0xffff) | (odd >> shift & 0xffff) << 16;
#endif
}

// --- Matmuls ---------------------------------------------------------------------------------------------------------

/// D (16, 8) += A (16, 16) B (16, 8) by all 32 lanes of a warp; T is half or __nv_bfloat16. "Matrix fragments for mma
/// .m16n8k16 with floating point type". For each 8x8 part, a register or a pair of registers holds two adjacent
/// elements:
///   D[0], D[1]  row quad,      columns 2 in_quad and the next
///   D[2], D[3]  row quad + 8,  the same columns
///   A[0]        row quad,      columns 2 in_quad and the next: the upper left part
///   A[1]        row quad + 8,  the same columns: the lower left part
///   A[2], A[3]  the same rows, 8 columns further: the upper right part, the lower right part
///   B0          column quad,   rows 2 in_quad and the next
///   B1          column quad,   8 rows further
/// Therefore ldmatrix_x4 loads A from a row-major tile, and B0 and B1 from a tile that stores the columns of B as rows
/// (with .trans, from one that stores the rows of B). The accumulators D of two MMAs with adjacent columns, rounded to
/// T, form an operand A.
template <class T>
__device__ __forceinline__ void mma_m16n8k16(Fragment<float, 4>& D, const Fragment<T, 4>& A, std::uint32_t B0,
                                             std::uint32_t B1) {
  static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
#if !defined(__CUDACC__)
  simt::multiply_registers(D.x, A.x, B0, B1, simt::element_type<T>);
#else
  if constexpr (std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(D[0]), "+f"(D[1]), "+f"(D[2]), "+f"(D[3])
        : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B0), "r"(B1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(D[0]), "+f"(D[1]), "+f"(D[2]), "+f"(D[3])
        : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B0), "r"(B1));
  }
#endif
}

/// D (16, 8) += A (16, 8) B (8, 8) in tf32 by all 32 lanes. The last 13 bits of each float are ignored, so round first
/// with nvcuda::wmma::__float_to_tf32. "Matrix fragments for mma.m16n8k8". D is as above.
///   A[0], A[1]  column in_quad, rows quad and quad + 8
///   A[2], A[3]  column in_quad + 4, the same rows
///   B0, B1      column quad, rows in_quad and in_quad + 4
__device__ __forceinline__ void mma_m16n8k8(Fragment<float, 4>& D, const Fragment<float, 4>& A, float B0, float B1) {
#if defined(__CUDACC__)
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(D[0]), "+f"(D[1]), "+f"(D[2]), "+f"(D[3])
      : "r"(__float_as_uint(A[0])), "r"(__float_as_uint(A[1])), "r"(__float_as_uint(A[2])), "r"(__float_as_uint(A[3])),
        "r"(__float_as_uint(B0)), "r"(__float_as_uint(B1)));
#else
  simt::multiply_registers(D.x, A.x, __float_as_uint(B0), __float_as_uint(B1), simt::ElementType::tf32);
#endif
}

// --- Control flow ----------------------------------------------------------------------------------------------------

#if defined(__CUDACC__)
/// Ends the thread. "Control Flow Instructions: exit". (The simulator ends a thread together with the reason.)
[[noreturn]] __device__ __forceinline__ void exit_thread() {
  asm volatile("exit;");
  __builtin_unreachable();
}
#endif

}  // namespace workbook::cuda

// For Hopper (compute capability 9.0) and later: asynchronous barriers, copies and matmuls.
#include "common/cuda/ptx_hopper.hpp"
#include "common/cuda/ptx_wgmma.hpp"
