// Launches: refused launches, open exercises, annotations, the record of a launch.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

#include "common/cuda/backend.hpp"
#include "common/cuda/error.hpp"
#include "common/cuda/todo.hpp"
#include "common/simt/simulator.hpp"
#include "tests/simt/cases.hpp"
#include "tests/simt/features.hpp"

using Catch::Matchers::ContainsSubstring;

TEST_CASE("a launch that CUDA would refuse is refused, with the allowed range") {
  CHECK_NOTHROW(zoo::run_with(1, 1, 0));
  CHECK_THROWS_WITH(zoo::run_with(65536, 32, 0), ContainsSubstring("65535"));
  CHECK_THROWS_WITH(zoo::run_with(1, 1025, 0), ContainsSubstring("1 to 1024"));
  CHECK_THROWS_WITH(zoo::run_with(1, 0, 0), ContainsSubstring("1 to 1024"));
  CHECK_THROWS_WITH(zoo::run_with(0, 32, 0), ContainsSubstring("empty"));
  CHECK_THROWS_WITH(zoo::run_with(1, 32, 228 * 1024), ContainsSubstring("232448"));
  CHECK_THROWS_AS(zoo::run_with(1, 32, 228 * 1024), workbook::cuda::Error);
}

TEST_CASE("an open exercise in a kernel is thrown by the launch, and its consequences are not reported") {
  CHECK_THROWS_AS(zoo::run_open_exercise(), workbook::Todo);
  try {
    zoo::run_open_exercise();
  } catch (const workbook::Todo& todo) {
    CHECK(std::string(todo.what()) == "4.2");
  }
  CHECK(simt::last_launch().reports.empty());
  simt::options().workers = 2;
  CHECK_THROWS_AS(zoo::run_open_exercise(1000), workbook::Todo);
  simt::options().workers = 0;
  CHECK(simt::last_launch().notes.size() <= 2);  // no further block starts once the launch has failed
}

TEST_CASE("a kernel may read static variables, and write none") {
  CHECK_THROWS_WITH(zoo::run_write_of_static(), ContainsSubstring("4 bytes, in a static variable"));
  CHECK_THROWS_WITH(zoo::run_integer_into_static(), ContainsSubstring("4 bytes, in a static variable"));
}

TEST_CASE("the registers of matrix instructions are observed where they are in shared memory") {
  if (!simt::instrumented()) SKIP("kernel files are compiled without the instrumentation");
  CHECK_THROWS_WITH(zoo::run_ldmatrix_into_shared(), ContainsSubstring("race: read after write"));
  CHECK_THROWS_WITH(zoo::run_mma_in_shared(), ContainsSubstring("race: read after write"));
  CHECK_THROWS_WITH(zoo::run_wmma_in_shared(), ContainsSubstring("race: read after write"));
}

TEST_CASE("printf moves no values between lanes, and neither does errno") {
  CHECK_NOTHROW(zoo::run_prints());
  if (simt::instrumented()) CHECK_THROWS_WITH(zoo::run_errno(), ContainsSubstring("out of bounds, global memory"));
}

TEST_CASE("annotations are kept by block") {
  simt::clear_launches();
  zoo::run_annotated();
  CHECK(simt::last_launch().notes == std::vector<simt::Note>{{0, "masked tile", 0, 32}, {1, "masked tile", 1, 32}});
}

TEST_CASE("the record of a launch holds its kernel, grid, block and time") {
  simt::clear_launches();
  zoo::run_scaled(3);
  const simt::Launch& launch = simt::last_launch();
  CHECK(launch.kernel == "zoo::scaled");
  CHECK(launch.grid.x == 2);
  CHECK(launch.block.x == 128);
  CHECK(launch.seconds > 0);
}

