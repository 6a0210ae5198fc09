// A fiber: one simulated thread's stack and place of execution, on Boost.Context. Knows nothing of CUDA.
//
// Boost's class `fiber` unwinds a suspended stack when it is destroyed. A simulated thread that ends early is suspended
// within a callback of the instrumentation, through which nothing can be unwound; it is left for good and its stack
// used again. So this works on the two functions below that class.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

// g++ says that it instruments for AddressSanitizer by a macro, clang++ by a feature.
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
    __asan_unpoison_memory_region(low, size);  // what ran here before may have been left in the middle of a call
#endif
    entry_ = entry;
    context_ = boost::context::detail::make_fcontext(static_cast<char*>(low) + size, size, &Fiber::begin);
  }
  bool prepared() const {
    return context_ != nullptr;
  }

  /// Suspends `from`, which is running, and continues `to`. Returns when something switches to `from` again.
  /// Inlined, as is all that leads here: each return on the way back is one that may be predicted wrong (see jump).
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

  /// Boost's jump_fcontext. It continues the other fiber with a jump, not a return, so that a call of it leaves an
  /// entry on the processor's stack of predicted returns that no return ever takes: the returns that follow are
  /// predicted wrong, each as dear as the switch itself. So it is entered by a jump too. Then the entries are those of
  /// the lane that was left, which came by the same calls, and the returns of a warp that runs in step are predicted
  /// right. (On a shadow stack this would be an error, as would be Boost's own jump: CMakeLists.txt opts out of it.)
  __attribute__((always_inline)) static boost::context::detail::transfer_t jump(boost::context::detail::fcontext_t to,
                                                                                void* data) {
#if defined(__x86_64__) && defined(__LP64__) && !defined(__AVX512F__)  // whose registers would be more to name
    boost::context::detail::transfer_t from;
    auto* function = &boost::context::detail::jump_fcontext;
    asm volatile(
        "leaq -128(%%rsp), %%rsp\n\t"  // past the red zone, which the compiler may use
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

  /// On the new stack: remembers where the fiber that came before can be continued.
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

/// Stacks for the threads of a block, each with an inaccessible page below it. Pages that no thread touches cost
/// nothing.
class Stacks {
 public:
  static constexpr std::size_t kSize = std::size_t(96) * 1024;  ///< bytes, usable by one thread

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
    // Each a few cache lines further: otherwise the hot frames of all threads share the same sets of the L1 cache.
    return static_cast<char*>(mapped_[index]) + kPage + index * 7 % 64 * 64;
  }

 private:
  static constexpr std::size_t kPage = 4096, kStride = kSize + 2 * kPage;
  std::vector<void*> mapped_;
};

}  // namespace simt
