// A disk that is full, for the commands that a test starts.
#pragma once

#include <signal.h>
#include <sys/resource.h>

namespace workbook::test {

/// During its lifetime, no file may grow beyond 64 KiB: writing more fails with "File too large".
class SmallFiles {
 public:
  SmallFiles() {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{64 << 10, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, SIG_DFL);
  }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;

 private:
  rlimit before_{};
};

}  // namespace workbook::test
