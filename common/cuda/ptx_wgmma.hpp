// The part of ptx.hpp for WGMMA ("Asynchronous Warpgroup Level Matrix Instructions: wgmma"). A warpgroup is four warps,
// the first of which has an index divisible by four; all 128 threads issue the same WGMMA. A WGMMA runs asynchronously
// to the code that issued it and reads shared memory directly.
//
// The register lists below are the instruction's operands: an accumulator of n columns has n / 2 registers per thread.
#pragma once

#include "common/cuda/ptx.hpp"

namespace workbook::cuda {

/// wgmma.fence: makes this thread's register writes visible to the following WGMMAs. Required before the first WGMMA,
/// and whenever registers of D or A were written since.
__device__ __forceinline__ void wgmma_fence() {
#if defined(__CUDACC__)
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
  simt::wgmma_fence();
#endif
}
/// wgmma.commit_group: makes the WGMMAs since the last commit a group.
__device__ __forceinline__ void wgmma_commit_group() {
#if defined(__CUDACC__)
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
  simt::wgmma_commit();
#endif
}
/// wgmma.wait_group: waits until at most the newest `groups` groups are in flight. Before the wait, neither D nor A's
/// registers may be accessed. The empty asm prevents the compiler from moving arithmetic on D before the wait.
template <int groups, int n>
__device__ __forceinline__ void wgmma_wait_group(Fragment<float, n>& D) {
  static_assert(groups >= 0 && groups <= 7);
#if defined(__CUDACC__)
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(D[i])::"memory");
#else
  (void)D;
  simt::wgmma_wait(groups);
#endif
}
/// The same for WGMMAs that read A from registers which are written next. Prevents the compiler from reusing those
/// registers before the wait.
template <int groups, int n, class T, int parts>
__device__ __forceinline__ void wgmma_wait_group(Fragment<float, n>& D, Fragment<T, 4> (&A)[parts]) {
  wgmma_wait_group<groups>(D);
#if defined(__CUDACC__)
#pragma unroll
  for (int j = 0; j < parts; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(A[j][i])::"memory");
  }
#else
  (void)A;
#endif
}

/// The descriptor of a matrix in shared memory ("Matrix Descriptor").
struct WgmmaMatrix {
  std::uint64_t descriptor;
  /// The same matrix `bytes` bytes further, a multiple of 16.
  __device__ __forceinline__ WgmmaMatrix operator+(int bytes) const { return {descriptor + (bytes >> 4)}; }
};
/// Rows have the length of the swizzle, and eight of them form a swizzle atom (1024 bytes for 128-byte rows). `stride`
/// is the number of bytes between groups of eight rows. K-major (rows along k): one WGMMA reads 32 bytes of each row,
/// and the next k elements follow 32 bytes further in the row; `leading` is not used. MN-major (rows along n or m; B as
/// (k, n), A as (k, m)): a row is a section of columns, and the next section is `leading` bytes away. The atom of
/// first_row is aligned to its size.
__device__ __forceinline__ WgmmaMatrix wgmma_matrix(const void* first_row, int leading, int stride, Swizzle swizzle) {
#if defined(__CUDACC__)
  const std::uint64_t address = shared_address(first_row);
#else
  const std::uint64_t address = simt::shared_offset(first_row);
#endif
  const std::uint64_t mode = swizzle == Swizzle::none ? 0 : 4 - static_cast<std::uint64_t>(swizzle);
  return {address >> 4 | std::uint64_t(leading >> 4) << 16 | std::uint64_t(stride >> 4) << 32 | mode << 62};
}

/// The contiguous dimension of an operand in shared memory: k, over which the matmul sums, or the other dimension,
/// which is n for B and m for A.
enum class Major { k, n, m = n };

