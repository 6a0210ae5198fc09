#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#include "common/cuda/operations.hpp"

std::uint64_t workbook::cuda::available_memory() {
  std::uint64_t available = UINT64_MAX;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string key; meminfo >> key;) {
    std::uint64_t kib = 0;
    meminfo >> kib;
    if (key == "MemAvailable:") {
      available = kib * 1024;
      break;
    }
    meminfo.ignore(256, '\n');
  }
  // A container's limit (cgroup v2); "max" and a missing file impose no limit.
  std::uint64_t limit = 0, used = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit && std::ifstream("/sys/fs/cgroup/memory.current") >> used) {
    available = std::min(available, limit > used ? limit - used : 0);
  }
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const std::uint64_t mapped = pages * std::uint64_t(sysconf(_SC_PAGESIZE));
    available = std::min<std::uint64_t>(available, space.rlim_cur > mapped ? space.rlim_cur - mapped : 0);
  }
  return available;
}
