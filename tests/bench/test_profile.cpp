// Reading Nsight Compute's output.
#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include "common/bench/profile.hpp"

using namespace workbook::bench;
using Catch::Approx;

TEST_CASE("sums are added over the kernels, percentages weighted with their times") {
  // Output of `ncu --csv --page raw --print-units base`: messages, names, units, one line per kernel.
  const std::string log =
      "==PROF== Connected to process 5212\n"
      "\"ID\",\"Kernel Name\",\"Block Size\",\"dram__bytes_read.sum\",\"gpu__time_duration.sum\","
      "\"dram__throughput.avg.pct_of_peak_sustained_elapsed\"\n"
      "\"\",\"\",\"\",\"byte\",\"ns\",\"%\"\n"
      "\"0\",\"void scores<64>(const half *, float)\",\"(128, 1, 1)\",\"1,000,000\",\"3000\",\"80.5\"\n"
      "\"1\",\"softmax\",\"(128, 1, 1)\",\"500\",\"1000\",\"40.5\"\n"
      "==PROF== Disconnected\n";
  const auto metrics = profiled_metrics(log);
  CHECK(metrics.size() == 3);
  CHECK(metrics.at("dram__bytes_read.sum") == 1000500);
  CHECK(metrics.at("gpu__time_duration.sum") == 4000);
  CHECK(metrics.at("dram__throughput.avg.pct_of_peak_sustained_elapsed") == Approx(70.5));
}

TEST_CASE("a log without kernels has no metrics") {
  CHECK(profiled_metrics("").empty());
  CHECK(profiled_metrics("==ERROR== The user does not have permission\n").empty());
}

TEST_CASE("the profiler waits for the stage, and does not change the clocks") {
  const std::vector<std::string> command = profiler_command("/tmp/a log.csv");
  const auto follows = [&](const std::string& flag, const std::string& value) {
    const auto at = std::find(command.begin(), command.end(), flag);
    return at != command.end() && at + 1 != command.end() && *(at + 1) == value;
  };
  CHECK(command.at(0) == "ncu");
  CHECK(follows("--profile-from-start", "off"));
  CHECK(follows("--clock-control", "none"));
  CHECK(follows("--log-file", "/tmp/a log.csv"));
}
