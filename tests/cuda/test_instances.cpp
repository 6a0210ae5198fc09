// The record of requested sizes, and builds with a part of the kernels: only those sizes, or only one head dimension.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <sstream>

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

TEST_CASE("a build notes which sizes are asked for, and one of these alone stops at any other and says so") {
  const TemporaryFolder folder;
  const fs::path file = folder / "noted";
  const auto noted = [&] {
    std::istringstream lines(fs::exists(file) ? file_text(file) : "");
    fs::remove(file);
    std::string chosen;
    int calls = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line == "0 choice.cu") {  // the operation's own file, with each call
        ++calls;
      } else {
        chosen += line + '\n';
      }
    }
    CHECK(calls > 0);
    return chosen;
  };
  ::setenv("WORKBOOK_INSTANCES_FILE", file.c_str(), 1);
  Worker noting = build("noting", {});
  CHECK(choose(noting, 64, 32) == 32064);
  const std::string number = noted();
  CHECK(choose(noting, 64, 32) == 32064);
  CHECK(noted() == number);  // the same again
  CHECK(choose(noting, 128, 32) == 32128);
  CHECK(choose(noting, 64, 64) == 64064);
  const std::string others = noted();
  CHECK(others.find(number) == std::string::npos);
  CHECK(std::ranges::count(others, '\n') == 2);

  Worker one = build("one", {"-DWORKBOOK_INSTANCES=" + number.substr(0, number.find(' ')) + "u"});
  CHECK(choose(one, 64, 32) == 32064);
  CHECK(noted().empty());
  CHECK_THROWS_AS(choose(one, 64, 64), Failure);
  CHECK(noted().starts_with("left out: "));
  Worker none = build("none", {"-DWORKBOOK_INSTANCES=0u"});
  CHECK_THROWS_AS(choose(none, 64, 32), Failure);
  CHECK(noted() == "left out: " + number.substr(0, number.find(' ')) + " choice.cu\n");
  ::unsetenv("WORKBOOK_INSTANCES_FILE");
}

TEST_CASE("a build of one head dimension has all of its sizes, and stops at any other head dimension") {
  Worker worker = build("dimension", {"-DWORKBOOK_INSTANCES=64"});
  CHECK(choose(worker, 64, 32) == 32064);
  CHECK(choose(worker, 64, 64) == 64064);
  CHECK_THROWS_AS(choose(worker, 128, 32), Failure);
}

TEST_CASE("a build without bf16 has no kernels of files for it, and stops where one is launched") {
  const auto launched = [](Worker& worker) {
    return worker.call(Call("twice").output<float>("result", 1)).output<float>("result").at(0);
  };
  const std::string head_dim = "-DWORKBOOK_INSTANCES=64", without = "-DWORKBOOK_WITHOUT_BFLOAT16";
  const std::string bf16 = "-DWORKBOOK_ELEMENT=__nv_bfloat16";
  Worker half = build("half", {head_dim, without}, "twice.cu"), with = build("bf16", {head_dim, bf16}, "twice.cu"),
         left_out = build("no_bf16", {head_dim, without, bf16}, "twice.cu");
  CHECK(launched(half) == 2);
  CHECK(launched(with) == 2);
  CHECK_THROWS_AS(launched(left_out), Failure);
}
