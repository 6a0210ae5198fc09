// workbook_isolate: starts an untrusted program with the minimum of rights that it needs.
//
//   workbook_isolate run   OPTIONS -- PROGRAM ARGUMENT…   a submission's worker
//   workbook_isolate build OPTIONS -- PROGRAM ARGUMENT…   ninja and the compilers, on a submission's source
//   workbook_isolate probe run|build PATH…                in the isolation: prints what it can still do, then "end"
//   workbook_isolate view                                 exits with 0 if --view works
//
// All restrictions apply before the program's first instruction, including its dynamic loader and static initialisers.
// For `run`:
//   - Another user and group, no supplementary groups; no new privileges; a clean environment; resource limits.
//   - Only descriptors 0 to 4 (the pipe and the shared memory, common/worker/protocol.hpp).
//   - A seccomp filter that allows only the calls that a worker needs: threads but no processes, no sockets, no signals
//     to others, no ptrace, process_vm or io_uring, and files only for reading.
//   - No further program. A filter cannot count, so exec is allowed only for the descriptor kProgram, which exec itself
//     closes. No new descriptor can get that number, since it exceeds RLIMIT_NOFILE.
//   - With --view, a separate root directory that contains only the listed files. Root mounts it directly; an ordinary
//     user needs a user namespace, and then has no protection by another user id.
// The program is opened before the user changes, so the new user needs no read permission on its file.
//
// `build` has a filter that forbids calls by name (compilers start processes and write files), and a time limit.
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

constexpr int kFailed = 126;  // failures of this program; the message is on stderr
constexpr int kTimedOut = 124;
constexpr int kProgram = 500;  // the descriptor of the program to run, beyond RLIMIT_NOFILE

[[noreturn]] void fail(const std::string& what, int error = errno) {
  std::fprintf(stderr, "workbook_isolate: %s%s%s\n", what.c_str(), error != 0 ? ": " : "",
               error != 0 ? std::strerror(error) : "");
  std::_Exit(kFailed);
}

constexpr const char* kUsage = "usage: workbook_isolate run|build OPTIONS -- PROGRAM ARGUMENT…";

struct Options {
  bool run = true;
  bool gpu = false;
  /// --user: 0 or none keeps the current user. --share: the index of this program's part of the cores, of --shares
  /// equal parts. --view: an empty folder, where the separate root is mounted. --read and --write: paths that are
  /// visible in it. A compiler's temporary files go to tmp in the writable path.
  std::map<std::string, std::vector<std::string>> given{
      {"--user", {}},   {"--seconds", {}}, {"--memory", {}}, {"--cpu", {}},   {"--share", {}},
      {"--shares", {}}, {"--view", {}},    {"--read", {}},   {"--write", {}}, {"--library-path", {}}};
  std::vector<char*> command;

  const std::vector<std::string>& all(const char* option) const { return given.at(option); }
  std::string text(const char* option) const { return all(option).empty() ? "" : all(option).back(); }
  std::uint64_t number(const char* option) const {
    const std::string value = text(option);
    char* end = nullptr;
    const std::uint64_t number = std::strtoull(value.c_str(), &end, 10);
    if (*end != '\0') fail(std::string(option) + " " + value, 0);
    return number;
  }
};

/// Sets a limit, never above the caller's. `more`: the distance of the hard limit from the soft one, which only raises
/// a signal.
void limit(__rlimit_resource_t resource, rlim_t value, rlim_t more = 0) {
  rlimit now{};
  if (::getrlimit(resource, &now) != 0) fail("getrlimit");
  const rlimit set{std::min(now.rlim_max, value), std::min(now.rlim_max, value + more)};
  if (::setrlimit(resource, &set) != 0) fail("setrlimit");
}

/// Restricts the process to its part of the available cores, so that its threads do not delay programs on other parts.
/// If there are more parts than cores, some parts share a core.
void keep_to_share(std::uint64_t share, std::uint64_t shares) {
  cpu_set_t all;
  if (shares < 2 || ::sched_getaffinity(0, sizeof all, &all) != 0) return;
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &all)) cores.push_back(core);
  const std::uint64_t from = cores.size() * share / shares;
  const std::uint64_t to = std::max(from + 1, std::uint64_t(cores.size() * (share + 1) / shares));
  cpu_set_t own;
  CPU_ZERO(&own);
  for (std::uint64_t i = from; i < std::min<std::uint64_t>(to, cores.size()); ++i) CPU_SET(cores[i], &own);
  if (::sched_setaffinity(0, sizeof own, &own) != 0) fail("sched_setaffinity");
}

