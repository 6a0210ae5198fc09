// Who allocates: a worker replaces operator new (common/worker/server.cpp), and gives back what the simulator returns.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

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

TEST_CASE("a program's operator new is the simulator's too, also where each has a C++ library of its own") {
  const int had = allocated - given_back;
  {
    const std::vector<std::string> reports = simt::reports_of_its_own();
    CHECK(allocated - given_back == had + 3);  // the vector and its two texts
  }
  CHECK(allocated - given_back == had);
}
