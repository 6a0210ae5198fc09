#include "common/worker/sealed.hpp"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/worker/protocol.hpp"

namespace workbook::worker {

#if defined(__x86_64__)

// Symbols of the linker: the begin and the end of the program's image.
extern "C" const char __executable_start, _end;  // NOLINT(bugprone-reserved-identifier)

// long workbook_system_call(number, six arguments) returns the kernel's result, negative on failure. The filter allows
// calls from the address after its `syscall`.
extern "C" {
__attribute__((visibility("hidden"))) long workbook_system_call(long number, ...);
extern __attribute__((visibility("hidden"))) const char workbook_system_call_end[];
}
asm(R"(
.text
.p2align 4
.globl workbook_system_call
.hidden workbook_system_call
.type workbook_system_call, @function
workbook_system_call:
  movq %rdi, %rax
  movq %rsi, %rdi
  movq %rdx, %rsi
  movq %rcx, %rdx
  movq %r8, %r10
  movq %r9, %r8
  movq 8(%rsp), %r9
  syscall
.globl workbook_system_call_end
.hidden workbook_system_call_end
workbook_system_call_end:
  ret
.size workbook_system_call, .-workbook_system_call
)");

namespace {

long call_system(long number, std::uintptr_t a, std::uintptr_t b, std::uintptr_t c, std::uintptr_t d, int e = 0) {
  const long answer = workbook_system_call(number, a, b, c, d, std::uintptr_t(e), std::uintptr_t(0));
  if (answer >= 0) return answer;
  errno = int(-answer);
  return -1;
}

/// A seccomp filter, built from its end, because each test states how many instructions to skip.
class Filter {
 public:
  void load(std::uint32_t offset) { code_.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset)); }
  void jump(std::uint16_t how, std::uint32_t value, std::uint8_t if_true, std::uint8_t if_false) {
    code_.push_back(BPF_JUMP(std::uint16_t(BPF_JMP | how | BPF_K), value, if_true, if_false));
  }
  void answer(std::uint32_t action) { code_.push_back(BPF_STMT(BPF_RET | BPF_K, action)); }

  /// Refuses these calls if `argument`, which is not an address, equals `value`, except for the worker's own calls.
  void keep_for_us(long number, unsigned argument, std::uint32_t value) {
    load(offsetof(seccomp_data, nr));
    jump(BPF_JEQ, std::uint32_t(number), 0, 3 + kOwn);
    load(low(argument));
    jump(BPF_JEQ, value, 0, 1 + kOwn);
    unless_our_own();
  }
  /// Refuses these calls if `argument` has one of these bits, except for the worker's own calls.
  void refuse_bits(long number, unsigned argument, std::uint32_t bits) {
    load(offsetof(seccomp_data, nr));
    jump(BPF_JEQ, std::uint32_t(number), 0, 3);
    load(low(argument));
    jump(BPF_JSET, bits, 0, 1);
    answer(kRefuse);
  }
  void keep_bits_for_us(long number, unsigned argument, std::uint32_t bits) {
    load(offsetof(seccomp_data, nr));
    jump(BPF_JEQ, std::uint32_t(number), 0, 3 + kOwn);
    load(low(argument));
    jump(BPF_JSET, bits, 0, 1 + kOwn);
    unless_our_own();
  }
  /// Refuses these calls, which take an address and a length, if they overlap the memory from `begin` to `end`, which
  /// is within one aligned 4 GiB range.
  void keep_memory(long number, std::uintptr_t begin, std::uintptr_t end) {
    load(offsetof(seccomp_data, nr));
    jump(BPF_JEQ, std::uint32_t(number), 0, 12);
    load(high(0));
    jump(BPF_JEQ, std::uint32_t(begin >> 32), 0, 10);
    load(low(0));
    jump(BPF_JGE, std::uint32_t(end), 8, 0);
    jump(BPF_JGE, std::uint32_t(begin), 6, 0);
    code_.push_back(BPF_STMT(BPF_MISC | BPF_TAX, 0));
    code_.push_back(BPF_STMT(BPF_LD | BPF_IMM, std::uint32_t(begin)));
    code_.push_back(BPF_STMT(BPF_ALU | BPF_SUB | BPF_X, 0));  // the distance from the address to `begin`
    code_.push_back(BPF_STMT(BPF_MISC | BPF_TAX, 0));
    load(low(1));
    code_.push_back(BPF_JUMP(BPF_JMP | BPF_JGT | BPF_X, 0, 0, 1));
    answer(kRefuse);
  }
  bool install() {
    answer(SECCOMP_RET_ALLOW);
    const sock_fprog program{static_cast<unsigned short>(code_.size()), code_.data()};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;  // all threads
  }

