// common/bench/peers.py without PyTorch or without a GPU: one line with the reason, and exit code 0.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include "common/worker/command.hpp"
#include "tests/book/fixtures/temporary_book.hpp"

using namespace workbook;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

/// The lines that the script writes if these files precede Python's own packages.
std::vector<json> lines_of_peers(const book::TemporaryFolder& packages) {
  packages.write("request.json", R"({"budget": 0.1, "shapes": []})");
  std::vector<json> lines;
  worker::CommandOptions options;
  options.environment["PYTHONPATH"] = packages.path().string();
  options.environment["PYTHONDONTWRITEBYTECODE"] = "1";
  options.on_line = [&](const std::string& line) { lines.push_back(json::parse(line)); };
  const worker::CommandResult result = worker::run_command(
      {"python3", std::string(WORKBOOK_SOURCE) + "/common/bench/peers.py", (packages / "request.json").string()},
      options);
  INFO(result.output);
  CHECK(result.exit_code == 0);
  return lines;
}

}  // namespace

TEST_CASE("a Python without PyTorch says so") {
  if (worker::find_program("python3").empty()) SKIP("python3 is not installed");
  const book::TemporaryFolder packages;
  packages.write("torch.py", "raise ImportError('No module named torch')\n");
  const auto lines = lines_of_peers(packages);
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0].at("missing").get<std::string>(), ContainsSubstring("PyTorch was not found"));
}

TEST_CASE("a PyTorch without a GPU says so") {
  if (worker::find_program("python3").empty()) SKIP("python3 is not installed");
  const book::TemporaryFolder packages;
  packages.write("torch/__init__.py",
                 "__version__ = '0.0'\nclass cuda:\n    is_available = staticmethod(lambda: False)\n");
  packages.write("torch/nn/__init__.py", "");
  packages.write("torch/nn/attention.py", "SDPBackend = sdpa_kernel = None\n");
  packages.write("torch/nn/functional.py", "scaled_dot_product_attention = None\n");
  const auto lines = lines_of_peers(packages);
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0].at("missing").get<std::string>(), ContainsSubstring("PyTorch 0.0"));
  CHECK_THAT(lines[0].at("missing").get<std::string>(), ContainsSubstring("sees no GPU"));
}
