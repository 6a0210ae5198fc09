// Allocation: a worker replaces operator new (common/worker/server.cpp) and frees what the simulator returns. Device
// memory: only kernels may access it.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "common/simt/simulator.hpp"

namespace simt {
std::vector<std::string> reports_of_its_own();
}

namespace {
std::atomic<int> allocated{0}, given_back{0};
}

void* operator new(std::size_t size) {
  ++allocated;
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  if (memory != nullptr) ++given_back;
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  if (memory != nullptr) ++given_back;
  std::free(memory);
}

TEST_CASE("a program and the simulator share operator new, even with separate C++ libraries") {
  const int had = allocated - given_back;
  {
    const std::vector<std::string> reports = simt::reports_of_its_own();
    CHECK(allocated - given_back == had + 3);  // the vector and its two texts
  }
  CHECK(allocated - given_back == had);
}

TEST_CASE("the host touches device memory by copies alone") {
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::signal(SIGSEGV, SIG_DFL);  // not Catch's handler
    ::dup2(pipe[1], STDERR_FILENO);
    auto* scores = static_cast<float*>(simt::allocate(64 * sizeof(float), "scores", sizeof(float), simt::Role::input));
    const std::vector<float> ones(64, 1.0f);
    simt::copy_in(scores, ones.data(), 64 * sizeof(float));
    std::vector<float> back(64);
    simt::copy_out(back.data(), scores, 64 * sizeof(float));
    if (back != ones) ::_exit(1);
    volatile float read = scores[7];
    ::_exit(read == 1.0f ? 2 : 3);
  }
  ::close(pipe[1]);
  std::string said;
  char buffer[512];
  for (ssize_t n; (n = ::read(pipe[0], buffer, sizeof buffer)) > 0;) said.append(buffer, std::size_t(n));
  ::close(pipe[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  INFO(said);
  CHECK(WIFSIGNALED(status));
  CHECK(said.find("the host accesses scores, which is device memory") != std::string::npos);
}
