// A fiber: the stack and the saved context of one simulated thread, on Boost.Context. Independent of CUDA.
//
// Boost's class `fiber` unwinds a suspended stack on destruction. A simulated thread that ends early is suspended
// within a callback of the instrumentation, which cannot be unwound. Its context is abandoned and its stack reused.
// This class is therefore built on the two functions below Boost's class.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

// g++ indicates AddressSanitizer by a macro, clang++ by a feature.
#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ADDRESS_SANITIZER
#endif
#endif
#if defined(SIMT_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt {

class Fiber {
 public:
  /// Runs `entry` on the stack [low, low + size) at the next switch to this fiber. `entry` must not return.
  void prepare(void* low, std::size_t size, void (*entry)()) {
#if defined(SIMT_ADDRESS_SANITIZER)
    low_ = low;
    size_ = size;
    __asan_unpoison_memory_region(low,
                                  size);  // earlier code may have been abandoned within a call
#endif
    entry_ = entry;
    context_ = boost::context::detail::make_fcontext(static_cast<char*>(low) + size, size, &Fiber::begin);
  }
  bool prepared() const {
    return context_ != nullptr;
  }

  /// Suspends `from`, which is running, and continues `to`. Returns when something switches back to `from`. Inlined, as
  /// are all callers: each return on the way back may be mispredicted (see jump).
  __attribute__((always_inline)) static void switch_to(Fiber& from, Fiber& to) {
    Switch both{&from, &to};
#if defined(SIMT_ADDRESS_SANITIZER)
    __sanitizer_start_switch_fiber(&from.fake_stack_, to.low_, to.size_);
#endif
    arrived(jump(to.context_, &both));
  }

 private:
  struct Switch {
    Fiber *from, *to;
  };

  /// Boost's jump_fcontext. It continues the other fiber with a jump, not with a return. A call would leave an entry on
  /// the processor's return-address stack that no return consumes. The following returns would then be mispredicted,
  /// each as expensive as the switch itself. So this function enters it by a jump too. The entries are then those of
  /// the suspended lane, which made the same calls, and the returns of a warp that runs in step are predicted
  /// correctly. (A shadow stack would reject this, as it would Boost's own jump: CMakeLists.txt opts out of it.)
  __attribute__((always_inline)) static boost::context::detail::transfer_t jump(boost::context::detail::fcontext_t to,
                                                                                void* data) {
#if defined(__x86_64__) && defined(__LP64__) && !defined(__AVX512F__)  // whose registers would also have to be listed
    boost::context::detail::transfer_t from;
    auto* function = &boost::context::detail::jump_fcontext;
    asm volatile(
        "leaq -128(%%rsp), %%rsp\n\t"  // skip the red zone, which the compiler may use
        "leaq 1f(%%rip), %%rax\n\t"
        "pushq %%rax\n\t"
        "jmp *%%rcx\n"
        "1:\n\t"
        "leaq 128(%%rsp), %%rsp"
        : "=a"(from.fctx), "=d"(from.data), "+D"(to), "+S"(data), "+c"(function)
        :
        : "r8", "r9", "r10", "r11", "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
          "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    return from;
#else
    return boost::context::detail::jump_fcontext(to, data);
#endif
  }

  /// On the new stack: saves the context of the fiber that was suspended.
  __attribute__((always_inline)) static void arrived(boost::context::detail::transfer_t transfer) {
    const Switch both = *static_cast<Switch*>(transfer.data);
    both.from->context_ = transfer.fctx;
#if defined(SIMT_ADDRESS_SANITIZER)
    const void* low;
    std::size_t size;
    __sanitizer_finish_switch_fiber(both.to->fake_stack_, &low, &size);
    if (both.from->low_ == nullptr) {  // the operating-system thread's own stack
      both.from->low_ = const_cast<void*>(low);
      both.from->size_ = size;
    }
#endif
  }
  static void begin(boost::context::detail::transfer_t transfer) {
    Fiber& self = *static_cast<Switch*>(transfer.data)->to;
#if defined(SIMT_ADDRESS_SANITIZER)
    self.fake_stack_ = nullptr;
#endif
    arrived(transfer);
    self.entry_();
    __builtin_unreachable();
  }

  boost::context::detail::fcontext_t context_ = nullptr;
  void (*entry_)() = nullptr;
#if defined(SIMT_ADDRESS_SANITIZER)
  void* low_ = nullptr;
  std::size_t size_ = 0;
  void* fake_stack_ = nullptr;
#endif
};

/// Stacks for the threads of a block, each with an inaccessible guard page below it. Untouched pages cost no memory.
class Stacks {
 public:
  static constexpr std::size_t kSize = std::size_t(96) * 1024;  ///< usable bytes per thread

  Stacks() = default;
  ~Stacks() {
    for (void* memory : mapped_) munmap(memory, kStride);
  }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  /// The lowest usable address of stack `index`.
  void* low(std::size_t index) {
    while (mapped_.size() <= index) {
      void* memory = mmap(nullptr, kStride, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED) throw std::bad_alloc();
      mprotect(memory, kPage, PROT_NONE);
      mapped_.push_back(memory);
    }
    // Each stack is shifted by some cache lines: otherwise the hot frames of all threads would map to the same sets of
    // the L1 cache.
    return static_cast<char*>(mapped_[index]) + kPage + index * 7 % 64 * 64;
  }

 private:
  static constexpr std::size_t kPage = 4096, kStride = kSize + 2 * kPage;
  std::vector<void*> mapped_;
};

}  // namespace simt
