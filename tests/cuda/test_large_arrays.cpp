// Arrays of more than 4 GiB and more than 2^31 elements, which exceed 32-bit indices. They need a GPU and about 30 GB
// of host memory, so they run only on request: `WORKBOOK_LARGE=1 bin/tests_large_arrays`. Without enough memory for the
// simulator, common/book/offsets.hpp checks the source text of kernels.
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

/// A chapter's kernels on the GPU; skipped without a GPU or without the request.
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
  limits.memory = 0;  // CUDA reserves far more address space than it uses
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