// ---- The view

void write_text(const char* path, const std::string& text) {
  const int file = ::open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0 || ::write(file, text.data(), text.size()) != ssize_t(text.size())) fail(path);
  ::close(file);
}

/// Makes `path` and everything below it visible in the view, read-only unless `writable`. A missing path is ignored.
void show(const std::string& view, const std::string& path, bool writable = false) {
  struct stat info {};
  const fs::path there = view + path;
  if (::lstat(path.c_str(), &info) != 0 || fs::exists(fs::symlink_status(there))) return;
  std::error_code ignored;  // mount reports the error
  fs::create_directories(there.parent_path(), ignored);
  if (S_ISLNK(info.st_mode)) return fs::create_symlink(fs::read_symlink(path), there, ignored);
  if (S_ISDIR(info.st_mode)) {
    fs::create_directory(there, ignored);
  } else {
    ::close(::open(there.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
  }
  if (::mount(path.c_str(), there.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) fail("cannot show " + path);
  mount_attr only_read{};
  only_read.attr_set = MOUNT_ATTR_RDONLY;
  if (!writable && ::mount_setattr(AT_FDCWD, there.c_str(), AT_RECURSIVE, &only_read, sizeof only_read) != 0)
    fail("cannot protect " + path);
}

/// Shows the files in /proc that a driver needs: all except those of processes.
void show_proc(const std::string& view) {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (!entry.is_symlink() && name.find_first_not_of("0123456789") != std::string::npos) show(view, entry.path());
  }
}

constexpr const char* kSeenByWorkers =
    R"(/lib /lib64 /usr/lib /usr/lib64 /usr/local/lib /etc/ld.so.cache /etc/ld.so.conf /etc/localtime /proc/meminfo
    /proc/cpuinfo /proc/stat /proc/loadavg /sys/fs/cgroup /sys/devices/system/cpu /dev/null /dev/urandom /dev/zero)";
constexpr const char* kSeenByCompilers =
    R"(/lib /lib64 /usr /bin /sbin /opt /etc/alternatives /etc/ld.so.cache /proc/meminfo /proc/cpuinfo /dev/null
    /dev/urandom /dev/zero)";
constexpr const char* kSeenOnGpu = "/sys /etc /lib /lib64 /bin /sbin /usr /opt /dev";

/// Gives this process a separate root directory. A user other than root may mount in a user namespace, before it
/// executes another program.
void enter_view(const Options& options) {
  const std::string user = std::to_string(::geteuid()), group = std::to_string(::getegid());
  const std::string& view = options.text("--view");
  ::umask(022);  // the later user may traverse the folders created here
  if (::unshare(CLONE_NEWNS | (user == "0" ? 0 : CLONE_NEWUSER)) != 0) fail("cannot create a namespace");
  if (user != "0") {
    write_text("/proc/self/setgroups", "deny");
    write_text("/proc/self/uid_map", user + " " + user + " 1");
    write_text("/proc/self/gid_map", group + " " + group + " 1");
  }
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("view", view.c_str(), "tmpfs", MS_NOSUID, "mode=755,size=4m") != 0)
    fail("cannot mount the view");
  if (options.run) {
    const std::string self = "/proc/" + std::to_string(::getpid());
    show(view, self, options.gpu);  // a GPU driver names its threads and fails if it cannot
    fs::create_symlink(self, view + "/proc/self");
  }
  if (options.gpu) show_proc(view);
  std::istringstream paths(options.gpu ? kSeenOnGpu : options.run ? kSeenByWorkers : kSeenByCompilers);
  for (std::string path; paths >> path;) show(view, path);
  if (!options.text("--library-path").empty()) show(view, options.text("--library-path"));
  for (const std::string& path : options.all("--write")) show(view, path, /*writable=*/true);
  for (const std::string& path : options.all("--read")) show(view, path);
  mount_attr only_read{};
  only_read.attr_set = MOUNT_ATTR_RDONLY;
  if (::mount_setattr(AT_FDCWD, view.c_str(), 0, &only_read, sizeof only_read) != 0) fail("cannot protect " + view);
  std::error_code ignored;
  const std::string here = fs::current_path(ignored).string();
  if (::chroot(view.c_str()) != 0 || (::chdir(here.c_str()) != 0 && ::chdir("/") != 0)) fail("chroot");
}

