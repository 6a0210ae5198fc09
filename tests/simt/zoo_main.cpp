// Runs test kernels by name: `zoo` lists them, `zoo NAME…` runs each of these once. On the simulator it prints the
// reports and the main counters; on a GPU a profiler or compute-sanitizer can be run on it.
#include <cstdio>
#include <cstring>
#include <exception>

#include "common/cuda/backend.hpp"
#include "tests/simt/cases.hpp"

int main(int argc, char** argv) {
  const std::span<const zoo::Case> groups[] = {
    zoo::counted_cases(),
    zoo::instruction_cases(),
    zoo::compared_cases(),
    zoo::right_cases(),
    zoo::race_cases(),
    zoo::memory_cases(),
    zoo::warp_cases(),
    zoo::instruction_mistakes(),
#if !defined(ZOO_WITHOUT_HOPPER)  // nvcc compiles these for compute capability 9.0 only
    zoo::hopper_cases(),
    zoo::line_cases(),
    zoo::hopper_attention(),
    zoo::hopper_mistakes(),
    zoo::line_mistakes(),
#endif
  };
  if (argc == 1) {
    for (const auto& group : groups) {
      for (const zoo::Case& c : group) std::printf("%s\n", c.name);
    }
    return 0;
  }
  for (int i = 1; i < argc; ++i) {
    bool found = false;
    for (const auto& group : groups) {
      for (const zoo::Case& c : group) {
        if (std::strcmp(argv[i], c.name) != 0) continue;
        found = true;
        std::printf("%s\n", c.name);
        try {
          c.run();
          workbook::cuda::synchronize();
        } catch (const std::exception& error) {
          std::printf("%s\n", error.what());
        }
        for (const auto& [name, value] : workbook::cuda::take_counters()) {
          if (value != 0) std::printf("  %s %.0f\n", name.c_str(), value);
        }
      }
    }
    if (!found) {
      std::fprintf(stderr, "no case \"%s\"\n", argv[i]);
      return 2;
    }
  }
  return 0;
}
