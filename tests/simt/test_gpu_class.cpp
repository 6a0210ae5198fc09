// The GPUs whose limits the simulator can adopt.
#include "common/simt/gpu_class.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>

using namespace simt;

TEST_CASE("a class has the limits of the Programming Guide's table") {
  CHECK(gpu_class("t4").shared_block == 65536);
  CHECK(gpu_class("rtx4090").shared_block == 101376);
  CHECK(gpu_class("a100").shared_block == 166912);
  CHECK(gpu_class("h100").shared_block == 232448);
  CHECK(gpu_class("rtx5090").compute == 120);
  CHECK_THROWS_WITH(gpu_class("k80"),
                    "unknown GPU \"k80\"; allowed are t4, rtx3060, rtx4090, a100, h100, b200, rtx5090");
}

TEST_CASE("the number of resident blocks per SM, and the limit that determines it") {
  const auto check = [](const char* gpu, int threads, std::size_t bytes, int blocks, const std::string& limit) {
    const Occupancy found = occupancy(gpu_class(gpu), threads, bytes);
    INFO(gpu << ", " << threads << " threads, " << bytes << " bytes");
    CHECK(found.blocks == blocks);
    CHECK(found.limit == limit);
  };
  check("h100", 128, 0, 16, "threads");               // 2048 / 128
  check("h100", 32, 0, 32, "blocks");                 // 64 warps would fit, 32 blocks do
  check("h100", 128, 75 * 1024, 3, "shared memory");  // 3 · (75 + 1) KiB of 228
  check("h100", 128, 76 * 1024, 2, "shared memory");
  check("rtx4090", 128, 49 * 1024, 2, "shared memory");  // 2 · (49 + 1) KiB of 100
  check("t4", 128, 32 * 1024, 2, "shared memory");       // the system reserves nothing
  check("t4", 1024, 0, 1, "threads");
  check("rtx3060", 100, 0, 12, "threads");                                          // 100 threads are four warps
  const Occupancy given = occupancy(gpu_class("h100"), 384, 75 * 1024, 384 * 168);  // as set by setmaxnreg
  CHECK(given.blocks == 1);
  CHECK(given.limit == std::string("registers"));
}
