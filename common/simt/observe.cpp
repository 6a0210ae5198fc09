// Observation of memory accesses: the functions that code compiled with -fsanitize=thread calls before every access.
// The sanitizer's own library is not linked; these functions replace it.
//
// Each function receives the address, and its name implies the size; its return address is the location in the kernel.
// The stack of the running fiber is local memory and is not counted. The executable's thread-local storage and the
// dynamic buffer are shared memory. Everything else is global memory, or an error.
#include <dlfcn.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/simt/address.hpp"
#include "common/simt/asynchrony.hpp"
#include "common/simt/detect.hpp"
#include "common/simt/global_memory.hpp"
#include "common/simt/program.hpp"
#include "common/simt/scheduler.hpp"
#include "common/simt/shared_memory.hpp"
#include "common/simt/visibility.hpp"

namespace simt {

namespace {

std::atomic<bool> has_instrumented_code{false};

[[noreturn]] void end_misaligned(Lane& lane, std::uintptr_t address, unsigned size, Access access, const void* pc,
                                 Variable variable) {
  Finding finding = finding_of(lane, Mistake::misaligned, pc, action_of(access),
                               words("an access of ", size, " bytes at an address that is ", address % size,
                                     " bytes past a multiple of ", size));
  finding.variable = std::move(variable);
  finding.advice =
      "a GPU aborts the kernel here: use a row stride that is a multiple of 16 bytes, and align vector accesses to "
      "their size";
  refuse(lane, std::move(finding));
}

void observe_memory(Lane& lane, std::uintptr_t address, unsigned size, Access access, const void* pc,
                    bool is_volatile = false) {
  Block& block = *lane.block;
  Recorder& recorder = lane.warp->recorder;
  const bool shared = block.shared->contains(address);
  if (address & (size - 1)) [[unlikely]] {
    const Tensor* tensor = shared ? nullptr : find_tensor(address);
    if (shared || tensor != nullptr) {
      end_misaligned(lane, address, size, access, pc,
                     shared ? block.shared->variable(address) : Variable{tensor->name, " (global)"});
    }
  }
  if (shared) {
    if (block.shared->in_statics(address) && is_initialisation_guard(address)) [[unlikely]]
      return;
    block.shared->check(lane, address, size, access, lane.bit, pc);
    recorder.add(lane.position, lane.index, pc, address, size, access, Space::shared);
  } else {
    const Record* expected = recorder.expected(lane.position);
    Tensor* tensor = check_global(lane, address, size, access, pc,
                                  expected != nullptr ? const_cast<Tensor*>(expected->tensor) : nullptr);
    if (tensor == nullptr) return;
    if (tensor->role == Role::scratch && !is_volatile && block.launch->detecting) [[unlikely]]
      follow_scratch(lane, *tensor, address, size, access, pc);
    if (block.asynchrony != nullptr && block.launch->detecting) [[unlikely]]
      check_publication(lane, *tensor, address, access, pc);
    recorder.add(lane.position, lane.index, pc, address, size, access, Space::global).tensor = tensor;
  }
  if (recorder.far_ahead(lane.position)) [[unlikely]]
    pause_for_counting();
}

inline void observe(const volatile void* memory, unsigned size, Access access, const void* pc,
                    bool is_volatile = false) {
  Lane* lane = observed;
  if (lane == nullptr) return;
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  if (address - lane->stack_low < lane->stack_size) {
    if (lane->watches_registers) [[unlikely]]
      check_registers(*lane, address, size, access == Access::write, pc);
    return;
  }
  observe_memory(*lane, address, size, access, pc, is_volatile);
}

inline void observe_volatile_write(const volatile void* memory, unsigned size, const void* pc) {
  if (observed != nullptr) note_signal(*observed, reinterpret_cast<std::uintptr_t>(memory));
  observe(memory, size, Access::write, pc, /*is_volatile=*/true);
  if (running != nullptr) ++running->block->launch->changes;
}
inline void observe_volatile(const volatile void* memory, unsigned size, const void* pc) {
  observe(memory, size, Access::read, pc, /*is_volatile=*/true);
  if (observed == nullptr || find_tensor(reinterpret_cast<std::uintptr_t>(memory)) == nullptr) return;
  note_signal_seen(*observed->block, reinterpret_cast<std::uintptr_t>(memory));
  poll(*observed, reinterpret_cast<std::uintptr_t>(memory), size, pc);
}

/// A struct copied as a whole: the GPU moves it in chunks of up to 16 bytes.
void observe_range(std::uintptr_t address, std::size_t size, Access access, const void* pc) {
  while (size > 0) {
    unsigned piece = 16;
    while (piece > size || address % piece != 0) piece /= 2;
    observe(at_address<const void>(address), piece, access, pc);
    address += piece;
    size -= piece;
  }
}

}  // namespace

void observe_registers(const void* registers, std::size_t bytes, Access access, const void* pc) {
  const auto address = reinterpret_cast<std::uintptr_t>(registers);
  if (observed == nullptr || address - observed->stack_low < observed->stack_size) [[likely]]
    return;
  observe_range(address, bytes, access, pc);
}

bool instrumented() {
  return has_instrumented_code.load(std::memory_order_relaxed);
}

void observe_atomic(Lane& lane, std::uintptr_t address, unsigned size, const void* pc) {
  observe_memory(lane, address, size, Access::atomic, pc);
}

}  // namespace simt

