// Arrays of more than 4 GiB, more than 2^31 elements: where an index of 32 bits ends. They need a GPU and about 30 GB
// of memory beside it, so they are asked for: `WORKBOOK_LARGE=1 bin/tests_large_arrays`. What the simulator has no
// memory for is found in the text of a kernel: common/book/offsets.hpp.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>

#include "common/judge/plan.hpp"
#include "common/worker/worker.hpp"

using namespace workbook;
using namespace workbook::judge;

namespace {

constexpr std::int64_t kMany = (std::int64_t(1) << 31) + 5;

/// A chapter's own kernels on the GPU; skipped where there is none, or nobody has asked.
worker::Worker kernels_of(const char* number) {
  if (std::getenv("WORKBOOK_LARGE") == nullptr) SKIP("30 GB of memory: only with WORKBOOK_LARGE=1");
  if (!worker::gpu_present()) SKIP("there is no GPU");
  ::setenv("WORKBOOK_ROOT", WORKBOOK_SOURCE, 1);
  ::setenv("WORKBOOK_BUILD", WORKBOOK_BINARY, 1);
  const Workspace workspace = open_workspace();
  if (const std::string why = why_unavailable(workspace, Backend::cuda); !why.empty()) SKIP(why);
  const book::Chapter& chapter = workspace.book.chapter(number);
  const worker::WorkerJob job = whole_job(workspace, chapter, solutions_tree(workspace, chapter), Backend::cuda);
  worker::build_targets(workspace.toolchain, workspace.toolchain.backends.at(Backend::cuda).targets);
  const worker::WorkerBuilt built = worker::build_workers(workspace.toolchain, {job}).at(job.name);
  INFO(built.log);
  REQUIRE(built.ok);
  worker::Limits limits;
  limits.time = std::chrono::minutes(5);
  limits.memory = 0;  // CUDA reserves far more addresses than it uses
  return worker::Worker(built.executable, limits);
}

}  // namespace

TEST_CASE("a copy of more than 4 GiB is complete") {
  worker::Worker chapter = kernels_of("3");
  std::vector<std::uint16_t> from(kMany);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = std::uint16_t(i % 31743);  // no NaN
  worker::Call call("copy");
  call.input("from", from).output<std::uint16_t>("to", from.size());
  CHECK(std::ranges::equal(chapter.call(call).output<std::uint16_t>("to"), from));
}

TEST_CASE("the rows of more than 4 GiB of O and dO are prepared") {
  worker::Worker chapter = kernels_of("6");
  constexpr std::int64_t d = 32, queries = kMany / d + 1;
  const std::vector<std::uint16_t> ones(queries * d, 0x3C00), twos(queries * d, 0x4000);
  const std::vector<float> lse(queries, 1);
  worker::Call call("prepare_rows");
  call.number("B", 1).number("H", 1).number("Hkv", 1).number("Nq", double(queries)).number("Nk", 1).number("d", d);
  call.input("O", ones).input("dO", twos).input("lse", lse).output<double>("rows", queries);  // two floats each
  const std::vector<float> rows = chapter.call(call).output<float>("rows");
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < queries; ++i)
    wrong += std::abs(rows[2 * i] - 1.442695f) > 1e-6f || rows[2 * i + 1] != 2 * d;
  CHECK(wrong == 0);
}
