// The functions of the simulator's shared library that the CUDA headers call. Kernel authors never see these names.
//
// The library is compiled without instrumentation, kernel files with it. A function here is therefore only a
// declaration: if the simulator's own work were inlined into a kernel, it would be counted.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/simt/api.hpp"
#include "common/simt/vector_types.hpp"

namespace simt {

/// A source location: as a default argument, `Where::current()` is the caller's. (Equivalent to std::source_location,
/// which clang-tidy 14 cannot parse.)
struct Where {
  const char* file = "";
  unsigned line = 0;
  const char* function = "";
  static constexpr Where current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE(),
                                 const char* function = __builtin_FUNCTION()) {
    return {file, line, function};
  }
};

// Indices. `const`, because a thread's indices never change: the compiler may call once and keep the result.
SIMT_API __attribute__((const)) uint3 thread_index();
SIMT_API __attribute__((const)) uint3 block_index();
SIMT_API __attribute__((const)) uint3 block_size();
SIMT_API __attribute__((const)) uint3 grid_size();

/// Whether the caller is a simulated thread.
SIMT_API bool in_kernel();
/// Throws if a kernel calls this function of the host.
SIMT_API void require_host(const char* function);

// Block barriers. A barrier is identified by its source line: compilers merge and duplicate calls.
enum class BarrierResult { none, count, all, any };
SIMT_API int block_barrier(BarrierResult kind, bool predicate, Where where);

// Warp collectives: every lane of `mask` that has not exited must participate.
enum class Shuffle { index, up, down, exclusive_or };
enum class Vote { ballot, all, any };
SIMT_API void warp_barrier(std::uint32_t mask);
SIMT_API std::uint64_t warp_shuffle(Shuffle kind, std::uint32_t mask, std::uint64_t value, int operand, int width);
SIMT_API std::uint32_t warp_vote(Vote kind, std::uint32_t mask, bool predicate);
SIMT_API std::uint32_t active_mask();

// Atomics return the old value. `operand` and the result hold the bits of the value.
enum class AtomicOperation { add, maximum, minimum, exchange, compare_and_swap, bit_and, bit_or, bit_xor, increment };
enum class AtomicType { int32, uint32, uint64, float32, float64, half, half2, bfloat16, bfloat162 };
SIMT_API std::uint64_t atomic(AtomicOperation operation, AtomicType type, void* address, std::uint64_t operand,
                              std::uint64_t compare = 0);

/// Counts one exp2_ftz.
SIMT_API void count_exponential();

/// __threadfence: counted, and relevant for TMA and for what other blocks read (visibility.hpp).
SIMT_API void thread_fence();

// cp.async.
SIMT_API void copy_async(void* shared, const void* global, std::size_t size, std::size_t zero_fill);
SIMT_API void copy_async_commit();
SIMT_API void copy_async_wait(std::size_t groups_left);

// Registers and their contents. `unset_registers` fills them with the pattern of uninitialised registers.
enum class ElementType : std::uint8_t { half, bfloat16, tf32, float32, e4m3 };
SIMT_API void unset_registers(void* x, int count, ElementType element);

// WMMA. One description per fragment type, in static storage.
struct FragmentType {
  enum Use : std::uint8_t { a, b, accumulator } use;
  ElementType element;    ///< type of x[] (tf32: 4 bytes)
  std::uint8_t m, n, k;   ///< the MMA shape
  std::uint8_t elements;  ///< num_elements
};
SIMT_API void matrix_load(void* x, const FragmentType& type, const void* memory, unsigned leading, bool row_major);
SIMT_API void matrix_store(void* memory, const FragmentType& type, const void* x, unsigned leading, bool row_major);
SIMT_API void matrix_multiply(void* d, const FragmentType& type_d, const void* a, const FragmentType& type_a,
                              const void* b, const FragmentType& type_b, const void* c, const FragmentType& type_c);

// The instructions below WMMA, executed by all 32 lanes together; common/cuda/ptx.hpp documents them: ldmatrix and
// stmatrix of `count` 8x8 matrices, mma.m16n8k16 (half and bfloat16) and mma.m16n8k8 (tf32).
SIMT_API void load_matrices(void* registers, int count, bool transposed, const void* row);
SIMT_API void store_matrices(void* row, const void* registers, int count, bool transposed, ElementType element);
SIMT_API void multiply_registers(float* d, const void* a, std::uint32_t b0, std::uint32_t b1, ElementType element);

// Dynamic shared memory and the names of its members.
struct SharedMember {
  const char* name;
  std::uint32_t offset;        ///< bytes from the start of the struct
  std::uint32_t size;          ///< bytes
  std::uint32_t element_size;  ///< bytes
  std::uint32_t columns;       ///< elements per row, padding included: the leading dimension; 0: not two-dimensional
  std::uint32_t used_columns;  ///< elements per row that may be accessed; the rest is padding
  std::uint32_t rows,
      matrices;  ///< of a three- or four-dimensional array: the two dimensions before the last; else 0
};
struct SharedLayout {
  const char* name;
  const SharedMember* members;
  std::size_t count;
};
SIMT_API void* dynamic_shared(std::size_t size, const SharedLayout* layout);

// Annotations, assertions, open exercises.
SIMT_API void note(const char* label, long long value);
SIMT_API void note_value(const char* label, long long row, float value);
SIMT_API void assertion_failed(const char* expression, Where where);
[[noreturn]] SIMT_API void end_thread_open(const char* exercise);

// Launches. `body` is called once per thread with `parameters`, whose bytes are treated as parameters, not as memory.
// `kernel` is the function, used for its name.
SIMT_API void run_grid(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes, void (*body)(void*),
                       void* parameters, std::size_t parameter_bytes);

}  // namespace simt