// NOLINTBEGIN(bugprone-reserved-identifier,bugprone-macro-parentheses):
// The compiler defines the names; macros take types.

#define SIMT_HOOK extern "C" SIMT_API
#define SIMT_CALLER __builtin_return_address(0)
#define SIMT_HOOKS_OF_SIZE(n)                              \
  SIMT_HOOK void __tsan_read##n(void* a) {                 \
    simt::observe(a, n, simt::Access::read, SIMT_CALLER);  \
  }                                                        \
  SIMT_HOOK void __tsan_write##n(void* a) {                \
    simt::observe(a, n, simt::Access::write, SIMT_CALLER); \
  }                                                        \
  SIMT_HOOK void __tsan_unaligned_read##n(void* a) {       \
    simt::observe(a, n, simt::Access::read, SIMT_CALLER);  \
  }                                                        \
  SIMT_HOOK void __tsan_unaligned_write##n(void* a) {      \
    simt::observe(a, n, simt::Access::write, SIMT_CALLER); \
  }                                                        \
  SIMT_HOOK void __tsan_volatile_read##n(void* a) {        \
    simt::observe_volatile(a, n, SIMT_CALLER);             \
  }                                                        \
  SIMT_HOOK void __tsan_volatile_write##n(void* a) {       \
    simt::observe_volatile_write(a, n, SIMT_CALLER);       \
  }
SIMT_HOOKS_OF_SIZE(1)
SIMT_HOOKS_OF_SIZE(2)
SIMT_HOOKS_OF_SIZE(4)
SIMT_HOOKS_OF_SIZE(8)
SIMT_HOOKS_OF_SIZE(16)

SIMT_HOOK void __tsan_init() {
  simt::has_instrumented_code = true;
}
SIMT_HOOK void __tsan_func_entry(void*) {}
SIMT_HOOK void __tsan_func_exit() {}
SIMT_HOOK void __tsan_vptr_update(void** a, void*) {
  simt::observe(a, sizeof *a, simt::Access::write, SIMT_CALLER);
}
SIMT_HOOK void __tsan_vptr_read(void** a) {
  simt::observe(a, sizeof *a, simt::Access::read, SIMT_CALLER);
}
SIMT_HOOK void __tsan_read_range(void* a, unsigned long n) {
  simt::observe_range(reinterpret_cast<std::uintptr_t>(a), n, simt::Access::read, SIMT_CALLER);
}
SIMT_HOOK void __tsan_write_range(void* a, unsigned long n) {
  simt::observe_range(reinterpret_cast<std::uintptr_t>(a), n, simt::Access::write, SIMT_CALLER);
}

// memcpy, memmove and memset in kernel files (copies.hpp).
SIMT_HOOK void* simt_memcpy(void* to, const void* from, std::size_t bytes) {
  simt::observe_range(reinterpret_cast<std::uintptr_t>(from), bytes, simt::Access::read, SIMT_CALLER);
  simt::observe_range(reinterpret_cast<std::uintptr_t>(to), bytes, simt::Access::write, SIMT_CALLER);
  return std::memcpy(to, from, bytes);
}
SIMT_HOOK void* simt_memmove(void* to, const void* from, std::size_t bytes) {
  simt::observe_range(reinterpret_cast<std::uintptr_t>(from), bytes, simt::Access::read, SIMT_CALLER);
  simt::observe_range(reinterpret_cast<std::uintptr_t>(to), bytes, simt::Access::write, SIMT_CALLER);
  return std::memmove(to, from, bytes);
}
SIMT_HOOK void* simt_memset(void* to, int value, std::size_t bytes) {
  simt::observe_range(reinterpret_cast<std::uintptr_t>(to), bytes, simt::Access::write, SIMT_CALLER);
  return std::memset(to, value, bytes);
}