// ---- seccomp

/// A condition on a call's argument number `argument`; for SCMP_CMP_MASKED_EQ `first` is the mask.
scmp_arg_cmp when(unsigned argument, scmp_compare how, std::uint64_t first, std::uint64_t second = 0) {
  return {argument, how, first, second};
}

class Filter {
 public:
  explicit Filter(std::uint32_t otherwise) : context_(::seccomp_init(otherwise)) {
    if (context_ == nullptr) fail("seccomp");
  }
  void rule(std::uint32_t action, int call, std::initializer_list<scmp_arg_cmp> conditions = {}) {
    if (call == __NR_SCMP_ERROR) return;  // the call does not exist on this architecture
    const int error = ::seccomp_rule_add_array(context_, action, call, unsigned(conditions.size()), conditions.begin());
    if (error != 0 && error != -EDOM) fail("a rule of the seccomp filter", -error);
  }
  /// By name, since an older libseccomp lacks the constants of newer calls.
  void rules(std::uint32_t action, const char* calls) {
    std::istringstream names(calls);
    for (std::string call; names >> call;) rule(action, ::seccomp_syscall_resolve_name(call.c_str()));
  }
  void load() {
    const int error = ::seccomp_load(context_);
    if (error != 0) fail("the seccomp filter", -error);
    ::seccomp_release(context_);
  }

 private:
  scmp_filter_ctx context_;
};

/// The system calls that a worker may make with any arguments.
constexpr const char* kNeededByWorkers =
    R"(read write readv writev pread64 close fstat stat lstat newfstatat statx lseek access faccessat faccessat2
    readlink readlinkat getcwd mmap munmap mprotect mremap madvise brk rt_sigaction rt_sigprocmask rt_sigreturn
    sigaltstack restart_syscall pause clock_gettime clock_getres gettimeofday time times nanosleep clock_nanosleep
    sched_yield sched_getaffinity sched_getparam sched_getscheduler getcpu membarrier futex set_robust_list
    get_robust_list set_tid_address rseq arch_prctl getpid gettid getppid getuid geteuid getgid getegid getrusage
    getrlimit getrandom sysinfo uname poll ppoll select pselect6 sendto recvfrom exit exit_group)";

/// The filter of a worker: allows the calls that it needs; all others fail with "not permitted".
void filter_run() {
  Filter filter(SCMP_ACT_ERRNO(EPERM));
  filter.rules(SCMP_ACT_ALLOW, kNeededByWorkers);
  // Files are opened for reading only.
  constexpr std::uint64_t writing = O_ACCMODE | O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY);
  filter.rule(SCMP_ACT_ALLOW, SCMP_SYS(open), {when(1, SCMP_CMP_MASKED_EQ, writing, 0)});
  filter.rule(SCMP_ACT_ALLOW, SCMP_SYS(openat), {when(2, SCMP_CMP_MASKED_EQ, writing, 0)});
  // Threads, no processes. The filter cannot read the flags of clone3, so clone3 fails and the C library uses clone.
  filter.rule(SCMP_ACT_ALLOW, SCMP_SYS(clone), {when(0, SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD)});
  filter.rules(SCMP_ACT_ERRNO(ENOSYS), "clone3");
  // Signals to itself, for abort().
  filter.rule(SCMP_ACT_ALLOW, SCMP_SYS(tgkill), {when(0, SCMP_CMP_EQ, std::uint64_t(::getpid()))});
  // It may read limits, and set only its own memory limit, which it can only lower (common/worker/server.cpp).
  filter.rule(SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), {when(2, SCMP_CMP_EQ, 0)});
  filter.rule(SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), {when(0, SCMP_CMP_EQ, 0), when(1, SCMP_CMP_EQ, RLIMIT_DATA)});
  // The worker adds its own filter (common/worker/sealed.hpp).
  filter.rule(SCMP_ACT_ALLOW, SCMP_SYS(seccomp), {when(0, SCMP_CMP_EQ, 1 /* SECCOMP_SET_MODE_FILTER */)});
  filter.rule(SCMP_ACT_ALLOW, SCMP_SYS(ioctl), {when(1, SCMP_CMP_EQ, TCGETS)});
  for (const int command : {F_GETFL, F_GETFD, F_SETFD})
    filter.rule(SCMP_ACT_ALLOW, SCMP_SYS(fcntl), {when(1, SCMP_CMP_EQ, std::uint64_t(command))});
  for (const int option : {PR_SET_NAME, PR_GET_NAME, PR_SET_NO_NEW_PRIVS, 0x53564d41 /* PR_SET_VMA */})
    filter.rule(SCMP_ACT_ALLOW, SCMP_SYS(prctl), {when(0, SCMP_CMP_EQ, std::uint64_t(option))});
  // The program itself.
  filter.rule(SCMP_ACT_ALLOW, SCMP_SYS(execveat), {when(0, SCMP_CMP_EQ, kProgram)});
  filter.load();
}