#if defined(__CUDACC__)
namespace detail {
// clang-format off
#define WORKBOOK_TEXT_4 "%0, %1, %2, %3"
#define WORKBOOK_TEXT_8 WORKBOOK_TEXT_4 ", %4, %5, %6, %7"
#define WORKBOOK_TEXT_16 WORKBOOK_TEXT_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define WORKBOOK_TEXT_32 WORKBOOK_TEXT_16 \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WORKBOOK_TEXT_40 WORKBOOK_TEXT_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define WORKBOOK_TEXT_48 WORKBOOK_TEXT_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define WORKBOOK_TEXT_64 WORKBOOK_TEXT_48 \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WORKBOOK_TEXT_96 WORKBOOK_TEXT_64 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define WORKBOOK_TEXT_128 WORKBOOK_TEXT_96 \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WORKBOOK_D4(c, i) c(D[i]), c(D[i + 1]), c(D[i + 2]), c(D[i + 3])
#define WORKBOOK_D8(c, i) WORKBOOK_D4(c, i), WORKBOOK_D4(c, i + 4)
#define WORKBOOK_D16(c, i) WORKBOOK_D8(c, i), WORKBOOK_D8(c, i + 8)
#define WORKBOOK_D32(c, i) WORKBOOK_D16(c, i), WORKBOOK_D16(c, i + 16)
#define WORKBOOK_LIST_4(c) WORKBOOK_D4(c, 0)
#define WORKBOOK_LIST_8(c) WORKBOOK_D8(c, 0)
#define WORKBOOK_LIST_16(c) WORKBOOK_D16(c, 0)
#define WORKBOOK_LIST_32(c) WORKBOOK_D32(c, 0)
#define WORKBOOK_LIST_40(c) WORKBOOK_D32(c, 0), WORKBOOK_D8(c, 32)
#define WORKBOOK_LIST_48(c) WORKBOOK_D32(c, 0), WORKBOOK_D16(c, 32)
#define WORKBOOK_LIST_64(c) WORKBOOK_D32(c, 0), WORKBOOK_D32(c, 32)
#define WORKBOOK_LIST_96(c) WORKBOOK_D32(c, 0), WORKBOOK_D32(c, 32), WORKBOOK_D32(c, 64)
#define WORKBOOK_LIST_128(c) WORKBOOK_D32(c, 0), WORKBOOK_D32(c, 32), WORKBOOK_D32(c, 64), WORKBOOK_D32(c, 96)

// One WGMMA: its n / 2 registers of D as operands with the constraint c, its shape and types, the numbers of the
// operands that follow, and, for 16-bit operands, the transposition flags of A and B after the two signs. c is "+f" if
// `adds` selects accumulation at run time, and "=f" if the WGMMA never accumulates: as inputs, the old values would
// occupy registers up to this point.
#define WORKBOOK_ASM(c, r, shape, a, b, p, transposed, ...)                                                            \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, " p ", 0; wgmma.mma_async.sync.aligned." shape " {" WORKBOOK_TEXT_##r   \
               "}, " a ", " b ", p, 1, 1" transposed "; }"                                                             \
               : WORKBOOK_LIST_##r(c) : __VA_ARGS__)
#define WORKBOOK_SHARED(c, adds, n, r, x0, x1, x2, x3, x4)                                                             \
  if constexpr (std::is_same_v<T, __half>) {                                                                           \
    WORKBOOK_ASM(c, r, "m64n" #n "k16.f32.f16.f16", x0, x1, x2, ", " x3 ", " x4, "l"(A.descriptor),                    \
                 "l"(B.descriptor), adds, "n"(int(of_A)), "n"(int(of_B)));                                             \
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {                                                             \
    WORKBOOK_ASM(c, r, "m64n" #n "k16.f32.bf16.bf16", x0, x1, x2, ", " x3 ", " x4, "l"(A.descriptor),                  \
                 "l"(B.descriptor), adds, "n"(int(of_A)), "n"(int(of_B)));                                             \
  } else {                                                                                                             \
    WORKBOOK_ASM(c, r, "m64n" #n "k32.f32.e4m3.e4m3", x0, x1, x2, "", "l"(A.descriptor), "l"(B.descriptor), adds);     \
  }
#define WORKBOOK_REGISTERS(c, adds, n, r, x0, x1, x2, x3, x4, x5, x6)                                                  \
  if constexpr (std::is_same_v<T, __half>) {                                                                           \
    WORKBOOK_ASM(c, r, "m64n" #n "k16.f32.f16.f16", "{" x0 ", " x1 ", " x2 ", " x3 "}", x4, x5, ", " x6, "r"(A[0]),    \
                 "r"(A[1]), "r"(A[2]), "r"(A[3]), "l"(B.descriptor), adds, "n"(int(of_B)));                            \
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {                                                             \
    WORKBOOK_ASM(c, r, "m64n" #n "k16.f32.bf16.bf16", "{" x0 ", " x1 ", " x2 ", " x3 "}", x4, x5, ", " x6, "r"(A[0]),  \
                 "r"(A[1]), "r"(A[2]), "r"(A[3]), "l"(B.descriptor), adds, "n"(int(of_B)));                            \
  } else {                                                                                                             \
    WORKBOOK_ASM(c, r, "m64n" #n "k32.f32.e4m3.e4m3", "{" x0 ", " x1 ", " x2 ", " x3 "}", x4, x5, "", "r"(A[0]),       \
                 "r"(A[1]), "r"(A[2]), "r"(A[3]), "l"(B.descriptor), adds);                                            \
  }

#define WORKBOOK_WGMMA(n, r, x0, x1, x2, x3, x4, x5, x6)                                                               \
  template <class T, Major of_B, Major of_A>                                                                           \
  __device__ __forceinline__ void wgmma(Fragment<float, r>& D, WgmmaMatrix A, WgmmaMatrix B, bool accumulate) {        \
    WORKBOOK_SHARED("+f", "r"(int(accumulate)), n, r, x0, x1, x2, x3, x4)                                              \
  }                                                                                                                    \
  template <class T, Major of_B, Major of_A>                                                                           \
  __device__ __forceinline__ void wgmma(Fragment<float, r>& D, WgmmaMatrix A, WgmmaMatrix B) {                         \
    WORKBOOK_SHARED("=f", "n"(0), n, r, x0, x1, x2, x3, x4)                                                            \
  }                                                                                                                    \
  template <class T, Major of_B>                                                                                       \
  __device__ __forceinline__ void wgmma(Fragment<float, r>& D, const Fragment<T, 4>& A, WgmmaMatrix B,                 \
                                        bool accumulate) {                                                             \
    WORKBOOK_REGISTERS("+f", "r"(int(accumulate)), n, r, x0, x1, x2, x3, x4, x5, x6)                                   \
  }                                                                                                                    \
  template <class T, Major of_B>                                                                                       \
  __device__ __forceinline__ void wgmma(Fragment<float, r>& D, const Fragment<T, 4>& A, WgmmaMatrix B) {               \
    WORKBOOK_REGISTERS("=f", "n"(0), n, r, x0, x1, x2, x3, x4, x5, x6)                                                 \
  }
WORKBOOK_WGMMA(8, 4, "%4", "%5", "%6", "%7", "%8", "%9", "%10")
WORKBOOK_WGMMA(16, 8, "%8", "%9", "%10", "%11", "%12", "%13", "%14")
WORKBOOK_WGMMA(32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
WORKBOOK_WGMMA(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
WORKBOOK_WGMMA(80, 40, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
WORKBOOK_WGMMA(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
WORKBOOK_WGMMA(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
WORKBOOK_WGMMA(192, 96, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
WORKBOOK_WGMMA(256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134")
#undef WORKBOOK_TEXT_4
#undef WORKBOOK_TEXT_8
#undef WORKBOOK_TEXT_16
#undef WORKBOOK_TEXT_32
#undef WORKBOOK_TEXT_40
#undef WORKBOOK_TEXT_48
#undef WORKBOOK_TEXT_64
#undef WORKBOOK_TEXT_96
#undef WORKBOOK_TEXT_128
#undef WORKBOOK_LIST_4
#undef WORKBOOK_LIST_8
#undef WORKBOOK_LIST_16
#undef WORKBOOK_LIST_32
#undef WORKBOOK_LIST_40
#undef WORKBOOK_LIST_48
#undef WORKBOOK_LIST_64
#undef WORKBOOK_LIST_96
#undef WORKBOOK_LIST_128
#undef WORKBOOK_D4
#undef WORKBOOK_D8
#undef WORKBOOK_D16
#undef WORKBOOK_D32
#undef WORKBOOK_ASM
#undef WORKBOOK_SHARED
#undef WORKBOOK_REGISTERS
#undef WORKBOOK_WGMMA
// clang-format on
}  // namespace detail
#endif

/// wgmma.mma_async: a warpgroup starts D (64, n) = A (64, k) B (k, n), added to D if `accumulate`. n is 8, 16, 32, 64,
/// 80, 96, 128, 192 or 256. T is half or __nv_bfloat16 with k = 16, or __nv_fp8_e4m3 with k = 32. Warp w holds rows 16
/// w to 16 w + 15 of D, every 8 columns as in mma_m16n8k16: D[4 j] and D[4 j + 1] are row quad, columns 8 j + 2 in_quad
/// and 8 j + 2 in_quad + 1; D[4 j + 2] and D[4 j + 3] are the same columns of row quad + 8. `of_A` and `of_B` give the
/// layout of A and B in shared memory.
template <class T, Major of_B = Major::k, Major of_A = Major::k, int n_half>
__device__ __forceinline__ void wgmma_mma_async(Fragment<float, n_half>& D, WgmmaMatrix A, WgmmaMatrix B,
                                                bool accumulate) {
  static_assert(sizeof(T) == 2 || (of_A == Major::k && of_B == Major::k), "8-bit operands must be K-major");
#if defined(__CUDACC__)
  detail::wgmma<T, of_B, of_A>(D, A, B, accumulate);
#else
  simt::wgmma_shared(D.x, {simt::element_type<T>, 2 * n_half, of_A == Major::m, of_B == Major::n, accumulate},
                     A.descriptor, B.descriptor);
#endif
}
/// The same without accumulation: D is only an output. Its old values are not read and occupy no registers up to this
/// point.
template <class T, Major of_B = Major::k, Major of_A = Major::k, int n_half>
__device__ __forceinline__ void wgmma_mma_async(Fragment<float, n_half>& D, WgmmaMatrix A, WgmmaMatrix B) {
  static_assert(sizeof(T) == 2 || (of_A == Major::k && of_B == Major::k), "8-bit operands must be K-major");
#if defined(__CUDACC__)
  detail::wgmma<T, of_B, of_A>(D, A, B);
#else
  simt::wgmma_shared(D.x, {simt::element_type<T>, 2 * n_half, of_A == Major::m, of_B == Major::n, false}, A.descriptor,
                     B.descriptor);
#endif
}
/// Both with A in registers: warp w holds rows 16 w to 16 w + 15 of A as in mma_m16n8k16. With 8-bit elements, a
/// register holds four adjacent elements, columns 4 in_quad to 4 in_quad + 3, and A[2] and A[3] are 16 columns further.
/// The order of the template arguments is the same.
template <class T, Major of_B = Major::k, int n_half>
__device__ __forceinline__ void wgmma_mma_async(Fragment<float, n_half>& D, const Fragment<T, 4>& A, WgmmaMatrix B,
                                                bool accumulate) {
  static_assert(sizeof(T) == 2 || of_B == Major::k, "8-bit operands must be K-major");
#if defined(__CUDACC__)
  detail::wgmma<T, of_B>(D, A, B, accumulate);
#else
  simt::wgmma_registers(D.x, {simt::element_type<T>, 2 * n_half, false, of_B == Major::n, accumulate}, A.x,
                        B.descriptor);
#endif
}
template <class T, Major of_B = Major::k, int n_half>
__device__ __forceinline__ void wgmma_mma_async(Fragment<float, n_half>& D, const Fragment<T, 4>& A, WgmmaMatrix B) {
  static_assert(sizeof(T) == 2 || of_B == Major::k, "8-bit operands must be K-major");
#if defined(__CUDACC__)
  detail::wgmma<T, of_B>(D, A, B);
#else
  simt::wgmma_registers(D.x, {simt::element_type<T>, 2 * n_half, false, of_B == Major::n, false}, A.x, B.descriptor);
#endif
}

/// Rounds four floats to e4m3 in one register, the first in its lowest 8 bits: to nearest, saturated at ±448. "Data
/// Movement and Conversion Instructions: cvt" (.satfinite.e4m3x2.f32), twice.
__device__ __forceinline__ std::uint32_t cvt_rn_satfinite_e4m3x4(float x0, float x1, float x2, float x3) {
#if defined(__CUDACC__)
  std::uint16_t low, high;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(x1), "f"(x0));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(x3), "f"(x2));
  return low | std::uint32_t(high) << 16;
#else
  const auto code = [](float x) { return std::uint32_t(simt::float_to_e4m3(x)); };
  return code(x0) | code(x1) << 8 | code(x2) << 16 | code(x3) << 24;
#endif
}

}  // namespace workbook::cuda