// printf and fprintf in kernel files. In a kernel they return the number of conversions, as a GPU's printf does, and
// refuse those that a GPU does not have (%n, %m).
static int print(std::FILE* file, const char* format, std::va_list arguments) {
  int conversions = 0;
  for (const char* c = format; simt::in_kernel() && (c = std::strchr(c, '%')) != nullptr; ++c) {
    c += 1 + std::strspn(c + 1, "-+ #0123456789.*$hlLqjzt");
    if (*c == 0 || std::strchr("diouxXeEfFgGaAcsp%", *c) == nullptr) return -1;
    conversions += *c != '%';
  }
  const int printed = std::vfprintf(file, format, arguments);
  return simt::in_kernel() ? conversions : printed;
}
#define SIMT_PRINT(name, file, ...)               \
  SIMT_HOOK int name(__VA_ARGS__, ...) {          \
    std::va_list arguments;                       \
    va_start(arguments, format);                  \
    const int n = print(file, format, arguments); \
    va_end(arguments);                            \
    return n;                                     \
  }
SIMT_PRINT(simt_printf, stdout, const char* format)
SIMT_PRINT(simt_fprintf, file, std::FILE* file, const char* format)

// Functions of the mathematical library that write memory; the compiler calls sincos for a sine and a cosine of one
// number. RTLD_NEXT: the library's own.
#define SIMT_SINCOS(name, T)                                                                    \
  SIMT_HOOK void name(T x, T* sine, T* cosine) {                                                \
    simt::observe(sine, sizeof *sine, simt::Access::write, SIMT_CALLER);                        \
    simt::observe(cosine, sizeof *cosine, simt::Access::write, SIMT_CALLER);                    \
    static const auto compute = reinterpret_cast<void (*)(T, T*, T*)>(dlsym(RTLD_NEXT, #name)); \
    compute(x, sine, cosine);                                                                   \
  }
#define SIMT_TWO_PARTS(name, T, Part)                                                       \
  SIMT_HOOK T name(T x, Part* part) {                                                       \
    simt::observe(part, sizeof *part, simt::Access::write, SIMT_CALLER);                    \
    static const auto compute = reinterpret_cast<T (*)(T, Part*)>(dlsym(RTLD_NEXT, #name)); \
    return compute(x, part);                                                                \
  }
SIMT_SINCOS(sincos, double)
SIMT_SINCOS(sincosf, float)
SIMT_TWO_PARTS(frexp, double, int)
SIMT_TWO_PARTS(frexpf, float, int)
SIMT_TWO_PARTS(modf, double, double)
SIMT_TWO_PARTS(modff, float, float)

/// Also observes the value that is expected, which a failure overwrites.
template <class T>
static int compare_exchange(volatile T* a, T* expected, T v, const void* pc) {
  simt::observe(expected, sizeof *expected, simt::Access::read, pc);
  const bool done = __atomic_compare_exchange_n(a, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  if (!done) simt::observe(expected, sizeof *expected, simt::Access::write, pc);
  return done;
}

// std::atomic, and the guards of static variables.
#define SIMT_ATOMICS_OF_SIZE(bits, T)                                                                      \
  SIMT_HOOK T __tsan_atomic##bits##_load(const volatile T* a, int) {                                       \
    simt::observe(a, bits / 8, simt::Access::read, SIMT_CALLER);                                           \
    return __atomic_load_n(a, __ATOMIC_SEQ_CST);                                                           \
  }                                                                                                        \
  SIMT_HOOK void __tsan_atomic##bits##_store(volatile T* a, T v, int) {                                    \
    simt::observe(a, bits / 8, simt::Access::write, SIMT_CALLER);                                          \
    __atomic_store_n(a, v, __ATOMIC_SEQ_CST);                                                              \
  }                                                                                                        \
  SIMT_HOOK T __tsan_atomic##bits##_exchange(volatile T* a, T v, int) {                                    \
    simt::observe(a, bits / 8, simt::Access::atomic, SIMT_CALLER);                                         \
    return __atomic_exchange_n(a, v, __ATOMIC_SEQ_CST);                                                    \
  }                                                                                                        \
  SIMT_HOOK T __tsan_atomic##bits##_fetch_add(volatile T* a, T v, int) {                                   \
    simt::observe(a, bits / 8, simt::Access::atomic, SIMT_CALLER);                                         \
    return __atomic_fetch_add(a, v, __ATOMIC_SEQ_CST);                                                     \
  }                                                                                                        \
  SIMT_HOOK T __tsan_atomic##bits##_fetch_sub(volatile T* a, T v, int) {                                   \
    simt::observe(a, bits / 8, simt::Access::atomic, SIMT_CALLER);                                         \
    return __atomic_fetch_sub(a, v, __ATOMIC_SEQ_CST);                                                     \
  }                                                                                                        \
  SIMT_HOOK T __tsan_atomic##bits##_fetch_and(volatile T* a, T v, int) {                                   \
    simt::observe(a, bits / 8, simt::Access::atomic, SIMT_CALLER);                                         \
    return __atomic_fetch_and(a, v, __ATOMIC_SEQ_CST);                                                     \
  }                                                                                                        \
  SIMT_HOOK T __tsan_atomic##bits##_fetch_or(volatile T* a, T v, int) {                                    \
    simt::observe(a, bits / 8, simt::Access::atomic, SIMT_CALLER);                                         \
    return __atomic_fetch_or(a, v, __ATOMIC_SEQ_CST);                                                      \
  }                                                                                                        \
  SIMT_HOOK int __tsan_atomic##bits##_compare_exchange_strong(volatile T* a, T* expected, T v, int, int) { \
    simt::observe(a, bits / 8, simt::Access::atomic, SIMT_CALLER);                                         \
    return compare_exchange(a, expected, v, SIMT_CALLER);                                                  \
  }                                                                                                        \
  SIMT_HOOK int __tsan_atomic##bits##_compare_exchange_weak(volatile T* a, T* expected, T v, int, int) {   \
    simt::observe(a, bits / 8, simt::Access::atomic, SIMT_CALLER);                                         \
    return compare_exchange(a, expected, v, SIMT_CALLER);                                                  \
  }