/// The calls that neither a compiler nor a GPU worker needs.
constexpr const char* kNeverNeeded =
    R"(connect accept accept4 sendmsg sendmmsg recvmsg recvmmsg ptrace process_vm_readv process_vm_writev
    process_madvise process_mrelease kcmp kill tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_getfd
    pidfd_send_signal io_uring_setup io_uring_enter io_uring_register mount umount umount2 unshare setns pivot_root
    chroot open_tree move_mount fsopen fsmount fspick mount_setattr open_by_handle_at name_to_handle_at bpf
    userfaultfd perf_event_open keyctl add_key request_key init_module finit_module delete_module kexec_load
    kexec_file_load swapon swapoff reboot acct quotactl sethostname setdomainname settimeofday clock_settime
    adjtimex shmget shmat msgget semget mq_open)";

/// The filter of compilers and of GPU workers, whose driver makes too many calls to list: forbids the calls that they
/// never need.
void filter_by_name(bool worker) {
  Filter filter(SCMP_ACT_ALLOW);
  constexpr std::uint32_t refused = SCMP_ACT_ERRNO(EPERM);
  filter.rules(refused, kNeverNeeded);
  filter.rule(refused, SCMP_SYS(tgkill), {when(2, SCMP_CMP_NE, SIGABRT)});
  filter.rules(SCMP_ACT_ERRNO(ENOSYS), "clone3");
  for (const std::uint64_t flag :
       {CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP}) {
    filter.rule(refused, SCMP_SYS(clone), {when(0, SCMP_CMP_MASKED_EQ, flag, flag)});
  }
  if (worker) {
    // CUDA's driver listens on a local socket that no program connects to. It may create one; connecting, accepting and
    // messages stay forbidden.
    filter.rule(refused, SCMP_SYS(socket), {when(0, SCMP_CMP_NE, AF_UNIX)});
    filter.rules(refused, "socketpair fork vfork execve setsid setpgid");
    filter.rule(refused, SCMP_SYS(sendto), {when(4, SCMP_CMP_NE, 0)});  // only to the other end of its pipe
    filter.rule(refused, SCMP_SYS(execveat), {when(0, SCMP_CMP_NE, kProgram)});
    filter.rule(refused, SCMP_SYS(clone), {when(0, SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0)});
  } else {
    filter.rules(refused, "socket socketpair bind listen sched_setaffinity");
  }
  filter.load();
}

// ---- Processes

void change_user(std::uint64_t number) {
  const auto user = uid_t(number);
  if (user == 0) return;
  if (::setgroups(0, nullptr) != 0) fail("setgroups");
  if (::setresgid(user, user, user) != 0) fail("setresgid to " + std::to_string(user));
  if (::setresuid(user, user, user) != 0) fail("setresuid to " + std::to_string(user));
  if (::setresuid(0, 0, 0) == 0 || ::getuid() != user || ::geteuid() != user) fail("the user can be changed back", 0);
}

/// Ends this process when its parent ends. Must follow the change of user, which resets the setting.
void die_with_parent(pid_t parent, int signal) {
  if (::prctl(PR_SET_PDEATHSIG, signal) != 0) fail("prctl");
  if (::getppid() != parent) std::_Exit(kFailed);
}

