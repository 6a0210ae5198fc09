// grading_elsewhere COMMAND…: runs a command as in a container, for tests/grading/elsewhere.sh and image.sh: with what
// an image like Gradescope's leaves to root, which are the capabilities that Docker gives, no namespaces nor mounts, no
// keys, no io_uring, no tracing by performance counters.
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>

namespace {

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(126);
}

void refuse(scmp_filter_ctx filter, int error, const char* calls) {
  std::istringstream names(calls);
  for (std::string call; names >> call;) {
    const int number = ::seccomp_syscall_resolve_name(call.c_str());
    if (number != __NR_SCMP_ERROR && ::seccomp_rule_add(filter, SCMP_ACT_ERRNO(std::uint32_t(error)), number, 0) != 0)
      fail(call.c_str());
  }
}

/// Those that Docker leaves to a container's root.
const std::set<int> kDockersCapabilities{
    CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FSETID,  CAP_FOWNER, CAP_MKNOD,      CAP_NET_RAW,     CAP_SETGID,
    CAP_SETUID, CAP_SETFCAP,      CAP_SETPCAP, CAP_KILL,   CAP_SYS_CHROOT, CAP_AUDIT_WRITE, CAP_NET_BIND_SERVICE};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: grading_elsewhere COMMAND…\n");
    return 2;
  }
  const scmp_filter_ctx filter = ::seccomp_init(SCMP_ACT_ALLOW);
  for (int capability = 0; capability <= CAP_LAST_CAP; ++capability)
    if (!kDockersCapabilities.contains(capability)) ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  refuse(filter, EPERM, R"(unshare setns mount umount2 pivot_root open_tree move_mount mount_setattr fsopen fsmount bpf
      perf_event_open keyctl add_key request_key io_uring_setup io_uring_enter io_uring_register userfaultfd kexec_load
      init_module finit_module delete_module reboot swapon swapoff open_by_handle_at)");
  refuse(filter, ENOSYS, "clone3");
  const scmp_arg_cmp new_user{0, SCMP_CMP_MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER};
  if (::seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1, &new_user) != 0) fail("clone");
  if (::seccomp_load(filter) != 0) fail("the filter");
  ::execvp(argv[1], argv + 1);
  fail(argv[1]);
}