 private:
  static constexpr std::uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
  static constexpr std::uint8_t kOwn = 4;  ///< instructions of unless_our_own() without the last one
  static std::uint32_t low(unsigned argument) { return std::uint32_t(offsetof(seccomp_data, args)) + 8 * argument; }
  static std::uint32_t high(unsigned argument) { return low(argument) + 4; }
  void unless_our_own() {
    const auto address = reinterpret_cast<std::uintptr_t>(workbook_system_call_end);
    load(offsetof(seccomp_data, instruction_pointer));
    jump(BPF_JEQ, std::uint32_t(address), 0, 2);
    load(offsetof(seccomp_data, instruction_pointer) + 4);
    jump(BPF_JEQ, std::uint32_t(address >> 32), 1, 0);
    answer(kRefuse);
  }
  std::vector<sock_filter> code_;
};

}  // namespace

void* map_shared(int file, std::size_t bytes) {
  // Maps the whole file, whose size the parent has set.
  const long address = call_system(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file);
  return address == -1 ? nullptr : reinterpret_cast<void*>(address);
}
long send_by_own_call(int socket, const void* bytes, std::size_t count, int flags) {
  return call_system(SYS_sendto, std::uintptr_t(socket), reinterpret_cast<std::uintptr_t>(bytes), count,
                     std::uintptr_t(flags));
}
long receive_by_own_call(int socket, void* bytes, std::size_t count, int flags) {
  return call_system(SYS_recvfrom, std::uintptr_t(socket), reinterpret_cast<std::uintptr_t>(bytes), count,
                     std::uintptr_t(flags));
}

bool seal() {
  Filter filter;
  filter.load(offsetof(seccomp_data, arch));
  filter.jump(BPF_JEQ, AUDIT_ARCH_X86_64, 1, 0);
  filter.answer(SECCOMP_RET_ERRNO | EPERM);
  for (const long number :
       {SYS_sendto, SYS_recvfrom, SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_sendmsg, SYS_recvmsg, SYS_close,
        SYS_close_range, SYS_dup, SYS_dup2, SYS_dup3, SYS_fcntl, SYS_shutdown})
    filter.keep_for_us(number, 0, kSocket);
  for (const long number : {SYS_dup2, SYS_dup3}) filter.keep_for_us(number, 1, kSocket);
  for (const long number : {SYS_mmap, SYS_mprotect, SYS_pkey_mprotect}) filter.refuse_bits(number, 2, PROT_EXEC);
  filter.keep_bits_for_us(SYS_mmap, 3, MAP_SHARED);  // memory limits do not include shared memory
  filter.refuse_bits(SYS_mmap, 3, MAP_FIXED | MAP_FIXED_NOREPLACE);
  filter.refuse_bits(SYS_mremap, 3, MREMAP_FIXED | 4 /* MREMAP_DONTUNMAP */);
  for (const long number : {SYS_mprotect, SYS_pkey_mprotect, SYS_munmap, SYS_mremap, SYS_madvise})
    filter.keep_memory(number, reinterpret_cast<std::uintptr_t>(&__executable_start),
                       reinterpret_cast<std::uintptr_t>(&_end));
  return filter.install();
}

#else

void* map_shared(int file, std::size_t bytes) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
  return address == MAP_FAILED ? nullptr : address;
}
long send_by_own_call(int socket, const void* bytes, std::size_t count, int flags) {
  return ::send(socket, bytes, count, flags);
}
long receive_by_own_call(int socket, void* bytes, std::size_t count, int flags) {
  return ::recv(socket, bytes, count, flags);
}
bool seal() {
  return false;
}

#endif

}  // namespace workbook::worker