/// Runs in the process that becomes the program.
[[noreturn]] void become(const Options& options, pid_t parent) {
  if (options.run) {
    const int opened = ::open(options.command[0], O_RDONLY | O_CLOEXEC);
    if (opened < 0) fail(options.command[0]);
    if (::dup3(opened, kProgram, O_CLOEXEC) != kProgram) fail("dup3");
    // Keeps only 0 to 2, the worker's pipe and its shared memory.
    for (int i = 5; i < kProgram; ++i) ::close(i);
    ::closefrom(kProgram + 1);
    limit(RLIMIT_NOFILE, options.gpu ? kProgram - 1 : 64);  // a GPU driver opens its devices many times
  } else {
    ::closefrom(3);
    limit(RLIMIT_NOFILE, 512);
  }
  if (!options.text("--view").empty()) enter_view(options);
  change_user(options.number("--user"));
  die_with_parent(parent, SIGKILL);

  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_MSGQUEUE, 0);
  limit(RLIMIT_MEMLOCK, options.gpu ? RLIM_INFINITY : 64 << 10);
  if (const auto bytes = options.number("--memory"); bytes > 0) limit(RLIMIT_AS, bytes);
  // Compilers report the signal by name.
  if (const auto seconds = options.number("--cpu"); seconds > 0) limit(RLIMIT_CPU, seconds, 1);
  keep_to_share(options.number("--share"), options.number("--shares"));
  if (!options.run) limit(RLIMIT_FSIZE, 256 << 20);  // size limit of one object file or executable
  if (!options.run && options.number("--user") != 0) limit(RLIMIT_NPROC, 128);  // the limit is per user

  std::vector<std::string> variables{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8", "HOME=/nonexistent"};
  std::string library_path = options.text("--library-path");
  // The GPU driver may be in a folder that only the caller's variable names.
  const char* given_path = options.gpu ? std::getenv("LD_LIBRARY_PATH") : nullptr;
  if (given_path != nullptr && *given_path != '\0')
    library_path += (library_path.empty() ? "" : ":") + std::string(given_path);
  if (!library_path.empty()) variables.push_back("LD_LIBRARY_PATH=" + library_path);
  if (!options.text("--write").empty()) variables.push_back("TMPDIR=" + options.text("--write") + "/tmp");
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "ASAN_OPTIONS", "UBSAN_OPTIONS"}) {
    const char* value = std::getenv(name);
    if (value != nullptr) variables.push_back(std::string(name) + "=" + value);
  }
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);

  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail("no_new_privs");
  if (options.run && !options.gpu) {
    filter_run();
  } else {
    filter_by_name(/*worker=*/options.run);
  }
  if (options.run) {
    ::syscall(SYS_execveat, kProgram, "", options.command.data(), environment.data(), AT_EMPTY_PATH);
  } else {
    ::execve(options.command[0], options.command.data(), environment.data());
  }
  fail(options.command[0]);
}

/// Ends all descendants of this process, including orphans, which become its children.
void end_descendants() {
  for (int round = 0; round < 1000; ++round) {
    std::ifstream list("/proc/self/task/" + std::to_string(::getpid()) + "/children");
    std::vector<pid_t> children;
    for (pid_t pid = 0; list >> pid;) children.push_back(pid);
    for (const pid_t child : children) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    if (children.empty()) return;
  }
}

int build(const Options& options) {
  // Orphaned processes of compilers become children of this process, so that it can end them.
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) fail("prctl");
  die_with_parent(::getppid(), SIGTERM);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    // A signal that the caller ignores (nohup) must not end a compiler. sigtimedwait would receive it if it were
    // blocked.
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_IGN) sigaddset(&signals, signal);
  }
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    ::sigprocmask(SIG_UNBLOCK, &signals, nullptr);
    ::setsid();  // no controlling terminal, which a source could #include
    become(options, self);
  }
  using Clock = std::chrono::steady_clock;
  const auto seconds = options.number("--seconds");
  const Clock::time_point end = Clock::now() + std::chrono::seconds(seconds > 0 ? seconds : 1u << 30);
  int result = kTimedOut, status = 0;
  bool interrupted = false;
  for (Clock::time_point now = Clock::now(); now < end && !interrupted; now = Clock::now()) {
    if (::waitpid(child, &status, WNOHANG) == child) {
      result = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      break;
    }
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(end - now).count();
    const timespec wait{time_t(left / 1'000'000'000), long(left % 1'000'000'000)};
    const int signal = ::sigtimedwait(&signals, nullptr, &wait);
    interrupted = signal > 0 && signal != SIGCHLD;
    if (interrupted) result = 128 + signal;
  }
  end_descendants();
  if (interrupted) std::printf("compiling was interrupted\n");
  if (result == kTimedOut)
    std::printf("compiling took longer than %llu seconds and was ended\n", (unsigned long long)seconds);
  return result;
}

