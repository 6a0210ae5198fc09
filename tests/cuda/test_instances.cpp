// Builds with a part of the kernels: only one head dimension, or none for bf16.
#include <catch2/catch_test_macros.hpp>

#include "common/worker/worker.hpp"
#include "tests/worker/fixtures/fixtures.hpp"

using namespace workbook;
using namespace workbook::worker;
namespace fs = std::filesystem;

namespace {

Worker build(const std::string& name, const std::vector<std::string>& flags, const char* file = "choice.cu") {
  const fs::path folder = fs::path(WORKBOOK_SOURCE) / "tests/cuda/fixtures";
  WorkerJob job{"choice_" + name, Backend::sim, {folder / file}, folder};
  job.sources_flags = flags;
  const WorkerBuilt built =
      build_workers(toolchain_for(fs::path(WORKBOOK_BINARY) / "tests/cuda/built"), {job}).at(job.name);
  if (!built.ok) throw std::runtime_error(built.log);
  return Worker(built.executable);
}

float choose(Worker& worker, int d, int Br) {
  Call call("choose");
  call.number("d", d).number("Br", Br).output<float>("chosen", 1);
  return worker.call(call).output<float>("chosen").at(0);
}

}  // namespace

TEST_CASE("a build of one head dimension has all of its sizes, and stops at any other head dimension") {
  Worker worker = build("dimension", {"-DWORKBOOK_HEAD_DIM=64"});
  CHECK(choose(worker, 64, 32) == 32064);
  CHECK(choose(worker, 64, 64) == 64064);
  CHECK_THROWS_AS(choose(worker, 128, 32), Failure);
}

TEST_CASE("a build without bf16 has no kernels of files for it, and stops where one is launched") {
  const auto launched = [](Worker& worker) {
    return worker.call(Call("twice").output<float>("result", 1)).output<float>("result").at(0);
  };
  const std::string head_dim = "-DWORKBOOK_HEAD_DIM=64", without = "-DWORKBOOK_WITHOUT_BFLOAT16";
  const std::string bf16 = "-DWORKBOOK_ELEMENT=__nv_bfloat16";
  Worker half = build("half", {head_dim, without}, "twice.cu"), with = build("bf16", {head_dim, bf16}, "twice.cu"),
         left_out = build("no_bf16", {head_dim, without, bf16}, "twice.cu");
  CHECK(launched(half) == 2);
  CHECK(launched(with) == 2);
  CHECK_THROWS_AS(launched(left_out), Failure);
}
