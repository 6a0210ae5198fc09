// The timed versions of a chapter at each shape: its stages for the requested elements, and their variants.
#include <catch2/catch_test_macros.hpp>

#include "common/bench/measure.hpp"

using namespace workbook;

namespace {

book::Chapter kernels() {
  book::Chapter chapter;
  chapter.number = 8;
  chapter.slug = "registers";
  chapter.element = float16;
  chapter.more_elements = {bfloat16};
  chapter.backends = {Backend::sim, Backend::cuda};
  return chapter;
}

/// "NAME: element" for each version, or "NAME: element, 1" if it has numbers.
std::vector<std::string> versions(const std::vector<Element>& elements,
                                  const std::map<std::string, double>& numbers = {}, Backend backend = Backend::cuda) {
  bench::MeasureRequest request;
  request.elements = elements;
  request.numbers = numbers;
  std::vector<std::string> all;
  for (const bench::Version& version : bench::versions_of(kernels(), backend, request))
    all.push_back(version.name + ": " + name(version.element) +
                  (version.numbers.empty() ? "" : ", " + std::to_string(version.numbers.size())));
  return all;
}
using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("a chapter is timed in its element type, or in the requested ones") {
  CHECK(versions({}) == Texts{"08_registers: float16"});
  CHECK(versions({bfloat16}) == Texts{"08_registers: bfloat16"});
  CHECK(versions({bfloat16, float16}) == Texts{"08_registers: float16", "08_registers, bfloat16: bfloat16"});
  CHECK(versions({float32}).empty());
  CHECK(versions({}, {}, Backend::cpu).empty());
}

TEST_CASE("a variant is timed after the stage itself") {
  CHECK(versions({float16, bfloat16}, {{"deterministic", 1}}) ==
        Texts{"08_registers: float16", "08_registers, deterministic=1: float16, 1", "08_registers, bfloat16: bfloat16",
              "08_registers, bfloat16, deterministic=1: bfloat16, 1"});
}
