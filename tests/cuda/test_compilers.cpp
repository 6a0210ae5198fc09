// Another compiler than the one that this build is made with.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "common/worker/command.hpp"
#include "tests/worker/fixtures/fixtures.hpp"

using namespace workbook::worker;
namespace fs = std::filesystem;

TEST_CASE("clang++ compiles kernels with the flags that the book gives it") {
  const fs::path compiler = find_clang("clang++");
  if (compiler.empty()) SKIP("clang++ 16 or newer is not here");
  const fs::path source = WORKBOOK_SOURCE, kernels = source / "tests/cuda/fixtures/made_up_stage.cu";
  const TemporaryFolder build;
  const CommandResult configured =
      run_command({load_toolchain(WORKBOOK_BINARY, source).cmake, "-G", "Ninja", "-S", source.string(), "-B",
                   build.path().string(), "-DCMAKE_CXX_COMPILER=" + compiler.string()});
  INFO(configured.output);
  REQUIRE(configured.exit_code == 0);
  std::vector<std::string> compile = load_toolchain(build.path(), source).backends.at(workbook::Backend::sim).kernels;
  compile.insert(compile.end(), {"-I.", "-fsyntax-only", kernels.string()});
  CommandOptions options;
  options.folder = source;
  const CommandResult compiled = run_command(compile, options);
  CHECK(compiled.exit_code == 0);
  CHECK(compiled.output.empty());  // no warning of an option that it does not know
}
