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
std::vector<json> lines_of_peers(const book::TemporaryFolder& packages,
                                 const json& request = {{"budget", 0.1}, {"shapes", json::array()}}) {
  packages.write("request.json", request.dump());
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

TEST_CASE("a library is a peer for each function that it exports, and refuses shapes that it does not support") {
  if (worker::find_program("python3").empty()) SKIP("python3 is not installed");
  const book::TemporaryFolder packages;
  packages.write("torch/__init__.py", R"(
__version__ = "0.0"
OutOfMemoryError = MemoryError
class cuda:
    is_available = staticmethod(lambda: True)
    empty_cache = staticmethod(lambda: None)
class version:
    cuda = "0"
class backends:
    class cudnn:
        version = staticmethod(lambda: 0)
)");
  packages.write("torch/nn/__init__.py", "");
  packages.write("torch/nn/attention.py",
                 "class SDPBackend:\n    MATH = EFFICIENT_ATTENTION = FLASH_ATTENTION = CUDNN_ATTENTION = 0\n"
                 "sdpa_kernel = None\n");
  packages.write("torch/nn/functional.py", "scaled_dot_product_attention = None\n");
  packages.write("library.cpp",
                 "extern \"C\" int forward() { return 0; }\nextern \"C\" int forward_fp8() { return 0; }\n"
                 "extern \"C\" int forward_decoding() { return 0; }\n");
  const std::string library = (packages / "library.so").string();
  REQUIRE(
      worker::run_command({"c++", "-shared", "-fPIC", (packages / "library.cpp").string(), "-o", library}).exit_code ==
      0);
  json shape{{"pass", "forward"}, {"mask", "prefix=3"}, {"B", 1}, {"H", 4}, {"Hkv", 2}, {"Nq", 8}, {"N", 8}, {"d", 64}};
  json shorter = shape;
  shorter["Nq"] = 4;
  json backward = shape;
  backward["pass"] = "backward";  // which the library does not export
  const auto lines = lines_of_peers(packages, {{"budget", 0.1},
                                               {"shapes", {shape, shorter, backward}},
                                               {"libraries", {{{"name", "mine"}, {"path", library}}}},
                                               {"peers", json::array()}});
  REQUIRE(lines.size() == 7);
  for (std::size_t i = 1; i < 7; ++i) {
    INFO(lines[i].dump());
    CHECK(lines[i].at("name") == (i % 3 != 0 ? "mine" : "mine FP8, codes given"));  // the second is for decoding
    CHECK(lines[i].at("element") == (i % 3 != 0 ? "float16" : "float8"));
    CHECK(lines[i].at("library") == "library.so");
    CHECK(lines[i].at("result") == "not supported");
    CHECK_THAT(lines[i].at("message").get<std::string>(),
               ContainsSubstring(i < 4 || i == 5 ? "no mask, the causal mask and windows" : "only Nk = Nq"));
  }
}