// ---- probe: what the isolated process can still do ------------------------------------------------------------------

/// Prints an action that should have been refused but was not.
void report(const std::string& what, bool refused) {
  if (!refused) std::printf("could do: %s\n", what.c_str());
  std::fflush(stdout);
}

int probe(bool run, const std::vector<std::string>& paths) {
  const auto opens = [](const std::string& path, int flags) {
    const int descriptor = ::open(path.c_str(), flags, 0600);
    if (descriptor >= 0) ::close(descriptor);
    return descriptor >= 0;
  };
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::string number = " #" + std::to_string(i);  // a path may have any bytes
    report("read" + number, !opens(paths[i], O_RDONLY));
    report("write" + number, !opens(paths[i], O_WRONLY));
    const std::string beside = paths[i].substr(0, paths[i].rfind('/')) + "/.workbook-probe";
    const bool written = opens(beside, O_WRONLY | O_CREAT);
    if (written) ::unlink(beside.c_str());
    report("write beside" + number, !written);
  }
  report("another user", ::setresuid(0, 0, 0) != 0 || ::getuid() != 0);
  report("a network socket", ::socket(AF_INET, SOCK_STREAM, 0) < 0);
  report("a local socket", ::socket(AF_UNIX, SOCK_STREAM, 0) < 0);
  report("a socket pair", ::syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, nullptr) != 0 && errno == EPERM);
  report("a signal to the parent", ::kill(::getppid(), 0) != 0);
  report("the parent's memory", !opens("/proc/" + std::to_string(::getppid()) + "/mem", O_RDONLY));
  report("the parent's environment", !opens("/proc/" + std::to_string(::getppid()) + "/environ", O_RDONLY));
  char byte = 0;
  iovec here{&byte, 1}, there{&byte, 1};
  report("process_vm_readv", ::process_vm_readv(::getppid(), &here, 1, &there, 1, 0) < 0);
  report("ptrace", ::ptrace(PTRACE_ATTACH, ::getppid(), nullptr, nullptr) != 0);
  report("io_uring", ::syscall(SYS_io_uring_setup, 1, nullptr) < 0 && errno == EPERM);
  report("a namespace", ::unshare(CLONE_NEWUSER) != 0);
  cpu_set_t cores;
  const bool known = ::sched_getaffinity(0, sizeof cores, &cores) == 0;
  report("other cores", !known || ::sched_setaffinity(0, sizeof cores, &cores) != 0);
  if (run) {
    report("writing a file", !opens("/tmp/.workbook-probe-" + std::to_string(::getpid()), O_WRONLY | O_CREAT));
    const long child = ::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
    if (child == 0) std::_Exit(0);
    report("a process", child < 0);
    report("a signal to itself from outside", ::kill(::getpid(), 0) != 0);
    // This is last because it replaces the process if it is allowed.
    char* const arguments[] = {const_cast<char*>("true"), nullptr};
    ::execve("/bin/true", arguments, arguments + 1);
  }
  std::printf("end\n");
  return 0;
}

/// Whether this system allows a separate root directory for a program.
int try_view() {
  std::string folder = (fs::temp_directory_path() / "workbook-view-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) fail(folder);
  const pid_t child = ::fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    Options options;
    options.given.at("--view") = {folder};
    enter_view(options);
    std::_Exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ::rmdir(folder.c_str());
  return status == 0 ? 0 : kFailed;
}

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 2; i < argc && options.command.empty(); ++i) {
    const std::string word = argv[i];
    options.gpu = options.gpu || word == "--gpu";
    if (word == "--gpu") continue;
    if (word == "--") {
      options.command.assign(argv + i + 1, argv + argc);
    } else if (options.given.contains(word) && i + 1 < argc) {
      options.given.at(word).emplace_back(argv[++i]);
    } else {
      fail(word + ": " + kUsage, 0);
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const std::string verb = words.empty() ? "" : words[0];
  if (verb == "view") return try_view();
  if (verb == "probe") return probe(words.at(1) == "run", {words.begin() + 2, words.end()});
  if (verb != "run" && verb != "build") fail(kUsage, 0);
  Options options = read_options(argc, argv);
  options.run = verb == "run";
  if (options.command.empty()) fail("no program", 0);
  options.command.push_back(nullptr);
  if (!options.run) return build(options);
  become(options, ::getppid());
}