SIMT_ATOMICS_OF_SIZE(8, std::uint8_t)
SIMT_ATOMICS_OF_SIZE(16, std::uint16_t)
SIMT_ATOMICS_OF_SIZE(32, std::uint32_t)
SIMT_ATOMICS_OF_SIZE(64, std::uint64_t)
SIMT_HOOK void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
SIMT_HOOK void __tsan_atomic_signal_fence(int) {}

// -fsanitize=bounds: an index outside a declared array, detected before the access. The compiler passes the source line
// and the array's type.
namespace {
struct UbsanLocation {
  const char* file;
  std::uint32_t line, column;
};
struct UbsanType {
  std::uint16_t kind, info;
  char name[1];
};
struct OutOfBoundsData {
  UbsanLocation location;
  const UbsanType *array, *index;
};

void out_of_bounds(const OutOfBoundsData& data, void* index) {
  simt::Lane* lane = simt::running;
  // The index is passed by value if it fits a word, as the type says: bit 0 of info means "signed", the rest is log2 of
  // the bits.
  const unsigned bits = 1u << (data.index->info >> 1);
  auto value = reinterpret_cast<std::intptr_t>(index);
  if (bits < 64 && (data.index->info & 1)) value = static_cast<std::intptr_t>(value << (64 - bits)) >> (64 - bits);
  const std::string what = simt::words("index ", value, " of an array of type ", data.array->name);
  if (lane == nullptr) {
    std::fprintf(stderr, "%s:%u: %s\n", data.location.file, data.location.line, what.c_str());
    std::abort();
  }
  simt::Finding finding = simt::finding_of(*lane, simt::Mistake::outside_array, nullptr, "indexes");
  finding.side.source = {data.location.file, static_cast<int>(data.location.line), ""};
  finding.what = what;
  finding.advice = "check the index against the array's declared size";
  simt::note_finding(*lane, std::move(finding));
  lane->block->damaged = true;
  simt::end_lane();
}
}  // namespace
SIMT_HOOK void __ubsan_handle_out_of_bounds(OutOfBoundsData* data, void* index) {
  out_of_bounds(*data, index);
}
SIMT_HOOK void __ubsan_handle_out_of_bounds_abort(OutOfBoundsData* data, void* index) {
  out_of_bounds(*data, index);
}
// NOLINTEND(bugprone-reserved-identifier,bugprone-macro-parentheses)