TEST_CASE("the intervals of block 0 add up to the counters of a launch of one block") {
  if (!simt::instrumented()) SKIP("accesses are not counted here");
  const auto expect_sums = [] {
    const simt::Launch& launch = simt::last_launch();
    REQUIRE(launch.intervals.size() == launch.counters.block_barriers + 1);
    simt::Counters all = launch.intervals.back().counters;
    all.global = launch.counters.global;
    CHECK(all == launch.counters);
    for (const simt::TensorTraffic& tensor : launch.tensors)
      CHECK(launch.intervals.back().tensors.at(tensor.name).counters == tensor.counters);
  };
  zoo::attention(64, 1, false);
  expect_sums();
  CHECK(simt::last_launch().intervals.size() > 2);

  const auto cases = zoo::instruction_cases();
  const auto copies = std::find_if(cases.begin(), cases.end(),
                                   [](const zoo::Case& c) { return std::string(c.name) == "cp.async in four groups"; });
  REQUIRE(copies != cases.end());
  copies->run();
  expect_sums();
  const simt::Interval::Tensor& copied = simt::last_launch().intervals.back().tensors.at("a");
  CHECK(copied.arrived_bytes == 4 * 32 * 16);
  CHECK(copied.counters.async_bytes == copied.arrived_bytes);
}

TEST_CASE("an interrupted launch ends with an error, and later launches are complete") {
  zoo::run_scaled(2);
  const simt::Counters right = simt::last_launch().counters;
  simt::interrupt(true);
  CHECK_THROWS_AS(zoo::run_scaled(2), simt::Interrupted);
  simt::interrupt(false);
  // Only the interruption ends this one, whose block has begun or not.
  std::thread other([] { simt::interrupt(true); });
  CHECK_THROWS_AS(zoo::run_endless_barriers(), simt::Interrupted);
  other.join();
  simt::interrupt(false);
  zoo::run_scaled(2);
  CHECK(simt::last_launch().counters == right);
}

TEST_CASE("a forked process launches kernels, as its parent does") {
  zoo::run_scaled(2);
  const simt::Counters right = simt::last_launch().counters;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(120);  // ends a child that waits forever
    zoo::run_scaled(2);
    ::_exit(simt::last_launch().counters == right ? 0 : 1);
  }
  int status = 1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  zoo::run_scaled(2);
  CHECK(simt::last_launch().counters == right);
}

TEST_CASE("many launches, one after another") {
  simt::clear_launches();
  for (int i = 0; i < 200; ++i) zoo::run_scaled(float(i));
  CHECK(simt::launches().size() == 200);
}

TEST_CASE("more accesses than fit the buffer are counted exactly") {
  if (!simt::instrumented()) SKIP("kernel files are compiled without the instrumentation");
  zoo::run_long_loop(20'000);
  const simt::GlobalCounters& c = simt::last_launch().counters.global;
  CHECK(c.load_requests == 20'000);
  // 32 adjacent floats are in 4 sectors if the first is at a multiple of 8, otherwise in 5; this also holds where the
  // ring buffer wraps around.
  std::uint64_t sectors = 0;
  for (int i = 0; i < 20'000; ++i) sectors += i % 8 == 0 ? 4 : 5;
  CHECK(c.load_sectors == sectors);
}

TEST_CASE("the lanes' k-th executions of a line are one instruction, even if only some lanes execute it") {
  if (!simt::instrumented()) SKIP("kernel files are compiled without the instrumentation");
  zoo::run_divergent_loop();
  const simt::GlobalCounters& c = simt::last_launch().counters.global;
  // Four rounds with 32, 24, 16 and 8 lanes; the accesses of each round are in 4 sectors.
  CHECK(c.load_requests == 4);
  CHECK(c.load_sectors == 16);
  CHECK(c.load_bytes == 4 * (32 + 24 + 16 + 8));
}

TEST_CASE("the peak of device memory") {
  workbook::cuda::take_peak_bytes();
  zoo::run_scaled(2);
  CHECK(workbook::cuda::take_peak_bytes() == 2 * 256 * sizeof(float));
  CHECK(workbook::cuda::take_peak_bytes() == 0);
}

TEST_CASE("counters can be read by name") {
  if (!simt::instrumented()) SKIP("kernel files are compiled without the instrumentation");
  simt::clear_launches();
  zoo::run_scaled(2);
  zoo::run_scaled(3);
  double launches = 0, read = 0;
  for (const auto& [name, value] : workbook::cuda::take_counters()) {
    if (name == "launches") launches = value;
    if (name == "a.load_bytes") read = value;
  }
  CHECK(launches == 2);
  CHECK(read == 2 * 256 * 4);
  CHECK(workbook::cuda::take_counters().empty());
}
